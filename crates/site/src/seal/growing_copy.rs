//! A copy that other threads read while it grows: verification starts before the copy is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use docwharf_base::growing_file::WriteProgress;

/// The number of bytes that are copied between two reports of progress.
const COPY_STEP_BYTES: u64 = 4 * 1024 * 1024;

/// Copies the first `end` bytes and reports the progress to `growth`.
pub(super) fn copy_growing(from: &File, to: &File, end: u64, growth: &WriteProgress) -> io::Result<()> {
    let mut at = 0;
    while at < end {
        let step = (at + COPY_STEP_BYTES).min(end);
        if let Err(error) = copy_range(from, to, at, step) {
            growth.give_up();
            return Err(error);
        }
        at = step;
        growth.set_len(at);
    }
    // The bytes behind `end` were copied before.
    growth.set_len(u64::MAX);
    Ok(())
}

/// Copies the bytes from `start` up to, but not including, `end` to the same offsets: with shared extents or in the
/// kernel where the file system supports it, otherwise with a buffer. If `from` has become shorter, a hole remains,
/// which verification notices.
pub(super) fn copy_range(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
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
