//! The delivery batches of searches: which batches and later clicks they have, and their content.

use rusqlite::{Connection, OptionalExtension, params};

use super::PROJECT;
use super::planned_write::MAX_BATCH_SEARCHES;
use crate::delivery::{EventSource, LaterClick, MAX_BATCH_ENTRIES, SearchBatch, SearchEvent};
use crate::searches::rows::get_u64;
use crate::searches::time::format_rfc3339;

/// The largest number of batches or clicks that one transaction puts into delivery batches.
const MAX_ASSIGNED: u64 = 10_000;
/// The largest number of searches and clicks of a delivery batch.
const MAX_ENTRIES: i64 = (MAX_BATCH_ENTRIES as u64).cast_signed();
/// The largest size of the searches of a delivery batch with several batches, in bytes.
const MAX_SEARCHES_BYTES: i64 = 1 << 20;
/// The number of bits of a place in a batch, which is a part of the number of an event.
const PLACE_BITS: u32 = 10;
const _: () = assert!(MAX_BATCH_SEARCHES <= 1 << PLACE_BITS);
/// The approximate number of bytes that a receiver gets of a later click, without its page.
const CLICK_BYTES: i64 = 256;

/// The state of a delivery batch. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryBatchState {
    Delivered = 1,
    Refused = 2,
    LeftOut = 3,
}

/// Puts some batches and later clicks into delivery batches. Returns whether there may be more. Searches
/// after `last_time` (milliseconds since 1970) are left out.
pub(super) fn assign_next_batches(connection: &Connection, last_time: i64) -> rusqlite::Result<bool> {
    let batches = unassigned_batches(connection, last_time)?;
    let clicks = unassigned_clicks(connection)?;
    let mut last_click = last_assigned_click(connection)?;
    let has_more = batches.len().max(clicks.len()) as u64 >= MAX_ASSIGNED;
    let mut batch = NewDeliveryBatch::after(last_click);
    for unassigned in batches {
        if !batch.accepts(&unassigned) {
            batch.insert(connection)?;
            batch = NewDeliveryBatch::after(last_click);
        }
        batch.add_batch(&unassigned);
        connection.prepare_cached("DELETE FROM unassigned_batches WHERE batch = ?1")?.execute([unassigned.batch])?;
    }
    for click in clicks {
        if batch.len > 0 && (batch.len >= MAX_ENTRIES || batch.bytes + click.bytes > MAX_SEARCHES_BYTES) {
            batch.insert(connection)?;
            batch = NewDeliveryBatch::after(last_click);
        }
        batch.add_click(&click);
        last_click = click.number;
    }
    if batch.len > 0 {
        batch.insert(connection)?;
    }
    Ok(has_more)
}

/// A batch whose searches are in no delivery batch.
#[derive(Debug, Clone, Copy)]
struct UnassignedBatch {
    batch: i64,
    first_time: i64,
    last_time: i64,
    searches: i64,
    bytes: i64,
}

fn unassigned_batches(connection: &Connection, last_time: i64) -> rusqlite::Result<Vec<UnassignedBatch>> {
    let sql = "SELECT batch, first_time, last_time, searches, bytes FROM unassigned_batches
               WHERE last_time <= ?1 ORDER BY batch LIMIT ?2";
    let mut select = connection.prepare_cached(sql)?;
    let rows = select.query_map([last_time, MAX_ASSIGNED.cast_signed()], |row| {
        Ok(UnassignedBatch {
            batch: row.get(0)?,
            first_time: row.get(1)?,
            last_time: row.get(2)?,
            searches: row.get(3)?,
            bytes: row.get(4)?,
        })
    })?;
    rows.collect()
}

/// A later click that is in no delivery batch.
#[derive(Debug, Clone, Copy)]
struct UnassignedClick {
    number: i64,
    /// The time of its search.
    time: i64,
    bytes: i64,
}

fn unassigned_clicks(connection: &Connection) -> rusqlite::Result<Vec<UnassignedClick>> {
    let after = last_assigned_click(connection)?;
    let sql = "SELECT later_clicks.number, later_clicks.time, ?3 + coalesce(octet_length(searches.page), 0)
               FROM later_clicks LEFT JOIN searches ON searches.project = '' AND searches.time = later_clicks.time
                   AND searches.batch = later_clicks.batch AND searches.place = later_clicks.place
               WHERE later_clicks.number > ?1 ORDER BY later_clicks.number LIMIT ?2";
    let mut select = connection.prepare_cached(sql)?;
    let rows = select.query_map([after, MAX_ASSIGNED.cast_signed(), CLICK_BYTES], |row| {
        Ok(UnassignedClick { number: row.get(0)?, time: row.get(1)?, bytes: row.get(2)? })
    })?;
    rows.collect()
}

fn last_assigned_click(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT last_click FROM delivery_batches ORDER BY number DESC LIMIT 1";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// A delivery batch that is being made.
#[derive(Debug)]
struct NewDeliveryBatch {
    /// The numbers of its first and last batch.
    batches: Option<(i64, i64)>,
    times: Option<(i64, i64)>,
    clicks_after: i64,
    last_click: i64,
    searches: i64,
    /// The number of searches and clicks.
    len: i64,
    bytes: i64,
}

impl NewDeliveryBatch {
    fn after(last_click: i64) -> NewDeliveryBatch {
        let (clicks_after, searches, len, bytes) = (last_click, 0, 0, 0);
        NewDeliveryBatch { batches: None, times: None, clicks_after, last_click, searches, len, bytes }
    }

    /// Returns whether the batch still fits. The batches have consecutive numbers, because numbers between
    /// them are those of imported batches, which are not delivered.
    fn accepts(&self, unassigned: &UnassignedBatch) -> bool {
        let is_next = self.batches.is_none_or(|(_, last)| last + 1 == unassigned.batch);
        let fits = self.len + unassigned.searches <= MAX_ENTRIES;
        is_next && (self.len == 0 || fits && self.bytes + unassigned.bytes <= MAX_SEARCHES_BYTES)
    }

    fn add_batch(&mut self, unassigned: &UnassignedBatch) {
        self.batches = Some((self.batches.map_or(unassigned.batch, |(first, _)| first), unassigned.batch));
        self.add_times(unassigned.first_time, unassigned.last_time);
        self.searches += unassigned.searches;
        self.len += unassigned.searches;
        self.bytes += unassigned.bytes;
    }

    fn add_click(&mut self, click: &UnassignedClick) {
        self.last_click = click.number;
        self.add_times(click.time, click.time);
        self.len += 1;
        self.bytes += click.bytes;
    }

    fn add_times(&mut self, first: i64, last: i64) {
        let (from, to) = self.times.unwrap_or((first, last));
        self.times = Some((from.min(first), to.max(last)));
    }

    fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "INSERT INTO delivery_batches
                   (first_batch, last_batch, first_time, last_time, clicks_after, last_click, searches, bytes)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let (first_batch, last_batch) = self.batches.unzip();
        let (first_time, last_time) = self.times.unwrap_or_default();
        let values = params![
            first_batch,
            last_batch,
            first_time,
            last_time,
            self.clicks_after,
            self.last_click,
            self.searches,
            self.bytes
        ];
        connection.prepare_cached(sql)?.execute(values).map(drop)
    }
}

/// A row of the table `delivery_batches`.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliveryBatchRow {
    pub(super) number: i64,
    /// The numbers of its first and last batch.
    batches: Option<(i64, i64)>,
    times: (i64, i64),
    clicks: (i64, i64),
    pub(super) searches: u64,
    pub(super) bytes: u64,
}

impl DeliveryBatchRow {
    const COLUMNS: &str =
        "number, first_batch, last_batch, first_time, last_time, clicks_after, last_click, searches, bytes";

    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<DeliveryBatchRow> {
        let batches: (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
        Ok(DeliveryBatchRow {
            number: row.get(0)?,
            batches: batches.0.zip(batches.1),
            times: (row.get(3)?, row.get(4)?),
            clicks: (row.get(5)?, row.get(6)?),
            searches: get_u64(row, 7)?,
            bytes: get_u64(row, 8)?,
        })
    }

    /// Returns the oldest batch that waits for the origin.
    pub(super) fn oldest_waiting(connection: &Connection) -> rusqlite::Result<Option<DeliveryBatchRow>> {
        let columns = DeliveryBatchRow::COLUMNS;
        let sql = format!("SELECT {columns} FROM delivery_batches WHERE state = 0 ORDER BY number LIMIT 1");
        connection.prepare_cached(&sql)?.query_row([], DeliveryBatchRow::read).optional()
    }

    /// Returns the first batch after number `after`, in any state.
    pub(super) fn next(connection: &Connection, after: i64) -> rusqlite::Result<Option<DeliveryBatchRow>> {
        let columns = DeliveryBatchRow::COLUMNS;
        let sql = format!("SELECT {columns} FROM delivery_batches WHERE number > ?1 ORDER BY number LIMIT 1");
        connection.prepare_cached(&sql)?.query_row([after], DeliveryBatchRow::read).optional()
    }
}

pub(super) fn is_empty(batch: &SearchBatch) -> bool {
    batch.events.is_empty() && batch.clicks.is_empty()
}

/// Reads a batch of searches, without those that were deleted.
pub(super) fn read_search_batch(connection: &Connection, row: &DeliveryBatchRow) -> rusqlite::Result<SearchBatch> {
    let installation = installation_id(connection)?;
    Ok(SearchBatch {
        batch_id: batch_id(&installation, row.number),
        events: read_events(connection, row)?,
        clicks: read_clicks(connection, row, &installation)?,
    })
}

fn batch_id(installation: &str, number: i64) -> String {
    format!("{installation}-{number}")
}

/// Returns the number of an event in its delivery batch. It does not change when other searches are deleted.
fn event_number(first_batch: i64, batch: i64, place: i64) -> u64 {
    ((batch - first_batch) << PLACE_BITS | place).cast_unsigned()
}

fn read_events(connection: &Connection, row: &DeliveryBatchRow) -> rusqlite::Result<Vec<SearchEvent>> {
    let Some((first_batch, last_batch)) = row.batches else { return Ok(Vec::new()) };
    // A later click is in another batch. The size of this one was known before it.
    let sql = "SELECT time, batch, place, query,
                   CASE WHEN EXISTS (SELECT 1 FROM later_clicks
                       WHERE later_clicks.batch = searches.batch AND later_clicks.place = searches.place)
                   THEN NULL ELSE page END, results, source
               FROM searches
               WHERE project = ?1 AND time BETWEEN ?2 AND ?3 AND batch BETWEEN ?4 AND ?5 ORDER BY batch, place";
    let mut select = connection.prepare_cached(sql)?;
    let values = params![PROJECT, row.times.0, row.times.1, first_batch, last_batch];
    let events = select.query_map(values, |row| {
        Ok(SearchEvent {
            query: row.get(3)?,
            time: format_rfc3339(row.get(0)?).unwrap_or_default(),
            clicked_page: row.get(4)?,
            results: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
            source: row.get::<_, Option<String>>(6)?.as_deref().and_then(EventSource::parse),
            number: Some(event_number(first_batch, row.get(1)?, row.get(2)?)),
        })
    })?;
    events.collect()
}

/// Reads the later clicks of a batch. The batch of the search of each is an earlier one.
fn read_clicks(
    connection: &Connection,
    row: &DeliveryBatchRow,
    installation: &str,
) -> rusqlite::Result<Vec<LaterClick>> {
    let sql = "SELECT searches.time, searches.batch, searches.place, searches.page,
                   delivery_batches.number, delivery_batches.first_batch
               FROM later_clicks
               JOIN searches ON project = ?1 AND searches.time = later_clicks.time
                   AND searches.batch = later_clicks.batch AND searches.place = later_clicks.place
               JOIN delivery_batches ON delivery_batches.number = (
                   SELECT number FROM delivery_batches WHERE first_batch <= later_clicks.batch
                   ORDER BY first_batch DESC LIMIT 1)
               WHERE later_clicks.number > ?2 AND later_clicks.number <= ?3 AND searches.page IS NOT NULL
               ORDER BY later_clicks.number";
    let mut select = connection.prepare_cached(sql)?;
    let clicks = select.query_map(params![PROJECT, row.clicks.0, row.clicks.1], |row| {
        Ok(LaterClick {
            batch_id: batch_id(installation, row.get(4)?),
            number: event_number(row.get(5)?, row.get(1)?, row.get(2)?),
            time: format_rfc3339(row.get(0)?).unwrap_or_default(),
            page: row.get(3)?,
        })
    })?;
    clicks.collect()
}

/// Returns the id of this installation, as 16 hexadecimal digits.
pub(super) fn installation_id(connection: &Connection) -> rusqlite::Result<String> {
    let sql = "SELECT lower(hex(value)) FROM meta WHERE name = 'installation'";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}
