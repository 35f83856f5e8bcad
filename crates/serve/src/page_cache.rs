//! The page cache: inflated pages for clients that do not accept gzip (`server.identityCache`). A page here is any
//! compressed file of a version, whatever its media type. Very large pages are in a memory file, from which the kernel
//! sends them without a copy. Others are on the heap, because copying them costs less than the kernel's work for each
//! memory page.
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
/// The largest page that every cache keeps, in bytes.
const MAX_PAGE_BYTES: u64 = 1 << 20;
/// The largest page that a large cache keeps, in bytes: one with the capacity for [`LARGE_CACHE_PAGES`] pages of the
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
    lies: Option<ArenaRange>,
}

impl From<InflatedPage> for BodyChunk {
    fn from(page: InflatedPage) -> BodyChunk {
        BodyChunk::with_file_location(page.bytes, page.lies)
    }
}

/// The properties of a page that are known before it is inflated: its version, and length and checksums of its content.
#[derive(Debug, Clone)]
pub(super) struct PageSource {
    pub(super) pages: Arc<PageCache>,
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
        self.pages.get(&self.digest)
    }

    /// Inflates the page and puts it into the cache. Returns `None` if responses hold as much memory as they may, or if
    /// the content is not what was sealed, which is reported.
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
        Some(self.pages.insert(self.digest, page.into()))
    }

    /// Reports that the content is not what was sealed.
    pub(super) fn report_damage(&self) {
        self.pages.doubts.report(&[self.version], "a page does not match its checksum");
    }

    /// Requests that the page is inflated as a whole and cached, if it was requested before. `coded` is its DEFLATE
    /// stream.
    pub(super) fn request_caching(&self, coded: &Bytes) {
        if self.pages.may_keep(self.len) && self.pages.was_asked_for(&self.digest) {
            PageInflater::queue(self, coded);
        }
    }
}

/// The thread that inflates large pages as a whole.
struct PageInflater;

impl PageInflater {
    /// Queues a page, unless the queue is full.
    fn queue(source: &PageSource, coded: &Bytes) {
        static JOBS: OnceLock<Option<SyncSender<(PageSource, Bytes)>>> = OnceLock::new();
        let jobs = JOBS.get_or_init(|| {
            let (jobs, waiting) = sync_channel(MAX_QUEUED_PAGES);
            let thread =
                thread::Builder::new().name("inflate-pages".into()).spawn(move || PageInflater::work(&waiting));
            thread.is_ok().then_some(jobs)
        });
        if let Some(jobs) = jobs {
            // If the queue is full, the page is still sent piece by piece.
            let _ = jobs.try_send((source.clone(), coded.clone()));
        }
    }

    fn work(waiting: &Receiver<(PageSource, Bytes)>) {
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
    /// Parts of the digests of large pages that were requested once.
    asked: Box<[AtomicU32]>,
    doubts: Arc<DamageReports>,
    /// The memory file, created for the first large page; `None` if the system has no memory files.
    memory_file: OnceLock<Option<Arc<MemfdArena>>>,
}

impl PageCache {
    /// Creates a cache with a capacity of `bytes`.
    pub(crate) fn new(bytes: u64, doubts: Arc<DamageReports>) -> PageCache {
        let typical = (bytes / 32_768).max(16) as usize;
        let mut options = OptionsBuilder::new();
        // One shard: each of several has only its part of the capacity. By default there are four per core. With many
        // cores, none of them could store a large page; with few, the fuller ones would evict pages while the others
        // have free capacity.
        options.shards(1).estimated_items_capacity(typical).weight_capacity(bytes);
        let lifecycle = DefaultLifecycle::default();
        let cache = match options.build() {
            Ok(options) => Cache::with_options(options, PageWeighter, BuildDigestHasher, lifecycle),
            Err(_) => Cache::with(typical, bytes, PageWeighter, BuildDigestHasher, lifecycle),
        };
        let asked = (0..REQUEST_MARKS).map(|_| AtomicU32::new(0)).collect();
        PageCache { cache, reported_weight: AtomicU64::new(0), asked, doubts, memory_file: OnceLock::new() }
    }

    /// Returns whether pages of this length are cached. Larger pages are always inflated as they are sent.
    pub(crate) fn accepts_len(&self, len: u64) -> bool {
        len <= MAX_PAGE_BYTES.max((self.cache.capacity() / LARGE_CACHE_PAGES).min(MAX_PAGE_BYTES_IN_LARGE_CACHE))
    }

    /// Returns whether a page of this length fits into the cache.
    fn may_keep(&self, len: u64) -> bool {
        self.accepts_len(len) && len + PAGE_OVERHEAD_BYTES <= self.cache.capacity()
    }

    /// Returns a page from the cache.
    pub(crate) fn get(&self, digest: &Digest) -> Option<InflatedPage> {
        self.cache.get(digest)
    }

    /// Puts a page into the cache, if it fits, and returns it.
    pub(crate) fn insert(&self, digest: Digest, content: Bytes) -> InflatedPage {
        let placed = if content.len() >= MIN_MEMORY_FILE_PAGE_BYTES { self.place(&content) } else { None };
        let page = match placed {
            Some((bytes, lies)) => InflatedPage { bytes: CountedPage::bytes(bytes), lies: Some(lies) },
            None => InflatedPage { bytes: CountedPage::bytes(content), lies: None },
        };
        self.cache.insert(digest, page.clone());
        self.report_weight(self.cache.weight());
        page
    }

    /// Reports to [`HELD`] how many bytes the cache has. All other inflated pages in memory are held by responses.
    fn report_weight(&self, weight: u64) {
        HELD.replace_cached(self.reported_weight.swap(weight, Ordering::Relaxed), weight);
    }

    /// Returns whether the page was requested before, not long ago, and marks it as requested. A client that requests
    /// many large pages once each causes none of them to be cached.
    fn was_asked_for(&self, digest: &Digest) -> bool {
        let [place, mark] = [0, 4].map(|at| read_u32_le(&digest.0, at));
        self.asked[place as usize % REQUEST_MARKS].swap(mark, Ordering::Relaxed) == mark
    }

    fn place(&self, content: &[u8]) -> Option<(Bytes, ArenaRange)> {
        // Twice the capacity: for evicted pages that are still being sent, and for gaps. Address space costs nothing.
        let extent = self.cache.capacity().saturating_mul(2);
        let room = self.memory_file.get_or_init(|| if extent > 0 { MemfdArena::new(extent).ok() } else { None });
        room.as_ref()?.store(content)
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
    use std::task::{Context, Waker};

    use super::*;

    fn keeping(bytes: u64) -> PageCache {
        PageCache::new(bytes, Arc::default())
    }

    #[test]
    fn all_pages_that_there_is_room_for_are_kept_whatever_their_lengths() {
        let pages = keeping(4 << 20);
        let lengths = (0..60).map(|n: usize| 1000 + n * n * 36).chain([1_200_000]);
        let all: Vec<_> = lengths.map(|len| Bytes::from(vec![len as u8; len])).collect();
        assert!(all.iter().map(Bytes::len).sum::<usize>() > 3_600_000);
        for page in &all {
            assert_eq!(pages.insert(Digest::of(page), page.clone()).bytes, page);
        }
        for page in &all {
            assert!(pages.get(&Digest::of(page)).is_some_and(|kept| kept.bytes == page), "{} bytes", page.len());
        }
    }

    #[test]
    fn a_page_that_was_driven_out_is_whole_for_whoever_has_it() {
        let pages = keeping(2 << 20);
        let kept: Vec<_> = (0..20u8).map(|n| pages.insert(Digest::of(&[n]), vec![n; 600_000].into())).collect();
        assert!(kept.iter().any(|page| page.lies.is_some()));
        for (n, page) in kept.iter().enumerate() {
            assert!(page.bytes.iter().all(|&byte| usize::from(byte) == n), "page {n}");
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let pages = keeping(1 << 20);
        for n in 0..40u8 {
            pages.insert(Digest::of(&[n]), vec![n; 100_000].into());
            assert!(pages.bytes() <= 1 << 20);
        }
        let none = keeping(0);
        assert_eq!(none.insert(Digest::of(b"x"), vec![1; 600_000].into()).bytes.len(), 600_000);
        assert!(none.get(&Digest::of(b"x")).is_none());
    }

    #[test]
    fn large_pages_are_taken_where_many_of_them_can_be_kept() {
        let most =
            |bytes: u64| (0..8).map(|power| 1 << (20 + power)).filter(|&len| keeping(bytes).accepts_len(len)).max();
        assert_eq!(most(0), Some(1 << 20));
        assert_eq!(most(32 << 20), Some(2 << 20));
        assert_eq!(most(64 << 20), Some(4 << 20));
        assert_eq!(most(1 << 30), Some(4 << 20));
    }

    #[test]
    fn a_large_page_is_made_whole_when_it_is_asked_for_again_and_not_for_going_through_all_of_them() {
        let pages = Arc::new(keeping(16 << 20));
        let content = vec![b'x'; 300_000];
        let mut coded = Vec::new();
        docwharf_base::codec::deflate::Deflater::new(1).encode_all(&content, &mut coded);
        let (digest, crc) = (Digest::of(&content), crc32fast::hash(&content));
        let version = VersionId(digest);
        let source = PageSource { pages: Arc::clone(&pages), version, digest, len: 300_000, crc };
        let coded = Bytes::from(coded);
        assert!(
            !pages.was_asked_for(&digest) && pages.was_asked_for(&digest) && !pages.was_asked_for(&Digest::of(b"x"))
        );
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while source.cached().is_none() {
            assert!(std::time::Instant::now() < deadline, "it is not made");
            source.request_caching(&coded);
            thread::yield_now();
        }
        assert!(source.cached().is_some_and(|page| page.bytes == content));
        let wrong = PageSource { digest: Digest::of(b"other"), crc: crc ^ 1, ..source };
        assert!(wrong.inflate(&coded).is_none());
        assert!(wrong.cached().is_none(), "what is damaged is not kept");
    }

    fn is_doubted(doubts: &DamageReports) -> bool {
        pin!(doubts.wait_for_report()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_page_is_made_whole_if_it_is_what_was_sealed_and_no_more_than_answers_may_hold() {
        let doubts = Arc::<DamageReports>::default();
        let pages = Arc::new(PageCache::new(1 << 20, Arc::clone(&doubts)));
        let content: Vec<u8> = (0..60_000u32).map(|n| (n >> 3) as u8).collect();
        let mut coded = Vec::new();
        docwharf_base::codec::deflate::Deflater::new(1).encode_all(&content, &mut coded);
        let (digest, crc) = (Digest::of(&content), crc32fast::hash(&content));
        let version = VersionId(digest);
        let right = PageSource { pages: Arc::clone(&pages), version, digest, len: 60_000, crc };
        // A page larger than `server.heldBytes` is no damage; it is sent piece by piece.
        let huge = PageSource { len: (64 << 20) + 1, ..right.clone() };
        assert!(huge.inflate(&coded).is_none() && !is_doubted(&doubts));
        for (len, crc, there) in [
            (60_000, crc ^ 1, coded.len()),
            (60_001, crc, coded.len()),
            (59_999, crc, coded.len()),
            (60_000, crc, coded.len() / 2),
            (60_000, crc, 0),
        ] {
            let wrong = PageSource { len, crc, ..right.clone() };
            assert!(wrong.inflate(&coded[..there]).is_none(), "{len} {crc} {there}");
            assert!(is_doubted(&doubts), "{len} {crc} {there}");
            assert!(right.cached().is_none(), "{len} {crc} {there}");
        }
        assert!(right.inflate(&coded).is_some_and(|page| page.bytes == content) && !is_doubted(&doubts));
        assert!(right.cached().is_some_and(|page| page.bytes == content));
    }

    #[test]
    fn pages_are_kept_up_to_a_length_and_lie_in_the_memory_file_from_another_on() {
        for (room, most) in [
            (0, MAX_PAGE_BYTES),
            (1 << 20, MAX_PAGE_BYTES),
            (64 << 20, MAX_PAGE_BYTES_IN_LARGE_CACHE),
            (1 << 30, MAX_PAGE_BYTES_IN_LARGE_CACHE),
        ] {
            let pages = keeping(room);
            assert!(pages.accepts_len(most) && !pages.accepts_len(most + 1), "room for {room}");
            assert_eq!(pages.may_keep(most), room > most, "room for {room}");
            assert!(!pages.may_keep(most + 1), "room for {room}");
        }
        let pages = keeping(500_000);
        let most = pages.cache.capacity() - PAGE_OVERHEAD_BYTES;
        assert!(pages.may_keep(most) && !pages.may_keep(most + 1), "what does not fit is not made in vain");
        let pages = keeping(4 << 20);
        for (len, lies) in [
            (1, false),
            (MIN_MEMORY_FILE_PAGE_BYTES - 1, false),
            (MIN_MEMORY_FILE_PAGE_BYTES, true),
            (MIN_MEMORY_FILE_PAGE_BYTES + 1, true),
        ] {
            assert_eq!(pages.insert(Digest::of(&len.to_le_bytes()), vec![7; len].into()).lies.is_some(), lies, "{len}");
        }
        let kept = pages.insert(Digest::of(b"counted"), Bytes::from_static(b"counted"));
        let before = pages.bytes();
        pages.insert(Digest::of(b"another"), Bytes::from_static(b"another"));
        assert_eq!((pages.bytes() - before, kept.lies.is_none()), (7 + PAGE_OVERHEAD_BYTES, true));
    }

    #[test]
    fn of_two_pages_in_one_place_each_makes_the_other_forgotten() {
        let pages = keeping(1 << 20);
        let digest = |place: u32, mark: u8| {
            let mut digest = Digest::of(b"x");
            digest.0[..4].copy_from_slice(&place.to_le_bytes());
            digest.0[4..8].copy_from_slice(&[mark; 4]);
            digest
        };
        let (one, two, elsewhere) = (digest(5, 1), digest(5 + REQUEST_MARKS as u32, 2), digest(6, 1));
        let asked = [&one, &one, &elsewhere, &one, &two, &two, &one, &elsewhere].map(|page| pages.was_asked_for(page));
        assert_eq!(asked, [false, true, false, true, false, true, false, true]);
    }
}
