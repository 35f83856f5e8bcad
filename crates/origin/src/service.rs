//! The origin as an HTTP service: on connections of a listener, until it is stopped.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use tokio::sync::watch;

use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::peer::Peer;
use docwharf_serve::service::{RequestService, ServiceResponse, box_body};

use super::routes;
use super::server::OriginServer;

impl RequestService for OriginServer {
    fn respond(self: Arc<Self>, mut request: Request<Incoming>, peer: Peer) -> ServiceResponse {
        request.extensions_mut().insert(peer);
        Box::pin(async move { box_body(routes::respond(self, request).await) })
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
        listener::serve(listeners.into_iter().map(HttpListener::from).collect(), Arc::clone(&origin).into(), stop)
            .await;
    origin.close();
    result
}
