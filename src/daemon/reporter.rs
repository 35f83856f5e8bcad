//! The reports of a running daemon: replies to commands, log lines, metrics, the status for the admin routes, and the
//! status line for the service manager.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::admin::allowed_hosts::AllowedHosts;
use crate::admin::command_execution::release_result;
use crate::admin::control_messages::{CommandReply, CommandResult};
use crate::admin::daemon_state::{DaemonState, InboxState};
use crate::admin::metrics::DaemonMetrics;
use crate::features::FeatureSettings;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::system::TaskProgress;
use docwharf_agent::sync::{SyncError, SyncOutcome, SyncSettings};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;

use super::notify::{DaemonActivity, Notifier, StatusLine};
use super::task::TaskKind;

/// The reason why a command was not carried out.
#[derive(Debug)]
pub enum CommandError<'a> {
    /// The task failed.
    Failed(&'a SyncError),
    /// The command names a configuration whose source, pin, SHA-256 or `enabled` differs from the daemon's.
    OtherConfiguration,
    /// The label of an import is invalid, for this reason.
    Label(&'static str),
    /// A command that needs a task reached the code for immediate commands: a bug.
    NotAtOnce,
}

/// Converts an error into its exit code and its message on one line.
pub type DescribeError = fn(&CommandError<'_>) -> (u8, String);

/// The channel for the reply to a command.
pub(super) type ReplySender = oneshot::Sender<CommandReply>;

/// A view of the parts of the main loop, made for each report.
pub(super) struct MainLoopView<'a> {
    /// The sync settings of the configuration in force.
    pub(super) sync_settings: &'a SyncSettings,
    /// The served version, and since when it is active if that is known.
    pub(super) served: Option<(VersionId, Option<&'a str>)>,
    /// The kind and the progress of the task in progress.
    pub(super) running: Option<(TaskKind, &'a Arc<TaskProgress>)>,
    /// The time of the next check of the source.
    pub(super) next_check: Option<SystemTime>,
    /// Whether that time has come.
    pub(super) is_check_due: bool,
    /// The number of syncs in a row that failed.
    pub(super) failures: u32,
    /// Whether an inbox is configured and could be opened.
    pub(super) is_inbox_open: bool,
    /// The state of the inbox, if one is configured.
    pub(super) inbox: Option<InboxState>,
    /// The keys of the configuration that keep their value until a restart.
    pub(super) restart_keys: &'a [&'static str],
    /// The mistakes of the last configuration, if it was refused.
    pub(super) config_error: Option<&'a str>,
    /// The problem of the certificate, if there is one.
    pub(super) certificate_problem: Option<String>,
}

impl MainLoopView<'_> {
    /// Returns the current or next activity for the status line.
    fn activity(&self) -> DaemonActivity {
        match self.running.map(|(kind, _)| kind) {
            Some(TaskKind::Import) => DaemonActivity::Importing,
            Some(TaskKind::Release) => DaemonActivity::DecidingActiveVersion,
            _ if !self.sync_settings.enabled => DaemonActivity::Disabled,
            _ if !self.sync_settings.has_source() && !self.is_inbox_open => DaemonActivity::NoSource,
            _ if !self.sync_settings.has_source() => DaemonActivity::Inbox,
            Some(_) => DaemonActivity::CheckingSource,
            None => match self.next_check {
                Some(time) if !self.is_check_due => DaemonActivity::At(time),
                _ => DaemonActivity::CheckingSource,
            },
        }
    }
}

/// Reports what the main loop does.
pub(super) struct Reporter {
    state: Arc<DaemonState>,
    metrics: Arc<DaemonMetrics>,
    notifier: Notifier,
    describe: DescribeError,
    /// The error of the last sync, if it failed.
    last_error: Option<String>,
}

impl Reporter {
    /// Creates a reporter of a daemon whose last sync has not failed.
    pub(super) fn new(
        state: Arc<DaemonState>,
        metrics: Arc<DaemonMetrics>,
        notifier: Notifier,
        describe: DescribeError,
    ) -> Reporter {
        Reporter { state, metrics, notifier, describe, last_error: None }
    }

    /// Sends the status line to the service manager, and updates the part of the status that only the main loop knows.
    pub(super) fn update(&self, view: &MainLoopView<'_>) {
        let short = view.served.map(|(id, since)| (id.short(), since));
        let line = StatusLine {
            served: short.as_ref().map(|(short, since)| (short.as_ref(), *since)),
            error: (view.config_error)
                .or(view.certificate_problem.as_deref())
                .or(view.inbox.as_ref().and_then(|inbox| inbox.error.as_deref().or(inbox.file_error.as_deref())))
                .or(self.last_error.as_deref()),
            next: view.activity(),
        };
        self.notifier.status(&line.to_string());
        let is_awaited = view.sync_settings.enabled && view.sync_settings.has_source();
        self.state.update(|snapshot| {
            if snapshot.sync_settings.as_ref() != Some(view.sync_settings) {
                snapshot.sync_settings = Some(view.sync_settings.clone());
            }
            snapshot.served = view.served.map(|(id, _)| id);
            snapshot.next_check = view.next_check.filter(|_| is_awaited && view.running.is_none());
            snapshot.progress = view.running.map(|(_, progress)| Arc::clone(progress));
            snapshot.failures = view.failures;
            snapshot.restart_keys.clear();
            snapshot.restart_keys.extend_from_slice(view.restart_keys);
            snapshot.inbox.clone_from(&view.inbox);
        });
    }

    /// Updates the error of the certificate in the status at once: a client that learns that the certificate has been
    /// loaded again may request the status.
    pub(super) fn set_certificate_error(&self, error: Option<&str>) {
        self.state.update(|snapshot| snapshot.tls_error = error.map(str::to_owned));
    }

    /// Replaces the part of the configuration that decides which features the status reports.
    pub(super) fn set_feature_settings(&self, settings: FeatureSettings) {
        self.state.update(|snapshot| snapshot.feature_settings = Some(settings));
    }

    /// Replaces the host names that the admin listener accepts.
    pub(super) fn allow_hosts(&self, hosts: &[String]) {
        self.state.allow_hosts(AllowedHosts::new(hosts));
    }

    /// Tells the service manager that the configuration is read again.
    pub(super) fn begin_reload(&self) {
        self.notifier.reloading();
    }

    /// Tells the service manager that the reload is done.
    pub(super) fn end_reload(&self) {
        self.notifier.ready();
    }

    /// Sends a result to every client that waits for it.
    pub(super) fn reply(&self, waiters: Vec<ReplySender>, result: &Result<SyncReport, SyncError>) {
        if waiters.is_empty() {
            return;
        }
        let reply = match result {
            Ok(report) => CommandReply::Executed(CommandResult::from_report(report)),
            Err(error) => self.failure(&CommandError::Failed(error)),
        };
        send_to_all(waiters, &reply);
    }

    /// Sends the decision after a release to every client that waits for it.
    pub(super) fn reply_to_release(
        &self,
        store: &VersionStore,
        was_held: bool,
        waiters: Vec<ReplySender>,
        result: &Result<SyncReport, SyncError>,
    ) {
        let released = result.as_ref().map(|report| release_result(store, was_held, report));
        let reply = match released {
            Ok(Ok(released)) => CommandReply::Executed(released),
            Ok(Err(error)) => self.failure(&CommandError::Failed(&error)),
            Err(error) => self.failure(&CommandError::Failed(error)),
        };
        send_to_all(waiters, &reply);
    }

    /// Returns the reply to a command that has failed.
    pub(super) fn failure(&self, error: &CommandError<'_>) -> CommandReply {
        let (code, message) = (self.describe)(error);
        CommandReply::Failed { code, message }
    }

    /// Counts a sync that has ended.
    pub(super) fn count_sync(&self, result: &Result<SyncReport, SyncError>, took: Duration) {
        self.metrics.count_sync(result_name(result), took);
    }

    /// Counts an import that has ended.
    pub(super) fn count_import(&self, result: &Result<SyncReport, SyncError>) {
        self.metrics.count_import(result_name(result));
    }

    /// Counts a file from the inbox that was refused.
    pub(super) fn count_rejected(&self) {
        self.metrics.count_rejected();
    }

    /// Records that the last sync has not failed.
    pub(super) fn clear_sync_error(&mut self) {
        self.last_error = None;
    }

    /// Logs and records the error of the last sync. The source is checked again after `wait`.
    pub(super) fn record_sync_error(&mut self, error: &SyncError, wait: Duration, has_version: bool) {
        self.last_error = Some(ErrorChain(error).to_string());
        let served = if has_version { "the active version stays" } else { "there is no version yet" };
        if let SyncError::StillRefused(_) = error {
            tracing::debug!("{}", ErrorChain(error));
        } else {
            tracing::error!("{}; {served}; the next check is in {} s", ErrorChain(error), wait.as_secs_f32().ceil());
        }
    }
}

fn send_to_all(waiters: Vec<ReplySender>, reply: &CommandReply) {
    for waiter in waiters {
        // The client may have ended meanwhile.
        let _ = waiter.send(reply.clone());
    }
}

/// Returns the name of a result in metrics.
fn result_name(result: &Result<SyncReport, SyncError>) -> &'static str {
    match result {
        Ok(report) if report.unreadable_probes.is_some() => "probes unreadable",
        Ok(report) => report.outcome.name(),
        Err(_) => "failed",
    }
}

/// Logs the outcome of a task, and what it has to warn of.
pub(super) fn log_report(report: &SyncReport) {
    for warning in report.ingested.iter().flat_map(|ingested| &ingested.warnings) {
        tracing::warn!("{warning}");
    }
    match &report.outcome {
        SyncOutcome::Activated(id) => tracing::info!("version {} is active", id.short()),
        SyncOutcome::NotActive(id, why) if report.ingested.is_some() || report.is_new_refusal => {
            tracing::warn!("version {} is sealed but not active: {why}", id.short());
        }
        SyncOutcome::Staged(id) if report.ingested.is_some() => {
            let id = id.short();
            tracing::info!("version {id} waits for a person: `docwharf activate {id}` makes it active");
        }
        _ => tracing::debug!("nothing new"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the view of a main loop that waits for the next check.
    fn idle_view(sync_settings: &SyncSettings) -> MainLoopView<'_> {
        MainLoopView {
            sync_settings,
            served: None,
            running: None,
            next_check: Some(SystemTime::UNIX_EPOCH),
            is_check_due: false,
            failures: 0,
            is_inbox_open: false,
            inbox: None,
            restart_keys: &[],
            config_error: None,
            certificate_problem: None,
        }
    }

    fn sync_settings_with_source() -> SyncSettings {
        let bundle = docwharf_agent::sync::BundleLocation::File("/bundle.zip".into());
        SyncSettings { enabled: true, bundle: Some(bundle), ..SyncSettings::default() }
    }

    fn reporter_to(notifier: Notifier) -> (Reporter, Arc<DaemonState>) {
        let state = Arc::new(DaemonState::new(Vec::new(), Vec::new(), Vec::new(), None));
        let metrics = Arc::new(DaemonMetrics::new(false));
        (Reporter::new(Arc::clone(&state), metrics, notifier, |_| (8, String::new())), state)
    }

    /// Returns the activity of a daemon, as the status line shows it.
    fn activity_text<'a>(sync_settings: &'a SyncSettings, change: impl FnOnce(&mut MainLoopView<'a>)) -> String {
        let mut view = idle_view(sync_settings);
        change(&mut view);
        let line = StatusLine { served: None, error: None, next: view.activity() }.to_string();
        line.trim_start_matches("no version yet; ").to_owned()
    }

    #[test]
    fn the_status_line_shows_the_task_in_progress_or_the_next_one() {
        let progress = Arc::new(TaskProgress::default());
        let with_source = sync_settings_with_source();
        let without_source = SyncSettings { bundle: None, ..with_source.clone() };
        let disabled = SyncSettings { enabled: false, ..with_source.clone() };
        assert_eq!(activity_text(&with_source, |_| {}), "next check at 1970-01-01T00:00:00Z");
        assert_eq!(activity_text(&with_source, |view| view.is_check_due = true), "checking the source");
        assert_eq!(activity_text(&without_source, |_| {}), "no source and no usable inbox");
        assert_eq!(activity_text(&without_source, |view| view.is_inbox_open = true), "waiting for the inbox");
        for is_inbox_open in [false, true] {
            let text = activity_text(&disabled, |view| view.is_inbox_open = is_inbox_open);
            assert_eq!(text, "checks are disabled (staticExport.enabled)");
        }
        for (kind, expected) in [
            (TaskKind::AutomaticSync, "checking the source"),
            (TaskKind::CommandedSync, "checking the source"),
            (TaskKind::Import, "importing"),
            (TaskKind::Release, "deciding which version is active"),
        ] {
            assert_eq!(
                activity_text(&with_source, |view| view.running = Some((kind, &progress))),
                expected,
                "{kind:?}"
            );
        }
        // Imports and releases do not depend on a source.
        for (kind, expected) in
            [(TaskKind::Import, "importing"), (TaskKind::Release, "deciding which version is active")]
        {
            for sync_settings in [&without_source, &disabled] {
                let text = activity_text(sync_settings, |view| view.running = Some((kind, &progress)));
                assert_eq!(text, expected, "{kind:?}");
            }
        }
    }

    #[test]
    fn status_line_prefers_config_errors_to_certificate_inbox_and_sync_errors() {
        let dir = tempfile::tempdir().unwrap();
        let manager = std::os::unix::net::UnixDatagram::bind(dir.path().join("s")).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut reporter, _) = reporter_to(crate::daemon::notify::notifier_to(&dir.path().join("s")));
        let sync_settings = sync_settings_with_source();
        let line = |reporter: &Reporter, errors: [bool; 4]| {
            let [configuration, certificate, inbox, file] = errors;
            reporter.update(&MainLoopView {
                config_error: configuration.then_some("the configuration"),
                certificate_problem: certificate.then(|| "the certificate".to_owned()),
                inbox: Some(InboxState {
                    directory: "/in".into(),
                    error: inbox.then(|| "the inbox".to_owned()),
                    file_error: file.then(|| "a file".to_owned()),
                    ..InboxState::default()
                }),
                ..idle_view(&sync_settings)
            });
            let mut buffer = [0; 2000];
            let length = manager.recv(&mut buffer).expect("a status line");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let start = "STATUS=no version yet; next check at 1970-01-01T00:00:00Z";
        reporter.record_sync_error(&SyncError::UnusableSetting("the sync".to_owned()), Duration::from_secs(1), false);
        for (errors, expected) in [
            ([false, false, false, false], "the sync"),
            ([false, false, false, true], "a file"),
            ([false, false, true, true], "the inbox"),
            ([false, true, true, true], "the certificate"),
            ([true, true, true, true], "the configuration"),
        ] {
            assert_eq!(line(&reporter, errors), format!("{start}; last error: {expected}"));
        }
        reporter.clear_sync_error();
        assert_eq!(line(&reporter, [false; 4]), start);
    }

    #[test]
    fn the_status_has_a_next_check_only_while_the_agent_waits_for_one() {
        let (reporter, state) = reporter_to(Notifier::none());
        let progress = Arc::new(TaskProgress::default());
        let sync_settings = sync_settings_with_source();
        let disabled = SyncSettings { enabled: false, ..sync_settings.clone() };
        let without_source = SyncSettings { bundle: None, ..sync_settings.clone() };
        for (sync_settings, running, expected) in [
            (&sync_settings, None, Some(SystemTime::UNIX_EPOCH)),
            (&sync_settings, Some((TaskKind::AutomaticSync, &progress)), None),
            (&disabled, None, None),
            (&without_source, None, None),
        ] {
            reporter.update(&MainLoopView { running, failures: 3, is_inbox_open: true, ..idle_view(sync_settings) });
            let snapshot = state.snapshot();
            assert_eq!(snapshot.next_check, expected, "{sync_settings:?}");
            assert_eq!((snapshot.progress.is_some(), snapshot.failures), (running.is_some(), 3));
            assert_eq!(snapshot.sync_settings.as_ref(), Some(sync_settings));
        }
    }

    #[test]
    fn sync_with_unreadable_probes_is_recorded_as_probes_unreadable() {
        let report = SyncReport::from_outcome(SyncOutcome::Current(None));
        let blind = SyncReport {
            unreadable_probes: Some("503".to_owned()),
            ..SyncReport::from_outcome(SyncOutcome::Current(None))
        };
        let results = [Ok(report), Ok(blind), Err(SyncError::Cancelled)];
        assert_eq!(results.each_ref().map(result_name), ["already current", "probes unreadable", "failed"]);
    }
}
