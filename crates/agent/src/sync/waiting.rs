//! The version that waits to become active, and the reason why it waits. This module does no I/O.

use crate::store::record::StoreRecord;
use docwharf_base::model::version::{VersionId, VersionLabel};

use super::{ActivationMode, SyncIntent};

/// A version that is stored and would be next, but is not active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingVersion {
    /// The version's id.
    pub version: VersionId,
    /// The reason why it waits.
    pub reason: WaitingReason,
}

/// The reason why a version waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingReason {
    /// A person must activate it: `activate.mode` is "manual".
    Person,
    /// The gate refuses it, for this reason.
    Gate(String),
    /// A hold must end.
    Release,
    /// The next check of the source decides.
    NextCheck,
}

impl WaitingReason {
    /// The name in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            WaitingReason::Person => "manual",
            WaitingReason::Gate(_) => "gate",
            WaitingReason::Release => "hold",
            WaitingReason::NextCheck => "look",
        }
    }
}

/// Returns the version that waits: the pinned one, else the newest, unless it is active. Without a readable
/// configuration the record alone decides.
pub fn find_waiting_version(record: &StoreRecord, intent: Option<&SyncIntent>) -> Option<WaitingVersion> {
    let version = record.waiting_version(intent.and_then(|intent| intent.pin.as_ref()).map(VersionLabel::as_str))?;
    let refused = record.gate.as_ref().filter(|verdict| verdict.version == version).and_then(|v| v.refused.clone());
    let reason = match refused {
        _ if record.hold.is_some() => WaitingReason::Release,
        _ if intent.is_some_and(|intent| intent.activation == ActivationMode::Manual) => WaitingReason::Person,
        Some(why) => WaitingReason::Gate(why),
        None => WaitingReason::NextCheck,
    };
    Some(WaitingVersion { version, reason })
}

/// Returns the last part of a message about a waiting version: how it becomes active.
pub fn next_step_hint(waiting: &WaitingVersion) -> String {
    let id = waiting.version.short();
    match waiting.reason {
        WaitingReason::Person => format!("`docwharf activate {id}` makes it active"),
        WaitingReason::Gate(_) => {
            format!("`docwharf activate {id}` activates it, or use --force with sync or import")
        }
        WaitingReason::Release => "`docwharf release` ends the hold".to_owned(),
        WaitingReason::NextCheck => "the next check of the source activates it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::{ActivationHold, GateVerdict, LabelledVersion};
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    fn verdict(version: VersionId, refused: Option<&str>) -> GateVerdict {
        GateVerdict {
            version,
            against: None,
            rules: String::new(),
            refused: refused.map(str::to_owned),
            time: String::new(),
            addresses: String::new(),
            links: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn waiting_reason_is_hold_or_else_manual_mode_or_else_gate_or_else_next_check() {
        let manual = SyncIntent { activation: ActivationMode::Manual, ..SyncIntent::default() };
        let auto = SyncIntent::default();
        let (refused, accepted, other) = (verdict(id(2), Some("no")), verdict(id(2), None), verdict(id(3), Some("no")));
        let gate = || WaitingReason::Gate("no".to_owned());
        let cases = [
            (true, Some(&manual), Some(&refused), WaitingReason::Release),
            (true, None, None, WaitingReason::Release),
            (false, Some(&manual), Some(&refused), WaitingReason::Person),
            (false, Some(&auto), Some(&refused), gate()),
            (false, None, Some(&refused), gate()),
            (false, Some(&auto), Some(&accepted), WaitingReason::NextCheck),
            (false, Some(&auto), Some(&other), WaitingReason::NextCheck),
            (false, Some(&auto), None, WaitingReason::NextCheck),
        ];
        for (is_held, intent, gate, reason) in cases {
            let hold = is_held.then(|| ActivationHold { who: String::new(), when: String::new(), why: String::new() });
            let mut record = StoreRecord { newest: Some(id(2)), gate: gate.cloned(), hold, ..StoreRecord::default() };
            record.active = Some(id(1));
            let expected = WaitingVersion { version: id(2), reason };
            assert_eq!(find_waiting_version(&record, intent), Some(expected), "{is_held} {gate:?}");
            record.active = Some(id(2));
            assert_eq!(find_waiting_version(&record, intent), None, "it is active");
        }
    }

    #[test]
    fn pinned_version_is_the_waiting_version_and_each_waiting_reason_has_a_hint() {
        let pinned = SyncIntent { pin: Some(VersionLabel::new("L").unwrap()), ..SyncIntent::default() };
        let mut record = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        assert_eq!(find_waiting_version(&record, Some(&pinned)), None, "the label does not exist yet");
        let labelled = LabelledVersion { version: id(3), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".to_owned(), labelled);
        let version = |intent| find_waiting_version(&record, intent).map(|waiting| waiting.version);
        assert_eq!(
            (version(Some(&pinned)), version(Some(&SyncIntent::default())), version(None)),
            (Some(id(3)), Some(id(2)), Some(id(2)))
        );
        let activate = format!("`docwharf activate {}`", id(2).short());
        for (reason, name, hint) in [
            (WaitingReason::Person, "manual", activate.as_str()),
            (WaitingReason::Gate(String::new()), "gate", "--force"),
            (WaitingReason::Release, "hold", "`docwharf release`"),
            (WaitingReason::NextCheck, "look", "next check"),
        ] {
            assert_eq!(reason.name(), name);
            let text = next_step_hint(&WaitingVersion { version: id(2), reason });
            assert!(text.contains(hint), "{text}");
        }
    }
}
