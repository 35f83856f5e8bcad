//! Analytics of an origin: receives searches and daily counts in batches or from files. The crate
//! [`docwharf_analytics`] stores them and answers queries.

pub mod analytics_limits;
pub mod batch;
mod exchange_import;
pub mod import;
mod import_spool;
#[cfg(test)]
mod tests;

use docwharf_analytics::query_error::{InvalidRequest, QueryError};

use super::database::DatabaseError;

pub use analytics_limits::{AnalyticsLimits, BatchRefusal, DatabaseUsage};
pub use batch::{receive_batch, receive_view_batch};
pub use exchange_import::{ExchangeImportError, import_exchange_file};
pub use import::import_csv;

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

impl From<QueryError> for AnalyticsError {
    fn from(error: QueryError) -> AnalyticsError {
        match error {
            QueryError::Invalid(invalid) => AnalyticsError::Invalid(invalid),
            QueryError::Database(error) => AnalyticsError::Database(error),
        }
    }
}

fn invalid_request(error: &str, details: Vec<String>) -> AnalyticsError {
    AnalyticsError::Invalid(InvalidRequest { error: error.to_owned(), details })
}
