//! Totals of terms in a range, in result pages.
//!
//! For each result page the rows of the range are read once, in the order of storage. If one of the terms on it has
//! clicks, the rows with clicks are read once more. Memory is bounded for any number of terms: totals beyond the limit
//! are sorted, written to a temporary file, and merged.

use std::collections::HashMap;
use std::io;

use rusqlite::{Connection, Error::ToSqlConversionFailure, OptionalExtension, params};

use super::cursor::{Cursor, Range};
use super::parameters::{self, Asked};
use super::rows::unsigned;
use super::runs::{CHANGED, Counts};
use super::time::text;
use super::totals::{Ranking, Room, Totals};
use super::{Aggregate, QueryError, Searches, bad};
use crate::db::Database;

/// The memory for the terms of a query, in bytes. Sorting takes as much again.
const MEMORY: usize = 8 << 20;

/// Answers an analytics query for `project`. `secret` signs cursors, and cursors with another signature are refused.
/// `limit` may change between result pages, the dates may not. A new query leaves out searches before `oldest`
/// (milliseconds since 1970), which may expire while the query is under way. This waits for the disk.
pub fn searches(
    db: &Database,
    project: &str,
    query_string: Option<&str>,
    secret: &[u8; 32],
    oldest: i64,
) -> Result<Searches, QueryError> {
    searches_within(MEMORY, db, (project, secret, oldest), query_string)
}

/// Answers an analytics query with this number of bytes of memory.
pub(super) fn searches_within(
    memory: usize,
    db: &Database,
    (project, secret, oldest): (&str, &[u8; 32], i64),
    query_string: Option<&str>,
) -> Result<Searches, QueryError> {
    let wrong = |details| bad("the query for searches is invalid; see details", details);
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
    let room = Room::new(memory, db.folder());
    let begin = cursor.map_or(Begin::First { range, oldest }, Begin::After);
    // Both readings are in one transaction, so they see the same state.
    let answer = db.read(|connection| page(connection, &room, project, begin, limit))?;
    let Some(Page { terms, total, next }) = answer else {
        let what = "cursor: some of the searches that it covers were too old and have been removed; begin without one";
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

/// The position at which a result page begins.
#[derive(Debug, Clone, Copy)]
enum Begin {
    /// The first term. Searches before `oldest` do not count.
    First { range: Range, oldest: i64 },
    /// The terms after those on the previous result pages.
    After(Cursor),
}

/// Computes the result page at `begin`; `None` if rows of its snapshot have been removed.
fn page(
    connection: &Connection,
    room: &Room,
    project: &str,
    begin: Begin,
    limit: usize,
) -> rusqlite::Result<Option<Page>> {
    let walk = match begin {
        Begin::First { range, oldest } => {
            Cursor { range, oldest, last_batch: newest(connection)?, total: 0, offset: 0 }
        }
        Begin::After(cursor) => cursor,
    };
    let range = Range { from: walk.range.from.max(walk.oldest), to: walk.range.to };
    let state = State { project, range, last_batch: walk.last_batch };
    let (totals, total) = state.totals(connection, room)?;
    // Rows that are added later are not in the snapshot, so another total means that rows were removed.
    if matches!(begin, Begin::After(_)) && walk.total != total {
        return Ok(None);
    }
    let mut ranking = Ranking::new(room);
    totals.each(|entry| ranking.add(entry)).map_err(aside)?;
    let (entries, is_last) = ranking.page(walk.offset, limit).map_err(aside)?;
    let terms = entries.into_iter().map(|(term, counts)| Ok(Term { query: string(term)?, counts }));
    let terms = terms.collect::<io::Result<Vec<Term>>>().map_err(aside)?;
    let pages = state.most_clicked(connection, room, &terms)?;
    let next = Cursor { total, offset: walk.offset + terms.len() as u64, ..walk };
    let terms = terms.into_iter().zip(pages).map(|(term, page)| term.aggregate(page)).collect();
    Ok(Some(Page { terms, total, next: (!is_last).then_some(next) }))
}

/// Wraps an error of the temporary file, or of unexpected content in it.
fn aside(error: io::Error) -> rusqlite::Error {
    ToSqlConversionFailure(Box::new(error))
}

/// Converts a key to a string. Keys are made of strings, so this fails only if the temporary file was changed.
fn string(key: Vec<u8>) -> io::Result<String> {
    String::from_utf8(key).map_err(io::Error::other)
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
            // Every stored time was parsed from a date, so it can be formatted.
            last_searched_at: text(last).unwrap_or_default(),
        }
    }
}

/// Returns the fraction of searches with a click, rounded to four decimals.
fn rate(clicks: u64, hits: u64) -> f64 {
    (clicks as f64 / hits as f64 * 10_000.0).round() / 10_000.0
}

/// A snapshot: the searches of a range up to a batch.
#[derive(Debug, Clone, Copy)]
struct State<'a> {
    project: &'a str,
    range: Range,
    last_batch: i64,
}

impl State<'_> {
    /// Returns the totals of all terms, and the number of searches.
    fn totals(&self, connection: &Connection, room: &Room) -> rusqlite::Result<(Totals, u64)> {
        let mut select = connection.prepare(
            "SELECT query, time, count, clicks, page IS NOT NULL FROM searches
             WHERE project = ?1 AND time >= ?2 AND time < ?3 AND batch <= ?4 ORDER BY time",
        )?;
        let mut rows = select.query(params![self.project, self.range.from, self.range.to, self.last_batch])?;
        let (mut totals, mut total) = (Totals::new(room), 0_u64);
        while let Some(row) = rows.next()? {
            let hits = unsigned(row, 2)?;
            let counts = Counts { hits, clicks: unsigned(row, 3)?, last: row.get(1)?, has_page: row.get(4)? };
            totals.add(row.get_ref(0)?.as_str()?, counts).map_err(aside)?;
            total = total.saturating_add(hits);
        }
        Ok((totals, total))
    }

    /// Returns for each term the page with the most clicks; of several, the first by its bytes.
    fn most_clicked(
        &self,
        connection: &Connection,
        room: &Room,
        terms: &[Term],
    ) -> rusqlite::Result<Vec<Option<String>>> {
        let places = terms.iter().enumerate().filter(|(_, term)| term.counts.has_page);
        let places: HashMap<&str, usize> = places.map(|(place, term)| (term.query.as_str(), place)).collect();
        let mut best: Vec<Option<(u64, String)>> = vec![None; terms.len()];
        if places.is_empty() {
            return Ok(vec![None; terms.len()]);
        }
        let mut select = connection.prepare(
            "SELECT query, page, clicks FROM searches
             WHERE project = ?1 AND time >= ?2 AND time < ?3 AND batch <= ?4 AND page IS NOT NULL",
        )?;
        let mut rows = select.query(params![self.project, self.range.from, self.range.to, self.last_batch])?;
        let (mut totals, mut key) = (Totals::new(room), String::new());
        while let Some(row) = rows.next()? {
            let Some(place) = places.get(row.get_ref(0)?.as_str()?) else { continue };
            key.clear();
            // The place fits into one character, because a result page has 100 terms at most.
            key.push(char::from_u32(*place as u32).unwrap_or_default());
            key.push_str(row.get_ref(1)?.as_str()?);
            totals.add(&key, Counts { clicks: unsigned(row, 2)?, ..Counts::default() }).map_err(aside)?;
        }
        let better = |(key, counts): (Vec<u8>, Counts)| {
            let key = string(key)?;
            let mut characters = key.chars();
            let place = characters.next().map_or(0, |place| place as usize);
            let (page, clicks) = (characters.as_str(), counts.clicks);
            let best = best.get_mut(place).ok_or_else(|| io::Error::other(CHANGED))?;
            if best.as_ref().is_none_or(|(most, first)| clicks > *most || clicks == *most && page < first.as_str()) {
                *best = Some((clicks, page.to_owned()));
            }
            Ok(())
        };
        totals.each(better).map_err(aside)?;
        Ok(best.into_iter().map(|best| best.map(|(_, page)| page)).collect())
    }
}

/// Returns the number of the newest batch, even if it has been removed.
fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'batches'";
    Ok(connection.query_row(sql, [], |row| row.get(0)).optional()?.unwrap_or(0))
}
