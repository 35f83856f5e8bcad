//! Room on the disk that everything of an origin lies on: jobs, keys and searches of all organizations need some of it.

use std::io;
use std::path::Path;

/// What stays free where nobody says how much: a twentieth of the disk, and at most this.
const MOST_KEPT_FREE: u64 = 1 << 30;

/// What is free on a disk, and what of it must stay so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreeSpace {
    /// None where the file system does not say.
    free: Option<u64>,
    floor: u64,
}

impl FreeSpace {
    /// Of the disk that `folder` lies on; `floor` of it stays free.
    pub(super) fn of(folder: &Path, floor: Option<u64>) -> io::Result<FreeSpace> {
        let about = rustix::fs::statvfs(folder)?;
        let whole = about.f_blocks.saturating_mul(about.f_frsize);
        Ok(FreeSpace {
            free: (about.f_blocks > 0).then(|| about.f_bavail.saturating_mul(about.f_frsize)),
            floor: floor.unwrap_or((whole / 20).min(MOST_KEPT_FREE)),
        })
    }

    /// Bytes that may be written; none if nobody knows.
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
