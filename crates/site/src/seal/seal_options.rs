//! The settings and the progress of sealing.

use std::sync::atomic::{AtomicU64, Ordering};

use docwharf_base::model::limits::BundleLimits;
use docwharf_base::processors;

/// zlib's fastest level: an image is written once and mostly sent to clients on the same network, so little compression
/// is enough.
const FASTEST_LEVEL: u32 = 1;

/// The limits and settings of sealing and verifying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealOptions {
    /// The limits that an archive must not exceed.
    pub limits: BundleLimits,
    /// The number of threads that verify or compress, in addition to the one that reads.
    pub threads: usize,
    /// Whether the image is synced to disk, so that it survives a power failure.
    pub durable: bool,
    /// zlib's level for files that are compressed, 1 to 9.
    pub level: u32,
    /// Whether the bundle belongs to the caller, is on the file system of the image, and may be moved. It is for the
    /// caller, which then passes a `location` to [`seal_opened`](super::seal_opened); sealing itself does not read it.
    pub may_move: bool,
}

impl SealOptions {
    /// Creates settings with all processors, the fastest level, and without syncing to disk.
    pub fn new(limits: BundleLimits) -> SealOptions {
        SealOptions { limits, threads: processors::count(), durable: false, level: FASTEST_LEVEL, may_move: false }
    }
}

/// The progress of sealing, for display by another thread.
#[derive(Debug, Default)]
pub struct SealProgress {
    content_bytes: AtomicU64,
    files: AtomicU64,
}

impl SealProgress {
    /// Returns the number of bytes of content that were read.
    pub fn bytes(&self) -> u64 {
        self.content_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of files that were read.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.content_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}
