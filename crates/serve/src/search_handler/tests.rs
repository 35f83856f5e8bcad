//! Tests of answers and of their entity tags, through the handler of a site, and what the tests of this module share.

use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST, IF_MATCH, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use docwharf_site::external::csp::{CspPreset, CspSettings};
use docwharf_site::rules::{RuleDraft, RuleSet, netlify_files};

use super::*;
use crate::SiteSettings;
use crate::handler::handle_deferred;
use crate::search::test_indexes::{build_index, settings};
use crate::search::{QueryOutcome, QueryStatistics, SearchSettings};
use crate::security_headers::{FramePolicy, SecurityHeaderSettings};
use crate::test_versions::version_with_files;

pub(super) const SEARCH: &str = "/docs/_docwharf/search";
pub(super) const JSON: &str = "application/json";
pub(super) const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// The pages of the sites in these tests.
pub(super) const PAGES: [(&str, &str); 3] = [
    ("index.html", "<title>Start</title><h1>Start</h1><p>anchors and quays"),
    ("guide/tides.html", "<title>Tides</title><h1 id=tides>Tides</h1><p>anchors in the tide"),
    ("old.html", "<title>Old</title><h1>Old</h1><p>anchors of old"),
];

/// A response whose body was read.
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) fields: http::HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Received {
    pub(super) fn field(&self, name: &HeaderName) -> Option<&str> {
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn named(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn urls(&self) -> Vec<String> {
        let answer = self.json();
        let results = answer["results"].as_array().expect("results");
        let mut urls: Vec<String> = results.iter().map(|result| result["url"].as_str().unwrap().to_owned()).collect();
        urls.sort_unstable();
        urls
    }
}

pub(super) fn site_settings() -> SiteSettings {
    SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() }
}

/// Creates a site with [`PAGES`], with the search on and without an index.
pub(super) fn site_without_index(site_settings: SiteSettings) -> Arc<Site> {
    let site = Site::new(site_settings);
    site.set_version(version_with_files(&PAGES, 0));
    site.set_search_settings(Arc::new(settings()));
    site
}

/// Creates a site with [`PAGES`] and their index.
pub(super) fn searchable_site() -> Arc<Site> {
    let site = site_without_index(site_settings());
    index_served_version(&site);
    site
}

pub(super) fn index_served_version(site: &Site) {
    site.set_search_index(Some(build_index(&site.served_version().expect("a version"))));
}

pub(super) fn request(method: &Method, target: &str, fields: &[(HeaderName, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(target).header(HOST, "docs.example:8443").body(()).unwrap();
    for (name, value) in fields {
        request.headers_mut().append(name.clone(), value.parse().unwrap());
    }
    request
}

pub(super) async fn receive(response: Response<ResponseBody>) -> Received {
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await;
    Received { status: parts.status.as_u16(), fields: parts.headers, body: body.to_bytes().to_vec() }
}

pub(super) async fn send(site: &Arc<Site>, method: &Method, target: &str, fields: &[(HeaderName, &str)]) -> Received {
    receive(handle_deferred(site, request(method, target, fields), None).await).await
}

pub(super) async fn get(site: &Arc<Site>, target: &str, fields: &[(HeaderName, &str)]) -> Received {
    send(site, &Method::GET, target, fields).await
}

/// Searches for a query string and returns the answer as JSON.
pub(super) async fn search(site: &Arc<Site>, query: &str) -> Received {
    get(site, &format!("{SEARCH}?{query}"), &[(ACCEPT, JSON)]).await
}

pub(super) fn rules(text: &str) -> Arc<RuleSet> {
    let mut draft = RuleDraft::default();
    netlify_files::read_redirects(text, "rules", &mut draft);
    Arc::new(RuleSet::new(draft))
}

#[tokio::test]
async fn an_answer_has_the_documented_fields_and_header_fields() {
    let site = searchable_site();
    let answer = search(&site, "q=tides&limit=5&section=/guide&lang=en").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.urls(), ["/docs/guide/tides.html#tides"]);
    let json = answer.json();
    let names = ["query", "corrected", "total", "ms", "indexing", "partial", "version", "results"];
    assert!(
        names.iter().all(|name| json.get(name).is_some()) && json.as_object().unwrap().len() == names.len(),
        "{json}"
    );
    assert_eq!(json["version"], site.served_version().unwrap().id.to_string());
    let length = answer.body.len().to_string();
    for (name, expected) in [
        (CONTENT_TYPE, JSON),
        (CACHE_CONTROL, "private, max-age=60"),
        (VARY, "accept"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "strict-origin-when-cross-origin"),
        (X_FRAME_OPTIONS, "SAMEORIGIN"),
        (HeaderName::from_static("x-robots-tag"), "noindex"),
        (CONTENT_LENGTH, length.as_str()),
    ] {
        assert_eq!(answer.field(&name), Some(expected), "{name}");
    }
    let tag = answer.field(&ETAG).unwrap();
    assert!(tag.starts_with("W/\"") && tag.len() == 20, "{tag}");
    assert_eq!(answer.field(&CONTENT_SECURITY_POLICY), None);
    assert_eq!(site.search_statistics().count(QueryOutcome::Ok), 1);
}

#[tokio::test]
async fn limit_and_offset_choose_the_results() {
    let site = searchable_site();
    let all = search(&site, "q=anchors").await;
    assert_eq!((all.urls().len(), &all.json()["total"]), (3, &json!(3)));
    let mut seen = Vec::new();
    for offset in 0..3 {
        let one = search(&site, &format!("q=anchors&limit=1&offset={offset}")).await;
        assert_eq!((one.urls().len(), &one.json()["total"]), (1, &json!(3)), "{offset}");
        seen.extend(one.urls());
    }
    seen.sort_unstable();
    assert_eq!(seen, all.urls());
    let beyond = search(&site, "q=anchors&offset=490").await;
    assert_eq!((beyond.status, beyond.urls().len()), (200, 0));
}

#[tokio::test]
async fn accept_decides_between_json_and_the_page() {
    let site = searchable_site();
    for (accept, is_page) in [
        (Some(BROWSER), true),
        (Some("text/html"), true),
        (Some("text/html, application/json"), true),
        (Some("application/json, text/html"), false),
        (Some(JSON), false),
        (Some("*/*"), false),
        (None, false),
    ] {
        let fields: Vec<(HeaderName, &str)> = accept.map(|accept| (ACCEPT, accept)).into_iter().collect();
        for (target, status) in
            [(format!("{SEARCH}?q=anchors"), 200), (SEARCH.to_owned(), 200), (format!("{SEARCH}?limit=0"), 400)]
        {
            let response = get(&site, &target, &fields).await;
            let media_type = if is_page { "text/html; charset=utf-8" } else { JSON };
            assert_eq!(
                (response.status, response.field(&CONTENT_TYPE)),
                (status, Some(media_type)),
                "{target} {accept:?}"
            );
            assert_eq!(response.field(&VARY), Some("accept"), "{target} {accept:?}");
            assert_eq!(response.fields.contains_key(CONTENT_SECURITY_POLICY), is_page, "{target} {accept:?}");
            assert_eq!(response.text().starts_with("<!doctype html>"), is_page, "{target} {accept:?}");
        }
    }
}

#[tokio::test]
async fn the_page_has_results_its_own_policy_and_the_frames_that_the_operator_allows() {
    let csp = CspSettings { preset: CspPreset::Airgap, ancestors: Some("'none'"), max_bytes: 3072 };
    let security_headers =
        SecurityHeaderSettings { frames: Some(FramePolicy::Deny), csp: Some(csp), ..SecurityHeaderSettings::default() };
    let site = site_without_index(SiteSettings { security_headers, ..site_settings() });
    index_served_version(&site);
    let page = get(&site, &format!("{SEARCH}?q=tides&lang=de"), &[(ACCEPT, BROWSER)]).await;
    let html = page.text();
    for expected in ["<html lang=\"de\"", "href=\"/docs/guide/tides.html#tides\"", "href=\"page.css\""] {
        assert!(html.contains(expected), "{expected}\n{html}");
    }
    let policies: Vec<&str> =
        page.fields.get_all(CONTENT_SECURITY_POLICY).iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(policies.len(), 2, "{policies:?}");
    assert!(policies[0].starts_with("default-src 'none'; style-src 'self'; form-action 'self'"), "{policies:?}");
    assert!(policies[0].ends_with("frame-ancestors 'none'"), "{policies:?}");
    assert_eq!(page.field(&X_FRAME_OPTIONS), Some("DENY"));
    // The policies of the site are for documents only.
    assert_eq!(search(&site, "q=tides").await.field(&CONTENT_SECURITY_POLICY), None);
}

#[tokio::test]
async fn parameters_that_are_not_valid_are_refused_with_a_reason() {
    let site = searchable_site();
    let long = format!("q={}", "a".repeat(201));
    let cases = [
        ("q=a&limit=51", "limit is not a number from 1 to 50"),
        ("q=a&offset=491", "offset is not a number from 0 to 490"),
        ("q=%zz", "the parameters are not percent-encoded UTF-8"),
        (long.as_str(), "q has more than 200 characters"),
    ];
    for (query, reason) in cases {
        let refused = search(&site, query).await;
        assert_eq!((refused.status, refused.json()), (400, json!({ "error": reason })), "{query}");
        assert_eq!(refused.field(&CACHE_CONTROL), Some("no-store"), "{query}");
        assert_eq!((refused.field(&ETAG), refused.field(&VARY)), (None, Some("accept")), "{query}");
        let page = get(&site, &format!("{SEARCH}?{query}"), &[(ACCEPT, BROWSER)]).await;
        assert!(page.status == 400 && page.text().contains("The address of this search is not valid."), "{query}");
    }
    assert_eq!(site.search_statistics().count(QueryOutcome::Invalid), 2 * cases.len() as u64);
}

#[tokio::test]
async fn hostile_questions_are_text() {
    let site = searchable_site();
    let hostile = "%3Cscript%3Ealert(1)%3C/script%3E%22%27%00%1b%5B31m%E2%80%AE*:*+AND+(";
    let answer = search(&site, &format!("q={hostile}")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.json()["query"].as_str().unwrap().starts_with("<script>"), "{}", answer.text());
    let page =
        get(&site, &format!("{SEARCH}?q={hostile}&section={hostile}&lang={hostile}"), &[(ACCEPT, BROWSER)]).await;
    assert_eq!(page.status, 200);
    let html = page.text();
    assert!(!html.contains("<script") && !html.contains(['\0', '\u{1b}', '\u{202e}']), "{html}");
}

#[tokio::test]
async fn nothing_typed_has_no_results_and_needs_no_index() {
    let site = site_without_index(site_settings());
    for query in ["", "?", "?q=", "?q=+%20", "?limit=5"] {
        let answer = get(&site, &format!("{SEARCH}{query}"), &[]).await;
        assert_eq!((answer.status, answer.urls().len()), (200, 0), "{query}");
        assert_eq!(answer.json()["indexing"], false, "{query}");
        assert_eq!(answer.field(&CACHE_CONTROL), Some("private, max-age=60"), "{query}");
        assert!(answer.field(&ETAG).is_some(), "{query}");
    }
    assert_eq!(site.search_statistics(), QueryStatistics::default());
}

#[tokio::test]
async fn an_entity_tag_is_stable_and_leads_to_304_until_question_index_or_settings_change() {
    let site = searchable_site();
    let target = format!("{SEARCH}?q=anchors");
    let tag = |answer: &Received| answer.field(&ETAG).expect("a tag").to_owned();
    let first = tag(&get(&site, &target, &[(ACCEPT, JSON)]).await);
    assert_eq!(tag(&get(&site, &target, &[(ACCEPT, JSON)]).await), first);
    let queries_before = site.search_statistics();
    for method in [Method::GET, Method::HEAD] {
        let response = send(&site, &method, &target, &[(ACCEPT, JSON), (IF_NONE_MATCH, &first)]).await;
        assert_eq!((response.status, response.body.len()), (304, 0));
        assert_eq!(tag(&response), first);
        assert_eq!(response.field(&CACHE_CONTROL), Some("private, max-age=60"));
        assert_eq!((response.field(&VARY), response.field(&CONTENT_TYPE)), (Some("accept"), None));
    }
    assert_eq!(site.search_statistics(), queries_before, "no query is needed");
    let others = [
        get(&site, &target, &[(ACCEPT, BROWSER), (IF_NONE_MATCH, &first)]).await,
        get(&site, &format!("{target}&limit=1"), &[(IF_NONE_MATCH, &first)]).await,
        get(&site, &format!("{SEARCH}?q=quays"), &[(IF_NONE_MATCH, &first)]).await,
    ];
    assert!(others.iter().all(|other| other.status == 200 && tag(other) != first));
    // A form of the same question.
    assert_eq!(tag(&get(&site, &format!("{SEARCH}?x=y&q=%61nchors"), &[]).await), first);
    site.set_rules(rules("/old.html /x 302!\n"));
    assert_eq!(get(&site, &target, &[(IF_NONE_MATCH, &first)]).await.status, 200, "other rules");
    site.set_rules(Arc::default());
    assert_eq!(get(&site, &target, &[(IF_NONE_MATCH, &first)]).await.status, 304, "the rules as before");
    site.set_search_settings(Arc::new(SearchSettings { synonyms: Arc::default(), ..settings() }));
    assert_eq!(get(&site, &target, &[(IF_NONE_MATCH, &first)]).await.status, 200, "other synonyms");
}

#[tokio::test]
async fn only_an_asterisk_in_if_match_matches_the_weak_tag_of_an_answer() {
    let site = searchable_site();
    let target = format!("{SEARCH}?q=anchors");
    let tag = get(&site, &target, &[]).await.field(&ETAG).expect("a tag").to_owned();
    let opaque = tag.strip_prefix("W/").expect("a weak tag");
    for (condition, status) in [("*", 200), (tag.as_str(), 412), (opaque, 412), ("\"x\"", 412)] {
        for method in [Method::GET, Method::HEAD] {
            // If-Match is evaluated first (RFC 9110, 13.2.2).
            for fields in [&[(IF_MATCH, condition)][..], &[(IF_MATCH, condition), (IF_NONE_MATCH, "\"y\"")]] {
                let response = send(&site, &method, &target, fields).await;
                assert_eq!(response.status, status, "{method} {fields:?}");
            }
        }
    }
    let failed = get(&site, &target, &[(IF_MATCH, opaque)]).await;
    assert_eq!((failed.body.len(), failed.field(&CONTENT_LENGTH)), (0, Some("0")));
    assert_eq!((failed.field(&CACHE_CONTROL), failed.field(&VARY)), (Some("no-store"), Some("accept")));
    // A refusal does not depend on conditions.
    let refused = get(&site, &format!("{SEARCH}?q=%"), &[(IF_MATCH, opaque)]).await;
    assert_eq!(refused.status, 400);
}

#[test]
fn a_question_is_recognized_without_decoding_more_than_its_path() {
    let site = searchable_site();
    assert!(may_need_query(&site, "/docs/_docwharf/search?q=a"));
    for target in ["/docs/_docwharf/search", "/docs/_docwharf/searches?q=a", "/_docwharf/search?q", "/?/docs/", "?", ""]
    {
        assert!(!may_need_query(&site, target), "{target}");
    }
}
