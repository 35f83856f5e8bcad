//! `analytics searches` against an upstream that records every request.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use support::disk::SmallDisk;
use support::host::{Host, bundle, expect_plain_exit, run_concurrently, run_with_timeout, toml_string};
use support::project_api::PROJECT;
use support::upstream::{KEY, Upstream, UpstreamCall, error_reply, no_reply, raw_reply, rfc3339_in};
use support::{send_signal, until};

fn host(upstream: &Upstream) -> Host {
    Host::new(upstream).set("api.projectId", toml_string(PROJECT))
}

/// An upstream with 300 terms in many scripts, many with equal numbers of hits, a third of them never clicked.
fn upstream() -> Upstream {
    let upstream = Upstream::new(bundle("one"));
    let scripts = ["tide", "Ebbe & Flut", "潮汐", "прилив", "مد", "🌊", "a,\"b\"", "=1+1", "line\nbreak", "e\u{301}"];
    for n in 0..300_usize {
        let term = format!("{} {n}", scripts[n % scripts.len()]);
        for hit in 0..=n / 10 {
            let page = (n % 3 != 0 && hit % 2 == 0).then(|| format!("/guides/{}", n % 7));
            upstream.state().project_api.events.push((term.clone(), "2026-08-10".to_owned(), page));
        }
    }
    upstream
}

/// Counts the hits of each term in all events.
fn count_hits(upstream: &Upstream) -> BTreeMap<String, u64> {
    let mut terms = BTreeMap::new();
    for (term, ..) in &upstream.state().project_api.events {
        *terms.entry(term.clone()).or_default() += 1;
    }
    terms
}

#[track_caller]
fn assert_complete(upstream: &Upstream, rows: &[Value]) {
    let found: BTreeMap<String, u64> = rows
        .iter()
        .map(|row| (row["searchQuery"].as_str().unwrap().to_owned(), row["hits"].as_u64().unwrap()))
        .collect();
    assert_eq!(found.len(), rows.len(), "no term twice");
    assert_eq!(found, count_hits(upstream));
    let hits: Vec<u64> = rows.iter().map(|row| row["hits"].as_u64().unwrap()).collect();
    assert!(hits.is_sorted_by(|a, b| a >= b), "in the order of the API");
}

#[test]
fn searches_all_follows_cursors_and_prints_every_term_in_every_format() {
    let upstream = upstream();
    let all = ["analytics", "searches", "--all", "--limit", "7", "--format"];
    let read = |format| host(&upstream).ok(&[&all[..], &[format]].concat()).stdout;
    let json: Value = serde_json::from_str(&read("json")).unwrap();
    let rows = json["searches"].as_array().unwrap().clone();
    assert_complete(&upstream, &rows);
    assert!(rows.iter().any(|row| row["topClickedPage"].is_null()));
    assert_eq!(json["nextCursor"], Value::Null);
    let events = upstream.state().project_api.events.len();
    assert_eq!(json["totalSearches"], events, "events, not rows");
    assert_eq!(json.as_object().unwrap().len(), 3);
    assert_eq!(upstream.count(UpstreamCall::Searches), 43);
    for request in upstream.calls(UpstreamCall::Searches) {
        assert!(request.target.contains("limit=7"), "{}", request.target);
    }

    let lines: Vec<Value> = read("ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, rows);

    let text = read("csv");
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

    let table = read("table");
    assert_eq!(table.lines().count(), 302, "a header, a line for each term, the total");
    assert!(table.lines().next().unwrap().starts_with("TERM"));
    assert!(table.contains("line\\nbreak 298"), "control characters in a term are escaped");
    assert!(
        table.trim_end().ends_with(&format!("totalSearches {events} (events in the period, not terms)")),
        "{table}"
    );
}

#[test]
fn searches_prints_50_terms_by_default_and_limit_sets_the_number() {
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
    let targets: Vec<String> =
        upstream.calls(UpstreamCall::Searches).into_iter().map(|request| request.target).collect();
    let path = "/v1/analytics/prj_7%2Fa/searches?limit=";
    assert_eq!(
        targets[..4],
        ["50", "100", "100&cursor=after%2B%2F%3D100", "50&cursor=after%2B%2F%3D200"].map(|q| format!("{path}{q}"))
    );
    let table = host(&upstream).ok(&["analytics", "searches"]).stdout;
    assert!(table.contains("50 terms, and there are more: --limit N or --all;"), "{table}");
    // A request reads 100 terms, and the API answers 100 requests an hour.
    for (limit, is_warned) in [("10000", false), ("10001", true)] {
        let stderr = host(&upstream).ok(&["analytics", "searches", "--limit", limit]).stderr;
        let warning = "101 requests are needed, and the API answers 100 an hour";
        assert_eq!((stderr.contains("are needed"), stderr.contains(warning)), (is_warned, is_warned), "{stderr}");
    }
}

#[test]
fn from_to_and_since_become_date_parameters_and_the_end_is_exclusive() {
    let upstream = upstream();
    upstream.state().project_api.events =
        ["2026-08-01", "2026-08-02", "2026-08-03"].map(|day| (day.to_owned(), day.to_owned(), None)).into();
    let host = host(&upstream);
    let terms = |arguments: &[&str]| {
        let json = host.ok(&[&["analytics", "searches", "--json"], arguments].concat()).json();
        json["searches"].as_array().unwrap().len()
    };
    assert_eq!(terms(&["--from", "2026-08-02", "--to", "2026-08-03"]), 1);
    assert!(upstream.log()[0].target.ends_with("?dateFrom=2026-08-02&dateTo=2026-08-03&limit=50"));
    assert_eq!(terms(&["--from", "2026-08-01T00:00:00Z"]), 3);
    assert!(
        upstream.log()[1].target.contains("dateFrom=2026-08-01T00%3A00%3A00Z&limit"),
        "{}",
        upstream.request_history()
    );
    assert_eq!(terms(&["--since", "2d", "--to", "2026-08-03"]), 2);
    assert!(upstream.log()[2].target.contains("dateFrom=2026-08-01&dateTo=2026-08-03&"));
    terms(&["--since", "30d"]);
    let day = &rfc3339_in(-30 * 86400)[..10];
    assert!(upstream.log()[3].target.contains(&format!("dateFrom={day}&limit")), "{}", upstream.request_history());
    assert!(host.ok(&["analytics", "searches", "--help"]).stdout.contains("exclusive"));
}

#[test]
fn invalid_searches_options_fail_before_any_request() {
    let upstream = upstream();
    let host = host(&upstream);
    for arguments in [
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
        host.expect_exit(2, &[&["analytics", "searches"], arguments].concat());
    }
    assert!(Host::new(&upstream).expect_exit(2, &["analytics", "searches"]).stderr.contains("api.projectId"));
    assert!(upstream.log().is_empty(), "{}", upstream.request_history());
}

#[test]
fn repeated_cursor_ends_searches_with_an_error() {
    let upstream = upstream();
    let page = json!({"searches": [{"searchQuery": "x", "hits": 1}], "totalSearches": 9, "nextCursor": "round"});
    upstream.on(UpstreamCall::Searches).respond_with(raw_reply("application/json", page.to_string()));
    let host = host(&upstream);
    let output = host.expect_exit(4, &["analytics", "searches", "--all"]);
    assert!(output.stderr.contains("\"round\" again"), "{}", output.stderr);
    assert_eq!((upstream.count(UpstreamCall::Searches), output.stdout.as_str()), (2, ""));
    // The spool of the endless reading is removed.
    upstream.clear_rules();
    assert_eq!(
        host.ok(&["analytics", "searches", "--all", "--json"]).json()["searches"].as_array().unwrap().len(),
        300
    );
}

#[test]
fn empty_pages_and_fields_of_unexpected_types_are_accepted() {
    let upstream = upstream();
    let first =
        r#"{"searches":[{"searchQuery":"half \ud83d","hits":"12","ctr":"0.5","x":[]},{"hits":null}],"nextCursor":"b"}"#;
    upstream.on(UpstreamCall::Searches).times(1).respond_with(raw_reply("text/html", first));
    upstream
        .on(UpstreamCall::Searches)
        .times(1)
        .respond_with(raw_reply("application/json", r#"{"searches":[],"totalSearches":12,"nextCursor":"c"}"#));
    upstream
        .on(UpstreamCall::Searches)
        .times(1)
        .respond_with(raw_reply("application/json", r#"{"searches":null,"nextCursor":null}"#));
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
fn interrupted_searches_resume_without_losing_or_repeating_a_term() {
    let upstream = upstream();
    let host = host(&upstream);
    let all = ["analytics", "searches", "--all", "--limit", "7", "--format", "ndjson"];
    upstream.on(UpstreamCall::Searches).after(20).respond_with(no_reply());
    let child = host.command(&all).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let mut child = child.unwrap();
    until("twenty pages were read", || upstream.count(UpstreamCall::Searches) == 21);
    child.kill().unwrap();
    child.wait().unwrap();
    upstream.clear_rules();
    // A page that was written incompletely does not count.
    let spool = std::fs::read_dir(host.path("store/api")).unwrap().map(|entry| entry.unwrap().path());
    let spool =
        spool.into_iter().find(|path| path.extension().is_some_and(|end| end == "jsonl")).expect("the spool file");
    let spooled = std::fs::read(&spool).unwrap();
    std::fs::write(&spool, [&spooled[..], &b"{\"searches\":[{\"sea"[..]].concat()).unwrap();
    let output = host.ok(&all);
    assert!(output.stderr.contains("interrupted after 140 terms"), "{}", output.stderr);
    let rows: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_complete(&upstream, &rows);
    assert_eq!(upstream.count(UpstreamCall::Searches), 21 + 23, "pages that were read are not requested again");
    assert!(!spool.exists(), "the spool is removed after printing");
    // The spool stays if the terms could not be printed.
    let count_before = upstream.count(UpstreamCall::Searches);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = host.command(&all).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(8) && stderr.contains("no space left"), "{stderr}");
    let read = upstream.count(UpstreamCall::Searches);
    assert_eq!(read, count_before + 43);
    let rows: Vec<Value> = host.ok(&all).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_complete(&upstream, &rows);
    assert!(upstream.count(UpstreamCall::Searches) <= read + 1, "pages that were read are not requested again");
    // Another query begins with its first page.
    let before = upstream.log().len();
    host.ok(&["analytics", "searches", "--all", "--from", "2026-08-01"]);
    assert!(!upstream.log()[before].target.contains("cursor"));
}

// Regression: a stored cursor that was refused with another status than 400 stopped a report for a day.
#[test]
fn searches_restart_from_the_first_page_when_the_stored_cursor_is_rejected() {
    run_concurrently(&[400, 404, 410, 422], |status| {
        let upstream = upstream();
        let host = host(&upstream);
        let all = ["analytics", "searches", "--all", "--limit", "100", "--json"];
        upstream.on(UpstreamCall::Searches).after(1).respond_with(error_reply(401));
        host.expect_exit(3, &all);
        upstream.clear_rules();
        let details = json!({"error": "Invalid cursor", "details": [{"message": "cursor: has expired"}]});
        upstream.on(UpstreamCall::Searches).times(1).respond_with(error_reply(*status).json(&details));
        let output = host.ok(&all);
        assert!(
            output.stderr.contains("starts again from the beginning") && output.stderr.contains("has expired"),
            "{}",
            output.stderr
        );
        assert_complete(&upstream, output.json()["searches"].as_array().unwrap());
    });
}

// Regression: pages of searches without any term used up the whole budget, and a cursor too long for a URL was
// requested again and again.
#[test]
fn endless_pages_and_overlong_cursors_end_before_they_use_up_the_budget() {
    let upstream = upstream();
    for n in 0..50 {
        let page = json!({"searches": [], "totalSearches": 0, "nextCursor": n.to_string()});
        upstream.on(UpstreamCall::Searches).times(1).respond_with(raw_reply("application/json", page.to_string()));
    }
    assert!(
        host(&upstream).expect_exit(4, &["analytics", "searches"]).stderr.contains("page after page without a term")
    );
    assert_eq!(upstream.count(UpstreamCall::Searches), 10);
    upstream.clear_rules();
    let page = json!({"searches": [{"searchQuery": "x"}], "nextCursor": "c".repeat(100_000)});
    upstream.on(UpstreamCall::Searches).respond_with(raw_reply("application/json", page.to_string()));
    assert!(host(&upstream).expect_exit(4, &["analytics", "searches"]).stderr.contains("too long for a URL"));
    assert_eq!(upstream.count(UpstreamCall::Searches), 11);
}

// Regression: a signal could not end a command that printed into a pipe that no process read.
#[test]
fn sigterm_ends_searches_while_its_stdout_pipe_is_full() {
    let upstream = upstream();
    let host = host(&upstream);
    // More than the capacity of a pipe.
    for n in 0..300 {
        upstream.state().project_api.events.push((format!("{}{n}", "x".repeat(400)), "2026-08-10".into(), None));
    }
    let mut command = host.command(&["analytics", "searches", "--all", "--format", "json"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let pipe = child.stdout.take().unwrap();
    until("the pipe is full", || rustix::io::ioctl_fionread(&pipe).unwrap() >= 60_000);
    send_signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn second_process_fails_while_another_reads_the_same_searches() {
    let upstream = upstream();
    let host = host(&upstream);
    upstream.on(UpstreamCall::Searches).respond_with(no_reply());
    let all = ["analytics", "searches", "--all"];
    let mut child = host.command(&all).stderr(std::process::Stdio::null()).spawn().unwrap();
    until("it sends a request", || upstream.count(UpstreamCall::Searches) == 1);
    assert!(host.expect_exit(4, &all).stderr.contains("another docwharf process is reading them"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn api_errors_print_every_detail_and_set_the_exit_code() {
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
    run_concurrently(&cases, |(status, body, code, expected)| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Searches).respond_with(error_reply(*status).json(body));
        let output = host(&upstream).expect_exit(*code, &["analytics", "searches"]);
        assert!(output.stderr.contains(expected), "{}", output.stderr);
        assert_eq!(upstream.count(UpstreamCall::Searches), 1, "final at once");
    });
}

#[test]
fn searches_retry_after_a_500_response_and_fail_after_five() {
    let upstream = upstream();
    upstream
        .on(UpstreamCall::Searches)
        .times(1)
        .respond_with(error_reply(500).json(&json!({"error": "Internal server error"})));
    let host = host(&upstream);
    host.ok(&["analytics", "searches"]);
    assert_eq!(upstream.count(UpstreamCall::Searches), 2);
    upstream.on(UpstreamCall::Searches).respond_with(error_reply(500).json(&json!({"error": "Internal server error"})));
    assert!(host.expect_exit(4, &["analytics", "searches"]).stderr.contains("Internal server error"));
    assert_eq!(upstream.count(UpstreamCall::Searches), 7);
}

/// Writes a budget in which `requests` were sent half an hour ago.
pub(crate) fn write_budget(host: &Host, upstream: &Upstream, requests: usize) {
    std::fs::create_dir_all(host.path("store/api")).unwrap();
    let then = rfc3339_in(-1800).parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let name = format!("analytics {}", upstream.base_url());
    let book = json!({"schemaVersion": 1, "budgets": {name: {"sent": vec![then; requests], "closedUntil": null}}});
    std::fs::write(host.path("store/api/budget.json"), book.to_string()).unwrap();
}

#[test]
fn hourly_request_budget_and_pages_already_read_persist_between_processes() {
    let upstream = upstream();
    let host = host(&upstream);
    write_budget(&host, &upstream, 98);
    let all = ["analytics", "searches", "--all", "--json", "--no-wait-for-budget"];
    let output = host.expect_exit(4, &all);
    assert!(output.stderr.contains("100 requests for analytics in 1h"), "{}", output.stderr);
    assert_eq!(upstream.count(UpstreamCall::Searches), 2);
    let failure: Value = serde_json::from_str(&output.stdout).expect("JSON, and nothing before it");
    assert_eq!(failure["error"]["exit"], 4);
    host.expect_exit(4, &["analytics", "searches", "--no-wait-for-budget"]);
    assert_eq!(upstream.count(UpstreamCall::Searches), 2, "another process, another query, one budget");
    // Half an hour later.
    std::fs::remove_file(host.path("store/api/budget.json")).unwrap();
    let output = host.ok(&all);
    assert_complete(&upstream, output.json()["searches"].as_array().unwrap());
    assert_eq!(upstream.count(UpstreamCall::Searches), 3, "the third page of three");
}

// Regression: a budget that a `Retry-After` had closed was reported as used up.
#[test]
fn retry_after_of_a_429_response_blocks_later_processes_too() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Searches).times(1).respond_with(error_reply(429).header("Retry-After", "1800"));
    let host = host(&upstream);
    let output = host.expect_exit(4, &["analytics", "searches"]);
    assert!(output.stderr.contains("1800 s"), "{}", output.stderr);
    let output = host.expect_exit(4, &["analytics", "searches"]);
    assert!(output.stderr.contains("demands a pause of its calls for analytics"), "{}", output.stderr);
    assert!(output.stderr.contains("free in 29m") || output.stderr.contains("free in 30m"), "{}", output.stderr);
    assert_eq!(upstream.count(UpstreamCall::Searches), 1);
}

#[test]
fn wait_for_the_request_budget_is_logged_and_ends_on_sigint() {
    let upstream = upstream();
    let host = host(&upstream);
    write_budget(&host, &upstream, 100);
    let mut command = host.command(&["analytics", "searches"]);
    let log = host.path("log");
    command.stdout(std::process::Stdio::piped()).stderr(std::fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let log_text = || std::fs::read_to_string(&log).unwrap();
    until("the wait is logged", || log_text().contains("waiting 30m"));
    send_signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", log_text());
    assert!(upstream.log().is_empty());
}

#[test]
fn api_key_is_in_neither_output_nor_stored_files() {
    let upstream = upstream();
    let host = host(&upstream);
    upstream
        .on(UpstreamCall::Searches)
        .after(1)
        .respond_with(error_reply(401).json(&json!({"error": format!("bad key {KEY}")})));
    let mut command = host.command(&["analytics", "searches", "--all", "-vv"]);
    let output = expect_plain_exit(3, run_with_timeout(&mut command));
    assert!(output.stderr.contains("GET /analytics/prj_7/a/searches: 200 in "), "{}", output.stderr);
    assert!(!output.stderr.contains(KEY) && !output.stdout.contains(KEY));
    for entry in std::fs::read_dir(host.path("store/api")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains(KEY));
    }
}

// Regression: a full disk kept previews and searches from being requested.
// Regression: a budget that was used up was forgotten on a full disk.
#[test]
fn searches_work_on_a_full_disk_and_the_used_budget_stays_used() {
    let upstream = upstream();
    let disk = SmallDisk::new("size=1m");
    let host = host(&upstream).set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    let all = ["analytics", "searches", "--all", "--limit", "50", "--json"];
    // The budget file exists already, and there is no space for the third page.
    host.ok(&["analytics", "searches"]);
    disk.leave_free_bytes(20 << 10);
    let output = host.ok(&all);
    assert!(
        output.stderr.contains("no space") && output.stderr.contains("cannot be resumed from here"),
        "{}",
        output.stderr
    );
    assert_complete(&upstream, output.json()["searches"].as_array().unwrap());
    disk.leave_free_bytes(0);
    let output = host.ok(&all);
    assert!(output.stderr.contains("counted for this command alone"), "{}", output.stderr);
    assert_complete(&upstream, output.json()["searches"].as_array().unwrap());
    // A budget that is used up stays used up.
    disk.remove_fillers();
    std::fs::remove_dir_all(disk.path("store/api")).unwrap();
    let then = rfc3339_in(-1800).parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let name = format!("analytics {}", upstream.base_url());
    let sent: Vec<i64> = (0..99).map(|n| then + n).collect();
    std::fs::create_dir_all(disk.path("store/api")).unwrap();
    let book = json!({"schemaVersion": 1, "budgets": {name: {"sent": sent, "closedUntil": null}}});
    std::fs::write(disk.path("store/api/budget.json"), book.to_string()).unwrap();
    std::fs::write(disk.path("store/api/lock"), "").unwrap();
    disk.leave_free_bytes(0);
    let before = upstream.count(UpstreamCall::Searches);
    host.expect_exit(4, &["analytics", "searches", "--limit", "300", "--no-wait-for-budget"]);
    assert_eq!(upstream.count(UpstreamCall::Searches), before + 1);
}
