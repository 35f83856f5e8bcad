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

use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::handler::{handle_with_version, pending_asset, refuse_with_version};
use super::header_pool;
use super::logged_body::LoggedBody;
use super::peer::Peer;
use super::site::Site;

/// Answers the requests of all connections of a listener.
pub trait RequestService: Send + Sync + 'static {
    /// The body of the responses.
    type Body: http_body::Body<Data: Buf + Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers one request. The future is the implementer's own type, so that a response that is ready at once costs no
    /// allocation. It owns what it needs of `self`, because it may outlive the connection's other requests.
    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static + use<Self>;

    /// Returns the site if a site answers the requests: then simple requests are served without hyper.
    fn site(self: &Arc<Self>) -> Option<Arc<Site>> {
        None
    }
}

impl RequestService for Site {
    type Body = LoggedBody;

    fn respond(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<LoggedBody>> + Send + 'static + use<> {
        if self.depends_on_client() {
            request.extensions_mut().insert(peer);
        }
        let begun = self.log().map(|_| Instant::now());
        if let Some(asset) =
            self.is_opening().then(|| pending_asset(self, self.current().as_deref(), &request)).flatten()
        {
            let site = Arc::clone(self);
            return SiteResponseFuture::Later(Box::pin(async move {
                site.retained_versions.wait_for(&asset).await;
                respond(&site, &request, begun)
            }));
        }
        let response = respond(self, &request, begun);
        header_pool::recycle_header_map(std::mem::take(request.headers_mut()));
        SiteResponseFuture::Now(ready(response))
    }

    fn site(self: &Arc<Self>) -> Option<Arc<Site>> {
        Some(Arc::clone(self))
    }
}

/// Answers a request, counts the response and, if `begun` is given, logs it.
pub(super) fn respond<B>(site: &Arc<Site>, request: &Request<B>, begun: Option<Instant>) -> Response<LoggedBody> {
    count_and_log(site, request, begun, |version| handle_with_version(site, version, request))
}

/// Answers a request with `refusal` whatever it asks for, unless it may not read the site at all; counts and logs it as
/// [`told`] does.
pub(super) fn respond_refused<B>(
    site: &Arc<Site>,
    request: &Request<B>,
    begun: Option<Instant>,
    refusal: Response<ResponseBody>,
) -> Response<LoggedBody> {
    count_and_log(site, request, begun, |version| refuse_with_version(site, version, request, refusal))
}

fn count_and_log<B>(
    site: &Arc<Site>,
    request: &Request<B>,
    begun: Option<Instant>,
    respond: impl FnOnce(Option<&SealedVersion>) -> Response<ResponseBody>,
) -> Response<LoggedBody> {
    let version = site.load_version();
    let version = version.as_deref();
    let response = respond(version);
    site.count(response.status());
    match site.log().zip(begun) {
        None => response.map(LoggedBody::from),
        Some((log, begun)) => {
            LoggedBody::with_log_line(site, log, request, version.map(|version| version.id), begun, response)
        }
    }
}

/// The future of a site's response. It is ready at once, except while the versions replaced before a start are being
/// opened.
#[allow(clippy::large_enum_variant)] // nearly all are the large variant, and a box would cost an allocation for each
enum SiteResponseFuture {
    Now(Ready<Response<LoggedBody>>),
    Later(Pin<Box<dyn Future<Output = Response<LoggedBody>> + Send>>),
}

impl Future for SiteResponseFuture {
    type Output = Response<LoggedBody>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<LoggedBody>> {
        match self.get_mut() {
            SiteResponseFuture::Now(answer) => Pin::new(answer).poll(context),
            SiteResponseFuture::Later(answer) => answer.as_mut().poll(context),
        }
    }
}
