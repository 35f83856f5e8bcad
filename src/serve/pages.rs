//! Inflated pages, kept for clients that do not accept gzip. Very large ones lie in a memory file, from which the kernel sends
//! them without a copy; others on the heap, because their copy costs less than what the kernel does for each page of memory.

use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use quick_cache::OptionsBuilder;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::model::digest::Digest;
use crate::site::room::{Lies, Room};

use super::body::Chunk;

/// Pages from this length on lie in the memory file, in bytes.
const LARGE: usize = 512 * 1024;
/// Pages up to this size are inflated whole wherever they are kept, in bytes.
const WHOLE: u64 = 1 << 20;
/// Larger ones are, up to this size, if so many of them can be kept. It takes some milliseconds, once, in which a core serves
/// nobody else.
const WHOLE_AT_MOST: u64 = 4 << 20;
const OF_ROOM: u64 = 16;
/// What a page is thought to take beside its content, in bytes.
const BESIDE: u64 = 128;

/// A page, and where it lies if the kernel can send it from there.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    lies: Option<Lies>,
}

impl From<Page> for Chunk {
    fn from(page: Page) -> Chunk {
        Chunk::lying(page.bytes, page.lies)
    }
}

/// Pages by the digest of their content, so that a version shares what it has in common with the last.
#[derive(Debug)]
pub(crate) struct Pages {
    cache: Cache<Digest, Page, ByLength, AsItIs>,
    /// Made when the first page is put there; none where the system has no such thing.
    room: OnceLock<Option<Arc<Room>>>,
}

impl Pages {
    /// Keeps pages of so many bytes together.
    pub(crate) fn new(bytes: u64) -> Pages {
        let typical = (bytes / 32_768).max(16) as usize;
        let mut options = OptionsBuilder::new();
        // Of several shards each has but its part of the bytes, and by default there are four for each core: where there
        // are many cores none would have room for a large page, and on few the fuller ones drive out what there is room for.
        options.shards(1).estimated_items_capacity(typical).weight_capacity(bytes);
        let lifecycle = DefaultLifecycle::default();
        let cache = match options.build() {
            Ok(options) => Cache::with_options(options, ByLength, AsItIs, lifecycle),
            Err(_) => Cache::with(typical, bytes, ByLength, AsItIs, lifecycle),
        };
        Pages { cache, room: OnceLock::new() }
    }

    /// Whether pages of this length are inflated whole and kept; larger ones are inflated as they are sent.
    pub(crate) fn takes(&self, len: u64) -> bool {
        len <= WHOLE.max((self.cache.capacity() / OF_ROOM).min(WHOLE_AT_MOST))
    }

    /// A page that is kept.
    pub(crate) fn get(&self, digest: &Digest) -> Option<Page> {
        self.cache.get(digest)
    }

    /// Keeps a page, if there is room for it.
    pub(crate) fn keep(&self, digest: Digest, content: Bytes) -> Page {
        let placed = if content.len() >= LARGE { self.place(&content) } else { None };
        let page = match placed {
            Some((bytes, lies)) => Page { bytes, lies: Some(lies) },
            None => Page { bytes: content, lies: None },
        };
        self.cache.insert(digest, page.clone());
        page
    }

    fn place(&self, content: &[u8]) -> Option<(Bytes, Lies)> {
        // Twice the bytes: for what was driven out and is still being read, and for gaps. Addresses cost nothing.
        let extent = self.cache.capacity().saturating_mul(2);
        let room = self.room.get_or_init(|| if extent > 0 { Room::new(extent).ok() } else { None });
        room.as_ref()?.put(content)
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

/// Weighs pages by their bytes.
#[derive(Debug, Clone)]
struct ByLength;

impl quick_cache::Weighter<Digest, Page> for ByLength {
    fn weight(&self, _: &Digest, page: &Page) -> u64 {
        page.bytes.len() as u64 + BESIDE
    }
}

/// Takes a part of a digest for its hash: it is as good as any, and nobody chooses it.
#[derive(Debug, Clone, Copy, Default)]
struct AsItIs;

/// See [`AsItIs`].
#[derive(Debug, Default)]
struct Part(u64);

impl BuildHasher for AsItIs {
    type Hasher = Part;

    fn build_hasher(&self) -> Part {
        Part::default()
    }
}

impl Hasher for Part {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    // The length of an array, which is always the same.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_that_there_is_room_for_are_kept_whatever_their_lengths() {
        let pages = Pages::new(4 << 20);
        let lengths = (0..60).map(|n: usize| 1000 + n * n * 36).chain([1_200_000]);
        let all: Vec<_> = lengths.map(|len| Bytes::from(vec![len as u8; len])).collect();
        assert!(all.iter().map(Bytes::len).sum::<usize>() > 3_600_000);
        for page in &all {
            assert_eq!(pages.keep(Digest::of(page), page.clone()).bytes, page);
        }
        for page in &all {
            assert!(pages.get(&Digest::of(page)).is_some_and(|kept| kept.bytes == page), "{} bytes", page.len());
        }
    }

    #[test]
    fn a_page_that_was_driven_out_is_whole_for_whoever_has_it() {
        let pages = Pages::new(2 << 20);
        let kept: Vec<_> = (0..20u8).map(|n| pages.keep(Digest::of(&[n]), vec![n; 600_000].into())).collect();
        assert!(kept.iter().any(|page| page.lies.is_some()));
        for (n, page) in kept.iter().enumerate() {
            assert!(page.bytes.iter().all(|&byte| usize::from(byte) == n), "page {n}");
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let pages = Pages::new(1 << 20);
        for n in 0..40u8 {
            pages.keep(Digest::of(&[n]), vec![n; 100_000].into());
            assert!(pages.bytes() <= 1 << 20);
        }
        let none = Pages::new(0);
        assert_eq!(none.keep(Digest::of(b"x"), vec![1; 600_000].into()).bytes.len(), 600_000);
        assert!(none.get(&Digest::of(b"x")).is_none());
    }

    #[test]
    fn large_pages_are_taken_where_many_of_them_can_be_kept() {
        let most = |bytes: u64| (0..8).map(|power| 1 << (20 + power)).filter(|&len| Pages::new(bytes).takes(len)).max();
        assert_eq!(most(0), Some(1 << 20));
        assert_eq!(most(32 << 20), Some(2 << 20));
        assert_eq!(most(64 << 20), Some(4 << 20));
        assert_eq!(most(1 << 30), Some(4 << 20));
    }
}
