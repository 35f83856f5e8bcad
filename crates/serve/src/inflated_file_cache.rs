//! The cache of inflated files, for clients that do not accept gzip (`server.identityCache`, whose documentation calls
//! these files pages). Very large files are in a memfd (`memfd_create(2)`), from which the kernel sends them without a
//! copy. Others are on the heap, because copying them costs less than the kernel's work for each memory page.
//!
//! Small files are inflated as a whole by the thread that sends them. Larger files are sent while they are inflated
//! piece by piece. If they are requested again, a separate thread ([`FileInflater`]) inflates them as a whole for the
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
use docwharf_site::memfd_arena::{MemfdArena, MemfdRange};

use super::body_chunk::BodyChunk;
use super::damage_reports::DamageReports;
use super::held_bytes::HELD;

/// The smallest file that is stored in the memfd, in bytes.
const MIN_MEMFD_FILE_BYTES: usize = 512 * 1024;
/// The largest file that is inflated as a whole by the thread that sends it, in bytes.
pub(super) const MAX_SMALL_FILE_BYTES: u64 = 64 * 1024;
/// The largest file that every cache stores, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The largest file that a large cache stores, in bytes: one with the capacity for [`LARGE_CACHE_FILES`] files of the
/// same size.
const MAX_FILE_BYTES_IN_LARGE_CACHE: u64 = 4 << 20;
const LARGE_CACHE_FILES: u64 = 16;
/// The largest number of files that wait to be inflated as a whole. A file beyond that is queued when it is requested
/// again.
const MAX_QUEUED_FILES: usize = 16;
/// The number of marks of files that were requested once; a power of two.
const REQUEST_MARKS: usize = 1024;
/// The estimated memory that a file takes besides its content, in bytes.
const FILE_OVERHEAD_BYTES: u64 = 128;

/// An inflated file, and its range in the memfd, if it is stored there.
#[derive(Debug, Clone)]
pub(crate) struct InflatedFile {
    pub(crate) bytes: Bytes,
    memfd_range: Option<MemfdRange>,
}

impl From<InflatedFile> for BodyChunk {
    fn from(file: InflatedFile) -> BodyChunk {
        BodyChunk::with_memfd_range(file.bytes, file.memfd_range)
    }
}

/// The properties of a file that are known before it is inflated: its version, and length and checksums of its content.
#[derive(Debug, Clone)]
pub(super) struct InflatedFileSource {
    pub(super) cache: Arc<InflatedFileCache>,
    pub(super) version: VersionId,
    pub(super) digest: Digest,
    /// The length of the content in bytes.
    pub(super) len: u64,
    /// The CRC-32 of the content.
    pub(super) crc: u32,
}

impl InflatedFileSource {
    /// Returns the file from the cache.
    pub(super) fn cached(&self) -> Option<InflatedFile> {
        self.cache.get(&self.digest)
    }

    /// Inflates the file and puts it into the cache. Returns `None` if that would exceed the memory limit of responses,
    /// or if the content is not what was sealed, which is reported.
    pub(super) fn inflate(&self, coded: &[u8]) -> Option<InflatedFile> {
        if HELD.remaining() < self.len {
            return None;
        }
        let file = inflate::inflate_all(coded, self.len as usize).ok();
        // The bytes are in the processor's cache, so the check is cheap. Damaged content must not be cached under the
        // digest of what was sealed.
        let file = file.filter(|file| file.len() as u64 == self.len && crc32fast::hash(file) == self.crc);
        let Some(file) = file else {
            self.report_damage();
            return None;
        };
        Some(self.cache.insert(self.digest, file.into()))
    }

    /// Reports that the content is not what was sealed.
    pub(super) fn report_damage(&self) {
        self.cache.damage_reports.report(&[self.version], "a file does not match its checksum");
    }

    /// Requests that the file is inflated as a whole and cached, if it was requested before. `coded` is its DEFLATE
    /// stream.
    pub(super) fn request_caching(&self, coded: &Bytes) {
        if self.cache.can_cache(self.len) && self.cache.mark_requested(&self.digest) {
            FileInflater::enqueue(self, coded);
        }
    }
}

/// The thread that inflates large files as a whole.
struct FileInflater;

impl FileInflater {
    /// Queues a file, unless the queue is full.
    fn enqueue(source: &InflatedFileSource, coded: &Bytes) {
        static JOBS: OnceLock<Option<SyncSender<(InflatedFileSource, Bytes)>>> = OnceLock::new();
        let jobs = JOBS.get_or_init(|| {
            let (jobs, waiting) = sync_channel(MAX_QUEUED_FILES);
            let thread = thread::Builder::new().name("inflate-pages".into()).spawn(move || FileInflater::run(&waiting));
            thread.is_ok().then_some(jobs)
        });
        if let Some(jobs) = jobs {
            // If the queue is full, the file is still sent piece by piece.
            let _ = jobs.try_send((source.clone(), coded.clone()));
        }
    }

    fn run(waiting: &Receiver<(InflatedFileSource, Bytes)>) {
        while let Ok((source, coded)) = waiting.recv() {
            if source.cached().is_none() {
                // If that fails, the file is sent piece by piece, and queued at a later request.
                let _ = source.inflate(&coded);
            }
        }
    }
}

/// The bytes of an inflated file. They are counted in [`HELD`] until the last reference is dropped.
struct CountedFile {
    bytes: Bytes,
}

impl CountedFile {
    fn bytes(bytes: Bytes) -> Bytes {
        HELD.add_file(bytes.len() as u64);
        Bytes::from_owner(CountedFile { bytes })
    }
}

impl AsRef<[u8]> for CountedFile {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        HELD.remove_file(self.bytes.len() as u64);
    }
}

/// The cache of inflated files, by the digest of their content, so that a version shares files with the version before
/// it.
#[derive(Debug)]
pub(crate) struct InflatedFileCache {
    cache: Cache<Digest, InflatedFile, FileWeighter, BuildDigestHasher>,
    /// The bytes in the cache that were last reported to [`HELD`].
    reported_weight: AtomicU64,
    /// A part of the digest of each large file that was requested once.
    request_marks: Box<[AtomicU32]>,
    damage_reports: Arc<DamageReports>,
    /// The memfd, created for the first large file; `None` if the system has none.
    memfd: OnceLock<Option<Arc<MemfdArena>>>,
}

impl InflatedFileCache {
    /// Creates a cache with a capacity of `bytes`.
    pub(crate) fn new(bytes: u64, damage_reports: Arc<DamageReports>) -> InflatedFileCache {
        let estimated_files = (bytes / 32_768).max(16) as usize;
        let mut options = OptionsBuilder::new();
        // One shard: each of several has only its part of the capacity. By default there are four per core. With many
        // cores, none of them could store a large file; with few, the fuller ones would evict files while the others
        // have free capacity.
        options.shards(1).estimated_items_capacity(estimated_files).weight_capacity(bytes);
        let lifecycle = DefaultLifecycle::default();
        let cache = match options.build() {
            Ok(options) => Cache::with_options(options, FileWeighter, BuildDigestHasher, lifecycle),
            Err(_) => Cache::with(estimated_files, bytes, FileWeighter, BuildDigestHasher, lifecycle),
        };
        let request_marks = (0..REQUEST_MARKS).map(|_| AtomicU32::new(0)).collect();
        InflatedFileCache {
            cache,
            reported_weight: AtomicU64::new(0),
            request_marks,
            damage_reports,
            memfd: OnceLock::new(),
        }
    }

    /// Returns whether this length is within the limit of a single file, also if the capacity of the cache is smaller.
    /// Larger files are always inflated as they are sent.
    pub(crate) fn is_within_file_limit(&self, len: u64) -> bool {
        len <= MAX_FILE_BYTES.max((self.cache.capacity() / LARGE_CACHE_FILES).min(MAX_FILE_BYTES_IN_LARGE_CACHE))
    }

    /// Returns whether a file of this length can be stored in the cache.
    fn can_cache(&self, len: u64) -> bool {
        self.is_within_file_limit(len) && len + FILE_OVERHEAD_BYTES <= self.cache.capacity()
    }

    /// Returns a file from the cache.
    pub(crate) fn get(&self, digest: &Digest) -> Option<InflatedFile> {
        self.cache.get(digest)
    }

    /// Puts a file into the cache, if it fits, and returns it.
    pub(crate) fn insert(&self, digest: Digest, content: Bytes) -> InflatedFile {
        let stored = if content.len() >= MIN_MEMFD_FILE_BYTES { self.store_in_memfd(&content) } else { None };
        let file = match stored {
            Some((bytes, range)) => InflatedFile { bytes: CountedFile::bytes(bytes), memfd_range: Some(range) },
            None => InflatedFile { bytes: CountedFile::bytes(content), memfd_range: None },
        };
        self.cache.insert(digest, file.clone());
        self.report_weight(self.cache.weight());
        file
    }

    /// Reports to [`HELD`] how many bytes the cache has. All other inflated files in memory are held by responses.
    fn report_weight(&self, weight: u64) {
        HELD.replace_cached(self.reported_weight.swap(weight, Ordering::Relaxed), weight);
    }

    /// Marks a file as requested; returns whether it was marked already. A later request of another file can remove the
    /// mark. Large files that are requested once each are therefore not cached.
    fn mark_requested(&self, digest: &Digest) -> bool {
        let [slot, mark] = [0, 4].map(|offset| read_u32_le(&digest.0, offset));
        self.request_marks[slot as usize % REQUEST_MARKS].swap(mark, Ordering::Relaxed) == mark
    }

    /// Stores a file in the memfd; `None` if there is no memfd or no free space in it.
    fn store_in_memfd(&self, content: &[u8]) -> Option<(Bytes, MemfdRange)> {
        // Twice the capacity: for evicted files that are still being sent, and for gaps. Address space costs nothing.
        let memfd_size = self.cache.capacity().saturating_mul(2);
        let arena = self.memfd.get_or_init(|| if memfd_size > 0 { MemfdArena::new(memfd_size).ok() } else { None });
        arena.as_ref()?.store(content)
    }

    /// Returns the bytes in the cache.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

impl Drop for InflatedFileCache {
    fn drop(&mut self) {
        self.report_weight(0);
    }
}

/// Weighs files by their length.
#[derive(Debug, Clone)]
struct FileWeighter;

impl quick_cache::Weighter<Digest, InflatedFile> for FileWeighter {
    fn weight(&self, _: &Digest, file: &InflatedFile) -> u64 {
        file.bytes.len() as u64 + FILE_OVERHEAD_BYTES
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
