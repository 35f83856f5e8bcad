//! Two organizations of one origin: the limits on bodies, rows, bundles, links and queries of one of them, while the
//! requests of the other one still succeed.

use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::management_api::{TWO_ORGANIZATIONS, search_events};
use support::http::{PersistentConnection, Response, get};
use support::test_origin::{FOLDER_PROJECT, JOBS_PATH, TestOrigin, error_message, json_body};
use support::{metrics, peak_memory_kib, run_to_end, until, until_done_in_background, write_site};

pub(super) const SERVER_SECTION: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n";
pub(super) const SEARCHES_PATH: &str = "/v1/analytics/docs/searches";
pub(super) const UMBRELLA_SEARCHES_PATH: &str = "/v1/analytics/secrets/searches";

/// Starts an origin with acme and umbrella, each with a folder and a key. `tables` precedes them in the configuration.
/// Returns the origin and the key of umbrella.
pub(super) fn start_origin(tables: &str) -> (TestOrigin, String) {
    let mut origin = TestOrigin::with_server_section(SERVER_SECTION, &format!("{tables}{TWO_ORGANIZATIONS}"));
    write_site(&origin.path("site"), &[("index.html", "<p>acme")]);
    write_site(&origin.path("other"), &[("index.html", "<p>umbrella")]);
    let key = origin.create_key("umbrella", "all", &[]);
    origin.start();
    (origin, key)
}

/// Returns a text that compression makes only a quarter smaller.
pub(super) fn random_text(len: usize) -> String {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[(state >> 58) as usize])
    };
    (0..len).map(|_| next()).collect()
}

/// Returns a metric of a resource.
pub(super) fn metric(origin: &TestOrigin, name: &str, resource: &str) -> u64 {
    let sample = format!("docwharf_origin_resource_{name}{{resource=\"{resource}\"}}");
    metrics::value(&origin.admin_address(), &sample)
}

/// Asserts that a response is a refusal with `Retry-After` that names the key of the limit.
#[track_caller]
pub(super) fn assert_refused(response: &Response, key: &str) {
    assert_eq!(response.status, 429, "{}", response.text());
    assert!(error_message(response).contains(key), "{}", response.text());
    assert!(retry_after_seconds(response) >= 1);
}

/// Returns the time after which the request of a refusal may be sent again.
#[track_caller]
fn retry_after_seconds(response: &Response) -> u64 {
    response.header("retry-after").unwrap().parse().unwrap()
}

pub(super) fn batch(id: &str, events: &[Value]) -> Value {
    json!({ "batchId": id, "events": events })
}

/// Sends the head of a request with a body that is not sent; with `expect` it has an `Expect` field.
pub(super) fn send_head_only(
    origin: &TestOrigin,
    key: &str,
    target: &str,
    len: usize,
    expect: bool,
) -> PersistentConnection {
    let mut connection = PersistentConnection::open(origin.address());
    let expect = if expect { "Expect: 100-continue\r\n" } else { "" };
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{expect}Content-Length: {len}\r\n\r\n"
    );
    connection.send(head);
    connection
}

#[test]
fn request_body_that_is_not_sent_returns_408_and_releases_its_memory() {
    let (origin, _) = start_origin("");
    let mut held = send_head_only(&origin, &origin.key, SEARCHES_PATH, 8 << 20, false);
    until("the memory of the body is counted", || metric(&origin, "in_use", "bodyBytes") > 0);
    held.stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let response = held.response(false);
    assert_eq!((response.status, response.header("connection")), (408, Some("close")), "{}", response.text());
    until("all shares are released", || metric(&origin, "in_use", "bodyBytes") == 0);
}

// Regression: an origin buffered request bodies of 8 MiB without a bound on all of them.
#[test]
fn incomplete_bodies_of_one_organization_are_limited_and_do_not_block_another() {
    let (origin, umbrella) = start_origin("");
    let largest = 8 << 20;
    let held: Vec<_> = (0..3).map(|_| send_head_only(&origin, &origin.key, SEARCHES_PATH, largest, false)).collect();
    until("three bodies are counted", || metric(&origin, "in_use", "bodyBytes") == 3 * (8 << 20));
    for _ in 0..20 {
        let response = send_head_only(&origin, &origin.key, SEARCHES_PATH, largest, true).response(false);
        assert_refused(&response, "limits.organization.bodyBytes");
        assert!(json_body(&response)["details"][0]["message"].is_string(), "{}", response.text());
    }
    assert_eq!(metric(&origin, "refused_total", "bodyBytes"), 20);
    // A client that sends the whole body before it reads gets the response as well.
    let mut connection = send_head_only(&origin, &origin.key, SEARCHES_PATH, 300_000, false);
    connection.send("x".repeat(300_000));
    assert_refused(&connection.response(false), "limits.organization.bodyBytes");
    let response =
        origin.send_request(&umbrella, "POST", UMBRELLA_SEARCHES_PATH, Some(&batch("b", &search_events("moat", 3, 1))));
    assert_eq!(response.status, 200, "{}", response.text());
    drop(held);
    until("all shares are released", || metric(&origin, "in_use", "bodyBytes") == 0);
    assert_eq!(origin.post(SEARCHES_PATH, &batch("b", &search_events("moat", 3, 1))).status, 200);
}

#[test]
fn chunked_body_uses_body_bytes_only_for_the_received_data() {
    let (origin, _) = start_origin("[limits.organization]\nbodyBytes = \"256KiB\"\n");
    let head = format!(
        "POST {SEARCHES_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        origin.key
    );
    let mut connection = PersistentConnection::open(origin.address());
    connection.send(&head);
    let body = batch("b", &search_events("moat", 3, 1)).to_string();
    connection.send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    assert_eq!(connection.response(false).status, 200);
    let mut connection = PersistentConnection::open(origin.address());
    connection.send(&head);
    let chunk = format!("{:x}\r\n{}\r\n", 100_000, " ".repeat(100_000));
    for _ in 0..4 {
        if connection.stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    connection.send("0\r\n\r\n");
    assert_refused(&connection.response(false), "limits.organization.bodyBytes");
}

// Regression: an origin read request bodies of 8 MiB before it checked any budget.
#[test]
fn rate_limit_is_checked_before_the_request_body_is_read() {
    let (origin, _) = start_origin("");
    for _ in 0..5 {
        assert_eq!(origin.post("/v1/project/preview/docs", &json!({ "branch": "main" })).status, 403);
    }
    let response = send_head_only(&origin, &origin.key, "/v1/project/preview/docs", 60_000, true).response(false);
    assert_refused(&response, "5 previews a minute");
    // The body of a request for a project of another organization is not read either.
    let response = send_head_only(&origin, &origin.key, UMBRELLA_SEARCHES_PATH, 60_000, true).response(false);
    assert_eq!(response.status, 404, "{}", response.text());
    // A batch that declares more than the largest length is refused at once.
    let response = send_head_only(&origin, &origin.key, SEARCHES_PATH, (8 << 20) + 1, false).response(false);
    assert_eq!((response.status, response.header("connection")), (413, Some("close")), "{}", response.text());
    assert_eq!(error_message(&response), "the body is longer than 8388608 bytes");
    until("no share is held for it", || metric(&origin, "in_use", "bodyBytes") == 0);
}

/// Sends `count` requests without a body for these projects in turn, and asserts that no rate limit refuses one.
fn send_many(origin: &TestOrigin, (method, prefix, suffix): (&str, &str, &str), count: usize, projects: [&str; 2]) {
    let request = |n: usize| {
        let target = format!("{prefix}{}{suffix}", projects[n % projects.len()]);
        let key = &origin.key;
        format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer {key}\r\n\r\n")
    };
    let mut connection = PersistentConnection::open(origin.address());
    let numbers: Vec<usize> = (0..count).collect();
    for chunk in numbers.chunks(100) {
        connection.send(chunk.iter().map(|&n| request(n)).collect::<String>());
        for &n in chunk {
            let response = connection.response(false);
            assert_ne!(response.status, 429, "{method} {prefix}: the {n}th: {}", response.text());
        }
    }
}

#[test]
fn rate_limits_are_shared_by_all_projects_of_an_organization() {
    let another = "[[organization.project]]\nid = \"api\"\ndomain = \"api.acme.example\"\ndirectory = \"other\"\n";
    let mut origin = TestOrigin::new(&format!("{FOLDER_PROJECT}{another}"));
    write_site(&origin.path("site"), &[("index.html", "<p>docs")]);
    write_site(&origin.path("other"), &[("index.html", "<p>api")]);
    origin.start();
    for (method, prefix, suffix, limit, message, wait_seconds) in [
        ("GET", "/v1/analytics/", "/searches", 100, "100 analytics queries an hour", 1800..=3600_u64),
        ("POST", "/v1/project/preview/", "", 5, "5 previews a minute", 1..=60),
        ("POST", "/v1/analytics/", "/searches", 10_000, "10,000 batches an hour", 1800..=3600),
    ] {
        let send =
            |project: &str| origin.send_request(&origin.key, method, &format!("{prefix}{project}{suffix}"), None);
        // A request for a project that does not exist counts as well.
        assert_eq!(send("absent").status, 404, "{method} {prefix}");
        let remaining = limit - 1;
        std::thread::scope(|scope| {
            for count in [remaining / 2, remaining - remaining / 2] {
                let origin = &origin;
                scope.spawn(move || send_many(origin, (method, prefix, suffix), count, ["docs", "api"]));
            }
        });
        for project in ["docs", "api", "absent"] {
            let response = send(project);
            assert_refused(&response, message);
            assert!(wait_seconds.contains(&retry_after_seconds(&response)), "{}", retry_after_seconds(&response));
        }
    }
}

/// Whether the first byte of a response has arrived; does not wait.
fn has_response(connection: &PersistentConnection) -> bool {
    connection.stream.set_nonblocking(true).unwrap();
    let has_response = connection.stream.peek(&mut [0]).is_ok();
    connection.stream.set_nonblocking(false).unwrap();
    has_response
}

#[test]
fn batches_waiting_for_the_disk_are_limited_for_each_organization() {
    const SENT: usize = 40;
    const WAITING: usize = 32;
    let (origin, umbrella) = start_origin("");
    // While another process has a write transaction, the origin cannot write to the database.
    let database = rusqlite::Connection::open(origin.path("state/origin.db")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let send = |key: &str, target: &str, n: usize| {
        let body = batch(&format!("b{n}"), &search_events("moat", 1, 1)).to_string();
        let mut connection = PersistentConnection::open(origin.address());
        connection.send(format!(
            "POST {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        connection
    };
    let mut acme_connections: Vec<PersistentConnection> =
        (0..SENT).map(|n| send(&origin.key, SEARCHES_PATH, n)).collect();
    let mut umbrella_connection = send(&umbrella, UMBRELLA_SEARCHES_PATH, 0);
    until("the batches above the limit are refused", || {
        acme_connections.iter().filter(|connection| has_response(connection)).count() == SENT - WAITING
    });
    assert!(!has_response(&umbrella_connection), "the batch of umbrella waits like the accepted batches");
    // A body counts until its batch is on disk, with 64 KiB at least.
    let held_bytes = (WAITING as u64 + 1) * (64 << 10);
    until("the bodies of all waiting batches are counted", || metric(&origin, "in_use", "bodyBytes") == held_bytes);
    database.execute_batch("ROLLBACK").unwrap();
    let (accepted, refused): (Vec<Response>, Vec<Response>) = acme_connections
        .iter_mut()
        .map(|connection| connection.response(false))
        .partition(|response| response.status == 200);
    assert_eq!((accepted.len(), refused.len()), (WAITING, SENT - WAITING));
    for response in refused {
        assert_eq!(response.status, 503, "{}", response.text());
        assert!(error_message(&response).contains("wait for the disk") && response.header("retry-after").is_some());
    }
    assert_eq!(umbrella_connection.response(false).status, 200);
    assert_eq!(
        json_body(&origin.get(SEARCHES_PATH))["totalSearches"],
        WAITING,
        "only the accepted batches are counted"
    );
}

// Regression: searches filled the disk of an origin.
#[test]
fn rows_database_bytes_and_events_are_limited_for_each_organization() {
    for (limit, key) in [
        ("rows = 50", "limits.organization.rows"),
        ("databaseBytes = \"3KiB\"", "limits.organization.databaseBytes"),
        ("events = 50", "limits.organization.events"),
    ] {
        let (origin, umbrella) = start_origin(&format!("[limits.organization]\n{limit}\n"));
        let first = batch("b1", &search_events("moat", 30, 1));
        assert_eq!(origin.post(SEARCHES_PATH, &first).status, 200, "{limit}");
        let response = origin.post(SEARCHES_PATH, &batch("b2", &search_events("tide", 30, 2)));
        assert_refused(&response, key);
        assert!(json_body(&response)["details"][0]["message"].is_string(), "{}", response.text());
        let again = origin.post(SEARCHES_PATH, &first);
        assert_eq!(
            (again.status, &json_body(&again)["duplicate"]),
            (200, &json!(true)),
            "a duplicate batch is acknowledged"
        );
        let name = key.rsplit('.').next().unwrap();
        assert_eq!(metric(&origin, "refused_total", name), 1);
        let response = origin.send_request(
            &umbrella,
            "POST",
            UMBRELLA_SEARCHES_PATH,
            Some(&batch("b1", &search_events("moat", 30, 1))),
        );
        assert_eq!(response.status, 200, "{limit}: {}", response.text());
        assert_eq!(json_body(&origin.get(SEARCHES_PATH))["totalSearches"], 30);
        assert_eq!(metric(&origin, "in_use", "rows"), 62, "30 searches and a batch of each organization");
        assert_eq!(metric(&origin, "limit", "rows"), 40_000_000, "the limit of all organizations together");
        let metrics = get(&origin.admin_address(), "/metrics").text();
        assert!(metrics.contains("docwharf_origin_searches_total 60\n"), "a duplicate batch counts once: {metrics}");
    }
}

#[test]
fn total_row_limit_reserves_rows_for_other_organizations_and_applies_to_imports() {
    let (origin, umbrella) = start_origin("[limits.total]\nrows = 1500\n");
    let many = |n: usize| -> Vec<Value> { (0..n).map(|n| search_events("moat", 60, 1)[n % 60].clone()).collect() };
    assert_eq!(origin.post(SEARCHES_PATH, &batch("b1", &many(400))).status, 200);
    assert_refused(&origin.post(SEARCHES_PATH, &batch("b2", &many(400))), "limits.total.rows");
    let csv: String = many(400).iter().map(|_| "tide,2026-11-01T10:00:00Z\n").collect();
    std::fs::write(origin.path("s.csv"), format!("query,time\n{csv}")).unwrap();
    let file = origin.path("s.csv");
    let failed = run_to_end(&mut origin.command(&["import-searches", "docs", file.to_str().unwrap()])).expect(2);
    assert!(failed.stderr.contains("limits.total.rows"), "{}", failed.stderr);
    let response = origin.send_request(&umbrella, "POST", UMBRELLA_SEARCHES_PATH, Some(&batch("b1", &many(1000))));
    assert_eq!(response.status, 200, "{}", response.text());
}

#[test]
fn total_link_and_event_limits_reserve_a_part_for_other_organizations() {
    let (origin, umbrella) = start_origin("[limits.total]\nlinks = 2\nevents = 1500\n");
    let job = origin.export(&json!({}));
    origin.wait_for_job(&job);
    let request_link = || origin.send_request(&origin.key, "POST", &format!("{JOBS_PATH}/{job}/bundle"), None);
    assert_eq!(request_link().status, 200);
    let refused = request_link();
    assert_refused(&refused, "limits.total.links");
    assert!((1800..=3600).contains(&retry_after_seconds(&refused)), "an hour after the first link");
    export_umbrella(&origin, &umbrella);
    let many = |n: usize| search_events("moat", 60, 1).into_iter().cycle().take(n).collect::<Vec<Value>>();
    assert_eq!(origin.post(SEARCHES_PATH, &batch("b1", &many(400))).status, 200);
    let refused = origin.post(SEARCHES_PATH, &batch("b2", &many(400)));
    assert_refused(&refused, "limits.total.events");
    assert!((1800..=3600).contains(&retry_after_seconds(&refused)), "an hour after the first searches");
    let response = origin.send_request(&umbrella, "POST", UMBRELLA_SEARCHES_PATH, Some(&batch("b1", &many(1000))));
    assert_eq!(response.status, 200, "{}", response.text());
}

#[test]
fn oldest_removable_bundle_is_removed_when_a_new_one_exceeds_the_limit() {
    let (origin, _) =
        start_origin("[exports]\nlinkLifetime = \"1h\"\n[limits.organization]\nbundleBytes = \"300KiB\"\n");
    write_site(&origin.path("site"), &[("a.txt", &random_text(280_000))]);
    let first = origin.export(&json!({}));
    assert_eq!(origin.wait_for_job(&first)["status"], "completed");
    let stored_bytes = metric(&origin, "in_use", "bundleBytes");
    assert!(stored_bytes > 150 << 10, "{stored_bytes}: the test needs a limit below the sizes of two bundles");
    // As if the job had ended long ago.
    let database = rusqlite::Connection::open(origin.path("state/origin.db")).unwrap();
    database.execute("UPDATE jobs SET updated = 1 WHERE id = ?", [&first]).unwrap();
    let second = origin.wait_for_job(&origin.export(&json!({})));
    assert_eq!(second["status"], "completed", "{second}");
    assert_eq!(origin.get(&format!("{JOBS_PATH}/{first}")).status, 404);
    assert_eq!(metric(&origin, "in_use", "bundleBytes"), stored_bytes);
    let first_bundle = origin.path(&format!("state/bundles/{first}.tar.gz"));
    until("the first bundle is removed", || !first_bundle.exists());
}

// Regression: a query of searches held every term of its range in memory.
#[test]
fn concurrent_search_queries_use_bounded_memory_for_any_number_of_terms() {
    let (origin, umbrella) = start_origin("");
    let padding = "x".repeat(430);
    for n in 0..100 {
        let events: Vec<Value> = (0..1000)
            .map(|event| json!({ "query": format!("{n}-{event}-{padding}"), "time": "2026-11-01T10:00:00Z", "clickedPage": format!("/{n}") }))
            .collect();
        assert_eq!(origin.post(SEARCHES_PATH, &batch(&n.to_string(), &events)).status, 200);
    }
    let peak_memory_mib = || peak_memory_kib(origin.daemon.as_ref().unwrap().pid()).unwrap() / 1024;
    let before = peak_memory_mib();
    std::thread::scope(|scope| {
        let query = || {
            let response = origin.get(&format!("{SEARCHES_PATH}?limit=1"));
            assert!(matches!(response.status, 200 | 429), "{}", response.text());
            if response.status == 200 {
                assert_eq!(json_body(&response)["totalSearches"], 100_000);
            }
        };
        for _ in 0..12 {
            scope.spawn(query);
        }
        // Queries of the other organization get a response meanwhile.
        let response = origin.send_request(&umbrella, "GET", UMBRELLA_SEARCHES_PATH, None);
        assert_eq!(response.status, 200, "{}", response.text());
    });
    let grown = peak_memory_mib() - before;
    assert!(grown <= 256, "{grown} MiB more than the {before} MiB before");
}

// Regression: bundles with valid links grew beyond `store.maxBytes` until the disk was full.
#[test]
fn bundle_bytes_of_an_organization_are_limited_even_while_links_are_valid() {
    let (origin, umbrella) =
        start_origin("[exports]\nlinkLifetime = \"1h\"\n[limits.organization]\nbundleBytes = \"300KiB\"\nlinks = 2\n");
    write_site(&origin.path("site"), &[("a.txt", &random_text(280_000))]);
    let first = origin.export(&json!({}));
    let job = origin.wait_for_job(&first);
    assert_eq!(job["status"], "completed", "{job}");
    let link = origin.link(&first);
    let stored_bytes = metric(&origin, "in_use", "bundleBytes");
    assert!(
        (150 << 10..300 << 10).contains(&stored_bytes),
        "{stored_bytes}: the test needs a limit between the sizes of one and of two bundles"
    );
    for _ in 0..3 {
        let ended = origin.wait_for_job(&origin.export(&json!({})));
        assert_eq!(ended["status"], "failed");
        assert!(ended["error"].as_str().unwrap().contains("limits.organization.bundleBytes"), "{ended}");
    }
    let files = |folder: &str| std::fs::read_dir(origin.path(folder)).unwrap().count();
    assert_eq!(
        (files("state/bundles"), files("state/work"), metric(&origin, "in_use", "bundleBytes")),
        (1, 0, stored_bytes)
    );
    assert_eq!(get(origin.address(), &link).status, 200, "the link still works");
    let bundle = format!("{JOBS_PATH}/{first}/bundle");
    assert_eq!(origin.send_request(&origin.key, "POST", &bundle, None).status, 200);
    assert_refused(&origin.send_request(&origin.key, "POST", &bundle, None), "limits.organization.links");
    export_umbrella(&origin, &umbrella);
}

// Regression: each new link retained a bundle for longer, and links had no limit.
#[test]
fn new_link_extends_the_retention_of_a_bundle_and_a_refused_link_does_not() {
    let (origin, _) = start_origin("[exports]\nkeep = 1\nlinkLifetime = \"1h\"\n[limits.organization]\nlinks = 2\n");
    let database = rusqlite::Connection::open(origin.path("state/origin.db")).unwrap();
    let export = || {
        let job = origin.export(&json!({ "paths": ["/"] }));
        assert_eq!(origin.wait_for_job(&job)["status"], "completed");
        job
    };
    let job = export();
    // As if the job had ended, and its last link had expired, long ago.
    let age = || database.execute("UPDATE jobs SET updated = 1, promised = 1 WHERE id = ?", [&job]).unwrap();
    let retained_until =
        || -> i64 { database.query_row("SELECT promised FROM jobs WHERE id = ?", [&job], |row| row.get(0)).unwrap() };
    let request_link = || origin.send_request(&origin.key, "POST", &format!("{JOBS_PATH}/{job}/bundle"), None);
    let bundle_exists = || std::fs::exists(origin.path(&format!("state/bundles/{job}.tar.gz"))).unwrap();
    for _ in 0..2 {
        age();
        let response = request_link();
        assert_eq!(response.status, 200, "{}", response.text());
        let expires: jiff::Timestamp = json_body(&response)["expiresAt"].as_str().unwrap().parse().unwrap();
        assert_eq!(retained_until() / 1000, expires.as_second(), "the bundle is retained until the link expires");
        export();
        assert_eq!((origin.get(&format!("{JOBS_PATH}/{job}")).status, bundle_exists()), (200, true));
    }
    age();
    assert_refused(&request_link(), "limits.organization.links");
    assert_eq!(retained_until(), 1, "a link that is refused retains nothing");
    export();
    until("the bundle is removed", || !bundle_exists());
    assert_eq!(origin.get(&format!("{JOBS_PATH}/{job}")).status, 404);
}

/// Exports the folder of umbrella, and creates a link to the bundle.
#[track_caller]
pub(super) fn export_umbrella(origin: &TestOrigin, umbrella: &str) {
    let started = origin.send_request(umbrella, "POST", JOBS_PATH, Some(&json!({ "domain": "docs.umbrella.example" })));
    assert_eq!(started.status, 202, "{}", started.text());
    let job = json_body(&started)["jobId"].as_str().unwrap().to_owned();
    let mut last = Value::Null;
    until_done_in_background("the job of umbrella ends", || {
        last = json_body(&origin.send_request(umbrella, "GET", &format!("{JOBS_PATH}/{job}"), None));
        last["status"] == "completed" || last["status"] == "failed"
    });
    assert_eq!(last["status"], "completed", "{last}");
    let link = origin.send_request(umbrella, "POST", &format!("{JOBS_PATH}/{job}/bundle"), None);
    assert_eq!(link.status, 200, "{}", link.text());
}

// Regression: bundles with valid links grew beyond `store.maxBytes` until the disk was full.
#[test]
fn min_free_space_refuses_exports_and_searches_but_jobs_and_keys_are_stored() {
    let mut origin = TestOrigin::with_server_section(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n",
        &format!("minFree = \"1000TiB\"\n{TWO_ORGANIZATIONS}"),
    );
    write_site(&origin.path("site"), &[("index.html", "<p>home")]);
    origin.start();
    let ended = origin.wait_for_job(&origin.export(&json!({})));
    assert!(ended["error"].as_str().unwrap().contains("store.minFree"), "{ended}");
    let response = origin.post(SEARCHES_PATH, &batch("b", &search_events("moat", 3, 1)));
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(error_message(&response).contains("store.minFree") && response.header("retry-after").is_some());
    origin.create_key("acme", "another", &[]);
}

/// Starts a server that accepts connections and sends nothing. Returns its URL.
pub(super) fn start_silent_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            held.push(stream);
        }
    });
    format!("http://{address}/")
}

/// Starts an origin with one worker, which crawls a site of acme that does not respond.
fn start_with_busy_worker(tables: &str) -> TestOrigin {
    let slow = format!(
        "[[organization.project]]\nid = \"slow\"\ndomain = \"slow.acme.example\"\ncrawl = \"{}\"\n",
        start_silent_server()
    );
    let file = TWO_ORGANIZATIONS.replacen("directory = \"site\"\n", &format!("directory = \"site\"\n{slow}"), 1);
    let mut origin =
        TestOrigin::with_server_section(SERVER_SECTION, &format!("[exports]\nworkers = 1\n{tables}{file}"));
    write_site(&origin.path("site"), &[("index.html", "<p>acme")]);
    write_site(&origin.path("other"), &[("index.html", "<p>umbrella internal")]);
    origin.start();
    let crawled = origin.export(&json!({ "domain": "slow.acme.example" }));
    until("the worker runs the crawl", || {
        json_body(&origin.get(&format!("{JOBS_PATH}/{crawled}")))["status"] == "running"
    });
    origin
}

#[test]
fn queued_jobs_are_limited_for_each_organization() {
    let origin = start_with_busy_worker("[limits.organization]\nwaitingJobs = 2\n");
    let umbrella = origin.create_key("umbrella", "all", &[]);
    let docs = json!({ "domain": "docs.acme.example" });
    let waiting = [origin.export(&docs), origin.export(&docs)];
    assert_refused(&origin.post(JOBS_PATH, &docs), "limits.organization.waitingJobs");
    let response =
        origin.send_request(&umbrella, "POST", JOBS_PATH, Some(&json!({ "domain": "docs.umbrella.example" })));
    assert_eq!(response.status, 202, "{}", response.text());
    assert_eq!(metric(&origin, "in_use", "waitingJobs"), waiting.len() as u64 + 1);
    assert_eq!(metric(&origin, "refused_total", "waitingJobs"), 1);
}

// Regression: after a restart, a waiting job exported the site of the organization that had its domain by then, also
// where exports were forbidden by then.
#[test]
fn queued_job_fails_when_its_domain_moves_or_its_exports_are_disabled() {
    let mut origin = start_with_busy_worker("");
    let job = origin.export(&json!({}));
    origin.kill();
    // The domain now belongs to another organization.
    let moved = TWO_ORGANIZATIONS
        .replace("docs.acme.example", "old.acme.example")
        .replace("docs.umbrella.example", "docs.acme.example");
    origin.write(SERVER_SECTION, &moved);
    origin.start();
    let ended = origin.wait_for_job(&job);
    assert_eq!(ended["status"], "failed");
    assert!(ended["error"].as_str().unwrap().contains("no longer has the domain"), "{ended}");
    let link = origin.send_request(&origin.key, "POST", &format!("{JOBS_PATH}/{job}/bundle"), None);
    assert_eq!(link.status, 409, "{}", link.text());

    let mut origin = start_with_busy_worker("");
    let job = origin.export(&json!({}));
    origin.kill();
    origin.write(SERVER_SECTION, &TWO_ORGANIZATIONS.replacen("directory", "exports = false\ndirectory", 1));
    origin.start();
    let ended = origin.wait_for_job(&job);
    assert!(ended["error"].as_str().unwrap().contains("exports = false"), "{ended}");
}

// Regression: a long walk through the pages of searches failed when old searches were removed.
#[test]
fn search_cursor_stays_valid_while_old_searches_are_removed() {
    let (mut origin, _) = start_origin("[analytics]\nkeep = \"10d\"\n");
    // Searches are stored for ten days: two of them expire in a few seconds.
    let now = jiff::Timestamp::now();
    let ago = |seconds: i64| now.checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap().to_string();
    let day = 86_400;
    let old = (0..2).map(|n| json!({ "query": format!("old {n}"), "time": ago(10 * day - 5) }));
    let new = (0..5).map(|n| json!({ "query": format!("new {n}"), "time": ago(day + n) }));
    let events: Vec<Value> = old.chain(new).collect();
    assert_eq!(origin.post(SEARCHES_PATH, &batch("b", &events)).status, 200);
    let page = json_body(&origin.get(&format!("{SEARCHES_PATH}?limit=2")));
    assert_eq!(page["totalSearches"], 5, "searches that expire within a day do not count: {page}");
    // Expired searches are removed at each start.
    until("the expired searches are removed", || {
        origin.kill();
        origin.start();
        metric(&origin, "in_use", "rows") == 5 + 1
    });
    let cursor = page["nextCursor"].as_str().unwrap();
    let next = origin.get(&format!("{SEARCHES_PATH}?limit=100&cursor={cursor}"));
    assert_eq!(next.status, 200, "{}", next.text());
    let next = json_body(&next);
    assert_eq!((next["searches"].as_array().unwrap().len(), &next["totalSearches"]), (3, &json!(5)), "{next}");
}

// Regression: errors of the analytics API other than 400 had no `details`.
#[test]
fn every_analytics_error_response_has_details() {
    let (origin, umbrella) = start_origin("");
    let read_key = origin.create_key("acme", "ci", &["--scope", "read"]);
    let post = batch("b", &[]);
    for (key, method, target, body, status) in [
        ("dw_wrong", "GET", SEARCHES_PATH, None, 401),
        (&*origin.key, "GET", "/v1/analytics/none/searches", None, 404),
        (&*origin.key, "GET", "/v1/analytics/docs/none", None, 404),
        (&*origin.key, "DELETE", SEARCHES_PATH, None, 405),
        (&*umbrella, "GET", SEARCHES_PATH, None, 404),
        (&*read_key, "POST", SEARCHES_PATH, Some(&post), 403),
        (&*origin.key, "POST", SEARCHES_PATH, Some(&post), 400),
        (&*origin.key, "GET", "/v1/analytics/docs/searches?limit=0", None, 400),
    ] {
        let response = origin.send_request(key, method, target, body);
        assert_eq!(response.status, status, "{method} {target}: {}", response.text());
        let details =
            json_body(&response)["details"].as_array().unwrap_or_else(|| panic!("{}", response.text())).clone();
        assert!(
            !details.is_empty() && details.iter().all(|detail| detail["message"].is_string()),
            "{}",
            response.text()
        );
    }
    for _ in 0..120 {
        let response = origin.get(&format!("{SEARCHES_PATH}?limit=1"));
        if response.status == 429 {
            assert!(json_body(&response)["details"][0]["message"].is_string(), "{}", response.text());
            return;
        }
    }
    panic!("no query was refused");
}
