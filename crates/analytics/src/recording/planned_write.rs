//! The rows of one write: planned in memory, then inserted in one transaction.

use rusqlite::{Connection, params};

use super::PROJECT;
use super::database_size::DatabaseSize;
use super::mask::mask_secrets;
use super::recent_searches::{RecentSearches, RowKey, SearchKey};
use super::store::stored_term;
use crate::delivery::{EventSource, MAX_BATCH_BYTES, MAX_PAGE_CHARS, MAX_TERM_CHARS};
use crate::searches::rows::{BatchSize, BatchWriter, SearchRow};
use crate::views::add_day;
use docwharf_base::model::reader_activity::{
    DayActivity, ReaderActivity, SearchActivity, SearchId, SearchSource, ViewCounts,
};

/// The largest number of searches of one batch; more become several ones, with consecutive numbers. A delivery batch
/// has whole batches, so with the longest texts this number of searches must take less than
/// [`MAX_BATCH_BYTES`] as JSON.
pub(super) const MAX_BATCH_SEARCHES: usize = 250;
/// The number of bytes that a search has in JSON beside its term and page.
const EVENT_BYTES: usize = 256;
// As JSON, a character of a term has 6 bytes at most (an escape), and one of a path 4.
const _: () = assert!(MAX_BATCH_SEARCHES * (6 * MAX_TERM_CHARS + 4 * MAX_PAGE_CHARS + EVENT_BYTES) <= MAX_BATCH_BYTES);

/// The rows of one write.
#[derive(Debug, Default)]
pub(super) struct PlannedWrite {
    /// The time of the write, in milliseconds since 1970.
    received: i64,
    /// The id of the batch of searches.
    batch_id: String,
    searches: Vec<PlannedSearch>,
    /// The clicks on searches of earlier writes.
    clicks: Vec<(RowKey, String)>,
    days: Vec<DayActivity>,
    counts: PlanCounts,
}

/// The numbers that are known before the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PlanCounts {
    pub(super) searches: u64,
    /// The clicks on searches of the same write.
    pub(super) clicks_in_batch: u64,
    /// The clicks on searches of earlier writes.
    pub(super) later_clicks: u64,
    /// The clicks that refer to no known search.
    pub(super) unknown_clicks: u64,
    pub(super) views: u64,
    /// The searches and clicks that were lost earlier, and the clicks on pages with too long paths.
    pub(super) dropped: u64,
}

/// A new row of the table `searches`.
#[derive(Debug)]
struct PlannedSearch {
    time: i64,
    term: String,
    page: Option<String>,
    results: Option<u64>,
    source: Option<&'static str>,
}

impl PlannedSearch {
    /// Returns the approximate number of bytes that a receiver gets of the search.
    fn delivered_bytes(&self) -> u64 {
        (128 + self.term.len() + self.page.as_ref().map_or(0, String::len)) as u64
    }
}

/// The result of the transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenRows {
    /// The number of the first batch; `None` if there were no searches.
    pub(super) first_batch: Option<i64>,
    /// The number of later clicks whose search is still stored and had no click.
    pub(super) later_clicks: u64,
    /// The size of the database, in bytes.
    pub(super) used_bytes: u64,
}

impl PlannedWrite {
    /// Plans the rows of `activity`. Its searches are remembered in `recent`, without the number of their batch.
    pub(super) fn new(
        activity: ReaderActivity,
        recent: &mut RecentSearches,
        mask: bool,
        (received, batch_id): (i64, String),
    ) -> PlannedWrite {
        let ReaderActivity { mut days, searches, dropped } = activity;
        let counts = PlanCounts { views: count_views(&days), dropped, ..PlanCounts::default() };
        if mask {
            days.iter_mut().for_each(mask_day);
        }
        let mut plan = PlannedWrite { received, batch_id, days, counts, ..PlannedWrite::default() };
        for search in searches {
            plan.add_activity(search, recent, mask);
        }
        plan.counts.searches = plan.searches.len() as u64;
        plan.counts.later_clicks = plan.clicks.len() as u64;
        plan
    }

    fn add_activity(&mut self, activity: SearchActivity, recent: &mut RecentSearches, mask: bool) {
        match activity {
            SearchActivity::Search { id, query, results, source, time } => {
                let term = masked_term(&query, mask);
                // No row stores the id.
                let key = search_key(id, source, &term, recent);
                let source = (source == SearchSource::Assistant).then(|| EventSource::Assistant.name());
                let search = PlannedSearch { time, term, page: None, results, source };
                self.add_search(search, key, recent);
            }
            SearchActivity::Click { id, page, time } => self.add_click(SearchKey::Id(id), page, time, recent),
            SearchActivity::PageClick { query, page, time } => {
                let key = recent.term_key(&masked_term(&query, mask));
                self.add_click(key, page, time, recent);
            }
        }
    }

    fn add_search(&mut self, search: PlannedSearch, key: Option<SearchKey>, recent: &mut RecentSearches) {
        if search.term.is_empty() {
            return;
        }
        let place = i64::try_from(self.searches.len()).unwrap_or(i64::MAX);
        if key.is_none_or(|key| recent.remember(key, search.time, place)) {
            self.searches.push(search);
        }
    }

    fn add_click(&mut self, key: SearchKey, page: String, time: i64, recent: &mut RecentSearches) {
        if page.chars().count() > MAX_PAGE_CHARS {
            self.counts.dropped += 1;
            return;
        }
        let Some(row) = recent.click(key, time) else {
            self.counts.unknown_clicks += 1;
            return;
        };
        if row.batch.is_some() {
            self.clicks.push((row, page));
        } else if let Some(search) = usize::try_from(row.place).ok().and_then(|place| self.searches.get_mut(place)) {
            search.page = Some(page);
            self.counts.clicks_in_batch += 1;
        }
    }

    /// Returns the numbers that are known before the write.
    pub(super) fn counts(&self) -> PlanCounts {
        self.counts
    }

    /// Inserts the rows, in a transaction of the caller.
    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<WrittenRows> {
        let first_batch = self.insert_searches(connection)?;
        let later_clicks = self.update_clicks(connection)?;
        for day in &self.days {
            add_day(connection, PROJECT, day)?;
        }
        Ok(WrittenRows { first_batch, later_clicks, used_bytes: DatabaseSize::read(connection)?.used_bytes() })
    }

    /// Inserts the searches in batches of [`MAX_BATCH_SEARCHES`], and returns the number of the first one.
    fn insert_searches(&self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        let mut first_batch = None;
        for searches in self.searches.chunks(MAX_BATCH_SEARCHES) {
            let number = self.insert_batch(connection, searches)?;
            first_batch = first_batch.or(Some(number));
        }
        Ok(first_batch)
    }

    fn insert_batch(&self, connection: &Connection, searches: &[PlannedSearch]) -> rusqlite::Result<i64> {
        let rows = searches.len() as u64;
        let size = BatchSize { rows, searches: rows };
        let mut writer = BatchWriter::begin(connection, PROJECT, &self.batch_id, self.received, size)?;
        let number = connection.last_insert_rowid();
        for PlannedSearch { time, term, page, results, source } in searches {
            let clicks = u64::from(page.is_some());
            // The database has signed numbers only.
            let results = results.map(|results| results.min(i64::MAX.cast_unsigned()));
            let (page, source) = (page.as_deref(), *source);
            writer.push(SearchRow { time: *time, query: term, page, count: 1, clicks, results, source })?;
        }
        // The number is used up, which is all that paginated queries need. The row itself would only recognise a batch
        // that is sent again. With one for each second, it would take more space than the searches.
        connection.prepare_cached("DELETE FROM batches WHERE number = ?1")?.execute([number])?;
        let sql = "INSERT INTO unassigned_batches (batch, first_time, last_time, searches, bytes)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let times = searches.iter().map(|search| search.time);
        let (first_time, last_time) = (times.clone().min(), times.max());
        let bytes: u64 = searches.iter().map(PlannedSearch::delivered_bytes).sum();
        let values = params![number, first_time, last_time, rows.cast_signed(), bytes.cast_signed()];
        connection.prepare_cached(sql)?.execute(values)?;
        Ok(number)
    }

    /// Adds clicks to the rows of earlier searches, and returns the number of those that were changed. A row may have
    /// been deleted meanwhile.
    fn update_clicks(&self, connection: &Connection) -> rusqlite::Result<u64> {
        let mut update = connection.prepare_cached(
            "UPDATE searches SET page = ?1, clicks = 1
             WHERE project = ?2 AND time = ?3 AND batch = ?4 AND place = ?5 AND page IS NULL",
        )?;
        // The delivery batch of any other search is not made yet, and will have the click.
        let mut insert = connection.prepare_cached(
            "INSERT INTO later_clicks (time, batch, place)
             SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM unassigned_batches WHERE batch = ?2)",
        )?;
        let mut grow = connection
            .prepare_cached("UPDATE unassigned_batches SET bytes = bytes + octet_length(?2) WHERE batch = ?1")?;
        let mut changed = 0;
        for (RowKey { time, batch, place }, page) in &self.clicks {
            if update.execute(params![page, PROJECT, time, batch, place])? > 0 {
                if insert.execute(params![time, batch, place])? == 0 {
                    grow.execute(params![batch, page])?;
                }
                changed += 1;
            }
        }
        Ok(changed)
    }
}

/// Counts the views of all pages and days by all clients.
fn count_views(days: &[DayActivity]) -> u64 {
    let views = days.iter().flat_map(|day| &day.views);
    views.map(|(_, ViewCounts { human, ai, bot })| human + ai + bot).sum()
}

/// Returns the number of searches, clicks and views that are lost if `activity` is not written.
pub(super) fn count_activity(activity: &ReaderActivity) -> u64 {
    activity.dropped + activity.searches.len() as u64 + count_views(&activity.days)
}

/// Returns the term of a query. Secrets are masked first: afterwards a token would be in lower case, and an address
/// could be cut.
fn masked_term(query: &str, mask: bool) -> String {
    if mask { stored_term(&mask_secrets(query)) } else { stored_term(query) }
}

/// Returns the key by which a click may refer to a search. None refers to a search without id by an assistant.
fn search_key(id: Option<SearchId>, source: SearchSource, term: &str, recent: &RecentSearches) -> Option<SearchKey> {
    match (id, source) {
        (Some(id), _) => Some(SearchKey::Id(id)),
        (None, SearchSource::Reader) => Some(recent.term_key(term)),
        (None, SearchSource::Assistant) => None,
    }
}

/// Masks secrets in the texts of a day that clients chose. The paths of pages are those of the site.
fn mask_day(day: &mut DayActivity) {
    for (text, _) in day.not_found.iter_mut().chain(&mut day.referrers) {
        *text = mask_secrets(text).into_owned();
    }
}
