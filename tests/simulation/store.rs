//! The simulated machine as [`StoreOperations`] and [`SealOperations`]: the store and the sealing of bundles.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use docwharf::bundle::refusal::{BundleFault, BundleRefusal};
use docwharf::model::version::VersionId;
use docwharf::seal::{SealError, SealOptions, SealProgress};
use docwharf::store::incoming_version::CommitOutcome;
use docwharf::store::operations::StoreOperations;
use docwharf::store::record::{GateVerdict, StoreRecord};
use docwharf::store::space::{SpaceRequest, VersionSize};
use docwharf::store::{HistoryEvent, Receipt, StoreError, StoredVersion};
use docwharf::sync::incoming_bundle::{ArrivalCause, IncomingBundle};
use docwharf::sync::seal_operations::{BundleSummary, SealOperations};
use docwharf::sync::{SyncError, SyncSettings};

use super::arrivals;
use super::disk::Content;
use super::sim::{Lease, Sim, archive_of, id_of};

/// Size of a small file in bytes.
const SMALL_FILE_BYTES: u64 = 4096;

impl Sim {
    /// Returns an error of the disk, if there is one now.
    fn disk_error(&self, bytes: u64) -> Option<io::Error> {
        self.with(|s| {
            if s.disk.free() < bytes {
                return Some(io::ErrorKind::StorageFull.into());
            }
            s.random.happens(s.faults.disk).then(|| io::Error::other("EIO"))
        })
    }

    fn store_error(&self, doing: &'static str, source: io::Error) -> StoreError {
        self.log(|| format!("    cannot {doing}: {source}"));
        StoreError::Io { doing, path: self.root.clone(), source }
    }

    /// Whether a version has been damaged by the disk.
    pub(crate) fn is_damaged(&self, id: VersionId) -> bool {
        self.with(|s| s.disk.versions.get(&id).is_some_and(|version| version.damaged))
    }

    /// Returns the content of a bundle; none if it is incomplete or damaged.
    pub(crate) fn content_at(&self, path: &Path) -> Option<Content> {
        self.with(|s| match &s.disk.partial {
            Some(partial) if path == Path::new("/store/downloads/x") => {
                (!partial.damaged && partial.received == partial.content.bytes).then_some(partial.content)
            }
            _ => s.disk.bundle_files.get(path).map(|file| file.content),
        })
    }
}

impl StoreOperations for Sim {
    fn now(&self) -> i64 {
        self.wall_clock()
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn record(&self) -> Result<StoreRecord, StoreError> {
        if !self.with(|s| s.is_record_locked) {
            self.operation(|| "read the record".to_owned());
        }
        self.with(|s| {
            if s.disk.record_damaged {
                let source = serde_json::from_str::<u8>("{").unwrap_err();
                return Err(StoreError::DamagedRecord { path: self.root.clone(), source });
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
            let mut versions: Vec<_> = s.disk.versions.iter().collect();
            versions.sort_by_key(|(_, version)| std::cmp::Reverse(version.arrival));
            let stored = |(&id, version): (&VersionId, &super::disk::Version)| {
                let receipts = s.disk.receipts.get(&id).cloned().unwrap_or_default();
                StoredVersion { id, bytes: version.content.bytes, receipts }
            };
            Ok(versions.into_iter().map(stored).collect())
        })
    }

    fn receipts(&self, id: VersionId) -> Vec<Receipt> {
        self.with(|s| s.disk.receipts.get(&id).cloned().unwrap_or_default())
    }

    fn history(&self) -> Result<Vec<HistoryEvent>, StoreError> {
        Ok(self.with(|s| s.disk.history.clone()))
    }

    fn is_marked_damaged(&self, id: VersionId) -> bool {
        self.with(|s| s.disk.versions.get(&id).is_some_and(|version| version.marked_damaged))
    }

    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        versions.iter().map(|version| (version.id, version.bytes)).collect()
    }

    fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(Some(self.with(|s| s.disk.free())))
    }

    fn remove_large_derived_files(&self) -> bool {
        false // no file is derived
    }

    fn with_record_lock<T>(&self, action: impl FnOnce() -> T) -> T {
        self.operation(|| "lock the record".to_owned());
        let was_locked = self.with(|s| std::mem::replace(&mut s.is_record_locked, true));
        assert!(!was_locked, "the record is not locked twice");
        let result = action();
        self.with(|s| s.is_record_locked = false);
        result
    }

    fn write_record(&self, record: &StoreRecord) -> Result<(), StoreError> {
        self.operation(|| {
            let short = |id: Option<VersionId>| id.map_or_else(|| "-".to_owned(), |id| id.short());
            let (hold, job) = (record.hold.is_some(), record.job.as_ref().map(|job| &job.id));
            let (active, newest) = (short(record.active), short(record.newest));
            format!("write the record: active {active}, newest {newest}, held {hold}, job {job:?}")
        });
        if let Some(error) = self.disk_error(SMALL_FILE_BYTES) {
            self.with(|s| s.rules.record_write_failed = true);
            return Err(self.store_error("write the record", error));
        }
        let bytes = serde_json::to_vec(record).unwrap();
        let decoded: StoreRecord = serde_json::from_slice(&bytes).unwrap();
        if decoded != *record {
            self.fail("a record changes when it is encoded and decoded");
        }
        self.check_write(&decoded);
        self.with(|s| s.disk.put_record(decoded));
        if self.with(|s| s.disk.record_lost) {
            // The record was recovered from history, which has the last decision of the operator.
            self.check_recovered_record();
            self.forget_jobs();
        }
        self.check_invariants();
        if self.happens(self.with(|s| s.faults.crash)) {
            self.crash();
        }
        if self.happens(self.with(|s| s.faults.disk)) {
            self.with(|s| (s.rules.record_write_failed, s.rules.record_not_fsynced) = (true, true));
            // The record is in place, but may not survive a power cut.
            return Err(self.store_error("sync the record", io::Error::other("EIO")));
        }
        self.with(|s| {
            s.rules.record_not_fsynced = false;
            s.disk.sync_record();
        });
        Ok(())
    }

    fn append_event(&self, event: &HistoryEvent) {
        self.operation(|| format!("history: {} {:?}", event.what, event.note));
        let is_written = self.disk_error(SMALL_FILE_BYTES).is_none();
        if is_written {
            self.with(|s| s.disk.history.push(event.clone()));
        }
        if event.is_hold_decision() {
            // The last decision counts: if it was written, earlier lost ones do not matter.
            self.with(|s| s.rules.history_incomplete = !is_written);
        }
    }

    fn add_receipt(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError> {
        self.operation(|| format!("receipt for {}", id.short()));
        if let Some(error) = self.disk_error(SMALL_FILE_BYTES) {
            return Err(self.store_error("write the receipt", error));
        }
        self.with(|s| s.disk.add_receipt(id, receipt.clone()));
        Ok(())
    }

    fn remove(&self, id: VersionId) -> Result<bool, StoreError> {
        self.operation(|| format!("remove {}", id.short()));
        if self.leases.borrow().contains(&id) || !self.has(id) {
            return Ok(false);
        }
        self.check_removal(id);
        self.with(|s| s.disk.remove_version(id));
        Ok(true)
    }

    fn remove_ignoring_leases(&self, id: VersionId) -> Result<(), StoreError> {
        self.operation(|| format!("withdraw {}", id.short()));
        self.check_withdrawal(id);
        self.with(|s| s.disk.remove_version(id));
        Ok(())
    }

    fn clear_damage_mark(&self, id: VersionId) -> Result<(), StoreError> {
        self.operation(|| format!("{} is not marked as damaged any more", id.short()));
        if self.is_damaged(id) {
            self.fail("the mark of a damaged version is cleared");
        }
        if let Some(error) = self.disk_error(SMALL_FILE_BYTES) {
            return Err(self.store_error("clear a mark of damage", error));
        }
        self.with(|s| s.disk.versions.get_mut(&id).map(|version| version.marked_damaged = false));
        Ok(())
    }

    fn copy_damaged_record(&self, _: &StoreError) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Converts a verified bundle to an arrival of the model.
fn arrival_of(incoming_bundle: &IncomingBundle<'_>, content: Content) -> arrivals::Arrival {
    let (source, id) = (incoming_bundle.source.to_owned(), id_of(content));
    match incoming_bundle.cause {
        ArrivalCause::Import => arrivals::Arrival::Import(id),
        cause => arrivals::Arrival::SourceCheck { source, id, is_refresh: cause == ArrivalCause::Refresh },
    }
}

/// A sealed bundle that is not committed yet.
pub(crate) struct SimulatedIncomingVersion {
    content: Content,
    lease: Option<Lease>,
}

impl SealOperations for Sim {
    type Opened = Lease;
    type Incoming = SimulatedIncomingVersion;

    fn estimate_space(&self, incoming_bundle: &IncomingBundle<'_>, may_move: bool) -> SpaceRequest {
        let size = self.content_at(incoming_bundle.path).map_or(0, |content| content.bytes);
        SpaceRequest { version_bytes: size, remaining_bytes: if may_move { 0 } else { size } }
    }

    fn seal(
        &self,
        incoming_bundle: &IncomingBundle<'_>,
        _: &SealOptions,
        _: &SealProgress,
    ) -> Result<(BundleSummary, SimulatedIncomingVersion), SyncError> {
        self.operation(|| format!("verify {}", incoming_bundle.title));
        self.advance_clock(std::time::Duration::from_millis(1 + self.below(3000)));
        let refused = |fault| {
            let source = BundleRefusal { entry: None, fault };
            SyncError::Seal(SealError::Refused { path: incoming_bundle.title.into(), source })
        };
        self.with(|s| s.rules.arrivals.record_verification(None));
        let content = self.content_at(incoming_bundle.path).ok_or_else(|| refused(BundleFault::WrongCrc))?;
        if content.hostile {
            return Err(refused(BundleFault::Overlap));
        }
        if let Some(source) = self.disk_error(content.bytes) {
            return Err(SyncError::Seal(SealError::Write { path: self.root.clone(), source }));
        }
        self.with(|s| s.rules.arrivals.record_verification(Some(arrival_of(incoming_bundle, content))));
        let archive = Some((archive_of(content), content.bytes));
        let (id, pages, bytes) = (id_of(content), content.pages, content.bytes);
        let summary = BundleSummary { id, kind: "zip", archive, pages, bytes, warnings: Vec::new() };
        Ok((summary, SimulatedIncomingVersion { content, lease: None }))
    }

    fn commit(
        &self,
        incoming: &mut SimulatedIncomingVersion,
        _: &[VersionId],
        _: &SealOptions,
    ) -> Result<CommitOutcome, SyncError> {
        let id = id_of(incoming.content);
        self.operation(|| format!("commit {}", id.short()));
        incoming.lease = Some(self.lease(id));
        if self.has(id) && !self.is_damaged(id) {
            return Ok(CommitOutcome::AlreadyStored);
        }
        if let Some(error) = self.disk_error(0) {
            return Err(self.store_error("move into place", error).into());
        }
        let is_stored = self.has(id);
        self.with(|s| {
            if is_stored {
                s.disk.repair_version(id);
            } else {
                s.disk.put_version(id, incoming.content);
                s.rules.ingested = Some(id);
            }
        });
        if self.happens(self.with(|s| s.faults.crash)) {
            self.crash();
        }
        self.with(|s| s.disk.sync_versions());
        Ok(if is_stored { CommitOutcome::Repaired } else { CommitOutcome::New })
    }

    fn open(&self, id: VersionId, _: &SealOptions) -> Result<Lease, SyncError> {
        self.operation(|| format!("open {}", id.short()));
        if !self.has(id) {
            return Err(SyncError::Open { id, source: io::ErrorKind::NotFound.into() });
        }
        if self.is_damaged(id) {
            return Err(SyncError::DamagedVersion { id, source: None });
        }
        // A marked version is verified before it is opened.
        if self.is_marked_damaged(id) {
            self.clear_damage_mark(id)?;
        }
        Ok(self.lease(id))
    }

    fn evaluate_gate(
        &self,
        sync_settings: &SyncSettings,
        id: VersionId,
        active: Option<VersionId>,
        _: Option<&GateVerdict>,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<GateVerdict, SyncError> {
        let _version = self.open(id, &sync_settings.seal_options)?;
        for _ in 0..=self.below(3) {
            self.operation(|| format!("the gate reads {}", id.short()));
            self.advance_clock(std::time::Duration::from_millis(500));
            if is_cancelled() {
                return Err(SyncError::Cancelled);
            }
        }
        let min_pages = sync_settings.gate.min_pages.unwrap_or(0);
        let pages = self.with(|s| s.disk.versions.get(&id).map_or(0, |version| version.content.pages));
        let refused = (pages < min_pages).then(|| format!("minPages: {pages}"));
        let time = docwharf::model::units::format_unix_seconds(self.wall_clock());
        let conditions_digest = sync_settings.gate.conditions_digest();
        Ok(GateVerdict {
            version: id,
            against: active,
            conditions_digest,
            refused,
            time,
            address_settings_digest: String::new(),
            links: BTreeMap::new(),
        })
    }
}
