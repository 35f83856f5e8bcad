//! Free space of the disk that holds the state of an origin. Jobs, keys and searches of all organizations need some of
//! it.

use std::io;
use std::path::Path;

/// The largest amount that stays free by default, in bytes; the default is a twentieth of the disk up to this amount.
const MOST_KEPT_FREE: u64 = 1 << 30;

/// The free space of a disk, and the part of it that must stay free, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreeSpace {
    /// `None` if the file system does not report it.
    free: Option<u64>,
    floor: u64,
}

impl FreeSpace {
    /// Reads the free space of the disk that holds `folder`, of which `floor` bytes stay free.
    pub(super) fn of(folder: &Path, floor: Option<u64>) -> io::Result<FreeSpace> {
        let about = rustix::fs::statvfs(folder)?;
        let whole = about.f_blocks.saturating_mul(about.f_frsize);
        Ok(FreeSpace {
            free: (about.f_blocks > 0).then(|| about.f_bavail.saturating_mul(about.f_frsize)),
            floor: floor.unwrap_or((whole / 20).min(MOST_KEPT_FREE)),
        })
    }

    /// Returns the number of bytes that may be written; `None` if it is unknown.
    pub(super) fn room(&self) -> Option<u64> {
        Some(self.free?.saturating_sub(self.floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_stay_free_is_no_room() {
        let space = |free, floor| FreeSpace { free, floor };
        assert_eq!(space(Some(10), 4).room(), Some(6));
        assert_eq!(space(Some(3), 4).room(), Some(0));
        assert_eq!(space(None, 4).room(), None);
        let here = FreeSpace::of(Path::new("/"), Some(u64::MAX)).unwrap();
        assert!(matches!(here.room(), Some(0) | None));
        assert!(FreeSpace::of(Path::new("/"), None).unwrap().floor <= MOST_KEPT_FREE);
    }
}
