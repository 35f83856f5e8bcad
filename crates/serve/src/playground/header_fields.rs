//! The header fields that the playground passes on, in both directions. Pure.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, ORIGIN, REFERER, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The fields that concern one connection only (RFC 9110, section 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("http2-settings"),
];
/// The fields of a request that are not passed on: the server sends its own, they would pass the reader's identity on
/// or claim another one, or they state what a browser knows and a page must not claim.
const NOT_FORWARDED: [HeaderName; 8] =
    [HOST, CONTENT_LENGTH, EXPECT, COOKIE, HeaderName::from_static("cookie2"), FORWARDED, ORIGIN, REFERER];
/// The beginnings of names of fields that are not passed on.
const NOT_FORWARDED_PREFIXES: [&str; 3] = ["x-forwarded-", "proxy-", "sec-"];

/// Selects the fields of a request that a target gets; `None` if a name or a value is malformed. A character of a value
/// stands for the byte with its number, as in a browser.
pub(crate) fn select_request_fields<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Option<HeaderMap> {
    let mut all = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let bytes: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let value = HeaderValue::from_bytes(bytes?.trim_ascii()).ok()?;
        all.try_append(name, value).ok()?;
    }
    let of_connection = names_in_connection(&all);
    let is_forwarded = |name: &HeaderName| {
        !HOP_BY_HOP.contains(name)
            && !NOT_FORWARDED.contains(name)
            && !NOT_FORWARDED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
            && !of_connection.contains(name)
    };
    Some(select(&all, is_forwarded))
}

/// Selects the fields of a target's response that the page gets, as names and values. A byte that is not ASCII becomes
/// the character with its number, as in a browser.
pub(crate) fn list_response_fields(fields: &HeaderMap) -> Vec<(&str, String)> {
    let of_connection = names_in_connection(fields);
    let is_proxy_field = |name: &HeaderName| name.as_str().starts_with("proxy-");
    let is_listed =
        |name: &HeaderName| !HOP_BY_HOP.contains(name) && !is_proxy_field(name) && !of_connection.contains(name);
    let text = |value: &HeaderValue| value.as_bytes().iter().map(|&byte| char::from(byte)).collect();
    fields.iter().filter(|(name, _)| is_listed(name)).map(|(name, value)| (name.as_str(), text(value))).collect()
}

fn select(fields: &HeaderMap, is_selected: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut selected = HeaderMap::new();
    for (name, value) in fields.iter().filter(|(name, _)| is_selected(name)) {
        selected.append(name, value.clone());
    }
    selected
}

/// Returns the names of fields that `Connection` declares as fields of the connection.
fn names_in_connection(fields: &HeaderMap) -> Vec<HeaderName> {
    let values = fields.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    values.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(fields: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        let fields = select_request_fields(fields.iter().copied())?;
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), value.to_str().unwrap_or("not ASCII").to_owned())
        };
        Some(fields.iter().map(text).collect())
    }

    #[test]
    fn a_target_gets_the_fields_of_the_request_but_none_of_the_connection_or_of_the_readers_identity() {
        let fields = [
            ("Accept", "application/json"),
            ("Authorization", "Bearer x"),
            ("X-Api-Key", " padded\t"),
            ("User-Agent", "a page"),
            ("X-Forward", "kept"),
            ("Via", "kept"),
            ("Connection", "keep-alive, X-Own"),
            ("X-Own", "1"),
            ("Keep-Alive", "timeout=5"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "websocket"),
            ("HTTP2-Settings", "x"),
            ("Host", "evil.example"),
            ("Content-Length", "7"),
            ("Expect", "100-continue"),
            ("Cookie", "session=1"),
            ("cookie2", "x"),
            ("Forwarded", "for=10.0.0.1"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("x-forwarded-anything", "1"),
            ("Proxy-Authorization", "x"),
            ("Proxy-Connection", "x"),
            ("Sec-Fetch-Site", "same-origin"),
            ("Sec-WebSocket-Key", "x"),
            ("Origin", "https://evil.example"),
            ("Referer", "https://evil.example/"),
        ];
        let expected = [
            ("accept", "application/json"),
            ("authorization", "Bearer x"),
            ("x-api-key", "padded"),
            ("user-agent", "a page"),
            ("x-forward", "kept"),
            ("via", "kept"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(forwarded(&fields), Some(expected.to_vec()));
    }

    #[test]
    fn a_malformed_field_makes_the_request_malformed() {
        for field in [
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("a", "x\r\ny: z"),
            ("a", "x\0"),
            ("a\n", "x"),
            ("\u{e9}", "x"),
            ("a", "\u{20ac}"),
        ] {
            assert_eq!(forwarded(&[field]), None, "{field:?}");
        }
        assert!(forwarded(&[("a", "\u{e9}")]).is_some() && forwarded(&[("a", "")]).is_some());
    }

    #[test]
    fn a_page_gets_the_fields_of_the_response_but_none_of_the_connection() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("content-type", &b"text/plain"[..]),
            ("set-cookie", b"a=1"),
            ("set-cookie", b"b=2"),
            ("x-name", b"caf\xe9"),
            ("connection", b"close, x-own"),
            ("x-own", b"1"),
            ("transfer-encoding", b"chunked"),
            ("proxy-authenticate", b"Basic"),
            ("content-length", b"5"),
        ] {
            fields.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        let listed = list_response_fields(&fields);
        let expected = [
            ("content-type", "text/plain"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("x-name", "caf\u{e9}"),
            ("content-length", "5"),
        ];
        assert_eq!(listed, expected.map(|(name, value)| (name, value.to_owned())));
    }
}
