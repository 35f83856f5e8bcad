//! Answers whose heads are given again: the same question gets the same head for as long as nothing is changed that an
//! answer depends on. Each thread has its own.
//!
//! Only heads are kept, and where their bodies lie; no body, so that no version is held that has been replaced, and no page
//! beyond `server.identityCache`. Whatever changes how questions are answered raises [`Site::edition`]; the version is
//! looked at besides, because it is exchanged before that is raised.

use std::cell::RefCell;

use crate::model::version::VersionId;
use crate::serve::body::Again;

use super::head::{Head, Question};

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
    edition: u64,
    version: Option<VersionId>,
    question: Box<[u8]>,
    head: Box<[u8]>,
    again: Again,
}

/// Of which state of the site an answer is.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) edition: u64,
    pub(super) version: Option<VersionId>,
}

/// The pieces of a question, which no two questions share.
fn pieces<'a>(head: &Head<'a>, question: &Question<'a>) -> [&'a [u8]; 5] {
    let method: &[u8] = if head.is_head { b"H" } else { b"G" };
    [method, head.target.as_bytes(), question.encodings, question.types, question.tags]
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

/// Puts the head that was the answer to this question into `out`, and says what comes behind it.
pub(super) fn recall(state: State, head: &Head<'_>, question: &Question<'_>, out: &mut Vec<u8>) -> Option<Again> {
    let pieces = pieces(head, question);
    KNOWN.with_borrow(|known| {
        let known = known.get(place(&pieces))?.as_ref()?;
        let is_good =
            known.edition == state.edition && known.version == state.version && is_same(&known.question, &pieces);
        is_good.then(|| {
            out.extend_from_slice(&known.head);
            known.again.clone()
        })
    })
}

/// Remembers that `text` was the head of the answer to this question.
pub(super) fn remember(state: State, head: &Head<'_>, question: &Question<'_>, text: &[u8], again: Again) {
    let pieces = pieces(head, question);
    let asked = [&pieces.join(&b'\n')[..], b"\n"].concat();
    if asked.len() > LONGEST || text.len() > LONGEST_HEAD {
        return;
    }
    let place = place(&pieces);
    let State { edition, version } = state;
    KNOWN.with_borrow_mut(|known| {
        if known.is_empty() {
            known.resize_with(PLACES, || None);
        }
        known[place] = Some(Known { edition, version, question: asked.into(), head: text.into(), again });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &'static str) -> Head<'static> {
        Head { bytes: b"", is_head: false, target, closes: false, question: None }
    }

    #[test]
    fn only_the_same_question_to_the_same_site_is_answered_again() {
        let (one, gzip) = (Question::default(), Question { encodings: b"gzip", ..Question::default() });
        let state = State { edition: 3, version: None };
        remember(state, &ask("/a"), &gzip, b"head", Again::Nothing);
        let known = |state, head: &Head<'_>, question: &Question<'_>| {
            let mut out = Vec::new();
            recall(state, head, question, &mut out).map(|_| out)
        };
        assert_eq!(known(state, &ask("/a"), &gzip), Some(b"head".to_vec()));
        assert_eq!(known(state, &ask("/a"), &one), None);
        assert_eq!(known(state, &ask("/b"), &gzip), None);
        assert_eq!(known(State { edition: 4, ..state }, &ask("/a"), &gzip), None);
        let version = VersionId(crate::model::digest::Digest::of(b"x"));
        assert_eq!(known(State { version: Some(version), ..state }, &ask("/a"), &gzip), None);
        assert_eq!(known(state, &Head { is_head: true, ..ask("/a") }, &gzip), None);
        let types = Question { types: b"gzip", ..Question::default() };
        assert_eq!(known(state, &ask("/a"), &types), None, "the same bytes in another field");
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
