//! Answers one request with one response. Nothing that a client sends causes a server error.

use std::borrow::Cow;

use http::header::{ACCEPT_RANGES, CACHE_CONTROL, ETAG, LAST_MODIFIED};
use http::{HeaderValue, Request, Response, StatusCode};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::{BasePathMatch, SiteFiles};
use docwharf_site::media_types::media_type;
use docwharf_site::rules::route::{RouteResult, RouteSettings, append_query, route_address};
use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::file_response::FileResponse;
use super::fixed_responses;
use super::peer::Peer;
use super::request_checks::{check_access, check_request};
use super::request_context::{MethodClass, RequestContext};
use super::response_headers::add_response_headers;
use super::site::Site;

/// Answers a request for a resource of the site that was received from `peer`; `None` if it was received through the
/// control socket. The response is neither counted nor logged.
pub fn handle<B>(site: &Site, request: &Request<B>, peer: Option<Peer>) -> Response<ResponseBody> {
    response_for(&RequestContext::new(site, request, peer))
}

/// Returns the response to a request for a resource of the site. [`super::respond`] calls it for the requests of
/// connections, and counts and logs the response.
pub(super) fn response_for(context: &RequestContext<'_>) -> Response<ResponseBody> {
    let mut response =
        check_access(context).or_else(|| check_request(context)).unwrap_or_else(|| respond_for_path(context));
    add_response_headers(context, &mut response);
    response
}

/// Answers a request with `refusal`, or with 403 if the client may not read the site.
pub(super) fn refuse(context: &RequestContext<'_>, refusal: Response<ResponseBody>) -> Response<ResponseBody> {
    let mut response = check_access(context).unwrap_or(refusal);
    add_response_headers(context, &mut response);
    response
}

/// Returns the decoded path within the site if it may be that of an asset of a replaced version that is not open yet.
/// That is possible only shortly after a start.
pub(super) fn find_unopened_asset_path(context: &RequestContext<'_>) -> Option<Vec<u8>> {
    let BasePathMatch::Inside(path) = context.base_path_match() else { return None };
    let may_be_pending = matches!(context.method_class(), MethodClass::Get | MethodClass::Head)
        && context.site().retained_versions.may_be_in_unopened_version(path)
        && context.version()?.find(path).is_none()
        && check_access(context).is_none();
    may_be_pending.then(|| path.to_vec())
}

/// Answers a GET or HEAD request whose head is valid.
fn respond_for_path(context: &RequestContext<'_>) -> Response<ResponseBody> {
    let (site, is_head) = (context.site(), context.is_head());
    let Some(version) = context.version() else {
        return fixed_responses::no_version(is_head);
    };
    // The query becomes part of Location. A field value is ASCII (RFC 9110, 5.5), but the parser accepts any UTF-8 in a
    // request line.
    let query: Option<Cow<'_, str>> = context.target().query().map(|query| utf8_percent_encode(query, CONTROLS).into());
    let query = query.as_deref();
    let base_path = &site.settings.base_path;
    let decoded = context.decoded_path();
    let path = match context.base_path_match() {
        // Includes the slash that ends the base path, because paths in rules begin with one.
        BasePathMatch::Inside(_) => &decoded[base_path.len() - 1..],
        BasePathMatch::FrontPagePayload(payload) if version.is_next => payload,
        BasePathMatch::Above => {
            return fixed_responses::redirect(307, &append_query(base_path.clone(), query), is_head);
        }
        BasePathMatch::Outside if may_be_page(decoded) => return fixed_responses::page_not_found(is_head),
        BasePathMatch::Outside | BasePathMatch::FrontPagePayload(_) => return fixed_responses::file_not_found(is_head),
    };
    let slashes = site.settings.slashes.unwrap_or(version.auto_slashes);
    let rules = site.rules();
    let route = route_address(version, &RouteSettings { base_path, slashes, rules: &rules }, path, query);
    // An asset of a replaced version takes precedence over a rule for missing paths such as `/*`.
    if matches!(route, RouteResult::Rewritten(..) | RouteResult::RuleRedirect(..))
        && version.find(&path[1..]).is_none()
        && let Some((retained, file)) = site.retained_versions.find(&path[1..])
    {
        return FileResponse::new(context, &retained, file).respond();
    }
    match route {
        RouteResult::File(file) => FileResponse::negotiated(context, version, file).respond(),
        RouteResult::Rewritten(file, 200) => FileResponse::new(context, version, file).respond(),
        RouteResult::Rewritten(file, _) => not_found_with_page(&FileResponse::new(context, version, file)),
        RouteResult::RuleRedirect(status, location) => fixed_responses::redirect(status, &location, is_head),
        RouteResult::CanonicalRedirect(location) => fixed_responses::redirect(307, &location, is_head),
        RouteResult::NotFound => match site.retained_versions.find(&path[1..]) {
            Some((retained, file)) => FileResponse::new(context, &retained, file).respond(),
            None if is_payload_request(query) => fixed_responses::file_not_found(is_head),
            None => not_found(context, version, path),
        },
    }
}

/// Returns whether the query is that of a Next.js client script, which does not display a 404 page.
fn is_payload_request(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("_rsc")))
}

/// Returns whether a missing path may have been a page: it has no extension, the extension .html or .htm, or an
/// extension without a known media type.
fn may_be_page(path: &[u8]) -> bool {
    is_page(path) || media_type(path).is_none()
}

/// Returns a 404 response: the site's own page for paths that may have been pages, one line of text for other files.
fn not_found(context: &RequestContext<'_>, version: &SealedVersion, path: &[u8]) -> Response<ResponseBody> {
    if !may_be_page(path) {
        return fixed_responses::file_not_found(context.is_head());
    }
    match version.not_found {
        Some(file) => not_found_with_page(&FileResponse::new(context, version, file)),
        None => fixed_responses::page_not_found(context.is_head()),
    }
}

/// Returns a 404 response with the page as its body.
fn not_found_with_page(page: &FileResponse<'_>) -> Response<ResponseBody> {
    let mut response = page.respond_whole(StatusCode::NOT_FOUND);
    let fields = response.headers_mut();
    fields.remove(ETAG);
    fields.remove(LAST_MODIFIED);
    fields.remove(ACCEPT_RANGES);
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(fixed_responses::NOT_FOUND_CACHE));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_address_may_have_been_a_page_unless_it_ends_like_another_file() {
        for page in ["/", "/guide", "/guide/", "/guide.html", "/GUIDE.HTM", "/release-1.0", "/a.js/b", "/.x", "/x."] {
            assert!(may_be_page(page.as_bytes()), "{page}");
        }
        for file in ["/a.js", "/a.css", "/a.JSON", "/a/b.txt", "/a.map", "/a.png", "/a.woff2", "/a.zip", "/a.tar.gz"] {
            assert!(!may_be_page(file.as_bytes()), "{file}");
        }
    }

    #[test]
    fn a_client_of_next_is_known_by_the_name_in_its_query() {
        for (query, expected) in [
            (None, false),
            (Some(""), false),
            (Some("_rsc"), true),
            (Some("_rsc=1a2b"), true),
            (Some("a=b&_rsc=1a2b"), true),
            (Some("_rsc=1&a=b"), true),
            (Some("a=_rsc"), false),
            (Some("x_rsc=1"), false),
            (Some("_rscs=1"), false),
            (Some("a=b;_rsc=1"), false),
        ] {
            assert_eq!(is_payload_request(query), expected, "{query:?}");
        }
    }
}
