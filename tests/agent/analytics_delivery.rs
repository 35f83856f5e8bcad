//! Hosts deliver what they record to an origin, over the network and by a file: each search, click and view counts
//! once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use docwharf::model::reader_activity::{ReaderActivity, SearchActivity, SearchId, SearchSource};
use docwharf::reader_analytics::recording::{ActivityWriter, AnalyticsStore, WriterSettings};
use docwharf::store::ANALYTICS_DATABASE;
use serde_json::{Value, json};
use support::host::{Host, bundle, toml_string};
use support::test_origin::{FOLDER_PROJECT, TestOrigin, json_body};
use support::{Daemon, ReservedPort, http, run_to_end, until};

const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0";

/// An origin at an address that stays the same after a restart. Its project is `docs`.
pub(crate) fn start_origin(port: &ReservedPort) -> TestOrigin {
    let server = format!("[server]\nlisten = [\"{}\"]\n", port.address);
    let mut origin = TestOrigin::with_server_section(&server, FOLDER_PROJECT);
    support::write_site(&origin.path("site"), &[("index.html", "<p>home")]);
    origin.start();
    origin
}

/// A host that delivers to this address every second.
pub(crate) fn delivering_host(port: &ReservedPort, key: &str) -> Host {
    let host = Host::bare()
        .set("analytics.deliver.baseUrl", toml_string(&format!("http://{}/v1", port.address)))
        .set("analytics.deliver.projectId", toml_string("docs"))
        .set("analytics.deliver.keyFile", toml_string("origin-key"))
        .set("analytics.deliver.interval", toml_string("1s"));
    host.put("origin-key", key);
    host.put("bundle.zip", bundle("Moat"));
    host.ok(&["import", &host.path("bundle.zip").display().to_string()]);
    host
}

/// Sends a body of events.
fn post_events(daemon: &Daemon, events: &Value) {
    let body = json!({ "events": events }).to_string();
    let response = http::post(&daemon.address, "/_docwharf/events", &["Content-Type: application/json"], body);
    assert_eq!(response.status, 204, "{}", response.text());
}

/// Makes `count` searches for `term`, of which the first has a click, and a view of a page.
pub(crate) fn act(daemon: &Daemon, term: &str, count: u64) {
    for n in 0..count {
        // Another id for each search.
        let id =
            format!("{:08x}{n:08x}", term.bytes().fold(7_u32, |hash, byte| hash * 31 % 1_000_003 + u32::from(byte)));
        let mut events = vec![json!({ "type": "search", "id": id, "query": term, "results": 1 })];
        if n == 0 {
            events.push(json!({ "type": "click", "id": id, "page": "/guide" }));
        }
        post_events(daemon, &json!(events));
    }
    assert_eq!(http::request(&daemon.address, "GET", "/guide", &[BROWSER]).status, 200);
}

/// Waits until the store of the host has this many searches and views of people.
fn wait_until_written(host: &Host, searches: u64, views: u64) {
    let socket = host.path("store/control.sock");
    let number = |route: &str, pointer: &str| {
        let stream = UnixStream::connect(&socket).expect("the daemon listens");
        let request = format!("GET /v1/analytics/site/{route} HTTP/1.1\r\nHost: x\r\n\r\n");
        let response = http::exchange(stream, request.as_bytes(), false);
        json_body(&response).pointer(pointer).and_then(Value::as_u64)
    };
    until("everything is written", || {
        number("searches", "/totalSearches") == Some(searches)
            && number("views", "/totals/human").unwrap_or_default() == views
    });
}

/// Terms with their hits and rates of clicks, and pages with their views by people.
pub(crate) type Totals = (Vec<(String, u64, f64)>, Vec<(String, u64)>);

/// Returns what the origin has: term, hits and rate of clicks; and the views of people by path.
pub(crate) fn totals(origin: &TestOrigin) -> Totals {
    let rows = |route: &str, list: &str| {
        let response = origin.get(&format!("/v1/analytics/docs/{route}"));
        json_body(&response)[list].as_array().cloned().unwrap_or_default()
    };
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let searches = rows("searches", "searches");
    let searches = searches
        .iter()
        .map(|row| (text(row, "searchQuery"), row["hits"].as_u64().unwrap(), row["ctr"].as_f64().unwrap()));
    let views = rows("views", "views");
    let views = views.iter().map(|row| (text(row, "path"), row["human"].as_u64().unwrap()));
    (searches.collect(), views.collect())
}

/// Waits until a delivery that has begun after this call was complete.
pub(crate) fn wait_until_delivered(host: &Host) {
    let mut seen = Vec::new();
    until("everything is delivered", || {
        let delivery = host.status()["daemon"]["delivery"].clone();
        let last_success = delivery["lastSuccess"].as_str().unwrap_or_default().to_owned();
        if delivery["error"].is_null() && !seen.contains(&last_success) {
            seen.push(last_success);
        }
        // The first one is from before the call, the second one may have begun before it.
        seen.len() >= 3
    });
    let delivery = host.status()["daemon"]["delivery"].clone();
    assert_eq!((&delivery["waitingSearches"], &delivery["waitingCounts"]), (&json!(0), &json!(0)), "{delivery}");
}

/// Answers one request with 400.
fn refuse(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let body = "{\"error\":\"not today\"}";
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length:";
    write!(reader.get_mut(), "{head} {}\r\n\r\n{body}", body.len())
}

#[test]
fn two_hosts_deliver_each_event_once_though_the_origin_stops_and_they_are_killed() {
    let port = ReservedPort::new();
    let mut origin = start_origin(&port);
    let (first, second) = (delivering_host(&port, &origin.key), delivering_host(&port, &origin.key));
    let (first_daemon, second_daemon) = (first.run(), second.run());
    act(&first_daemon, "moat", 3);
    act(&second_daemon, "moat", 2);
    wait_until_written(&first, 3, 1);
    wait_until_written(&second, 2, 1);
    wait_until_delivered(&first);
    wait_until_delivered(&second);
    assert_eq!(totals(&origin), (vec![("moat".to_owned(), 5, 0.4)], vec![("/guide".to_owned(), 2)]));
    origin.kill();
    // The origin is away: everything waits, also across a kill of the hosts.
    act(&first_daemon, "tide", 4);
    act(&second_daemon, "bridge", 1);
    wait_until_written(&first, 3 + 4, 2);
    wait_until_written(&second, 2 + 1, 2);
    for mut daemon in [first_daemon, second_daemon] {
        daemon.signal("KILL");
        daemon.wait(std::time::Duration::from_secs(20));
    }
    let (first_daemon, _second_daemon) = (first.run(), second.run());
    act(&first_daemon, "tidal", 1);
    wait_until_written(&first, 8, 3);
    origin.start();
    let all = vec![
        ("moat".to_owned(), 5, 0.4),
        ("tide".to_owned(), 4, 0.25),
        ("bridge".to_owned(), 1, 1.0),
        ("tidal".to_owned(), 1, 1.0),
    ];
    let expected = (all, vec![("/guide".to_owned(), 5)]);
    wait_until_delivered(&first);
    wait_until_delivered(&second);
    assert_eq!(totals(&origin), expected);
    // The same by a file, imported twice, counts nothing again.
    let file = first.path("export.jsonl").display().to_string();
    let exported = first.ok(&["analytics", "export", &file]).stdout;
    assert!(exported.starts_with("exported 8 searches and "), "{exported}");
    for _ in 0..2 {
        origin.ok(&["import-analytics", "docs", &file]);
        assert_eq!(totals(&origin), expected);
    }
}

#[test]
fn a_refused_key_pauses_the_delivery_until_the_configuration_is_read_again() {
    let port = ReservedPort::new();
    let origin = start_origin(&port);
    let host = delivering_host(&port, "dwk_not-a-key-of-this-origin");
    let daemon = host.run_logged();
    act(&daemon, "moat", 1);
    until("the delivery is paused", || {
        let error = host.status()["daemon"]["delivery"]["error"].as_str().unwrap_or_default().to_owned();
        error.contains("401") && error.contains("analytics.deliver.keyFile")
    });
    assert_eq!(totals(&origin), (Vec::new(), Vec::new()));
    host.put("origin-key", &origin.key);
    daemon.signal("HUP");
    wait_until_delivered(&host);
    assert_eq!(totals(&origin).0, [("moat".to_owned(), 1, 1.0)]);
}

#[test]
fn a_batch_that_the_origin_refuses_is_reported_and_not_sent_again() {
    let port = ReservedPort::new();
    // This server answers each request with 400.
    let listener = port.listen();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = refuse(stream);
        }
    });
    let host = delivering_host(&port, "dwk_any-key-of-any-origin");
    let daemon = host.run_logged();
    act(&daemon, "moat", 1);
    until("the batch is refused", || host.status()["daemon"]["delivery"]["refusedBatches"] == 1);
    assert!(host.log().contains("refuses 1 search: 400"), "{}", host.log());
    // The counts of the first view were the second batch. If each one is refused, none of them is the cause.
    act(&daemon, "tide", 1);
    until("the delivery is paused", || {
        let error = host.status()["daemon"]["delivery"]["error"].as_str().unwrap_or_default().to_owned();
        error.contains("3 batches in a row") && error.contains("check analytics.deliver.baseUrl")
    });
    let status = host.ok(&["status"]).stdout;
    assert!(status.contains("refused"), "{status}");
}

#[test]
fn an_export_is_a_file_of_json_lines_that_another_host_imports() {
    let port = ReservedPort::new();
    let host = delivering_host(&port, "dwk_any-key-of-any-origin")
        .without("analytics.deliver.baseUrl")
        .without("analytics.deliver.keyFile");
    host.write();
    let daemon = host.run();
    act(&daemon, "moat", 2);
    wait_until_written(&host, 2, 1);
    let output = run_to_end(&mut host.command(&["analytics", "export", "-"])).expect(0);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert!(lines[0].starts_with("{\"format\":\"docwharf-analytics\",\"version\":1,"), "{}", lines[0]);
    assert!(output.stderr.starts_with("exported 2 searches and "), "{}", output.stderr);
    let other = Host::bare();
    other.put("file", &output.stdout);
    let file = other.path("file").display().to_string();
    for _ in 0..2 {
        other.ok(&["analytics", "import", &file]);
        let searches = other.ok(&["analytics", "searches", "--local", "--format", "json"]).json();
        assert_eq!(searches["totalSearches"], 2);
    }
    let since = host.ok(&["analytics", "export", &file, "--since-last", "--json"]).json();
    assert_eq!((&since["searches"], &since["counts"]), (&json!(0), &json!(0)));
}

#[test]
fn a_key_that_may_not_write_pauses_the_delivery_and_an_unknown_project_is_tried_again() {
    let port = ReservedPort::new();
    let origin = start_origin(&port);
    let reader = origin.create_key("acme", "reader", &["--scope", "read"]);
    let error_of = |host: &Host| host.status()["daemon"]["delivery"]["error"].as_str().unwrap_or_default().to_owned();
    let host = delivering_host(&port, &reader);
    let daemon = host.run();
    act(&daemon, "moat", 1);
    until("the key is refused", || error_of(&host).contains("403") && error_of(&host).contains("scope write"));
    let other = delivering_host(&port, &origin.key).set("analytics.deliver.projectId", toml_string("none"));
    other.write();
    let daemon = other.run();
    act(&daemon, "moat", 1);
    until("the project is unknown", || error_of(&other).contains("404") && error_of(&other).contains("projectId"));
}

#[test]
fn searches_beyond_the_queue_are_not_delivered_and_status_and_metrics_say_so() {
    let port = ReservedPort::new();
    let host = delivering_host(&port, "dwk_any-key-of-any-origin")
        .set("analytics.deliver.queue", toml_string("1MiB"))
        .set("admin.listen", toml_string("127.0.0.1:0"));
    host.write();
    let store = Arc::new(AnalyticsStore::open(&host.path("store").join(ANALYTICS_DATABASE)).unwrap());
    let settings = WriterSettings { mask: true, keep: None, max_bytes: u64::MAX };
    let mut writer = ActivityWriter::new(Arc::clone(&store), settings);
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let search = |n: u64| SearchActivity::Search {
        id: Some(SearchId(n)),
        query: format!("{n} {}", "long ".repeat(100)),
        results: None,
        source: SearchSource::Reader,
        time: now,
    };
    for first in [0, 1_000, 2_000] {
        let searches = (first..first + 1_000).map(search).collect();
        writer.write(ReaderActivity { searches, ..ReaderActivity::default() }, now).unwrap();
    }
    drop(writer);
    store.close();
    let daemon = host.run_logged();
    let delivery = || host.status()["daemon"]["delivery"].clone();
    // The configuration is read while the queue is being limited; the log must have the line nevertheless.
    for _ in 0..20 {
        daemon.signal("HUP");
    }
    until("some are left out", || delivery()["undeliveredSearches"].as_u64().unwrap_or_default() > 0);
    let [waiting, undelivered] =
        ["waitingSearches", "undeliveredSearches"].map(|name| delivery()[name].as_u64().unwrap());
    assert_eq!(waiting + undelivered, 3_000);
    let admin = host.reported_address("admin");
    let metrics = http::get(&admin, "/metrics").text();
    for line in [
        format!("docwharf_analytics_undelivered {undelivered}"),
        format!("docwharf_analytics_waiting{{kind=\"search\"}} {waiting}"),
        "docwharf_analytics_delivered_total{kind=\"search\"} 0".to_owned(),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    until("the log says so", || host.log().contains("more than analytics.deliver.queue waited"));
    drop(daemon);
}
