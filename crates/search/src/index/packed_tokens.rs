//! The tokens of a text, packed into one text that tantivy is given in place of the original.
//!
//! tantivy runs a tokenizer for each field. A section has six fields with words, and splitting its text is the largest
//! cost of indexing. So the text is split once by [`analyze`](crate::analyze), its tokens are distributed to the
//! fields, and what tantivy runs as a tokenizer only reads them again.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// Ends a token. No token contains it, because tokens consist of letters, digits and visible signs.
const TOKEN_END: char = '\u{0}';
/// Stands before a token, once for each position from the token before it to its own.
const NEXT_POSITION: u8 = 1;

/// Tokens in the order of their positions.
#[derive(Debug, Default)]
pub(super) struct PackedTokens {
    text: String,
    position: u32,
}

impl PackedTokens {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.position = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Appends a token. A position before that of the last token counts as the same.
    pub(super) fn push(&mut self, token: &str, position: u32) {
        for _ in self.position..position {
            self.text.push(char::from(NEXT_POSITION));
        }
        self.position = self.position.max(position);
        self.text.push_str(token);
        self.text.push(TOKEN_END);
    }
}

/// Reads packed tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct PackedTokenizer {
    token: Token,
}

/// The tokens of one packed text.
pub(super) struct PackedTokenStream<'a> {
    token: &'a mut Token,
    rest: &'a str,
}

impl Tokenizer for PackedTokenizer {
    type TokenStream<'a> = PackedTokenStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> PackedTokenStream<'a> {
        self.token.reset();
        self.token.position = 0;
        PackedTokenStream { token: &mut self.token, rest: text }
    }
}

impl TokenStream for PackedTokenStream<'_> {
    fn advance(&mut self) -> bool {
        let steps = self.rest.bytes().take_while(|byte| *byte == NEXT_POSITION).count();
        let Some((text, rest)) = self.rest[steps..].split_once(TOKEN_END) else { return false };
        self.token.position += steps;
        self.token.text.clear();
        self.token.text.push_str(text);
        self.rest = rest;
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(packed: &str) -> Vec<(String, usize)> {
        let mut tokenizer = PackedTokenizer::default();
        let mut stream = tokenizer.token_stream(packed);
        let mut tokens = Vec::new();
        while stream.advance() {
            tokens.push((stream.token().text.clone(), stream.token().position));
        }
        tokens
    }

    #[test]
    fn packed_tokens_are_read_again_with_their_positions() {
        let tokens = [("lru_cache", 0), ("lru", 0), ("cache", 1), ("größe", 4), ("缓存", 4), ("--flag", 7)];
        let mut packed = PackedTokens::default();
        assert!(packed.is_empty());
        for (token, position) in tokens {
            packed.push(token, position);
        }
        let expected: Vec<(String, usize)> =
            tokens.iter().map(|(token, position)| ((*token).to_owned(), *position as usize)).collect();
        assert_eq!(unpack(packed.as_str()), expected);
        packed.clear();
        packed.push("a", 1);
        assert_eq!(unpack(packed.as_str()), [("a".to_owned(), 1)]);
    }

    #[test]
    fn positions_never_descend_and_other_text_has_no_tokens() {
        let mut packed = PackedTokens::default();
        packed.push("b", 3);
        packed.push("a", 1);
        assert_eq!(unpack(packed.as_str()), [("b".to_owned(), 3), ("a".to_owned(), 3)]);
        for text in ["", "text without an end", "\u{1}\u{1}"] {
            assert!(unpack(text).is_empty(), "{text}");
        }
    }
}
