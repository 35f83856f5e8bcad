//! Runs commands that write to a store: in this process, or by the daemon that has the store open.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::admin::client::Daemon;
use crate::admin::status::Status;
use crate::admin::verbs::perform;
use crate::admin::wire::{Order, Reply, Told, Verb};
use docwharf_agent::store::StoreError;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::system::{SyncContext, SyncProgress};
use docwharf_agent::sync::{SyncError, SyncIntent};
use docwharf_base::error_chain::OneLine;
use docwharf_base::runtime;

use super::attend::attended;
use super::publish::published;
use super::{Context, Failure, PATIENCE, who};

/// Interval of the attempts while the store is locked and no daemon answers yet.
const AGAIN: Duration = Duration::from_millis(100);
/// Time after which waiting is logged: a starting daemon locks the store before it answers on its control socket.
const SILENT: Duration = Duration::from_secs(2);
/// Interval at which the progress of the daemon is read while it carries out a command.
const GLANCE: Duration = Duration::from_millis(500);

/// The process that carries out a command.
pub(super) enum Hand {
    /// This process: it has locked the store.
    Here(StoreWriter),
    /// The daemon that has the store open.
    Daemon(Daemon),
}

/// Waits for the response of a daemon.
pub(super) fn ask<T>(answer: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = runtime::build_runtime(&mut tokio::runtime::Builder::new_current_thread());
    Ok(runtime.map_err(Failure::local("cannot start"))?.block_on(answer))
}

/// Returns the daemon on this store, if one runs whose control socket this user may use.
pub(super) fn daemon_of(store: &Path) -> Option<Daemon> {
    ask(Daemon::of(store)).ok().flatten()
}

/// Returns the status that the daemon on this store reports, if one runs.
pub(super) fn status_of(store: &Path) -> Option<Status> {
    let daemon = daemon_of(store)?;
    let (status, json) = ask(daemon.get("/status")).ok()?.ok()?;
    (status == StatusCode::OK).then(|| serde_json::from_slice(&json).ok())?
}

/// Returns why a daemon on this store does not answer; `None` if nothing listens on its control socket.
pub(super) fn why_silent(store: &Path) -> Option<&'static str> {
    let way = Daemon::way(store)?;
    match std::os::unix::net::UnixStream::connect(way.path()) {
        Ok(_) => Some("it does not answer"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some("it answers its own user and root only")
        }
        Err(_) => None,
    }
}

/// Locks the store, or returns the daemon that has locked it. Waits up to [`PATIENCE`] for another process that has.
pub(super) fn hand(store: &Path, means: &SyncContext) -> Result<Hand, Failure> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match StoreWriter::open(store, Duration::ZERO) {
            Ok(writer) => return Ok(Hand::Here(writer)),
            Err(locked @ StoreError::Locked { .. }) => {
                if let Some(daemon) = means.wait_for(Daemon::of(store))? {
                    return Ok(Hand::Daemon(daemon));
                }
                if began.elapsed() >= PATIENCE {
                    return Err(locked.into());
                }
            }
            Err(other) => return Err(other.into()),
        }
        if !is_told && began.elapsed() >= SILENT {
            is_told = true;
            let patience = PATIENCE.as_secs();
            tracing::warn!("another docwharf writes to {}; waiting up to {patience} s for it", store.display());
        }
        // Created inside the future: a timer must be created within its runtime.
        means.wait_for(async { tokio::time::sleep(AGAIN).await })?;
    }
}

/// A command on a store, with what this process needs to carry it out itself.
pub(super) struct Wanted {
    pub(super) verb: Verb,
    pub(super) store: PathBuf,
    pub(super) intent: SyncIntent,
}

impl Wanted {
    /// Carries out a short command, here or by the daemon, and prints its result.
    pub(super) fn at_once(self, context: &Context) -> Result<(), Failure> {
        let sources = context.sources();
        let (told, published) = attended(context, move |means| match hand(&self.store, means)? {
            Hand::Here(writer) => {
                let done = perform(&writer, &self.intent, &self.verb, &who())?;
                let (told, _) = done.ok_or(SyncError::Broken("this verb takes a sync".to_owned()))?;
                let moves = matches!(self.verb, Verb::Activate { .. } | Verb::Rollback | Verb::Release);
                Ok((told, if moves { published(&sources, &writer) } else { Ok(()) }))
            }
            // The daemon publishes by itself, and logs the result.
            Hand::Daemon(daemon) => order(&daemon, &self.store, self.verb, None, means).map(|told| (told, Ok(()))),
        })??;
        tell(context, &told).and(published)
    }
}

/// Has the daemon carry out a command and shows its progress. `question` is the digest of the source that the caller's
/// configuration names; the daemon refuses the command if its own differs.
pub(super) fn order(
    daemon: &Daemon,
    store: &Path,
    verb: Verb,
    question: Option<String>,
    means: &SyncContext,
) -> Result<Told, Failure> {
    let order = Order { verb, who: who(), question };
    let answer = means.wait_for(async {
        let answer = daemon.order(&order);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(GLANCE) => show(daemon, &means.doing).await,
            }
        }
    })?;
    match answer {
        Ok(Reply::Told(mut told)) => {
            // The daemon may run as another user: only plain lines of its text may reach the terminal.
            told.text = told.text.lines().map(|line| format!("{}\n", OneLine(line))).collect::<Vec<_>>().concat();
            Ok(told)
        }
        Ok(Reply::Failed { code, message }) => Err(Failure::Remote { code, message }),
        Err(error) => Err(Failure::local(format!("the daemon on {} did not do it", store.display()))(
            std::io::Error::other(error),
        )),
    }
}

async fn show(daemon: &Daemon, doing: &SyncProgress) {
    let Ok((_, json)) = daemon.get("/status").await else { return };
    let Ok(status) = serde_json::from_slice::<Status>(&json) else { return };
    if let Some(daemon) = status.daemon {
        doing.show(daemon.doing.as_deref().unwrap_or_default());
        doing.set_percent(daemon.percent);
    }
}

/// Prints the result of a command.
pub(super) fn tell(context: &Context, told: &Told) -> Result<(), Failure> {
    context.warn("the bundle", &told.warnings);
    context.done(&told.json, &told.text)?;
    match &told.not_active {
        Some(why) => Err(Failure::NotActive(why.clone())),
        None => Ok(()),
    }
}
