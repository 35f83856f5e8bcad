//! Answers whose heads are given again: the same question gets the same head for as long as nothing is changed that an
//! answer depends on. Each thread has its own.
//!
//! Only heads are kept, and where their bodies lie; no body, so that no version is held that has been replaced, and no page
//! beyond `server.identityCache`. Whatever changes how questions are answered raises [`Site::edition`]; the version is
//! looked at besides, because it is exchanged before that is raised.

use std::cell::RefCell;

use bytes::Bytes;
use http::StatusCode;

use docwharf_base::model::version::VersionId;

use super::Site;
use super::body::{Again, Chunk};
use super::handler;

/// Heads that share a place; the hash of a question says which that is. What is looked at first fills one cache line.
const WAYS: usize = 16;
/// Places that a thread begins with, and has at most; powers of two.
const FEW: usize = 4;
const MOST: usize = 256;
/// What all questions and heads of a thread may take, in bytes. Both together take about half a KiB.
const MOST_BYTES: usize = 3 << 20;
/// Where there is room for no more, one of so many new answers drives out an old one: a site with more pages than that keeps
/// most of what it knows, and what is asked often gets in soon.
const SELDOM: usize = 8;
/// A longer question is not remembered, in bytes.
const LONGEST: usize = 512;
/// Nor is a longer head: that of a page with a long policy.
const LONGEST_HEAD: usize = 2048;

thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(Known::new()) };
}

/// All that is known of one state of the site.
#[derive(Debug)]
struct Known {
    state: Option<State>,
    marks: Vec<Marks>,
    answers: Vec<[Option<Answer>; WAYS]>,
    /// What the texts of the answers take.
    bytes: usize,
    /// Answers that there was no room for.
    turned_away: usize,
}

/// What the hashes of the questions in one place are; apart from the answers, so that it lies together.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Marks([u32; WAYS]);

/// A head and what comes behind it.
#[derive(Debug)]
struct Answer {
    /// The question and, as it goes over the wire but for its end, the head.
    text: Box<[u8]>,
    /// How much of that is the question.
    asked: u16,
    status: StatusCode,
    again: Again,
}

impl Known {
    const fn new() -> Known {
        Known { state: None, marks: Vec::new(), answers: Vec::new(), bytes: 0, turned_away: 0 }
    }

    /// Nothing, of another state.
    fn begin(&mut self, state: State) {
        *self = Known { state: Some(state), ..Known::new() };
        self.spread(FEW);
    }

    /// So many places.
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

    /// Where the answer to a question goes, if anywhere.
    fn room(&mut self, mark: u32, pieces: &[&[u8]; 5]) -> Option<(usize, usize)> {
        loop {
            let place = self.place(mark);
            let answers = &self.answers[place];
            // Whose body had to be made is answered anew, and known already.
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

    /// Twice the places. What was in one is spread over two, so that each has room.
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

/// How a head is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Lines, as in HTTP/1.1.
    Lines,
    /// A block of fields, as in HTTP/2.
    Block,
}

/// Of which state of which site an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// See [`Site::number`].
    site: u64,
    edition: u64,
    version: Option<VersionId>,
}

impl State {
    /// The state in which the same question has the same answer; none where that may depend on who asks.
    pub(super) fn of(site: &Site) -> Option<State> {
        // First, so that an answer of after a change is never kept as one of before it.
        let edition = site.edition();
        let version = site.showing().as_ref().map(|version| version.id);
        (!site.looks_at_peers()).then_some(State { site: site.number, edition, version })
    }

    /// A body that was sent before, if it need not be made.
    fn body(self, site: &Site, again: &Again) -> Option<Chunk> {
        let version = site.showing();
        let version = || version.as_ref().filter(|version| Some(version.id) == self.version);
        match *again {
            Again::Nothing => Some(Bytes::new().into()),
            Again::Text(text) => Some(Bytes::from_static(text).into()),
            Again::File(file, form) => handler::again(site, version()?, file, form),
            Again::Dense(file, coding, crc) => site.dense(version()?, file, coding, crc).map(Chunk::from),
        }
    }
}

/// A question, of all that its answer depends on where everybody may read: no other field is looked at by whoever answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Question<'a> {
    /// HEAD, or else GET.
    pub(super) is_head: bool,
    /// Path and query.
    pub(super) target: &'a str,
    /// `Accept-Encoding`
    pub(super) encodings: &'a [u8],
    /// `Accept`
    pub(super) types: &'a [u8],
    /// `If-None-Match`
    pub(super) tags: &'a [u8],
}

impl<'a> Question<'a> {
    /// The pieces of a question about an answer in one of two shapes; no two have the same.
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

/// Values hold no line break, so it tells them apart.
fn is_same(known: &[u8], pieces: &[&[u8]; 5]) -> bool {
    let mut rest = known;
    pieces.iter().all(|piece| {
        let Some((begin, behind)) = rest.split_at_checked(piece.len()) else { return false };
        let Some((b'\n', behind)) = behind.split_first() else { return false };
        rest = behind;
        is_equal(begin, piece)
    }) && rest.is_empty()
}

/// Whether two texts of one length are the same. In place: pieces are short, mostly empty, and five calls of the C library's
/// function took an eighth of what a hot answer took of ours (`perf`, 2026-11-22).
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let ((ones, one), (others, other)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    ones.iter().zip(others).all(|(one, other)| u64::from_le_bytes(*one) == u64::from_le_bytes(*other))
        && one.iter().zip(other).all(|(one, other)| one == other)
}

/// What says where a question is looked for. Whoever chooses questions that share a place drives out but a few answers.
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

/// Both halves of a product, so that each bit of what is given counts in each of what comes back.
fn mixed(word: u64) -> u64 {
    let product = u128::from(word ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    product as u64 ^ (product >> 64) as u64
}

/// Puts the head that was the answer to this question behind `out`, and gives its status and the body that comes behind it.
/// Nothing is put there if there is no such answer.
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

/// Remembers that `head` was that of the answer to this question.
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

/// Puts the one value of a field in its place in a question; of several not each is looked at in the same way.
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

    #[test]
    fn as_many_answers_as_there_is_room_for_are_known_however_they_fall() {
        let site = Site::new(Settings::default());
        let state = State { site: site.number, edition: 1, version: None };
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
        let state = State { site: site.number, edition: 1, version: None };
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
        let state = State { site: site.number, edition: 3, version: None };
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
        let version = VersionId(docwharf_base::model::digest::Digest::of(b"x"));
        assert_eq!(known(State { version: Some(version), ..state }, &ask), None);
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
        let state = State { site: site.number, edition: 1, version: None };
        // Kind and target, and a line end behind each of five pieces.
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
        let state = State { site: site.number, edition: 7, version: None };
        let ask = Question { target: "/a", tags: b"\"x\"", ..Question::default() };
        for (again, body) in [
            (Again::Nothing, Some(&b""[..])),
            (Again::Text(b"a text"), Some(b"a text")),
            // Where no version is served there is no file of it.
            (Again::File(0, crate::negotiate::Form::Gzip), None),
            (Again::Dense(0, docwharf_base::codec::dense::Dense::Brotli, 5), None),
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
}
