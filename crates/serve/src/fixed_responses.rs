//! Responses that are not files: refusals, redirects and the built-in pages.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::body::{BodyLocation, ResponseBody};
use super::body_chunk::BodyChunk;
use super::conditional::PreconditionOutcome;
use super::header_pool;
use super::insertion::InsertedTag;

/// The methods that the site's resources support.
pub const ALLOWED_METHODS: &str = "GET, HEAD, OPTIONS";

/// The Retry-After of a response without a version, in seconds.
pub(super) const FIRST_VERSION_RETRY_SECONDS: u32 = 5;

/// Creates a response with a fixed text. With `is_head`, the body is left out and Content-Length stays.
fn text_response(
    status: StatusCode,
    media_type: &'static str,
    cache: &'static str,
    text: &'static str,
    is_head: bool,
) -> Response<ResponseBody> {
    let text = text.as_bytes();
    let body = if is_head {
        ResponseBody::empty().with_location(BodyLocation::Empty)
    } else {
        ResponseBody::full(Bytes::from_static(text)).with_location(BodyLocation::StaticText(text))
    };
    let mut response = header_pool::new_response(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

/// Selects status, Content-Length and body of a response with this content by the outcome of its preconditions.
pub(super) fn select_content(
    outcome: PreconditionOutcome,
    is_head: bool,
    content: Bytes,
) -> (StatusCode, Option<usize>, ResponseBody) {
    match outcome {
        PreconditionOutcome::Proceed if is_head => (StatusCode::OK, Some(content.len()), ResponseBody::empty()),
        PreconditionOutcome::Proceed => (StatusCode::OK, Some(content.len()), ResponseBody::full(content)),
        PreconditionOutcome::Failed => (StatusCode::PRECONDITION_FAILED, Some(0), ResponseBody::empty()),
        PreconditionOutcome::NotModified => (StatusCode::NOT_MODIFIED, None, ResponseBody::empty()),
    }
}

/// The Retry-After while a site has no search index yet, in seconds.
pub(super) const INDEXING_RETRY_SECONDS: u32 = 2;

/// Tells the client of a response after how many seconds it may try again; `None` if that does not help.
pub(super) fn with_retry_after(
    mut response: Response<ResponseBody>,
    seconds: impl Into<Option<u32>>,
) -> Response<ResponseBody> {
    if let Some(seconds) = seconds.into() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Creates a response that no cache stores.
pub(super) fn uncached_response(
    status: StatusCode,
    media_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<ResponseBody> {
    let text = text.into();
    let len = text.len();
    let mut response = header_pool::new_response(status, ResponseBody::full(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) const JSON_TYPE: &str = "application/json";
pub(super) const PLAIN_TEXT_TYPE: &str = "text/plain; charset=utf-8";
const HTML_TYPE: &str = "text/html; charset=utf-8";
/// The Cache-Control of a 404 response. It is short, because the next version may have the page.
pub(super) const NOT_FOUND_CACHE: &str = "max-age=60";

/// The page that is sent if the site has no 404 page of its own.
const NOT_FOUND_PAGE: &str = include_str!("pages/404.html");

/// Returns the 404 response for a page if the site has no 404 page of its own.
pub fn page_not_found(is_head: bool) -> Response<ResponseBody> {
    text_response(StatusCode::NOT_FOUND, HTML_TYPE, NOT_FOUND_CACHE, NOT_FOUND_PAGE, is_head)
}

/// Returns the response of [`page_not_found`] with a tag behind the page.
pub(super) fn page_not_found_with_tag(is_head: bool, tag: &InsertedTag) -> Response<ResponseBody> {
    let mut response = page_not_found(is_head);
    let page = NOT_FOUND_PAGE.as_bytes();
    if !is_head {
        let body = ResponseBody::from(BodyChunk::from(Bytes::from_static(page)).followed_by(tag.bytes()));
        *response.body_mut() = body.with_location(BodyLocation::TextWithTag(page, tag.digest()));
    }
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(page.len() + tag.bytes().len()));
    response
}

/// Returns the 404 response for files that are not pages, such as scripts and images: one line of text.
pub fn file_not_found(is_head: bool) -> Response<ResponseBody> {
    text_response(StatusCode::NOT_FOUND, PLAIN_TEXT_TYPE, NOT_FOUND_CACHE, "404: no such file\n", is_head)
}

/// Returns the 503 response that is sent while no version is served.
pub fn no_version(is_head: bool) -> Response<ResponseBody> {
    let page = include_str!("pages/503.html");
    let response = text_response(StatusCode::SERVICE_UNAVAILABLE, HTML_TYPE, "no-store", page, is_head);
    with_retry_after(response, FIRST_VERSION_RETRY_SECONDS)
}

/// Returns the 503 response for `llms.txt` and `llms-full.txt` if the list of the pages could not be made.
pub(super) fn list_failed(is_head: bool) -> Response<ResponseBody> {
    let text = "503: the list of the pages could not be made; the log of the server has the reason\n";
    text_response(StatusCode::SERVICE_UNAVAILABLE, PLAIN_TEXT_TYPE, "no-store", text, is_head)
}

/// Returns a 400 response. With `close`, the connection ends, because later bytes on it cannot be interpreted safely.
pub fn bad_request(is_head: bool, close: bool) -> Response<ResponseBody> {
    let mut response =
        text_response(StatusCode::BAD_REQUEST, PLAIN_TEXT_TYPE, "no-store", "400: bad request\n", is_head);
    if close {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns the 403 response for clients without access. It is the same for paths that exist and paths that do not.
pub fn forbidden(is_head: bool) -> Response<ResponseBody> {
    text_response(StatusCode::FORBIDDEN, PLAIN_TEXT_TYPE, "no-store", "403: you may not read this site\n", is_head)
}

/// Returns a 431 response for a request whose header section is too large.
pub fn fields_too_large(is_head: bool) -> Response<ResponseBody> {
    let text = "431: the request's fields are too large\n";
    text_response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, PLAIN_TEXT_TYPE, "no-store", text, is_head)
}

/// Returns a 405 response.
pub fn method_not_allowed(is_head: bool) -> Response<ResponseBody> {
    let text = "405: method not allowed\n";
    let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, PLAIN_TEXT_TYPE, "no-store", text, is_head);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED_METHODS));
    response
}

/// Returns the 204 response to OPTIONS.
pub fn options() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED_METHODS));
    response
}

/// Returns a redirect with status 301, 302, 303, 307 or 308; any other status becomes 307. The next version may have
/// the page elsewhere, so a temporary redirect is cached for a minute, and a permanent one for an hour: a wrong rule
/// can be corrected.
pub fn redirect(status: u16, location: &str, is_head: bool) -> Response<ResponseBody> {
    let (status, text) = match status {
        301 => (StatusCode::MOVED_PERMANENTLY, "301: see the Location field\n"),
        302 => (StatusCode::FOUND, "302: see the Location field\n"),
        303 => (StatusCode::SEE_OTHER, "303: see the Location field\n"),
        308 => (StatusCode::PERMANENT_REDIRECT, "308: see the Location field\n"),
        _ => (StatusCode::TEMPORARY_REDIRECT, "307: see the Location field\n"),
    };
    let Ok(location) = HeaderValue::from_str(location) else {
        return page_not_found(is_head);
    };
    let is_permanent = matches!(status.as_u16(), 301 | 308);
    let mut response =
        text_response(status, PLAIN_TEXT_TYPE, if is_permanent { "max-age=3600" } else { "max-age=60" }, text, is_head);
    response.headers_mut().insert(LOCATION, location);
    response
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn field(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
        headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn fixed_responses_have_content_length_and_cache_control() {
        type Make = fn(bool) -> Response<ResponseBody>;
        for (make, status, kind, cache) in [
            (page_not_found as Make, 404, HTML_TYPE, "max-age=60"),
            (file_not_found, 404, PLAIN_TEXT_TYPE, "max-age=60"),
            (no_version, 503, HTML_TYPE, "no-store"),
            (list_failed, 503, PLAIN_TEXT_TYPE, "no-store"),
            (|is_head| bad_request(is_head, false), 400, PLAIN_TEXT_TYPE, "no-store"),
            (|is_head| bad_request(is_head, true), 400, PLAIN_TEXT_TYPE, "no-store"),
            (forbidden, 403, PLAIN_TEXT_TYPE, "no-store"),
            (fields_too_large, 431, PLAIN_TEXT_TYPE, "no-store"),
            (|is_head| redirect(301, "/x", is_head), 301, PLAIN_TEXT_TYPE, "max-age=3600"),
        ] {
            let (full, head) = (make(false), make(true));
            assert_eq!((full.status().as_u16(), head.status().as_u16()), (status, status));
            assert_eq!(full.headers(), head.headers(), "{status}");
            assert_eq!(field(full.headers(), CONTENT_TYPE), Some(kind), "{status}");
            assert_eq!(field(full.headers(), CACHE_CONTROL), Some(cache), "{status}");
            let len = full.body().len();
            assert_eq!(field(full.headers(), CONTENT_LENGTH), Some(len.to_string().as_str()), "{status}");
            assert!(len > 0 && head.body().is_empty(), "{status}");
            assert!(
                matches!(full.body().location(), Some(BodyLocation::StaticText(text)) if text.len() as u64 == len),
                "{status}"
            );
            assert_eq!(head.body().location(), Some(&BodyLocation::Empty), "{status}");
        }
        assert!(file_not_found(false).body().len() < 100, "one short line");
        for closes in [false, true] {
            let response = bad_request(false, closes);
            assert_eq!(field(response.headers(), CONNECTION), Some("close").filter(|_| closes));
        }
        assert_eq!(field(no_version(false).headers(), RETRY_AFTER), Some("5"));
    }

    #[test]
    fn the_built_in_404_page_can_have_a_tag_behind_it() {
        let tag = InsertedTag::new("/docs/").expect("a short base path");
        let (plain, full, head) =
            (page_not_found(false), page_not_found_with_tag(false, &tag), page_not_found_with_tag(true, &tag));
        assert_eq!(full.headers(), head.headers());
        let len = plain.body().len() + tag.bytes().len() as u64;
        assert_eq!((full.body().len(), head.body().len()), (len, 0));
        let mut expected = plain.headers().clone();
        expected.insert(CONTENT_LENGTH, HeaderValue::from(len));
        assert_eq!(*full.headers(), expected);
        assert_eq!(head.body().location(), Some(&BodyLocation::Empty));
        assert!(matches!(full.body().location(), Some(BodyLocation::TextWithTag(..))));
    }

    #[test]
    fn options_and_method_not_allowed_responses_list_the_allowed_methods() {
        for (response, status) in [(options(), 204), (method_not_allowed(false), 405)] {
            assert_eq!(response.status(), status);
            assert_eq!(field(response.headers(), ALLOW), Some("GET, HEAD, OPTIONS"), "{status}");
            assert_eq!(response.body().is_empty(), status == 204);
        }
    }

    #[test]
    fn a_redirect_has_its_configured_status_and_a_cache_lifetime_for_that_status() {
        for (status, expected, cache) in [
            (301, 301, "max-age=3600"),
            (302, 302, "max-age=60"),
            (303, 303, "max-age=60"),
            (307, 307, "max-age=60"),
            (308, 308, "max-age=3600"),
            (300, 307, "max-age=60"),
        ] {
            let response = redirect(status, "/guide?x=y", false);
            assert_eq!(response.status(), expected, "{status}");
            assert_eq!(field(response.headers(), LOCATION), Some("/guide?x=y"), "{status}");
            assert_eq!(field(response.headers(), CACHE_CONTROL), Some(cache), "{status}");
        }
        for wrong in ["/a\r\nX: y", "/\0"] {
            let response = redirect(301, wrong, false);
            assert_eq!((response.status().as_u16(), response.headers().get(LOCATION)), (404, None), "{wrong:?}");
        }
    }
}
