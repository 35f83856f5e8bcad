//! Parsing of the query parameters of the queries for views and for pages. Pure functions.

use std::ops::Range;

use super::PageCountKey;
use crate::query_string::{MAX_QUOTED_CHARS, parse_dates, parse_whole_number, split_query, truncate};

/// The default number of rows on a result page.
const DEFAULT_LIMIT: u32 = 50;
/// The largest number of rows on a result page.
const MAX_LIMIT: u32 = 250;
/// The largest number of rows before a result page.
const MAX_OFFSET: u32 = 1_000_000;
const DAY_MILLISECONDS: i64 = 24 * 60 * 60 * 1000;
/// The values of `by`, for errors.
const KEY_NAMES: &str = "day, referrer, entry, notFound and agent";

/// The parsed parameters that both queries have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ViewQuery {
    /// The days, since 1970. A day counts if its first moment is within `dateFrom` (inclusive) and `dateTo`
    /// (exclusive).
    pub(super) days: Range<i64>,
    /// The number of rows on the result page.
    pub(super) limit: u32,
    /// The number of rows before the result page.
    pub(super) offset: u32,
}

/// Parses the parameters of a query for views. The error lists all mistakes.
pub(super) fn parse_views_query(query: Option<&str>) -> Result<ViewQuery, Vec<String>> {
    let mut problems = Vec::new();
    let values = split_query(query, ["dateFrom", "dateTo", "limit", "offset"], &mut problems);
    let query = parse_view_query(&values.each_ref().map(Option::as_deref), &mut problems);
    if problems.is_empty() { Ok(query) } else { Err(problems) }
}

/// Parses the parameters of a query for pages: those of views, and `by`. The error lists all mistakes.
pub(super) fn parse_pages_query(query: Option<&str>) -> Result<(PageCountKey, ViewQuery), Vec<String>> {
    let mut problems = Vec::new();
    let values = split_query(query, ["dateFrom", "dateTo", "limit", "offset", "by"], &mut problems);
    let [from, to, limit, offset, by] = values.each_ref().map(Option::as_deref);
    let query = parse_view_query(&[from, to, limit, offset], &mut problems);
    match parse_key(by, &mut problems) {
        Some(by) if problems.is_empty() => Ok((by, query)),
        _ => Err(problems),
    }
}

fn parse_view_query(&[from, to, limit, offset]: &[Option<&str>; 4], problems: &mut Vec<String>) -> ViewQuery {
    let (from, to) = parse_dates(from, to, problems);
    let days = from.map_or(i64::MIN, first_day_from)..to.map_or(i64::MAX, first_day_from);
    let limit = parse_whole_number("limit", limit, DEFAULT_LIMIT, 1..=MAX_LIMIT, problems);
    let offset = parse_whole_number("offset", offset, 0, 0..=MAX_OFFSET, problems);
    ViewQuery { days, limit, offset }
}

/// Returns the first day that begins at this time (milliseconds since 1970) or after it.
fn first_day_from(time: i64) -> i64 {
    time.div_euclid(DAY_MILLISECONDS) + i64::from(time.rem_euclid(DAY_MILLISECONDS) != 0)
}

/// Parses the required parameter `by`; `None` if it is invalid, which is added to `problems`.
fn parse_key(value: Option<&str>, problems: &mut Vec<String>) -> Option<PageCountKey> {
    match value {
        Some("day") => return Some(PageCountKey::Day),
        Some("referrer") => return Some(PageCountKey::Referrer),
        Some("entry") => return Some(PageCountKey::Entry),
        Some("notFound") => return Some(PageCountKey::NotFound),
        Some("agent") => return Some(PageCountKey::Agent),
        // An empty value is reported already.
        Some("") => {}
        Some(text) => problems.push(format!("by: {:?} is none of {KEY_NAMES}", truncate(text, MAX_QUOTED_CHARS))),
        None => problems.push(format!("by is missing; it is one of {KEY_NAMES}")),
    }
    None
}
