//! Writing of what readers do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::DAY_MS;
use super::planned_write::{PlannedWrite, WrittenRows, count_activity};
use super::recent_searches::RecentSearches;
use super::store::{AnalyticsStore, StoreError};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::reader_activity::ReaderActivity;

/// The time between two deletions of old days, in milliseconds.
const MAINTENANCE_INTERVAL_MS: u64 = 60 * 60 * 1000;
/// The time between two deletions while the database is too large, in milliseconds.
const SHRINK_INTERVAL_MS: u64 = 60 * 1000;
/// The time that a client has for the result pages of a query. Searches that expire within it are no part of totals.
const PAGINATED_QUERY_LIFETIME: Duration = Duration::from_hours(24);

/// The configured settings of an [`ActivityWriter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterSettings {
    /// Whether secrets are masked.
    pub mask: bool,
    /// The age at which days are deleted; `None` if they are kept.
    pub keep: Option<Duration>,
    /// The size of the database beyond which the oldest days are deleted, in bytes.
    pub max_bytes: u64,
}

/// The numbers of one write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteReport {
    /// The searches that were stored, with those of assistants.
    pub searches: u64,
    /// The clicks that were stored.
    pub clicks: u64,
    /// The clicks that refer to no search of the last half hour, or to one that has a click already.
    pub unknown_clicks: u64,
    /// The views that were stored, by all classes of visitors.
    pub views: u64,
    /// The searches and clicks that were dropped.
    pub dropped: u64,
    /// The new path of a damaged database file, if one was moved aside.
    pub moved_aside: Option<PathBuf>,
}

/// The error of a write. None of its activity is stored, and later writes may succeed.
#[derive(Debug, thiserror::Error)]
#[error("cannot store what readers did")]
pub struct WriteError {
    /// The number of searches, clicks and views that are lost.
    pub dropped: u64,
    /// The error of the store.
    #[source]
    pub source: StoreError,
}

/// Writes what readers do to a store, and deletes what is too old. There is one for each store.
#[derive(Debug)]
pub struct ActivityWriter {
    store: Arc<AnalyticsStore>,
    recent: RecentSearches,
    settings: WriterSettings,
    /// The number of the next batch of this writer; a part of its id.
    next_batch: u64,
    /// The time of the last deletion of old days, in milliseconds since 1970.
    last_maintenance: Option<i64>,
    /// The size of the database after the last write.
    used_bytes: u64,
}

impl ActivityWriter {
    /// Creates the writer of a store.
    pub fn new(store: Arc<AnalyticsStore>, settings: WriterSettings) -> ActivityWriter {
        let recent = RecentSearches::default();
        ActivityWriter { store, recent, settings, next_batch: 0, last_maintenance: None, used_bytes: 0 }
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<AnalyticsStore> {
        &self.store
    }

    /// Changes the settings. The next write deletes what is too old or too much by the new ones.
    pub fn set_settings(&mut self, settings: WriterSettings) {
        if self.settings != settings {
            self.settings = settings;
            self.last_maintenance = None;
        }
    }

    /// Writes `activity` in one transaction. `now` is the time in milliseconds since 1970. Once an hour (once a minute
    /// while the database is too large, and after a change of the settings), it deletes old days first. If the database
    /// is damaged, it is moved aside and a new one is begun.
    pub fn write(&mut self, activity: ReaderActivity, now: i64) -> Result<WriteReport, WriteError> {
        let activity_count = count_activity(&activity);
        self.write_activity(activity, now).map_err(|source| WriteError { dropped: activity_count, source })
    }

    fn write_activity(&mut self, activity: ReaderActivity, now: i64) -> Result<WriteReport, StoreError> {
        let mut moved_aside = self.store.reopen_if_closed()?;
        if self.is_maintenance_due(now) {
            match self.maintain(now) {
                Ok(moved) => moved_aside = moved.or(moved_aside),
                // This is tried again later. Whether the write succeeds does not depend on it.
                Err(error) => tracing::warn!("cannot delete old analytics: {}", ErrorChain(&error)),
            }
        }
        if activity.is_empty() {
            self.recent.expire(now);
            return Ok(WriteReport { moved_aside, ..WriteReport::default() });
        }
        let first = self.recent.next_number();
        let batch_id = format!("{now}-{}", self.next_batch);
        self.next_batch += 1;
        let plan = PlannedWrite::new(activity, &mut self.recent, self.settings.mask, (now, batch_id));
        // A click is received before it is written, so its search must not be removed before that.
        self.recent.expire(now);
        let (counts, plan) = (plan.counts(), Arc::new(plan));
        let generation = self.store.generation();
        let written = self.insert(&plan).or_else(|error| {
            moved_aside = Some(self.replace_damaged(error, generation, first)?);
            self.insert(&plan)
        });
        let WrittenRows { first_batch, later_clicks, used_bytes } =
            written.inspect_err(|_| self.recent.remove_from(first))?;
        if let Some(batch) = first_batch {
            self.recent.set_batch(first, batch);
        }
        self.used_bytes = used_bytes;
        Ok(WriteReport {
            searches: counts.searches,
            clicks: counts.clicks_in_batch + later_clicks,
            unknown_clicks: counts.unknown_clicks + counts.later_clicks.saturating_sub(later_clicks),
            views: counts.views,
            dropped: counts.dropped,
            moved_aside,
        })
    }

    fn insert(&self, plan: &Arc<PlannedWrite>) -> Result<WrittenRows, StoreError> {
        let plan = Arc::clone(plan);
        Ok(self.store.write(move |transaction| plan.insert(transaction))?)
    }

    /// Begins a new database if `error` is damage, and returns the new path of the damaged file. The searches before
    /// number `first` are removed from memory, because their rows are gone. Returns any other error.
    fn replace_damaged(&mut self, error: StoreError, generation: u64, first: u64) -> Result<PathBuf, StoreError> {
        if !error.is_damage() {
            return Err(error);
        }
        self.recent.remove_until(first);
        self.store.replace_damaged(generation)
    }

    fn is_maintenance_due(&self, now: i64) -> bool {
        let is_too_large = self.used_bytes > self.settings.max_bytes;
        let interval = if is_too_large { SHRINK_INTERVAL_MS } else { MAINTENANCE_INTERVAL_MS };
        self.last_maintenance.is_none_or(|last| now.abs_diff(last) >= interval)
    }

    /// Deletes days that are older than `keep`, and the oldest days while the database exceeds `max_bytes`. `now` is
    /// the time in milliseconds since 1970. Returns the new path of a damaged database file that was moved aside.
    pub fn maintain(&mut self, now: i64) -> Result<Option<PathBuf>, StoreError> {
        self.last_maintenance = Some(now);
        let generation = self.store.generation();
        match self.delete_old_days(now) {
            Err(error) => self.replace_damaged(error, generation, self.recent.next_number()).map(Some),
            Ok(()) => Ok(None),
        }
    }

    fn delete_old_days(&mut self, now: i64) -> Result<(), StoreError> {
        if let Some(keep) = self.settings.keep {
            self.store.expire(subtract(now, keep).div_euclid(DAY_MS))?;
            let counted = keep.saturating_sub(PAGINATED_QUERY_LIFETIME.min(keep / 2));
            self.store.set_oldest_counted(subtract(now, counted));
        } else {
            self.store.set_oldest_counted(i64::MIN);
        }
        self.store.limit_bytes(self.settings.max_bytes)?;
        // One row for many batches takes less space than one for each.
        self.store.assign_batches(now)?;
        self.used_bytes = 0;
        Ok(())
    }
}

/// Returns the time (milliseconds since 1970) that is `duration` before `time`.
fn subtract(time: i64, duration: Duration) -> i64 {
    time.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
