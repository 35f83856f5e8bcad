//! The end of a sync: activates the version that is due and prunes. Also `import`, and the recovery of a lost record.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::store::operations::StoreOperations;
use crate::store::record::{ActivationHold, LabelledVersion, OfferedVersion, StoreRecord};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_site::seal::SealProgress;

use super::activation_decision::{
    ActivationDecision, ActivationRequest, NEVER_CANCELLED, decide, outcome, tell_history,
};
use super::incoming_bundle::{IncomingBundle, Occasion};
use super::ingest::{IngestedBundle, ingest_bundle};
use super::seal_operations::SealOperations;
use super::{ActivationMode, SyncError, SyncIntent, SyncOutcome, disk_space};

/// The result of a sync, and what is reported with it.
#[derive(Debug)]
pub struct SyncReport {
    /// The outcome.
    pub outcome: SyncOutcome,
    /// The ingested bundle, if any.
    pub brought: Option<IngestedBundle>,
    /// No request was sent because it was too early; with the time until one may be sent.
    pub too_early: Option<Duration>,
    /// The reason why no probe could be read, so that changes go unnoticed.
    pub blind: Option<String>,
    /// A short description of what the check of the source found.
    pub saw: Option<String>,
    /// Whether the gate has refused a version, and has not refused it before.
    pub refused_now: bool,
}

impl SyncReport {
    /// A report with an outcome and nothing else.
    pub fn of(outcome: SyncOutcome) -> SyncReport {
        SyncReport { outcome, brought: None, too_early: None, blind: None, saw: None, refused_now: false }
    }
}

/// Reads the record. A damaged one is replaced by what versions, receipts and history tell.
pub fn read_record<K: StoreOperations>(keeper: &K) -> Result<StoreRecord, SyncError> {
    match keeper.record() {
        Ok(record) => Ok(record),
        Err(error @ crate::store::StoreError::Damaged { .. }) => {
            // Not an error: also on a full disk there is a site to be served.
            let kept = keeper.keep_damaged(&error);
            let record = recover_record(keeper)?;
            if let Err(error) = kept.and_then(|()| keeper.mend(&record)) {
                tracing::warn!("{}", ErrorChain(&error));
            }
            Ok(record)
        }
        Err(error) => Err(error.into()),
    }
}

/// Recovers a lost record from versions, receipts and history.
fn recover_record<K: StoreOperations>(keeper: &K) -> Result<StoreRecord, SyncError> {
    let mut record = StoreRecord::default();
    let versions = keeper.versions()?;
    record.newest = versions.first().map(|version| version.id);
    let history = keeper.history()?;
    // Not every version is meant to be active: history has the last activation.
    let last = history.iter().rev().filter(|event| event.is_activation());
    let last = last.filter_map(|event| event.version).find(|&id| keeper.has(id));
    // A history without an activation says that no version was active.
    record.active = last.or(record.newest.filter(|_| history.is_empty()));
    // The newest arrival comes first, so the first receipt with a label counts.
    for version in &versions {
        for receipt in version.receipts.iter().rev() {
            let Some(label) = &receipt.label else { continue };
            record.labels.entry(label.clone()).or_insert_with(|| LabelledVersion {
                version: version.id,
                source: receipt.source.clone(),
                sha256: receipt.archive_sha256.clone(),
                time: receipt.time.clone(),
            });
        }
    }
    // Of two arrivals within a second the last counts, so the newest version comes last.
    let receipts = versions.iter().rev().flat_map(|v| v.receipts.iter().map(move |receipt| (v.id, receipt)));
    let look = receipts.filter(|(_, receipt)| receipt.looked).max_by(|(_, a), (_, b)| a.time.cmp(&b.time));
    record.offered = look.map(|(version, receipt)| OfferedVersion { source: receipt.source.clone(), version });
    // The last decision of a person survives the loss of the record.
    let last = history.iter().rev().find(|event| event.is_hold_decision());
    if let Some(event) = last.filter(|event| event.what != "released") {
        record.active = event.version.filter(|&id| keeper.has(id)).or(record.active);
        let why = event.note.clone().unwrap_or_else(|| event.what.clone());
        record.hold = Some(ActivationHold { who: event.who.clone(), when: event.time.clone(), why });
    }
    Ok(record)
}

/// Activates the version that is due, and prunes. `found` is the version that the source has.
pub fn activate_and_prune<W: SealOperations>(
    shop: &W,
    record: &mut StoreRecord,
    asker: ActivationRequest<'_>,
    found: Option<VersionId>,
    brought: Option<IngestedBundle>,
) -> Result<SyncReport, SyncError> {
    let decided = decide(shop, asker, |step| Ok(shop.decide(record, step)?));
    if let (Err(SyncError::Interrupted), Some(brought)) = (&decided, &brought) {
        // The version is stored: the next check decides about it, but does not fetch it again.
        for warning in &brought.warnings {
            tracing::warn!("{warning}");
        }
    }
    let decided = decided?;
    let intent = &(asker.in_force)();
    tell_history(shop, asker.who, &decided);
    // Also if nothing was fetched: a process killed between a commit and pruning has left the pruning to this sync.
    let removed = prune(shop, record, intent, asker.who);
    if brought.is_some() || removed {
        disk_space::warn_if_over(shop, &intent.allowance);
    }
    let refused_now = matches!(decided, ActivationDecision::Refused(_, _, true));
    let outcome = match (found, outcome(decided, record.active)) {
        // The report is about the source's version if the decision was about another one.
        (Some(found), outcome) if record.active != Some(found) && !outcome.is_about(found) => {
            SyncOutcome::NotActive(found, why_not_active(record, intent))
        }
        // The source's version is active: that another version waits is no failure of this check.
        (Some(found), SyncOutcome::NotActive(..) | SyncOutcome::Staged(_)) if record.active == Some(found) => {
            SyncOutcome::Current(record.active)
        }
        (_, outcome) => outcome,
    };
    Ok(SyncReport { brought, refused_now, ..SyncReport::of(outcome) })
}

fn why_not_active(record: &StoreRecord, intent: &SyncIntent) -> String {
    match (&record.hold, &intent.pin) {
        (Some(hold), _) => {
            format!("held by {} since {} ({}); `docwharf release` ends the hold", hold.who, hold.when, hold.why)
        }
        (None, Some(pin)) => format!("pinned to {pin:?} (staticExport.version)", pin = pin.as_str()),
        (None, None) => "a newer version is there".to_owned(),
    }
}

/// Prunes; returns whether a version was removed. A failure does not fail the sync: the next one prunes again.
fn prune<K: StoreOperations>(keeper: &K, record: &StoreRecord, intent: &SyncIntent, who: &str) -> bool {
    match keeper.prune(record, &intent.allowance) {
        Ok(removed) => {
            for version in &removed {
                keeper.note(who, "pruned", Some(version.id), None);
            }
            !removed.is_empty()
        }
        Err(error) => {
            tracing::warn!("{}", ErrorChain(&error));
            false
        }
    }
}

/// A bundle to be imported.
#[derive(Debug, Clone, Copy)]
pub struct ImportRequest<'a> {
    /// Path of the bundle.
    pub path: &'a Path,
    /// The open bundle, if it is open already: then nothing is opened by path.
    pub file: Option<&'a File>,
    /// Name of the source in receipts and messages.
    pub source: &'a str,
    /// The label that the version gets.
    pub label: Option<&'a VersionLabel>,
    /// The user or process that imports it.
    pub who: &'a str,
    /// Whether the version becomes active without the gate.
    pub force: bool,
}

/// Ingests a bundle, and activates it unless a hold, a pin or the gate prevents that. It is not cancelled: no later
/// sync would fetch the bundle again. `in_force` returns the configuration in force.
pub fn import<W: SealOperations>(
    shop: &W,
    in_force: &dyn Fn() -> SyncIntent,
    handed: ImportRequest<'_>,
    meter: &SealProgress,
) -> Result<SyncReport, SyncError> {
    let ImportRequest { path, file, source, label, who, force } = handed;
    let mut record = read_record(shop)?;
    let intent = &in_force();
    let ahead = RefCell::default();
    let occasion = Occasion::Import;
    let arrival = IncomingBundle {
        path,
        file,
        source,
        title: source,
        occasion,
        label,
        demanded: None,
        job: None,
        sent: None,
        ahead,
    };
    let brought = match ingest_bundle(shop, &mut record, intent, &arrival, false, who, meter) {
        Ok(brought) => brought,
        Err(error) => {
            if error.is_refusal() {
                shop.note(who, "refused", None, Some(ErrorChain(&error).to_string()));
            }
            return Err(error);
        }
    };
    let asker = ActivationRequest { who, force, stop: NEVER_CANCELLED, in_force };
    activate_and_prune(shop, &mut record, asker, Some(brought.id), Some(brought))
}

/// The version that should be served now, followed by those to fall back to. A version that was never active because it
/// waits for a person or was refused by the gate is left out.
pub fn candidates(
    record: &StoreRecord,
    intent: &SyncIntent,
    stored: impl Iterator<Item = VersionId>,
) -> Vec<VersionId> {
    let guarded = intent.activation == ActivationMode::Manual || !intent.gate.is_off();
    if guarded && record.active.is_none() && record.newest.is_some() {
        // Every stored version has been kept back so far.
        return Vec::new();
    }
    // Any other version may have been kept back.
    let others = stored.filter(|_| !guarded);
    let mut all: Vec<VersionId> = Vec::new();
    for id in record.active.into_iter().chain(record.previous).chain(others) {
        if !all.contains(&id) {
            all.push(id);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::history::BY_HAND;
    use crate::store::writer::StoreWriter;
    use crate::store::{HistoryEvent, IMAGE, Receipt};
    use crate::sync::gate::GateRules;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    fn at(minute: u8) -> String {
        format!("2026-11-21T10:{minute:02}:00Z")
    }

    /// A store whose versions are never read: each has arrived once, in the order of its number.
    fn store(root: &Path, versions: &[u8]) -> StoreWriter {
        let writer = StoreWriter::open(root, Duration::ZERO).unwrap();
        for &n in versions {
            std::fs::create_dir(writer.store().version_dir(id(n))).unwrap();
            std::fs::write(writer.store().version_dir(id(n)).join(IMAGE), "image").unwrap();
            arrive(&writer, n, n, "s", None, true);
        }
        writer
    }

    fn arrive(writer: &StoreWriter, n: u8, minute: u8, source: &str, label: Option<&str>, looked: bool) {
        let receipt = Receipt {
            time: at(minute),
            who: String::new(),
            source: source.to_owned(),
            kind: String::new(),
            archive_sha256: Some(format!("{n}")),
            archive_bytes: None,
            label: label.map(str::to_owned),
            job: None,
            validator: None,
            sent_bytes: None,
            looked,
        };
        writer.receive(id(n), &receipt).unwrap();
    }

    fn event(what: &str, version: Option<u8>, note: Option<&str>) -> HistoryEvent {
        let note = note.map(str::to_owned);
        HistoryEvent { time: at(9), who: "me".to_owned(), what: what.to_owned(), version: version.map(id), note }
    }

    #[test]
    fn a_lost_record_is_made_again_from_what_history_tells_of_activations_and_of_people() {
        let by_hand = format!("activated x{BY_HAND}");
        // The history; the active version and the reason of the hold. The versions 1 and 2 are stored, 3 is not.
        let cases: [(&[HistoryEvent], Option<u8>, Option<&str>); 16] = [
            (&[], Some(2), None),
            // History has no activation, so none has happened.
            (&[event("imported", Some(2), None)], None, None),
            (&[event("imported", Some(2), None), event("kept back", Some(2), None)], None, None),
            (&[event("activated", Some(1), None)], Some(1), None),
            (&[event("activated", Some(1), None), event("activated", Some(2), None)], Some(2), None),
            (&[event("activated", Some(2), None), event("activated", Some(1), None)], Some(1), None),
            (&[event("activated", Some(1), None), event("activated", Some(3), None)], Some(1), None),
            (&[event("activated", Some(3), None)], None, None),
            (&[event("activated", Some(2), None), event("rolled back", Some(1), None)], Some(1), Some("rolled back")),
            (&[event("activated", Some(1), Some(&by_hand))], Some(1), Some(&by_hand)),
            (&[event("activated", Some(2), None), event("held", Some(1), Some("why"))], Some(1), Some("why")),
            (&[event("activated", Some(2), None), event("held", Some(3), Some("why"))], Some(2), Some("why")),
            (&[event("activated", Some(2), None), event("held", None, Some("why"))], Some(2), Some("why")),
            (&[event("held", Some(1), None), event("activated", Some(2), None)], Some(1), Some("held")),
            (&[event("rolled back", Some(1), None), event("released", Some(1), None)], Some(1), None),
            (&[event("held", Some(1), None), event("held", Some(2), Some("later"))], Some(2), Some("later")),
        ];
        for (n, (history, active, why)) in cases.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let writer = store(dir.path(), &[1, 2]);
            for event in history {
                writer.append(event);
            }
            std::fs::write(dir.path().join("state.json"), "{").unwrap();
            let record = read_record(&writer).unwrap();
            assert_eq!((record.active, record.newest), (active.map(id), Some(id(2))), "case {n}");
            let hold = record.hold.as_ref();
            assert_eq!(hold.map(|hold| hold.why.as_str()), why, "case {n}");
            assert!(hold.is_none_or(|hold| hold.who == "me" && hold.when == at(9)), "case {n}");
            // The record is stored again, and a copy of the damaged one beside it.
            assert_eq!(writer.record().unwrap(), record, "case {n}");
            assert_eq!(std::fs::read(dir.path().join("state.json.damaged")).unwrap(), b"{", "case {n}");
        }
    }

    #[test]
    fn a_lost_record_has_its_labels_and_what_the_source_offered_from_the_last_arrivals() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store(dir.path(), &[1, 2, 3]);
        arrive(&writer, 1, 11, "a", Some("one"), false);
        arrive(&writer, 1, 12, "b", Some("both"), false);
        arrive(&writer, 1, 13, "c", Some("one"), false);
        arrive(&writer, 2, 14, "d", Some("both"), true);
        arrive(&writer, 3, 14, "e", None, true);
        arrive(&writer, 3, 15, "f", None, false);
        std::fs::write(dir.path().join("state.json"), "{").unwrap();
        let record = read_record(&writer).unwrap();
        let told: Vec<_> = record
            .labels
            .iter()
            .map(|(label, of)| (label.as_str(), of.version, of.source.as_str(), of.sha256.as_deref(), of.time.clone()))
            .collect();
        assert_eq!(told, [("both", id(2), "d", Some("2"), at(14)), ("one", id(1), "c", Some("1"), at(13))]);
        assert_eq!(record.newest, Some(id(3)));
        let offered = OfferedVersion { source: "e".to_owned(), version: id(3) };
        assert_eq!(record.offered, Some(offered), "of two looks at one time that of the newest version counts");
        // An empty store gives an empty record; the record of a later docwharf is not replaced.
        let dir = tempfile::tempdir().unwrap();
        let writer = store(dir.path(), &[]);
        std::fs::write(dir.path().join("state.json"), "").unwrap();
        assert_eq!(read_record(&writer).unwrap(), StoreRecord::default());
        std::fs::write(dir.path().join("state.json"), "{\"schemaVersion\": 99}").unwrap();
        assert!(read_record(&writer).is_err());
        assert_eq!(std::fs::read(dir.path().join("state.json")).unwrap(), b"{\"schemaVersion\": 99}");
    }

    #[test]
    fn what_was_kept_back_is_never_fallen_back_to() {
        let manual = SyncIntent { activation: ActivationMode::Manual, ..SyncIntent::default() };
        let gated =
            SyncIntent { gate: GateRules { min_pages: Some(1), ..GateRules::default() }, ..SyncIntent::default() };
        let record = |active: Option<u8>, previous: Option<u8>, newest: Option<u8>| StoreRecord {
            active: active.map(id),
            previous: previous.map(id),
            newest: newest.map(id),
            ..StoreRecord::default()
        };
        let free = SyncIntent::default();
        let cases: [(StoreRecord, &SyncIntent, &[u8]); 8] = [
            (record(Some(2), Some(1), Some(3)), &free, &[2, 1, 4, 3]),
            (record(Some(2), Some(1), Some(3)), &manual, &[2, 1]),
            (record(Some(2), Some(1), Some(3)), &gated, &[2, 1]),
            (record(None, None, Some(3)), &free, &[4, 3, 2, 1]),
            (record(None, None, Some(3)), &manual, &[]),
            (record(None, Some(1), Some(3)), &gated, &[]),
            (record(None, Some(1), None), &gated, &[1]),
            (record(None, None, None), &free, &[4, 3, 2, 1]),
        ];
        for (n, (record, intent, expected)) in cases.into_iter().enumerate() {
            let stored = [4, 3, 2, 1].map(id);
            let expected: Vec<VersionId> = expected.iter().map(|&n| id(n)).collect();
            assert_eq!(candidates(&record, intent, stored.into_iter()), expected, "case {n}");
        }
    }

    #[test]
    fn a_look_tells_of_what_the_source_holds_and_prunes_also_when_nothing_came() {
        let manual = || SyncIntent { activation: ActivationMode::Manual, ..SyncIntent::default() };
        let hold = || ActivationHold { who: "me".to_owned(), when: "then".to_owned(), why: "x".to_owned() };
        let pinned = || SyncIntent { pin: VersionLabel::new("L").ok(), ..SyncIntent::default() };
        // The active version, the newest one, and the one that the source has; whether it is held, the configuration,
        // the outcome.
        let cases = [
            (1, 2, Some(2), false, SyncIntent::default(), SyncOutcome::Activated(id(2))),
            (1, 2, None, false, SyncIntent::default(), SyncOutcome::Activated(id(2))),
            (1, 1, Some(1), false, SyncIntent::default(), SyncOutcome::Current(Some(id(1)))),
            (1, 1, None, false, SyncIntent::default(), SyncOutcome::Current(Some(id(1)))),
            (1, 2, Some(2), false, manual(), SyncOutcome::Staged(id(2))),
            (1, 2, None, false, manual(), SyncOutcome::Staged(id(2))),
            (1, 2, Some(1), false, manual(), SyncOutcome::Current(Some(id(1)))),
            (1, 2, Some(3), false, manual(), SyncOutcome::NotActive(id(3), "a newer version is there".to_owned())),
            (
                1,
                1,
                Some(2),
                false,
                SyncIntent::default(),
                SyncOutcome::NotActive(id(2), "a newer version is there".to_owned()),
            ),
            (1, 2, None, true, SyncIntent::default(), SyncOutcome::Current(Some(id(1)))),
        ];
        let told = |active: u8, newest: u8, found: Option<u8>, is_held: bool, intent: &SyncIntent| {
            let dir = tempfile::tempdir().unwrap();
            let writer = store(dir.path(), &[1, 2, 3, 4]);
            let mut record =
                StoreRecord { newest: Some(id(newest)), hold: is_held.then(hold), ..StoreRecord::default() };
            record.activate(id(active), "t");
            writer.mend(&record).unwrap();
            let in_force = || SyncIntent {
                allowance: crate::store::space::SpaceLimits { keep: 1, ..Default::default() },
                ..intent.clone()
            };
            let asker = ActivationRequest { who: "me", force: false, stop: NEVER_CANCELLED, in_force: &in_force };
            let report = activate_and_prune(&writer, &mut record, asker, found.map(id), None).unwrap();
            let pruned = writer.history().unwrap().iter().filter(|event| event.what == "pruned").count();
            assert_eq!(pruned, 4 - writer.versions().unwrap().len(), "each that went is in history");
            assert!(pruned > 0 && writer.has(id(active)) && writer.has(id(newest)));
            assert!(report.brought.is_none() && !report.refused_now);
            report.outcome
        };
        for (n, (active, newest, found, is_held, intent, expected)) in cases.into_iter().enumerate() {
            assert_eq!(told(active, newest, found, is_held, &intent), expected, "case {n}");
        }
        for (is_held, intent, why) in [
            (true, SyncIntent::default(), "held by me since then (x); `docwharf release` ends the hold"),
            (true, pinned(), "held by me since then (x); `docwharf release` ends the hold"),
            (false, pinned(), "pinned to \"L\" (staticExport.version)"),
        ] {
            assert_eq!(told(1, 2, Some(2), is_held, &intent), SyncOutcome::NotActive(id(2), why.to_owned()));
        }
    }
}
