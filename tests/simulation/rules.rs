//! The guarantees, checked at every effect. The state here is only what these checks need: the model records what has
//! happened, it does not compute what should happen next.

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

/// Tolerance for the ages of jobs, whose start is stored in whole seconds.
const ROUNDING: Duration = Duration::from_secs(2);

/// A host to which requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host {
    Api,
    Storage,
    Files,
    Docs,
}

/// The hold that the operator has set last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HoldState {
    /// There is no hold.
    #[default]
    Released,
    /// This version stays active.
    Held(Option<VersionId>),
}

// Each flag records one event; they are independent.
#[allow(clippy::struct_excessive_bools)]
/// The state from which the guarantees are checked.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The time before which no request may be sent to a host.
    host_quiet_until: BTreeMap<Host, Duration>,
    /// The time before which a sync may send no request, because the previous sync has failed.
    no_call_before: Duration,
    /// Failures in a row since the last reset.
    failures: u32,
    /// The hold that the operator has set.
    pub(crate) hold_state: HoldState,
    /// Whether the wall clock was set forward since the last failure.
    is_clock_forward: bool,
    /// Whether a command is being executed.
    pub(crate) command_running: bool,
    /// Whether a write of the record has failed in the current task.
    pub(crate) record_write_failed: bool,
    /// Whether the result of a sync could not be written, and no sync has succeeded since.
    pub(crate) unrecorded: bool,
    /// Whether the fsync of the current record failed and the failure was reported.
    pub(crate) record_not_fsynced: bool,
    /// Whether a line of history could not be written.
    pub(crate) history_incomplete: bool,
    /// Whether the process ended during a command.
    command_interrupted: bool,
    /// The new version of the current task, which is the only one that may be withdrawn.
    pub(crate) ingested: Option<VersionId>,
    /// The newest version and the version of the source.
    pub(crate) arrivals: Arrivals,
}

impl Rules {
    /// Ends all waits, because of an explicit request.
    pub(crate) fn reset_waits(&mut self) {
        self.host_quiet_until.clear();
        self.no_call_before = Duration::ZERO;
        (self.failures, self.unrecorded) = (0, false);
    }

    /// Records a change of the wall clock. Waits that are measured by it may end earlier: the back-off after a restart,
    /// and that of probes.
    pub(crate) fn record_clock_change(&mut self, forward: bool) {
        self.is_clock_forward |= forward;
        self.host_quiet_until.remove(&Host::Docs);
    }

    /// Records the result of a sync.
    pub(crate) fn record_sync_result(
        &mut self,
        result: &Result<SyncReport, SyncError>,
        now: Duration,
        shortest_wait: Duration,
    ) {
        // Until a sync succeeds: a later record is based on the earlier one.
        self.unrecorded |= self.record_write_failed;
        match result {
            Ok(SyncReport { postponed: Some(_), .. }) | Err(SyncError::Cancelled) => {}
            Ok(_) => (self.failures, self.unrecorded) = (0, self.record_write_failed),
            Err(error) => {
                self.failures += 1;
                let min_wait = backoff::wait_after_failures(self.failures).min(shortest_wait).mul_f64(0.9);
                self.is_clock_forward = false;
                if !error.is_absence() {
                    self.no_call_before = now + min_wait;
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

    /// Returns a version that `after` names, that `before` does not name, and that is not stored yet: after a crash at
    /// this moment, the record would name a missing version.
    fn named_too_early(&self, before: &StoreRecord, after: &StoreRecord) -> Option<VersionId> {
        let named = |record: &StoreRecord| -> Vec<VersionId> {
            record.newest.into_iter().chain(record.labels.values().map(|label| label.version)).collect()
        };
        let before = named(before);
        named(after).into_iter().find(|id| !before.contains(id) && !self.disk.versions.contains_key(id))
    }

    /// Returns the hold in the record.
    pub(crate) fn hold_state(&self) -> HoldState {
        match &self.disk.record {
            Some(record) if record.hold.is_some() => HoldState::Held(record.active),
            _ => HoldState::Released,
        }
    }
}

/// Returns a fault if a command has changed fields that depend only on arrivals.
fn fault_of_command(before: &StoreRecord, after: &StoreRecord) -> Option<String> {
    let arrived = |record: &StoreRecord| (record.newest, record.offered.clone(), record.labels.clone());
    (arrived(before) != arrived(after)).then(|| "a command has changed the newest version, or a label".to_owned())
}

/// Returns a fault if the daemon has changed the active version, the hold or the newest version outside a task.
fn fault_of_daemon(before: &StoreRecord, after: &StoreRecord) -> Option<String> {
    let decided = |record: &StoreRecord| (record.active, record.previous, record.hold.clone());
    let fault = (decided(before) != decided(after))
        .then(|| "the daemon has changed the active version outside a task".to_owned());
    fault.or_else(|| fault_of_command(before, after))
}

impl Sim {
    /// Checks a call before its request is sent.
    pub(crate) fn check_call(&self, host: Host) {
        let fault = self.with(|s| {
            if !s.daemon.config.enabled {
                return Some("a call although syncing is disabled".to_owned());
            }
            let until = s.rules.host_quiet_until.get(&host).copied().unwrap_or_default();
            if s.elapsed < until {
                let early = until.saturating_sub(s.elapsed).as_secs_f64();
                return Some(format!("{host:?} is called {early:.1} s too early after an error"));
            }
            if s.elapsed < s.rules.no_call_before {
                let early = s.rules.no_call_before.saturating_sub(s.elapsed).as_secs_f64();
                return Some(format!("{host:?} is called {early:.1} s too early after failure {}", s.rules.failures));
            }
            None
        });
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Records a call that has failed.
    pub(crate) fn record_call_error(&self, host: Host, error: &RequestError) {
        let is_expired_link = matches!(error.cause, RequestErrorCause::Status(401 | 403 | 410)) && host != Host::Api;
        // A 404 is a normal response: the job does not exist.
        let is_unknown = error.cause == RequestErrorCause::Status(404);
        let min_wait = if is_expired_link || is_unknown || host == Host::Docs {
            Duration::ZERO
        } else {
            Duration::from_millis(500)
        };
        let wait = error.retry_after.unwrap_or_default().max(min_wait);
        self.with(|s| s.rules.host_quiet_until.insert(host, s.elapsed + wait));
    }

    /// Checks the start of an export job before its request is sent.
    pub(crate) fn check_start(&self, source: &str) {
        let running = self.with(|s| {
            let timeout = s.sync_settings.job_timeout;
            let running = |job: &&upstream::Job| {
                job.is_known_to_agent
                    && job.source == source
                    && job.state(s.elapsed) == upstream::State::Working
                    && job.max_age(s.elapsed, s.clock_advanced) + ROUNDING < timeout
            };
            s.upstream.jobs.iter().find(running).map(|job| job.id.clone())
        });
        if let Some(id) = running {
            self.fail(format!("a second job is started while {id} is running"));
        }
    }

    /// Checks that a job was given up only after its timeout. `start` is the start of the sync: for an earlier job, the
    /// age is measured by the wall clock.
    pub(crate) fn check_given_up(&self, result: &Result<SyncReport, SyncError>, start: Duration) {
        let Err(SyncError::JobTimeout { id, after, .. }) = result else { return };
        let age = self.with(|s| {
            let job = &s.upstream.jobs[s.upstream.find_job(id)?];
            let is_new = job.requested >= start;
            Some(if is_new {
                s.elapsed.saturating_sub(job.requested)
            } else {
                job.max_age(s.elapsed, s.clock_advanced)
            })
        });
        if let Some(age) = age.filter(|&age| age + ROUNDING < *after) {
            self.fail(format!("{id} is given up after {:.1} s", age.as_secs_f64()));
        }
    }

    /// Forgets jobs that have reached their timeout and are not in the record any more.
    pub(crate) fn forget_expired_jobs(&self) {
        self.with(|s| {
            let known = s.known_jobs();
            let (now, clock_advanced, timeout) = (s.elapsed, s.clock_advanced, s.sync_settings.job_timeout);
            for job in s.upstream.jobs.iter_mut().filter(|job| !known.contains(&job.id)) {
                job.is_known_to_agent &= job.max_age(now, clock_advanced) + ROUNDING < timeout;
            }
            if s.rules.record_write_failed {
                // A Retry-After that could not be written is lost.
                s.rules.host_quiet_until.remove(&Host::Docs);
            }
        });
    }

    /// Forgets jobs that are not in the record, after the record was lost or could not be written.
    pub(crate) fn forget_jobs(&self) {
        self.with(|s| {
            let known = s.known_jobs();
            for job in s.upstream.jobs.iter_mut().filter(|job| !known.contains(&job.id)) {
                job.is_known_to_agent = false;
            }
        });
    }

    /// Checks a record before it replaces the one on disk.
    pub(crate) fn check_write(&self, after: &StoreRecord) {
        let fault = self.with(|s| {
            let before = s.disk.record.clone().unwrap_or_default();
            if s.disk.record_damaged {
                return None;
            }
            let force = match s.actor {
                Actor::Task { force } => force,
                Actor::Releasing => false,
                // `check_hold` checks which version is active, and whether it is held.
                Actor::Operator => return fault_of_command(&before, after),
                Actor::Daemon => return fault_of_daemon(&before, after),
            };
            if after.hold != before.hold {
                return Some("a task has changed a hold".to_owned());
            }
            if let Some(id) = s.named_too_early(&before, after) {
                return Some(format!("the record names {}, which is not stored", id.short()));
            }
            // A label whose write has failed was never set.
            let is_kept = |label: &String| after.labels.contains_key(label);
            let mut labels = before.labels.iter().filter(|(_, label)| s.disk.versions.contains_key(&label.version));
            if let Some((label, _)) = labels.find(|(label, _)| !is_kept(label))
                && !s.rules.record_write_failed
            {
                return Some(format!("the label {label} is lost"));
            }
            let Some(id) = after.active.filter(|_| after.active != before.active) else {
                return (after.active != before.active).then(|| "no version is active any more".to_owned());
            };
            if before.hold.is_some() {
                return Some("another version becomes active under a hold".to_owned());
            }
            let due = |pin: Option<&VersionLabel>| match pin {
                Some(pin) => after.labels.get(pin.as_str()).map(|label| label.version),
                None => after.newest,
            };
            let config = &s.daemon.config;
            if due(config.pin.as_ref()) != Some(id) {
                return Some(
                    "the version that becomes active is neither the pinned one nor, without a pin, the newest"
                        .to_owned(),
                );
            }
            if config.activation == ActivationMode::Manual {
                return Some("a version becomes active without a command in manual mode".to_owned());
            }
            let pages = s.disk.versions.get(&id).map_or(0, |version| version.content.pages);
            if !force && pages < config.gate.min_pages.unwrap_or(0) {
                return Some("a version that the gate refuses becomes active".to_owned());
            }
            None
        });
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Checks after each change that the active version is stored and verified, and that the operator's hold is in
    /// force.
    pub(crate) fn check_invariants(&self) {
        let fault = self.with(|s| {
            if s.disk.record_damaged {
                return None;
            }
            let record = s.disk.record.as_ref()?;
            if let Some(id) = record.active {
                match s.disk.versions.get(&id) {
                    None => return Some(format!("the active version {} is not stored", id.short())),
                    Some(version) if version.content.hostile || super::sim::id_of(version.content) != id => {
                        return Some("the active version is not verified".to_owned());
                    }
                    Some(_) => {}
                }
            }
            let is_command = s.rules.command_running || s.actor.is_person();
            if !is_command && !s.disk.record_lost && s.hold_state() != s.rules.hold_state {
                return Some("a hold is not the one that the operator has set".to_owned());
            }
            None
        });
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Checks before a version is pruned that the record does not protect it, and that it is not served.
    pub(crate) fn check_removal(&self, id: VersionId) {
        let fault = self.with(|s| {
            let served = s.daemon.served.as_ref().is_some_and(|(version, _)| *version == id);
            let record = s.disk.record.as_ref();
            let labelled = record.is_some_and(|r| r.labels.values().any(|label| label.version == id));
            let named = record.is_some_and(|r| [r.active, r.previous, r.newest].contains(&Some(id)));
            (served || named || labelled).then(|| format!("{} is removed although it is in use", id.short()))
        });
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Checks before a version is withdrawn, because its receipt or record could not be written, that the current task
    /// has added it, and that no person has activated it meanwhile.
    pub(crate) fn check_withdrawal(&self, id: VersionId) {
        let fault = self.with(|s| {
            let served = s.daemon.served.as_ref().is_some_and(|(version, _)| *version == id);
            let record = s.disk.record.as_ref();
            let named = record.is_some_and(|r| [r.active, r.previous].contains(&Some(id)));
            if served || named {
                return Some(format!("{} is withdrawn although it is in use", id.short()));
            }
            (s.rules.ingested != Some(id)).then(|| format!("{} is withdrawn although it was stored before", id.short()))
        });
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Checks after a start that the served version was active before, if a gate or manual activation is configured.
    pub(crate) fn check_served(&self, record: &StoreRecord, served: Option<VersionId>) {
        let is_guarded = self.with(|s| {
            let config = &s.daemon.config;
            config.activation == ActivationMode::Manual || !config.gate.is_off()
        });
        if is_guarded && served.is_some() && ![record.active, record.previous].contains(&served) {
            self.fail("a version that may have been refused is served at a start");
        }
    }

    /// Checks a record that was recovered after its loss.
    pub(crate) fn check_recovered_record(&self) {
        let (expected, now, history_incomplete) = self.with(|s| {
            // If the process ended during a command, its decision may or may not have been written.
            let history_incomplete = s.rules.history_incomplete || std::mem::take(&mut s.rules.command_interrupted);
            s.rules.reset_waits();
            s.disk.record_lost = false;
            s.rules.arrivals.reset_to(s.disk.record.as_ref());
            let now = s.hold_state();
            (std::mem::replace(&mut s.rules.hold_state, now), now, history_incomplete)
        });
        if expected != now && !history_incomplete {
            self.fail(format!("the record was lost; the hold was {expected:?} and is {now:?}"));
        }
    }

    /// Checks after a crash or a failed command that the hold is one of these.
    pub(crate) fn check_hold(&self, allowed: &[HoldState]) {
        let current = self.with(|s| s.hold_state());
        if !self.with(|s| s.disk.record_damaged) && !allowed.contains(&current) {
            self.fail(format!("the hold is {current:?}, which is none of {allowed:?}"));
        }
        self.with(|s| s.rules.hold_state = current);
    }

    /// Checks the state after a crash.
    pub(crate) fn check_after_crash(&self) {
        let (is_outcome_open, hold_state) = self.with(|s| {
            if s.rules.is_clock_forward {
                s.rules.reset_waits();
            }
            s.rules.command_interrupted |= s.rules.command_running;
            // A write whose fsync failed was reported as failed: it may be lost in a power cut.
            let record_not_fsynced = std::mem::take(&mut s.rules.record_not_fsynced);
            if record_not_fsynced {
                s.rules.arrivals.reset_to(s.disk.record.as_ref());
            }
            let is_outcome_open = std::mem::take(&mut s.rules.command_running) || record_not_fsynced;
            (is_outcome_open, s.rules.hold_state)
        });
        self.check_newest(false);
        // The command during which the process ended has taken effect or not.
        let now = self.with(|s| s.hold_state());
        let allowed = [hold_state, now];
        self.check_hold(if is_outcome_open { &allowed } else { &allowed[..1] });
    }

    /// Whether this content is active.
    pub(crate) fn is_active(&self, content: Content) -> bool {
        let id = super::sim::id_of(content);
        self.with(|s| s.disk.record.as_ref().is_some_and(|record| record.active == Some(id)))
    }

    /// Whether the active version is undamaged and served.
    pub(crate) fn is_active_undamaged(&self) -> bool {
        let (active, served) = self.with(|s| {
            let active = s.disk.record.as_ref().and_then(|record| record.active);
            (active, s.daemon.served.as_ref().map(|(id, _)| *id))
        });
        active.is_some_and(|id| !self.is_damaged(id)) && served == active
    }
}
