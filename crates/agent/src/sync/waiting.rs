//! The version that waits to become active, and the reason why it waits. Users see it as the staged version; the
//! store's folder `staging/` has nothing to do with it. This module does no I/O.

use crate::store::record::StoreRecord;
use docwharf_base::model::version::{VersionId, VersionLabel};

use super::{ActivationMode, SyncSettings};

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
    /// `activate.mode` is "manual": a person must activate it.
    ManualMode,
    /// The gate refuses it, for this reason.
    Gate(String),
    /// A hold must end.
    Hold,
    /// The next check of the source decides.
    NextCheck,
}

impl WaitingReason {
    /// The name in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            WaitingReason::ManualMode => "manual",
            WaitingReason::Gate(_) => "gate",
            WaitingReason::Hold => "hold",
            // The wire name is older than the term "check"; it must not change.
            WaitingReason::NextCheck => "look",
        }
    }
}

/// Returns the version that waits: with a pin the version with that label, without a pin the newest; `None` if there is
/// none or it is active. Without a readable configuration the record alone decides.
pub fn find_waiting_version(record: &StoreRecord, sync_settings: Option<&SyncSettings>) -> Option<WaitingVersion> {
    let version = record.waiting_version(
        sync_settings.and_then(|sync_settings| sync_settings.pin.as_ref()).map(VersionLabel::as_str),
    )?;
    let refused = record.gate.as_ref().filter(|verdict| verdict.version == version).and_then(|v| v.refused.clone());
    let reason = match refused {
        _ if record.hold.is_some() => WaitingReason::Hold,
        _ if sync_settings.is_some_and(|sync_settings| sync_settings.activation == ActivationMode::Manual) => {
            WaitingReason::ManualMode
        }
        Some(why) => WaitingReason::Gate(why),
        None => WaitingReason::NextCheck,
    };
    Some(WaitingVersion { version, reason })
}

/// Returns the last part of a message about a waiting version: how it becomes active.
pub fn activation_advice(waiting: &WaitingVersion) -> String {
    let id = waiting.version.short();
    match waiting.reason {
        WaitingReason::ManualMode => format!("`docwharf activate {id}` makes it active"),
        WaitingReason::Gate(_) => {
            format!("`docwharf activate {id}` activates it, or use --force with sync or import")
        }
        WaitingReason::Hold => "`docwharf release` ends the hold".to_owned(),
        WaitingReason::NextCheck => "the next check of the source decides whether it becomes active".to_owned(),
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
            conditions_digest: String::new(),
            refused: refused.map(str::to_owned),
            time: String::new(),
            address_settings_digest: String::new(),
            links: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn waiting_reason_is_hold_or_else_manual_mode_or_else_gate_or_else_next_check() {
        let manual = SyncSettings { activation: ActivationMode::Manual, ..SyncSettings::default() };
        let auto = SyncSettings::default();
        let (refused, accepted, other) = (verdict(id(2), Some("no")), verdict(id(2), None), verdict(id(3), Some("no")));
        let gate = || WaitingReason::Gate("no".to_owned());
        let cases = [
            (true, Some(&manual), Some(&refused), WaitingReason::Hold),
            (true, None, None, WaitingReason::Hold),
            (false, Some(&manual), Some(&refused), WaitingReason::ManualMode),
            (false, Some(&auto), Some(&refused), gate()),
            (false, None, Some(&refused), gate()),
            (false, Some(&auto), Some(&accepted), WaitingReason::NextCheck),
            (false, Some(&auto), Some(&other), WaitingReason::NextCheck),
            (false, Some(&auto), None, WaitingReason::NextCheck),
        ];
        for (is_held, sync_settings, gate, reason) in cases {
            let hold =
                is_held.then(|| ActivationHold { author: String::new(), when: String::new(), why: String::new() });
            let mut record = StoreRecord { newest: Some(id(2)), gate: gate.cloned(), hold, ..StoreRecord::default() };
            record.active = Some(id(1));
            let expected = WaitingVersion { version: id(2), reason };
            assert_eq!(find_waiting_version(&record, sync_settings), Some(expected), "{is_held} {gate:?}");
            record.active = Some(id(2));
            assert_eq!(find_waiting_version(&record, sync_settings), None, "it is active");
        }
    }

    #[test]
    fn pinned_version_is_the_waiting_version_and_each_waiting_reason_has_advice() {
        let pinned = SyncSettings { pin: Some(VersionLabel::new("L").unwrap()), ..SyncSettings::default() };
        let mut record = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        assert_eq!(find_waiting_version(&record, Some(&pinned)), None, "the label does not exist yet");
        let labelled = LabelledVersion { version: id(3), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".to_owned(), labelled);
        let version = |sync_settings| find_waiting_version(&record, sync_settings).map(|waiting| waiting.version);
        assert_eq!(
            (version(Some(&pinned)), version(Some(&SyncSettings::default())), version(None)),
            (Some(id(3)), Some(id(2)), Some(id(2)))
        );
        let activate = format!("`docwharf activate {}`", id(2).short());
        for (reason, name, advice) in [
            (WaitingReason::ManualMode, "manual", activate.as_str()),
            (WaitingReason::Gate(String::new()), "gate", "--force"),
            (WaitingReason::Hold, "hold", "`docwharf release`"),
            (WaitingReason::NextCheck, "look", "next check"),
        ] {
            assert_eq!(reason.name(), name);
            let text = activation_advice(&WaitingVersion { version: id(2), reason });
            assert!(text.contains(advice), "{text}");
        }
    }
}
