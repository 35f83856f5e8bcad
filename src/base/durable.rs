//! Files that survive a crash: temporary name, fsync, rename, fsync of the directory. And the lock of one writer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

/// For opening files that are never links, in folders that others may write to.
pub const NO_LINK: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// Writes `bytes` so that after a crash `dir/name` holds either all of the old or all of the new content.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace_by(dir, name, 0o644, |mut file| file.write_all(bytes))
}

/// The same for what nobody is to write to any more.
pub fn replace_sealed(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace_by(dir, name, 0o444, |mut file| file.write_all(bytes))
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

/// Puts the folder `new` in the place of the folder `old`, which ends up at `new`: in one step, so that a crash leaves one of
/// them at `old`. On file systems that cannot exchange names the `files` of `new` replace those of `old` one by one, in
/// their order; a reader has to find out that files do not belong together.
pub fn exchange(new: &Path, old: &Path, files: &[&str]) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => replace_files(new, old, files),
        done => Ok(done?),
    }
}

fn replace_files(new: &Path, old: &Path, files: &[&str]) -> io::Result<()> {
    for name in files {
        std::fs::rename(new.join(name), old.join(name))?;
    }
    sync_dir(old)
}

/// An exclusive `flock`, given up when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock on `path`, waiting up to `patience`; `None` if another process still holds it then.
    pub fn take(path: &Path, patience: Duration) -> io::Result<Option<Lock>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o644).custom_flags(NO_LINK);
        let file = options.open(path)?;
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
    use super::*;

    #[test]
    fn a_folder_is_replaced_in_one_step_or_file_by_file() {
        for replace in [exchange, replace_files] {
            let dir = tempfile::tempdir().unwrap();
            let (new, old) = (dir.path().join("new"), dir.path().join("old"));
            for (folder, text) in [(&new, "new"), (&old, "old")] {
                std::fs::create_dir(folder).unwrap();
                std::fs::write(folder.join("file"), text).unwrap();
            }
            replace(&new, &old, &["file"]).unwrap();
            assert_eq!(std::fs::read_to_string(old.join("file")).unwrap(), "new");
            assert_ne!(std::fs::read_to_string(new.join("file")).unwrap_or_default(), "new");
        }
    }
}
