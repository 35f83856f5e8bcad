//! Verbs that write: done here if nobody else has the store open, else by the daemon that has.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::admin::client::Daemon;
use crate::admin::status::Status;
use crate::admin::verbs::perform;
use crate::admin::wire::{Order, Reply, Told, Verb};
use docwharf_base::chain::OneLine;
use docwharf_base::runtime;
use docwharf_agent::store::StoreError;
use docwharf_agent::store::writer::Writer;
use docwharf_agent::sync::act::{Doing, Means};
use docwharf_agent::sync::{Intent, SyncError};

use super::attend::attended;
use super::publish::published;
use super::{Context, Failure, PATIENCE, who};

/// How often a store that is locked and a daemon that is not there yet are tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// How long we wait without a word: a daemon that starts has the store before it can be asked.
const SILENT: Duration = Duration::from_secs(2);
/// How often a daemon that works for us is asked how far it is.
const GLANCE: Duration = Duration::from_millis(500);

/// Who does what is wanted.
pub(super) enum Hand {
    /// We do: nobody else writes.
    Here(Writer),
    /// The daemon that has the store open.
    Daemon(Daemon),
}

/// Waits for an answer of a daemon.
pub(super) fn ask<T>(answer: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = runtime::build(&mut tokio::runtime::Builder::new_current_thread());
    Ok(runtime.map_err(Failure::local("cannot start"))?.block_on(answer))
}

/// The daemon on this store, if there is one that we may ask.
pub(super) fn daemon_of(store: &Path) -> Option<Daemon> {
    ask(Daemon::of(store)).ok().flatten()
}

/// How the daemon on this store says that it is, if there is one.
pub(super) fn status_of(store: &Path) -> Option<Status> {
    let daemon = daemon_of(store)?;
    let (status, json) = ask(daemon.get("/status")).ok()?.ok()?;
    (status == StatusCode::OK).then(|| serde_json::from_slice(&json).ok())?
}

/// Why a daemon that seems to be there says nothing; none if nobody listens.
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

/// Finds out who can do it, waiting for a writer that is no daemon.
pub(super) fn hand(store: &Path, means: &Means) -> Result<Hand, Failure> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match Writer::open(store, Duration::ZERO) {
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
        // Inside, because a timer wants its runtime from the start.
        means.wait_for(async { tokio::time::sleep(AGAIN).await })?;
    }
}

/// What a command wants done, and what it needs for doing it itself.
pub(super) struct Wanted {
    pub(super) verb: Verb,
    pub(super) store: PathBuf,
    pub(super) intent: Intent,
}

impl Wanted {
    /// Has something done that is done at once, and prints what it says.
    pub(super) fn at_once(self, context: &Context) -> Result<(), Failure> {
        let sources = context.sources();
        let (told, published) = attended(context, move |means| match hand(&self.store, means)? {
            Hand::Here(writer) => {
                let done = perform(&writer, &self.intent, &self.verb, &who())?;
                let (told, _) = done.ok_or(SyncError::Broken("this verb takes a sync".to_owned()))?;
                let moves = matches!(self.verb, Verb::Activate { .. } | Verb::Rollback | Verb::Release);
                Ok((told, if moves { published(&sources, &writer) } else { Ok(()) }))
            }
            // It publishes by itself, and says in its log what comes of that.
            Hand::Daemon(daemon) => order(&daemon, &self.store, self.verb, None, means).map(|told| (told, Ok(()))),
        })??;
        tell(context, &told).and(published)
    }
}

/// Has the daemon do it, showing what it is at meanwhile. `question` is asked of the daemon's configuration.
pub(super) fn order(
    daemon: &Daemon,
    store: &Path,
    verb: Verb,
    question: Option<String>,
    means: &Means,
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
            // It may be another user's: nothing of it reaches a terminal but plain lines.
            told.text = told.text.lines().map(|line| format!("{}\n", OneLine(line))).collect::<Vec<_>>().concat();
            Ok(told)
        }
        Ok(Reply::Failed { code, message }) => Err(Failure::Remote { code, message }),
        Err(error) => Err(Failure::local(format!("the daemon on {} did not do it", store.display()))(
            std::io::Error::other(error),
        )),
    }
}

async fn show(daemon: &Daemon, doing: &Doing) {
    let Ok((_, json)) = daemon.get("/status").await else { return };
    let Ok(status) = serde_json::from_slice::<Status>(&json) else { return };
    if let Some(daemon) = status.daemon {
        doing.show(daemon.doing.as_deref().unwrap_or_default());
        doing.set_percent(daemon.percent);
    }
}

/// Prints what a verb has to say.
pub(super) fn tell(context: &Context, told: &Told) -> Result<(), Failure> {
    context.warn("the bundle", &told.warnings);
    context.done(&told.json, &told.text)?;
    match &told.not_active {
        Some(why) => Err(Failure::NotActive(why.clone())),
        None => Ok(()),
    }
}
