//! Header fields of a response with the length of a bundle and the validator of its content.

use http::header::{CONTENT_LENGTH, DATE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName};

/// Returns the length that the response announces, in bytes.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Returns a header field as text, without white space around it.
pub(super) fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned())
}

/// Returns the validator of the content: a strong `ETag`, else Last-Modified.
pub(super) fn validator(headers: &HeaderMap) -> Option<String> {
    match text(headers, ETAG) {
        Some(etag) if etag.starts_with('"') => Some(etag),
        _ => text(headers, LAST_MODIFIED),
    }
}

/// Returns the validator under which a part may be resumed: a strong `ETag`, or a Last-Modified that is strong because
/// it is older than the response (RFC 9110 section 8.8.2.2).
pub(super) fn strong_validator(headers: &HeaderMap) -> Option<String> {
    let validator = validator(headers)?;
    if validator.starts_with('"') {
        return Some(validator);
    }
    let date = |name| httpdate::parse_http_date(&text(headers, name)?).ok();
    let is_strong = date(DATE)?.duration_since(date(LAST_MODIFIED)?).is_ok_and(|age| age.as_secs() >= 1);
    is_strong.then_some(validator)
}
