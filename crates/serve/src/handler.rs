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
use super::converted_pages::PendingPage;
use super::file_response::FileResponse;
use super::fixed_responses;
use super::markdown_handler;
use super::peer::Peer;
use super::playground_handler;
use super::post_resources::{check_post_request, refuse_post_resource};
use super::request_body::RequestBody;
use super::request_checks::{check_access, check_request};
use super::request_context::{MethodClass, RequestContext};
use super::response_headers::add_response_headers;
use super::search::SearchResource;
use super::search_handler::{self, FinishedQuery, PendingQuery};
use super::site::Site;

/// Answers a request for a resource of the site that was received from `peer`; `None` if it was received through the
/// control socket. The response is neither counted nor logged. A search that needs a query is answered with 503; see
/// [`handle_deferred`].
pub fn handle<B>(site: &Site, request: &Request<B>, peer: Option<Peer>) -> Response<ResponseBody> {
    response_for(&RequestContext::new(site, request, peer))
}

/// Answers a request as [`handle`] does, and waits for the end of its query if it is a search, or reads its body if the
/// response depends on that.
pub fn handle_deferred<B: RequestBody>(
    site: &Arc<Site>,
    request: Request<B>,
    peer: Option<Peer>,
) -> impl Future<Output = Response<ResponseBody>> + Send + use<B> {
    let site = Arc::clone(site);
    let post = check_post_request(&RequestContext::new(&site, &request, peer));
    let target = request.uri().path_and_query();
    let query = target
        .filter(|target| may_need_query(&site, target.as_str()))
        .and_then(|_| start_query(&RequestContext::new(&site, &request, peer)));
    let conversion = start_conversion(&RequestContext::new(&site, &request, peer));
    let (head, body) = request.into_parts();
    async move {
        if let Some(post) = post {
            let request = Request::from_parts(head, ());
            let response = match post {
                Ok(post) => {
                    let body = body.read(post.body_limits()).await;
                    let answer = post.answer(&RequestContext::new(&site, &request, peer), body);
                    answer.await
                }
                Err(refusal) => refusal,
            };
            return finish_post(&RequestContext::new(&site, &request, peer), response);
        }
        if let Some(conversion) = conversion {
            conversion.wait().await;
        }
        let request = Request::from_parts(head, body);
        match query {
            None => handle(&site, &request, peer),
            Some(query) => {
                let finished = query.wait().await;
                let context = RequestContext::new(&site, &request, peer).with_version(finished.version());
                respond_to_query(&context, finished)
            }
        }
    }
}

/// Returns whether a response is an answer of the search or a refusal of a question. Its Cache-Control says how long
/// that answer holds, so it must not be replaced by one for pages.
pub fn is_search_answer<B>(response: &Response<B>) -> bool {
    response.extensions().get::<SearchResource>() == Some(&SearchResource::Answers)
}

/// Starts the query that a request needs, for which [`may_need_query`] is true; `None` if its response is available at
/// once.
pub(super) fn start_query(context: &RequestContext<'_>) -> Option<PendingQuery> {
    // Nothing is looked at for a client that may not read the site.
    if check_access(context).is_none() && check_request(context).is_none() {
        search_handler::start_query(context)
    } else {
        None
    }
}

/// Starts the conversion of a page that a request needs; `None` if its response is available at once.
pub(super) fn start_conversion(context: &RequestContext<'_>) -> Option<PendingPage> {
    // Nothing is looked at for a client that may not read the site.
    if markdown_handler::may_be_markdown(context) && check_access(context).is_none() && check_request(context).is_none()
    {
        markdown_handler::start_conversion(context)
    } else {
        None
    }
}

/// Returns whether the response to a request must be awaited, because a page must be converted to Markdown.
pub(super) fn needs_conversion(context: &RequestContext<'_>) -> bool {
    markdown_handler::may_be_markdown(context)
        && check_access(context).is_none()
        && check_request(context).is_none()
        && markdown_handler::needs_conversion(context)
}

/// Answers the request for which a query was started.
pub(super) fn respond_to_query(context: &RequestContext<'_>, query: FinishedQuery) -> Response<ResponseBody> {
    // The access control may have changed since then.
    let mut response = check_access(context).unwrap_or_else(|| query.respond(context));
    add_response_headers(context, &mut response);
    response
}

/// Completes the response to a POST request that [`check_post_request`] has checked.
pub(super) fn finish_post(context: &RequestContext<'_>, response: Response<ResponseBody>) -> Response<ResponseBody> {
    let mut response = mark_built_in(response);
    add_response_headers(context, &mut response);
    response
}

/// Returns whether the response to a request for this target, path and query, may have to be awaited, because it is a
/// search.
pub(super) fn may_need_query(site: &Site, target: &str) -> bool {
    search_handler::may_need_query(site, target)
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
mod tests {
    use http::header::{
        ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LOCATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST,
        IF_NONE_MATCH, LINK, RANGE,
    };
    use http::{HeaderName, Method};

    use docwharf_base::clock::now_unix_seconds;
    use docwharf_base::codec::content_coding::ContentCoding;
    use docwharf_base::model::cidr::IpRanges;
    use docwharf_base::model::digest::{Digest, encode_hex};
    use docwharf_base::model::version::VersionId;
    use docwharf_site::coding_file::{CodingRecord, CodingStatistics, compute_head_len, encode_head};
    use docwharf_site::external::csp::{CspPreset, CspSettings, collect_facts};

    use super::*;
    use crate::access::{AccessControl, AccessRules};
    use crate::csp_header::VersionCsp;
    use crate::precompressed::{PrecompressedCodings, PrecompressedFiles};
    use crate::security_headers::SecurityHeaderSettings;
    use crate::test_versions::version_with_files;
    use crate::{OpeningGuard, SiteSettings};

    const OLD_ASSET: &str = "assets/app-0ab12cd3.js";
    const NEW_ASSET: &str = "assets/app-1ab12cd3.js";

    /// Creates a site with this version, which has replaced one with [`OLD_ASSET`].
    fn site_after_replacement(current: SealedVersion, settings: SiteSettings) -> Arc<Site> {
        let site = Site::new(settings);
        site.set_version(version_with_files(&[(OLD_ASSET, "old()")], 0));
        site.set_version(current);
        site
    }

    /// Creates a site with one version of these files.
    fn site_with_files(files: &[(&str, &str)], settings: SiteSettings) -> Arc<Site> {
        let site = Site::new(settings);
        site.set_version(version_with_files(files, 0));
        site
    }

    /// Answers a GET request with these fields.
    fn get(site: &Site, target: &str, fields: &[(HeaderName, &str)]) -> Response<ResponseBody> {
        let mut request = Request::get(target).header(HOST, "x").body(()).unwrap();
        for (name, value) in fields {
            request.headers_mut().append(name.clone(), value.parse().unwrap());
        }
        handle(site, &request, None)
    }

    fn field(response: &Response<ResponseBody>, name: HeaderName) -> Option<&str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    /// Creates the Brotli forms of a version; `bodies` has that of each file.
    fn brotli_codings(id: VersionId, bodies: &[&[u8]]) -> PrecompressedCodings {
        let mut offset = compute_head_len(bodies.len());
        let mut records = Vec::new();
        for body in bodies {
            records.push(CodingRecord { offset, len: body.len() as u64, crc: crc32fast::hash(body) });
            offset += body.len() as u64;
        }
        let head = encode_head(ContentCoding::Brotli, id, &records, 0);
        let file = [head, bodies.concat()].concat();
        let brotli = Some(PrecompressedFiles::new(file.into(), CodingStatistics::default()));
        PrecompressedCodings { brotli, ..PrecompressedCodings::empty(id) }
    }

    #[test]
    fn a_response_is_cacheable_only_for_an_active_version_file_with_a_past_date() {
        let files = [(NEW_ASSET, "new()")];
        let replaced = site_after_replacement(version_with_files(&files, 0), SiteSettings::default());
        let dated = Site::new(SiteSettings::default());
        dated.set_version(version_with_files(&files, now_unix_seconds() + 86_400));
        for (site, asset, is_cached) in
            [(&replaced, NEW_ASSET, true), (&replaced, OLD_ASSET, false), (&dated, NEW_ASSET, false)]
        {
            for (fields, status) in
                [(&[][..], 200), (&[(ACCEPT_ENCODING, "gzip")], 200), (&[(IF_NONE_MATCH, "*")], 304)]
            {
                let response = get(site, &format!("/{asset}"), fields);
                let has_location = response.body().location().is_some();
                assert_eq!((response.status().as_u16(), has_location), (status, is_cached), "{asset} {fields:?}");
            }
        }
    }

    #[test]
    fn an_asset_of_a_replaced_version_is_never_sent_in_the_codings_of_the_active_one() {
        let current = version_with_files(&[(NEW_ASSET, "new()")], 0);
        let codings = brotli_codings(current.id, &[b"coded"]);
        let site = site_after_replacement(current, SiteSettings::default());
        site.set_precompressed(Some(codings));
        for (asset, coding) in [(NEW_ASSET, Some("br")), (OLD_ASSET, None)] {
            let response = get(&site, &format!("/{asset}"), &[(ACCEPT_ENCODING, "br")]);
            assert_eq!((response.status().as_u16(), field(&response, CONTENT_ENCODING)), (200, coding), "{asset}");
        }
        // A cached response has the checksum of the coded bytes, which may be replaced while the version stays.
        let current = site.served_version().expect("a version is served");
        let (old, _) = site.retained_versions.find(OLD_ASSET.as_bytes()).expect("it is retained");
        let crc = crc32fast::hash(b"coded");
        for (version, crc, is_found) in [(&current, crc, true), (&current, crc ^ 1, false), (&old, crc, false)] {
            let body = site.precompressed_body(version, 0, ContentCoding::Brotli, crc);
            assert_eq!(body.as_deref(), is_found.then_some(&b"coded"[..]), "{crc}");
        }
        assert_eq!(site.precompressed_body(&current, 0, ContentCoding::Zstd, crc), None);
    }

    #[test]
    fn a_script_of_a_replaced_version_gets_no_csp_hashes_of_the_active_version() {
        let settings = CspSettings { preset: CspPreset::Connected, ancestors: None, max_bytes: 3072 };
        let security_headers =
            SecurityHeaderSettings { csp: Some(settings.clone()), ..SecurityHeaderSettings::default() };
        let current = version_with_files(&[("a.html", "<script>a()</script>")], 0);
        let facts = collect_facts(&current, 1, &|| false).expect("nothing stops it");
        let csp = VersionCsp::new(current.id, facts, &settings);
        let site = site_after_replacement(current, SiteSettings { security_headers, ..SiteSettings::default() });
        site.set_csp(csp);
        let script_sources = |target: &str| {
            let response = get(&site, target, &[]);
            let policy = field(&response, CONTENT_SECURITY_POLICY).expect("a policy");
            let sources = policy.split("; ").find_map(|directive| directive.strip_prefix("script-src "));
            sources.unwrap_or_default().to_owned()
        };
        assert!(script_sources("/a").starts_with("'self' 'sha256-"), "{}", script_sources("/a"));
        assert_eq!(script_sources(&format!("/{OLD_ASSET}")), "'self' 'unsafe-inline'");
    }

    #[test]
    fn only_permitted_get_and_head_requests_wait_for_assets_of_unopened_versions() {
        let rules = AccessRules { allow: Some(IpRanges::default()), user_header: None };
        let closed = AccessControl { rules, proxies: IpRanges::default() };
        let peer = Peer { address: ([203, 0, 113, 7], 4711).into(), is_encrypted: false, is_loopback_listener: false };
        let (old, new) = (format!("/docs/{OLD_ASSET}"), format!("/docs/{NEW_ASSET}"));
        let outside = format!("/{OLD_ASSET}");
        for (is_opening, access_control, method, target, expected) in [
            (true, AccessControl::default(), Method::GET, &old, true),
            (true, AccessControl::default(), Method::HEAD, &old, true),
            (false, AccessControl::default(), Method::GET, &old, false),
            (true, AccessControl::default(), Method::POST, &old, false),
            (true, AccessControl::default(), Method::OPTIONS, &old, false),
            (true, AccessControl::default(), Method::GET, &new, false),
            (true, AccessControl::default(), Method::GET, &outside, false),
            (true, closed, Method::GET, &old, false),
        ] {
            let base_path = "/docs/".to_owned();
            let settings = SiteSettings { base_path, access_control, ..SiteSettings::default() };
            let site = site_with_files(&[(NEW_ASSET, "new()")], settings);
            let _opening = is_opening.then(|| OpeningGuard::start(&site));
            let request = Request::builder().method(method.clone()).uri(target.as_str()).body(()).unwrap();
            let path = find_unopened_asset_path(&RequestContext::new(&site, &request, Some(peer)));
            let case = format!("{is_opening} {method} {target} {:?}", site.settings.access_control);
            assert_eq!(path.as_deref(), expected.then_some(OLD_ASSET.as_bytes()), "{case}");
        }
    }

    #[test]
    fn link_fields_of_a_page_name_its_markdown_and_llms_txt_below_the_base_path() {
        const MARKDOWN: &str = "</docs/x%20y.md>; rel=\"alternate\"; type=\"text/markdown\"";
        const INDEX: &str = "</docs/llms.txt>; rel=\"describedby\"";
        const HTML: &str = "text/html; charset=utf-8";
        const PLAIN_MARKDOWN: &str = "text/markdown; charset=utf-8";
        let both = format!("{MARKDOWN}, {INDEX}");
        let files = [
            ("index.html", "<p>home"),
            ("x y.html", "<p>x"),
            ("x y.md", "# x"),
            ("a.css", "a{}"),
            ("_redirects", "/app/* /x%20y.html 200\n"),
            ("llms.txt", "# all"),
        ];
        let settings = || SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() };
        let with_index = site_with_files(&files, settings());
        let without_index = site_with_files(&files[..5], settings());
        // The target, the value of Accept, Link with and without an index, Content-Location, and the media type.
        for (target, accept, link, link_without_index, location, kind) in [
            ("/docs/x%20y", "*/*", Some(&*both), Some(MARKDOWN), None, HTML),
            ("/docs/x%20y", "text/markdown", Some(INDEX), None, Some("/docs/x%20y.md"), PLAIN_MARKDOWN),
            ("/docs/", "text/markdown", Some(INDEX), None, None, HTML),
            ("/docs/a.css", "*/*", None, None, None, "text/css; charset=utf-8"),
            // At its own address, the Markdown is the only form.
            ("/docs/x%20y.md", "*/*", None, None, None, PLAIN_MARKDOWN),
            // The form of a page to which a rule leads is not negotiated.
            ("/docs/app/z", "text/markdown", Some(INDEX), None, None, HTML),
        ] {
            for (site, expected) in [(&with_index, link), (&without_index, link_without_index)] {
                let response = get(site, target, &[(ACCEPT, accept)]);
                assert_eq!(response.status(), 200, "{target} {accept}");
                assert_eq!(field(&response, LINK), expected, "{target} {accept}");
                assert_eq!(field(&response, CONTENT_LOCATION), location, "{target} {accept}");
                assert_eq!(field(&response, CONTENT_TYPE), Some(kind), "{target} {accept}");
            }
        }
        assert_eq!(field(&get(&with_index, "/docs/llms.txt", &[]), LINK), None);
    }

    #[test]
    fn ranges_of_a_page_up_to_64_kib_may_be_in_any_order_whether_cached_or_not() {
        for (len, status) in [(65_536, 206), (65_537, 200)] {
            let text = "x".repeat(len);
            let content = Digest::compute(text.as_bytes());
            let site = site_with_files(&[("a.txt", &text)], SiteSettings::default());
            for is_cached in [false, true] {
                if is_cached {
                    site.inflated_file_cache.insert(content, text.clone().into());
                }
                assert_eq!(site.inflated_file_cache.get(&content).is_some(), is_cached);
                let send = |list: &str| get(&site, "/a.txt", &[(RANGE, list)]).status().as_u16();
                let statuses = (send("bytes=5-6,0-1"), send("bytes=0-1,5-6"));
                assert_eq!(statuses, (status, 206), "{len} bytes, cached: {is_cached}");
            }
        }
    }

    #[test]
    fn multiple_ranges_of_a_coding_need_at_most_16_mib_without_the_boundary() {
        const MAX_BYTES: usize = 16 << 20;
        let text = "<p>page";
        let boundary = encode_hex(&Digest::compute(text.as_bytes()).0[8..20]);
        let site = site_with_files(&[("a.html", text)], SiteSettings::default());
        let id = site.served_version().expect("a version is served").id;
        for (body, status) in [
            (b"a coding".to_vec(), 206),
            (format!("xx{boundary}xx").into_bytes(), 200),
            (vec![b'x'; MAX_BYTES], 206),
            (vec![b'x'; MAX_BYTES + 1], 200),
        ] {
            site.set_precompressed(Some(brotli_codings(id, &[&body])));
            let response = get(&site, "/a", &[(ACCEPT_ENCODING, "br"), (RANGE, "bytes=0-1,4-5")]);
            assert_eq!(response.status(), status, "{} bytes", body.len());
            assert_eq!(response.body().len() == body.len() as u64, status == 200, "{} bytes", body.len());
        }
    }

    #[test]
    fn a_missing_path_counts_as_a_page_unless_it_has_another_file_extension() {
        for page in ["/", "/guide", "/guide/", "/guide.html", "/GUIDE.HTM", "/release-1.0", "/a.js/b", "/.x", "/x."] {
            assert!(may_be_page(page.as_bytes()), "{page}");
        }
        for file in ["/a.js", "/a.css", "/a.JSON", "/a/b.txt", "/a.map", "/a.png", "/a.woff2", "/a.zip", "/a.tar.gz"] {
            assert!(!may_be_page(file.as_bytes()), "{file}");
        }
    }

    #[test]
    fn a_next_js_payload_request_is_recognized_by_the_rsc_query_parameter() {
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
