//! Counts the memory that responses hold while clients read them, for the whole process (`server.heldBytes`): inflated
//! files that are no longer in a cache, pieces of bodies that are being sent, and decoders of bodies that are inflated
//! while they are sent.
//!
//! Bytes of a mapped image are not counted. When at most half of the limit is left, bodies are inflated in smaller
//! pieces, as the client reads them. Many slow clients together therefore cannot exhaust the memory of the machine.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// The number of bytes that responses hold, and the limit beyond which they hold fewer bytes.
#[derive(Debug)]
pub struct HeldBytes {
    limit: AtomicU64,
    /// Bytes counted by [`HeldBytesGuard`].
    held: AtomicU64,
    /// Bytes of inflated files in memory, those in caches included.
    files: AtomicU64,
    /// Bytes of inflated files in caches.
    cached_files: AtomicU64,
}

/// The bytes held by all responses of this process.
pub static HELD: HeldBytes = HeldBytes::new(64 << 20);

impl HeldBytes {
    /// Creates a count of zero with this limit in bytes.
    pub const fn new(limit: u64) -> HeldBytes {
        HeldBytes {
            limit: AtomicU64::new(limit),
            held: AtomicU64::new(0),
            files: AtomicU64::new(0),
            cached_files: AtomicU64::new(0),
        }
    }

    /// Sets the limit in bytes. Bytes that are already held stay.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes held now, without the files in caches.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed).saturating_add(self.files_held())
    }

    fn files_held(&self) -> u64 {
        self.files.load(Ordering::Relaxed).saturating_sub(self.cached_files.load(Ordering::Relaxed))
    }

    /// Adds an inflated file of this many bytes.
    pub(super) fn add_file(&self, bytes: u64) {
        self.files.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes a file that has been freed.
    pub(super) fn remove_file(&self, bytes: u64) {
        self.files.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Records that the size of a cache has changed from `old_bytes` to `new_bytes`.
    pub(super) fn replace_cached(&self, old_bytes: u64, new_bytes: u64) {
        self.cached_files.fetch_add(new_bytes.wrapping_sub(old_bytes), Ordering::Relaxed);
    }

    /// Returns the number of bytes that may still be held.
    pub fn remaining(&self) -> u64 {
        self.limit().saturating_sub(self.held())
    }

    /// Counts `bytes` until the returned guard is dropped, even beyond the limit: for memory without which a response
    /// cannot make progress.
    pub fn hold(&'static self, bytes: u64) -> HeldBytesGuard {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        HeldBytesGuard { counter: self, bytes }
    }

    /// Counts `bytes` until the returned guard is dropped; `None` if that exceeds the limit.
    pub fn try_hold(&'static self, bytes: u64) -> Option<HeldBytesGuard> {
        self.try_hold_up_to(self.limit(), bytes)
    }

    /// Counts `bytes` until the returned guard is dropped; `None` if the total would exceed `limit`.
    pub fn try_hold_up_to(&'static self, limit: u64, bytes: u64) -> Option<HeldBytesGuard> {
        let limit = limit.saturating_sub(self.files_held());
        let add = |held: u64| held.checked_add(bytes).filter(|&held| held <= limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(HeldBytesGuard { counter: self, bytes })
    }
}

/// A guard for bytes that count as held until it is dropped.
#[derive(Debug)]
pub struct HeldBytesGuard {
    counter: &'static HeldBytes,
    bytes: u64,
}

impl Drop for HeldBytesGuard {
    fn drop(&mut self) {
        self.counter.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body whose memory counts as held until the client has read it.
struct HeldBody<B> {
    bytes: B,
    _hold: HeldBytesGuard,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for HeldBody<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Returns these bytes as a body whose memory counts as held until the client has read it; `None` if clients that read
/// slowly hold too much memory already.
pub(super) fn hold_body<B: AsRef<[u8]> + Send + 'static>(bytes: B) -> Option<Bytes> {
    let hold = HELD.try_hold(bytes.as_ref().len() as u64)?;
    Some(Bytes::from_owner(HeldBody { bytes, _hold: hold }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_are_released_on_drop_and_only_required_bytes_exceed_the_limit() {
        static COUNT: HeldBytes = HeldBytes::new(100);
        let first = COUNT.try_hold(60).unwrap();
        assert!(COUNT.try_hold(41).is_none());
        let second = COUNT.try_hold(40).unwrap();
        assert_eq!((COUNT.held(), COUNT.remaining()), (100, 0));
        let required = COUNT.hold(5);
        assert_eq!((COUNT.held(), COUNT.remaining()), (105, 0));
        assert!(COUNT.try_hold(1).is_none() && COUNT.try_hold(u64::MAX).is_none());
        drop(first);
        drop(required);
        assert_eq!(COUNT.held(), 40);
        assert!(COUNT.try_hold_up_to(50, 11).is_none() && COUNT.try_hold_up_to(51, 11).is_some());
        COUNT.set_limit(30);
        assert!(COUNT.remaining() == 0 && COUNT.try_hold(1).is_none(), "held bytes stay held");
        drop(second);
        assert_eq!((COUNT.held(), COUNT.remaining()), (0, 30));
    }

    #[test]
    fn file_bytes_count_as_held_unless_they_are_cached() {
        static COUNT: HeldBytes = HeldBytes::new(100);
        COUNT.add_file(60);
        assert_eq!((COUNT.held(), COUNT.remaining()), (60, 40));
        assert!(COUNT.try_hold(41).is_none() && COUNT.try_hold(40).is_some());
        COUNT.replace_cached(0, 60);
        assert_eq!((COUNT.held(), COUNT.remaining()), (0, 100));
        COUNT.add_file(50);
        COUNT.replace_cached(60, 30);
        assert_eq!(COUNT.held(), 80);
        assert!(COUNT.try_hold_up_to(90, 11).is_none() && COUNT.try_hold_up_to(90, 10).is_some());
        // A cache may report its size after its files were freed. The count then saturates at zero.
        COUNT.replace_cached(30, 500);
        assert_eq!((COUNT.held(), COUNT.remaining()), (0, 100));
        COUNT.replace_cached(500, 0);
        COUNT.remove_file(60);
        COUNT.remove_file(50);
        let guard = COUNT.hold(7);
        assert_eq!(COUNT.held(), 7);
        drop(guard);
        assert_eq!(COUNT.held(), 0);
    }
}
