//! Responses that all admin routes share.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};

use docwharf_serve::body::ResponseBody;

pub(super) const TEXT_TYPE: &str = "text/plain; charset=utf-8";
pub(super) const JSON_TYPE: &str = "application/json";

/// The transport on which a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminTransport {
    /// The control socket: the client runs as the user of this process or as root.
    Socket,
    /// The network: any client.
    Network,
}

/// Creates a response that is never cached.
pub(super) fn admin_response(
    status: StatusCode,
    media_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Responds with 421 to a request that names another host (RFC 9110, section 15.5.20).
pub(super) fn respond_misdirected() -> Response<ResponseBody> {
    let text = "421 Misdirected Request: the Host field does not name this listener; use an IP address, localhost or the \
                machine's name, or add the name to admin.hosts\n";
    admin_response(StatusCode::MISDIRECTED_REQUEST, TEXT_TYPE, text)
}

pub(super) fn respond_not_allowed(allowed: &'static str) -> Response<ResponseBody> {
    let mut response = admin_response(StatusCode::METHOD_NOT_ALLOWED, TEXT_TYPE, "405: method not allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
