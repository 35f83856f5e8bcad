//! What readers do is recorded by `run`: views, searches and clicks, served by the API, with nothing that identifies a
//! reader.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::h2::Http2Client;
use support::host::{Host, bundle, toml_string};
use support::http::{self, Response};
use support::{Daemon, until};

const BROWSER: &str =
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0 (5ecretAgent)";
const KEY: &str = "0123456789abcdef-analytics";

/// Starts `run` with a bundle. Returns the path of the control socket as well.
fn start(host: &Host) -> (Daemon, PathBuf) {
    host.put("bundle.zip", bundle("Moat"));
    host.put("keys", KEY);
    host.ok(&["import", &host.path("bundle.zip").display().to_string()]);
    let daemon = host.run();
    let socket = host.path("store/control.sock");
    until("the daemon has started", || UnixStream::connect(&socket).is_ok());
    (daemon, socket)
}

fn recording_host() -> Host {
    Host::bare()
        .set("admin.listen", toml_string("127.0.0.1:0"))
        .set("search.enabled", "true")
        .set("analytics.keyFile", toml_string("keys"))
        .set("analytics.projectId", toml_string("docs"))
}

/// Sends a query to the control socket, which has no budget.
fn query(socket: &Path, route: &str) -> Response {
    let stream = UnixStream::connect(socket).expect("the daemon listens");
    let request = format!("GET /v1/analytics/docs/{route} HTTP/1.1\r\nHost: x\r\n\r\n");
    http::exchange(stream, request.as_bytes(), false)
}

fn query_json(socket: &Path, route: &str) -> Value {
    let response = query(socket, route);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn post_events(daemon: &Daemon, body: &str, fields: &[&str]) -> Response {
    http::post(&daemon.address, "/_docwharf/events", fields, body)
}

fn events(list: &Value) -> String {
    json!({ "events": list }).to_string()
}

/// Waits until the daemon has written this many searches, and views of people.
fn wait_for_counts(socket: &Path, searches: u64, views: u64) {
    until("everything is written", || {
        query_json(socket, "searches")["totalSearches"] == searches
            && query_json(socket, "views")["totals"]["human"] == views
    });
}

#[test]
fn views_searches_and_clicks_are_served_as_they_happened_and_survive_a_restart() {
    let host = recording_host();
    let (daemon, socket) = start(&host);
    let json_type = "Content-Type: application/json";
    for (target, fields) in [
        ("/guide", &[BROWSER, "Sec-Fetch-Site: cross-site", "Referer: https://search.example/x?q=5ecretReferrer"][..]),
        ("/guide.html", &[BROWSER, "Sec-Fetch-Site: same-origin"]),
        ("/guide", &["User-Agent: GPTBot/1.2"]),
        ("/missing/5ecret?q=5ecretQuery", &[BROWSER]),
    ] {
        let response = http::request(&daemon.address, "GET", target, fields);
        assert_eq!(response.status, if target.starts_with("/guide") { 200 } else { 404 });
    }
    let batch = events(&json!([
        { "type": "search", "id": "00000000000000aa", "query": "Moat  Depth", "results": 2 },
        { "type": "click", "id": "00000000000000aa", "page": "/guide.html?x#y" },
        { "type": "search", "id": "00000000000000ab", "query": "nothing", "results": 0 },
        { "type": "view", "page": "/" },
        { "type": "view", "page": "/no-such-page" },
        { "type": "click", "id": "00000000000000ab", "page": "/no-such-page" }
    ]));
    assert_eq!(post_events(&daemon, &batch, &[json_type, BROWSER]).status, 204);
    wait_for_counts(&socket, 2, 3);
    let searches = query_json(&socket, "searches");
    assert_eq!(searches["searches"][0]["searchQuery"], "moat depth");
    assert_eq!(searches["searches"][0]["topClickedPage"], "/guide");
    assert_eq!(searches["searches"][0]["ctr"], 1.0);
    assert_eq!(searches["searches"][1]["topClickedPage"], Value::Null);
    let nothing = query_json(&socket, "searches?noResults=true");
    assert_eq!((&nothing["totalSearches"], &nothing["searches"][0]["searchQuery"]), (&json!(1), &json!("nothing")));
    let views = query_json(&socket, "views");
    assert_eq!(views["totals"], json!({ "human": 3, "ai": 1, "total": 4, "bot": 0 }));
    assert_eq!(
        views["views"],
        json!([
            { "path": "/guide", "human": 2, "ai": 1, "total": 3, "bot": 0 },
            { "path": "/", "human": 1, "ai": 0, "total": 1, "bot": 0 }
        ])
    );
    for (by, rows) in [
        ("referrer", json!([{ "key": "search.example", "count": 1 }])),
        ("entry", json!([{ "key": "/guide", "count": 1 }])),
        ("notFound", json!([{ "key": "/missing/5ecret", "count": 1 }])),
        ("agent", json!([{ "key": "GPTBot", "count": 1 }])),
    ] {
        let expected = json!({ "by": by, "rows": rows, "hasMore": false });
        assert_eq!(query_json(&socket, &format!("pages?by={by}")), expected);
    }
    let status = &host.status()["daemon"]["analytics"];
    assert_eq!((&status["clicks"], &status["views"], &status["error"]), (&json!(1), &json!(4), &Value::Null));
    drop(daemon);
    let (_daemon, socket) = start(&host);
    assert_eq!(query_json(&socket, "views"), views);
    assert_eq!(query_json(&socket, "searches"), searches);
}

#[test]
fn a_search_page_counts_each_query_of_a_person_and_the_page_that_it_led_to() {
    let host = recording_host();
    let (daemon, socket) = start(&host);
    let html = "Accept: text/html";
    until("there is an index", || http::request(&daemon.address, "GET", "/_docwharf/search?q=x", &[]).status == 200);
    let search = "/_docwharf/search?q=moat";
    for (target, fields) in [
        (search, &[html, BROWSER][..]),
        ("/_docwharf/search?q=moat&offset=10", &[html, BROWSER]),
        (search, &[html, "User-Agent: curl/8.5.0"]),
        (search, &[html, BROWSER, "Sec-GPC: 1"]),
        ("/_docwharf/search?q=by+box&record=00000000000000fe", &[html, BROWSER]),
        (search, &[BROWSER]),
        ("/_docwharf/search?q=by+script&record=00000000000000FF", &["User-Agent: curl/8.5.0"]),
    ] {
        assert_eq!(http::request(&daemon.address, "GET", target, fields).status, 200, "{target} {fields:?}");
    }
    assert_eq!(http::request(&daemon.address, "GET", "/_docwharf/search?q=a&record=x", &[]).status, 400);
    let referrer = format!("Referer: http://{}{search}", daemon.address);
    http::request(&daemon.address, "GET", "/guide", &[BROWSER, &referrer, "Sec-Fetch-Site: same-origin"]);
    let click = events(&json!([{ "type": "click", "id": "00000000000000ff", "page": "/" }]));
    assert_eq!(post_events(&daemon, &click, &["Content-Type: text/plain"]).status, 204);
    wait_for_counts(&socket, 2, 1);
    until("the clicks are written", || {
        let searches = query_json(&socket, "searches")["searches"].clone();
        searches.as_array().unwrap().iter().all(|search| search["topClickedPage"] != Value::Null)
    });
    let searches = query_json(&socket, "searches");
    let pages: Vec<_> =
        searches["searches"].as_array().unwrap().iter().map(|search| &search["topClickedPage"]).collect();
    assert_eq!(pages, ["/", "/guide"]);
}

#[test]
fn events_that_are_malformed_foreign_or_too_many_are_refused() {
    let host = recording_host();
    let (daemon, socket) = start(&host);
    let one = events(&json!([{ "type": "view", "page": "/" }]));
    let many = events(&json!(vec![json!({ "type": "view", "page": "/" }); 21]));
    let long = format!("{one}{}", " ".repeat(8 << 10));
    let text = "Content-Type: text/plain;charset=UTF-8";
    let own = format!("Origin: http://{}", daemon.address);
    for (body, fields, status) in [
        (one.as_str(), &[text, own.as_str()][..], 204),
        (&one, &[text, "Origin: https://evil.example"], 403),
        (&one, &[text, "Origin: null"], 403),
        // A proxy that changes Host.
        (&one, &[text, "Origin: https://docs.example", "Sec-Fetch-Site: same-origin"], 403),
        (&one, &[text, "Origin: null", "Sec-Fetch-Site: same-origin"], 403),
        (&one, &[], 415),
        (&one, &["Content-Type: application/x-www-form-urlencoded"], 415),
        (&long, &[text], 413),
        (&many, &[text], 400),
        ("{", &[text], 400),
        ("{\"events\": []}", &[text], 400),
        ("", &[text], 400),
    ] {
        let response = post_events(&daemon, body, fields);
        assert_eq!(response.status, status, "{body:.60} {fields:?}: {}", response.text());
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    // Twice: the second response comes from the cache. A body after the head of HEAD would fail.
    for method in ["GET", "HEAD", "PUT", "GET", "HEAD"] {
        let response = http::request(&daemon.address, method, "/_docwharf/events", &[]);
        assert_eq!((response.status, response.header("allow")), (405, Some("POST, OPTIONS")), "{method}");
    }
    let options = http::request(&daemon.address, "OPTIONS", "/_docwharf/events", &[]);
    assert_eq!((options.status, options.header("allow")), (204, Some("POST, OPTIONS")));
    let refused = (0..60).map(|_| post_events(&daemon, &one, &[text])).find(|response| response.status != 204);
    assert_eq!(refused.map(|response| response.status), Some(429));
    assert!(query_json(&socket, "views")["totals"]["human"].as_u64().unwrap() <= 60);
}

#[test]
fn events_arrive_over_http2_as_well() {
    let host = recording_host();
    let (daemon, socket) = start(&host);
    let mut client = Http2Client::open(&daemon.address);
    let body = events(&json!([{ "type": "view", "page": "/guide" }]));
    let fields = [("content-type", "text/plain"), ("user-agent", BROWSER.trim_start_matches("User-Agent: "))];
    let post = |client: &mut Http2Client, body: &[u8]| {
        let chunks: Vec<_> = body.chunks(3000).collect();
        let stream = client.request_with_body("POST", "/_docwharf/events", &fields, &chunks);
        client.response(stream).status
    };
    assert_eq!(post(&mut client, body.as_bytes()), 204);
    assert_eq!(post(&mut client, b"{"), 400);
    assert_eq!(post(&mut client, &[b' '; 9000]), 413);
    assert_eq!(post(&mut client, body.as_bytes()), 204);
    let head = client.request("HEAD", "/_docwharf/events", &[]);
    let response = client.response(head);
    assert_eq!((response.status, response.body.len()), (405, 0));
    // The host is that of `:authority`, so a page of the same host led to these views.
    let referrer = ("referer", "http://docs.example/");
    for _ in 0..2 {
        client.get("/guide", &[fields[1], referrer, ("accept-encoding", "identity")]);
        client.get("/guide", &[fields[1], referrer, ("range", "bytes=0-")]);
        client.get("/guide", &[fields[1], referrer, ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")]);
    }
    wait_for_counts(&socket, 0, 6);
    for by in ["referrer", "entry"] {
        assert_eq!(query_json(&socket, &format!("pages?by={by}"))["rows"], json!([]), "{by}");
    }
}

#[test]
fn the_api_needs_a_key_on_the_network_and_none_on_the_socket() {
    let host = recording_host();
    let (daemon, socket) = start(&host);
    let admin = host.reported_address("admin");
    let status = |target: &str, fields: &[&str]| http::request(&admin, "GET", target, fields).status;
    let bearer = format!("Authorization: Bearer {KEY}");
    assert_eq!(status("/v1/analytics/docs/searches", &[]), 401);
    assert_eq!(status("/v1/analytics/docs/searches", &["Authorization: Bearer 0123456789abcdef-wrong"]), 401);
    assert_eq!(status("/v1/analytics/docs/searches", &[&bearer]), 200);
    assert_eq!(status("/v1/analytics/other/searches", &[&bearer]), 404);
    assert_eq!(status("/v1/analytics/docs/other", &[&bearer]), 404);
    let invalid = query(&socket, "searches?limit=0");
    let body = invalid.json();
    assert_eq!(invalid.status, 400);
    assert!(body["error"].is_string() && body["details"][0]["message"].is_string(), "{body}");
    let mut last = 200;
    for _ in 0..100 {
        last = status("/v1/analytics/docs/views", &[&bearer]);
    }
    assert_eq!(last, 429);
    assert_eq!(query(&socket, "views").status, 200);
    drop(daemon);
    let host = host.without("analytics.keyFile");
    let (_daemon, _) = start(&host);
    let response = http::get(&host.reported_address("admin"), "/v1/analytics/docs/searches");
    assert_eq!(response.status, 403);
    assert!(response.text().contains("analytics.keyFile"), "{}", response.text());
}

#[test]
fn no_file_of_the_store_has_anything_that_identifies_a_reader() {
    let host = recording_host();
    let (daemon, socket) = start(&host);
    let text = "Content-Type: text/plain";
    let batch = events(&json!([
        { "type": "search", "id": "5ec0000000000001", "query": "mail jane.doe@example.com about it", "results": 1 },
        { "type": "search", "id": "5ec0000000000002", "query": "token sk_live_4eC39HqLyjWDarjtT1zdp7dc", "results": 1 },
        { "type": "click", "id": "5ec0000000000002", "page": "/?5ecretPageQuery" }
    ]));
    assert_eq!(post_events(&daemon, &batch, &[text, BROWSER]).status, 204);
    let referrer = "Referer: https://ref.example/5ecretPath?5ecretQuery";
    http::request(&daemon.address, "GET", "/guide?5ecretTarget", &[BROWSER, referrer, "Cookie: id=5ecretCookie"]);
    wait_for_counts(&socket, 2, 1);
    drop(daemon);
    let mut files = 0;
    for entry in std::fs::read_dir(host.path("store")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("analytics.db") {
            files += 1;
            let bytes = std::fs::read(entry.path()).unwrap();
            for secret in ["5ec0000000000001", "jane.doe", "4eC39Hq", "5ecret", "127.0.0.1", "Firefox"] {
                let found = bytes.windows(secret.len()).any(|part| part.eq_ignore_ascii_case(secret.as_bytes()));
                assert!(!found, "{secret} in {}", entry.path().display());
            }
        }
    }
    assert!(files > 0);
}

#[test]
fn nothing_is_recorded_and_no_file_is_made_when_the_recording_is_off() {
    let host = recording_host().set("analytics.enabled", "false");
    let (daemon, socket) = start(&host);
    let one = events(&json!([{ "type": "view", "page": "/" }]));
    assert_eq!(post_events(&daemon, &one, &["Content-Type: text/plain"]).status, 404);
    assert_eq!(query(&socket, "views").status, 404);
    assert!(!Path::new(&host.path("store/analytics.db")).exists());
    drop(daemon);
    let site = support::serve_site(&[("index.html", "a")], &[]);
    assert_eq!(post_events(&site.1, &one, &["Content-Type: text/plain"]).status, 404);
}

#[test]
fn a_damaged_file_is_moved_aside_and_the_site_is_served() {
    let host = recording_host();
    host.put("bundle.zip", bundle("Moat"));
    host.ok(&["import", &host.path("bundle.zip").display().to_string()]);
    std::fs::write(
        host.path("store/analytics.db"),
        "this is no database, and it is longer than the header of one would be".repeat(100),
    )
    .unwrap();
    let (daemon, socket) = start(&host);
    http::request(&daemon.address, "GET", "/guide", &[BROWSER]);
    wait_for_counts(&socket, 0, 1);
    let aside = std::fs::read_dir(host.path("store")).unwrap().flatten();
    let names: Vec<_> = aside.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with("analytics.db.damaged-")), "{names:?}");
}

#[test]
fn a_body_of_events_that_does_not_end_is_refused_at_its_deadline() {
    let host = recording_host();
    let (daemon, _) = start(&host);
    let head = "POST /_docwharf/events HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n{";
    let response = http::send_bytes(&daemon.address, head.as_bytes());
    assert!(response.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&response));
}
