//! Durable replacement of files (temporary name, fsync, rename, fsync of the directory), and the lock that makes a
//! process the only writer.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use super::directory::{Directory, FileAccess, FileRequirements};

/// Open flag (`O_NOFOLLOW`) for files that are never links, in directories to which other users may write.
pub const NO_FOLLOW_FLAG: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// Replaces `dir/name` by `bytes`. After a crash the file holds either all of the old or all of the new content.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace_with(dir, name, 0o644, |mut file| file.write_all(bytes))
}

/// Replaces a file like [`replace`]; the new file is read-only (0440).
pub fn replace_read_only(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace_with(dir, name, 0o440, |mut file| file.write_all(bytes))
}

/// Replaces a file like [`replace`]; the new file has the permissions `mode`, and `fill` writes its content. If `fill`
/// fails, nothing is left of the new file.
pub fn replace_with(dir: &Path, name: &str, mode: u32, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let temporary = dir.join(format!(".{name}.new"));
    let result = write(&temporary, mode, fill).and_then(|()| std::fs::rename(&temporary, dir.join(name)));
    if let Err(error) = result {
        // On a full disk, half a file takes the space that the next attempt needs.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dir(dir)
}

fn write(path: &Path, mode: u32, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    // Another user who may write here must not redirect the write to another file: the entry of this name is removed,
    // and no link is followed.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    fill(&file)?;
    file.sync_all()
}

/// Makes the names in `dir` durable; without this call a rename may not survive a power cut.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Restricts the mode of a lock file of an earlier release: a user who can open a file can lock it. The group keeps its
/// access if it may write, as in a volume that pods of several users share. Errors are ignored, because not every file
/// system has such modes.
fn restrict_lock_mode(file: &File) {
    let Ok(metadata) = file.metadata() else { return };
    let group_bits = if metadata.mode() & 0o020 == 0 { 0 } else { 0o070 };
    let mode = metadata.mode() & (0o7700 | group_bits);
    if metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o7777 != mode & 0o7777 {
        let _ = file.set_permissions(Permissions::from_mode(mode & 0o7777));
    }
}

/// An exclusive `flock`. It is released when dropped, and also when the process is killed.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Acquires the lock on `path`, and waits at most `timeout` for it. Returns `None` if another process still holds
    /// it then.
    pub fn acquire(path: &Path, timeout: Duration) -> io::Result<Option<FileLock>> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        FileLock::acquire_in(&Directory::open(parent)?, path.file_name().unwrap_or_default(), timeout)
    }

    /// Acquires a lock like [`FileLock::acquire`], on a file in `directory`. It follows no link, and a named pipe is an
    /// error.
    pub fn acquire_in(
        directory: &Directory,
        name: impl AsRef<OsStr>,
        timeout: Duration,
    ) -> io::Result<Option<FileLock>> {
        let file = directory.open_file(name.as_ref(), FileAccess::Append(0o600), FileRequirements::default())?;
        restrict_lock_mode(&file);
        let deadline = Instant::now() + timeout;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(FileLock { _file: file })),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    // flock(2) has no timeout; ten attempts a second cost nothing.
                    std::thread::sleep(Duration::from_millis(100).min(timeout));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Returns the process that holds an exclusive lock on the file at `path`, from the kernel's list of locks (proc(5)).
/// `None` if there is none, or if it is in another PID namespace. Nothing waits: trying to lock the file would block a
/// process that wants the lock.
pub fn find_lock_holder(path: &Path) -> Option<u32> {
    let metadata = std::fs::metadata(path).ok()?;
    parse_lock_holder(&std::fs::read_to_string("/proc/locks").ok()?, metadata.dev(), metadata.ino())
}

/// Finds the holder of an exclusive lock in the kernel's list. Files of two file systems can have the same inode, so
/// the device counts, too. Btrfs and overlay file systems have a device number (with the major number 0) in the list
/// that differs from the one of their files: there, only one lock with this inode is taken for it.
fn parse_lock_holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let holders: Vec<(&str, u32)> = locks
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let is_exclusive = words.next() == Some("FLOCK") && words.next().is_some() && words.next() == Some("WRITE");
            let pid: u32 = words.next()?.parse().ok()?;
            let (found_device, found_inode) = words.next()?.rsplit_once(':')?;
            (is_exclusive && pid > 0 && found_inode.parse() == Ok(inode)).then_some((found_device, pid))
        })
        .collect();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = format!("{major:02x}:{minor:02x}");
    let exact = holders.iter().find(|(found, _)| *found == own);
    let only = holders.first().filter(|(found, _)| holders.len() == 1 && major == 0 && found.starts_with("00:"));
    exact.or(only).map(|&(_, pid)| pid)
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
        // One file as a crash leaves it, and one link that another user has created.
        std::fs::write(dir.join(".record.new"), "half of the new content").unwrap();
        replace(dir, "record", b"new").unwrap();
        symlink(dir.join("record"), dir.join(".other.new")).unwrap();
        symlink(dir.join("record"), dir.join("other")).unwrap();
        replace(dir, "other", b"other").unwrap();
        assert_eq!((content("record"), content("other")), ("new".to_owned(), "other".to_owned()));
        let result = replace_with(dir, "record", 0o600, |mut file| {
            file.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert_eq!((result.unwrap_err().to_string(), content("record")), ("full".to_owned(), "new".to_owned()));
        std::fs::create_dir(dir.join("taken")).unwrap();
        assert!(replace(dir, "taken", b"x").is_err());
        assert_eq!(names(dir), ["other", "record", "taken"]);
    }

    #[test]
    fn read_only_files_have_no_write_bit_and_no_file_is_writable_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        replace(dir, "open", b"x").unwrap();
        replace_read_only(dir, "sealed", b"x").unwrap();
        replace_with(dir, "private", 0o600, |mut file| file.write_all(b"x")).unwrap();
        let mode_bits = |name: &str, bits: u32| mode(&dir.join(name)) & bits;
        assert_eq!(
            (mode_bits("open", 0o733), mode_bits("sealed", 0o737), mode_bits("private", 0o777)),
            (0o600, 0o400, 0o600)
        );
        assert!(names(dir).iter().all(|name| std::fs::read(dir.join(name)).unwrap() == b"x"));
    }

    #[test]
    fn file_lock_has_one_holder_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let acquire = || FileLock::acquire(&path, Duration::ZERO).unwrap();
        let first = acquire();
        assert!(first.is_some() && acquire().is_none());
        assert!(FileLock::acquire(&path, Duration::from_millis(1)).unwrap().is_none());
        drop(first);
        let directory = Directory::open(dir.path()).unwrap();
        let second = FileLock::acquire_in(&directory, "lock", Duration::ZERO).unwrap();
        assert!(second.is_some() && acquire().is_none());
        symlink(&path, dir.path().join("link")).unwrap();
        assert!(FileLock::acquire(&dir.path().join("link"), Duration::ZERO).is_err(), "no link is followed");
        assert!(FileLock::acquire(dir.path(), Duration::ZERO).is_err());
    }

    #[test]
    fn permissions_of_an_existing_lock_are_reduced_to_owner_and_writing_group() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        drop(FileLock::acquire(&path, Duration::ZERO).unwrap());
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
            drop(FileLock::acquire(&path, Duration::ZERO).unwrap());
            assert_eq!(mode(&path), new, "{old:o}");
        }
    }

    #[test]
    fn the_holder_of_a_lock_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:12 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fe:10:12 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fe:10:12 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 fe:00:12 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 15 fe:00:13 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 0 fe:00:14 0 EOF\n\
                     6: FLOCK  ADVISORY  WRITE 16 00:1b:15 0 EOF\n";
        for (major, minor, inode, expected) in [
            (0xfe, 0x10, 12, Some(12)),
            (0xfe, 0, 12, Some(14)),
            (0xfe, 0x20, 12, None),
            (0, 0x20, 12, None),
            (0xfe, 0, 13, None),
            (0xfe, 0, 14, None),
            (0, 0x1b, 15, Some(16)),
            (0, 0x2a, 15, Some(16)),
            (8, 1, 15, None),
        ] {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(parse_lock_holder(locks, device, inode), expected, "{major:x}:{minor:x}:{inode}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "").unwrap();
        assert_eq!(find_lock_holder(&path), None, "nobody holds it");
        assert_eq!(find_lock_holder(&dir.path().join("none")), None);
    }
}
