//! Parses the head of a request: decides whether the request is plain, and collects the fields that its response
//! depends on. Pure.
//!
//! A plain request is a complete GET or HEAD of HTTP/1.1 in origin form, without a body, an upgrade or an expectation.
//! Any other request, and one that does not parse, is served elsewhere from its first byte on; see
//! [`Http1Outcome`](super::Http1Outcome). hyper uses the same parser.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Request, Status};

use crate::host_field::is_plain_host;
use crate::recording::recorded_fields::RecordedFields;
use crate::response_cache::{CacheKey, set_key_part};

/// The largest number of header fields; a request with more is passed to hyper, which has a separate limit.
const MAX_FIELDS: usize = 64;
/// The largest request head in bytes; a longer one is passed to hyper, which has a separate limit.
pub const MAX_PLAIN_HEAD_BYTES: usize = 16 * 1024;

/// The result of parsing received bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum HeadOutcome<'a> {
    /// The head of a plain request.
    Plain(PlainRequestHead<'a>),
    /// A partial request head.
    Partial,
    /// A request that is not plain.
    NotPlain,
}

/// The head of a plain request.
#[derive(Debug, PartialEq, Eq)]
pub struct PlainRequestHead<'a> {
    /// The complete head, the empty line included.
    pub bytes: &'a [u8],
    /// True for GET, false for HEAD.
    pub is_get: bool,
    /// The request target: path and query.
    pub target: &'a str,
    /// Whether the client requests the end of the connection (`Connection: close`).
    pub closes: bool,
    /// The cache key of the response; `None` if the response depends on more than the key holds.
    pub(super) cache_key: Option<CacheKey<'a>>,
    /// The fields by which views are counted.
    pub(super) fields: RecordedFields<'a>,
}

/// Parses the first request head in `bytes`.
pub fn parse_head(bytes: &[u8]) -> HeadOutcome<'_> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = Request::new(&mut []);
    let parsed = ParserConfig::default().parse_request_with_uninit_headers(&mut request, bytes, &mut fields);
    let len = match parsed {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if bytes.len() <= MAX_PLAIN_HEAD_BYTES => return HeadOutcome::Partial,
        _ => return HeadOutcome::NotPlain,
    };
    let is_get = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return HeadOutcome::NotPlain,
    };
    let (Some(target), Some(1)) = (request.path, request.version) else { return HeadOutcome::NotPlain };
    if !target.starts_with('/') || len > MAX_PLAIN_HEAD_BYTES {
        return HeadOutcome::NotPlain;
    }
    let fields = RecordedFields::default();
    let mut head = PlainRequestHead { bytes: &bytes[..len], is_get, target, closes: false, cache_key: None, fields };
    if classify_fields(&mut head, request.headers) { HeadOutcome::Plain(head) } else { HeadOutcome::NotPlain }
}

/// Calls `visit` with the name and value of each header field of a parsed head.
pub fn for_each_field<'a>(bytes: &'a [u8], mut visit: impl FnMut(&'a str, &'a [u8])) {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = Request::new(&mut []);
    if ParserConfig::default().parse_request_with_uninit_headers(&mut request, bytes, &mut fields).is_ok() {
        request.headers.iter().for_each(|field| visit(field.name, field.value));
    }
}

/// Returns whether the request is plain with these header fields, and sets its cache key.
fn classify_fields<'a>(head: &mut PlainRequestHead<'a>, fields: &[Header<'a>]) -> bool {
    let mut key = CacheKey { is_head: !head.is_get, target: head.target, ..CacheKey::default() };
    let (mut hosts, mut is_cacheable) = (0, true);
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            4 if is("host") => {
                hosts += 1;
                is_cacheable &= is_plain_host(field.value);
                head.fields.host = field.value;
            }
            15 if is("accept-encoding") => is_cacheable &= set_key_part(&mut key.accept_encoding, field.value),
            6 if is("accept") => is_cacheable &= set_key_part(&mut key.accept, field.value),
            13 if is("if-none-match") => is_cacheable &= set_key_part(&mut key.if_none_match, field.value),
            10 if is("connection") => match field.value {
                value if value.eq_ignore_ascii_case(b"keep-alive") => {}
                value if value.eq_ignore_ascii_case(b"close") => head.closes = true,
                _ => return false,
            },
            14 if is("content-length") => return false,
            17 if is("transfer-encoding") => return false,
            6 if is("expect") => return false,
            7 if is("upgrade") => return false,
            5 if is("range") => is_cacheable = false,
            8 if is("if-range") || is("if-match") => is_cacheable = false,
            17 if is("if-modified-since") => is_cacheable = false,
            19 if is("if-unmodified-since") => is_cacheable = false,
            _ => head.fields.add(field.name.as_bytes(), field.value),
        }
    }
    head.cache_key = (is_cacheable && hosts == 1).then_some(key);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> HeadOutcome<'_> {
        parse_head(text.as_bytes())
    }

    #[test]
    fn a_plain_request_head_is_parsed_with_its_cache_key() {
        let text = "GET /a?b HTTP/1.1\r\nHost: x:80\r\nAccept-Encoding: gzip\r\nConnection: Close\r\n\r\nGET";
        let HeadOutcome::Plain(head) = parse(text) else { panic!("the request is plain") };
        assert_eq!((head.bytes.len(), head.target, head.is_get, head.closes), (text.len() - 3, "/a?b", true, true));
        assert_eq!(head.cache_key, Some(CacheKey { target: "/a?b", accept_encoding: b"gzip", ..CacheKey::default() }));
    }

    #[test]
    fn range_condition_and_repeated_fields_leave_a_plain_request_without_a_cache_key() {
        for field in [
            "Range: bytes=0-1",
            "IF-RANGE: x",
            "If-Match: *",
            "If-Modified-Since: x",
            "if-unmodified-since: x",
            "Host: y",
            "Accept: a\r\nAccept: b",
            "Accept-Encoding: gzip\r\nAccept-Encoding: br",
            "Accept-Encoding:\r\nAccept-Encoding: br",
            "If-None-Match: \"a\"\r\nIf-None-Match: \"b\"",
        ] {
            let text = format!("HEAD / HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n");
            let HeadOutcome::Plain(head) = parse(&text) else { panic!("{field}") };
            assert!(!head.is_get && head.cache_key.is_none(), "{field}");
        }
        for host in ["Host: [::1]", "Host: ", "Host: a b", "Host: x:y", "X: y"] {
            let text = format!("GET / HTTP/1.1\r\n{host}\r\n\r\n");
            let HeadOutcome::Plain(head) = parse(&text) else { panic!("{host}") };
            assert_eq!(head.cache_key, None, "{host}");
        }
    }

    #[test]
    fn other_methods_versions_bodies_and_malformed_heads_are_not_plain_requests() {
        for text in [
            "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
            "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nTransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, close\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            "\0",
        ] {
            assert_eq!(parse(text), HeadOutcome::NotPlain, "{text:?}");
        }
        assert_eq!(parse("GET / HTT"), HeadOutcome::Partial);
        assert_eq!(parse(""), HeadOutcome::Partial);
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(MAX_PLAIN_HEAD_BYTES));
        assert_eq!(parse(&long), HeadOutcome::NotPlain);
    }

    #[test]
    fn request_heads_are_plain_up_to_the_byte_and_field_limits() {
        let head_of_len = |len: usize| {
            let frame = "GET / HTTP/1.1\r\nHost: x\r\nA: \r\n\r\n";
            frame.replace("A: ", &format!("A: {}", "a".repeat(len - frame.len())))
        };
        for (len, expected) in [(100, true), (MAX_PLAIN_HEAD_BYTES, true), (MAX_PLAIN_HEAD_BYTES + 1, false)] {
            let text = head_of_len(len);
            assert_eq!(text.len(), len);
            assert_eq!(matches!(parse(&text), HeadOutcome::Plain(head) if head.bytes.len() == len), expected, "{len}");
            // Without its last byte the head is incomplete.
            assert_eq!(parse(&text[..len - 1]), HeadOutcome::Partial, "{len}");
        }
        assert_eq!(parse(&head_of_len(MAX_PLAIN_HEAD_BYTES + 10)[..=MAX_PLAIN_HEAD_BYTES]), HeadOutcome::NotPlain);
        for (count, expected) in [(MAX_FIELDS, true), (MAX_FIELDS + 1, false)] {
            let text = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
            assert_eq!(matches!(parse(&text), HeadOutcome::Plain(_)), expected, "{count} fields");
        }
    }

    #[test]
    fn the_cache_key_contains_accept_accept_encoding_and_if_none_match() {
        let text = "HEAD /a?b HTTP/1.1\r\nhost: x\r\nACCEPT: text/html\r\nAccept-Encoding: br\r\n\
                    if-none-match: \"a\", \"b\"\r\nCookie: c\r\nAccepts: d\r\nconnection: Keep-Alive\r\n\r\n";
        let HeadOutcome::Plain(head) = parse(text) else { panic!("the request is plain") };
        let key = CacheKey {
            is_head: true,
            target: "/a?b",
            accept_encoding: b"br",
            accept: b"text/html",
            if_none_match: b"\"a\", \"b\"",
        };
        assert_eq!(head.cache_key, Some(key));
        assert!(!head.closes && !head.is_get);
        let mut fields = Vec::new();
        for_each_field(head.bytes, |name, value| fields.push((name, value)));
        assert_eq!(fields.len(), 7);
        assert_eq!((fields[0], fields[4]), (("host", &b"x"[..]), ("Cookie", &b"c"[..])));
    }
}
