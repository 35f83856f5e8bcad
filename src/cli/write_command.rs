//! Runs commands that write to a store: in this process, or by the daemon that has the store open.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::admin::command_execution::execute_at_once;
use crate::admin::control_client::ControlClient;
use crate::admin::control_messages::{CommandAction, CommandReply, CommandResult, DaemonCommand};
use crate::admin::status::StoreStatus;
use docwharf_agent::store::StoreError;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::system::{SyncContext, SyncProgress};
use docwharf_agent::sync::{SyncError, SyncIntent};
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
pub(super) fn block_on_daemon<T>(answer: impl Future<Output = T>) -> Result<T, CommandFailure> {
    let runtime = runtime::build_runtime(&mut tokio::runtime::Builder::new_current_thread());
    Ok(runtime.map_err(CommandFailure::local("cannot start"))?.block_on(answer))
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
pub(super) fn explain_silent_daemon(store: &Path) -> Option<&'static str> {
    let way = ControlClient::way(store)?;
    match std::os::unix::net::UnixStream::connect(way.path()) {
        Ok(_) => Some("it does not answer"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some("it answers its own user and root only")
        }
        Err(_) => None,
    }
}

/// Locks the store, or returns the daemon that has locked it. Waits up to [`PATIENCE`] for another process that has.
pub(super) fn open_store_or_daemon(store: &Path, means: &SyncContext) -> Result<StoreAccess, CommandFailure> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match StoreWriter::open(store, Duration::ZERO) {
            Ok(writer) => return Ok(StoreAccess::Writer(writer)),
            Err(locked @ StoreError::Locked { .. }) => {
                if let Some(daemon) = means.wait_for(ControlClient::find(store))? {
                    return Ok(StoreAccess::Daemon(daemon));
                }
                if began.elapsed() >= STORE_LOCK_TIMEOUT {
                    return Err(locked.into());
                }
            }
            Err(other) => return Err(other.into()),
        }
        if !is_told && began.elapsed() >= LOCK_WAIT_NOTICE_DELAY {
            is_told = true;
            let patience = STORE_LOCK_TIMEOUT.as_secs();
            tracing::warn!("another docwharf writes to {}; waiting up to {patience} s for it", store.display());
        }
        // Created inside the future: a timer must be created within its runtime.
        means.wait_for(async { tokio::time::sleep(LOCK_RETRY_INTERVAL).await })?;
    }
}

/// A command on a store, with what this process needs to carry it out itself.
pub(super) struct StoreWriteCommand {
    pub(super) verb: CommandAction,
    pub(super) store: PathBuf,
    pub(super) intent: SyncIntent,
}

impl StoreWriteCommand {
    /// Carries out a short command, here or by the daemon, and prints its result.
    pub(super) fn execute(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let sources = context.sources();
        let (told, published) =
            run_interruptible(context, move |means| match open_store_or_daemon(&self.store, means)? {
                StoreAccess::Writer(writer) => {
                    let done = execute_at_once(&writer, &self.intent, &self.verb, &current_user_name())?;
                    let (told, _) = done.ok_or(SyncError::Broken("this verb takes a sync".to_owned()))?;
                    let moves = matches!(
                        self.verb,
                        CommandAction::Activate { .. } | CommandAction::Rollback | CommandAction::Release
                    );
                    Ok((told, if moves { publish_active(&sources, &writer) } else { Ok(()) }))
                }
                // The daemon publishes by itself, and logs the result.
                StoreAccess::Daemon(daemon) => {
                    execute_on_daemon(&daemon, &self.store, self.verb, None, means).map(|told| (told, Ok(())))
                }
            })??;
        print_command_result(context, &told).and(published)
    }
}

/// Has the daemon carry out a command and shows its progress. `question` is the digest of the source that the caller's
/// configuration names; the daemon refuses the command if its own differs.
pub(super) fn execute_on_daemon(
    daemon: &ControlClient,
    store: &Path,
    verb: CommandAction,
    question: Option<String>,
    means: &SyncContext,
) -> Result<CommandResult, CommandFailure> {
    let order = DaemonCommand { verb, who: current_user_name(), question };
    let answer = means.wait_for(async {
        let answer = daemon.send_command(&order);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(DAEMON_PROGRESS_INTERVAL) => show_daemon_progress(daemon, &means.doing).await,
            }
        }
    })?;
    match answer {
        Ok(CommandReply::Told(mut told)) => {
            // The daemon may run as another user: only plain lines of its text may reach the terminal.
            told.text = told.text.lines().map(|line| format!("{}\n", OneLine(line))).collect::<Vec<_>>().concat();
            Ok(told)
        }
        Ok(CommandReply::Failed { code, message }) => Err(CommandFailure::DaemonReported { code, message }),
        Err(error) => Err(CommandFailure::local(format!("the daemon on {} did not do it", store.display()))(
            std::io::Error::other(error),
        )),
    }
}

async fn show_daemon_progress(daemon: &ControlClient, doing: &SyncProgress) {
    let Ok((_, json)) = daemon.get("/status").await else { return };
    let Ok(status) = serde_json::from_slice::<StoreStatus>(&json) else { return };
    if let Some(daemon) = status.daemon {
        doing.show(daemon.doing.as_deref().unwrap_or_default());
        doing.set_percent(daemon.percent);
    }
}

/// Prints the result of a command.
pub(super) fn print_command_result(context: &CommandContext, told: &CommandResult) -> Result<(), CommandFailure> {
    context.print_warnings("the bundle", &told.warnings);
    context.print_outcome(&told.json, &told.text)?;
    match &told.not_active {
        Some(why) => Err(CommandFailure::NotActive(why.clone())),
        None => Ok(()),
    }
}
