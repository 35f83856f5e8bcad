//! The origin as an HTTP service: on connections of a listener, until it is stopped.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;

use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::peer::Peer;
use docwharf_serve::service::RequestService;

use super::body::OriginBody;
use super::routes;
use super::server::OriginServer;

impl RequestService for OriginServer {
    type Body = OriginBody;

    fn respond(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<OriginBody>> + Send + 'static + use<> {
        request.extensions_mut().insert(peer);
        routes::respond(Arc::clone(self), request)
    }
}

/// Serves the API on bound sockets until `stop` becomes true, then closes it. Connections run on separate threads,
/// one per core; the caller's runtime only waits for the end.
pub async fn serve(
    origin: Arc<OriginServer>,
    listeners: Vec<TcpListener>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let result =
        listener::serve(listeners.into_iter().map(HttpListener::from).collect(), Arc::clone(&origin), stop).await;
    origin.close();
    result
}
