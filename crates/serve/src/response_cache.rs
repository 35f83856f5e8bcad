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

use super::body::BodyLocation;
use super::body_chunk::BodyChunk;
use super::file_body;
use super::site::Site;

pub(super) use key::{CacheKey, HeadFormat, set_key_part};
use key::{hash_key, is_same_key};

/// The number of entries in a set. Their hashes, which are compared first, fill one cache line.
const ENTRIES_PER_SET: usize = 16;
/// The number of sets of a new cache; a power of two.
const INITIAL_SETS: usize = 4;
/// The largest number of sets of a cache; a power of two.
const MAX_SETS: usize = 256;
/// The largest total size, in bytes, of all keys and heads of a thread. One key and head together take about half a
/// KiB.
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
    body_location: BodyLocation,
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
    /// [`SealedVersion::opening`](docwharf_site::sealed_version::SealedVersion::opening). The same version may be
    /// opened again from another image, which has its files at other offsets.
    opening: Option<u64>,
}

impl SiteState {
    /// Returns the current state, in which equal keys have equal responses; `None` if responses may depend on the
    /// client.
    pub(super) fn current(site: &Site) -> Option<SiteState> {
        // Read first, so that a response from before a change is never stored with the generation after it.
        let generation = site.generation();
        let opening = site.load_version().as_ref().map(|version| version.opening);
        (!site.depends_on_client()).then_some(SiteState { site: site.instance_id, generation, opening })
    }

    /// Returns the body of a cached response; `None` if it has to be inflated, or if another version is served now.
    fn body(self, site: &Site, location: &BodyLocation) -> Option<BodyChunk> {
        let version = site.load_version();
        let same_version = || version.as_ref().filter(|version| Some(version.opening) == self.opening);
        match *location {
            BodyLocation::Empty => Some(Bytes::new().into()),
            BodyLocation::StaticText(text) => Some(Bytes::from_static(text).into()),
            BodyLocation::File(file, form) => file_body::ready_body(site, same_version()?, file, form),
            BodyLocation::Precompressed(file, coding, crc) => {
                site.precompressed_body(same_version()?, file, coding, crc).map(BodyChunk::from)
            }
        }
    }
}

/// The position in the cache of the response to one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLookup<'k> {
    key: &'k CacheKey<'k>,
    format: HeadFormat,
    state: SiteState,
}

impl<'k> CacheLookup<'k> {
    /// Describes the request with this key, for a head in this format; `None` if responses of the site may depend on
    /// more. Must be called before the response is built, because a change in between makes the response invalid.
    #[inline]
    pub(super) fn new(site: &Site, key: &'k CacheKey<'k>, format: HeadFormat) -> Option<CacheLookup<'k>> {
        Some(CacheLookup { key, format, state: SiteState::current(site)? })
    }

    /// Appends the stored head to `out`, and returns the status and body of the response. If there is no usable entry,
    /// `out` is unchanged and `None` is returned.
    #[inline]
    pub(super) fn find(&self, site: &Site, out: &mut Vec<u8>) -> Option<(StatusCode, BodyChunk)> {
        find_cached(site, self.state, self.key, self.format, out)
    }

    /// Stores the head of a response whose body can be read again from `location`.
    pub(super) fn store(&self, status: StatusCode, head: &[u8], location: BodyLocation) {
        store(self.state, self.key, self.format, status, head, location);
    }
}

/// Appends the head stored for this key to `out`, and returns the status and body of the response. If there is no
/// usable entry, `out` is unchanged and `None` is returned.
fn find_cached(
    site: &Site,
    state: SiteState,
    key: &CacheKey<'_>,
    format: HeadFormat,
    out: &mut Vec<u8>,
) -> Option<(StatusCode, BodyChunk)> {
    let parts = key.parts(format);
    let (status, location, start) = THREAD_CACHE.with_borrow(|cache| {
        let entry = cache.find(state, hash_key(&parts), &parts)?;
        let start = out.len();
        out.extend_from_slice(entry.head());
        Some((entry.status, entry.body_location.clone(), start))
    })?;
    let body = state.body(site, &location);
    if body.is_none() {
        out.truncate(start);
    }
    Some((status, body?))
}

/// Stores `head` as the head of the response to this key.
fn store(
    state: SiteState,
    key: &CacheKey<'_>,
    format: HeadFormat,
    status: StatusCode,
    head: &[u8],
    body_location: BodyLocation,
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
        cache.insert(hash, (set, index), CachedHead { key_and_head: text.into(), key_len, status, body_location });
    });
}

#[cfg(test)]
mod tests {
    use super::key::is_equal_slice;
    use super::*;
    use crate::SiteSettings;
    use std::sync::Arc;

    use docwharf_site::index::{ImageIndex, encode_index};
    use docwharf_site::sealed_version::SealedVersion;

    #[test]
    fn the_response_cache_retains_nearly_all_entries_that_fit_into_it() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.instance_id, generation: 1, opening: None };
        let targets: Vec<String> = (0..3000).map(|n| format!("/guide/{n}/page.html")).collect();
        for target in &targets {
            let key = CacheKey { target, ..CacheKey::default() };
            store(state, &key, HeadFormat::Lines, StatusCode::OK, target.as_bytes(), BodyLocation::Empty);
        }
        let cached_count = targets.iter().filter(|target| {
            let mut out = Vec::new();
            let key = CacheKey { target, ..CacheKey::default() };
            find_cached(&site, state, &key, HeadFormat::Lines, &mut out).is_some_and(|_| out == target.as_bytes())
        });
        let cached_count = cached_count.count();
        assert!(cached_count > 2900, "{cached_count} of 3000");
        assert_eq!(THREAD_CACHE.with_borrow(|cache| cache.hashes.len()), MAX_SETS);
        let texts = THREAD_CACHE.with_borrow(|cache| {
            cache.sets.iter().flatten().flatten().map(|entry| entry.key_and_head.len()).sum::<usize>()
        });
        assert_eq!(THREAD_CACHE.with_borrow(|cache| cache.bytes), texts);
        let (next, key) = (SiteState { generation: 2, ..state }, CacheKey { target: "/", ..CacheKey::default() });
        store(next, &key, HeadFormat::Lines, StatusCode::OK, b"", BodyLocation::Empty);
        let count = THREAD_CACHE.with_borrow(|cache| cache.sets.iter().flatten().flatten().count());
        assert_eq!(count, 1, "the entries of the earlier state are removed");
    }

    #[test]
    fn the_response_cache_stays_within_its_byte_limit_and_admits_new_entries() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.instance_id, generation: 1, opening: None };
        let targets: Vec<String> = (0..4000).map(|n| format!("/{n}?{}", "x".repeat(400))).collect();
        let is_cached = |target: &str| {
            let key = CacheKey { target, ..CacheKey::default() };
            find_cached(&site, state, &key, HeadFormat::Lines, &mut Vec::new()).is_some()
        };
        for target in &targets {
            let key = CacheKey { target, ..CacheKey::default() };
            store(state, &key, HeadFormat::Lines, StatusCode::OK, &[b'h'; MAX_CACHED_HEAD_BYTES], BodyLocation::Empty);
            assert!(
                THREAD_CACHE.with_borrow(|cache| cache.bytes) < MAX_CACHE_BYTES + MAX_KEY_BYTES + MAX_CACHED_HEAD_BYTES
            );
        }
        let (early, late) = targets.split_at(2000);
        assert!(early.iter().filter(|target| is_cached(target)).count() > 500);
        assert!(late.iter().any(|target| is_cached(target)), "new entries are admitted");
    }

    // Regression: the response cache of a process with several sites could return the response of one site for another
    // one.
    #[test]
    fn a_cached_response_is_found_only_for_the_same_key_site_and_generation() {
        let site = Site::new(SiteSettings::default());
        let key = CacheKey { target: "/a", encodings: b"gzip", ..CacheKey::default() };
        let state = SiteState { site: site.instance_id, generation: 3, opening: None };
        store(state, &key, HeadFormat::Lines, StatusCode::OK, b"head", BodyLocation::Empty);
        let find_head = |state, key: &CacheKey<'_>| {
            let mut out = b"before ".to_vec();
            find_cached(&site, state, key, HeadFormat::Lines, &mut out).map(|_| out)
        };
        assert_eq!(find_head(state, &key), Some(b"before head".to_vec()));
        assert_eq!(find_head(state, &CacheKey { encodings: b"", ..key }), None);
        assert_eq!(find_head(state, &CacheKey { target: "/b", ..key }), None);
        assert_eq!(find_head(state, &CacheKey { is_head: true, ..key }), None);
        assert_eq!(find_head(state, &CacheKey { encodings: b"", types: b"gzip", ..key }), None, "in another field");
        assert_eq!(find_head(SiteState { generation: 4, ..state }, &key), None);
        let other_site = Site::new(SiteSettings::default());
        assert_eq!(find_head(SiteState { site: other_site.instance_id, ..state }, &key), None, "of another site");
        assert_ne!(SiteState::current(&other_site), SiteState::current(&site));
        assert_eq!(find_head(SiteState { opening: Some(1), ..state }, &key), None);
        assert!(find_cached(&site, state, &key, HeadFormat::Block, &mut Vec::new()).is_none(), "in another format");
    }

    #[test]
    fn cache_keys_whose_parts_concatenate_to_the_same_text_differ() {
        let parts: [&[u8]; 5] = [b"G", b"/a", b"b", b"", b""];
        let stored = [&parts.join(&b'\n')[..], b"\n"].concat();
        assert!(is_same_key(&stored, &parts));
        assert!(!is_same_key(&stored, &[b"G", b"/a", b"", b"b", b""]));
        assert!(!is_same_key(&stored, &[b"G", b"/a", b"b", b"", b"c"]));
        assert!(!is_same_key(&stored, &[b"G", b"/", b"b", b"", b""]));
    }

    #[test]
    fn a_repeated_or_empty_field_prevents_a_cache_key() {
        for (before, value, expected) in [
            ("", "gzip", Some("gzip")),
            ("", "", None),
            ("gzip", "br", None),
            ("gzip", "gzip", None),
            ("gzip", "", None),
        ] {
            let mut slot = before.as_bytes();
            assert_eq!(set_key_part(&mut slot, value.as_bytes()), expected.is_some(), "{before:?} {value:?}");
            assert_eq!(slot, expected.unwrap_or(before).as_bytes(), "{before:?} {value:?}");
        }
    }

    #[test]
    fn cache_entries_have_a_maximum_key_and_head_length() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.instance_id, generation: 1, opening: None };
        // A key has the kind, the target and a line feed after each of five parts.
        let longest = MAX_KEY_BYTES - 6;
        for (target, head, expected) in [
            (longest, MAX_CACHED_HEAD_BYTES, true),
            (longest + 1, 1, false),
            (longest - 1, MAX_CACHED_HEAD_BYTES + 1, false),
            (1, MAX_CACHED_HEAD_BYTES, true),
            (2, MAX_CACHED_HEAD_BYTES + 1, false),
        ] {
            let (target, head) = ("x".repeat(target), vec![b'h'; head]);
            let key = CacheKey { target: &target, ..CacheKey::default() };
            store(state, &key, HeadFormat::Lines, StatusCode::OK, &head, BodyLocation::Empty);
            let is_cached = find_cached(&site, state, &key, HeadFormat::Lines, &mut Vec::new()).is_some();
            assert_eq!(is_cached, expected, "{} and {} bytes", target.len(), head.len());
        }
    }

    #[test]
    fn a_cached_response_is_returned_only_with_its_status_and_body() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.instance_id, generation: 7, opening: None };
        let key = CacheKey { target: "/a", tags: b"\"x\"", ..CacheKey::default() };
        for (location, body) in [
            (BodyLocation::Empty, Some(&b""[..])),
            (BodyLocation::StaticText(b"a text"), Some(b"a text")),
            // Without a version there is no file.
            (BodyLocation::File(0, crate::negotiate::ResponseForm::Gzip), None),
            (BodyLocation::Precompressed(0, docwharf_base::codec::content_coding::ContentCoding::Brotli, 5), None),
        ] {
            let head = format!("{location:?}");
            store(state, &key, HeadFormat::Lines, StatusCode::NOT_FOUND, head.as_bytes(), location);
            let mut out = b"before ".to_vec();
            let cached = find_cached(&site, state, &key, HeadFormat::Lines, &mut out);
            let response = cached.map(|(status, chunk)| (status.as_u16(), chunk.parts().concat()));
            assert_eq!(response, body.map(|body| (404, body.to_vec())), "{head}");
            let expected = if body.is_some() { format!("before {head}") } else { "before ".to_owned() };
            assert_eq!(out, expected.as_bytes(), "the last head that was stored, or nothing");
            let count = THREAD_CACHE.with_borrow(|cache| cache.sets.iter().flatten().flatten().count());
            assert_eq!(count, 1, "equal keys have one entry");
        }
    }

    #[test]
    fn cache_keys_differ_if_any_of_their_fields_differs() {
        let key = CacheKey { is_head: false, target: "/a", encodings: b"gzip", types: b"text/html", tags: b"\"x\"" };
        let keys = [
            key,
            CacheKey { is_head: true, ..key },
            CacheKey { target: "/A", ..key },
            CacheKey { encodings: b"gzi", ..key },
            CacheKey { types: b"", ..key },
            CacheKey { types: b"text/*", ..key },
            CacheKey { tags: b"\"y\"", ..key },
            CacheKey { tags: b"", ..key },
        ];
        let stored_keys: Vec<_> = keys
            .iter()
            .flat_map(|key| [HeadFormat::Lines, HeadFormat::Block].map(|format| key.parts(format)))
            .collect();
        for (index, parts) in stored_keys.iter().enumerate() {
            let text = [&parts.join(&b'\n')[..], b"\n"].concat();
            let same: Vec<usize> =
                (0..stored_keys.len()).filter(|&other| is_same_key(&text, &stored_keys[other])).collect();
            assert_eq!(same, [index]);
            assert!(!is_same_key(&text[..text.len() - 1], parts) && !is_same_key(&[&text[..], b"x"].concat(), parts));
        }
        for len in 0..20 {
            let bytes = vec![b'x'; len];
            assert!(is_equal_slice(&bytes, &bytes));
            for index in 0..len {
                let mut changed = bytes.clone();
                changed[index] = b'y';
                assert!(!is_equal_slice(&bytes, &changed), "byte {index} of {len}");
            }
        }
    }

    /// Opens an empty version, which always has the same id.
    fn open_version() -> Arc<SealedVersion> {
        let id = docwharf_base::model::version::VersionManifest::default().id();
        let index = ImageIndex::decode(encode_index(0, id, &[]), 0, id).unwrap();
        Arc::new(SealedVersion::new(id, Vec::new().into(), index))
    }

    #[test]
    fn a_response_cached_from_one_image_of_a_version_is_not_reused_for_another_image() {
        let site = Site::new(SiteSettings::default());
        // `Site::set_version` stores the version before it increments the generation. This test checks the state in
        // between.
        site.current.store(Some(open_version()));
        let state = SiteState::current(&site).unwrap();
        let key = CacheKey { target: "/", ..CacheKey::default() };
        store(state, &key, HeadFormat::Lines, StatusCode::OK, b"head", BodyLocation::Empty);
        let find_entry = |state| find_cached(&site, state, &key, HeadFormat::Lines, &mut Vec::new());
        assert!(find_entry(SiteState::current(&site).unwrap()).is_some());
        site.current.store(Some(open_version()));
        assert!(find_entry(SiteState::current(&site).unwrap()).is_none());
    }
}
