//! The terms that readers searched for. Searches arrive in batches, and queries return totals of terms.
//!
//! Searches are rows of the table `searches`, ordered by time, so the cost of a query depends on its period and not on
//! the size of the table. Each search belongs to a *batch*. Batches are numbered in the order of arrival, and a batch
//! is one commit. Later commits add no row to it, but a click is added to the row of its search. A paginated query is
//! bound to the newest batch number at its start (`cursor`): later batches, even those with old searches, have higher
//! numbers, so all result pages show the same searches; `ctr` and `topClickedPage` may differ by clicks that arrive
//! meanwhile. Only [`delete_older_than`] removes rows from these searches. The query then fails with an error that
//! states this, because its next result pages could miss terms or repeat them. To prevent this for a query that takes
//! hours, it leaves out searches that expire within a day of its start.
//!
//! Terms are folded when they arrive ([`term`]). Times are milliseconds since 1970, rounded down. The searches of
//! assistants are stored too, and they are no part of the totals.

mod clicked_pages;
mod cursor;
pub mod query;
mod query_parameters;
mod retention;
pub mod rows;
mod sorted_runs;
pub mod term;
#[cfg(test)]
mod tests;
pub mod time;
mod totals;

use serde::Serialize;

pub use query::query_searches;
pub use retention::{delete_older_than, projects_with_rows};

/// Terms that readers searched for: one result page.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Searches {
    /// The terms by hits, descending; terms with equal hits by their bytes.
    pub searches: Vec<Aggregate>,
    /// The number of all searches (not of terms) in the range; with `noResults`, of those that found nothing. It is the
    /// same on all result pages of a query.
    pub total_searches: u64,
    /// The cursor of the next result page; null on the last one.
    pub next_cursor: Option<String>,
}

/// A search term with its totals in the range.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Aggregate {
    /// The term, in lower case and on one line.
    pub search_query: String,
    /// The number of searches for it.
    pub hits: u64,
    /// The fraction of these searches that led to a click, from 0 to 1, with four decimals.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub ctr: f64,
    /// The page with the most clicks; of several, the first by its bytes; null if there were no clicks.
    pub top_clicked_page: Option<String>,
    /// The time of the last search for it, in UTC.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub last_searched_at: String,
}
