//! The page cache: inflated pages for clients that do not accept gzip (`server.identityCache`). In this module, a page
//! is any compressed file of a version, whatever its media type. Very large pages are in a memory file, from which the
//! kernel sends them without a copy. Others are on the heap, because copying them costs less than the kernel's work for
//! each memory page.
//!
//! Small pages are inflated as a whole by the thread that sends them. Larger pages are sent while they are inflated
//! piece by piece. If they are requested again, a separate thread ([`PageInflater`]) inflates them as a whole for the
//! cache: on a serving thread, each would delay all other connections for milliseconds.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use bytes::Bytes;
use quick_cache::OptionsBuilder;
use quick_cache::sync::{Cache, DefaultLifecycle};

use docwharf_base::codec::inflate;
use docwharf_base::little_endian::read_u32_le;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_site::memfd_arena::{ArenaRange, MemfdArena};

use super::body_chunk::BodyChunk;
use super::damage_reports::DamageReports;
use super::held_bytes::HELD;

/// The smallest page that is stored in the memory file, in bytes.
const MIN_MEMORY_FILE_PAGE_BYTES: usize = 512 * 1024;
/// The largest page that is inflated as a whole by the thread that sends it, in bytes.
pub(super) const MAX_SMALL_PAGE_BYTES: u64 = 64 * 1024;
/// The largest page that every cache stores, in bytes.
const MAX_PAGE_BYTES: u64 = 1 << 20;
/// The largest page that a large cache stores, in bytes: one with the capacity for [`LARGE_CACHE_PAGES`] pages of the
/// same size.
const MAX_PAGE_BYTES_IN_LARGE_CACHE: u64 = 4 << 20;
const LARGE_CACHE_PAGES: u64 = 16;
/// The largest number of pages that wait to be inflated as a whole. A page beyond that is queued when it is requested
/// again.
const MAX_QUEUED_PAGES: usize = 16;
/// The number of marks of pages that were requested once; a power of two.
const REQUEST_MARKS: usize = 1024;
/// The estimated memory that a page takes besides its content, in bytes.
const PAGE_OVERHEAD_BYTES: u64 = 128;

/// An inflated page, and its place in a file from which the kernel can send it.
#[derive(Debug, Clone)]
pub(crate) struct InflatedPage {
    pub(crate) bytes: Bytes,
    file_location: Option<ArenaRange>,
}

impl From<InflatedPage> for BodyChunk {
    fn from(page: InflatedPage) -> BodyChunk {
        BodyChunk::with_file_location(page.bytes, page.file_location)
    }
}

/// The properties of a page that are known before it is inflated: its version, and length and checksums of its content.
#[derive(Debug, Clone)]
pub(super) struct PageSource {
    pub(super) cache: Arc<PageCache>,
    pub(super) version: VersionId,
    pub(super) digest: Digest,
    /// The length of the content in bytes.
    pub(super) len: u64,
    /// The CRC-32 of the content.
    pub(super) crc: u32,
}

impl PageSource {
    /// Returns the page from the cache.
    pub(super) fn cached(&self) -> Option<InflatedPage> {
        self.cache.get(&self.digest)
    }

    /// Inflates the page and puts it into the cache. Returns `None` if that would exceed the memory limit of responses,
    /// or if the content is not what was sealed, which is reported.
    pub(super) fn inflate(&self, coded: &[u8]) -> Option<InflatedPage> {
        if HELD.remaining() < self.len {
            return None;
        }
        let page = inflate::inflate_all(coded, self.len as usize).ok();
        // The bytes are in the processor's cache, so the check is cheap. Damaged content must not be cached under the
        // digest of what was sealed.
        let page = page.filter(|page| page.len() as u64 == self.len && crc32fast::hash(page) == self.crc);
        let Some(page) = page else {
            self.report_damage();
            return None;
        };
        Some(self.cache.insert(self.digest, page.into()))
    }

    /// Reports that the content is not what was sealed.
    pub(super) fn report_damage(&self) {
        self.cache.damage_reports.report(&[self.version], "a page does not match its checksum");
    }

    /// Requests that the page is inflated as a whole and cached, if it was requested before. `coded` is its DEFLATE
    /// stream.
    pub(super) fn request_caching(&self, coded: &Bytes) {
        if self.cache.can_cache(self.len) && self.cache.mark_requested(&self.digest) {
            PageInflater::enqueue(self, coded);
        }
    }
}

/// The thread that inflates large pages as a whole.
struct PageInflater;

impl PageInflater {
    /// Queues a page, unless the queue is full.
    fn enqueue(source: &PageSource, coded: &Bytes) {
        static JOBS: OnceLock<Option<SyncSender<(PageSource, Bytes)>>> = OnceLock::new();
        let jobs = JOBS.get_or_init(|| {
            let (jobs, waiting) = sync_channel(MAX_QUEUED_PAGES);
            let thread = thread::Builder::new().name("inflate-pages".into()).spawn(move || PageInflater::run(&waiting));
            thread.is_ok().then_some(jobs)
        });
        if let Some(jobs) = jobs {
            // If the queue is full, the page is still sent piece by piece.
            let _ = jobs.try_send((source.clone(), coded.clone()));
        }
    }

    fn run(waiting: &Receiver<(PageSource, Bytes)>) {
        while let Ok((source, coded)) = waiting.recv() {
            if source.cached().is_none() {
                // If that fails, the page is sent piece by piece, and queued at a later request.
                let _ = source.inflate(&coded);
            }
        }
    }
}

/// The bytes of an inflated page. They are counted in [`HELD`] until the last reference is dropped.
struct CountedPage {
    bytes: Bytes,
}

impl CountedPage {
    fn bytes(bytes: Bytes) -> Bytes {
        HELD.add_page(bytes.len() as u64);
        Bytes::from_owner(CountedPage { bytes })
    }
}

impl AsRef<[u8]> for CountedPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedPage {
    fn drop(&mut self) {
        HELD.remove_page(self.bytes.len() as u64);
    }
}

/// The cache of inflated pages, by the digest of their content, so that a version shares pages with the version before
/// it.
#[derive(Debug)]
pub(crate) struct PageCache {
    cache: Cache<Digest, InflatedPage, PageWeighter, BuildDigestHasher>,
    /// The bytes in the cache that were last reported to [`HELD`].
    reported_weight: AtomicU64,
    /// A part of the digest of each large page that was requested once.
    request_marks: Box<[AtomicU32]>,
    damage_reports: Arc<DamageReports>,
    /// The memory file, created for the first large page; `None` if the system has no memory files.
    memory_file: OnceLock<Option<Arc<MemfdArena>>>,
}

impl PageCache {
    /// Creates a cache with a capacity of `bytes`.
    pub(crate) fn new(bytes: u64, damage_reports: Arc<DamageReports>) -> PageCache {
        let estimated_pages = (bytes / 32_768).max(16) as usize;
        let mut options = OptionsBuilder::new();
        // One shard: each of several has only its part of the capacity. By default there are four per core. With many
        // cores, none of them could store a large page; with few, the fuller ones would evict pages while the others
        // have free capacity.
        options.shards(1).estimated_items_capacity(estimated_pages).weight_capacity(bytes);
        let lifecycle = DefaultLifecycle::default();
        let cache = match options.build() {
            Ok(options) => Cache::with_options(options, PageWeighter, BuildDigestHasher, lifecycle),
            Err(_) => Cache::with(estimated_pages, bytes, PageWeighter, BuildDigestHasher, lifecycle),
        };
        let request_marks = (0..REQUEST_MARKS).map(|_| AtomicU32::new(0)).collect();
        PageCache {
            cache,
            reported_weight: AtomicU64::new(0),
            request_marks,
            damage_reports,
            memory_file: OnceLock::new(),
        }
    }

    /// Returns whether pages of this length are cached. Larger pages are always inflated as they are sent.
    pub(crate) fn accepts_len(&self, len: u64) -> bool {
        len <= MAX_PAGE_BYTES.max((self.cache.capacity() / LARGE_CACHE_PAGES).min(MAX_PAGE_BYTES_IN_LARGE_CACHE))
    }

    /// Returns whether a page of this length can be stored in the cache.
    fn can_cache(&self, len: u64) -> bool {
        self.accepts_len(len) && len + PAGE_OVERHEAD_BYTES <= self.cache.capacity()
    }

    /// Returns a page from the cache.
    pub(crate) fn get(&self, digest: &Digest) -> Option<InflatedPage> {
        self.cache.get(digest)
    }

    /// Puts a page into the cache, if it fits, and returns it.
    pub(crate) fn insert(&self, digest: Digest, content: Bytes) -> InflatedPage {
        let stored =
            if content.len() >= MIN_MEMORY_FILE_PAGE_BYTES { self.store_in_memory_file(&content) } else { None };
        let page = match stored {
            Some((bytes, range)) => InflatedPage { bytes: CountedPage::bytes(bytes), file_location: Some(range) },
            None => InflatedPage { bytes: CountedPage::bytes(content), file_location: None },
        };
        self.cache.insert(digest, page.clone());
        self.report_weight(self.cache.weight());
        page
    }

    /// Reports to [`HELD`] how many bytes the cache has. All other inflated pages in memory are held by responses.
    fn report_weight(&self, weight: u64) {
        HELD.replace_cached(self.reported_weight.swap(weight, Ordering::Relaxed), weight);
    }

    /// Marks a page as requested; returns whether it was marked already. A later request of another page can remove the
    /// mark. Large pages that are requested once each are therefore not cached.
    fn mark_requested(&self, digest: &Digest) -> bool {
        let [slot, mark] = [0, 4].map(|offset| read_u32_le(&digest.0, offset));
        self.request_marks[slot as usize % REQUEST_MARKS].swap(mark, Ordering::Relaxed) == mark
    }

    /// Stores a page in the memory file; `None` if there is no memory file or no free space in it.
    fn store_in_memory_file(&self, content: &[u8]) -> Option<(Bytes, ArenaRange)> {
        // Twice the capacity: for evicted pages that are still being sent, and for gaps. Address space costs nothing.
        let file_size = self.cache.capacity().saturating_mul(2);
        let arena = self.memory_file.get_or_init(|| if file_size > 0 { MemfdArena::new(file_size).ok() } else { None });
        arena.as_ref()?.store(content)
    }

    /// Returns the bytes in the cache.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.report_weight(0);
    }
}

/// Weighs pages by their length.
#[derive(Debug, Clone)]
struct PageWeighter;

impl quick_cache::Weighter<Digest, InflatedPage> for PageWeighter {
    fn weight(&self, _: &Digest, page: &InflatedPage) -> u64 {
        page.bytes.len() as u64 + PAGE_OVERHEAD_BYTES
    }
}

/// Builds hashers that use a part of the digest as the hash. A digest is uniformly distributed, and no client chooses
/// it.
#[derive(Debug, Clone, Copy, Default)]
struct BuildDigestHasher;

/// The hasher of [`BuildDigestHasher`].
#[derive(Debug, Default)]
struct DigestHasher(u64);

impl BuildHasher for BuildDigestHasher {
    type Hasher = DigestHasher;

    fn build_hasher(&self) -> DigestHasher {
        DigestHasher::default()
    }
}

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    // Hashing an array also writes its length, which is always the same.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use http_body::Body as _;

    use super::*;
    use crate::body::ResponseBody;
    use crate::inflating_body::BodySegment;

    /// Creates a cache with a capacity of `bytes`.
    fn new_cache(bytes: u64) -> PageCache {
        PageCache::new(bytes, Arc::default())
    }

    #[test]
    fn pages_of_every_length_stay_cached_while_they_fit_in_the_capacity() {
        let pages = new_cache(4 << 20);
        let lengths = (0..60).map(|n: usize| 1000 + n * n * 36).chain([1_200_000]);
        let contents: Vec<_> = lengths.map(|len| Bytes::from(vec![len as u8; len])).collect();
        assert!(contents.iter().map(Bytes::len).sum::<usize>() > 3_600_000);
        for page in &contents {
            assert_eq!(pages.insert(Digest::compute(page), page.clone()).bytes, page);
        }
        for page in &contents {
            assert!(
                pages.get(&Digest::compute(page)).is_some_and(|cached| cached.bytes == page),
                "{} bytes",
                page.len()
            );
        }
    }

    #[test]
    fn an_evicted_page_stays_intact_while_in_use() {
        let pages = new_cache(2 << 20);
        let pages_in_use: Vec<_> =
            (0..20u8).map(|n| pages.insert(Digest::compute(&[n]), vec![n; 600_000].into())).collect();
        assert!(pages_in_use.iter().any(|page| page.file_location.is_some()));
        for (n, page) in pages_in_use.iter().enumerate() {
            assert!(page.bytes.iter().all(|&byte| usize::from(byte) == n), "page {n}");
        }
    }

    #[test]
    fn the_page_cache_never_exceeds_its_capacity() {
        let pages = new_cache(1 << 20);
        for n in 0..40u8 {
            pages.insert(Digest::compute(&[n]), vec![n; 100_000].into());
            assert!(pages.bytes() <= 1 << 20);
        }
        let empty_cache = new_cache(0);
        assert_eq!(empty_cache.insert(Digest::compute(b"x"), vec![1; 600_000].into()).bytes.len(), 600_000);
        assert!(empty_cache.get(&Digest::compute(b"x")).is_none());
    }

    #[test]
    fn the_page_cache_accepts_larger_pages_if_its_capacity_is_larger() {
        let max_len =
            |bytes: u64| (0..8).map(|power| 1 << (20 + power)).filter(|&len| new_cache(bytes).accepts_len(len)).max();
        assert_eq!(max_len(0), Some(1 << 20));
        assert_eq!(max_len(32 << 20), Some(2 << 20));
        assert_eq!(max_len(64 << 20), Some(4 << 20));
        assert_eq!(max_len(1 << 30), Some(4 << 20));
    }

    #[test]
    fn a_large_page_is_inflated_into_the_cache_only_after_a_second_request() {
        let pages = Arc::new(new_cache(16 << 20));
        let content = vec![b'x'; 300_000];
        let mut coded = Vec::new();
        docwharf_base::codec::deflate::Deflater::new(1).encode_all(&content, &mut coded);
        let (digest, crc) = (Digest::compute(&content), crc32fast::hash(&content));
        let version = VersionId(digest);
        let source = PageSource { cache: Arc::clone(&pages), version, digest, len: 300_000, crc };
        let coded = Bytes::from(coded);
        assert!(
            !pages.mark_requested(&digest)
                && pages.mark_requested(&digest)
                && !pages.mark_requested(&Digest::compute(b"x"))
        );
        let other_content = vec![b'y'; 300_000];
        let mut other_coded = Vec::new();
        docwharf_base::codec::deflate::Deflater::new(1).encode_all(&other_content, &mut other_coded);
        let (digest, crc) = (Digest::compute(&other_content), crc32fast::hash(&other_content));
        let requested_once = PageSource { digest, crc, ..source.clone() };
        requested_once.request_caching(&Bytes::from(other_coded));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while source.cached().is_none() {
            assert!(std::time::Instant::now() < deadline, "the page was not inflated");
            source.request_caching(&coded);
            thread::yield_now();
        }
        assert!(source.cached().is_some_and(|page| page.bytes == content));
        // Pages are inflated in the order of their requests.
        assert!(requested_once.cached().is_none(), "a page that was requested once is not inflated as a whole");
        let damaged = PageSource { digest: Digest::compute(b"other"), crc: source.crc ^ 1, ..source };
        assert!(damaged.inflate(&coded).is_none());
        assert!(damaged.cached().is_none(), "a damaged page is not cached");
    }

    fn has_report(damage_reports: &DamageReports) -> bool {
        pin!(damage_reports.wait_for_report()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_page_is_cached_only_if_it_matches_its_checksum_and_fits_the_held_bytes_limit() {
        let damage_reports = Arc::<DamageReports>::default();
        let pages = Arc::new(PageCache::new(1 << 20, Arc::clone(&damage_reports)));
        let content: Vec<u8> = (0..60_000u32).map(|n| (n >> 3) as u8).collect();
        let mut coded = Vec::new();
        docwharf_base::codec::deflate::Deflater::new(1).encode_all(&content, &mut coded);
        let (digest, crc) = (Digest::compute(&content), crc32fast::hash(&content));
        let version = VersionId(digest);
        let source = PageSource { cache: Arc::clone(&pages), version, digest, len: 60_000, crc };
        // A page larger than `server.heldBytes` is no damage; it is sent piece by piece.
        let huge = PageSource { len: (64 << 20) + 1, ..source.clone() };
        assert!(huge.inflate(&coded).is_none() && !has_report(&damage_reports));
        for (len, crc, available) in [
            (60_000, crc ^ 1, coded.len()),
            (60_001, crc, coded.len()),
            (59_999, crc, coded.len()),
            (60_000, crc, coded.len() / 2),
            (60_000, crc, 0),
        ] {
            let damaged = PageSource { len, crc, ..source.clone() };
            assert!(damaged.inflate(&coded[..available]).is_none(), "{len} {crc} {available}");
            assert!(has_report(&damage_reports), "{len} {crc} {available}");
            assert!(source.cached().is_none(), "{len} {crc} {available}");
        }
        assert!(source.inflate(&coded).is_some_and(|page| page.bytes == content) && !has_report(&damage_reports));
        assert!(source.cached().is_some_and(|page| page.bytes == content));
    }

    #[test]
    fn pages_up_to_a_maximum_length_are_cached_and_large_ones_are_in_the_memory_file() {
        for (capacity, max_len) in [
            (0, MAX_PAGE_BYTES),
            (1 << 20, MAX_PAGE_BYTES),
            (64 << 20, MAX_PAGE_BYTES_IN_LARGE_CACHE),
            (1 << 30, MAX_PAGE_BYTES_IN_LARGE_CACHE),
        ] {
            let pages = new_cache(capacity);
            assert!(pages.accepts_len(max_len) && !pages.accepts_len(max_len + 1), "capacity of {capacity}");
            assert_eq!(pages.can_cache(max_len), capacity > max_len, "capacity of {capacity}");
            assert!(!pages.can_cache(max_len + 1), "capacity of {capacity}");
        }
        let pages = new_cache(500_000);
        let max_len = pages.cache.capacity() - PAGE_OVERHEAD_BYTES;
        assert!(
            pages.can_cache(max_len) && !pages.can_cache(max_len + 1),
            "a page that does not fit is not inflated as a whole"
        );
        let pages = new_cache(4 << 20);
        for (len, is_in_file) in [
            (1, false),
            (MIN_MEMORY_FILE_PAGE_BYTES - 1, false),
            (MIN_MEMORY_FILE_PAGE_BYTES, true),
            (MIN_MEMORY_FILE_PAGE_BYTES + 1, true),
        ] {
            assert_eq!(
                pages.insert(Digest::compute(&len.to_le_bytes()), vec![7; len].into()).file_location.is_some(),
                is_in_file,
                "{len}"
            );
        }
        let kept = pages.insert(Digest::compute(b"counted"), Bytes::from_static(b"counted"));
        let before = pages.bytes();
        pages.insert(Digest::compute(b"another"), Bytes::from_static(b"another"));
        assert_eq!((pages.bytes() - before, kept.file_location.is_none()), (7 + PAGE_OVERHEAD_BYTES, true));
    }

    #[test]
    fn a_range_request_does_not_count_as_a_request_of_the_whole_large_page() {
        let pages = Arc::new(new_cache(16 << 20));
        let content = vec![b'x'; 300_000];
        let mut coded = Vec::new();
        docwharf_base::codec::deflate::Deflater::new(1).encode_all(&content, &mut coded);
        let (digest, crc) = (Digest::compute(&content), crc32fast::hash(&content));
        let version = VersionId(digest);
        let source = PageSource { cache: Arc::clone(&pages), version, digest, len: 300_000, crc };
        let coded = Bytes::from(coded);
        for (start, end, is_marked) in [(0, 299_999, false), (1, 300_000, false), (0, 300_000, true)] {
            let segment = BodySegment::Inflated(start, end);
            let mut body = pin!(ResponseBody::from_page(source.clone(), coded.clone(), [segment]));
            while !matches!(body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())), Poll::Ready(None)) {}
            assert_eq!(pages.mark_requested(&digest), is_marked, "{start}-{end}");
            // Removes the mark.
            pages.request_marks.iter().for_each(|mark| mark.store(0, Ordering::Relaxed));
        }
    }

    #[test]
    fn two_pages_with_the_same_request_mark_slot_overwrite_each_other() {
        let pages = new_cache(1 << 20);
        let digest = |slot: u32, mark: u8| {
            let mut digest = Digest::compute(b"x");
            digest.0[..4].copy_from_slice(&slot.to_le_bytes());
            digest.0[4..8].copy_from_slice(&[mark; 4]);
            digest
        };
        let (one, two, elsewhere) = (digest(5, 1), digest(5 + REQUEST_MARKS as u32, 2), digest(6, 1));
        let marked =
            [&one, &one, &elsewhere, &one, &two, &two, &one, &elsewhere].map(|page| pages.mark_requested(page));
        assert_eq!(marked, [false, true, false, true, false, true, false, true]);
    }
}
