//! Totals of terms in a range, in result pages.
//!
//! For each result page the rows of the range are read once, in the order of storage. If the pages with clicks need
//! more than [`QUERY_MEMORY_BYTES`], the rows with clicks are read once more. Memory is bounded for any number of
//! terms: totals beyond the limit are sorted, written to a temporary file, and merged.

use std::collections::HashMap;
use std::io;

use rusqlite::{Connection, Error::ToSqlConversionFailure, OptionalExtension, params};

use super::clicked_pages::ClickedPages;
use super::cursor::{SearchCursor, SearchRange};
use super::query_parameters::{SearchQuery, parse_query};
use super::rows::get_u64;
use super::sorted_runs::{FILE_CHANGED_MESSAGE, TermCounts};
use super::time::format_rfc3339;
use super::totals::{Ranking, SpillSettings, TermTotals};
use super::{Aggregate, Searches};
use crate::database::Database;
use crate::query_error::QueryError;

/// The memory for the terms of a query, in bytes, and as much for the pages with clicks. Sorting takes as much again.
const QUERY_MEMORY_BYTES: usize = 8 << 20;
/// The page with the most clicks of each term, after the number of its clicks.
type BestPages = Vec<Option<(u64, String)>>;

/// Runs an analytics query for `project`. `secret` signs cursors, and cursors with another signature are refused.
/// `limit` may change between result pages, the other parameters may not. A new query leaves out searches before
/// `oldest` (milliseconds since 1970), which may expire while the query is under way. This waits for the disk.
pub fn query_searches(
    db: &Database,
    project: &str,
    query_string: Option<&str>,
    secret: &[u8; 32],
    oldest: i64,
) -> Result<Searches, QueryError> {
    query_searches_within(QUERY_MEMORY_BYTES, db, (project, secret, oldest), query_string)
}

/// Runs an analytics query with this number of bytes of memory, for tests.
#[doc(hidden)]
pub fn query_searches_within(
    memory: usize,
    db: &Database,
    (project, secret, oldest): (&str, &[u8; 32], i64),
    query_string: Option<&str>,
) -> Result<Searches, QueryError> {
    let invalid = |details| QueryError::invalid("the query for searches is invalid; see details", details);
    let SearchQuery { range, no_results, limit, cursor } = parse_query(query_string).map_err(invalid)?;
    let start = match cursor {
        None => ResultPageStart::First { range, no_results, oldest },
        Some(text) => {
            let cursor = SearchCursor::decode(&text, project, secret)
                .ok_or("cursor: it was not created for this project; start without a cursor");
            let cursor = cursor.and_then(|cursor| check_cursor(cursor, range, no_results));
            ResultPageStart::After(cursor.map_err(|problem| invalid(vec![problem.to_owned()]))?)
        }
    };
    let spill_settings = SpillSettings::new(memory, db.folder());
    // Both readings are in one transaction, so they see the same state.
    let page = db.read(|connection| compute_page(connection, &spill_settings, project, start, limit))?;
    let Some(ResultPage { terms, total, next }) = page else {
        let problem =
            "cursor: some of the searches that it covers were too old and have been removed; start without a cursor";
        return Err(invalid(vec![problem.to_owned()]));
    };
    let next_cursor = next.map(|next| next.encode(project, secret));
    Ok(Searches { searches: terms, total_searches: total, next_cursor })
}

/// Checks that a cursor was created for the same range and filter.
fn check_cursor(cursor: SearchCursor, range: SearchRange, no_results: bool) -> Result<SearchCursor, &'static str> {
    if cursor.range != range {
        return Err("cursor: it was created for other dates; send it with those dates");
    }
    if cursor.no_results != no_results {
        return Err("cursor: it was created for another value of noResults; send it with that value");
    }
    Ok(cursor)
}

#[derive(Debug)]
struct ResultPage {
    terms: Vec<Aggregate>,
    total: u64,
    next: Option<SearchCursor>,
}

/// The position at which a result page begins.
#[derive(Debug, Clone, Copy)]
enum ResultPageStart {
    /// The first term. Searches before `oldest` do not count.
    First { range: SearchRange, no_results: bool, oldest: i64 },
    /// The terms after those on the previous result pages.
    After(SearchCursor),
}

/// Computes the result page at `start`; `None` if rows of its snapshot have been removed.
fn compute_page(
    connection: &Connection,
    spill_settings: &SpillSettings,
    project: &str,
    start: ResultPageStart,
    limit: usize,
) -> rusqlite::Result<Option<ResultPage>> {
    let cursor = match start {
        ResultPageStart::First { range, no_results, oldest } => {
            SearchCursor { range, no_results, oldest, last_batch: newest_batch(connection)?, total: 0, offset: 0 }
        }
        ResultPageStart::After(cursor) => cursor,
    };
    let range = SearchRange { from: cursor.range.from.max(cursor.oldest), to: cursor.range.to };
    let snapshot = SearchSnapshot { project, range, no_results: cursor.no_results, last_batch: cursor.last_batch };
    let mut clicked = ClickedPages::new(spill_settings.memory);
    let (totals, total) = snapshot.totals(connection, spill_settings, &mut clicked)?;
    // Rows that are added later are not in the snapshot, so another total means that rows were removed.
    if matches!(start, ResultPageStart::After(_)) && cursor.total != total {
        return Ok(None);
    }
    let mut ranking = Ranking::new(spill_settings);
    totals.for_each(|entry| ranking.add(entry)).map_err(temporary_file_error)?;
    let (entries, is_last) = ranking.page(cursor.offset, limit).map_err(temporary_file_error)?;
    let terms = entries.into_iter().map(|(term, counts)| Ok(RankedTerm { query: key_to_string(term)?, counts }));
    let terms = terms.collect::<io::Result<Vec<RankedTerm>>>().map_err(temporary_file_error)?;
    let pages = if let Some(pages) = most_clicked(&clicked, &terms) {
        pages
    } else {
        drop(clicked);
        snapshot.read_most_clicked(connection, spill_settings, &terms)?
    };
    let next = SearchCursor { total, offset: cursor.offset + terms.len() as u64, ..cursor };
    let terms = terms.into_iter().zip(pages).map(|(term, page)| term.aggregate(page)).collect();
    Ok(Some(ResultPage { terms, total, next: (!is_last).then_some(next) }))
}

/// Wraps an error of the temporary file, or of unexpected content in it.
fn temporary_file_error(error: io::Error) -> rusqlite::Error {
    ToSqlConversionFailure(Box::new(error))
}

/// Converts a key to a string. Keys are made of strings, so this fails only if the temporary file was changed.
fn key_to_string(key: Vec<u8>) -> io::Result<String> {
    String::from_utf8(key).map_err(io::Error::other)
}

#[derive(Debug)]
struct RankedTerm {
    query: String,
    counts: TermCounts,
}

impl RankedTerm {
    fn aggregate(self, top_clicked_page: Option<String>) -> Aggregate {
        let TermCounts { hits, clicks, last_searched: last, .. } = self.counts;
        Aggregate {
            search_query: self.query,
            hits,
            ctr: click_rate(clicks, hits),
            top_clicked_page,
            // Every stored time was parsed from a date, so it can be formatted.
            last_searched_at: format_rfc3339(last).unwrap_or_default(),
        }
    }
}

/// Returns the fraction of searches with a click, rounded to four decimals.
fn click_rate(clicks: u64, hits: u64) -> f64 {
    (clicks as f64 / hits as f64 * 10_000.0).round() / 10_000.0
}

/// A snapshot: the searches of readers in a range up to a batch.
#[derive(Debug, Clone, Copy)]
struct SearchSnapshot<'a> {
    project: &'a str,
    range: SearchRange,
    /// Whether only searches without results count.
    no_results: bool,
    last_batch: i64,
}

impl SearchSnapshot<'_> {
    /// Returns the SQL condition on the rows of the snapshot. Its parameters are the project, the start and the end of
    /// the range, and the newest batch. The searches of assistants are no part of it.
    fn condition(&self) -> &'static str {
        if self.no_results {
            "project = ?1 AND time >= ?2 AND time < ?3 AND batch <= ?4 AND source IS NULL AND results = 0"
        } else {
            "project = ?1 AND time >= ?2 AND time < ?3 AND batch <= ?4 AND source IS NULL"
        }
    }

    /// Returns the totals of all terms and the number of searches, and adds the clicks of pages to `clicked`.
    fn totals(
        &self,
        connection: &Connection,
        spill_settings: &SpillSettings,
        clicked: &mut ClickedPages,
    ) -> rusqlite::Result<(TermTotals, u64)> {
        let mut select = connection.prepare(&format!(
            "SELECT query, time, count, clicks, page FROM searches WHERE {} ORDER BY time",
            self.condition()
        ))?;
        let mut rows = select.query(params![self.project, self.range.from, self.range.to, self.last_batch])?;
        let (mut totals, mut total) = (TermTotals::new(spill_settings), 0_u64);
        while let Some(row) = rows.next()? {
            let (term, hits, clicks) = (row.get_ref(0)?.as_str()?, get_u64(row, 2)?, get_u64(row, 3)?);
            let page = row.get_ref(4)?.as_str_or_null()?;
            let counts = TermCounts { hits, clicks, last_searched: row.get(1)?, has_page: page.is_some() };
            totals.add(term, counts).map_err(temporary_file_error)?;
            if let Some(page) = page {
                clicked.add(term, page, clicks);
            }
            total = total.saturating_add(hits);
        }
        Ok((totals, total))
    }

    /// Reads for each term the page with the most clicks from the rows with clicks, as [`most_clicked`] returns it.
    fn read_most_clicked(
        &self,
        connection: &Connection,
        spill_settings: &SpillSettings,
        terms: &[RankedTerm],
    ) -> rusqlite::Result<Vec<Option<String>>> {
        let positions = positions_of(terms);
        let mut best: BestPages = vec![None; terms.len()];
        let mut select = connection.prepare(&format!(
            "SELECT query, page, clicks FROM searches WHERE {} AND page IS NOT NULL",
            self.condition()
        ))?;
        let mut rows = select.query(params![self.project, self.range.from, self.range.to, self.last_batch])?;
        let (mut totals, mut key) = (TermTotals::new(spill_settings), String::new());
        while let Some(row) = rows.next()? {
            let Some(position) = positions.get(row.get_ref(0)?.as_str()?) else { continue };
            key.clear();
            // The place fits into one character, because a result page has 100 terms at most.
            key.push(char::from_u32(*position as u32).unwrap_or_default());
            key.push_str(row.get_ref(1)?.as_str()?);
            totals
                .add(&key, TermCounts { clicks: get_u64(row, 2)?, ..TermCounts::default() })
                .map_err(temporary_file_error)?;
        }
        let update = |(key, counts): (Vec<u8>, TermCounts)| {
            let key = key_to_string(key)?;
            let mut characters = key.chars();
            let position = characters.next().map_or(0, |position| position as usize);
            let best = best.get_mut(position).ok_or_else(|| io::Error::other(FILE_CHANGED_MESSAGE))?;
            update_best(best, characters.as_str(), counts.clicks);
            Ok(())
        };
        totals.for_each(update).map_err(temporary_file_error)?;
        Ok(without_clicks(best))
    }
}

/// Returns for each term the page with the most clicks; of several, the first by its bytes. `None` if the clicks of
/// pages were too many to be counted.
fn most_clicked(clicked: &ClickedPages, terms: &[RankedTerm]) -> Option<Vec<Option<String>>> {
    let positions = positions_of(terms);
    let mut best: BestPages = vec![None; terms.len()];
    if positions.is_empty() {
        return Some(without_clicks(best));
    }
    let is_complete = clicked.for_each(|term, page, clicks| {
        if let Some(best) = positions.get(term).and_then(|position| best.get_mut(*position)) {
            update_best(best, page, clicks);
        }
    });
    is_complete.then(|| without_clicks(best))
}

/// Returns the positions of the terms that have clicks.
fn positions_of(terms: &[RankedTerm]) -> HashMap<&str, usize> {
    let positions = terms.iter().enumerate().filter(|(_, term)| term.counts.has_page);
    positions.map(|(position, term)| (term.query.as_str(), position)).collect()
}

fn update_best(best: &mut Option<(u64, String)>, page: &str, clicks: u64) {
    if best.as_ref().is_none_or(|(most, first)| clicks > *most || clicks == *most && page < first.as_str()) {
        *best = Some((clicks, page.to_owned()));
    }
}

fn without_clicks(best: BestPages) -> Vec<Option<String>> {
    best.into_iter().map(|best| best.map(|(_, page)| page)).collect()
}

/// Returns the number of the newest batch, even if it has been removed.
fn newest_batch(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'batches'";
    Ok(connection.query_row(sql, [], |row| row.get(0)).optional()?.unwrap_or(0))
}
