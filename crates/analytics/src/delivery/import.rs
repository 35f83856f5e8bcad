//! Stores the batches of an exchange file.

use rusqlite::Connection;

use super::{CheckedBatch, CheckedSearchBatch, receive_search_batch, receive_view_batch};
use crate::searches::rows::find_batch;

/// The numbers of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// The number of batches in the file.
    pub batches: u64,
    /// The number of these batches that had arrived before and added nothing.
    pub duplicate_batches: u64,
    /// The number of searches that were added.
    pub searches: u64,
    /// The number of clicks that were added, to these searches and to earlier ones.
    pub clicks: u64,
    /// The number of views that were added, by people and all programs.
    pub views: u64,
}

impl CheckedBatch {
    /// Returns the largest number of rows that the batch adds to the database of an origin.
    pub fn rows(&self) -> u64 {
        match self {
            CheckedBatch::Searches(batch) => batch.rows(),
            CheckedBatch::Views(batch) => batch.rows(),
        }
    }

    /// Returns whether the batch adds nothing to what `project` has received before.
    pub fn is_duplicate(&self, connection: &Connection, project: &str) -> rusqlite::Result<bool> {
        match self {
            CheckedBatch::Searches(batch) => find_batch(connection, project, &batch.id).map(|size| size.is_some()),
            CheckedBatch::Views(batch) => batch.is_duplicate(connection, project),
        }
    }

    /// Returns the largest number of bytes that the batch adds to the database of an origin.
    pub fn bytes(&self, project: &str) -> u64 {
        match self {
            CheckedBatch::Searches(batch) => batch.bytes(project),
            CheckedBatch::Views(batch) => batch.bytes(project),
        }
    }
}

impl ImportReport {
    /// Stores batches of `project` that are imported at `now` (milliseconds since 1970), in a transaction of the
    /// caller, and returns what they have added.
    pub fn receive(
        connection: &Connection,
        project: &str,
        batches: &[CheckedBatch],
        now: i64,
    ) -> rusqlite::Result<ImportReport> {
        let mut report = ImportReport::default();
        for batch in batches {
            report.batches += 1;
            match batch {
                CheckedBatch::Searches(batch) => report.receive_searches(connection, project, batch, now)?,
                CheckedBatch::Views(batch) => {
                    let receipt = receive_view_batch(connection, project, batch)?;
                    report.duplicate_batches += u64::from(receipt.increased == 0);
                    report.views += receipt.views;
                }
            }
        }
        Ok(report)
    }

    fn receive_searches(
        &mut self,
        connection: &Connection,
        project: &str,
        batch: &CheckedSearchBatch,
        now: i64,
    ) -> rusqlite::Result<()> {
        let receipt = receive_search_batch(connection, project, batch, now)?;
        if receipt.duplicate {
            self.duplicate_batches += 1;
            return Ok(());
        }
        self.searches += receipt.accepted;
        let clicks_in_batch = batch.searches.iter().filter(|search| search.page.is_some()).count() as u64;
        self.clicks += clicks_in_batch + receipt.clicks.unwrap_or(0);
        Ok(())
    }

    /// Adds what further batches have added.
    pub fn add(&mut self, other: ImportReport) {
        let ImportReport { batches, duplicate_batches, searches, clicks, views } = other;
        self.batches += batches;
        self.duplicate_batches += duplicate_batches;
        self.searches += searches;
        self.clicks += clicks;
        self.views += views;
    }
}
