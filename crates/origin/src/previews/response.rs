//! Responses of previews: those of a site, with header fields against indexing and caching.

use http::header::CACHE_CONTROL;
use http::{HeaderName, HeaderValue, Request, Response};

use docwharf_serve::Site;
use docwharf_serve::body::ResponseBody;
use docwharf_serve::handler::handle;
use docwharf_serve::peer::Peer;

/// `X-Robots-Tag`, a header field for search engines that the `http` crate does not define.
const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// Responds to a request for a preview. Whatever the branch sets in its own `_headers`, search engines must not index
/// the response. Only the client's own cache may store it, and must revalidate it before each use, hashed assets
/// included: a preview can change or disappear at any time.
pub fn respond_to_preview<B>(site: &Site, request: &Request<B>) -> Response<ResponseBody> {
    let mut response = handle(site, request, request.extensions().get::<Peer>().copied());
    let fields = response.headers_mut();
    fields.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}
