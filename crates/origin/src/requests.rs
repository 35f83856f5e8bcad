//! Parsing of requests: bodies, and the Authorization field.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, EXPECT};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use serde_json::{Map, Value};

use docwharf_base::error_chain::QuotedName;
use docwharf_base::model::version::VersionLabel;

use super::body::ApiBody;
use super::domain::Domain;
use super::limits::MIN_BODY_BYTES;
use super::resource_pools::{LimitReached, ResourceShare};
use super::responses::{error, set_field, try_later};

/// The number of bytes of a refused body that are read and discarded. A client that is still sending when the
/// connection closes would see a connection reset and not the response.
const MAX_DISCARDED_BYTES: u64 = 1 << 20;
/// The time within which a request body must be complete.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which a refused body is read and discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest number of pages that an export may list.
const MAX_EXPORT_PATHS: usize = 1000;
/// The largest length of the path of a page, in bytes.
const MAX_EXPORT_PATH_BYTES: usize = 2048;

/// Returns the token of the only Authorization field (RFC 6750, section 2.1); `None` if there are several.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// The reason why the reading of a body has stopped.
enum BodyReadError {
    /// The body is too long.
    TooLong,
    /// A `bodyBytes` limit is reached.
    LimitReached(LimitReached),
    /// The body is incomplete.
    Incomplete,
}

/// Creates the response if a limit on request bodies is reached.
pub(super) fn body_limit_reached(reason: LimitReached) -> Response<ApiBody> {
    let reason = match reason {
        LimitReached::Organization => {
            "the request bodies of your organization have reached limits.organization.bodyBytes; try again in a moment"
        }
        LimitReached::Total => "all request bodies together have reached limits.total.bodyBytes; try again in a moment",
    };
    try_later(StatusCode::TOO_MANY_REQUESTS, reason)
}

/// Completes a response that is sent without reading the request body. A part of the body is read and
/// discarded, so that a client that reads no response before it has sent everything gets this one.
pub(super) async fn respond_without_reading_body(
    mut response: Response<ApiBody>,
    headers: &HeaderMap,
    mut body: Incoming,
) -> Response<ApiBody> {
    set_field(response.headers_mut(), CONNECTION, "close");
    // A client that sends Expect waits for a response before it sends the body (RFC 9110, section 10.1.1).
    if !headers.contains_key(EXPECT) {
        discard(&mut body).await;
    }
    response
}

/// Reads and discards a body, up to a limit of bytes and of time.
async fn discard(body: &mut Incoming) {
    let discard = async {
        let mut len = 0;
        while len <= MAX_DISCARDED_BYTES
            && let Some(Ok(frame)) = next_frame(body).await
        {
            len += frame.into_data().map_or(0, |data| data.len() as u64);
        }
    };
    // The rest of the body is not awaited.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard).await;
}

/// Returns the bytes that a body is expected to take: its declared length, up to `max_bytes`, or the minimum if the
/// length is unknown.
pub(super) fn expected_body_bytes(body: &Incoming, max_bytes: u64) -> u64 {
    match body.size_hint().exact() {
        _ if body.is_end_stream() => 0,
        Some(len) => len.clamp(MIN_BODY_BYTES, max_bytes.max(MIN_BODY_BYTES)),
        None => MIN_BODY_BYTES,
    }
}

/// Reads a body within limits of length and time. The share grows with the bytes received. On failure returns the
/// response.
pub(super) async fn read_body(
    mut body: Incoming,
    max_bytes: u64,
    share: &mut ResourceShare,
) -> Result<Vec<u8>, Response<ApiBody>> {
    let refuse = |status, reason: &str| {
        let mut response = error(status, reason);
        // The rest of the body stays unread, so the connection cannot be reused.
        set_field(response.headers_mut(), CONNECTION, "close");
        response
    };
    let too_long = || refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is longer than {max_bytes} bytes"));
    let max_received_bytes = max_bytes.max(MAX_DISCARDED_BYTES);
    if body.size_hint().lower() > max_received_bytes {
        return Err(too_long());
    }
    match tokio::time::timeout(BODY_TIMEOUT, collect_body(&mut body, max_bytes, max_received_bytes, share)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyReadError::TooLong)) => Err(too_long()),
        Ok(Err(BodyReadError::LimitReached(reason))) => {
            discard(&mut body).await;
            let mut response = body_limit_reached(reason);
            set_field(response.headers_mut(), CONNECTION, "close");
            Err(response)
        }
        Ok(Err(BodyReadError::Incomplete)) => Err(refuse(StatusCode::BAD_REQUEST, "the body is incomplete")),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body was not received in time")),
    }
}

/// Collects the bytes of a body. It allocates no more memory than the share covers.
async fn collect_body(
    body: &mut Incoming,
    max_bytes: u64,
    max_received_bytes: u64,
    share: &mut ResourceShare,
) -> Result<Vec<u8>, BodyReadError> {
    let declared_len = body.size_hint().exact().filter(|len| *len <= max_bytes).unwrap_or(0);
    let (mut bytes, mut len) = (Vec::with_capacity(usize::try_from(declared_len).unwrap_or(0)), 0_u64);
    while let Some(frame) = next_frame(body).await {
        let Ok(data) = frame.map_err(|_| BodyReadError::Incomplete)?.into_data() else { continue };
        len += data.len() as u64;
        if len > max_received_bytes {
            break;
        }
        if len > max_bytes {
            continue;
        }
        if len > share.amount() {
            share.grow((len - share.amount()).max(MIN_BODY_BYTES)).map_err(BodyReadError::LimitReached)?;
        }
        if bytes.capacity() - bytes.len() < data.len() {
            bytes.reserve_exact(data.len().max(MIN_BODY_BYTES as usize));
        }
        bytes.extend_from_slice(&data);
    }
    if len <= max_bytes { Ok(bytes) } else { Err(BodyReadError::TooLong) }
}

async fn next_frame(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context)).await
}

/// The content of a request for an export.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StartExportRequest {
    pub(super) domain: Domain,
    pub(super) version: Option<VersionLabel>,
    pub(super) paths: Option<Vec<String>>,
}

/// Parses a JSON object. The error is the message for the client; it contains `example`.
fn parse_object(bytes: &[u8], example: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(format!("the body is not a JSON object; send {example}")),
    }
}

/// Parses a request for an export. The error is the message for the client.
pub(super) fn parse_export_request(bytes: &[u8]) -> Result<StartExportRequest, String> {
    let fields = parse_object(bytes, "{\"domain\": \"docs.example.com\"}")?;
    // Null counts as absent. Unknown fields are ignored, because a later version of the API may have them.
    let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let domain = match field("domain") {
        Some(Value::String(text)) => {
            Domain::parse(text).map_err(|reason| format!("bad domain {}: {reason}", QuotedName(text.as_bytes())))?
        }
        Some(_) => return Err("bad domain: it is not a string".to_owned()),
        None => return Err("the domain is missing; send {\"domain\": \"docs.example.com\"}".to_owned()),
    };
    let version = match field("version") {
        Some(Value::String(text)) => Some(VersionLabel::new(text).map_err(|reason| format!("bad version: {reason}"))?),
        Some(_) => return Err("bad version: it is not a string".to_owned()),
        None => None,
    };
    let paths = field("paths").map(parse_paths).transpose().map_err(|reason| format!("bad paths: {reason}"))?;
    Ok(StartExportRequest { domain, version, paths })
}

fn parse_paths(value: &Value) -> Result<Vec<String>, String> {
    let not_a_list = || "it is not a list of addresses such as \"/guides/start\"".to_owned();
    let list = value.as_array().ok_or_else(not_a_list)?;
    if list.is_empty() || list.len() > MAX_EXPORT_PATHS {
        return Err(format!(
            "it needs at least one and at most {MAX_EXPORT_PATHS} addresses; leave paths out for all pages"
        ));
    }
    let path = |value: &Value| {
        let path = value.as_str().ok_or_else(not_a_list)?;
        let quoted_path = || QuotedName(path.as_bytes()).to_string();
        if !path.starts_with('/') || path.len() > MAX_EXPORT_PATH_BYTES {
            return Err(format!(
                "{} is not valid: the address of a page begins with / and has at most {MAX_EXPORT_PATH_BYTES} bytes",
                quoted_path()
            ));
        }
        if path.split('/').any(|part| part == "..")
            || path.contains(['?', '#', '\\'])
            || path.chars().any(char::is_control)
        {
            return Err(format!(
                "{} is not valid: the address of a page has no .., no query and no control character",
                quoted_path()
            ));
        }
        Ok(path.to_owned())
    };
    list.iter().map(path).collect()
}

/// Parses a request for a preview and returns the branch. The error is the message for the client.
pub(super) fn parse_preview_request(bytes: &[u8]) -> Result<String, String> {
    let fields = parse_object(bytes, "{\"branch\": \"main\"}")?;
    match fields.get("branch") {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::String(_)) => Err("bad branch: it is empty".to_owned()),
        Some(Value::Null) | None => Err("the branch is missing; send {\"branch\": \"main\"}".to_owned()),
        Some(_) => Err("bad branch: it is not a string".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_request_needs_a_domain_and_nothing_more() {
        let parse = |text: &str| parse_export_request(text.as_bytes());
        let domain = Domain::parse("docs.example").unwrap();
        for text in [
            r#"{"domain":"docs.example"}"#,
            r#"{"domain":"DOCS.example","version":null,"paths":null,"priority":"high"}"#,
        ] {
            assert_eq!(
                parse(text),
                Ok(StartExportRequest { domain: domain.clone(), version: None, paths: None }),
                "{text}"
            );
        }
        let with_version = parse(r#"{"domain":"docs.example","version":"1.4"}"#).unwrap();
        assert_eq!(with_version.version, VersionLabel::new("1.4").ok());
        let with_paths = parse(r#"{"domain":"docs.example","paths":["/", "/guides/start"]}"#).unwrap();
        assert_eq!(with_paths.paths, Some(vec!["/".to_owned(), "/guides/start".to_owned()]));
        for (text, message) in [
            ("", "not a JSON object"),
            ("[]", "not a JSON object"),
            ("{}", "domain is missing"),
            (r#"{"domain":7}"#, "not a string"),
            (r#"{"domain":"https://docs.example"}"#, "without a scheme"),
            (r#"{"domain":"docs.example/"}"#, "without a path"),
            (r#"{"domain":"docs.example","version":""}"#, "bad version"),
            (r#"{"domain":"docs.example","version":1}"#, "bad version"),
            (r#"{"domain":"docs.example","paths":[]}"#, "at least one"),
            (r#"{"domain":"docs.example","paths":["a"]}"#, "begins with"),
            (r#"{"domain":"docs.example","paths":["/a/../b"]}"#, ".."),
            (r#"{"domain":"docs.example","paths":"/a"}"#, "list"),
        ] {
            let reason = parse(text).unwrap_err();
            assert!(reason.contains(message), "{text}: {reason}");
        }
    }

    #[test]
    fn export_paths_are_at_most_1000_absolute_paths_without_dot_dot_query_or_fragment() {
        let long = |len: usize| format!("/{}", "x".repeat(len - 1));
        for (path, is_good) in [
            ("/", true),
            ("/a/..b/c..", true),
            ("/a%3Fb/\u{e9}", true),
            ("", false),
            ("a/", false),
            ("/..", false),
            ("/a/..", false),
            ("/../a", false),
            ("/a?b", false),
            ("/a#b", false),
            ("/a\\b", false),
            ("/a\nb", false),
            ("/a\u{7f}", false),
            (&long(2048), true),
            (&long(2049), false),
        ] {
            let result = parse_paths(&serde_json::json!(["/", path]));
            assert_eq!(result.ok(), is_good.then(|| vec!["/".to_owned(), path.to_owned()]), "{path:?}");
        }
        for (list, is_good) in [
            (serde_json::json!(vec!["/"; 1000]), true),
            (serde_json::json!(vec!["/"; 1001]), false),
            (serde_json::json!([]), false),
            (serde_json::json!([7]), false),
            (serde_json::json!(["/", null]), false),
            (serde_json::json!({ "0": "/" }), false),
        ] {
            assert_eq!(parse_paths(&list).is_ok(), is_good, "{list}");
        }
    }

    #[test]
    fn a_preview_request_requires_a_non_empty_branch_name() {
        for (text, expected) in [
            (r#"{"branch":"main"}"#, Ok("main")),
            (r#"{"branch":" main ","more":1}"#, Ok(" main ")),
            (r#"{"branch":""}"#, Err("empty")),
            (r#"{"branch":null}"#, Err("missing")),
            ("{}", Err("missing")),
            (r#"{"branch":1}"#, Err("not a string")),
            (r#"["main"]"#, Err("not a JSON object")),
            ("", Err("not a JSON object")),
        ] {
            match (parse_preview_request(text.as_bytes()), expected) {
                (Ok(branch), Ok(expected)) => assert_eq!(branch, expected),
                (Err(reason), Err(message)) => assert!(reason.contains(message), "{text}: {reason}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn bearer_scheme_is_case_insensitive_and_a_repeated_authorization_field_is_refused() {
        let parse = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            bearer_token(&headers).map(<[u8]>::to_vec)
        };
        for good in ["Bearer k", "bearer k", "BEARER  k "] {
            assert_eq!(parse(&[good]), Some(b"k".to_vec()), "{good}");
        }
        for wrong in [&[][..], &["Basic k"], &["Bearer"], &["Bearerk"], &["k"], &["Bearer k", "Bearer k"]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
