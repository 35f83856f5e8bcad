//! The agent: the main loop of `run`. Events wake it; it runs tasks that bring versions, and serves their results.
//!
//! It runs one task at a time, and remembers the events that arrive meanwhile. A changed configuration cancels a
//! running sync, which loses nothing: the next sync adopts the export job and continues the download.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::admin::allowed_hosts::AllowedHosts;
use crate::admin::control_messages::CommandReply;
use crate::admin::daemon_state::DaemonState;
use crate::admin::metrics::DaemonMetrics;
use crate::admin::routes::QueuedCommand;
use crate::config::checked::{Config, ConfigSources};
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::file_watch::WatchedKind;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::scheduler::ClockReading;
use docwharf_agent::sync::{SyncError, SyncOutcome};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;
use docwharf_serve::tls::ServerTls;

use super::DaemonError;
use super::commands::{DescribeError, reply_to_all};
use super::configuration::{ConfigChange, LiveConfiguration};
use super::inbox::{ImportEnd, InboxImporter};
use super::notify::Notifier;
use super::pending_tasks::{PendingTasks, TaskCommand};
use super::scrub::VersionFault;
use super::served_version::ServedVersion;
use super::site_listeners::SiteListeners;
use super::staged_version::StagedVersion;
use super::task::{AgentTask, FinishedTask, RunningTask};

/// The part of `run` that brings versions and decides which one is served.
pub(super) struct Agent {
    pub(super) writer: Arc<StoreWriter>,
    pub(super) configuration: LiveConfiguration,
    pub(super) served: ServedVersion,
    pub(super) staged: StagedVersion,
    pub(super) pending: PendingTasks<ReplySender>,
    pub(super) inbox: InboxImporter,
    pub(super) running: Option<RunningTask>,
    pub(super) daemon_state: Arc<DaemonState>,
    pub(super) metrics: Arc<DaemonMetrics>,
    pub(super) describe: DescribeError,
    pub(super) notifier: Notifier,
    /// The error of the last sync, if it failed.
    pub(super) last_error: Option<String>,
    pub(super) listeners: SiteListeners,
}

/// The parameters of an agent.
pub(super) struct AgentParameters {
    pub(super) writer: Arc<StoreWriter>,
    pub(super) sources: ConfigSources,
    pub(super) config: Config,
    pub(super) site: Arc<Site>,
    pub(super) staged: Arc<Site>,
    pub(super) shown: Option<VersionId>,
    pub(super) live: Arc<DaemonState>,
    pub(super) metrics: Arc<DaemonMetrics>,
    pub(super) describe: DescribeError,
    pub(super) notifier: Notifier,
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) reached: Vec<SocketAddr>,
}

/// The channel for the reply to a command.
pub(super) type ReplySender = oneshot::Sender<CommandReply>;

/// The event that has woken the agent.
enum AgentEvent {
    Hangup,
    Changed(BTreeSet<WatchedKind>),
    Done(Box<Result<FinishedTask, tokio::sync::oneshot::error::RecvError>>),
    SyncTimer,
    InboxTimer,
    Order(QueuedCommand),
    Fault(VersionFault),
}

impl Agent {
    pub(super) fn new(ground: AgentParameters) -> Agent {
        let AgentParameters {
            writer,
            sources,
            config,
            site,
            staged,
            shown,
            live,
            metrics,
            describe,
            notifier,
            tls,
            reached,
        } = ground;
        let (store, state) = (Arc::clone(&writer), Arc::clone(&live));
        let served = ServedVersion::new(store, site, state, shown, config.publish.clone());
        let staged = StagedVersion::new(staged, !live.staged.is_empty());
        // Its files are watched before the inbox is opened, which may create folders in it.
        let configuration = LiveConfiguration::new(sources, config);
        let now = Instant::now();
        let mut agent = Agent {
            writer,
            inbox: InboxImporter::new(configuration.config().inbox.clone(), now),
            configuration,
            served,
            staged,
            pending: PendingTasks::new(now),
            running: None,
            daemon_state: live,
            metrics,
            describe,
            notifier,
            last_error: None,
            listeners: SiteListeners::new(tls, reached),
        };
        // The configuration may have changed after it was read and before it was watched. This also clears a
        // configuration error that an earlier process has recorded.
        agent.reload();
        agent.listeners.warn_of_exposure(&agent.configuration.config().settings.access_control.access);
        agent.resume_backoff();
        agent
    }

    /// Continues the back-off of the previous process, if the source and the demands on it are the same.
    fn resume_backoff(&mut self) {
        let Ok(record) = self.writer.store().record() else { return };
        let question = self.configuration.intent().question();
        if let Some(left) = self.pending.resume_backoff(&record, &question, ClockReading::now()) {
            tracing::info!("the last sync failed; looking again in {} s", left.as_secs());
        }
    }

    pub(super) async fn run(
        &mut self,
        mut hangup: Signal,
        mut orders: mpsc::Receiver<QueuedCommand>,
        mut found: mpsc::Receiver<VersionFault>,
    ) -> Result<(), DaemonError> {
        loop {
            self.start_next_task();
            self.send_status_line();
            self.update_daemon_state();
            self.staged.serve_waiting(self.writer.store(), self.configuration.intent()).await;
            let (next, glance) = (self.pending.timer(), self.inbox.next_scan().unwrap_or_else(far_future));
            let (is_idle, has_glance) = (self.running.is_none(), self.inbox.next_scan().is_some());
            let woken = tokio::select! {
                _ = hangup.recv() => AgentEvent::Hangup,
                changed = self.configuration.changed() => AgentEvent::Changed(changed),
                done = wait_for_task(&mut self.running) => AgentEvent::Done(Box::new(done)),
                () = sleep_until(next), if is_idle => AgentEvent::SyncTimer,
                () = sleep_until(glance), if has_glance => AgentEvent::InboxTimer,
                Some(call) = orders.recv() => AgentEvent::Order(call),
                Some(finding) = found.recv() => AgentEvent::Fault(finding),
            };
            match woken {
                AgentEvent::Hangup => {
                    self.notifier.reloading();
                    self.served.reopen_log();
                    // The files are about to be read: later changes are compared with their state of now.
                    if self.configuration.compare_files().contains(&WatchedKind::Inbox) {
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
                    self.notifier.ready();
                }
                AgentEvent::Changed(what) => self.handle_file_changes(&what),
                AgentEvent::Done(done) => {
                    let running = self.running.take();
                    let done = done.map_err(|died| DaemonError::EndedUnexpectedly(io::Error::other(died)))?;
                    self.finish_task(done, running).await?;
                }
                AgentEvent::SyncTimer => self.pending.handle_timer(ClockReading::now()),
                AgentEvent::InboxTimer => self.scan_inbox(),
                AgentEvent::Order(call) => self.execute_command(call).await,
                AgentEvent::Fault(fault) => self.handle_fault(fault).await,
            }
        }
    }

    /// Starts the next task, if none is in progress.
    fn start_next_task(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some((work, waiting)) = self.pending.next_task() else { return };
        let runtime = tokio::runtime::Handle::current();
        let running =
            RunningTask::start(work, &self.writer, self.configuration.in_force(), self.served.undamaged(), runtime);
        match running {
            Ok(running) => self.running = Some(running.with_waiting(waiting)),
            Err(error) => {
                // No thread can be started; serving does not depend on it.
                let error = SyncError::Thread(error);
                self.pending.schedule_after_failed_start(self.configuration.rhythm(), ClockReading::now());
                tracing::error!("{}; trying again in a while", ErrorChain(&error));
                reply_to_all(waiting, &Err(error), self.describe);
            }
        }
    }

    /// Returns whether the store is empty, so that there is no reason to keep running.
    fn is_store_empty(&self) -> bool {
        self.writer.store().versions().is_ok_and(|versions| versions.is_empty())
    }

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

    fn handle_file_changes(&mut self, what: &BTreeSet<WatchedKind>) {
        if what.contains(&WatchedKind::Settings) {
            tracing::info!("the configuration, the key or a certificate has changed");
            if self.reload().is_some() {
                self.cancel_task();
                self.pending.handle_changed_settings();
            }
        }
        if what.contains(&WatchedKind::Certificate) {
            self.reload_certificate();
        }
        if what.contains(&WatchedKind::Bundle) {
            self.pending.wake(SyncTrigger::Interval);
        }
        if what.contains(&WatchedKind::Inbox) {
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
        self.staged.set_rules(Arc::clone(&config.rules));
        if change.access_control {
            let access_control = &config.settings.access_control;
            self.served.set_access_control(access_control.clone());
            self.staged.set_access_control(access_control);
            tracing::info!("access or server.trustedProxies has changed: it counts from the next request on");
            self.listeners.warn_of_exposure(&access_control.access);
        }
        self.daemon_state.allow_hosts(AllowedHosts::new(&config.admin_hosts));
        self.served.configure_publishing(config.publish.clone());
        self.inbox.configure(config.inbox.as_ref(), Instant::now());
        if change.rhythm {
            self.pending.change_rhythm(self.configuration.rhythm(), ClockReading::now());
        }
        self.configuration.watch_files();
    }

    async fn handle_fault(&mut self, fault: VersionFault) {
        let intent = self.configuration.intent();
        let is_check_due = match fault {
            VersionFault::Damaged(damage) => self.served.handle_damage(damage, intent).await,
            VersionFault::WrongIndex(id) => self.served.reopen(id, intent).await,
        };
        if is_check_due {
            self.pending.wake(SyncTrigger::Interval);
        }
    }

    fn scan_inbox(&mut self) {
        let (is_enabled, is_busy) = (self.configuration.intent().enabled, self.running.is_some());
        if let Some(files) = self.inbox.scan(is_enabled, is_busy, Instant::now()) {
            self.pending.set_inbox_files(files);
        }
    }

    /// Loads the certificate again. A client that learns that this is done may request the status at once.
    pub(super) fn reload_certificate(&mut self) {
        self.listeners.reload_certificate(self.configuration.config().tls.as_ref());
        let error = self.listeners.certificate_error().map(str::to_owned);
        self.daemon_state.update(|now| now.tls_error = error);
    }

    async fn finish_task(&mut self, done: FinishedTask, running: Option<RunningTask>) -> Result<(), DaemonError> {
        self.configuration.record_error(&self.writer);
        if let Ok(report) = &done.result {
            log_report(report);
        }
        self.served.serve_opened(done.opened, self.configuration.intent().effort).await;
        let (waiting, began) = running.map_or_else(Default::default, |r| (r.waiting, Some(r.began)));
        let name = match &done.result {
            Ok(report) if report.blind.is_some() => "probes unreadable",
            Ok(report) => report.outcome.name(),
            Err(_) => "failed",
        };
        match done.work {
            AgentTask::Inbox(file) => {
                self.metrics.count_import(name);
                let end = self.inbox.decide_import_end(&file, &done.result, Instant::now());
                if let ImportEnd::Rejected(_) = &end {
                    self.metrics.count_rejected();
                }
                self.inbox.move_imported_file(&file, &end);
                Ok(())
            }
            AgentTask::Import(one, _) => {
                self.metrics.count_import(name);
                // The client has copied the bundle for the daemon, and may have ended since.
                self.writer.store().remove_staged_copy(&one.path);
                reply_to_all(waiting, &done.result, self.describe);
                Ok(())
            }
            AgentTask::Release { was_held, author } => {
                self.finish_release(was_held, &author, waiting, &done.result);
                Ok(())
            }
            AgentTask::Sync { trigger, skip_gate, author } => {
                if let Err(SyncError::Interrupted) = done.result {
                    self.pending.put_back_sync(trigger, skip_gate, author, waiting);
                    return Ok(());
                }
                self.metrics.count_sync(name, began.map_or(Duration::ZERO, |began| began.elapsed()));
                reply_to_all(waiting, &done.result, self.describe);
                self.after_sync(trigger, done.result)
            }
        }
    }

    fn after_sync(&mut self, trigger: SyncTrigger, result: Result<SyncReport, SyncError>) -> Result<(), DaemonError> {
        if let Err(error) = &result
            && error.is_absence()
            && !self.inbox.is_open()
            && self.is_store_empty()
        {
            return result.map(drop).map_err(DaemonError::FirstSync);
        }
        let wait = self.pending.schedule_after_sync(trigger, &result, self.configuration.rhythm(), ClockReading::now());
        match result {
            Ok(SyncReport { too_early: Some(_), .. }) => {}
            Ok(_) => self.last_error = None,
            Err(error) => {
                if let Some(wait) = wait {
                    self.last_error = Some(ErrorChain(&error).to_string());
                    self.log_failure(&error, wait);
                }
            }
        }
        Ok(())
    }

    fn log_failure(&self, error: &SyncError, wait: Duration) {
        let stays = if self.served.id().is_some() { "the active version stays" } else { "there is no version yet" };
        if let SyncError::StillRefused(_) = error {
            tracing::debug!("{}", ErrorChain(error));
        } else {
            tracing::error!("{}; {stays}; looking again in {} s", ErrorChain(error), wait.as_secs_f32().ceil());
        }
    }
}

/// Returns a time a year from now, which stands for never.
fn far_future() -> Instant {
    Instant::now() + Duration::from_hours(24 * 365)
}

/// Waits for the end of the task in progress; waits forever if there is none.
async fn wait_for_task(
    running: &mut Option<RunningTask>,
) -> Result<FinishedTask, tokio::sync::oneshot::error::RecvError> {
    match running {
        Some(running) => (&mut running.done).await,
        None => std::future::pending().await,
    }
}

fn log_report(report: &SyncReport) {
    for warning in report.brought.iter().flat_map(|brought| &brought.warnings) {
        tracing::warn!("{warning}");
    }
    match &report.outcome {
        SyncOutcome::Activated(id) => tracing::info!("version {} is active", id.short()),
        SyncOutcome::NotActive(id, why) if report.brought.is_some() || report.refused_now => {
            tracing::warn!("version {} is sealed but not active: {why}", id.short());
        }
        SyncOutcome::Staged(id) if report.brought.is_some() => {
            let id = id.short();
            tracing::info!("version {id} waits for a person: `docwharf activate {id}` makes it active");
        }
        _ => tracing::debug!("nothing new"),
    }
}
