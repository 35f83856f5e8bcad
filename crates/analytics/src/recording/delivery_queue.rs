//! The queue of what this host sends to an origin.
//!
//! A search is put into a delivery batch once ([`AnalyticsStore::assign_batches`]), for all receivers. The id of the
//! delivery batch is that of the installation and a number, and a receiver counts it once by its id. So it may be sent
//! several times, to an origin and in files.
//!
//! Daily counts are absolute: all that this installation has counted on a day so far. A receiver keeps the largest
//! numbers, so these batches may be repeated as well. The table `changed_counts` has the counts of which a receiver
//! does not have the present value.
//!
//! The queue only refers to searches and counts. So what is forgotten or deleted is in no batch that is sent later.

use rusqlite::{Connection, params};

use super::DAY_MS;
use super::changed_counts::{
    CountReceiver, CountState, begin_counts, complete_counts, end_counts, mark_counts, take_next_counts,
};
use super::search_batches::{DeliveryBatchRow, DeliveryBatchState, assign_next_batches, is_empty, read_search_batch};
use super::store::AnalyticsStore;
use crate::database::DatabaseError;
use crate::delivery::{SearchBatch, ViewBatch};
use crate::searches::rows::get_u64;
use crate::searches::time::MAX_CLOCK_SKEW;

/// A batch for the origin.
#[derive(Debug, Clone, PartialEq)]
pub enum OutgoingBatch {
    /// Searches, and clicks on searches that were sent before.
    Searches {
        /// The number of the delivery batch.
        number: i64,
        /// The number of its searches.
        searches: u64,
        /// The batch.
        batch: SearchBatch,
    },
    /// Daily counts.
    Views {
        /// The batch.
        batch: ViewBatch,
        /// Whether more counts wait.
        has_more: bool,
    },
}

/// The state of the delivery to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryQueueState {
    /// The searches that wait.
    pub waiting_searches: u64,
    /// The counts whose present value the origin does not have.
    pub waiting_counts: u64,
    /// The batches of searches that the origin has refused.
    pub refused_batches: u64,
    /// The counts that the origin has refused.
    pub refused_counts: u64,
    /// The searches that are not delivered, because too many waited.
    pub undelivered_searches: u64,
}

impl AnalyticsStore {
    /// Puts all searches and later clicks that are in no delivery batch into delivery batches, without those that are
    /// more than a day ahead of `now` (milliseconds since 1970): they were recorded while the clock was wrong.
    pub fn assign_batches(&self, now: i64) -> Result<(), DatabaseError> {
        let last_time = now.saturating_add(MAX_CLOCK_SKEW.as_millis() as i64);
        while self.write(move |transaction| assign_next_batches(transaction, last_time))? {}
        Ok(())
    }

    /// Begins to note what changes for the origin `target` (its address and project), and marks all of the past as
    /// waiting if the target is another one than before. Batches that the origin has refused wait again.
    pub fn begin_delivery(&self, target: &str) -> Result<(), DatabaseError> {
        let target = target.to_owned();
        let is_new = self.write(move |transaction| {
            let is_new = begin_counts(transaction, CountReceiver::Origin, &target)?;
            let states = if is_new { "state <> 0" } else { "state = 2" };
            transaction.execute(&format!("UPDATE delivery_batches SET state = 0 WHERE {states}"), [])?;
            let sql = "UPDATE OR REPLACE changed_counts SET state = ?2 WHERE receiver = ?1 AND state = ?3";
            let (changed, refused) = (CountState::Changed as i64, CountState::Refused as i64);
            transaction.execute(sql, params![CountReceiver::Origin as i64, changed, refused])?;
            Ok(is_new)
        })?;
        if !is_new {
            return Ok(());
        }
        let mut day = None;
        loop {
            day = self.write(move |transaction| mark_counts(transaction, CountReceiver::Origin, day))?;
            if day.is_none() {
                return self.write(|transaction| complete_counts(transaction, CountReceiver::Origin));
            }
        }
    }

    /// Ends to note what changes for the origin.
    pub fn end_delivery(&self) -> Result<(), DatabaseError> {
        self.write(|transaction| end_counts(transaction, CountReceiver::Origin))
    }

    /// Returns the oldest batch that waits for the origin; `None` if none waits. Until it is acknowledged or refused,
    /// the next call returns the same batch, without what was deleted meanwhile. `now` is the time in milliseconds
    /// since 1970.
    pub fn next_batch(&self, now: i64) -> Result<Option<OutgoingBatch>, DatabaseError> {
        self.write(move |transaction| {
            while let Some(row) = DeliveryBatchRow::oldest_waiting(transaction)? {
                let batch = read_search_batch(transaction, &row)?;
                if !is_empty(&batch) {
                    return Ok(Some(OutgoingBatch::Searches { number: row.number, searches: row.searches, batch }));
                }
                // Everything in it was deleted.
                transaction.execute("DELETE FROM delivery_batches WHERE number = ?1", [row.number])?;
            }
            let counts = take_next_counts(transaction, now)?;
            Ok(counts.map(|(batch, has_more)| OutgoingBatch::Views { batch, has_more }))
        })
    }

    /// Notes that the origin has counted a batch.
    pub fn acknowledge(&self, batch: &OutgoingBatch) -> Result<(), DatabaseError> {
        match batch {
            OutgoingBatch::Searches { number, .. } => self.set_state(*number, DeliveryBatchState::Delivered),
            OutgoingBatch::Views { .. } => self.write(|transaction| {
                let sql = "DELETE FROM changed_counts WHERE receiver = ?1 AND state = ?2";
                transaction.execute(sql, params![CountReceiver::Origin as i64, CountState::Sending as i64]).map(drop)
            }),
        }
    }

    /// Marks a batch as refused by the origin. It is not sent again.
    pub fn refuse(&self, batch: &OutgoingBatch) -> Result<(), DatabaseError> {
        match batch {
            OutgoingBatch::Searches { number, .. } => self.set_state(*number, DeliveryBatchState::Refused),
            OutgoingBatch::Views { .. } => self.write(|transaction| {
                // A count that was refused before stays one row.
                let sql = "UPDATE OR REPLACE changed_counts SET state = ?3 WHERE receiver = ?1 AND state = ?2";
                let (from, to) = (CountState::Sending as i64, CountState::Refused as i64);
                transaction.execute(sql, params![CountReceiver::Origin as i64, from, to]).map(drop)
            }),
        }
    }

    fn set_state(&self, number: i64, state: DeliveryBatchState) -> Result<(), DatabaseError> {
        self.write(move |transaction| {
            let sql = "UPDATE delivery_batches SET state = ?2 WHERE number = ?1";
            transaction.execute(sql, params![number, state as i64]).map(drop)
        })
    }

    /// Leaves out the oldest waiting delivery batches of searches until the others have at most `max_bytes`. Returns
    /// the number of searches that were left out. They are not sent to the origin, but stay in the reports of this host
    /// and in exports.
    pub fn limit_queue(&self, max_bytes: u64) -> Result<u64, DatabaseError> {
        self.write(move |transaction| {
            let sql = "SELECT coalesce(sum(bytes), 0) FROM delivery_batches WHERE state = 0";
            let mut bytes: u64 = transaction.prepare_cached(sql)?.query_row([], |row| get_u64(row, 0))?;
            let mut left_out = 0;
            while bytes > max_bytes
                && let Some(row) = DeliveryBatchRow::oldest_waiting(transaction)?
            {
                let sql = "UPDATE delivery_batches SET state = ?2 WHERE number = ?1";
                transaction.execute(sql, params![row.number, DeliveryBatchState::LeftOut as i64])?;
                bytes = bytes.saturating_sub(row.bytes);
                left_out += row.searches;
            }
            Ok(left_out)
        })
    }

    /// Returns the state of the delivery to the origin.
    pub fn queue_state(&self) -> Result<DeliveryQueueState, DatabaseError> {
        self.query(|connection| {
            let number = |sql: &str| connection.prepare_cached(sql)?.query_row([], |row| get_u64(row, 0));
            Ok(DeliveryQueueState {
                waiting_searches: number(
                    "SELECT (SELECT coalesce(sum(searches), 0) FROM delivery_batches WHERE state = 0)
                          + (SELECT coalesce(sum(searches), 0) FROM unassigned_batches)",
                )?,
                waiting_counts: number("SELECT count(*) FROM changed_counts WHERE receiver = 1 AND state < 2")?,
                refused_batches: number("SELECT count(*) FROM delivery_batches WHERE state = 2")?,
                refused_counts: number("SELECT count(*) FROM changed_counts WHERE receiver = 1 AND state = 2")?,
                undelivered_searches: number(
                    "SELECT coalesce(sum(searches), 0) FROM delivery_batches WHERE state = 3",
                )?,
            })
        })
    }
}

/// Deletes what the queue has of the days before `day` (days since 1970).
pub(super) fn delete_queue_before(connection: &Connection, day: i64) -> rusqlite::Result<()> {
    let time = day.saturating_mul(DAY_MS);
    connection.execute("DELETE FROM unassigned_batches WHERE last_time < ?1", [time])?;
    connection.execute("DELETE FROM delivery_batches WHERE last_time < ?1", [time])?;
    connection.execute("DELETE FROM later_clicks WHERE time < ?1", [time])?;
    let receivers = [CountReceiver::Origin, CountReceiver::Export];
    let states = [CountState::Changed, CountState::Sending, CountState::Refused];
    for (receiver, state) in receivers.into_iter().flat_map(|receiver| states.map(|state| (receiver, state))) {
        let sql = "DELETE FROM changed_counts WHERE receiver = ?1 AND state = ?2 AND day < ?3";
        connection.execute(sql, params![receiver as i64, state as i64, day])?;
    }
    Ok(())
}

/// Returns the number of searches that match `condition` (on the columns of `searches`, with the parameter `?1`) and
/// were delivered to the origin.
pub(super) fn count_delivered(
    connection: &Connection,
    condition: &str,
    parameter: impl rusqlite::ToSql,
) -> rusqlite::Result<u64> {
    let sql = format!(
        "SELECT coalesce(sum(count), 0) FROM searches WHERE project = '' AND {condition} AND (
             SELECT state = 1 AND last_batch >= batch FROM delivery_batches
             WHERE first_batch <= batch ORDER BY first_batch DESC LIMIT 1)"
    );
    connection.query_row(&sql, [parameter], |row| get_u64(row, 0))
}
