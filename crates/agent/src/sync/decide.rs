//! The decision whether the version that is due becomes active. A hold, the pin, a person and the gate take part in it.

use docwharf_base::model::units::show_unix;
use docwharf_base::model::version::{VersionLabel, VersionId};
use crate::store::keeper::Keeper;
use crate::store::record::{Record, Verdict};

use super::staged::{Staged, Waits, way_out};
use super::workshop::Workshop;
use super::{Activation, Intent, Outcome, SyncError};

/// The decision about the version that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decided {
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
pub struct Asker<'a> {
    /// The user or process that asks, for history.
    pub who: &'a str,
    /// Whether the version that is due becomes active without the gate.
    pub force: bool,
    /// Returns true once the request is cancelled.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Returns the configuration in force now: it may have changed since the work began.
    pub in_force: &'a dyn Fn() -> Intent,
}

/// The `stop` of a request that is never cancelled.
pub(super) const NEVER: &(dyn Fn() -> bool + Sync) = &|| false;

/// A step towards a decision.
pub(super) enum Step {
    Done(Decided),
    /// The gate has to evaluate this version against this active one; with its previous verdict.
    Judge(VersionId, Option<VersionId>, Option<Verdict>),
}

/// Decides about the version that is due. `apply` lets a step read and change the record while no other thread does.
/// The gate is evaluated between steps, because reading pages takes a while and people's commands must not wait for it.
/// If it is cancelled, nothing is decided: [`SyncError::Interrupted`].
pub(super) fn decide<W: Workshop>(
    shop: &W,
    asker: Asker<'_>,
    mut apply: impl FnMut(&mut dyn FnMut(&mut Record) -> Step) -> Result<Step, SyncError>,
) -> Result<Decided, SyncError> {
    let mut verdict = None;
    loop {
        let mut counted = None;
        // The configuration is read while no other thread decides: a pin that is set in between must not be undone.
        let step = apply(&mut |record| {
            let intent = counted.insert((asker.in_force)());
            step(record, intent, asker.force, verdict.take(), shop.now(), |id| shop.has_whole(id))
        })?;
        match (step, counted) {
            (Step::Done(decided), _) => return Ok(decided),
            // Opening a version may take a while, too.
            (Step::Judge(id, active, before), Some(intent)) if !(asker.stop)() => {
                verdict = Some(shop.judge(&intent, id, active, before.as_ref(), asker.stop)?);
            }
            (Step::Judge(..), _) => return Err(SyncError::Interrupted),
        }
    }
}

/// Makes the version that is due active, unless a person or the gate has to decide. `verdict` is new.
fn step(
    record: &mut Record,
    intent: &Intent,
    force: bool,
    verdict: Option<Verdict>,
    now: i64,
    has: impl Fn(VersionId) -> bool,
) -> Step {
    let said = |verdict: Option<&Verdict>| verdict.map(|verdict| (verdict.version, verdict.refused.clone()));
    let is_news = verdict.is_some() && said(verdict.as_ref()) != said(record.gate.as_ref());
    if verdict.is_some() {
        record.gate = verdict;
    }
    let due = record.due(intent.pin.as_ref().map(VersionLabel::as_str));
    let Some(id) = due.filter(|&id| record.active != Some(id) && has(id)) else {
        return Step::Done(Decided::Nothing);
    };
    let mut refused = None;
    if !intent.gate.is_off() {
        match record.gate.as_ref().filter(|verdict| intent.gate.covers(verdict, id, record.active)) {
            Some(verdict) => refused.clone_from(&verdict.refused),
            None => return Step::Judge(id, record.active, record.gate.clone()),
        }
    }
    Step::Done(match refused {
        _ if intent.activation == Activation::Manual => Decided::Staged(id),
        Some(why) if !force => Decided::Refused(id, why, is_news),
        refused => {
            record.activate(id, &show_unix(now));
            Decided::Activated(id, refused)
        }
    })
}

/// Appends a decision to history, if it changes something.
pub(super) fn tell_history<K: Keeper>(keeper: &K, who: &str, decided: &Decided) {
    match decided {
        Decided::Activated(id, refused) => {
            let note = refused.as_ref().map(|why| format!("forced past the gate: {why}"));
            keeper.note(who, "activated", Some(*id), note);
        }
        Decided::Refused(id, why, true) => keeper.note(who, "kept back", Some(*id), Some(why.clone())),
        Decided::Nothing | Decided::Staged(_) | Decided::Refused(..) => {}
    }
}

/// Converts a decision into the outcome that is shown to people.
pub(super) fn outcome(decided: Decided, active: Option<VersionId>) -> Outcome {
    match decided {
        Decided::Nothing => Outcome::Current(active),
        Decided::Activated(id, _) => Outcome::Activated(id),
        Decided::Staged(id) => Outcome::Staged(id),
        Decided::Refused(id, why, _) => {
            let nothing = if active.is_none() { "nothing is served yet; " } else { "" };
            let staged = Staged { version: id, waits: Waits::Gate(String::new()) };
            Outcome::NotActive(id, format!("refused by the gate: {why}; {nothing}{}", way_out(&staged)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;
    use crate::store::record::Hold;
    use crate::sync::gate::Gate;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    fn intent(manual: bool, gated: bool) -> Intent {
        let gate = Gate { min_pages: gated.then_some(1), ..Gate::default() };
        let activation = if manual { Activation::Manual } else { Activation::Auto };
        Intent { gate, activation, ..Intent::default() }
    }

    fn record() -> Record {
        let mut record = Record { newest: Some(id(2)), ..Record::default() };
        record.activate(id(1), "t");
        record
    }

    fn verdict(intent: &Intent, version: VersionId, against: Option<VersionId>, refused: Option<&str>) -> Verdict {
        Verdict {
            version,
            against,
            rules: intent.gate.rules(),
            refused: refused.map(str::to_owned),
            time: String::new(),
            addresses: String::new(),
            links: std::collections::BTreeMap::new(),
        }
    }

    fn decided(record: &mut Record, intent: &Intent, force: bool, verdict: Option<Verdict>) -> Option<Decided> {
        match step(record, intent, force, verdict, 0, |_| true) {
            Step::Done(decided) => Some(decided),
            Step::Judge(..) => None,
        }
    }

    #[test]
    fn without_a_gate_what_is_due_becomes_active() {
        let mut record = record();
        assert_eq!(decided(&mut record, &intent(false, false), false, None), Some(Decided::Activated(id(2), None)));
        assert_eq!(record.active, Some(id(2)));
        assert_eq!(decided(&mut record, &intent(false, false), false, None), Some(Decided::Nothing));
    }

    #[test]
    fn the_gate_is_asked_once_and_its_refusal_is_news_once() {
        let (mut record, intent) = (record(), intent(false, true));
        assert_eq!(decided(&mut record, &intent, false, None), None, "it has to be asked");
        let no = verdict(&intent, id(2), Some(id(1)), Some("no"));
        let first = decided(&mut record, &intent, false, Some(no.clone()));
        assert_eq!(first, Some(Decided::Refused(id(2), "no".into(), true)));
        assert_eq!(decided(&mut record, &intent, false, None), Some(Decided::Refused(id(2), "no".into(), false)));
        assert_eq!(record.active, Some(id(1)));
        let again = decided(&mut record, &intent, false, Some(no));
        assert_eq!(again, Some(Decided::Refused(id(2), "no".into(), false)), "said again, it is no news");
        assert_eq!(decided(&mut record, &intent, true, None), Some(Decided::Activated(id(2), Some("no".into()))));
    }

    #[test]
    fn another_active_version_or_other_rules_judge_anew() {
        let (mut record, gated) = (record(), intent(false, true));
        record.gate = Some(verdict(&gated, id(2), Some(id(3)), None));
        assert_eq!(decided(&mut record, &gated, false, None), None, "it was judged beside another version");
        record.gate = Some(verdict(&gated, id(2), Some(id(1)), Some("no")));
        let stricter = Intent { gate: Gate { min_pages: Some(9), ..Gate::default() }, ..gated.clone() };
        assert_eq!(decided(&mut record, &stricter, false, None), None, "the rules have changed");
        // A decision that a person made during the gate's evaluation counts: the verdict is about other versions.
        record.activate(id(5), "t");
        let late = verdict(&gated, id(2), Some(id(1)), None);
        assert_eq!(decided(&mut record, &gated, false, Some(late)), None);
        let off = intent(false, false);
        assert_eq!(decided(&mut record, &off, false, None), Some(Decided::Activated(id(2), None)));
    }

    #[test]
    fn a_hold_is_not_overridden_by_force_and_a_person_promotes_in_manual_mode() {
        let (mut record, gated) = (record(), intent(false, true));
        record.hold = Some(Hold { who: "me".into(), when: "t".into(), why: "x".into() });
        assert_eq!(decided(&mut record, &gated, true, None), Some(Decided::Nothing));
        record.hold = None;
        assert_eq!(decided(&mut record, &intent(true, false), true, None), Some(Decided::Staged(id(2))));
        record.gate = Some(verdict(&gated, id(2), Some(id(1)), Some("no")));
        assert_eq!(decided(&mut record, &intent(true, true), false, None), Some(Decided::Staged(id(2))));
        assert_eq!(record.active, Some(id(1)));
        let empty = &mut Record { newest: Some(id(2)), ..Record::default() };
        assert_eq!(decided(empty, &intent(true, false), false, None), Some(Decided::Staged(id(2))));
        assert_eq!(empty.active, None, "a person fills the empty store, too");
    }

    #[test]
    fn what_is_not_whole_is_not_activated_and_the_version_before_is_told_from_the_verdict() {
        let mut record = record();
        let lost = step(&mut record, &intent(false, false), true, None, 0, |_| false);
        assert!(matches!(lost, Step::Done(Decided::Nothing)) && record.active == Some(id(1)));
        let gated = intent(false, true);
        let Step::Judge(version, against, before) = step(&mut record, &gated, true, None, 0, |_| true) else {
            panic!("force is no reason not to ask")
        };
        assert_eq!((version, against, before), (id(2), Some(id(1)), None));
        let yes = verdict(&gated, id(2), Some(id(1)), None);
        assert_eq!(decided(&mut record, &gated, false, Some(yes.clone())), Some(Decided::Activated(id(2), None)));
        assert_eq!((record.gate, record.active_since.as_deref()), (Some(yes), Some("1970-01-01T00:00:00Z")));
    }

    #[test]
    fn history_has_a_line_for_what_became_active_and_for_news_of_the_gate() {
        let dir = tempfile::tempdir().unwrap();
        let writer = crate::store::writer::Writer::open(dir.path(), std::time::Duration::ZERO).unwrap();
        let no = || "no".to_owned();
        let cases = [
            (Decided::Nothing, None),
            (Decided::Staged(id(2)), None),
            (Decided::Refused(id(2), no(), false), None),
            (Decided::Refused(id(2), no(), true), Some(("kept back", Some("no")))),
            (Decided::Activated(id(2), None), Some(("activated", None))),
            (Decided::Activated(id(2), Some(no())), Some(("activated", Some("forced past the gate: no")))),
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
        assert_eq!(outcome(Decided::Nothing, active), Outcome::Current(active));
        assert_eq!(outcome(Decided::Nothing, None), Outcome::Current(None));
        assert_eq!(outcome(Decided::Activated(id(2), Some("no".into())), active), Outcome::Activated(id(2)));
        assert_eq!(outcome(Decided::Staged(id(2)), active), Outcome::Staged(id(2)));
        for (active, says_so) in [(active, false), (None, true)] {
            let Outcome::NotActive(of, why) = outcome(Decided::Refused(id(2), "no".into(), true), active) else {
                panic!("it is not active")
            };
            assert!(of == id(2) && why.starts_with("refused by the gate: no; "), "{why}");
            assert_eq!(why.contains("nothing is served yet"), says_so, "{why}");
            assert!(why.contains(&format!("`docwharf activate {}`", id(2).short())), "{why}");
        }
    }
}
