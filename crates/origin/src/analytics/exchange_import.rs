//! Imports what a host has recorded, from an exchange file.

use super::analytics_limits::{AnalyticsLimits, BatchRefusal};
use crate::database::{Database, DatabaseError};
use docwharf_analytics::delivery::{ExchangeFileError, ExchangeFileReader, ImportReport};

/// The error of an import. The batches before it are imported; importing the file again adds the others.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeImportError {
    /// The file was changed or cannot be read.
    #[error(transparent)]
    File(#[from] ExchangeFileError),
    /// A limit is reached.
    #[error(transparent)]
    Refused(#[from] BatchRefusal),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Imports an exchange file into `project`, within the `limits` of its organization. What was imported or delivered
/// before is not counted again. `now` is the time in milliseconds since 1970. This waits for the disk.
pub fn import_exchange_file(
    db: &Database,
    project: &str,
    file: &mut ExchangeFileReader,
    limits: &AnalyticsLimits,
    now: i64,
) -> Result<ImportReport, ExchangeImportError> {
    let mut report = ImportReport::default();
    loop {
        let batches = file.next_batches()?;
        if batches.is_empty() {
            return Ok(report);
        }
        let (project, limits) = (project.to_owned(), limits.clone());
        let added = db.write(move |transaction| {
            let (mut rows, mut bytes) = (0, 0);
            for batch in &batches {
                if !batch.is_duplicate(transaction, &project)? {
                    (rows, bytes) = (rows + batch.rows(), bytes + batch.bytes(&project));
                }
            }
            // Duplicate batches are acknowledged even if a limit is reached by now.
            if rows > 0
                && let Err(refusal) = limits.check_space(transaction, rows, bytes)?
            {
                return Ok(Err(refusal));
            }
            ImportReport::receive(transaction, &project, &batches, now).map(Ok)
        })?;
        report.add(added?);
    }
}
