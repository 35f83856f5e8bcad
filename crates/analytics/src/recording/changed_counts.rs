//! The counts of which a receiver does not have the present value.

use rusqlite::{Connection, params};

use super::search_batches::installation_id;
use super::{DAY_MS, PROJECT};
use crate::delivery::{DayCount, DayCountKind, MAX_BATCH_ENTRIES, ViewBatch};
use crate::views::{OTHER_KEY, oldest_day};
use docwharf_base::model::reader_activity::ViewCounts;

/// The largest number of counts of one batch.
const MAX_BATCH_COUNTS: i64 = (MAX_BATCH_ENTRIES as u64).cast_signed();
/// The largest size of the keys and numbers of one batch, in bytes. As JSON they take more.
const MAX_COUNTS_BYTES: usize = 1 << 20;
/// The approximate number of bytes that a receiver gets of a count, without its key.
const COUNT_BYTES: usize = 100;
/// The number of days whose counts one transaction marks for a new receiver.
const MAX_MARKED_DAYS: i64 = 31;
/// The number of counts that one transaction of an export marks as being sent.
pub(super) const MAX_MOVED_COUNTS: i64 = 10_000;

/// A receiver of what this host records. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountReceiver {
    /// The origin to which the daemon delivers.
    Origin = 1,
    /// Exported files.
    Export = 2,
}

/// The state of a changed count. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountState {
    Changed = 0,
    Sending = 1,
    Refused = 2,
}

/// The counts to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountSource {
    /// All counts.
    All,
    /// The counts that are being sent to a receiver.
    Sending(CountReceiver),
}

impl CountSource {
    /// Returns a query for the day, kind and key of the counts between a position (`?1` to `?3`) and a day (`?4`), in
    /// order; `?5` is the largest number of rows.
    fn keys_query(self) -> String {
        match self {
            CountSource::All => "SELECT day, 0 AS kind, path AS key FROM views
                 WHERE project = '' AND day >= ?1 AND day <= ?4 AND (day, 0, path) > (?1, ?2, ?3)
                 UNION ALL
                 SELECT day, kind, key FROM day_counts
                 WHERE project = '' AND day >= ?1 AND day <= ?4 AND (day, kind, key) > (?1, ?2, ?3)
                 ORDER BY 1, 2, 3 LIMIT ?5"
                .to_owned(),
            CountSource::Sending(receiver) => format!(
                "SELECT day, kind, key FROM changed_counts
                 WHERE receiver = {} AND state = {} AND day <= ?4 AND (day, kind, key) > (?1, ?2, ?3)
                 ORDER BY day, kind, key LIMIT ?5",
                receiver as i64,
                CountState::Sending as i64
            ),
        }
    }
}

/// Begins to note which counts change for a receiver. Returns whether it has not been noted so far.
pub(super) fn begin_counts(connection: &Connection, receiver: CountReceiver, target: &str) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO count_receivers (id, target) VALUES (?1, ?2)
               ON CONFLICT (id) DO UPDATE SET target = excluded.target, is_complete = 0
               WHERE target <> excluded.target";
    connection.execute(sql, params![receiver as i64, target])?;
    let sql = "SELECT is_complete = 0 FROM count_receivers WHERE id = ?1";
    connection.query_row(sql, [receiver as i64], |row| row.get(0))
}

/// Marks the counts of the days from `day` on as changed, at most [`MAX_MARKED_DAYS`] of them. Returns the next day to
/// mark; `None` if there is none.
pub(super) fn mark_counts(
    connection: &Connection,
    receiver: CountReceiver,
    day: Option<i64>,
) -> rusqlite::Result<Option<i64>> {
    let Some(first) = day.map_or_else(|| oldest_day(connection, PROJECT), |day| Ok(Some(day)))? else {
        return Ok(None);
    };
    let end = first.saturating_add(MAX_MARKED_DAYS);
    let sql = "INSERT INTO changed_counts (receiver, state, day, kind, key)
               SELECT ?1, 0, day, 0, path FROM views WHERE project = '' AND day >= ?2 AND day < ?3
               UNION ALL SELECT ?1, 0, day, kind, key FROM day_counts WHERE project = '' AND day >= ?2 AND day < ?3
               ON CONFLICT DO NOTHING";
    connection.execute(sql, params![receiver as i64, first, end])?;
    let sql = "SELECT EXISTS (SELECT 1 FROM views WHERE project = '' AND day >= ?1)
                   OR EXISTS (SELECT 1 FROM day_counts WHERE project = '' AND day >= ?1)";
    let has_more: bool = connection.query_row(sql, [end], |row| row.get(0))?;
    Ok(has_more.then_some(end))
}

/// Notes that all counts are marked for a receiver that is new.
pub(super) fn complete_counts(connection: &Connection, receiver: CountReceiver) -> rusqlite::Result<()> {
    connection.execute("UPDATE count_receivers SET is_complete = 1 WHERE id = ?1", [receiver as i64]).map(drop)
}

/// Ends the recording of changed counts for a receiver.
pub(super) fn end_counts(connection: &Connection, receiver: CountReceiver) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM count_receivers WHERE id = ?1", [receiver as i64])?;
    connection.execute("DELETE FROM changed_counts WHERE receiver = ?1", [receiver as i64]).map(drop)
}

/// Marks at most [`MAX_MOVED_COUNTS`] changed counts of the days until `last_day` as being sent. Returns whether there
/// may be more.
pub(super) fn send_changed(
    connection: &Connection,
    receiver: CountReceiver,
    (last_day, limit): (i64, i64),
) -> rusqlite::Result<bool> {
    let values = params![receiver as i64, CountState::Changed as i64, CountState::Sending as i64, last_day, limit];
    // A count that a failed export left behind may be marked already.
    let sql = "INSERT INTO changed_counts (receiver, state, day, kind, key)
               SELECT receiver, ?3, day, kind, key FROM changed_counts
               WHERE receiver = ?1 AND state = ?2 AND day <= ?4 ORDER BY day, kind, key LIMIT ?5
               ON CONFLICT DO NOTHING";
    connection.prepare_cached(sql)?.execute(values)?;
    let sql = "DELETE FROM changed_counts WHERE (receiver, state, day, kind, key) IN (
                   SELECT receiver, state, day, kind, key FROM changed_counts
                   WHERE receiver = ?1 AND state = ?2 AND day <= ?3 ORDER BY day, kind, key LIMIT ?4)";
    let values = params![receiver as i64, CountState::Changed as i64, last_day, limit];
    Ok(connection.prepare_cached(sql)?.execute(values)? as u64 >= limit.cast_unsigned())
}

/// The position of a count in the order in which counts are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountPosition {
    day: i64,
    kind: i64,
    key: i64,
}

impl CountPosition {
    /// A position before all counts.
    pub(super) const FIRST: CountPosition = CountPosition { day: i64::MIN, kind: 0, key: 0 };
}

/// Some counts, in their order.
#[derive(Debug, Default)]
pub(super) struct CountChunk {
    pub(super) counts: Vec<DayCount>,
    /// The position of the last one that was read; `None` if there are no more.
    pub(super) last: Option<CountPosition>,
}

/// Marks the next counts for the origin as being sent, and returns them, and whether more wait. Counts that were not
/// acknowledged are sent again first.
pub(super) fn take_next_counts(connection: &Connection, now: i64) -> rusqlite::Result<Option<(ViewBatch, bool)>> {
    let receiver = CountReceiver::Origin as i64;
    loop {
        let source = CountSource::Sending(CountReceiver::Origin);
        let chunk = read_counts(connection, source, CountPosition::FIRST, now)?;
        if let Some(last) = chunk.last.filter(|_| !chunk.counts.is_empty()) {
            return_counts_after(connection, last)?;
            let sql = "SELECT EXISTS (SELECT 1 FROM changed_counts WHERE receiver = ?1 AND state = ?2 AND day <= ?3)";
            let values = [receiver, CountState::Changed as i64, last_day(now)];
            let has_more = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
            return Ok(Some((new_view_batch(connection, chunk.counts)?, has_more)));
        }
        // What is left was deleted, or has a key that no receiver accepts.
        let sql = "DELETE FROM changed_counts WHERE receiver = ?1 AND state = ?2";
        let marked = connection.execute(sql, params![receiver, CountState::Sending as i64])?;
        send_changed(connection, CountReceiver::Origin, (last_day(now), MAX_BATCH_COUNTS))?;
        let sql = "SELECT EXISTS (SELECT 1 FROM changed_counts WHERE receiver = ?1 AND state = ?2)";
        let is_any_sending: bool =
            connection.query_row(sql, params![receiver, CountState::Sending as i64], |row| row.get(0))?;
        if !is_any_sending && marked == 0 {
            return Ok(None);
        }
    }
}

/// Returns the last day (days since 1970) whose counts a receiver accepts at `now` (milliseconds since 1970). Later
/// ones were recorded while the clock was wrong, and wait until it is their time.
pub(super) fn last_day(now: i64) -> i64 {
    now.div_euclid(DAY_MS).saturating_add(1)
}

/// Marks the counts after a position as changed again, because they do not fit in the batch.
fn return_counts_after(connection: &Connection, last: CountPosition) -> rusqlite::Result<()> {
    let CountPosition { day, kind, key } = last;
    let (receiver, sending) = (CountReceiver::Origin as i64, CountState::Sending as i64);
    for sql in [
        "INSERT INTO changed_counts (receiver, state, day, kind, key)
         SELECT receiver, 0, day, kind, key FROM changed_counts
         WHERE receiver = ?1 AND state = ?2 AND (day, kind, key) > (?3, ?4, ?5) ON CONFLICT DO NOTHING",
        "DELETE FROM changed_counts WHERE receiver = ?1 AND state = ?2 AND (day, kind, key) > (?3, ?4, ?5)",
    ] {
        connection.prepare_cached(sql)?.execute(params![receiver, sending, day, kind, key])?;
    }
    Ok(())
}

/// Makes a batch of counts, with a number that no other has.
pub(super) fn new_view_batch(connection: &Connection, counts: Vec<DayCount>) -> rusqlite::Result<ViewBatch> {
    let installation = installation_id(connection)?;
    let sql = "UPDATE count_batches SET last_number = last_number + 1 RETURNING last_number";
    let number: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(ViewBatch { batch_id: format!("{installation}-counts-{number}"), installation, counts })
}

/// Reads counts after a position and until the last day that a receiver accepts, at most as many as fit in a batch. A
/// count is that of this installation, without what was imported from others.
pub(super) fn read_counts(
    connection: &Connection,
    source: CountSource,
    after: CountPosition,
    now: i64,
) -> rusqlite::Result<CountChunk> {
    let sql = format!(
        "SELECT keys.day, keys.kind, keys.key, view_keys.text,
             coalesce(views.human, day_counts.count, 0) - coalesce(sum(delivered.count), 0),
             coalesce(views.ai, 0) - coalesce(sum(delivered.ai), 0),
             coalesce(views.bot, 0) - coalesce(sum(delivered.bot), 0)
         FROM ({}) AS keys
         LEFT JOIN view_keys ON view_keys.id = keys.key
         LEFT JOIN views ON keys.kind = 0
             AND views.project = '' AND views.day = keys.day AND views.path = keys.key
         LEFT JOIN day_counts ON keys.kind > 0 AND day_counts.project = ''
             AND day_counts.day = keys.day AND day_counts.kind = keys.kind AND day_counts.key = keys.key
         LEFT JOIN delivered_counts AS delivered ON delivered.project = '' AND delivered.day = keys.day
             AND delivered.kind = keys.kind AND delivered.key = keys.key
         GROUP BY keys.day, keys.kind, keys.key ORDER BY keys.day, keys.kind, keys.key",
        source.keys_query()
    );
    let mut select = connection.prepare_cached(&sql)?;
    let CountPosition { day, kind, key } = after;
    let mut rows = select.query(params![day, kind, key, last_day(now), MAX_BATCH_COUNTS])?;
    let (mut chunk, mut bytes) = (CountChunk::default(), 0);
    while let Some(row) = rows.next()? {
        let count = read_count(connection, row)?;
        bytes += count.as_ref().map_or(0, |count| count.key.len() + COUNT_BYTES);
        if bytes > MAX_COUNTS_BYTES && !chunk.counts.is_empty() {
            break;
        }
        chunk.last = Some(CountPosition { day: row.get(0)?, kind: row.get(1)?, key: row.get(2)? });
        chunk.counts.extend(count);
    }
    Ok(chunk)
}

/// Reads a count; `None` if it was deleted, or has a key that no receiver accepts.
fn read_count(connection: &Connection, row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<DayCount>> {
    let (day, kind): (i64, i64) = (row.get(0)?, row.get(1)?);
    let Some(key) = row.get::<_, Option<String>>(3)? else { return Ok(None) };
    let mut numbers: [i64; 3] = [row.get(4)?, row.get(5)?, row.get(6)?];
    if key == OTHER_KEY {
        for (number, imported) in numbers.iter_mut().zip(imported_as_other(connection, day, kind)?) {
            *number -= imported;
        }
    }
    // A damaged database could have less than what was imported.
    let [count, ai, bot] = numbers.map(|number| number.max(0).cast_unsigned());
    let count = match DayCountKind::from_stored(kind) {
        Some(DayCountKind::View) => DayCount::of_views(day, key, ViewCounts { human: count, ai, bot }),
        Some(kind) => DayCount::of_key(day, kind, key, count),
        None => return Ok(None),
    };
    Ok(Some(count).filter(DayCount::is_acceptable))
}

/// Returns the sums of the imported counts of a day that became a part of [`OTHER_KEY`] here: those whose key has no
/// row of its own.
fn imported_as_other(connection: &Connection, day: i64, kind: i64) -> rusqlite::Result<[i64; 3]> {
    let sql = "SELECT coalesce(sum(count), 0), coalesce(sum(ai), 0), coalesce(sum(bot), 0) FROM delivered_counts
               WHERE project = '' AND day = ?1 AND kind = ?2
               AND NOT EXISTS (SELECT 1 FROM views WHERE ?2 = 0 AND views.project = ''
                   AND views.day = ?1 AND views.path = delivered_counts.key)
               AND NOT EXISTS (SELECT 1 FROM day_counts WHERE ?2 > 0 AND day_counts.project = ''
                   AND day_counts.day = ?1 AND day_counts.kind = ?2 AND day_counts.key = delivered_counts.key)";
    let mut select = connection.prepare_cached(sql)?;
    select.query_row([day, kind], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
}
