//! Search analytics: the terms that readers searched for. Events arrive in batches or from files, and queries return
//! totals of terms.
//!
//! Events are rows of the table `searches`, ordered by time, so the cost of a query depends on its period and not on
//! the size of the table. Each event belongs to a *batch*. Batches are numbered in the order of arrival, and a batch is
//! one commit that never changes. A paginated query is bound to the newest batch number at its start ([`cursor`]):
//! later batches, even those with old events, have higher numbers, so all result pages show the same snapshot. Only
//! [`delete_older_than`] removes rows from a snapshot. The query then fails with an error that states this, because its
//! next result pages could miss terms or repeat them. To prevent this for a query that takes hours, it leaves out
//! searches that expire within a day of its start.
//!
//! Terms are folded when they arrive ([`term`]). Times are milliseconds since 1970, rounded down.

pub mod batch;
mod cursor;
pub mod import;
mod import_spool;
mod query;
mod query_parameters;
mod retention;
mod rows;
pub mod search_limits;
mod sorted_runs;
mod term;
#[cfg(test)]
mod tests;
mod time;
mod totals;

use schemars::JsonSchema;
use serde::Serialize;

use super::database::DatabaseError;

pub use batch::receive_batch;
pub use import::import_csv;
pub use query::query_searches;
pub use retention::{delete_older_than, projects_with_searches};
pub use search_limits::{BatchRefusal, DatabaseUsage, SearchLimits};

/// An invalid request; it is answered with status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRequest {
    /// The error in one line.
    pub error: String,
    /// Each single mistake.
    pub details: Vec<String>,
}

/// The reason why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum AnalyticsError {
    /// The request is invalid.
    #[error("{}", .0.error)]
    Invalid(InvalidRequest),
    /// A limit is reached (status 429), or the disk is nearly full (status 503).
    #[error(transparent)]
    Refused(#[from] BatchRefusal),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

fn invalid_request(error: &str, details: Vec<String>) -> AnalyticsError {
    AnalyticsError::Invalid(InvalidRequest { error: error.to_owned(), details })
}

/// Terms that readers searched for: one result page.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Searches {
    /// The terms by hits, descending; terms with equal hits by their bytes.
    pub searches: Vec<Aggregate>,
    /// The number of searches (not of terms) in the whole range. It is the same on all result pages of a query.
    pub total_searches: u64,
    /// The cursor of the next result page; null on the last one.
    pub next_cursor: Option<String>,
}

/// A search term with its totals in the range.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aggregate {
    /// The term, in lower case and on one line.
    pub search_query: String,
    /// The number of searches for it.
    pub hits: u64,
    /// The fraction of these searches that led to a click, from 0 to 1, with four decimals.
    #[schemars(range(min = 0, max = 1))]
    pub ctr: f64,
    /// The page with the most clicks; of several, the first by its bytes; null if there were no clicks.
    pub top_clicked_page: Option<String>,
    /// The time of the last search for it, in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub last_searched_at: String,
}
