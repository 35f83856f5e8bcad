//! The views of pages by day, and further counts by day: the hosts that led people here, the pages with which they
//! began a visit, the paths that they did not find, and the programs that requested pages.
//!
//! [`add_day`] adds counts to the rows of a day. A row refers to its path, host or name by a number (the table
//! `view_keys`), so it takes about 20 bytes. The keys of a day are bounded: further ones are counted together as
//! [`OTHER_KEY`]. Queries return totals of the days in a range; `SQLite` sorts them, in a temporary file if they exceed
//! its cache.

mod parameters;
mod query;
mod rows;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub(crate) use query::format_day;
pub use query::{query_pages, query_views};
pub(crate) use rows::{CountKind, store_key};
pub use rows::{OTHER_KEY, add_day, delete_days_before, delete_views_before, oldest_day};

/// The SQL script that creates the tables. Deleting days needs the table of [`crate::delivery::TABLES`], too.
pub const TABLES: &str = include_str!("tables.sql");

/// The views of pages: one result page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Views {
    /// The views of all pages in the whole range. They are the same on all result pages of a query.
    pub totals: ViewTotals,
    /// The pages by `total`, descending; pages with equal totals by the bytes of their paths.
    pub views: Vec<PageViews>,
    /// Whether there are pages after these.
    pub has_more: bool,
}

/// Views by class of visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ViewTotals {
    /// Views by people.
    pub human: u64,
    /// Views by agents and crawlers of AI services.
    pub ai: u64,
    /// The sum of `human` and `ai`.
    pub total: u64,
    /// Views by other programs. They are no part of `total`.
    pub bot: u64,
}

/// The views of a page in the range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PageViews {
    /// The path of the page.
    pub path: String,
    /// Views by people.
    pub human: u64,
    /// Views by agents and crawlers of AI services.
    pub ai: u64,
    /// The sum of `human` and `ai`.
    pub total: u64,
    /// Views by other programs. They are no part of `total`.
    pub bot: u64,
}

/// Counts of one kind: one result page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pages {
    /// The kind of the keys.
    pub by: PageCountKey,
    /// Days in ascending order, without those that no person viewed a page on. Other keys by `count`, descending; keys
    /// with equal counts by their bytes.
    pub rows: Vec<KeyCount>,
    /// Whether there are rows after these.
    pub has_more: bool,
}

/// A key with its count in the range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyCount {
    /// A day as YYYY-MM-DD, a host, a path or a name; `(other)` for all that exceed the limits of their days.
    pub key: String,
    /// The count.
    pub count: u64,
}

/// The key by which views are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PageCountKey {
    /// The day (UTC): the views by people.
    Day,
    /// The host whose page led a person here.
    Referrer,
    /// The path of the page with which a person began a visit.
    Entry,
    /// A path that a person requested and that does not exist.
    NotFound,
    /// The name of the program that requested a page.
    Agent,
}
