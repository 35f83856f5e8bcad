//! The tokenizer. The text is read in chunks that end at white space; no token crosses white space.
//!
//! Most chunks of prose are one word in ASCII with punctuation around it. [`plain_word`] recognises them, and their
//! token needs no table of characters. Any other chunk is folded into `text` and `chars`, two buffers that are used
//! again for each chunk: every token is a slice of `text`. A chunk has a limited size, and so have the words, the names
//! and the numbers of their pieces, so the time is linear in the length of the text whatever the text is.

use std::ops::Range;

use unicode_normalization::char::is_combining_mark;

use super::char_class::{CharClass, Script};
use super::fold::{FoldedChar, fold_chars};
use super::{Token, TokenKind};

/// The maximum length of a chunk in bytes. Longer text without white space is cut, after punctuation if there is any.
const MAX_CHUNK_BYTES: usize = 4096;
/// The maximum length of a folded word in bytes. A longer run of letters (encoded data) has no token and one position.
pub(super) const MAX_WORD_BYTES: usize = 256;
/// The maximum number of pieces of a word. A word with more (a digest, encoded data) is not split.
const MAX_WORD_PIECES: usize = 16;
/// The maximum number of words in a name with dots. A name with more is read as several names.
const MAX_NAME_WORDS: usize = 16;
/// The maximum length of a folded symbol in bytes. A longer one is left out; its words are not.
const MAX_SYMBOL_BYTES: usize = 256;

/// Punctuation that can stand before a word and is no part of a symbol.
const OPENING_PUNCTUATION: &[u8] = b"([{\"'`<*";
/// Punctuation that can stand after a word and is no part of a symbol.
const CLOSING_PUNCTUATION: &[u8] = b",.;:?)]}\"'`>*";

/// A character of a chunk.
#[derive(Clone, Copy)]
struct ChunkChar {
    c: char,
    class: CharClass,
    /// The offset in bytes in the folded text of the chunk.
    folded_start: u32,
    /// The offsets in bytes of its cluster in the original text.
    start: u32,
    end: u32,
}

/// A piece of a word, as a range of indices of characters.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    end: usize,
    /// The boundary between it and the piece before it. The first piece has the strongest one.
    boundary: PieceBoundary,
}

/// The boundary between two pieces of a word, the weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PieceBoundary {
    Capital,
    Digit,
    Underscore,
}

/// Splits text into tokens.
pub(super) struct Tokenizer<'e> {
    each: &'e mut dyn FnMut(Token<'_>),
    /// The position of the next word.
    position: u32,
    /// The folded text of the chunk.
    text: String,
    /// The characters of `text`.
    chars: Vec<ChunkChar>,
    /// The pieces of the word that is being read.
    pieces: Vec<Piece>,
    /// Whether [`plain_word`] is used. Without it the tokens are the same.
    pub(super) takes_shortcut: bool,
}

impl<'e> Tokenizer<'e> {
    pub(super) fn new(each: &'e mut dyn FnMut(Token<'_>)) -> Tokenizer<'e> {
        let (text, chars, pieces) = (String::new(), Vec::new(), Vec::new());
        Tokenizer { each, position: 0, text, chars, pieces, takes_shortcut: true }
    }

    /// Reports the tokens of `text`.
    pub(super) fn read_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut start = 0;
        while start < bytes.len() {
            if is_ascii_space(bytes[start]) {
                start += 1;
                continue;
            }
            let length = bytes[start..].iter().position(|byte| is_ascii_space(*byte));
            let end = length.map_or(bytes.len(), |length| start + length);
            self.read_until_space(text, start, end);
            start = end;
        }
    }

    fn read_until_space(&mut self, text: &str, mut start: usize, end: usize) {
        if self.takes_shortcut && self.emit_plain_word(&text[start..end], start) {
            return;
        }
        while start < end {
            let chunk = &text[start..start + chunk_len(&text[start..end])];
            self.fold_chunk(chunk, start);
            self.read_chunk();
            start += chunk.len();
        }
    }

    /// Reports the word of a chunk that consists of one plain word. Returns whether it does.
    fn emit_plain_word(&mut self, chunk: &str, offset: usize) -> bool {
        let Some(range) = plain_word(chunk.as_bytes()) else { return false };
        let (start, end) = ((offset + range.start) as u32, (offset + range.end) as u32);
        let mut text = &chunk[range];
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            self.text.clear();
            self.text.push_str(text);
            self.text.make_ascii_lowercase();
            text = self.text.as_str();
        }
        (self.each)(Token { text, kind: TokenKind::Word, position: self.position, start, end });
        self.position += 1;
        true
    }

    /// Fills the buffers with a chunk that starts at `offset` in the original text.
    fn fold_chunk(&mut self, chunk: &str, offset: usize) {
        self.text.clear();
        self.chars.clear();
        let (text, chars) = (&mut self.text, &mut self.chars);
        let mut class = CharClass::Separator;
        fold_chars(chunk, &mut |folded: FoldedChar| {
            class = CharClass::classify(folded.c, folded.case, class);
            let (start, end) = ((offset + folded.start) as u32, (offset + folded.end) as u32);
            chars.push(ChunkChar { c: folded.c, class, folded_start: text.len() as u32, start, end });
            text.push(folded.c);
        });
    }

    fn read_chunk(&mut self) {
        let mut index = 0;
        while index < self.chars.len() {
            index = match self.class(index) {
                CharClass::Separator => self.read_sign(index),
                CharClass::Unspaced(script) => self.emit_unspaced_run(index, script),
                _ => self.emit_name(index, index),
            };
        }
    }

    /// Returns the class of a character; beyond the end of the chunk, that of white space.
    fn class(&self, index: usize) -> CharClass {
        self.chars.get(index).map_or(CharClass::Separator, |character| character.class)
    }

    /// Returns a character; beyond the end of the chunk, a space.
    fn char(&self, index: usize) -> char {
        self.chars.get(index).map_or(' ', |character| character.c)
    }

    /// Reads the sign at `index`, and the name or option that it opens. Returns the index of what has not been read.
    fn read_sign(&mut self, index: usize) -> usize {
        let next = index + 1;
        match self.char(index) {
            '@' | '#' | '.' if self.class(next).is_name_start() && self.may_open_symbol(index) => {
                self.emit_name(index, next)
            }
            '-' if self.may_open_symbol(index) => self.read_option(index),
            _ => next,
        }
    }

    /// Whether what stands before `index` can stand before a symbol. The dot of `).bar`, the `@` of `me@host` and the
    /// dashes between two words open nothing.
    fn may_open_symbol(&self, index: usize) -> bool {
        let Some(previous) = index.checked_sub(1) else { return true };
        match self.class(previous) {
            CharClass::Separator => !matches!(self.char(previous), ')' | ']' | '}' | '>' | '.' | '@' | '#' | '-' | '&'),
            // Text without spaces: `使用--flag`.
            CharClass::Unspaced(_) => true,
            _ => false,
        }
    }

    /// Reports the symbol of a command-line option that starts with the dash at `index`. Returns the index of its first
    /// word, or of what follows the dashes if it is no option.
    fn read_option(&mut self, index: usize) -> usize {
        let is_long = self.char(index + 1) == '-';
        let name = index + 1 + usize::from(is_long);
        // `-1` is a number.
        let is_name = self.class(name).is_name_start() || is_long && self.class(name).is_word();
        if !is_name {
            return name;
        }
        let mut end = name + 1;
        while self.class(end).is_word() || (matches!(self.char(end), '-' | '.') && self.class(end + 1).is_word()) {
            end += 1;
        }
        self.emit_symbol(TokenKind::Symbol, index, end);
        name
    }

    /// Reports the words of the name that starts with the word at `first`, and its symbols. `symbol_start` is the index
    /// of the sign before it, or `first`. Returns the index of what follows the name.
    fn emit_name(&mut self, symbol_start: usize, first: usize) -> usize {
        let (mut last_word, mut end) = (first, self.word_end(first));
        for _ in 1..MAX_NAME_WORDS {
            let Some(next) = self.next_word_of_name(end) else { break };
            (last_word, end) = (next, self.word_end(next));
        }
        let symbol_end = end + self.trailing_sign_len(last_word, end);
        // `file(s)` is prose.
        let is_plural = self.char(end + 1) == 's' && self.char(end + 2) == ')';
        let is_call = self.char(end) == '(' && !is_plural && self.class(last_word).is_name_start();
        if symbol_start < first || last_word > first || symbol_end > end || is_call {
            self.emit_symbol(TokenKind::Symbol, symbol_start, symbol_end);
        }
        let mut word = first;
        loop {
            // The ends of a version number or an address mean nothing.
            if word > symbol_start && self.class(word) != CharClass::Digit {
                self.emit_symbol(TokenKind::SymbolSuffix, word, symbol_end);
            }
            let word_end = self.word_end(word);
            self.emit_word(word, word_end);
            match self.next_word_of_name(word_end) {
                Some(next) if next <= last_word => word = next,
                _ => return symbol_end,
            }
        }
    }

    /// Returns the index of the end of the word that starts at `index`.
    fn word_end(&self, index: usize) -> usize {
        let mut end = index;
        while self.class(end).is_word() {
            end += 1;
        }
        end
    }

    /// Returns the index of the next word of a name, if `.` or `::` and a word follow at `end`.
    fn next_word_of_name(&self, end: usize) -> Option<usize> {
        let next = match (self.char(end), self.char(end + 1)) {
            ('.', _) => end + 1,
            (':', ':') => end + 2,
            _ => return None,
        };
        self.class(next).is_word().then_some(next)
    }

    /// Returns the number of characters of the sign that belongs to the name whose last word is given: 2 for `C++`, 1
    /// for `C#` and `println!`.
    fn trailing_sign_len(&self, word: usize, end: usize) -> usize {
        if !self.class(word).is_name_start() {
            return 0;
        }
        let next = self.class(end + 1);
        match (self.char(end), self.char(end + 1)) {
            ('+', '+') => 2,
            ('#', _) if end - word == 1 && !next.is_word() => 1,
            // Neither `a != b`, nor several exclamation marks, nor a mark within a word.
            ('!', after) if !next.is_word() && !matches!(after, '=' | '!') => 1,
            _ => 0,
        }
    }

    /// Reports a word and its pieces, and moves the position behind them. Nothing is reported for `_` alone.
    fn emit_word(&mut self, start: usize, end: usize) {
        if self.folded_range(start, end).len() > MAX_WORD_BYTES {
            self.position += 1;
            return;
        }
        if (start..end).all(|index| self.class(index) == CharClass::Underscore) {
            return;
        }
        self.split_word(start, end);
        self.emit(TokenKind::Word, start, end, self.position);
        let is_whole = matches!(self.pieces.as_slice(), [piece] if (piece.start, piece.end) == (start, end));
        if !is_whole {
            self.emit_pieces(start, end);
        }
        self.position += self.pieces.len() as u32;
    }

    /// Fills `pieces` with the pieces of a word that has a letter or digit: at least one.
    fn split_word(&mut self, start: usize, end: usize) {
        self.pieces.clear();
        let mut index = start;
        let mut boundary = PieceBoundary::Underscore;
        while index < end {
            if self.class(index) == CharClass::Underscore {
                boundary = PieceBoundary::Underscore;
                index += 1;
                continue;
            }
            let piece_start = index;
            let mut next_boundary = None;
            while next_boundary.is_none() && index + 1 < end {
                index += 1;
                next_boundary = self.boundary_before(index);
            }
            if next_boundary.is_none() {
                index = end;
            }
            if self.pieces.len() == MAX_WORD_PIECES {
                self.pieces.clear();
                self.pieces.push(Piece { start, end, boundary: PieceBoundary::Underscore });
                return;
            }
            self.pieces.push(Piece { start: piece_start, end: index, boundary });
            boundary = next_boundary.unwrap_or(PieceBoundary::Underscore);
        }
    }

    /// Returns what separates the character at `index` from the one before it, which is part of the same word.
    fn boundary_before(&self, index: usize) -> Option<PieceBoundary> {
        match (self.class(index - 1), self.class(index)) {
            (_, CharClass::Underscore) => Some(PieceBoundary::Underscore),
            (previous, current) if (previous == CharClass::Digit) != (current == CharClass::Digit) => {
                Some(PieceBoundary::Digit)
            }
            (CharClass::Lower, CharClass::Upper) => Some(PieceBoundary::Capital),
            (CharClass::Upper, CharClass::Upper) if self.ends_acronym(index) => Some(PieceBoundary::Capital),
            _ => None,
        }
    }

    /// Whether an acronym ends before the capital at `index`, as before the `S` of `HTTPServer`. The `s` of a plural
    /// (`URLs`) belongs to the acronym.
    fn ends_acronym(&self, index: usize) -> bool {
        let is_lower = |index| self.class(index) == CharClass::Lower;
        is_lower(index + 1) && (self.char(index + 1) != 's' || is_lower(index + 2))
    }

    /// Reports the pieces of the word from `start` to `end`, and the groups of pieces that belong together.
    fn emit_pieces(&mut self, start: usize, end: usize) {
        for index in 0..self.pieces.len() {
            let position = self.position + index as u32;
            let piece = self.pieces[index];
            // What stands between two `_`, then within that what stands between digits; not again if it is the same,
            // and not the word itself.
            let mut reported_end = piece.end;
            for level in [PieceBoundary::Underscore, PieceBoundary::Digit] {
                if piece.boundary < level {
                    continue;
                }
                let rest = self.pieces[index + 1..].iter();
                let group_end =
                    rest.take_while(|piece| piece.boundary < level).last().map_or(piece.end, |last| last.end);
                let is_whole_word = piece.start == start && group_end == end;
                if group_end > piece.end && group_end != reported_end && !is_whole_word {
                    self.emit(TokenKind::Piece, piece.start, group_end, position);
                }
                reported_end = group_end;
            }
            self.emit(TokenKind::Piece, piece.start, piece.end, position);
        }
    }

    /// Reports the pairs and the characters of the run of one script that starts at `start`. Returns the index of its
    /// end.
    fn emit_unspaced_run(&mut self, start: usize, script: Script) -> usize {
        let mut index = start;
        while self.class(index) == CharClass::Unspaced(script) {
            let next = index + 1;
            if self.class(next) == CharClass::Unspaced(script) {
                self.emit(TokenKind::Bigram, index, next + 1, self.position);
            }
            // A vowel sign alone is no query. East Asian scripts have none.
            let c = self.char(index);
            if c >= '\u{2e80}' || !is_combining_mark(c) {
                self.emit(TokenKind::Unigram, index, next, self.position);
            }
            self.position += 1;
            index = next;
        }
        index
    }

    /// Reports a symbol at the position of the next word.
    fn emit_symbol(&mut self, kind: TokenKind, start: usize, end: usize) {
        if self.folded_range(start, end).len() <= MAX_SYMBOL_BYTES {
            self.emit(kind, start, end, self.position);
        }
    }

    /// Reports the characters from `start` to `end`, at least one, as a token.
    fn emit(&mut self, kind: TokenKind, start: usize, end: usize, position: u32) {
        let text = &self.text[self.folded_range(start, end)];
        let (start, end) = (self.chars[start].start, self.chars[end - 1].end);
        (self.each)(Token { text, kind, position, start, end });
    }

    /// Returns where the characters from `start` to `end` are in the folded text.
    fn folded_range(&self, start: usize, end: usize) -> Range<usize> {
        let offset =
            |index: usize| self.chars.get(index).map_or(self.text.len(), |character| character.folded_start as usize);
        offset(start)..offset(end)
    }
}

fn is_ascii_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns the place of the word in a chunk that consists of one ASCII word without pieces and of punctuation that
/// makes no symbol of it: small letters, also after one capital; capitals; or digits.
fn plain_word(chunk: &[u8]) -> Option<Range<usize>> {
    let start = chunk.iter().position(|byte| !OPENING_PUNCTUATION.contains(byte))?;
    let end = chunk.iter().rposition(|byte| !CLOSING_PUNCTUATION.contains(byte))? + 1;
    let word = chunk.get(start..end)?;
    let (first, rest) = word.split_first()?;
    let is_plain = (first.is_ascii_alphabetic() && rest.iter().all(u8::is_ascii_lowercase))
        || word.iter().all(u8::is_ascii_uppercase)
        || word.iter().all(u8::is_ascii_digit);
    (is_plain && word.len() <= MAX_WORD_BYTES).then_some(start..end)
}

/// Returns the length of the first chunk of text without white space: all of it, or if it is too long, up to its last
/// punctuation within the limit.
fn chunk_len(text: &str) -> usize {
    if text.len() <= MAX_CHUNK_BYTES {
        return text.len();
    }
    let limit = text.floor_char_boundary(MAX_CHUNK_BYTES);
    let is_separator = |c: char| !c.is_alphanumeric() && c != '_' && !is_combining_mark(c);
    let last = text[..limit].char_indices().rfind(|(_, c)| is_separator(*c));
    last.map_or(limit, |(index, c)| index + c.len_utf8())
}
