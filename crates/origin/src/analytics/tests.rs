//! Events and queries with a real database, compared with a model that only counts.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use tempfile::TempDir;

use docwharf_analytics::delivery::{SearchBatch, SearchReceipt, ViewBatch, receive_view_batch};
use docwharf_analytics::query_error::{InvalidRequest, QueryError};
use docwharf_analytics::searches::query::query_searches_within;
use docwharf_analytics::searches::rows::{bytes_of_batch, bytes_of_row};
use docwharf_analytics::searches::time::format_rfc3339;
use docwharf_analytics::searches::{Aggregate, Searches, delete_older_than, projects_with_rows, query_searches};
use docwharf_analytics::views::delete_views_before;

use super::batch::receive_at;
use super::{AnalyticsError, DatabaseUsage};
use crate::database::{Database, open_database};

const SECRET: [u8; 32] = [7; 32];
/// 2026-11-21T00:00:00Z.
const NOW: i64 = 1_795_219_200_000;
const DAY: i64 = 86_400_000;

pub(super) fn database() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let db = open_database(&folder.path().join("origin.db")).unwrap();
    (folder, db)
}

/// A pseudo-random generator; a seed always returns the same numbers.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Debug, Clone)]
struct ModelSearch {
    query: String,
    time: i64,
    page: Option<String>,
}

fn format_time(millisecond: i64) -> String {
    format_rfc3339(millisecond).unwrap()
}

fn batch_body(id: &str, events: &[ModelSearch]) -> Vec<u8> {
    let events = events.iter().map(|event| {
        serde_json::json!({ "query": event.query, "time": format_time(event.time), "clickedPage": event.page, "more": [1e300] })
    });
    let events: Vec<_> = events.collect();
    serde_json::json!({ "events": events, "batchId": id, "sentBy": null }).to_string().into_bytes()
}

fn send(db: &Database, id: &str, events: &[ModelSearch]) -> SearchReceipt {
    receive_at(db, "p", &batch_body(id, events), NOW).unwrap()
}

fn search(query: &str, time: i64, page: Option<&str>) -> ModelSearch {
    ModelSearch { query: query.to_owned(), time, page: page.map(str::to_owned) }
}

pub(super) fn query_page(db: &Database, query: &str) -> Searches {
    let page = query_searches(db, "p", Some(query), &SECRET, i64::MIN).unwrap();
    // With so little memory, nearly all totals go through the temporary file.
    let spilled_page = query_searches_within(1000, db, ("p", &SECRET, i64::MIN), Some(query)).unwrap();
    assert_eq!(spilled_page, page);
    page
}

fn error_details(result: Result<Searches, QueryError>) -> Vec<String> {
    match result {
        Err(QueryError::Invalid(InvalidRequest { details, .. })) => details,
        other => panic!("{other:?}"),
    }
}

/// Computes the expected result by counting.
fn expected_terms(events: &[ModelSearch], from: i64, to: i64) -> Vec<Aggregate> {
    let mut terms: BTreeMap<&str, Vec<&ModelSearch>> = BTreeMap::new();
    for event in events.iter().filter(|event| (from..to).contains(&event.time)) {
        terms.entry(&event.query).or_default().push(event);
    }
    let mut all: Vec<Aggregate> = Vec::new();
    for (query, events) in terms {
        let pages: Vec<&str> = events.iter().filter_map(|event| event.page.as_deref()).collect();
        let mut names = pages.clone();
        names.sort_unstable();
        names.reverse();
        let top = names.into_iter().max_by_key(|name| pages.iter().filter(|page| *page == name).count());
        let ctr = (pages.len() as f64 / events.len() as f64 * 1e4).round() / 1e4;
        all.push(Aggregate {
            search_query: query.to_owned(),
            hits: events.len() as u64,
            ctr,
            top_clicked_page: top.map(str::to_owned),
            last_searched_at: format_time(events.iter().map(|event| event.time).max().unwrap()),
        });
    }
    // The sort is stable, and the terms are in the order of their bytes already.
    all.sort_by_key(|term| std::cmp::Reverse(term.hits));
    all
}

fn random_searches(random: &mut RandomNumbers, n: u64) -> Vec<ModelSearch> {
    let random_search = |random: &mut RandomNumbers| {
        // Some terms are frequent, and many are equally rare.
        let spread = [3, 10, 200][random.below(3) as usize];
        let page = (random.below(3) == 0).then(|| format!("/page/{}", random.below(4)));
        let time = NOW - random.below(40 * DAY.cast_unsigned()).cast_signed();
        ModelSearch { query: format!("term {}", random.below(spread)), time, page }
    };
    (0..n).map(|_| random_search(random)).collect()
}

#[test]
fn result_pages_match_a_model_even_if_rows_arrive_between_pages() {
    for seed in 0..12 {
        let (_folder, db) = database();
        let mut random = RandomNumbers(seed);
        let mut events = Vec::new();
        for batch in 0..random.below(6) {
            let n = 1 + random.below(300);
            let more = random_searches(&mut random, n);
            send(&db, &format!("b{batch}"), &more);
            receive_at(&db, "another project", &batch_body(&format!("b{batch}"), &more), NOW).unwrap();
            events.extend(more);
        }
        for walk in 0..4 {
            let (from, to) = match walk {
                0 => (i64::MIN, i64::MAX),
                1 => (NOW - 30 * DAY, i64::MAX),
                2 => (i64::MIN, NOW - 3 * DAY),
                _ => (NOW - 20 * DAY, NOW - 2 * DAY - 12_345),
            };
            let mut dates = String::new();
            if from > i64::MIN {
                write!(dates, "&dateFrom={}", format_time(from)).unwrap();
            }
            if to < i64::MAX {
                write!(dates, "&dateTo={}", format_time(to)).unwrap();
            }
            let expected = expected_terms(&events, from, to);
            let total: u64 = expected.iter().map(|term| term.hits).sum();
            let (mut read, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let limit = 1 + random.below(40);
                let page = query_page(&db, &format!("limit={limit}{dates}{cursor}"));
                assert_eq!(page.total_searches, total);
                assert!(page.searches.len() as u64 == limit || page.next_cursor.is_none());
                read.extend(page.searches);
                let Some(next) = page.next_cursor else { break };
                cursor = format!("&cursor={next}");
                let n = 1 + random.below(60);
                let more = random_searches(&mut random, n);
                send(&db, &format!("w{walk} {pages}").replace(' ', "-"), &more);
                events.extend(more);
                pages += 1;
            }
            assert_eq!(read, expected, "seed {seed} walk {walk}");
            let terms: HashSet<&str> = read.iter().map(|term| term.search_query.as_str()).collect();
            assert_eq!(terms.len(), read.len());
        }
    }
}

#[test]
fn the_end_of_a_range_is_exclusive_and_its_beginning_is_not() {
    let (_folder, db) = database();
    let first = NOW - 10 * DAY;
    let times = [first - 1, first, first + DAY - 1, first + DAY];
    let events: Vec<ModelSearch> = times.iter().map(|time| search("a", *time, None)).collect();
    send(&db, "b", &events);
    let total = |query: &str| query_page(&db, query).total_searches;
    assert_eq!(total("dateFrom=2026-11-11&dateTo=2026-11-12"), 2);
    assert_eq!(total("dateFrom=2026-11-11&dateTo=2026-11-11"), 0);
    assert_eq!(total("dateTo=2026-11-11"), 1);
    assert_eq!(total("dateFrom=2026-11-12T01:00:00+01:00"), 1);
    assert_eq!(total("dateFrom=2026-11-11T00:00:00.0001Z"), 2);
    assert_eq!(total(""), 4);
    assert_eq!(
        query_page(&db, "dateTo=2000-01-01"),
        Searches { searches: vec![], total_searches: 0, next_cursor: None }
    );
}

#[test]
fn batch_is_counted_once_even_if_it_is_sent_again_with_other_events() {
    let (_folder, db) = database();
    let accepted = |accepted, duplicate| SearchReceipt { batch_id: "b".to_owned(), accepted, clicks: None, duplicate };
    assert_eq!(send(&db, "b", &[search(" The  TERM ", NOW, None), search("the term", NOW, None)]), accepted(2, false));
    assert_eq!(send(&db, "b", &[search("other", NOW, None)]), accepted(2, true));
    assert_eq!(
        query_page(&db, "").searches.iter().map(|term| (&*term.search_query, term.hits)).collect::<Vec<_>>(),
        [("the term", 2)]
    );
    // Each project has its own batches.
    assert!(!receive_at(&db, "q", &batch_body("b", &[search("x", NOW, None)]), NOW).unwrap().duplicate);
    // Of many concurrent requests with the same id, one counts.
    let counted = std::thread::scope(|scope| {
        let send = || scope.spawn(|| !send(&db, "same", &[search("race", NOW, None)]).duplicate);
        let all: Vec<_> = (0..16).map(|_| send()).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).filter(|counted| *counted).count()
    });
    assert_eq!((counted, query_page(&db, "").total_searches), (1, 3));
}

fn batch_error_details(db: &Database, body: &str) -> Vec<String> {
    match receive_at(db, "p", body.as_bytes(), NOW) {
        Err(AnalyticsError::Invalid(InvalidRequest { details, .. })) => details,
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn a_batch_with_invalid_search_events_is_refused_whole_and_names_the_events() {
    let (_folder, db) = database();
    let event = |query: &str, time: &str, page: &str| {
        format!(r#"{{"query":{query:?},"time":{time:?},"clickedPage":{page:?}}}"#)
    };
    let good = event("a", "2026-11-20T00:00:00Z", "/x");
    let batch = |events: &[String]| format!(r#"{{"batchId":"b","events":[{}]}}"#, events.join(","));
    let long = "ä".repeat(513);
    let details = batch_error_details(
        &db,
        &batch(&[
            good.clone(),
            event("  ", "2026-11-20T00:00:00Z", "/"),
            event(&long, "2026-11-20", "x"),
            event("a", "2026-11-22T00:00:00.001Z", &format!("/{}", "x".repeat(2048))),
        ]),
    );
    let starts: Vec<&str> = details.iter().map(|text| text.split(' ').next().unwrap()).collect();
    assert_eq!(starts, ["events[1]:", "events[2]:", "events[3]:"]);
    for part in ["query", "time", "clickedPage"] {
        assert!(details[1].contains(part), "{details:?}");
    }
    assert!(details[2].contains("ahead") && details[2].contains("2048"));
    let details = batch_error_details(
        &db,
        &batch(&[good.clone(), r#"{"query":7,"time":"x"}"#.into(), "[]".into(), r#"{"query":"a"}"#.into()]),
    );
    assert_eq!(details.len(), 3, "{details:?}");
    assert!(details[0].starts_with("events[1]: invalid type") && !details[0].contains("line"), "{details:?}");
    assert!(
        batch_error_details(&db, &batch(&[r#"{"query":"\ud800","time":"2026-11-20T00:00:00Z"}"#.into()]))[0]
            .starts_with("events[0]")
    );
    let many = batch_error_details(&db, &batch(&vec![event("", "", ""); 30]));
    assert_eq!((many.len(), many[20].as_str()), (21, "and 10 more events"));
    assert!(batch_error_details(&db, &batch(&[]))[0].starts_with("events: "));
    assert!(batch_error_details(&db, &batch(&vec![good.clone(); 1001]))[0].starts_with("events: "));
    for id in [r#""""#, r#""a b""#, r#""ä""#, "7", "null", &format!("{:?}", "x".repeat(129))] {
        let details = batch_error_details(&db, &format!(r#"{{"batchId":{id},"events":[{good}]}}"#));
        assert!(details.len() == 1 && details[0].starts_with("batchId: "), "{id}: {details:?}");
    }
    for body in ["", "{", "[]", "null", "\u{0}", r#"{"batchId":"b","batchId":"b","events":[]}"#] {
        assert_eq!(batch_error_details(&db, body).len(), 1, "{body}");
    }
    assert_eq!(batch_error_details(&db, "{}").len(), 2);
    assert!(receive_at(&db, "p", b"{\"batchId\":\"\xff\",\"events\":[]}", NOW).is_err());
    assert_eq!(query_page(&db, "").total_searches, 0);
    // The largest values that are allowed.
    let most = event(&format!(" {} ", "ä".repeat(512)), "2026-11-22T00:00:00Z", &format!("/{}", "ä".repeat(2047)));
    let id = "!~".repeat(64);
    let body = format!(r#"{{"batchId":"{id}","events":[{most},{{"query":"a","time":"2026-11-20T00:00:00Z"}}]}}"#);
    assert_eq!(receive_at(&db, "p", body.as_bytes(), NOW).unwrap().accepted, 2);
}

#[test]
fn a_cursor_is_valid_only_for_its_project_and_date_range_but_with_any_limit() {
    let (_folder, db) = database();
    let events: Vec<ModelSearch> = (0..9).map(|n| search(&n.to_string(), NOW - DAY, None)).collect();
    send(&db, "b", &events);
    let cursor = query_page(&db, "limit=3&dateTo=2026-11-21").next_cursor.unwrap();
    assert_eq!(query_page(&db, &format!("dateTo=2026-11-21T00:00Z&cursor={cursor}")).searches.len(), 6);
    assert_eq!(query_page(&db, &format!("dateTo=2026-11-21&limit=2&cursor={cursor}")).searches[0].search_query, "3");
    let run_query = |project, query: &str, secret| query_searches(&db, project, Some(query), secret, i64::MIN);
    for query in [format!("cursor={cursor}"), format!("dateTo=2026-11-20&cursor={cursor}")] {
        assert!(error_details(run_query("p", &query, &SECRET))[0].contains("other dates"));
    }
    let query = format!("dateTo=2026-11-21&cursor={cursor}");
    assert_eq!(error_details(run_query("q", &query, &SECRET)).len(), 1);
    assert_eq!(error_details(run_query("p", &query, &[8; 32])).len(), 1);
    assert_eq!(error_details(run_query("p", "cursor=x", &SECRET)).len(), 1);
    assert_eq!(error_details(run_query("p", "cursor=x&limit=0", &SECRET)).len(), 1);
}

#[test]
fn old_searches_are_deleted_and_a_cursor_over_deleted_rows_is_refused() {
    let (_folder, db) = database();
    for n in 0..25 {
        let events: Vec<ModelSearch> =
            (0..1000).map(|k| search(&(k % 7).to_string(), NOW - n * DAY, Some("/x"))).collect();
        send(&db, &n.to_string(), &events);
    }
    let file_bytes = || db.read(|connection| DatabaseUsage::read(connection, |_| false)).unwrap().file_bytes;
    let bytes_before = file_bytes();
    let all = query_page(&db, "limit=3").next_cursor.unwrap();
    let new = query_page(&db, "limit=3&dateFrom=2026-11-20").next_cursor.unwrap();
    assert_eq!(delete_older_than(&db, "q", NOW).unwrap(), 0);
    assert_eq!(delete_older_than(&db, "p", NOW - 3 * DAY).unwrap(), 21_000);
    assert_eq!(query_page(&db, "").total_searches, 4000);
    assert!(send(&db, "24", &[search("late", NOW, None)]).duplicate, "the batch itself is not too old");
    let details = error_details(query_searches(&db, "p", Some(&format!("cursor={all}")), &SECRET, i64::MIN));
    assert!(details[0].contains("too old"), "{details:?}");
    assert_eq!(query_page(&db, &format!("dateFrom=2026-11-20&cursor={new}")).searches.len(), 4);
    // Even if all rows were removed, later rows are not in the snapshot.
    assert_eq!(delete_older_than(&db, "p", i64::MAX).unwrap(), 4000);
    assert!(file_bytes() < bytes_before / 4, "free pages do not count: {} of {bytes_before}", file_bytes());
    send(&db, "0", &[search("again", NOW - DAY, None)]);
    assert_eq!(
        error_details(query_searches(&db, "p", Some(&format!("dateFrom=2026-11-20&cursor={new}")), &SECRET, i64::MIN))
            .len(),
        1
    );
    assert_eq!(query_page(&db, "").total_searches, 1);
}

#[test]
fn database_usage_of_an_organization_shrinks_when_its_rows_are_deleted() {
    let (_folder, db) = database();
    send(&db, "b1", &[search("moat", NOW - DAY, Some("/guide")), search("über", NOW, None)]);
    receive_at(&db, "q", &batch_body("other", &[search("x", NOW, None)]), NOW).unwrap();
    let usage = || db.read(|connection| DatabaseUsage::read(connection, |project| project == "p")).unwrap();
    let (batch, old, new) =
        (bytes_of_batch("p", "b1"), bytes_of_row("p", "moat", Some("/guide")), bytes_of_row("p", "über", None));
    assert_eq!((batch, old, new), (86, 51, 46));
    let used = usage();
    assert_eq!((used.own_rows, used.own_bytes, used.rows), (3, batch + old + new, 5));
    assert_eq!(delete_older_than(&db, "p", NOW - 1).unwrap(), 1);
    let used = usage();
    assert_eq!((used.own_rows, used.own_bytes, used.rows), (2, batch + new, 4));
    assert_eq!(projects_with_rows(&db).unwrap(), ["p", "q"]);
    assert_eq!(delete_older_than(&db, "p", i64::MAX).unwrap(), 1);
    let used = usage();
    assert_eq!((used.own_rows, used.own_bytes, used.rows), (0, 0, 2));
    assert_eq!(projects_with_rows(&db).unwrap(), ["q"]);
}

#[test]
fn later_clicks_and_counts_of_days_are_part_of_the_database_usage() {
    let (_folder, db) = database();
    let usage = || {
        let used = db.read(|connection| DatabaseUsage::read(connection, |project| project == "p")).unwrap();
        (used.own_rows, used.own_bytes)
    };
    let receive = |body: serde_json::Value| {
        let batch = SearchBatch::parse(body.to_string().as_bytes()).unwrap().check(NOW).unwrap();
        let size = (batch.rows(), batch.bytes("p"));
        receive_at(&db, "p", body.to_string().as_bytes(), NOW).unwrap();
        size
    };
    let time = format_time(NOW - 2 * DAY);
    let event = serde_json::json!({ "query": "moat", "time": time, "number": 7, "results": 0, "source": "assistant" });
    let first = receive(serde_json::json!({ "batchId": "b1", "events": [event] }));
    assert_eq!(usage(), first);
    let click = serde_json::json!({ "batchId": "b1", "number": 7, "time": time, "page": "/guide" });
    let second = receive(serde_json::json!({ "batchId": "b2", "events": [], "clicks": [click] }));
    assert_eq!(usage(), (first.0 + second.0, first.1 + second.1), "a batch, and six bytes of the page");

    let with_searches = usage();
    let counts = |count: u64| {
        let counts = serde_json::json!([
            { "day": "2026-11-19", "kind": "view", "key": "/über", "human": count },
            { "day": "2026-11-19", "kind": "agent", "key": "curl", "count": count },
        ]);
        let body = serde_json::json!({ "batchId": "v", "installation": "00112233445566ff", "counts": counts });
        let batch = ViewBatch::parse(body.to_string().as_bytes()).unwrap().check(NOW).unwrap();
        let size = (batch.rows(), batch.bytes("p"));
        db.write(move |transaction| receive_view_batch(transaction, "p", &batch)).unwrap();
        size
    };
    let size = counts(1);
    let with_views = usage();
    assert_eq!(with_views, (with_searches.0 + size.0, with_searches.1 + size.1));
    counts(2);
    assert_eq!(usage(), with_views, "a larger number takes no more space");
    assert_eq!(delete_views_before(&db, Some("p"), i64::MAX).unwrap(), 6);
    assert_eq!(usage(), with_searches);
    assert_eq!(delete_older_than(&db, "p", i64::MAX).unwrap(), 1);
    assert_eq!(usage(), (0, 0));
}
