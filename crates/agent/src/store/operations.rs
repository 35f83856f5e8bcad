//! Operations on a store: the rules for its record and its disk space, over primitive effects.
//! [`StoreWriter`](super::writer::StoreWriter) implements the effects on disk, the simulation in memory.

use std::path::Path;

use docwharf_base::model::units::show_unix;
use docwharf_base::model::version::VersionId;

use super::record::StoreRecord;
use super::space::{SpaceLimits, SpaceRequest, VersionSize, held_by_then, is_over, surplus};
use super::{HistoryEvent, Receipt, StoreError, StoredVersion};

/// An event to be noted: its name, version and note; see [`HistoryEvent`].
pub type HistoryNote = (&'static str, Option<VersionId>, Option<String>);

/// The effects on a store, each done as a whole or not at all, and the operations built on them.
pub trait StoreOperations {
    /// The current time in seconds since 1970.
    fn now(&self) -> i64;
    /// The store's directory, for messages.
    fn root(&self) -> &Path;
    /// Reads the record; returns an empty one if the store has none yet.
    fn record(&self) -> Result<StoreRecord, StoreError>;
    /// Whether the store has a version.
    fn has(&self, id: VersionId) -> bool;
    /// Lists all versions, the newest arrival first.
    fn versions(&self) -> Result<Vec<StoredVersion>, StoreError>;
    /// Reads a version's receipts, oldest first.
    fn receipts(&self, id: VersionId) -> Vec<Receipt>;
    /// Reads the history, oldest event first.
    fn history(&self) -> Result<Vec<HistoryEvent>, StoreError>;
    /// Whether a version was found damaged.
    fn is_suspect(&self, id: VersionId) -> bool;
    /// The bytes that each of these versions takes, in their order.
    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize>;
    /// Bytes that may still be written; none where the file system does not say.
    fn free(&self) -> Result<Option<u64>, StoreError>;
    /// Removes the large files derived from versions, which can be computed again. Returns whether there were any.
    fn give_up_derived(&self) -> bool;

    /// Runs `work` while no other thread changes the record.
    fn with_record_lock<T>(&self, work: impl FnOnce() -> T) -> T;
    /// Writes the record durably. The caller is inside [`StoreOperations::with_record_lock`].
    fn write(&self, record: &StoreRecord) -> Result<(), StoreError>;
    /// Appends an event to history. A failure is logged; the change that the event describes is not undone.
    fn append(&self, event: &HistoryEvent);
    /// Stores a receipt.
    fn receive(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError>;
    /// Removes a version from the store unless it is leased. Returns whether it was removed.
    fn remove(&self, id: VersionId) -> Result<bool, StoreError>;
    /// Removes a version from the store even if it is leased.
    fn withdraw(&self, id: VersionId) -> Result<(), StoreError>;
    /// Clears the mark of a damaged version.
    fn clear_suspect(&self, id: VersionId) -> Result<(), StoreError>;
    /// Keeps a copy of a damaged record, which may have been edited by hand, and logs where it is. Must be called
    /// before the record is replaced.
    fn keep_damaged(&self, damage: &StoreError) -> Result<(), StoreError>;
    /// Bytes of removed versions that this process still has mapped: the disk space is not free yet.
    fn still_read(&self) -> u64 {
        0
    }

    /// Whether the store has a version that is not marked as damaged.
    fn has_whole(&self, id: VersionId) -> bool {
        self.has(id) && !self.is_suspect(id)
    }

    /// Appends an event to history, with the current time.
    fn note(&self, who: &str, what: &str, version: Option<VersionId>, note: Option<String>) {
        let time = show_unix(self.now());
        self.append(&HistoryEvent { time, who: who.to_owned(), what: what.to_owned(), version, note });
    }

    /// Changes the record on disk while no other thread does.
    fn change<T>(&self, change: impl FnOnce(&mut StoreRecord) -> T) -> Result<T, StoreError> {
        self.with_record_lock(|| {
            let before = self.record()?;
            let mut record = before.clone();
            let result = change(&mut record);
            if record != before {
                self.write(&record)?;
            }
            Ok(result)
        })
    }

    /// Makes a person's change to the record, and notes the event that `tell` returns. The event is noted also if the
    /// change is in place but could not be made durable: a lost record is recovered from history.
    fn change_and_note<T>(
        &self,
        who: &str,
        change: impl FnOnce(&mut StoreRecord) -> T,
        tell: impl FnOnce(&T) -> Option<HistoryNote>,
    ) -> Result<T, StoreError> {
        let mut wanted = None;
        let mut told = None;
        let changed = self.change(|record| {
            let result = change(record);
            told = tell(&result);
            wanted = Some(record.clone());
            result
        });
        let is_in_place = changed.is_ok() || self.record().is_ok_and(|record| Some(record) == wanted);
        if let Some((what, version, note)) = told.filter(|_| is_in_place) {
            self.note(who, what, version, note);
        }
        changed
    }

    /// Writes the record of a sync, after taking over a person's decisions made meanwhile.
    fn save(&self, record: &mut StoreRecord) -> Result<(), StoreError> {
        self.decide(record, |_| ())
    }

    /// Writes the record of a sync as [`StoreOperations::save`] does; before writing, `decide` changes it on the basis
    /// of the current state.
    fn decide<T>(&self, record: &mut StoreRecord, decide: impl FnOnce(&mut StoreRecord) -> T) -> Result<T, StoreError> {
        self.with_record_lock(|| {
            let before = match self.record() {
                Ok(before) => Some(before),
                // A damaged record is replaced. After any other error it is not: the record may contain a hold.
                Err(error @ StoreError::Damaged { .. }) => {
                    self.keep_damaged(&error)?;
                    None
                }
                Err(error) => return Err(error),
            };
            if let Some(before) = &before {
                record.adopt_decisions(before);
            }
            let result = decide(record);
            if before.as_ref() != Some(record) {
                self.write(record)?;
            }
            Ok(result)
        })
    }

    /// Replaces a record that cannot be read.
    fn mend(&self, record: &StoreRecord) -> Result<(), StoreError> {
        self.with_record_lock(|| self.write(record))
    }

    /// The allowance less the bytes of removed versions that are still mapped.
    fn left_of(&self, allowance: &SpaceLimits) -> SpaceLimits {
        let read = self.still_read();
        SpaceLimits { max_bytes: allowance.max_bytes.map(|most| most.saturating_sub(read)), ..*allowance }
    }

    /// Removes the versions beyond `allowance`, oldest arrival first, and returns those removed. A leased version is
    /// skipped.
    fn prune(&self, record: &StoreRecord, allowance: &SpaceLimits) -> Result<Vec<StoredVersion>, StoreError> {
        let allowance = &self.left_of(allowance);
        let versions = self.versions()?;
        let mut sizes = self.sizes_of(&versions);
        // Derived files are removed before any version.
        if is_over(allowance, &sizes, 0) && self.give_up_derived() {
            sizes = self.sizes_of(&versions);
        }
        let mut removed = Vec::new();
        for (id, _) in surplus(record, allowance, &sizes) {
            if self.remove_unless_needed(id)? {
                removed.extend(versions.iter().find(|version| version.id == id).cloned());
            }
        }
        Ok(removed)
    }

    /// Removes a version unless it is leased or the record protects it. The record is read again: a person may have
    /// chosen the version since it was selected for removal.
    fn remove_unless_needed(&self, id: VersionId) -> Result<bool, StoreError> {
        self.with_record_lock(|| if self.record()?.protects(id) { Ok(false) } else { self.remove(id) })
    }

    /// Frees the space for `wanted`, and returns the versions removed for it. Derived files are removed first. Then
    /// follow the versions that `keep` does not keep; with `min_free` any unprotected version may follow, oldest first.
    /// No version is removed if the removals would not suffice.
    fn make_room(
        &self,
        record: &StoreRecord,
        allowance: &SpaceLimits,
        wanted: SpaceRequest,
    ) -> Result<Vec<VersionId>, StoreError> {
        let path = || self.root().to_owned();
        let min_free = allowance.min_free.unwrap_or(0);
        let target = wanted.more.saturating_add(min_free);
        let left = &self.left_of(allowance);
        let mut sizes = self.sizes_of(&self.versions()?);
        let is_tight = self.free()?.is_some_and(|free| free < target) || is_over(left, &sizes, wanted.whole);
        if is_tight && self.give_up_derived() {
            sizes = self.sizes_of(&self.versions()?);
        }
        if let Some(most) = allowance.max_bytes {
            let held = held_by_then(record, &sizes);
            if wanted.whole > 0 && held.saturating_add(wanted.whole) > most {
                return Err(StoreError::OverMost { path: path(), needed: wanted.whole, held, most });
            }
            let read = self.still_read();
            if wanted.whole > 0 && held.saturating_add(wanted.whole).saturating_add(read) > most {
                return Err(StoreError::StillRead { path: path(), needed: wanted.whole, held, read, most });
            }
        }
        let Some(mut now) = self.free()? else { return Ok(Vec::new()) };
        let keep = if allowance.min_free.is_some() { 0 } else { allowance.keep };
        let mut may_go = surplus(record, &SpaceLimits { keep, ..*left }, &sizes);
        if allowance.min_free.is_some() {
            // Removed last: the next check of the source would bring it again.
            let offered = record.offered_version().filter(|&id| !record.protects(id));
            let offered = sizes.iter().filter(|(id, _)| Some(*id) == offered);
            may_go.extend(offered.filter(|taken| !may_go.contains(taken)).copied().collect::<Vec<_>>());
        }
        let gain: u64 = may_go.iter().map(|(_, bytes)| bytes).sum();
        let mut removed = Vec::new();
        if now < target && now.saturating_add(gain) >= target {
            for (id, _) in may_go {
                if self.remove_unless_needed(id)? {
                    removed.push(id);
                    now = self.free()?.unwrap_or(u64::MAX);
                }
                if now >= target {
                    break;
                }
            }
        }
        if now < target {
            return Err(StoreError::NoSpace { path: path(), needed: wanted.more, free: now, min_free });
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
