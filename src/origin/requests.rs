//! What clients send: bodies, and the fields that say who they are.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONNECTION};
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use serde_json::{Map, Value};

use crate::base::chain::Name;
use crate::model::version::Label;

use super::Domain;
use super::answers::{error, set};
use super::body::Body;

/// How much of a body that is too long is read and thrown away: a client that is still sending when the connection closes
/// would see that, and not the answer.
const MOST_DISCARDED: u64 = 1 << 20;
/// A request body must be whole after this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pages that an export may be asked for one by one.
const MOST_PATHS: usize = 1000;
/// The longest path of a page, in bytes.
const LONGEST_PATH: usize = 2048;

/// The token of the one Authorization field (RFC 6750, 2.1).
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Reads a body that is neither too long nor too slow.
pub(super) async fn whole_body(body: Incoming, longest: u64) -> Result<Vec<u8>, Response<Body>> {
    let refuse = |status, why: &str| {
        let mut response = error(status, why);
        // What is left of the body is not read.
        set(response.headers_mut(), CONNECTION, "close");
        response
    };
    let too_long = || refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is longer than {longest} bytes"));
    let discarded = longest.max(MOST_DISCARDED);
    if body.size_hint().lower() > discarded {
        return Err(too_long());
    }
    match tokio::time::timeout(BODY_TIMEOUT, gather(body, longest, discarded)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_long()),
        Ok(Err(_)) => Err(refuse(StatusCode::BAD_REQUEST, "the body did not come whole")),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

/// The bytes of a body; none if there are too many.
async fn gather(mut body: Incoming, longest: u64, discarded: u64) -> Result<Option<Vec<u8>>, hyper::Error> {
    let (mut bytes, mut len) = (Vec::new(), 0);
    while let Some(frame) = std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame?.into_data() else { continue };
        len += data.len() as u64;
        if len > discarded {
            break;
        }
        if len <= longest {
            bytes.extend_from_slice(&data);
        }
    }
    Ok((len <= longest).then_some(bytes))
}

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) domain: Domain,
    pub(super) version: Option<Label>,
    pub(super) paths: Option<Vec<String>>,
}

fn object(bytes: &[u8], example: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(format!("the body is no JSON object; send {example}")),
    }
}

/// Reads what is to be exported; the error is for the client.
pub(super) fn export(bytes: &[u8]) -> Result<Wanted, String> {
    let fields = object(bytes, "{\"domain\": \"docs.example.com\"}")?;
    // Null is as good as missing; a field that is not known may be one of a later version of the API.
    let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let domain = match field("domain") {
        Some(Value::String(text)) => {
            Domain::parse(text).map_err(|why| format!("bad domain {}: {why}", Name(text.as_bytes())))?
        }
        Some(_) => return Err("bad domain: it is no string".to_owned()),
        None => return Err("the domain is missing; send {\"domain\": \"docs.example.com\"}".to_owned()),
    };
    let version = match field("version") {
        Some(Value::String(text)) => Some(Label::new(text).map_err(|why| format!("bad version: {why}"))?),
        Some(_) => return Err("bad version: it is no string".to_owned()),
        None => None,
    };
    let paths = field("paths").map(read_paths).transpose().map_err(|why| format!("bad paths: {why}"))?;
    Ok(Wanted { domain, version, paths })
}

fn read_paths(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || "it is no list of addresses such as \"/guides/start\"".to_owned();
    let list = value.as_array().ok_or_else(wrong)?;
    if list.is_empty() || list.len() > MOST_PATHS {
        return Err(format!("it needs at least one and at most {MOST_PATHS} addresses; leave paths out for all pages"));
    }
    let path = |value: &Value| {
        let path = value.as_str().ok_or_else(wrong)?;
        let shown = || Name(path.as_bytes()).to_string();
        if !path.starts_with('/') || path.len() > LONGEST_PATH {
            return Err(format!(
                "{} is none: an address of a page begins with / and has at most {LONGEST_PATH} bytes",
                shown()
            ));
        }
        if path.split('/').any(|part| part == "..")
            || path.contains(['?', '#', '\\'])
            || path.chars().any(char::is_control)
        {
            return Err(format!("{} is none: there is no .., no query and no control character in it", shown()));
        }
        Ok(path.to_owned())
    };
    list.iter().map(path).collect()
}

/// Reads which branch is to be previewed; the error is for the client.
pub(super) fn branch(bytes: &[u8]) -> Result<String, String> {
    let fields = object(bytes, "{\"branch\": \"main\"}")?;
    match fields.get("branch") {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::String(_)) => Err("bad branch: it is empty".to_owned()),
        Some(Value::Null) | None => Err("the branch is missing; send {\"branch\": \"main\"}".to_owned()),
        Some(_) => Err("bad branch: it is no string".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_request_needs_a_domain_and_nothing_more() {
        let wanted = |text: &str| export(text.as_bytes());
        let domain = Domain::parse("docs.example").unwrap();
        for text in [
            r#"{"domain":"docs.example"}"#,
            r#"{"domain":"DOCS.example","version":null,"paths":null,"priority":"high"}"#,
        ] {
            assert_eq!(wanted(text), Ok(Wanted { domain: domain.clone(), version: None, paths: None }), "{text}");
        }
        let labelled = wanted(r#"{"domain":"docs.example","version":"1.4"}"#).unwrap();
        assert_eq!(labelled.version, Label::new("1.4").ok());
        let some = wanted(r#"{"domain":"docs.example","paths":["/", "/guides/start"]}"#).unwrap();
        assert_eq!(some.paths, Some(vec!["/".to_owned(), "/guides/start".to_owned()]));
        for (text, says) in [
            ("", "no JSON object"),
            ("[]", "no JSON object"),
            ("{}", "domain is missing"),
            (r#"{"domain":7}"#, "no string"),
            (r#"{"domain":"https://docs.example"}"#, "without a scheme"),
            (r#"{"domain":"docs.example/"}"#, "without a path"),
            (r#"{"domain":"docs.example","version":""}"#, "bad version"),
            (r#"{"domain":"docs.example","version":1}"#, "bad version"),
            (r#"{"domain":"docs.example","paths":[]}"#, "at least one"),
            (r#"{"domain":"docs.example","paths":["a"]}"#, "begins with"),
            (r#"{"domain":"docs.example","paths":["/a/../b"]}"#, ".."),
            (r#"{"domain":"docs.example","paths":"/a"}"#, "list"),
        ] {
            let why = wanted(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn the_bearer_is_read_as_the_rfc_has_it() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(<[u8]>::to_vec)
        };
        for good in ["Bearer k", "bearer k", "BEARER  k "] {
            assert_eq!(read(&[good]), Some(b"k".to_vec()), "{good}");
        }
        for wrong in [&[][..], &["Basic k"], &["Bearer"], &["Bearerk"], &["k"], &["Bearer k", "Bearer k"]] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
