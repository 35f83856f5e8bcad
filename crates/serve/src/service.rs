//! The interface between connections and the code that answers their requests ([`RequestService`]), and its
//! implementation for a site.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use bytes::Buf;
use http::{Request, Response};
use hyper::body::Incoming;

use super::logged_body::LoggedBody;
use super::peer::Peer;
use super::respond::respond;
use super::site::Site;

/// Answers the requests of all connections of a listener.
pub trait RequestService: Send + Sync + 'static {
    /// The body of the responses.
    type Body: http_body::Body<Data: Buf + Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers one request. The future is the implementer's own type, so that a response that is ready at once costs no
    /// allocation. It owns the parts of `self` that it needs, because it may outlive the connection's other requests.
    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static + use<Self>;

    /// Returns the site if a site answers the requests: then plain HTTP/1.1 requests
    /// (`http1::request_head`), and HTTP/2 connections unless `server.http2` is `hyper`, are served without hyper.
    fn site(self: &Arc<Self>) -> Option<Arc<Site>> {
        None
    }
}

impl RequestService for Site {
    type Body = LoggedBody;

    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<LoggedBody>> + Send + 'static + use<> {
        respond(self, request, peer)
    }

    fn site(self: &Arc<Self>) -> Option<Arc<Site>> {
        Some(Arc::clone(self))
    }
}
