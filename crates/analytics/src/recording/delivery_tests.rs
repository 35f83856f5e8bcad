//! Delivery and export of what a host recorded, to the database of another host.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::delivery::{ExchangeFileReader, receive_search_batch, receive_view_batch};
use docwharf_agent::store::ANALYTICS_DATABASE;
use docwharf_base::model::reader_activity::{
    DayActivity, ReaderActivity, SearchActivity, SearchId, SearchSource, ViewCounts,
};

const DAY: i64 = 20_454;
/// 2026-01-01T00:00:00Z.
const NOW: i64 = DAY * DAY_MS;
const SETTINGS: WriterSettings = WriterSettings { mask: true, keep: None, max_bytes: u64::MAX };

/// A host that records, delivers and exports.
struct Host {
    folder: TempDir,
    writer: ActivityWriter,
}

impl Host {
    fn new() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let writer = open(folder.path());
        Host { folder, writer }
    }

    fn store(&self) -> &AnalyticsStore {
        self.writer.store()
    }

    /// Opens the database again, as after a crash: ids of searches are lost.
    fn restart(&mut self) {
        self.writer.store().close();
        self.writer = open(self.folder.path());
    }

    fn record(&mut self, searches: Vec<SearchActivity>, days: Vec<DayActivity>) {
        let activity = ReaderActivity { searches, days, ..ReaderActivity::default() };
        self.writer.write(activity, NOW).unwrap();
    }

    /// Delivers all that waits, each batch twice, with a restart before each second time.
    fn deliver_twice(&mut self, receiver: &AnalyticsStore) {
        self.store().begin_delivery("o").unwrap();
        self.store().assign_batches(NOW).unwrap();
        while let Some(batch) = self.store().next_batch(NOW).unwrap() {
            receive(receiver, &batch);
            self.restart();
            let again = self.store().next_batch(NOW).unwrap().unwrap();
            receive(receiver, &again);
            self.store().acknowledge(&again).unwrap();
        }
    }
}

fn open(folder: &Path) -> ActivityWriter {
    ActivityWriter::new(Arc::new(AnalyticsStore::open(&folder.join(ANALYTICS_DATABASE)).unwrap()), SETTINGS)
}

fn receive(receiver: &AnalyticsStore, batch: &OutgoingBatch) {
    match batch {
        OutgoingBatch::Searches { batch, .. } => {
            let checked = batch.clone().check(NOW).unwrap();
            receiver.write(move |transaction| receive_search_batch(transaction, PROJECT, &checked, NOW)).unwrap();
        }
        OutgoingBatch::Views { batch, .. } => {
            let checked = batch.clone().check(NOW).unwrap();
            receiver.write(move |transaction| receive_view_batch(transaction, PROJECT, &checked)).unwrap();
        }
    }
}

fn import(receiver: &AnalyticsStore, file: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let mut reader = ExchangeFileReader::copy(file, folder.path(), NOW).unwrap();
    receiver.import(&mut reader, NOW).unwrap();
}

fn export(host: &Host, part: ExportedPart) -> (Vec<u8>, ExportReport) {
    let (file, report) = host.store().export(Vec::new(), part, NOW).unwrap();
    host.store().finish_export(&report).unwrap();
    (file, report)
}

fn search(id: u64, query: &str) -> SearchActivity {
    let (id, query, source) = (Some(SearchId(id)), query.to_owned(), SearchSource::Reader);
    SearchActivity::Search { id, query, results: Some(7), source, time: NOW }
}

fn click(id: u64, page: &str) -> SearchActivity {
    SearchActivity::Click { id: SearchId(id), page: page.to_owned(), time: NOW }
}

fn day(day: i64, human: u64) -> DayActivity {
    DayActivity {
        day,
        views: vec![("/guide".to_owned(), ViewCounts { human, ai: 1, bot: 2 })],
        entries: vec![("/guide".to_owned(), human)],
        referrers: vec![("example.org".to_owned(), human)],
        not_found: vec![("/none".to_owned(), 1)],
        agents: vec![("curl".to_owned(), 2)],
    }
}

/// Term, page, number of searches, number of results.
type SearchRow = (String, Option<String>, i64, i64);
/// Day, kind, key, and the three counts.
type CountRow = (i64, i64, String, i64, i64, i64);

/// Returns all that reports can show of a store: the rows of searches and counts, without their internal numbers.
fn content(store: &AnalyticsStore) -> (Vec<SearchRow>, Vec<CountRow>) {
    store.read(|connection| {
        let sql = "SELECT query, page, count, coalesce(results, -1) FROM searches ORDER BY query, page";
        let mut select = connection.prepare(sql)?;
        let searches = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let searches = searches.collect::<rusqlite::Result<_>>()?;
        let sql = "SELECT day, 0, text, human, ai, bot FROM views JOIN view_keys ON id = path
                   UNION ALL SELECT day, kind, text, count, 0, 0 FROM day_counts JOIN view_keys ON id = key
                   ORDER BY 1, 2, 3";
        let mut select = connection.prepare(sql)?;
        let counts = select
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)))?;
        Ok((searches, counts.collect::<rusqlite::Result<_>>()?))
    })
}

#[test]
fn each_search_click_and_view_counts_once_though_every_batch_is_sent_twice() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "moat"), click(1, "/guide"), search(2, "tide")], vec![day(DAY, 3)]);
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()), content(host.store()));
    host.record(vec![search(3, "moat")], vec![day(DAY, 5), day(DAY + 1, 1)]);
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()), content(host.store()));
    assert_eq!(host.store().queue_state().unwrap(), DeliveryQueueState::default());
    // Nothing has changed, so nothing is sent.
    assert_eq!(host.store().next_batch(NOW).unwrap(), None);
}

#[test]
fn a_click_after_its_search_was_delivered_is_delivered_later() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "moat"), search(2, "tide")], Vec::new());
    host.store().assign_batches(NOW).unwrap();
    let first = host.store().next_batch(NOW).unwrap().unwrap();
    // The click comes while the batch is on its way: it may be part of what is sent again, and is sent once more.
    host.record(vec![click(2, "/late")], Vec::new());
    receive(receiver.store(), &first);
    host.store().acknowledge(&first).unwrap();
    assert_eq!(content(receiver.store()).0[1], ("tide".to_owned(), None, 1, 7));
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()).0[1], ("tide".to_owned(), Some("/late".to_owned()), 1, 7));
    assert_eq!(content(receiver.store()), content(host.store()));
}

#[test]
fn batches_have_at_most_1000_searches_and_their_clicks_find_them() {
    let (mut host, receiver) = (Host::new(), Host::new());
    let searches = (0..2_600).map(|n| search(n, &format!("term {n}"))).collect();
    host.record(searches, Vec::new());
    host.store().assign_batches(NOW).unwrap();
    let mut sizes = Vec::new();
    while let Some(batch) = host.store().next_batch(NOW).unwrap() {
        let OutgoingBatch::Searches { batch: body, searches, .. } = &batch else { panic!("counts") };
        assert_eq!(body.events.len() as u64, *searches);
        sizes.push(body.events.len());
        receive(receiver.store(), &batch);
        host.store().acknowledge(&batch).unwrap();
    }
    assert_eq!(sizes, [1_000, 1_000, 600]);
    host.record((0..2_600).map(|n| click(n, &format!("/{n}"))).collect(), Vec::new());
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()), content(host.store()));
    assert!(
        content(receiver.store())
            .0
            .iter()
            .all(|(query, page, ..)| { page.as_deref() == Some(&*query.replace("term ", "/")) })
    );
}

#[test]
fn what_is_forgotten_is_not_delivered_and_what_was_delivered_is_reported() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "kept"), search(2, "secret")], Vec::new());
    host.store().assign_batches(NOW).unwrap();
    let deleted = host.store().forget_query("Secret").unwrap();
    assert_eq!((deleted.searches, deleted.delivered_searches), (1, 0));
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()).0, [("kept".to_owned(), None, 1, 7)]);
    let deleted = host.store().forget_query("kept").unwrap();
    assert_eq!((deleted.searches, deleted.delivered_searches), (1, 1));
    // A batch of which nothing is left is not sent.
    host.record(vec![search(3, "gone")], vec![day(DAY, 1)]);
    host.store().assign_batches(NOW).unwrap();
    host.store().forget_before(DAY + 1).unwrap();
    assert_eq!(host.store().next_batch(NOW).unwrap(), None);
    assert_eq!(host.store().queue_state().unwrap(), DeliveryQueueState::default());
}

#[test]
fn counts_of_a_day_that_was_forgotten_before_its_end_are_added_to_those_before() {
    let (mut host, receiver) = (Host::new(), Host::new());
    let today = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let today = i64::try_from(today).unwrap();
    let views = |human| DayActivity {
        day: today,
        views: vec![("/guide".to_owned(), ViewCounts { human, ai: 0, bot: 0 })],
        ..DayActivity::default()
    };
    let deliver = |host: &mut Host| {
        host.store().begin_delivery("o").unwrap();
        while let Some(batch) = host.store().next_batch(today * DAY_MS).unwrap() {
            let OutgoingBatch::Views { batch: body, .. } = &batch else { panic!("searches") };
            let checked = body.clone().check(today * DAY_MS).unwrap();
            let received =
                receiver.store().write(move |transaction| receive_view_batch(transaction, PROJECT, &checked));
            received.unwrap();
            host.store().acknowledge(&batch).unwrap();
        }
    };
    host.record(Vec::new(), vec![views(5)]);
    deliver(&mut host);
    host.store().forget_before(today + 1).unwrap();
    host.record(Vec::new(), vec![views(2)]);
    deliver(&mut host);
    assert_eq!(content(receiver.store()).1, [(today, 0, "/guide".to_owned(), 7, 0, 0)]);
}

#[test]
fn beyond_the_limit_of_the_queue_the_oldest_batches_are_left_out_and_counted() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.store().begin_delivery("o").unwrap();
    for n in 0..3 {
        host.record(vec![search(n, &format!("{n}"))], Vec::new());
        // Each gets a batch of its own.
        host.store().assign_batches(NOW).unwrap();
    }
    assert_eq!(host.store().limit_queue(10_000).unwrap(), 0);
    assert_eq!(host.store().limit_queue(130).unwrap(), 2);
    assert_eq!(host.store().queue_state().unwrap().undelivered_searches, 2);
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()).0, [("2".to_owned(), None, 1, 7)]);
    // Reports and exports still have them.
    assert_eq!(content(host.store()).0.len(), 3);
    assert_eq!(export(&host, ExportedPart::Everything).1.searches, 3);
}

#[test]
fn a_refused_batch_is_not_sent_again_and_later_ones_are_sent() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "refused")], vec![day(DAY, 1)]);
    host.store().begin_delivery("o").unwrap();
    host.store().assign_batches(NOW).unwrap();
    for _ in 0..2 {
        let batch = host.store().next_batch(NOW).unwrap().unwrap();
        host.store().refuse(&batch).unwrap();
    }
    assert_eq!(host.store().next_batch(NOW).unwrap(), None);
    let state = host.store().queue_state().unwrap();
    assert_eq!((state.refused_batches, state.refused_counts), (1, 5));
    host.record(vec![search(2, "accepted")], vec![day(DAY, 1)]);
    host.store().assign_batches(NOW).unwrap();
    while let Some(batch) = host.store().next_batch(NOW).unwrap() {
        receive(receiver.store(), &batch);
        host.store().acknowledge(&batch).unwrap();
    }
    assert_eq!(content(receiver.store()).0, [("accepted".to_owned(), None, 1, 7)]);
    // A later value of a count has the refused one in it.
    assert_eq!(content(receiver.store()).1, content(host.store()).1);
}

#[test]
fn an_exported_file_counts_once_however_often_it_is_imported_and_beside_a_delivery() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "moat"), search(2, "tide")], vec![day(DAY, 3)]);
    let (file, report) = export(&host, ExportedPart::Everything);
    assert_eq!((report.searches, report.later_clicks, report.counts), (2, 0, 5));
    for _ in 0..2 {
        import(receiver.store(), &file);
        assert_eq!(content(receiver.store()), content(host.store()));
    }
    host.record(vec![click(1, "/a"), search(3, "more")], vec![day(DAY + 1, 1)]);
    host.deliver_twice(receiver.store());
    for part in [ExportedPart::SinceLast, ExportedPart::Everything] {
        import(receiver.store(), &export(&host, part).0);
        assert_eq!(content(receiver.store()), content(host.store()));
    }
}

#[test]
fn an_export_since_the_last_one_has_only_what_is_new_and_a_failed_one_is_not_the_last() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "a")], vec![day(DAY, 1)]);
    import(receiver.store(), &export(&host, ExportedPart::SinceLast).0);
    let (empty, report) = export(&host, ExportedPart::SinceLast);
    assert_eq!((report.searches, report.counts, report.batches), (0, 0, 0));
    import(receiver.store(), &empty);
    host.record(vec![search(2, "b"), click(1, "/late")], vec![day(DAY + 1, 1)]);
    // A disk that is full.
    let mut full = [0; 700];
    assert!(host.store().export(&mut full[..], ExportedPart::SinceLast, NOW).is_err());
    host.restart();
    let (file, report) = export(&host, ExportedPart::SinceLast);
    assert_eq!((report.searches, report.later_clicks, report.counts), (1, 1, 5));
    import(receiver.store(), &file);
    assert_eq!(content(receiver.store()), content(host.store()));
}

#[test]
fn what_was_imported_is_delivered_by_its_own_host_only() {
    let (mut host, mut other, receiver) = (Host::new(), Host::new(), Host::new());
    other.record(vec![search(1, "imported")], vec![day(DAY, 10)]);
    host.record(vec![search(1, "own")], vec![day(DAY, 1)]);
    import(host.store(), &export(&other, ExportedPart::Everything).0);
    host.record(vec![search(2, "own")], vec![day(DAY, 1)]);
    host.deliver_twice(receiver.store());
    let (searches, counts) = content(receiver.store());
    assert_eq!(searches.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), ["own", "own"]);
    assert_eq!(counts[0], (DAY, 0, "/guide".to_owned(), 2, 2, 4));
    other.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()), content(host.store()));
}

#[test]
fn searches_that_were_recorded_before_there_was_a_queue_are_delivered() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "old"), search(2, "older")], vec![day(DAY, 2)]);
    let script = include_str!("delivery.sql");
    // As the migration does it.
    let insert = &script[script.find("INSERT INTO unassigned_batches").unwrap()..];
    let insert = insert[..=insert.find(';').unwrap()].to_owned();
    host.store()
        .write(move |transaction| transaction.execute_batch(&format!("DELETE FROM unassigned_batches; {insert}")))
        .unwrap();
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()), content(host.store()));
}

#[test]
fn what_a_wrong_clock_recorded_waits_until_its_time_and_holds_nothing_else_back() {
    let (mut host, receiver) = (Host::new(), Host::new());
    let ahead = SearchActivity::Search {
        id: None,
        query: "ahead".to_owned(),
        results: None,
        source: SearchSource::Reader,
        time: NOW + 3 * DAY_MS,
    };
    host.record(vec![search(1, "now")], vec![day(DAY, 1)]);
    host.record(vec![ahead], vec![day(DAY + 3, 1)]);
    host.record(vec![search(2, "later")], vec![day(DAY, 1)]);
    import(receiver.store(), &export(&host, ExportedPart::Everything).0);
    host.deliver_twice(receiver.store());
    let (searches, counts) = content(receiver.store());
    assert_eq!(searches.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), ["later", "now"]);
    assert!(counts.iter().all(|row| row.0 == DAY), "{counts:?}");
    let later = NOW + 3 * DAY_MS;
    host.store().assign_batches(later).unwrap();
    let batch = host.store().next_batch(later).unwrap();
    assert!(matches!(batch, Some(OutgoingBatch::Searches { searches: 1, .. })), "{batch:?}");
}

#[test]
fn another_origin_receives_the_past_as_well() {
    let (mut host, first, second) = (Host::new(), Host::new(), Host::new());
    host.record(vec![search(1, "moat")], vec![day(DAY, 3), day(DAY + 1, 1)]);
    host.deliver_twice(first.store());
    host.store().begin_delivery("another").unwrap();
    while let Some(batch) = host.store().next_batch(NOW).unwrap() {
        receive(second.store(), &batch);
        host.store().acknowledge(&batch).unwrap();
    }
    assert_eq!(content(second.store()), content(host.store()));
}

#[test]
fn batches_that_were_refused_are_sent_again_after_the_settings_were_read_again() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record(vec![search(1, "moat")], vec![day(DAY, 1)]);
    host.store().begin_delivery("o").unwrap();
    host.store().assign_batches(NOW).unwrap();
    while let Some(batch) = host.store().next_batch(NOW).unwrap() {
        host.store().refuse(&batch).unwrap();
    }
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()), content(host.store()));
}

#[test]
fn imported_counts_that_became_other_here_are_not_delivered_as_own_ones() {
    let (mut host, mut other) = (Host::new(), Host::new());
    let referrers = |names: std::ops::Range<u64>| DayActivity {
        day: DAY,
        referrers: names.map(|n| (format!("{n}.example"), 1)).collect(),
        ..DayActivity::default()
    };
    host.record(Vec::new(), vec![referrers(0..1_000)]);
    other.record(Vec::new(), vec![referrers(5_000..5_050)]);
    import(host.store(), &export(&other, ExportedPart::Everything).0);
    let receiver = Host::new();
    host.deliver_twice(receiver.store());
    assert_eq!(content(receiver.store()).1.len(), 1_000);
    // An own one beyond the bound is.
    host.record(Vec::new(), vec![referrers(9_000..9_007)]);
    host.deliver_twice(receiver.store());
    let counts = content(receiver.store()).1;
    assert_eq!(counts.iter().find(|row| row.2 == "(other)").map(|row| row.3), Some(7));
}

#[test]
fn clicks_on_the_longest_pages_make_batches_of_bounded_size() {
    let (mut host, receiver) = (Host::new(), Host::new());
    host.record((0..1_000).map(|n| search(n, &format!("term {n}"))).collect(), Vec::new());
    host.store().assign_batches(NOW).unwrap();
    let page = format!("/{}", "\u{10ffff}".repeat(2_047));
    host.record((0..1_000).map(|n| click(n, &page)).collect(), Vec::new());
    // These are clicked before they are in a delivery batch.
    host.record((1_000..2_000).map(|n| search(n, &format!("term {n}"))).collect(), Vec::new());
    host.record((1_000..2_000).map(|n| click(n, &page)).collect(), Vec::new());
    // A batch that is too large is an error.
    let (file, report) = export(&host, ExportedPart::Everything);
    assert_eq!(report.later_clicks, 1_000);
    import(receiver.store(), &file);
    assert_eq!(content(receiver.store()), content(host.store()));
}

#[test]
fn later_clicks_of_a_forgotten_search_leave_the_queue() {
    let mut host = Host::new();
    host.record(vec![search(1, "secret"), search(2, "kept")], Vec::new());
    host.store().assign_batches(NOW).unwrap();
    host.record(vec![click(1, "/a"), click(2, "/b")], Vec::new());
    host.store().forget_query("secret").unwrap();
    let clicks = host
        .store()
        .read(|connection| connection.query_row("SELECT count(*) FROM later_clicks", [], |row| row.get::<_, i64>(0)));
    assert_eq!(clicks, 1);
}

#[test]
fn the_hourly_maintenance_puts_batches_together() {
    let mut host = Host::new();
    for n in 0..50 {
        host.record(vec![search(n, "moat")], Vec::new());
    }
    host.writer.maintain(NOW).unwrap();
    let number = |sql: &str| host.store().read(|connection| connection.query_row(sql, [], |row| row.get::<_, i64>(0)));
    assert_eq!(number("SELECT count(*) FROM unassigned_batches"), 0);
    assert!(number("SELECT count(*) FROM delivery_batches") <= 2);
}
