//! The response cache: rendered response heads, each under a key of everything in the request that the response depends
//! on. An entry is valid while nothing changes that responses depend on. Each thread has a cache of its own.
//!
//! An entry has the head, and where its body is found; it has no body bytes, so it keeps no replaced version in memory
//! and no inflated file beyond `server.identityCache`. Each change of what responses depend on increments
//! [`Site::edition`]. The opened version is compared as well, because it is replaced before that number is incremented.
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
/// The number of sets with which a thread begins, and the largest number; powers of two.
const INITIAL_SETS: usize = 4;
const MAX_SETS: usize = 256;
/// The largest memory, in bytes, that all keys and heads of a thread take. One key and head together take about half a
/// KiB.
const MAX_CACHE_BYTES: usize = 3 << 20;
/// In a full cache, one of this many new entries replaces an old one. A site with more pages than the cache holds
/// therefore keeps most of its entries, and a page that is requested often enters soon.
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
    marks: Vec<KeyHashes>,
    answers: Vec<[Option<CachedHead>; ENTRIES_PER_SET]>,
    /// The bytes of all keys and heads.
    bytes: usize,
    /// The number of entries that found the cache full.
    rejected: usize,
}

/// The hashes of the keys in one set. They are apart from the entries, so that they share a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct KeyHashes([u32; ENTRIES_PER_SET]);

/// An entry: a key, a response head and where the body is found.
#[derive(Debug)]
struct CachedHead {
    /// The key, then the head as it is sent but for its last fields.
    text: Box<[u8]>,
    /// The length of the key in bytes.
    key_len: u16,
    status: StatusCode,
    again: BodyLocation,
}

impl ResponseCache {
    const fn new() -> ResponseCache {
        ResponseCache { state: None, marks: Vec::new(), answers: Vec::new(), bytes: 0, rejected: 0 }
    }

    /// Empties the cache for another state.
    fn reset(&mut self, state: SiteState) {
        *self = ResponseCache { state: Some(state), ..ResponseCache::new() };
        self.resize(INITIAL_SETS);
    }

    /// Makes this many sets.
    fn resize(&mut self, places: usize) {
        self.marks.resize(places, KeyHashes::default());
        self.answers.resize_with(places, Default::default);
    }

    fn place(&self, mark: u32) -> usize {
        mark as usize & (self.marks.len() - 1)
    }

    fn find(&self, state: SiteState, mark: u32, pieces: &[&[u8]; 5]) -> Option<&CachedHead> {
        if self.state != Some(state) {
            return None;
        }
        let place = self.place(mark);
        let known = self.marks[place].0.iter().zip(&self.answers[place]).filter(|(known, _)| **known == mark);
        known.filter_map(|(_, answer)| answer.as_ref()).find(|answer| is_same_key(answer.key(), pieces))
    }

    /// Returns the set and the way where the entry for a key goes; `None` if it is not stored.
    fn choose_slot(&mut self, mark: u32, pieces: &[&[u8]; 5]) -> Option<(usize, usize)> {
        loop {
            let place = self.place(mark);
            let answers = &self.answers[place];
            // The key may be stored already: if the body has to be inflated again, the request goes to the handler,
            // which stores its response anew.
            let is_same =
                |known: &Option<CachedHead>| known.as_ref().is_some_and(|known| is_same_key(known.key(), pieces));
            if let Some(way) = answers.iter().position(is_same) {
                return Some((place, way));
            }
            let is_full = self.bytes >= MAX_CACHE_BYTES;
            if !is_full && let Some(way) = answers.iter().position(Option::is_none) {
                return Some((place, way));
            }
            if is_full || self.marks.len() == MAX_SETS {
                self.rejected += 1;
                let way = self.rejected / FULL_CACHE_ADMISSION_INTERVAL % ENTRIES_PER_SET;
                let is_let_in = self.rejected.is_multiple_of(FULL_CACHE_ADMISSION_INTERVAL) && answers[way].is_some();
                return is_let_in.then_some((place, way));
            }
            self.grow();
        }
    }

    fn insert(&mut self, mark: u32, (place, way): (usize, usize), answer: CachedHead) {
        self.bytes += answer.text.len();
        self.marks[place].0[way] = mark;
        if let Some(before) = self.answers[place][way].replace(answer) {
            self.bytes -= before.text.len();
        }
    }

    /// Doubles the number of sets. The entries of each set are divided between two.
    fn grow(&mut self) {
        let before = self.marks.len();
        self.resize(2 * before);
        for place in 0..before {
            for way in 0..ENTRIES_PER_SET {
                let Some(answer) = self.answers[place][way].take() else { continue };
                let mark = self.marks[place].0[way];
                let to = self.place(mark);
                self.marks[to].0[way] = mark;
                self.answers[to][way] = Some(answer);
            }
        }
    }
}

impl CachedHead {
    fn key(&self) -> &[u8] {
        &self.text[..usize::from(self.key_len)]
    }

    fn head(&self) -> &[u8] {
        &self.text[usize::from(self.key_len)..]
    }
}

/// The state of a site that a response belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SiteState {
    /// The number of the site; see [`Site::number`].
    site: u64,
    edition: u64,
    /// The number of the opened version, see
    /// [`SealedVersion::opening`](docwharf_site::sealed_version::SealedVersion::opening). The same version may be
    /// opened again from another image, which has its files at other offsets.
    opening: Option<u64>,
}

impl SiteState {
    /// Returns the current state, in which equal keys have equal responses; `None` if responses may depend on the
    /// client.
    pub(super) fn of(site: &Site) -> Option<SiteState> {
        // Read first, so that a response from before a change is never stored under the number after it.
        let edition = site.edition();
        let opening = site.load_version().as_ref().map(|version| version.opening);
        (!site.depends_on_client()).then_some(SiteState { site: site.number, edition, opening })
    }

    /// Returns the body of a cached response; `None` if it has to be inflated, or if the served version is another one
    /// by now.
    fn body(self, site: &Site, again: &BodyLocation) -> Option<BodyChunk> {
        let version = site.load_version();
        let version = || version.as_ref().filter(|version| Some(version.opening) == self.opening);
        match *again {
            BodyLocation::Empty => Some(Bytes::new().into()),
            BodyLocation::StaticText(text) => Some(Bytes::from_static(text).into()),
            BodyLocation::File(file, form) => file_body::ready_body(site, version()?, file, form),
            BodyLocation::Dense(file, coding, crc) => {
                site.precompressed_body(version()?, file, coding, crc).map(BodyChunk::from)
            }
        }
    }
}

/// The place in the cache of the response to one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLookup<'k> {
    key: &'k CacheKey<'k>,
    format: HeadFormat,
    state: SiteState,
}

impl<'k> CacheLookup<'k> {
    /// Describes the request with this key, for a head in this format; `None` if responses of the site may depend on
    /// more. Must be called before the response is made, because a change in between makes it invalid.
    #[inline]
    pub(super) fn new(site: &Site, key: &'k CacheKey<'k>, format: HeadFormat) -> Option<CacheLookup<'k>> {
        Some(CacheLookup { key, format, state: SiteState::of(site)? })
    }

    /// Appends the stored head to `out`, and returns the status and body of the response. If there is no usable entry,
    /// `out` is unchanged and `None` is returned.
    #[inline]
    pub(super) fn find(&self, site: &Site, out: &mut Vec<u8>) -> Option<(StatusCode, BodyChunk)> {
        find_cached(site, self.state, self.key, self.format, out)
    }

    /// Stores the head of a response whose body is found again at `location`.
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
    let pieces = key.pieces(format);
    let (status, again, before) = THREAD_CACHE.with_borrow(|known| {
        let answer = known.find(state, hash_key(&pieces), &pieces)?;
        let before = out.len();
        out.extend_from_slice(answer.head());
        Some((answer.status, answer.again.clone(), before))
    })?;
    let body = state.body(site, &again);
    if body.is_none() {
        out.truncate(before);
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
    again: BodyLocation,
) {
    let pieces = key.pieces(format);
    let asked: usize = pieces.iter().map(|piece| piece.len() + 1).sum();
    if asked > MAX_KEY_BYTES || head.len() > MAX_CACHED_HEAD_BYTES {
        return;
    }
    THREAD_CACHE.with_borrow_mut(|known| {
        if known.state != Some(state) {
            known.reset(state);
        }
        let mark = hash_key(&pieces);
        let Some((place, way)) = known.choose_slot(mark, &pieces) else { return };
        let mut text = Vec::with_capacity(asked + head.len());
        for piece in pieces {
            text.extend_from_slice(piece);
            text.push(b'\n');
        }
        text.extend_from_slice(head);
        known.insert(mark, (place, way), CachedHead { text: text.into(), key_len: asked as u16, status, again });
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
    fn as_many_answers_as_there_is_room_for_are_known_however_they_fall() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.number, edition: 1, opening: None };
        let targets: Vec<String> = (0..3000).map(|n| format!("/guide/{n}/page.html")).collect();
        for target in &targets {
            let ask = CacheKey { target, ..CacheKey::default() };
            store(state, &ask, HeadFormat::Lines, StatusCode::OK, target.as_bytes(), BodyLocation::Empty);
        }
        let known = targets.iter().filter(|target| {
            let mut out = Vec::new();
            let ask = CacheKey { target, ..CacheKey::default() };
            find_cached(&site, state, &ask, HeadFormat::Lines, &mut out).is_some_and(|_| out == target.as_bytes())
        });
        let known = known.count();
        assert!(known > 2900, "{known} of 3000");
        assert_eq!(THREAD_CACHE.with_borrow(|known| known.marks.len()), MAX_SETS);
        let texts = THREAD_CACHE
            .with_borrow(|known| known.answers.iter().flatten().flatten().map(|known| known.text.len()).sum::<usize>());
        assert_eq!(THREAD_CACHE.with_borrow(|known| known.bytes), texts);
        let (next, ask) = (SiteState { edition: 2, ..state }, CacheKey { target: "/", ..CacheKey::default() });
        store(next, &ask, HeadFormat::Lines, StatusCode::OK, b"", BodyLocation::Empty);
        let kept = THREAD_CACHE.with_borrow(|known| known.answers.iter().flatten().flatten().count());
        assert_eq!(kept, 1, "of what was before nothing is kept");
    }

    #[test]
    fn what_is_known_is_bounded_however_long_it_is() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.number, edition: 1, opening: None };
        let targets: Vec<String> = (0..4000).map(|n| format!("/{n}?{}", "x".repeat(400))).collect();
        let known = |target: &str| {
            let ask = CacheKey { target, ..CacheKey::default() };
            find_cached(&site, state, &ask, HeadFormat::Lines, &mut Vec::new()).is_some()
        };
        for target in &targets {
            let ask = CacheKey { target, ..CacheKey::default() };
            store(state, &ask, HeadFormat::Lines, StatusCode::OK, &[b'h'; MAX_CACHED_HEAD_BYTES], BodyLocation::Empty);
            assert!(
                THREAD_CACHE.with_borrow(|known| known.bytes) < MAX_CACHE_BYTES + MAX_KEY_BYTES + MAX_CACHED_HEAD_BYTES
            );
        }
        let (early, late) = targets.split_at(2000);
        assert!(early.iter().filter(|target| known(target)).count() > 500);
        assert!(late.iter().any(|target| known(target)), "newcomers get in");
    }

    #[test]
    fn only_the_same_question_to_the_same_site_is_answered_again() {
        let site = Site::new(SiteSettings::default());
        let ask = CacheKey { target: "/a", encodings: b"gzip", ..CacheKey::default() };
        let state = SiteState { site: site.number, edition: 3, opening: None };
        store(state, &ask, HeadFormat::Lines, StatusCode::OK, b"head", BodyLocation::Empty);
        let known = |state, key: &CacheKey<'_>| {
            let mut out = b"before ".to_vec();
            find_cached(&site, state, key, HeadFormat::Lines, &mut out).map(|_| out)
        };
        assert_eq!(known(state, &ask), Some(b"before head".to_vec()));
        assert_eq!(known(state, &CacheKey { encodings: b"", ..ask }), None);
        assert_eq!(known(state, &CacheKey { target: "/b", ..ask }), None);
        assert_eq!(known(state, &CacheKey { is_head: true, ..ask }), None);
        assert_eq!(known(state, &CacheKey { encodings: b"", types: b"gzip", ..ask }), None, "in another field");
        assert_eq!(known(SiteState { edition: 4, ..state }, &ask), None);
        let other = Site::new(SiteSettings::default());
        assert_eq!(known(SiteState { site: other.number, ..state }, &ask), None, "of another site");
        assert_ne!(SiteState::of(&other), SiteState::of(&site));
        assert_eq!(known(SiteState { opening: Some(1), ..state }, &ask), None);
        assert!(find_cached(&site, state, &ask, HeadFormat::Block, &mut Vec::new()).is_none(), "in another format");
    }

    #[test]
    fn questions_whose_pieces_join_to_the_same_text_are_told_apart() {
        let pieces: [&[u8]; 5] = [b"G", b"/a", b"b", b"", b""];
        let asked = [&pieces.join(&b'\n')[..], b"\n"].concat();
        assert!(is_same_key(&asked, &pieces));
        assert!(!is_same_key(&asked, &[b"G", b"/a", b"", b"b", b""]));
        assert!(!is_same_key(&asked, &[b"G", b"/a", b"b", b"", b"c"]));
        assert!(!is_same_key(&asked, &[b"G", b"/", b"b", b"", b""]));
    }

    #[test]
    fn of_two_values_of_a_field_neither_is_the_question() {
        for (before, value, expected) in [
            ("", "gzip", Some("gzip")),
            ("", "", None),
            ("gzip", "br", None),
            ("gzip", "gzip", None),
            ("gzip", "", None),
        ] {
            let mut place = before.as_bytes();
            assert_eq!(set_key_part(&mut place, value.as_bytes()), expected.is_some(), "{before:?} {value:?}");
            assert_eq!(place, expected.unwrap_or(before).as_bytes(), "{before:?} {value:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_for_each_question_and_head() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.number, edition: 1, opening: None };
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
            let ask = CacheKey { target: &target, ..CacheKey::default() };
            store(state, &ask, HeadFormat::Lines, StatusCode::OK, &head, BodyLocation::Empty);
            let known = find_cached(&site, state, &ask, HeadFormat::Lines, &mut Vec::new()).is_some();
            assert_eq!(known, expected, "{} and {} bytes", target.len(), head.len());
        }
    }

    #[test]
    fn an_answer_comes_with_its_status_and_body_or_not_at_all() {
        let site = Site::new(SiteSettings::default());
        let state = SiteState { site: site.number, edition: 7, opening: None };
        let ask = CacheKey { target: "/a", tags: b"\"x\"", ..CacheKey::default() };
        for (again, body) in [
            (BodyLocation::Empty, Some(&b""[..])),
            (BodyLocation::StaticText(b"a text"), Some(b"a text")),
            // Without a version there is no file.
            (BodyLocation::File(0, crate::negotiate::ResponseForm::Gzip), None),
            (BodyLocation::Dense(0, docwharf_base::codec::content_coding::ContentCoding::Brotli, 5), None),
        ] {
            let head = format!("{again:?}");
            store(state, &ask, HeadFormat::Lines, StatusCode::NOT_FOUND, head.as_bytes(), again);
            let mut out = b"before ".to_vec();
            let recalled = find_cached(&site, state, &ask, HeadFormat::Lines, &mut out);
            let told = recalled.map(|(status, chunk)| (status.as_u16(), chunk.parts().concat()));
            assert_eq!(told, body.map(|body| (404, body.to_vec())), "{head}");
            let expected = if body.is_some() { format!("before {head}") } else { "before ".to_owned() };
            assert_eq!(out, expected.as_bytes(), "the last that was remembered, or nothing");
            let count = THREAD_CACHE.with_borrow(|known| known.answers.iter().flatten().flatten().count());
            assert_eq!(count, 1, "the same key has one place");
        }
    }

    #[test]
    fn a_question_is_told_from_another_by_each_of_its_fields() {
        let ask = CacheKey { is_head: false, target: "/a", encodings: b"gzip", types: b"text/html", tags: b"\"x\"" };
        let others = [
            ask,
            CacheKey { is_head: true, ..ask },
            CacheKey { target: "/A", ..ask },
            CacheKey { encodings: b"gzi", ..ask },
            CacheKey { types: b"", ..ask },
            CacheKey { types: b"text/*", ..ask },
            CacheKey { tags: b"\"y\"", ..ask },
            CacheKey { tags: b"", ..ask },
        ];
        let all: Vec<_> = others
            .iter()
            .flat_map(|ask| [HeadFormat::Lines, HeadFormat::Block].map(|format| ask.pieces(format)))
            .collect();
        for (at, pieces) in all.iter().enumerate() {
            let text = [&pieces.join(&b'\n')[..], b"\n"].concat();
            let same: Vec<usize> = (0..all.len()).filter(|&other| is_same_key(&text, &all[other])).collect();
            assert_eq!(same, [at]);
            assert!(!is_same_key(&text[..text.len() - 1], pieces) && !is_same_key(&[&text[..], b"x"].concat(), pieces));
        }
        for len in 0..20 {
            let one = vec![b'x'; len];
            assert!(is_equal_slice(&one, &one));
            for at in 0..len {
                let mut other = one.clone();
                other[at] = b'y';
                assert!(!is_equal_slice(&one, &other), "byte {at} of {len}");
            }
        }
    }

    /// An empty version; each opening of it has the same id.
    fn opened() -> Arc<SealedVersion> {
        let id = docwharf_base::model::version::VersionManifest::default().id();
        let index = ImageIndex::decode(encode_index(0, id, &[]), 0, id).unwrap();
        Arc::new(SealedVersion::new(id, Vec::new().into(), index))
    }

    #[test]
    fn what_was_answered_from_one_image_of_a_version_is_not_answered_again_from_another_image_of_it() {
        let site = Site::new(SiteSettings::default());
        // `Site::set_version` stores the version before it raises the edition: this is the moment in between.
        site.current.store(Some(opened()));
        let state = SiteState::of(&site).unwrap();
        let ask = CacheKey { target: "/", ..CacheKey::default() };
        store(state, &ask, HeadFormat::Lines, StatusCode::OK, b"head", BodyLocation::Empty);
        let known = |state| find_cached(&site, state, &ask, HeadFormat::Lines, &mut Vec::new());
        assert!(known(SiteState::of(&site).unwrap()).is_some());
        site.current.store(Some(opened()));
        assert!(known(SiteState::of(&site).unwrap()).is_none());
    }
}
