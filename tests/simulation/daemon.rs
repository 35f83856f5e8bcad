//! The process: it starts, does one thing at a time, sleeps until the agenda says otherwise, and dies.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use docwharf::model::version::{VersionId, VersionLabel};
use docwharf::seal::SealProgress;
use docwharf::store::operations::StoreOperations;
use docwharf::sync::activation::{SyncReport, candidates};
use docwharf::sync::import::{ImportRequest, import};
use docwharf::sync::plan::SyncTrigger;
use docwharf::sync::record_recovery::read_record;
use docwharf::sync::schedule::Schedule;
use docwharf::sync::scheduler::{ClockReading, Rhythm, SyncScheduler};
use docwharf::sync::seal_operations::SealOperations;
use docwharf::sync::{SyncError, SyncIntent, operator, run};

use super::random::Random;
use super::settings;
use super::sim::{Actor, Lease, Sim};
use super::world::Act;

/// What there is to do.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Sync(SyncTrigger, bool),
    Import(PathBuf, Option<VersionLabel>, bool),
    Release,
}

/// Work that is done and not yet taken note of.
pub(crate) struct Done {
    work: Work,
    result: Result<SyncReport, SyncError>,
    opened: Option<(VersionId, Lease)>,
}

pub(crate) struct Daemon {
    /// What is in force.
    pub(crate) config: SyncIntent,
    /// `sync.schedule`, the same for the whole run.
    schedule: Option<Schedule>,
    pub(crate) has_key: bool,
    pub(crate) agenda: Option<SyncScheduler>,
    pub(crate) force: bool,
    pub(crate) imports: VecDeque<(PathBuf, Option<VersionLabel>, bool)>,
    pub(crate) releases: u32,
    /// Whether something is being done that gives way to a person, and whether it is a sync.
    pub(crate) running: Option<(bool, bool)>,
    /// What ended while an order was being carried out.
    finished: Option<Done>,
    /// What is served.
    pub(crate) shown: Option<(VersionId, Lease)>,
}

impl Daemon {
    pub(crate) fn new(random: &mut Random) -> Daemon {
        Daemon {
            config: settings::any(random),
            schedule: settings::schedule(random),
            has_key: true,
            agenda: None,
            force: false,
            imports: VecDeque::new(),
            releases: 0,
            running: None,
            finished: None,
            shown: None,
        }
    }

    pub(crate) fn agenda(&mut self) -> &mut SyncScheduler {
        self.agenda.as_mut().expect("the process runs")
    }

    /// The rhythm under this interval, or under the schedule if there is one.
    pub(crate) fn rhythm(&self, interval: Duration) -> Rhythm<'_> {
        Rhythm { interval, schedule: self.schedule.as_ref() }
    }

    /// The shortest wait for the next look that is not hastened by anything: a schedule is compared with the clock of the
    /// wall each minute.
    fn shortest_wait(&self, now: ClockReading) -> Duration {
        let scheduled = self.schedule.as_ref().map(|schedule| schedule.wait(now.wall).min(Duration::from_mins(1)));
        scheduled.unwrap_or(self.config.interval)
    }

    fn next_work(&mut self) -> Option<Work> {
        if self.releases > 0 {
            self.releases -= 1;
            return Some(Work::Release);
        }
        if let Some((path, label, force)) = self.imports.pop_front() {
            return Some(Work::Import(path, label, force));
        }
        let trigger = self.agenda().pending.take()?;
        Some(Work::Sync(trigger, std::mem::take(&mut self.force)))
    }
}

/// Why a process has ended without a crash.
pub(crate) struct Ended;

impl Sim {
    /// What of a process is gone with it.
    pub(crate) fn bury(&self, power: bool) {
        let leases = self.with(|s| {
            s.depth = 0;
            s.in_turn = false;
            s.actor = Actor::Daemon;
            s.disk.lose(power, &mut s.random);
            s.disk.garbled |= s.disk.record.is_some() && s.random.happens(s.faults.disk);
            s.disk.lost |= s.disk.garbled;
            // Between its start and the first write that names it nobody can know a job.
            let in_work = s.daemon.running.take().is_some();
            // Nor can what could not be written down outlive it.
            if in_work || s.rules.unrecorded {
                s.rules.excuse();
            }
            s.rules.write_failed = false;
            s.daemon.agenda = None;
            s.daemon.force = false;
            s.daemon.imports.clear();
            s.daemon.releases = 0;
            (s.daemon.shown.take(), s.daemon.finished.take())
        });
        drop(leases);
        self.stop.store(false, Ordering::Relaxed);
        self.forget_jobs();
    }

    /// A start: what is there is served, and the backoff of the process before goes on.
    pub(crate) fn boot(&self) -> Result<(), Ended> {
        self.tell(|| "=== start".to_owned());
        let Ok(record) = read_record(self) else { return Err(Ended) };
        self.check_standing();
        let config = self.with(|s| s.daemon.config.clone());
        let Ok(stored) = self.versions() else { return Err(Ended) };
        for id in candidates(&record, &config, stored.iter().map(|version| version.id)) {
            if let Ok(lease) = self.open(id, &config.effort) {
                self.with(|s| s.daemon.shown = Some((id, lease)));
                break;
            }
        }
        let shown = self.with(|s| s.daemon.shown.as_ref().map(|(id, _)| *id));
        if record.active.is_some_and(|id| !self.is_rotten(id)) && shown != record.active {
            self.broken(format!("{:?} is active, but {shown:?} is served", record.active));
        }
        self.check_shown(&record, shown);
        let moment = self.moment();
        let mut agenda = SyncScheduler::new(moment.at);
        agenda.take_up(&record, &config.question(), moment);
        self.with(|s| s.daemon.agenda = Some(agenda));
        Ok(())
    }

    /// Lives until so many operations have been done, or until `done` says so.
    pub(crate) fn live(&self, until: u64, done: impl Fn() -> bool) -> Result<(), Ended> {
        while self.with(|s| s.operations) < until && !done() {
            if let Some(work) = self.with(|s| s.daemon.next_work()) {
                let finished = self.work(work);
                self.ended(finished)?;
                continue;
            }
            if self.happens(self.with(|s| s.faults.meddling) * 10.0) {
                let nap = Duration::from_secs(self.below(120));
                let left = self.left();
                self.pass(nap.min(left));
                self.meddle();
                let finished = self.with(|s| s.daemon.finished.take());
                if let Some(finished) = finished {
                    self.ended(finished)?;
                }
                continue;
            }
            self.pass(self.left());
            let moment = self.moment();
            self.with(|s| s.daemon.agenda().time_has_come(moment));
        }
        Ok(())
    }

    fn left(&self) -> Duration {
        let next = self.with(|s| s.daemon.agenda().next.0);
        self.since_base(next).saturating_sub(self.with(|s| s.elapsed))
    }

    /// An order finds work that was about to begin: its thread comes to life in the middle of it.
    pub(crate) fn work_meanwhile(&self) {
        if self.with(|s| s.daemon.running.is_some() || s.daemon.finished.is_some()) {
            return;
        }
        if let Some(work) = self.with(|s| s.daemon.next_work()) {
            let done = self.work(work);
            self.with(|s| s.daemon.finished = Some(done));
        }
    }

    fn work(&self, work: Work) -> Done {
        let (force, gives_way, is_sync) = match &work {
            Work::Sync(trigger, force) => (*force, *trigger < SyncTrigger::Asked, true),
            Work::Import(.., force) => (*force, false, false),
            Work::Release => (false, false, false),
        };
        let (intent, began) = self.with(|s| {
            s.daemon.running = Some((gives_way, is_sync));
            (s.rules.write_failed, s.rules.brought) = (false, None);
            s.intent = s.daemon.config.clone();
            (s.intent.clone(), s.elapsed)
        });
        self.stop.store(false, Ordering::Relaxed);
        self.tell(|| format!("--- {work:?}"));
        let flag = std::sync::Arc::clone(&self.stop);
        let stop = move || flag.load(Ordering::Relaxed);
        let (result, opened) = self.acting(Actor::Work { force }, || {
            let result = match &work {
                Work::Sync(trigger, _) => self.sync(&intent, *trigger, force),
                Work::Import(path, label, _) => {
                    let source = path.display().to_string();
                    let handed = ImportRequest {
                        path,
                        file: None,
                        source: &source,
                        label: label.as_ref(),
                        who: "importer",
                        force,
                    };
                    import(self, &|| self.in_force(), handed, &SealProgress::default())
                }
                Work::Release => operator::activate_due(self, &|| self.in_force(), "somebody", &stop),
            };
            // What is to be served is opened before anybody is told.
            let shown = self.with(|s| s.daemon.shown.as_ref().map(|(id, _)| *id));
            let active = self.with(|s| s.disk.record.as_ref().and_then(|record| record.active));
            let due = active.filter(|&id| result.is_ok() && shown != Some(id));
            let opened = due.and_then(|id| Some((id, self.open(id, &intent.effort).ok()?)));
            (result, opened)
        });
        self.tell(|| match &result {
            Ok(report) => format!("--- {:?} {:?}", report.outcome, report.saw),
            Err(error) => format!("--- {error}"),
        });
        self.check_given_up(&result, began);
        self.check_newest(result.is_ok());
        let moment = self.moment();
        self.with(|s| {
            s.daemon.running = Some((false, false));
            if let Work::Sync(..) = work {
                let every = s.daemon.shortest_wait(moment);
                s.rules.ended(&result, s.elapsed, every);
            }
        });
        self.give_up_jobs();
        Done { work, result, opened }
    }

    fn sync(&self, intent: &SyncIntent, trigger: SyncTrigger, force: bool) -> Result<SyncReport, SyncError> {
        let mut record = read_record(self)?;
        let (source, known) = (String::new(), Vec::new());
        let mut act = Act { sim: self, intent, who: "docwharf run", force, source, known, furthest: 0, counted: 0 };
        run::run_sync(&mut act, &mut record, intent, trigger)
    }

    /// The daemon takes note.
    fn ended(&self, done: Done) -> Result<(), Ended> {
        let result = self.take_note(done);
        self.with(|s| s.daemon.running = None);
        result
    }

    fn take_note(&self, done: Done) -> Result<(), Ended> {
        let Done { work, result, opened } = done;
        // What the configuration had to say is remembered at every end.
        let _ = self.change(|record| record.config_error = None);
        if self.with(|s| s.rules.write_failed) {
            self.forget_jobs();
        }
        if let Some((id, lease)) = opened
            && self.with(|s| s.disk.record.as_ref().is_some_and(|record| record.active == Some(id)))
        {
            let before = self.with(|s| s.daemon.shown.replace((id, lease)));
            drop(before);
        }
        self.show_active();
        let Work::Sync(trigger, force) = work else {
            if let (Work::Release, Err(SyncError::Interrupted)) = (&work, &result) {
                self.with(|s| s.daemon.releases += 1);
            }
            return Ok(());
        };
        if matches!(result, Err(SyncError::Interrupted)) {
            self.with(|s| s.daemon.force |= force);
        }
        if result.as_ref().is_err_and(SyncError::is_absence) && self.with(|s| s.disk.versions.is_empty()) {
            return Err(Ended);
        }
        let moment = self.moment();
        self.with(|s| {
            let (mut agenda, random) = (s.daemon.agenda.take().expect("the process runs"), &mut s.random);
            let rhythm = s.daemon.rhythm(s.daemon.config.interval);
            agenda.after_sync(trigger, &result, rhythm, moment, || random.part());
            if agenda.pending.is_some() {
                // Somebody has asked while it was under way.
                s.rules.excuse();
            }
            s.daemon.agenda = Some(agenda);
        });
        Ok(())
    }

    /// The configuration that counts at this moment.
    pub(crate) fn in_force(&self) -> SyncIntent {
        self.with(|s| s.daemon.config.clone())
    }

    /// Serves the active version if another one is.
    pub(crate) fn show_active(&self) {
        let Ok(record) = self.record() else { return };
        let shown = self.with(|s| s.daemon.shown.as_ref().map(|(id, _)| *id));
        let Some(id) = record.active.filter(|&id| shown != Some(id)) else { return };
        let effort = self.with(|s| s.daemon.config.effort);
        if let Ok(lease) = self.open(id, &effort) {
            let before = self.with(|s| s.daemon.shown.replace((id, lease)));
            drop(before);
        }
    }

    pub(crate) fn now(&self) -> ClockReading {
        self.moment()
    }
}
