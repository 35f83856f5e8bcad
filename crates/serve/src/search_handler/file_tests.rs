//! Tests of the files beside `search`, of methods, and of the header fields of all resources of the search.

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, IF_MATCH,
    IF_NONE_MATCH, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode, Version};

use super::tests::{PAGES, SEARCH, get, index_served_version, receive, request, searchable_site, send, site_settings};
use super::*;
use crate::body::BodyLocation;
use crate::handler::{handle, handle_deferred};
use crate::peer::Peer;
use crate::search::test_indexes::settings;
use crate::test_versions::version_with_files;

#[tokio::test]
async fn head_has_the_fields_of_get_without_a_body() {
    let site = searchable_site();
    for target in [
        SEARCH,
        "/docs/_docwharf/search?limit=0",
        "/docs/_docwharf/search.js",
        "/docs/_docwharf/page.css",
        "/docs/_docwharf/opensearch.xml",
    ] {
        let (full, head) = (get(&site, target, &[]).await, send(&site, &Method::HEAD, target, &[]).await);
        assert_eq!((full.status, &full.fields), (head.status, &head.fields), "{target}");
        assert!(!full.body.is_empty() && head.body.is_empty(), "{target}");
    }
    // The answer contains the duration, so its length differs from time to time.
    let head = send(&site, &Method::HEAD, &format!("{SEARCH}?q=anchors"), &[]).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.field(&CONTENT_LENGTH).unwrap().parse::<usize>().unwrap() > 100);
}

#[tokio::test]
async fn other_methods_are_refused_with_the_allowed_ones() {
    let site = searchable_site();
    for (method, status) in [(Method::POST, 405), (Method::PUT, 405), (Method::DELETE, 405), (Method::OPTIONS, 204)] {
        for target in [format!("{SEARCH}?q=a").as_str(), "/docs/_docwharf/search.js"] {
            let response = send(&site, &method, target, &[]).await;
            assert_eq!((response.status, response.named("allow")), (status, Some("GET, HEAD, OPTIONS")), "{method}");
        }
    }
}

#[tokio::test]
async fn header_rules_of_the_bundle_do_not_apply_to_the_search() {
    let site = Site::new(site_settings());
    let mut files = PAGES.to_vec();
    files.push(("_headers", "/*\n  Cache-Control: public, max-age=9999\n  X-From-Bundle: yes\n"));
    site.set_version(version_with_files(&files, 0));
    site.set_search_settings(Arc::new(settings()));
    index_served_version(&site);
    assert_eq!(get(&site, "/docs/old.html", &[]).await.named("x-from-bundle"), Some("yes"));
    for target in [SEARCH, "/docs/_docwharf/search?q=anchors", "/docs/_docwharf/search.js"] {
        let response = get(&site, target, &[]).await;
        assert_eq!((response.status, response.named("x-from-bundle")), (200, None), "{target}");
        assert!(!response.field(&CACHE_CONTROL).unwrap().contains("public"), "{target}");
    }
}

#[tokio::test]
async fn files_of_the_box_are_compressed_and_revalidated_by_a_strong_tag() {
    let site = searchable_site();
    for (name, media_type) in [
        ("search.js", "text/javascript; charset=utf-8"),
        ("search.css", "text/css; charset=utf-8"),
        ("page.css", "text/css; charset=utf-8"),
    ] {
        let target = format!("/docs/_docwharf/{name}");
        let mut tags = Vec::new();
        for (accepted, coding) in
            [("identity", None), ("gzip", Some("gzip")), ("br", Some("br")), ("zstd", Some("zstd"))]
        {
            let accepted = [(ACCEPT_ENCODING, accepted)];
            let file = get(&site, &target, &accepted).await;
            assert_eq!((file.status, file.field(&CONTENT_ENCODING)), (200, coding), "{name}");
            assert_eq!(file.field(&CONTENT_TYPE), Some(media_type), "{name}");
            assert_eq!(file.field(&CACHE_CONTROL), Some("no-cache"), "{name}");
            assert_eq!(file.field(&VARY), Some("accept-encoding"), "{name}");
            assert_eq!(file.field(&X_CONTENT_TYPE_OPTIONS), Some("nosniff"), "{name}");
            let tag = file.field(&ETAG).unwrap().to_owned();
            assert!(tag.starts_with('"') && !tags.contains(&tag), "{name}: {tag}");
            let conditional = [accepted[0].clone(), (IF_NONE_MATCH, tag.as_str())];
            let unchanged = get(&site, &target, &conditional).await;
            assert_eq!((unchanged.status, unchanged.field(&ETAG)), (304, Some(tag.as_str())), "{name}");
            assert_eq!(unchanged.field(&VARY), Some("accept-encoding"), "{name}");
            assert_eq!(get(&site, &target, &[(IF_MATCH, "\"x\"")]).await.status, 412, "{name}");
            tags.push(tag);
        }
    }
    let script = "/docs/_docwharf/search.js";
    let before = get(&site, script, &[]).await;
    assert!(before.text().contains("#search"));
    let mut changed = settings();
    changed.search_box.selectors = vec!["#other".to_owned()];
    site.set_search_settings(Arc::new(changed));
    let after = get(&site, script, &[]).await;
    assert!(after.text().contains("#other") && after.field(&ETAG) != before.field(&ETAG));
}

#[tokio::test]
async fn only_the_304_of_a_file_is_stored_in_the_response_cache() {
    let site = searchable_site();
    let location = |response: &Response<ResponseBody>| response.body().location().cloned();
    let script = "/docs/_docwharf/search.js";
    let full = handle(&site, &request(&Method::GET, script, &[]), None);
    assert_eq!(location(&full), None);
    let unchanged = handle(&site, &request(&Method::GET, script, &[(IF_NONE_MATCH, "*")]), None);
    assert_eq!((unchanged.status(), location(&unchanged)), (StatusCode::NOT_MODIFIED, Some(BodyLocation::Empty)));
    for target in [SEARCH, "/docs/_docwharf/search?q=anchors", "/docs/_docwharf/opensearch.xml"] {
        for fields in [&[][..], &[(IF_NONE_MATCH, "*")]] {
            let response = handle_deferred(&site, request(&Method::GET, target, fields), None).await;
            assert_eq!(location(&response), None, "{target} {fields:?}");
        }
    }
}

#[tokio::test]
async fn opensearch_xml_names_the_site_as_the_client_knows_it() {
    let site = searchable_site();
    let target = "/docs/_docwharf/opensearch.xml";
    for (is_encrypted, start) in [(false, "http://docs.example:8443/docs/"), (true, "https://docs.example:8443/docs/")]
    {
        let peer = Some(Peer { address: ([203, 0, 113, 7], 4711).into(), is_encrypted, is_loopback_listener: false });
        let response = receive(handle_deferred(&site, request(&Method::GET, target, &[]), peer).await).await;
        assert_eq!(response.field(&CONTENT_TYPE), Some("application/opensearchdescription+xml"));
        let xml = response.text();
        assert!(xml.contains(&format!("template=\"{start}_docwharf/search?q={{searchTerms}}\"")), "{xml}");
        assert!(xml.contains("<ShortName>docs.example</ShortName>"), "{xml}");
        assert_eq!(response.field(&CACHE_CONTROL), Some("no-cache"));
    }
    let absolute = request(&Method::GET, "http://user@[::1]:80/docs/_docwharf/opensearch.xml", &[]);
    let xml = receive(handle(&site, &absolute, None)).await.text();
    assert!(xml.contains("\"http://[::1]:80/docs/_docwharf/search?"), "{xml}");
    let mut without_host = request(&Method::GET, target, &[]);
    without_host.headers_mut().remove(HOST);
    *without_host.version_mut() = Version::HTTP_10;
    assert_eq!(handle(&site, &without_host, None).status(), StatusCode::BAD_REQUEST);
}
