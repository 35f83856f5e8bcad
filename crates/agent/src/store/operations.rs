//! Operations on a store: the rules for its record and its disk space, expressed with primitive effects.
//! [`StoreWriter`](super::writer::StoreWriter) implements the effects on disk; the simulation implements them in
//! memory.

use std::path::Path;

use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::model::version::VersionId;

use super::record::StoreRecord;
use super::space::{SpaceLimits, SpaceRequest, VersionSize, is_over, protected_bytes_after_import, surplus};
use super::{HistoryEvent, Receipt, StoreError, StoredVersion};

/// An event for the history: its name, version and note; see [`HistoryEvent`].
pub type HistoryNote = (&'static str, Option<VersionId>, Option<String>);

/// The effects on a store and the operations built on them. A write that fails may be in place without being durable.
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
    fn is_marked_damaged(&self, id: VersionId) -> bool;
    /// Returns the bytes that each of these versions occupies, in their order.
    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize>;
    /// Returns the bytes that can still be written; none where the file system does not report them.
    fn free_bytes(&self) -> Result<Option<u64>, StoreError>;
    /// Removes the large files derived from versions, which can be computed again, and the search indexes of versions
    /// that are not active. Returns whether there were any.
    fn remove_large_derived_files(&self) -> bool;

    /// Runs `action` while no other thread changes the record.
    fn with_record_lock<T>(&self, action: impl FnOnce() -> T) -> T;
    /// Writes the record durably. The caller must be inside [`StoreOperations::with_record_lock`].
    fn write_record(&self, record: &StoreRecord) -> Result<(), StoreError>;
    /// Appends an event to history. A failure is logged; the change that the event describes is not undone.
    fn append_event(&self, event: &HistoryEvent);
    /// Stores a receipt of a version.
    fn add_receipt(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError>;
    /// Removes a version from the store unless it is leased. Returns whether it was removed.
    fn remove(&self, id: VersionId) -> Result<bool, StoreError>;
    /// Removes a version from the store even if it is leased.
    fn remove_ignoring_leases(&self, id: VersionId) -> Result<(), StoreError>;
    /// Clears the mark of a damaged version.
    fn clear_damage_mark(&self, id: VersionId) -> Result<(), StoreError>;
    /// Copies a damaged record, which may have been edited by hand, and logs the path of the copy. Must be called
    /// before the record is replaced.
    fn copy_damaged_record(&self, damage: &StoreError) -> Result<(), StoreError>;
    /// Bytes of removed versions that this process still has mapped: the disk space is not free yet.
    fn mapped_removed_bytes(&self) -> u64 {
        0
    }

    /// Whether the store has a version that is not marked as damaged.
    fn has_undamaged(&self, id: VersionId) -> bool {
        self.has(id) && !self.is_marked_damaged(id)
    }

    /// Appends an event to history, with the current time.
    fn note(&self, author: &str, what: &str, version: Option<VersionId>, note: Option<String>) {
        let time = format_unix_seconds(self.now());
        self.append_event(&HistoryEvent { time, author: author.to_owned(), what: what.to_owned(), version, note });
    }

    /// Changes the record on disk while no other thread does.
    fn change_record<T>(&self, change: impl FnOnce(&mut StoreRecord) -> T) -> Result<T, StoreError> {
        self.with_record_lock(|| {
            let before = self.record()?;
            let mut record = before.clone();
            let result = change(&mut record);
            if record != before {
                self.write_record(&record)?;
            }
            Ok(result)
        })
    }

    /// Makes a person's change to the record, and appends the event that `event` returns to history. The event is
    /// appended also if the change is in place but could not be made durable: a lost record is recovered from history.
    fn change_record_and_note<T>(
        &self,
        author: &str,
        change: impl FnOnce(&mut StoreRecord) -> T,
        event: impl FnOnce(&T) -> Option<HistoryNote>,
    ) -> Result<T, StoreError> {
        let mut changed_record = None;
        let mut note = None;
        let outcome = self.change_record(|record| {
            let result = change(record);
            note = event(&result);
            changed_record = Some(record.clone());
            result
        });
        let is_in_place = outcome.is_ok() || self.record().is_ok_and(|record| Some(record) == changed_record);
        if let Some((what, version, note)) = note.filter(|_| is_in_place) {
            self.note(author, what, version, note);
        }
        outcome
    }

    /// Writes the record of a sync, after copying from the stored record what people have decided since the sync began.
    fn save_sync_record(&self, record: &mut StoreRecord) -> Result<(), StoreError> {
        self.decide_and_save(record, |_| ())
    }

    /// Writes the record of a sync as [`StoreOperations::save_sync_record`] does; before the write, `decide` changes
    /// the record on the basis of the current state.
    fn decide_and_save<T>(
        &self,
        record: &mut StoreRecord,
        decide: impl FnOnce(&mut StoreRecord) -> T,
    ) -> Result<T, StoreError> {
        self.with_record_lock(|| {
            let before = match self.record() {
                Ok(before) => Some(before),
                // A damaged record is replaced. After any other error it is not: the record may contain a hold.
                Err(error @ StoreError::DamagedRecord { .. }) => {
                    self.copy_damaged_record(&error)?;
                    None
                }
                Err(error) => return Err(error),
            };
            if let Some(before) = &before {
                record.copy_decisions(before);
            }
            let result = decide(record);
            if before.as_ref() != Some(record) {
                self.write_record(record)?;
            }
            Ok(result)
        })
    }

    /// Replaces a record that cannot be read.
    fn replace_record(&self, record: &StoreRecord) -> Result<(), StoreError> {
        self.with_record_lock(|| self.write_record(record))
    }

    /// Returns `limits` with `max_bytes` reduced by the bytes of removed versions that are still mapped.
    fn limits_without_mapped(&self, limits: &SpaceLimits) -> SpaceLimits {
        let mapped = self.mapped_removed_bytes();
        SpaceLimits { max_bytes: limits.max_bytes.map(|bytes| bytes.saturating_sub(mapped)), ..*limits }
    }

    /// Removes the versions beyond `limits`, oldest arrival first, and returns those removed. A leased version is
    /// skipped.
    fn prune(&self, record: &StoreRecord, limits: &SpaceLimits) -> Result<Vec<StoredVersion>, StoreError> {
        let limits = &self.limits_without_mapped(limits);
        let versions = self.versions()?;
        let mut sizes = self.sizes_of(&versions);
        // Derived files are removed before any version.
        if is_over(limits, &sizes, 0) && self.remove_large_derived_files() {
            sizes = self.sizes_of(&versions);
        }
        let mut removed = Vec::new();
        for (id, _) in surplus(record, limits, &sizes) {
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

    /// Frees disk space for `request`, and returns the versions removed for it. Derived files are removed first, then
    /// the versions that `keep` does not retain; with `min_free` set, any unprotected version can be removed, oldest
    /// first. No version is removed if the removals would not free enough.
    fn free_disk_space(
        &self,
        record: &StoreRecord,
        limits: &SpaceLimits,
        request: SpaceRequest,
    ) -> Result<Vec<VersionId>, StoreError> {
        let path = || self.root().to_owned();
        let min_free = limits.min_free.unwrap_or(0);
        let target = request.remaining_bytes.saturating_add(min_free);
        let effective_limits = &self.limits_without_mapped(limits);
        let mut sizes = self.sizes_of(&self.versions()?);
        let is_tight = self.free_bytes()?.is_some_and(|free| free < target)
            || is_over(effective_limits, &sizes, request.version_bytes);
        if is_tight && self.remove_large_derived_files() {
            sizes = self.sizes_of(&self.versions()?);
        }
        if let Some(max_bytes) = limits.max_bytes {
            let protected = protected_bytes_after_import(record, &sizes);
            if request.version_bytes > 0 && protected.saturating_add(request.version_bytes) > max_bytes {
                return Err(StoreError::OverMaxBytes {
                    path: path(),
                    needed: request.version_bytes,
                    protected,
                    max_bytes,
                });
            }
            let mapped = self.mapped_removed_bytes();
            if request.version_bytes > 0
                && protected.saturating_add(request.version_bytes).saturating_add(mapped) > max_bytes
            {
                return Err(StoreError::RemovedVersionsInUse {
                    path: path(),
                    needed: request.version_bytes,
                    protected,
                    mapped,
                    max_bytes,
                });
            }
        }
        let Some(mut free) = self.free_bytes()? else { return Ok(Vec::new()) };
        let keep = if limits.min_free.is_some() { 0 } else { limits.keep };
        let mut removable = surplus(record, &SpaceLimits { keep, ..*effective_limits }, &sizes);
        if limits.min_free.is_some() {
            // Removed last: the next check of the source would fetch it again.
            let offered = record.offered_version().filter(|&id| !record.protects(id));
            let offered = sizes.iter().filter(|(id, _)| Some(*id) == offered);
            removable.extend(offered.filter(|version| !removable.contains(version)).copied().collect::<Vec<_>>());
        }
        let removable_bytes: u64 = removable.iter().map(|(_, bytes)| bytes).sum();
        let mut removed = Vec::new();
        if free < target && free.saturating_add(removable_bytes) >= target {
            for (id, _) in removable {
                if self.remove_unless_needed(id)? {
                    removed.push(id);
                    free = self.free_bytes()?.unwrap_or(u64::MAX);
                }
                if free >= target {
                    break;
                }
            }
        }
        if free < target {
            return Err(StoreError::NoSpace { path: path(), needed: request.remaining_bytes, free, min_free });
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
