//! Answers `POST BASE/_docwharf/events`, to which the search box sends what its reader does: searches, clicks on
//! results and soft navigations. The response is known before the body, or after it ([`EventRequest`]).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ORIGIN, RETRY_AFTER};
use http::{HeaderValue, Method, Response, StatusCode};
use percent_encoding::percent_decode;

use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::{BasePathMatch, RESERVED_FOLDER, Slashes, match_base_path};
use docwharf_site::rules::route::{RouteResult, RouteSettings, route_address};
use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::fixed_responses;
use super::header_pool;
use super::recording::Recorder;
use super::recording::event_batch::{ReceivedEvent, parse_events};
use super::recording::recorded_fields::RecordedFields;
use super::recording::request_body::BodyFault;
use super::request_checks::{check_access, check_request_head};
use super::request_context::{MethodClass, RequestContext};
use super::site::Site;

/// The largest body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 8 << 10;
/// The Retry-After of a client that has sent too many requests, in seconds.
const RATE_RETRY_SECONDS: &str = "60";

/// A request with events that is answered after its body was read.
#[derive(Debug)]
pub(super) struct EventRequest {
    recorder: Arc<Recorder>,
    /// Whether nothing is recorded, because the client has opted out (`analytics.respectOptOut`).
    is_opted_out: bool,
}

/// Returns whether this target, path and query, is that of events.
pub(super) fn is_event_target(site: &Site, target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let decoded: Cow<'_, [u8]> = percent_decode(path.as_bytes()).into();
    let base_path = &site.settings.base_path;
    let BasePathMatch::Inside(_) = match_base_path(base_path, &decoded) else { return false };
    is_event_path(&decoded[base_path.len() - 1..])
}

fn is_event_path(path: &[u8]) -> bool {
    path.strip_prefix(b"/").and_then(|path| path.strip_prefix(RESERVED_FOLDER)) == Some(b"/events")
}

/// Checks a POST request with events before its body is read: returns the request, or the refusal; `None` if the
/// request is for another address. A client that may not read the site learns nothing more.
pub(super) fn check_event_request(
    context: &RequestContext<'_>,
) -> Option<Result<EventRequest, Response<ResponseBody>>> {
    if context.method() != Method::POST || !context.path_in_site().is_some_and(is_event_path) {
        return None;
    }
    if let Some(refusal) = check_access(context).or_else(|| check_request_head(context)) {
        return Some(Err(refusal));
    }
    let recorder = context.site().recorder()?;
    let fields = RecordedFields::from_request(context.target(), context.headers());
    let refusal = if is_foreign(context) {
        Some(text_response(
            StatusCode::FORBIDDEN,
            "403: the field Origin names another host; only pages of this site may send events\n",
        ))
    } else if !has_accepted_type(context) {
        let text = "415: the body must be application/json or text/plain\n";
        Some(text_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
    } else if declared_length(context).is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        Some(too_large())
    } else if !recorder.allows_events_from(context.client().address) {
        let text =
            "429: more than 60 requests with events in a minute from this network address; try again in a minute\n";
        let mut response = text_response(StatusCode::TOO_MANY_REQUESTS, text);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RATE_RETRY_SECONDS));
        Some(response)
    } else {
        None
    };
    Some(match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(EventRequest { is_opted_out: !recorder.records_events_of(&fields), recorder }),
    })
}

/// Refuses a request for events that is not a POST, or that comes while nothing is recorded; `None` if the request is
/// for something else.
pub(super) fn refuse_event_request(context: &RequestContext<'_>) -> Option<Response<ResponseBody>> {
    if !context.path_in_site().is_some_and(is_event_path) {
        return None;
    }
    if let Some(refusal) = check_request_head(context) {
        return Some(refusal);
    }
    let is_recorded = context.site().load_recorder().is_some();
    let mut response = match (context.method_class(), is_recorded) {
        (MethodClass::Options, true) => fixed_responses::options(),
        (MethodClass::Options, false) => return None,
        (_, true) => fixed_responses::method_not_allowed(context.is_head()),
        (_, false) => return Some(fixed_responses::file_not_found(context.is_head())),
    };
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, OPTIONS"));
    Some(response)
}

impl EventRequest {
    /// Records the events and returns the response.
    pub(super) fn respond(
        self,
        context: &RequestContext<'_>,
        body: Result<Bytes, BodyFault>,
    ) -> Response<ResponseBody> {
        // The access control may have changed since then.
        if let Some(refusal) = check_access(context) {
            return refusal;
        }
        let body = match body {
            Ok(body) => body,
            Err(BodyFault::TooLarge) => return too_large(),
            Err(BodyFault::Slow) => {
                return text_response(StatusCode::REQUEST_TIMEOUT, "408: the body was not complete after 10 seconds\n");
            }
            Err(BodyFault::Incomplete) => {
                return text_response(StatusCode::BAD_REQUEST, "400: the body ends too early\n");
            }
        };
        match parse_events(&body) {
            Ok(events) => {
                if !self.is_opted_out {
                    self.record(context, events);
                }
                let mut response = Response::new(ResponseBody::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Err(fault) => text_response(StatusCode::BAD_REQUEST, format!("400: {fault}\n")),
        }
    }

    fn record(&self, context: &RequestContext<'_>, events: Vec<ReceivedEvent>) {
        let Some(version) = context.shared_version() else { return };
        let fields = RecordedFields::from_request(context.target(), context.headers());
        for event in events {
            match event {
                ReceivedEvent::Search { id, query, results } => {
                    if self.recorder.records_searches() {
                        self.recorder.note_search(id, query, results);
                    }
                }
                ReceivedEvent::Click { id, page } => {
                    if self.recorder.records_searches()
                        && let Some(file) = find_page(context.site(), &version, &page)
                    {
                        self.recorder.note_click(id, &version, file);
                    }
                }
                ReceivedEvent::View { page } => {
                    if let Some(file) = find_page(context.site(), &version, &page) {
                        self.recorder.note_soft_view(&fields, &version, file);
                    }
                }
            }
        }
    }
}

/// Finds the page of a version that is served at this percent-encoded path; `None` if there is none.
fn find_page(site: &Site, version: &SealedVersion, path: &str) -> Option<usize> {
    let decoded: Vec<u8> = percent_decode(path.as_bytes()).collect();
    if decoded.iter().any(|&byte| byte < 0x20 || byte == 0x7f) {
        return None;
    }
    let base_path = &site.settings.base_path;
    let in_site = match match_base_path(base_path, &decoded) {
        BasePathMatch::Inside(_) => &decoded[base_path.len() - 1..],
        BasePathMatch::Above => b"/",
        BasePathMatch::Outside | BasePathMatch::FrontPagePayload(_) => return None,
    };
    let rules = site.rules();
    // A page counts at each of its addresses.
    let settings = RouteSettings { base_path, slashes: Slashes::Serve, rules: &rules };
    let route = route_address(version, &settings, in_site, None);
    let (RouteResult::File(file) | RouteResult::Rewritten(file, 200)) = route else { return None };
    is_page(version.index().path(file)).then_some(file)
}

/// Returns whether a page of another site has sent the request (RFC 6454, section 7). A client without `Origin` is no
/// browser.
fn is_foreign(context: &RequestContext<'_>) -> bool {
    // Scripts cannot set this field, and it does not depend on a proxy that changes Host.
    if context.headers().get("sec-fetch-site").is_some_and(|site| site == "same-origin") {
        return false;
    }
    let mut origins = context.headers().get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return false };
    let authority = context.target().authority().map(|authority| authority.as_str().as_bytes());
    let host = context.headers().get(http::header::HOST).map(HeaderValue::as_bytes).or(authority);
    let origin = origin.as_bytes();
    let own = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"));
    let is_own = own.zip(host).is_some_and(|(own, host)| own.eq_ignore_ascii_case(host));
    !is_own || origins.next().is_some()
}

fn has_accepted_type(context: &RequestContext<'_>) -> bool {
    let Some(value) = context.headers().get(CONTENT_TYPE) else { return false };
    let essence = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"application/json") || essence.eq_ignore_ascii_case(b"text/plain")
}

fn declared_length(context: &RequestContext<'_>) -> Option<u64> {
    context.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large() -> Response<ResponseBody> {
    text_response(StatusCode::PAYLOAD_TOO_LARGE, "413: the body is larger than 8 KiB; send fewer events\n")
}

fn text_response(status: StatusCode, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let text = text.into();
    let len = text.len();
    let mut response = header_pool::new_response(status, ResponseBody::full(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
