//! Two organizations of one origin: what one takes of bodies, rows, bundles, links and questions is bounded, and the other's
//! still work.

use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::management_api::{TWO, searches};
use support::http::{PersistentConnection, Response, get};
use support::hub::{FOLDER, Hub, JOBS, data, error};
use support::{end, until, write_site};

pub(super) const ADMIN: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n";
pub(super) const SEARCHES: &str = "/v1/analytics/docs/searches";
pub(super) const THEIR_SEARCHES: &str = "/v1/analytics/secrets/searches";

/// Acme and umbrella, each with a folder and a key, with these tables before them; the key is umbrella's.
pub(super) fn hub(tables: &str) -> (Hub, String) {
    let mut hub = Hub::with(ADMIN, &format!("{tables}{TWO}"));
    write_site(&hub.path("site"), &[("index.html", "<p>acme")]);
    write_site(&hub.path("other"), &[("index.html", "<p>umbrella")]);
    let key = hub.create("umbrella", "all", &[]);
    hub.start();
    (hub, key)
}

/// A text that packing makes a quarter smaller.
pub(super) fn noise(len: usize) -> String {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[(state >> 58) as usize])
    };
    (0..len).map(|_| next()).collect()
}

/// A number that metrics tell of a resource.
pub(super) fn metric(hub: &Hub, name: &str, resource: &str) -> u64 {
    let text = get(&hub.admin_address(), "/metrics").text();
    let begin = format!("docwharf_origin_resource_{name}{{resource=\"{resource}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&begin));
    line.unwrap_or_else(|| panic!("no {begin}: {text}")).parse().unwrap()
}

/// It says when to come back, and names the key of the limit.
#[track_caller]
pub(super) fn refused(answer: &Response, key: &str) {
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(error(answer).contains(key), "{}", answer.text());
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
}

pub(super) fn batch(id: &str, events: &[Value]) -> Value {
    json!({ "batchId": id, "events": events })
}

/// A request with a body that does not come; `expect` waits to be asked for it.
pub(super) fn half_sent(hub: &Hub, key: &str, target: &str, len: usize, expect: bool) -> PersistentConnection {
    let mut connection = PersistentConnection::open(hub.address());
    let expect = if expect { "Expect: 100-continue\r\n" } else { "" };
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{expect}Content-Length: {len}\r\n\r\n"
    );
    connection.send(head);
    connection
}

#[test]
fn a_body_that_does_not_come_is_given_up_after_30_seconds_with_what_it_held() {
    let (hub, _) = hub("");
    let mut held = half_sent(&hub, &hub.key, SEARCHES, 8 << 20, false);
    until("it is held", || metric(&hub, "in_use", "bodyBytes") > 0);
    held.stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let answer = held.response(false);
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{}", answer.text());
    until("all of it is given back", || metric(&hub, "in_use", "bodyBytes") == 0);
}

#[test]
fn half_sent_bodies_hold_no_more_than_their_organizations_share_and_others_send_all_the_same() {
    let (hub, umbrella) = hub("");
    let largest = 8 << 20;
    let held: Vec<_> = (0..3).map(|_| half_sent(&hub, &hub.key, SEARCHES, largest, false)).collect();
    until("three are held", || metric(&hub, "in_use", "bodyBytes") == 3 * (8 << 20));
    for _ in 0..20 {
        let answer = half_sent(&hub, &hub.key, SEARCHES, largest, true).response(false);
        refused(&answer, "limits.organization.bodyBytes");
        assert!(data(&answer)["details"][0]["message"].is_string(), "{}", answer.text());
    }
    assert_eq!(metric(&hub, "refused_total", "bodyBytes"), 20);
    // A client that sends all of it before it looks sees the answer as well.
    let mut connection = half_sent(&hub, &hub.key, SEARCHES, 300_000, false);
    connection.send("x".repeat(300_000));
    refused(&connection.response(false), "limits.organization.bodyBytes");
    let answer = hub.ask(&umbrella, "POST", THEIR_SEARCHES, Some(&batch("b", &searches("moat", 3, 1))));
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop(held);
    until("all of it is given back", || metric(&hub, "in_use", "bodyBytes") == 0);
    assert_eq!(hub.post(SEARCHES, &batch("b", &searches("moat", 3, 1))).status, 200);
}

#[test]
fn a_body_without_a_length_takes_what_has_come_of_it() {
    let (hub, _) = hub("[limits.organization]\nbodyBytes = \"256KiB\"\n");
    let head = format!(
        "POST {SEARCHES} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        hub.key
    );
    let mut connection = PersistentConnection::open(hub.address());
    connection.send(&head);
    let body = batch("b", &searches("moat", 3, 1)).to_string();
    connection.send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    assert_eq!(connection.response(false).status, 200);
    let mut connection = PersistentConnection::open(hub.address());
    connection.send(&head);
    let chunk = format!("{:x}\r\n{}\r\n", 100_000, " ".repeat(100_000));
    for _ in 0..4 {
        if connection.stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    connection.send("0\r\n\r\n");
    refused(&connection.response(false), "limits.organization.bodyBytes");
}

#[test]
fn a_budget_is_asked_before_the_body_is() {
    let (hub, _) = hub("");
    for _ in 0..5 {
        assert_eq!(hub.post("/v1/project/preview/docs", &json!({ "branch": "main" })).status, 403);
    }
    let answer = half_sent(&hub, &hub.key, "/v1/project/preview/docs", 60_000, true).response(false);
    refused(&answer, "5 previews a minute");
    // Nor is a body read for somebody else's project.
    let answer = half_sent(&hub, &hub.key, THEIR_SEARCHES, 60_000, true).response(false);
    assert_eq!(answer.status, 404, "{}", answer.text());
}

/// Asks so often about these projects in turn, without a body, and has none of it refused for its number.
fn ask_often(hub: &Hub, (method, begin, end): (&str, &str, &str), often: usize, projects: [&str; 2]) {
    let question = |n: usize| {
        let target = format!("{begin}{}{end}", projects[n % projects.len()]);
        let key = &hub.key;
        format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer {key}\r\n\r\n")
    };
    let mut connection = PersistentConnection::open(hub.address());
    let numbers: Vec<usize> = (0..often).collect();
    for some in numbers.chunks(100) {
        connection.send(some.iter().map(|&n| question(n)).collect::<String>());
        for &n in some {
            let answer = connection.response(false);
            assert_ne!(answer.status, 429, "{method} {begin}: the {n}th: {}", answer.text());
        }
    }
}

#[test]
fn a_budget_is_an_organizations_whichever_project_is_asked_about() {
    let another = "[[organization.project]]\nid = \"api\"\ndomain = \"api.acme.example\"\ndirectory = \"other\"\n";
    let mut hub = Hub::new(&format!("{FOLDER}{another}"));
    write_site(&hub.path("site"), &[("index.html", "<p>docs")]);
    write_site(&hub.path("other"), &[("index.html", "<p>api")]);
    hub.start();
    for (method, begin, end, most, says) in [
        ("GET", "/v1/analytics/", "/searches", 100, "100 times an hour"),
        ("POST", "/v1/project/preview/", "", 5, "5 previews a minute"),
        ("POST", "/v1/analytics/", "/searches", 10_000, "10,000 batches an hour"),
    ] {
        let ask = |project: &str| hub.ask(&hub.key, method, &format!("{begin}{project}{end}"), None);
        // A project that does not exist costs as much as any.
        assert_eq!(ask("nobodys").status, 404, "{method} {begin}");
        let left = most - 1;
        std::thread::scope(|scope| {
            for often in [left / 2, left - left / 2] {
                let hub = &hub;
                scope.spawn(move || ask_often(hub, (method, begin, end), often, ["docs", "api"]));
            }
        });
        for project in ["docs", "api", "nobodys"] {
            refused(&ask(project), says);
        }
    }
}

/// Whether an answer has begun to come; it is not waited for.
fn is_answered(connection: &PersistentConnection) -> bool {
    connection.stream.set_nonblocking(true).unwrap();
    let is_answered = connection.stream.peek(&mut [0]).is_ok();
    connection.stream.set_nonblocking(false).unwrap();
    is_answered
}

#[test]
fn so_many_batches_of_an_organization_wait_for_the_disk_and_others_still_get_in() {
    const SENT: usize = 40;
    const WAITING: usize = 32;
    let (hub, umbrella) = hub("");
    // As long as another process writes to the database, nothing else is written to it.
    let database = rusqlite::Connection::open(hub.path("state/origin.db")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let send = |key: &str, target: &str, n: usize| {
        let body = batch(&format!("b{n}"), &searches("moat", 1, 1)).to_string();
        let mut connection = PersistentConnection::open(hub.address());
        connection.send(format!(
            "POST {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        connection
    };
    let mut acmes: Vec<PersistentConnection> = (0..SENT).map(|n| send(&hub.key, SEARCHES, n)).collect();
    let mut umbrellas = send(&umbrella, THEIR_SEARCHES, 0);
    until("those beyond are refused", || {
        acmes.iter().filter(|connection| is_answered(connection)).count() == SENT - WAITING
    });
    assert!(!is_answered(&umbrellas), "umbrella's batch waits like those that got in");
    database.execute_batch("ROLLBACK").unwrap();
    let (done, refused): (Vec<Response>, Vec<Response>) =
        acmes.iter_mut().map(|connection| connection.response(false)).partition(|answer| answer.status == 200);
    assert_eq!((done.len(), refused.len()), (WAITING, SENT - WAITING));
    for answer in refused {
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(error(&answer).contains("wait for the disk") && answer.header("retry-after").is_some());
    }
    assert_eq!(umbrellas.response(false).status, 200);
    assert_eq!(data(&hub.get(SEARCHES))["totalSearches"], WAITING, "what was taken in and nothing else");
}

#[test]
fn rows_and_bytes_of_searches_are_bounded_for_each_organization_and_others_have_room() {
    for (limit, key) in [
        ("rows = 50", "limits.organization.rows"),
        ("databaseBytes = \"3KiB\"", "limits.organization.databaseBytes"),
        ("events = 50", "limits.organization.events"),
    ] {
        let (hub, umbrella) = hub(&format!("[limits.organization]\n{limit}\n"));
        let first = batch("b1", &searches("moat", 30, 1));
        assert_eq!(hub.post(SEARCHES, &first).status, 200, "{limit}");
        let answer = hub.post(SEARCHES, &batch("b2", &searches("tide", 30, 2)));
        refused(&answer, key);
        assert!(data(&answer)["details"][0]["message"].is_string(), "{}", answer.text());
        let again = hub.post(SEARCHES, &first);
        assert_eq!((again.status, &data(&again)["duplicate"]), (200, &json!(true)), "what was taken is acknowledged");
        let name = key.rsplit('.').next().unwrap();
        assert_eq!(metric(&hub, "refused_total", name), 1);
        let theirs = hub.ask(&umbrella, "POST", THEIR_SEARCHES, Some(&batch("b1", &searches("moat", 30, 1))));
        assert_eq!(theirs.status, 200, "{limit}: {}", theirs.text());
        assert_eq!(data(&hub.get(SEARCHES))["totalSearches"], 30);
        assert_eq!(metric(&hub, "in_use", "rows"), 62, "30 searches and a batch of each");
    }
}

#[test]
fn no_organization_takes_the_last_rows_of_all_and_an_import_has_the_same_bounds() {
    let (hub, umbrella) = hub("[limits.total]\nrows = 1500\n");
    let many = |n: usize| -> Vec<Value> { (0..n).map(|n| searches("moat", 60, 1)[n % 60].clone()).collect() };
    assert_eq!(hub.post(SEARCHES, &batch("b1", &many(400))).status, 200);
    refused(&hub.post(SEARCHES, &batch("b2", &many(400))), "limits.total.rows");
    let csv: String = many(400).iter().map(|_| "tide,2026-11-01T10:00:00Z\n").collect();
    std::fs::write(hub.path("s.csv"), format!("query,time\n{csv}")).unwrap();
    let file = hub.path("s.csv");
    let full = end(&mut hub.command(&["import-searches", "docs", file.to_str().unwrap()])).expect(2);
    assert!(full.stderr.contains("limits.total.rows"), "{}", full.stderr);
    let theirs = hub.ask(&umbrella, "POST", THEIR_SEARCHES, Some(&batch("b1", &many(1000))));
    assert_eq!(theirs.status, 200, "{}", theirs.text());
}

#[test]
fn questions_hold_little_memory_however_many_terms_there_are() {
    let (hub, umbrella) = hub("");
    let padding = "x".repeat(430);
    for n in 0..100 {
        let events: Vec<Value> = (0..1000)
            .map(|event| json!({ "query": format!("{n}-{event}-{padding}"), "time": "2026-11-01T10:00:00Z", "clickedPage": format!("/{n}") }))
            .collect();
        assert_eq!(hub.post(SEARCHES, &batch(&n.to_string(), &events)).status, 200);
    }
    let rss = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", hub.daemon.as_ref().unwrap().pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let before = rss();
    std::thread::scope(|scope| {
        let ask = || {
            let answer = hub.get(&format!("{SEARCHES}?limit=1"));
            assert!(matches!(answer.status, 200 | 429), "{}", answer.text());
            if answer.status == 200 {
                assert_eq!(data(&answer)["totalSearches"], 100_000);
            }
        };
        for _ in 0..12 {
            scope.spawn(ask);
        }
        // Somebody else's questions are answered meanwhile.
        let answer = hub.ask(&umbrella, "GET", THEIR_SEARCHES, None);
        assert_eq!(answer.status, 200, "{}", answer.text());
    });
    let grown = rss() - before;
    assert!(grown <= 256, "{grown} MiB more than the {before} MiB before");
}

#[test]
fn bundles_are_bounded_for_each_organization_though_their_links_work_and_others_have_room() {
    let (hub, umbrella) =
        hub("[exports]\nlinkLifetime = \"1h\"\n[limits.organization]\nbundleBytes = \"300KiB\"\nlinks = 2\n");
    write_site(&hub.path("site"), &[("a.txt", &noise(280_000))]);
    let first = hub.export(&json!({}));
    let made = hub.ended(&first);
    assert_eq!(made["status"], "completed", "{made}");
    let link = hub.link(&first);
    let kept = metric(&hub, "in_use", "bundleBytes");
    assert!((150 << 10..300 << 10).contains(&kept), "{kept}: the test needs one bundle to fit, and two not to");
    for _ in 0..3 {
        let ended = hub.ended(&hub.export(&json!({})));
        assert_eq!(ended["status"], "failed");
        assert!(ended["error"].as_str().unwrap().contains("limits.organization.bundleBytes"), "{ended}");
    }
    let files = |folder: &str| std::fs::read_dir(hub.path(folder)).unwrap().count();
    assert_eq!((files("state/bundles"), files("state/work"), metric(&hub, "in_use", "bundleBytes")), (1, 0, kept));
    assert_eq!(get(hub.address(), &link).status, 200, "the link still works");
    let bundle = format!("{JOBS}/{first}/bundle");
    assert_eq!(hub.ask(&hub.key, "POST", &bundle, None).status, 200);
    refused(&hub.ask(&hub.key, "POST", &bundle, None), "limits.organization.links");
    theirs_are_exported(&hub, &umbrella);
}

/// Umbrella's folder becomes a bundle that its link leads to.
#[track_caller]
pub(super) fn theirs_are_exported(hub: &Hub, umbrella: &str) {
    let started = hub.ask(umbrella, "POST", JOBS, Some(&json!({ "domain": "docs.umbrella.example" })));
    assert_eq!(started.status, 202, "{}", started.text());
    let job = data(&started)["jobId"].as_str().unwrap().to_owned();
    let mut last = Value::Null;
    until("their job ends", || {
        last = data(&hub.ask(umbrella, "GET", &format!("{JOBS}/{job}"), None));
        last["status"] == "completed" || last["status"] == "failed"
    });
    assert_eq!(last["status"], "completed", "{last}");
    let link = hub.ask(umbrella, "POST", &format!("{JOBS}/{job}/bundle"), None);
    assert_eq!(link.status, 200, "{}", link.text());
}

#[test]
fn nothing_is_packed_onto_a_disk_that_is_nearly_full_and_jobs_and_keys_have_room() {
    let mut hub = Hub::with("[server]\nlisten = [\"127.0.0.1:0\"]\n", &format!("minFree = \"1000TiB\"\n{TWO}"));
    write_site(&hub.path("site"), &[("index.html", "<p>home")]);
    hub.start();
    let ended = hub.ended(&hub.export(&json!({})));
    assert!(ended["error"].as_str().unwrap().contains("store.minFree"), "{ended}");
    let answer = hub.post(SEARCHES, &batch("b", &searches("moat", 3, 1)));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(error(&answer).contains("store.minFree") && answer.header("retry-after").is_some());
    hub.create("acme", "another", &[]);
}

/// A site that never answers: who crawls it is at it for as long as it has patience.
pub(super) fn silent() -> String {
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

/// Acme with a folder and a site that is crawled, with one worker.
fn with_a_slow_site(tables: &str) -> Hub {
    let slow =
        format!("[[organization.project]]\nid = \"slow\"\ndomain = \"slow.acme.example\"\ncrawl = \"{}\"\n", silent());
    let file = TWO.replacen("directory = \"site\"\n", &format!("directory = \"site\"\n{slow}"), 1);
    let mut hub = Hub::with(ADMIN, &format!("[exports]\nworkers = 1\n{tables}{file}"));
    write_site(&hub.path("site"), &[("index.html", "<p>acme")]);
    write_site(&hub.path("other"), &[("index.html", "<p>umbrella internal")]);
    hub.start();
    let crawled = hub.export(&json!({ "domain": "slow.acme.example" }));
    until("the worker is at it", || data(&hub.get(&format!("{JOBS}/{crawled}")))["status"] == "running");
    hub
}

#[test]
fn so_many_jobs_of_an_organization_wait_and_others_still_get_in() {
    let hub = with_a_slow_site("[limits.organization]\nwaitingJobs = 2\n");
    let umbrella = hub.create("umbrella", "all", &[]);
    let docs = json!({ "domain": "docs.acme.example" });
    let waiting = [hub.export(&docs), hub.export(&docs)];
    refused(&hub.post(JOBS, &docs), "limits.organization.waitingJobs");
    let theirs = hub.ask(&umbrella, "POST", JOBS, Some(&json!({ "domain": "docs.umbrella.example" })));
    assert_eq!(theirs.status, 202, "{}", theirs.text());
    assert_eq!(metric(&hub, "in_use", "waitingJobs"), waiting.len() as u64 + 1);
    assert_eq!(metric(&hub, "refused_total", "waitingJobs"), 1);
}

#[test]
fn a_job_that_waited_is_done_for_its_project_and_organization_or_not_at_all() {
    let mut hub = with_a_slow_site("");
    let job = hub.export(&json!({}));
    hub.kill();
    // The domain is another organization's by now.
    let moved =
        TWO.replace("docs.acme.example", "old.acme.example").replace("docs.umbrella.example", "docs.acme.example");
    hub.write(ADMIN, &moved);
    hub.start();
    let ended = hub.ended(&job);
    assert_eq!(ended["status"], "failed");
    assert!(ended["error"].as_str().unwrap().contains("no longer has the domain"), "{ended}");
    let link = hub.ask(&hub.key, "POST", &format!("{JOBS}/{job}/bundle"), None);
    assert_eq!(link.status, 409, "{}", link.text());

    let mut hub = with_a_slow_site("");
    let job = hub.export(&json!({}));
    hub.kill();
    hub.write(ADMIN, &TWO.replacen("directory", "exports = false\ndirectory", 1));
    hub.start();
    let ended = hub.ended(&job);
    assert!(ended["error"].as_str().unwrap().contains("exports = false"), "{ended}");
}

#[test]
fn a_walk_through_searches_goes_on_though_old_ones_are_removed_meanwhile() {
    let now = jiff::Timestamp::now();
    let ago = |seconds: i64| now.checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap().to_string();
    let day = 86_400;
    // Kept for ten days: two of them are removed in a moment.
    let (mut hub, _) = hub("[analytics]\nkeep = \"10d\"\n");
    let old = (0..2).map(|n| json!({ "query": format!("old {n}"), "time": ago(10 * day - 5) }));
    let new = (0..5).map(|n| json!({ "query": format!("new {n}"), "time": ago(day + n) }));
    let events: Vec<Value> = old.chain(new).collect();
    assert_eq!(hub.post(SEARCHES, &batch("b", &events)).status, 200);
    let page = data(&hub.get(&format!("{SEARCHES}?limit=2")));
    assert_eq!(page["totalSearches"], 5, "what goes within a day does not count: {page}");
    // It is tidied when it starts.
    until("the old ones are gone", || {
        hub.kill();
        hub.start();
        metric(&hub, "in_use", "rows") == 5 + 1
    });
    let cursor = page["nextCursor"].as_str().unwrap();
    let next = hub.get(&format!("{SEARCHES}?limit=100&cursor={cursor}"));
    assert_eq!(next.status, 200, "{}", next.text());
    let next = data(&next);
    assert_eq!((next["searches"].as_array().unwrap().len(), &next["totalSearches"]), (3, &json!(5)), "{next}");
}

#[test]
fn every_error_of_analytics_has_details() {
    let (hub, umbrella) = hub("");
    let reads = hub.create("acme", "ci", &["--scope", "read"]);
    let post = batch("b", &[]);
    for (key, method, target, body, status) in [
        ("dw_wrong", "GET", SEARCHES, None, 401),
        (&*hub.key, "GET", "/v1/analytics/none/searches", None, 404),
        (&*hub.key, "GET", "/v1/analytics/docs/none", None, 404),
        (&*hub.key, "DELETE", SEARCHES, None, 405),
        (&*umbrella, "GET", SEARCHES, None, 404),
        (&*reads, "POST", SEARCHES, Some(&post), 403),
        (&*hub.key, "POST", SEARCHES, Some(&post), 400),
        (&*hub.key, "GET", "/v1/analytics/docs/searches?limit=0", None, 400),
    ] {
        let answer = hub.ask(key, method, target, body);
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
        let details = data(&answer)["details"].as_array().unwrap_or_else(|| panic!("{}", answer.text())).clone();
        assert!(!details.is_empty() && details.iter().all(|detail| detail["message"].is_string()), "{}", answer.text());
    }
    for _ in 0..120 {
        let answer = hub.get(&format!("{SEARCHES}?limit=1"));
        if answer.status == 429 {
            assert!(data(&answer)["details"][0]["message"].is_string(), "{}", answer.text());
            return;
        }
    }
    panic!("a hundred questions an hour have a bound");
}
