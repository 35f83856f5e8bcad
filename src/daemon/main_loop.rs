//! The main loop of `run`. Events wake it; it runs tasks that fetch or import versions, and serves their results. The
//! tasks call the crate `docwharf-agent`, which has no loop of its own.
//!
//! The loop runs one task at a time, and remembers the events that arrive meanwhile. A changed configuration cancels a
//! running sync, which loses nothing: the next sync adopts the export job and continues the download.
//!
//! The state of the loop has one part for each subject. A part owns its fields and changes them in its own file; this
//! file only passes results from one part to the next.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::admin::daemon_state::DaemonState;
use crate::admin::metrics::DaemonMetrics;
use crate::admin::routes::QueuedCommand;
use crate::admin::status::first_version_advice;
use crate::config::checked::Config;
use crate::config::inputs::ConfigInputs;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::SyncError;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::file_watch::{ChangedFiles, WatchedKind};
use docwharf_agent::sync::inbox::InboxFile;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::scheduler::ClockReading;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;
use docwharf_serve::tls::ServerTls;

use super::configuration::{ConfigChange, LiveConfiguration};
use super::error::DaemonError;
use super::inbox::{ImportDecision, InboxImporter};
use super::index_settings::SearchConfigInForce;
use super::notify::Notifier;
use super::pending_tasks::{PendingTasks, TaskCommand};
#[cfg(feature = "analytics")]
use super::reader_recording::ReaderRecording;
use super::reporter::{DescribeError, MainLoopView, ReplySender, Reporter, log_report};
use super::scrub::VersionFault;
use super::served_version::ServedVersion;
use super::site_listeners::SiteListeners;
use super::task::{DaemonTask, FinishedTask, RunningTask};
use super::waiting_version_site::WaitingVersionSite;

/// The part of `run` that fetches and imports versions, and decides which one is served.
pub(super) struct MainLoop {
    pub(super) writer: Arc<StoreWriter>,
    pub(super) configuration: LiveConfiguration,
    pub(super) pending: PendingTasks<ReplySender>,
    /// The task in progress.
    running: Option<RunningTask>,
    pub(super) served: ServedVersion,
    waiting_site: WaitingVersionSite,
    inbox: InboxImporter,
    listeners: SiteListeners,
    pub(super) reporter: Reporter,
    /// The settings of the search; `None` if the site is not served.
    search_settings: Option<watch::Sender<Arc<SearchConfigInForce>>>,
    /// The recording of what readers do; `None` if the site is not served.
    #[cfg(feature = "analytics")]
    recording: Option<ReaderRecording>,
}

/// The parameters of the main loop.
pub(super) struct MainLoopParameters {
    pub(super) writer: Arc<StoreWriter>,
    pub(super) config_inputs: ConfigInputs,
    pub(super) config: Config,
    pub(super) site: Arc<Site>,
    pub(super) waiting_site: Arc<Site>,
    pub(super) served: Option<VersionId>,
    pub(super) daemon_state: Arc<DaemonState>,
    pub(super) metrics: Arc<DaemonMetrics>,
    pub(super) describe: DescribeError,
    pub(super) notifier: Notifier,
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) socket_addresses: Vec<SocketAddr>,
    pub(super) search_settings: Option<watch::Sender<Arc<SearchConfigInForce>>>,
    #[cfg(feature = "analytics")]
    pub(super) recording: Option<ReaderRecording>,
}

/// The end of a task; an error means that its thread died.
type TaskEnd = Result<FinishedTask, oneshot::error::RecvError>;

/// The event that has woken the main loop.
enum MainLoopEvent {
    Hangup,
    FilesChanged(ChangedFiles),
    TaskEnd(Box<TaskEnd>),
    SyncTimer,
    InboxTimer,
    Command(QueuedCommand),
    Fault(VersionFault),
}

impl MainLoop {
    pub(super) fn new(parameters: MainLoopParameters) -> MainLoop {
        let MainLoopParameters { writer, config_inputs, config, site, waiting_site, served, .. } = parameters;
        let MainLoopParameters { daemon_state, metrics, describe, notifier, tls, socket_addresses, .. } = parameters;
        let MainLoopParameters { search_settings, .. } = parameters;
        #[cfg(feature = "analytics")]
        let MainLoopParameters { recording, .. } = parameters;
        // Opening the inbox may create folders; the files of the configuration are watched before that.
        let configuration = LiveConfiguration::new(config_inputs, config);
        let config = configuration.config();
        let (store, state, publish) = (Arc::clone(&writer), Arc::clone(&daemon_state), config.publish.clone());
        let now = Instant::now();
        let mut main_loop = MainLoop {
            pending: PendingTasks::new(now),
            running: None,
            served: ServedVersion::new(store, site, state, served, publish),
            waiting_site: WaitingVersionSite::new(waiting_site, !daemon_state.waiting_urls.is_empty()),
            inbox: InboxImporter::new(Arc::clone(&writer), config.inbox.clone(), now),
            listeners: SiteListeners::new(tls, socket_addresses),
            reporter: Reporter::new(daemon_state, metrics, notifier, describe),
            search_settings,
            #[cfg(feature = "analytics")]
            recording,
            writer,
            configuration,
        };
        // The configuration may have changed after it was read and before it was watched. This also clears a
        // configuration error that an earlier process has recorded.
        main_loop.reload();
        main_loop.listeners.warn_of_exposure(&main_loop.configuration.config().settings.access_control.rules);
        main_loop.resume_backoff();
        main_loop.log_first_step();
        main_loop
    }

    /// Logs the next step if only a person can bring the first version.
    fn log_first_step(&self) {
        let Ok(record) = self.writer.store().record() else { return };
        let (sync_settings, inbox) = (self.configuration.sync_settings(), self.inbox.state());
        if let Some(advice) = first_version_advice(&record, Some(sync_settings), inbox.as_ref()) {
            tracing::info!("there is nothing to serve yet: {advice}");
        }
    }

    /// Continues the back-off of the previous process, if the source and the demands on it are the same.
    fn resume_backoff(&mut self) {
        let Ok(record) = self.writer.store().record() else { return };
        let source_digest = self.configuration.sync_settings().source_digest();
        if let Some(wait) = self.pending.resume_backoff(&record, &source_digest, ClockReading::now()) {
            tracing::info!("the last sync failed; the next check is in {} s", wait.as_secs());
        }
    }

    /// Runs until an error ends the daemon.
    pub(super) async fn run(
        &mut self,
        mut hangup: Signal,
        mut commands: mpsc::Receiver<QueuedCommand>,
        mut faults: mpsc::Receiver<VersionFault>,
    ) -> Result<(), DaemonError> {
        loop {
            self.start_next_task();
            self.report();
            self.waiting_site.serve_waiting(self.writer.store(), self.configuration.sync_settings()).await;
            match self.next_event(&mut hangup, &mut commands, &mut faults).await {
                MainLoopEvent::Hangup => self.handle_hangup(),
                MainLoopEvent::FilesChanged(changed) => self.handle_file_changes(&changed),
                MainLoopEvent::TaskEnd(end) => self.handle_task_end(*end).await?,
                MainLoopEvent::SyncTimer => self.pending.handle_timer(ClockReading::now()),
                MainLoopEvent::InboxTimer => self.scan_inbox(),
                MainLoopEvent::Command(command) => self.execute_command(command).await,
                MainLoopEvent::Fault(fault) => self.handle_fault(fault).await,
            }
        }
    }

    async fn next_event(
        &mut self,
        hangup: &mut Signal,
        commands: &mut mpsc::Receiver<QueuedCommand>,
        faults: &mut mpsc::Receiver<VersionFault>,
    ) -> MainLoopEvent {
        let (sync_timer, inbox_timer) = (self.pending.timer(), self.inbox.next_scan());
        let is_idle = self.running.is_none();
        tokio::select! {
            _ = hangup.recv() => MainLoopEvent::Hangup,
            changed = self.configuration.changed() => MainLoopEvent::FilesChanged(changed),
            end = wait_for_task(&mut self.running) => MainLoopEvent::TaskEnd(Box::new(end)),
            () = sleep_until(sync_timer), if is_idle => MainLoopEvent::SyncTimer,
            () = sleep_until(inbox_timer.unwrap_or_else(far_future)), if inbox_timer.is_some() => MainLoopEvent::InboxTimer,
            Some(command) = commands.recv() => MainLoopEvent::Command(command),
            Some(fault) = faults.recv() => MainLoopEvent::Fault(fault),
        }
    }

    /// Starts the next task, if none is in progress.
    fn start_next_task(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some((task, waiters)) = self.pending.next_task() else { return };
        let (runtime, in_force) = (tokio::runtime::Handle::current(), self.configuration.in_force());
        match RunningTask::start(task, &self.writer, in_force, self.served.undamaged(), runtime) {
            Ok(running) => self.running = Some(running.with_waiting(waiters)),
            Err(error) => {
                // No thread can be started; serving does not depend on it.
                let error = SyncError::Thread(error);
                self.pending.schedule_after_failed_start(self.configuration.check_timing(), ClockReading::now());
                tracing::error!("{}; trying again later", ErrorChain(&error));
                self.reporter.reply(waiters, &Err(error));
            }
        }
    }

    /// Returns the recording of what readers do, so that it can be finished after the last request.
    #[cfg(feature = "analytics")]
    pub(super) fn take_recording(&mut self) -> Option<ReaderRecording> {
        self.recording.take()
    }

    /// Cancels the task in progress, if there is one.
    pub(super) fn cancel_task(&self) {
        if let Some(running) = &self.running {
            running.cancel();
        }
    }

    /// Cancels the task in progress if a command has precedence over it.
    pub(super) fn cancel_task_for(&self, command: TaskCommand) {
        if let Some(running) = self.running.as_ref().filter(|running| command.cancels(running.kind)) {
            running.cancel();
        }
    }

    /// Reports the state of the parts in the status and in the status line.
    fn report(&mut self) {
        let now = ClockReading::now();
        self.reporter.update(&MainLoopView {
            sync_settings: self.configuration.sync_settings(),
            served: self.served.id_and_since(),
            running: self.running.as_ref().map(|running| (running.kind, &running.progress)),
            next_check: self.pending.next_check(now),
            is_check_due: self.pending.timer() <= now.monotonic,
            failures: self.pending.failures(),
            is_inbox_open: self.inbox.is_open(),
            inbox: self.inbox.state(),
            restart_keys: self.configuration.restart_keys(),
            config_error: self.configuration.error(),
            certificate_problem: self.listeners.certificate_problem(SystemTime::now()),
        });
    }

    /// Handles SIGHUP: reads the configuration again and checks the source.
    fn handle_hangup(&mut self) {
        self.reporter.begin_reload();
        self.served.reopen_log();
        // The files are about to be read: later changes are compared with their current state.
        if self.configuration.compare_files().contains_key(&WatchedKind::Inbox) {
            self.inbox.scan_soon(Instant::now());
        }
        match self.reload() {
            Some(change) if change.is_different => self.cancel_task(),
            // Signals may arrive faster than syncs end: a sync with the same configuration continues.
            Some(_) => {}
            // The certificate files may have changed although the configuration has mistakes.
            None => self.reload_certificate(),
        }
        self.pending.request_sync_by_signal();
        self.reporter.end_reload();
    }

    /// Handles changes of watched files that no event has reported yet.
    pub(super) fn read_changed_files(&mut self) {
        let changed = self.configuration.compare_files();
        if !changed.is_empty() {
            self.handle_file_changes(&changed);
        }
    }

    fn handle_file_changes(&mut self, changed: &ChangedFiles) {
        if let Some(files) = changed.get(&WatchedKind::Settings) {
            let names = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
            tracing::info!("changed: {}; reading the configuration and its files again", OneLine(&names));
            if self.reload().is_some() {
                self.cancel_task();
                self.pending.handle_changed_settings();
            }
        }
        if changed.contains_key(&WatchedKind::Certificate) {
            self.reload_certificate();
        }
        if changed.contains_key(&WatchedKind::Bundle) {
            self.pending.request_check_now(SyncTrigger::RegularCheck);
        }
        if changed.contains_key(&WatchedKind::Inbox) {
            self.scan_inbox();
        }
    }

    /// Reads the configuration again and applies it. If it has mistakes, the previous one stays in force.
    fn reload(&mut self) -> Option<ConfigChange> {
        let change = self.configuration.reload();
        if let Some(change) = &change {
            self.apply_change(change);
            self.configuration.log_warnings();
            // The configuration may name another certificate, or the files of the same one may have been replaced.
            self.reload_certificate();
        }
        self.configuration.record_error(&self.writer);
        change
    }

    /// Passes the configuration in force to the parts that depend on it.
    fn apply_change(&mut self, change: &ConfigChange) {
        let config = self.configuration.config();
        self.served.set_rules(Arc::clone(&config.rules));
        self.waiting_site.set_rules(Arc::clone(&config.rules));
        if change.access_control {
            let access_control = &config.settings.access_control;
            self.served.set_access_control(access_control.clone());
            self.waiting_site.set_access_control(access_control);
            tracing::info!(
                "access or server.trustedProxies has changed: the new value applies from the next request on"
            );
            self.listeners.warn_of_exposure(&access_control.rules);
        }
        if let Some(search_settings) = &self.search_settings {
            if change.search || change.analytics {
                self.served.set_search_settings(config.site_search_settings());
            }
            if change.assistant {
                self.served.set_assistant_settings(config.assistant.clone());
            }
            if change.playground {
                self.served.set_playground_settings(config.playground.to_site_settings());
            }
            // The rules decide which pages the index has, too.
            let addresses = config.sync_settings.gate.address_settings.clone();
            search_settings.send_replace(SearchConfigInForce::new(config.search.clone(), addresses, &config.assistant));
        }
        if change.assistant {
            self.waiting_site.set_assistant_settings(config.assistant.without_ask());
        }
        #[cfg(feature = "analytics")]
        if let Some(recording) = &self.recording {
            if change.analytics {
                recording.configure(config.analytics.clone());
            }
            recording.configure_delivery(&config.analytics);
        }
        self.reporter.allow_hosts(&config.admin_hosts);
        self.reporter.set_feature_settings(config.feature_settings());
        self.served.configure_publishing(config.publish.clone());
        self.inbox.configure(config.inbox.as_ref(), Instant::now());
        if change.check_timing {
            self.pending.change_timing(self.configuration.check_timing(), ClockReading::now());
        }
        self.configuration.watch_files();
    }

    fn reload_certificate(&mut self) {
        self.listeners.reload_certificate(self.configuration.config().tls.as_ref());
        self.reporter.set_certificate_error(self.listeners.certificate_error());
    }

    fn scan_inbox(&mut self) {
        let (is_enabled, is_busy) = (self.configuration.sync_settings().enabled, self.running.is_some());
        if let Some(files) = self.inbox.scan(is_enabled, is_busy, Instant::now()) {
            self.pending.set_inbox_files(files);
        }
    }

    async fn handle_fault(&mut self, fault: VersionFault) {
        let sync_settings = self.configuration.sync_settings();
        let is_check_due = match fault {
            VersionFault::Damaged(damage) => self.served.handle_damage(damage, sync_settings).await,
            VersionFault::WrongIndex(id) => self.served.reopen(id, sync_settings).await,
        };
        if is_check_due {
            self.pending.request_check_now(SyncTrigger::RegularCheck);
        }
    }

    async fn handle_task_end(&mut self, end: TaskEnd) -> Result<(), DaemonError> {
        let running = self.running.take();
        let FinishedTask { task, result, opened } =
            end.map_err(|error| DaemonError::EndedUnexpectedly(io::Error::other(error)))?;
        self.configuration.record_error(&self.writer);
        if let Ok(report) = &result {
            log_report(report);
        }
        self.served.serve_opened(opened, self.configuration.sync_settings().seal_options).await;
        let (waiters, started) = running.map_or_else(Default::default, |r| (r.waiting, Some(r.started)));
        match task {
            DaemonTask::Inbox(file) => self.finish_inbox_file(&file, &result),
            DaemonTask::Import(import, _) => {
                self.reporter.count_import(&result);
                // The client has copied the bundle for the daemon, and may have ended since.
                self.writer.store().remove_staging_copy(&import.path);
                self.reporter.reply(waiters, &result);
            }
            DaemonTask::Release { was_held, author } => match result {
                Err(SyncError::Cancelled) => self.pending.put_back_release(was_held, &author, waiters),
                result => self.reporter.reply_to_release(self.writer.store(), was_held, waiters, &result),
            },
            DaemonTask::Sync { trigger, force, author } => {
                if let Err(SyncError::Cancelled) = result {
                    self.pending.put_back_sync(trigger, force, author, waiters);
                } else {
                    self.reporter.count_sync(&result, started.map_or(Duration::ZERO, |started| started.elapsed()));
                    self.reporter.reply(waiters, &result);
                    self.finish_sync(trigger, result)?;
                }
            }
        }
        Ok(())
    }

    fn finish_inbox_file(&mut self, file: &InboxFile, result: &Result<SyncReport, SyncError>) {
        self.reporter.count_import(result);
        let decision = self.inbox.decide_import(file, result, Instant::now());
        if let ImportDecision::Rejected(_) = &decision {
            self.reporter.count_rejected();
        }
        self.inbox.move_imported_file(file, &decision);
    }

    fn finish_sync(&mut self, trigger: SyncTrigger, result: Result<SyncReport, SyncError>) -> Result<(), DaemonError> {
        if let Err(error) = &result
            && error.is_absence()
            && !self.inbox.is_open()
            && self.is_store_empty()
        {
            return result.map(drop).map_err(DaemonError::FirstSync);
        }
        let (check_timing, now) = (self.configuration.check_timing(), ClockReading::now());
        let wait = self.pending.schedule_after_sync(trigger, &result, check_timing, now);
        match result {
            Ok(SyncReport { postponed: Some(_), .. }) => {}
            Ok(_) => self.reporter.clear_sync_error(),
            Err(error) => {
                if let Some(wait) = wait {
                    self.reporter.record_sync_error(&error, wait, self.served.id().is_some());
                }
            }
        }
        Ok(())
    }

    /// Returns whether the store is empty. Then there is no reason to continue.
    fn is_store_empty(&self) -> bool {
        self.writer.store().versions().is_ok_and(|versions| versions.is_empty())
    }
}

/// Returns a time a year from now, which stands for never.
fn far_future() -> Instant {
    Instant::now() + Duration::from_hours(24 * 365)
}

/// Waits for the end of the task in progress; waits forever if there is none.
async fn wait_for_task(running: &mut Option<RunningTask>) -> TaskEnd {
    match running {
        Some(running) => (&mut running.done).await,
        None => std::future::pending().await,
    }
}
