//! The responses with the files of the search box, the style sheet of the search page, and `opensearch.xml`.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, VARY};
use http::uri::Authority;
use http::{HeaderValue, Response, StatusCode};

use docwharf_base::model::digest::Digest;
use docwharf_search::page::render_open_search;

use crate::body::{BodyLocation, ResponseBody};
use crate::conditional::evaluate_tag_preconditions;
use crate::entity_tag::EntityTag;
use crate::fixed_responses;
use crate::header_pool;
use crate::negotiate::AcceptedCodings;
use crate::request_context::RequestContext;
use crate::search::SearchAsset;

/// The media type of the description of a search engine (`OpenSearch` 1.1).
const OPEN_SEARCH_TYPE: &str = "application/opensearchdescription+xml";

/// A representation with a strong tag that clients revalidate at each use.
struct Representation {
    media_type: &'static str,
    body: Bytes,
    /// The content coding; `None` for none.
    coding: Option<&'static str>,
    entity_tag: EntityTag,
    /// Whether the coding was negotiated.
    is_negotiated: bool,
}

/// Answers with a file of the search box or of the search page.
pub(crate) fn respond_with_asset(context: &RequestContext<'_>, asset: &SearchAsset) -> Response<ResponseBody> {
    let form = asset.choose_form(AcceptedCodings::parse(context.headers()));
    let representation = Representation {
        media_type: asset.media_type,
        body: form.body,
        coding: form.token,
        entity_tag: form.entity_tag,
        is_negotiated: true,
    };
    respond(context, representation)
}

/// Answers with the description by which browsers add the site to their search engines. It has the address by which the
/// client knows the site, because browsers accept no relative addresses in it.
pub(super) fn respond_with_open_search(context: &RequestContext<'_>) -> Response<ResponseBody> {
    let Some(authority) = requested_authority(context) else {
        return fixed_responses::bad_request(context.is_head(), false);
    };
    let scheme = if context.client().is_https { "https" } else { "http" };
    // User information is left out.
    let host = authority.host();
    let port = authority.port().map_or_else(String::new, |port| format!(":{port}"));
    let site_url = format!("{scheme}://{host}{port}{}", context.site().settings.base_path);
    let xml = render_open_search(&site_url, host);
    let entity_tag = EntityTag::of_content(&Digest::compute(xml.as_bytes()), None, None);
    let (media_type, body) = (OPEN_SEARCH_TYPE, xml.into());
    respond(context, Representation { media_type, body, coding: None, entity_tag, is_negotiated: false })
}

/// Returns the host and port for which a request is (RFC 9112, 3.2 and 3.3; RFC 9113, 8.3.1).
fn requested_authority(context: &RequestContext<'_>) -> Option<Authority> {
    if let Some(authority) = context.target().authority() {
        return Some(authority.clone());
    }
    context.headers().get(HOST)?.to_str().ok()?.parse().ok()
}

fn respond(context: &RequestContext<'_>, representation: Representation) -> Response<ResponseBody> {
    let Representation { media_type, body, coding, entity_tag, is_negotiated } = representation;
    let outcome = evaluate_tag_preconditions(context.headers(), entity_tag.as_str());
    let (status, len, body) = fixed_responses::select_content(outcome, context.is_head(), body);
    // Browsers revalidate a file of the box with every page. Such a response depends only on the site and the request.
    let is_cacheable = status == StatusCode::NOT_MODIFIED && is_negotiated;
    let body = if is_cacheable { body.with_location(BodyLocation::Empty) } else { body };
    let mut response = header_pool::new_response(status, body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(entity_tag.as_str()) {
        headers.insert(ETAG, tag);
    }
    if is_negotiated {
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Some(len) = len {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    if status == StatusCode::OK {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        if let Some(coding) = coding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
    }
    response
}
