//! Export of what this host records to a file, for a receiver that no network reaches.

use std::io::{self, Write};

use super::changed_counts::{
    CountPosition, CountReceiver, CountSource, CountState, MAX_MOVED_COUNTS, begin_counts, last_day, new_view_batch,
    read_counts, send_changed,
};
use super::search_batches::{DeliveryBatchRow, installation_id, is_empty, read_search_batch};
use super::store::AnalyticsStore;
use crate::database::DatabaseError;
use crate::delivery::ExchangeFileWriter;
use crate::searches::time::format_rfc3339;

/// The part of what was recorded that is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportedPart {
    /// All that is stored.
    Everything,
    /// All that has changed since the last export.
    SinceLast,
}

/// The numbers of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportReport {
    /// The number of exported searches.
    pub searches: u64,
    /// The number of clicks on searches that may have been exported before.
    pub later_clicks: u64,
    /// The number of exported counts: of a page, host or name on a day.
    pub counts: u64,
    /// The number of batches in the file.
    pub batches: u64,
    /// The number of the last delivery batch that was exported.
    last_batch: i64,
}

/// The error of an export. Nothing is noted as exported.
#[derive(Debug, thiserror::Error)]
pub enum AnalyticsExportError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The file cannot be written.
    #[error("cannot write the file")]
    Write(#[source] io::Error),
}

/// The batches and counts that an export writes.
#[derive(Debug)]
struct ExportPlan {
    installation: String,
    /// The delivery batches after this number are exported.
    after: i64,
    counts: CountSource,
}

impl AnalyticsStore {
    /// Writes a part of what was recorded to `out`. `now` is the time in milliseconds since 1970. The caller makes the
    /// file durable and then calls [`AnalyticsStore::finish_export`].
    pub fn export<W: Write>(
        &self,
        out: W,
        part: ExportedPart,
        now: i64,
    ) -> Result<(W, ExportReport), AnalyticsExportError> {
        self.assign_batches(now)?;
        let plan = self.begin_export(part, now)?;
        let created = format_rfc3339(now).unwrap_or_default();
        let mut file =
            ExchangeFileWriter::new(out, &plan.installation, &created).map_err(AnalyticsExportError::Write)?;
        let mut report = ExportReport { last_batch: plan.after, ..ExportReport::default() };
        self.export_searches(&mut file, &mut report)?;
        self.export_counts(&mut file, &mut report, (plan.counts, now))?;
        let out = file.finish().map_err(AnalyticsExportError::Write)?;
        Ok((out, report))
    }

    /// Notes that the file is complete, so that the next export since the last one leaves its content out.
    pub fn finish_export(&self, report: &ExportReport) -> Result<(), DatabaseError> {
        let last_batch = report.last_batch;
        self.write(move |transaction| {
            let receiver = CountReceiver::Export as i64;
            let sql =
                "UPDATE count_receivers SET is_complete = 1, last_exported = max(last_exported, ?2) WHERE id = ?1";
            transaction.execute(sql, [receiver, last_batch])?;
            let sql = "DELETE FROM changed_counts WHERE receiver = ?1 AND state = ?2";
            transaction.execute(sql, [receiver, CountState::Sending as i64]).map(drop)
        })
    }

    fn export_searches<W: Write>(
        &self,
        file: &mut ExchangeFileWriter<W>,
        report: &mut ExportReport,
    ) -> Result<(), AnalyticsExportError> {
        loop {
            let after = report.last_batch;
            let next = self.query(|connection| {
                let row = DeliveryBatchRow::next(connection, after)?;
                row.map(|row| Ok((row.number, read_search_batch(connection, &row)?))).transpose()
            })?;
            let Some((number, batch)) = next else { return Ok(()) };
            report.last_batch = number;
            // Everything in it may have been deleted.
            if !is_empty(&batch) {
                file.write_searches(&batch).map_err(AnalyticsExportError::Write)?;
                report.searches += batch.events.len() as u64;
                report.later_clicks += batch.clicks.len() as u64;
                report.batches += 1;
            }
        }
    }

    fn export_counts<W: Write>(
        &self,
        file: &mut ExchangeFileWriter<W>,
        report: &mut ExportReport,
        (source, now): (CountSource, i64),
    ) -> Result<(), AnalyticsExportError> {
        let mut after = CountPosition::FIRST;
        loop {
            let chunk = self.query(move |connection| read_counts(connection, source, after, now))?;
            let Some(last) = chunk.last else { return Ok(()) };
            after = last;
            if chunk.counts.is_empty() {
                continue;
            }
            report.counts += chunk.counts.len() as u64;
            report.batches += 1;
            let batch = self.write(move |transaction| new_view_batch(transaction, chunk.counts))?;
            file.write_views(&batch).map_err(AnalyticsExportError::Write)?;
        }
    }

    /// Marks the counts of this export as being sent. Counts that change from now on belong to the next export.
    fn begin_export(&self, part: ExportedPart, now: i64) -> Result<ExportPlan, DatabaseError> {
        let receiver = CountReceiver::Export;
        let (is_new, last_exported, installation) = self.write(move |transaction| {
            let is_new = begin_counts(transaction, receiver, "")?;
            let sql = "SELECT last_exported FROM count_receivers WHERE id = ?1";
            let last_exported: i64 = transaction.query_row(sql, [receiver as i64], |row| row.get(0))?;
            Ok((is_new, last_exported, installation_id(transaction)?))
        })?;
        while self.write(move |transaction| send_changed(transaction, receiver, (last_day(now), MAX_MOVED_COUNTS)))? {}
        // The first export has everything.
        let has_everything = is_new || part == ExportedPart::Everything;
        Ok(ExportPlan {
            installation,
            after: if has_everything { 0 } else { last_exported },
            counts: if has_everything { CountSource::All } else { CountSource::Sending(receiver) },
        })
    }
}
