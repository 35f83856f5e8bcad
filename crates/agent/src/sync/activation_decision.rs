//! The decision whether the target version (`StoreRecord::target_version`) becomes active. It depends on the hold, the
//! pin, the gate and the activation mode.

use crate::store::operations::StoreOperations;
use crate::store::record::{GateVerdict, StoreRecord};
use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::model::version::{VersionId, VersionLabel};

use super::seal_operations::SealOperations;
use super::waiting::{WaitingReason, WaitingVersion, activation_advice};
use super::{ActivationMode, SyncError, SyncOutcome, SyncSettings};

/// The decision about the target version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActivationDecision {
    /// The version is active already, there is none, or the store has no undamaged copy of it.
    Unchanged,
    /// The version has become active. The text is the reason of the gate's refusal, if that was overridden.
    Activated(VersionId, Option<String>),
    /// The version waits for a person.
    Staged(VersionId),
    /// The gate refuses the version.
    Refused { version: VersionId, reason: String, is_new: bool },
}

/// A request for a decision.
#[derive(Clone, Copy)]
pub struct ActivationRequest<'a> {
    /// The user or process that sends the request, for history.
    pub author: &'a str,
    /// Whether the version becomes active although the gate refuses it.
    pub force: bool,
    /// Returns true once the request is cancelled.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Returns the configuration in force now: it may have changed since the task began.
    pub in_force: &'a dyn Fn() -> SyncSettings,
}

/// The `is_cancelled` of a request that is never cancelled.
pub(super) const NEVER_CANCELLED: &(dyn Fn() -> bool + Sync) = &|| false;

/// The result of one step of a decision.
pub(super) enum StepResult {
    Done(ActivationDecision),
    /// The gate has to evaluate this version against the active one; `previous` is its previous verdict.
    CheckGate {
        version: VersionId,
        active: Option<VersionId>,
        previous: Option<GateVerdict>,
    },
}

/// Decides about the target version. `apply` lets a step read and change the record while no other thread does.
/// The gate is evaluated between steps, because reading pages takes time and people's commands must not wait for it. A
/// cancelled request ends with [`SyncError::Cancelled`] and without a decision.
pub(super) fn decide<W: SealOperations>(
    store: &W,
    request: ActivationRequest<'_>,
    mut apply: impl FnMut(&mut dyn FnMut(&mut StoreRecord) -> StepResult) -> Result<StepResult, SyncError>,
) -> Result<ActivationDecision, SyncError> {
    let mut verdict = None;
    loop {
        let mut settings_in_force = None;
        // The configuration is read under the lock: a pin that is set in between must not be ignored.
        let step = apply(&mut |record| {
            let sync_settings = settings_in_force.insert((request.in_force)());
            decide_target_version(record, sync_settings, request.force, verdict.take(), store.now(), |id| {
                store.has_undamaged(id)
            })
        })?;
        match (step, settings_in_force) {
            (StepResult::Done(decision), _) => return Ok(decision),
            // The request may have been cancelled meanwhile; no version is opened then.
            (StepResult::CheckGate { version, active, previous }, Some(sync_settings)) if !(request.is_cancelled)() => {
                let previous = previous.as_ref();
                verdict = Some(store.evaluate_gate(&sync_settings, version, active, previous, request.is_cancelled)?);
            }
            (StepResult::CheckGate { .. }, _) => return Err(SyncError::Cancelled),
        }
    }
}

/// Makes the target version active, unless a person or the gate has to decide. `verdict` is the gate's verdict on
/// it, if it has just been evaluated.
fn decide_target_version(
    record: &mut StoreRecord,
    sync_settings: &SyncSettings,
    force: bool,
    verdict: Option<GateVerdict>,
    now: i64,
    has: impl Fn(VersionId) -> bool,
) -> StepResult {
    let result = |verdict: Option<&GateVerdict>| verdict.map(|verdict| (verdict.version, verdict.refused.clone()));
    let is_new_result = verdict.is_some() && result(verdict.as_ref()) != result(record.gate.as_ref());
    if verdict.is_some() {
        record.gate = verdict;
    }
    let due = record.target_version(sync_settings.pin.as_ref().map(VersionLabel::as_str));
    let Some(id) = due.filter(|&id| record.active != Some(id) && has(id)) else {
        return StepResult::Done(ActivationDecision::Unchanged);
    };
    let mut refused = None;
    if !sync_settings.gate.is_off() {
        match record.gate.as_ref().filter(|verdict| sync_settings.gate.covers(verdict, id, record.active)) {
            Some(verdict) => refused.clone_from(&verdict.refused),
            None => {
                return StepResult::CheckGate { version: id, active: record.active, previous: record.gate.clone() };
            }
        }
    }
    StepResult::Done(match refused {
        _ if sync_settings.activation == ActivationMode::Manual => ActivationDecision::Staged(id),
        Some(reason) if !force => ActivationDecision::Refused { version: id, reason, is_new: is_new_result },
        refused => {
            record.activate(id, &format_unix_seconds(now));
            ActivationDecision::Activated(id, refused)
        }
    })
}

/// Appends a decision to history, if it is a change.
pub(super) fn note_decision<S: StoreOperations>(store: &S, author: &str, decision: &ActivationDecision) {
    match decision {
        ActivationDecision::Activated(id, refused) => {
            let note = refused.as_ref().map(|why| format!("forced past the gate: {why}"));
            store.note(author, "activated", Some(*id), note);
        }
        ActivationDecision::Refused { version, reason, is_new: true } => {
            store.note(author, "kept back", Some(*version), Some(reason.clone()));
        }
        ActivationDecision::Unchanged | ActivationDecision::Staged(_) | ActivationDecision::Refused { .. } => {}
    }
}

/// Converts a decision into the outcome that is shown to people.
pub(super) fn outcome(decision: ActivationDecision, active: Option<VersionId>) -> SyncOutcome {
    match decision {
        ActivationDecision::Unchanged => SyncOutcome::Current(active),
        ActivationDecision::Activated(id, _) => SyncOutcome::Activated(id),
        ActivationDecision::Staged(id) => SyncOutcome::Staged(id),
        ActivationDecision::Refused { version, reason, .. } => {
            let notice = if active.is_none() { "nothing is served yet; " } else { "" };
            let waiting = WaitingVersion { version, reason: WaitingReason::Gate(String::new()) };
            let text = format!("refused by the gate: {reason}; {notice}{}", activation_advice(&waiting));
            SyncOutcome::NotActive(version, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::ActivationHold;
    use crate::sync::gate::GateConditions;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    fn sync_settings(manual: bool, gated: bool) -> SyncSettings {
        let gate = GateConditions { min_pages: gated.then_some(1), ..GateConditions::default() };
        let activation = if manual { ActivationMode::Manual } else { ActivationMode::Auto };
        SyncSettings { gate, activation, ..SyncSettings::default() }
    }

    fn record() -> StoreRecord {
        let mut record = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        record.activate(id(1), "t");
        record
    }

    fn verdict(
        sync_settings: &SyncSettings,
        version: VersionId,
        against: Option<VersionId>,
        refused: Option<&str>,
    ) -> GateVerdict {
        GateVerdict {
            version,
            against,
            conditions_digest: sync_settings.gate.conditions_digest(),
            refused: refused.map(str::to_owned),
            time: String::new(),
            address_settings_digest: String::new(),
            links: std::collections::BTreeMap::new(),
        }
    }

    fn refused(reason: &str, is_new: bool) -> ActivationDecision {
        ActivationDecision::Refused { version: id(2), reason: reason.to_owned(), is_new }
    }

    fn decide_step(
        record: &mut StoreRecord,
        sync_settings: &SyncSettings,
        force: bool,
        verdict: Option<GateVerdict>,
    ) -> Option<ActivationDecision> {
        match decide_target_version(record, sync_settings, force, verdict, 0, |_| true) {
            StepResult::Done(decision) => Some(decision),
            StepResult::CheckGate { .. } => None,
        }
    }

    #[test]
    fn newest_version_is_activated_without_a_gate() {
        let mut record = record();
        assert_eq!(
            decide_step(&mut record, &sync_settings(false, false), false, None),
            Some(ActivationDecision::Activated(id(2), None))
        );
        assert_eq!(record.active, Some(id(2)));
        assert_eq!(
            decide_step(&mut record, &sync_settings(false, false), false, None),
            Some(ActivationDecision::Unchanged)
        );
    }

    #[test]
    fn gate_verdict_is_reused_and_its_refusal_is_reported_as_new_once() {
        let (mut record, sync_settings) = (record(), sync_settings(false, true));
        assert_eq!(decide_step(&mut record, &sync_settings, false, None), None, "the gate has to be evaluated");
        let refusal = verdict(&sync_settings, id(2), Some(id(1)), Some("no"));
        let first = decide_step(&mut record, &sync_settings, false, Some(refusal.clone()));
        assert_eq!(first, Some(refused("no", true)));
        assert_eq!(decide_step(&mut record, &sync_settings, false, None), Some(refused("no", false)));
        assert_eq!(record.active, Some(id(1)));
        let again = decide_step(&mut record, &sync_settings, false, Some(refusal));
        assert_eq!(again, Some(refused("no", false)), "a repeated refusal is not new");
        assert_eq!(
            decide_step(&mut record, &sync_settings, true, None),
            Some(ActivationDecision::Activated(id(2), Some("no".into())))
        );
    }

    #[test]
    fn gate_is_evaluated_again_for_another_active_version_or_other_conditions() {
        let (mut record, gated) = (record(), sync_settings(false, true));
        record.gate = Some(verdict(&gated, id(2), Some(id(3)), None));
        assert_eq!(
            decide_step(&mut record, &gated, false, None),
            None,
            "it was evaluated against another active version"
        );
        record.gate = Some(verdict(&gated, id(2), Some(id(1)), Some("no")));
        let stricter =
            SyncSettings { gate: GateConditions { min_pages: Some(9), ..GateConditions::default() }, ..gated.clone() };
        assert_eq!(decide_step(&mut record, &stricter, false, None), None, "the conditions have changed");
        // A decision that a person made during the gate's evaluation counts: the verdict is about other versions.
        record.activate(id(5), "t");
        let late = verdict(&gated, id(2), Some(id(1)), None);
        assert_eq!(decide_step(&mut record, &gated, false, Some(late)), None);
        let off = sync_settings(false, false);
        assert_eq!(decide_step(&mut record, &off, false, None), Some(ActivationDecision::Activated(id(2), None)));
    }

    #[test]
    fn a_hold_is_not_overridden_by_force_and_a_person_promotes_in_manual_mode() {
        let (mut record, gated) = (record(), sync_settings(false, true));
        record.hold = Some(ActivationHold { author: "me".into(), when: "t".into(), why: "x".into() });
        assert_eq!(decide_step(&mut record, &gated, true, None), Some(ActivationDecision::Unchanged));
        record.hold = None;
        assert_eq!(
            decide_step(&mut record, &sync_settings(true, false), true, None),
            Some(ActivationDecision::Staged(id(2)))
        );
        record.gate = Some(verdict(&gated, id(2), Some(id(1)), Some("no")));
        assert_eq!(
            decide_step(&mut record, &sync_settings(true, true), false, None),
            Some(ActivationDecision::Staged(id(2)))
        );
        assert_eq!(record.active, Some(id(1)));
        let empty = &mut StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        assert_eq!(
            decide_step(empty, &sync_settings(true, false), false, None),
            Some(ActivationDecision::Staged(id(2)))
        );
        assert_eq!(empty.active, None, "a person also activates the first version of an empty store");
    }

    #[test]
    fn damaged_version_is_not_activated_and_an_accepted_version_stores_its_verdict() {
        let mut record = record();
        let missing = decide_target_version(&mut record, &sync_settings(false, false), true, None, 0, |_| false);
        assert!(matches!(missing, StepResult::Done(ActivationDecision::Unchanged)) && record.active == Some(id(1)));
        let gated = sync_settings(false, true);
        let StepResult::CheckGate { version, active, previous } =
            decide_target_version(&mut record, &gated, true, None, 0, |_| true)
        else {
            panic!("the gate is evaluated even with force")
        };
        assert_eq!((version, active, previous), (id(2), Some(id(1)), None));
        let acceptance = verdict(&gated, id(2), Some(id(1)), None);
        assert_eq!(
            decide_step(&mut record, &gated, false, Some(acceptance.clone())),
            Some(ActivationDecision::Activated(id(2), None))
        );
        assert_eq!((record.gate, record.active_since.as_deref()), (Some(acceptance), Some("1970-01-01T00:00:00Z")));
    }

    #[test]
    fn history_has_an_event_for_each_activation_and_each_new_gate_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let writer = crate::store::writer::StoreWriter::open(dir.path(), std::time::Duration::ZERO).unwrap();
        let reason = || "no".to_owned();
        let cases = [
            (ActivationDecision::Unchanged, None),
            (ActivationDecision::Staged(id(2)), None),
            (refused("no", false), None),
            (refused("no", true), Some(("kept back", Some("no")))),
            (ActivationDecision::Activated(id(2), None), Some(("activated", None))),
            (
                ActivationDecision::Activated(id(2), Some(reason())),
                Some(("activated", Some("forced past the gate: no"))),
            ),
        ];
        for (decision, expected) in cases {
            let before = writer.history().unwrap().len();
            note_decision(&writer, "me", &decision);
            let history = writer.history().unwrap().split_off(before);
            let events: Vec<_> = history.iter().map(|event| (event.what.as_str(), event.note.as_deref())).collect();
            assert_eq!(events, expected.into_iter().collect::<Vec<_>>(), "{decision:?}");
            assert!(history.iter().all(|event| event.version == Some(id(2)) && event.author == "me"), "{decision:?}");
        }
    }

    #[test]
    fn each_decision_has_its_outcome() {
        let active = Some(id(1));
        assert_eq!(outcome(ActivationDecision::Unchanged, active), SyncOutcome::Current(active));
        assert_eq!(outcome(ActivationDecision::Unchanged, None), SyncOutcome::Current(None));
        assert_eq!(
            outcome(ActivationDecision::Activated(id(2), Some("no".into())), active),
            SyncOutcome::Activated(id(2))
        );
        assert_eq!(outcome(ActivationDecision::Staged(id(2)), active), SyncOutcome::Staged(id(2)));
        for (active, is_noticed) in [(active, false), (None, true)] {
            let SyncOutcome::NotActive(version, why) = outcome(refused("no", true), active) else {
                panic!("it is not active")
            };
            assert!(version == id(2) && why.starts_with("refused by the gate: no; "), "{why}");
            assert_eq!(why.contains("nothing is served yet"), is_noticed, "{why}");
            assert!(why.contains(&format!("`docwharf activate {}`", id(2).short())), "{why}");
        }
    }
}
