//! Answers of a preview: those of a site, and what goes along with each of them.

use http::header::CACHE_CONTROL;
use http::{HeaderName, HeaderValue, Request, Response};

use docwharf_serve::Site;
use docwharf_serve::body::Body;
use docwharf_serve::handler::handle;

/// Known to search engines, not to the standard names.
const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");

/// Answers a request for something of a preview. Whatever the branch says in a `_headers` of its own: search engines
/// leave it alone, and nobody but the reader keeps it, nor he without asking, hashed assets included: a preview can be
/// something else, or gone, at any time.
pub fn answer<B>(site: &Site, request: &Request<B>) -> Response<Body> {
    let mut response = handle(site, request);
    let fields = response.headers_mut();
    fields.insert(ROBOTS, HeaderValue::from_static("noindex"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}
