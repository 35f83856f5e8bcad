//! Writes response heads in the form of HTTP/1.1 (RFC 9112, sections 4 and 5).

use std::cell::RefCell;

use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, StatusCode};

use crate::header_pool;

thread_local! {
    /// The second, since 1970, of the cached date, and the formatted date.
    static FORMATTED_DATE: RefCell<(u64, [u8; DATE_BYTES])> = const { RefCell::new((0, [0; DATE_BYTES])) };
}

/// The length of a date such as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7) in bytes.
const DATE_BYTES: usize = 29;

/// Writes the status line and the header fields without `Date`, `Connection` and the empty line. `len` is the length of
/// the body, also if none is sent.
pub(super) fn write_head(status: StatusCode, fields: &HeaderMap, len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    for (name, value) in fields.iter().filter(|(name, _)| *name != CONNECTION) {
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
    }
    // A status without a body has no Content-Length (RFC 9110, section 8.6).
    let may_have_body = status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
    if may_have_body && !fields.contains_key(CONTENT_LENGTH) {
        out.extend_from_slice(b"\r\ncontent-length: ");
        write_number(len, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the last fields of a head and the empty line.
pub(super) fn write_end(closes: bool, out: &mut Vec<u8>) {
    if closes {
        out.extend_from_slice(b"connection: close\r\n");
    }
    out.extend_from_slice(b"date: ");
    write_date(out);
    out.extend_from_slice(b"\r\n\r\n");
}

fn write_date(out: &mut Vec<u8>) {
    let second = header_pool::unix_seconds_now();
    FORMATTED_DATE.with_borrow_mut(|(cached_second, text)| {
        if *cached_second != second {
            // The conversion fails only for a year of five digits.
            if let Ok(written) = header_pool::format_http_date(second).as_bytes().try_into() {
                (*cached_second, *text) = (second, written);
            }
        }
        out.extend_from_slice(text);
    });
}

fn write_number(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::ETAG;

    use super::*;

    fn render_head(status: StatusCode, fields: &HeaderMap, len: u64) -> String {
        let mut out = Vec::new();
        write_head(status, fields, len, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_response_head_has_content_length_unless_the_status_forbids_a_body() {
        let mut fields = HeaderMap::new();
        fields.insert(ETAG, HeaderValue::from_static("\"x\""));
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
        let expected = "HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 1234567890\r\n";
        assert_eq!(render_head(StatusCode::OK, &fields, 1_234_567_890), expected);
        assert_eq!(render_head(StatusCode::NOT_MODIFIED, &fields, 0), "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n");
        fields.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        let expected = "HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 7\r\n";
        assert_eq!(render_head(StatusCode::OK, &fields, 0), expected);
        assert!(render_head(StatusCode::NOT_FOUND, &HeaderMap::new(), 0).ends_with("\r\ncontent-length: 0\r\n"));
    }

    #[test]
    fn a_response_head_ends_with_a_valid_date_field() {
        let mut out = Vec::new();
        write_end(true, &mut out);
        let text = String::from_utf8(out).unwrap();
        let date = text.strip_prefix("connection: close\r\ndate: ").and_then(|rest| rest.strip_suffix("\r\n\r\n"));
        assert!(httpdate::parse_http_date(date.unwrap()).is_ok(), "{text}");
    }

    #[test]
    fn content_length_is_written_in_full_for_every_body_length() {
        for len in [0, 9, 10, 99, 100, 1_000_000, u64::from(u32::MAX) + 1, u64::MAX] {
            let text = render_head(StatusCode::OK, &HeaderMap::new(), len);
            assert_eq!(text, format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n"));
        }
        assert_eq!(render_head(StatusCode::NO_CONTENT, &HeaderMap::new(), 0), "HTTP/1.1 204 No Content\r\n");
        let mut out = Vec::new();
        write_end(false, &mut out);
        assert!(
            out.starts_with(b"date: ") && out.len() == DATE_BYTES + 10,
            "a connection that stays open has no Connection field"
        );
    }

    #[test]
    fn the_date_of_an_earlier_second_is_not_sent_again() {
        FORMATTED_DATE.set((1, *b"Thu, 01 Jan 1970 00:00:01 GMT"));
        let mut out = Vec::new();
        write_end(false, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("date: ") && !text.contains(" 1970 "), "{text}");
    }
}
