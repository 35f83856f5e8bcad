//! Receives batches of daily counts.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use super::view_batch::{CheckedDayCount, CheckedViewBatch, DayCountKind};
use crate::searches::rows::get_u64;
use crate::views::{CountKind, add_day, store_key};
use docwharf_base::model::reader_activity::{DayActivity, ViewCounts};

/// The approximate number of bytes of a row of the table `delivered_counts` in the database of an origin, without its
/// project and its key; see the triggers in the origin's `views_usage.sql`.
const DELIVERED_COUNT_BYTES: usize = 64;
/// The approximate number of bytes of a row of the tables `views` and `day_counts`, without its project.
const DAY_ROW_BYTES: usize = 48;

/// The acknowledgement of a batch of counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "AcceptedViews"))]
#[serde(rename_all = "camelCase")]
pub struct ViewReceipt {
    /// The id of the batch.
    pub batch_id: String,
    /// The number of counts in the batch.
    pub accepted: u64,
    /// The number of these counts that were larger than those that had arrived before. It is 0 if the batch is
    /// a duplicate.
    pub increased: u64,
    /// The number of views, of people and all programs, by which the totals have grown.
    pub views: u64,
}

impl DayCountKind {
    /// Returns the kind that is stored under this number; 0 is that of the table `views`.
    pub(crate) fn from_stored(number: i64) -> Option<DayCountKind> {
        let kinds = [
            DayCountKind::View,
            DayCountKind::Referrer,
            DayCountKind::Entry,
            DayCountKind::NotFound,
            DayCountKind::Agent,
        ];
        kinds.into_iter().find(|kind| kind.count_kind().map_or(0, CountKind::number) == number)
    }

    /// Returns the kind in the table `day_counts`; `None` for the table `views`.
    fn count_kind(self) -> Option<CountKind> {
        match self {
            DayCountKind::View => None,
            DayCountKind::Referrer => Some(CountKind::Referrer),
            DayCountKind::Entry => Some(CountKind::Entry),
            DayCountKind::NotFound => Some(CountKind::NotFound),
            DayCountKind::Agent => Some(CountKind::Agent),
        }
    }
}

impl CheckedViewBatch {
    /// Returns the largest number of rows that the batch adds to the database of an origin.
    pub fn rows(&self) -> u64 {
        2 * self.counts.len() as u64
    }

    /// Returns the largest number of bytes that the batch adds to the database of an origin, with the formula of the
    /// triggers of its table `usage`.
    pub fn bytes(&self, project: &str) -> u64 {
        let bytes =
            |count: &CheckedDayCount| DELIVERED_COUNT_BYTES + DAY_ROW_BYTES + 2 * project.len() + count.key.len();
        self.counts.iter().map(|count| bytes(count) as u64).sum()
    }

    /// Returns whether the batch adds nothing to what `project` has received from the installation.
    pub fn is_duplicate(&self, connection: &Connection, project: &str) -> rusqlite::Result<bool> {
        let installation = i64::from_be_bytes(self.installation);
        for count in &self.counts {
            if find_increase(connection, project, installation, count)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Stores the counts of a batch of `project`, in a transaction of the caller. Only increases of what the installation
/// has sent before are added to the totals, so a batch that is received again changes nothing.
pub fn receive_view_batch(
    connection: &Connection,
    project: &str,
    batch: &CheckedViewBatch,
) -> rusqlite::Result<ViewReceipt> {
    let CheckedViewBatch { id, installation, counts } = batch;
    let installation = i64::from_be_bytes(*installation);
    let mut receipt = ViewReceipt { batch_id: id.clone(), accepted: counts.len() as u64, increased: 0, views: 0 };
    let mut days: BTreeMap<i64, DayActivity> = BTreeMap::new();
    for count in counts {
        let Some(increase) = find_increase(connection, project, installation, count)? else { continue };
        store_increase(connection, project, installation, count, increase)?;
        receipt.increased += 1;
        if count.kind == DayCountKind::View {
            receipt.views += increase.human + increase.ai + increase.bot;
        }
        let day = days.entry(count.day).or_insert_with(|| DayActivity { day: count.day, ..DayActivity::default() });
        add_increase(day, count, increase);
    }
    for day in days.values() {
        add_day(connection, project, day)?;
    }
    Ok(receipt)
}

/// Returns by how much the numbers in `count` exceed the stored ones; `None` if none of them does.
fn find_increase(
    connection: &Connection,
    project: &str,
    installation: i64,
    count: &CheckedDayCount,
) -> rusqlite::Result<Option<ViewCounts>> {
    let CheckedDayCount { day, kind, key, counts } = count;
    let kind = kind.count_kind().map_or(0, CountKind::number);
    let sql = "SELECT count, ai, bot FROM delivered_counts
               WHERE project = ?1 AND day = ?2 AND installation = ?3 AND kind = ?4
               AND key = (SELECT id FROM view_keys WHERE text = ?5)";
    let mut select = connection.prepare_cached(sql)?;
    let stored = select.query_row(params![project, day, installation, kind, key], |row| {
        Ok(ViewCounts { human: get_u64(row, 0)?, ai: get_u64(row, 1)?, bot: get_u64(row, 2)? })
    });
    let stored = stored.optional()?.unwrap_or_default();
    let increase = ViewCounts {
        human: counts.human.saturating_sub(stored.human),
        ai: counts.ai.saturating_sub(stored.ai),
        bot: counts.bot.saturating_sub(stored.bot),
    };
    Ok((increase != ViewCounts::default()).then_some(increase))
}

/// Adds an increase to the stored numbers.
fn store_increase(
    connection: &Connection,
    project: &str,
    installation: i64,
    count: &CheckedDayCount,
    increase: ViewCounts,
) -> rusqlite::Result<()> {
    let CheckedDayCount { day, kind, key, .. } = count;
    let kind = kind.count_kind().map_or(0, CountKind::number);
    let sql = "INSERT INTO delivered_counts (project, day, installation, kind, key, count, ai, bot)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
               ON CONFLICT (project, day, installation, kind, key) DO UPDATE
               SET count = count + excluded.count, ai = ai + excluded.ai, bot = bot + excluded.bot";
    let key = store_key(connection, key, *day)?;
    let [human, ai, bot] = [increase.human, increase.ai, increase.bot].map(u64::cast_signed);
    let values = params![project, day, installation, kind, key, human, ai, bot];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

fn add_increase(day: &mut DayActivity, count: &CheckedDayCount, increase: ViewCounts) {
    let list = match count.kind {
        DayCountKind::View => return day.views.push((count.key.clone(), increase)),
        DayCountKind::Referrer => &mut day.referrers,
        DayCountKind::Entry => &mut day.entries,
        DayCountKind::NotFound => &mut day.not_found,
        DayCountKind::Agent => &mut day.agents,
    };
    list.push((count.key.clone(), increase.human));
}
