//! Tests of the operations on a store in memory.

use std::cell::{Cell, RefCell};
use std::io;

use super::*;
use crate::store::record::{ActivationHold, OfferedVersion};
use docwharf_base::model::digest::Digest;

fn id(n: u8) -> VersionId {
    VersionId(Digest::compute(&[n]))
}

/// Result of writing a record.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    Success,
    Failure,
    /// The record is in place, but may not survive a power cut.
    NotDurable,
}

/// Result of reading the record.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    Success,
    Damaged,
    Later,
}

/// A store in memory, on a disk of `total` bytes. It has the versions 5 (the newest, active) to 1, each of 10 bytes;
/// version 4 is the previous one. The derived bytes belong to version 5.
struct MemoryStore {
    record: RefCell<StoreRecord>,
    versions: RefCell<Vec<u8>>,
    history: RefCell<Vec<HistoryEvent>>,
    writes: Cell<u32>,
    damaged_copies: Cell<u32>,
    writing: Cell<Writes>,
    reading: Cell<Reads>,
    derived: Cell<u64>,
    total: Option<u64>,
    mapped_removed_bytes: u64,
    /// Versions that are leased.
    leased: Vec<u8>,
}

fn store_with_five_versions(total: Option<u64>) -> MemoryStore {
    let mut record = StoreRecord { newest: Some(id(5)), ..StoreRecord::default() };
    record.activate(id(4), "t");
    record.activate(id(5), "t");
    MemoryStore {
        record: RefCell::new(record),
        versions: RefCell::new(vec![5, 4, 3, 2, 1]),
        history: RefCell::default(),
        writes: Cell::default(),
        damaged_copies: Cell::default(),
        writing: Cell::new(Writes::Success),
        reading: Cell::new(Reads::Success),
        derived: Cell::default(),
        total,
        mapped_removed_bytes: 0,
        leased: Vec::new(),
    }
}

impl MemoryStore {
    fn failed(&self) -> StoreError {
        StoreError::Io { doing: "write", path: self.root().to_owned(), source: io::ErrorKind::StorageFull.into() }
    }

    fn numbers(&self, ids: &[VersionId]) -> Vec<u8> {
        ids.iter().map(|&version| (1..=9).find(|&n| id(n) == version).unwrap()).collect()
    }

    fn event_names(&self) -> Vec<String> {
        self.history.borrow().iter().map(|event| event.what.clone()).collect()
    }
}

impl StoreOperations for MemoryStore {
    fn now(&self) -> i64 {
        0
    }

    fn root(&self) -> &Path {
        Path::new("/store")
    }

    fn record(&self) -> Result<StoreRecord, StoreError> {
        let path = self.root().join("state.json");
        match self.reading.get() {
            Reads::Success => Ok(self.record.borrow().clone()),
            Reads::Later => Err(StoreError::LaterRecord { path, found: 3 }),
            Reads::Damaged => {
                let source = serde_json::from_str::<StoreRecord>("{").unwrap_err();
                Err(StoreError::DamagedRecord { path, source })
            }
        }
    }

    fn has(&self, version: VersionId) -> bool {
        self.versions.borrow().iter().any(|&n| id(n) == version)
    }

    fn versions(&self) -> Result<Vec<StoredVersion>, StoreError> {
        let stored = |&n: &u8| StoredVersion { id: id(n), bytes: 10, receipts: Vec::new() };
        Ok(self.versions.borrow().iter().map(stored).collect())
    }

    fn receipts(&self, _: VersionId) -> Vec<Receipt> {
        Vec::new()
    }

    fn history(&self) -> Result<Vec<HistoryEvent>, StoreError> {
        Ok(self.history.borrow().clone())
    }

    fn is_marked_damaged(&self, version: VersionId) -> bool {
        version == id(2)
    }

    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        let derived = |version: VersionId| if version == id(5) { self.derived.get() } else { 0 };
        versions.iter().map(|version| (version.id, version.bytes + derived(version.id))).collect()
    }

    fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        let used = 10 * self.versions.borrow().len() as u64 + self.derived.get();
        Ok(self.total.map(|total| total - used))
    }

    fn remove_large_derived_files(&self) -> bool {
        self.derived.take() > 0
    }

    fn with_record_lock<T>(&self, action: impl FnOnce() -> T) -> T {
        action()
    }

    fn write_record(&self, record: &StoreRecord) -> Result<(), StoreError> {
        self.writes.set(self.writes.get() + 1);
        if self.writing.get() != Writes::Failure {
            *self.record.borrow_mut() = record.clone();
            self.reading.set(Reads::Success);
        }
        if self.writing.get() == Writes::Success { Ok(()) } else { Err(self.failed()) }
    }

    fn append_event(&self, event: &HistoryEvent) {
        self.history.borrow_mut().push(event.clone());
    }

    fn add_receipt(&self, _: VersionId, _: &Receipt) -> Result<(), StoreError> {
        Ok(())
    }

    fn remove(&self, version: VersionId) -> Result<bool, StoreError> {
        let is_leased = self.leased.iter().any(|&n| id(n) == version);
        self.versions.borrow_mut().retain(|&n| is_leased || id(n) != version);
        Ok(!is_leased)
    }

    fn remove_ignoring_leases(&self, version: VersionId) -> Result<(), StoreError> {
        self.versions.borrow_mut().retain(|&n| id(n) != version);
        Ok(())
    }

    fn clear_damage_mark(&self, _: VersionId) -> Result<(), StoreError> {
        Ok(())
    }

    fn copy_damaged_record(&self, _: &StoreError) -> Result<(), StoreError> {
        if self.writing.get() == Writes::Failure {
            return Err(self.failed());
        }
        self.damaged_copies.set(self.damaged_copies.get() + 1);
        Ok(())
    }

    fn mapped_removed_bytes(&self) -> u64 {
        self.mapped_removed_bytes
    }
}

/// A request for space and the state of the store.
struct Case {
    total: u64,
    keep: usize,
    min_free: Option<u64>,
    max_bytes: Option<u64>,
    /// Size of the version, and bytes still to be written.
    request: (u64, u64),
    derived: u64,
    mapped_removed_bytes: u64,
    leased: &'static [u8],
}

const CASE: Case = Case {
    total: 60,
    keep: 9,
    min_free: None,
    max_bytes: None,
    request: (10, 10),
    derived: 0,
    mapped_removed_bytes: 0,
    leased: &[],
};

/// Frees space; returns the removed versions and whether derived data remains, or the reason why there is no space.
fn free_space(
    case: &Case,
    change: impl FnOnce(&mut StoreRecord, &MemoryStore),
) -> Result<(Vec<u8>, bool), &'static str> {
    let memory = MemoryStore {
        mapped_removed_bytes: case.mapped_removed_bytes,
        leased: case.leased.to_vec(),
        ..store_with_five_versions(Some(case.total))
    };
    memory.derived.set(case.derived);
    let mut record = memory.record().unwrap();
    change(&mut record, &memory);
    let limits = SpaceLimits { keep: case.keep, max_bytes: case.max_bytes, min_free: case.min_free };
    let request = SpaceRequest { version_bytes: case.request.0, remaining_bytes: case.request.1 };
    let before = memory.versions.borrow().len();
    let result = memory.free_disk_space(&record, &limits, request);
    let removed = before - memory.versions.borrow().len();
    assert_eq!(
        removed,
        result.as_ref().map_or(0, Vec::len),
        "each removed version is reported, and none is removed if the space does not suffice"
    );
    match result {
        Ok(removed) => Ok((memory.numbers(&removed), memory.derived.get() > 0)),
        Err(StoreError::NoSpace { needed, free, min_free, .. }) => {
            let expected = (case.request.1, case.total - 50, case.min_free.unwrap_or(0));
            assert_eq!((needed, free, min_free), expected);
            Err("no space")
        }
        Err(StoreError::OverMaxBytes { .. }) => Err("over"),
        Err(StoreError::RemovedVersionsInUse { .. }) => Err("in use"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn free_space_removes_no_more_than_needed_and_nothing_if_that_is_not_enough() {
    let no_removal = || Ok((Vec::new(), false));
    let derived = || Ok((Vec::new(), true));
    let removed = |numbers: &[u8]| Ok((numbers.to_vec(), false));
    let min_free = |bytes| Some(bytes);
    let cases = [
        (CASE, no_removal()),
        (Case { total: 59, ..CASE }, Err("no space")),
        (Case { total: 59, keep: 2, ..CASE }, removed(&[1])),
        (Case { total: 59, keep: 1, request: (10, 19), ..CASE }, removed(&[1])),
        (Case { total: 59, keep: 1, request: (10, 20), ..CASE }, removed(&[1, 2])),
        (Case { total: 59, keep: 1, request: (10, 29), ..CASE }, removed(&[1, 2])),
        (Case { total: 59, keep: 1, request: (10, 30), ..CASE }, Err("no space")),
        // With `min_free`, `keep` protects nothing.
        (Case { min_free: min_free(0), ..CASE }, no_removal()),
        (Case { total: 59, min_free: min_free(0), ..CASE }, removed(&[1])),
        (Case { min_free: min_free(1), ..CASE }, removed(&[1])),
        (Case { total: 59, min_free: min_free(29), ..CASE }, removed(&[1, 2, 3])),
        (Case { total: 59, min_free: min_free(30), ..CASE }, Err("no space")),
        (Case { min_free: min_free(u64::MAX), ..CASE }, Err("no space")),
        // Derived data is removed before any version, and only if that helps.
        (Case { derived: 5, total: 65, ..CASE }, derived()),
        (Case { derived: 5, total: 64, ..CASE }, no_removal()),
        (Case { derived: 5, total: 64, keep: 1, request: (10, 15), ..CASE }, removed(&[1])),
        (Case { derived: 5, total: 66, min_free: min_free(1), ..CASE }, derived()),
        (Case { derived: 5, total: 65, min_free: min_free(1), ..CASE }, no_removal()),
        // `max_bytes` must hold the new version and the active one, which becomes the previous one.
        (Case { total: 999, max_bytes: Some(20), ..CASE }, no_removal()),
        (Case { total: 999, max_bytes: Some(19), ..CASE }, Err("over")),
        (Case { total: 999, max_bytes: Some(19), request: (0, 10), ..CASE }, no_removal()),
        (Case { total: 999, max_bytes: Some(25), mapped_removed_bytes: 5, ..CASE }, no_removal()),
        (Case { total: 999, max_bytes: Some(24), mapped_removed_bytes: 5, ..CASE }, Err("in use")),
        (Case { total: 999, max_bytes: Some(24), mapped_removed_bytes: 5, request: (0, 10), ..CASE }, no_removal()),
        (Case { total: 999, max_bytes: Some(65), derived: 5, ..CASE }, derived()),
        (Case { total: 999, max_bytes: Some(64), derived: 5, ..CASE }, no_removal()),
        (Case { total: 999, max_bytes: Some(69), derived: 5, mapped_removed_bytes: 5, ..CASE }, no_removal()),
        // Bytes that are still mapped count for `max_bytes`, so one version more is surplus.
        (Case { total: 59, max_bytes: Some(55), mapped_removed_bytes: 5, ..CASE }, Err("no space")),
        (Case { total: 59, max_bytes: Some(54), mapped_removed_bytes: 5, ..CASE }, removed(&[1])),
        // A leased version is skipped.
        (Case { total: 59, keep: 1, leased: &[1], ..CASE }, removed(&[2])),
    ];
    for (n, (case, expected)) in cases.iter().enumerate() {
        assert_eq!(free_space(case, |_, _| ()), *expected, "case {n}");
    }
    let memory = store_with_five_versions(None);
    let request = SpaceRequest { version_bytes: u64::MAX, remaining_bytes: u64::MAX };
    memory.derived.set(5);
    assert_eq!(memory.free_disk_space(&memory.record().unwrap(), &SpaceLimits::default(), request).unwrap(), []);
    assert_eq!(memory.derived.get(), 5, "free space that the file system does not report is not too little");
    // `max_bytes` is also in force there.
    let limits = SpaceLimits { max_bytes: Some(19), ..SpaceLimits::default() };
    let request = SpaceRequest { version_bytes: 10, remaining_bytes: 10 };
    let refused = memory.free_disk_space(&memory.record().unwrap(), &limits, request);
    assert!(matches!(refused, Err(StoreError::OverMaxBytes { protected: 10, max_bytes: 19, .. })), "{refused:?}");
}

#[test]
fn free_space_removes_the_offered_version_last_and_no_newly_protected_version() {
    let offered = |record: &mut StoreRecord, _: &MemoryStore| {
        record.offered = Some(OfferedVersion { source: "s".to_owned(), version: id(1) });
    };
    let case = Case { total: 59, request: (10, 39), ..CASE };
    assert_eq!(free_space(&Case { min_free: Some(0), request: (10, 29), ..case }, offered), Ok((vec![2, 3], false)));
    assert_eq!(free_space(&Case { min_free: Some(0), ..case }, offered), Ok((vec![2, 3, 1], false)));
    assert_eq!(free_space(&Case { keep: 0, ..case }, offered), Err("no space"));
    // If the source has the active version, only 30 bytes can be removed, and none is for more.
    let offered_active = |record: &mut StoreRecord, _: &MemoryStore| {
        record.offered = Some(OfferedVersion { source: "s".to_owned(), version: id(5) });
    };
    assert_eq!(free_space(&Case { min_free: Some(0), ..case }, offered_active), Ok((vec![1, 2, 3], false)));
    let case_of_more = Case { min_free: Some(0), request: (10, 40), ..case };
    assert_eq!(free_space(&case_of_more, offered_active), Err("no space"));
    let choose = |_: &mut StoreRecord, memory: &MemoryStore| memory.record.borrow_mut().previous = Some(id(1));
    assert_eq!(free_space(&Case { total: 59, keep: 1, ..CASE }, choose), Ok((vec![2], false)));
    let hold = |record: &mut StoreRecord, _: &MemoryStore| {
        record.hold = Some(ActivationHold { author: String::new(), when: String::new(), why: String::new() });
    };
    // Under a hold the previous version stays the previous one.
    assert_eq!(free_space(&Case { total: 999, max_bytes: Some(29), ..CASE }, hold), Err("over"));
    assert_eq!(free_space(&Case { total: 999, max_bytes: Some(30), ..CASE }, hold), Ok((Vec::new(), false)));
}

#[test]
fn prune_removes_the_oldest_surplus_versions_but_no_protected_or_leased_ones() {
    // `keep`, `max_bytes`, derived bytes, bytes still mapped; the versions removed.
    let cases = [
        (3, None, 0, 0, &[][..]),
        (1, None, 0, 0, &[1, 2]),
        (9, Some(50), 0, 0, &[]),
        (9, Some(49), 0, 0, &[1]),
        (9, Some(50), 5, 0, &[]),
        (9, Some(49), 5, 0, &[1]),
        (9, Some(55), 0, 5, &[]),
        (9, Some(54), 0, 5, &[1]),
        (9, Some(0), 0, 5, &[1, 2, 3]),
    ];
    for (keep, max_bytes, derived, mapped_removed_bytes, expected) in cases {
        let memory = MemoryStore { mapped_removed_bytes, ..store_with_five_versions(None) };
        memory.derived.set(derived);
        let limits = SpaceLimits { keep, max_bytes, min_free: None };
        let pruned = memory.prune(&memory.record().unwrap(), &limits).unwrap();
        let pruned: Vec<VersionId> = pruned.iter().map(|version| version.id).collect();
        assert_eq!(memory.numbers(&pruned), expected, "{keep} {max_bytes:?} {derived} {mapped_removed_bytes}");
        assert_eq!(memory.versions.borrow().len(), 5 - expected.len());
        assert_eq!(memory.derived.get(), 0);
    }
    let memory = MemoryStore { leased: vec![2], ..store_with_five_versions(None) };
    let record = memory.record().unwrap();
    memory.record.borrow_mut().previous = Some(id(1));
    memory.derived.set(5);
    let pruned = memory.prune(&record, &SpaceLimits::default()).unwrap();
    assert_eq!(pruned.iter().map(|version| version.id).collect::<Vec<_>>(), [id(3)]);
    assert_eq!(memory.derived.get(), 5, "the space suffices, so nothing is removed");
    assert!(memory.has_undamaged(id(1)) && !memory.has_undamaged(id(2)) && !memory.has_undamaged(id(3)));
}

#[test]
fn record_is_written_only_on_change_and_concurrent_decisions_are_preserved() {
    let memory = store_with_five_versions(None);
    let mut syncing = memory.record().unwrap();
    memory.save_sync_record(&mut syncing).unwrap();
    assert_eq!(memory.writes.get(), 0, "nothing has changed");
    let hold = ActivationHold { author: "me".to_owned(), when: String::new(), why: String::new() };
    memory.change_record(|record| record.hold = Some(hold.clone())).unwrap();
    memory.change_record(|_| ()).unwrap();
    assert_eq!(memory.writes.get(), 1);
    syncing.newest = Some(id(3));
    assert!(memory.decide_and_save(&mut syncing, |record| record.hold.is_some()).unwrap());
    assert_eq!((memory.writes.get(), &memory.record().unwrap()), (2, &syncing));
    assert_eq!((&syncing.hold, syncing.newest), (&Some(hold), Some(id(3))));
    // A damaged record is replaced and copied; a record of a later docwharf is left unchanged.
    memory.reading.set(Reads::Damaged);
    assert!(memory.change_record(|record| record.hold = None).is_err());
    memory.save_sync_record(&mut syncing).unwrap();
    assert_eq!((memory.writes.get(), memory.damaged_copies.get(), &memory.record().unwrap()), (3, 1, &syncing));
    // The damaged record, which may have been edited by hand, stays if it cannot be copied.
    memory.reading.set(Reads::Damaged);
    memory.writing.set(Writes::Failure);
    let refused = memory.save_sync_record(&mut syncing).unwrap_err();
    assert_eq!(refused.to_string(), "cannot write /store");
    assert_eq!((memory.writes.get(), memory.damaged_copies.get()), (3, 1));
    memory.writing.set(Writes::Success);
    memory.reading.set(Reads::Later);
    assert!(
        memory.save_sync_record(&mut syncing).is_err() && memory.change_record(|record| record.hold = None).is_err()
    );
    assert_eq!((memory.writes.get(), memory.damaged_copies.get()), (3, 1));
    memory.replace_record(&StoreRecord::default()).unwrap();
    assert_eq!((memory.writes.get(), memory.record().unwrap()), (4, StoreRecord::default()));
}

#[test]
fn history_event_is_appended_only_after_the_record_change_is_stored() {
    for (writes, changes, has_event, is_appended) in [
        (Writes::Success, true, true, true),
        (Writes::Success, true, false, false),
        (Writes::Success, false, true, true),
        (Writes::NotDurable, true, true, true),
        (Writes::NotDurable, true, false, false),
        (Writes::Failure, true, true, false),
        (Writes::Failure, false, true, true),
    ] {
        let memory = store_with_five_versions(None);
        memory.writing.set(writes);
        let change = |record: &mut StoreRecord| {
            if changes {
                record.previous = None;
            }
            7
        };
        let event = |&seven: &i32| (has_event && seven == 7).then(|| ("held", Some(id(1)), Some("why".to_owned())));
        let result = memory.change_record_and_note("me", change, event);
        assert_eq!(result.ok(), (writes == Writes::Success || !changes).then_some(7));
        let expected: &[&str] = if is_appended { &["held"] } else { &[] };
        assert_eq!(memory.event_names(), expected);
        if let Some(event) = memory.history.borrow().first() {
            assert_eq!((event.author.as_str(), event.version, event.note.as_deref()), ("me", Some(id(1)), Some("why")));
            assert_eq!(event.time, "1970-01-01T00:00:00Z");
        }
    }
}
