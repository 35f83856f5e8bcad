//! A copy that other threads read while it grows: verification starts before the copy is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use docwharf_base::growing_file::WriteProgress;

/// The number of bytes that are copied between two reports of progress.
const COPY_STEP_BYTES: u64 = 4 * 1024 * 1024;

/// Copies the first `end` bytes and reports the progress to `growth`.
pub(super) fn copy_growing(from: &File, to: &File, end: u64, growth: &WriteProgress) -> io::Result<()> {
    let mut offset = 0;
    while offset < end {
        let step = (offset + COPY_STEP_BYTES).min(end);
        if let Err(error) = copy_range(from, to, offset, step) {
            growth.mark_failed();
            return Err(error);
        }
        offset = step;
        growth.set_len(offset);
    }
    // The bytes after `end` were copied before.
    growth.set_len(u64::MAX);
    Ok(())
}

/// Copies the bytes from `start` up to, but not including, `end` to the same offsets: with shared extents or in the
/// kernel where the file system supports it, otherwise with a buffer. If `from` has become shorter, a hole remains,
/// which verification notices.
pub(super) fn copy_range(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut offset = start;
    while offset < end {
        let (mut read_offset, mut write_offset) = (offset, offset);
        let max_len = usize::try_from(end - offset).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from, Some(&mut read_offset), to, Some(&mut write_offset), max_len) {
            Ok(0) | Err(_) => break,
            Ok(n) => offset += n as u64,
        }
    }
    let mut buffer = Vec::new();
    while offset < end {
        buffer.resize((end - offset).min(256 * 1024) as usize, 0);
        match from.read_at(&mut buffer, offset)? {
            0 => break,
            n => {
                to.write_all_at(&buffer[..n], offset)?;
                offset += n as u64;
            }
        }
    }
    Ok(())
}
