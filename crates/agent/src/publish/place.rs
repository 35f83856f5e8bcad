//! The directory to publish into: its lock, its sweep, and changes by renames that survive a crash.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::syncfs;

use docwharf_base::chain::Chain;
use docwharf_base::directory::{Directory, EntryKind, is_unsupported};
use docwharf_base::durable::Lock;
use docwharf_base::model::version::VersionId;
use docwharf_site::sealed_version::SealedVersion;
use docwharf_site::extract::{FileModes, set_folder_mode};

use super::record::{self, Record};
use super::{CURRENT, PublishError, Published, Settings, build};

const LOCK: &str = ".docwharf.lock";
const STAGING: &str = ".staging-";
/// Name of the new tree in a staging directory.
const TREE: &str = "tree";
/// Name of the replaced tree in a staging directory, where the file system cannot exchange two names.
const OLD: &str = "old";
/// Name of the link before it is renamed.
const NEW_LINK: &str = ".current.new";
/// Name of the record before it is renamed.
const NEW_RECORD: &str = "..docwharf.json.new";
/// Upper bound of the size of the record in bytes; it has a few hundred bytes for each directory.
const RECORD_SIZE: u64 = 1 << 20;
/// How long to wait for another process that publishes; a large site is written in a few seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// The locked directory to publish into. The other server may be able to write to it, so it is opened once, and no file
/// in it is reached by path.
pub(super) struct Place {
    directory: Directory,
    modes: FileModes,
    _lock: Lock,
}

/// A directory for a tree that is being built or removed; it is removed when dropped.
struct Staging {
    parent: Directory,
    name: String,
    directory: Directory,
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.parent.remove_all_if_there(&self.name) {
            tracing::warn!("cannot remove {}: {error}; the next publication retries", self.directory.path().display());
        }
    }
}

impl Place {
    /// Opens the directory, and creates it if necessary; takes the lock, and sweeps what a crash has left.
    pub(super) fn open(settings: &Settings) -> Result<Place, PublishError> {
        let dir = settings.directory.as_path();
        if real(dir).starts_with(real(&settings.store)) {
            return Err(PublishError::InStore(dir.to_owned()));
        }
        make(dir, settings.modes).map_err(PublishError::io("make", dir))?;
        let directory = Directory::open(dir).map_err(PublishError::io("open", dir))?;
        let lock = Lock::take_in(&directory, LOCK, PATIENCE).map_err(PublishError::io("lock", &dir.join(LOCK)))?;
        let lock = lock.ok_or_else(|| PublishError::Busy(dir.to_owned()))?;
        let place = Place { directory, modes: settings.modes, _lock: lock };
        place.sweep();
        Ok(place)
    }

    /// Removes unfinished work. A failure is only logged, because leftovers cost nothing but space.
    fn sweep(&self) {
        let Ok(entries) = self.directory.entries() else { return };
        for entry in entries.flatten() {
            let name = entry.name.to_string_lossy();
            let removed = if name.starts_with(STAGING) && entry.kind == EntryKind::Directory {
                self.directory.remove_all(&entry.name)
            } else if name == NEW_LINK || name == NEW_RECORD {
                self.directory.remove_file(&entry.name)
            } else {
                continue;
            };
            if let Err(error) = removed {
                tracing::warn!("cannot remove {}: {error}", self.shown(&name).display());
            }
        }
    }

    /// Returns the path of a file in the directory, for messages.
    fn shown(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Whether the directory of a version exists.
    pub(super) fn has(&self, id: VersionId) -> bool {
        self.directory.metadata_of(id.to_string()).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Whether the directory of a version exists, with every file as it was published.
    pub(super) fn is_whole(&self, version: &SealedVersion) -> bool {
        let tree = self.directory.directory(version.id.to_string());
        tree.is_ok_and(|tree| build::is_whole(&tree, version, self.modes))
    }

    /// Reads the target of the link; none if there is no link or it does not name a version.
    pub(super) fn current(&self) -> Result<Option<VersionId>, PublishError> {
        let link = self.shown(CURRENT);
        match target(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(PublishError::NotALink(link)),
            other => other.map_err(PublishError::io("read", &link)),
        }
    }

    pub(super) fn record(&self) -> Result<Record, PublishError> {
        let read = match self.directory.read(record::FILE, RECORD_SIZE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
            Err(error) => Err(error),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
        };
        read.map_err(PublishError::io("read", &self.shown(record::FILE)))
    }

    pub(super) fn write_record(&self, record: &Record) -> Result<(), PublishError> {
        let path = self.shown(record::FILE);
        let bytes = serde_json::to_vec_pretty(record).map_err(PublishError::io("write", &path))?;
        self.directory.replace(record::FILE, 0o644, &bytes).map_err(PublishError::io("write", &path))
    }

    /// Builds the directory of `version` and puts it in place as a whole.
    pub(super) fn bring(
        &self,
        version: &SealedVersion,
        record: &mut Record,
        current: Option<VersionId>,
        now: i64,
    ) -> Result<Published, PublishError> {
        let (id, name) = (version.id, version.id.to_string());
        let target = self.shown(&name);
        let replaces = self.directory.has(&name);
        if replaces && !record.knows(id) {
            return Err(PublishError::Foreign(target));
        }
        let staging = self.staging()?;
        let tree = staging.directory.create_directory(TREE, 0o700);
        let tree = tree.map_err(PublishError::io("make", &staging.directory.path().join(TREE)))?;
        set_folder_mode(&tree, self.modes.folder).map_err(PublishError::io("make", tree.path()))?;
        let donors = record.donors(current, id).into_iter();
        let donors: Vec<Directory> =
            donors.filter_map(|donor| self.directory.directory(donor.to_string()).ok()).collect();
        let done = build::build(&tree, version, &donors, self.modes)?;
        // One sync for all files, before the record or a name refers to them: after a crash no file in `<id>` is
        // incomplete.
        syncfs(&self.directory).map_err(PublishError::io("sync", self.directory.path()))?;
        record.add(id, self.modes, current == Some(id), now);
        self.write_record(record)?;
        let moved = if replaces {
            exchange(&staging.directory, &self.directory, &name)
        } else {
            staging.directory.rename(TREE, &self.directory, &name)
        };
        moved.map_err(PublishError::io("make", &target))?;
        self.directory.sync().map_err(PublishError::io("sync", self.directory.path()))?;
        Ok(done)
    }

    /// Replaces the link by one to `id`.
    pub(super) fn flip(&self, id: VersionId) -> Result<(), PublishError> {
        let made = self.directory.create_link(id.to_string(), NEW_LINK);
        made.map_err(PublishError::io("make", &self.shown(NEW_LINK)))?;
        let renamed = self.directory.rename(NEW_LINK, &self.directory, CURRENT);
        renamed.map_err(PublishError::io("replace", &self.shown(CURRENT)))?;
        self.directory.sync().map_err(PublishError::io("sync", self.directory.path()))
    }

    /// Removes directories that are not needed while `current` is current. The link is already correct, so a failure is
    /// only logged.
    pub(super) fn remove_surplus(&self, record: &mut Record, current: VersionId, now: i64) {
        let surplus = record.surplus(current, now);
        if surplus.is_empty() {
            return;
        }
        let removed = (|| {
            let staging = self.staging()?;
            for id in surplus {
                let name = id.to_string();
                // Renamed before it is removed: a half removed directory must not have the name of a complete one.
                match self.directory.rename(&name, &staging.directory, &name) {
                    Ok(()) => record.forget(id),
                    // The other directories are removed all the same.
                    Err(error) => {
                        tracing::warn!("{}", Chain(&PublishError::io("remove", &self.shown(&name))(error)));
                    }
                }
            }
            self.write_record(record)
        })();
        if let Err(error) = removed {
            tracing::warn!("{}", Chain(&error));
        }
    }

    fn staging(&self) -> Result<Staging, PublishError> {
        for n in 0u32.. {
            let name = format!("{STAGING}{n}");
            match self.directory.create_directory(&name, 0o700) {
                Ok(directory) => return Ok(Staging { parent: self.directory.clone(), name, directory }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(PublishError::io("write in", self.directory.path())(error)),
            }
        }
        Err(PublishError::io("write in", self.directory.path())(io::Error::from(io::ErrorKind::AlreadyExists)))
    }
}

/// Reads the target of the link in `directory`; none if there is no link or it does not name a version; `InvalidInput`
/// if the file is not a link.
pub(super) fn target(directory: &Directory) -> io::Result<Option<VersionId>> {
    match directory.read_link(CURRENT) {
        Ok(target) => Ok(target.to_str().and_then(|name| name.parse().ok())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the directory `name` by the tree in `staging`; the replaced one is then in `staging`.
fn exchange(staging: &Directory, to: &Directory, name: &str) -> io::Result<()> {
    match staging.exchange(TREE, to, name) {
        // Not every file system can exchange names. Without that, there is no directory of this name for an instant.
        Err(error) if is_unsupported(&error) => {
            to.rename(name, staging, OLD)?;
            staging.rename(TREE, to, name).inspect_err(|_| drop(staging.rename(OLD, to, name)))
        }
        done => done,
    }
}

/// Creates a directory and its missing parents, readable like the files that will be in it.
#[allow(clippy::disallowed_methods)] // the operator's path
fn make(dir: &Path, modes: FileModes) -> io::Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(set_folder_mode(&Directory::open_unlinked(dir)?, modes.folder)?),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(dir.parent().ok_or(error)?, modes)?;
            make(dir, modes)
        }
        Err(error) => Err(error),
    }
}

/// Returns the path without links, as far as it exists.
#[allow(clippy::disallowed_methods)] // the operator's path, for a comparison
fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in whole.ancestors() {
        if let (Ok(found), Ok(rest)) = (fs::canonicalize(above), whole.strip_prefix(above)) {
            return if rest.as_os_str().is_empty() { found } else { found.join(rest) };
        }
    }
    whole
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode};

    use super::*;
    use docwharf_base::model::digest::Digest;

    const MODES: FileModes = FileModes { file: 0o644, folder: 0o755 };

    fn id(n: u8) -> VersionId {
        VersionId(Digest([n; 32]))
    }

    fn settings(dir: &tempfile::TempDir) -> Settings {
        Settings { directory: dir.path().join("www"), store: dir.path().join("store"), modes: MODES }
    }

    #[test]
    fn what_is_no_plain_record_of_ours_is_an_error_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        let place = Place::open(&settings).unwrap();
        place.write_record(&Record::default()).unwrap();
        assert_eq!(place.record().unwrap(), Record::default());
        let path = settings.directory.join(record::FILE);
        let said = || Chain(&place.record().unwrap_err()).to_string();
        fs::write(&path, vec![b' '; usize::try_from(RECORD_SIZE).unwrap() + 1]).unwrap();
        assert!(said().contains("larger than"), "{}", said());
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(said().contains(record::FILE), "{}", said());
        fs::remove_file(&path).unwrap();
        pipe(&path);
        assert!(said().contains("a regular file is needed"), "{}", said());
        drop(place);
        let lock = settings.directory.join(LOCK);
        fs::remove_file(&lock).unwrap();
        pipe(&lock);
        let refused = Place::open(&settings).err().map(|error| Chain(&error).to_string());
        assert!(refused.unwrap().contains("a regular file is needed"));
    }

    fn pipe(path: &Path) {
        rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_go_does_not_keep_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(&dir);
        let place = Place::open(&settings).unwrap();
        let mut record = Record::default();
        for n in 1..5 {
            record.add(id(n), MODES, false, 0);
            // The first and the third do not exist, as if another process had removed them at this moment.
            if n % 2 == 0 {
                fs::create_dir(settings.directory.join(id(n).to_string())).unwrap();
            }
        }
        place.remove_surplus(&mut record, id(9), 1 << 20);
        assert!(!place.has(id(2)) && !place.has(id(4)));
        assert_eq!([1, 2, 3, 4].map(|n| record.knows(id(n))), [true, false, true, false]);
        assert_eq!(place.record().unwrap(), record);
    }
}
