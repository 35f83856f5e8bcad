//! What readers searched for: events come in by batches or from files, and go out as totals of terms.
//!
//! Events lie in the table `searches` in the order of time, so that a question costs what its period costs, not what the
//! table has. Each belongs to a *batch*, and batches are numbered as they arrive. A batch is one commit and never
//! changes; its number is what a walk through pages holds on to: whatever arrives meanwhile, late events with old times
//! too, has a higher number, and all pages are of one state ([`cursor`]). Only [`prune`] takes anything of such a state
//! away; the walk then ends with an error that says so, because going on could miss terms or say them twice. So that this
//! does not happen to a walk that takes hours, nothing counts for it that goes within a day of its beginning.
//!
//! Terms are folded when they arrive ([`term`]). Times are milliseconds since 1970, cut off, not rounded.

pub mod allowance;
mod cursor;
pub mod import;
pub mod ingest;
mod parameters;
mod query;
mod retention;
mod rows;
mod runs;
mod spool;
mod term;
#[cfg(test)]
mod tests;
mod time;
mod totals;

use schemars::JsonSchema;
use serde::Serialize;

use super::db::DatabaseError;

pub use allowance::{Allowance, DatabaseUse, NoRoom};
pub use import::import;
pub use ingest::ingest;
pub use query::searches;
pub use retention::{projects, prune};

/// What is wrong with a request: an answer with status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// One line.
    pub error: String,
    /// Each thing that is wrong.
    pub details: Vec<String>,
}

/// Why a request has no other answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It is wrong.
    #[error("{}", .0.error)]
    Bad(Bad),
    /// There is no room for what it brings: status 429.
    #[error(transparent)]
    Full(#[from] NoRoom),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

fn bad(error: &str, details: Vec<String>) -> QueryError {
    QueryError::Bad(Bad { error: error.to_owned(), details })
}

/// A page of terms.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Searches {
    /// By hits, descending; among equals by the bytes of the term.
    pub searches: Vec<Aggregate>,
    /// Searches in the whole range: events, not terms. The same on all pages of a walk.
    pub total_searches: u64,
    /// For the next page; null if this is the last.
    pub next_cursor: Option<String>,
}

/// A term, and what came of the searches for it in the range.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aggregate {
    /// The term: one line, in lower case.
    pub search_query: String,
    /// Searches for it.
    pub hits: u64,
    /// Searches that led to a click, as a part of one, to four decimals.
    #[schemars(range(min = 0, max = 1))]
    pub ctr: f64,
    /// The page that was clicked most; among equals the first by its bytes; null if none was.
    pub top_clicked_page: Option<String>,
    /// When it was last searched for, in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub last_searched_at: String,
}
