//! The directory to publish into: its lock, the removal of leftovers, and changes by renames, which survive a crash.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::syncfs;

use docwharf_base::directory::{Directory, EntryKind, is_unsupported};
use docwharf_base::durable::FileLock;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_site::extract::{FileModes, set_folder_mode};
use docwharf_site::sealed_version::SealedVersion;

use super::error::PublishError;
use super::record::{self, PublishRecord};
use super::settings::PublishSettings;
use super::tree_builder::{self, PublishOutcome};

/// Name of the link to the current version.
pub const CURRENT_LINK: &str = "current";
const LOCK_FILE: &str = ".docwharf.lock";
const STAGING_PREFIX: &str = ".staging-";
/// Name of the new tree in a staging directory.
const NEW_TREE: &str = "tree";
/// Name of the replaced tree in a staging directory, where the file system cannot exchange two names.
const REPLACED_TREE: &str = "old";
/// Name of the link before it is renamed.
const NEW_LINK: &str = ".current.new";
/// The temporary name that `Directory::replace` gives the record (`.<name>.new`).
const NEW_RECORD: &str = "..docwharf.json.new";
/// Upper bound of the size of the record in bytes; it has a few hundred bytes for each directory.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// Upper bound of the wait for another process that publishes; a large site is written in a few seconds.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);

/// The locked directory to publish into. The web server that reads the folder (such as nginx) may be able to write to
/// it, so it is opened once, and no file in it is opened by path.
pub(super) struct PublishDirectory {
    directory: Directory,
    modes: FileModes,
    _lock: FileLock,
}

/// A directory for a tree that is being built or removed; it is removed when dropped.
struct StagingDirectory {
    parent: Directory,
    name: String,
    directory: Directory,
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.parent.remove_all_if_exists(&self.name) {
            tracing::warn!("cannot remove {}: {error}; the next publication retries", self.directory.path().display());
        }
    }
}

impl PublishDirectory {
    /// Opens the directory, and creates it if necessary; acquires the lock, and removes what a crash has left behind.
    pub(super) fn open(settings: &PublishSettings) -> Result<PublishDirectory, PublishError> {
        let dir = settings.directory.as_path();
        if resolve_existing(dir).starts_with(resolve_existing(&settings.store)) {
            return Err(PublishError::InStore(dir.to_owned()));
        }
        create_directories(dir, settings.modes).map_err(PublishError::io("make", dir))?;
        let directory = Directory::open(dir).map_err(PublishError::io("open", dir))?;
        let lock = FileLock::acquire_in(&directory, LOCK_FILE, LOCK_TIMEOUT)
            .map_err(PublishError::io("lock", &dir.join(LOCK_FILE)))?;
        let lock = lock.ok_or_else(|| PublishError::Busy(dir.to_owned()))?;
        let publish_directory = PublishDirectory { directory, modes: settings.modes, _lock: lock };
        publish_directory.remove_leftovers();
        Ok(publish_directory)
    }

    /// Removes unfinished directories and files. A failure is only logged, because leftovers only need disk space.
    fn remove_leftovers(&self) {
        let Ok(entries) = self.directory.entries() else { return };
        for entry in entries.flatten() {
            let name = entry.name.to_string_lossy();
            let removed = if name.starts_with(STAGING_PREFIX) && entry.kind == EntryKind::Directory {
                self.directory.remove_all(&entry.name)
            } else if name == NEW_LINK || name == NEW_RECORD {
                self.directory.remove_file(&entry.name)
            } else {
                continue;
            };
            if let Err(error) = removed {
                tracing::warn!("cannot remove {}: {error}", self.path_of(&name).display());
            }
        }
    }

    /// Returns the path of a file in the directory, for messages.
    fn path_of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Whether the directory of a version exists.
    pub(super) fn has_version(&self, id: VersionId) -> bool {
        self.directory.metadata_of(id.to_string()).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Whether the directory of a version exists, with every file as it was published.
    pub(super) fn is_complete(&self, version: &SealedVersion) -> bool {
        let tree = self.directory.open_directory(version.id.to_string());
        tree.is_ok_and(|tree| tree_builder::is_complete(&tree, version, self.modes))
    }

    /// Reads the target of the link; none if there is no link or it does not name a version.
    pub(super) fn current_version(&self) -> Result<Option<VersionId>, PublishError> {
        let link = self.path_of(CURRENT_LINK);
        match read_link_target(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(PublishError::NotALink(link)),
            result => result.map_err(PublishError::io("read", &link)),
        }
    }

    pub(super) fn record(&self) -> Result<PublishRecord, PublishError> {
        let read = match self.directory.read(record::RECORD_FILE, MAX_RECORD_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PublishRecord::default()),
            Err(error) => Err(error),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
        };
        read.map_err(PublishError::io("read", &self.path_of(record::RECORD_FILE)))
    }

    pub(super) fn write_record(&self, record: &PublishRecord) -> Result<(), PublishError> {
        let path = self.path_of(record::RECORD_FILE);
        let bytes = serde_json::to_vec_pretty(record).map_err(PublishError::io("write", &path))?;
        self.directory.replace(record::RECORD_FILE, 0o644, &bytes).map_err(PublishError::io("write", &path))
    }

    /// Builds the directory of `version` and renames it to its id.
    pub(super) fn build_version(
        &self,
        version: &SealedVersion,
        record: &mut PublishRecord,
        current: Option<VersionId>,
        now: i64,
    ) -> Result<PublishOutcome, PublishError> {
        let (id, name) = (version.id, version.id.to_string());
        let target = self.path_of(&name);
        let is_replacement = self.directory.has(&name);
        if is_replacement && !record.has_directory(id) {
            return Err(PublishError::Foreign(target));
        }
        let staging = self.create_staging()?;
        let tree = staging.directory.create_directory(NEW_TREE, 0o700);
        let tree = tree.map_err(PublishError::io("make", &staging.directory.path().join(NEW_TREE)))?;
        set_folder_mode(&tree, self.modes.folder).map_err(PublishError::io("make", tree.path()))?;
        let sources = record.link_sources(current, id).into_iter();
        let link_sources: Vec<Directory> =
            sources.filter_map(|source| self.directory.open_directory(source.to_string()).ok()).collect();
        let outcome = tree_builder::build_tree(&tree, version, &link_sources, self.modes)?;
        // All files are synced before the record or the name `<id>` refers to them, so that no file in `<id>` is
        // incomplete after a crash.
        syncfs(&self.directory).map_err(PublishError::io("sync", self.directory.path()))?;
        record.add(id, self.modes, current == Some(id), now);
        self.write_record(record)?;
        let renamed = if is_replacement {
            exchange(&staging.directory, &self.directory, &name)
        } else {
            staging.directory.rename(NEW_TREE, &self.directory, &name)
        };
        renamed.map_err(PublishError::io("make", &target))?;
        self.directory.sync().map_err(PublishError::io("sync", self.directory.path()))?;
        Ok(outcome)
    }

    /// Replaces the link by one to `id`.
    pub(super) fn replace_link(&self, id: VersionId) -> Result<(), PublishError> {
        let created = self.directory.create_link(id.to_string(), NEW_LINK);
        created.map_err(PublishError::io("make", &self.path_of(NEW_LINK)))?;
        let renamed = self.directory.rename(NEW_LINK, &self.directory, CURRENT_LINK);
        renamed.map_err(PublishError::io("replace", &self.path_of(CURRENT_LINK)))?;
        self.directory.sync().map_err(PublishError::io("sync", self.directory.path()))
    }

    /// Removes directories that are not needed while `current` is current. The link is already correct, so a failure is
    /// only logged.
    pub(super) fn remove_unneeded(&self, record: &mut PublishRecord, current: VersionId, now: i64) {
        let surplus = record.unneeded(current, now);
        if surplus.is_empty() {
            return;
        }
        let removed = (|| {
            let staging = self.create_staging()?;
            for id in surplus {
                let name = id.to_string();
                // Renamed before it is removed: a partly removed directory must not have the name of a complete one.
                match self.directory.rename(&name, &staging.directory, &name) {
                    Ok(()) => record.remove(id),
                    // The other directories are removed all the same.
                    Err(error) => {
                        tracing::warn!("{}", ErrorChain(&PublishError::io("remove", &self.path_of(&name))(error)));
                    }
                }
            }
            self.write_record(record)
        })();
        if let Err(error) = removed {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }

    fn create_staging(&self) -> Result<StagingDirectory, PublishError> {
        for n in 0u32.. {
            let name = format!("{STAGING_PREFIX}{n}");
            match self.directory.create_directory(&name, 0o700) {
                Ok(directory) => return Ok(StagingDirectory { parent: self.directory.clone(), name, directory }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(PublishError::io("write in", self.directory.path())(error)),
            }
        }
        Err(PublishError::io("write in", self.directory.path())(io::Error::from(io::ErrorKind::AlreadyExists)))
    }
}

/// Reads the target of the link in `directory`; none if there is no link or it does not name a version; `InvalidInput`
/// if the file is not a link.
pub(super) fn read_link_target(directory: &Directory) -> io::Result<Option<VersionId>> {
    match directory.read_link(CURRENT_LINK) {
        Ok(target) => Ok(target.to_str().and_then(|name| name.parse().ok())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the directory `name` by the tree in `staging`; the replaced one is then in `staging`.
fn exchange(staging: &Directory, to: &Directory, name: &str) -> io::Result<()> {
    match staging.exchange(NEW_TREE, to, name) {
        // Not every file system can exchange names. Without an exchange, the name does not exist for an instant.
        Err(error) if is_unsupported(&error) => {
            to.rename(name, staging, REPLACED_TREE)?;
            staging.rename(NEW_TREE, to, name).inspect_err(|_| drop(staging.rename(REPLACED_TREE, to, name)))
        }
        result => result,
    }
}

/// Creates a directory and its missing parents, readable like the files that will be in it.
#[allow(clippy::disallowed_methods)] // the operator's path
fn create_directories(dir: &Path, modes: FileModes) -> io::Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(set_folder_mode(&Directory::open_no_follow(dir)?, modes.folder)?),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_directories(dir.parent().ok_or(error)?, modes)?;
            create_directories(dir, modes)
        }
        Err(error) => Err(error),
    }
}

/// Returns the path without links, as far as it exists.
#[allow(clippy::disallowed_methods)] // the operator's path, for a comparison
fn resolve_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in absolute.ancestors() {
        if let (Ok(resolved), Ok(rest)) = (fs::canonicalize(ancestor), absolute.strip_prefix(ancestor)) {
            return if rest.as_os_str().is_empty() { resolved } else { resolved.join(rest) };
        }
    }
    absolute
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, Mode};

    use super::*;
    use docwharf_base::model::digest::Digest;

    const MODES: FileModes = FileModes { file: 0o644, folder: 0o755 };

    fn id(n: u8) -> VersionId {
        VersionId(Digest([n; 32]))
    }

    fn settings(dir: &tempfile::TempDir) -> PublishSettings {
        PublishSettings { directory: dir.path().join("www"), store: dir.path().join("store"), modes: MODES }
    }

    // Regression: a named pipe in the place of the record or the lock of the publish directory stopped publishing for
    // ever.
    #[test]
    fn damaged_oversized_or_special_publish_record_is_an_error_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        let directory = PublishDirectory::open(&settings).unwrap();
        directory.write_record(&PublishRecord::default()).unwrap();
        assert_eq!(directory.record().unwrap(), PublishRecord::default());
        let path = settings.directory.join(record::RECORD_FILE);
        let message = || ErrorChain(&directory.record().unwrap_err()).to_string();
        fs::write(&path, "{").unwrap();
        assert!(message().starts_with("cannot publish: cannot read ") && message().contains("EOF"), "{}", message());
        fs::write(&path, vec![b' '; usize::try_from(MAX_RECORD_BYTES).unwrap() + 1]).unwrap();
        assert!(message().contains("larger than"), "{}", message());
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(message().contains(record::RECORD_FILE), "{}", message());
        fs::remove_file(&path).unwrap();
        pipe(&path);
        assert!(message().contains("expected a regular file"), "{}", message());
        drop(directory);
        let lock = settings.directory.join(LOCK_FILE);
        fs::remove_file(&lock).unwrap();
        pipe(&lock);
        let refused = PublishDirectory::open(&settings).err().map(|error| ErrorChain(&error).to_string());
        assert!(refused.unwrap().contains("expected a regular file"));
    }

    #[test]
    fn publish_record_stores_published_directories_under_stable_json_names() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        let directory = PublishDirectory::open(&settings).unwrap();
        let [one, two, three] = [id(1), id(2), id(3)].map(|id| id.to_string());
        let content = serde_json::json!({
            "schemaVersion": 1,
            "previous": one,
            "trees": {
                one: { "fileMode": "0644", "folderMode": "0755", "replaced": "2026-11-21T10:00:00Z" },
                two: { "fileMode": "0600", "folderMode": "0755", "replaced": null },
                three: { "fileMode": "0644", "folderMode": "0744", "replaced": null },
            },
        });
        let path = settings.directory.join(record::RECORD_FILE);
        fs::write(&path, content.to_string()).unwrap();
        let record = directory.record().unwrap();
        assert_eq!([1, 2, 3, 4].map(|n| record.has_directory_with_modes(id(n), MODES)), [true, false, false, false]);
        directory.write_record(&record).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(written, content);
    }

    #[test]
    fn one_process_publishes_into_a_directory_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        let directory = PublishDirectory::open(&settings).unwrap();
        let acquire = |timeout| FileLock::acquire(&settings.directory.join(LOCK_FILE), timeout).unwrap();
        assert!(acquire(Duration::ZERO).is_none());
        drop(directory);
        assert!(acquire(Duration::from_secs(10)).is_some());
    }

    #[test]
    fn new_directories_get_the_configured_mode_and_existing_ones_are_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode() & 0o7777;
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o711)).unwrap();
        // With modes that the umask would reduce.
        let modes = FileModes { file: 0o666, folder: 0o777 };
        for _ in 0..2 {
            create_directories(&dir.path().join("a/b/c/d"), modes).unwrap();
            assert_eq!(["a", "a/b", "a/b/c", "a/b/c/d"].map(mode), [0o711, 0o777, 0o777, 0o777]);
            create_directories(&dir.path().join("a"), modes).unwrap();
        }
        assert_eq!(mode("a"), 0o711);
    }

    fn pipe(path: &Path) {
        rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    // Regression: one published folder that could not be removed kept all others from being removed.
    #[test]
    fn missing_version_directory_does_not_prevent_the_removal_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        let directory = PublishDirectory::open(&settings).unwrap();
        let mut record = PublishRecord::default();
        for n in 1..5 {
            record.add(id(n), MODES, false, 0);
            // The first and the third do not exist, as if another process had removed them at this moment.
            if n % 2 == 0 {
                fs::create_dir(settings.directory.join(id(n).to_string())).unwrap();
            }
        }
        directory.remove_unneeded(&mut record, id(9), 1 << 20);
        assert!(!directory.has_version(id(2)) && !directory.has_version(id(4)));
        assert_eq!([1, 2, 3, 4].map(|n| record.has_directory(id(n))), [true, false, true, false]);
        assert_eq!(directory.record().unwrap(), record);
    }
}
