//! The request that a page sends to the playground: JSON with method, URL, header fields and body of the request to the
//! target. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Deserialize;

use crate::request_body::is_json_object;

use super::header_fields::select_request_fields;
use super::target_url::{TargetUrl, TargetUrlFault};

/// The bytes of a request to the playground besides the body of the request to the target: URL, header fields, and
/// escapes of a body of text.
pub(crate) const ENVELOPE_BYTES: u64 = 64 << 10;

/// A request to a target, before the rules are applied.
pub(crate) struct TargetRequest {
    pub(crate) method: Method,
    pub(crate) url: TargetUrl,
    /// The fields that are passed on.
    pub(crate) fields: HeaderMap,
    pub(crate) body: Bytes,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFault {
    /// It is malformed; the text says what is wrong.
    Malformed(&'static str),
    /// The URL has no origin that could be listed.
    NoOrigin,
    /// The path may climb.
    ClimbingPath,
    /// The body is larger than `playground.maxRequest`.
    TooLarge,
}

/// The JSON of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestJson {
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    encoding: Option<String>,
}

/// Returns the largest size of the JSON for a body of `max_request` bytes: base64 makes it longer by a third, and the
/// escapes of quotes and line feeds twice as long.
pub(crate) fn max_json_bytes(max_request: u64) -> u64 {
    let base64_bytes = max_request.div_ceil(3).saturating_mul(4);
    base64_bytes.max(max_request.saturating_mul(2)).saturating_add(ENVELOPE_BYTES)
}

impl TargetRequest {
    /// Parses the JSON of a request. The body of the request to the target has at most `max_request` bytes.
    pub(crate) fn parse(json: &[u8], max_request: u64) -> Result<TargetRequest, RequestFault> {
        let malformed = RequestFault::Malformed;
        let no_object =
            malformed("the body must be a JSON object with method, url and perhaps headers, body and encoding");
        let json: RequestJson = Some(json)
            .filter(|json| is_json_object(json))
            .and_then(|json| serde_json::from_slice(json).ok())
            .ok_or(no_object)?;
        let body = match (json.encoding.as_deref(), json.body) {
            (None | Some("utf-8" | "base64"), None) => Vec::new(),
            (None | Some("utf-8"), Some(text)) => text.into_bytes(),
            (Some("base64"), Some(text)) => {
                STANDARD.decode(text).map_err(|_| malformed("the body is not base64, as encoding says"))?
            }
            (Some(_), _) => return Err(malformed("encoding must be utf-8 or base64")),
        };
        if body.len() as u64 > max_request {
            return Err(RequestFault::TooLarge);
        }
        let method =
            Method::from_bytes(json.method.as_bytes()).map_err(|_| malformed("method is not a method such as GET"))?;
        let headers = json.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields = select_request_fields(headers).ok_or(malformed("a header field is malformed"))?;
        let url = TargetUrl::parse(&json.url).map_err(|fault| match fault {
            TargetUrlFault::Malformed => malformed("url is not an absolute URL"),
            TargetUrlFault::NoOrigin => RequestFault::NoOrigin,
            TargetUrlFault::ClimbingPath => RequestFault::ClimbingPath,
        })?;
        Ok(TargetRequest { method, url, fields, body: body.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<TargetRequest, RequestFault> {
        TargetRequest::parse(json.as_bytes(), 16)
    }

    #[test]
    fn a_list_of_the_values_is_no_request() {
        assert!(matches!(parse(r#"["GET", "https://x/", {}, null, null]"#), Err(RequestFault::Malformed(_))));
    }

    #[test]
    fn a_request_has_a_method_a_url_fields_and_a_body_of_text_or_base64() {
        let request =
            parse(r#"{"method": "POST", "url": "https://x/a?b", "headers": {"Accept": "*/*"}, "body": "caf\u00e9"}"#);
        let request = request.unwrap_or_else(|fault| panic!("{fault:?}"));
        assert_eq!((request.method, request.url.request_target()), (Method::POST, "/a?b"));
        assert_eq!((request.fields.len(), &request.body[..]), (1, "café".as_bytes()));
        for (body, expected) in [
            (r#""body": "AAH/", "encoding": "base64""#, &[0, 1, 255][..]),
            (r#""body": "AAH/", "encoding": "utf-8""#, b"AAH/"),
            (r#""body": "", "encoding": "base64""#, b""),
            (r#""body": null"#, b""),
            (r#""encoding": "base64""#, b""),
            (r#""body": "0123456789abcdef""#, b"0123456789abcdef"),
        ] {
            let request = parse(&format!(r#"{{"method": "PUT", "url": "https://x/", {body}}}"#));
            assert_eq!(
                request.map(|request| request.body).map_err(|fault| format!("{fault:?}")),
                Ok(expected.to_vec().into())
            );
        }
    }

    #[test]
    fn a_request_that_is_malformed_or_too_large_is_refused() {
        for json in [
            "",
            "[]",
            "{}",
            "{",
            r#"{"method": "GET"}"#,
            r#"{"url": "https://x/"}"#,
            r#"{"method": "G T", "url": "https://x/"}"#,
            r#"{"method": "", "url": "https://x/"}"#,
            r#"{"method": 1, "url": "https://x/"}"#,
            r#"{"method": "GET", "url": "/x"}"#,
            r#"{"method": "GET", "url": "https://x/", "headers": []}"#,
            r#"{"method": "GET", "url": "https://x/", "headers": {"a b": "c"}}"#,
            r#"{"method": "GET", "url": "https://x/", "headers": {"a": "b\r\nc: d"}}"#,
            r#"{"method": "GET", "url": "https://x/", "headers": {"a": ["b"]}}"#,
            r#"{"method": "GET", "url": "https://x/", "body": {}}"#,
            r#"{"method": "GET", "url": "https://x/", "body": "%", "encoding": "base64"}"#,
            r#"{"method": "GET", "url": "https://x/", "encoding": "hex"}"#,
            r#"{"method": "GET", "url": "https://x/", "other": 1}"#,
            r#"{"method": "GET", "url": "https://x/"} x"#,
        ] {
            assert!(matches!(parse(json).map(|_| ()), Err(RequestFault::Malformed(_))), "{json}");
        }
        let too_large =
            [r#""body": "0123456789abcdef0""#, r#""body": "AAAAAAAAAAAAAAAAAAAAAAA=", "encoding": "base64""#];
        for body in too_large {
            let json = format!(r#"{{"method": "PUT", "url": "https://x/", {body}}}"#);
            assert_eq!(parse(&json).map(|_| ()), Err(RequestFault::TooLarge), "{json}");
        }
        for (url, expected) in [("ftp://x/", RequestFault::NoOrigin), ("https://x/%2e%2e", RequestFault::ClimbingPath)]
        {
            let json = format!(r#"{{"method": "GET", "url": "{url}"}}"#);
            assert_eq!(parse(&json).map(|_| ()), Err(expected), "{json}");
        }
    }

    #[test]
    fn the_json_of_the_largest_body_fits_as_base64() {
        for max_request in [0, 1, 2, 3, 4, 1 << 20] {
            let body = STANDARD.encode(vec![0; max_request]);
            assert!(body.len() as u64 + ENVELOPE_BYTES <= max_json_bytes(max_request as u64), "{max_request}");
        }
        assert_eq!(max_json_bytes(u64::MAX), u64::MAX);
    }
}
