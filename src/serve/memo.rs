//! Answers whose heads are given again: the same question gets the same head for as long as nothing is changed that an
//! answer depends on. Each thread has its own.
//!
//! Only heads are kept, and where their bodies lie; no body, so that no version is held that has been replaced, and no page
//! beyond `server.identityCache`. Whatever changes how questions are answered raises [`Site::edition`]; the version is
//! looked at besides, because it is exchanged before that is raised.

use std::cell::RefCell;

use bytes::Bytes;
use http::StatusCode;

use crate::model::version::VersionId;

use super::Site;
use super::body::{Again, Chunk};
use super::handler;

/// Heads kept by a thread; a power of two. About half a KiB each.
const PLACES: usize = 1024;
/// A longer question is not remembered, in bytes.
const LONGEST: usize = 512;
/// Nor is a longer head: that of a page with a long policy.
const LONGEST_HEAD: usize = 2048;

thread_local! {
    static KNOWN: RefCell<Vec<Option<Known>>> = const { RefCell::new(Vec::new()) };
}

/// A head and what comes behind it.
#[derive(Debug)]
struct Known {
    state: State,
    question: Box<[u8]>,
    status: StatusCode,
    /// As it goes over the wire, but for its end.
    head: Box<[u8]>,
    again: Again,
}

/// How a head is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Lines, as in HTTP/1.1.
    Lines,
    /// A block of fields, as in HTTP/2.
    Block,
}

/// Of which state of the site an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    edition: u64,
    version: Option<VersionId>,
}

impl State {
    /// The state in which the same question has the same answer; none where that may depend on who asks.
    pub(super) fn of(site: &Site) -> Option<State> {
        // First, so that an answer of after a change is never kept as one of before it.
        let edition = site.edition();
        let version = site.showing().as_ref().map(|version| version.id);
        (!site.looks_at_peers()).then_some(State { edition, version })
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
        let matches = rest.len() > piece.len() && &rest[..piece.len()] == *piece && rest[piece.len()] == b'\n';
        if matches {
            rest = &rest[piece.len() + 1..];
        }
        matches
    }) && rest.is_empty()
}

/// Where a question has its place. Whoever chooses questions that share one drives out but one answer.
fn place(pieces: &[&[u8]; 5]) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0u64;
    for piece in pieces {
        let mut chunks = piece.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
        }
        let mut word = [0; 8];
        word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word) ^ piece.len() as u64).wrapping_mul(FACTOR);
    }
    (hash >> 32) as usize % PLACES
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
        let known = known.get(place(&pieces))?.as_ref()?;
        if known.state != state || !is_same(&known.question, &pieces) {
            return None;
        }
        let before = out.len();
        out.extend_from_slice(&known.head);
        Some((known.status, known.again.clone(), before))
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
    let asked = [&pieces.join(&b'\n')[..], b"\n"].concat();
    if asked.len() > LONGEST || head.len() > LONGEST_HEAD {
        return;
    }
    let place = place(&pieces);
    KNOWN.with_borrow_mut(|known| {
        if known.is_empty() {
            known.resize_with(PLACES, || None);
        }
        known[place] = Some(Known { state, question: asked.into(), status, head: head.into(), again });
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
    use crate::serve::Settings;

    #[test]
    fn only_the_same_question_to_the_same_site_is_answered_again() {
        let site = Site::new(Settings::default());
        let ask = Question { target: "/a", encodings: b"gzip", ..Question::default() };
        let state = State { edition: 3, version: None };
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
        let version = VersionId(crate::model::digest::Digest::of(b"x"));
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
}
