//! The form of a query after it was read: words, phrases and symbols. `query_parser` makes it from what was typed.

use super::TokenKind;
use super::tokenizer::MAX_WORD_BYTES;

/// The maximum number of adjacent words that are tried as one word.
const MAX_JOINED_WORDS: usize = 4;

/// A query, split into words, phrases and names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedQuery {
    /// The words outside phrases, in order. Each pair of characters of a script without spaces counts as a word.
    pub words: Vec<QueryWord>,
    /// The phrases in double quotes that have at least one word, in order.
    pub phrases: Vec<Vec<QueryWord>>,
    /// The names with dots or signs, and their ends, inside and outside phrases. A name without either (`lru_cache`) is
    /// only a word, although it may be the end of a name in the index.
    pub symbols: Vec<QuerySymbol>,
}

/// A word of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryWord {
    /// The folded word.
    pub text: String,
    /// `Word`; `Bigram` for a pair of characters of a script without spaces; `Unigram` for a single such character.
    pub kind: TokenKind,
    /// The pieces of the word (`thread`, `pool`), which stand at consecutive positions from `position` on. Empty for a
    /// word that is not split.
    pub pieces: Vec<String>,
    /// The position among the words of the query, counted like those of the index.
    pub position: u32,
    /// The offset in bytes of the first character in the query.
    pub start: u32,
    /// The offset in bytes of the end of the last character in the query.
    pub end: u32,
    /// The gap between the word before it and this one.
    pub gap: WordGap,
    /// Whether the reader may still be typing the word: it is the last one, and no white space follows. Only for a
    /// `Word`.
    pub is_prefix: bool,
    /// Whether the word only makes a question or a sentence of the others (`how do I`), and other words remain. It need
    /// not be found, but a title that has it as well is a better match.
    pub is_question_word: bool,
}

/// The text between a word and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordGap {
    /// White space, a quote, or the start of the query.
    Space,
    /// An apostrophe: `don't`, `l'heure`.
    Apostrophe,
    /// Other punctuation or nothing. The two belong together: `content-type`, `os.path`.
    Joined,
}

/// A name of a query as programmers write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuerySymbol {
    /// The folded name: `os.path.join`, `c++`, `--flag`.
    pub text: String,
    /// Whether it is only the end of the name that was typed.
    pub is_suffix: bool,
    /// The offset in bytes of the first character in the query.
    pub start: u32,
    /// The offset in bytes of the end of the last character in the query.
    pub end: u32,
    /// Whether the reader may still be typing the name, as with [`QueryWord::is_prefix`].
    pub is_prefix: bool,
}

/// Adjacent words of a query, written as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedWords {
    /// The index of the first word in [`ParsedQuery::words`].
    pub first: usize,
    /// The number of words.
    pub count: usize,
    /// The words without anything between them: `threadpool`.
    pub text: String,
    /// The words with `_` between them: `thread_pool`.
    pub snake_case: String,
}

impl QueryWord {
    /// Returns the number of positions that the word takes.
    pub fn width(&self) -> u32 {
        self.pieces.len().max(1) as u32
    }
}

impl ParsedQuery {
    /// Whether there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.phrases.is_empty() && self.symbols.is_empty()
    }

    /// Returns the adjacent words written as one: each pair (`thread pool` as `threadpool`), and each run of up to
    /// `MAX_JOINED_WORDS` words.
    pub fn joined_words(&self) -> Vec<JoinedWords> {
        let mut joined = Vec::new();
        for first in 0..self.words.len() {
            let (mut text, mut snake_case) = (String::new(), String::new());
            for (index, word) in self.words[first..].iter().take(MAX_JOINED_WORDS).enumerate() {
                let is_adjacent = index == 0 || is_next(&self.words[first + index - 1], word);
                let is_too_long = snake_case.len() + word.text.len() >= MAX_WORD_BYTES;
                if word.kind != TokenKind::Word || !is_adjacent || is_too_long {
                    break;
                }
                text.push_str(&word.text);
                if index == 0 {
                    snake_case.push_str(&word.text);
                    continue;
                }
                snake_case.push('_');
                snake_case.push_str(&word.text);
                let (text, snake_case) = (text.clone(), snake_case.clone());
                joined.push(JoinedWords { first, count: index + 1, text, snake_case });
            }
        }
        joined
    }
}

/// Whether `next` is the word that follows `word`.
pub(super) fn is_next(word: &QueryWord, next: &QueryWord) -> bool {
    word.position + word.width() == next.position
}

/// Returns the terms of a phrase, each with its distance from the first one: the pieces of words that are split, and
/// the other words whole. This is the form in which a phrase matches words that are written together or apart.
pub fn phrase_terms(phrase: &[QueryWord]) -> Vec<(usize, &str)> {
    let first = phrase.first().map_or(0, |word| word.position);
    let mut terms = Vec::new();
    for word in phrase {
        let distance = word.position.saturating_sub(first) as usize;
        match word.pieces.as_slice() {
            // The only piece of `__init__` says less than the word.
            [] | [_] => terms.push((distance, word.text.as_str())),
            pieces => terms.extend(pieces.iter().enumerate().map(|(index, piece)| (distance + index, piece.as_str()))),
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::super::parse_query;
    use super::*;

    #[test]
    fn adjacent_words_are_also_tried_as_one() {
        let joined = |text: &str| {
            let joined = parse_query(text, None).joined_words();
            joined.into_iter().map(|words| (words.first, words.count, words.text, words.snake_case)).collect::<Vec<_>>()
        };
        let expected = [
            (0_usize, 2_usize, "threadpool", "thread_pool"),
            (0, 3, "threadpoolexecutor", "thread_pool_executor"),
            (1, 2, "poolexecutor", "pool_executor"),
        ];
        let expected = expected.map(|(first, count, text, snake)| (first, count, text.to_owned(), snake.to_owned()));
        assert_eq!(joined("thread pool executor"), expected);
        assert_eq!(joined("a b c d e").len(), 3 + 3 + 2 + 1);
        for text in ["", "one", "thread \"x\" pool", "日本 go", "go 日本 go"] {
            assert!(joined(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_phrase_has_the_same_terms_whether_its_words_are_written_together_or_apart() {
        let terms = |text: &str| {
            let query = parse_query(text, None);
            let terms = phrase_terms(&query.phrases[0]);
            terms.into_iter().map(|(distance, term)| format!("{distance}:{term}")).collect::<Vec<_>>().join(" ")
        };
        let expected = "0:use 1:thread 2:pool 3:executor 4:now";
        assert_eq!(terms("\"use ThreadPoolExecutor now\""), expected);
        assert_eq!(terms("x y \"use thread pool executor now\""), expected);
        assert_eq!(terms("\"use thread_pool-executor now\""), expected);
        assert_eq!(terms("\"the __init__ method\""), "0:the 1:__init__ 2:method");
        assert_eq!(terms("\"UTF-8\""), terms("\"utf8\""));
        assert_eq!(terms("\"日本語\""), "0:日本 1:本語");
        assert!(phrase_terms(&[]).is_empty());
    }
}
