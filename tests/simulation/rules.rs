//! The promises, checked at every effect. What is needed for that is kept here, and nothing else: the model knows what has
//! happened, not what should be done next.

use std::collections::BTreeMap;
use std::time::Duration;

use docwharf::base::backoff;
use docwharf::model::version::{VersionId, VersionLabel};
use docwharf::net::request_error::{RequestError, RequestErrorCause};
use docwharf::store::record::StoreRecord;
use docwharf::sync::activation::SyncReport;
use docwharf::sync::{ActivationMode, SyncError};

use super::arrivals::Arrivals;
use super::disk::Content;
use super::sim::{Actor, Sim, State};
use super::upstream;

/// Clocks that count whole seconds, and pauses that are written down as such.
const ROUNDING: Duration = Duration::from_secs(2);

/// Who is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host {
    Api,
    Storage,
    Files,
    Docs,
}

/// What the operator has said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Will {
    /// Nothing is held.
    #[default]
    Free,
    /// This version stays, whatever comes.
    Held(Option<VersionId>),
}

// Each tells of something that has happened, and none excludes another.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Before this moment a host is not called again.
    quiet: BTreeMap<Host, Duration>,
    /// Before this moment no sync calls anybody: the one before has failed.
    patience: Duration,
    /// Failures in a row that nobody has reset.
    failures: u32,
    /// What the operator has said.
    pub(crate) will: Will,
    /// The wall's clock was put forward since the last failure.
    clock: bool,
    /// An order is being carried out.
    pub(crate) ordered: bool,
    /// A write of the record has failed since the work under way began.
    pub(crate) write_failed: bool,
    /// How a sync ended could not be written down, and none has gone well since.
    pub(crate) unrecorded: bool,
    /// The record that is there has not been synced, and nobody was promised anything.
    pub(crate) unsynced: bool,
    /// History has lost a line.
    pub(crate) untold: bool,
    /// The process died while an order was being carried out.
    unsure: bool,
    /// What the work under way has brought as a new version: nothing else may be withdrawn.
    pub(crate) brought: Option<VersionId>,
    /// What is newest.
    pub(crate) arrivals: Arrivals,
}

impl Rules {
    /// Somebody wants it now: whatever there was to wait for is forgotten.
    pub(crate) fn excuse(&mut self) {
        self.quiet.clear();
        self.patience = Duration::ZERO;
        (self.failures, self.unrecorded) = (0, false);
    }

    /// What is counted by the wall's clock may be over sooner: the waiting of a process that comes back, and that of
    /// servers that answer no probes.
    pub(crate) fn clock_was_set(&mut self, forward: bool) {
        self.clock |= forward;
        self.quiet.remove(&Host::Docs);
    }

    /// How a sync has ended.
    pub(crate) fn ended(&mut self, result: &Result<SyncReport, SyncError>, now: Duration, every: Duration) {
        // Until one goes well: what was written down later counts from what was written down before.
        self.unrecorded |= self.write_failed;
        match result {
            Ok(SyncReport { too_early: Some(_), .. }) | Err(SyncError::Interrupted) => {}
            Ok(_) => (self.failures, self.unrecorded) = (0, self.write_failed),
            Err(error) => {
                self.failures += 1;
                let at_least = backoff::wait_after_failures(self.failures).min(every).mul_f64(0.9);
                self.clock = false;
                if !error.is_absence() {
                    self.patience = now + at_least.saturating_sub(ROUNDING);
                }
            }
        }
    }
}

impl State {
    fn known_jobs(&self) -> Vec<String> {
        let jobs =
            |record: &StoreRecord| record.job.iter().chain(&record.jobs_elsewhere).map(|job| job.id.clone()).collect();
        self.disk.record.as_ref().map_or_else(Vec::new, jobs)
    }

    /// A version that `after` names, that `before` does not, and that is not there yet: if the machine stopped now, it would
    /// be named for nothing.
    fn named_too_early(&self, before: &StoreRecord, after: &StoreRecord) -> Option<VersionId> {
        let named = |record: &StoreRecord| -> Vec<VersionId> {
            record.newest.into_iter().chain(record.labels.values().map(|label| label.version)).collect()
        };
        let before = named(before);
        named(after).into_iter().find(|id| !before.contains(id) && !self.disk.versions.contains_key(id))
    }

    /// What the record says of it.
    pub(crate) fn will(&self) -> Will {
        match &self.disk.record {
            Some(record) if record.hold.is_some() => Will::Held(record.active),
            _ => Will::Free,
        }
    }
}

/// What a person decides leaves what has arrived as it is.
fn wrong_by_an_order(before: &StoreRecord, after: &StoreRecord) -> Option<String> {
    let arrived = |record: &StoreRecord| (record.newest, record.offered.clone(), record.labels.clone());
    (arrived(before) != arrived(after)).then(|| "an order has changed what is newest, or a label".to_owned())
}

/// Without work and without a person nothing becomes active, held or newest.
fn wrong_by_itself(before: &StoreRecord, after: &StoreRecord) -> Option<String> {
    let decided = |record: &StoreRecord| (record.active, record.previous, record.hold.clone());
    let wrong =
        (decided(before) != decided(after)).then(|| "the daemon by itself has changed what is active".to_owned());
    wrong.or_else(|| wrong_by_an_order(before, after))
}

impl Sim {
    /// Before a call leaves.
    pub(crate) fn check_call(&self, host: Host) {
        let wrong = self.with(|s| {
            if !s.daemon.config.enabled {
                return Some("a call though it is disabled".to_owned());
            }
            let until = s.rules.quiet.get(&host).copied().unwrap_or_default();
            if s.elapsed < until {
                let early = until.saturating_sub(s.elapsed).as_secs_f64();
                return Some(format!("{host:?} is called {early:.1} s too early after trouble"));
            }
            if s.elapsed < s.rules.patience {
                let early = s.rules.patience.saturating_sub(s.elapsed).as_secs_f64();
                return Some(format!("{host:?} is called {early:.1} s too early after failure {}", s.rules.failures));
            }
            None
        });
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// After a call that has brought trouble.
    pub(crate) fn note_trouble(&self, host: Host, trouble: &RequestError) {
        let dead_link = matches!(trouble.cause, RequestErrorCause::Status(401 | 403 | 410)) && host != Host::Api;
        // That there is no such job is an answer like any other.
        let unknown = trouble.cause == RequestErrorCause::Status(404);
        let least =
            if dead_link || unknown || host == Host::Docs { Duration::ZERO } else { Duration::from_millis(500) };
        let wait = trouble.retry_after.map_or(Duration::ZERO, |wait| wait.saturating_sub(ROUNDING)).max(least);
        self.with(|s| s.rules.quiet.insert(host, s.elapsed + wait));
    }

    /// Before an export job is started.
    pub(crate) fn check_start(&self, source: &str) {
        let running = self.with(|s| {
            let timeout = s.intent.job_timeout;
            let running = |job: &&upstream::Job| {
                job.ours
                    && job.source == source
                    && job.state(s.elapsed) == upstream::State::Working
                    && job.age(s.elapsed, s.jumped) + ROUNDING < timeout
            };
            s.upstream.jobs.iter().find(running).map(|job| job.id.clone())
        });
        if let Some(id) = running {
            self.broken(format!("a second job of ours is started beside {id}"));
        }
    }

    /// After a sync that began at this moment: what it gave up has had its time, the wall's clock telling only how old a job
    /// was that had been started before.
    pub(crate) fn check_given_up(&self, result: &Result<SyncReport, SyncError>, began: Duration) {
        let Err(SyncError::JobTimeout { id, after, .. }) = result else { return };
        let age = self.with(|s| {
            let job = &s.upstream.jobs[s.upstream.job(id)?];
            let is_new = job.asked >= began;
            Some(if is_new { s.elapsed.saturating_sub(job.asked) } else { job.age(s.elapsed, s.jumped) })
        });
        if let Some(age) = age.filter(|&age| age + ROUNDING < *after) {
            self.broken(format!("{id} is given up after {:.1} s", age.as_secs_f64()));
        }
    }

    /// Jobs that have had their time and that the record has let go are ours no more, whatever is configured afterwards.
    pub(crate) fn give_up_jobs(&self) {
        self.with(|s| {
            let known = s.known_jobs();
            let (now, jumped, timeout) = (s.elapsed, s.jumped, s.intent.job_timeout);
            for job in s.upstream.jobs.iter_mut().filter(|job| !known.contains(&job.id)) {
                job.ours &= job.age(now, jumped) + ROUNDING < timeout;
            }
            if s.rules.write_failed {
                // Who could not write down that a server asks to be left alone has forgotten it.
                s.rules.quiet.remove(&Host::Docs);
            }
        });
    }

    /// Jobs of which the record does not know are ours no more, if there is an excuse for not knowing.
    pub(crate) fn forget_jobs(&self) {
        self.with(|s| {
            let known = s.known_jobs();
            for job in s.upstream.jobs.iter_mut().filter(|job| !known.contains(&job.id)) {
                job.ours = false;
            }
        });
    }

    /// Before a record replaces the one on disk.
    pub(crate) fn check_write(&self, after: &StoreRecord) {
        let wrong = self.with(|s| {
            let before = s.disk.record.clone().unwrap_or_default();
            if s.disk.garbled {
                return None;
            }
            let force = match s.actor {
                Actor::Work { force } => force,
                Actor::Releasing => false,
                // Which version it may be, and whether it is held, is for `check_will` to say.
                Actor::Operator => return wrong_by_an_order(&before, after),
                Actor::Daemon => return wrong_by_itself(&before, after),
            };
            if after.hold != before.hold {
                return Some("work has changed a hold".to_owned());
            }
            if let Some(id) = s.named_too_early(&before, after) {
                return Some(format!("the record names {}, which is not there", id.short()));
            }
            // One that was given by a write that has failed was never given.
            let stays = |label: &String| after.labels.contains_key(label);
            let mut given = before.labels.iter().filter(|(_, given)| s.disk.versions.contains_key(&given.version));
            if let Some((label, _)) = given.find(|(label, _)| !stays(label))
                && !s.rules.write_failed
            {
                return Some(format!("the label {label} is lost"));
            }
            let Some(id) = after.active.filter(|_| after.active != before.active) else {
                return (after.active != before.active).then(|| "nothing is active any more".to_owned());
            };
            if before.hold.is_some() {
                return Some("another version becomes active while held".to_owned());
            }
            let due = |pin: Option<&VersionLabel>| match pin {
                Some(pin) => after.labels.get(pin.as_str()).map(|label| label.version),
                None => after.newest,
            };
            let config = &s.daemon.config;
            if due(config.pin.as_ref()) != Some(id) {
                return Some(
                    "what becomes active is not what the pin in force names, nor newest without one".to_owned(),
                );
            }
            if config.activation == ActivationMode::Manual {
                return Some("what only a person may make active becomes so by itself".to_owned());
            }
            let pages = s.disk.versions.get(&id).map_or(0, |version| version.content.pages);
            if !force && pages < config.gate.min_pages.unwrap_or(0) {
                return Some("what the gate refuses becomes active".to_owned());
            }
            None
        });
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// Whenever something has changed: what is active is there, whole and proven, and what the operator has said counts.
    pub(crate) fn check_standing(&self) {
        let wrong = self.with(|s| {
            if s.disk.garbled {
                return None;
            }
            let record = s.disk.record.as_ref()?;
            if let Some(id) = record.active {
                match s.disk.versions.get(&id) {
                    None => return Some(format!("the active version {} is not there", id.short())),
                    Some(version) if version.content.hostile || super::sim::id_of(version.content) != id => {
                        return Some("the active version is not proven".to_owned());
                    }
                    Some(_) => {}
                }
            }
            let is_ordered = s.rules.ordered || s.actor.is_person();
            if !is_ordered && !s.disk.lost && s.will() != s.rules.will {
                return Some("a hold is not as the operator left it".to_owned());
            }
            None
        });
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// Before a version is pruned: nothing is that the record needs, or that is served.
    pub(crate) fn check_removal(&self, id: VersionId) {
        let wrong = self.with(|s| {
            let shown = s.daemon.shown.as_ref().is_some_and(|(shown, _)| *shown == id);
            let record = s.disk.record.as_ref();
            let labelled = record.is_some_and(|r| r.labels.values().any(|label| label.version == id));
            let named = record.is_some_and(|r| [r.active, r.previous, r.newest].contains(&Some(id)));
            (shown || named || labelled).then(|| format!("{} is removed though it is in use", id.short()))
        });
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// Before a version that could not be filed is taken out again: it is one that this very work has brought, and
    /// nobody has chosen it meanwhile. A label or a place as the newest that it was given has never been promised.
    pub(crate) fn check_withdrawal(&self, id: VersionId) {
        let wrong = self.with(|s| {
            let shown = s.daemon.shown.as_ref().is_some_and(|(shown, _)| *shown == id);
            let record = s.disk.record.as_ref();
            let named = record.is_some_and(|r| [r.active, r.previous].contains(&Some(id)));
            if shown || named {
                return Some(format!("{} is withdrawn though it is in use", id.short()));
            }
            (s.rules.brought != Some(id)).then(|| format!("{} is withdrawn though it was there before", id.short()))
        });
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// After a start that shows this version: what a gate or manual activation may have kept back is never fallen back
    /// to.
    pub(crate) fn check_shown(&self, record: &StoreRecord, shown: Option<VersionId>) {
        let is_guarded = self.with(|s| {
            let config = &s.daemon.config;
            config.activation == ActivationMode::Manual || !config.gate.is_off()
        });
        if is_guarded && shown.is_some() && ![record.active, record.previous].contains(&shown) {
            self.broken("what may have been kept back is served at a start");
        }
    }

    /// A record that was lost has been made again.
    pub(crate) fn check_remembered(&self) {
        let (said, now, untold) = self.with(|s| {
            // What was being said when the process died may or may not have been written down.
            let untold = s.rules.untold || std::mem::take(&mut s.rules.unsure);
            s.rules.excuse();
            s.disk.lost = false;
            s.rules.arrivals.accept(s.disk.record.as_ref());
            let now = s.will();
            (std::mem::replace(&mut s.rules.will, now), now, untold)
        });

        if said != now && !untold {
            self.broken(format!("the record was lost; it was {said:?} and is {now:?}"));
        }
    }

    /// After a crash, or after what a person has tried: it has been done or not, nothing else.
    pub(crate) fn check_will(&self, allowed: &[Will]) {
        let held = self.with(|s| s.will());
        if !self.with(|s| s.disk.garbled) && !allowed.contains(&held) {
            self.broken(format!("the store is {held:?}, which is none of {allowed:?}"));
        }
        self.with(|s| s.rules.will = held);
    }

    /// What a crash has left.
    pub(crate) fn check_after_crash(&self) {
        let (ordered, will) = self.with(|s| {
            if s.rules.clock {
                s.rules.excuse();
            }
            s.rules.unsure |= s.rules.ordered;
            // What could not be synced was not promised: it may be there until the power goes, and not afterwards.
            let is_unsynced = std::mem::take(&mut s.rules.unsynced);
            if is_unsynced {
                s.rules.arrivals.accept(s.disk.record.as_ref());
            }
            let is_open = std::mem::take(&mut s.rules.ordered) || is_unsynced;
            (is_open, s.rules.will)
        });
        self.check_newest(false);
        // What was being typed has been done or not.
        let now = self.with(|s| s.will());
        let allowed = [will, now];
        self.check_will(if ordered { &allowed } else { &allowed[..1] });
    }

    /// Whether this content is what is served.
    pub(crate) fn is_active(&self, content: Content) -> bool {
        let id = super::sim::id_of(content);
        self.with(|s| s.disk.record.as_ref().is_some_and(|record| record.active == Some(id)))
    }

    /// Whether what is active is whole, and served.
    pub(crate) fn is_whole(&self) -> bool {
        let (active, shown) = self.with(|s| {
            let active = s.disk.record.as_ref().and_then(|record| record.active);
            (active, s.daemon.shown.as_ref().map(|(id, _)| *id))
        });
        active.is_some_and(|id| !self.is_rotten(id)) && shown == active
    }
}
