//! Totals of the days in a range, in result pages.

use std::ops::Range;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{Connection, Row, params};

use super::parameters::{ViewQuery, parse_pages_query, parse_views_query};
use super::rows::CountKind;
use super::{KeyCount, PageCountKey, PageViews, Pages, ViewTotals, Views};
use crate::database::Database;
use crate::query_error::QueryError;
use crate::searches::rows::get_u64;

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Runs a query for the views of the pages of `project`. A day counts if its first moment (UTC) is within `dateFrom`
/// and `dateTo`, which is exclusive. This waits for the disk.
pub fn query_views(db: &Database, project: &str, query_string: Option<&str>) -> Result<Views, QueryError> {
    let invalid = |details| QueryError::invalid("the query for views is invalid; see details", details);
    let query = parse_views_query(query_string).map_err(invalid)?;
    // Both readings are in one transaction, so they see the same state.
    let views = db.read(|connection| {
        let totals = sum_views(connection, project, &query.days)?;
        let (views, has_more) = list_views(connection, project, &query)?;
        Ok(Views { totals, views, has_more })
    })?;
    Ok(views)
}

/// Runs a query for counts of one kind of `project`: the parameter `by`. A day counts if its first moment (UTC) is
/// within `dateFrom` and `dateTo`, which is exclusive. This waits for the disk.
pub fn query_pages(db: &Database, project: &str, query_string: Option<&str>) -> Result<Pages, QueryError> {
    let invalid = |details| QueryError::invalid("the query for pages is invalid; see details", details);
    let (by, query) = parse_pages_query(query_string).map_err(invalid)?;
    let (rows, has_more) = db.read(|connection| match by {
        PageCountKey::Day => list_days(connection, project, &query),
        PageCountKey::Referrer => list_counts(connection, project, CountKind::Referrer, &query),
        PageCountKey::Entry => list_counts(connection, project, CountKind::Entry, &query),
        PageCountKey::NotFound => list_counts(connection, project, CountKind::NotFound, &query),
        PageCountKey::Agent => list_counts(connection, project, CountKind::Agent, &query),
    })?;
    Ok(Pages { by, rows, has_more })
}

fn sum_views(connection: &Connection, project: &str, days: &Range<i64>) -> rusqlite::Result<ViewTotals> {
    let sql = "SELECT coalesce(sum(human), 0), coalesce(sum(ai), 0), coalesce(sum(bot), 0) FROM views
               WHERE project = ?1 AND day >= ?2 AND day < ?3";
    connection.prepare_cached(sql)?.query_row(params![project, days.start, days.end], read_view_totals)
}

/// Returns the pages of a result page, and whether there are more.
fn list_views(connection: &Connection, project: &str, query: &ViewQuery) -> rusqlite::Result<(Vec<PageViews>, bool)> {
    // The order of the join is fixed: the path of each page is looked up, but not that of each row.
    let sql = "SELECT human, ai, bot, text FROM (
                   SELECT path, sum(human) AS human, sum(ai) AS ai, sum(bot) AS bot FROM views
                   WHERE project = ?1 AND day >= ?2 AND day < ?3 GROUP BY path
               ) AS totals CROSS JOIN view_keys ON view_keys.id = totals.path
               ORDER BY human + ai DESC, text LIMIT ?4 OFFSET ?5";
    let mut select = connection.prepare_cached(sql)?;
    let values = params![project, query.days.start, query.days.end, query.limit + 1, query.offset];
    let rows = select.query_map(values, |row| {
        let ViewTotals { human, ai, total, bot } = read_view_totals(row)?;
        Ok(PageViews { path: row.get(3)?, human, ai, total, bot })
    })?;
    Ok(split_result_page(rows.collect::<rusqlite::Result<_>>()?, query.limit))
}

/// Returns the days of a result page with the views by people, and whether there are more.
fn list_days(connection: &Connection, project: &str, query: &ViewQuery) -> rusqlite::Result<(Vec<KeyCount>, bool)> {
    let sql = "SELECT day, sum(human) FROM views WHERE project = ?1 AND day >= ?2 AND day < ?3
               GROUP BY day HAVING sum(human) > 0 ORDER BY day LIMIT ?4 OFFSET ?5";
    let mut select = connection.prepare_cached(sql)?;
    let values = params![project, query.days.start, query.days.end, query.limit + 1, query.offset];
    let rows =
        select.query_map(values, |row| Ok(KeyCount { key: format_day(row.get(0)?), count: get_u64(row, 1)? }))?;
    Ok(split_result_page(rows.collect::<rusqlite::Result<_>>()?, query.limit))
}

/// Returns the counts of a result page, and whether there are more.
fn list_counts(
    connection: &Connection,
    project: &str,
    kind: CountKind,
    query: &ViewQuery,
) -> rusqlite::Result<(Vec<KeyCount>, bool)> {
    let sql = "SELECT text, total FROM (
                   SELECT key, sum(count) AS total FROM day_counts
                   WHERE project = ?1 AND day >= ?2 AND day < ?3 AND kind = ?4 GROUP BY key
               ) AS totals CROSS JOIN view_keys ON view_keys.id = totals.key
               ORDER BY total DESC, text LIMIT ?5 OFFSET ?6";
    let mut select = connection.prepare_cached(sql)?;
    let (days, limit) = (&query.days, query.limit + 1);
    let values = params![project, days.start, days.end, kind.number(), limit, query.offset];
    let rows = select.query_map(values, |row| Ok(KeyCount { key: row.get(0)?, count: get_u64(row, 1)? }))?;
    Ok(split_result_page(rows.collect::<rusqlite::Result<_>>()?, query.limit))
}

/// Reads the views by people, by AI services and by other programs from the first three columns.
fn read_view_totals(row: &Row<'_>) -> rusqlite::Result<ViewTotals> {
    let (human, ai, bot) = (get_u64(row, 0)?, get_u64(row, 1)?, get_u64(row, 2)?);
    Ok(ViewTotals { human, ai, total: human + ai, bot })
}

/// Removes the row after the result page, which was read only to learn whether there are more rows.
fn split_result_page<T>(mut rows: Vec<T>, limit: u32) -> (Vec<T>, bool) {
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    (rows, has_more)
}

/// Formats a day as YYYY-MM-DD.
pub(crate) fn format_day(day: i64) -> String {
    let time = Timestamp::from_second(day.saturating_mul(DAY_SECONDS));
    // Every stored day was the day of a clock, so it can be formatted.
    time.map_or_else(|_| String::new(), |time| time.to_zoned(TimeZone::UTC).date().to_string())
}
