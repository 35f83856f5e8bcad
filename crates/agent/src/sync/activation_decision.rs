//! The decision whether the version that is due becomes active. A hold, the pin, a person and the gate take part in it.

use crate::store::operations::StoreOperations;
use crate::store::record::{GateVerdict, StoreRecord};
use docwharf_base::model::units::show_unix;
use docwharf_base::model::version::{VersionId, VersionLabel};

use super::seal_operations::SealOperations;
use super::waiting::{WaitingReason, WaitingVersion, way_out};
use super::{ActivationMode, SyncError, SyncIntent, SyncOutcome};

/// The decision about the version that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActivationDecision {
    /// The version is active already, or there is none.
    Nothing,
    /// The version has become active; with the gate's refusal if that was overridden.
    Activated(VersionId, Option<String>),
    /// The version waits for a person.
    Staged(VersionId),
    /// The gate refuses the version, for this reason; true if the refusal is new.
    Refused(VersionId, String, bool),
}

/// A request for a decision.
#[derive(Clone, Copy)]
pub struct ActivationRequest<'a> {
    /// The user or process that asks, for history.
    pub who: &'a str,
    /// Whether the version that is due becomes active without the gate.
    pub force: bool,
    /// Returns true once the request is cancelled.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Returns the configuration in force now: it may have changed since the work began.
    pub in_force: &'a dyn Fn() -> SyncIntent,
}

/// The `stop` of a request that is never cancelled.
pub(super) const NEVER_CANCELLED: &(dyn Fn() -> bool + Sync) = &|| false;

/// A step towards a decision.
pub(super) enum DecisionStep {
    Done(ActivationDecision),
    /// The gate has to evaluate this version against this active one; with its previous verdict.
    CheckGate(VersionId, Option<VersionId>, Option<GateVerdict>),
}

/// Decides about the version that is due. `apply` lets a step read and change the record while no other thread does.
/// The gate is evaluated between steps, because reading pages takes a while and people's commands must not wait for it.
/// If it is cancelled, nothing is decided: [`SyncError::Interrupted`].
pub(super) fn decide<W: SealOperations>(
    store: &W,
    asker: ActivationRequest<'_>,
    mut apply: impl FnMut(&mut dyn FnMut(&mut StoreRecord) -> DecisionStep) -> Result<DecisionStep, SyncError>,
) -> Result<ActivationDecision, SyncError> {
    let mut verdict = None;
    loop {
        let mut counted = None;
        // The configuration is read while no other thread decides: a pin that is set in between must not be undone.
        let step = apply(&mut |record| {
            let intent = counted.insert((asker.in_force)());
            step(record, intent, asker.force, verdict.take(), store.now(), |id| store.has_whole(id))
        })?;
        match (step, counted) {
            (DecisionStep::Done(decided), _) => return Ok(decided),
            // Opening a version may take a while, too.
            (DecisionStep::CheckGate(id, active, before), Some(intent)) if !(asker.stop)() => {
                verdict = Some(store.check_gate(&intent, id, active, before.as_ref(), asker.stop)?);
            }
            (DecisionStep::CheckGate(..), _) => return Err(SyncError::Interrupted),
        }
    }
}

/// Makes the version that is due active, unless a person or the gate has to decide. `verdict` is new.
fn step(
    record: &mut StoreRecord,
    intent: &SyncIntent,
    force: bool,
    verdict: Option<GateVerdict>,
    now: i64,
    has: impl Fn(VersionId) -> bool,
) -> DecisionStep {
    let said = |verdict: Option<&GateVerdict>| verdict.map(|verdict| (verdict.version, verdict.refused.clone()));
    let is_news = verdict.is_some() && said(verdict.as_ref()) != said(record.gate.as_ref());
    if verdict.is_some() {
        record.gate = verdict;
    }
    let due = record.due(intent.pin.as_ref().map(VersionLabel::as_str));
    let Some(id) = due.filter(|&id| record.active != Some(id) && has(id)) else {
        return DecisionStep::Done(ActivationDecision::Nothing);
    };
    let mut refused = None;
    if !intent.gate.is_off() {
        match record.gate.as_ref().filter(|verdict| intent.gate.covers(verdict, id, record.active)) {
            Some(verdict) => refused.clone_from(&verdict.refused),
            None => return DecisionStep::CheckGate(id, record.active, record.gate.clone()),
        }
    }
    DecisionStep::Done(match refused {
        _ if intent.activation == ActivationMode::Manual => ActivationDecision::Staged(id),
        Some(why) if !force => ActivationDecision::Refused(id, why, is_news),
        refused => {
            record.activate(id, &show_unix(now));
            ActivationDecision::Activated(id, refused)
        }
    })
}

/// Appends a decision to history, if it changes something.
pub(super) fn tell_history<K: StoreOperations>(keeper: &K, who: &str, decided: &ActivationDecision) {
    match decided {
        ActivationDecision::Activated(id, refused) => {
            let note = refused.as_ref().map(|why| format!("forced past the gate: {why}"));
            keeper.note(who, "activated", Some(*id), note);
        }
        ActivationDecision::Refused(id, why, true) => keeper.note(who, "kept back", Some(*id), Some(why.clone())),
        ActivationDecision::Nothing | ActivationDecision::Staged(_) | ActivationDecision::Refused(..) => {}
    }
}

/// Converts a decision into the outcome that is shown to people.
pub(super) fn outcome(decided: ActivationDecision, active: Option<VersionId>) -> SyncOutcome {
    match decided {
        ActivationDecision::Nothing => SyncOutcome::Current(active),
        ActivationDecision::Activated(id, _) => SyncOutcome::Activated(id),
        ActivationDecision::Staged(id) => SyncOutcome::Staged(id),
        ActivationDecision::Refused(id, why, _) => {
            let nothing = if active.is_none() { "nothing is served yet; " } else { "" };
            let staged = WaitingVersion { version: id, waits: WaitingReason::Gate(String::new()) };
            SyncOutcome::NotActive(id, format!("refused by the gate: {why}; {nothing}{}", way_out(&staged)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::ActivationHold;
    use crate::sync::gate::GateRules;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    fn intent(manual: bool, gated: bool) -> SyncIntent {
        let gate = GateRules { min_pages: gated.then_some(1), ..GateRules::default() };
        let activation = if manual { ActivationMode::Manual } else { ActivationMode::Auto };
        SyncIntent { gate, activation, ..SyncIntent::default() }
    }

    fn record() -> StoreRecord {
        let mut record = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        record.activate(id(1), "t");
        record
    }

    fn verdict(
        intent: &SyncIntent,
        version: VersionId,
        against: Option<VersionId>,
        refused: Option<&str>,
    ) -> GateVerdict {
        GateVerdict {
            version,
            against,
            rules: intent.gate.rules(),
            refused: refused.map(str::to_owned),
            time: String::new(),
            addresses: String::new(),
            links: std::collections::BTreeMap::new(),
        }
    }

    fn decided(
        record: &mut StoreRecord,
        intent: &SyncIntent,
        force: bool,
        verdict: Option<GateVerdict>,
    ) -> Option<ActivationDecision> {
        match step(record, intent, force, verdict, 0, |_| true) {
            DecisionStep::Done(decided) => Some(decided),
            DecisionStep::CheckGate(..) => None,
        }
    }

    #[test]
    fn without_a_gate_what_is_due_becomes_active() {
        let mut record = record();
        assert_eq!(
            decided(&mut record, &intent(false, false), false, None),
            Some(ActivationDecision::Activated(id(2), None))
        );
        assert_eq!(record.active, Some(id(2)));
        assert_eq!(decided(&mut record, &intent(false, false), false, None), Some(ActivationDecision::Nothing));
    }

    #[test]
    fn the_gate_is_asked_once_and_its_refusal_is_news_once() {
        let (mut record, intent) = (record(), intent(false, true));
        assert_eq!(decided(&mut record, &intent, false, None), None, "it has to be asked");
        let no = verdict(&intent, id(2), Some(id(1)), Some("no"));
        let first = decided(&mut record, &intent, false, Some(no.clone()));
        assert_eq!(first, Some(ActivationDecision::Refused(id(2), "no".into(), true)));
        assert_eq!(
            decided(&mut record, &intent, false, None),
            Some(ActivationDecision::Refused(id(2), "no".into(), false))
        );
        assert_eq!(record.active, Some(id(1)));
        let again = decided(&mut record, &intent, false, Some(no));
        assert_eq!(again, Some(ActivationDecision::Refused(id(2), "no".into(), false)), "said again, it is no news");
        assert_eq!(
            decided(&mut record, &intent, true, None),
            Some(ActivationDecision::Activated(id(2), Some("no".into())))
        );
    }

    #[test]
    fn another_active_version_or_other_rules_judge_anew() {
        let (mut record, gated) = (record(), intent(false, true));
        record.gate = Some(verdict(&gated, id(2), Some(id(3)), None));
        assert_eq!(decided(&mut record, &gated, false, None), None, "it was checked beside another version");
        record.gate = Some(verdict(&gated, id(2), Some(id(1)), Some("no")));
        let stricter = SyncIntent { gate: GateRules { min_pages: Some(9), ..GateRules::default() }, ..gated.clone() };
        assert_eq!(decided(&mut record, &stricter, false, None), None, "the rules have changed");
        // A decision that a person made during the gate's evaluation counts: the verdict is about other versions.
        record.activate(id(5), "t");
        let late = verdict(&gated, id(2), Some(id(1)), None);
        assert_eq!(decided(&mut record, &gated, false, Some(late)), None);
        let off = intent(false, false);
        assert_eq!(decided(&mut record, &off, false, None), Some(ActivationDecision::Activated(id(2), None)));
    }

    #[test]
    fn a_hold_is_not_overridden_by_force_and_a_person_promotes_in_manual_mode() {
        let (mut record, gated) = (record(), intent(false, true));
        record.hold = Some(ActivationHold { who: "me".into(), when: "t".into(), why: "x".into() });
        assert_eq!(decided(&mut record, &gated, true, None), Some(ActivationDecision::Nothing));
        record.hold = None;
        assert_eq!(decided(&mut record, &intent(true, false), true, None), Some(ActivationDecision::Staged(id(2))));
        record.gate = Some(verdict(&gated, id(2), Some(id(1)), Some("no")));
        assert_eq!(decided(&mut record, &intent(true, true), false, None), Some(ActivationDecision::Staged(id(2))));
        assert_eq!(record.active, Some(id(1)));
        let empty = &mut StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        assert_eq!(decided(empty, &intent(true, false), false, None), Some(ActivationDecision::Staged(id(2))));
        assert_eq!(empty.active, None, "a person fills the empty store, too");
    }

    #[test]
    fn what_is_not_whole_is_not_activated_and_the_version_before_is_told_from_the_verdict() {
        let mut record = record();
        let lost = step(&mut record, &intent(false, false), true, None, 0, |_| false);
        assert!(matches!(lost, DecisionStep::Done(ActivationDecision::Nothing)) && record.active == Some(id(1)));
        let gated = intent(false, true);
        let DecisionStep::CheckGate(version, against, before) = step(&mut record, &gated, true, None, 0, |_| true)
        else {
            panic!("force is no reason not to ask")
        };
        assert_eq!((version, against, before), (id(2), Some(id(1)), None));
        let yes = verdict(&gated, id(2), Some(id(1)), None);
        assert_eq!(
            decided(&mut record, &gated, false, Some(yes.clone())),
            Some(ActivationDecision::Activated(id(2), None))
        );
        assert_eq!((record.gate, record.active_since.as_deref()), (Some(yes), Some("1970-01-01T00:00:00Z")));
    }

    #[test]
    fn history_has_a_line_for_what_became_active_and_for_news_of_the_gate() {
        let dir = tempfile::tempdir().unwrap();
        let writer = crate::store::writer::StoreWriter::open(dir.path(), std::time::Duration::ZERO).unwrap();
        let no = || "no".to_owned();
        let cases = [
            (ActivationDecision::Nothing, None),
            (ActivationDecision::Staged(id(2)), None),
            (ActivationDecision::Refused(id(2), no(), false), None),
            (ActivationDecision::Refused(id(2), no(), true), Some(("kept back", Some("no")))),
            (ActivationDecision::Activated(id(2), None), Some(("activated", None))),
            (ActivationDecision::Activated(id(2), Some(no())), Some(("activated", Some("forced past the gate: no")))),
        ];
        for (decided, expected) in cases {
            let before = writer.history().unwrap().len();
            tell_history(&writer, "me", &decided);
            let history = writer.history().unwrap().split_off(before);
            let told: Vec<_> = history.iter().map(|event| (event.what.as_str(), event.note.as_deref())).collect();
            assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{decided:?}");
            assert!(history.iter().all(|event| event.version == Some(id(2)) && event.who == "me"), "{decided:?}");
        }
    }

    #[test]
    fn each_decision_has_its_outcome() {
        let active = Some(id(1));
        assert_eq!(outcome(ActivationDecision::Nothing, active), SyncOutcome::Current(active));
        assert_eq!(outcome(ActivationDecision::Nothing, None), SyncOutcome::Current(None));
        assert_eq!(
            outcome(ActivationDecision::Activated(id(2), Some("no".into())), active),
            SyncOutcome::Activated(id(2))
        );
        assert_eq!(outcome(ActivationDecision::Staged(id(2)), active), SyncOutcome::Staged(id(2)));
        for (active, says_so) in [(active, false), (None, true)] {
            let SyncOutcome::NotActive(of, why) =
                outcome(ActivationDecision::Refused(id(2), "no".into(), true), active)
            else {
                panic!("it is not active")
            };
            assert!(of == id(2) && why.starts_with("refused by the gate: no; "), "{why}");
            assert_eq!(why.contains("nothing is served yet"), says_so, "{why}");
            assert!(why.contains(&format!("`docwharf activate {}`", id(2).short())), "{why}");
        }
    }
}
