//! Collects text as a reader sees it: white space is collapsed, and characters without a shape are removed.

/// The maximum length of a character in UTF-8, in bytes.
pub(crate) const MAX_CHARACTER_BYTES: usize = 4;

/// The white space between two runs of visible characters. Of several separators in a row, the greatest counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Separator {
    #[default]
    None,
    /// A space, between words.
    Space,
    /// A line feed, between blocks.
    Line,
}

/// The meaning of a line feed in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFeeds {
    /// A line feed is white space like any other.
    Collapse,
    /// A line feed ends a line, as in a `pre` element.
    Keep,
}

/// The result of [`TextBuffer::push`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PushedText {
    /// The offset in the buffer of the first character that was appended.
    pub(crate) start: Option<usize>,
    /// The number of words that begin in the text that was appended.
    pub(crate) words: u32,
    /// The number of bytes of visible characters that were left out.
    pub(crate) left_out_bytes: usize,
}

/// Text with collapsed white space, and no white space at its start and end.
#[derive(Debug, Default)]
pub(crate) struct TextBuffer {
    text: String,
    /// The white space before the next visible character.
    separator: Separator,
    /// Whether the last character belongs to a word.
    is_in_word: bool,
}

impl TextBuffer {
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Returns the text in one line with at most `max_chars` characters, and whether it was cut.
    pub(crate) fn into_line(self, max_chars: usize) -> (String, bool) {
        let mut line = self.text.replace('\n', " ");
        let end = line.char_indices().nth(max_chars).map(|(end, _)| end);
        if let Some(end) = end {
            line.truncate(line[..end].trim_end().len());
        }
        (line, end.is_some())
    }

    /// Separates the text so far from the text that follows.
    pub(crate) fn separate(&mut self, separator: Separator) {
        if !self.text.is_empty() {
            self.separator = self.separator.max(separator);
            self.is_in_word = false;
        }
    }

    /// Appends a text. `remaining_bytes` is the number of bytes that may still be appended, and is reduced; once a
    /// character does not fit, it is zero.
    pub(crate) fn push(&mut self, text: &str, line_feeds: LineFeeds, remaining_bytes: &mut usize) -> PushedText {
        let mut pushed = PushedText::default();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let len = if first.is_whitespace() {
                let ends_line = first == '\n' && line_feeds == LineFeeds::Keep;
                self.separate(if ends_line { Separator::Line } else { Separator::Space });
                first.len_utf8()
            } else if is_invisible(first) {
                first.len_utf8()
            } else {
                let len = rest.find(|c: char| !is_visible(c)).unwrap_or(rest.len());
                self.push_run(&rest[..len], remaining_bytes, &mut pushed);
                len
            };
            rest = &rest[len..];
        }
        pushed
    }

    /// Appends a run of visible characters, or as many of them as fit.
    fn push_run(&mut self, run: &str, remaining_bytes: &mut usize, pushed: &mut PushedText) {
        let separator = match self.separator {
            Separator::None => "",
            Separator::Space => " ",
            Separator::Line => "\n",
        };
        let available = remaining_bytes.saturating_sub(separator.len());
        let mut len = run.len().min(available);
        while !run.is_char_boundary(len) {
            len -= 1;
        }
        let (kept, left_out) = run.split_at(len);
        pushed.left_out_bytes += left_out.len();
        *remaining_bytes = if left_out.is_empty() { available - len } else { 0 };
        if kept.is_empty() {
            return;
        }
        self.text.push_str(separator);
        self.separator = Separator::None;
        pushed.start.get_or_insert(self.text.len());
        self.text.push_str(kept);
        pushed.words += self.count_words(kept);
    }

    /// Counts the words that begin in a run of visible characters at the end of the text.
    fn count_words(&mut self, run: &str) -> u32 {
        let mut words = 0;
        for character in run.chars() {
            let is_in_word = character.is_alphanumeric() || character == '_';
            words += u32::from(is_in_word && (!self.is_in_word || is_unspaced(character)));
            self.is_in_word = is_in_word;
        }
        words
    }

    /// Removes what was appended after the first `len` bytes, if it consists of characters for which `is_removed` is
    /// true.
    pub(crate) fn revert_if(&mut self, len: usize, is_removed: impl Fn(char) -> bool) {
        let Some(appended) = self.text.get(len..).filter(|appended| !appended.is_empty()) else { return };
        if !appended.chars().all(|c| c.is_whitespace() || is_removed(c)) {
            return;
        }
        // The removed characters may have been between two words.
        let separator = match appended.as_bytes()[0] {
            b'\n' => Separator::Line,
            b' ' => Separator::Space,
            _ => Separator::None,
        };
        self.text.truncate(len);
        self.separator = if self.text.is_empty() { Separator::None } else { self.separator.max(separator) };
    }
}

fn is_visible(character: char) -> bool {
    !character.is_whitespace() && !is_invisible(character)
}

/// Whether a text contains a character that is not removed or collapsed.
pub(crate) fn has_visible_text(text: &str) -> bool {
    text.chars().any(is_visible)
}

/// Counts the bytes of the visible characters of a text.
pub(crate) fn visible_bytes(text: &str) -> usize {
    text.chars().filter(|&c| is_visible(c)).map(char::len_utf8).sum()
}

/// Whether a character is removed: it controls a terminal, changes the direction of text, or has no width (Unicode,
/// `Default_Ignorable_Code_Point`). Such characters would hide text from a reader or change how a result is shown.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a character belongs to a script that is written without spaces between words: Han, Hiragana, Katakana.
fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{3041}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(buffer: &mut TextBuffer, text: &str, line_feeds: LineFeeds) -> u32 {
        let mut remaining = usize::MAX;
        buffer.push(text, line_feeds, &mut remaining).words
    }

    fn collapse(texts: &[&str], line_feeds: LineFeeds) -> String {
        let mut buffer = TextBuffer::default();
        for text in texts {
            push(&mut buffer, text, line_feeds);
        }
        buffer.into_text()
    }

    #[test]
    fn white_space_is_collapsed_and_trimmed() {
        for (texts, collapsed, kept) in [
            (&["  a \n\n b\t"][..], "a b", "a\nb"),
            (&["a", "b"][..], "ab", "ab"),
            (&["a ", " b"][..], "a b", "a b"),
            (&["a\u{a0}b\u{3000}c\u{2028}d"][..], "a b c d", "a b c d"),
            (&["if x:\r\n    y()\n"][..], "if x: y()", "if x:\ny()"),
            (&["", " ", "\n"][..], "", ""),
        ] {
            assert_eq!(collapse(texts, LineFeeds::Collapse), collapsed, "{texts:?}");
            assert_eq!(collapse(texts, LineFeeds::Keep), kept, "{texts:?}");
        }
    }

    #[test]
    fn invisible_characters_are_removed_without_separating_words() {
        for (text, expected) in [
            ("thread\u{200b}pool", "threadpool"),
            ("soft\u{ad}hyphen", "softhyphen"),
            ("\u{202e}txet\u{202c}", "txet"),
            ("\u{2066}a\u{2069} \u{200f}b\u{61c}", "a b"),
            ("a\u{0}\u{1b}[31m\u{7f}\u{9b}b", "a[31mb"),
            ("\u{feff}x\u{2060}y\u{e0041}z", "xyz"),
            ("\u{200b} \u{200d}", ""),
            ("\u{fe0f}!", "!"),
        ] {
            assert_eq!(collapse(&[text], LineFeeds::Collapse), expected, "{text:?}");
            assert_eq!(has_visible_text(text), !expected.is_empty(), "{text:?}");
        }
        assert_eq!(visible_bytes("a \u{200b}é\n"), 3);
    }

    #[test]
    fn text_beyond_the_limit_is_counted_and_characters_are_not_split() {
        let mut buffer = TextBuffer::default();
        let mut remaining = 6;
        assert_eq!(
            buffer.push("ab cdé f", LineFeeds::Collapse, &mut remaining),
            PushedText { start: Some(0), words: 2, left_out_bytes: 3 }
        );
        // The second byte of `é` did not fit, and nothing may follow that would fit.
        assert_eq!(remaining, 0);
        assert_eq!(buffer.push("g", LineFeeds::Collapse, &mut remaining).left_out_bytes, 1);
        assert_eq!(buffer.into_text(), "ab cd");
        let mut buffer = TextBuffer::default();
        let mut remaining = 3;
        assert_eq!(buffer.push("a b", LineFeeds::Collapse, &mut remaining).left_out_bytes, 0);
        assert_eq!((remaining, buffer.len()), (0, 3));
    }

    #[test]
    fn words_are_counted_across_pieces_and_characters_of_han_each() {
        for (texts, words) in [
            (&["two words"][..], 2),
            (&["one ", "two"][..], 2),
            (&["o", "ne"][..], 1),
            (&["lru_cache(maxsize=128)"][..], 3),
            (&["¶ -- #"][..], 0),
            (&["全文検索"][..], 4),
            (&["한국어 검색"][..], 2),
        ] {
            let mut buffer = TextBuffer::default();
            let count: u32 = texts.iter().map(|text| push(&mut buffer, text, LineFeeds::Collapse)).sum();
            assert_eq!(count, words, "{texts:?}");
        }
    }

    #[test]
    fn text_after_a_length_is_removed_only_if_all_of_it_qualifies() {
        for (texts, expected) in [
            (["Title", "¶", ""], "Title"),
            (["Title ", "¶", "More"], "Title More"),
            (["Title", " ¶", "More"], "Title More"),
            (["", "¶", "Title"], "Title"),
            (["Title", "¶x", ""], "Title¶x"),
            (["Title ", "", "x"], "Title x"),
        ] {
            let mut buffer = TextBuffer::default();
            push(&mut buffer, texts[0], LineFeeds::Collapse);
            let len = buffer.len();
            push(&mut buffer, texts[1], LineFeeds::Collapse);
            buffer.revert_if(len, |c| c == '¶');
            push(&mut buffer, texts[2], LineFeeds::Collapse);
            assert_eq!(buffer.into_text(), expected, "{texts:?}");
        }
    }

    #[test]
    fn line_is_cut_at_a_character_and_ends_without_white_space() {
        for (text, max_chars, expected) in [
            ("ab\ncd", 5, ("ab cd", false)),
            ("ab cd", 4, ("ab c", true)),
            ("ab cd", 3, ("ab", true)),
            ("äöü", 2, ("äö", true)),
            ("", 0, ("", false)),
        ] {
            let mut buffer = TextBuffer::default();
            push(&mut buffer, text, LineFeeds::Keep);
            assert_eq!(buffer.into_line(max_chars), (expected.0.to_owned(), expected.1), "{text}");
        }
    }
}
