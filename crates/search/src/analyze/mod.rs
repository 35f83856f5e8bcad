//! Text to tokens, by one function for the index and for queries, so that both always agree.
//!
//! [`tokenize`] folds a text ([`fold()`]: NFKC, lower case, no diacritics) and reports its tokens in order:
//!
//! - [`TokenKind::Word`]: a run of letters, digits and `_`. `lru_cache`, `utf8` and `ThreadPoolExecutor` are one word
//!   each.
//! - [`TokenKind::Piece`]: the pieces of such a word, split at `_`, between letters and digits, at capitals within a
//!   word and at the end of an acronym: `lru` and `cache`, `utf` and `8`, `thread` and `pool` and `executor`, `http`
//!   and `server` of `HTTPServer`. A word that would have only one piece has none. Pieces between two `_`, and letters
//!   beside digits, are reported whole as well: `sha256` and `sha` and `256` of `sha256_hash`, `oauth` of `OAuth2`.
//! - [`TokenKind::Symbol`]: a name as programmers write it: with dots or `::` (`os.path.join`, `std::vec::Vec`), with
//!   the signs that belong to it (`C++`, `C#`, `.NET`, `--flag`, `-v`, `println!`, `@decorator`, `#define`), or before
//!   an opening parenthesis (`open` of `open()` and of `open(file)`; the parenthesis is not part of it). The words in
//!   the name are reported too.
//! - [`TokenKind::SymbolSuffix`]: the ends of such a name: `path.join` and `join`, `net` of `.NET`.
//! - [`TokenKind::Bigram`] and [`TokenKind::Unigram`]: scripts without spaces between words (Han, Hiragana, Katakana,
//!   Hangul, Thai, Lao, Khmer, Myanmar) are split into overlapping pairs of characters. Runs end where the script
//!   changes. Each character is also reported alone, so that a query of one character finds it. A run of one character
//!   has only this `Unigram`.
//!
//! # Positions
//!
//! The pieces of a word have consecutive positions that start at the position of the word, and the next word follows
//! the last piece. A word without pieces takes one position:
//!
//! ```text
//! use ThreadPoolExecutor now      0 use   1 threadpoolexecutor   1 thread   2 pool   3 executor   4 now
//! ```
//!
//! A phrase therefore matches whether its words are written together or apart, if it is searched by pieces
//! ([`phrase_terms`]): `"use thread pool executor now"` and `"use ThreadPoolExecutor now"` are the same terms at the
//! same distances. A whole word within a longer phrase (`"threadpoolexecutor now"`, all in lower case) is only next to
//! what stands before it. A symbol has the position of its first word. Each character of a run without spaces takes one
//! position; a `Bigram` has that of its first character.
//!
//! # Offsets
//!
//! `start` and `end` are byte offsets into the text as it was passed, always on character boundaries. If one character
//! becomes several (`½`, `ﬁ`), each token made of them covers the whole character. Tokens are reported by ascending
//! position and by ascending start.
//!
//! # Stems
//!
//! Tokens are exact forms. [`Stemmer`] makes the stems of words, which the index has in fields of their own.
//!
//! If one of these functions returns something else than before, [`ANALYZER_NUMBER`] must be raised.

mod built_in_synonyms;
mod char_class;
mod fold;
mod query;
mod query_parser;
mod question_words;
mod stem;
mod synonym_file;
mod synonyms;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use fold::fold;
pub use query::{JoinedWords, ParsedQuery, QuerySymbol, QueryWord, WordGap, phrase_terms};
pub use query_parser::parse_query;
pub use question_words::question_words;
pub use stem::{StemLanguage, Stemmer};
pub use synonym_file::{
    MAX_SYNONYM_CHARS, MAX_SYNONYM_FILE_BYTES, MAX_SYNONYM_SETS, MAX_SYNONYM_WORDS, SynonymError, SynonymSetProblem,
};
pub use synonyms::{Synonym, SynonymMatch, SynonymTable};

use tokenizer::Tokenizer;

/// The number of this analyzer. An index that was made with another number must be made again.
pub const ANALYZER_NUMBER: u32 = 1;

/// The maximum length of a text in bytes; what follows is left out. Offsets and positions then fit 32 bits, also if
/// each character becomes several.
const MAX_INPUT_BYTES: usize = 256 << 20;

/// The kind of a token; the documentation of the module describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A run of letters, digits and `_`.
    Word,
    /// A piece of a word.
    Piece,
    /// A name with its dots and signs.
    Symbol,
    /// The end of a name, from one of its words on.
    SymbolSuffix,
    /// Two adjacent characters of a script without spaces.
    Bigram,
    /// One character of a script without spaces.
    Unigram,
}

/// A token of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// The folded text.
    pub text: &'a str,
    /// The kind.
    pub kind: TokenKind,
    /// The position for phrases, from 0.
    pub position: u32,
    /// The offset in bytes of the first character in the original text.
    pub start: u32,
    /// The offset in bytes of the end of the last character in the original text.
    pub end: u32,
}

/// Calls `each` for each token of `text`, in the order of the text.
pub fn tokenize(text: &str, each: &mut dyn FnMut(Token<'_>)) {
    Tokenizer::new(each).read_text(&text[..text.floor_char_boundary(MAX_INPUT_BYTES)]);
}
