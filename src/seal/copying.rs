//! A copy that others read while it grows: proving need not wait for the disk's memory to be filled.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes copied between two announcements.
const STEP: u64 = 4 * 1024 * 1024;

/// How far a copy has come.
#[derive(Debug)]
pub(super) struct Copying {
    /// Bytes from the start that are there; `None` after a failure.
    grown: Mutex<Option<u64>>,
    news: Condvar,
}

impl Copying {
    /// Nothing is there yet.
    pub(super) fn begun() -> Copying {
        Copying { grown: Mutex::new(Some(0)), news: Condvar::new() }
    }

    /// Everything is there.
    pub(super) fn done() -> Copying {
        Copying { grown: Mutex::new(Some(u64::MAX)), news: Condvar::new() }
    }

    /// Waits until the first `to` bytes are there; `false` if they never will be.
    pub(super) fn wait_for(&self, to: u64) -> bool {
        let grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = self.news.wait_while(grown, |grown| grown.is_some_and(|there| there < to));
        grown.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn announce(&self, grown: Option<u64>) {
        *self.grown.lock().unwrap_or_else(PoisonError::into_inner) = grown;
        self.news.notify_all();
    }

    /// Copies the first `end` bytes and says so as it goes on.
    pub(super) fn copy(&self, from: &File, to: &File, end: u64) -> io::Result<()> {
        let mut at = 0;
        while at < end {
            let step = (at + STEP).min(end);
            if let Err(error) = range(from, to, at, step) {
                self.announce(None);
                return Err(error);
            }
            at = step;
            self.announce(Some(at));
        }
        self.announce(Some(u64::MAX));
        Ok(())
    }
}

/// Copies the bytes from `start` up to, not including, `end` to the same place: shared extents or in the kernel where
/// the file system can, else by hand. Where `from` has become shorter, a hole is left, which proving notices.
pub(super) fn range(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let (mut read, mut write) = (at, at);
        let most = usize::try_from(end - at).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut write), most) {
            Ok(0) | Err(_) => break,
            Ok(n) => at += n as u64,
        }
    }
    let mut buffer = Vec::new();
    while at < end {
        buffer.resize((end - at).min(256 * 1024) as usize, 0);
        match from.read_at(&mut buffer, at)? {
            0 => break,
            n => {
                to.write_all_at(&buffer[..n], at)?;
                at += n as u64;
            }
        }
    }
    Ok(())
}
