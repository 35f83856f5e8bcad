//! Batches of searches.

use serde_json::json;

use super::super::{EventSource, LaterClick, SearchBatch, SearchEvent, SearchReceipt, receive_search_batch};
use super::{NOW, database};
use crate::database::Database;

const TIME: &str = "2026-11-20T08:00:00.25Z";

fn event(query: &str, number: Option<u64>) -> SearchEvent {
    let (query, time) = (query.to_owned(), TIME.to_owned());
    SearchEvent { query, time, clicked_page: None, results: None, source: None, number }
}

fn click(batch_id: &str, number: u64, page: &str) -> LaterClick {
    LaterClick { batch_id: batch_id.to_owned(), number, time: TIME.to_owned(), page: page.to_owned() }
}

fn batch(id: &str, events: Vec<SearchEvent>, clicks: Vec<LaterClick>) -> SearchBatch {
    SearchBatch { batch_id: id.to_owned(), events, clicks }
}

fn receive(db: &Database, project: &'static str, batch: SearchBatch) -> SearchReceipt {
    let batch = batch.check(NOW).unwrap();
    db.write(move |transaction| receive_search_batch(transaction, project, &batch, NOW)).unwrap()
}

/// Returns the rows of all searches: place, term, page, results, source.
fn rows(db: &Database) -> Vec<String> {
    db.read(|connection| {
        let sql = "SELECT format('%d %s %s %s %s', place, query, coalesce(page, '-'), coalesce(results, '-'),
                   coalesce(source, '-')) FROM searches ORDER BY project, batch, place";
        let mut select = connection.prepare(sql)?;
        select.query_map([], |row| row.get(0))?.collect()
    })
    .unwrap()
}

#[test]
fn a_batch_is_json_with_only_the_fields_that_have_values() {
    let complete = SearchEvent {
        clicked_page: Some("/x".to_owned()),
        results: Some(3),
        source: Some(EventSource::Assistant),
        ..event("b", Some(7))
    };
    let sent = batch("b1", vec![event("a", None), complete], vec![click("b0", 1, "/y")]);
    let value = json!({
        "batchId": "b1",
        "events": [
            { "query": "a", "time": TIME },
            { "query": "b", "time": TIME, "clickedPage": "/x", "results": 3, "source": "assistant", "number": 7 },
        ],
        "clicks": [{ "batchId": "b0", "number": 1, "time": TIME, "page": "/y" }],
    });
    assert_eq!(serde_json::to_value(&sent).unwrap(), value);
    assert_eq!(SearchBatch::parse(value.to_string().as_bytes()).unwrap(), sent);
    let without_clicks = batch("b1", vec![], vec![]);
    assert_eq!(serde_json::to_value(&without_clicks).unwrap(), json!({ "batchId": "b1", "events": [] }));
    let nulls = br#"{"batchId":"b","events":[{"query":"a","time":"x","clickedPage":null,"results":null,"source":null,
                    "number":null}]}"#;
    assert_eq!(SearchBatch::parse(nulls).unwrap().events[0].results, None);
}

#[test]
fn searches_are_stored_at_their_number_with_results_and_source() {
    let (_folder, db) = database();
    let found = SearchEvent { results: Some(0), ..event("None", Some(5)) };
    let machine = SearchEvent { source: Some(EventSource::Assistant), ..event("by machine", None) };
    let receipt = receive(&db, "p", batch("b", vec![found, machine, event("c", Some(0))], vec![]));
    assert_eq!(receipt, SearchReceipt { batch_id: "b".to_owned(), accepted: 3, clicks: None, duplicate: false });
    assert_eq!(rows(&db), ["0 c - - -", "1 by machine - - assistant", "5 none - 0 -"]);
    let receipt = receive(&db, "p", batch("b", vec![event("other", None)], vec![]));
    assert_eq!(receipt, SearchReceipt { batch_id: "b".to_owned(), accepted: 3, clicks: None, duplicate: true });
    assert_eq!(rows(&db).len(), 3);
}

#[test]
fn a_later_click_is_added_once_to_its_search_and_ignored_if_that_is_gone() {
    let (_folder, db) = database();
    receive(&db, "p", batch("b1", vec![event("a", Some(4)), event("b", Some(9))], vec![]));
    receive(&db, "q", batch("b1", vec![event("of q", Some(4))], vec![]));
    let clicks = vec![click("b1", 4, "/x"), click("b1", 4, "/y"), click("b1", 5, "/z"), click("gone", 9, "/z")];
    let receipt = receive(&db, "p", batch("b2", vec![], clicks));
    assert_eq!(receipt, SearchReceipt { batch_id: "b2".to_owned(), accepted: 0, clicks: Some(1), duplicate: false });
    let with_click = ["4 a /x - -", "9 b - - -", "4 of q - - -"];
    assert_eq!(rows(&db), with_click);
    // The time is a part of the key of the row.
    let at_another_time = LaterClick { time: "2026-11-20T08:00:00Z".to_owned(), ..click("b1", 9, "/x") };
    assert_eq!(receive(&db, "p", batch("b3", vec![], vec![at_another_time])).clicks, None);
    assert_eq!(rows(&db), with_click);
    // The click of a batch with other searches.
    assert_eq!(receive(&db, "p", batch("b4", vec![event("c", None)], vec![click("b1", 9, "/x")])).clicks, Some(1));
    assert_eq!(rows(&db)[1], "9 b /x - -");
}

fn problems(batch: SearchBatch) -> Vec<String> {
    batch.check(NOW).unwrap_err()
}

#[test]
fn a_batch_with_invalid_numbers_clicks_or_sizes_is_refused_and_says_what_is_wrong() {
    let twice = problems(batch("b", vec![event("a", Some(1)), event("b", None)], vec![]));
    assert_eq!(twice, ["events[1]: number: another event has the number 1, too"]);
    let too_large = SearchEvent { results: Some(u64::MAX), ..event("a", Some(u64::MAX)) };
    let too_large = problems(batch("b", vec![too_large], vec![]));
    assert_eq!(too_large, ["events[0]: results: it is at most 100000000000; number: it is at most 100000000000"]);
    let wrong = LaterClick { time: "yesterday".to_owned(), ..click("a b", u64::MAX, "x") };
    let wrong = problems(batch("b", vec![], vec![click("b", 1, "/x"), wrong]));
    assert!(wrong[0].starts_with("clicks[1]: batchId: it is 1 to 128"), "{wrong:?}");
    for part in ["; number: ", "; time: it is not a time", "; page: a path begins with a slash"] {
        assert!(wrong[0].contains(part), "{wrong:?}");
    }
    assert_eq!(problems(batch("b", vec![], vec![])), ["events: a batch has 1 to 1000 of them, not 0"]);
    let events: Vec<SearchEvent> = (0..600).map(|_| event("a", None)).collect();
    let clicks: Vec<LaterClick> = (0..401).map(|number| click("b", number, "/x")).collect();
    let both = problems(batch("b", events.clone(), clicks.clone()));
    assert_eq!(both, ["events: a batch has 1 to 1000 of them and clicks, not 1001"]);
    assert_eq!(batch("b", events, clicks[1..].to_vec()).check(NOW).unwrap().clicks.len(), 400);
}

#[test]
fn a_body_without_the_form_of_a_batch_is_described_field_by_field() {
    let problems = |body: &str| SearchBatch::parse(body.as_bytes()).unwrap_err();
    let time = format!("{TIME:?}");
    let source = problems(&format!(r#"{{"batchId":"b","events":[{{"query":"a","time":{time},"source":"reader"}}]}}"#));
    assert!(source.len() == 1 && source[0].starts_with("events[0]: unknown variant `reader`"), "{source:?}");
    let negative = problems(&format!(r#"{{"batchId":"b","events":[{{"query":"a","time":{time},"results":-1}}]}}"#));
    assert!(negative[0].starts_with("events[0]: invalid value: integer `-1`"), "{negative:?}");
    let clicks = problems(r#"{"batchId":"b","events":[],"clicks":[{"batchId":"b"}, 7]}"#);
    assert_eq!(clicks.len(), 2, "{clicks:?}");
    assert!(clicks[0].starts_with("clicks[0]: missing field `number`"), "{clicks:?}");
    let many = format!(r#"{{"batchId":"b","events":[],"clicks":[{}0]}}"#, "0,".repeat(1000));
    assert_eq!(problems(&many), ["clicks: a batch has 1 to 1000 of them, not 1001"]);
}
