//! Recording of requests, whether they are answered from the cache or not.

use std::sync::Arc;

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, Request, StatusCode, Uri};

use docwharf_base::model::reader_activity::{ReaderActivity, SearchActivity, ViewCounts};

use super::*;
use crate::body::{BodyLocation, StoredBody};
use crate::peer::Peer;
use crate::recording::recorded_fields::RecordedFields;
use crate::respond::{respond_from_cache, respond_now};
use crate::response_cache::{CacheAddress, CacheKey, HeadFormat};
use crate::search::SearchParameters;
use crate::test_versions::version_with_files;
use crate::{Site, SiteSettings};

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0";
const PEER: Peer = Peer {
    address: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4711),
    is_encrypted: false,
    is_loopback_listener: false,
};

fn recorder(base_path: &str) -> Arc<Recorder> {
    let agents = Arc::new(agents::AgentClassifier::built_in());
    let settings = RecordingSettings { searches: true, pages: true, respects_opt_out: true, agents };
    Arc::new(Recorder::new(base_path, settings))
}

/// Creates a recorded site below `/docs/`.
fn recorded_site(files: &[(&str, &str)]) -> (Arc<Site>, Arc<Recorder>) {
    let site = Site::new(SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() });
    site.set_version(version_with_files(files, 0));
    let recorder = recorder("/docs/");
    site.set_recorder(Some(Arc::clone(&recorder)));
    (site, recorder)
}

fn send(site: &Site, method: &str, target: &str, fields: &[(HeaderName, &str)]) -> StatusCode {
    let mut request = Request::builder().method(method).uri(target).header(HOST, "docs.example").body(()).unwrap();
    request.headers_mut().insert(USER_AGENT, BROWSER.parse().unwrap());
    for (name, value) in fields {
        request.headers_mut().insert(name.clone(), value.parse().unwrap());
    }
    respond_now(site, request, PEER).expect("nothing is converted").status()
}

fn views(activity: &ReaderActivity) -> Vec<(String, ViewCounts)> {
    let mut views: Vec<_> = activity.days.iter().flat_map(|day| day.views.clone()).collect();
    views.sort_by(|one, other| one.0.cmp(&other.0));
    views
}

fn human(count: u64) -> ViewCounts {
    ViewCounts { human: count, ..ViewCounts::default() }
}

#[test]
fn each_address_of_a_page_counts_as_a_view_of_one_path() {
    let (site, recorder) = recorded_site(&[("a/index.html", "a"), ("b.html", "b"), ("c.css", "c"), ("_next/x.js", "")]);
    for target in ["/docs/a", "/docs/a/", "/docs/a/index.html?x=secret", "/docs/b", "/docs/b.html", "/docs/c.css"] {
        assert_eq!(send(&site, "GET", target, &[]), StatusCode::OK, "{target}");
    }
    let activity = recorder.take();
    assert_eq!(views(&activity), [("/docs/a".to_owned(), human(3)), ("/docs/b".to_owned(), human(2))]);
    assert!(recorder.take().is_empty());
}

#[test]
fn only_a_complete_page_that_a_reader_asked_for_is_a_view() {
    let (site, recorder) = recorded_site(&[("b.html", "0123456789"), ("b.md", "#"), ("404.html", "none")]);
    let name = |name: &'static str| HeaderName::from_static(name);
    for (method, fields, status) in [
        ("HEAD", &[][..], 200),
        ("GET", &[(name("range"), "bytes=0-3")], 206),
        ("GET", &[(name("if-match"), "\"x\"")], 412),
        ("GET", &[(name("sec-purpose"), "prefetch")], 200),
        ("GET", &[(name("sec-fetch-dest"), "iframe")], 200),
        ("GET", &[(name("sec-gpc"), "1")], 200),
        ("GET", &[(name("dnt"), "1")], 200),
        ("GET", &[(name("accept"), "text/markdown")], 200),
    ] {
        assert_eq!(send(&site, method, "/docs/b", fields).as_u16(), status, "{fields:?}");
    }
    assert!(recorder.take().is_empty());
    assert_eq!(send(&site, "GET", "/docs/b", &[(name("if-none-match"), "*")]), StatusCode::NOT_MODIFIED);
    assert_eq!(views(&recorder.take()), [("/docs/b".to_owned(), human(1))]);
}

#[test]
fn programs_are_counted_apart_by_class_and_markdown_that_they_read_is_for_ai() {
    let (site, recorder) = recorded_site(&[("b.html", "b"), ("b.md", "#"), ("index.html", "i"), ("index.md", "i")]);
    for (target, agent) in [
        ("/docs/b", "Mozilla/5.0 (compatible; GPTBot/1.2; +https://openai.com/gptbot)"),
        ("/docs/b", "curl/8.5.0"),
        ("/docs/b.md", "curl/8.5.0"),
        ("/docs/b", ""),
        ("/docs/b", BROWSER),
    ] {
        assert_eq!(send(&site, "GET", target, &[(USER_AGENT, agent)]), StatusCode::OK, "{agent}");
    }
    let activity = recorder.take();
    assert_eq!(views(&activity), [("/docs/b".to_owned(), ViewCounts { human: 1, ai: 2, bot: 2 })]);
    assert_eq!(activity.days[0].agents.iter().map(|(_, count)| count).sum::<u64>(), 4, "{:?}", activity.days);
    assert_eq!(activity.days[0].entries, [("/docs/b".to_owned(), 1)]);
}

#[test]
fn not_found_paths_that_people_request_are_counted_without_their_query() {
    let (site, recorder) = recorded_site(&[("b.html", "b")]);
    for (target, agent) in
        [("/docs/gone?q=secret", BROWSER), ("/docs/gone", BROWSER), ("/other", BROWSER), ("/docs/bot", "curl/8.5.0")]
    {
        assert_eq!(send(&site, "GET", target, &[(USER_AGENT, agent)]), StatusCode::NOT_FOUND);
    }
    let [day] = recorder.take().days.try_into().expect("one day");
    let mut not_found = day.not_found;
    not_found.sort();
    assert_eq!(not_found, [("/docs/gone".to_owned(), 2), ("/other".to_owned(), 1)]);
    assert!(day.views.is_empty());
}

#[test]
fn a_page_that_the_search_page_led_to_is_a_click() {
    let (site, recorder) = recorded_site(&[("b.html", "b")]);
    let search = "http://docs.example/docs/_docwharf/search?q=lru+cache&offset=10";
    send(&site, "GET", "/docs/b.html", &[(REFERER, search)]);
    for other in [
        "http://other.example/docs/_docwharf/search?q=a",
        "http://docs.example/_docwharf/search?q=a",
        "http://docs.example/docs/_docwharf/search?q=",
        "http://docs.example/docs/_docwharf/search",
    ] {
        send(&site, "GET", "/docs/b.html", &[(REFERER, other)]);
    }
    let [SearchActivity::PageClick { query, page, .. }] = &recorder.take().searches[..] else { panic!("one click") };
    assert_eq!((query.as_str(), page.as_str()), ("lru cache", "/docs/b"));
}

#[test]
fn a_response_from_the_cache_counts_as_much_as_the_first_one() {
    let (site, recorder) = recorded_site(&[("a.html", "a"), ("b.html", "b")]);
    let key = CacheKey { target: "/docs/b?x", ..CacheKey::default() };
    let address = CacheAddress::new(&site, &key, HeadFormat::Lines).expect("every client may read the site");
    let body = StoredBody { location: BodyLocation::Empty, viewed: ViewedContent::Page(1) };
    address.store(StatusCode::NOT_MODIFIED, b"head", body);
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, BROWSER.parse().unwrap());
    let target = Uri::from_static("/docs/b?x");
    for _ in 0..3 {
        let fields = RecordedFields::from_request(&target, &headers);
        assert!(respond_from_cache(&site, &address, &fields, &mut Vec::new()).is_some());
    }
    let head_key = CacheKey { is_head: true, ..key };
    let head_address = CacheAddress::new(&site, &head_key, HeadFormat::Lines).expect("every client may read the site");
    head_address.store(
        StatusCode::OK,
        b"head",
        StoredBody { location: BodyLocation::Empty, viewed: ViewedContent::Page(1) },
    );
    let fields = RecordedFields::from_request(&target, &headers);
    assert!(respond_from_cache(&site, &head_address, &fields, &mut Vec::new()).is_some());
    assert_eq!(views(&recorder.take()), [("/docs/b".to_owned(), human(3))]);
}

#[test]
fn searches_beyond_the_bound_are_dropped_and_counted() {
    let recorder = recorder("/");
    for n in 0..10_002 {
        recorder.note_search(docwharf_base::model::reader_activity::SearchId(n), "a".to_owned(), 1);
    }
    let activity = recorder.take();
    assert_eq!((activity.searches.len(), activity.dropped), (10_000, 2));
}

// Regression: a view at the moment at which another version became active was counted for the file of that version with
// the same number. If there was none, the thread that took the counts ended.
#[test]
fn a_cached_response_of_a_replaced_version_is_no_view_of_the_new_one() {
    let (site, recorder) = recorded_site(&[("a.html", "a"), ("b.html", "b")]);
    let key = CacheKey { target: "/docs/b", ..CacheKey::default() };
    let address = CacheAddress::new(&site, &key, HeadFormat::Lines).expect("every client may read the site");
    let body = StoredBody { location: BodyLocation::Empty, viewed: ViewedContent::Page(1) };
    address.store(StatusCode::NOT_MODIFIED, b"head", body);
    site.set_version(version_with_files(&[("c.html", "c")], 0));
    assert!(respond_from_cache(&site, &address, &RecordedFields::default(), &mut Vec::new()).is_some());
    assert!(recorder.take().is_empty());
}

#[test]
fn searches_that_a_client_has_recorded_have_the_same_rate_as_its_events() {
    let recorder = recorder("/");
    let record = docwharf_base::model::reader_activity::SearchId::parse("00000000000000aa");
    let parameters = SearchParameters { text: "a".to_owned(), record, ..SearchParameters::default() };
    let (one, other) = (PEER.address.ip(), std::net::Ipv4Addr::new(192, 0, 2, 1).into());
    for client in [one; 62].into_iter().chain([other]) {
        recorder.note_answer(&RecordedFields::default(), client, &parameters, false, Some(1));
    }
    let activity = recorder.take();
    assert_eq!((activity.searches.len(), activity.dropped), (61, 2));
}
