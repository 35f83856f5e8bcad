//! Requests as HTTP/2 header fields (RFC 9113, sections 8.2 and 8.3): checks that they are well formed, and collects
//! the fields that the response depends on. Pure.

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderName, HeaderValue, Method, Request, Version};

use crate::header_pool;
use crate::host_field::{is_host, is_plain_host, is_same_host};
use crate::recording::recorded_fields::RecordedFields;
use crate::response_cache::{CacheKey, set_key_part};

use super::hpack::DecodedFields;

/// The fields of a well-formed request that are needed before it is passed on.
#[derive(Debug, Default)]
pub(super) struct RequestFields<'a> {
    method: &'a [u8],
    /// Empty if absent, as are the two fields that follow.
    target: &'a [u8],
    scheme: &'a [u8],
    authority: &'a [u8],
    /// The declared Content-Length.
    pub(super) content_length: Option<u64>,
    /// The cache key of the response; `None` if the response depends on more than the key holds.
    pub(super) cache_key: Option<CacheKey<'a>>,
    /// The fields by which views are counted.
    pub(super) recorded: RecordedFields<'a>,
}

/// Checks the fields of a request; `None` if it is malformed (RFC 9113, section 8.1.1).
pub(super) fn check_request_fields(fields: &DecodedFields) -> Option<RequestFields<'_>> {
    let mut request_fields = RequestFields::default();
    let mut key = CacheKey::default();
    let (mut is_cacheable, mut has_regular_field, mut host) = (true, false, None);
    for (name, value) in fields.iter() {
        if !is_field_value(value) {
            return None;
        }
        if name.first() == Some(&b':') {
            let slot = match name {
                b":method" => &mut request_fields.method,
                b":path" => &mut request_fields.target,
                b":scheme" => &mut request_fields.scheme,
                b":authority" => &mut request_fields.authority,
                _ => return None,
            };
            // A pseudo-header field occurs once, before all other fields, and is not empty. An empty slot therefore
            // means that the field was absent so far.
            if has_regular_field || !slot.is_empty() || value.is_empty() {
                return None;
            }
            *slot = value;
            continue;
        }
        has_regular_field = true;
        if !is_field_name(name) || is_connection_specific(name, value) {
            return None;
        }
        match name {
            b"accept-encoding" => is_cacheable &= set_key_part(&mut key.accept_encoding, value),
            b"accept" => is_cacheable &= set_key_part(&mut key.accept, value),
            b"if-none-match" => is_cacheable &= set_key_part(&mut key.if_none_match, value),
            b"host" => (host, is_cacheable) = (Some(value), false),
            b"range" | b"if-range" | b"if-match" | b"if-modified-since" | b"if-unmodified-since" => {
                is_cacheable = false;
            }
            b"content-length" => {
                let length = std::str::from_utf8(value).ok()?.parse().ok().filter(|_| value[0].is_ascii_digit())?;
                if request_fields.content_length.is_some_and(|previous| previous != length) {
                    return None;
                }
                request_fields.content_length = Some(length);
            }
            _ => request_fields.recorded.add(name, value),
        }
    }
    if !has_required_pseudo_fields(&request_fields)
        || host.is_some_and(|host| !is_same_host(request_fields.scheme, request_fields.authority, host))
    {
        return None;
    }
    request_fields.recorded.host = request_fields.authority;
    key.is_head = request_fields.method == b"HEAD";
    key.target = std::str::from_utf8(request_fields.target).ok()?;
    is_cacheable &= key.is_head || request_fields.method == b"GET";
    is_cacheable &= matches!(request_fields.scheme, b"http" | b"https");
    request_fields.cache_key = is_cacheable.then_some(key);
    Some(request_fields)
}

/// Returns whether these fields may be trailers: no pseudo-header fields, and none that is malformed (RFC 9113, section
/// 8.1).
pub(super) fn are_trailers(fields: &DecodedFields) -> bool {
    fields
        .iter()
        .all(|(name, value)| is_field_name(name) && is_field_value(value) && !is_connection_specific(name, value))
}

/// Returns whether a field is connection-specific (RFC 9113, section 8.2.2).
fn is_connection_specific(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => true,
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// Returns whether the pseudo-header fields that the method needs are present and valid (RFC 9113, sections 8.3.1 and
/// 8.5).
fn has_required_pseudo_fields(request_fields: &RequestFields<'_>) -> bool {
    // A fragment is not part of a request target (RFC 9110, section 7.1).
    if request_fields.target.contains(&b'#')
        || !(request_fields.authority.is_empty() || is_authority(request_fields.authority))
    {
        return false;
    }
    match request_fields.method {
        b"" => false,
        b"CONNECT" => {
            request_fields.target.is_empty() && request_fields.scheme.is_empty() && !request_fields.authority.is_empty()
        }
        b"OPTIONS" if request_fields.target == b"*" => !request_fields.scheme.is_empty(),
        _ => request_fields.target.starts_with(b"/") && !request_fields.scheme.is_empty(),
    }
}

/// Returns whether a text is a host with an optional port, as in `Host` (RFC 9113, section 8.3.1, and RFC 9110, section
/// 7.2); userinfo is not allowed.
fn is_authority(text: &[u8]) -> bool {
    is_plain_host(text) || HeaderValue::from_bytes(text).is_ok_and(|value| is_host(&value))
}

/// Returns whether a text is a valid field value: no whitespace at its ends (RFC 9113, section 8.2.1) and no control
/// characters (RFC 9110, section 5.5).
fn is_field_value(text: &[u8]) -> bool {
    let is_whitespace = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_in_value = |byte: u8| (byte >= 0x20 && byte != 0x7f) || byte == b'\t';
    // Without an early exit the compiler can check many bytes at a time.
    text.iter().fold(true, |is_valid, &byte| is_valid & is_in_value(byte))
        && !is_whitespace(text.first())
        && !is_whitespace(text.last())
}

/// Returns whether a text is a valid field name: a token (RFC 9110, section 5.6.2) without uppercase letters (RFC 9113,
/// section 8.2.1).
fn is_field_name(text: &[u8]) -> bool {
    let is_in_name =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_in_name)
}

/// Builds the request for the handler; `None` if a part of it does not parse.
pub(super) fn build_request(request_fields: &RequestFields<'_>, fields: &DecodedFields) -> Option<Request<()>> {
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = Method::from_bytes(request_fields.method).ok()?;
    *request.uri_mut() = build_uri(request_fields)?;
    let mut map = header_pool::take_header_map();
    for (name, value) in fields.iter().filter(|(name, _)| name[0] != b':') {
        map.try_append(HeaderName::from_lowercase(name).ok()?, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    *request.headers_mut() = map;
    Some(request)
}

/// Builds a request from the stored fields of a request whose header list is too large: its method, and `*` as the
/// target.
pub(super) fn build_partial_request(fields: &DecodedFields) -> Request<()> {
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_static("*");
    if let Some(method) = fields.get(b":method").and_then(|method| Method::from_bytes(method).ok()) {
        *request.method_mut() = method;
    }
    request
}

fn build_uri(request_fields: &RequestFields<'_>) -> Option<Uri> {
    let shared = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let mut parts = http::uri::Parts::default();
    if !request_fields.target.is_empty() {
        parts.path_and_query = Some(PathAndQuery::from_maybe_shared(shared(request_fields.target)).ok()?);
    }
    if !request_fields.authority.is_empty() && request_fields.target != b"*" {
        // Userinfo is refused, because it would be a secret in a URL.
        let authority = Some(request_fields.authority).filter(|authority| !authority.contains(&b'@'))?;
        parts.authority = Some(Authority::from_maybe_shared(shared(authority)).ok()?);
        if !request_fields.scheme.is_empty() {
            parts.scheme = Some(Scheme::try_from(request_fields.scheme).ok()?);
        }
    }
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::super::hpack::{HpackDecoder, encode};
    use super::*;

    fn fields(list: &[(&str, &str)]) -> DecodedFields {
        let (mut block, mut fields) = (Vec::new(), DecodedFields::default());
        for (name, value) in list {
            encode::append_field(name, value.as_bytes(), &mut block);
        }
        HpackDecoder::default().decode(&block, &mut fields).unwrap();
        fields
    }

    const USUAL: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/a?b"), (":authority", "docs.example")];

    #[test]
    fn the_cache_key_of_an_http2_request_contains_its_negotiation_fields() {
        let more = [("accept-encoding", "gzip"), ("accept", "*/*"), ("if-none-match", "\"x\""), ("te", "trailers")];
        let list = fields(&[&USUAL[..], &more].concat());
        let request_fields = check_request_fields(&list).unwrap();
        let key = CacheKey {
            is_head: false,
            target: "/a?b",
            accept_encoding: b"gzip",
            accept: b"*/*",
            if_none_match: b"\"x\"",
        };
        assert_eq!(request_fields.cache_key, Some(key));
        let request = build_request(&request_fields, &list).unwrap();
        assert_eq!((request.uri().to_string().as_str(), request.headers().len()), ("https://docs.example/a?b", 4));
        for field in [("range", "bytes=0-1"), ("host", "docs.example"), ("accept", ""), ("if-modified-since", "x")] {
            let list = fields(&[&USUAL[..], &[field]].concat());
            assert_eq!(check_request_fields(&list).unwrap().cache_key, None, "{field:?}");
        }
        let mut list = USUAL;
        list[0] = (":method", "POST");
        assert_eq!(check_request_fields(&fields(&list)).unwrap().cache_key, None);
    }

    #[test]
    fn a_malformed_value_path_or_authority_makes_a_request_malformed() {
        let is_accepted = |index: usize, field: (&str, &str)| {
            let mut list = USUAL.to_vec();
            if index < list.len() {
                list[index] = field;
            } else {
                list.push(field);
            }
            check_request_fields(&fields(&list)).is_some()
        };
        for (value, expected) in
            [("a b", true), ("a\tb", true), ("", true), (" a", false), ("a ", false), ("\ta", false), ("a\t", false)]
        {
            assert_eq!(is_accepted(4, ("x-a", value)), expected, "{value:?}");
        }
        for (value, expected) in [("\u{fc}", true), ("a\u{1}b", false), ("a\nb", false), ("a\u{7f}b", false)] {
            assert_eq!(is_accepted(4, ("x-a", value)), expected, "{value:?}");
        }
        for (path, expected) in [("/a?b", true), ("/a%23b", true), ("/a#b", false), ("/a?b#c", false), ("/ ", false)] {
            assert_eq!(is_accepted(2, (":path", path)), expected, "{path:?}");
        }
        for (authority, expected) in [
            ("docs.example:8443", true),
            ("DOCS.example", true),
            ("under_score.example", true),
            ("[::1]:80", true),
            ("127.0.0.1", true),
            ("docs.example:", true),
            ("host:port", false),
            ("docs.example:80:80", false),
            ("a@docs.example", false),
            ("a:b@docs.example", false),
            ("docs.example/a", false),
            ("[::1", false),
            (":80", false),
            ("a b", false),
        ] {
            assert_eq!(is_accepted(3, (":authority", authority)), expected, "{authority:?}");
        }
    }

    #[test]
    fn a_host_field_must_match_the_authority_pseudo_header() {
        for (scheme, authority, host, expected) in [
            ("https", "docs.example", "docs.example", true),
            ("https", "docs.example", "Docs.Example", true),
            ("https", "docs.example:443", "docs.example", true),
            ("http", "docs.example", "docs.example:80", true),
            ("https", "docs.example:", "docs.example", true),
            ("https", "docs.example", "docs.example:", true),
            ("http", "docs.example:443", "docs.example", false),
            ("https", "docs.example", "docs.example:80", false),
            ("https", "docs.example:8443", "docs.example", false),
            ("https", "docs.example", "other.example", false),
            ("https", "docs.example", "", false),
        ] {
            let list = fields(&[
                (":method", "GET"),
                (":scheme", scheme),
                (":path", "/"),
                (":authority", authority),
                ("host", host),
            ]);
            assert_eq!(check_request_fields(&list).is_some(), expected, "{scheme} {authority} {host}");
        }
        let list = fields(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", "any.example")]);
        assert!(check_request_fields(&list).is_some());
    }

    #[test]
    fn trailers_are_valid_only_without_pseudo_headers_and_connection_fields() {
        for (field, expected) in [
            (("x-checksum", "abc"), true),
            (("te", "trailers"), true),
            ((":path", "/"), false),
            ((":status", "200"), false),
            (("X-Checksum", "abc"), false),
            (("x-a", " b"), false),
            (("x-a", "b\0"), false),
            (("", "b"), false),
            (("connection", "close"), false),
        ] {
            assert_eq!(are_trailers(&fields(&[("x-first", "a"), field])), expected, "{field:?}");
        }
    }

    #[test]
    fn connect_has_no_path_and_only_options_may_use_the_asterisk_path() {
        for (list, expected) in [
            (&[(":method", "CONNECT"), (":authority", "x:1")][..], Some("x:1")),
            (&[(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "x")], Some("*")),
            (&[(":method", "CONNECT"), (":authority", "x"), (":path", "/"), (":scheme", "http")], None),
            (&[(":method", "GET"), (":scheme", "http"), (":path", "*"), (":authority", "x")], None),
            (&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a@x")], None),
            (&[(":method", "GET"), (":scheme", "a b"), (":path", "/"), (":authority", "x")], None),
            (&[(":method", "GET"), (":scheme", "http"), (":path", "/")], Some("/")),
        ] {
            let list = fields(list);
            let uri = check_request_fields(&list)
                .and_then(|request_fields| build_request(&request_fields, &list))
                .map(|request| request.uri().to_string());
            assert_eq!(uri.as_deref(), expected);
        }
    }

    #[test]
    fn content_length_must_be_a_number_and_repeated_values_must_agree() {
        for (lengths, expected) in
            [(&["5"][..], Some(5)), (&["5", "5"], Some(5)), (&["5", "6"], None), (&["+5"], None), (&[""], None)]
        {
            let list: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
            let list = fields(&[&USUAL[..], &list].concat());
            assert_eq!(
                check_request_fields(&list).and_then(|request_fields| request_fields.content_length),
                expected,
                "{lengths:?}"
            );
        }
    }
}
