//! Receives batches from clients, within the limits of their organization. A batch is stored completely or not at
//! all, and counts once.

use jiff::Timestamp;

use super::analytics_limits::AnalyticsLimits;
use super::{AnalyticsError, invalid_request};
use crate::database::Database;
use docwharf_analytics::delivery::{
    self, SearchBatch, SearchReceipt, ViewBatch, ViewReceipt, find_receipt, receive_search_batch,
};
use docwharf_analytics::searches::time::floor_to_millisecond;

/// Stores a batch of searches for `project`, within the `limits` of its organization. It blocks until the batch is on
/// disk.
pub fn receive_batch(
    db: &Database,
    project: &str,
    body: &[u8],
    limits: &AnalyticsLimits,
) -> Result<SearchReceipt, AnalyticsError> {
    receive_within(db, project, body, floor_to_millisecond(Timestamp::now()), Some(limits.clone()))
}

/// Stores a batch at a given time and without limits, for tests.
#[cfg(test)]
pub(super) fn receive_at(db: &Database, project: &str, body: &[u8], now: i64) -> Result<SearchReceipt, AnalyticsError> {
    receive_within(db, project, body, now, None)
}

fn receive_within(
    db: &Database,
    project: &str,
    body: &[u8],
    now: i64,
    limits: Option<AnalyticsLimits>,
) -> Result<SearchReceipt, AnalyticsError> {
    let invalid =
        |details| invalid_request("the batch is invalid, and none of its searches was accepted; see details", details);
    let batch = SearchBatch::parse(body).and_then(|batch| batch.check(now)).map_err(invalid)?;
    // A duplicate batch is acknowledged even if a limit is reached by now.
    if let Some(receipt) = db.read(|connection| find_receipt(connection, project, &batch.id))? {
        return Ok(receipt);
    }
    if let Some(limits) = &limits {
        limits.use_events(batch.searches.len() as u64)?;
    }
    let project = project.to_owned();
    let result = db.write(move |transaction| {
        if let Some(receipt) = find_receipt(transaction, &project, &batch.id)? {
            return Ok(Ok(receipt));
        }
        if let Some(limits) = limits
            && let Err(refusal) = limits.check_space(transaction, batch.rows(), batch.bytes(&project))?
        {
            return Ok(Err(refusal));
        }
        receive_search_batch(transaction, &project, &batch, now).map(Ok)
    })?;
    Ok(result?)
}

/// Stores a batch of the daily counts for `project`, within the `limits` of its organization. It blocks until the
/// batch is on disk.
pub fn receive_view_batch(
    db: &Database,
    project: &str,
    body: &[u8],
    limits: &AnalyticsLimits,
) -> Result<ViewReceipt, AnalyticsError> {
    let invalid =
        |details| invalid_request("the batch is invalid, and none of its counts was accepted; see details", details);
    let now = floor_to_millisecond(Timestamp::now());
    let batch = ViewBatch::parse(body).and_then(|batch| batch.check(now)).map_err(invalid)?;
    let (project, limits) = (project.to_owned(), limits.clone());
    let result = db.write(move |transaction| {
        // As in `receive_within`, a duplicate batch is acknowledged.
        if !batch.is_duplicate(transaction, &project)?
            && let Err(refusal) = limits.check_space(transaction, batch.rows(), batch.bytes(&project))?
        {
            return Ok(Err(refusal));
        }
        delivery::receive_view_batch(transaction, &project, &batch).map(Ok)
    })?;
    Ok(result?)
}
