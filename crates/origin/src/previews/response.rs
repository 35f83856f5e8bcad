//! Responses of previews: those of a site, with header fields against indexing and caching.

use std::sync::Arc;

use http::header::CACHE_CONTROL;
use http::{HeaderValue, Request, Response};

use docwharf_serve::Site;
use docwharf_serve::body::ResponseBody;
use docwharf_serve::handler::{handle_deferred, is_search_answer};
use docwharf_serve::peer::Peer;
use docwharf_serve::request_body::RequestBody;
use docwharf_site::rules::robots_tag::X_ROBOTS_TAG;

/// Responds to a request for a preview. Whatever the branch sets in its own `_headers`, search engines must not index
/// the response. Only the client's own cache may store it, and must revalidate it before each use, hashed assets
/// included: a preview can change or disappear at any time. A search waits for its query. Its answer says itself how
/// long a client may store it: one from the index of the version before not at all.
pub async fn respond_to_preview<B: RequestBody>(site: &Arc<Site>, request: Request<B>) -> Response<ResponseBody> {
    let peer = request.extensions().get::<Peer>().copied();
    let mut response = handle_deferred(site, request, peer).await;
    let is_search_answer = is_search_answer(&response);
    let fields = response.headers_mut();
    fields.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
    if !is_search_answer {
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    }
    response
}
