//! Answers one request with one response. Nothing that a client sends causes a server error.

use std::sync::Arc;

use http::header::{ACCEPT_RANGES, CACHE_CONTROL, ETAG, LAST_MODIFIED};
use http::{HeaderValue, Request, Response, StatusCode};

use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::{BasePathMatch, SiteFiles};
use docwharf_site::media_types::media_type;
use docwharf_site::rules::route::{RouteResult, append_query};
use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::built_in_resource::mark_built_in;
use super::file_response::FileResponse;
use super::fixed_responses;
use super::markdown_handler;
use super::peer::Peer;
use super::playground_handler;
use super::post_resources::refuse_post_resource;
use super::request_body::RequestBody;
use super::request_checks::{check_access, check_request};
use super::request_context::{MethodClass, RequestContext};
use super::request_step::{FinishedStep, RequestStep};
use super::response_headers::add_response_headers;
use super::search::SearchResource;
use super::search_handler;
use super::site::Site;

/// Answers a request for a resource of the site that was received from `peer`; `None` if it was received through the
/// control socket. The response is neither counted nor logged. A search that needs a query is answered with 503; see
/// [`handle_deferred`].
pub fn handle<B>(site: &Site, request: &Request<B>, peer: Option<Peer>) -> Response<ResponseBody> {
    response_for(&RequestContext::new(site, request, peer))
}

/// Answers a request as [`handle`] does, and waits for what its response depends on: the query of a search, the body of
/// a POST request, a page that must be converted to Markdown.
pub fn handle_deferred<B: RequestBody>(
    site: &Arc<Site>,
    request: Request<B>,
    peer: Option<Peer>,
) -> impl Future<Output = Response<ResponseBody>> + Send + use<B> {
    let site = Arc::clone(site);
    let step = RequestStep::of(&RequestContext::new(&site, &request, peer));
    async move {
        let (finished, request) = step.finish(&site, request, peer).await;
        let context = RequestContext::new(&site, &request, peer).with_version(finished.version());
        respond_to_step(&context, finished)
    }
}

/// Returns whether a response is an answer of the search or a refusal of a question. Its Cache-Control says how long
/// that answer holds, so it must not be replaced by one for pages.
pub fn is_search_answer<B>(response: &Response<B>) -> bool {
    response.extensions().get::<SearchResource>() == Some(&SearchResource::Answers)
}

/// Answers the request of a step that has ended. The context has the version of the step.
pub(super) fn respond_to_step(context: &RequestContext<'_>, step: FinishedStep) -> Response<ResponseBody> {
    let mut response = match step {
        // The rules may have changed while a page was converted, so the address is looked up again.
        FinishedStep::Now | FinishedStep::Conversion(_) => return response_for(context),
        FinishedStep::Post(response) => mark_built_in(response),
        // The access control may have changed since the query was started.
        FinishedStep::Query(query) => check_access(context).unwrap_or_else(|| query.respond(context)),
    };
    add_response_headers(context, &mut response);
    response
}

/// Returns the response to a request for a resource of the site. [`super::respond`] calls it for the requests of
/// connections, and counts and logs the response.
pub(super) fn response_for(context: &RequestContext<'_>) -> Response<ResponseBody> {
    let response = check_access(context).or_else(|| refuse_post_resource(context)).or_else(|| check_request(context));
    let mut response = response.unwrap_or_else(|| respond_for_path(context));
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
    let query = context.query();
    let query = query.as_deref();
    let base_path = &site.settings.base_path;
    let decoded = context.decoded_path();
    let path = match context.base_path_match() {
        // The path includes the slash that ends the base path, because paths in rules begin with one.
        BasePathMatch::Inside(_) => &decoded[base_path.len() - 1..],
        BasePathMatch::FrontPagePayload(payload) if version.is_next => payload,
        BasePathMatch::Above => {
            return fixed_responses::redirect(307, &append_query(base_path.clone(), query), is_head);
        }
        BasePathMatch::Outside if may_be_page(decoded) => return built_in_not_found(context),
        BasePathMatch::Outside | BasePathMatch::FrontPagePayload(_) => return fixed_responses::file_not_found(is_head),
    };
    if let Some(response) = search_handler::respond(context, path) {
        return response;
    }
    if let Some(response) = playground_handler::respond_with_script(context, path) {
        return mark_built_in(response);
    }
    // The payload of a front page is outside the base path.
    let route = context.route().cloned().unwrap_or_else(|| context.route_path(version, path));
    // An asset of a replaced version takes precedence over a rule for missing paths such as `/*`.
    if matches!(route, RouteResult::Rewritten(..) | RouteResult::RuleRedirect(..))
        && version.find(&path[1..]).is_none()
        && let Some((retained, file)) = site.retained_versions.find(&path[1..])
    {
        return FileResponse::new(context, &retained, file).respond();
    }
    if let Some(response) = markdown_handler::respond(context, version, path, &route) {
        return response;
    }
    match route {
        RouteResult::File(file) => FileResponse::negotiated(context, version, file).respond(),
        RouteResult::Rewritten(file, 200) => FileResponse::new(context, version, file).respond(),
        RouteResult::Rewritten(file, _) => not_found_with_page(&FileResponse::error_page(context, version, file)),
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
        Some(file) => not_found_with_page(&FileResponse::error_page(context, version, file)),
        None => built_in_not_found(context),
    }
}

/// Returns a 404 response with the built-in page, and the site's tag behind it.
fn built_in_not_found(context: &RequestContext<'_>) -> Response<ResponseBody> {
    match context.site().inserted_tag().as_deref() {
        Some(tag) => fixed_responses::page_not_found_with_tag(context.is_head(), tag),
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
mod tests;
