//! Totals of terms in a range, page by page.
//!
//! A page reads the rows of its range once, in the order in which they lie, and once more those with a page if one of its
//! own terms has any. What is held is a number of bytes for each term of the range, not for each search.

use std::cmp::Reverse;
use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::cursor::{Cursor, Range};
use super::parameters::{self, Asked};
use super::rows::unsigned;
use super::time::text;
use super::{Aggregate, QueryError, Searches, bad};
use crate::origin::db::Database;

/// Answers what the query of an address asks for of `project`; waits for the disk. `secret` signs cursors: those of
/// another secret are refused. `limit` may change from page to page, the dates may not.
pub fn searches(
    db: &Database,
    project: &str,
    query_string: Option<&str>,
    secret: &[u8; 32],
) -> Result<Searches, QueryError> {
    let wrong = |details| bad("the question for searches is wrong; see details", details);
    let Asked { range, limit, cursor } = parameters::read(query_string).map_err(wrong)?;
    let cursor = match cursor {
        None => None,
        Some(text) => match Cursor::read(&text, project, secret) {
            Some(cursor) if cursor.range == range => Some(cursor),
            Some(_) => return Err(wrong(vec!["cursor: it was given for other dates; send it with those".to_owned()])),
            None => {
                return Err(wrong(vec!["cursor: it was not given out for this project; begin without one".to_owned()]));
            }
        },
    };
    // One state of the database for both readings.
    let answer = db.read(|connection| page(connection, project, range, limit, cursor))?;
    let Some(Page { terms, total, next }) = answer else {
        let what = "cursor: some of the searches that it counts on are too old by now and gone; begin without one";
        return Err(wrong(vec![what.to_owned()]));
    };
    let next_cursor = next.map(|next| next.write(project, secret));
    Ok(Searches { searches: terms, total_searches: total, next_cursor })
}

#[derive(Debug)]
struct Page {
    terms: Vec<Aggregate>,
    total: u64,
    next: Option<Cursor>,
}

/// The page that `cursor` leads to, or the first; none if its state is not there any more.
fn page(
    connection: &Connection,
    project: &str,
    range: Range,
    limit: usize,
    cursor: Option<Cursor>,
) -> rusqlite::Result<Option<Page>> {
    let last_batch = match cursor {
        Some(cursor) => cursor.last_batch,
        None => newest(connection)?,
    };
    let state = State { project, range, last_batch };
    let (counts, total) = state.counts(connection)?;
    // What comes later is of no such state, so that searches can only have gone.
    if cursor.is_some_and(|cursor| cursor.total != total) {
        return Ok(None);
    }
    let offset = cursor.map_or(0, |cursor| cursor.offset);
    let (terms, is_last) = select(counts, usize::try_from(offset).unwrap_or(usize::MAX), limit);
    let pages = state.most_clicked(connection, &terms)?;
    let next = Cursor { range, last_batch, total, offset: offset + terms.len() as u64 };
    let terms = terms.into_iter().zip(pages).map(|(term, page)| term.aggregate(page)).collect();
    Ok(Some(Page { terms, total, next: (!is_last).then_some(next) }))
}

/// What there is of a term.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    hits: u64,
    clicks: u64,
    /// Milliseconds since 1970.
    last: i64,
    has_page: bool,
}

#[derive(Debug)]
struct Term {
    query: String,
    counts: Counts,
}

impl Term {
    fn aggregate(self, top_clicked_page: Option<String>) -> Aggregate {
        let Counts { hits, clicks, last, .. } = self.counts;
        Aggregate {
            search_query: self.query,
            hits,
            ctr: rate(clicks, hits),
            top_clicked_page,
            // Only times of the calendar come in.
            last_searched_at: text(last).unwrap_or_default(),
        }
    }
}

/// To four decimals.
fn rate(clicks: u64, hits: u64) -> f64 {
    (clicks as f64 / hits as f64 * 10_000.0).round() / 10_000.0
}

/// The searches of a range as they were when a batch had come and none after it.
#[derive(Debug, Clone, Copy)]
struct State<'a> {
    project: &'a str,
    range: Range,
    last_batch: i64,
}

impl State<'_> {
    /// All terms, and how many searches they are.
    fn counts(&self, connection: &Connection) -> rusqlite::Result<(HashMap<String, Counts>, u64)> {
        let mut select = connection.prepare(
            "SELECT query, time, count, clicks, page IS NOT NULL FROM searches
             WHERE project = ?1 AND time >= ?2 AND time < ?3 AND batch <= ?4 ORDER BY time",
        )?;
        let mut rows = select.query(params![self.project, self.range.from, self.range.to, self.last_batch])?;
        let mut terms: HashMap<String, Counts> = HashMap::new();
        let mut total = 0_u64;
        while let Some(row) = rows.next()? {
            let query = row.get_ref(0)?.as_str()?;
            let (hits, clicks) = (unsigned(row, 2)?, unsigned(row, 3)?);
            let counts = match terms.get_mut(query) {
                Some(counts) => counts,
                None => terms.entry(query.to_owned()).or_default(),
            };
            counts.hits = counts.hits.saturating_add(hits);
            counts.clicks = counts.clicks.saturating_add(clicks);
            // Rows come in the order of time.
            counts.last = row.get(1)?;
            counts.has_page |= row.get::<_, bool>(4)?;
            total = total.saturating_add(hits);
        }
        Ok((terms, total))
    }

    /// For each term the page that was clicked most; among equals the first by its bytes.
    fn most_clicked(&self, connection: &Connection, terms: &[Term]) -> rusqlite::Result<Vec<Option<String>>> {
        let places = terms.iter().enumerate().filter(|(_, term)| term.counts.has_page);
        let places: HashMap<&str, usize> = places.map(|(place, term)| (term.query.as_str(), place)).collect();
        let mut clicks: Vec<HashMap<String, u64>> = vec![HashMap::new(); terms.len()];
        if !places.is_empty() {
            let mut select = connection.prepare(
                "SELECT query, page, clicks FROM searches
                 WHERE project = ?1 AND time >= ?2 AND time < ?3 AND batch <= ?4 AND page IS NOT NULL",
            )?;
            let mut rows = select.query(params![self.project, self.range.from, self.range.to, self.last_batch])?;
            while let Some(row) = rows.next()? {
                let Some(place) = places.get(row.get_ref(0)?.as_str()?) else { continue };
                let (page, more) = (row.get_ref(1)?.as_str()?, unsigned(row, 2)?);
                match clicks[*place].get_mut(page) {
                    Some(clicks) => *clicks = clicks.saturating_add(more),
                    None => drop(clicks[*place].insert(page.to_owned(), more)),
                }
            }
        }
        let most = |pages: HashMap<String, u64>| {
            let most = pages.into_iter().max_by(|(a, clicks), (b, than)| clicks.cmp(than).then_with(|| b.cmp(a)));
            most.map(|(page, _)| page)
        };
        Ok(clicks.into_iter().map(most).collect())
    }
}

/// The number of the newest batch there ever was.
fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'batches'";
    Ok(connection.query_row(sql, [], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// The terms from `offset` on, by hits and then by their bytes, and whether there are none behind them.
fn select(terms: HashMap<String, Counts>, offset: usize, limit: usize) -> (Vec<Term>, bool) {
    let mut terms: Vec<Term> = terms.into_iter().map(|(query, counts)| Term { query, counts }).collect();
    let order = |a: &Term, b: &Term| (Reverse(a.counts.hits), &a.query).cmp(&(Reverse(b.counts.hits), &b.query));
    if offset >= terms.len() {
        return (Vec::new(), true);
    }
    // Sorting all for the sake of a page would cost more than reading them.
    if offset > 0 {
        terms.select_nth_unstable_by(offset, order);
        terms.drain(..offset);
    }
    let is_last = terms.len() <= limit;
    if !is_last {
        terms.select_nth_unstable_by(limit, order);
        terms.truncate(limit);
    }
    terms.sort_unstable_by(order);
    (terms, is_last)
}
