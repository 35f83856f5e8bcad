//! Answers requests for all protocols. The fast path of HTTP/1.1, hyper and HTTP/2 only parse requests and write
//! responses.
//!
//! A request is first looked up in the response cache ([`respond_from_cache`]). If that has no response, the request is
//! passed to the handler, which applies access control and the header stages; the response is counted and, if there is
//! an access log, logged ([`respond`]).

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response, StatusCode};

use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::body_chunk::BodyChunk;
use super::handler;
use super::header_pool;
use super::logged_body::LoggedBody;
use super::peer::Peer;
use super::recording::recorded_fields::RecordedFields;
use super::recording::{RecordedRequest, ViewedContent};
use super::request_body::RequestBody;
use super::request_context::{MethodClass, RequestContext};
use super::request_step::{FinishedStep, RequestStep};
use super::response_cache::{CacheAddress, CachedResponse};
use super::search_handler::may_need_query;
use super::site::Site;

/// A response of a site. It is available at once, except for a search, for a request with a body, for a page that must
/// be converted to Markdown, and while the versions that were replaced before a start are being opened.
#[allow(clippy::large_enum_variant)] // nearly all are the large variant, and a box would cost an allocation for each
pub(super) enum SiteResponse {
    Ready(Ready<Response<LoggedBody>>),
    Deferred(DeferredSiteResponse),
    /// As `Deferred`, but the response and its body are dropped as soon as the client has closed its sending side,
    /// because the work for them costs far more than a file. Other clients that have closed it still get a response.
    DeferredWhileConnected(DeferredSiteResponse),
}

/// A response that waits for the query of a search, for the body of a POST request and what is done with it, for
/// Markdown, or until a replaced version is open.
pub(super) type DeferredSiteResponse = Pin<Box<dyn Future<Output = Response<LoggedBody>> + Send>>;

impl Future for SiteResponse {
    type Output = Response<LoggedBody>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<LoggedBody>> {
        match self.get_mut() {
            SiteResponse::Ready(response) => Pin::new(response).poll(context),
            SiteResponse::Deferred(response) | SiteResponse::DeferredWhileConnected(response) => {
                response.as_mut().poll(context)
            }
        }
    }
}

/// Answers a request with these fields from the response cache: appends the head of the response to `out`, counts the
/// response and returns its body. If the cache has no usable response, `out` is unchanged and `None` is returned.
#[inline]
pub(super) fn respond_from_cache(
    site: &Site,
    address: &CacheAddress<'_>,
    fields: &RecordedFields<'_>,
    out: &mut Vec<u8>,
) -> Option<BodyChunk> {
    let CachedResponse { status, viewed, body, version_instance } = address.find(site, out)?;
    site.count_response(status);
    if let Some(target) = address.target_of_get_request()
        && let Some(recorder) = &*site.load_recorder()
    {
        let request = RecordedRequest { target, fields: *fields };
        // Another version may be served by now, whose files have other numbers.
        let version = site.load_served_version();
        let version = version.as_ref().filter(|version| Some(version.instance_id) == version_instance);
        recorder.note_response(&request, status, viewed, version);
    }
    Some(body)
}

/// Answers a request to which the cache has no response. Its [`RequestStep`] is waited for, and a request for an asset
/// of a replaced version waits while that version may still be opened.
pub(super) fn respond<B: RequestBody>(site: &Arc<Site>, request: Request<B>, peer: Peer) -> SiteResponse {
    let arrival = Arrival::now(site, peer);
    let context = RequestContext::new(site, &request, Some(peer));
    let response = match RequestStep::of(&context) {
        RequestStep::Now => {
            if site.is_opening()
                && let Some(asset) = handler::find_unopened_asset_path(&context)
            {
                let site = Arc::clone(site);
                drop(context);
                return SiteResponse::Deferred(Box::pin(async move {
                    site.retained_versions.wait_for(&asset).await;
                    respond_with(&site, request, arrival, handler::response_for)
                }));
            }
            respond_in(&context, arrival, handler::response_for)
        }
        RequestStep::Refused(refusal) => {
            respond_in(&context, arrival, |context| handler::respond_to_step(context, FinishedStep::Post(refusal)))
        }
        step @ (RequestStep::Post(_) | RequestStep::Query(_) | RequestStep::Conversion(_)) => {
            drop(context);
            let (site, ends_with_client) = (Arc::clone(site), step.ends_with_client());
            let response: DeferredSiteResponse = Box::pin(async move {
                let (finished, request) = step.finish(&site, request, Some(peer)).await;
                let version = finished.version();
                respond_at(&site, request, arrival, version, |context| handler::respond_to_step(context, finished))
            });
            let defer = if ends_with_client { SiteResponse::DeferredWhileConnected } else { SiteResponse::Deferred };
            return defer(response);
        }
    };
    drop(context);
    recycle_fields(request);
    SiteResponse::Ready(ready(response))
}

/// Returns whether [`respond`] may have to wait for the response to a request for this target, path and query.
pub(super) fn may_wait(site: &Site, target: &str) -> bool {
    site.is_opening() || may_need_query(site, target)
}

/// Answers a GET or HEAD request as [`respond`] does, but never waits; `None` if its response waits for something that
/// [`may_wait`] cannot see in its target, such as a page that must be converted to Markdown.
pub(super) fn respond_now<B>(site: &Site, request: Request<B>, peer: Peer) -> Option<Response<LoggedBody>> {
    let arrival = Arrival::now(site, peer);
    let context = RequestContext::new(site, &request, Some(peer));
    let RequestStep::Now = RequestStep::of(&context) else { return None };
    let response = respond_in(&context, arrival, handler::response_for);
    drop(context);
    recycle_fields(request);
    Some(response)
}

/// Answers a request with `refusal`, or with 403 if the client may not read the site.
pub(super) fn respond_refused<B>(
    site: &Site,
    request: Request<B>,
    peer: Peer,
    refusal: Response<ResponseBody>,
) -> Response<LoggedBody> {
    respond_with(site, request, Arrival::now(site, peer), |context| handler::refuse(context, refusal))
}

/// The peer that sent a request, and the time of its arrival if requests are logged.
#[derive(Clone, Copy)]
struct Arrival {
    peer: Peer,
    time: Option<Instant>,
}

impl Arrival {
    fn now(site: &Site, peer: Peer) -> Arrival {
        Arrival { peer, time: site.access_log().map(|_| Instant::now()) }
    }
}

/// Answers a request with the response that `make_response` returns, counts it and logs it.
fn respond_with<B>(
    site: &Site,
    request: Request<B>,
    arrival: Arrival,
    make_response: impl FnOnce(&RequestContext<'_>) -> Response<ResponseBody>,
) -> Response<LoggedBody> {
    respond_at(site, request, arrival, None, make_response)
}

/// Answers a request as [`respond_with`] does, with the version that was served when it arrived; `None` means the one
/// that is served now.
fn respond_at<B>(
    site: &Site,
    request: Request<B>,
    arrival: Arrival,
    version: Option<Arc<SealedVersion>>,
    make_response: impl FnOnce(&RequestContext<'_>) -> Response<ResponseBody>,
) -> Response<LoggedBody> {
    let context = RequestContext::new(site, &request, Some(arrival.peer)).with_version(version);
    let response = respond_in(&context, arrival, make_response);
    drop(context);
    recycle_fields(request);
    response
}

/// Answers the request of a context as [`respond_with`] does.
fn respond_in(
    context: &RequestContext<'_>,
    arrival: Arrival,
    make_response: impl FnOnce(&RequestContext<'_>) -> Response<ResponseBody>,
) -> Response<LoggedBody> {
    let (site, response) = (context.site(), make_response(context));
    site.count_response(response.status());
    record_view(context, &response);
    match site.access_log().zip(arrival.time) {
        None => response.map(LoggedBody::from),
        Some((log, arrived_at)) => LoggedBody::with_log_line(context, log, arrived_at, response),
    }
}

/// Returns the fields of a request that was answered to the pool.
fn recycle_fields<B>(mut request: Request<B>) {
    header_pool::recycle_header_map(std::mem::take(request.headers_mut()));
}

/// Records the view of a page with this response, if views are recorded.
fn record_view(context: &RequestContext<'_>, response: &Response<ResponseBody>) {
    if context.method_class() != MethodClass::Get {
        return;
    }
    let recorder = context.site().load_recorder();
    let (Some(recorder), Some(target)) = (&*recorder, context.target().path_and_query()) else { return };
    let (status, viewed) = (response.status(), response.body().viewed());
    if status != StatusCode::NOT_FOUND && viewed == ViewedContent::Nothing {
        return;
    }
    let fields = RecordedFields::from_request(context.target(), context.headers());
    let request = RecordedRequest { target: target.as_str(), fields };
    recorder.note_response(&request, status, viewed, context.shared_version().as_ref());
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;
    use crate::SiteSettings;
    use crate::access_log::{AccessLog, AccessLogSettings};
    use crate::access_log_line::{AccessLogFormat, LoggedAddress};
    use crate::body::BodyLocation;
    use crate::response_cache::{CacheKey, HeadFormat};
    use crate::search::test_indexes;
    use crate::test_versions::version_with_files;

    #[tokio::test]
    async fn the_log_line_of_a_search_names_the_version_that_was_served_when_it_arrived() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("log");
        let (format, address) = (AccessLogFormat::Json, LoggedAddress::Full);
        let log = AccessLog::open(&AccessLogSettings { format, address, file: Some(path.clone()) }).expect("a log");
        let site = Site::with_access_log(SiteSettings::default(), Some(Arc::clone(&log)));
        let version = version_with_files(&[("a.html", "<h1>Anchors</h1>")], 0);
        let (id, index) = (version.id, test_indexes::build_index(&version));
        site.set_version(version);
        site.set_search_settings(Arc::new(test_indexes::settings()));
        site.set_search_index(Some(index));
        let request = Request::get("/_docwharf/search?q=anchors").header(HOST, "x").body(()).expect("a request");
        let response = respond(
            &site,
            request,
            Peer { address: ([127, 0, 0, 1], 4711).into(), is_encrypted: false, is_loopback_listener: false },
        );
        assert!(matches!(response, SiteResponse::Deferred(_)));
        site.set_version(version_with_files(&[("a.html", "<h1>Other</h1>")], 0));
        drop(response.await);
        log.finish();
        let line = std::fs::read_to_string(&path).expect("the log");
        assert!(line.contains(&format!("\"version\":\"{}\"", id.short())), "{line}");
    }

    #[test]
    fn only_a_search_with_parameters_has_to_be_awaited_and_only_if_the_search_is_on() {
        let site = Site::new(SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() });
        let targets = [
            ("/docs/_docwharf/search?q=a", true),
            ("/docs/_docwharf/search?", true),
            ("/docs/%5fdocwharf/%73earch?q=a", true),
            ("/docs/_docwharf/search", false),
            ("/docs/_docwharf/search.js?q=a", false),
            ("/docs/_docwharf/search/?q=a", false),
            ("/_docwharf/search?q=a", false),
            ("/docs?q=a", false),
            ("/docs/a?/docs/_docwharf/search?q=a", false),
            ("*", false),
        ];
        for (target, _) in targets {
            assert!(!may_wait(&site, target), "{target}");
        }
        site.set_search_settings(Arc::new(test_indexes::settings()));
        for (target, expected) in targets {
            assert_eq!(may_wait(&site, target), expected, "{target}");
        }
    }

    #[test]
    fn each_response_from_the_cache_is_counted() {
        let site = Site::new(SiteSettings::default());
        let key = CacheKey { target: "/a", ..CacheKey::default() };
        let address = CacheAddress::new(&site, &key, HeadFormat::Lines).expect("every client may read the site");
        let mut out = Vec::new();
        assert!(respond_from_cache(&site, &address, &RecordedFields::default(), &mut out).is_none());
        assert_eq!(site.request_counts(), [0; 4]);
        address.store(StatusCode::NOT_FOUND, b"head", BodyLocation::Empty);
        for count in 1..=2 {
            assert!(respond_from_cache(&site, &address, &RecordedFields::default(), &mut out).is_some());
            assert_eq!(site.request_counts(), [0, 0, count, 0]);
        }
        assert_eq!(out, b"headhead");
    }
}
