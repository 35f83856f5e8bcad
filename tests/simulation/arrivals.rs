//! What is newest, and what the source has: folded from what each look has seen and from what was imported, and held against
//! the record after each piece of work. A version that a source has withdrawn is not the newest any more; what was imported
//! is, until the source changes.

use docwharf::model::version::VersionId;
use docwharf::store::record::StoreRecord;

use super::sim::{Actor, Sim};

/// A version that comes, or is found to be there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A look at this source has found it; `demanded` by a person, whether or not the source has changed.
    Look { source: String, id: VersionId, demanded: bool },
    /// Somebody has brought it.
    Import(VersionId),
}

/// What the record has to say of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Newest {
    newest: Option<VersionId>,
    offered: Option<(String, VersionId)>,
}

#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    now: Newest,
    /// What the work under way has seen last.
    pending: Option<Arrival>,
    /// The work under way has had a bundle refused: a file that it sees afterwards is not taken.
    is_refused: bool,
}

impl Newest {
    fn of(record: Option<&StoreRecord>) -> Newest {
        record.map_or_else(Newest::default, |record| Newest {
            newest: record.newest,
            offered: record.offered.as_ref().map(|offered| (offered.source.clone(), offered.version)),
        })
    }

    fn after(&self, arrival: &Arrival, is_there: impl Fn(VersionId) -> bool) -> Newest {
        match arrival {
            Arrival::Import(id) => Newest { newest: Some(*id), offered: self.offered.clone() },
            Arrival::Look { source, id, demanded } => {
                let offered = Some((source.clone(), *id));
                let stays = !demanded && self.offered == offered;
                let newest = self.newest.filter(|&newest| stays && is_there(newest)).or(Some(*id));
                Newest { newest, offered }
            }
        }
    }
}

impl Arrivals {
    /// The work under way has found this.
    pub(crate) fn see(&mut self, arrival: Arrival) {
        self.pending = Some(arrival).filter(|_| !self.is_refused);
    }

    /// The work under way has proved a bundle, or failed to.
    pub(crate) fn prove(&mut self, arrival: Option<Arrival>) {
        self.is_refused = arrival.is_none();
        self.pending = arrival;
    }

    /// The record says so now, for reasons of its own: it was lost, or a power cut has taken back the last one.
    pub(crate) fn accept(&mut self, record: Option<&StoreRecord>) {
        self.now = Newest::of(record);
    }
}

impl Sim {
    /// Work has ended, well or not: in an error or a crash, what it has found may have been written down or not.
    pub(crate) fn check_newest(&self, is_done: bool) {
        let wrong = self.with(|s| {
            let arrivals = &mut s.rules.arrivals;
            let pending = arrivals.pending.take();
            arrivals.is_refused = false;
            if s.disk.garbled {
                return None; // it is made again at the next reading
            }
            let before = arrivals.now.clone();
            let is_there = |id| s.disk.versions.contains_key(&id);
            let after = pending.as_ref().map_or_else(|| before.clone(), |arrival| before.after(arrival, is_there));
            arrivals.accept(s.disk.record.as_ref());
            let is_right = arrivals.now == after || (!is_done && arrivals.now == before);
            (!is_right).then(|| format!("{pending:?} has made {:?} of {before:?}, not {after:?}", arrivals.now))
        });
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// A look finds that a source has this version, if it is work that looks.
    pub(crate) fn sees(&self, source: &str, id: VersionId) {
        self.with(|s| {
            if matches!(s.actor, Actor::Work { .. }) {
                s.rules.arrivals.see(Arrival::Look { source: source.to_owned(), id, demanded: false });
            }
        });
    }
}
