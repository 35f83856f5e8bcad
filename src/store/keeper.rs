//! What is decided about a store's record and room, over what is done to a disk. [`Writer`](super::writer::Writer) does it
//! to a real one; a simulation has another.

use std::path::Path;

use crate::model::units::show_unix;
use crate::model::version::VersionId;

use super::record::Record;
use super::space::{Allowance, Taken, Wanted, held_by_then, is_over, surplus};
use super::{Event, Receipt, StoreError, Stored};

/// What, of which version, and further words: see [`Event`].
pub type Told = (&'static str, Option<VersionId>, Option<String>);

/// Effects, each of which is done as a whole or not at all, and what follows from them.
pub trait Keeper {
    /// Seconds since 1970.
    fn now(&self) -> i64;
    /// The store's folder, for messages.
    fn root(&self) -> &Path;
    /// The record; an empty one for a store that has none yet.
    fn record(&self) -> Result<Record, StoreError>;
    /// Whether a version is there.
    fn has(&self, id: VersionId) -> bool;
    /// All versions, the newest arrival first.
    fn versions(&self) -> Result<Vec<Stored>, StoreError>;
    /// A version's arrivals, oldest first.
    fn receipts(&self, id: VersionId) -> Vec<Receipt>;
    /// History, oldest first.
    fn history(&self) -> Result<Vec<Event>, StoreError>;
    /// Whether a version was found damaged.
    fn is_suspect(&self, id: VersionId) -> bool;
    /// What each of these versions takes, in their order.
    fn sizes_of(&self, versions: &[Stored]) -> Vec<Taken>;
    /// Bytes that may still be written; none where the file system does not say.
    fn free(&self) -> Result<Option<u64>, StoreError>;
    /// Removes what was computed from versions, can be computed again and takes much room; whether there was any.
    fn give_up_derived(&self) -> bool;

    /// Does `work` while nobody else changes the record.
    fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T;
    /// Makes a record durable, the turn being the caller's.
    fn write(&self, record: &Record) -> Result<(), StoreError>;
    /// Adds a line to history. A failure is no reason to undo what has happened; it is logged.
    fn append(&self, event: &Event);
    /// Files a receipt.
    fn receive(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError>;
    /// Takes a version out of the store, unless somebody has it mapped: whether it is gone.
    fn remove(&self, id: VersionId) -> Result<bool, StoreError>;
    /// Takes a version out of the store, whoever has it mapped.
    fn withdraw(&self, id: VersionId) -> Result<(), StoreError>;
    /// Forgets that a version was found damaged.
    fn clear_suspect(&self, id: VersionId) -> Result<(), StoreError>;
    /// Keeps what a damaged record says, for whoever has changed it by hand, and tells of both. To be called before it is
    /// replaced.
    fn keep_damaged(&self, damage: &StoreError) -> Result<(), StoreError>;
    /// Bytes of versions that were removed and that this process still reads: the disk has not got them back yet.
    fn still_read(&self) -> u64 {
        0
    }

    /// Whether a version is there and nothing is known against it.
    fn has_whole(&self, id: VersionId) -> bool {
        self.has(id) && !self.is_suspect(id)
    }

    /// Adds a line to history.
    fn note(&self, who: &str, what: &str, version: Option<VersionId>, note: Option<String>) {
        let time = show_unix(self.now());
        self.append(&Event { time, who: who.to_owned(), what: what.to_owned(), version, note });
    }

    /// Changes the record as it is on disk; nobody else does meanwhile.
    fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T, StoreError> {
        self.in_turn(|| {
            let before = self.record()?;
            let mut record = before.clone();
            let result = change(&mut record);
            if record != before {
                self.write(&record)?;
            }
            Ok(result)
        })
    }

    /// What a person changes in the record, and the line of history that tells of it, if there is one to write. It is
    /// written also when the change is in place and only could not be made durable: a record that is lost afterwards is
    /// made again from history.
    fn change_and_tell<T>(
        &self,
        who: &str,
        change: impl FnOnce(&mut Record) -> T,
        tell: impl FnOnce(&T) -> Option<Told>,
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

    /// Writes the record that a sync carries along, having taken over what a person has decided meanwhile.
    fn save(&self, record: &mut Record) -> Result<(), StoreError> {
        self.decide(record, |_| ())
    }

    /// The same, with a decision in between that follows from what is so at this moment.
    fn decide<T>(&self, record: &mut Record, decide: impl FnOnce(&mut Record) -> T) -> Result<T, StoreError> {
        self.in_turn(|| {
            let before = match self.record() {
                Ok(before) => Some(before),
                // It is replaced; one that cannot be read just now may say that it is held.
                Err(error @ StoreError::Damaged { .. }) => {
                    self.keep_damaged(&error)?;
                    None
                }
                Err(error) => return Err(error),
            };
            if let Some(before) = &before {
                record.take_over_from_people(before);
            }
            let result = decide(record);
            if before.as_ref() != Some(record) {
                self.write(record)?;
            }
            Ok(result)
        })
    }

    /// Replaces a record that cannot be read.
    fn mend(&self, record: &Record) -> Result<(), StoreError> {
        self.in_turn(|| self.write(record))
    }

    /// The allowance less the bytes of removed versions that readers still hold.
    fn left_of(&self, allowance: &Allowance) -> Allowance {
        let read = self.still_read();
        Allowance { max_bytes: allowance.max_bytes.map(|most| most.saturating_sub(read)), ..*allowance }
    }

    /// Removes the versions that are beyond `allowance`, the oldest arrivals first; gives those removed. A version that
    /// somebody has open is passed by.
    fn prune(&self, record: &Record, allowance: &Allowance) -> Result<Vec<Stored>, StoreError> {
        let allowance = &self.left_of(allowance);
        let versions = self.versions()?;
        let mut sizes = self.sizes_of(&versions);
        // No version goes for the sake of what was derived from it or another one.
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

    /// Removes a version unless somebody has it open, or the record, as it is at this moment, needs it: a person may have
    /// chosen it since it was found to be superfluous.
    fn remove_unless_needed(&self, id: VersionId) -> Result<bool, StoreError> {
        self.in_turn(|| if self.record()?.protects(id) { Ok(false) } else { self.remove(id) })
    }

    /// Sees to it that there is room for `wanted`; gives the versions that had to go for it. Those that `keep` does not
    /// keep go first; with `min_free`, others that nothing protects may follow, the oldest first. None goes in vain, and none
    /// before what was derived.
    fn make_room(&self, record: &Record, allowance: &Allowance, wanted: Wanted) -> Result<Vec<VersionId>, StoreError> {
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
        let mut may_go = surplus(record, &Allowance { keep, ..*left }, &sizes);
        if allowance.min_free.is_some() {
            // The last to go: a look at the source would bring it again.
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
