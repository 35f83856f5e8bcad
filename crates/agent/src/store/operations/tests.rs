//! Tests of the operations on a store in memory.

use std::cell::{Cell, RefCell};
use std::io;

use super::*;
use crate::store::record::{ActivationHold, OfferedVersion};
use docwharf_base::model::digest::Digest;

fn id(n: u8) -> VersionId {
    VersionId(Digest::of(&[n]))
}

/// Result of writing a record.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    Well,
    NotAtAll,
    /// The record is in place, but may not survive a power cut.
    NotDurably,
}

/// Result of reading the record.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    Well,
    Damaged,
    Later,
}

/// A store in memory, on a disk of `total` bytes. It has the versions 5 (the newest, active) to 1, each of 10
/// bytes; version 4 is the previous one. The derived bytes belong to version 5.
struct Memory {
    record: RefCell<StoreRecord>,
    versions: RefCell<Vec<u8>>,
    history: RefCell<Vec<HistoryEvent>>,
    writes: Cell<u32>,
    kept_damaged: Cell<u32>,
    writing: Cell<Writes>,
    reading: Cell<Reads>,
    derived: Cell<u64>,
    total: Option<u64>,
    still_read: u64,
    /// Versions that are leased.
    open: Vec<u8>,
}

fn five(total: Option<u64>) -> Memory {
    let mut record = StoreRecord { newest: Some(id(5)), ..StoreRecord::default() };
    record.activate(id(4), "t");
    record.activate(id(5), "t");
    Memory {
        record: RefCell::new(record),
        versions: RefCell::new(vec![5, 4, 3, 2, 1]),
        history: RefCell::default(),
        writes: Cell::default(),
        kept_damaged: Cell::default(),
        writing: Cell::new(Writes::Well),
        reading: Cell::new(Reads::Well),
        derived: Cell::default(),
        total,
        still_read: 0,
        open: Vec::new(),
    }
}

impl Memory {
    fn failed(&self) -> StoreError {
        StoreError::Io { doing: "write", path: self.root().to_owned(), source: io::ErrorKind::StorageFull.into() }
    }

    fn numbers(&self, ids: &[VersionId]) -> Vec<u8> {
        ids.iter().map(|&of| (1..=9).find(|&n| id(n) == of).unwrap()).collect()
    }

    fn told(&self) -> Vec<String> {
        self.history.borrow().iter().map(|event| event.what.clone()).collect()
    }
}

impl StoreOperations for Memory {
    fn now(&self) -> i64 {
        0
    }

    fn root(&self) -> &Path {
        Path::new("/store")
    }

    fn record(&self) -> Result<StoreRecord, StoreError> {
        let path = self.root().join("state.json");
        match self.reading.get() {
            Reads::Well => Ok(self.record.borrow().clone()),
            Reads::Later => Err(StoreError::Later { path, found: 3 }),
            Reads::Damaged => {
                let source = serde_json::from_str::<StoreRecord>("{").unwrap_err();
                Err(StoreError::Damaged { path, source })
            }
        }
    }

    fn has(&self, of: VersionId) -> bool {
        self.versions.borrow().iter().any(|&n| id(n) == of)
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

    fn is_suspect(&self, of: VersionId) -> bool {
        of == id(2)
    }

    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        let derived = |of: VersionId| if of == id(5) { self.derived.get() } else { 0 };
        versions.iter().map(|version| (version.id, version.bytes + derived(version.id))).collect()
    }

    fn free(&self) -> Result<Option<u64>, StoreError> {
        let taken = 10 * self.versions.borrow().len() as u64 + self.derived.get();
        Ok(self.total.map(|total| total - taken))
    }

    fn give_up_derived(&self) -> bool {
        self.derived.take() > 0
    }

    fn with_record_lock<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    fn write(&self, record: &StoreRecord) -> Result<(), StoreError> {
        self.writes.set(self.writes.get() + 1);
        if self.writing.get() != Writes::NotAtAll {
            *self.record.borrow_mut() = record.clone();
            self.reading.set(Reads::Well);
        }
        if self.writing.get() == Writes::Well { Ok(()) } else { Err(self.failed()) }
    }

    fn append(&self, event: &HistoryEvent) {
        self.history.borrow_mut().push(event.clone());
    }

    fn receive(&self, _: VersionId, _: &Receipt) -> Result<(), StoreError> {
        Ok(())
    }

    fn remove(&self, of: VersionId) -> Result<bool, StoreError> {
        let is_open = self.open.iter().any(|&n| id(n) == of);
        self.versions.borrow_mut().retain(|&n| is_open || id(n) != of);
        Ok(!is_open)
    }

    fn withdraw(&self, of: VersionId) -> Result<(), StoreError> {
        self.versions.borrow_mut().retain(|&n| id(n) != of);
        Ok(())
    }

    fn clear_suspect(&self, _: VersionId) -> Result<(), StoreError> {
        Ok(())
    }

    fn keep_damaged(&self, _: &StoreError) -> Result<(), StoreError> {
        self.kept_damaged.set(self.kept_damaged.get() + 1);
        Ok(())
    }

    fn still_read(&self) -> u64 {
        self.still_read
    }
}

/// A request for space and the state of the store.
struct Case {
    total: u64,
    keep: usize,
    min_free: Option<u64>,
    max_bytes: Option<u64>,
    wanted: (u64, u64),
    derived: u64,
    still_read: u64,
    open: &'static [u8],
}

const CASE: Case = Case {
    total: 60,
    keep: 9,
    min_free: None,
    max_bytes: None,
    wanted: (10, 10),
    derived: 0,
    still_read: 0,
    open: &[],
};

/// Returns the removed versions and whether derived data is left, or why there is no space.
fn made(case: &Case, change: impl FnOnce(&mut StoreRecord, &Memory)) -> Result<(Vec<u8>, bool), &'static str> {
    let memory = Memory { still_read: case.still_read, open: case.open.to_vec(), ..five(Some(case.total)) };
    memory.derived.set(case.derived);
    let mut record = memory.record().unwrap();
    change(&mut record, &memory);
    let allowance = SpaceLimits { keep: case.keep, max_bytes: case.max_bytes, min_free: case.min_free };
    let wanted = SpaceRequest { whole: case.wanted.0, more: case.wanted.1 };
    let before = memory.versions.borrow().len();
    let made = memory.make_room(&record, &allowance, wanted);
    let gone = before - memory.versions.borrow().len();
    assert_eq!(gone, made.as_ref().map_or(0, Vec::len), "nothing goes in vain or without being told of");
    match made {
        Ok(removed) => Ok((memory.numbers(&removed), memory.derived.get() > 0)),
        Err(StoreError::NoSpace { needed, min_free, .. }) => {
            assert_eq!((needed, min_free), (case.wanted.1, case.min_free.unwrap_or(0)));
            Err("no space")
        }
        Err(StoreError::OverMost { .. }) => Err("over"),
        Err(StoreError::StillRead { .. }) => Err("read"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn room_is_made_of_no_more_than_it_takes_and_of_nothing_when_that_is_not_enough() {
    let none = || Ok((Vec::new(), false));
    let derived = || Ok((Vec::new(), true));
    let gone = |numbers: &[u8]| Ok((numbers.to_vec(), false));
    let min_free = |bytes| Some(bytes);
    let cases = [
        (CASE, none()),
        (Case { total: 59, ..CASE }, Err("no space")),
        (Case { total: 59, keep: 2, ..CASE }, gone(&[1])),
        (Case { total: 59, keep: 1, wanted: (10, 19), ..CASE }, gone(&[1])),
        (Case { total: 59, keep: 1, wanted: (10, 20), ..CASE }, gone(&[1, 2])),
        (Case { total: 59, keep: 1, wanted: (10, 29), ..CASE }, gone(&[1, 2])),
        (Case { total: 59, keep: 1, wanted: (10, 30), ..CASE }, Err("no space")),
        // With `min_free`, `keep` protects nothing.
        (Case { min_free: min_free(0), ..CASE }, none()),
        (Case { total: 59, min_free: min_free(0), ..CASE }, gone(&[1])),
        (Case { min_free: min_free(1), ..CASE }, gone(&[1])),
        (Case { total: 59, min_free: min_free(29), ..CASE }, gone(&[1, 2, 3])),
        (Case { total: 59, min_free: min_free(30), ..CASE }, Err("no space")),
        (Case { min_free: min_free(u64::MAX), ..CASE }, Err("no space")),
        // Derived data is removed before any version, and only if that helps.
        (Case { derived: 5, total: 65, ..CASE }, derived()),
        (Case { derived: 5, total: 64, ..CASE }, none()),
        (Case { derived: 5, total: 64, keep: 1, wanted: (10, 15), ..CASE }, gone(&[1])),
        // `max_bytes` must hold the new version and the active one, which becomes the previous one.
        (Case { total: 999, max_bytes: Some(20), ..CASE }, none()),
        (Case { total: 999, max_bytes: Some(19), ..CASE }, Err("over")),
        (Case { total: 999, max_bytes: Some(19), wanted: (0, 10), ..CASE }, none()),
        (Case { total: 999, max_bytes: Some(25), still_read: 5, ..CASE }, none()),
        (Case { total: 999, max_bytes: Some(24), still_read: 5, ..CASE }, Err("read")),
        (Case { total: 999, max_bytes: Some(24), still_read: 5, wanted: (0, 10), ..CASE }, none()),
        (Case { total: 999, max_bytes: Some(65), derived: 5, ..CASE }, derived()),
        (Case { total: 999, max_bytes: Some(64), derived: 5, ..CASE }, none()),
        (Case { total: 999, max_bytes: Some(69), derived: 5, still_read: 5, ..CASE }, none()),
        // A leased version is skipped.
        (Case { total: 59, keep: 1, open: &[1], ..CASE }, gone(&[2])),
    ];
    for (n, (case, expected)) in cases.iter().enumerate() {
        assert_eq!(made(case, |_, _| ()), *expected, "case {n}");
    }
    let memory = five(None);
    let wanted = SpaceRequest { whole: u64::MAX, more: u64::MAX };
    assert_eq!(memory.make_room(&memory.record().unwrap(), &SpaceLimits::default(), wanted).unwrap(), []);
}

#[test]
fn what_the_source_has_goes_last_and_what_a_person_has_chosen_meanwhile_does_not_go() {
    let offered = |record: &mut StoreRecord, _: &Memory| {
        record.offered = Some(OfferedVersion { source: "s".to_owned(), version: id(1) });
    };
    let all = Case { total: 59, wanted: (10, 39), ..CASE };
    assert_eq!(made(&Case { min_free: Some(0), wanted: (10, 29), ..all }, offered), Ok((vec![2, 3], false)));
    assert_eq!(made(&Case { min_free: Some(0), ..all }, offered), Ok((vec![2, 3, 1], false)));
    assert_eq!(made(&Case { keep: 0, ..all }, offered), Err("no space"));
    let chosen = |_: &mut StoreRecord, memory: &Memory| memory.record.borrow_mut().previous = Some(id(1));
    assert_eq!(made(&Case { total: 59, keep: 1, ..CASE }, chosen), Ok((vec![2], false)));
    let held = |record: &mut StoreRecord, _: &Memory| {
        record.hold = Some(ActivationHold { who: String::new(), when: String::new(), why: String::new() });
    };
    // Under a hold the previous version stays the previous one.
    assert_eq!(made(&Case { total: 999, max_bytes: Some(29), ..CASE }, held), Err("over"));
    assert_eq!(made(&Case { total: 999, max_bytes: Some(30), ..CASE }, held), Ok((Vec::new(), false)));
}

#[test]
fn the_oldest_beyond_what_is_allowed_are_pruned_and_those_that_are_needed_or_open_are_not() {
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
    for (keep, max_bytes, derived, still_read, expected) in cases {
        let memory = Memory { still_read, ..five(None) };
        memory.derived.set(derived);
        let allowance = SpaceLimits { keep, max_bytes, min_free: None };
        let pruned = memory.prune(&memory.record().unwrap(), &allowance).unwrap();
        let pruned: Vec<VersionId> = pruned.iter().map(|version| version.id).collect();
        assert_eq!(memory.numbers(&pruned), expected, "{keep} {max_bytes:?} {derived} {still_read}");
        assert_eq!(memory.versions.borrow().len(), 5 - expected.len());
        assert_eq!(memory.derived.get(), 0);
    }
    let memory = Memory { open: vec![2], ..five(None) };
    let record = memory.record().unwrap();
    memory.record.borrow_mut().previous = Some(id(1));
    memory.derived.set(5);
    let pruned = memory.prune(&record, &SpaceLimits::default()).unwrap();
    assert_eq!(pruned.iter().map(|version| version.id).collect::<Vec<_>>(), [id(3)]);
    assert_eq!(memory.derived.get(), 5, "nothing is lacking");
    assert!(memory.has_whole(id(1)) && !memory.has_whole(id(2)) && !memory.has_whole(id(3)));
}

#[test]
fn a_record_is_written_when_it_changes_and_what_people_said_meanwhile_stays_in_it() {
    let memory = five(None);
    let mut syncing = memory.record().unwrap();
    memory.save(&mut syncing).unwrap();
    assert_eq!(memory.writes.get(), 0, "nothing has changed");
    let hold = ActivationHold { who: "me".to_owned(), when: String::new(), why: String::new() };
    memory.change(|record| record.hold = Some(hold.clone())).unwrap();
    memory.change(|_| ()).unwrap();
    assert_eq!(memory.writes.get(), 1);
    syncing.newest = Some(id(3));
    assert!(memory.decide(&mut syncing, |record| record.hold.is_some()).unwrap());
    assert_eq!((memory.writes.get(), &memory.record().unwrap()), (2, &syncing));
    assert_eq!((&syncing.hold, syncing.newest), (&Some(hold), Some(id(3))));
    // A damaged record is replaced and a copy of it is kept; a record of a later docwharf is left alone.
    memory.reading.set(Reads::Damaged);
    assert!(memory.change(|record| record.hold = None).is_err());
    memory.save(&mut syncing).unwrap();
    assert_eq!((memory.writes.get(), memory.kept_damaged.get(), &memory.record().unwrap()), (3, 1, &syncing));
    memory.reading.set(Reads::Later);
    assert!(memory.save(&mut syncing).is_err() && memory.change(|record| record.hold = None).is_err());
    assert_eq!((memory.writes.get(), memory.kept_damaged.get()), (3, 1));
    memory.mend(&StoreRecord::default()).unwrap();
    assert_eq!((memory.writes.get(), memory.record().unwrap()), (4, StoreRecord::default()));
}

#[test]
fn history_tells_what_a_person_has_changed_once_it_is_in_place() {
    for (writes, changes, tells, is_told) in [
        (Writes::Well, true, true, true),
        (Writes::Well, true, false, false),
        (Writes::Well, false, true, true),
        (Writes::NotDurably, true, true, true),
        (Writes::NotDurably, true, false, false),
        (Writes::NotAtAll, true, true, false),
        (Writes::NotAtAll, false, true, true),
    ] {
        let memory = five(None);
        memory.writing.set(writes);
        let change = |record: &mut StoreRecord| {
            if changes {
                record.previous = None;
            }
            7
        };
        let tell = |&seven: &i32| (tells && seven == 7).then(|| ("held", Some(id(1)), Some("why".to_owned())));
        let result = memory.change_and_note("me", change, tell);
        assert_eq!(result.ok(), (writes == Writes::Well || !changes).then_some(7));
        let expected: &[&str] = if is_told { &["held"] } else { &[] };
        assert_eq!(memory.told(), expected);
        if let Some(event) = memory.history.borrow().first() {
            assert_eq!((event.who.as_str(), event.version, event.note.as_deref()), ("me", Some(id(1)), Some("why")));
            assert_eq!(event.time, "1970-01-01T00:00:00Z");
        }
    }
}
