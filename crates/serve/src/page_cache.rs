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
mod tests;
