//! Memory that answers hold while their readers take them, counted for the whole process (`server.heldBytes`): inflated pages
//! that no cache keeps any more, pieces of bodies on their way, and decoders of bodies that are inflated as they are sent.
//!
//! What lies in an image costs nothing here. What would go beyond the bound is made in smaller pieces, as its reader takes
//! them, so that many slow readers together cannot take the machine's memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes held by answers, and the number beyond which they hold less.
#[derive(Debug)]
pub struct HeldBytes {
    limit: AtomicU64,
    /// By guards.
    held: AtomicU64,
    /// Inflated pages that somebody has, the caches among them.
    pages: AtomicU64,
    /// Inflated pages in caches.
    kept: AtomicU64,
}

/// The bytes held by all answers of this process.
pub static HELD: HeldBytes = HeldBytes::new(64 << 20);

impl HeldBytes {
    /// Nothing held, and this limit in bytes.
    pub const fn new(limit: u64) -> HeldBytes {
        HeldBytes {
            limit: AtomicU64::new(limit),
            held: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        }
    }

    /// Sets the limit, in bytes. What is held already stays.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes held now, pages that a cache keeps not among them.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed).saturating_add(self.pages_held())
    }

    fn pages_held(&self) -> u64 {
        self.pages.load(Ordering::Relaxed).saturating_sub(self.kept.load(Ordering::Relaxed))
    }

    /// There is one more inflated page, of so many bytes.
    pub(super) fn add_page(&self, bytes: u64) {
        self.pages.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Nobody has such a page any more.
    pub(super) fn remove_page(&self, bytes: u64) {
        self.pages.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A cache that kept `before` bytes of pages keeps `now` bytes.
    pub(super) fn exchange_kept(&self, before: u64, now: u64) {
        self.kept.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Bytes that may still be held before the limit is reached.
    pub fn left(&self) -> u64 {
        self.limit().saturating_sub(self.held())
    }

    /// Counts so many bytes until the returned guard is dropped, also beyond the limit: for what is needed to go on at all.
    pub fn hold(&'static self, bytes: u64) -> Hold {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Hold { count: self, bytes }
    }

    /// Counts so many bytes until the returned guard is dropped; nothing if that is more than is left.
    pub fn try_hold(&'static self, bytes: u64) -> Option<Hold> {
        self.try_hold_below(self.limit(), bytes)
    }

    /// Counts so many bytes until the returned guard is dropped; nothing if there were more than `most` with them.
    pub fn try_hold_below(&'static self, most: u64, bytes: u64) -> Option<Hold> {
        let most = most.saturating_sub(self.pages_held());
        let may = |held: u64| held.checked_add(bytes).filter(|&held| held <= most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may).ok()?;
        Some(Hold { count: self, bytes })
    }
}

/// Bytes that are counted as held until this is dropped.
#[derive(Debug)]
pub struct Hold {
    count: &'static HeldBytes,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.count.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_their_guard_goes_and_none_go_beyond_the_limit_unless_they_must() {
        static COUNT: HeldBytes = HeldBytes::new(100);
        let first = COUNT.try_hold(60).unwrap();
        assert!(COUNT.try_hold(41).is_none());
        let second = COUNT.try_hold(40).unwrap();
        assert_eq!((COUNT.held(), COUNT.left()), (100, 0));
        let must = COUNT.hold(5);
        assert_eq!((COUNT.held(), COUNT.left()), (105, 0));
        assert!(COUNT.try_hold(1).is_none() && COUNT.try_hold(u64::MAX).is_none());
        drop(first);
        drop(must);
        assert_eq!(COUNT.held(), 40);
        assert!(COUNT.try_hold_below(50, 11).is_none() && COUNT.try_hold_below(51, 11).is_some());
        COUNT.set_limit(30);
        assert!(COUNT.left() == 0 && COUNT.try_hold(1).is_none(), "what is held already stays");
        drop(second);
        assert_eq!((COUNT.held(), COUNT.left()), (0, 30));
    }

    #[test]
    fn pages_count_unless_a_cache_keeps_them() {
        static COUNT: HeldBytes = HeldBytes::new(100);
        COUNT.add_page(60);
        assert_eq!((COUNT.held(), COUNT.left()), (60, 40));
        assert!(COUNT.try_hold(41).is_none() && COUNT.try_hold(40).is_some());
        COUNT.exchange_kept(0, 60);
        assert_eq!((COUNT.held(), COUNT.left()), (0, 100));
        COUNT.add_page(50);
        COUNT.exchange_kept(60, 30);
        assert_eq!(COUNT.held(), 80);
        assert!(COUNT.try_hold_below(90, 11).is_none() && COUNT.try_hold_below(90, 10).is_some());
        // What a cache says may be a moment behind: nothing is less than nothing.
        COUNT.exchange_kept(30, 500);
        assert_eq!((COUNT.held(), COUNT.left()), (0, 100));
        COUNT.exchange_kept(500, 0);
        COUNT.remove_page(60);
        COUNT.remove_page(50);
        let guard = COUNT.hold(7);
        assert_eq!(COUNT.held(), 7);
        drop(guard);
        assert_eq!(COUNT.held(), 0);
    }
}
