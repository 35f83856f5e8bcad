//! What hosts deliver to an origin, over the API and in files: searches with results, later clicks and daily counts.

use std::path::Path;
use std::process::Stdio;

use docwharf::reader_analytics::delivery::{
    DayCount, DayCountKind, ExchangeFileWriter, SearchBatch, SearchEvent, ViewBatch,
};
use serde_json::{Value, json};

use super::data::{SEARCHES_PATH, assert_refused, start_origin};
use crate::management_api::{host_with_agent, search_events};
use support::host::wait_with_timeout;
use support::http::get;
use support::test_origin::{TestOrigin, json_body};
use support::{run_to_end, until};

const VIEWS_PATH: &str = "/v1/analytics/docs/views";
const PAGES_PATH: &str = "/v1/analytics/docs/pages";
const INSTALLATIONS: [&str; 2] = ["00112233445566ff", "ff66554433221100"];

fn view_batch(id: &str, installation: &str, counts: &Value) -> Value {
    json!({ "batchId": id, "installation": installation, "counts": counts })
}

/// Returns the pages with their views: path, people, AI services, both, other programs.
fn pages(origin: &TestOrigin, query: &str) -> Vec<String> {
    let page = json_body(&origin.get(&format!("{VIEWS_PATH}{query}")));
    let views = page["views"].as_array().unwrap_or_else(|| panic!("{page}"));
    let number = |page: &Value, name: &str| page[name].as_u64().unwrap();
    views
        .iter()
        .map(|page| {
            let numbers = ["human", "ai", "total", "bot"].map(|name| number(page, name));
            format!("{} {numbers:?}", page["path"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn counts_of_several_hosts_add_up_and_each_counts_once() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let counts = json!([
        { "day": "2026-11-01", "kind": "view", "key": "/x", "human": 3, "ai": 1, "bot": 2 },
        { "day": "2026-11-02", "kind": "view", "key": "/y", "human": 2 },
        { "day": "2026-11-01", "kind": "referrer", "key": "search.example", "count": 2 },
        { "day": "2026-11-01", "kind": "notFound", "key": "/gone", "count": 1 },
    ]);
    let first = view_batch("a-1", INSTALLATIONS[0], &counts);
    let response = origin.post(VIEWS_PATH, &first);
    let receipt = json!({ "batchId": "a-1", "accepted": 4, "increased": 4, "views": 8 });
    assert_eq!((response.status, json_body(&response)), (200, receipt));
    let again = json!({ "batchId": "a-1", "accepted": 4, "increased": 0, "views": 0 });
    assert_eq!(json_body(&origin.post(VIEWS_PATH, &first)), again);
    let other = json!([{ "day": "2026-11-01", "kind": "view", "key": "/x", "human": 1 }]);
    assert_eq!(origin.post(VIEWS_PATH, &view_batch("b-1", INSTALLATIONS[1], &other)).status, 200);
    // A later batch of the first host, which then arrives again after a restart of the origin.
    let later = json!([{ "day": "2026-11-01", "kind": "view", "key": "/x", "human": 5, "ai": 1, "bot": 2 }]);
    let later = view_batch("a-2", INSTALLATIONS[0], &later);
    assert_eq!(json_body(&origin.post(VIEWS_PATH, &later))["views"], 2);
    origin.kill();
    origin.start();
    assert_eq!(json_body(&origin.post(VIEWS_PATH, &later))["views"], 0);
    assert_eq!(pages(&origin, ""), ["/x [6, 1, 7, 2]", "/y [2, 0, 2, 0]"]);
    let second_day = json_body(&origin.get(&format!("{VIEWS_PATH}?dateFrom=2026-11-02&limit=1")));
    let row = json!({ "path": "/y", "human": 2, "ai": 0, "total": 2, "bot": 0 });
    let totals = json!({ "human": 2, "ai": 0, "total": 2, "bot": 0 });
    assert_eq!(second_day, json!({ "totals": totals, "views": [row], "hasMore": false }));
    assert_eq!(pages(&origin, "?limit=1&offset=1"), ["/y [2, 0, 2, 0]"]);
    for (by, rows) in [
        ("day", json!([{ "key": "2026-11-01", "count": 6 }, { "key": "2026-11-02", "count": 2 }])),
        ("referrer", json!([{ "key": "search.example", "count": 2 }])),
        ("notFound", json!([{ "key": "/gone", "count": 1 }])),
        ("entry", json!([])),
    ] {
        let page = json_body(&origin.get(&format!("{PAGES_PATH}?by={by}")));
        assert_eq!(page, json!({ "by": by, "rows": rows, "hasMore": false }));
    }
    for target in [format!("{PAGES_PATH}?by=hour"), PAGES_PATH.to_owned(), format!("{VIEWS_PATH}?limit=251")] {
        let response = origin.get(&target);
        assert_eq!(response.status, 400, "{target}");
        assert!(json_body(&response)["details"][0]["message"].is_string(), "{}", response.text());
    }
    let wrong = origin.post(VIEWS_PATH, &view_batch("c", "x", &json!([{ "day": "2026-11-01", "kind": "view" }])));
    let details = json_body(&wrong)["details"].clone();
    assert_eq!(wrong.status, 400);
    assert!(details[0]["message"].as_str().unwrap().starts_with("counts[0]: missing field `key`"), "{details}");
}

#[test]
fn searches_have_results_sources_and_clicks_of_later_batches() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let time = "2026-11-01T10:00:00.5Z";
    let events = json!([
        { "query": "Moat", "time": time, "results": 3, "number": 10 },
        { "query": "terraform", "time": time, "results": 0, "number": 11 },
        { "query": "by machine", "time": time, "results": 0, "source": "assistant", "number": 12 },
    ]);
    let response = origin.post(SEARCHES_PATH, &json!({ "batchId": "b1", "events": events }));
    assert_eq!(json_body(&response), json!({ "batchId": "b1", "accepted": 3, "duplicate": false }));
    let clicks = json!([
        { "batchId": "b1", "number": 10, "time": time, "page": "/moat" },
        { "batchId": "b1", "number": 99, "time": time, "page": "/moat" },
    ]);
    let response = origin.post(SEARCHES_PATH, &json!({ "batchId": "b2", "events": [], "clicks": clicks }));
    assert_eq!(json_body(&response), json!({ "batchId": "b2", "accepted": 0, "clicks": 1, "duplicate": false }));
    let terms = |query: &str| {
        let page = json_body(&origin.get(&format!("{SEARCHES_PATH}{query}")));
        let terms = page["searches"].as_array().unwrap_or_else(|| panic!("{page}")).clone();
        terms.into_iter().map(|term| (term["searchQuery"].clone(), term["topClickedPage"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(terms(""), [(json!("moat"), json!("/moat")), (json!("terraform"), Value::Null)]);
    assert_eq!(terms("?noResults=true"), [(json!("terraform"), Value::Null)]);
}

#[test]
fn analytics_commands_of_a_host_read_views_and_counts_from_an_origin() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let counts = json!([
        { "day": "2026-11-01", "kind": "view", "key": "/x", "human": 3, "ai": 1, "bot": 2 },
        { "day": "2026-11-01", "kind": "agent", "key": "curl", "count": 2 },
    ]);
    assert_eq!(origin.post(VIEWS_PATH, &view_batch("a", INSTALLATIONS[0], &counts)).status, 200);
    let event = json!({ "query": "tide", "time": "2026-11-01T10:00:00Z", "results": 0 });
    assert_eq!(origin.post(SEARCHES_PATH, &json!({ "batchId": "b", "events": [event] })).status, 200);
    let host = host_with_agent(&origin);
    let csv = |arguments: &[&str]| host.ok(&[&["analytics"], arguments, &["--format", "csv"]].concat()).stdout;
    assert_eq!(csv(&["pages", "--from", "2026-10-01"]), "path,human,ai,total,bot\n/x,3,1,4,2\n");
    assert_eq!(csv(&["pages", "--by", "agent", "--from", "2026-10-01"]), "key,count\ncurl,2\n");
    let searches = csv(&["searches", "--no-results", "--from", "2026-10-01"]);
    assert!(searches.lines().nth(1).unwrap().starts_with("tide,1,"), "{searches}");
    let report = host.ok(&["analytics", "report", "--from", "2026-10-01", "--to", "2026-11-30"]).stdout;
    assert!(report.contains("tide"), "{report}");
}

#[test]
fn rows_and_bytes_of_counts_are_limited_and_old_days_are_removed() {
    let (mut origin, umbrella) = start_origin("[analytics]\nkeep = \"10d\"\n[limits.organization]\nrows = 50\n");
    let now = jiff::Timestamp::now();
    let day = |ago: i64| {
        let time = now.checked_sub(jiff::SignedDuration::from_hours(24 * ago)).unwrap();
        time.to_string()[..10].to_owned()
    };
    let views = |n: usize, day: &str| -> Value {
        (0..n).map(|n| json!({ "day": day, "kind": "view", "key": format!("/{n}"), "human": 1 })).collect()
    };
    assert_eq!(origin.post(VIEWS_PATH, &view_batch("a", INSTALLATIONS[0], &views(15, &day(1)))).status, 200);
    // Each count is a row of its host and a row of its project.
    let refused = origin.post(VIEWS_PATH, &view_batch("b", INSTALLATIONS[0], &views(15, &day(2))));
    assert_refused(&refused, "limits.organization.rows");
    let again = origin.post(VIEWS_PATH, &view_batch("a", INSTALLATIONS[0], &views(15, &day(1))));
    assert_eq!((again.status, &json_body(&again)["increased"]), (200, &json!(0)), "a duplicate batch is acknowledged");
    let target = "/v1/analytics/secrets/views";
    let body = view_batch("b", INSTALLATIONS[0], &views(15, &day(2)));
    assert_eq!(origin.send_request(&umbrella, "POST", target, Some(&body)).status, 200);
    let metrics = get(&origin.admin_address(), "/metrics").text();
    assert!(metrics.contains("docwharf_origin_views_total 30\n"), "{metrics}");

    assert_eq!(origin.post(VIEWS_PATH, &view_batch("c", INSTALLATIONS[0], &views(5, &day(20)))).status, 200);
    assert_eq!(pages(&origin, "").len(), 15);
    until("the day that is too old is removed", || {
        origin.kill();
        origin.start();
        let totals = json_body(&origin.get(VIEWS_PATH));
        totals["totals"]["human"] == 15
    });
    assert_eq!(origin.post(VIEWS_PATH, &view_batch("d", INSTALLATIONS[0], &views(10, &day(3)))).status, 200);
}

#[test]
fn batches_and_queries_of_views_share_the_limits_with_those_of_searches() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    for n in 0..100 {
        let target = [SEARCHES_PATH, VIEWS_PATH, "/v1/analytics/docs/pages?by=day"][n % 3];
        assert_eq!(origin.get(target).status, 200, "the {n}th query");
    }
    for target in [SEARCHES_PATH, VIEWS_PATH, PAGES_PATH] {
        assert_refused(&origin.get(target), "100 analytics queries an hour");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Files

/// Writes an exchange file with two searches, of which one led to a click, and six views.
fn write_exchange_file(path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ExchangeFileWriter::new(file, INSTALLATIONS[0], "2026-11-02T00:00:00Z").unwrap();
    let event = |query: &str, page: Option<&str>| SearchEvent {
        clicked_page: page.map(str::to_owned),
        ..SearchEvent::new(query, "2026-11-01T10:00:00Z")
    };
    let events = vec![event("tide", Some("/tide")), event("moat", None)];
    let batch_id = format!("{}-1", INSTALLATIONS[0]);
    writer.write_searches(&SearchBatch { batch_id, events, clicks: vec![] }).unwrap();
    let day = 20_758; // 2026-11-01
    let counts = vec![
        DayCount { human: 4, bot: 2, count: 0, ..DayCount::of_key(day, DayCountKind::View, "/tide".to_owned(), 0) },
        DayCount::of_key(day, DayCountKind::Referrer, "search.example".to_owned(), 1),
    ];
    let (batch_id, installation) = (format!("{}-2", INSTALLATIONS[0]), INSTALLATIONS[0].to_owned());
    writer.write_views(&ViewBatch { batch_id, installation, counts }).unwrap();
    writer.finish().unwrap();
}

#[test]
fn an_exchange_file_counts_once_however_often_it_is_imported_or_delivered() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let file = origin.path("analytics.jsonl");
    write_exchange_file(&file);
    let file = file.to_str().unwrap();
    let imported = origin.ok(&["import-analytics", "docs", file, "--json"]).json();
    let report = json!({
        "schemaVersion": 1, "installation": INSTALLATIONS[0], "batches": 2, "duplicateBatches": 0, "searches": 2,
        "clicks": 1, "views": 6,
    });
    assert_eq!(imported, report);
    let again = origin.ok(&["import-analytics", "docs", file]).stdout;
    assert_eq!(again, "nothing was added: 2 batches were imported or delivered before\n");
    let mut from_stdin = origin.command(&["import-analytics", "docs", "-"]);
    from_stdin.stdin(std::fs::File::open(file).unwrap());
    run_to_end(&mut from_stdin).expect(0);
    // The same batch, delivered over the network.
    let events: Vec<Value> = search_events("tide", 2, 1);
    let batch = json!({ "batchId": format!("{}-1", INSTALLATIONS[0]), "events": events });
    assert_eq!(json_body(&origin.post(SEARCHES_PATH, &batch))["duplicate"], true);
    assert_eq!(json_body(&origin.get(SEARCHES_PATH))["totalSearches"], 2);
    assert_eq!(pages(&origin, ""), ["/tide [4, 0, 4, 2]"]);
}

#[test]
fn a_damaged_exchange_file_is_refused_whole_and_a_wrong_name_is_a_usage_error() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let path = origin.path("analytics.jsonl");
    write_exchange_file(&path);
    let content = std::fs::read_to_string(&path).unwrap();
    let file = path.to_str().unwrap();
    let without_end: String = content.split_inclusive('\n').take(3).collect();
    for (damaged, problem) in [
        (content.replace("moat", "boat"), "line 4: the checksum does not match the content"),
        (without_end, "line 4: the file ends before its last line"),
        (content.replace("\"version\":1", "\"version\":9"), "it has version 9"),
        ("query,time\n".to_owned(), "line 1: it is not the header of an "),
    ] {
        std::fs::write(&path, &damaged).unwrap();
        let failed = run_to_end(&mut origin.command(&["import-analytics", "docs", file])).expect(5);
        assert!(failed.stderr.contains(problem), "{problem}: {}", failed.stderr);
        assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
        let mut command = origin.command(&["import-analytics", "docs", "-"]);
        command.stdin(std::fs::File::open(file).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = wait_with_timeout(command.spawn().unwrap());
        assert_eq!(failed.code, Some(5), "{}", failed.stderr);
        assert!(failed.stderr.contains("standard input") && failed.stderr.contains(problem), "{}", failed.stderr);
    }
    assert_eq!(json_body(&origin.get(SEARCHES_PATH))["totalSearches"], 0);
    assert_eq!(pages(&origin, ""), Vec::<String>::new());
    run_to_end(&mut origin.command(&["import-analytics", "docs", "absent.jsonl"])).expect(2);
    let failed = run_to_end(&mut origin.command(&["import-analytics", "absent", file])).expect(2);
    assert!(failed.stderr.contains("no project \"absent\""), "{}", failed.stderr);
}

#[test]
fn an_import_beyond_the_limit_of_the_organization_is_refused() {
    let (origin, _) = start_origin("[limits.organization]\nrows = 4\n");
    let file = origin.path("analytics.jsonl");
    write_exchange_file(&file);
    let failed = run_to_end(&mut origin.command(&["import-analytics", "docs", file.to_str().unwrap()])).expect(2);
    assert!(failed.stderr.contains("limits.organization.rows"), "{}", failed.stderr);
    assert_eq!(json_body(&origin.get(SEARCHES_PATH))["totalSearches"], 0);
}
