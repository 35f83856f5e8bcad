//! Counts and queries with a real database.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::{
    KeyCount, OTHER_KEY, PageCountKey, PageViews, Pages, TABLES, ViewTotals, Views, add_day, delete_views_before,
    oldest_day, query_pages, query_views,
};
use crate::database::Database;
use crate::query_error::QueryError;
use docwharf_base::model::reader_activity::{DayActivity, ViewCounts};

/// 2026-01-01, in days since 1970.
const DAY: i64 = 20_454;

fn database() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(&folder.path().join("analytics.db"), &[TABLES, crate::delivery::TABLES]).unwrap();
    (folder, db)
}

fn add(db: &Database, project: &'static str, activity: DayActivity) {
    db.write(move |transaction| add_day(transaction, project, &activity)).unwrap();
}

fn counts<T: Copy>(counts: &[(&str, T)]) -> Vec<(String, T)> {
    counts.iter().map(|&(key, count)| (key.to_owned(), count)).collect()
}

/// Creates the views of a day: path, and the views by people, by AI services and by other programs.
fn day_of_views(day: i64, views: &[(&str, [u64; 3])]) -> DayActivity {
    let views = views.iter().map(|&(path, [human, ai, bot])| (path.to_owned(), ViewCounts { human, ai, bot }));
    DayActivity { day, views: views.collect(), ..DayActivity::default() }
}

fn views(db: &Database, query: &str) -> Views {
    query_views(db, "", Some(query)).unwrap()
}

/// Returns the pages as a compact text: path, people, AI services, other programs.
fn pages_of(views: &Views) -> Vec<String> {
    let page = |page: &PageViews| {
        assert_eq!(page.total, page.human + page.ai);
        format!("{} {} {} {}", page.path, page.human, page.ai, page.bot)
    };
    views.views.iter().map(page).collect()
}

fn rows_by(db: &Database, query: &str) -> Vec<(String, u64)> {
    let pages = query_pages(db, "", Some(query)).unwrap();
    pages.rows.into_iter().map(|KeyCount { key, count }| (key, count)).collect()
}

fn error_details<T: std::fmt::Debug>(result: Result<T, QueryError>) -> Vec<String> {
    match result {
        Err(QueryError::Invalid(invalid)) => invalid.details,
        other => panic!("{other:?}"),
    }
}

fn stored_keys(db: &Database) -> BTreeSet<String> {
    db.read(|connection| {
        let mut select = connection.prepare("SELECT text FROM view_keys")?;
        select.query_map([], |row| row.get(0))?.collect()
    })
    .unwrap()
}

#[test]
fn counts_of_the_same_day_add_up() {
    let (_folder, db) = database();
    for _ in 0..2 {
        add(
            &db,
            "",
            DayActivity {
                entries: counts(&[("/a", 2)]),
                referrers: counts(&[("example.org", 3)]),
                not_found: counts(&[("/gone", 4)]),
                agents: counts(&[("Firefox", 5), ("GPTBot", 6)]),
                ..day_of_views(DAY, &[("/a", [1, 2, 3]), ("/b", [1, 0, 0])])
            },
        );
    }
    assert_eq!(pages_of(&views(&db, "")), ["/a 2 4 6", "/b 2 0 0"]);
    for (by, expected) in [
        ("day", counts(&[("2026-01-01", 4)])),
        ("entry", counts(&[("/a", 4)])),
        ("referrer", counts(&[("example.org", 6)])),
        ("notFound", counts(&[("/gone", 8)])),
        ("agent", counts(&[("GPTBot", 12), ("Firefox", 10)])),
    ] {
        assert_eq!(rows_by(&db, &format!("by={by}")), expected, "{by}");
    }
    // Another project has its own counts, with the same keys.
    add(&db, "other", day_of_views(DAY, &[("/a", [7, 0, 0])]));
    assert_eq!(pages_of(&query_views(&db, "other", None).unwrap()), ["/a 7 0 0"]);
    assert_eq!(views(&db, "").totals.human, 4);
    assert_eq!(db.read(|connection| oldest_day(connection, "other")).unwrap(), Some(DAY));
    assert_eq!(db.read(|connection| oldest_day(connection, "none")).unwrap(), None);
}

#[test]
fn the_1001st_referrer_of_a_day_counts_as_other_and_known_ones_under_their_names() {
    let (_folder, db) = database();
    let hosts = |range: std::ops::Range<u32>| range.map(|n| (format!("{n:04}.example"), 1)).collect::<Vec<_>>();
    let referrers = |day: i64, referrers| DayActivity { day, referrers, ..DayActivity::default() };
    // What the caller counts as `(other)` is no host of its own.
    add(&db, "", referrers(DAY, counts(&[(OTHER_KEY, 1)])));
    add(&db, "", referrers(DAY, hosts(0..999)));
    add(&db, "", referrers(DAY, hosts(999..1003)));
    add(&db, "", referrers(DAY, hosts(998..1001)));
    let rows = rows_by(&db, "by=referrer&limit=4");
    assert_eq!(rows, counts(&[(OTHER_KEY, 5), ("0998.example", 2), ("0999.example", 2), ("0000.example", 1)]));
    assert_eq!(rows_by(&db, "by=referrer&limit=250&offset=1000"), counts(&[("0997.example", 1)]));
    assert!(!stored_keys(&db).contains("1000.example"), "a key without rows is not stored");
    // The next day and the other kinds have their own limits.
    add(&db, "", DayActivity { not_found: hosts(1000..1001), ..referrers(DAY + 1, hosts(1000..1001)) });
    assert_eq!(rows_by(&db, "by=notFound"), counts(&[("1000.example", 1)]));
    assert_eq!(rows_by(&db, "by=referrer&dateFrom=2026-01-02"), counts(&[("1000.example", 1)]));
}

#[test]
fn further_not_found_paths_and_agents_of_a_day_count_as_other() {
    let (_folder, db) = database();
    let keys = || (0..3000).map(|n| (format!("/{n}"), 1)).collect::<Vec<_>>();
    add(&db, "", DayActivity { day: DAY, not_found: keys(), agents: keys(), ..DayActivity::default() });
    for by in ["notFound", "agent"] {
        assert_eq!(rows_by(&db, &format!("by={by}&limit=1")), counts(&[(OTHER_KEY, 2000)]), "{by}");
        assert_eq!(rows_by(&db, &format!("by={by}&limit=250&offset=1000")).len(), 1, "{by}");
    }
}

#[test]
fn totals_cover_the_range_and_not_the_result_page() {
    let (_folder, db) = database();
    add(&db, "", day_of_views(DAY, &[("/b", [1, 1, 9]), ("/a", [0, 2, 0]), ("/é", [2, 0, 0]), ("/z", [3, 0, 0])]));
    add(&db, "", day_of_views(DAY + 1, &[("/c", [0, 0, 5]), ("/d", [1, 0, 0])]));
    let totals = ViewTotals { human: 7, ai: 3, total: 10, bot: 14 };
    // Pages with equal totals are in the order of their bytes; a page that only other programs viewed is listed.
    let all = ["/z 3 0 0", "/a 0 2 0", "/b 1 1 9", "/é 2 0 0", "/d 1 0 0", "/c 0 0 5"];
    let page = views(&db, "");
    assert_eq!((page.totals, pages_of(&page), page.has_more), (totals, all.map(str::to_owned).to_vec(), false));
    for (query, expected, has_more) in [
        ("limit=6", &all[..], false),
        ("limit=5", &all[..5], true),
        ("limit=2&offset=1", &all[1..3], true),
        ("limit=2&offset=4", &all[4..], false),
        ("offset=6", &all[6..], false),
        ("offset=1000000", &all[6..], false),
    ] {
        let page = views(&db, query);
        assert_eq!((page.totals, page.has_more), (totals, has_more), "{query}");
        assert_eq!(pages_of(&page), expected, "{query}");
    }
    let json = concat!(
        r#"{"totals":{"human":7,"ai":3,"total":10,"bot":14},"#,
        r#""views":[{"path":"/z","human":3,"ai":0,"total":3,"bot":0}],"hasMore":true}"#
    );
    assert_eq!(serde_json::to_string(&views(&db, "limit=1")).unwrap(), json);
    assert_eq!(query_views(&db, "unknown", None).unwrap().totals, ViewTotals { human: 0, ai: 0, total: 0, bot: 0 });
}

#[test]
fn a_day_counts_if_its_first_moment_is_in_the_range_and_date_to_is_exclusive() {
    let (_folder, db) = database();
    for (day, human) in [(-1, 1000), (DAY, 1), (DAY + 1, 10), (DAY + 2, 100)] {
        add(&db, "", day_of_views(day, &[("/", [human, 0, 0])]));
    }
    for (query, total) in [
        ("", 1111),
        ("dateFrom=2026-01-02", 110),
        ("dateTo=2026-01-02", 1001),
        ("dateFrom=2026-01-01&dateTo=2026-01-03", 11),
        ("dateFrom=2026-01-02&dateTo=2026-01-02", 0),
        ("dateFrom=2026-01-01T00:00:00.0001Z&dateTo=2026-01-02T00:00:00.0001Z", 10),
        ("dateFrom=2026-01-01T23:59&dateTo=2026-01-02T12:00", 10),
        ("dateFrom=2026-01-02T02:00%2B02:00", 110),
        ("dateTo=1970-01-01", 1000),
        ("dateFrom=1969-12-31&dateTo=1969-12-31T01:00", 1000),
    ] {
        assert_eq!(views(&db, query).totals.total, total, "{query}");
        let by_day: u64 = rows_by(&db, &format!("by=day&{query}")).iter().map(|(_, count)| count).sum();
        assert_eq!(by_day, total, "{query}");
    }
}

#[test]
fn counts_are_listed_by_count_and_days_in_ascending_order() {
    let (_folder, db) = database();
    let day = |day, referrers: &[(&str, u64)], views: [u64; 3]| DayActivity {
        referrers: counts(referrers),
        ..day_of_views(day, &[("/", views)])
    };
    add(&db, "", day(DAY + 1, &[("b.example", 2), ("a.example", 1)], [4, 0, 0]));
    add(&db, "", day(DAY, &[("c.example", 2), ("a.example", 2)], [5, 7, 0]));
    // A day without views by people is no row.
    add(&db, "", day(DAY + 2, &[], [0, 8, 9]));
    let page = |query: &str| query_pages(&db, "", Some(query)).unwrap();
    let row = |key: &str, count| KeyCount { key: key.to_owned(), count };
    let days = [row("2026-01-01", 5), row("2026-01-02", 4)];
    assert_eq!(page("by=day"), Pages { by: PageCountKey::Day, rows: days.to_vec(), has_more: false });
    assert_eq!(page("by=day&limit=1"), Pages { by: PageCountKey::Day, rows: days[..1].to_vec(), has_more: true });
    assert_eq!(page("by=day&offset=1").rows, days[1..]);
    let hosts = [row("a.example", 3), row("b.example", 2), row("c.example", 2)];
    assert_eq!(page("by=referrer").rows, hosts);
    let second = page("by=referrer&offset=1&limit=1");
    assert_eq!((&second.rows[..], second.has_more), (&hosts[1..2], true));
    assert_eq!(page("by=referrer&dateTo=2026-01-02&limit=1").rows, [row("a.example", 2)]);
    assert!(page("by=entry").rows.is_empty());
    for by in ["day", "referrer", "entry", "notFound", "agent"] {
        let json = serde_json::to_string(&page(&format!("by={by}&dateTo=2000-01-01"))).unwrap();
        assert_eq!(json, format!(r#"{{"by":"{by}","rows":[],"hasMore":false}}"#));
    }
    let json = serde_json::to_string(&page("by=day&limit=1")).unwrap();
    assert_eq!(json, r#"{"by":"day","rows":[{"key":"2026-01-01","count":5}],"hasMore":true}"#);
}

#[test]
fn all_invalid_parameters_are_reported() {
    let (_folder, db) = database();
    let invalid = "limit=251&offset=-1&dateFrom=x&dateTo=2026-13-01&by=week&unknown=%";
    let details = error_details(query_pages(&db, "", Some(invalid)));
    let names: Vec<&str> = details.iter().map(|detail| detail.split(':').next().unwrap()).collect();
    assert_eq!(names, ["dateFrom", "dateTo", "limit", "offset", "by"]);
    assert_eq!(details[2], "limit: \"251\" is not a whole number from 1 to 250");
    assert_eq!(details[3], "offset: \"-1\" is not a whole number from 0 to 1000000");
    assert_eq!(details[4], "by: \"week\" is none of day, referrer, entry, notFound and agent");
    // Views have no parameter `by`.
    assert_eq!(error_details(query_views(&db, "", Some(invalid))), details[..4]);
    for (query, expected) in [
        ("", "by is missing; it is one of day, referrer, entry, notFound and agent"),
        ("by=", "by is empty"),
        ("by=%ff", "by: the percent-encoding of \"%ff\" is invalid"),
        ("by=day&by=day", "by occurs more than once"),
        ("by=notfound", "by: \"notfound\" is none of day, referrer, entry, notFound and agent"),
        ("by=day&limit=0", "limit: \"0\" is not a whole number from 1 to 250"),
        ("by=day&offset=1000001", "offset: \"1000001\" is not a whole number from 0 to 1000000"),
        ("by=day&dateFrom=2026-01-02&dateTo=2026-01-01", "dateFrom is after dateTo"),
    ] {
        assert_eq!(error_details(query_pages(&db, "", Some(query))), [expected], "{query}");
    }
    assert!(query_pages(&db, "", Some("by=not%46ound&limit=250&offset=1e6&unknown=%")).is_ok());
    let error = query_views(&db, "", Some("limit=0")).unwrap_err().to_string();
    assert_eq!(error, "the query for views is invalid; see details");
}

#[test]
fn deleting_old_days_removes_the_keys_that_nothing_uses() {
    let (_folder, db) = database();
    let day = |day, path: &str, host: &str| DayActivity {
        referrers: counts(&[(host, 1)]),
        ..day_of_views(day, &[(path, [1, 0, 0]), ("/always", [1, 0, 0])])
    };
    add(&db, "", day(DAY + 1, "/new", "new.example"));
    // A day that is added later than a newer one.
    add(&db, "", day(DAY, "/old", "old.example"));
    add(&db, "other", day(DAY - 1, "/older", "older.example"));
    let keys = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<BTreeSet<String>>();
    let all = ["/always", "/new", "/old", "/older", "new.example", "old.example", "older.example"];
    assert_eq!(delete_views_before(&db, None, DAY - 1).unwrap(), 0);
    // The key of a deleted row remains as long as another project has rows of an earlier day.
    assert_eq!(delete_views_before(&db, Some(""), DAY + 1).unwrap(), 3);
    assert_eq!(stored_keys(&db), keys(&all));
    assert_eq!(pages_of(&views(&db, "")), ["/always 1 0 0", "/new 1 0 0"]);
    assert_eq!(pages_of(&query_views(&db, "other", None).unwrap()), ["/always 1 0 0", "/older 1 0 0"]);
    // 3 rows and 4 keys.
    assert_eq!(delete_views_before(&db, None, DAY + 1).unwrap(), 7);
    assert_eq!(stored_keys(&db), keys(&["/always", "/new", "new.example"]));
    assert_eq!(rows_by(&db, "by=referrer"), counts(&[("new.example", 1)]));
    assert_eq!(delete_views_before(&db, None, i64::MAX).unwrap(), 3 + 3);
    assert_eq!(stored_keys(&db), keys(&[]));
}

#[test]
fn days_with_more_rows_than_one_step_deletes_are_deleted_completely() {
    let (_folder, db) = database();
    let paths = |n: u32| (0..n).map(|n| (format!("/{n}"), ViewCounts { human: 1, ai: 0, bot: 0 })).collect();
    add(&db, "", DayActivity { day: DAY, views: paths(25_000), ..DayActivity::default() });
    add(&db, "other", DayActivity { day: DAY + 1, views: paths(10), ..DayActivity::default() });
    assert_eq!(delete_views_before(&db, Some(""), DAY + 1).unwrap(), 25_000 + 24_990);
    assert_eq!(views(&db, "").totals.total, 0);
    assert_eq!(stored_keys(&db).len(), 10);
}

/// Copies the rows of the first day to another one, in another order than that of the primary key, as readers would.
fn copy_first_day(connection: &Connection, day: i64) -> rusqlite::Result<()> {
    for sql in [
        "INSERT INTO views SELECT project, ?2, path, human, ai, bot FROM views
         WHERE project = '' AND day = ?1 ORDER BY path * 7919 % 1009",
        "INSERT INTO day_counts SELECT project, ?2, kind, key, count FROM day_counts
         WHERE project = '' AND day = ?1 ORDER BY key * 7919 % 1009",
    ] {
        connection.prepare_cached(sql)?.execute(params![DAY, day])?;
    }
    Ok(())
}

#[test]
fn a_year_of_1000_pages_takes_at_most_40_megabytes() {
    let (_folder, db) = database();
    let path = |n: u32| format!("/guides/chapter-{n}/a-page-with-a-name-of-usual-length");
    let pages = (0..1000).map(|n| (path(n), ViewCounts { human: 200, ai: 20, bot: 2 })).collect();
    // Visits began with each of the pages too.
    let entries = (0..1000).map(|n| (path(n), 100)).collect();
    add(&db, "", DayActivity { day: DAY, views: pages, entries, ..DayActivity::default() });
    db.write(|transaction| (DAY + 1..DAY + 365).try_for_each(|day| copy_first_day(transaction, day))).unwrap();
    let bytes = db.read(|connection| {
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok(pragma("page_count")? * pragma("page_size")?)
    });
    let bytes = bytes.unwrap();
    assert!(bytes <= 40_000_000, "{bytes}");
    let page = views(&db, "limit=1");
    assert_eq!((page.totals.total, page.views[0].total), (365 * 1000 * 220, 365 * 220));
    assert_eq!(rows_by(&db, "by=entry&limit=1"), [(path(0), 365 * 100)]);
    assert_eq!(rows_by(&db, "by=day&limit=1&offset=364"), counts(&[("2026-12-31", 1000 * 200)]));
}
