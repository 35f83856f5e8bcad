//! `analytics pages`, and `analytics searches --no-results`, against an upstream that records every request.

use serde_json::{Value, json};
use support::host::{Host, bundle, toml_string};
use support::project_api::PROJECT;
use support::upstream::{Upstream, UpstreamCall, raw_reply};

use crate::analytics::write_budget;

/// The kind of requests for views and counts.
const CALL: UpstreamCall = UpstreamCall::Other;

fn host(upstream: &Upstream) -> Host {
    Host::new(upstream).set("api.projectId", toml_string(PROJECT))
}

/// Makes the upstream respond once with this object.
fn respond_once(upstream: &Upstream, call: UpstreamCall, object: &Value) {
    upstream.on(call).times(1).respond_with(raw_reply("application/json", object.to_string()));
}

fn targets(upstream: &Upstream) -> Vec<String> {
    upstream.log().into_iter().map(|request| request.target).collect()
}

/// A part of the list of views; the pages have these paths.
fn views(paths: &[&str], has_more: bool) -> Value {
    let pages: Vec<Value> =
        paths.iter().map(|path| json!({ "path": path, "human": 3, "ai": 1, "total": 4, "bot": 2 })).collect();
    json!({ "totals": { "human": 9, "ai": 3, "total": 12, "bot": 6 }, "views": pages, "hasMore": has_more })
}

#[test]
fn pages_all_requests_250_rows_at_a_time_until_there_are_no_more() {
    let upstream = Upstream::new(bundle("one"));
    respond_once(&upstream, CALL, &views(&["/a", "/b"], true));
    respond_once(&upstream, CALL, &views(&["/c"], false));
    let host = host(&upstream);
    let list = host.ok(&["analytics", "pages", "--all", "--from", "2026-01-01", "--json"]).json();
    assert_eq!(list, views(&["/a", "/b", "/c"], false));
    let path = "/v1/analytics/prj_7%2Fa/views?dateFrom=2026-01-01&limit=250";
    assert_eq!(targets(&upstream), [path.to_owned(), format!("{path}&offset=2")]);
}

#[test]
fn pages_requests_the_wanted_rows_after_an_offset() {
    let upstream = Upstream::new(bundle("one"));
    // A server may send fewer rows than requested although there are more.
    respond_once(&upstream, CALL, &views(&["/a"], true));
    respond_once(&upstream, CALL, &views(&["/b"], true));
    respond_once(&upstream, CALL, &views(&["/a", "/b"], true));
    respond_once(&upstream, CALL, &views(&["/a"], false));
    let host = host(&upstream);
    let table = host.ok(&["analytics", "pages", "--limit", "2"]).stdout;
    let totals = "all pages of the period: human 9, ai 3, total 12, bot 6";
    let note = format!("2 pages, and there are more: --limit N or --all; {totals}");
    assert_eq!(table.lines().last(), Some(note.as_str()));
    host.ok(&["analytics", "pages", "--limit", "2", "--offset", "7"]);
    host.ok(&["analytics", "pages"]);
    let expected = ["2", "1&offset=1", "2&offset=7", "50"];
    assert_eq!(targets(&upstream), expected.map(|query| format!("/v1/analytics/prj_7%2Fa/views?limit={query}")));
}

#[test]
fn pages_by_a_key_names_it_in_the_request() {
    let upstream = Upstream::new(bundle("one"));
    let rows = json!([{ "key": "/a,\n\"b\"", "count": 3 }, { "key": "(other)", "count": 2 }]);
    let list = json!({ "by": "notFound", "rows": rows, "hasMore": false });
    respond_once(&upstream, CALL, &list);
    respond_once(&upstream, CALL, &list);
    respond_once(&upstream, CALL, &list);
    let host = host(&upstream);
    assert_eq!(host.ok(&["analytics", "pages", "--by", "notFound", "--json"]).json(), list);
    assert_eq!(targets(&upstream), ["/v1/analytics/prj_7%2Fa/pages?by=notFound&limit=50"]);
    let csv = host.ok(&["analytics", "pages", "--by", "notFound", "--format", "csv"]).stdout;
    assert_eq!(csv, "key,count\n\"/a,\n\"\"b\"\"\",3\n(other),2\n");
    let table = host.ok(&["analytics", "pages", "--by", "notFound"]).stdout;
    assert!(table.contains("/a,\\n\"b\""), "control characters are escaped: {table}");
}

#[test]
fn views_of_a_server_that_does_not_count_bots_are_accepted() {
    let upstream = Upstream::new(bundle("one"));
    let page = json!({ "path": "/a", "human": 3, "ai": "1", "total": 4 });
    let list = json!({ "totals": { "human": 3, "ai": 1, "total": 4 }, "views": [page], "hasMore": false });
    for _ in 0..3 {
        respond_once(&upstream, CALL, &list);
    }
    let host = host(&upstream);
    let printed = |format| host.ok(&["analytics", "pages", "--format", format]).stdout;
    assert_eq!(printed("csv"), "path,human,ai,total,bot\n/a,3,1,4,\n");
    let json: Value = serde_json::from_str(&printed("json")).unwrap();
    assert_eq!(json["views"][0], json!({ "path": "/a", "human": 3, "ai": 1, "total": 4, "bot": null }));
    assert!(printed("table").ends_with("1 page; all pages of the period: human 3, ai 1, total 4, bot unknown\n"));
}

#[test]
fn a_server_that_returns_no_rows_and_reports_more_ends_pages_with_an_error() {
    let upstream = Upstream::new(bundle("one"));
    respond_once(&upstream, CALL, &views(&["/a"], true));
    respond_once(&upstream, CALL, &views(&[], true));
    let output = host(&upstream).expect_exit(4, &["analytics", "pages", "--all"]);
    assert!(output.stderr.contains("after 1 row the API returns no row"), "{}", output.stderr);
    assert_eq!((upstream.count(CALL), output.stdout.as_str()), (2, ""));
}

#[test]
fn rows_that_move_while_they_are_read_are_reported() {
    let upstream = Upstream::new(bundle("one"));
    respond_once(&upstream, CALL, &views(&["/a", "/b"], true));
    respond_once(&upstream, CALL, &views(&["/b"], false));
    let output = host(&upstream).ok(&["analytics", "pages", "--all", "--json"]);
    assert!(output.stderr.contains("read 1 row more than once"), "{}", output.stderr);
}

#[test]
fn pages_uses_the_budget_of_searches() {
    let upstream = Upstream::new(bundle("one"));
    let host = host(&upstream);
    write_budget(&host, &upstream, 99);
    respond_once(&upstream, CALL, &views(&["/a"], false));
    host.ok(&["analytics", "pages", "--no-wait-for-budget"]);
    for arguments in [&["pages"][..], &["pages", "--by", "day"], &["searches"]] {
        let output = host.expect_exit(4, &[&["analytics"], arguments, &["--no-wait-for-budget"]].concat());
        assert!(output.stderr.contains("100 requests for analytics in 1h"), "{}", output.stderr);
    }
    assert_eq!(upstream.log().len(), 1);
}

#[test]
fn no_results_is_sent_with_each_request_for_searches() {
    let upstream = Upstream::new(bundle("one"));
    let page = |next: Value| json!({ "searches": [{ "searchQuery": "x" }], "totalSearches": 2, "nextCursor": next });
    respond_once(&upstream, UpstreamCall::Searches, &page(json!("next")));
    respond_once(&upstream, UpstreamCall::Searches, &page(Value::Null));
    host(&upstream).ok(&["analytics", "searches", "--no-results", "--all"]);
    let path = "/v1/analytics/prj_7%2Fa/searches?limit=100";
    assert_eq!(targets(&upstream), [format!("{path}&noResults=true"), format!("{path}&cursor=next&noResults=true")]);
}
