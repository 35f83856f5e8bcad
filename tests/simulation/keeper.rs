//! The simulated machine as the store's disk and the workshop in which bundles are sealed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use docwharf::bundle::refusal::{BundleFault, BundleRefusal};
use docwharf::model::version::VersionId;
use docwharf::seal::{SealError, SealOptions, SealProgress};
use docwharf::store::operations::StoreOperations;
use docwharf::store::record::{GateVerdict, StoreRecord};
use docwharf::store::space::{SpaceRequest, VersionSize};
use docwharf::store::version_stage::CommitOutcome;
use docwharf::store::{HistoryEvent, Receipt, StoreError, StoredVersion};
use docwharf::sync::incoming_bundle::{IncomingBundle, Occasion};
use docwharf::sync::seal_operations::{BundleSummary, SealOperations};
use docwharf::sync::{SyncError, SyncIntent};

use super::arrivals;
use super::disk::Content;
use super::sim::{Lease, Sim, archive_of, id_of};

/// What a small file takes.
const SMALL: u64 = 4096;

impl Sim {
    /// An error of the disk, if there is one now.
    fn disk_fails(&self, bytes: u64) -> Option<io::Error> {
        self.with(|s| {
            if s.disk.free() < bytes {
                return Some(io::ErrorKind::StorageFull.into());
            }
            s.random.happens(s.faults.disk).then(|| io::Error::other("EIO"))
        })
    }

    fn store_error(&self, doing: &'static str, source: io::Error) -> StoreError {
        self.tell(|| format!("    cannot {doing}: {source}"));
        StoreError::Io { doing, path: self.root.clone(), source }
    }

    /// Whether a version has been damaged by the disk.
    pub(crate) fn is_rotten(&self, id: VersionId) -> bool {
        self.with(|s| s.disk.versions.get(&id).is_some_and(|version| version.rotten))
    }

    /// The content of a file, wherever it lies; none if it is not whole.
    pub(crate) fn content_at(&self, path: &Path) -> Option<Content> {
        self.with(|s| match &s.disk.partial {
            Some(partial) if path == Path::new("/store/downloads/x") => {
                (!partial.damaged && partial.received == partial.content.bytes).then_some(partial.content)
            }
            _ => s.disk.outside.get(path).map(|outside| outside.content),
        })
    }
}

impl StoreOperations for Sim {
    fn now(&self) -> i64 {
        self.wall()
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn record(&self) -> Result<StoreRecord, StoreError> {
        if !self.with(|s| s.in_turn) {
            self.operation(|| "read the record".to_owned());
        }
        self.with(|s| {
            if s.disk.garbled {
                let source = serde_json::from_str::<u8>("{").unwrap_err();
                return Err(StoreError::Damaged { path: self.root.clone(), source });
            }
            Ok(s.disk.record.clone().unwrap_or_default())
        })
    }

    fn has(&self, id: VersionId) -> bool {
        self.with(|s| s.disk.versions.contains_key(&id))
    }

    fn versions(&self) -> Result<Vec<StoredVersion>, StoreError> {
        self.operation(|| "list versions".to_owned());
        self.with(|s| {
            let mut all: Vec<_> = s.disk.versions.iter().collect();
            all.sort_by_key(|(_, version)| std::cmp::Reverse(version.arrival));
            let stored = |(&id, version): (&VersionId, &super::disk::Version)| {
                let receipts = s.disk.receipts.get(&id).cloned().unwrap_or_default();
                StoredVersion { id, bytes: version.content.bytes, receipts }
            };
            Ok(all.into_iter().map(stored).collect())
        })
    }

    fn receipts(&self, id: VersionId) -> Vec<Receipt> {
        self.with(|s| s.disk.receipts.get(&id).cloned().unwrap_or_default())
    }

    fn history(&self) -> Result<Vec<HistoryEvent>, StoreError> {
        Ok(self.with(|s| s.disk.history.clone()))
    }

    fn is_suspect(&self, id: VersionId) -> bool {
        self.with(|s| s.disk.versions.get(&id).is_some_and(|version| version.suspect))
    }

    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        versions.iter().map(|version| (version.id, version.bytes)).collect()
    }

    fn free(&self) -> Result<Option<u64>, StoreError> {
        Ok(Some(self.with(|s| s.disk.free())))
    }

    fn give_up_derived(&self) -> bool {
        false // nothing is
    }

    fn with_record_lock<T>(&self, work: impl FnOnce() -> T) -> T {
        self.operation(|| "take the turn".to_owned());
        let before = self.with(|s| std::mem::replace(&mut s.in_turn, true));
        assert!(!before, "the turn is not taken twice");
        let result = work();
        self.with(|s| s.in_turn = false);
        result
    }

    fn write(&self, record: &StoreRecord) -> Result<(), StoreError> {
        self.operation(|| {
            let short = |id: Option<VersionId>| id.map_or_else(|| "-".to_owned(), |id| id.short());
            let (hold, job) = (record.hold.is_some(), record.job.as_ref().map(|job| &job.id));
            let (active, newest) = (short(record.active), short(record.newest));
            format!("write the record: active {active}, newest {newest}, held {hold}, job {job:?}")
        });
        if let Some(error) = self.disk_fails(SMALL) {
            self.with(|s| s.rules.write_failed = true);
            return Err(self.store_error("write the record", error));
        }
        let bytes = serde_json::to_vec(record).unwrap();
        let read: StoreRecord = serde_json::from_slice(&bytes).unwrap();
        if read != *record {
            self.broken("a record is not what was written");
        }
        self.check_write(&read);
        self.with(|s| s.disk.put_record(read));
        if self.with(|s| s.disk.lost) {
            // Made again from history, which knows what the operator has said last.
            self.check_remembered();
            self.forget_jobs();
        }
        self.check_standing();
        if self.happens(self.with(|s| s.faults.crash)) {
            self.crash();
        }
        if self.happens(self.with(|s| s.faults.disk)) {
            self.with(|s| (s.rules.write_failed, s.rules.unsynced) = (true, true));
            // In its place, but nobody knows for how long.
            return Err(self.store_error("sync the record", io::Error::other("EIO")));
        }
        self.with(|s| {
            s.rules.unsynced = false;
            s.disk.sync_record();
        });
        Ok(())
    }

    fn append(&self, event: &HistoryEvent) {
        self.operation(|| format!("history: {} {:?}", event.what, event.note));
        let is_told = self.disk_fails(SMALL).is_none();
        if is_told {
            self.with(|s| s.disk.history.push(event.clone()));
        }
        if event.is_hold_decision() {
            // The last word counts: one that was told makes good what was lost before.
            self.with(|s| s.rules.untold = !is_told);
        }
    }

    fn receive(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError> {
        self.operation(|| format!("receipt for {}", id.short()));
        if let Some(error) = self.disk_fails(SMALL) {
            return Err(self.store_error("write the receipt", error));
        }
        self.with(|s| s.disk.file_receipt(id, receipt.clone()));
        Ok(())
    }

    fn remove(&self, id: VersionId) -> Result<bool, StoreError> {
        self.operation(|| format!("remove {}", id.short()));
        if self.leases.borrow().contains(&id) || !self.has(id) {
            return Ok(false);
        }
        self.check_removal(id);
        self.with(|s| s.disk.take_version(id));
        Ok(true)
    }

    fn withdraw(&self, id: VersionId) -> Result<(), StoreError> {
        self.operation(|| format!("withdraw {}", id.short()));
        self.check_withdrawal(id);
        self.with(|s| s.disk.take_version(id));
        Ok(())
    }

    fn clear_suspect(&self, id: VersionId) -> Result<(), StoreError> {
        self.operation(|| format!("{} is no longer doubted", id.short()));
        if self.is_rotten(id) {
            self.broken("a damaged version is no longer doubted");
        }
        if let Some(error) = self.disk_fails(SMALL) {
            return Err(self.store_error("write what is known of damage", error));
        }
        self.with(|s| s.disk.versions.get_mut(&id).map(|version| version.suspect = false));
        Ok(())
    }

    fn keep_damaged(&self, _: &StoreError) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What the model is told of a bundle that has been proved.
fn arrival_of(arrival: &IncomingBundle<'_>, content: Content) -> arrivals::Arrival {
    let (source, id) = (arrival.source.to_owned(), id_of(content));
    match arrival.occasion {
        Occasion::Import => arrivals::Arrival::Import(id),
        occasion => arrivals::Arrival::Look { source, id, demanded: occasion == Occasion::Refresh },
    }
}

/// A sealed bundle aside.
pub(crate) struct Aside {
    content: Content,
    lease: Option<Lease>,
}

impl SealOperations for Sim {
    type Opened = Lease;
    type Stage = Aside;

    fn wanted(&self, arrival: &IncomingBundle<'_>, ours: bool) -> SpaceRequest {
        let size = self.content_at(arrival.path).map_or(0, |content| content.bytes);
        SpaceRequest { whole: size, more: if ours { 0 } else { size } }
    }

    fn seal(
        &self,
        arrival: &IncomingBundle<'_>,
        _: &SealOptions,
        _: &SealProgress,
    ) -> Result<(BundleSummary, Aside), SyncError> {
        self.operation(|| format!("prove {}", arrival.title));
        self.pass(std::time::Duration::from_millis(1 + self.below(3000)));
        let refused = |fault| {
            let source = BundleRefusal { entry: None, fault };
            SyncError::Seal(SealError::Refused { path: arrival.title.into(), source })
        };
        self.with(|s| s.rules.arrivals.prove(None));
        let content = self.content_at(arrival.path).ok_or_else(|| refused(BundleFault::WrongCrc))?;
        if content.hostile {
            return Err(refused(BundleFault::Overlap));
        }
        if let Some(source) = self.disk_fails(content.bytes) {
            return Err(SyncError::Seal(SealError::Write { path: self.root.clone(), source }));
        }
        self.with(|s| s.rules.arrivals.prove(Some(arrival_of(arrival, content))));
        let archive = Some((archive_of(content), content.bytes));
        let (id, pages, bytes) = (id_of(content), content.pages, content.bytes);
        let proved = BundleSummary { id, kind: "zip", archive, pages, bytes, warnings: Vec::new() };
        Ok((proved, Aside { content, lease: None }))
    }

    fn commit(&self, aside: &mut Aside, _: &[VersionId], _: &SealOptions) -> Result<CommitOutcome, SyncError> {
        let id = id_of(aside.content);
        self.operation(|| format!("commit {}", id.short()));
        aside.lease = Some(self.lease(id));
        if self.has(id) && !self.is_rotten(id) {
            return Ok(CommitOutcome::Known);
        }
        if let Some(error) = self.disk_fails(0) {
            return Err(self.store_error("move into place", error).into());
        }
        let is_there = self.has(id);
        self.with(|s| {
            if is_there {
                s.disk.mend_version(id);
            } else {
                s.disk.put_version(id, aside.content);
                s.rules.brought = Some(id);
            }
        });
        if self.happens(self.with(|s| s.faults.crash)) {
            self.crash();
        }
        self.with(|s| s.disk.sync_versions());
        Ok(if is_there { CommitOutcome::Mended } else { CommitOutcome::New })
    }

    fn open(&self, id: VersionId, _: &SealOptions) -> Result<Lease, SyncError> {
        self.operation(|| format!("open {}", id.short()));
        if !self.has(id) {
            return Err(SyncError::Open { id, source: io::ErrorKind::NotFound.into() });
        }
        if self.is_rotten(id) {
            return Err(SyncError::DamagedVersion { id, source: None });
        }
        // What is doubted is proved before it is served.
        if self.is_suspect(id) {
            self.clear_suspect(id)?;
        }
        Ok(self.lease(id))
    }

    fn check_gate(
        &self,
        intent: &SyncIntent,
        id: VersionId,
        active: Option<VersionId>,
        _: Option<&GateVerdict>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<GateVerdict, SyncError> {
        let _version = self.open(id, &intent.effort)?;
        for _ in 0..=self.below(3) {
            self.operation(|| format!("the gate reads {}", id.short()));
            self.pass(std::time::Duration::from_millis(500));
            if stop() {
                return Err(SyncError::Interrupted);
            }
        }
        let least = intent.gate.min_pages.unwrap_or(0);
        let pages = self.with(|s| s.disk.versions.get(&id).map_or(0, |version| version.content.pages));
        let refused = (pages < least).then(|| format!("minPages: {pages}"));
        let time = docwharf::model::units::show_unix(self.wall());
        let (rules, addresses) = (intent.gate.rules(), String::new());
        Ok(GateVerdict { version: id, against: active, rules, refused, time, addresses, links: BTreeMap::new() })
    }
}
