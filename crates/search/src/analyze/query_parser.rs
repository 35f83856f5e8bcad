//! Parses the text that a reader typed. No text is an error.
//!
//! Double quotes around a phrase are the only operator; everything else is text, also a quote without a partner. The
//! words come from [`tokenize`], like those of the index.

use super::query::{ParsedQuery, QuerySymbol, QueryWord, WordGap};
use super::question_words::mark_question_words;
use super::{Token, TokenKind, tokenize};

/// Parses the text that a reader typed. `lang` is the language tag of the page on which it was typed: the question
/// words of this language need not be found, and neither need the English ones.
pub fn parse_query(text: &str, lang: Option<&str>) -> ParsedQuery {
    let mut query = ParsedQuery::default();
    let mut position = 0;
    for segment in split_at_quotes(text) {
        let (words, symbols) = read_words(&text[segment.start..segment.end], segment.start, position);
        position = words.last().map_or(position, |word| word.position + word.width());
        query.symbols.extend(symbols);
        if !segment.is_phrase {
            query.words.extend(words);
        } else if !words.is_empty() {
            query.phrases.push(words);
        }
    }
    for words in query.phrases.iter_mut().chain([&mut query.words]) {
        mark_gaps(text, words);
    }
    mark_prefix(text, &mut query);
    mark_question_words(&mut query, lang);
    query
}

/// A part of a query, as offsets in bytes.
struct QuerySegment {
    start: usize,
    end: usize,
    is_phrase: bool,
}

fn split_at_quotes(text: &str) -> Vec<QuerySegment> {
    let mut quotes = text.char_indices().filter(|(_, c)| is_double_quote(*c));
    let mut segments = Vec::new();
    let mut start = 0;
    // A quote without a partner remains in the last segment, as punctuation.
    while let (Some((open, open_quote)), Some((close, close_quote))) = (quotes.next(), quotes.next()) {
        segments.push(QuerySegment { start, end: open, is_phrase: false });
        segments.push(QuerySegment { start: open + open_quote.len_utf8(), end: close, is_phrase: true });
        start = close + close_quote.len_utf8();
    }
    segments.push(QuerySegment { start, end: text.len(), is_phrase: false });
    segments
}

/// Whether `c` is a double quote, also one that a device or an input method has put for `"`.
fn is_double_quote(c: char) -> bool {
    matches!(c, '"' | '“' | '”' | '„' | '‟' | '＂')
}

/// Returns the words and symbols of a text. `offset` and `position` are added to theirs.
pub(super) fn read_words(text: &str, offset: usize, position: u32) -> (Vec<QueryWord>, Vec<QuerySymbol>) {
    let mut reader = WordReader { words: Vec::new(), symbols: Vec::new(), offset: offset as u32, position };
    tokenize(text, &mut |token: Token<'_>| reader.add(&token));
    (reader.words, reader.symbols)
}

struct WordReader {
    words: Vec<QueryWord>,
    symbols: Vec<QuerySymbol>,
    offset: u32,
    position: u32,
}

impl WordReader {
    fn add(&mut self, token: &Token<'_>) {
        let text = token.text.to_owned();
        let position = self.position + token.position;
        let (start, end) = (self.offset + token.start, self.offset + token.end);
        match token.kind {
            TokenKind::Symbol | TokenKind::SymbolSuffix => {
                let is_suffix = token.kind == TokenKind::SymbolSuffix;
                self.symbols.push(QuerySymbol { text, is_suffix, start, end, is_prefix: false });
            }
            TokenKind::Piece => self.add_piece(text, position),
            // The characters of a pair need not be found again.
            TokenKind::Unigram if self.is_in_pair(position) => {}
            TokenKind::Word | TokenKind::Bigram | TokenKind::Unigram => {
                let (kind, pieces, gap) = (token.kind, Vec::new(), WordGap::Space);
                let (is_prefix, is_question_word) = (false, false);
                let word = QueryWord { text, kind, pieces, position, start, end, gap, is_prefix, is_question_word };
                self.words.push(word);
            }
        }
    }

    /// Adds a piece of the last word. Of several pieces at one position the last one counts, which is the smallest.
    fn add_piece(&mut self, text: String, position: u32) {
        let Some(word) = self.words.last_mut() else { return };
        let index = position.saturating_sub(word.position) as usize;
        match word.pieces.get_mut(index) {
            Some(piece) => *piece = text,
            None => word.pieces.push(text),
        }
    }

    /// Whether the last word is a pair with the character at `position`.
    fn is_in_pair(&self, position: u32) -> bool {
        let last = self.words.last().filter(|word| word.kind == TokenKind::Bigram);
        last.is_some_and(|word| word.position == position || word.position + 1 == position)
    }
}

fn mark_gaps(text: &str, words: &mut [QueryWord]) {
    let mut previous_end = None;
    for word in words {
        if let Some(previous_end) = previous_end {
            let gap = text.get(previous_end..word.start as usize).unwrap_or_default();
            word.gap = if gap.contains(|c: char| c.is_whitespace() || is_double_quote(c)) {
                WordGap::Space
            } else if matches!(gap, "'" | "’" | "ʼ" | "＇") {
                WordGap::Apostrophe
            } else {
                WordGap::Joined
            };
        }
        previous_end = Some(word.end as usize);
    }
}

/// Marks the last word, and the symbols that end with it, if the reader may still be typing it.
fn mark_prefix(text: &str, query: &mut ParsedQuery) {
    let Some(word) = query.words.last_mut() else { return };
    let rest = text.get(word.end as usize..).unwrap_or_default();
    // A phrase after the word ends it too; a single quote is punctuation.
    let is_ended = rest.contains(char::is_whitespace) || rest.matches(is_double_quote).count() > 1;
    if is_ended || word.kind != TokenKind::Word {
        return;
    }
    word.is_prefix = true;
    for symbol in &mut query.symbols {
        symbol.is_prefix = symbol.end == word.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words and phrases of a query: `word "of phrase"`; `~` follows a word that may still be typed.
    fn describe(text: &str) -> String {
        let query = parse_query(text, None);
        let show = |word: &QueryWord| format!("{}{}", word.text, if word.is_prefix { "~" } else { "" });
        let mut shown: Vec<_> = query.words.iter().map(show).collect();
        for phrase in &query.phrases {
            shown.push(format!("\"{}\"", phrase.iter().map(show).collect::<Vec<_>>().join(" ")));
        }
        shown.join(" ")
    }

    #[test]
    fn only_pairs_of_double_quotes_are_an_operator() {
        let cases = [
            ("", ""),
            ("thread pool ", "thread pool"),
            ("\"thread pool\"", "\"thread pool\""),
            ("use \"thread pool\" now \"and then\"", "use now \"thread pool\" \"and then\""),
            ("“thread pool” „eins zwei“ ＂x＂", "\"thread pool\" \"eins zwei\" \"x\""),
            ("5\" disk ", "5 disk"),
            ("a \"b c\" d \"e ", "a d e \"b c\""),
            ("\"\" a \"--\" ", "a"),
            ("'a b' -c +d NOT e AND (f) g:h i* [j] ", "a b c d not e and f g h i j"),
        ];
        for (text, expected) in cases {
            assert_eq!(describe(text), expected, "{text}");
        }
    }

    #[test]
    fn the_last_word_may_still_be_typed_until_a_space_follows() {
        let cases = [
            ("thread po", "thread po~"),
            ("thread po ", "thread po"),
            ("thread po\u{3000}", "thread po"),
            ("std::", "std~"),
            ("what?", "what~"),
            ("\"thread po\"", "\"thread po\""),
            ("po\"\"", "po"),
            ("thread \"po", "thread po~"),
            ("日本", "日本"),
            ("日本go", "日本 go~"),
        ];
        for (text, expected) in cases {
            assert_eq!(describe(text), expected, "{text}");
        }
    }

    #[test]
    fn words_are_split_into_the_pieces_that_the_index_has() {
        let query = parse_query("ThreadPoolExecutor sha256_hash __init__ word", None);
        let words: Vec<_> =
            query.words.iter().map(|word| (word.position, word.width(), word.pieces.join("+"))).collect();
        let expected = [(0_u32, 3_u32, "thread+pool+executor"), (3, 3, "sha+256+hash"), (6, 1, "init"), (7, 1, "")];
        assert_eq!(words, expected.map(|(position, width, pieces)| (position, width, pieces.to_owned())));
    }

    #[test]
    fn scripts_without_spaces_are_pairs_and_single_characters_where_there_is_no_pair() {
        let kinds = |text: &str| {
            let query = parse_query(text, None);
            query.words.into_iter().map(|word| (word.kind, word.text)).collect::<Vec<_>>()
        };
        let (word, pair, single) = (TokenKind::Word, TokenKind::Bigram, TokenKind::Unigram);
        let expect = |text: &str, expected: &[(TokenKind, &str)]| {
            let expected: Vec<_> = expected.iter().map(|(kind, text)| (*kind, (*text).to_owned())).collect();
            assert_eq!(kinds(text), expected, "{text}");
        };
        expect("日本語", &[(pair, "日本"), (pair, "本語")]);
        expect("字", &[(single, "字")]);
        expect("食べる", &[(single, "食"), (pair, "べる")]);
        expect("Python入門 字", &[(word, "python"), (pair, "入門"), (single, "字")]);
    }

    #[test]
    fn names_keep_their_dots_and_signs() {
        let symbols = |text: &str| {
            let symbols = parse_query(text, None).symbols;
            let show = |symbol: &QuerySymbol| {
                let suffix = if symbol.is_suffix { "…" } else { "" };
                format!("{suffix}{}{}", symbol.text, if symbol.is_prefix { "~" } else { "" })
            };
            symbols.iter().map(show).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(symbols("os.path.jo"), "os.path.jo~ …path.jo~ …jo~");
        assert_eq!(symbols("os.path.join "), "os.path.join …path.join …join");
        assert_eq!(symbols("C++ \"std::vec\" git --fl"), "c++ std::vec …vec --fl~");
        assert_eq!(symbols("println!"), "println!");
        assert_eq!(symbols("lru_cache plain"), "");
    }

    #[test]
    fn what_stands_between_words_is_recorded() {
        let query = parse_query("content-type don't a  b “c” d 日本", None);
        let gaps: Vec<_> = query.words.iter().map(|word| word.gap).collect();
        let (space, apostrophe, joined) = (WordGap::Space, WordGap::Apostrophe, WordGap::Joined);
        assert_eq!(gaps, [space, joined, space, apostrophe, space, space, space, space]);
        assert_eq!(parse_query("日本語", None).words[1].gap, joined);
    }
}
