//! Responses to requests for files of a site, of all forms and versions.

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
        for (fields, status) in [(&[][..], 200), (&[(ACCEPT_ENCODING, "gzip")], 200), (&[(IF_NONE_MATCH, "*")], 304)] {
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
        let body = site.codings.body(version, 0, ContentCoding::Brotli, crc);
        assert_eq!(body.as_deref(), is_found.then_some(&b"coded"[..]), "{crc}");
    }
    assert_eq!(site.codings.body(&current, 0, ContentCoding::Zstd, crc), None);
}

#[test]
fn a_script_of_a_replaced_version_gets_no_csp_hashes_of_the_active_version() {
    let settings = CspSettings { preset: CspPreset::Connected, ancestors: None, max_bytes: 3072 };
    let security_headers = SecurityHeaderSettings { csp: Some(settings.clone()), ..SecurityHeaderSettings::default() };
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
