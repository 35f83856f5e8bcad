//! Free space of the disk that holds the state folder of an origin. Jobs, keys and searches of all organizations need
//! some of it.

use std::io;
use std::path::Path;

/// The largest amount that stays free by default, in bytes; the default is a twentieth of the disk up to this amount.
const MAX_DEFAULT_RESERVED_BYTES: u64 = 1 << 30;

/// The free space of a disk, and the part of it that must stay free, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreeSpace {
    /// `None` if the file system does not report it.
    free: Option<u64>,
    reserved: u64,
}

impl FreeSpace {
    /// Reads the free space of the disk that holds `folder`. `min_free` bytes must stay free; `None` is the default.
    pub(super) fn read(folder: &Path, min_free: Option<u64>) -> io::Result<FreeSpace> {
        let file_system = rustix::fs::statvfs(folder)?;
        let disk_bytes = file_system.f_blocks.saturating_mul(file_system.f_frsize);
        Ok(FreeSpace {
            free: (file_system.f_blocks > 0).then(|| file_system.f_bavail.saturating_mul(file_system.f_frsize)),
            reserved: min_free.unwrap_or((disk_bytes / 20).min(MAX_DEFAULT_RESERVED_BYTES)),
        })
    }

    /// Returns the number of bytes that may be written; `None` if it is unknown.
    pub(super) fn writable_bytes(&self) -> Option<u64> {
        Some(self.free?.saturating_sub(self.reserved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_do_not_count_as_writable_disk_space() {
        let space = |free, reserved| FreeSpace { free, reserved };
        assert_eq!(space(Some(10), 4).writable_bytes(), Some(6));
        assert_eq!(space(Some(3), 4).writable_bytes(), Some(0));
        assert_eq!(space(None, 4).writable_bytes(), None);
        let root = FreeSpace::read(Path::new("/"), Some(u64::MAX)).unwrap();
        assert!(matches!(root.writable_bytes(), Some(0) | None));
        assert!(FreeSpace::read(Path::new("/"), None).unwrap().reserved <= MAX_DEFAULT_RESERVED_BYTES);
    }
}
