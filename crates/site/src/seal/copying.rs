//! A copy that others read while it grows: proving need not wait for the disk's memory to be filled.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use docwharf_base::growth::Growth;

/// Bytes copied between two announcements.
const STEP: u64 = 4 * 1024 * 1024;

/// Copies the first `end` bytes and tells as it goes on.
pub(super) fn all(from: &File, to: &File, end: u64, growth: &Growth) -> io::Result<()> {
    let mut at = 0;
    while at < end {
        let step = (at + STEP).min(end);
        if let Err(error) = range(from, to, at, step) {
            growth.give_up();
            return Err(error);
        }
        at = step;
        growth.reach(at);
    }
    // What lies behind was there before.
    growth.reach(u64::MAX);
    Ok(())
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
