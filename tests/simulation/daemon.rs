//! The simulated process: it starts, runs one task at a time, sleeps until the next check, and ends.

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
use docwharf::sync::scheduler::{CheckTiming, ClockReading, SyncScheduler};
use docwharf::sync::seal_operations::SealOperations;
use docwharf::sync::{SyncError, SyncSettings, operator, run};

use super::environment::SimulatedEnvironment;
use super::random::Random;
use super::settings;
use super::sim::{Actor, Lease, Sim};

/// A task of the daemon.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    Sync(SyncTrigger, bool),
    Import(PathBuf, Option<VersionLabel>, bool),
    Release,
}

/// The task in progress, as far as commands cancel it. Both fields are false for a task that has ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunningTask {
    /// Whether each command that needs a task cancels it: it is an automatic sync.
    pub(crate) is_cancelled_by_commands: bool,
    /// Whether it is a sync: a release cancels even one that a command has requested.
    pub(crate) is_sync: bool,
}

/// The result of a task that the daemon has not handled yet.
pub(crate) struct TaskResult {
    task: Task,
    result: Result<SyncReport, SyncError>,
    opened: Option<(VersionId, Lease)>,
}

/// The state of the simulated process.
pub(crate) struct Daemon {
    /// The configuration in force.
    pub(crate) config: SyncSettings,
    /// `sync.schedule`, which does not change during a run.
    schedule: Option<Schedule>,
    pub(crate) has_key: bool,
    pub(crate) scheduler: Option<SyncScheduler>,
    pub(crate) force: bool,
    pub(crate) imports: VecDeque<(PathBuf, Option<VersionLabel>, bool)>,
    pub(crate) releases: u32,
    /// The running task, or one whose result has not been handled yet.
    pub(crate) running: Option<RunningTask>,
    /// The result of a task that ended during a command.
    finished: Option<TaskResult>,
    /// The served version.
    pub(crate) served: Option<(VersionId, Lease)>,
}

impl Daemon {
    pub(crate) fn new(random: &mut Random) -> Daemon {
        Daemon {
            config: settings::any(random),
            schedule: settings::schedule(random),
            has_key: true,
            scheduler: None,
            force: false,
            imports: VecDeque::new(),
            releases: 0,
            running: None,
            finished: None,
            served: None,
        }
    }

    pub(crate) fn scheduler(&mut self) -> &mut SyncScheduler {
        self.scheduler.as_mut().expect("the process runs")
    }

    /// Returns the timing of checks: this interval, or the schedule if there is one.
    pub(crate) fn check_timing(&self, interval: Duration) -> CheckTiming<'_> {
        CheckTiming { interval, schedule: self.schedule.as_ref() }
    }

    /// Returns the shortest wait for the next regular check: a schedule is compared with the wall clock each minute.
    fn shortest_wait(&self, now: ClockReading) -> Duration {
        let scheduled = self.schedule.as_ref().map(|schedule| schedule.wait(now.wall).min(Duration::from_mins(1)));
        scheduled.unwrap_or(self.config.interval)
    }

    fn next_task(&mut self) -> Option<Task> {
        if self.releases > 0 {
            self.releases -= 1;
            return Some(Task::Release);
        }
        if let Some((path, label, force)) = self.imports.pop_front() {
            return Some(Task::Import(path, label, force));
        }
        let trigger = self.scheduler().pending.take()?;
        Some(Task::Sync(trigger, std::mem::take(&mut self.force)))
    }
}

/// The end of a process without a crash.
pub(crate) struct ProcessExit;

impl Sim {
    /// Ends the process: resets the state that exists only in its memory.
    pub(crate) fn end_process(&self, is_power_cut: bool) {
        let leases = self.with(|s| {
            s.depth = 0;
            s.is_record_locked = false;
            s.actor = Actor::Daemon;
            s.disk.crash(is_power_cut, &mut s.random);
            s.disk.record_damaged |= s.disk.record.is_some() && s.random.happens(s.faults.disk);
            s.disk.record_lost |= s.disk.record_damaged;
            // A job is unknown between its start and the first write of its id.
            let was_task_running = s.daemon.running.take().is_some();
            // A state that could not be written is lost, too.
            if was_task_running || s.rules.unrecorded {
                s.rules.reset_waits();
            }
            s.rules.record_write_failed = false;
            s.daemon.scheduler = None;
            s.daemon.force = false;
            s.daemon.imports.clear();
            s.daemon.releases = 0;
            (s.daemon.served.take(), s.daemon.finished.take())
        });
        drop(leases);
        self.stop.store(false, Ordering::Relaxed);
        self.forget_jobs();
    }

    /// Starts the process: it serves the active version, and continues the back-off of the previous process.
    pub(crate) fn boot(&self) -> Result<(), ProcessExit> {
        self.log(|| "=== start".to_owned());
        let Ok(record) = read_record(self) else { return Err(ProcessExit) };
        self.check_invariants();
        let config = self.with(|s| s.daemon.config.clone());
        let Ok(stored) = self.versions() else { return Err(ProcessExit) };
        for id in candidates(&record, &config, stored.iter().map(|version| version.id)) {
            if let Ok(lease) = self.open(id, &config.seal_options) {
                self.with(|s| s.daemon.served = Some((id, lease)));
                break;
            }
        }
        let served = self.with(|s| s.daemon.served.as_ref().map(|(id, _)| *id));
        if record.active.is_some_and(|id| !self.is_damaged(id)) && served != record.active {
            self.fail(format!("{:?} is active, but {served:?} is served", record.active));
        }
        self.check_served(&record, served);
        let now = self.clock_reading();
        let mut scheduler = SyncScheduler::new(now.monotonic);
        scheduler.resume_backoff(&record, &config.source_digest(), now);
        self.with(|s| s.daemon.scheduler = Some(scheduler));
        Ok(())
    }

    /// Runs the process until this many operations have been executed, or until `is_done` returns true.
    pub(crate) fn run_process(&self, last_operation: u64, is_done: impl Fn() -> bool) -> Result<(), ProcessExit> {
        while self.with(|s| s.operations) < last_operation && !is_done() {
            if let Some(task) = self.with(|s| s.daemon.next_task()) {
                let result = self.run_task(task);
                self.handle_result(result)?;
                continue;
            }
            if self.happens(self.with(|s| s.faults.interference) * 10.0) {
                let pause = Duration::from_secs(self.below(120));
                let remaining = self.time_to_next_check();
                self.advance_clock(pause.min(remaining));
                self.interfere();
                let result = self.with(|s| s.daemon.finished.take());
                if let Some(result) = result {
                    self.handle_result(result)?;
                }
                continue;
            }
            self.advance_clock(self.time_to_next_check());
            let now = self.clock_reading();
            self.with(|s| s.daemon.scheduler().handle_timer(now));
        }
        Ok(())
    }

    fn time_to_next_check(&self) -> Duration {
        let next = self.with(|s| s.daemon.scheduler().next_check.0);
        self.since_base(next).saturating_sub(self.with(|s| s.elapsed))
    }

    /// Runs the next task during a command: in the daemon, tasks run on another thread.
    pub(crate) fn run_task_meanwhile(&self) {
        if self.with(|s| s.daemon.running.is_some() || s.daemon.finished.is_some()) {
            return;
        }
        if let Some(task) = self.with(|s| s.daemon.next_task()) {
            let result = self.run_task(task);
            self.with(|s| s.daemon.finished = Some(result));
        }
    }

    fn run_task(&self, task: Task) -> TaskResult {
        let (force, running) = match &task {
            Task::Sync(trigger, force) => {
                (*force, RunningTask { is_cancelled_by_commands: *trigger < SyncTrigger::Command, is_sync: true })
            }
            Task::Import(.., force) => (*force, RunningTask::default()),
            Task::Release => (false, RunningTask::default()),
        };
        let (sync_settings, start) = self.with(|s| {
            s.daemon.running = Some(running);
            (s.rules.record_write_failed, s.rules.ingested) = (false, None);
            s.sync_settings = s.daemon.config.clone();
            (s.sync_settings.clone(), s.elapsed)
        });
        self.stop.store(false, Ordering::Relaxed);
        self.log(|| format!("--- {task:?}"));
        let flag = std::sync::Arc::clone(&self.stop);
        let is_cancelled = move || flag.load(Ordering::Relaxed);
        let (result, opened) = self.acting(Actor::Task { force }, || {
            let result = match &task {
                Task::Sync(trigger, _) => self.sync(&sync_settings, *trigger, force),
                Task::Import(path, label, _) => {
                    let source = path.display().to_string();
                    let request = ImportRequest {
                        path,
                        file: None,
                        source: &source,
                        label: label.as_ref(),
                        author: "importer",
                        force,
                    };
                    import(self, &|| self.in_force(), request, &SealProgress::default())
                }
                Task::Release => {
                    operator::activate_target_version(self, &|| self.in_force(), "operator", &is_cancelled)
                }
            };
            // The version to serve is opened before the result is reported.
            let served = self.with(|s| s.daemon.served.as_ref().map(|(id, _)| *id));
            let active = self.with(|s| s.disk.record.as_ref().and_then(|record| record.active));
            let due = active.filter(|&id| result.is_ok() && served != Some(id));
            let opened = due.and_then(|id| Some((id, self.open(id, &sync_settings.seal_options).ok()?)));
            (result, opened)
        });
        self.log(|| match &result {
            Ok(report) => format!("--- {:?} {:?}", report.outcome, report.check_summary),
            Err(error) => format!("--- {error}"),
        });
        self.check_given_up(&result, start);
        self.check_newest(result.is_ok());
        let now = self.clock_reading();
        self.with(|s| {
            s.daemon.running = Some(RunningTask::default());
            if let Task::Sync(..) = task {
                let shortest_wait = s.daemon.shortest_wait(now);
                s.rules.record_sync_result(&result, s.elapsed, shortest_wait);
            }
        });
        self.forget_expired_jobs();
        TaskResult { task, result, opened }
    }

    fn sync(&self, sync_settings: &SyncSettings, trigger: SyncTrigger, force: bool) -> Result<SyncReport, SyncError> {
        let mut record = read_record(self)?;
        let (source, known) = (String::new(), Vec::new());
        let mut environment = SimulatedEnvironment {
            sim: self,
            sync_settings,
            author: "docwharf run",
            force,
            source,
            known,
            max_received: 0,
            received_at_reset: 0,
        };
        run::run_sync(&mut environment, &mut record, sync_settings, trigger)
    }

    /// Handles the result of a task, as the daemon does.
    fn handle_result(&self, task_result: TaskResult) -> Result<(), ProcessExit> {
        let result = self.apply_result(task_result);
        self.with(|s| s.daemon.running = None);
        result
    }

    fn apply_result(&self, task_result: TaskResult) -> Result<(), ProcessExit> {
        let TaskResult { task, result, opened } = task_result;
        // The error of the configuration is recorded after each task.
        let _ = self.change_record(|record| record.config_error = None);
        if self.with(|s| s.rules.record_write_failed) {
            self.forget_jobs();
        }
        if let Some((id, lease)) = opened
            && self.with(|s| s.disk.record.as_ref().is_some_and(|record| record.active == Some(id)))
        {
            let before = self.with(|s| s.daemon.served.replace((id, lease)));
            drop(before);
        }
        self.serve_active();
        let Task::Sync(trigger, force) = task else {
            if let (Task::Release, Err(SyncError::Cancelled)) = (&task, &result) {
                self.with(|s| s.daemon.releases += 1);
            }
            return Ok(());
        };
        if matches!(result, Err(SyncError::Cancelled)) {
            self.with(|s| s.daemon.force |= force);
        }
        if result.as_ref().is_err_and(SyncError::is_absence) && self.with(|s| s.disk.versions.is_empty()) {
            return Err(ProcessExit);
        }
        let now = self.clock_reading();
        self.with(|s| {
            let (mut scheduler, random) = (s.daemon.scheduler.take().expect("the process runs"), &mut s.random);
            let check_timing = s.daemon.check_timing(s.daemon.config.interval);
            scheduler.after_sync(trigger, &result, check_timing, now, || random.fraction());
            if scheduler.pending.is_some() {
                // A sync was requested meanwhile.
                s.rules.reset_waits();
            }
            s.daemon.scheduler = Some(scheduler);
        });
        Ok(())
    }

    /// Returns the configuration in force.
    pub(crate) fn in_force(&self) -> SyncSettings {
        self.with(|s| s.daemon.config.clone())
    }

    /// Serves the active version, if another one is served.
    pub(crate) fn serve_active(&self) {
        let Ok(record) = self.record() else { return };
        let served = self.with(|s| s.daemon.served.as_ref().map(|(id, _)| *id));
        let Some(id) = record.active.filter(|&id| served != Some(id)) else { return };
        let seal_options = self.with(|s| s.daemon.config.seal_options);
        if let Ok(lease) = self.open(id, &seal_options) {
            let before = self.with(|s| s.daemon.served.replace((id, lease)));
            drop(before);
        }
    }

    pub(crate) fn now(&self) -> ClockReading {
        self.clock_reading()
    }
}
