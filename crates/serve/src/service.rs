//! The interface between connections and the code that answers their requests: a site, or a [`RequestService`].
//!
//! Connections are not generic over it, so that their code, hyper's included, is compiled once and in this crate.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use super::body_chunk::BodyChunk;
use super::logged_body::{LoggedBody, LoggedChunk};
use super::peer::Peer;
use super::replay_stream::EndWatch;
use super::respond::{SiteResponse, respond};
use super::site::Site;

/// An error of a response body. It cuts the response off.
pub type BodyError = Box<dyn Error + Send + Sync>;
/// The body of a response of a [`RequestService`].
pub type ServiceBody = UnsyncBoxBody<BodyChunk, BodyError>;
/// The future of a response of a [`RequestService`].
pub type ServiceResponse = Pin<Box<dyn Future<Output = Response<ServiceBody>> + Send>>;

/// Answers the requests of all connections of a listener.
pub trait RequestService: Send + Sync + 'static {
    /// Answers one request. The future may outlive the connection's other requests.
    fn respond(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> ServiceResponse;
}

/// Converts a response with any body to one that a [`RequestService`] returns.
pub fn box_body<B>(response: Response<B>) -> Response<ServiceBody>
where
    B: Body<Data = BodyChunk, Error: Into<BodyError>> + Send + 'static,
{
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// The code that answers the requests of a listener.
#[derive(Clone)]
pub enum ListenerService {
    /// A site. Plain HTTP/1.1 requests (`http1::request_head`), and HTTP/2 connections unless `server.http2` is
    /// `hyper`, are served without hyper.
    Site(Arc<Site>),
    /// A service all of whose requests hyper parses.
    Other(Arc<dyn RequestService>),
}

impl fmt::Debug for ListenerService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ListenerService::Site(_) => "Site",
            ListenerService::Other(_) => "Other",
        })
    }
}

impl From<Arc<Site>> for ListenerService {
    fn from(site: Arc<Site>) -> ListenerService {
        ListenerService::Site(site)
    }
}

impl<T: RequestService> From<Arc<T>> for ListenerService {
    fn from(service: Arc<T>) -> ListenerService {
        ListenerService::Other(service)
    }
}

impl ListenerService {
    /// Returns the site if a site answers the requests.
    pub(super) fn site(&self) -> Option<&Arc<Site>> {
        match self {
            ListenerService::Site(site) => Some(site),
            ListenerService::Other(_) => None,
        }
    }
}

/// The service that hyper calls for the requests of one connection.
pub(super) struct HyperService {
    pub(super) service: ListenerService,
    pub(super) peer: Peer,
    /// Set when a request was received.
    pub(super) request_received: Arc<AtomicBool>,
    /// Set while a response must end with its client; `None` if hyper itself notices the end of the client.
    pub(super) end_watch: Option<EndWatch>,
}

impl hyper::service::Service<Request<Incoming>> for HyperService {
    type Response = Response<HyperBody>;
    type Error = Infallible;
    type Future = HyperResponse;

    fn call(&self, request: Request<Incoming>) -> HyperResponse {
        self.request_received.store(true, Ordering::Relaxed);
        match &self.service {
            ListenerService::Site(site) => {
                let response = respond(site, request, self.peer);
                if let Some(end_watch) = &self.end_watch {
                    end_watch.set(matches!(response, SiteResponse::DeferredWhileConnected(_)));
                }
                HyperResponse::Site(response)
            }
            ListenerService::Other(service) => HyperResponse::Other(Arc::clone(service).respond(request, self.peer)),
        }
    }
}

/// A response that hyper will send.
#[allow(clippy::large_enum_variant)] // those of a site are the large variant, and a box would cost an allocation
pub(super) enum HyperResponse {
    Site(SiteResponse),
    Other(ServiceResponse),
}

impl Future for HyperResponse {
    type Output = Result<Response<HyperBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            HyperResponse::Site(response) => {
                Pin::new(response).poll(context).map(|response| Ok(response.map(HyperBody::Site)))
            }
            HyperResponse::Other(response) => {
                response.as_mut().poll(context).map(|response| Ok(response.map(HyperBody::Other)))
            }
        }
    }
}

/// A response body that hyper sends.
///
/// It keeps the length of the body that it wraps: `Either` would need `BodyExt::map_frame`, which drops the size hint,
/// so that responses of known length would be chunked.
pub(super) enum HyperBody {
    Site(LoggedBody),
    Other(ServiceBody),
}

impl Body for HyperBody {
    type Data = LoggedChunk;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<LoggedChunk>, BodyError>>> {
        match self.get_mut() {
            HyperBody::Site(body) => {
                Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            HyperBody::Other(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(LoggedChunk::from)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            HyperBody::Site(body) => body.is_end_stream(),
            HyperBody::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            HyperBody::Site(body) => body.size_hint(),
            HyperBody::Other(body) => body.size_hint(),
        }
    }
}
