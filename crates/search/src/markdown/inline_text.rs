//! The text of one block: escaped, and with the marks of emphasis, links and code.

use crate::extract::content_rules::is_permalink_sign;
use crate::extract::text_buffer::is_invisible;

use super::link_address::LinkAddress;

/// The white space before the next visible character. Of several in a row, the greatest counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InlineSeparator {
    #[default]
    None,
    Space,
    /// A line break of the page, from `br`.
    Break,
}

/// The kind of block that the text is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum InlineContext {
    /// A paragraph. It may have several lines, and a line may not begin like another block.
    #[default]
    Paragraph,
    /// A heading: one line.
    Heading,
    /// The cell of a table: one line without a `|`.
    Cell,
}

/// A kind of mark around a text. At most one of each kind is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    Emphasis,
    Strong,
    Strike,
    Link(LinkAddress),
}

impl Mark {
    fn opening(&self) -> &'static str {
        match self {
            Mark::Emphasis => "*",
            Mark::Strong => "**",
            Mark::Strike => "~~",
            Mark::Link(_) => "[",
        }
    }

    pub(super) fn is_same_kind(&self, other: &Mark) -> bool {
        self.opening() == other.opening()
    }
}

#[derive(Debug)]
struct OpenMark {
    mark: Mark,
    /// The offset of its opening in the text. It is written right before the first visible character in it.
    written_at: Option<usize>,
}

/// The text of the block that is being read.
#[derive(Debug, Default)]
pub(super) struct InlineText {
    text: String,
    pub(super) context: InlineContext,
    /// The number of bytes that may be written.
    max_bytes: usize,
    is_cut: bool,
    /// The start of the current line in the text.
    line_start: usize,
    separator: InlineSeparator,
    marks: Vec<OpenMark>,
    /// The end of the mark that was closed last, and its start and form.
    last_closed: Option<(usize, usize, &'static str)>,
    /// The code that has been read and not been written: more may follow in another element.
    code: String,
    is_code_separated: bool,
}

impl InlineText {
    /// Starts a text in the middle of a line, of any length.
    pub(super) fn for_line() -> Self {
        InlineText { context: InlineContext::Heading, max_bytes: usize::MAX, ..InlineText::default() }
    }

    /// Discards all text, and limits the text from now on. Open marks stay open.
    pub(super) fn restart(&mut self, max_bytes: usize) {
        self.text.clear();
        self.code.clear();
        self.max_bytes = max_bytes;
        self.line_start = 0;
        self.separator = InlineSeparator::None;
        self.is_code_separated = false;
        self.last_closed = None;
        for open in &mut self.marks {
            open.written_at = None;
        }
    }

    pub(super) fn is_blank(&self) -> bool {
        self.text.is_empty() && self.code.is_empty()
    }

    /// Discards all text as [`restart`](Self::restart) does, and that text was left out.
    pub(super) fn restart_page(&mut self, max_bytes: usize) {
        self.is_cut = false;
        self.restart(max_bytes);
    }

    /// Whether text was left out because of the limit. Everything after that is left out, too.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Separates the text so far from the text that follows.
    pub(super) fn separate(&mut self, separator: InlineSeparator) {
        self.write_code();
        if !self.text.is_empty() {
            self.separator = self.separator.max(separator);
        }
    }

    /// Opens a mark. Returns whether it counts: not if one of its kind is open.
    pub(super) fn open_mark(&mut self, mark: Mark) -> bool {
        let is_new = !self.marks.iter().any(|open| open.mark.is_same_kind(&mark));
        if is_new {
            self.write_code();
            self.marks.push(OpenMark { mark, written_at: None });
        }
        is_new
    }

    /// Closes the open mark of a kind. Marks that were opened in it stay open.
    pub(super) fn close_mark(&mut self, kind: &Mark) {
        let Some(index) = self.marks.iter().rposition(|open| open.mark.is_same_kind(kind)) else { return };
        self.write_code();
        self.write_ends_from(index);
        self.marks.remove(index);
    }

    /// Ends the text and returns it. Open marks are closed in it and are open in the next text.
    pub(super) fn take(&mut self, next_max_bytes: usize) -> String {
        self.write_code();
        self.write_ends_from(0);
        let text = std::mem::take(&mut self.text);
        self.restart(next_max_bytes);
        text
    }

    /// Appends text, escaped.
    pub(super) fn push_text(&mut self, text: &str) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let len = if first.is_whitespace() {
                self.separate(InlineSeparator::Space);
                first.len_utf8()
            } else if is_invisible(first) {
                first.len_utf8()
            } else {
                let len = rest.find(|c: char| c.is_whitespace() || is_invisible(c)).unwrap_or(rest.len());
                self.write_code();
                self.push_run(&rest[..len], rest[len..].starts_with(char::is_whitespace));
                len
            };
            rest = &rest[len..];
        }
    }

    /// Appends the text of a code element.
    pub(super) fn push_code(&mut self, text: &str) {
        for character in text.chars() {
            if character.is_whitespace() {
                if self.code.is_empty() {
                    self.separate(InlineSeparator::Space);
                } else {
                    self.is_code_separated = true;
                }
            } else if !is_invisible(character) {
                // Backticks and escapes make code longer.
                if self.is_cut || self.text.len() + 3 * (self.code.len() + 4) > self.max_bytes {
                    self.write_code();
                    self.is_cut = true;
                    return;
                }
                if std::mem::take(&mut self.is_code_separated) {
                    self.code.push(' ');
                }
                self.code.push(character);
            }
        }
    }

    /// Writes the code that has been read, between runs of backticks that are longer than any in it (`CommonMark`,
    /// 6.1).
    fn write_code(&mut self) {
        if self.code.is_empty() {
            return;
        }
        let code = std::mem::take(&mut self.code);
        let is_separated = std::mem::take(&mut self.is_code_separated);
        // Backticks at most double the length, and so do escapes.
        if self.starts_text(code.len().saturating_mul(3)) {
            let fence = "`".repeat(longest_backtick_run(&code) + 1);
            let padding = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
            let code = if self.context == InlineContext::Cell { code.replace('|', "\\|") } else { code };
            for part in [&fence, padding, &code, padding, &fence] {
                self.text.push_str(part);
            }
        }
        if is_separated {
            self.separator = self.separator.max(InlineSeparator::Space);
        }
    }

    /// Writes the separator and the openings of marks before a text of at most `len` bytes. Returns false if it does
    /// not fit.
    fn starts_text(&mut self, len: usize) -> bool {
        if self.is_cut || self.text.len().saturating_add(len) > self.max_bytes {
            self.is_cut = true;
            return false;
        }
        match std::mem::take(&mut self.separator) {
            InlineSeparator::None => {}
            InlineSeparator::Break if self.context == InlineContext::Paragraph => {
                self.text.push_str("\\\n");
                self.line_start = self.text.len();
            }
            InlineSeparator::Space | InlineSeparator::Break => self.text.push(' '),
        }
        for open in self.marks.iter_mut().filter(|open| open.written_at.is_none()) {
            let opening = open.mark.opening();
            let is_link = matches!(open.mark, Mark::Link(_));
            if let Some((end, start, closed)) = self.last_closed.take()
                && !is_link
                && (end, closed) == (self.text.len(), opening)
            {
                // Two elements of the same kind that touch: their marks would be read as one.
                self.text.truncate(end - closed.len());
                open.written_at = Some(start);
                continue;
            }
            if is_link && self.text.ends_with('!') {
                // The link would be an image.
                self.text.insert(self.text.len() - 1, '\\');
            }
            open.written_at = Some(self.text.len());
            self.text.push_str(opening);
        }
        true
    }

    /// Closes the marks from an index on in the text. They are open again in what follows.
    fn write_ends_from(&mut self, index: usize) {
        for place in (index..self.marks.len()).rev() {
            let Some(start) = self.marks[place].written_at.take() else { continue };
            let mark = &self.marks[place].mark;
            let content = &self.text[start + mark.opening().len()..];
            let is_sign = |character: char| is_permalink_sign(character) || matches!(character, '\\' | ' ');
            let is_permalink =
                matches!(mark, Mark::Link(address) if address.is_fragment) && content.chars().all(is_sign);
            if is_permalink || content.is_empty() {
                self.remove_from(start);
                continue;
            }
            match mark {
                Mark::Link(address) => {
                    for part in ["](", &address.url, ")"] {
                        self.text.push_str(part);
                    }
                }
                other => {
                    self.text.push_str(other.opening());
                    self.last_closed = Some((self.text.len(), start, other.opening()));
                }
            }
        }
    }

    /// Removes the text from an offset on. The separator before it is that of what follows.
    fn remove_from(&mut self, start: usize) {
        self.text.truncate(start);
        self.last_closed = None;
        let separator = if self.text.ends_with("\\\n") {
            self.text.truncate(start - 2);
            self.line_start = self.text.rfind('\n').map_or(0, |line_feed| line_feed + 1);
            InlineSeparator::Break
        } else if self.text.ends_with(' ') {
            self.text.truncate(start - 1);
            InlineSeparator::Space
        } else {
            InlineSeparator::None
        };
        self.separator = if self.text.is_empty() { InlineSeparator::None } else { self.separator.max(separator) };
    }

    /// Appends a run of visible characters. `is_before_space` is false if what follows is not known.
    fn push_run(&mut self, run: &str, is_before_space: bool) {
        if !self.starts_text(run.len().saturating_mul(2)) {
            return;
        }
        let bytes = run.as_bytes();
        let is_paragraph = self.context == InlineContext::Paragraph;
        let starts_line = is_paragraph && self.text.len() == self.line_start;
        let may_end_number = is_paragraph && self.text[self.line_start..].bytes().take(10).all(|b| b.is_ascii_digit());
        let mut written = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let next = bytes.get(at + 1).copied().or(is_before_space.then_some(b' '));
            let is_last = at + 1 == bytes.len();
            let is_escaped = IS_SPECIAL[usize::from(byte)] && self.is_escaped(run, at, is_before_space)
                || starts_line && at == 0 && starts_block(byte, next)
                || may_end_number && is_last && matches!(byte, b'.' | b')') && self.ends_number(&bytes[..at]);
            if is_escaped {
                self.text.push_str(&run[written..at]);
                self.text.push('\\');
                written = at;
            }
        }
        self.text.push_str(&run[written..]);
    }

    /// Whether a special character of a run must be escaped wherever it is in a line.
    fn is_escaped(&self, run: &str, at: usize, is_before_space: bool) -> bool {
        let bytes = run.as_bytes();
        let next = bytes.get(at + 1).copied().or(is_before_space.then_some(b' '));
        let previous = at.checked_sub(1).map_or_else(|| self.text.as_bytes().last(), |before| bytes.get(before));
        let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        match bytes[at] {
            b'*' | b'`' | b'~' | b'[' => true,
            b'\\' => next.is_none_or(|next| next.is_ascii_punctuation()),
            b'_' => !(is_alphanumeric(previous) && is_alphanumeric(next.as_ref())),
            b']' => self.marks.iter().any(|open| matches!(open.mark, Mark::Link(_))),
            b'<' => next.is_none_or(|next| next.is_ascii_alphabetic() || matches!(next, b'/' | b'!' | b'?')),
            b'&' => may_be_reference(&bytes[at + 1..], is_before_space),
            b'|' => self.context == InlineContext::Cell,
            // At the end of a heading it would be taken for a closing sequence.
            b'#' => self.context == InlineContext::Heading && previous.is_none_or(|&previous| previous == b' '),
            _ => false,
        }
    }

    /// Whether the line so far and the start of a run are a number, which a `.` would make the number of a list item.
    fn ends_number(&self, start: &[u8]) -> bool {
        let len = self.text.len() - self.line_start + start.len();
        (1..=9).contains(&len) && start.iter().all(u8::is_ascii_digit)
    }
}

/// The bytes for which [`InlineText::is_escaped`] decides.
const IS_SPECIAL: [bool; 256] = {
    let mut is_special = [false; 256];
    let bytes = b"\\`*_[]<&~|#";
    let mut index = 0;
    while index < bytes.len() {
        is_special[bytes[index] as usize] = true;
        index += 1;
    }
    is_special
};

/// Whether a character at the start of a line may begin a block that is not a paragraph, or end one as a heading or the
/// head of a table.
fn starts_block(byte: u8, next: Option<u8>) -> bool {
    match byte {
        b'#' => next.is_none_or(|next| matches!(next, b'#' | b' ')),
        b'-' | b'+' => next.is_none_or(|next| !next.is_ascii_alphanumeric()),
        b'=' | b'>' | b'|' => true,
        b':' => next == Some(b'-'),
        _ => false,
    }
}

/// Whether a text after an `&` may be a character reference.
fn may_be_reference(text: &[u8], is_before_space: bool) -> bool {
    match text.iter().position(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'#')) {
        Some(end) => end > 0 && text[end] == b';',
        // More may follow, if it is not white space.
        None => !is_before_space,
    }
}

/// Returns the length of the longest run of backticks.
pub(super) fn longest_backtick_run(text: &str) -> usize {
    text.split(|character| character != '`').map(str::len).max().unwrap_or_default()
}
