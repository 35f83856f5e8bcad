//! The tasks that wait for their turn: the next check of the source, imports and releases.
//!
//! The main loop runs one task at a time. Events and commands that arrive meanwhile change only this state, which does
//! no I/O and reads no clock. `W` is the channel for the reply to a command; the tests use a number.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::admin::control_messages::ImportCommand;
use docwharf_agent::store::record::StoreRecord;
use docwharf_agent::sync::SyncError;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::inbox::InboxFile;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::scheduler::{CheckTiming, ClockReading, SyncScheduler};
use docwharf_base::backoff;

use super::task::{DaemonTask, TaskKind};

/// A command that becomes a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskCommand {
    /// `docwharf sync`
    Sync,
    /// `docwharf import`
    Import,
    /// `docwharf release`
    Release,
}

impl TaskCommand {
    /// Returns whether this command cancels a task in progress. A command cancels only syncs, because nothing of a sync
    /// is lost; a release cancels even a sync for which a client waits. (A changed configuration also cancels the
    /// decision after a release.)
    pub(super) fn cancels(self, running: TaskKind) -> bool {
        match running {
            TaskKind::AutomaticSync => true,
            TaskKind::CommandedSync => self == TaskCommand::Release,
            TaskKind::Import | TaskKind::Release => false,
        }
    }
}

/// The requests that the next sync fulfils, combined into one.
#[derive(Debug)]
struct CombinedSyncRequest<W> {
    /// Whether its version becomes active although the gate refuses it.
    force: bool,
    /// The user whose command requested it, if a command did.
    author: Option<String>,
    /// The clients that wait for its result.
    waiters: Vec<W>,
}

impl<W> Default for CombinedSyncRequest<W> {
    fn default() -> CombinedSyncRequest<W> {
        CombinedSyncRequest { force: false, author: None, waiters: Vec::new() }
    }
}

/// The tasks that wait for their turn.
#[derive(Debug)]
pub(super) struct PendingTasks<W> {
    /// When the source is checked next, and by which trigger.
    scheduler: SyncScheduler,
    sync_request: CombinedSyncRequest<W>,
    /// Imports by command, which come before files in the inbox: the bundle, the author, and the client that waits.
    imports: VecDeque<(ImportCommand, String, W)>,
    /// Complete files in the inbox, to be imported.
    inbox_files: VecDeque<InboxFile>,
    /// Releases that wait for the gate: whether there was a hold, the author, and the client that waits.
    releases: VecDeque<(bool, String, W)>,
}

impl<W> PendingTasks<W> {
    /// Creates the tasks of a daemon that starts: it checks the source at once.
    pub(super) fn new(now: Instant) -> PendingTasks<W> {
        PendingTasks {
            scheduler: SyncScheduler::new(now),
            sync_request: CombinedSyncRequest::default(),
            imports: VecDeque::new(),
            inbox_files: VecDeque::new(),
            releases: VecDeque::new(),
        }
    }

    /// Continues the back-off of the previous process if the source and the demands on it are unchanged
    /// (`source_digest`). Returns the rest of the back-off.
    pub(super) fn resume_backoff(
        &mut self,
        record: &StoreRecord,
        source_digest: &str,
        now: ClockReading,
    ) -> Option<Duration> {
        self.scheduler.resume_backoff(record, source_digest, now)
    }

    /// Requests a sync by command.
    pub(super) fn request_sync(&mut self, trigger: SyncTrigger, force: bool, author: String, waiter: W) {
        self.sync_request.force |= force;
        self.sync_request.author = Some(author);
        self.sync_request.waiters.push(waiter);
        self.scheduler.request_check(trigger);
    }

    /// Requests a sync on SIGHUP.
    pub(super) fn request_sync_by_signal(&mut self) {
        self.scheduler.request_check(SyncTrigger::Signal);
    }

    /// Requests the import of a bundle by command.
    pub(super) fn request_import(&mut self, import: ImportCommand, author: String, waiter: W) {
        self.imports.push_back((import, author, waiter));
    }

    /// Requests the decision after the end of a hold.
    pub(super) fn request_release(&mut self, was_held: bool, author: String, waiter: W) {
        self.releases.push_back((was_held, author, waiter));
    }

    /// Replaces the files of the inbox by those that a new scan has found complete.
    pub(super) fn set_inbox_files(&mut self, files: Vec<InboxFile>) {
        self.inbox_files = files.into();
    }

    /// Requests a check of the source as soon as possible. A stronger pending trigger stays.
    pub(super) fn request_check_now(&mut self, trigger: SyncTrigger) {
        self.scheduler.wake(trigger);
    }

    /// Handles a change of the configuration, the API key, a CA certificate or the redirects file, after they could be
    /// read.
    pub(super) fn handle_changed_settings(&mut self) {
        self.scheduler.handle_changed_settings();
    }

    /// Handles the timer of [`PendingTasks::timer`].
    pub(super) fn handle_timer(&mut self, now: ClockReading) {
        self.scheduler.handle_timer(now);
    }

    /// Applies another interval or schedule of checks.
    pub(super) fn change_timing(&mut self, check_timing: CheckTiming<'_>, now: ClockReading) {
        self.scheduler.change_timing(check_timing, now, backoff::random_fraction);
    }

    /// Takes the next task, with the clients that wait for its result: releases first, then imports by command, files
    /// in the inbox, and the sync.
    pub(super) fn next_task(&mut self) -> Option<(DaemonTask, Vec<W>)> {
        if let Some((was_held, author, waiter)) = self.releases.pop_front() {
            return Some((DaemonTask::Release { was_held, author }, vec![waiter]));
        }
        if let Some((import, author, waiter)) = self.imports.pop_front() {
            return Some((DaemonTask::Import(import, author), vec![waiter]));
        }
        if let Some(file) = self.inbox_files.pop_front() {
            return Some((DaemonTask::Inbox(file), Vec::new()));
        }
        let trigger = self.scheduler.pending.take()?;
        let CombinedSyncRequest { force, author, waiters } = std::mem::take(&mut self.sync_request);
        Some((DaemonTask::Sync { trigger, force, author }, waiters))
    }

    /// Queues a cancelled sync again, combined with later requests: its clients wait for the result of the next sync.
    /// The author of a later request, if there is one, is kept.
    pub(super) fn put_back_sync(&mut self, trigger: SyncTrigger, force: bool, author: Option<String>, waiters: Vec<W>) {
        self.sync_request.waiters.extend(waiters);
        self.sync_request.force |= force;
        self.sync_request.author = self.sync_request.author.take().or(author);
        self.scheduler.wake(trigger);
    }

    /// Queues a cancelled decision after a release again.
    pub(super) fn put_back_release(&mut self, was_held: bool, author: &str, waiters: Vec<W>) {
        self.releases.extend(waiters.into_iter().map(|waiter| (was_held, author.to_owned(), waiter)));
    }

    /// Schedules the next check after a sync. Returns the wait until then after a failure.
    pub(super) fn schedule_after_sync(
        &mut self,
        trigger: SyncTrigger,
        result: &Result<SyncReport, SyncError>,
        check_timing: CheckTiming<'_>,
        now: ClockReading,
    ) -> Option<Duration> {
        self.scheduler.after_sync(trigger, result, check_timing, now, backoff::random_fraction)
    }

    /// Schedules the next check after a task that could not be started at all.
    pub(super) fn schedule_after_failed_start(&mut self, check_timing: CheckTiming<'_>, now: ClockReading) {
        self.scheduler.failures = self.scheduler.failures.saturating_add(1);
        let wait = backoff::wait_after_failures(self.scheduler.failures);
        self.scheduler.schedule_next_check(Some(wait), check_timing, now, backoff::random_fraction);
    }

    /// Returns the time at which [`PendingTasks::handle_timer`] is to be called, if no task is in progress.
    pub(super) fn timer(&self) -> Instant {
        self.scheduler.next_check.0
    }

    /// Returns the time of the next check on the wall clock, which is `now` or earlier if it is due.
    pub(super) fn next_check(&self, now: ClockReading) -> Option<SystemTime> {
        let wait = self.timer().saturating_duration_since(now.monotonic);
        self.scheduler.scheduled_at.or_else(|| now.wall.checked_add(wait))
    }

    /// Returns the number of syncs in a row that failed.
    pub(super) fn failures(&self) -> u32 {
        self.scheduler.failures
    }
}

#[cfg(test)]
mod tests {
    use docwharf_agent::sync::SyncOutcome;

    use super::*;

    /// Tasks of a daemon that has nothing to do, because its first sync has been taken.
    fn idle() -> PendingTasks<u32> {
        let mut pending = PendingTasks::new(Instant::now());
        pending.handle_timer(ClockReading::now());
        let (task, waiters) = pending.next_task().expect("the first sync");
        assert_eq!((task, waiters), (sync(SyncTrigger::Start, false, None), Vec::new()));
        assert!(pending.next_task().is_none());
        pending
    }

    fn sync(trigger: SyncTrigger, force: bool, author: Option<&str>) -> DaemonTask {
        DaemonTask::Sync { trigger, force, author: author.map(str::to_owned) }
    }

    fn import(path: &str) -> ImportCommand {
        ImportCommand { path: path.into(), source: path.to_owned(), label: None, force: false }
    }

    /// A file that an inbox has found complete.
    fn inbox_file() -> InboxFile {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("dropped.zip"), "a bundle").unwrap();
        let mut inbox = docwharf_agent::sync::inbox::BundleInbox::open(dir.path(), []).unwrap();
        let now = std::time::Instant::now();
        inbox.scan(now).unwrap();
        inbox.scan(now + Duration::from_secs(10)).unwrap().ready.remove(0)
    }

    #[test]
    fn releases_come_first_then_imports_files_of_the_inbox_and_the_sync() {
        let mut pending = idle();
        pending.request_sync(SyncTrigger::Command, false, "ann".to_owned(), 1);
        let file = inbox_file();
        pending.set_inbox_files(vec![file.clone()]);
        pending.request_import(import("a.zip"), "bob".to_owned(), 2);
        pending.request_import(import("b.zip"), "bob".to_owned(), 3);
        pending.request_release(true, "cyd".to_owned(), 4);
        let tasks: Vec<_> = std::iter::from_fn(|| pending.next_task()).collect();
        assert_eq!(
            tasks,
            [
                (DaemonTask::Release { was_held: true, author: "cyd".to_owned() }, vec![4]),
                (DaemonTask::Import(import("a.zip"), "bob".to_owned()), vec![2]),
                (DaemonTask::Import(import("b.zip"), "bob".to_owned()), vec![3]),
                (DaemonTask::Inbox(file), vec![]),
                (sync(SyncTrigger::Command, false, Some("ann")), vec![1]),
            ]
        );
    }

    #[test]
    fn a_new_scan_replaces_the_files_of_the_inbox() {
        let mut pending = idle();
        pending.set_inbox_files(vec![inbox_file()]);
        pending.set_inbox_files(Vec::new());
        assert!(pending.next_task().is_none());
    }

    #[test]
    fn one_sync_serves_all_requests_with_the_strongest_demands_of_each() {
        let mut pending = idle();
        pending.request_sync(SyncTrigger::Refresh, true, "ann".to_owned(), 1);
        pending.request_sync(SyncTrigger::Command, false, "bob".to_owned(), 2);
        assert_eq!(pending.next_task(), Some((sync(SyncTrigger::Refresh, true, Some("bob")), vec![1, 2])));
        // The sync has taken the combined request: the next one does not skip the gate.
        pending.request_check_now(SyncTrigger::RegularCheck);
        assert_eq!(pending.next_task(), Some((sync(SyncTrigger::RegularCheck, false, None), vec![])));
    }

    #[test]
    fn a_cancelled_sync_is_queued_again_with_its_demands() {
        let mut pending = idle();
        pending.put_back_sync(SyncTrigger::Refresh, true, Some("ann".to_owned()), vec![1]);
        assert_eq!(pending.next_task(), Some((sync(SyncTrigger::Refresh, true, Some("ann")), vec![1])));
        // A request that arrived meanwhile: its author is the newer one, and its trigger does not weaken the sync.
        pending.request_sync(SyncTrigger::Command, false, "bob".to_owned(), 2);
        pending.put_back_sync(SyncTrigger::Refresh, true, Some("ann".to_owned()), vec![1]);
        assert_eq!(pending.next_task(), Some((sync(SyncTrigger::Refresh, true, Some("bob")), vec![2, 1])));
    }

    #[test]
    fn a_cancelled_release_is_queued_again_with_its_client() {
        let mut pending = idle();
        pending.put_back_release(true, "ann", vec![1]);
        let release = DaemonTask::Release { was_held: true, author: "ann".to_owned() };
        assert_eq!(pending.next_task(), Some((release, vec![1])));
    }

    #[test]
    fn commands_cancel_automatic_syncs_and_only_a_release_cancels_a_requested_sync() {
        use TaskCommand::{Import, Release, Sync};
        for (trigger, kind) in [
            (SyncTrigger::Changed, TaskKind::AutomaticSync),
            (SyncTrigger::Start, TaskKind::AutomaticSync),
            (SyncTrigger::RegularCheck, TaskKind::AutomaticSync),
            (SyncTrigger::Signal, TaskKind::AutomaticSync),
            (SyncTrigger::Command, TaskKind::CommandedSync),
            (SyncTrigger::Refresh, TaskKind::CommandedSync),
        ] {
            assert_eq!(sync(trigger, false, None).kind(), kind, "{trigger:?}");
        }
        for (running, cancelled_by) in [
            (TaskKind::AutomaticSync, vec![Sync, Import, Release]),
            (TaskKind::CommandedSync, vec![Release]),
            (TaskKind::Import, vec![]),
            (TaskKind::Release, vec![]),
        ] {
            let cancels: Vec<_> =
                [Sync, Import, Release].into_iter().filter(|command| command.cancels(running)).collect();
            assert_eq!(cancels, cancelled_by, "{running:?}");
        }
    }

    #[test]
    fn task_that_cannot_start_counts_as_a_failure_until_the_next_request() {
        let mut pending = idle();
        let check_timing = CheckTiming { interval: Duration::from_hours(1), schedule: None };
        let now = ClockReading::now();
        for failures in 1..=3 {
            pending.schedule_after_failed_start(check_timing, now);
            assert_eq!(pending.failures(), failures);
            assert_eq!(pending.timer(), now.monotonic + backoff::wait_after_failures(failures));
            assert_eq!(pending.next_check(now), Some(now.wall + backoff::wait_after_failures(failures)));
        }
        pending.request_sync(SyncTrigger::Command, false, "ann".to_owned(), 1);
        assert_eq!(pending.failures(), 0);
    }

    #[test]
    fn a_sync_that_succeeds_is_followed_by_one_after_the_interval() {
        let mut pending = idle();
        let check_timing = CheckTiming { interval: Duration::from_hours(1), schedule: None };
        let (now, done) = (ClockReading::now(), Ok(SyncReport::from_outcome(SyncOutcome::Current(None))));
        assert_eq!(pending.schedule_after_sync(SyncTrigger::Start, &done, check_timing, now), None);
        let wait = pending.timer() - now.monotonic;
        assert!((Duration::from_mins(54)..=Duration::from_mins(66)).contains(&wait), "{wait:?}");
        assert!(pending.next_task().is_none());
        pending.handle_timer(now);
        assert_eq!(pending.next_task(), Some((sync(SyncTrigger::RegularCheck, false, None), vec![])));
    }
}
