//! Text in HTML and XML. Every text that the search page and `opensearch.xml` show is written here.

use crate::extract::is_invisible;

use super::response::ExcerptMark;

/// Appends text to the content of an element or to an attribute value in double quotes, in HTML or XML.
///
/// Control characters become spaces. Characters that are invisible are left out, and so are those that XML does not
/// allow. The joiners U+200C and U+200D and the emoji selector U+FE0F stay: Persian and emoji need them.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        push_escaped_char(out, c);
    }
}

fn push_escaped_char(out: &mut String, c: char) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        c if c.is_control() => out.push(' '),
        // Joiners decide how letters and emoji look. XML, which `opensearch.xml` is, has no noncharacters.
        '\u{200c}' | '\u{200d}' | '\u{fe0f}' => out.push(c),
        '\u{fffe}' | '\u{ffff}' => {}
        c if is_invisible(c) => {}
        c => out.push(c),
    }
}

/// Appends text with a `mark` element around each match.
///
/// A border of a match inside a surrogate pair moves outwards to the border of the character. Matches that overlap
/// become one. The part of a match beyond the text is ignored.
pub(super) fn push_marked(out: &mut String, text: &str, marks: &[ExcerptMark]) {
    let mut marks = marks.to_vec();
    marks.sort_unstable_by_key(|mark| mark.start);
    let mut marks = marks.into_iter().filter(|mark| mark.length > 0).peekable();
    let mut start: u64 = 0;
    // The end of the open `mark` element, in UTF-16 units.
    let mut open: Option<u64> = None;
    for c in text.chars() {
        let end = start + c.len_utf16() as u64;
        if open.is_some_and(|mark_end| mark_end <= start) {
            out.push_str("</mark>");
            open = None;
        }
        while let Some(mark) = marks.next_if(|mark| u64::from(mark.start) < end) {
            let mark_end = u64::from(mark.start) + u64::from(mark.length);
            if open.is_none() && mark_end > start {
                out.push_str("<mark>");
                open = Some(mark_end);
            } else {
                open = open.map(|open_end| open_end.max(mark_end));
            }
        }
        push_escaped_char(out, c);
        start = end;
    }
    if open.is_some() {
        out.push_str("</mark>");
    }
}

/// Whether an address leads to a page of this host: a path from its root, and not `//host`. Browsers read `\` as `/`
/// and remove tabs and line ends, so that none of these may be in it.
pub(super) fn is_site_address(url: &str) -> bool {
    url.starts_with('/') && !url.starts_with("//") && !url.contains(|c: char| c == '\\' || c == ' ' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str, marks: &[(u32, u32)]) -> String {
        let mut out = String::new();
        push_marked(&mut out, text, &marks.iter().map(|&mark| ExcerptMark::from(mark)).collect::<Vec<_>>());
        out
    }

    #[test]
    fn text_cannot_become_markup_or_change_the_direction_of_other_text() {
        for (text, expected) in [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("\" onload='x' &lt;", "&quot; onload=&#39;x&#39; &amp;lt;"),
            ("a\0b\tc\nd\u{85}e", "a b c d e"),
            ("\u{202e}gnp.exe\u{2066}\u{200b}\u{feff}", "gnp.exe"),
            ("می\u{200c}خواهم 👩\u{200d}💻", "می\u{200c}خواهم 👩\u{200d}💻"),
            ("\u{fffe}\u{ffff}C++ --flag", "C++ --flag"),
        ] {
            let mut out = String::new();
            push_escaped(&mut out, text);
            assert_eq!(out, expected, "{text:?}");
        }
    }

    #[test]
    fn marks_are_counted_in_utf16_units() {
        for (text, marks, expected) in [
            ("abc", &[(0, 3)][..], "<mark>abc</mark>"),
            ("abc", &[(0, 1), (2, 1)], "<mark>a</mark>b<mark>c</mark>"),
            ("äöü", &[(1, 1)], "ä<mark>ö</mark>ü"),
            ("線程池", &[(1, 2)], "線<mark>程池</mark>"),
            ("😀x", &[(2, 1)], "😀<mark>x</mark>"),
            ("a😀b", &[(1, 2)], "a<mark>😀</mark>b"),
            ("<b>&", &[(0, 3)], "<mark>&lt;b&gt;</mark>&amp;"),
            ("ab", &[(0, 1), (1, 1)], "<mark>a</mark><mark>b</mark>"),
            // A character that is left out counts all the same.
            ("\u{200b}ab", &[(1, 1)], "<mark>a</mark>b"),
        ] {
            assert_eq!(marked(text, marks), expected, "{text:?}");
        }
    }

    #[test]
    fn marks_in_wrong_places_break_nothing() {
        for (text, marks, expected) in [
            // Inside a surrogate pair.
            ("a😀b", &[(2, 1)][..], "a<mark>😀</mark>b"),
            ("a😀b", &[(0, 2)], "<mark>a😀</mark>b"),
            ("a😀b", &[(2, 2)], "a<mark>😀b</mark>"),
            // Empty, beyond the text, not in order, overlapping, nested.
            ("abc", &[(1, 0)], "abc"),
            ("abc", &[(3, 1), (u32::MAX, u32::MAX)], "abc"),
            ("abc", &[(2, u32::MAX)], "ab<mark>c</mark>"),
            ("abc", &[(2, 1), (0, 1)], "<mark>a</mark>b<mark>c</mark>"),
            ("abcd", &[(0, 2), (1, 2)], "<mark>abc</mark>d"),
            ("abcd", &[(0, 4), (1, 1)], "<mark>abcd</mark>"),
            ("", &[(0, 1)], ""),
        ] {
            assert_eq!(marked(text, marks), expected, "{text:?} {marks:?}");
        }
    }

    #[test]
    fn only_paths_of_this_host_are_links() {
        for url in ["/", "/docs/a.html#b", "/a?b=//c", "/%E7%B7%9A#線程"] {
            assert!(is_site_address(url), "{url}");
        }
        for url in ["", "a", "//evil.example/", "/\\evil.example", "/\t/evil.example", "javascript:alert(1)", "/a b"] {
            assert!(!is_site_address(url), "{url}");
        }
    }
}
