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

use http::{Request, Response};

use super::body::ResponseBody;
use super::body_chunk::BodyChunk;
use super::handler;
use super::header_pool;
use super::logged_body::LoggedBody;
use super::peer::Peer;
use super::request_context::RequestContext;
use super::response_cache::CacheAddress;
use super::site::Site;

/// A response of a site. It is available at once, except while the versions that were replaced before a start are being
/// opened.
#[allow(clippy::large_enum_variant)] // nearly all are the large variant, and a box would cost an allocation for each
pub(super) enum SiteResponse {
    Ready(Ready<Response<LoggedBody>>),
    Deferred(DeferredSiteResponse),
}

/// A response that waits until a replaced version is open.
pub(super) type DeferredSiteResponse = Pin<Box<dyn Future<Output = Response<LoggedBody>> + Send>>;

impl Future for SiteResponse {
    type Output = Response<LoggedBody>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<LoggedBody>> {
        match self.get_mut() {
            SiteResponse::Ready(response) => Pin::new(response).poll(context),
            SiteResponse::Deferred(response) => response.as_mut().poll(context),
        }
    }
}

/// Answers a request from the response cache: appends the head of the response to `out`, counts the response and
/// returns its body. If the cache has no usable response, `out` is unchanged and `None` is returned.
#[inline]
pub(super) fn respond_from_cache(site: &Site, address: &CacheAddress<'_>, out: &mut Vec<u8>) -> Option<BodyChunk> {
    let (status, body) = address.find(site, out)?;
    site.count_response(status);
    Some(body)
}

/// Answers a request to which the cache has no response. A request for an asset of a replaced version waits while that
/// version may still be opened.
pub(super) fn respond<B: Send + 'static>(site: &Arc<Site>, request: Request<B>, peer: Peer) -> SiteResponse {
    let arrival = Arrival::now(site, peer);
    if site.is_opening()
        && let Some(asset) = handler::find_unopened_asset_path(&RequestContext::new(site, &request, Some(peer)))
    {
        let site = Arc::clone(site);
        return SiteResponse::Deferred(Box::pin(async move {
            site.retained_versions.wait_for(&asset).await;
            respond_with(&site, request, arrival, handler::response_for)
        }));
    }
    SiteResponse::Ready(ready(respond_with(site, request, arrival, handler::response_for)))
}

/// Answers a request as [`respond`] does, but never waits for a replaced version.
pub(super) fn respond_now<B>(site: &Site, request: Request<B>, peer: Peer) -> Response<LoggedBody> {
    respond_with(site, request, Arrival::now(site, peer), handler::response_for)
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
    mut request: Request<B>,
    arrival: Arrival,
    make_response: impl FnOnce(&RequestContext<'_>) -> Response<ResponseBody>,
) -> Response<LoggedBody> {
    let context = RequestContext::new(site, &request, Some(arrival.peer));
    let response = make_response(&context);
    site.count_response(response.status());
    let response = match site.access_log().zip(arrival.time) {
        None => response.map(LoggedBody::from),
        Some((log, arrived_at)) => LoggedBody::with_log_line(&context, log, arrived_at, response),
    };
    drop(context);
    header_pool::recycle_header_map(std::mem::take(request.headers_mut()));
    response
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::SiteSettings;
    use crate::body::BodyLocation;
    use crate::response_cache::{CacheKey, HeadFormat};

    #[test]
    fn each_response_from_the_cache_is_counted() {
        let site = Site::new(SiteSettings::default());
        let key = CacheKey { target: "/a", ..CacheKey::default() };
        let address = CacheAddress::new(&site, &key, HeadFormat::Lines).expect("every client may read the site");
        let mut out = Vec::new();
        assert!(respond_from_cache(&site, &address, &mut out).is_none());
        assert_eq!(site.request_counts(), [0; 4]);
        address.store(StatusCode::NOT_FOUND, b"head", BodyLocation::Empty);
        for count in 1..=2 {
            assert!(respond_from_cache(&site, &address, &mut out).is_some());
            assert_eq!(site.request_counts(), [0, 0, count, 0]);
        }
        assert_eq!(out, b"headhead");
    }
}
