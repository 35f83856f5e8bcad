//! Access control covers every resource that this program has, and all that it makes of pages.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::model::cidr::IpRanges;
use docwharf_base::net::NetworkSettings;
use docwharf_base::secret::SafeUrl;
use docwharf_search::index::BuildProgress;
use docwharf_search::site_markdown::{SiteMarkdown, build_site_markdown};
use http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN, VARY};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;

use crate::access::{AccessControl, AccessRules};
use crate::assistant_settings::AskSettings;
use crate::handler::{handle, handle_deferred};
use crate::markdown_handler::{LLMS_FULL_PATH, WELL_KNOWN_FOLDER};
use crate::markdown_links::LLMS_PATH;
use crate::named_host::HostList;
use crate::page_markdown::build_settings;
use crate::peer::Peer;
use crate::playground_settings::PlaygroundSettings;
use crate::post_resources::POST_RESOURCES;
use crate::recording::agents::AgentClassifier;
use crate::recording::{Recorder, RecordingSettings};
use crate::search::{SEARCH_RESOURCES, test_indexes};
use crate::test_versions::version_with_files;
use crate::{AssistantSettings, Site, SiteMarkdownSource, SiteSettings};

const PEER: Peer = Peer {
    address: std::net::SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 7)),
    is_encrypted: false,
    is_loopback_listener: true,
};

/// The resources below `_docwharf/`: each name, and the status of a request without a body by a client that may read
/// the site. A resource without a row here fails the test.
const RESOURCES: [(&str, Method, u16); 12] = [
    ("events", Method::POST, 400),
    ("mcp", Method::POST, 400),
    ("ask", Method::POST, 400),
    ("playground", Method::POST, 400),
    ("search", Method::GET, 200),
    ("search.js", Method::GET, 200),
    ("search.css", Method::GET, 200),
    ("ask.js", Method::GET, 200),
    ("ask.css", Method::GET, 200),
    ("page.css", Method::GET, 200),
    ("opensearch.xml", Method::GET, 200),
    ("playground.js", Method::GET, 200),
];

/// The addresses of what is made of pages; those of the lists are added.
const PAGES: [&str; 6] = ["/", "/a", "/a.html", "/a.md", "/a.html.md", "/index.md"];

/// Creates a site with everything on.
fn site() -> Arc<Site> {
    let site = Site::new(SiteSettings::default());
    let version = version_with_files(&[("a.html", "<title>A</title><h1>A</h1><p>text"), ("index.html", "<p>start")], 0);
    site.set_search_index(Some(test_indexes::build_index(&version)));
    let folder = tempfile::tempdir().unwrap();
    let target = docwharf_base::directory::Directory::open(folder.path()).unwrap();
    build_site_markdown(&version, &build_settings(&site), &target, &BuildProgress::default()).unwrap();
    let markdown = SiteMarkdown::open(&target, version.id).unwrap();
    site.set_version(version);
    site.set_site_markdown_source(SiteMarkdownSource::Program);
    site.set_site_markdown(Some(Arc::new(markdown)));
    site.set_search_settings(Arc::new(test_indexes::settings()));
    let ask = AskSettings {
        // Nothing listens on the port 1.
        base_url: SafeUrl::parse("http://127.0.0.1:1/v1").unwrap(),
        model: "m".to_owned(),
        key_file: None,
        max_question: NonZeroUsize::new(1000).unwrap(),
        max_context: NonZeroUsize::new(1000).unwrap(),
        max_answer: NonZeroU32::MIN,
        timeout: Duration::from_secs(1),
        parallel: NonZeroUsize::MIN,
        per_minute: NonZeroU32::new(1000).unwrap(),
        per_day: NonZeroU32::new(1000).unwrap(),
        network: NetworkSettings::default(),
    };
    let mcp_per_minute = NonZeroU32::new(1000).unwrap();
    let settings = AssistantSettings { ask: Some(ask), mcp_per_minute, ..AssistantSettings::default() };
    site.set_assistant_settings(Some(Arc::new(settings)));
    site.set_playground_settings(Some(Arc::new(PlaygroundSettings {
        allow: Vec::new(),
        hosts: HostList::default(),
        timeout: Duration::from_secs(1),
        max_request: 1000,
        max_response: 1000,
        per_minute: NonZeroU32::new(1000).unwrap(),
        rewrite: true,
        network: NetworkSettings::default(),
    })));
    let agents = Arc::new(AgentClassifier::built_in());
    let recording = RecordingSettings { searches: true, pages: true, respects_opt_out: true, agents };
    site.set_recorder(Some(Arc::new(Recorder::new("/", recording))));
    site
}

fn request(method: &Method, target: &str, accept: &str) -> Request<()> {
    let mut request = Request::builder().method(method).uri(target).header(HOST, "127.0.0.1").body(()).unwrap();
    request.headers_mut().insert(ACCEPT, accept.parse().unwrap());
    if *method == Method::POST {
        request.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
        // The playground wants one, and MCP none.
        if target.contains("playground") {
            request.headers_mut().insert(ORIGIN, "http://127.0.0.1".parse().unwrap());
        }
    }
    request
}

/// Returns status, header fields and body.
async fn send(site: &Arc<Site>, method: &Method, target: &str, accept: &str) -> (u16, HeaderMap, Vec<u8>) {
    let response = handle_deferred(site, request(method, target, accept), Some(PEER)).await;
    let (head, body) = response.into_parts();
    (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes().to_vec())
}

/// Returns each method, address and `Accept` by which something is read.
fn readable() -> Vec<(Method, String, &'static str, u16)> {
    let resources = RESOURCES.iter().map(|(name, method, status)| {
        let query = if *name == "search" { "?q=text" } else { "" };
        (method.clone(), format!("/_docwharf/{name}{query}"), "application/json", *status)
    });
    let pages = PAGES.iter().map(|target| (Method::GET, (*target).to_owned(), "text/markdown", 200));
    let lists = [LLMS_PATH, LLMS_FULL_PATH].into_iter().flat_map(|name| {
        ["/", &format!("/{WELL_KNOWN_FOLDER}")].map(|folder| (Method::GET, format!("{folder}{name}"), "*/*", 200))
    });
    resources.chain(pages).chain(lists).collect()
}

#[test]
fn each_resource_of_this_program_has_a_row_in_the_tests_of_access_control() {
    let mut found: Vec<&str> = POST_RESOURCES.iter().map(|(name, _)| *name).collect();
    found.extend(SEARCH_RESOURCES.iter().map(|(name, _)| *name));
    // The playground has one more resource, which is in no list.
    found.push("playground.js");
    found.sort_unstable();
    let mut rows: Vec<&str> = RESOURCES.iter().map(|(name, ..)| *name).collect();
    rows.sort_unstable();
    assert_eq!(found, rows);
}

#[tokio::test]
async fn a_client_that_may_not_read_the_site_gets_the_same_403_for_everything_that_this_program_makes() {
    let site = site();
    for (method, target, accept, expected) in readable() {
        let (status, fields, body) = send(&site, &method, &target, accept).await;
        assert_eq!(status, expected, "{method} {target}: {}", String::from_utf8_lossy(&body));
        assert!(accept != "text/markdown" || fields[CONTENT_TYPE] == "text/markdown; charset=utf-8", "{target}");
    }
    let allow = Some(IpRanges::parse(&["192.0.2.0/24"]).unwrap());
    let rules = AccessRules { allow, user_header: None };
    site.set_access_control(AccessControl { rules, ..AccessControl::default() });
    let (_, expected, text) = send(&site, &Method::GET, "/no/such/file", "*/*").await;
    assert!(!expected.contains_key(VARY));
    for (_, target, accept, _) in readable() {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS, Method::DELETE] {
            let (status, fields, body) = send(&site, &method, &target, accept).await;
            assert_eq!((status, &fields), (403, &expected), "{method} {target}");
            assert!(body == text || method == Method::HEAD && body.is_empty(), "{method} {target}");
            // Also for connections that do not wait.
            let response = handle(&site, &request(&method, &target, accept), Some(PEER));
            assert_eq!(response.status().as_u16(), 403, "{method} {target}");
        }
    }
}
