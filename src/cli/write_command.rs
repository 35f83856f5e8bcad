//! Runs commands that write to a store: in this process, or by the daemon that has the store open.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::admin::command_execution::execute_at_once;
use crate::admin::control_client::ControlClient;
use crate::admin::control_messages::{CommandAction, CommandReply, CommandResult, DaemonCommand};
use crate::admin::status::StoreStatus;
use docwharf_agent::store::StoreError;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::SyncSettings;
use docwharf_agent::sync::system::{TaskContext, TaskProgress};
use docwharf_base::accounts::describe_user;
use docwharf_base::error_chain::OneLine;
use docwharf_base::runtime;

use super::context::{CommandContext, STORE_LOCK_TIMEOUT, current_user_name};
use super::failure::CommandFailure;
use super::interruptible::run_interruptible;
use super::publish::publish_active;

/// Interval of the attempts while the store is locked and no daemon answers yet.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which waiting is logged: a starting daemon locks the store before it answers on its control socket.
const LOCK_WAIT_NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Interval at which the progress of the daemon is read while it carries out a command.
const DAEMON_PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The process that carries out a command.
pub(super) enum StoreAccess {
    /// This process: it has locked the store.
    Writer(StoreWriter),
    /// The daemon that has the store open.
    Daemon(ControlClient),
}

/// Waits for the response of a daemon.
pub(super) fn block_on_daemon<T>(response: impl Future<Output = T>) -> Result<T, CommandFailure> {
    let runtime = runtime::build_runtime(&mut tokio::runtime::Builder::new_current_thread());
    Ok(runtime.map_err(CommandFailure::local("cannot start"))?.block_on(response))
}

/// Returns the daemon on this store, if one runs whose control socket this user may use.
pub(super) fn find_daemon(store: &Path) -> Option<ControlClient> {
    block_on_daemon(ControlClient::find(store)).ok().flatten()
}

/// Returns the status that the daemon on this store reports, if one runs.
pub(super) fn daemon_status(store: &Path) -> Option<StoreStatus> {
    let daemon = find_daemon(store)?;
    let (status, json) = block_on_daemon(daemon.get("/status")).ok()?.ok()?;
    (status == StatusCode::OK).then(|| serde_json::from_slice(&json).ok())?
}

/// Returns why a daemon on this store does not answer; `None` if nothing listens on its control socket.
pub(super) fn explain_silent_daemon(store: &Path) -> Option<String> {
    let socket = ControlClient::socket_path(store)?;
    match std::os::unix::net::UnixStream::connect(socket.path()) {
        Ok(_) => Some("it does not answer".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            // The daemon and its store have one owner.
            Some(match std::fs::metadata(store).map(|metadata| metadata.uid()) {
                Ok(0) => format!("it answers only {}", describe_user(0)),
                Ok(owner) => format!("it answers only {} and root", describe_user(owner)),
                Err(_) => "it answers only its own user and root".to_owned(),
            })
        }
        Err(_) => None,
    }
}

/// Locks the store, or returns the daemon that has locked it. Waits up to [`STORE_LOCK_TIMEOUT`] while
/// another process has it locked.
pub(super) fn open_store_or_daemon(store: &Path, task_context: &TaskContext) -> Result<StoreAccess, CommandFailure> {
    let started = Instant::now();
    let mut is_reported = false;
    loop {
        match StoreWriter::open(store, Duration::ZERO) {
            Ok(writer) => return Ok(StoreAccess::Writer(writer)),
            Err(error @ StoreError::Locked { .. }) => {
                if let Some(daemon) = task_context.wait_for(ControlClient::find(store))? {
                    return Ok(StoreAccess::Daemon(daemon));
                }
                if started.elapsed() >= STORE_LOCK_TIMEOUT {
                    return Err(error.into());
                }
            }
            Err(other) => return Err(other.into()),
        }
        if !is_reported && started.elapsed() >= LOCK_WAIT_NOTICE_DELAY {
            is_reported = true;
            let seconds = STORE_LOCK_TIMEOUT.as_secs();
            tracing::warn!("another docwharf process writes to {}; waiting up to {seconds} s for it", store.display());
        }
        // Created inside the future: a timer must be created within its runtime.
        task_context.wait_for(async { tokio::time::sleep(LOCK_RETRY_INTERVAL).await })?;
    }
}

/// A command on a store, with what this process needs to carry it out itself.
pub(super) struct StoreWriteCommand {
    pub(super) action: CommandAction,
    pub(super) store: PathBuf,
    pub(super) sync_settings: SyncSettings,
}

impl StoreWriteCommand {
    /// Carries out a short command, here or by the daemon, and prints its result.
    pub(super) fn execute(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config_inputs = context.config_inputs();
        let (result, published) =
            run_interruptible(context, move |task_context| match open_store_or_daemon(&self.store, task_context)? {
                StoreAccess::Writer(writer) => {
                    let done = execute_at_once(&writer, &self.sync_settings, &self.action, &current_user_name())?;
                    let (result, _) =
                        done.ok_or_else(|| CommandFailure::Bug("this command needs a sync".to_owned()))?;
                    let may_change_version = matches!(
                        self.action,
                        CommandAction::Activate { .. } | CommandAction::Rollback | CommandAction::Release
                    );
                    Ok((result, if may_change_version { publish_active(&config_inputs, &writer) } else { Ok(()) }))
                }
                // The daemon publishes automatically, and logs the result.
                StoreAccess::Daemon(daemon) => execute_on_daemon(&daemon, &self.store, self.action, None, task_context)
                    .map(|result| (result, Ok(()))),
            })??;
        print_command_result(context, &result).and(published)
    }
}

/// Sends a command to the daemon, waits for its result and shows its progress. `source_digest` is the digest of the
/// source that the caller's configuration names; the daemon refuses the command if its own differs.
pub(super) fn execute_on_daemon(
    daemon: &ControlClient,
    store: &Path,
    action: CommandAction,
    source_digest: Option<String>,
    task_context: &TaskContext,
) -> Result<CommandResult, CommandFailure> {
    let command = DaemonCommand { action, author: current_user_name(), source_digest };
    let reply = task_context.wait_for(async {
        let reply = daemon.send_command(&command);
        tokio::pin!(reply);
        loop {
            tokio::select! {
                reply = &mut reply => return reply,
                () = tokio::time::sleep(DAEMON_PROGRESS_INTERVAL) => show_daemon_progress(daemon, &task_context.progress).await,
            }
        }
    })?;
    match reply {
        Ok(CommandReply::Executed(mut result)) => {
            // The daemon may run as another user: only plain lines of its text may reach the terminal.
            result.text = result.text.lines().map(|line| format!("{}\n", OneLine(line))).collect::<Vec<_>>().concat();
            Ok(result)
        }
        Ok(CommandReply::Failed { code, message }) => Err(CommandFailure::DaemonReported { code, message }),
        Err(error) => Err(CommandFailure::local(format!(
            "the daemon on {} did not carry out the command",
            store.display()
        ))(std::io::Error::other(error))),
    }
}

async fn show_daemon_progress(daemon: &ControlClient, progress: &TaskProgress) {
    let Ok((_, json)) = daemon.get("/status").await else { return };
    let Ok(status) = serde_json::from_slice::<StoreStatus>(&json) else { return };
    if let Some(daemon) = status.daemon {
        progress.display_step(daemon.doing.as_deref().unwrap_or_default());
        progress.set_percent(daemon.percent);
    }
}

/// Prints the result of a command.
pub(super) fn print_command_result(context: &CommandContext, result: &CommandResult) -> Result<(), CommandFailure> {
    context.print_warnings("the bundle", &result.warnings);
    context.print_outcome(&result.json, &result.text)?;
    match &result.not_active {
        Some(why) => Err(CommandFailure::NotActive(why.clone())),
        None => Ok(()),
    }
}
