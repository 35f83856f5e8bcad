//! The folder that is published into: taken for ourselves, swept, and changed by renames that survive a crash.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, renameat_with, syncfs};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::base::chain::Chain;
use crate::base::durable::{self, Lock};
use crate::model::version::VersionId;
use crate::site::sealed::Sealed;
use crate::site::tree::{Modes, set_folder_mode};

use super::record::{self, Record};
use super::{CURRENT, PublishError, Published, Settings, build};

const LOCK: &str = ".docwharf.lock";
const STAGING: &str = ".staging-";
/// The link before it is renamed.
const NEW_LINK: &str = ".current.new";
/// A record before it is renamed.
const NEW_RECORD: &str = "..docwharf.json.new";
/// A record of ours is never larger, in bytes: it has a few hundred for each folder.
const RECORD_SIZE: u64 = 1 << 20;
/// How long another one of us may take; a large site is written in a few seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// The folder, which nobody else publishes into meanwhile.
pub(super) struct Place<'a> {
    dir: &'a Path,
    modes: Modes,
    _lock: Lock,
}

impl<'a> Place<'a> {
    /// Makes the folder if need be, takes it, and sweeps what a crash has left.
    pub(super) fn open(settings: &'a Settings) -> Result<Place<'a>, PublishError> {
        let dir = settings.directory.as_path();
        if real(dir).starts_with(real(&settings.store)) {
            return Err(PublishError::InStore(dir.to_owned()));
        }
        make(dir, settings.modes).map_err(PublishError::io("make", dir))?;
        let path = dir.join(LOCK);
        // Whoever else may write here could have put a pipe in its place, which is not opened before somebody reads it.
        if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(PublishError::io("lock", &path)(irregular()));
        }
        let lock = Lock::take(&path, PATIENCE).map_err(PublishError::io("lock", &path))?;
        let lock = lock.ok_or_else(|| PublishError::Busy(dir.to_owned()))?;
        let place = Place { dir, modes: settings.modes, _lock: lock };
        place.sweep();
        Ok(place)
    }

    /// What is left over costs space and nothing else.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(self.dir) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let removed = if name.starts_with(STAGING) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                fs::remove_dir_all(entry.path())
            } else if name == NEW_LINK || name == NEW_RECORD {
                fs::remove_file(entry.path())
            } else {
                continue;
            };
            if let Err(error) = removed {
                tracing::warn!("cannot remove {}: {error}", entry.path().display());
            }
        }
    }

    /// Where a version's folder is.
    pub(super) fn tree(&self, id: VersionId) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Whether there is one.
    pub(super) fn has(&self, id: VersionId) -> bool {
        fs::symlink_metadata(self.tree(id)).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Where the link leads; nothing if it leads elsewhere than to a folder of ours.
    pub(super) fn current(&self) -> Result<Option<VersionId>, PublishError> {
        let link = self.dir.join(CURRENT);
        match target(&link) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(PublishError::NotALink(link)),
            other => other.map_err(PublishError::io("read", &link)),
        }
    }

    pub(super) fn record(&self) -> Result<Record, PublishError> {
        let path = self.dir.join(record::FILE);
        let read = match read_regular(&path, RECORD_SIZE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
            Err(error) => Err(error),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
        };
        read.map_err(PublishError::io("read", &path))
    }

    pub(super) fn write_record(&self, record: &Record) -> Result<(), PublishError> {
        let path = self.dir.join(record::FILE);
        let bytes = serde_json::to_vec_pretty(record).map_err(PublishError::io("write", &path))?;
        durable::replace(self.dir, record::FILE, &bytes).map_err(PublishError::io("write", &path))
    }

    /// Builds the folder of `version` and puts it in place, whole.
    pub(super) fn bring(
        &self,
        version: &Sealed,
        record: &mut Record,
        current: Option<VersionId>,
        now: i64,
    ) -> Result<Published, PublishError> {
        let (id, target) = (version.id, self.tree(version.id));
        let replaces = fs::symlink_metadata(&target).is_ok();
        if replaces && !record.knows(id) {
            return Err(PublishError::Foreign(target));
        }
        let staging = self.staging()?;
        let tree = staging.path().join("tree");
        let donors: Vec<PathBuf> = record.donors(current, id).into_iter().map(|donor| self.tree(donor)).collect();
        let done = build::build(&tree, version, &donors, self.modes)?;
        let dir = File::open(self.dir).map_err(PublishError::io("open", self.dir))?;
        // All files at once, and before anything names them: after a crash there is no half-written file in `<id>`.
        syncfs(&dir).map_err(PublishError::io("sync", self.dir))?;
        record.add(id, self.modes, current == Some(id), now);
        self.write_record(record)?;
        let moved = if replaces { exchange(&tree, &target, staging.path()) } else { fs::rename(&tree, &target) };
        moved.map_err(PublishError::io("make", &target))?;
        dir.sync_all().map_err(PublishError::io("sync", self.dir))?;
        Ok(done)
    }

    /// Lets the link lead to `id`.
    pub(super) fn flip(&self, id: VersionId) -> Result<(), PublishError> {
        let (new, link) = (self.dir.join(NEW_LINK), self.dir.join(CURRENT));
        symlink(id.to_string(), &new).map_err(PublishError::io("make", &new))?;
        fs::rename(&new, &link).map_err(PublishError::io("replace", &link))?;
        durable::sync_dir(self.dir).map_err(PublishError::io("sync", self.dir))
    }

    /// Removes folders that nobody needs while `current` is. The link is right already, so a failure is told and no more.
    pub(super) fn remove_surplus(&self, record: &mut Record, current: VersionId, now: i64) {
        let surplus = record.surplus(current, now);
        if surplus.is_empty() {
            return;
        }
        let removed = (|| {
            let staging = self.staging()?;
            for id in surplus {
                let tree = self.tree(id);
                // Aside first: what is half removed must not have the name of a whole.
                match fs::rename(&tree, staging.path().join(id.to_string())) {
                    Ok(()) => record.forget(id),
                    // The others can go all the same.
                    Err(error) => tracing::warn!("{}", Chain(&PublishError::io("remove", &tree)(error))),
                }
            }
            self.write_record(record)?;
            let path = staging.path().to_owned();
            staging.close().map_err(PublishError::io("remove", &path))
        })();
        if let Err(error) = removed {
            tracing::warn!("{}", Chain(&error));
        }
    }

    fn staging(&self) -> Result<TempDir, PublishError> {
        let staging = tempfile::Builder::new().prefix(STAGING).tempdir_in(self.dir);
        staging.map_err(PublishError::io("write in", self.dir))
    }
}

/// Reads a file that others may have put there: no link is followed, no pipe is waited for.
fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(irregular());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {most} bytes; remove it")));
    }
    Ok(bytes)
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is no regular file; remove it")
}

/// Where a link of ours leads; nothing where there is none or a foreign one, `InvalidInput` where there is something else.
pub(super) fn target(link: &Path) -> io::Result<Option<VersionId>> {
    match fs::read_link(link) {
        Ok(target) => Ok(target.to_str().and_then(|name| name.parse().ok())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts `new` in the place of the folder `old`, which ends up in `aside`.
fn exchange(new: &Path, old: &Path, aside: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        // Not every file system can. For an instant there is nothing, which is the best that can be had there.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let aside = aside.join("old");
            fs::rename(old, &aside)?;
            fs::rename(new, old).inspect_err(|_| drop(fs::rename(&aside, old)))
        }
        done => Ok(done?),
    }
}

/// Makes a folder and those above it that are missing, for the same readers as what will lie in it.
fn make(dir: &Path, modes: Modes) -> io::Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(set_folder_mode(&build::open_root(dir)?, modes.folder)?),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(dir.parent().ok_or(error)?, modes)?;
            make(dir, modes)
        }
        Err(error) => Err(error),
    }
}

/// A path without links, as far as it is there.
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
mod tests {
    use super::*;
    use crate::model::digest::Digest;

    const MODES: Modes = Modes { file: 0o644, folder: 0o755 };

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
        assert!(said().contains("no regular file"), "{}", said());
        drop(place);
        let lock = settings.directory.join(LOCK);
        fs::remove_file(&lock).unwrap();
        pipe(&lock);
        let refused = Place::open(&settings).err().map(|error| Chain(&error).to_string());
        assert!(refused.unwrap().contains("no regular file"));
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
            // The first and the third are gone, as if somebody had removed them at this moment.
            if n % 2 == 0 {
                fs::create_dir(place.tree(id(n))).unwrap();
            }
        }
        place.remove_surplus(&mut record, id(9), 1 << 20);
        assert!(!place.tree(id(2)).exists() && !place.tree(id(4)).exists());
        assert_eq!([1, 2, 3, 4].map(|n| record.knows(id(n))), [true, false, true, false]);
        assert_eq!(place.record().unwrap(), record);
    }
}
