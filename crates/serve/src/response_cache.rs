//! The response cache: rendered response heads. The key of an entry has every part of the request on which the response
//! depends. An entry is valid until the site's state changes. Each thread has a separate cache.
//!
//! An entry has the head and the location of the body. It has no body bytes, so it keeps no replaced version and no
//! inflated file in memory beyond `server.identityCache`. Each change of what responses depend on increments
//! [`Site::generation`]. The opened version is compared as well, because it is replaced before the generation is
//! incremented.
//!
//! The cache is set-associative: the hash of a key selects a set, and the entries of a set are searched one after the
//! other.

mod key;

use std::cell::RefCell;

use bytes::Bytes;
use http::StatusCode;

use super::body::{BodyLocation, StoredBody};
use super::body_chunk::BodyChunk;
use super::file_body;
use super::negotiate::ResponseForm;
use super::recording::ViewedContent;
use super::site::Site;

pub(super) use key::{CacheKey, HeadFormat, set_key_part};
use key::{hash_key, is_same_key};

/// The number of entries in a set. Their hashes, which are compared first, fill one cache line.
const ENTRIES_PER_SET: usize = 16;
/// The number of sets of a new cache; a power of two.
const INITIAL_SETS: usize = 4;
/// The largest number of sets of a cache; a power of two.
const MAX_SETS: usize = 256;
/// The total size, in bytes, of all keys and heads of a thread from which a new head only replaces another one. The
/// replacement may be larger; only [`MAX_SETS`], [`MAX_KEY_BYTES`] and [`MAX_CACHED_HEAD_BYTES`] bound the total. One
/// key and head together take about half a KiB.
const MAX_CACHE_BYTES: usize = 3 << 20;
/// In a full cache, one of this many new entries replaces an old one. A site with more pages than the cache holds
/// therefore keeps most of its entries, and a page that is requested often is soon stored.
const FULL_CACHE_ADMISSION_INTERVAL: usize = 8;
/// The largest key that is stored, in bytes.
const MAX_KEY_BYTES: usize = 512;
/// The largest head that is stored, in bytes. The head of a page with a long policy is larger.
const MAX_CACHED_HEAD_BYTES: usize = 2048;

thread_local! {
    static THREAD_CACHE: RefCell<ResponseCache> = const { RefCell::new(ResponseCache::new()) };
}

/// The cache of one thread, for one state of a site.
#[derive(Debug)]
struct ResponseCache {
    state: Option<SiteState>,
    /// The hashes of the keys in each set.
    hashes: Vec<KeyHashes>,
    /// The entries of each set.
    sets: Vec<[Option<CachedHead>; ENTRIES_PER_SET]>,
    /// The bytes of all keys and heads.
    bytes: usize,
    /// The number of insertions for which the cache was full. Most of them are not stored; see
    /// [`FULL_CACHE_ADMISSION_INTERVAL`].
    insertions_when_full: usize,
}

/// The hashes of the keys in one set. They are stored apart from the entries, so that they share a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct KeyHashes([u32; ENTRIES_PER_SET]);

/// An entry: a key, a response head and the location of the body.
#[derive(Debug)]
struct CachedHead {
    /// The key, then the head as it is sent, without its last fields.
    key_and_head: Box<[u8]>,
    /// The length of the key in bytes.
    key_len: u16,
    status: StatusCode,
    body: StoredBody,
}

/// A response from the cache, whose head was appended to the output.
#[derive(Debug)]
pub(super) struct CachedResponse {
    pub(super) status: StatusCode,
    /// The page that counts as viewed when the response is sent.
    pub(super) viewed: ViewedContent,
    pub(super) body: BodyChunk,
    /// The instance of the version that the response belongs to.
    pub(super) version_instance: Option<u64>,
}

impl ResponseCache {
    const fn new() -> ResponseCache {
        ResponseCache { state: None, hashes: Vec::new(), sets: Vec::new(), bytes: 0, insertions_when_full: 0 }
    }

    /// Empties the cache for another state.
    fn reset(&mut self, state: SiteState) {
        *self = ResponseCache { state: Some(state), ..ResponseCache::new() };
        self.resize(INITIAL_SETS);
    }

    /// Sets the number of sets.
    fn resize(&mut self, set_count: usize) {
        self.hashes.resize(set_count, KeyHashes::default());
        self.sets.resize_with(set_count, Default::default);
    }

    /// Returns the set for a key with this hash.
    fn set_of(&self, hash: u32) -> usize {
        hash as usize & (self.hashes.len() - 1)
    }

    fn find(&self, state: SiteState, hash: u32, parts: &[&[u8]; 5]) -> Option<&CachedHead> {
        if self.state != Some(state) {
            return None;
        }
        let set = self.set_of(hash);
        let candidates = self.hashes[set].0.iter().zip(&self.sets[set]).filter(|(entry_hash, _)| **entry_hash == hash);
        candidates.filter_map(|(_, entry)| entry.as_ref()).find(|entry| is_same_key(entry.key(), parts))
    }

    /// Returns the set, and the position in it, where the entry for a key is to be stored; `None` if it is not to be
    /// stored.
    fn choose_slot(&mut self, hash: u32, parts: &[&[u8]; 5]) -> Option<(usize, usize)> {
        loop {
            let set = self.set_of(hash);
            let entries = &self.sets[set];
            // The key may be stored already: if the body has to be inflated again, the request is passed to the
            // handler, and its response is stored again.
            let is_same =
                |entry: &Option<CachedHead>| entry.as_ref().is_some_and(|entry| is_same_key(entry.key(), parts));
            if let Some(index) = entries.iter().position(is_same) {
                return Some((set, index));
            }
            let is_full = self.bytes >= MAX_CACHE_BYTES;
            if !is_full && let Some(index) = entries.iter().position(Option::is_none) {
                return Some((set, index));
            }
            if is_full || self.hashes.len() == MAX_SETS {
                self.insertions_when_full += 1;
                let index = self.insertions_when_full / FULL_CACHE_ADMISSION_INTERVAL % ENTRIES_PER_SET;
                let is_admitted =
                    self.insertions_when_full.is_multiple_of(FULL_CACHE_ADMISSION_INTERVAL) && entries[index].is_some();
                return is_admitted.then_some((set, index));
            }
            self.grow();
        }
    }

    fn insert(&mut self, hash: u32, (set, index): (usize, usize), entry: CachedHead) {
        self.bytes += entry.key_and_head.len();
        self.hashes[set].0[index] = hash;
        if let Some(replaced) = self.sets[set][index].replace(entry) {
            self.bytes -= replaced.key_and_head.len();
        }
    }

    /// Doubles the number of sets. The entries of each set are divided between two.
    fn grow(&mut self) {
        let old_count = self.hashes.len();
        self.resize(2 * old_count);
        for set in 0..old_count {
            for index in 0..ENTRIES_PER_SET {
                let Some(entry) = self.sets[set][index].take() else { continue };
                let hash = self.hashes[set].0[index];
                let new_set = self.set_of(hash);
                self.hashes[new_set].0[index] = hash;
                self.sets[new_set][index] = Some(entry);
            }
        }
    }
}

impl CachedHead {
    fn key(&self) -> &[u8] {
        &self.key_and_head[..usize::from(self.key_len)]
    }

    fn head(&self) -> &[u8] {
        &self.key_and_head[usize::from(self.key_len)..]
    }
}

/// The state of a site that a response belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SiteState {
    /// The id of the site; see [`Site::instance_id`].
    site: u64,
    generation: u64,
    /// The number of the opened version, see
    /// [`SealedVersion::instance_id`](docwharf_site::sealed_version::SealedVersion::instance_id). The same version may
    /// be opened again from another image, which has its files at other offsets.
    version_instance: Option<u64>,
}

impl SiteState {
    /// Returns the current state, in which equal keys have equal responses; `None` if responses may depend on the
    /// client.
    pub(super) fn current(site: &Site) -> Option<SiteState> {
        // Read first, so that a response from before a change is never stored with the generation after it.
        let generation = site.generation();
        let version_instance = site.load_served_version().as_ref().map(|version| version.instance_id);
        (!site.depends_on_client()).then_some(SiteState { site: site.instance_id, generation, version_instance })
    }

    /// Returns the body of a cached response; `None` if it has to be inflated, if its precompressed form or the
    /// inserted tag was replaced, or if another version is served now.
    fn body(self, site: &Site, location: &BodyLocation) -> Option<BodyChunk> {
        let version = site.load_served_version();
        let same_version = || version.as_ref().filter(|version| Some(version.instance_id) == self.version_instance);
        match *location {
            BodyLocation::Empty => Some(Bytes::new().into()),
            BodyLocation::StaticText(text) => Some(Bytes::from_static(text).into()),
            BodyLocation::File(file, form) => file_body::ready_body(site, same_version()?, file, form, None),
            BodyLocation::Precompressed(file, coding, crc) => {
                site.codings.body(same_version()?, file, coding, crc).map(BodyChunk::from)
            }
            BodyLocation::TextWithTag(text, tag) => {
                let inserted = site.inserted_tag();
                let inserted = inserted.as_deref().filter(|inserted| inserted.digest() == tag);
                Some(file_body::identity_chunk(Bytes::from_static(text).into(), Some(inserted?)))
            }
            BodyLocation::PageWithTag { file, form, coded_crc, tag } => {
                let inserted = site.inserted_tag();
                let inserted = inserted.as_deref().filter(|inserted| inserted.digest() == tag)?;
                let ResponseForm::Precompressed(coding) = form else {
                    return file_body::ready_body(site, same_version()?, file, form, Some(inserted));
                };
                let coded = site.codings.body(same_version()?, file, coding, coded_crc)?;
                Some(file_body::precompressed_chunk(coding, coded, Some(inserted)))
            }
        }
    }
}

/// The key, the format and the state of the site under which the response to a request is cached.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheAddress<'k> {
    key: &'k CacheKey<'k>,
    format: HeadFormat,
    state: SiteState,
}

impl<'k> CacheAddress<'k> {
    /// Describes the request with this key, for a head in this format; `None` if responses of the site may depend on
    /// the client as well. Must be called before the response is built, because a change in between makes the response
    /// invalid.
    #[inline]
    pub(super) fn new(site: &Site, key: &'k CacheKey<'k>, format: HeadFormat) -> Option<CacheAddress<'k>> {
        Some(CacheAddress { key, format, state: SiteState::current(site)? })
    }

    /// Returns the path and query of the target if the method is GET.
    pub(super) fn target_of_get_request(&self) -> Option<&'k str> {
        (!self.key.is_head).then_some(self.key.target)
    }

    /// Appends the stored head to `out`, and returns the response. If there is no usable entry, `out` is unchanged and
    /// `None` is returned.
    #[inline]
    pub(super) fn find(&self, site: &Site, out: &mut Vec<u8>) -> Option<CachedResponse> {
        find_cached(site, self.state, self.key, self.format, out)
    }

    /// Stores the head of a response whose body can be read again.
    pub(super) fn store(&self, status: StatusCode, head: &[u8], body: impl Into<StoredBody>) {
        store(self.state, self.key, self.format, status, head, body);
    }
}

/// Appends the head stored for this key to `out`, and returns the response. If there is no usable entry, `out` is
/// unchanged and `None` is returned.
fn find_cached(
    site: &Site,
    state: SiteState,
    key: &CacheKey<'_>,
    format: HeadFormat,
    out: &mut Vec<u8>,
) -> Option<CachedResponse> {
    let parts = key.parts(format);
    let (status, stored, start) = THREAD_CACHE.with_borrow(|cache| {
        let entry = cache.find(state, hash_key(&parts), &parts)?;
        let start = out.len();
        out.extend_from_slice(entry.head());
        Some((entry.status, entry.body.clone(), start))
    })?;
    let body = state.body(site, &stored.location);
    if body.is_none() {
        out.truncate(start);
    }
    Some(CachedResponse { status, viewed: stored.viewed, body: body?, version_instance: state.version_instance })
}

/// Stores `head` as the head of the response to this key.
fn store(
    state: SiteState,
    key: &CacheKey<'_>,
    format: HeadFormat,
    status: StatusCode,
    head: &[u8],
    body: impl Into<StoredBody>,
) {
    let parts = key.parts(format);
    let key_len: usize = parts.iter().map(|part| part.len() + 1).sum();
    if key_len > MAX_KEY_BYTES || head.len() > MAX_CACHED_HEAD_BYTES {
        return;
    }
    THREAD_CACHE.with_borrow_mut(|cache| {
        if cache.state != Some(state) {
            cache.reset(state);
        }
        let hash = hash_key(&parts);
        let Some((set, index)) = cache.choose_slot(hash, &parts) else { return };
        let mut text = Vec::with_capacity(key_len + head.len());
        for part in parts {
            text.extend_from_slice(part);
            text.push(b'\n');
        }
        text.extend_from_slice(head);
        let key_len = key_len as u16;
        cache.insert(hash, (set, index), CachedHead { key_and_head: text.into(), key_len, status, body: body.into() });
    });
}

#[cfg(test)]
mod tests;
