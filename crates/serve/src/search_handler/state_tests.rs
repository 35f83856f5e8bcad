//! Tests of the states of the search (off, without an index, busy), and of access control.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, RETRY_AFTER};
use http::{Method, StatusCode};
use serde_json::json;

use super::tests::{
    BROWSER, PAGES, SEARCH, get, index_served_version, receive, request, search, searchable_site, site_settings,
    site_without_index,
};
use docwharf_base::model::cidr::IpRanges;
use docwharf_base::model::reader_activity::{SearchActivity, SearchId};

use super::*;
use crate::SiteSettings;
use crate::access::{AccessControl, AccessRules};
use crate::handler::{handle, handle_deferred};
use crate::peer::Peer;
use crate::recording::agents::AgentClassifier;
use crate::recording::{Recorder, RecordingSettings};
use crate::search::test_indexes::settings;
use crate::search::{QueryOutcome, SearchSettings};
use crate::test_versions::version_with_files;

fn served(site: &Site) -> Arc<SealedVersion> {
    site.served_version().expect("a version")
}

#[tokio::test]
async fn all_addresses_are_not_found_while_the_search_is_off() {
    let on = searchable_site();
    let off = site_without_index(site_settings());
    off.set_search_settings(Arc::new(SearchSettings { enabled: false, ..settings() }));
    let never = Site::new(site_settings());
    never.set_version(version_with_files(&PAGES, 0));
    for name in ["search", "search?q=anchors", "search.js", "search.css", "page.css", "opensearch.xml"] {
        let target = format!("/docs/_docwharf/{name}");
        assert_eq!(get(&on, &target, &[]).await.status, 200, "{name}");
        for site in [&off, &never] {
            assert_eq!(get(site, &target, &[]).await.status, 404, "{name}");
        }
        assert_eq!(get(&on, &format!("/_docwharf/{name}"), &[]).await.status, 404, "outside the base path: {name}");
    }
    for name in ["", "x", "search/", "search.js.map"] {
        assert_eq!(get(&on, &format!("/docs/_docwharf/{name}"), &[]).await.status, 404, "{name}");
    }
}

#[tokio::test]
async fn without_an_index_clients_are_told_to_wait_and_the_first_search_is_reported() {
    let site = site_without_index(site_settings());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    site.on_first_search(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    for target in ["/docs/", "/docs/_docwharf/search.js", SEARCH, "/docs/_docwharf/search?q=&limit=5"] {
        get(&site, target, &[]).await;
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0, "these are no searches");
    for _ in 0..2 {
        let waiting = search(&site, "q=anchors").await;
        assert_eq!((waiting.status, waiting.json()), (503, json!({ "indexing": true })));
        assert_eq!((waiting.field(&RETRY_AFTER), waiting.field(&CACHE_CONTROL)), (Some("2"), Some("no-store")));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
    let page = get(&site, &format!("{SEARCH}?q=anchors"), &[(ACCEPT, BROWSER)]).await;
    assert!(page.status == 503 && page.text().contains("The search index is being built."), "{}", page.text());
    assert_eq!(site.search_statistics().count(QueryOutcome::Indexing), 3);
    site.set_search_building(false);
    let failed = search(&site, "q=anchors").await;
    assert_eq!((failed.status, failed.field(&RETRY_AFTER)), (503, None), "the build has failed");
    assert_eq!(failed.json()["indexing"], false);
    index_served_version(&site);
    assert_eq!(search(&site, "q=anchors").await.status, 200);
}

#[tokio::test]
async fn a_search_that_an_earlier_index_answers_is_reported_once() {
    let site = searchable_site();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    site.on_first_search(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    assert_eq!(search(&site, "q=anchors").await.json()["indexing"], false);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "the served version has its index");
    site.set_version(version_with_files(&PAGES[..2], 0));
    for _ in 0..2 {
        assert_eq!(search(&site, "q=anchors").await.json()["indexing"], true);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn until_a_new_version_has_its_index_the_earlier_one_answers_without_pages_that_are_gone() {
    let site = searchable_site();
    let first = site.served_version().unwrap().id;
    let second = [
        ("_redirects", "/old.html /guide/tides.html 301\n"),
        ("guide/tides.html", "<title>Tides</title><h1 id=tides>Tides</h1><p>anchors in the tide"),
        ("new.html", "<title>New</title><h1>New</h1><p>anchors"),
    ];
    site.set_version(version_with_files(&second, 0));
    let answer = search(&site, "q=anchors").await;
    assert_eq!(answer.urls(), ["/docs/guide/tides.html#tides", "/docs/old.html"]);
    let json = answer.json();
    assert_eq!((&json["indexing"], &json["total"]), (&json!(true), &json!(2)));
    assert_eq!(json["version"], site.served_version().unwrap().id.to_string());
    assert_ne!(json["version"], first.to_string());
    assert_eq!((answer.field(&CACHE_CONTROL), answer.field(&ETAG)), (Some("no-store"), None));
    let page = get(&site, &format!("{SEARCH}?q=anchors"), &[(ACCEPT, BROWSER)]).await;
    assert!(page.text().contains("A new version is being indexed."), "{}", page.text());
    let empty = search(&site, "q=").await;
    assert_eq!((empty.json()["indexing"].clone(), empty.field(&CACHE_CONTROL)), (json!(true), Some("no-store")));
    index_served_version(&site);
    let answer = search(&site, "q=anchors").await;
    assert_eq!(
        (&answer.json()["indexing"], answer.field(&CACHE_CONTROL)),
        (&json!(false), Some("private, max-age=60"))
    );
    assert!(answer.urls().contains(&"/docs/new.html".to_owned()), "{:?}", answer.urls());
}

#[tokio::test]
async fn a_query_that_had_to_wait_or_has_failed_is_answered_in_the_form_of_the_client() {
    let site = searchable_site();
    let request = request(&Method::GET, SEARCH, &[]);
    let context = RequestContext::new(&site, &request, None);
    for (failure, format, status, retry) in [
        (SearchFailure::Busy, AnswerFormat::Json, 503, Some("1")),
        (SearchFailure::Busy, AnswerFormat::Page, 503, Some("1")),
        (SearchFailure::Failed, AnswerFormat::Json, 500, None),
        (SearchFailure::Failed, AnswerFormat::Page, 500, None),
    ] {
        let tag = Some("\"x\"".to_owned());
        let parameters = SearchParameters { text: "anchors".to_owned(), ..SearchParameters::default() };
        let question = SearchQuestion { parameters, format, tag };
        let response =
            receive(FinishedQuery { question, version: served(&site), result: Err(failure) }.respond(&context)).await;
        assert_eq!((response.status, response.field(&RETRY_AFTER)), (status, retry), "{failure:?} {format:?}");
        assert_eq!((response.field(&CACHE_CONTROL), response.field(&ETAG)), (Some("no-store"), None));
        assert_eq!(response.field(&CONTENT_TYPE), Some(format.media_type()), "{failure:?}");
        let text = match (format, failure) {
            (AnswerFormat::Page, _) => "The search did not answer.",
            (AnswerFormat::Json, SearchFailure::Busy) => "too many searches at a time; try again in a second",
            (AnswerFormat::Json, SearchFailure::Failed) => "cannot be read; the log of docwharf has the reason",
        };
        assert!(response.text().contains(text), "{}", response.text());
    }
    let counts = [QueryOutcome::Busy, QueryOutcome::Failed].map(|outcome| site.search_statistics().count(outcome));
    assert_eq!(counts, [2, 2]);
    // An answer is counted once, by its outcome; one to no question is not counted.
    for (is_partial, has_results, text) in
        [(true, true, "a"), (false, true, "a"), (false, false, "a"), (false, false, "")]
    {
        let parameters = SearchParameters { text: text.to_owned(), ..SearchParameters::default() };
        let question = SearchQuestion { parameters, format: AnswerFormat::Json, tag: None };
        let result = Ok(SearchAnswer { body: Vec::new(), is_indexing: false, is_partial, has_results, total: 0 });
        receive(FinishedQuery { question, version: served(&site), result }.respond(&context)).await;
    }
    let counts = [QueryOutcome::Partial, QueryOutcome::Ok, QueryOutcome::Empty, QueryOutcome::Busy];
    assert_eq!(counts.map(|outcome| site.search_statistics().count(outcome)), [1, 1, 1, 2]);
    // A caller that cannot wait gets no answer to a query.
    let query = super::tests::request(&Method::GET, "/docs/_docwharf/search?q=anchors", &[]);
    let refused = receive(handle(&site, &query, None)).await;
    assert_eq!((refused.status, refused.field(&RETRY_AFTER)), (503, Some("1")));
}

#[tokio::test]
async fn the_number_of_results_of_a_partial_answer_is_recorded_as_unknown() {
    let site = searchable_site();
    let agents = Arc::new(AgentClassifier::built_in());
    let settings = RecordingSettings { searches: true, pages: true, respects_opt_out: true, agents };
    let recorder = Arc::new(Recorder::new("/docs/", settings));
    site.set_recorder(Some(Arc::clone(&recorder)));
    let request = request(&Method::GET, SEARCH, &[]);
    let context = RequestContext::new(&site, &request, None);
    for is_partial in [false, true] {
        let (text, record) = ("a".to_owned(), SearchId::parse("00000000000000aa"));
        let parameters = SearchParameters { text, record, ..SearchParameters::default() };
        let question = SearchQuestion { parameters, format: AnswerFormat::Json, tag: None };
        let result =
            Ok(SearchAnswer { body: Vec::new(), is_indexing: false, is_partial, has_results: false, total: 0 });
        receive(FinishedQuery { question, version: served(&site), result }.respond(&context)).await;
    }
    let results = recorder.take().searches.into_iter().map(|activity| match activity {
        SearchActivity::Search { results, .. } => results,
        other => panic!("{other:?}"),
    });
    assert_eq!(results.collect::<Vec<_>>(), [Some(0), None]);
}

#[tokio::test]
async fn a_partial_answer_is_not_stored() {
    let site = searchable_site();
    let request = request(&Method::GET, SEARCH, &[]);
    let context = RequestContext::new(&site, &request, None);
    for (is_indexing, is_partial, cache, has_tag) in [
        (false, false, "private, max-age=60", true),
        (true, false, "no-store", false),
        (false, true, "no-store", false),
    ] {
        let body = b"{}".to_vec();
        let result = Ok(SearchAnswer { body, is_indexing, is_partial, has_results: true, total: 1 });
        let tag = Some("\"x\"".to_owned());
        let question = SearchQuestion { parameters: SearchParameters::default(), format: AnswerFormat::Json, tag };
        let response = receive(FinishedQuery { question, version: served(&site), result }.respond(&context)).await;
        assert_eq!((response.status, response.text().as_str()), (200, "{}"));
        assert_eq!(response.field(&CACHE_CONTROL), Some(cache), "{is_indexing} {is_partial}");
        assert_eq!(response.field(&ETAG), Some("W/\"x\"").filter(|_| has_tag), "{is_indexing} {is_partial}");
    }
}

#[tokio::test]
async fn more_queries_at_once_than_run_in_parallel_are_all_answered() {
    let site = searchable_site();
    let parallel = NonZeroUsize::new(2).unwrap();
    site.set_search_settings(Arc::new(SearchSettings { parallel, ..settings() }));
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            let site = Arc::clone(&site);
            tokio::spawn(async move { search(&site, &format!("q=anchors+{number}")).await.status })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn access_control_comes_before_anything_of_the_search() {
    let closed = AccessControl {
        rules: AccessRules { allow: Some(IpRanges::parse(&["192.0.2.0/24"]).unwrap()), user_header: None },
        proxies: IpRanges::default(),
    };
    let peer = |address: [u8; 4]| {
        Some(Peer { address: (address, 4711).into(), is_encrypted: false, is_loopback_listener: false })
    };
    let site = site_without_index(SiteSettings { access_control: closed, ..site_settings() });
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    site.on_first_search(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let targets = [
        "/docs/_docwharf/search",
        "/docs/_docwharf/search?q=anchors",
        "/docs/_docwharf/search?q=%",
        "/docs/_docwharf/search.js",
        "/docs/_docwharf/page.css",
        "/docs/_docwharf/opensearch.xml",
        "/docs/_docwharf/none",
    ];
    for has_index in [false, true] {
        for target in targets {
            let refused = handle_deferred(&site, request(&Method::GET, target, &[]), peer([203, 0, 113, 7])).await;
            let refused = receive(refused).await;
            assert_eq!(
                (refused.status, refused.text().as_str()),
                (403, "403: you may not read this site\n"),
                "{target}"
            );
        }
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        if !has_index {
            index_served_version(&site);
        }
    }
    let allowed = handle_deferred(&site, request(&Method::GET, targets[1], &[]), peer([192, 0, 2, 7])).await;
    assert_eq!(allowed.status(), StatusCode::OK);
    let script = handle_deferred(&site, request(&Method::GET, targets[3], &[]), peer([192, 0, 2, 7])).await;
    assert_eq!(script.headers()[CACHE_CONTROL], "private, no-cache");
}

#[tokio::test]
async fn a_query_is_refused_if_the_access_control_changes_while_it_runs() {
    let site = searchable_site();
    let target = format!("{SEARCH}?q=anchors");
    let deferred = handle_deferred(&site, request(&Method::GET, &target, &[]), None);
    let nobody = AccessRules { allow: Some(IpRanges::default()), user_header: None };
    site.set_access_control(AccessControl { rules: nobody, proxies: IpRanges::default() });
    assert_eq!(deferred.await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn without_a_version_the_search_is_answered_like_the_site() {
    let site = Site::new(site_settings());
    site.set_search_settings(Arc::new(settings()));
    for target in [SEARCH, "/docs/_docwharf/search?q=anchors", "/docs/_docwharf/search.js"] {
        let response = get(&site, target, &[]).await;
        assert_eq!((response.status, response.field(&RETRY_AFTER)), (503, Some("5")), "{target}");
    }
}
