//! Files that survive a crash: temporary name, fsync, rename, fsync of the directory. And the lock of one writer.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use super::directory::{Access, Demands, Directory};

/// For opening files that are never links, in folders that others may write to.
pub const NO_LINK: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// Writes `bytes` so that after a crash `dir/name` holds either all of the old or all of the new content.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace_by(dir, name, 0o644, |mut file| file.write_all(bytes))
}

/// The same for what nobody is to write to any more.
pub fn replace_sealed(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace_by(dir, name, 0o440, |mut file| file.write_all(bytes))
}

/// The same of a file with these permissions into which `fill` writes, as long as that may take. If it fails nothing is
/// left of it.
pub fn replace_by(dir: &Path, name: &str, mode: u32, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let temporary = dir.join(format!(".{name}.new"));
    let written = write(&temporary, mode, fill).and_then(|()| std::fs::rename(&temporary, dir.join(name)));
    if let Err(error) = written {
        // Half a file on a disk that is full takes the room that the next attempt needs.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dir(dir)
}

fn write(path: &Path, mode: u32, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    // Whoever else may write there must not lead us to another file: what lies under this name goes, nothing is followed.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    fill(&file)?;
    file.sync_all()
}

/// Makes the names in `dir` durable: without it a rename may not survive a power cut.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Who can open a file for reading can lock it: one of ours that is older is closed to all others, unless its group may write
/// to it, as in a volume that pods of several users share. Not every file system has such modes.
fn shut(file: &File) {
    let Ok(about) = file.metadata() else { return };
    let group = if about.mode() & 0o020 == 0 { 0 } else { 0o070 };
    let mode = about.mode() & (0o7700 | group);
    if about.uid() == geteuid().as_raw() && about.mode() & 0o7777 != mode & 0o7777 {
        let _ = file.set_permissions(Permissions::from_mode(mode & 0o7777));
    }
}

/// An exclusive `flock`, given up when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock on `path`, waiting up to `patience`; `None` if another process still holds it then.
    pub fn take(path: &Path, patience: Duration) -> io::Result<Option<Lock>> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Lock::take_in(&Directory::open(parent)?, path.file_name().unwrap_or_default(), patience)
    }

    /// The same for a file of a directory. No link is followed, and a named pipe is an error.
    pub fn take_in(directory: &Directory, name: impl AsRef<OsStr>, patience: Duration) -> io::Result<Option<Lock>> {
        let file = directory.open_file(name.as_ref(), Access::Append(0o600), Demands::default())?;
        shut(&file);
        let deadline = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Lock { _file: file })),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    // flock has no waiting with a limit; a look ten times a second costs nothing.
                    std::thread::sleep(Duration::from_millis(100).min(patience));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_all_old_or_all_new_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let content = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        replace(dir, "record", b"old").unwrap();
        // What a crash has left, and what another user has put there.
        std::fs::write(dir.join(".record.new"), "half of what was to come").unwrap();
        replace(dir, "record", b"new").unwrap();
        symlink(dir.join("record"), dir.join(".other.new")).unwrap();
        symlink(dir.join("record"), dir.join("other")).unwrap();
        replace(dir, "other", b"other").unwrap();
        assert_eq!((content("record"), content("other")), ("new".to_owned(), "other".to_owned()));
        let failed = replace_by(dir, "record", 0o600, |mut file| {
            file.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert_eq!((failed.unwrap_err().to_string(), content("record")), ("full".to_owned(), "new".to_owned()));
        std::fs::create_dir(dir.join("taken")).unwrap();
        assert!(replace(dir, "taken", b"x").is_err());
        assert_eq!(names(dir), ["other", "record", "taken"]);
    }

    #[test]
    fn what_is_sealed_is_not_written_to_and_others_write_to_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        replace(dir, "open", b"x").unwrap();
        replace_sealed(dir, "sealed", b"x").unwrap();
        replace_by(dir, "private", 0o600, |mut file| file.write_all(b"x")).unwrap();
        let may = |name: &str, bits: u32| mode(&dir.join(name)) & bits;
        assert_eq!((may("open", 0o733), may("sealed", 0o737), may("private", 0o777)), (0o600, 0o400, 0o600));
        assert!(names(dir).iter().all(|name| std::fs::read(dir.join(name)).unwrap() == b"x"));
    }

    #[test]
    fn a_lock_has_one_holder_until_that_gives_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let take = || Lock::take(&path, Duration::ZERO).unwrap();
        let first = take();
        assert!(first.is_some() && take().is_none());
        assert!(Lock::take(&path, Duration::from_millis(1)).unwrap().is_none());
        drop(first);
        let directory = Directory::open(dir.path()).unwrap();
        let second = Lock::take_in(&directory, "lock", Duration::ZERO).unwrap();
        assert!(second.is_some() && take().is_none());
        symlink(&path, dir.path().join("link")).unwrap();
        assert!(Lock::take(&dir.path().join("link"), Duration::ZERO).is_err(), "no link is followed");
        assert!(Lock::take(dir.path(), Duration::ZERO).is_err());
    }

    #[test]
    fn an_older_lock_is_shut_to_all_but_its_owner_and_a_group_that_may_write_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        drop(Lock::take(&path, Duration::ZERO).unwrap());
        assert_eq!(mode(&path), 0o600);
        for (old, new) in [
            (0o600, 0o600),
            (0o644, 0o600),
            (0o640, 0o600),
            (0o602, 0o600),
            (0o620, 0o620),
            (0o660, 0o660),
            (0o664, 0o660),
            (0o666, 0o660),
            (0o777, 0o770),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(old)).unwrap();
            drop(Lock::take(&path, Duration::ZERO).unwrap());
            assert_eq!(mode(&path), new, "{old:o}");
        }
    }
}
