//! Errors on one line, safe to print whatever an archive entry or a file name contains.

use std::error::Error;
use std::fmt::{self, Display, Write};
use std::io;

/// Upper bound of the length of a line in characters, so that a hostile name cannot flood a terminal or a log.
const MAX_LINE_CHARS: usize = 960;

/// Displays an error with all its causes on one line: control characters escaped, under 1,000 characters.
#[derive(Debug, Clone, Copy)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = error_message(self.0);
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {}", error_message(error));
            cause = error.source();
        }
        write_one_line(&text, f)
    }
}

/// Returns the message of one error, without its causes. The message for a full disk always contains "no space",
/// whether the disk or a quota is full: users and log monitors search for these words.
pub fn error_message(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::StorageFull) => text.replace("No space", "no space"),
        Some(io::ErrorKind::QuotaExceeded) => format!("no space: {text}"),
        _ => text,
    }
}

/// Displays text on one line, like [`ErrorChain`].
#[derive(Debug, Clone, Copy)]
pub struct OneLine<'a>(pub &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_one_line(self.0, f)
    }
}

fn write_one_line(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if is_printable(c) {
            line.push(c);
        } else {
            line.extend(c.escape_default());
        }
    }
    let length = line.chars().count();
    if length <= MAX_LINE_CHARS {
        return f.write_str(&line);
    }
    // The long part of a line is a path or a name. The operation is named before it; the reason and the advice follow
    // it.
    let byte_index = |n: usize| line.char_indices().nth(n).map_or(line.len(), |(index, _)| index);
    write!(f, "{}…{}", &line[..byte_index(MAX_LINE_CHARS / 2)], &line[byte_index(length - MAX_LINE_CHARS / 2)..])
}

/// Whether a character may be printed in a line as it is: no control character, line separator or mark that reverses
/// the direction of text.
pub fn is_printable(c: char) -> bool {
    !(c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'))
}

/// Displays a name from an archive in quotes: escaped, and shortened in its middle when long.
#[derive(Debug, Clone, Copy)]
pub struct QuotedName<'a>(pub &'a [u8]);

impl Display for QuotedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_BYTES: usize = 160;
        f.write_char('"')?;
        if self.0.len() <= 2 * SHOWN_BYTES {
            write_escaped(self.0, f)?;
        } else {
            write_escaped(&self.0[..SHOWN_BYTES], f)?;
            f.write_char('…')?;
            write_escaped(&self.0[self.0.len() - SHOWN_BYTES..], f)?;
        }
        f.write_char('"')
    }
}

fn write_escaped(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '"' || !is_printable(c) {
                Display::fmt(&c.escape_default(), f)?;
            } else {
                f.write_char(c)?;
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_quotes_in_a_name_are_escaped() {
        assert_eq!(QuotedName(b"a\n\"\x1b[31m\xff").to_string(), "\"a\\n\\\"\\u{1b}[31m\\xff\"");
    }

    #[test]
    fn long_line_is_shortened_in_its_middle_so_operation_and_cause_remain() {
        let long = format!("cannot make {}\n: File name too long", "/ä".repeat(3000));
        let line = OneLine(&long).to_string();
        assert!(line.starts_with("cannot make /ä/ä") && line.ends_with("/ä\\n: File name too long"), "{line}");
        assert_eq!(line.chars().count(), MAX_LINE_CHARS + 1);
        assert_eq!(OneLine(&"x".repeat(MAX_LINE_CHARS)).to_string(), "x".repeat(MAX_LINE_CHARS));
    }

    #[test]
    fn a_full_disk_and_a_full_quota_both_say_no_space() {
        for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT] {
            let error = io::Error::from(errno);
            assert!(
                error_message(&error).contains("no space") && ErrorChain(&error).to_string().contains("no space"),
                "{error}"
            );
        }
        assert_eq!(
            error_message(&io::Error::from(rustix::io::Errno::NOENT)),
            io::Error::from_raw_os_error(2).to_string()
        );
    }

    #[test]
    fn a_long_name_is_cut_in_its_middle() {
        let shown = QuotedName(&[b'x'; 5000]).to_string();
        assert!(shown.chars().count() < 330 && shown.contains('…'));
    }

    #[test]
    fn error_is_shown_with_all_its_causes_on_one_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot {0}")]
        struct OperationError(&'static str, #[source] io::Error);
        #[derive(Debug, thiserror::Error)]
        #[error("cannot {0}")]
        struct OuterError(&'static str, #[source] OperationError);
        let full = OperationError("write a\nb", io::Error::from(rustix::io::Errno::NOSPC));
        assert_eq!(ErrorChain(&full).to_string(), "cannot write a\\nb: no space left on device (os error 28)");
        let outer = OuterError("import b.zip", full);
        let chain = "cannot import b.zip: cannot write a\\nb: no space left on device (os error 28)";
        assert_eq!(ErrorChain(&outer).to_string(), chain, "every cause");
    }

    #[test]
    fn control_and_bidirectional_characters_are_not_printable() {
        for c in
            "\0\n\r\t\x1b\u{7f}\u{85}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}".chars()
        {
            assert!(!is_printable(c), "{c:?}");
        }
        for c in " \"\\aä\u{a0}\u{200d}\u{2010}\u{2027}\u{202f}\u{2065}\u{206a}\u{1f600}".chars() {
            assert!(is_printable(c), "{c:?}");
        }
    }

    #[test]
    fn name_over_the_limit_shows_only_its_first_and_last_characters() {
        for (length, shown) in
            [(320, format!("\"{}\"", "x".repeat(320))), (321, format!("\"{0}…{0}\"", "x".repeat(160)))]
        {
            assert_eq!(QuotedName(&vec![b'x'; length]).to_string(), shown);
        }
        let line = OneLine(&format!("a{}b", "x".repeat(MAX_LINE_CHARS - 1))).to_string();
        assert_eq!(line, format!("a{0}…{0}b", "x".repeat(MAX_LINE_CHARS / 2 - 1)));
    }
}
