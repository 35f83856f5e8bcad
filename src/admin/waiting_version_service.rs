//! Serves the version that waits to become active, on a separate listener (`activate.listen`). Its scripts are not
//! approved yet, so they must not run under the origin (scheme, host, port) of the admin routes or of the site.

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;

use docwharf_serve::Site;
use docwharf_serve::body::ResponseBody;
use docwharf_serve::handler::handle_deferred;
use docwharf_serve::peer::Peer;
use docwharf_serve::service::{RequestService, ServiceResponse, box_body};

/// The HTTP service of the waiting version, under the paths that it will have once it is active.
#[derive(Debug)]
pub struct WaitingVersionService(pub Arc<Site>);

impl RequestService for WaitingVersionService {
    fn respond(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> ServiceResponse {
        if self.0.served_version().is_none() {
            return Box::pin(ready(box_body(respond_none_waiting())));
        }
        let response = handle_deferred(&self.0, request, Some(peer));
        Box::pin(async move { box_body(response.await) })
    }
}

fn respond_none_waiting() -> Response<ResponseBody> {
    let text = Bytes::from_static(b"404: no version waits to become active\n");
    let mut response = Response::new(ResponseBody::full(text));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
