//! `analytics` on what this host has recorded: without a daemon, beside one, and read by another host through its API.

use std::path::Path;
use std::sync::Arc;

use docwharf::model::reader_activity::{
    DayActivity, ReaderActivity, SearchActivity, SearchId, SearchSource, ViewCounts,
};
use docwharf::reader_analytics::recording::{ActivityWriter, AnalyticsStore, WriterSettings};
use docwharf::store::ANALYTICS_DATABASE;
use serde_json::{Value, json};
use support::host::{Host, bundle, toml_string};
use support::project_api::PROJECT;
use support::until;
use support::upstream::{DOMAIN, Upstream};

/// 2026-01-01, in days since 1970.
const DAY: i64 = 20_454;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Returns a search at this second of a day, with the second as its id.
fn search(day: i64, second: u32, query: &str, results: Option<u64>) -> SearchActivity {
    let (id, source) = (Some(SearchId(u64::from(second))), SearchSource::Reader);
    let time = day * DAY_MS + i64::from(second) * 1000;
    SearchActivity::Search { id, query: query.to_owned(), results, source, time }
}

/// Returns a click on a result of the search at this second of a day.
fn click(day: i64, second: u32, page: &str) -> SearchActivity {
    let time = day * DAY_MS + i64::from(second) * 1000 + 500;
    SearchActivity::Click { id: SearchId(u64::from(second)), page: page.to_owned(), time }
}

fn counts(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|&(key, count)| (key.to_owned(), count)).collect()
}

fn views(views: &[(&str, [u64; 3])]) -> Vec<(String, ViewCounts)> {
    views.iter().map(|&(path, [human, ai, bot])| (path.to_owned(), ViewCounts { human, ai, bot })).collect()
}

/// The activity of two days, from `day` on: seven searches, of which two found nothing, and ten views.
fn activity_from(day: i64) -> ReaderActivity {
    let searches = vec![
        search(day, 1, "Rate limits", Some(7)),
        click(day, 1, "/api/limits"),
        search(day, 2, " rate  LIMITS ", Some(7)),
        click(day, 2, "/api/limits"),
        search(day, 3, "rate limits", Some(7)),
        search(day, 4, "webhooks", Some(2)),
        search(day, 7, "übung", None),
        search(day + 1, 5, "terraform", Some(0)),
        search(day + 1, 6, "terraform", Some(0)),
    ];
    let first = DayActivity {
        day,
        views: views(&[("/", [3, 1, 2]), ("/guide", [1, 4, 0])]),
        entries: counts(&[("/", 2)]),
        referrers: counts(&[("search.example", 2), ("a.example", 1)]),
        not_found: counts(&[("/gone", 1)]),
        agents: counts(&[("Firefox", 4), ("GPTBot", 5)]),
    };
    let second = DayActivity { day: day + 1, views: views(&[("/", [1, 0, 0])]), ..DayActivity::default() };
    ReaderActivity { days: vec![first, second], searches, dropped: 0 }
}

/// Writes activity to the store of a host, as `run` does.
fn record(host: &Host, activity: ReaderActivity, now: i64) {
    std::fs::create_dir_all(host.path("store")).unwrap();
    let store = Arc::new(AnalyticsStore::open(&host.path("store").join(ANALYTICS_DATABASE)).unwrap());
    let settings = WriterSettings { mask: true, keep: None, max_bytes: u64::MAX };
    ActivityWriter::new(Arc::clone(&store), settings).write(activity, now).unwrap();
    store.close();
}

/// A host without `[api]` on which two days were recorded, from 2026-01-01 on.
fn recorded_host() -> Host {
    let host = Host::bare();
    record(&host, activity_from(DAY), (DAY + 2) * DAY_MS);
    host
}

fn read(host: &Host, arguments: &[&str]) -> Value {
    host.ok(&[&["analytics"], arguments, &["--json"]].concat()).json()
}

fn terms(page: &Value) -> Vec<&str> {
    page["searches"].as_array().unwrap().iter().map(|term| term["searchQuery"].as_str().unwrap()).collect()
}

/// Returns whether a text is in one of the files of a folder.
fn is_in_files(folder: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let contents: Vec<Vec<u8>> = files.map(|path| std::fs::read(path).unwrap()).collect();
    contents.iter().any(|content| content.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[test]
fn searches_without_an_api_are_those_that_this_host_has_recorded() {
    let host = recorded_host();
    let term = |query: &str, hits: u64, ctr: f64, page: Option<&str>, last: &str| json!({ "searchQuery": query, "hits": hits, "ctr": ctr, "topClickedPage": page, "lastSearchedAt": last });
    let all = [
        term("rate limits", 3, 0.6667, Some("/api/limits"), "2026-01-01T00:00:03Z"),
        term("terraform", 2, 0.0, None, "2026-01-02T00:00:06Z"),
        term("webhooks", 1, 0.0, None, "2026-01-01T00:00:04Z"),
        term("übung", 1, 0.0, None, "2026-01-01T00:00:07Z"),
    ];
    let page = json!({ "searches": all, "totalSearches": 7, "nextCursor": null });
    assert_eq!(read(&host, &["searches"]), page);
    assert_eq!(read(&host, &["searches", "--local", "--all", "--limit", "1"]), page, "in pages of one term");
    let second_day = read(&host, &["searches", "--from", "2026-01-02"]);
    assert_eq!(second_day, json!({ "searches": [all[1]], "totalSearches": 2, "nextCursor": null }));
    let first = read(&host, &["searches", "--limit", "3"]);
    assert_eq!((terms(&first), &first["totalSearches"]), (vec!["rate limits", "terraform", "webhooks"], &json!(7)));
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(terms(&read(&host, &["searches", "--cursor", cursor])), ["übung"]);
    let csv = host.ok(&["analytics", "searches", "--format", "csv"]).stdout;
    assert_eq!(csv.lines().nth(1), Some("rate limits,3,0.6667,/api/limits,2026-01-01T00:00:03Z"));
    let table = host.ok(&["analytics", "searches"]).stdout;
    assert!(table.ends_with("4 terms; totalSearches 7 (events in the period, not terms)\n"), "{table}");
    let refused = host.expect_exit(2, &["analytics", "searches", "--cursor", "x"]);
    assert!(refused.stderr.contains("cursor: it was not created for this project"), "{}", refused.stderr);
}

#[test]
fn local_reads_this_host_without_a_key_or_a_request_although_an_api_is_configured() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("api.projectId", toml_string(PROJECT));
    record(&host, activity_from(DAY), (DAY + 2) * DAY_MS);
    std::fs::remove_file(host.path("key")).unwrap();
    assert_eq!(read(&host, &["searches", "--local"])["totalSearches"], 7);
    assert_eq!(read(&host, &["pages", "--local"])["totals"]["total"], 10);
    let days = ["report", "--local", "--from", "2026-01-01", "--to", "2026-01-03"];
    assert_eq!(read(&host, &days)["project"], PROJECT);
    assert!(upstream.log().is_empty(), "{}", upstream.request_history());
    assert!(!host.path("store/api").exists(), "no request was counted");
    host.expect_exit(2, &["analytics", "searches"]);
}

#[test]
fn no_results_lists_only_terms_whose_searches_found_nothing() {
    let host = recorded_host();
    let page = read(&host, &["searches", "--no-results"]);
    assert_eq!((terms(&page), &page["totalSearches"]), (vec!["terraform"], &json!(2)));
    assert_eq!(terms(&read(&host, &["searches", "--no-results", "--all"])), ["terraform"]);
    assert!(terms(&read(&host, &["searches", "--no-results", "--to", "2026-01-02"])).is_empty());
}

#[test]
fn report_on_this_host_has_its_searches_and_the_name_of_its_project() {
    let host = recorded_host().set("analytics.projectId", toml_string("harbour"));
    let days = ["--from", "2026-01-02", "--to", "2026-01-03", "--compare", "previous"];
    let report = read(&host, &[&["report"], &days[..]].concat());
    assert_eq!(report["project"], "harbour");
    assert_eq!((&report["period"]["totalSearches"], &report["previous"]["totalSearches"]), (&json!(2), &json!(5)));
    assert_eq!((&report["top"][0]["searchQuery"], &report["top"][0]["hits"]), (&json!("terraform"), &json!(2)));
    assert_eq!(read(&host, &[&["report", "--all"], &days[..]].concat())["top"], report["top"]);
}

#[test]
fn pages_prints_the_views_of_this_host_in_every_format() {
    let host = recorded_host();
    let list = json!({
        "totals": { "human": 5, "ai": 5, "total": 10, "bot": 2 },
        "views": [
            { "path": "/", "human": 4, "ai": 1, "total": 5, "bot": 2 },
            { "path": "/guide", "human": 1, "ai": 4, "total": 5, "bot": 0 }
        ],
        "hasMore": false
    });
    assert_eq!(read(&host, &["pages"]), list);
    assert_eq!(read(&host, &["pages", "--all", "--limit", "1"]), list, "in parts of one page");
    let printed = |arguments: &[&str]| host.ok(&[&["analytics", "pages"], arguments].concat()).stdout;
    assert_eq!(printed(&["--format", "csv"]), "path,human,ai,total,bot\n/,4,1,5,2\n/guide,1,4,5,0\n");
    assert_eq!(
        printed(&["--format", "ndjson"]),
        "{\"path\":\"/\",\"human\":4,\"ai\":1,\"total\":5,\"bot\":2}\n\
         {\"path\":\"/guide\",\"human\":1,\"ai\":4,\"total\":5,\"bot\":0}\n"
    );
    assert_eq!(
        printed(&[]),
        "PATH    HUMAN  AI  TOTAL  BOT\n\
         /           4   1      5    2\n\
         /guide      1   4      5    0\n\
         2 pages; all pages of the period: human 5, ai 5, total 10, bot 2\n"
    );
    assert!(printed(&["--limit", "1"]).contains("\n1 page, and there are more: --limit N or --all; all pages"));
    let second = read(&host, &["pages", "--limit", "1", "--offset", "1"]);
    assert_eq!((&second["views"][0]["path"], &second["hasMore"]), (&json!("/guide"), &json!(false)));
    assert_eq!(read(&host, &["pages", "--from", "2026-01-02"])["totals"]["human"], 1);
}

#[test]
fn pages_by_a_key_prints_its_counts_in_every_format() {
    let host = recorded_host();
    for (by, rows) in [
        ("day", json!([{ "key": "2026-01-01", "count": 4 }, { "key": "2026-01-02", "count": 1 }])),
        ("referrer", json!([{ "key": "search.example", "count": 2 }, { "key": "a.example", "count": 1 }])),
        ("entry", json!([{ "key": "/", "count": 2 }])),
        ("notFound", json!([{ "key": "/gone", "count": 1 }])),
        ("agent", json!([{ "key": "GPTBot", "count": 5 }, { "key": "Firefox", "count": 4 }])),
    ] {
        let list = json!({ "by": by, "rows": rows, "hasMore": false });
        assert_eq!(read(&host, &["pages", "--by", by]), list);
        assert_eq!(read(&host, &["pages", "--by", by, "--all", "--limit", "1"]), list);
    }
    let printed = |arguments: &[&str]| host.ok(&[&["analytics", "pages", "--by"], arguments].concat()).stdout;
    assert_eq!(printed(&["day", "--format", "csv"]), "key,count\n2026-01-01,4\n2026-01-02,1\n");
    assert_eq!(printed(&["notFound", "--format", "ndjson"]), "{\"key\":\"/gone\",\"count\":1}\n");
    assert_eq!(printed(&["notFound"]), "PATH   COUNT\n/gone      1\n1 path\n");
    assert_eq!(printed(&["agent"]), "AGENT    COUNT\nGPTBot       5\nFirefox      4\n2 agents\n");
}

#[test]
fn forget_query_removes_the_term_from_searches_and_from_the_bytes_of_the_store() {
    let host = recorded_host();
    assert!(is_in_files(&host.path("store"), "rate limits"));
    let forget = ["analytics", "forget", "--query", "Rate   LIMITS"];
    let deleted = host.ok(&[&forget[..], &["--json"]].concat()).json();
    assert_eq!(deleted, json!({ "schemaVersion": 1, "searches": 3, "deliveredSearches": 0, "countRows": 0 }));
    let page = read(&host, &["searches"]);
    assert_eq!((terms(&page), &page["totalSearches"]), (vec!["terraform", "webhooks", "übung"], &json!(4)));
    assert!(!is_in_files(&host.path("store"), "rate limits"));
    assert!(is_in_files(&host.path("store"), "terraform"));
    let again = host.ok(&forget).stdout;
    assert_eq!(again, "nothing was deleted, because there is no search for \"Rate   LIMITS\"\n");
    assert_eq!(read(&host, &["pages"])["totals"]["total"], 10, "views stay");
}

#[test]
fn forget_before_removes_the_searches_and_views_of_earlier_days() {
    let host = recorded_host();
    let deleted = host.ok(&["analytics", "forget", "--before", "2026-01-02", "--json"]).json();
    assert_eq!(deleted["searches"], 5);
    assert!(deleted["countRows"].as_u64().unwrap() > 0, "{deleted}");
    assert_eq!(terms(&read(&host, &["searches"])), ["terraform"]);
    assert_eq!(read(&host, &["pages", "--by", "day"])["rows"], json!([{ "key": "2026-01-02", "count": 1 }]));
    assert!(!is_in_files(&host.path("store"), "search.example"));
    let again = host.ok(&["analytics", "forget", "--before", "2026-01-02"]).stdout;
    assert_eq!(again, "nothing was deleted, because nothing was recorded before 2026-01-02\n");
    let rest = host.ok(&["analytics", "forget", "--before", "2999-01-01"]).stdout;
    assert!(rest.starts_with("deleted what was recorded before 2999-01-01: 2 searches and "), "{rest}");
    assert_eq!(read(&host, &["searches"])["totalSearches"], 0);
}

#[test]
fn invalid_options_of_pages_and_forget_are_usage_errors() {
    let host = recorded_host();
    for arguments in [
        &["pages", "--by", "week"][..],
        &["pages", "--limit", "0"],
        &["pages", "--offset", "1000001"],
        &["pages", "--all", "--offset", "1"],
        &["pages", "--all", "--limit", "251"],
        &["pages", "--from", "yesterday"],
        &["pages", "--format", "csv", "--json"],
        &["forget"],
        &["forget", "--before", "2026-01-02", "--query", "x"],
        &["forget", "--before", "yesterday"],
        &["forget", "--before", "2026-01-02T00:00:00Z"],
        &["forget", "--query", " "],
    ] {
        host.expect_exit(2, &[&["analytics"], arguments].concat());
    }
    assert_eq!(read(&host, &["searches"])["totalSearches"], 7, "nothing was deleted");
}

#[test]
fn a_host_that_has_recorded_nothing_says_so_in_one_line_and_creates_no_file() {
    let host = Host::bare();
    let path = host.path("store").join(ANALYTICS_DATABASE);
    for arguments in [
        &["searches"][..],
        &["searches", "--local", "--all"],
        &["report"],
        &["pages"],
        &["pages", "--by", "day"],
        &["forget", "--query", "x"],
    ] {
        let stderr = host.expect_exit(1, &[&["analytics"], arguments].concat()).stderr;
        let expected = format!("{} does not exist, because nothing was recorded here yet", path.display());
        assert!(stderr.contains(&expected) && stderr.contains("analytics.enabled"), "{stderr}");
    }
    let failure = host.expect_exit(1, &["analytics", "pages", "--json"]).json();
    assert_eq!(failure["error"]["exit"], 1);
    assert_eq!(failure["error"]["nextStep"], "start docwharf run; it records while analytics.enabled is true");
    let without_option = host.expect_exit(1, &["analytics", "searches"]).stderr;
    assert!(without_option.contains("to read from an API, set api.baseUrl"), "{without_option}");
    assert!(!path.exists());
}

#[test]
fn a_damaged_file_is_one_line_with_its_path_and_stays_as_it_is() {
    let host = recorded_host();
    let path = host.path("store").join(ANALYTICS_DATABASE);
    let garbage = "no database ".repeat(1000);
    std::fs::write(&path, &garbage).unwrap();
    for arguments in [&["searches"][..], &["pages"], &["forget", "--before", "2026-01-02"]] {
        let stderr = host.expect_exit(8, &[&["analytics"], arguments].concat()).stderr;
        assert!(stderr.contains(path.to_str().unwrap()), "{stderr}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), garbage);
}

/// Waits for the listener of the API and returns its address.
fn wait_for_admin(host: &Host) -> String {
    let address = || host.status()["daemon"]["admin"][0].as_str().map(str::to_owned);
    until("the admin listener is open", || address().is_some());
    address().unwrap().trim_end_matches('/').to_owned()
}

#[test]
fn commands_work_beside_the_daemon_and_on_another_host_through_its_api() {
    const KEY: &str = "0123456789abcdef-analytics";
    let recording = Host::bare()
        .set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("sync.interval", toml_string("1h"))
        .set("admin.listen", toml_string("127.0.0.1:0"))
        .set("analytics.keyFile", toml_string("keys"))
        .set("analytics.projectId", toml_string("docs"));
    recording.put_bundle(&bundle("one"));
    recording.put("keys", KEY);
    // The daemon deletes what is too old.
    let now = jiff::Timestamp::now().as_millisecond();
    record(&recording, activity_from(now / DAY_MS - 3), now);
    let _daemon = recording.run();
    let base = format!("{}/v1", wait_for_admin(&recording));
    let other = Host::bare()
        .set("api.baseUrl", toml_string(&base))
        .set("api.domain", toml_string(DOMAIN))
        .set("api.projectId", toml_string("docs"))
        .set("api.keyFile", toml_string("key"))
        .set("sync.probe", "[]");
    other.put("key", KEY);
    let print_all = |host: &Host| {
        [
            &["searches", "--format", "json"][..],
            &["searches", "--no-results", "--all", "--limit", "1", "--format", "csv"],
            &["pages", "--format", "json"],
            &["pages", "--all", "--limit", "1"],
            &["pages", "--by", "agent", "--format", "json"],
            &["report", "--since", "7d"],
        ]
        .map(|arguments| host.ok(&[&["analytics"], arguments].concat()).stdout)
    };
    let printed = print_all(&recording);
    assert!(printed[0].contains("rate limits") && printed[1].contains("terraform"), "{printed:?}");
    assert!(printed[2].contains("/guide") && printed[4].contains("GPTBot"), "{printed:?}");
    assert!(printed[5].starts_with("Searches in docs, "), "{}", printed[5]);
    assert_eq!(print_all(&other), printed);
    recording.ok(&["analytics", "forget", "--query", "terraform"]);
    assert!(!is_in_files(&recording.path("store"), "terraform"));
    assert!(!other.ok(&["analytics", "searches"]).stdout.contains("terraform"));
}
