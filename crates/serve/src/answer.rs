//! The interface between connections and what answers their requests ([`Answer`]), and its implementation for a site.

use std::error::Error;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Buf;
use http::{Request, Response};
use hyper::body::Incoming;

use docwharf_site::sealed::Sealed;

use super::Site;
use super::body::Body;
use super::handler::{asset_to_come, handle_on, refuse_on};
use super::peer::Peer;
use super::header_pool;
use super::tally::Told;

/// Answers the requests of all connections of a listener.
pub trait Answer: Send + Sync + 'static {
    /// The body of the responses.
    type Body: http_body::Body<Data: Buf + Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers one request. The future is the implementer's own type, so that a response that is ready at once costs no
    /// allocation. It owns what it needs of `self`, because it may outlive the connection's other requests.
    fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static + use<Self>;

    /// Returns the site if a site answers the requests: then simple requests are served without hyper.
    fn site(self: &Arc<Self>) -> Option<Arc<Site>> {
        None
    }
}

impl Answer for Site {
    type Body = Told;

    fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Told>> + Send + 'static + use<> {
        if self.looks_at_peers() {
            request.extensions_mut().insert(peer);
        }
        let begun = self.log().map(|_| Instant::now());
        if let Some(asset) =
            self.is_opening().then(|| asset_to_come(self, self.current().as_deref(), &request)).flatten()
        {
            let site = Arc::clone(self);
            return Answered::Later(Box::pin(async move {
                site.retained.wait_for(&asset).await;
                told(&site, &request, begun)
            }));
        }
        let response = told(self, &request, begun);
        header_pool::recycle_header_map(std::mem::take(request.headers_mut()));
        Answered::Now(ready(response))
    }

    fn site(self: &Arc<Self>) -> Option<Arc<Site>> {
        Some(Arc::clone(self))
    }
}

/// Answers a request, counts the response and, if `begun` is given, logs it.
pub(super) fn told<B>(site: &Arc<Site>, request: &Request<B>, begun: Option<Instant>) -> Response<Told> {
    recorded(site, request, begun, |version| handle_on(site, version, request))
}

/// Answers a request with `refusal` whatever it asks for, unless it may not read the site at all; counts and logs it as
/// [`told`] does.
pub(super) fn refused<B>(
    site: &Arc<Site>,
    request: &Request<B>,
    begun: Option<Instant>,
    refusal: Response<Body>,
) -> Response<Told> {
    recorded(site, request, begun, |version| refuse_on(site, version, request, refusal))
}

fn recorded<B>(
    site: &Arc<Site>,
    request: &Request<B>,
    begun: Option<Instant>,
    respond: impl FnOnce(Option<&Sealed>) -> Response<Body>,
) -> Response<Told> {
    let version = site.showing();
    let version = version.as_deref();
    let response = respond(version);
    site.count(response.status());
    match site.log().zip(begun) {
        None => response.map(Told::from),
        Some((log, begun)) => Told::to(site, log, request, version.map(|version| version.id), begun, response),
    }
}

/// The future of a site's response. It is ready at once, except while the versions replaced before a start are being
/// opened.
#[allow(clippy::large_enum_variant)] // nearly all are the large variant, and a box would cost an allocation for each
enum Answered {
    Now(Ready<Response<Told>>),
    Later(Pin<Box<dyn Future<Output = Response<Told>> + Send>>),
}

impl Future for Answered {
    type Output = Response<Told>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<Told>> {
        match self.get_mut() {
            Answered::Now(answer) => Pin::new(answer).poll(context),
            Answered::Later(answer) => answer.as_mut().poll(context),
        }
    }
}
