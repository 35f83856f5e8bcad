//! The responses with the files of the search box, the style sheet of the search page, and `opensearch.xml`.

use http::{Response, StatusCode};

use docwharf_base::model::digest::Digest;
use docwharf_search::page::render_open_search;

use crate::body::{BodyLocation, ResponseBody};
use crate::entity_tag::EntityTag;
use crate::fixed_responses;
use crate::negotiate::AcceptedCodings;
use crate::own_origin::requested_authority;
use crate::representation::Representation;
use crate::request_context::RequestContext;
use crate::search::SearchAsset;

/// The media type of the description of a search engine (`OpenSearch` 1.1).
const OPEN_SEARCH_TYPE: &str = "application/opensearchdescription+xml";

/// Answers with a file of the search box or of the search page.
pub(crate) fn respond_with_asset(context: &RequestContext<'_>, asset: &SearchAsset) -> Response<ResponseBody> {
    let form = asset.choose_form(AcceptedCodings::parse(context.headers()));
    let representation = Representation {
        media_type: asset.media_type,
        body: form.body,
        coding: form.token,
        entity_tag: form.entity_tag,
        vary: Some("accept-encoding"),
        has_ranges: false,
    };
    let response = representation.respond(context);
    // Browsers revalidate a file of the box with every page. Such a response depends only on the site and the request.
    match response.status() {
        StatusCode::NOT_MODIFIED => response.map(|body| body.with_location(BodyLocation::Empty)),
        _ => response,
    }
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
    let representation = Representation { media_type, body, coding: None, entity_tag, vary: None, has_ranges: false };
    representation.respond(context)
}
