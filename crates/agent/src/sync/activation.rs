//! The end of a sync: activates the target version, and prunes.

use std::time::Duration;

use crate::store::operations::StoreOperations;
use crate::store::record::StoreRecord;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;

use super::activation_decision::{ActivationDecision, ActivationRequest, decide, note_decision, outcome};
use super::ingest::IngestedBundle;
use super::seal_operations::SealOperations;
use super::{ActivationMode, SyncError, SyncOutcome, SyncSettings, disk_space};

/// The result of a sync, and what is reported with it.
#[derive(Debug)]
pub struct SyncReport {
    /// The outcome.
    pub outcome: SyncOutcome,
    /// The ingested bundle, if any.
    pub ingested: Option<IngestedBundle>,
    /// Until when the check is postponed, if no request was sent because it was too early.
    pub postponed: Option<Postponement>,
    /// The reason why no probe could be read, so that changes are not detected.
    pub unreadable_probes: Option<String>,
    /// A short description of what the check of the source found.
    pub check_summary: Option<String>,
    /// Whether the gate has just refused a version, and its previous verdict, if any, was about another version or had
    /// another result.
    pub is_new_refusal: bool,
}

/// The postponement of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Postponement {
    /// Until this time has passed.
    For(Duration),
    /// Until the next regular check.
    UntilNextCheck,
}

impl SyncReport {
    /// Creates a report with an outcome and no other information.
    pub fn from_outcome(outcome: SyncOutcome) -> SyncReport {
        SyncReport {
            outcome,
            ingested: None,
            postponed: None,
            unreadable_probes: None,
            check_summary: None,
            is_new_refusal: false,
        }
    }
}

/// Activates the target version, and prunes. `reported` is the version that the report is about: the one that the
/// source has, or one that was imported since.
pub fn activate_and_prune<W: SealOperations>(
    store: &W,
    record: &mut StoreRecord,
    request: ActivationRequest<'_>,
    reported: Option<VersionId>,
    ingested: Option<IngestedBundle>,
) -> Result<SyncReport, SyncError> {
    let decision = decide(store, request, |step| Ok(store.decide_and_save(record, step)?));
    if let (Err(SyncError::Cancelled), Some(ingested)) = (&decision, &ingested) {
        // No report follows this error, so the warnings are logged here. The version is stored: the next sync decides
        // about it without fetching it again.
        for warning in &ingested.warnings {
            tracing::warn!("{warning}");
        }
    }
    let decision = decision?;
    let sync_settings = &(request.in_force)();
    note_decision(store, request.author, &decision);
    // Also if nothing was fetched: an earlier process may have been killed between a commit and its pruning.
    let is_any_removed = prune(store, record, sync_settings, request.author);
    if ingested.is_some() || is_any_removed {
        disk_space::warn_if_over(store, &sync_settings.space_limits);
    }
    let is_new_refusal = matches!(decision, ActivationDecision::Refused { is_new: true, .. });
    let outcome = match (reported, outcome(decision, record.active)) {
        // The decision was about another version.
        (Some(reported), outcome) if record.active != Some(reported) && !outcome.is_about(reported) => {
            SyncOutcome::NotActive(reported, explain_inactive(record, sync_settings))
        }
        // The reported version is active: a different version that waits is no failure of this sync.
        (Some(reported), SyncOutcome::NotActive(..) | SyncOutcome::Staged(_)) if record.active == Some(reported) => {
            SyncOutcome::Current(record.active)
        }
        (_, outcome) => outcome,
    };
    Ok(SyncReport { ingested, is_new_refusal, ..SyncReport::from_outcome(outcome) })
}

fn explain_inactive(record: &StoreRecord, sync_settings: &SyncSettings) -> String {
    match (&record.hold, &sync_settings.pin) {
        (Some(hold), _) => {
            format!("held by {} since {} ({}); `docwharf release` ends the hold", hold.author, hold.when, hold.why)
        }
        (None, Some(pin)) => format!("pinned to {pin:?} (staticExport.version)", pin = pin.as_str()),
        (None, None) => "a newer version is stored".to_owned(),
    }
}

/// Prunes; returns whether a version was removed. A failure does not fail the sync: the next one prunes again.
fn prune<S: StoreOperations>(store: &S, record: &StoreRecord, sync_settings: &SyncSettings, author: &str) -> bool {
    match store.prune(record, &sync_settings.space_limits) {
        Ok(removed) => {
            for version in &removed {
                store.note(author, "pruned", Some(version.id), None);
            }
            !removed.is_empty()
        }
        Err(error) => {
            tracing::warn!("{}", ErrorChain(&error));
            false
        }
    }
}

/// Returns the version to serve, followed by those to fall back to. With a gate or in manual mode, only the active and
/// the previous version are returned, because any other may have been refused or may wait; none, if no version is
/// active although there is a newest.
pub fn candidates(
    record: &StoreRecord,
    sync_settings: &SyncSettings,
    stored: impl Iterator<Item = VersionId>,
) -> Vec<VersionId> {
    let is_guarded = sync_settings.activation == ActivationMode::Manual || !sync_settings.gate.is_off();
    if is_guarded && record.active.is_none() && record.newest.is_some() {
        // No version is active, and the newest was not allowed to become active: none is served.
        return Vec::new();
    }
    // Any other version may have been refused or may wait.
    let others = stored.filter(|_| !is_guarded);
    let mut candidates: Vec<VersionId> = Vec::new();
    for id in record.active.into_iter().chain(record.previous).chain(others) {
        if !candidates.contains(&id) {
            candidates.push(id);
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::record::{ActivationHold, GateVerdict};
    use crate::store::writer::StoreWriter;
    use crate::store::{IMAGE, Receipt};
    use crate::sync::activation_decision::NEVER_CANCELLED;
    use crate::sync::gate::GateConditions;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionLabel;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    fn time_at(minute: u8) -> String {
        format!("2026-11-21T10:{minute:02}:00Z")
    }

    /// A store whose versions are never read: each has arrived once, in the order of its number.
    fn store(root: &Path, versions: &[u8]) -> StoreWriter {
        let writer = StoreWriter::open(root, Duration::ZERO).unwrap();
        for &n in versions {
            std::fs::create_dir(writer.store().version_dir(id(n))).unwrap();
            std::fs::write(writer.store().version_dir(id(n)).join(IMAGE), "image").unwrap();
            add_arrival(&writer, n);
        }
        writer
    }

    fn add_arrival(writer: &StoreWriter, n: u8) {
        let receipt = Receipt {
            time: time_at(n),
            author: String::new(),
            source: "s".to_owned(),
            kind: String::new(),
            archive_sha256: Some(format!("{n}")),
            archive_bytes: None,
            label: None,
            job: None,
            validator: None,
            sent_bytes: None,
            found_by_check: true,
        };
        writer.add_receipt(id(n), &receipt).unwrap();
    }

    #[test]
    fn fallback_excludes_versions_never_activated_in_manual_mode_or_with_a_gate() {
        let manual = SyncSettings { activation: ActivationMode::Manual, ..SyncSettings::default() };
        let gated = SyncSettings {
            gate: GateConditions { min_pages: Some(1), ..GateConditions::default() },
            ..SyncSettings::default()
        };
        let record = |active: Option<u8>, previous: Option<u8>, newest: Option<u8>| StoreRecord {
            active: active.map(id),
            previous: previous.map(id),
            newest: newest.map(id),
            ..StoreRecord::default()
        };
        let automatic = SyncSettings::default();
        let cases: [(StoreRecord, &SyncSettings, &[u8]); 8] = [
            (record(Some(2), Some(1), Some(3)), &automatic, &[2, 1, 4, 3]),
            (record(Some(2), Some(1), Some(3)), &manual, &[2, 1]),
            (record(Some(2), Some(1), Some(3)), &gated, &[2, 1]),
            (record(None, None, Some(3)), &automatic, &[4, 3, 2, 1]),
            (record(None, None, Some(3)), &manual, &[]),
            (record(None, Some(1), Some(3)), &gated, &[]),
            (record(None, Some(1), None), &gated, &[1]),
            (record(None, None, None), &automatic, &[4, 3, 2, 1]),
        ];
        for (n, (record, sync_settings, expected)) in cases.into_iter().enumerate() {
            let stored = [4, 3, 2, 1].map(id);
            let expected: Vec<VersionId> = expected.iter().map(|&n| id(n)).collect();
            assert_eq!(candidates(&record, sync_settings, stored.into_iter()), expected, "case {n}");
        }
    }

    #[test]
    fn a_refusal_of_the_gate_that_is_in_the_record_is_not_reported_as_new() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store(dir.path(), &[1, 2]);
        let gate = GateConditions { min_pages: Some(1), ..GateConditions::default() };
        let verdict = GateVerdict {
            version: id(2),
            against: Some(id(1)),
            conditions_digest: gate.conditions_digest(),
            refused: Some("no".to_owned()),
            time: time_at(1),
            address_settings_digest: String::new(),
            links: std::collections::BTreeMap::new(),
        };
        let mut record = StoreRecord { newest: Some(id(2)), gate: Some(verdict), ..StoreRecord::default() };
        record.activate(id(1), "t");
        writer.replace_record(&record).unwrap();
        let in_force = || SyncSettings { gate: gate.clone(), ..SyncSettings::default() };
        let request =
            ActivationRequest { author: "me", force: false, is_cancelled: NEVER_CANCELLED, in_force: &in_force };
        let report = activate_and_prune(&writer, &mut record, request, Some(id(2)), None).unwrap();
        let SyncOutcome::NotActive(version, why) = &report.outcome else { panic!("{report:?}") };
        assert!(*version == id(2) && why.starts_with("refused by the gate: no; "), "{why}");
        assert!(!report.is_new_refusal);
        assert_eq!((record.active, writer.history().unwrap().len()), (Some(id(1)), 0));
    }

    #[test]
    fn sync_reports_the_version_of_the_source_and_prunes_even_without_a_new_version() {
        let manual = || SyncSettings { activation: ActivationMode::Manual, ..SyncSettings::default() };
        let hold = || ActivationHold { author: "me".to_owned(), when: "then".to_owned(), why: "x".to_owned() };
        let pinned = || SyncSettings { pin: VersionLabel::new("L").ok(), ..SyncSettings::default() };
        // The active version, the newest one, and the one that the source has; whether it is held, the configuration,
        // the outcome.
        let cases = [
            (1, 2, Some(2), false, SyncSettings::default(), SyncOutcome::Activated(id(2))),
            (1, 2, None, false, SyncSettings::default(), SyncOutcome::Activated(id(2))),
            (1, 1, Some(1), false, SyncSettings::default(), SyncOutcome::Current(Some(id(1)))),
            (1, 1, None, false, SyncSettings::default(), SyncOutcome::Current(Some(id(1)))),
            (1, 2, Some(2), false, manual(), SyncOutcome::Staged(id(2))),
            (1, 2, None, false, manual(), SyncOutcome::Staged(id(2))),
            (1, 2, Some(1), false, manual(), SyncOutcome::Current(Some(id(1)))),
            (1, 2, Some(3), false, manual(), SyncOutcome::NotActive(id(3), "a newer version is stored".to_owned())),
            (
                1,
                1,
                Some(2),
                false,
                SyncSettings::default(),
                SyncOutcome::NotActive(id(2), "a newer version is stored".to_owned()),
            ),
            (1, 2, None, true, SyncSettings::default(), SyncOutcome::Current(Some(id(1)))),
        ];
        let sync_outcome = |active: u8, newest: u8, found: Option<u8>, is_held: bool, sync_settings: &SyncSettings| {
            let dir = tempfile::tempdir().unwrap();
            let writer = store(dir.path(), &[1, 2, 3, 4]);
            let mut record =
                StoreRecord { newest: Some(id(newest)), hold: is_held.then(hold), ..StoreRecord::default() };
            record.activate(id(active), "t");
            writer.replace_record(&record).unwrap();
            let in_force = || SyncSettings {
                space_limits: crate::store::space::SpaceLimits { keep: 1, ..Default::default() },
                ..sync_settings.clone()
            };
            let request =
                ActivationRequest { author: "me", force: false, is_cancelled: NEVER_CANCELLED, in_force: &in_force };
            let report = activate_and_prune(&writer, &mut record, request, found.map(id), None).unwrap();
            let pruned = writer.history().unwrap().iter().filter(|event| event.what == "pruned").count();
            assert_eq!(pruned, 4 - writer.versions().unwrap().len(), "each removed version is in history");
            assert!(pruned > 0 && writer.has(id(active)) && writer.has(id(newest)));
            assert!(report.ingested.is_none() && !report.is_new_refusal);
            report.outcome
        };
        for (n, (active, newest, found, is_held, sync_settings, expected)) in cases.into_iter().enumerate() {
            assert_eq!(sync_outcome(active, newest, found, is_held, &sync_settings), expected, "case {n}");
        }
        for (is_held, sync_settings, why) in [
            (true, SyncSettings::default(), "held by me since then (x); `docwharf release` ends the hold"),
            (true, pinned(), "held by me since then (x); `docwharf release` ends the hold"),
            (false, pinned(), "pinned to \"L\" (staticExport.version)"),
        ] {
            assert_eq!(
                sync_outcome(1, 2, Some(2), is_held, &sync_settings),
                SyncOutcome::NotActive(id(2), why.to_owned())
            );
        }
    }
}
