//! Batches of daily counts.

use serde_json::json;

use super::super::{DayCount, DayCountKind, ViewBatch, ViewReceipt, receive_view_batch};
use super::{INSTALLATION, NOW, database};
use crate::database::Database;
use crate::views::{delete_views_before, query_pages, query_views};
use docwharf_base::model::reader_activity::ViewCounts;

const OTHER_INSTALLATION: &str = "ffffffffffffffff";
/// 2026-11-20, in days since 1970.
const DAY: i64 = 20_777;

fn view(day: i64, path: &str, [human, ai, bot]: [u64; 3]) -> DayCount {
    DayCount::of_views(day, path.to_owned(), ViewCounts { human, ai, bot })
}

fn count(kind: DayCountKind, key: &str, count: u64) -> DayCount {
    DayCount::of_key(DAY, kind, key.to_owned(), count)
}

fn batch(installation: &str, counts: Vec<DayCount>) -> ViewBatch {
    ViewBatch { batch_id: "b".to_owned(), installation: installation.to_owned(), counts }
}

fn receive(db: &Database, project: &'static str, installation: &str, counts: Vec<DayCount>) -> (u64, u64, u64) {
    let batch = batch(installation, counts).check(NOW).unwrap();
    let receipt = db.write(move |transaction| receive_view_batch(transaction, project, &batch)).unwrap();
    let ViewReceipt { batch_id, accepted, increased, views } = receipt;
    assert_eq!(batch_id, "b");
    (accepted, increased, views)
}

/// Returns the pages of a project: path, people, AI services, other programs.
fn pages(db: &Database, project: &str) -> Vec<String> {
    let views = query_views(db, project, None).unwrap().views;
    views.iter().map(|page| format!("{} {} {} {}", page.path, page.human, page.ai, page.bot)).collect()
}

fn counts_by(db: &Database, key: &str) -> Vec<(String, u64)> {
    let rows = query_pages(db, "p", Some(&format!("by={key}"))).unwrap().rows;
    rows.into_iter().map(|row| (row.key, row.count)).collect()
}

fn table_len(db: &Database, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    db.read(|connection| connection.query_row(&sql, [], |row| row.get::<_, i64>(0))).unwrap().cast_unsigned()
}

#[test]
fn a_batch_is_json_with_only_the_numbers_of_its_kinds() {
    let sent = batch(INSTALLATION, vec![view(DAY, "/x", [1, 0, 2]), count(DayCountKind::NotFound, "/old", 3)]);
    let value = json!({
        "batchId": "b",
        "installation": INSTALLATION,
        "counts": [
            { "day": "2026-11-20", "kind": "view", "key": "/x", "human": 1, "bot": 2 },
            { "day": "2026-11-20", "kind": "notFound", "key": "/old", "count": 3 },
        ],
    });
    assert_eq!(serde_json::to_value(&sent).unwrap(), value);
    assert_eq!(ViewBatch::parse(value.to_string().as_bytes()).unwrap(), sent);
}

#[test]
fn absolute_counts_are_counted_once_whatever_is_repeated_or_reordered() {
    let (_folder, db) = database();
    let first = || vec![view(DAY, "/x", [1, 0, 2]), count(DayCountKind::Referrer, "a.example", 3)];
    let second = || vec![view(DAY, "/x", [4, 1, 2]), count(DayCountKind::Referrer, "a.example", 5)];
    assert_eq!(receive(&db, "p", INSTALLATION, first()), (2, 2, 3));
    assert_eq!(receive(&db, "p", INSTALLATION, second()), (2, 2, 4));
    let expect = |page: &str, referrers: u64| {
        assert_eq!(pages(&db, "p"), [page]);
        assert_eq!(counts_by(&db, "referrer"), [("a.example".to_owned(), referrers)]);
    };
    expect("/x 4 1 2", 5);
    for counts in [first(), second(), first()] {
        assert_eq!(receive(&db, "p", INSTALLATION, counts), (2, 0, 0));
    }
    expect("/x 4 1 2", 5);
    // Another installation counts on its own, another project as well.
    assert_eq!(receive(&db, "p", OTHER_INSTALLATION, first()), (2, 2, 3));
    expect("/x 5 1 4", 8);
    assert_eq!(receive(&db, "q", INSTALLATION, second()), (2, 2, 7));
    assert_eq!(pages(&db, "q"), ["/x 4 1 2"]);
    expect("/x 5 1 4", 8);
    // A key twice in one batch: the larger number counts.
    let twice = vec![view(DAY, "/y", [1, 0, 0]), view(DAY, "/y", [3, 0, 0]), view(DAY, "/y", [2, 0, 0])];
    assert_eq!(receive(&db, "p", INSTALLATION, twice), (3, 2, 3));
    assert_eq!(pages(&db, "p")[1], "/y 3 0 0");
}

#[test]
fn each_kind_is_stored_under_its_own_keys() {
    let (_folder, db) = database();
    let kinds = [
        (DayCountKind::Referrer, "referrer", "same.example"),
        (DayCountKind::Entry, "entry", "/same"),
        (DayCountKind::NotFound, "notFound", "/same"),
        (DayCountKind::Agent, "agent", "Same"),
    ];
    let counts = kinds.iter().zip(1..).map(|((kind, _, key), number)| count(*kind, key, number)).collect();
    assert_eq!(receive(&db, "p", INSTALLATION, counts), (4, 4, 0));
    for ((_, by, key), number) in kinds.iter().zip(1..) {
        assert_eq!(counts_by(&db, by), [((*key).to_owned(), number)]);
    }
}

#[test]
fn keys_beyond_the_bound_of_a_day_count_as_other_and_still_once() {
    let (_folder, db) = database();
    let counts = |from: u64, number| -> Vec<DayCount> {
        (from..from + 600).map(|n| count(DayCountKind::NotFound, &format!("/{n}"), number)).collect()
    };
    for number in [1, 2, 2] {
        receive(&db, "p", INSTALLATION, counts(0, number));
        receive(&db, "p", INSTALLATION, counts(600, number));
    }
    let rows = counts_by(&db, "notFound&limit=250");
    assert_eq!(rows[0], ("(other)".to_owned(), 400));
    assert_eq!(rows[1].1, 2);
    assert_eq!(table_len(&db, "day_counts"), 1_001);
    // What the sender itself has counted as others has the same key.
    receive(&db, "p", INSTALLATION, vec![count(DayCountKind::NotFound, "(other)", 7)]);
    assert_eq!(counts_by(&db, "notFound")[0], ("(other)".to_owned(), 407));
}

#[test]
fn deleting_days_deletes_the_delivered_counts_and_the_keys_of_these_days() {
    let (_folder, db) = database();
    receive(&db, "p", INSTALLATION, vec![view(DAY - 2, "/old", [1, 0, 0]), view(DAY - 2, "/x", [1, 0, 0])]);
    receive(&db, "q", OTHER_INSTALLATION, vec![view(DAY - 1, "/x", [1, 0, 0])]);
    receive(&db, "p", INSTALLATION, vec![view(DAY, "/x", [2, 0, 0])]);
    let lens = || ["views", "delivered_counts", "view_keys"].map(|table| table_len(&db, table));
    assert_eq!(lens(), [4, 4, 2]);
    // Two rows of each of the two tables, and one key.
    assert_eq!(delete_views_before(&db, Some("p"), DAY - 1).unwrap(), 5);
    assert_eq!(lens(), [2, 2, 1]);
    assert_eq!(delete_views_before(&db, None, i64::MAX).unwrap(), 5);
    assert_eq!(lens(), [0, 0, 0]);
}

#[test]
fn an_invalid_count_is_refused_with_its_batch_and_described() {
    let problems = |batch: ViewBatch| batch.check(NOW).unwrap_err();
    let valid = view(DAY, "/x", [1, 0, 0]);
    let of_day = |day: &str| DayCount { day: day.to_owned(), ..valid.clone() };
    for day in ["", "2026-1-1", "20261101", "2026-02-30", "1969-12-31", "2026-11-20T00:00:00Z", "+002026-11-20"] {
        let found = problems(batch(INSTALLATION, vec![valid.clone(), of_day(day)]));
        assert!(found.len() == 1 && found[0].starts_with("counts[1]: day: it is not a day"), "{day}: {found:?}");
    }
    // The clock of the sender may be a day ahead.
    assert!(batch(INSTALLATION, vec![of_day("2026-11-22"), of_day("1970-01-01")]).check(NOW).is_ok());
    let ahead = problems(batch(INSTALLATION, vec![of_day("2026-11-23")]));
    assert_eq!(ahead, ["counts[0]: day: it is more than a day ahead"]);

    let long = |len: usize| "ä".repeat(len);
    for (count, is_valid) in [
        (view(DAY, &format!("/{}", long(2047)), [1, 0, 0]), true),
        (view(DAY, &format!("/{}", long(2048)), [1, 0, 0]), false),
        (view(DAY, "x", [1, 0, 0]), false),
        (view(DAY, "(other)", [1, 0, 0]), true),
        (count(DayCountKind::Entry, "x", 1), false),
        (count(DayCountKind::NotFound, "", 1), false),
        (count(DayCountKind::Referrer, &long(255), 1), true),
        (count(DayCountKind::Referrer, &long(256), 1), false),
        (count(DayCountKind::Referrer, "", 1), false),
        (count(DayCountKind::Agent, &long(200), 1), true),
        (count(DayCountKind::Agent, &long(201), 1), false),
        (view(DAY, "/x", [0, 100_000_000_000, 0]), true),
        (view(DAY, "/x", [0, 100_000_000_001, 0]), false),
        (view(DAY, "/x", [0, 0, 0]), false),
        (count(DayCountKind::Agent, "x", 0), false),
        (DayCount { count: 1, ..valid.clone() }, false),
        (DayCount { human: 1, ..count(DayCountKind::Agent, "x", 1) }, false),
    ] {
        let checked = batch(INSTALLATION, vec![count.clone()]).check(NOW);
        assert_eq!(checked.is_ok(), is_valid, "{count:?}: {checked:?}");
    }
    for installation in ["", "00112233445566f", "00112233445566FF", "00112233445566ff0", "+0112233445566ff"] {
        let found = problems(batch(installation, vec![valid.clone()]));
        assert_eq!(found, ["installation: it is 16 lower-case hexadecimal digits"], "{installation}");
    }
    let found = problems(batch(INSTALLATION, vec![]));
    assert_eq!(found, ["counts: a batch has 1 to 1000 of them, not 0"]);
    let body = r#"{"batchId":7,"counts":[{"day":"2026-11-20","kind":"page","key":"/x"}]}"#;
    let found = ViewBatch::parse(body.as_bytes()).unwrap_err();
    let starts = ["batchId: invalid type", "installation: it is missing", "counts[0]: unknown variant `page`"];
    assert!(found.len() == 3 && found.iter().zip(starts).all(|(text, start)| text.starts_with(start)), "{found:?}");
}
