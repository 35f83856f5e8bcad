//! The character encoding of a page.

use std::borrow::Cow;

use memchr::memmem;

/// The number of bytes at the start of a page in which an encoding may be declared (HTML Standard, 13.2.3.2).
const DECLARATION_BYTES: usize = 1024;

/// A page as the HTML parser reads it.
pub(crate) struct PageBytes<'a> {
    /// The page in an encoding that is compatible with ASCII, without a byte order mark.
    pub(crate) bytes: Cow<'a, [u8]>,
    /// Whether the page may declare an encoding that is not UTF-8.
    pub(crate) declares_encoding: bool,
}

/// Removes the byte order mark of a page and decodes UTF-16. A byte order mark overrides a declaration.
pub(crate) fn decode_byte_order_mark(page: &[u8]) -> PageBytes<'_> {
    let (bytes, declares_encoding) = if let Some(rest) = page.strip_prefix(b"\xef\xbb\xbf") {
        (Cow::Borrowed(rest), false)
    } else if let Some(rest) = page.strip_prefix(b"\xff\xfe") {
        (Cow::Owned(decode_utf_16(rest, u16::from_le_bytes)), false)
    } else if let Some(rest) = page.strip_prefix(b"\xfe\xff") {
        (Cow::Owned(decode_utf_16(rest, u16::from_be_bytes)), false)
    } else {
        (Cow::Borrowed(page), may_declare_encoding(page))
    };
    PageBytes { bytes, declares_encoding }
}

fn decode_utf_16(page: &[u8], read_unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let units = page.as_chunks::<2>().0.iter().map(|&pair| read_unit(pair));
    let text: String =
        char::decode_utf16(units).map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.into_bytes()
}

/// Whether the start of a page contains `charset=` with a label that is not UTF-8. The HTML parser then reads the
/// `meta` elements; a match in other text has no effect.
fn may_declare_encoding(page: &[u8]) -> bool {
    let start = page[..page.len().min(DECLARATION_BYTES)].to_ascii_lowercase();
    memmem::find_iter(&start, b"charset").any(|at| {
        let rest = start[at + b"charset".len()..].trim_ascii_start();
        let Some(value) = rest.strip_prefix(b"=") else { return false };
        let value = value.trim_ascii_start();
        let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b';' | b'>' | b'/');
        let label = &value[..value.iter().position(is_end).unwrap_or(value.len())];
        !matches!(label, b"" | b"utf-8" | b"utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_encoding_other_than_utf_8_is_declared() {
        for (page, expected) in [
            ("<p>charset", false),
            ("<meta charset=utf-8>", false),
            ("<META CHARSET = 'UTF-8'>", false),
            ("<meta charset=\"\">", false),
            ("<meta charset=iso-8859-1>", true),
            ("<meta http-equiv=Content-Type content=\"text/html; charset=windows-1252\">", true),
            ("<script charset=utf-8></script><meta charset='shift_jis'/>", true),
        ] {
            assert_eq!(decode_byte_order_mark(page.as_bytes()).declares_encoding, expected, "{page}");
        }
        let late = format!("{}<meta charset=iso-8859-1>", " ".repeat(DECLARATION_BYTES));
        assert!(!may_declare_encoding(late.as_bytes()));
    }

    #[test]
    fn utf_16_pages_with_a_byte_order_mark_are_decoded() {
        let text = "<p>größe 😀";
        for mark in [[0xff, 0xfe], [0xfe, 0xff]] {
            let unit_bytes = |unit: u16| if mark[0] == 0xff { unit.to_le_bytes() } else { unit.to_be_bytes() };
            let mut page: Vec<u8> = mark.to_vec();
            page.extend(text.encode_utf16().flat_map(unit_bytes));
            assert_eq!(decode_byte_order_mark(&page).bytes, text.as_bytes());
            // Half a character at the end is not read.
            page.push(0x20);
            assert_eq!(decode_byte_order_mark(&page).bytes, text.as_bytes());
        }
        assert_eq!(decode_byte_order_mark(b"\xff\xfe\x00\xd8").bytes, "\u{fffd}".as_bytes());
        assert_eq!(decode_byte_order_mark(b"\xef\xbb\xbf<p>").bytes, b"<p>".as_slice());
    }
}
