//! The search over HTTP: answers, protocols, the base path, access control, floods, and versions that change meanwhile.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use support::h2::Http2Client;
use support::host::{Host, toml_string};
use support::http::{PersistentConnection, Response, connect, exchange, get, gunzip, request};
use support::tls::{CertificateAuthority, tls_handshake};
use support::zip::{deflated, zip};
use support::{
    Daemon, HTTP2_SERVERS, SetOnDrop, serve_configured, serve_site, temporary_folder, until, until_done_in_background,
    write_site,
};

const NAME: &str = "docs.example";
const SEARCH: &str = "/_docwharf/search";
const AS_JSON: &str = "Accept: application/json";
const AS_BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

const PAGES: [(&str, &str); 4] = [
    ("index.html", "<title>Start</title><h1>Start</h1><p>Anchors and quays."),
    ("guide/tides.html", "<title>Tides</title><h1 id=tides>Tides</h1><p>Anchors in the tide."),
    (
        "guide/ropes.html",
        "<title>Ropes</title><h1>Ropes</h1><p>How to tie a bowline.<h2 id=knots>Knots</h2><p>Anchors.",
    ),
    ("hidden.html", "<meta name=robots content=noindex><title>Hidden</title><p>Anchors."),
];

/// Method, path and further fields.
type Request<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

fn search(address: &str, query: &str) -> Response {
    request(address, "GET", &format!("{SEARCH}?{query}"), &[AS_JSON])
}

/// The addresses of the results, sorted.
#[track_caller]
fn urls(response: &Response) -> Vec<String> {
    let answer = response.json();
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("no results: {answer}"));
    let mut urls: Vec<String> = results.iter().map(|result| result["url"].as_str().unwrap().to_owned()).collect();
    urls.sort_unstable();
    urls
}

#[track_caller]
fn wait_for_index(address: &str, search_path: &str) {
    let target = format!("{search_path}?q=anchors");
    until_done_in_background("the index is open", || {
        let response = request(address, "GET", &target, &[AS_JSON]);
        assert!(matches!(response.status, 200 | 503), "{response:?}");
        response.status == 200
    });
}

/// Starts `serve` for [`PAGES`] and waits for the index.
#[track_caller]
fn serve_pages(more: &[&str]) -> (tempfile::TempDir, Daemon) {
    let (dir, daemon) = serve_site(&PAGES, more);
    wait_for_index(&daemon.address, SEARCH);
    (dir, daemon)
}

#[test]
fn the_first_search_builds_the_index_and_later_ones_have_results() {
    let (_dir, daemon) = serve_site(&PAGES, &[]);
    let first = search(&daemon.address, "q=anchors");
    assert_eq!((first.status, first.json()), (503, serde_json::json!({ "indexing": true })));
    assert_eq!((first.header("retry-after"), first.header("cache-control")), (Some("2"), Some("no-store")));
    wait_for_index(&daemon.address, SEARCH);
    let answer = search(&daemon.address, "q=anchors");
    assert_eq!(urls(&answer), ["/", "/guide/ropes.html#knots", "/guide/tides.html#tides"]);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    for url in urls(&answer) {
        let page = get(&daemon.address, url.split('#').next().unwrap());
        assert_eq!(page.status, 200, "{url}");
    }
    // A typing error, a prefix, a section, and nothing at all.
    assert_eq!(search(&daemon.address, "q=bowlnie").json()["corrected"], "bowline");
    assert_eq!(urls(&search(&daemon.address, "q=bowl")), ["/guide/ropes.html"]);
    assert_eq!(urls(&search(&daemon.address, "q=anchors&section=/guide")).len(), 2);
    let nothing = search(&daemon.address, "q=zyxwvut");
    assert_eq!((nothing.status, &nothing.json()["total"]), (200, &0.into()));
}

#[test]
fn the_page_works_without_scripts_and_finds_its_files() {
    let (_dir, daemon) = serve_pages(&[]);
    let page = request(&daemon.address, "GET", &format!("{SEARCH}?q=anchors&limit=1"), &[AS_BROWSER]);
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'self'; form-action 'self'"), "{policy}");
    assert_eq!((page.header("vary"), page.header("x-robots-tag")), (Some("accept"), Some("noindex")));
    let html = page.text();
    assert!(html.contains("<mark>") && !html.contains("<script"), "{html}");
    // The links to further results and to the files are relative to the address of the page.
    let next = html.split("<a rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let target = format!("/_docwharf/{}", next.replace("&amp;", "&"));
    let second = request(&daemon.address, "GET", &target, &[AS_BROWSER]);
    assert!(second.status == 200 && second.text().contains("<ol class=\"results\" start=\"2\">"), "{target}");
    for file in ["page.css", "search.css", "search.js", "opensearch.xml"] {
        let response = get(&daemon.address, &format!("/_docwharf/{file}"));
        assert_eq!((response.status, response.header("cache-control")), (200, Some("no-cache")), "{file}");
        let tag = response.header("etag").expect("a tag");
        let condition = format!("If-None-Match: {tag}");
        let unchanged = request(&daemon.address, "GET", &format!("/_docwharf/{file}"), &[&condition]);
        assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some(tag)), "{file}");
    }
    let script = request(&daemon.address, "GET", "/_docwharf/search.js", &["Accept-Encoding: gzip"]);
    assert_eq!(script.header("content-encoding"), Some("gzip"));
    assert_eq!(gunzip(&script.body), get(&daemon.address, "/_docwharf/search.js").body);
}

/// Sends a request over HTTP/1.1.
#[track_caller]
fn http1_request<S: Read + Write>(stream: S, method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {NAME}\r\n");
    for (name, value) in fields {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    request.push_str("\r\n");
    exchange(stream, request.as_bytes(), method == "HEAD")
}

/// The parts of a response that do not depend on the time: status, fields and body. An answer in JSON tells how long
/// the query took, so its length differs.
fn comparable(response: &Response) -> (u16, Vec<(String, String)>, String) {
    let is_json = response.header("content-type") == Some("application/json");
    let ignored = ["connection", "keep-alive", "transfer-encoding", "date"];
    let mut fields = response.headers.clone();
    fields.retain(|(name, _)| !ignored.contains(&name.as_str()) && (!is_json || name != "content-length"));
    fields.sort();
    let mut text = response.text();
    if let (true, Ok(mut answer)) = (is_json, serde_json::from_str::<Value>(&text)) {
        answer.as_object_mut().expect("an object").remove("ms");
        text = answer.to_string();
    }
    (response.status, fields, text)
}

#[test]
fn searches_have_the_same_answers_over_http_1_http_2_and_tls() {
    for http2 in HTTP2_SERVERS {
        assert_protocols_answer_alike(http2);
    }
}

#[track_caller]
fn assert_protocols_answer_alike(http2: &str) {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &PAGES);
    let clear = Daemon::serve_with_http2(http2, &root, &[]);
    let authority = CertificateAuthority::new();
    let options = tls_options(dir.path(), &authority);
    let secure = Daemon::serve_with_http2(http2, &root, &options.iter().map(String::as_str).collect::<Vec<_>>());
    wait_for_index(&clear.address, SEARCH);
    let secure_search = |fields: &[(&str, &str)]| {
        let stream = tls_handshake(&secure.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
        http1_request(stream, "GET", "/_docwharf/search?q=anchors", fields)
    };
    until_done_in_background("the index is open", || secure_search(&[]).status == 200);
    let tag = search(&clear.address, "q=anchors").header("etag").expect("a tag").to_owned();
    let (json, html, gzip) = (("accept", "application/json"), ("accept", "text/html"), ("accept-encoding", "gzip"));
    let long = format!("{SEARCH}?q={}", "a".repeat(201));
    let cases: &[Request] = &[
        ("GET", "/_docwharf/search?q=anchors", &[]),
        ("HEAD", "/_docwharf/search?q=anchors", &[]),
        ("GET", "/_docwharf/search?q=anchors&limit=1&offset=1", &[json]),
        ("GET", "/_docwharf/search?q=anchors", &[html]),
        ("GET", "/_docwharf/search?q=%3Cb%3E%00&section=/guide&lang=de", &[html]),
        ("GET", "/_docwharf/search?q=anchors", &[("if-none-match", &tag)]),
        ("HEAD", "/_docwharf/search?q=anchors", &[("if-none-match", &tag)]),
        ("GET", SEARCH, &[]),
        ("GET", SEARCH, &[html]),
        ("GET", "/_docwharf/search?q=%zz", &[]),
        ("GET", "/_docwharf/search?q=a&limit=0", &[html]),
        ("GET", &long, &[]),
        ("GET", "/%5Fdocwharf/%73earch?q=anchors", &[]),
        ("GET", "/_docwharf/search/?q=anchors", &[]),
        ("POST", "/_docwharf/search?q=anchors", &[]),
        ("OPTIONS", "/_docwharf/search?q=anchors", &[]),
        ("GET", "/_docwharf/search.js", &[gzip]),
        ("HEAD", "/_docwharf/search.js", &[]),
        ("GET", "/_docwharf/page.css", &[("if-none-match", "*")]),
        ("GET", "/_docwharf/none", &[]),
    ];
    let mut client = Http2Client::open(&clear.address);
    let stream = tls_handshake(&secure.address, &authority.client(&["h2"]), NAME).expect("a handshake");
    let socket = stream.sock.try_clone().expect("a descriptor");
    let mut secure_client = Http2Client::over(Box::new(stream), socket, 1 << 20);
    secure_client.widen_connection_window();
    let streams: Vec<u32> = cases.iter().map(|&(method, path, fields)| client.request(method, path, fields)).collect();
    for (&(method, path, fields), stream) in cases.iter().zip(streams) {
        let case = format!("{http2}: {method} {path} {fields:?}");
        let expected = comparable(&http1_request(connect(&clear.address), method, path, fields));
        assert_eq!(comparable(&client.response(stream)), expected, "{case} over HTTP/2");
        let stream = tls_handshake(&secure.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
        assert_eq!(comparable(&http1_request(stream, method, path, fields)), expected, "{case} over TLS");
        let stream = secure_client.request(method, path, fields);
        assert_eq!(comparable(&secure_client.response(stream)), expected, "{case} over HTTP/2 and TLS");
    }
    let description = secure_search_description(&secure.address, &authority);
    assert!(description.contains(&format!("\"https://{NAME}/_docwharf/search?q=")), "{description}");
}

fn secure_search_description(address: &str, authority: &CertificateAuthority) -> String {
    let stream = tls_handshake(address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
    http1_request(stream, "GET", "/_docwharf/opensearch.xml", &[]).text()
}

/// Writes a certificate for [`NAME`] and its key into `dir`; returns the options of `serve` for TLS.
fn tls_options(dir: &Path, authority: &CertificateAuthority) -> Vec<String> {
    let pair = authority.issue(&[NAME]);
    write_site(dir, &[("cert.pem", &pair.certificate), ("key.pem", &pair.key)]);
    let file = |name: &str| dir.join(name).to_str().expect("a name").to_owned();
    vec!["--tls-cert".to_owned(), file("cert.pem"), "--tls-key".to_owned(), file("key.pem")]
}

#[test]
fn a_search_between_other_requests_on_a_connection_is_answered_in_its_place() {
    let (_dir, daemon) = serve_pages(&[]);
    let mut connection = PersistentConnection::open(&daemon.address);
    let targets =
        ["/", "/_docwharf/search?q=anchors", "/guide/tides.html", "/_docwharf/search?q=bowline", "/hidden.html"];
    let requests: Vec<String> =
        targets.iter().map(|target| format!("GET {target} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).collect();
    // In one write, and one after the other.
    for is_pipelined in [true, false] {
        if is_pipelined {
            connection.send(requests.concat());
        }
        for (request, target) in requests.iter().zip(targets) {
            if !is_pipelined {
                connection.send(request);
            }
            let response = connection.response(false);
            let expected = get(&daemon.address, target);
            assert_eq!(comparable(&response), comparable(&expected), "{target}, pipelined: {is_pipelined}");
        }
    }
}

#[test]
fn a_base_path_is_part_of_every_address() {
    let (_dir, daemon) = serve_site(&PAGES, &["--base-path", "/docs"]);
    wait_for_index(&daemon.address, "/docs/_docwharf/search");
    let answer = request(&daemon.address, "GET", "/docs/_docwharf/search?q=anchors", &[AS_JSON]);
    assert_eq!(urls(&answer), ["/docs/", "/docs/guide/ropes.html#knots", "/docs/guide/tides.html#tides"]);
    assert_eq!(urls(&request(&daemon.address, "GET", "/docs/_docwharf/search?q=anchors&section=guide/", &[])).len(), 2);
    for (target, status) in [
        ("/docs/_docwharf/search.js", 200),
        ("/docs/_docwharf/page.css", 200),
        ("/_docwharf/search?q=anchors", 404),
        ("/_docwharf/search.js", 404),
        ("/docs/docs/_docwharf/search", 404),
    ] {
        assert_eq!(get(&daemon.address, target).status, status, "{target}");
    }
    let xml = get(&daemon.address, "/docs/_docwharf/opensearch.xml").text();
    assert!(xml.contains(&format!("\"http://{}/docs/_docwharf/search?q=", daemon.address)), "{xml}");
}

#[test]
fn a_site_without_search_has_none_of_its_addresses() {
    let (_dir, daemon) = serve_configured(&PAGES, "[search]\nenabled = false\n");
    for name in ["search", "search?q=anchors", "search.js", "search.css", "page.css", "opensearch.xml"] {
        assert_eq!(get(&daemon.address, &format!("/_docwharf/{name}")).status, 404, "{name}");
    }
    assert!(!get(&daemon.address, "/").text().contains("_docwharf"));
}

#[test]
fn parameters_from_a_socket_cannot_break_an_answer() {
    let (_dir, daemon) = serve_pages(&[]);
    for (query, status) in [
        ("q=%", 400),
        ("q=%ff", 400),
        ("q=a&limit=51", 400),
        ("q=a&limit=1e1", 400),
        ("q=a&offset=-1", 400),
        ("q=\u{7dda}", 200),
        ("q=%00%1b%5B31m", 200),
        ("q=%22unfinished+phrase", 200),
        ("q=a+AND+(b+OR+NOT", 200),
        ("q=%E2%80%AEgnp.exe", 200),
        ("q=anchors&lang=%3Cb%3E", 200),
        ("q=anchors&unknown=1&&=&=a", 200),
        ("&", 200),
    ] {
        for accept in [AS_JSON, AS_BROWSER] {
            let response = request(&daemon.address, "GET", &format!("{SEARCH}?{query}"), &[accept]);
            assert_eq!(response.status, status, "{query} {accept}");
            if accept == AS_JSON {
                assert_eq!(response.json().get("error").is_some(), status == 400, "{query}");
            } else {
                assert!(!response.text().contains(['\0', '\u{1b}', '\u{202e}']), "{query}");
            }
        }
    }
    // The whole target is bounded as for every request.
    let long = format!("{SEARCH}?q=anchors&x={}", "a".repeat(70_000));
    let refused = request(&daemon.address, "GET", &long, &["Connection: close"]);
    assert_eq!(refused.status, 414);
}

#[test]
fn a_flood_of_searches_is_bounded_and_pages_are_served_meanwhile() {
    let words: Vec<String> = (0..2000).map(|number| format!("anchor{number} tide{}", number % 97)).collect();
    // Pages with the same text would count as one.
    let pages: Vec<(String, String)> = (0..40)
        .map(|number| {
            (format!("page-{number}.html"), format!("<title>{number}</title><p>page{number} {}", words.join(" ")))
        })
        .collect();
    let files: Vec<(&str, &str)> = pages.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (_dir, daemon) = serve_configured(&[&files[..], &PAGES[..]].concat(), "[search]\nparallel = 1\n");
    wait_for_index(&daemon.address, SEARCH);
    let mut clients: Vec<Http2Client> = (0..5).map(|_| Http2Client::open(&daemon.address)).collect();
    let streams: Vec<Vec<u32>> = clients
        .iter_mut()
        .map(|client| {
            let target = |number: usize| format!("{SEARCH}?q=anchor{number}+tid+anchr{number}&limit=50");
            (0..100).map(|number| client.request("GET", &target(number), &[])).collect()
        })
        .collect();
    // Other clients do not wait for the searches.
    for _ in 0..20 {
        assert_eq!(get(&daemon.address, "/guide/tides.html").status, 200);
    }
    let (mut answered, mut refused) = (0, 0);
    for (client, streams) in clients.iter_mut().zip(&streams) {
        for &stream in streams {
            let response = client.response(stream);
            match response.status {
                200 => answered += 1,
                503 => {
                    assert_eq!(response.header("retry-after"), Some("1"));
                    refused += 1;
                }
                other => panic!("{other}: {}", response.text()),
            }
        }
    }
    assert!(answered > 0 && answered + refused == 500, "{answered} answered, {refused} refused");
    until("a search is answered after the flood", || search(&daemon.address, "q=anchors").status == 200);
}

#[test]
fn clients_without_access_learn_nothing_from_the_search() {
    let host = Host::bare()
        .set("search.enabled", "true")
        .set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("sync.interval", toml_string("1h"))
        .set("access.allow", toml_string("127.0.0.2"));
    host.put("bundle.zip", site_bundle("one"));
    assert_eq!(host.sync(), "activated");
    let daemon = host.run();
    let refused = get(&daemon.address, "/");
    assert_eq!(refused.status, 403);
    for target in [
        "/_docwharf/search",
        "/_docwharf/search?q=anchors",
        "/_docwharf/search?q=%",
        "/_docwharf/search?limit=0",
        "/_docwharf/search.js",
        "/_docwharf/search.css",
        "/_docwharf/page.css",
        "/_docwharf/opensearch.xml",
    ] {
        for accept in [AS_JSON, AS_BROWSER] {
            let response = request(&daemon.address, "GET", target, &[accept]);
            assert_eq!(comparable(&response), comparable(&refused), "{target}");
        }
        let mut client = Http2Client::open(&daemon.address);
        let stream = client.request("GET", target, &[]);
        assert_eq!(comparable(&client.response(stream)), comparable(&refused), "{target} over HTTP/2");
    }
}

/// Makes a bundle with pages that all versions have, and pages that only this one has.
fn site_bundle(name: &str) -> Vec<u8> {
    let page = |title: &str| format!("<title>{title}</title><h1 id=top>{title}</h1><p>Anchors of {title}.");
    let mut members =
        vec![deflated("index.html", &page("Start")), deflated("common.html", &page(&format!("Common {name}")))];
    for number in 0..6 {
        let title = format!("{name} {number}");
        members.push(deflated(&format!("{name}/{number}.html"), &page(&title)));
    }
    zip(&members)
}

/// Checks that each result of an answer leads to a page, unless the version has changed since the answer.
fn check_results(address: &str, answer: &Response) {
    let version = answer.json()["version"].clone();
    for url in urls(answer) {
        let path = url.split('#').next().unwrap();
        let is_explained = || {
            let is_other = |response: &Response| response.status == 200 && response.json()["version"] != version;
            get(address, path).status == 200 || is_other(&search(address, "q=anchors"))
        };
        assert!((0..3).any(|_| is_explained()), "{url} of version {version} leads nowhere");
    }
}

/// `DOCWHARF_SWAPS=1000` makes it long (`.ci/extra swaps`).
#[test]
fn no_result_leads_nowhere_while_versions_are_swapped() {
    let swaps: usize = std::env::var("DOCWHARF_SWAPS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let host = Host::bare().set("search.enabled", "true");
    let host = host.set("staticExport.bundleUrl", toml_string("bundle.zip")).set("sync.interval", toml_string("1h"));
    for name in ["one", "two"] {
        host.put("bundle.zip", site_bundle(name));
        assert_eq!(host.sync(), "activated");
    }
    let daemon = host.run();
    wait_for_index(&daemon.address, SEARCH);
    let (is_over, answers, indexing) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = search(&daemon.address, "q=anchors&limit=50");
                    if answer.status == 503 {
                        assert!(answer.header("retry-after").is_some(), "{answer:?}");
                        continue;
                    }
                    assert_eq!(answer.status, 200, "{answer:?}");
                    check_results(&daemon.address, &answer);
                    answers.fetch_add(1, Ordering::Relaxed);
                    if answer.json()["indexing"] == true {
                        assert_eq!(answer.header("cache-control"), Some("no-store"));
                        indexing.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for _ in 0..swaps {
            let before = answers.load(Ordering::Relaxed);
            host.ok(&["rollback"]);
            until("searches are answered after the swap", || answers.load(Ordering::Relaxed) >= before + 3);
        }
        drop(end);
    });
    println!("{swaps} swaps, {answers:?} answers, {indexing:?} of them from the index of the version before");
    // In the end, the active version has its own index.
    until_done_in_background("the index of the active version is open", || {
        search(&daemon.address, "q=anchors").json()["indexing"] == false
    });
    let answer = search(&daemon.address, "q=anchors&limit=50");
    assert_eq!(urls(&answer).len(), 8, "{}", answer.text());
    let active = host.active().expect("a version");
    assert!(answer.json()["version"].as_str().expect("an id").starts_with(&active[..12]), "{active}");
}
