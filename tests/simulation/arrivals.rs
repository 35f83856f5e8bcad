//! The newest version and the version of the source, computed from the results of all checks and imports, and compared
//! with the record after each task. A version that a source has withdrawn is not the newest any more; an imported
//! version is the newest until the source changes.

use docwharf::model::version::VersionId;
use docwharf::store::record::StoreRecord;

use super::sim::{Actor, Sim};

/// A version that arrives, or that a check finds to be stored already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A check of this source has found the version; `is_refresh` if a person requested the source's version.
    SourceCheck { source: String, id: VersionId, is_refresh: bool },
    /// It was imported.
    Import(VersionId),
}

/// The fields of the record that depend on arrivals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ArrivalState {
    newest: Option<VersionId>,
    offered: Option<(String, VersionId)>,
}

/// The expected state of these fields.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    current: ArrivalState,
    /// The last arrival in the current task.
    pending: Option<Arrival>,
    /// Whether a bundle was refused in the current task: a file that is found afterwards is not accepted.
    is_refused: bool,
}

impl ArrivalState {
    fn from_record(record: Option<&StoreRecord>) -> ArrivalState {
        record.map_or_else(ArrivalState::default, |record| ArrivalState {
            newest: record.newest,
            offered: record.offered.as_ref().map(|offered| (offered.source.clone(), offered.version)),
        })
    }

    fn after(&self, arrival: &Arrival, is_stored: impl Fn(VersionId) -> bool) -> ArrivalState {
        match arrival {
            Arrival::Import(id) => ArrivalState { newest: Some(*id), offered: self.offered.clone() },
            Arrival::SourceCheck { source, id, is_refresh } => {
                let offered = Some((source.clone(), *id));
                let is_unchanged = !is_refresh && self.offered == offered;
                let newest = self.newest.filter(|&newest| is_unchanged && is_stored(newest)).or(Some(*id));
                ArrivalState { newest, offered }
            }
        }
    }
}

impl Arrivals {
    /// Records that the current task has found an arrival.
    pub(crate) fn record_arrival(&mut self, arrival: Arrival) {
        self.pending = Some(arrival).filter(|_| !self.is_refused);
    }

    /// Records that the current task has verified a bundle, or refused it.
    pub(crate) fn record_verification(&mut self, arrival: Option<Arrival>) {
        self.is_refused = arrival.is_none();
        self.pending = arrival;
    }

    /// Takes over the fields of the record after it was lost, or after a power cut has undone its last write.
    pub(crate) fn reset_to(&mut self, record: Option<&StoreRecord>) {
        self.current = ArrivalState::from_record(record);
    }
}

impl Sim {
    /// Checks the record after a task. After an error or a crash, the arrival may have been written or not.
    pub(crate) fn check_newest(&self, is_done: bool) {
        let fault = self.with(|s| {
            let arrivals = &mut s.rules.arrivals;
            let pending = arrivals.pending.take();
            arrivals.is_refused = false;
            if s.disk.record_damaged {
                return None; // it is recovered when it is read
            }
            let before = arrivals.current.clone();
            let is_stored = |id| s.disk.versions.contains_key(&id);
            let after = pending.as_ref().map_or_else(|| before.clone(), |arrival| before.after(arrival, is_stored));
            arrivals.reset_to(s.disk.record.as_ref());
            let is_expected = arrivals.current == after || (!is_done && arrivals.current == before);
            (!is_expected)
                .then(|| format!("{pending:?} has changed {before:?} to {:?}, not to {after:?}", arrivals.current))
        });
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Records that a check has found this version at a source, if the current actor is a task.
    pub(crate) fn note_check(&self, source: &str, id: VersionId) {
        self.with(|s| {
            if matches!(s.actor, Actor::Task { .. }) {
                s.rules.arrivals.record_arrival(Arrival::SourceCheck {
                    source: source.to_owned(),
                    id,
                    is_refresh: false,
                });
            }
        });
    }
}
