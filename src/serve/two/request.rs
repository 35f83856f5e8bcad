//! Requests as fields (RFC 9113, 8.2 and 8.3): which are well formed, and what of them an answer depends on. Pure.

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderName, HeaderValue, Method, Request, Version};

use crate::serve::memo::{Question, put};
use crate::serve::plain::is_plain_host;
use crate::serve::spare;

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
    let (mut is_whole, mut is_past_pseudo) = (true, false);
    for (name, value) in fields.iter() {
        if !value.iter().all(|&byte| is_in_value(byte)) {
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
        if name.is_empty() || !name.iter().all(|&byte| is_in_name(byte)) {
            return None;
        }
        match name {
            b"accept-encoding" => is_whole &= put(&mut question.encodings, value),
            b"accept" => is_whole &= put(&mut question.types, value),
            b"if-none-match" => is_whole &= put(&mut question.tags, value),
            b"host" | b"range" | b"if-range" | b"if-match" | b"if-modified-since" | b"if-unmodified-since" => {
                is_whole = false;
            }
            b"content-length" => {
                let length = std::str::from_utf8(value).ok()?.parse().ok().filter(|_| value[0].is_ascii_digit())?;
                if asked.length.is_some_and(|other| other != length) {
                    return None;
                }
                asked.length = Some(length);
            }
            // They are about a connection of HTTP/1 (RFC 9113, 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => return None,
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => return None,
            _ => {}
        }
    }
    if !has_what_it_must(&asked) {
        return None;
    }
    question.is_head = asked.method == b"HEAD";
    question.target = std::str::from_utf8(asked.target).ok()?;
    is_whole &= question.is_head || asked.method == b"GET";
    is_whole &= matches!(asked.scheme, b"http" | b"https");
    is_whole &= asked.authority.is_empty() || is_plain_host(asked.authority);
    asked.question = is_whole.then_some(question);
    Some(asked)
}

/// Whether the fields are there that its method takes (RFC 9113, 8.3.1 and 8.5).
fn has_what_it_must(asked: &Asked<'_>) -> bool {
    match asked.method {
        b"" => false,
        b"CONNECT" => asked.target.is_empty() && asked.scheme.is_empty() && !asked.authority.is_empty(),
        b"OPTIONS" if asked.target == b"*" => !asked.scheme.is_empty(),
        _ => asked.target.starts_with(b"/") && !asked.scheme.is_empty(),
    }
}

/// RFC 9113, 8.2.1, and RFC 9110, 5.5.
fn is_in_value(byte: u8) -> bool {
    (byte >= 0x20 && byte != 0x7f) || byte == b'\t'
}

/// A token (RFC 9110, 5.6.2) without capitals.
fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
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
        for field in [("range", "bytes=0-1"), ("host", "x"), ("accept", ""), ("if-modified-since", "x")] {
            let list = fields(&[&USUAL[..], &[field]].concat());
            assert_eq!(judge(&list).unwrap().question, None, "{field:?}");
        }
        for (at, field) in [(0, (":method", "POST")), (3, (":authority", "[::1]"))] {
            let mut list = USUAL;
            list[at] = field;
            assert_eq!(judge(&fields(&list)).unwrap().question, None, "{field:?}");
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
