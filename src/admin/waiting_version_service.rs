//! Serves the version that waits to become active, on a separate listener (`activate.listen`). Its scripts are not
//! approved yet, so they must not run under the origin (scheme, host, port) of the admin routes or of the site.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use docwharf_serve::Site;
use docwharf_serve::body::ResponseBody;
use docwharf_serve::body_chunk::BodyChunk;
use docwharf_serve::handler::handle;
use docwharf_serve::peer::Peer;
use docwharf_serve::service::RequestService;

/// The HTTP service of the waiting version, under the paths that it will have once it is active.
#[derive(Debug)]
pub struct WaitingVersionService(pub Arc<Site>);

impl RequestService for WaitingVersionService {
    type Body = Either<Full<BodyChunk>, ResponseBody>;

    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static + use<> {
        let site = Arc::clone(&self.0);
        async move {
            match site.served_version() {
                Some(_) => handle(&site, &request, Some(peer)).map(Either::Right),
                None => respond_none_waiting(),
            }
        }
    }
}

fn respond_none_waiting() -> Response<Either<Full<BodyChunk>, ResponseBody>> {
    let text = Bytes::from_static(b"404: no version waits to become active\n");
    let mut response = Response::new(Either::Left(Full::new(text.into())));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
