//! The errors of queries.

use super::database::DatabaseError;

/// An invalid request; it is answered with status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRequest {
    /// The error in one line.
    pub error: String,
    /// Each single mistake.
    pub details: Vec<String>,
}

/// The reason why a query fails.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The request is invalid.
    #[error("{}", .0.error)]
    Invalid(InvalidRequest),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl QueryError {
    /// Creates the error of an invalid request.
    pub(crate) fn invalid(error: &str, details: Vec<String>) -> QueryError {
        QueryError::Invalid(InvalidRequest { error: error.to_owned(), details })
    }
}
