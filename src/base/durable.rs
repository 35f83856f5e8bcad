//! Files that survive a crash: temporary name, fsync, rename, fsync of the directory. And the lock of one writer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Writes `bytes` so that after a crash `dir/name` holds either all of the old or all of the new content.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!(".{name}.new"));
    if let Err(error) = write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, dir.join(name))) {
        // Half a file on a disk that is full takes the room that the next attempt needs.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dir(dir)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the names in `dir` durable: without it a rename may not survive a power cut.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// An exclusive `flock`, given up when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock on `path`, waiting up to `patience`; `None` if another process still holds it then.
    pub fn take(path: &Path, patience: Duration) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path)?;
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
