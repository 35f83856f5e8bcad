//! Answers `POST BASE/_docwharf/events`, to which the search box sends what its reader does: searches, clicks on
//! results and soft navigations. The response is known before the body, or after it ([`EventRequest`]).

use std::sync::Arc;

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, Response, StatusCode};
use percent_encoding::percent_decode;

use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::{BasePathMatch, Slashes, match_base_path};
use docwharf_site::rules::route::{RouteResult, RouteSettings, route_address};
use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::fixed_responses::{JSON_TYPE, PLAIN_TEXT_TYPE, uncached_response, with_retry_after};
use super::held_bytes::HeldBytes;
use super::own_origin::{RequestOrigin, is_own_origin};
use super::recording::Recorder;
use super::recording::event_batch::{ReceivedEvent, parse_events};
use super::recording::recorded_fields::RecordedFields;
use super::request_body::{BodyFault, BodyLimits, CountedBytes};
use super::request_checks::declared_media_type;
use super::request_context::RequestContext;
use super::request_rate::RATE_RETRY_SECONDS;
use super::site::Site;

/// The largest body, in bytes.
const MAX_BODY_BYTES: usize = 8 << 10;
/// The limit of [`BODY_MEMORY`], in bytes.
const MAX_BODY_MEMORY_BYTES: u64 = 8 << 20;
/// The memory of the bodies of all requests with events of the process.
static BODY_MEMORY: HeldBytes = HeldBytes::new(MAX_BODY_MEMORY_BYTES);
/// The limits of bodies.
pub(super) static BODY_LIMITS: BodyLimits = BodyLimits::new(MAX_BODY_BYTES, &BODY_MEMORY);

/// A request with events that is answered after its body was read.
#[derive(Debug)]
pub(super) struct EventRequest {
    recorder: Arc<Recorder>,
    /// Whether nothing is recorded, because the client has opted out (`analytics.respectOptOut`).
    is_opted_out: bool,
}

/// Checks a request with events before its body is read: returns the request, or the refusal; `None` if nothing is
/// recorded.
pub(super) fn check_event_request(
    context: &RequestContext<'_>,
) -> Option<Result<EventRequest, Response<ResponseBody>>> {
    let recorder = context.site().recorder()?;
    let fields = RecordedFields::from_request(context.target(), context.headers());
    let refusal = if is_foreign(context) {
        Some(text_response(
            StatusCode::FORBIDDEN,
            "403: the field Origin names another site; only pages of this site may send events\n",
        ))
    } else if !has_accepted_type(context) {
        let text = "415: the body must be application/json or text/plain\n";
        Some(text_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
    } else if !recorder.allows_events_from(context.client().address) {
        let text =
            "429: more than 60 requests with events in a minute from this network address; try again in a minute\n";
        Some(with_retry_after(text_response(StatusCode::TOO_MANY_REQUESTS, text), RATE_RETRY_SECONDS))
    } else {
        None
    };
    Some(match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(EventRequest { is_opted_out: !recorder.records_events_of(&fields), recorder }),
    })
}

impl EventRequest {
    /// Records the events and returns the response.
    pub(super) fn respond(
        self,
        context: &RequestContext<'_>,
        body: Result<CountedBytes, BodyFault>,
    ) -> Response<ResponseBody> {
        let body = match body {
            Ok(body) => body,
            Err(fault) => {
                let status = fault.status();
                let response = text_response(status, format!("{}: {}\n", status.as_u16(), fault.message(BODY_LIMITS)));
                return with_retry_after(response, fault.retry_seconds());
            }
        };
        match parse_events(body.as_ref()) {
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

/// Returns whether a page of another site has sent the request. A client without `Origin` is no browser: browsers send
/// the field with every POST request (Fetch, 3.2), also with that of `sendBeacon`. A page whose name was rebound to
/// this server gains nothing: it can record no more than a client that is not a browser.
fn is_foreign(context: &RequestContext<'_>) -> bool {
    RequestOrigin::read(context) != RequestOrigin::Absent && !is_own_origin(context)
}

fn has_accepted_type(context: &RequestContext<'_>) -> bool {
    let media_type = declared_media_type(context);
    media_type.eq_ignore_ascii_case(JSON_TYPE.as_bytes()) || media_type.eq_ignore_ascii_case(b"text/plain")
}

fn text_response(status: StatusCode, text: impl Into<Bytes>) -> Response<ResponseBody> {
    uncached_response(status, PLAIN_TEXT_TYPE, text)
}
