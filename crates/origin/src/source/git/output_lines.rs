//! Splits the output of programs into lines that a log can hold.

use docwharf_base::error_chain::is_printable;

/// Maximum length of a line in bytes; the rest is left out.
const MAX_LINE_BYTES: usize = 4096;
/// Maximum number of raw bytes read of one line: escape sequences take some of them.
const MAX_RAW_LINE_BYTES: usize = 4 * MAX_LINE_BYTES;

/// Splits bytes into lines as they arrive.
#[derive(Debug, Default)]
pub(super) struct OutputLines {
    line: Vec<u8>,
}

impl OutputLines {
    /// Calls `receive_line` for each line that ends within `bytes`. A carriage return ends a line too, because progress
    /// output overwrites itself.
    pub(super) fn push(&mut self, bytes: &[u8], receive_line: &mut dyn FnMut(String)) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let capacity = MAX_RAW_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(capacity)]);
            if piece.ends_with(b"\n") || piece.ends_with(b"\r") {
                self.end(receive_line);
            }
        }
    }

    /// Calls `receive_line` for a last line without a line end. Empty lines are skipped.
    pub(super) fn end(&mut self, receive_line: &mut dyn FnMut(String)) {
        let line = remove_control_characters(&self.line);
        self.line.clear();
        if !line.trim().is_empty() {
            receive_line(line);
        }
    }
}

/// Returns the text of a line without terminal escape sequences (ECMA-48) and other control characters.
fn remove_control_characters(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let mut line = String::with_capacity(text.len().min(MAX_LINE_BYTES));
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '\x1b' => {
                skip_escape(&mut chars);
                continue;
            }
            '\u{9b}' => {
                skip_control(&mut chars);
                continue;
            }
            '\t' => ' ',
            c if is_printable(c) => c,
            _ => continue,
        };
        if line.len() + c.len_utf8() > MAX_LINE_BYTES - '…'.len_utf8() {
            line.push('…');
            break;
        }
        line.push(c);
    }
    line
}

/// Skips the rest of an escape sequence, after the escape character.
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    match chars.next() {
        Some('[') => skip_control(chars),
        // Window titles and links end at a bell or a string terminator.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = chars.next() {
                if c == '\x1b' {
                    chars.next();
                }
                if matches!(c, '\x07' | '\x1b' | '\u{9c}') {
                    return;
                }
            }
        }
        Some(' '..='/') => {
            chars.find(|c| !(' '..='/').contains(c));
        }
        _ => {}
    }
}

/// Skips the rest of a control sequence: parameters, and one character that ends them.
fn skip_control(chars: &mut std::str::Chars<'_>) {
    chars.find(|c| ('@'..='~').contains(c));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut received = Vec::new();
        let mut lines = OutputLines::default();
        for piece in pieces {
            lines.push(piece, &mut |line| received.push(line));
        }
        lines.end(&mut |line| received.push(line));
        received
    }

    #[test]
    fn terminal_escape_sequences_and_control_characters_are_removed_from_output_lines() {
        let printed = b"\x1b[1;31merror\x1b[0m: \x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x00\x08\tb\x1b(B \xff\n";
        assert_eq!(lines(&[printed]), ["error: alink b \u{fffd}"]);
        assert_eq!(lines(&["\u{202e}x\u{9b}2Jy\u{85}".as_bytes()]), ["xy"]);
    }

    #[test]
    fn output_lines_are_joined_across_reads_and_carriage_returns_end_lines() {
        assert_eq!(lines(&[b"on", b"e\ntw", b"o\r\n\n \nthr", b"ee"]), ["one", "two", "three"]);
        assert_eq!(lines(&[b"10%\r20%\r"]), ["10%", "20%"]);
    }

    #[test]
    fn an_output_line_is_truncated_to_4_kib() {
        let received = lines(&[&vec![b'x'; 1 << 20], b"\nnext\n"]);
        assert_eq!(received.len(), 2);
        assert!(
            received[0].len() <= MAX_LINE_BYTES && received[0].len() > MAX_LINE_BYTES - 8 && received[0].ends_with('…')
        );
        assert_eq!(received[1], "next");
        // Escape sequences alone do not push the text of the next line away.
        assert_eq!(lines(&[&b"\x1b[1m".repeat(10_000), b"\nnext"]), ["next"]);
    }
}
