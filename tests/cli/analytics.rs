//! `analytics searches` against an upstream that keeps every request.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use support::disk::Disk;
use support::host::{Host, at_once, bundle, finish, judged, text};
use support::studio::PROJECT;
use support::until;
use support::upstream::{Call, KEY, Upstream, answer, raw, silence, stamp};

fn host(upstream: &Upstream) -> Host {
    Host::new(upstream).set("api.projectId", text(PROJECT))
}

/// 300 terms, many with as many hits as others, in many scripts, a third of them never clicked.
fn upstream() -> Upstream {
    let upstream = Upstream::new(bundle("one"));
    let scripts = ["tide", "Ebbe & Flut", "潮汐", "прилив", "مد", "🌊", "a,\"b\"", "=1+1", "line\nbreak", "e\u{301}"];
    for n in 0..300_usize {
        let term = format!("{} {n}", scripts[n % scripts.len()]);
        for hit in 0..=n / 10 {
            let page = (n % 3 != 0 && hit % 2 == 0).then(|| format!("/guides/{}", n % 7));
            upstream.plan().studio.events.push((term.clone(), "2026-08-10".to_owned(), page));
        }
    }
    upstream
}

/// Term → hits of everything that happened.
fn happened(upstream: &Upstream) -> BTreeMap<String, u64> {
    let mut terms = BTreeMap::new();
    for (term, ..) in &upstream.plan().studio.events {
        *terms.entry(term.clone()).or_default() += 1;
    }
    terms
}

#[track_caller]
fn assert_whole(upstream: &Upstream, rows: &[Value]) {
    let found: BTreeMap<String, u64> = rows
        .iter()
        .map(|row| (row["searchQuery"].as_str().unwrap().to_owned(), row["hits"].as_u64().unwrap()))
        .collect();
    assert_eq!(found.len(), rows.len(), "no term twice");
    assert_eq!(found, happened(upstream));
    let hits: Vec<u64> = rows.iter().map(|row| row["hits"].as_u64().unwrap()).collect();
    assert!(hits.is_sorted_by(|a, b| a >= b), "in the order of the API");
}

#[test]
fn three_hundred_terms_are_read_whole_through_pages_of_seven_in_every_format() {
    let upstream = upstream();
    let all = ["analytics", "searches", "--all", "--limit", "7", "--format"];
    let with = |format| host(&upstream).ok(&[&all[..], &[format]].concat()).stdout;
    let json: Value = serde_json::from_str(&with("json")).unwrap();
    let rows = json["searches"].as_array().unwrap().clone();
    assert_whole(&upstream, &rows);
    assert!(rows.iter().any(|row| row["topClickedPage"].is_null()));
    assert_eq!(json["nextCursor"], Value::Null);
    let events = upstream.plan().studio.events.len();
    assert_eq!(json["totalSearches"], events, "events, not rows");
    assert_eq!(json.as_object().unwrap().len(), 3);
    assert_eq!(upstream.count(Call::Searches), 43);
    for request in upstream.calls(Call::Searches) {
        assert!(request.target.contains("limit=7"), "{}", request.target);
    }

    let lines: Vec<Value> = with("ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, rows);

    let text = with("csv");
    let mut csv = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = csv.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(names, ["searchQuery", "hits", "ctr", "topClickedPage", "lastSearchedAt"]);
    for (record, row) in csv.records().map(Result::unwrap).zip(&rows) {
        assert_eq!(record[0], *row["searchQuery"].as_str().unwrap());
        assert_eq!(record[1], row["hits"].to_string());
        assert_eq!(record[2], row["ctr"].to_string());
        assert_eq!(&record[3], row["topClickedPage"].as_str().unwrap_or(""));
    }
    assert_eq!(csv::Reader::from_reader(text.as_bytes()).records().count(), 300);

    let table = with("table");
    assert_eq!(table.lines().count(), 302, "a head, a line a term, the total");
    assert!(table.lines().next().unwrap().starts_with("TERM"));
    assert!(table.contains("line\\nbreak 298"), "nothing of a term is obeyed");
    assert!(
        table.trim_end().ends_with(&format!("totalSearches {events} (events in the period, not terms)")),
        "{table}"
    );
}

#[test]
fn fifty_terms_are_the_default_and_limit_says_how_many_are_wanted() {
    let upstream = upstream();
    let rows = |arguments: &[&str]| {
        let host = host(&upstream);
        let json = host.ok(&[&["analytics", "searches", "--json"], arguments].concat()).json();
        (json["searches"].as_array().unwrap().len(), json["nextCursor"].clone())
    };
    assert_eq!(rows(&[]), (50, "after+/=50".into()));
    assert_eq!(rows(&["--limit", "250"]), (250, "after+/=250".into()));
    assert_eq!(rows(&["--limit", "100000"]), (300, Value::Null));
    assert_eq!(rows(&["--limit", "3", "--cursor", "after+/=298"]), (2, Value::Null));
    let asked: Vec<String> = upstream.calls(Call::Searches).into_iter().map(|request| request.target).collect();
    let path = "/v1/analytics/prj_7%2Fa/searches?limit=";
    assert_eq!(
        asked[..4],
        ["50", "100", "100&cursor=after%2B%2F%3D100", "50&cursor=after%2B%2F%3D200"].map(|q| format!("{path}{q}"))
    );
    let table = host(&upstream).ok(&["analytics", "searches"]).stdout;
    assert!(table.contains("50 terms, and there are more: --limit N or --all;"), "{table}");
}

#[test]
fn dates_are_sent_as_the_specification_says_and_the_end_is_exclusive() {
    let upstream = upstream();
    upstream.plan().studio.events =
        ["2026-08-01", "2026-08-02", "2026-08-03"].map(|day| (day.to_owned(), day.to_owned(), None)).into();
    let host = host(&upstream);
    let terms = |arguments: &[&str]| {
        let json = host.ok(&[&["analytics", "searches", "--json"], arguments].concat()).json();
        json["searches"].as_array().unwrap().len()
    };
    assert_eq!(terms(&["--from", "2026-08-02", "--to", "2026-08-03"]), 1);
    assert!(upstream.log()[0].target.ends_with("?dateFrom=2026-08-02&dateTo=2026-08-03&limit=50"));
    assert_eq!(terms(&["--from", "2026-08-01T00:00:00Z"]), 3);
    assert!(upstream.log()[1].target.contains("dateFrom=2026-08-01T00%3A00%3A00Z&limit"), "{}", upstream.story());
    assert_eq!(terms(&["--since", "2d", "--to", "2026-08-03"]), 2);
    assert!(upstream.log()[2].target.contains("dateFrom=2026-08-01&dateTo=2026-08-03&"));
    terms(&["--since", "30d"]);
    let day = &stamp(-30 * 86400)[..10];
    assert!(upstream.log()[3].target.contains(&format!("dateFrom={day}&limit")), "{}", upstream.story());
    assert!(host.ok(&["analytics", "searches", "--help"]).stdout.contains("exclusive"));
}

#[test]
fn mistakes_are_found_before_any_request() {
    let upstream = upstream();
    let host = host(&upstream);
    for wrong in [
        &["--from", "yesterday"][..],
        &["--from", "2026-08-02", "--to", "2026-08-02"],
        &["--from", "2026-08-02", "--since", "3d"],
        &["--since", "3 weeks"],
        &["--limit", "0"],
        &["--all", "--limit", "101"],
        &["--all", "--cursor", "x"],
        &["--format", "xml"],
        &["--format", "csv", "--json"],
    ] {
        host.ends(2, &[&["analytics", "searches"], wrong].concat());
    }
    assert!(Host::new(&upstream).ends(2, &["analytics", "searches"]).stderr.contains("api.projectId"));
    assert!(upstream.log().is_empty(), "{}", upstream.story());
}

#[test]
fn a_cursor_that_comes_again_is_noticed() {
    let upstream = upstream();
    let page = json!({"searches": [{"searchQuery": "x", "hits": 1}], "totalSearches": 9, "nextCursor": "round"});
    upstream.on(Call::Searches).gives(raw("application/json", page.to_string()));
    let host = host(&upstream);
    let ended = host.ends(4, &["analytics", "searches", "--all"]);
    assert!(ended.stderr.contains("\"round\" again"), "{}", ended.stderr);
    assert_eq!((upstream.count(Call::Searches), ended.stdout.as_str()), (2, ""));
    // Nothing is kept of it that would go on going round.
    upstream.heal();
    assert_eq!(
        host.ok(&["analytics", "searches", "--all", "--json"]).json()["searches"].as_array().unwrap().len(),
        300
    );
}

#[test]
fn a_page_without_terms_and_fields_of_any_type_are_normal() {
    let upstream = upstream();
    let first =
        r#"{"searches":[{"searchQuery":"half \ud83d","hits":"12","ctr":"0.5","x":[]},{"hits":null}],"nextCursor":"b"}"#;
    upstream.on(Call::Searches).times(1).gives(raw("text/html", first));
    upstream
        .on(Call::Searches)
        .times(1)
        .gives(raw("application/json", r#"{"searches":[],"totalSearches":12,"nextCursor":"c"}"#));
    upstream.on(Call::Searches).times(1).gives(raw("application/json", r#"{"searches":null,"nextCursor":null}"#));
    let json = host(&upstream).ok(&["analytics", "searches", "--all", "--json"]).json();
    assert_eq!(json["totalSearches"], 12);
    let rows = json["searches"].as_array().unwrap();
    assert_eq!(
        rows[0],
        json!({"searchQuery": "half \u{fffd}", "hits": 12, "ctr": 0.5, "topClickedPage": null, "lastSearchedAt": null})
    );
    assert_eq!((rows.len(), &rows[1]["searchQuery"]), (2, &json!("")));
}

#[test]
fn an_interrupted_reading_goes_on_and_no_term_is_lost_or_doubled() {
    let upstream = upstream();
    let host = host(&upstream);
    let all = ["analytics", "searches", "--all", "--limit", "7", "--format", "ndjson"];
    upstream.on(Call::Searches).after(20).gives(silence());
    let child = host.command(&all).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let mut child = child.unwrap();
    until("twenty pages were read", || upstream.count(Call::Searches) == 21);
    child.kill().unwrap();
    child.wait().unwrap();
    upstream.heal();
    // A torn page does not count.
    let spool = std::fs::read_dir(host.path("store/api")).unwrap().map(|entry| entry.unwrap().path());
    let spool = spool.into_iter().find(|path| path.extension().is_some_and(|end| end == "jsonl")).expect("it was kept");
    let kept = std::fs::read(&spool).unwrap();
    std::fs::write(&spool, [&kept[..], &b"{\"searches\":[{\"sea"[..]].concat()).unwrap();
    let ended = host.ok(&all);
    assert!(ended.stderr.contains("interrupted after 140 terms"), "{}", ended.stderr);
    let rows: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_whole(&upstream, &rows);
    assert_eq!(upstream.count(Call::Searches), 21 + 23, "what was read is not asked for again");
    assert!(!spool.exists(), "what was printed is not kept");
    // What could not be printed is kept.
    let asked = upstream.count(Call::Searches);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = host.command(&all).stdout(full).output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(8) && told.contains("no space left"), "{told}");
    let read = upstream.count(Call::Searches);
    assert_eq!(read, asked + 43);
    let rows: Vec<Value> = host.ok(&all).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_whole(&upstream, &rows);
    assert!(upstream.count(Call::Searches) <= read + 1, "what was read is not asked for again");
    // Another question begins with its own first page.
    let before = upstream.log().len();
    host.ok(&["analytics", "searches", "--all", "--from", "2026-08-01"]);
    assert!(!upstream.log()[before].target.contains("cursor"));
}

#[test]
fn a_kept_cursor_that_is_not_taken_any_more_begins_the_reading_anew() {
    at_once(&[400, 404, 410, 422], |status| {
        let upstream = upstream();
        let host = host(&upstream);
        let all = ["analytics", "searches", "--all", "--limit", "100", "--json"];
        upstream.on(Call::Searches).after(1).gives(answer(401));
        host.ends(3, &all);
        upstream.heal();
        let details = json!({"error": "Invalid cursor", "details": [{"message": "cursor: has expired"}]});
        upstream.on(Call::Searches).times(1).gives(answer(*status).json(&details));
        let ended = host.ok(&all);
        assert!(ended.stderr.contains("begins anew") && ended.stderr.contains("has expired"), "{}", ended.stderr);
        assert_whole(&upstream, ended.json()["searches"].as_array().unwrap());
    });
}

#[test]
fn pages_without_end_are_given_up_before_they_cost_the_budget() {
    let upstream = upstream();
    for n in 0..50 {
        let page = json!({"searches": [], "totalSearches": 0, "nextCursor": n.to_string()});
        upstream.on(Call::Searches).times(1).gives(raw("application/json", page.to_string()));
    }
    assert!(host(&upstream).ends(4, &["analytics", "searches"]).stderr.contains("page after page without a term"));
    assert_eq!(upstream.count(Call::Searches), 10);
    upstream.heal();
    let page = json!({"searches": [{"searchQuery": "x"}], "nextCursor": "c".repeat(100_000)});
    upstream.on(Call::Searches).gives(raw("application/json", page.to_string()));
    assert!(host(&upstream).ends(4, &["analytics", "searches"]).stderr.contains("fits into no address"));
    assert_eq!(upstream.count(Call::Searches), 11);
}

#[test]
fn a_signal_ends_it_also_while_nobody_reads_what_it_prints() {
    let upstream = upstream();
    let host = host(&upstream);
    // More than a pipe holds.
    for n in 0..300 {
        upstream.plan().studio.events.push((format!("{}{n}", "x".repeat(400)), "2026-08-10".into(), None));
    }
    let mut command = host.command(&["analytics", "searches", "--all", "--format", "json"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let pipe = child.stdout.take().unwrap();
    until("the pipe is full", || rustix::io::ioctl_fionread(&pipe).unwrap() >= 60_000);
    finish(std::process::Command::new("kill").args(["-TERM", &child.id().to_string()])).expect(0);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn one_process_reads_and_the_other_is_told() {
    let upstream = upstream();
    let host = host(&upstream);
    upstream.on(Call::Searches).gives(silence());
    let all = ["analytics", "searches", "--all"];
    let mut child = host.command(&all).stderr(std::process::Stdio::null()).spawn().unwrap();
    until("it asks", || upstream.count(Call::Searches) == 1);
    assert!(host.ends(4, &all).stderr.contains("another docwharf is reading the same"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn every_error_is_told_whole() {
    let details = json!({"error": "Invalid query parameters",
        "details": [{"message": "dateFrom: is after dateTo"}, {"message": "limit: is no number"}, {"x": 1}]});
    let many: Vec<Value> =
        (0..12).map(|n| json!({"message": format!("parameter {n} is not what it should have been")})).collect();
    let cases = [
        (400, details, 2, "Invalid query parameters (dateFrom: is after dateTo; limit: is no number)"),
        (400, json!({"error": "bad", "details": many}), 2, "parameter 11 is not what it should have been)"),
        (401, json!({"error": "invalid API key"}), 3, "put a valid one in its place"),
        (403, json!({"error": "not on your plan"}), 3, "search analytics need another plan"),
        (404, json!({"error": "no such project"}), 2, "api.projectId"),
    ];
    at_once(&cases, |(status, body, code, said)| {
        let upstream = upstream();
        upstream.on(Call::Searches).gives(answer(*status).json(body));
        let ended = host(&upstream).ends(*code, &["analytics", "searches"]);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
        assert_eq!(upstream.count(Call::Searches), 1, "final at once");
    });
}

#[test]
fn one_bad_answer_is_survived_and_five_are_not() {
    let upstream = upstream();
    upstream.on(Call::Searches).times(1).gives(answer(500).json(&json!({"error": "Internal server error"})));
    let host = host(&upstream);
    host.ok(&["analytics", "searches"]);
    assert_eq!(upstream.count(Call::Searches), 2);
    upstream.on(Call::Searches).gives(answer(500).json(&json!({"error": "Internal server error"})));
    assert!(host.ends(4, &["analytics", "searches"]).stderr.contains("Internal server error"));
    assert_eq!(upstream.count(Call::Searches), 7);
}

/// What the store says of `requests` that were sent half an hour ago.
fn spend(host: &Host, upstream: &Upstream, requests: usize) {
    std::fs::create_dir_all(host.path("store/api")).unwrap();
    let then = stamp(-1800).parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let name = format!("analytics {}", upstream.base());
    let book = json!({"schemaVersion": 1, "budgets": {name: {"sent": vec![then; requests], "closedUntil": null}}});
    std::fs::write(host.path("store/api/budget.json"), book.to_string()).unwrap();
}

#[test]
fn a_hundred_requests_an_hour_outlive_processes_and_what_was_read_before_the_end_is_kept() {
    let upstream = upstream();
    let host = host(&upstream);
    spend(&host, &upstream, 98);
    let all = ["analytics", "searches", "--all", "--json", "--no-wait-for-budget"];
    let ended = host.ends(4, &all);
    assert!(ended.stderr.contains("100 requests for analytics in 1h"), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Searches), 2);
    let failure: Value = serde_json::from_str(&ended.stdout).expect("JSON and nothing before it");
    assert_eq!(failure["error"]["exit"], 4);
    host.ends(4, &["analytics", "searches", "--no-wait-for-budget"]);
    assert_eq!(upstream.count(Call::Searches), 2, "another process, another question, one budget");
    // Half an hour later.
    std::fs::remove_file(host.path("store/api/budget.json")).unwrap();
    let ended = host.ok(&all);
    assert_whole(&upstream, ended.json()["searches"].as_array().unwrap());
    assert_eq!(upstream.count(Call::Searches), 3, "the third page of three");
}

#[test]
fn what_a_429_asks_for_counts_for_every_process() {
    let upstream = upstream();
    upstream.on(Call::Searches).times(1).gives(answer(429).header("Retry-After", "1800"));
    let host = host(&upstream);
    let ended = host.ends(4, &["analytics", "searches"]);
    assert!(ended.stderr.contains("1800 s"), "{}", ended.stderr);
    let ended = host.ends(4, &["analytics", "searches"]);
    assert!(ended.stderr.contains("has asked to be left alone with analytics"), "{}", ended.stderr);
    assert!(ended.stderr.contains("free in 29m") || ended.stderr.contains("free in 30m"), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Searches), 1);
}

#[test]
fn who_waits_for_the_budget_is_told_how_long_and_can_be_interrupted() {
    let upstream = upstream();
    let host = host(&upstream);
    spend(&host, &upstream, 100);
    let mut command = host.command(&["analytics", "searches"]);
    let log = host.path("log");
    command.stdout(std::process::Stdio::piped()).stderr(std::fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    until("it says so", || said().contains("waiting 30m"));
    finish(std::process::Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", said());
    assert!(upstream.log().is_empty());
}

#[test]
fn no_secret_is_in_what_is_printed_or_kept() {
    let upstream = upstream();
    let host = host(&upstream);
    upstream.on(Call::Searches).after(1).gives(answer(401).json(&json!({"error": format!("bad key {KEY}")})));
    let mut command = host.command(&["analytics", "searches", "--all", "-vv"]);
    let ended = judged(3, finish(&mut command));
    assert!(ended.stderr.contains("GET /analytics/prj_7/a/searches: 200 in "), "{}", ended.stderr);
    assert!(!ended.stderr.contains(KEY) && !ended.stdout.contains(KEY));
    for entry in std::fs::read_dir(host.path("store/api")).unwrap() {
        let kept = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!kept.contains(KEY));
    }
}

#[test]
fn a_full_disk_is_no_reason_not_to_read() {
    let upstream = upstream();
    let disk = Disk::new("size=1m");
    let host = host(&upstream).set("store.path", text(disk.path("store").to_str().unwrap()));
    let all = ["analytics", "searches", "--all", "--limit", "50", "--json"];
    // The budget has its place already, and the third page is one too many.
    host.ok(&["analytics", "searches"]);
    disk.leave(20 << 10);
    let ended = host.ok(&all);
    assert!(ended.stderr.contains("no space") && ended.stderr.contains("will not go on from here"), "{}", ended.stderr);
    assert_whole(&upstream, ended.json()["searches"].as_array().unwrap());
    disk.leave(0);
    let ended = host.ok(&all);
    assert!(ended.stderr.contains("counted for this command alone"), "{}", ended.stderr);
    assert_whole(&upstream, ended.json()["searches"].as_array().unwrap());
    // A budget that is used up stays so.
    disk.empty();
    std::fs::remove_dir_all(disk.path("store/api")).unwrap();
    let then = stamp(-1800).parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let name = format!("analytics {}", upstream.base());
    let sent: Vec<i64> = (0..99).map(|n| then + n).collect();
    std::fs::create_dir_all(disk.path("store/api")).unwrap();
    let book = json!({"schemaVersion": 1, "budgets": {name: {"sent": sent, "closedUntil": null}}});
    std::fs::write(disk.path("store/api/budget.json"), book.to_string()).unwrap();
    std::fs::write(disk.path("store/api/lock"), "").unwrap();
    disk.leave(0);
    let before = upstream.count(Call::Searches);
    host.ends(4, &["analytics", "searches", "--limit", "300", "--no-wait-for-budget"]);
    assert_eq!(upstream.count(Call::Searches), before + 1);
}
