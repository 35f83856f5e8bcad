//! From a request to an answer: who may ask, for what, and how it is said.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::base::chain::{Chain, Name};
use crate::model::units::{show_time, unix_seconds};
use crate::model::version::Label;
use crate::serve::conditional::{self, Dated, Verdict};
use crate::serve::handler::is_host;

use super::body::Body;
use super::jobs::{Bundle, NotStarted};
use super::survey::Survey;
use super::{Domain, Origin, bundles};

/// The longest request body.
const LONGEST_BODY: u64 = 64 * 1024;
/// How much of a longer one is read and thrown away: a client that is still sending when the connection closes would
/// see that, and not the answer.
const MOST_DISCARDED: u64 = 1 << 20;
/// A request body must be whole after this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Seconds after which a client may ask again when the origin cannot answer just now.
const RETRY: u32 = 5;

/// Answers any request. The answer to HEAD is that to GET without its body.
pub(super) async fn answer(origin: &Origin, request: Request<Incoming>) -> Response<Body> {
    let head = request.method() == Method::HEAD;
    let mut response = route(origin, request).await;
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn route(origin: &Origin, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["v1", ref rest @ ..] => match refuse_stranger(origin, request.headers()) {
            Some(refusal) => refusal,
            None => management(origin, rest, request).await,
        },
        ["bundles", job, name] => only(&request, &GET).unwrap_or_else(|| {
            let now = unix_seconds(SystemTime::now());
            bundles::answer(origin, (&decode(job), name), request.uri().query(), request.headers(), now)
        }),
        ["sites", domain, "sitemap.xml"] => match only(&request, &GET) {
            Some(refusal) => refusal,
            None => sitemap(origin, domain, request.headers()).await,
        },
        _ => nothing_here(),
    }
}

async fn management(origin: &Origin, parts: &[&str], request: Request<Incoming>) -> Response<Body> {
    let (allowed, job): (&[Method], _) = match parts {
        ["static-export", "jobs"] => (&POST, None),
        ["static-export", "jobs", job] => (&GET, Some(decode(job))),
        ["static-export", "jobs", job, "bundle"] => (&POST, Some(decode(job))),
        _ => return nothing_here(),
    };
    if let Some(refusal) = only(&request, allowed) {
        return refusal;
    }
    match job {
        None => start(origin, request).await.unwrap_or_else(|refusal| refusal),
        Some(job) if parts.len() == 3 => match origin.jobs.show(&job) {
            Some(shown) => json(StatusCode::OK, &json!(shown)),
            None => no_such_job(),
        },
        Some(job) => link(origin, &job, &request),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Who and how

const GET: [Method; 2] = [Method::GET, Method::HEAD];
const POST: [Method; 1] = [Method::POST];

/// 405 for any other method.
fn only<B>(request: &Request<B>, allowed: &[Method]) -> Option<Response<Body>> {
    if allowed.contains(request.method()) {
        return None;
    }
    let list = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this address answers {list} only"));
    set(response.headers_mut(), ALLOW, &list);
    Some(response)
}

/// 401 without the key, before anything else is said about `/v1`; 503 while there is no key to compare with.
fn refuse_stranger(origin: &Origin, headers: &HeaderMap) -> Option<Response<Body>> {
    let Some(key) = origin.key.current() else {
        return Some(try_later(
            StatusCode::SERVICE_UNAVAILABLE,
            "the origin cannot read its admin key; its log says why",
        ));
    };
    if bearer(headers).is_some_and(|token| origin.signer.same(key.as_bytes(), token)) {
        return None;
    }
    let mut response = error(StatusCode::UNAUTHORIZED, "send the admin key: Authorization: Bearer <key>");
    set(response.headers_mut(), WWW_AUTHENTICATE, "Bearer");
    Some(response)
}

/// The token of the one Authorization field (RFC 6750, 2.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn decode(component: &str) -> Cow<'_, str> {
    percent_decode_str(component).decode_utf8_lossy()
}

// ---------------------------------------------------------------------------------------------------------------------
// Jobs

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    domain: Domain,
    version: Option<Label>,
}

async fn start(origin: &Origin, request: Request<Incoming>) -> Result<Response<Body>, Response<Body>> {
    let bytes = whole_body(request.into_body()).await?;
    let wanted = read_wanted(&bytes).map_err(|why| error(StatusCode::BAD_REQUEST, &why))?;
    if !origin.sites.contains_key(&wanted.domain) {
        let why = format!("bad domain: {} is not served here", wanted.domain);
        return Err(error(StatusCode::BAD_REQUEST, &why));
    }
    match origin.jobs.start(wanted.domain, wanted.version) {
        Ok(shown) => Ok(json(StatusCode::ACCEPTED, &json!(shown))),
        Err(NotStarted::Full) => {
            Err(try_later(StatusCode::TOO_MANY_REQUESTS, "too many jobs are waiting; start this one later"))
        }
        Err(NotStarted::NoId(why)) => {
            tracing::error!("cannot make an id for a job: {why}");
            Err(error(StatusCode::INTERNAL_SERVER_ERROR, "the origin cannot make an id for the job; its log says why"))
        }
    }
}

/// Reads a body that is neither too long nor too slow.
async fn whole_body(body: Incoming) -> Result<Vec<u8>, Response<Body>> {
    let refuse = |status, why: &str| {
        let mut response = error(status, why);
        // What is left of the body is not read.
        set(response.headers_mut(), CONNECTION, "close");
        response
    };
    let too_long = || refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than 64 KiB");
    if body.size_hint().lower() > MOST_DISCARDED {
        return Err(too_long());
    }
    match tokio::time::timeout(BODY_TIMEOUT, gather(body)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_long()),
        Ok(Err(_)) => Err(refuse(StatusCode::BAD_REQUEST, "the body did not come whole")),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

/// The bytes of a body; none if there are too many.
async fn gather(mut body: Incoming) -> Result<Option<Vec<u8>>, hyper::Error> {
    let (mut bytes, mut len) = (Vec::new(), 0);
    while let Some(frame) = std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame?.into_data() else { continue };
        len += data.len() as u64;
        if len > MOST_DISCARDED {
            break;
        }
        if len <= LONGEST_BODY {
            bytes.extend_from_slice(&data);
        }
    }
    Ok((len <= LONGEST_BODY).then_some(bytes))
}

fn read_wanted(bytes: &[u8]) -> Result<Wanted, String> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(bytes) else {
        return Err("the body is no JSON object; send {\"domain\": \"docs.example.com\"}".to_owned());
    };
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
    if field("paths").is_some() {
        return Err("bad paths: this origin exports whole sites; leave paths out".to_owned());
    }
    Ok(Wanted { domain, version })
}

/// A link to the bundle of a finished job.
fn link(origin: &Origin, job: &str, request: &Request<Incoming>) -> Response<Body> {
    let archive = match origin.jobs.bundle(job) {
        Bundle::There(archive) => archive,
        Bundle::Unknown => return no_such_job(),
        Bundle::NotThere("failed") => {
            return error(StatusCode::CONFLICT, "the job has failed, so that it has no bundle; start another one");
        }
        Bundle::NotThere(status) => {
            return error(StatusCode::CONFLICT, &format!("the job is {status}; ask again when it is completed"));
        }
    };
    let Some(begin) = link_begin(origin, request) else {
        return error(StatusCode::BAD_REQUEST, "the request names no host that a link could lead to");
    };
    let expires = SystemTime::now() + origin.link_lifetime;
    let query = origin.signer.query(job, unix_seconds(expires));
    let answer = json!({
        "jobId": job,
        "bundleUrl": format!("{begin}/bundles/{job}/{}?{query}", archive.name()),
        "sizeBytes": archive.len,
        "expiresAt": show_time(expires),
    });
    json(StatusCode::OK, &answer)
}

/// What links begin with: as configured, or the host under which the client has just reached us.
fn link_begin(origin: &Origin, request: &Request<Incoming>) -> Option<String> {
    if let Some(url) = &origin.public_url {
        return Some(url.as_str().to_owned());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => host.to_str().ok()?,
        (None, _) => request.uri().authority()?.as_str(),
        _ => return None,
    };
    Some(format!("http://{host}"))
}

// ---------------------------------------------------------------------------------------------------------------------
// The sitemap

async fn sitemap(origin: &Origin, domain: &str, headers: &HeaderMap) -> Response<Body> {
    let found = Domain::parse(&decode(domain)).ok().and_then(|domain| origin.sites.get_key_value(&domain));
    let Some((domain, path)) = found else {
        return error(StatusCode::NOT_FOUND, "no site of that domain is served here");
    };
    let Ok(_turn) = origin.sitemaps.acquire().await else { return nothing_here() };
    let (path, limits) = (path.clone(), origin.effort.limits);
    let survey = tokio::task::spawn_blocking(move || Survey::of(&path, &limits)).await;
    let survey = match survey {
        Ok(Ok(survey)) => survey,
        Ok(Err(why)) => return unreadable(domain, &Chain(&why)),
        Err(why) => return unreadable(domain, &why),
    };
    let tag = survey.tag();
    // There is no one time of change: a deletion leaves none. So only tags count.
    let mut conditions = headers.clone();
    conditions.remove(IF_MODIFIED_SINCE);
    conditions.remove(IF_UNMODIFIED_SINCE);
    let mut response = match conditional::judge(&conditions, &tag, Dated::once(0)) {
        Verdict::Proceed => text(StatusCode::OK, "application/xml", survey.sitemap(domain)),
        Verdict::NotModified => bare(StatusCode::NOT_MODIFIED),
        Verdict::Failed => error(StatusCode::PRECONDITION_FAILED, "the site is not, or no longer, what If-Match names"),
    };
    set(response.headers_mut(), ETAG, &tag);
    set(response.headers_mut(), CACHE_CONTROL, "no-cache");
    response
}

/// A stranger is not told where sites lie; the log is.
fn unreadable(domain: &Domain, why: &dyn std::fmt::Display) -> Response<Body> {
    tracing::error!("cannot list the site of {domain}: {why}");
    try_later(StatusCode::SERVICE_UNAVAILABLE, "the site cannot be read just now; the origin's log says why")
}

// ---------------------------------------------------------------------------------------------------------------------
// Answers

fn nothing_here() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "there is nothing at this address")
}

fn no_such_job() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "no such job; it may be too old, or from before the origin was started")
}

fn try_later(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = error(status, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY));
    response
}

fn error(status: StatusCode, why: &str) -> Response<Body> {
    json(status, &json!({ "error": why }))
}

fn json(status: StatusCode, value: &Value) -> Response<Body> {
    text(status, "application/json", value.to_string())
}

fn text(status: StatusCode, media_type: &str, text: String) -> Response<Body> {
    let text = Bytes::from(text);
    let mut response = bare(status);
    let fields = response.headers_mut();
    set(fields, CONTENT_TYPE, media_type);
    fields.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    *response.body_mut() = Body::Text(text);
    response
}

fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    set(response.headers_mut(), CACHE_CONTROL, "no-store");
    set(response.headers_mut(), X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

/// Sets a field to a text of our own making, which has no character that a field may not have.
pub(super) fn set(fields: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_request_needs_a_domain_and_nothing_more() {
        let wanted = |text: &str| read_wanted(text.as_bytes());
        let domain = Domain::parse("docs.example").unwrap();
        for text in [
            r#"{"domain":"docs.example"}"#,
            r#"{"domain":"DOCS.example","version":null,"paths":null,"priority":"high"}"#,
        ] {
            assert_eq!(wanted(text), Ok(Wanted { domain: domain.clone(), version: None }), "{text}");
        }
        let labelled = wanted(r#"{"domain":"docs.example","version":"1.4"}"#).unwrap();
        assert_eq!(labelled.version, Label::new("1.4").ok());
        for (text, says) in [
            ("", "no JSON object"),
            ("[]", "no JSON object"),
            ("{}", "domain is missing"),
            (r#"{"domain":7}"#, "no string"),
            (r#"{"domain":"https://docs.example"}"#, "without a scheme"),
            (r#"{"domain":"docs.example/"}"#, "without a path"),
            (r#"{"domain":"docs.example","version":""}"#, "bad version"),
            (r#"{"domain":"docs.example","version":1}"#, "bad version"),
            (r#"{"domain":"docs.example","paths":["/a"]}"#, "whole sites"),
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
