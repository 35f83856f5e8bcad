//! Text in columns: measures how wide text is on a terminal, and cuts or fills it to a width.

use std::io;

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthStr;

/// Returns the columns that text takes on a terminal. The text must not contain control characters: see
/// [`OneLine`](docwharf_base::error_chain::OneLine).
pub(super) fn display_width(text: &str) -> usize {
    text.width()
}

/// Returns text in exactly `columns` columns: cut with an ellipsis, or filled with spaces.
pub(super) fn cut_or_pad(text: &str, columns: usize) -> String {
    let mut fitted = cut(text, columns);
    let filled = display_width(&fitted);
    fitted.extend(std::iter::repeat_n(' ', columns.saturating_sub(filled)));
    fitted
}

/// Returns text in at most `columns` columns; a combining mark stays with its letter.
pub(super) fn cut(text: &str, columns: usize) -> String {
    // The common case. Only here a long text costs more than its beginning.
    if text.len() <= columns && text.is_ascii() || display_width(text) <= columns {
        return text.to_owned();
    }
    // One column is for the ellipsis.
    let Some(text_columns) = columns.checked_sub(1) else { return String::new() };
    let ends = text.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|end| display_width(&text[..*end]) <= text_columns).last().unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Returns the width of the terminal on standard output; `None` if it is no terminal or reports no width.
pub(super) fn terminal_width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::{cut, cut_or_pad, display_width};

    #[test]
    fn text_in_any_script_is_truncated_or_padded_to_the_column_width() {
        assert_eq!(cut_or_pad("tides", 8), "tides   ");
        assert_eq!(cut_or_pad("tides", 5), "tides");
        assert_eq!(cut_or_pad("moonlight", 5), "moon…");
        assert_eq!(cut_or_pad("潮汐表", 6), "潮汐表");
        // Half a character cannot be shown: a space stands for it.
        assert_eq!(cut_or_pad("潮汐表", 4), "潮… ");
        assert_eq!(cut_or_pad("e\u{301}te\u{301}", 2), "e\u{301}…");
        for text in
            ["", "a", "潮汐表", "مرحبا بالعالم", "👩‍👩‍👧‍👦 family", "e\u{301}\u{301}\u{301}", "ไทย ภาษา", "\u{200d}\u{200d}"]
        {
            for columns in 0..12 {
                assert_eq!(display_width(&cut_or_pad(text, columns)), columns, "{text:?} in {columns}");
                assert!(display_width(&cut(text, columns)) <= columns, "{text:?} in {columns}");
            }
        }
    }
}
