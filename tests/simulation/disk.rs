//! A simulated disk that records which writes are not synced: after a kill all writes are present, after a power cut
//! those that were not synced may be lost.

use std::collections::BTreeMap;
use std::path::PathBuf;

use docwharf::fetch::BundleValidator;
use docwharf::model::version::VersionId;
use docwharf::store::record::StoreRecord;
use docwharf::store::{HistoryEvent, Receipt};

use super::random::Random;

/// The content of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    /// The number of the content.
    pub(crate) n: u64,
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
    /// Whether it is refused when it is verified.
    pub(crate) hostile: bool,
}

impl Content {
    /// Whether servers send a validator for it.
    pub(crate) fn has_validator(&self) -> bool {
        !self.n.is_multiple_of(7)
    }
}

/// A sealed version.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) content: Content,
    /// The number of the arrival; a later arrival has a greater number.
    pub(crate) arrival: u64,
    /// Whether the disk has lost a part of it.
    pub(crate) damaged: bool,
    /// Whether it is marked as damaged.
    pub(crate) marked_damaged: bool,
}

/// A partly downloaded bundle.
#[derive(Debug, Clone)]
pub(crate) struct PartialDownload {
    pub(crate) source: String,
    pub(crate) validator: BundleValidator,
    pub(crate) content: Content,
    pub(crate) received: u64,
    /// Whether a part was received by an earlier process.
    pub(crate) resumed: bool,
    /// Whether a power cut has damaged it.
    pub(crate) damaged: bool,
}

/// A bundle file outside the store.
#[derive(Debug, Clone)]
pub(crate) struct BundleFile {
    pub(crate) content: Content,
    pub(crate) modified: i64,
}

/// A write that a power cut may undo.
#[derive(Debug, Clone)]
enum Unsynced {
    Record(Box<Option<StoreRecord>>),
    Added(VersionId),
    Repaired(VersionId),
    Removed(VersionId, Version, Vec<Receipt>),
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) record: Option<StoreRecord>,
    /// Whether the file of the record is damaged.
    pub(crate) record_damaged: bool,
    /// Whether the record was damaged and is not yet recovered.
    pub(crate) record_lost: bool,
    pub(crate) versions: BTreeMap<VersionId, Version>,
    pub(crate) receipts: BTreeMap<VersionId, Vec<Receipt>>,
    pub(crate) history: Vec<HistoryEvent>,
    pub(crate) partial: Option<PartialDownload>,
    pub(crate) bundle_files: BTreeMap<PathBuf, BundleFile>,
    /// Size of the disk, and the bytes that other programs use.
    pub(crate) capacity: u64,
    pub(crate) other_bytes: u64,
    arrivals: u64,
    unsynced: Vec<Unsynced>,
}

impl Disk {
    pub(crate) fn new(capacity: u64) -> Disk {
        Disk { capacity, ..Disk::default() }
    }

    pub(crate) fn free(&self) -> u64 {
        let versions: u64 = self.versions.values().map(|version| version.content.bytes).sum();
        let partial = self.partial.as_ref().map_or(0, |partial| partial.received);
        self.capacity.saturating_sub(versions + partial + self.other_bytes)
    }

    /// Returns the content of the active version.
    pub(crate) fn active(&self) -> Option<Content> {
        let id = self.record.as_ref()?.active?;
        self.versions.get(&id).map(|version| version.content)
    }

    /// Replaces the record; its directory is not synced yet.
    pub(crate) fn put_record(&mut self, record: StoreRecord) {
        let before = self.record.replace(record);
        self.unsynced.push(Unsynced::Record(Box::new(before)));
        self.record_damaged = false;
    }

    pub(crate) fn sync_record(&mut self) {
        self.unsynced.retain(|effect| !matches!(effect, Unsynced::Record(_)));
    }

    /// Adds a version; `versions/` is not synced yet.
    pub(crate) fn put_version(&mut self, id: VersionId, content: Content) {
        self.arrivals += 1;
        let version = Version { content, arrival: self.arrivals, damaged: false, marked_damaged: false };
        self.versions.insert(id, version);
        self.unsynced.push(Unsynced::Added(id));
    }

    /// Replaces a damaged version by an undamaged one; `versions/` is not synced yet.
    pub(crate) fn repair_version(&mut self, id: VersionId) {
        if let Some(version) = self.versions.get_mut(&id) {
            version.damaged = false;
            self.unsynced.push(Unsynced::Repaired(id));
        }
    }

    pub(crate) fn sync_versions(&mut self) {
        self.unsynced.retain(|effect| matches!(effect, Unsynced::Record(_)));
    }

    pub(crate) fn remove_version(&mut self, id: VersionId) {
        if let Some(version) = self.versions.remove(&id) {
            let receipts = self.receipts.remove(&id).unwrap_or_default();
            self.unsynced.push(Unsynced::Removed(id, version, receipts));
        }
    }

    pub(crate) fn add_receipt(&mut self, id: VersionId, receipt: Receipt) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        if let Some(version) = self.versions.get_mut(&id) {
            version.arrival = arrival;
        }
        self.receipts.entry(id).or_default().push(receipt);
    }

    /// Marks all writes as synced: the system writes everything after some time.
    pub(crate) fn sync_all(&mut self) {
        self.unsynced.clear();
    }

    /// Applies the end of the process and, with `is_power_cut`, the loss of unsynced writes.
    pub(crate) fn crash(&mut self, is_power_cut: bool, random: &mut Random) {
        if let Some(partial) = &mut self.partial {
            partial.resumed = true;
            partial.damaged |= is_power_cut && random.happens(0.3);
        }
        let unsynced = std::mem::take(&mut self.unsynced);
        if !is_power_cut {
            return;
        }
        for effect in unsynced.into_iter().rev().filter(|_| random.happens(0.5)).collect::<Vec<_>>() {
            match effect {
                Unsynced::Record(before) => self.record = *before,
                Unsynced::Added(id) => {
                    self.versions.remove(&id);
                }
                Unsynced::Repaired(id) => {
                    if let Some(version) = self.versions.get_mut(&id) {
                        version.damaged = true;
                    }
                }
                Unsynced::Removed(id, version, receipts) => {
                    self.versions.entry(id).or_insert(version);
                    if random.happens(0.5) {
                        self.receipts.entry(id).or_insert(receipts);
                    }
                }
            }
        }
        // A start removes the receipts of versions that are not stored.
        let versions = &self.versions;
        self.receipts.retain(|id, _| versions.contains_key(id));
    }
}
