//! The code of a `pre` element.

use crate::extract::text_buffer::is_invisible;

/// The code that is being read.
#[derive(Debug, Default)]
pub(super) struct CodeBlock {
    /// The language that the page names.
    pub(super) language: Option<String>,
    text: String,
    max_bytes: usize,
    is_cut: bool,
}

impl CodeBlock {
    pub(super) fn new(language: Option<String>, max_bytes: usize) -> Self {
        CodeBlock { language, max_bytes, ..CodeBlock::default() }
    }

    /// Discards the code so far.
    pub(super) fn restart(&mut self, max_bytes: usize) {
        self.text.clear();
        self.max_bytes = max_bytes;
    }

    /// Appends code. Line feeds and white space stay as they are.
    pub(super) fn push(&mut self, text: &str) {
        for piece in text.split_inclusive(|character: char| is_invisible(character)) {
            let (visible, last) = match piece.char_indices().next_back() {
                Some((at, last)) if is_invisible(last) => (&piece[..at], Some(last)),
                _ => (piece, None),
            };
            if self.is_cut || self.text.len() + visible.len() + 1 > self.max_bytes {
                self.is_cut = true;
                return;
            }
            self.text.push_str(visible);
            // Line feeds and tabs are among the control characters.
            self.text.extend(last.filter(|last| matches!(last, '\n' | '\t')));
        }
    }

    /// Ends the line, as an element does that is a line of its own.
    pub(super) fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// Starts a new line.
    pub(super) fn break_line(&mut self) {
        if self.text.len() < self.max_bytes {
            self.text.push('\n');
        }
    }

    /// Whether code was left out because of the limit.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the code without the empty lines around it; `None` if there is nothing else.
    pub(super) fn code(&self) -> Option<&str> {
        let code = self.text.trim_end();
        // The indentation of the first line belongs to the code.
        let start = code.find(|character: char| !character.is_whitespace())?;
        let line_start = code[..start].rfind('\n').map_or(0, |line_feed| line_feed + 1);
        Some(&code[line_start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_keeps_its_lines_and_loses_invisible_characters() {
        let mut block = CodeBlock::new(None, 100);
        for text in ["\n\n  if x:\r\n", "\ty\u{200b}z()\u{e0041} ", "\n", "\n"] {
            block.push(text);
        }
        assert_eq!(block.code(), Some("  if x:\n\tyz()"));
        let mut block = CodeBlock::new(None, 100);
        for line in ["a", "b"] {
            block.end_line();
            block.push(line);
            block.end_line();
        }
        block.break_line();
        block.push("c");
        assert_eq!(block.code(), Some("a\nb\n\nc"));
        assert_eq!(CodeBlock::new(None, 100).code(), None);
    }

    #[test]
    fn code_is_bounded() {
        let mut block = CodeBlock::new(None, 10);
        block.push("12345");
        block.push("6789012345");
        block.push("6");
        assert_eq!(block.code(), Some("12345"));
        assert!(block.is_cut());
        for _ in 0..100 {
            block.break_line();
        }
        assert!(block.text.len() <= 10);
    }
}
