//! Finds the parts of a text that can have matches, without splitting it into tokens.
//!
//! A token of text in ASCII is a part of this text in lower case, and it does not start at a small letter after another
//! letter. So a chunk between white space that is in ASCII has a match only if one of the words that are marked occurs
//! in it at such a place, in any case. Other characters can be folded to several ones: a chunk with such a character is
//! a candidate always.

use std::ops::Range;

/// The length of a character for which [`is_punctuation`] is true.
const PUNCTUATION_BYTES: usize = 3;

/// Finds chunks that can have one of some words, or a word with one of some beginnings.
pub(super) struct CandidateFinder<'w> {
    /// The words and beginnings in ASCII, in order.
    words: Vec<&'w [u8]>,
    /// The kind of each byte.
    bytes: [ByteKind; 256],
    /// The first two bytes of the words in lower case, as bits: a word can have hundreds of completions, and looking
    /// through the list for each byte of a text would be slow.
    pairs: [u128; 128],
}

/// The kind of a byte in the search for candidates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteKind {
    Other,
    WhiteSpace,
    /// The first byte of a word, in any case.
    First,
    NotAscii,
}

impl<'w> CandidateFinder<'w> {
    /// Creates a finder for folded words and beginnings of words.
    pub(super) fn new(words: impl Iterator<Item = &'w str>) -> CandidateFinder<'w> {
        let mut bytes = [ByteKind::Other; 256];
        for (byte, kind) in (0..=u8::MAX).zip(&mut bytes) {
            if byte.is_ascii_whitespace() {
                *kind = ByteKind::WhiteSpace;
            } else if !byte.is_ascii() {
                *kind = ByteKind::NotAscii;
            }
        }
        // A word in other characters occurs only in chunks that are candidates without it.
        let words = words.map(str::as_bytes).filter(|word| word.is_ascii());
        let mut words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
        words.sort_unstable();
        words.dedup();
        let mut pairs = [0; 128];
        for word in &words {
            bytes[usize::from(word[0])] = ByteKind::First;
            bytes[usize::from(word[0].to_ascii_uppercase())] = ByteKind::First;
            pairs[usize::from(word[0])] |= word.get(1).map_or(u128::MAX, |second| 1 << second);
        }
        CandidateFinder { words, bytes, pairs }
    }

    /// Returns the next chunk of `text` that can have a match. `start` is 0 or the end of the last chunk.
    pub(super) fn find(&self, text: &str, start: usize) -> Option<Range<usize>> {
        let bytes = text.as_bytes();
        let (mut chunk_start, mut index) = (start, start);
        while let Some(byte) = bytes.get(index) {
            let is_candidate = match self.bytes[usize::from(*byte)] {
                ByteKind::Other => false,
                ByteKind::WhiteSpace => {
                    chunk_start = index + 1;
                    false
                }
                ByteKind::First => self.has_word_at(&bytes[index..]),
                ByteKind::NotAscii if is_punctuation(&bytes[index..]) => {
                    index += PUNCTUATION_BYTES - 1;
                    false
                }
                ByteKind::NotAscii => true,
            };
            if is_candidate {
                let length = bytes[index..].iter().position(u8::is_ascii_whitespace);
                return Some(chunk_start..length.map_or(bytes.len(), |length| index + length));
            }
            index += 1;
            // No token starts at a small letter after another letter.
            if byte.is_ascii_alphabetic() {
                while bytes.get(index).is_some_and(u8::is_ascii_lowercase) {
                    index += 1;
                }
            }
        }
        None
    }

    /// Whether a text starts with one of the words, in any case. Its first byte is in ASCII.
    fn has_word_at(&self, text: &[u8]) -> bool {
        let [first, rest @ ..] = text else { return false };
        let first = first.to_ascii_lowercase();
        let second = rest.first().map_or(0, u8::to_ascii_lowercase);
        if second.is_ascii() && (self.pairs[usize::from(first)] >> second) & 1 == 0 {
            return false;
        }
        let from = self.words.partition_point(|word| word[0] < first);
        let mut words = self.words[from..].iter().take_while(|word| word[0] == first);
        words.any(|word| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
    }
}

/// Whether a text starts with a dash or a quotation mark between U+2010 and U+201F. English prose has many, and they
/// are folded to signs that are part of no word.
fn is_punctuation(text: &[u8]) -> bool {
    matches!(text, [0xe2, 0x80, 0x90..=0x9f, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates<'t>(text: &'t str, words: &[&str]) -> Vec<&'t str> {
        let finder = CandidateFinder::new(words.iter().copied());
        let (mut found, mut start) = (Vec::new(), 0);
        while let Some(chunk) = finder.find(text, start) {
            start = chunk.end;
            found.push(&text[chunk]);
        }
        found
    }

    #[test]
    fn chunks_with_a_word_in_any_case_and_chunks_that_are_not_ascii_are_candidates() {
        let text = "The cache, and\nlru_CACHE()\tof caching  caf\u{e9} naive";
        assert_eq!(candidates(text, &["cache"]), ["cache,", "lru_CACHE()", "caf\u{e9}"]);
        assert_eq!(
            candidates(text, &["cach", "--x", "\u{6587}\u{66f8}"]),
            ["cache,", "lru_CACHE()", "caching", "caf\u{e9}"]
        );
        assert_eq!(candidates("a--X b", &["--x"]), ["a--X"]);
        assert_eq!(candidates(text, &[]), ["caf\u{e9}"]);
        assert!(candidates("", &["a"]).is_empty() && candidates(" \n ", &["a"]).is_empty());
        assert!(candidates("cach Xcache", &["cache", ""]).is_empty());
        assert_eq!(
            candidates("HTTPServer utf8 _b x-y", &["server", "8", "b", "y"]),
            ["HTTPServer", "utf8", "_b", "x-y"]
        );
    }
}
