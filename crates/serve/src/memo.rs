//! The response cache: rendered response heads, each under a key of everything in the request that the response depends
//! on. An entry is valid while nothing changes that responses depend on. Each thread has a cache of its own.
//!
//! An entry has the head, and where its body is found; it has no body bytes, so it keeps no replaced version in memory
//! and no inflated file beyond `server.identityCache`. Each change of what responses depend on increments
//! [`Site::edition`]. The opened version is compared as well, because it is replaced before that number is incremented.
//!
//! The cache is set-associative: the hash of a key selects a set, and the entries of a set are searched one after the
//! other.

use std::cell::RefCell;

use bytes::Bytes;
use http::StatusCode;


use super::Site;
use super::body::{Again, Chunk};
use super::handler;

/// The number of entries in a set. Their hashes, which are compared first, fill one cache line.
const WAYS: usize = 16;
/// The number of sets with which a thread begins, and the largest number; powers of two.
const FEW: usize = 4;
const MOST: usize = 256;
/// The largest memory, in bytes, that all keys and heads of a thread take. One key and head together take about half a
/// KiB.
const MOST_BYTES: usize = 3 << 20;
/// In a full cache, one of this many new entries replaces an old one. A site with more pages than the cache holds
/// therefore keeps most of its entries, and a page that is requested often enters soon.
const SELDOM: usize = 8;
/// The largest key that is stored, in bytes.
const LONGEST: usize = 512;
/// The largest head that is stored, in bytes. The head of a page with a long policy is larger.
const LONGEST_HEAD: usize = 2048;

thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(Known::new()) };
}

/// The cache of one thread, for one state of a site.
#[derive(Debug)]
struct Known {
    state: Option<State>,
    marks: Vec<Marks>,
    answers: Vec<[Option<Answer>; WAYS]>,
    /// The bytes of all keys and heads.
    bytes: usize,
    /// The number of entries that found the cache full.
    turned_away: usize,
}

/// The hashes of the keys in one set. They are apart from the entries, so that they share a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Marks([u32; WAYS]);

/// An entry: a key, a response head and where the body is found.
#[derive(Debug)]
struct Answer {
    /// The key, then the head as it is sent but for its last fields.
    text: Box<[u8]>,
    /// The length of the key in bytes.
    asked: u16,
    status: StatusCode,
    again: Again,
}

impl Known {
    const fn new() -> Known {
        Known { state: None, marks: Vec::new(), answers: Vec::new(), bytes: 0, turned_away: 0 }
    }

    /// Empties the cache for another state.
    fn begin(&mut self, state: State) {
        *self = Known { state: Some(state), ..Known::new() };
        self.spread(FEW);
    }

    /// Makes this many sets.
    fn spread(&mut self, places: usize) {
        self.marks.resize(places, Marks::default());
        self.answers.resize_with(places, Default::default);
    }

    fn place(&self, mark: u32) -> usize {
        mark as usize & (self.marks.len() - 1)
    }

    fn find(&self, state: State, mark: u32, pieces: &[&[u8]; 5]) -> Option<&Answer> {
        if self.state != Some(state) {
            return None;
        }
        let place = self.place(mark);
        let known = self.marks[place].0.iter().zip(&self.answers[place]).filter(|(known, _)| **known == mark);
        known.filter_map(|(_, answer)| answer.as_ref()).find(|answer| is_same(answer.question(), pieces))
    }

    /// Returns the set and the way where the entry for a key goes; `None` if it is not stored.
    fn room(&mut self, mark: u32, pieces: &[&[u8]; 5]) -> Option<(usize, usize)> {
        loop {
            let place = self.place(mark);
            let answers = &self.answers[place];
            // The key may be stored already: if the body has to be inflated again, the request goes to the handler,
            // which stores its response anew.
            let is_same =
                |known: &Option<Answer>| known.as_ref().is_some_and(|known| is_same(known.question(), pieces));
            if let Some(way) = answers.iter().position(is_same) {
                return Some((place, way));
            }
            let is_full = self.bytes >= MOST_BYTES;
            if !is_full && let Some(way) = answers.iter().position(Option::is_none) {
                return Some((place, way));
            }
            if is_full || self.marks.len() == MOST {
                self.turned_away += 1;
                let way = self.turned_away / SELDOM % WAYS;
                let is_let_in = self.turned_away.is_multiple_of(SELDOM) && answers[way].is_some();
                return is_let_in.then_some((place, way));
            }
            self.grow();
        }
    }

    fn put(&mut self, mark: u32, (place, way): (usize, usize), answer: Answer) {
        self.bytes += answer.text.len();
        self.marks[place].0[way] = mark;
        if let Some(before) = self.answers[place][way].replace(answer) {
            self.bytes -= before.text.len();
        }
    }

    /// Doubles the number of sets. The entries of each set are divided between two.
    fn grow(&mut self) {
        let before = self.marks.len();
        self.spread(2 * before);
        for place in 0..before {
            for way in 0..WAYS {
                let Some(answer) = self.answers[place][way].take() else { continue };
                let mark = self.marks[place].0[way];
                let to = self.place(mark);
                self.marks[to].0[way] = mark;
                self.answers[to][way] = Some(answer);
            }
        }
    }
}

impl Answer {
    fn question(&self) -> &[u8] {
        &self.text[..usize::from(self.asked)]
    }

    fn head(&self) -> &[u8] {
        &self.text[usize::from(self.asked)..]
    }
}

/// The format of a stored head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Text lines, as in HTTP/1.1.
    Lines,
    /// A field block (HPACK), as in HTTP/2.
    Block,
}

/// The state of a site that a response belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// The number of the site; see [`Site::number`].
    site: u64,
    edition: u64,
    /// The number of the opened version, see [`Sealed::opening`](docwharf_site::sealed::Sealed::opening). The same
    /// version may be opened again from another image, which has its files at other offsets.
    opening: Option<u64>,
}

impl State {
    /// Returns the current state, in which equal keys have equal responses; `None` if responses may depend on the
    /// client.
    pub(super) fn of(site: &Site) -> Option<State> {
        // Read first, so that a response from before a change is never stored under the number after it.
        let edition = site.edition();
        let opening = site.showing().as_ref().map(|version| version.opening);
        (!site.looks_at_peers()).then_some(State { site: site.number, edition, opening })
    }

    /// Returns the body of a cached response; `None` if it has to be inflated, or if the served version is another one
    /// by now.
    fn body(self, site: &Site, again: &Again) -> Option<Chunk> {
        let version = site.showing();
        let version = || version.as_ref().filter(|version| Some(version.opening) == self.opening);
        match *again {
            Again::Nothing => Some(Bytes::new().into()),
            Again::Text(text) => Some(Bytes::from_static(text).into()),
            Again::File(file, form) => handler::again(site, version()?, file, form),
            Again::Dense(file, coding, crc) => site.dense(version()?, file, coding, crc).map(Chunk::from),
        }
    }
}

/// A cache key: everything in a request that the response depends on where every client may read the site. The handler
/// reads no other field of such a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Question<'a> {
    /// Whether the method is HEAD; otherwise it is GET.
    pub(super) is_head: bool,
    /// The path and query of the target.
    pub(super) target: &'a str,
    /// The value of Accept-Encoding.
    pub(super) encodings: &'a [u8],
    /// The value of Accept.
    pub(super) types: &'a [u8],
    /// The value of If-None-Match.
    pub(super) tags: &'a [u8],
}

impl<'a> Question<'a> {
    /// Returns the parts of the key for a head in this format. Different keys have different parts.
    fn pieces(&self, shape: Shape) -> [&'a [u8]; 5] {
        let kind: &[u8] = match (self.is_head, shape) {
            (false, Shape::Lines) => b"G",
            (true, Shape::Lines) => b"H",
            (false, Shape::Block) => b"g",
            (true, Shape::Block) => b"h",
        };
        [kind, self.target.as_bytes(), self.encodings, self.types, self.tags]
    }
}

/// Compares a stored key, whose parts end in line feeds, with the parts of another. Values contain no line feed, so the
/// parts are unambiguous.
fn is_same(known: &[u8], pieces: &[&[u8]; 5]) -> bool {
    let mut rest = known;
    pieces.iter().all(|piece| {
        let Some((begin, behind)) = rest.split_at_checked(piece.len()) else { return false };
        let Some((b'\n', behind)) = behind.split_first() else { return false };
        rest = behind;
        is_equal(begin, piece)
    }) && rest.is_empty()
}

/// Returns whether two slices of equal length are equal. The comparison is inlined: the parts are short, mostly empty,
/// and five calls of the C library's function took an eighth of the time that a cached response takes in this program
/// (`perf`, 2026-11-22).
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let ((ones, one), (others, other)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    ones.iter().zip(others).all(|(one, other)| u64::from_le_bytes(*one) == u64::from_le_bytes(*other))
        && one.iter().zip(other).all(|(one, other)| one == other)
}

/// Returns the hash of a key. A client that chooses keys with equal sets can only evict the entries of a few sets.
fn mark(pieces: &[&[u8]; 5]) -> u32 {
    let mut hash = 0u64;
    for piece in pieces {
        let (words, end) = piece.as_chunks::<8>();
        for word in words {
            hash = mixed(hash ^ u64::from_le_bytes(*word));
        }
        let mut word = [0; 8];
        word[..end.len()].copy_from_slice(end);
        hash = mixed(hash ^ u64::from_le_bytes(word) ^ (piece.len() as u64).rotate_right(8));
    }
    hash as u32
}

/// Combines both halves of a product, so that each bit of the input affects each bit of the output.
fn mixed(word: u64) -> u64 {
    let product = u128::from(word ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    product as u64 ^ (product >> 64) as u64
}

/// Appends the head stored for this key to `out`, and returns the status and body of the response. If there is no
/// usable entry, `out` is unchanged and `None` is returned.
pub(super) fn recall(
    site: &Site,
    state: State,
    question: &Question<'_>,
    shape: Shape,
    out: &mut Vec<u8>,
) -> Option<(StatusCode, Chunk)> {
    let pieces = question.pieces(shape);
    let (status, again, before) = KNOWN.with_borrow(|known| {
        let answer = known.find(state, mark(&pieces), &pieces)?;
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
pub(super) fn remember(
    state: State,
    question: &Question<'_>,
    shape: Shape,
    status: StatusCode,
    head: &[u8],
    again: Again,
) {
    let pieces = question.pieces(shape);
    let asked: usize = pieces.iter().map(|piece| piece.len() + 1).sum();
    if asked > LONGEST || head.len() > LONGEST_HEAD {
        return;
    }
    KNOWN.with_borrow_mut(|known| {
        if known.state != Some(state) {
            known.begin(state);
        }
        let mark = mark(&pieces);
        let Some((place, way)) = known.room(mark, &pieces) else { return };
        let mut text = Vec::with_capacity(asked + head.len());
        for piece in pieces {
            text.extend_from_slice(piece);
            text.push(b'\n');
        }
        text.extend_from_slice(head);
        known.put(mark, (place, way), Answer { text: text.into(), asked: asked as u16, status, again });
    });
}

/// Sets a part of a key to the value of a field. Returns false if the field occurs twice or is empty, because not all
/// fields with several values are evaluated alike; such a request is not answered from the cache.
pub(super) fn put<'a>(place: &mut &'a [u8], value: &'a [u8]) -> bool {
    if !place.is_empty() || value.is_empty() {
        return false;
    }
    *place = value;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use std::sync::Arc;

    use docwharf_site::index::{Index, encode};
    use docwharf_site::sealed::Sealed;

    #[test]
    fn as_many_answers_as_there_is_room_for_are_known_however_they_fall() {
        let site = Site::new(Settings::default());
        let state = State { site: site.number, edition: 1, opening: None };
        let targets: Vec<String> = (0..3000).map(|n| format!("/guide/{n}/page.html")).collect();
        for target in &targets {
            let ask = Question { target, ..Question::default() };
            remember(state, &ask, Shape::Lines, StatusCode::OK, target.as_bytes(), Again::Nothing);
        }
        let known = targets.iter().filter(|target| {
            let mut out = Vec::new();
            let ask = Question { target, ..Question::default() };
            recall(&site, state, &ask, Shape::Lines, &mut out).is_some_and(|_| out == target.as_bytes())
        });
        let known = known.count();
        assert!(known > 2900, "{known} of 3000");
        assert_eq!(KNOWN.with_borrow(|known| known.marks.len()), MOST);
        let texts = KNOWN
            .with_borrow(|known| known.answers.iter().flatten().flatten().map(|known| known.text.len()).sum::<usize>());
        assert_eq!(KNOWN.with_borrow(|known| known.bytes), texts);
        let (next, ask) = (State { edition: 2, ..state }, Question { target: "/", ..Question::default() });
        remember(next, &ask, Shape::Lines, StatusCode::OK, b"", Again::Nothing);
        let kept = KNOWN.with_borrow(|known| known.answers.iter().flatten().flatten().count());
        assert_eq!(kept, 1, "of what was before nothing is kept");
    }

    #[test]
    fn what_is_known_is_bounded_however_long_it_is() {
        let site = Site::new(Settings::default());
        let state = State { site: site.number, edition: 1, opening: None };
        let targets: Vec<String> = (0..4000).map(|n| format!("/{n}?{}", "x".repeat(400))).collect();
        let known = |target: &str| {
            let ask = Question { target, ..Question::default() };
            recall(&site, state, &ask, Shape::Lines, &mut Vec::new()).is_some()
        };
        for target in &targets {
            let ask = Question { target, ..Question::default() };
            remember(state, &ask, Shape::Lines, StatusCode::OK, &[b'h'; LONGEST_HEAD], Again::Nothing);
            assert!(KNOWN.with_borrow(|known| known.bytes) < MOST_BYTES + LONGEST + LONGEST_HEAD);
        }
        let (early, late) = targets.split_at(2000);
        assert!(early.iter().filter(|target| known(target)).count() > 500);
        assert!(late.iter().any(|target| known(target)), "newcomers get in");
    }

    #[test]
    fn only_the_same_question_to_the_same_site_is_answered_again() {
        let site = Site::new(Settings::default());
        let ask = Question { target: "/a", encodings: b"gzip", ..Question::default() };
        let state = State { site: site.number, edition: 3, opening: None };
        remember(state, &ask, Shape::Lines, StatusCode::OK, b"head", Again::Nothing);
        let known = |state, question: &Question<'_>| {
            let mut out = b"before ".to_vec();
            recall(&site, state, question, Shape::Lines, &mut out).map(|_| out)
        };
        assert_eq!(known(state, &ask), Some(b"before head".to_vec()));
        assert_eq!(known(state, &Question { encodings: b"", ..ask }), None);
        assert_eq!(known(state, &Question { target: "/b", ..ask }), None);
        assert_eq!(known(state, &Question { is_head: true, ..ask }), None);
        assert_eq!(known(state, &Question { encodings: b"", types: b"gzip", ..ask }), None, "in another field");
        assert_eq!(known(State { edition: 4, ..state }, &ask), None);
        let other = Site::new(Settings::default());
        assert_eq!(known(State { site: other.number, ..state }, &ask), None, "of another site");
        assert_ne!(State::of(&other), State::of(&site));
        assert_eq!(known(State { opening: Some(1), ..state }, &ask), None);
        assert!(recall(&site, state, &ask, Shape::Block, &mut Vec::new()).is_none(), "in another shape");
    }

    #[test]
    fn questions_whose_pieces_join_to_the_same_text_are_told_apart() {
        let pieces: [&[u8]; 5] = [b"G", b"/a", b"b", b"", b""];
        let asked = [&pieces.join(&b'\n')[..], b"\n"].concat();
        assert!(is_same(&asked, &pieces));
        assert!(!is_same(&asked, &[b"G", b"/a", b"", b"b", b""]));
        assert!(!is_same(&asked, &[b"G", b"/a", b"b", b"", b"c"]));
        assert!(!is_same(&asked, &[b"G", b"/", b"b", b"", b""]));
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
            assert_eq!(put(&mut place, value.as_bytes()), expected.is_some(), "{before:?} {value:?}");
            assert_eq!(place, expected.unwrap_or(before).as_bytes(), "{before:?} {value:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_for_each_question_and_head() {
        let site = Site::new(Settings::default());
        let state = State { site: site.number, edition: 1, opening: None };
        // A key has the kind, the target and a line feed after each of five parts.
        let longest = LONGEST - 6;
        for (target, head, expected) in [
            (longest, LONGEST_HEAD, true),
            (longest + 1, 1, false),
            (longest - 1, LONGEST_HEAD + 1, false),
            (1, LONGEST_HEAD, true),
            (2, LONGEST_HEAD + 1, false),
        ] {
            let (target, head) = ("x".repeat(target), vec![b'h'; head]);
            let ask = Question { target: &target, ..Question::default() };
            remember(state, &ask, Shape::Lines, StatusCode::OK, &head, Again::Nothing);
            let known = recall(&site, state, &ask, Shape::Lines, &mut Vec::new()).is_some();
            assert_eq!(known, expected, "{} and {} bytes", target.len(), head.len());
        }
    }

    #[test]
    fn an_answer_comes_with_its_status_and_body_or_not_at_all() {
        let site = Site::new(Settings::default());
        let state = State { site: site.number, edition: 7, opening: None };
        let ask = Question { target: "/a", tags: b"\"x\"", ..Question::default() };
        for (again, body) in [
            (Again::Nothing, Some(&b""[..])),
            (Again::Text(b"a text"), Some(b"a text")),
            // Without a version there is no file.
            (Again::File(0, crate::negotiate::Form::Gzip), None),
            (Again::Dense(0, docwharf_base::codec::content_coding::ContentCoding::Brotli, 5), None),
        ] {
            let head = format!("{again:?}");
            remember(state, &ask, Shape::Lines, StatusCode::NOT_FOUND, head.as_bytes(), again);
            let mut out = b"before ".to_vec();
            let recalled = recall(&site, state, &ask, Shape::Lines, &mut out);
            let told = recalled.map(|(status, chunk)| (status.as_u16(), chunk.parts().concat()));
            assert_eq!(told, body.map(|body| (404, body.to_vec())), "{head}");
            let expected = if body.is_some() { format!("before {head}") } else { "before ".to_owned() };
            assert_eq!(out, expected.as_bytes(), "the last that was remembered, or nothing");
            let count = KNOWN.with_borrow(|known| known.answers.iter().flatten().flatten().count());
            assert_eq!(count, 1, "the same question has one place");
        }
    }

    #[test]
    fn a_question_is_told_from_another_by_each_of_its_fields() {
        let ask = Question { is_head: false, target: "/a", encodings: b"gzip", types: b"text/html", tags: b"\"x\"" };
        let others = [
            ask,
            Question { is_head: true, ..ask },
            Question { target: "/A", ..ask },
            Question { encodings: b"gzi", ..ask },
            Question { types: b"", ..ask },
            Question { types: b"text/*", ..ask },
            Question { tags: b"\"y\"", ..ask },
            Question { tags: b"", ..ask },
        ];
        let all: Vec<_> =
            others.iter().flat_map(|ask| [Shape::Lines, Shape::Block].map(|shape| ask.pieces(shape))).collect();
        for (at, pieces) in all.iter().enumerate() {
            let text = [&pieces.join(&b'\n')[..], b"\n"].concat();
            let same: Vec<usize> = (0..all.len()).filter(|&other| is_same(&text, &all[other])).collect();
            assert_eq!(same, [at]);
            assert!(!is_same(&text[..text.len() - 1], pieces) && !is_same(&[&text[..], b"x"].concat(), pieces));
        }
        for len in 0..20 {
            let one = vec![b'x'; len];
            assert!(is_equal(&one, &one));
            for at in 0..len {
                let mut other = one.clone();
                other[at] = b'y';
                assert!(!is_equal(&one, &other), "byte {at} of {len}");
            }
        }
    }

    /// An empty version; each opening of it has the same id.
    fn opened() -> Arc<Sealed> {
        let id = docwharf_base::model::version::VersionManifest::default().id();
        let index = Index::decode(encode(0, id, &[]), 0, id).unwrap();
        Arc::new(Sealed::new(id, Vec::new().into(), index))
    }

    #[test]
    fn what_was_answered_from_one_image_of_a_version_is_not_answered_again_from_another_image_of_it() {
        let site = Site::new(Settings::default());
        // `Site::show` stores the version before it raises the edition: this is the moment in between.
        site.current.store(Some(opened()));
        let state = State::of(&site).unwrap();
        let ask = Question { target: "/", ..Question::default() };
        remember(state, &ask, Shape::Lines, StatusCode::OK, b"head", Again::Nothing);
        let known = |state| recall(&site, state, &ask, Shape::Lines, &mut Vec::new());
        assert!(known(State::of(&site).unwrap()).is_some());
        site.current.store(Some(opened()));
        assert!(known(State::of(&site).unwrap()).is_none());
    }
}
