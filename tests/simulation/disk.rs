//! A disk that remembers what has not reached it yet: a kill keeps what was written, a power cut may take back whatever
//! was not synced.

use std::collections::BTreeMap;
use std::path::PathBuf;

use docwharf::fetch::BundleValidator;
use docwharf::model::version::VersionId;
use docwharf::store::record::StoreRecord;
use docwharf::store::{HistoryEvent, Receipt};

use super::random::Random;

/// What a bundle holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    /// Names it; 0 stands for what is no bundle at all.
    pub(crate) n: u64,
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
    /// Refused when it is read to its end.
    pub(crate) hostile: bool,
}

impl Content {
    /// Whether servers name it, so that it can be recognised.
    pub(crate) fn has_name(&self) -> bool {
        !self.n.is_multiple_of(7)
    }
}

/// A sealed version.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) content: Content,
    /// Later arrivals have greater ones.
    pub(crate) arrival: u64,
    /// The disk has lost some of it, and it is marked until it is mended.
    pub(crate) rotten: bool,
    pub(crate) suspect: bool,
}

/// A bundle on its way.
#[derive(Debug, Clone)]
pub(crate) struct Partial {
    pub(crate) source: String,
    pub(crate) known: BundleValidator,
    pub(crate) content: Content,
    pub(crate) received: u64,
    /// Some of it was received by an earlier process.
    pub(crate) resumed: bool,
    /// A power cut has damaged it.
    pub(crate) damaged: bool,
}

/// A bundle file from outside.
#[derive(Debug, Clone)]
pub(crate) struct Outside {
    pub(crate) content: Content,
    pub(crate) modified: i64,
}

/// What a power cut may take back.
#[derive(Debug, Clone)]
enum Unsynced {
    Record(Box<Option<StoreRecord>>),
    Came(VersionId),
    Mended(VersionId),
    Went(VersionId, Version, Vec<Receipt>),
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) record: Option<StoreRecord>,
    /// The record's file holds something else.
    pub(crate) garbled: bool,
    /// It has, and what was in it has not yet been looked for elsewhere.
    pub(crate) lost: bool,
    pub(crate) versions: BTreeMap<VersionId, Version>,
    pub(crate) receipts: BTreeMap<VersionId, Vec<Receipt>>,
    pub(crate) history: Vec<HistoryEvent>,
    pub(crate) partial: Option<Partial>,
    pub(crate) outside: BTreeMap<PathBuf, Outside>,
    /// Bytes in all, and those that others take.
    pub(crate) capacity: u64,
    pub(crate) ballast: u64,
    arrivals: u64,
    unsynced: Vec<Unsynced>,
}

impl Disk {
    pub(crate) fn of(capacity: u64) -> Disk {
        Disk { capacity, ..Disk::default() }
    }

    pub(crate) fn free(&self) -> u64 {
        let versions: u64 = self.versions.values().map(|version| version.content.bytes).sum();
        let partial = self.partial.as_ref().map_or(0, |partial| partial.received);
        self.capacity.saturating_sub(versions + partial + self.ballast)
    }

    /// The content of the active version.
    pub(crate) fn active(&self) -> Option<Content> {
        let id = self.record.as_ref()?.active?;
        self.versions.get(&id).map(|version| version.content)
    }

    /// The record's new file is in place, but its folder has not been synced.
    pub(crate) fn put_record(&mut self, record: StoreRecord) {
        let before = self.record.replace(record);
        self.unsynced.push(Unsynced::Record(Box::new(before)));
        self.garbled = false;
    }

    pub(crate) fn sync_record(&mut self) {
        self.unsynced.retain(|effect| !matches!(effect, Unsynced::Record(_)));
    }

    /// A version's folder is in place, but `versions/` has not been synced.
    pub(crate) fn put_version(&mut self, id: VersionId, content: Content) {
        self.arrivals += 1;
        let version = Version { content, arrival: self.arrivals, rotten: false, suspect: false };
        self.versions.insert(id, version);
        self.unsynced.push(Unsynced::Came(id));
    }

    /// A whole version is in the place of a rotten one, but `versions/` has not been synced.
    pub(crate) fn mend_version(&mut self, id: VersionId) {
        if let Some(version) = self.versions.get_mut(&id) {
            version.rotten = false;
            self.unsynced.push(Unsynced::Mended(id));
        }
    }

    pub(crate) fn sync_versions(&mut self) {
        self.unsynced.retain(|effect| matches!(effect, Unsynced::Record(_)));
    }

    pub(crate) fn take_version(&mut self, id: VersionId) {
        if let Some(version) = self.versions.remove(&id) {
            let receipts = self.receipts.remove(&id).unwrap_or_default();
            self.unsynced.push(Unsynced::Went(id, version, receipts));
        }
    }

    pub(crate) fn file_receipt(&mut self, id: VersionId, receipt: Receipt) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        if let Some(version) = self.versions.get_mut(&id) {
            version.arrival = arrival;
        }
        self.receipts.entry(id).or_default().push(receipt);
    }

    /// After a while the system has written everything.
    pub(crate) fn settle(&mut self) {
        self.unsynced.clear();
    }

    /// The process is gone, and perhaps the machine with it.
    pub(crate) fn lose(&mut self, power: bool, random: &mut Random) {
        if let Some(partial) = &mut self.partial {
            partial.resumed = true;
            partial.damaged |= power && random.happens(0.3);
        }
        let unsynced = std::mem::take(&mut self.unsynced);
        if !power {
            return;
        }
        for effect in unsynced.into_iter().rev().filter(|_| random.happens(0.5)).collect::<Vec<_>>() {
            match effect {
                Unsynced::Record(before) => self.record = *before,
                Unsynced::Came(id) => {
                    self.versions.remove(&id);
                }
                Unsynced::Mended(id) => {
                    if let Some(version) = self.versions.get_mut(&id) {
                        version.rotten = true;
                    }
                }
                Unsynced::Went(id, version, receipts) => {
                    self.versions.entry(id).or_insert(version);
                    if random.happens(0.5) {
                        self.receipts.entry(id).or_insert(receipts);
                    }
                }
            }
        }
        // A start sweeps receipts of versions that are not there.
        let versions = &self.versions;
        self.receipts.retain(|id, _| versions.contains_key(id));
    }
}
