//! Answers that are not files: refusals, redirects, the pages docwharf has of its own.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::body::{Again, Body};
use super::spare;

/// What the site's resources answer to.
pub const ALLOWED: &str = "GET, HEAD, OPTIONS";

/// Seconds after which a client may ask again while there is no version yet.
const FIRST_VERSION_RETRY: &str = "5";

/// A response with a body of its own; `head` leaves the body out and its length in.
fn answer(
    status: StatusCode,
    media_type: &'static str,
    cache: &'static str,
    text: &'static str,
    head: bool,
) -> Response<Body> {
    let text = text.as_bytes();
    let body = if head {
        Body::empty().lasting(Again::Nothing)
    } else {
        Body::full(Bytes::from_static(text)).lasting(Again::Text(text))
    };
    let mut response = spare::response(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
/// A missing page may appear with the next version.
pub(super) const NOT_FOUND_CACHE: &str = "max-age=60";

/// 404 for a page of a site that has no page for it.
pub fn page_not_found(head: bool) -> Response<Body> {
    answer(StatusCode::NOT_FOUND, HTML, NOT_FOUND_CACHE, include_str!("pages/404.html"), head)
}

/// 404 for what is no page: a script or image gets a line, never a page.
pub fn file_not_found(head: bool) -> Response<Body> {
    answer(StatusCode::NOT_FOUND, PLAIN, NOT_FOUND_CACHE, "404: no such file\n", head)
}

/// 503 before the first version.
pub fn no_version(head: bool) -> Response<Body> {
    let page = include_str!("pages/503.html");
    let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, HTML, "no-store", page, head);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(FIRST_VERSION_RETRY));
    response
}

/// 400; the connection is closed when what follows on it cannot be trusted.
pub fn bad_request(head: bool, close: bool) -> Response<Body> {
    let mut response = answer(StatusCode::BAD_REQUEST, PLAIN, "no-store", "400: bad request\n", head);
    if close {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// 403 to whoever may not read the site: the same for what is there and what is not.
pub fn forbidden(head: bool) -> Response<Body> {
    answer(StatusCode::FORBIDDEN, PLAIN, "no-store", "403: you may not read this site\n", head)
}

/// 431 to a request whose fields are larger than they may be.
pub fn fields_too_large(head: bool) -> Response<Body> {
    let text = "431: the request's fields are too large\n";
    answer(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, PLAIN, "no-store", text, head)
}

/// 405
pub fn method_not_allowed() -> Response<Body> {
    let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "no-store", "405: method not allowed\n", false);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED));
    response
}

/// 204 to OPTIONS.
pub fn options() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED));
    response
}

/// Sends the reader on, with 301, 302, 303, 307 or 308. The next version may have the page elsewhere, so what is temporary
/// is kept for a minute, and what is permanent for an hour: a rule that was wrong can be taken back.
pub fn redirect(status: u16, location: &str, head: bool) -> Response<Body> {
    let (status, text) = match status {
        301 => (StatusCode::MOVED_PERMANENTLY, "301: see the Location field\n"),
        302 => (StatusCode::FOUND, "302: see the Location field\n"),
        303 => (StatusCode::SEE_OTHER, "303: see the Location field\n"),
        308 => (StatusCode::PERMANENT_REDIRECT, "308: see the Location field\n"),
        _ => (StatusCode::TEMPORARY_REDIRECT, "307: see the Location field\n"),
    };
    let Ok(location) = HeaderValue::from_str(location) else {
        return page_not_found(head);
    };
    let is_permanent = matches!(status.as_u16(), 301 | 308);
    let mut response = answer(status, PLAIN, if is_permanent { "max-age=3600" } else { "max-age=60" }, text, head);
    response.headers_mut().insert(LOCATION, location);
    response
}
