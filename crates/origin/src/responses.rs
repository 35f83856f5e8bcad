//! Responses of the API that all modules share: errors, JSON, texts, and the header fields that every response has.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::api_types::{ErrorBody, ErrorDetail};
use super::body::ApiBody;

/// The `Retry-After` of a response for a temporary failure, in seconds.
const RETRY_AFTER_SECONDS: u64 = 5;

pub(super) fn not_found() -> Response<ApiBody> {
    error(StatusCode::NOT_FOUND, "there is nothing at this address")
}

pub(super) fn job_not_found() -> Response<ApiBody> {
    error(StatusCode::NOT_FOUND, "no such job; it may be too old; start another one")
}

/// Creates the 405 response with the allowed methods in `Allow` (RFC 9110, section 15.5.6).
pub(super) fn method_not_allowed(methods: &[&str]) -> Response<ApiBody> {
    let list = methods.join(", ");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this address allows only {list}"));
    set_field(response.headers_mut(), ALLOW, &list);
    response
}

pub(super) fn try_later(status: StatusCode, reason: &str) -> Response<ApiBody> {
    error_with_retry(status, reason, Duration::from_secs(RETRY_AFTER_SECONDS))
}

/// Creates an error response with `Retry-After`, for a refusal that is temporary.
pub(super) fn error_with_retry(status: StatusCode, reason: &str, wait: Duration) -> Response<ApiBody> {
    let mut response = error(status, reason);
    // `Retry-After` has whole seconds; rounding up prevents a retry that is too early.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    response
}

/// Creates the 503 response for an internal failure. The reason goes to the log only, because a client may belong to
/// another organization.
pub(super) fn unavailable(doing: &str, reason: &dyn std::fmt::Display) -> Response<ApiBody> {
    tracing::error!("cannot {doing}: {reason}");
    try_later(StatusCode::SERVICE_UNAVAILABLE, "the origin cannot do this at the moment; its log has the reason")
}

pub(super) fn error(status: StatusCode, reason: &str) -> Response<ApiBody> {
    error_with_details(status, reason, Vec::new())
}

/// Creates an error response that lists each single mistake in `details`.
pub(super) fn error_with_details(status: StatusCode, reason: &str, details: Vec<String>) -> Response<ApiBody> {
    let details = details.into_iter().map(|message| ErrorDetail { message }).collect();
    json(status, &ErrorBody { error: reason.to_owned(), details })
}

/// Adds `details` to an error of the analytics operations, which always have it: if there are no single mistakes, the
/// list has the error itself.
pub(super) fn with_details(mut response: Response<ApiBody>) -> Response<ApiBody> {
    if response.status().as_u16() < 400 {
        return response;
    }
    let ApiBody::Memory(text) = response.body() else { return response };
    let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_slice(text) else { return response };
    let Some(error) = fields.get("error").cloned() else { return response };
    fields.entry("details").or_insert_with(|| serde_json::json!([{ "message": error }]));
    let text = Bytes::from(serde_json::Value::Object(fields).to_string());
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    *response.body_mut() = ApiBody::Memory(text);
    response
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<ApiBody> {
    match serde_json::to_string(value) {
        Ok(json) => text(status, "application/json", json),
        Err(error) => {
            tracing::error!("cannot write a response: {error}");
            empty_response(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

pub(super) fn text(status: StatusCode, media_type: &str, text: String) -> Response<ApiBody> {
    let text = Bytes::from(text);
    let mut response = empty_response(status);
    let fields = response.headers_mut();
    set_field(fields, CONTENT_TYPE, media_type);
    fields.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    *response.body_mut() = ApiBody::Memory(text);
    response
}

pub(super) fn empty_response(status: StatusCode) -> Response<ApiBody> {
    let mut response = Response::new(ApiBody::empty());
    *response.status_mut() = status;
    set_field(response.headers_mut(), CACHE_CONTROL, "no-store");
    set_field(response.headers_mut(), X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

/// Sets a header field to a text that the origin has made; such a text has only characters that are valid in a field
/// value.
pub(super) fn set_field(fields: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(response: &Response<ApiBody>) -> &str {
        match response.body() {
            ApiBody::Memory(text) => std::str::from_utf8(text).unwrap(),
            ApiBody::File(_) => panic!("no text"),
        }
    }

    fn field(response: &Response<ApiBody>, name: HeaderName) -> Option<&str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        for (wait, seconds) in [
            (Duration::ZERO, "1"),
            (Duration::from_nanos(1), "1"),
            (Duration::from_secs(1), "1"),
            (Duration::from_millis(1001), "2"),
            (Duration::from_millis(59_999), "60"),
            (Duration::from_hours(1), "3600"),
        ] {
            let response = error_with_retry(StatusCode::TOO_MANY_REQUESTS, "x", wait);
            assert_eq!(field(&response, RETRY_AFTER), Some(seconds), "{wait:?}");
        }
        let response = unavailable("read", &"secret");
        assert_eq!((response.status(), field(&response, RETRY_AFTER)), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
        assert!(!body(&response).contains("secret"), "a client must not get the reason of an internal error");
    }

    #[test]
    fn api_error_responses_are_json_with_a_content_length_and_no_store() {
        for (response, status) in [
            (not_found(), StatusCode::NOT_FOUND),
            (job_not_found(), StatusCode::NOT_FOUND),
            (method_not_allowed(&["GET", "HEAD"]), StatusCode::METHOD_NOT_ALLOWED),
            (error(StatusCode::BAD_REQUEST, "x"), StatusCode::BAD_REQUEST),
        ] {
            let len = body(&response).len().to_string();
            assert_eq!((response.status(), field(&response, CONTENT_LENGTH)), (status, Some(len.as_str())));
            assert_eq!(field(&response, CONTENT_TYPE), Some("application/json"));
            assert_eq!(field(&response, CACHE_CONTROL), Some("no-store"));
            assert_eq!(field(&response, X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
            let has_allow_field = status == StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(field(&response, ALLOW), has_allow_field.then_some("GET, HEAD"));
        }
    }

    #[test]
    fn analytics_error_responses_get_details_and_other_responses_stay_unchanged() {
        let parse = |response: &Response<ApiBody>| serde_json::from_str::<serde_json::Value>(body(response)).unwrap();
        let single = with_details(error(StatusCode::BAD_REQUEST, "x"));
        assert_eq!(parse(&single), serde_json::json!({ "error": "x", "details": [{ "message": "x" }] }));
        assert_eq!(field(&single, CONTENT_LENGTH), Some(body(&single).len().to_string().as_str()));
        let several =
            with_details(error_with_details(StatusCode::BAD_REQUEST, "x", vec!["a".to_owned(), "b".to_owned()]));
        let details = serde_json::json!([{ "message": "a" }, { "message": "b" }]);
        assert_eq!(parse(&several), serde_json::json!({ "error": "x", "details": details }));
        for (status, value) in [
            (StatusCode::OK, serde_json::json!({ "error": "x" })),
            (StatusCode::PERMANENT_REDIRECT, serde_json::json!({ "error": "x" })),
            (StatusCode::BAD_REQUEST, serde_json::json!({ "message": "x" })),
            (StatusCode::BAD_REQUEST, serde_json::json!(["error"])),
        ] {
            assert_eq!(parse(&with_details(json(status, &value))), value, "{status}");
        }
        let plain = with_details(text(StatusCode::BAD_REQUEST, "text/plain", "x".to_owned()));
        assert_eq!(body(&plain), "x");
    }
}
