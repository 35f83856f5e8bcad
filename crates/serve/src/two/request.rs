//! Requests as fields (RFC 9113, 8.2 and 8.3): which are well formed, and what of them an answer depends on. Pure.

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderName, HeaderValue, Method, Request, Version};

use crate::handler::is_host;
use crate::memo::{Question, put};
use crate::plain::is_plain_host;
use crate::spare;

use super::hpack::Fields;

/// A request that is well formed as far as its fields tell.
#[derive(Debug, Default)]
pub(super) struct Asked<'a> {
    method: &'a [u8],
    /// Empty where there is none, as in the two that follow.
    target: &'a [u8],
    scheme: &'a [u8],
    authority: &'a [u8],
    /// Bytes that are to follow, if it says.
    pub(super) length: Option<u64>,
    /// What the answer depends on; `None` if on more than that.
    pub(super) question: Option<Question<'a>>,
}

/// Looks at the fields of a request; nothing if it is malformed (RFC 9113, 8.1.1).
pub(super) fn judge(fields: &Fields) -> Option<Asked<'_>> {
    let mut asked = Asked::default();
    let mut question = Question::default();
    let (mut is_whole, mut is_past_pseudo, mut host) = (true, false, None);
    for (name, value) in fields.iter() {
        if !is_value(value) {
            return None;
        }
        if name.first() == Some(&b':') {
            let place = match name {
                b":method" => &mut asked.method,
                b":path" => &mut asked.target,
                b":scheme" => &mut asked.scheme,
                b":authority" => &mut asked.authority,
                _ => return None,
            };
            // Each once, before all others, and never empty: so that empty means that there is none.
            if is_past_pseudo || !place.is_empty() || value.is_empty() {
                return None;
            }
            *place = value;
            continue;
        }
        is_past_pseudo = true;
        if !is_name(name) || is_of_a_connection(name, value) {
            return None;
        }
        match name {
            b"accept-encoding" => is_whole &= put(&mut question.encodings, value),
            b"accept" => is_whole &= put(&mut question.types, value),
            b"if-none-match" => is_whole &= put(&mut question.tags, value),
            b"host" => (host, is_whole) = (Some(value), false),
            b"range" | b"if-range" | b"if-match" | b"if-modified-since" | b"if-unmodified-since" => is_whole = false,
            b"content-length" => {
                let length = std::str::from_utf8(value).ok()?.parse().ok().filter(|_| value[0].is_ascii_digit())?;
                if asked.length.is_some_and(|other| other != length) {
                    return None;
                }
                asked.length = Some(length);
            }
            _ => {}
        }
    }
    if !has_what_it_must(&asked) || host.is_some_and(|host| !is_same_host(&asked, host)) {
        return None;
    }
    question.is_head = asked.method == b"HEAD";
    question.target = std::str::from_utf8(asked.target).ok()?;
    is_whole &= question.is_head || asked.method == b"GET";
    is_whole &= matches!(asked.scheme, b"http" | b"https");
    asked.question = is_whole.then_some(question);
    Some(asked)
}

/// Whether these fields may come behind the body of a request: no pseudo-header fields, and none that is malformed (RFC 9113, 8.1).
pub(super) fn are_trailers(fields: &Fields) -> bool {
    fields.iter().all(|(name, value)| is_name(name) && is_value(value) && !is_of_a_connection(name, value))
}

/// Whether a field is about a connection of HTTP/1 (RFC 9113, 8.2.2).
fn is_of_a_connection(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => true,
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// Whether the pseudo-header fields are there that its method takes, and what they must be (RFC 9113, 8.3.1 and 8.5).
fn has_what_it_must(asked: &Asked<'_>) -> bool {
    // Where a target has a fragment, it is not sent (RFC 9110, 7.1).
    if asked.target.contains(&b'#') || !(asked.authority.is_empty() || is_authority(asked.authority)) {
        return false;
    }
    match asked.method {
        b"" => false,
        b"CONNECT" => asked.target.is_empty() && asked.scheme.is_empty() && !asked.authority.is_empty(),
        b"OPTIONS" if asked.target == b"*" => !asked.scheme.is_empty(),
        _ => asked.target.starts_with(b"/") && !asked.scheme.is_empty(),
    }
}

/// A host and perhaps a port, as the field `host` has them (RFC 9113, 8.3.1, and RFC 9110, 7.2): no names of users.
fn is_authority(text: &[u8]) -> bool {
    is_plain_host(text) || HeaderValue::from_bytes(text).is_ok_and(|value| is_host(&value))
}

/// Whether the field `host` names the same as `:authority`, if that is there (RFC 9113, 8.3.1). The port of the scheme need not
/// be said.
fn is_same_host(asked: &Asked<'_>, host: &[u8]) -> bool {
    let port: &[u8] = if asked.scheme == b"https" { b":443" } else { b":80" };
    let bare = |text| <[u8]>::strip_suffix(text, port).or_else(|| text.strip_suffix(b":")).unwrap_or(text);
    asked.authority.is_empty() || bare(asked.authority).eq_ignore_ascii_case(bare(host))
}

/// A field value must not begin or end with whitespace (RFC 9113, 8.2.1), nor have control characters (RFC 9110, 5.5).
fn is_value(text: &[u8]) -> bool {
    let is_whitespace = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_in_value = |byte: u8| (byte >= 0x20 && byte != 0x7f) || byte == b'\t';
    // To the end in any case: without a way out many bytes are looked at at a time.
    text.iter().fold(true, |is_value, &byte| is_value & is_in_value(byte))
        && !is_whitespace(text.first())
        && !is_whitespace(text.last())
}

/// A token (RFC 9110, 5.6.2) without uppercase letters (RFC 9113, 8.2.1).
fn is_name(text: &[u8]) -> bool {
    let is_in_name =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_in_name)
}

/// The same for whoever answers all others; none if it is not as good as it looks.
pub(super) fn request(asked: &Asked<'_>, fields: &Fields) -> Option<Request<()>> {
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = Method::from_bytes(asked.method).ok()?;
    *request.uri_mut() = uri(asked)?;
    let mut map = spare::fields();
    for (name, value) in fields.iter().filter(|(name, _)| name[0] != b':') {
        map.try_append(HeaderName::from_lowercase(name).ok()?, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    *request.headers_mut() = map;
    Some(request)
}

/// What is known of a request whose fields are not all there: its method, for `*`.
pub(super) fn partial_request(fields: &Fields) -> Request<()> {
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_static("*");
    if let Some(method) = fields.get(b":method").and_then(|method| Method::from_bytes(method).ok()) {
        *request.method_mut() = method;
    }
    request
}

fn uri(asked: &Asked<'_>) -> Option<Uri> {
    let shared = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let mut parts = http::uri::Parts::default();
    if !asked.target.is_empty() {
        parts.path_and_query = Some(PathAndQuery::from_maybe_shared(shared(asked.target)).ok()?);
    }
    if !asked.authority.is_empty() && asked.target != b"*" {
        // No names of users: they would be a secret in an address.
        let authority = Some(asked.authority).filter(|authority| !authority.contains(&b'@'))?;
        parts.authority = Some(Authority::from_maybe_shared(shared(authority)).ok()?);
        if !asked.scheme.is_empty() {
            parts.scheme = Some(Scheme::try_from(asked.scheme).ok()?);
        }
    }
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::super::hpack::{Decoder, encode};
    use super::*;

    fn fields(list: &[(&str, &str)]) -> Fields {
        let (mut block, mut fields) = (Vec::new(), Fields::default());
        for (name, value) in list {
            encode::field(name, value.as_bytes(), &mut block);
        }
        Decoder::default().decode(&block, &mut fields).unwrap();
        fields
    }

    const USUAL: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/a?b"), (":authority", "docs.example")];

    #[test]
    fn a_request_says_what_its_answer_depends_on() {
        let more = [("accept-encoding", "gzip"), ("accept", "*/*"), ("if-none-match", "\"x\""), ("te", "trailers")];
        let list = fields(&[&USUAL[..], &more].concat());
        let asked = judge(&list).unwrap();
        let question = Question { is_head: false, target: "/a?b", encodings: b"gzip", types: b"*/*", tags: b"\"x\"" };
        assert_eq!(asked.question, Some(question));
        let request = request(&asked, &list).unwrap();
        assert_eq!((request.uri().to_string().as_str(), request.headers().len()), ("https://docs.example/a?b", 4));
        for field in [("range", "bytes=0-1"), ("host", "docs.example"), ("accept", ""), ("if-modified-since", "x")] {
            let list = fields(&[&USUAL[..], &[field]].concat());
            assert_eq!(judge(&list).unwrap().question, None, "{field:?}");
        }
        let mut list = USUAL;
        list[0] = (":method", "POST");
        assert_eq!(judge(&fields(&list)).unwrap().question, None);
    }

    #[test]
    fn a_malformed_value_path_or_authority_makes_a_request_malformed() {
        let is_good = |at: usize, field: (&str, &str)| {
            let mut list = USUAL.to_vec();
            if at < list.len() {
                list[at] = field;
            } else {
                list.push(field);
            }
            judge(&fields(&list)).is_some()
        };
        for (value, expected) in
            [("a b", true), ("a\tb", true), ("", true), (" a", false), ("a ", false), ("\ta", false), ("a\t", false)]
        {
            assert_eq!(is_good(4, ("x-a", value)), expected, "{value:?}");
        }
        for (path, expected) in [("/a?b", true), ("/a%23b", true), ("/a#b", false), ("/a?b#c", false), ("/ ", false)] {
            assert_eq!(is_good(2, (":path", path)), expected, "{path:?}");
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
            assert_eq!(is_good(3, (":authority", authority)), expected, "{authority:?}");
        }
    }

    #[test]
    fn a_host_is_the_authority_or_there_is_none() {
        for (scheme, authority, host, expected) in [
            ("https", "docs.example", "docs.example", true),
            ("https", "docs.example", "Docs.Example", true),
            ("https", "docs.example:443", "docs.example", true),
            ("http", "docs.example", "docs.example:80", true),
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
            assert_eq!(judge(&list).is_some(), expected, "{scheme} {authority} {host}");
        }
        let list = fields(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", "any.example")]);
        assert!(judge(&list).is_some());
    }

    #[test]
    fn trailers_are_fields_and_nothing_else() {
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
    fn methods_without_a_path_have_none() {
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
            let uri = judge(&list).and_then(|asked| request(&asked, &list)).map(|request| request.uri().to_string());
            assert_eq!(uri.as_deref(), expected);
        }
    }

    #[test]
    fn a_length_is_a_number_and_the_same_each_time() {
        for (lengths, expected) in
            [(&["5"][..], Some(5)), (&["5", "5"], Some(5)), (&["5", "6"], None), (&["+5"], None), (&[""], None)]
        {
            let list: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
            let list = fields(&[&USUAL[..], &list].concat());
            assert_eq!(judge(&list).and_then(|asked| asked.length), expected, "{lengths:?}");
        }
    }
}
