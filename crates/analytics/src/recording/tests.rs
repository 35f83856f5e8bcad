//! Recording with real files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::database::DatabaseError;
use docwharf_agent::store::ANALYTICS_DATABASE;
use docwharf_base::model::reader_activity::{
    DayActivity, ReaderActivity, SearchActivity, SearchId, SearchSource, ViewCounts,
};

/// 2026-01-01T00:00:00Z.
const NOW: i64 = 20_454 * DAY_MS;
const HALF_HOUR: i64 = 30 * 60 * 1000;
const SETTINGS: WriterSettings = WriterSettings { mask: true, keep: None, max_bytes: u64::MAX };

fn writer() -> (TempDir, ActivityWriter) {
    let folder = tempfile::tempdir().unwrap();
    let store = AnalyticsStore::open(&folder.path().join(ANALYTICS_DATABASE)).unwrap();
    (folder, ActivityWriter::new(Arc::new(store), SETTINGS))
}

fn search(id: u64, query: &str, time: i64) -> SearchActivity {
    let (id, query, source) = (Some(SearchId(id)), query.to_owned(), SearchSource::Reader);
    SearchActivity::Search { id, query, results: Some(7), source, time }
}

fn page_search(query: &str, time: i64) -> SearchActivity {
    SearchActivity::Search { id: None, query: query.to_owned(), results: None, source: SearchSource::Reader, time }
}

fn click(id: u64, page: &str, time: i64) -> SearchActivity {
    SearchActivity::Click { id: SearchId(id), page: page.to_owned(), time }
}

fn page_click(query: &str, page: &str, time: i64) -> SearchActivity {
    SearchActivity::PageClick { query: query.to_owned(), page: page.to_owned(), time }
}

fn searches(searches: Vec<SearchActivity>) -> ReaderActivity {
    ReaderActivity { searches, ..ReaderActivity::default() }
}

fn day_of_views(day: i64, human: u64) -> ReaderActivity {
    let views = vec![("/guide".to_owned(), ViewCounts { human, ai: 1, bot: 1 })];
    ReaderActivity { days: vec![DayActivity { day, views, ..DayActivity::default() }], ..ReaderActivity::default() }
}

/// Returns the rows of searches in the order of their times: term, page and clicks.
fn rows(writer: &ActivityWriter) -> Vec<(String, Option<String>, i64)> {
    writer.store().read(|connection| {
        let mut select = connection.prepare("SELECT query, page, clicks FROM searches ORDER BY time, batch, place")?;
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
    })
}

fn row(term: &str, page: Option<&str>) -> (String, Option<String>, i64) {
    (term.to_owned(), page.map(str::to_owned), i64::from(page.is_some()))
}

/// Counts how often a text is in the files of a folder.
fn count_in_files(folder: &Path, text: &str) -> usize {
    let contents = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    contents.map(|content| content.windows(text.len()).filter(|window| *window == text.as_bytes()).count()).sum()
}

#[test]
fn a_search_and_its_click_are_one_row_in_one_write_or_two() {
    let (_folder, mut writer) = writer();
    let activity =
        searches(vec![search(1, "Install", NOW), search(2, " deploy  it", NOW + 1), click(1, "/a", NOW + 2)]);
    let report = writer.write(activity, NOW + 10).unwrap();
    assert_eq!(report, WriteReport { searches: 2, clicks: 1, ..WriteReport::default() });
    assert_eq!(rows(&writer), [row("install", Some("/a")), row("deploy it", None)]);
    let report = writer.write(searches(vec![click(2, "/b", NOW + HALF_HOUR)]), NOW + HALF_HOUR).unwrap();
    assert_eq!(report, WriteReport { clicks: 1, ..WriteReport::default() });
    assert_eq!(rows(&writer), [row("install", Some("/a")), row("deploy it", Some("/b"))]);
    let totals = writer.store().searches(None).unwrap();
    assert_eq!(totals.total_searches, 2);
    assert_eq!(totals.searches[0].top_clicked_page.as_deref(), Some("/b"));
}

#[test]
fn late_repeated_and_unknown_clicks_do_not_count() {
    let (_folder, mut writer) = writer();
    writer.write(searches(vec![search(1, "a", NOW), search(2, "b", NOW)]), NOW).unwrap();
    let clicks =
        vec![click(1, "/x", NOW), click(1, "/y", NOW), click(3, "/x", NOW), click(2, "/x", NOW + HALF_HOUR + 1)];
    let report = writer.write(searches(clicks), NOW).unwrap();
    assert_eq!(report, WriteReport { clicks: 1, unknown_clicks: 3, ..WriteReport::default() });
    assert_eq!(rows(&writer), [row("a", Some("/x")), row("b", None)]);
    // The ids are in memory only.
    let mut after_restart = ActivityWriter::new(Arc::clone(writer.store()), SETTINGS);
    assert_eq!(after_restart.write(searches(vec![click(2, "/x", NOW + 1)]), NOW).unwrap().unknown_clicks, 1);
}

#[test]
fn a_click_on_the_search_page_belongs_to_the_search_with_its_text() {
    let (_folder, mut writer) = writer();
    let activity = vec![page_search("Key bob@example.org", NOW), page_search("other", NOW + 1)];
    writer.write(searches(activity), NOW).unwrap();
    let clicks = vec![page_click("key  bob@example.org", "/x", NOW + 2), page_click("never", "/x", NOW + 2)];
    let report = writer.write(searches(clicks), NOW).unwrap();
    assert_eq!((report.clicks, report.unknown_clicks), (1, 1));
    assert_eq!(rows(&writer), [row("key [masked]", Some("/x")), row("other", None)]);
}

#[test]
fn repeated_empty_and_too_long_activity_is_not_stored() {
    let (_folder, mut writer) = writer();
    let (long_query, long_page) = ("ä ".repeat(400), "/".repeat(2_049));
    let activity = vec![search(1, "a", NOW), search(1, "a", NOW), search(2, " ", NOW), click(1, &long_page, NOW)];
    let report = writer.write(ReaderActivity { dropped: 5, ..searches(activity) }, NOW).unwrap();
    assert_eq!(report, WriteReport { searches: 1, dropped: 6, ..WriteReport::default() });
    let activity = vec![search(3, &long_query, NOW + 1), click(1, &long_page[1..], NOW + 1)];
    assert_eq!(writer.write(searches(activity), NOW).unwrap().clicks, 1);
    assert_eq!(rows(&writer), [row("a", Some(&long_page[1..])), row("ä ".repeat(256).trim_end(), None)]);
}

#[test]
fn searches_of_assistants_are_stored_and_are_no_part_of_the_totals() {
    let (_folder, mut writer) = writer();
    let (id, query, source) = (None, "by machine".to_owned(), SearchSource::Assistant);
    let by_assistant = SearchActivity::Search { id, query, results: None, source, time: NOW };
    let click = page_click("by machine", "/x", NOW);
    let report = writer.write(searches(vec![by_assistant, search(1, "by hand", NOW), click]), NOW).unwrap();
    assert_eq!((report.searches, report.clicks, report.unknown_clicks), (2, 0, 1));
    assert_eq!(rows(&writer).len(), 2);
    let totals = writer.store().searches(None).unwrap();
    assert_eq!((totals.total_searches, totals.searches.len()), (1, 1));
    assert_eq!(totals.searches[0].search_query, "by hand");
}

#[test]
fn views_are_stored_with_masked_paths_and_hosts() {
    let (_folder, mut writer) = writer();
    let mut activity = day_of_views(20_454, 3);
    activity.days[0].not_found = vec![("/u/bob@example.org".to_owned(), 1), ("/u/eve@example.org".to_owned(), 2)];
    activity.days[0].referrers = vec![("da39a3ee5e6b4b0d3255bfef.example".to_owned(), 4)];
    let report = writer.write(activity, NOW).unwrap();
    assert_eq!(report, WriteReport { views: 5, ..WriteReport::default() });
    let views = writer.store().views(None).unwrap();
    assert_eq!((views.totals.human, views.views[0].path.as_str()), (3, "/guide"));
    for (by, key, count) in [("notFound", "/u/[masked]", 3), ("referrer", "[masked].example", 4)] {
        let pages = writer.store().pages(Some(&format!("by={by}"))).unwrap();
        assert_eq!((pages.rows.len(), pages.rows[0].key.as_str(), pages.rows[0].count), (1, key, count));
    }
}

#[test]
fn secrets_and_ids_are_in_no_file() {
    let (folder, mut writer) = writer();
    let secret = "key Da39A3ee5e6b4b0d3255bfef";
    let activity = ReaderActivity {
        searches: vec![search(0x1122_3344_5566_7788, secret, NOW), click(0x1122_3344_5566_7788, "/page", NOW)],
        ..day_of_views(20_454, 1)
    };
    writer.write(activity, NOW).unwrap();
    let is_in_files = |text: &str| count_in_files(folder.path(), text) > 0;
    assert!(is_in_files("key [masked]") && is_in_files("/page"));
    for text in ["Da39A3ee", "da39a3ee", "1122334455667788", "\u{11}\u{22}\u{33}\u{44}"] {
        assert!(!is_in_files(text), "{text:?}");
    }
    let number = 0x1122_3344_5566_7788_u64;
    assert!(!is_in_files(&number.to_string()));
    // Without masking, the text is stored.
    writer.set_settings(WriterSettings { mask: false, ..SETTINGS });
    writer.write(searches(vec![search(1, secret, NOW)]), NOW).unwrap();
    assert!(is_in_files("da39a3ee"));
}

/// Writes searches and clicks in such an order that `SQLite` distributes their rows over pages again and again. Every
/// fifth search has the term `forgotten words`.
fn write_growing_rows(writer: &mut ActivityWriter) {
    const SEARCHES_PER_WRITE: u64 = 50;
    for write in 0..40 {
        let mut activity = Vec::new();
        for n in write * SEARCHES_PER_WRITE..(write + 1) * SEARCHES_PER_WRITE {
            let filler = "w".repeat(usize::try_from(n * 53 % 400 + 1).unwrap());
            let query = if n % 5 == 0 { "Forgotten  words" } else { filler.as_str() };
            activity.push(search(n, query, NOW + n.cast_signed()));
            // A click makes a row of the previous write longer.
            if n % 2 == 0 && write > 0 {
                let page = format!("/{}", "p".repeat(usize::try_from(n * 37 % 900).unwrap()));
                activity.push(click(n - SEARCHES_PER_WRITE, &page, NOW + n.cast_signed()));
            }
        }
        writer.write(searches(activity), NOW).unwrap();
    }
}

// Regression: with `secure_delete` alone, copies of deleted rows stayed in unused parts of pages.
#[test]
fn a_forgotten_text_is_in_no_file() {
    let (folder, mut writer) = writer();
    write_growing_rows(&mut writer);
    let damaged = folder.path().join("analytics.db.damaged-5");
    fs::write(&damaged, "forgotten words").unwrap();
    assert!(count_in_files(folder.path(), "forgotten words") > 400);
    let deleted = writer.store().forget_query(" forgotten WORDS").unwrap();
    assert_eq!(deleted, DeletedRows { searches: 400, ..DeletedRows::default() });
    assert_eq!(count_in_files(folder.path(), "forgotten words"), 0);
    assert!(!damaged.exists());
    assert_eq!(rows(&writer).len(), 1_600);
    // Clicks on forgotten searches are unknown, and recording goes on.
    let activity = vec![click(1_995, "/x", NOW + 1_995), search(9_999, "later", NOW + 5_000)];
    let report = writer.write(searches(activity), NOW + 5_000).unwrap();
    assert_eq!((report.searches, report.unknown_clicks), (1, 1));
}

#[test]
fn everything_before_a_forgotten_day_is_in_no_file() {
    let (folder, mut writer) = writer();
    for (day, query) in [(20_453, "first day"), (20_454, "second day")] {
        let mut activity = day_of_views(day, 1);
        activity.days[0].not_found = vec![(format!("/{query}"), 1)];
        activity.searches = vec![search(1, query, day * DAY_MS)];
        writer.write(activity, day * DAY_MS).unwrap();
    }
    let deleted = writer.store().forget_before(20_454).unwrap();
    assert_eq!(deleted.searches, 1);
    assert!(deleted.count_rows >= 2, "{deleted:?}");
    assert_eq!(count_in_files(folder.path(), "first day"), 0);
    assert!(count_in_files(folder.path(), "second day") > 0);
    assert_eq!(rows(&writer), [row("second day", None)]);
    assert_eq!(writer.store().views(None).unwrap().totals.human, 1);
}

#[test]
fn days_older_than_the_limit_are_deleted_by_the_hourly_maintenance() {
    let (folder, mut writer) = writer();
    for day in 20_450..=20_454 {
        let activity = ReaderActivity { searches: vec![search(1, "a", day * DAY_MS)], ..day_of_views(day, 1) };
        writer.write(activity, day * DAY_MS).unwrap();
    }
    let old_file = folder.path().join(format!("analytics.db.damaged-{}", 20_451 * DAY_MS / 1000));
    fs::write(&old_file, "old").unwrap();
    // The limit is within the day 20,452, which is still needed.
    let now = NOW + DAY_MS / 2;
    writer.set_settings(WriterSettings { keep: Some(Duration::from_hours(48)), ..SETTINGS });
    writer.write(ReaderActivity::default(), now).unwrap();
    assert_eq!(rows(&writer).len(), 3);
    let days = writer.store().pages(Some("by=day")).unwrap().rows;
    assert_eq!(days.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["2025-12-30", "2025-12-31", "2026-01-01"]);
    assert!(!old_file.exists());
    // Searches that expire within a day are no part of totals.
    assert_eq!(writer.store().searches(None).unwrap().total_searches, 1);
    writer.write(ReaderActivity::default(), now + DAY_MS).unwrap();
    assert_eq!(rows(&writer).len(), 2);
}

#[test]
fn the_oldest_days_are_deleted_when_the_file_is_too_large() {
    let (_folder, mut writer) = writer();
    for day in 20_435..=20_454_i64 {
        let text = |n: i64| format!("{day} {n} {}", "text ".repeat(20));
        let activity = (0..500_i64).map(|n| search(n.cast_unsigned(), &text(n), day * DAY_MS + n));
        writer.write(searches(activity.collect()), day * DAY_MS).unwrap();
    }
    let before = writer.store().bytes();
    assert!(before > 1_200_000, "{before}");
    writer.set_settings(WriterSettings { max_bytes: 600_000, ..SETTINGS });
    assert_eq!(writer.maintain(NOW + 1_000).unwrap(), None);
    let after = writer.store().bytes();
    assert!((300_000..=600_000).contains(&after), "{after}");
    let days = rows(&writer).into_iter().map(|(term, ..)| term[..5].parse::<i64>().unwrap());
    let (first, last) = (days.clone().min(), days.max());
    assert!(first > Some(20_440) && last == Some(20_454), "{first:?} {last:?}");
    // Even a single day is deleted.
    writer.set_settings(WriterSettings { max_bytes: 1, ..SETTINGS });
    writer.write(searches(vec![search(1, "later", NOW + DAY_MS)]), NOW + DAY_MS).unwrap();
    assert_eq!(rows(&writer), [row("later", None)]);
}

#[test]
fn after_a_write_on_a_full_disk_later_writes_succeed() {
    let (_folder, mut writer) = writer();
    writer.write(searches(vec![search(1, "before", NOW)]), NOW).unwrap();
    writer.store().set_max_pages(1);
    let texts = (0..2_000_u64).map(|n| search(n + 2, &format!("{n} {}", "text ".repeat(90)), NOW));
    let activity = ReaderActivity { searches: texts.collect(), dropped: 1, ..day_of_views(20_454, 3) };
    let error = writer.write(activity, NOW).unwrap_err();
    assert!(error.source.is_full_disk() && error.dropped == 2_006, "{error:?}");
    assert_eq!(rows(&writer), [row("before", None)]);
    writer.store().set_max_pages(1_000_000);
    // The searches that were lost are unknown, and their ids may be used again.
    let activity = vec![click(2, "/x", NOW), click(1, "/x", NOW), search(2, "after", NOW + 1), click(2, "/y", NOW + 1)];
    let report = writer.write(searches(activity), NOW).unwrap();
    assert_eq!(report, WriteReport { searches: 1, clicks: 2, unknown_clicks: 1, ..WriteReport::default() });
    assert_eq!(rows(&writer), [row("before", Some("/x")), row("after", Some("/y"))]);
}

#[test]
fn a_file_that_is_no_database_is_moved_aside_and_a_new_one_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(ANALYTICS_DATABASE);
    fs::write(&path, "no database ".repeat(1_000)).unwrap();
    fs::write(folder.path().join("analytics.db.damaged-5"), "older").unwrap();
    assert!(AnalyticsStore::open(&path).unwrap_err().is_damage());
    let (store, moved_path) = AnalyticsStore::open_or_replace(&path).unwrap();
    assert_eq!(fs::read_to_string(moved_path.unwrap()).unwrap(), "no database ".repeat(1_000));
    assert!(!folder.path().join("analytics.db.damaged-5").exists(), "at most one is kept");
    let mut writer = ActivityWriter::new(Arc::new(store), SETTINGS);
    writer.write(searches(vec![search(1, "a", NOW)]), NOW).unwrap();
    assert_eq!(rows(&writer), [row("a", None)]);
}

#[test]
fn damage_that_a_write_finds_begins_a_new_file_with_that_write() {
    let (folder, mut writer) = writer();
    writer.write(searches(vec![search(1, "before", NOW)]), NOW).unwrap();
    let (page, page_bytes): (usize, usize) = writer.store().read(|connection| {
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'searches'";
        let page: u32 = connection.query_row(sql, [], |row| row.get(0))?;
        let page_bytes: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        Ok((page as usize, page_bytes as usize))
    });
    writer.store().close();
    let path = folder.path().join(ANALYTICS_DATABASE);
    let mut content = fs::read(&path).unwrap();
    content[(page - 1) * page_bytes..page * page_bytes].fill(0xaa);
    fs::write(&path, content).unwrap();
    let activity = vec![click(1, "/x", NOW + 1), search(2, "after", NOW + 1)];
    let report = writer.write(searches(activity), NOW + 1).unwrap();
    assert_eq!((report.searches, report.clicks, report.unknown_clicks), (1, 0, 1));
    assert!(report.moved_aside.is_some_and(|moved| moved.exists()));
    assert_eq!(rows(&writer), [row("after", None)]);
    // A click finds its search in the new file.
    assert_eq!(writer.write(searches(vec![click(2, "/y", NOW + 2)]), NOW + 2).unwrap().clicks, 1);
}

#[test]
fn a_file_of_a_later_format_is_an_error_and_stays() {
    let (folder, writer) = writer();
    writer.store().write(|transaction| transaction.pragma_update(None, "user_version", 99)).unwrap();
    writer.store().close();
    let path = folder.path().join(ANALYTICS_DATABASE);
    let error = AnalyticsStore::open_or_replace(&path).unwrap_err();
    assert!(matches!(error, StoreError::Database(DatabaseError::NewerFormat { found: 99, .. })), "{error:?}");
    assert!(path.exists());
}

#[test]
fn a_command_beside_the_recording_process_reads_the_same_rows() {
    let (folder, mut writer) = writer();
    let path = folder.path().join(ANALYTICS_DATABASE);
    assert!(AnalyticsStore::open_existing(&folder.path().join("other.db")).unwrap().is_none());
    assert!(!folder.path().join("other.db").exists());
    let beside = AnalyticsStore::open_existing(&path).unwrap().unwrap();
    writer.write(searches(vec![search(1, "a", NOW), search(2, "b", NOW)]), NOW).unwrap();
    let first = beside.searches(Some("limit=1")).unwrap();
    assert_eq!((first.total_searches, first.searches[0].search_query.as_str()), (2, "a"));
    // A cursor of one process is valid in the other, although a later click has changed a row.
    writer.write(searches(vec![click(2, "/x", NOW)]), NOW).unwrap();
    let query = format!("limit=1&cursor={}", first.next_cursor.unwrap());
    let second = writer.store().searches(Some(&query)).unwrap();
    assert_eq!(second.searches[0].search_query, "b");
    assert_eq!(beside.installation().unwrap(), writer.store().installation().unwrap());
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{:?}", entry.file_name());
    }
}
