//! The life of `run`, `serve` and `origin`: serve what there is, then look for more, until told to stop.
//!
//! Async is for sockets, timers and signals; looking, proving and sealing happen on a blocking thread. Whichever of
//! server and agent ends first ends the other.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::base::backoff;
use crate::base::chain::Chain;
use crate::config::checked::Config;
use crate::model::version::VersionId;
use crate::origin::Origin;
use crate::seal::Meter;
use crate::serve::listener::Answer;
use crate::serve::{Site, listener};
use crate::site::mapping;
use crate::store::writer::Writer;
use crate::store::{Store, StoreError};
use crate::sync::look::{Report, candidates, look, read_record};
use crate::sync::plan::Trigger;
use crate::sync::{Outcome, SyncError, open};

/// Why the daemon ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The runtime or a signal handler cannot be had.
    #[error("cannot start serving")]
    Start(#[source] io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing to serve and nothing to look at.
    #[error("there is nothing to serve: the store {} is empty and no staticExport.bundleUrl is set", store.display())]
    NothingToServe {
        /// The store.
        store: PathBuf,
    },
    /// Nothing to serve, and what is to be brought is not there.
    #[error(transparent)]
    FirstSync(SyncError),
    /// A thread of ours died.
    #[error("the server stopped unexpectedly")]
    Died(#[source] io::Error),
}

/// Listens on every address, or on none.
pub fn bind(addresses: &[std::net::SocketAddr]) -> Result<Vec<std::net::TcpListener>, DaemonError> {
    addresses
        .iter()
        .map(|&address| listener::bind(address).map_err(|source| DaemonError::Bind { address, source }))
        .collect()
}

fn runtime() -> Result<tokio::runtime::Runtime, DaemonError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(DaemonError::Start)
}

/// Prints where the site is, one line an address, once the sockets answer.
fn announce(listeners: &[std::net::TcpListener]) {
    let mut out = io::stdout().lock();
    for listener in listeners {
        if let Ok(address) = listener.local_addr() {
            // Whoever closed our standard output does not want to know.
            let _ = writeln!(out, "http://{address}/");
        }
    }
    let _ = out.flush();
}

/// The signals that say stop.
struct StopSignals {
    term: Signal,
    int: Signal,
}

impl StopSignals {
    fn new() -> Result<StopSignals, DaemonError> {
        let of = |kind| signal(kind).map_err(DaemonError::Start);
        Ok(StopSignals { term: of(SignalKind::terminate())?, int: of(SignalKind::interrupt())? })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// `serve`: one site, or whatever else answers, until a signal says stop.
pub fn serve<A: Answer>(answerer: Arc<A>, listeners: Vec<std::net::TcpListener>) -> Result<(), DaemonError> {
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let mut signals = StopSignals::new()?;
        let (stop, stopped) = watch::channel(false);
        announce(&listeners);
        let server = tokio::spawn(listener::serve(listeners, answerer, stopped));
        tokio::pin!(server);
        tokio::select! {
            ended = &mut server => return finish(ended),
            () = signals.stop() => {}
        }
        stop.send_replace(true);
        finish(server.await)
    });
    runtime.shutdown_background();
    result
}

fn finish(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), DaemonError> {
    ended.map_err(io::Error::other).flatten().map_err(DaemonError::Died)
}

/// `run`: the agent. The last good version is served before anything else is done.
pub fn run(config: Config, patience: Duration) -> Result<(), DaemonError> {
    let listeners = bind(&config.listen)?;
    if config.intent.source.is_none() && Store::at(&config.store).versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store });
    }
    let writer = Arc::new(Writer::open(&config.store, patience)?);
    let site = Site::new(config.settings.clone());
    let shown = show_best(&writer, &config, &site)?;
    if shown.is_none() && config.intent.source.is_none() {
        return Err(DaemonError::NothingToServe { store: config.store });
    }
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let mut signals = StopSignals::new()?;
        let (stop, stopped) = watch::channel(false);
        announce(&listeners);
        let mut server = tokio::spawn(listener::serve(listeners, Arc::clone(&site), stopped));
        let mut hangup = signal(SignalKind::hangup()).map_err(DaemonError::Start)?;
        let mut agent = Agent { writer, config, site, shown, failures: 0 };
        let mut trigger = Trigger::Start;
        loop {
            let next = tokio::select! {
                ended = &mut server => return finish(ended),
                () = signals.stop() => break,
                next = agent.sync(trigger) => Instant::now() + next?,
            };
            tokio::select! {
                ended = &mut server => return finish(ended),
                () = signals.stop() => break,
                _ = hangup.recv() => trigger = Trigger::Asked,
                () = sleep_until(next) => trigger = Trigger::Interval,
            }
        }
        stop.send_replace(true);
        finish(server.await)
    });
    // A seal under way is abandoned: it has changed nothing, and its stage is swept at the next start.
    runtime.shutdown_background();
    result
}

/// Shows the active version, or the best that is left if it is damaged.
fn show_best(writer: &Writer, config: &Config, site: &Site) -> Result<Option<VersionId>, DaemonError> {
    let record = read_record(writer).map_err(|error| match error {
        SyncError::Store(error) => DaemonError::Store(error),
        other => DaemonError::FirstSync(other),
    })?;
    let suspect = writer.store().suspect();
    let stored = writer.store().versions()?;
    let mut shown = None;
    for id in candidates(&record, stored.iter().map(|version| version.id)) {
        match open::open(writer, id, &config.intent.effort, suspect == Some(id)) {
            Ok(version) => {
                site.show(version);
                shown = Some(id);
                break;
            }
            Err(error) => tracing::error!("{}; trying the version before it", Chain(&error)),
        }
    }
    // The mark stays until the version is found whole or mended, or the next start would trust it again.
    if suspect.is_some() && suspect == shown {
        writer.clear_suspect()?;
    }
    mapping::mark_suspects_in(writer.suspect_file()?);
    if shown.is_some() && record.active != shown {
        // The record keeps what the operator or the last sync decided: once it is mended, it is served again.
        writer.note("docwharf run", "fell back", shown, None);
    }
    Ok(shown)
}

/// The part of `run` that syncs.
struct Agent {
    writer: Arc<Writer>,
    config: Config,
    site: Arc<Site>,
    shown: Option<VersionId>,
    failures: u32,
}

impl Agent {
    /// One sync and what follows; gives the time to wait before the next.
    async fn sync(&mut self, trigger: Trigger) -> Result<Duration, DaemonError> {
        let (writer, intent) = (Arc::clone(&self.writer), self.config.intent.clone());
        let task =
            tokio::task::spawn_blocking(move || look(&writer, &intent, trigger, "docwharf run", &Meter::default()));
        let result = task.await.map_err(|panic| DaemonError::Died(io::Error::other(panic)))?;
        let every = backoff::jitter(self.config.interval);
        match result {
            Ok(report) => {
                self.failures = 0;
                self.tell(&report);
                // Otherwise nothing has changed, and a version that was damaged at the start still is.
                if report.brought.is_some() || matches!(report.outcome, Outcome::Activated(_)) {
                    self.show_active().await;
                }
                Ok(every)
            }
            Err(error @ (SyncError::Missing { .. } | SyncError::IsFolder { .. })) if self.shown.is_none() => {
                Err(DaemonError::FirstSync(error))
            }
            Err(SyncError::StillRefused(_)) => Ok(every),
            Err(error) if error.is_refusal() => {
                let stays =
                    if self.shown.is_some() { "the version before it stays" } else { "there is no version yet" };
                tracing::error!("{}; {stays}", Chain(&error));
                Ok(every)
            }
            Err(error) => {
                self.failures += 1;
                let wait = backoff::after(self.failures).min(every);
                tracing::error!("{}; trying again in {} s", Chain(&error), wait.as_secs_f32().ceil());
                Ok(wait)
            }
        }
    }

    fn tell(&self, report: &Report) {
        for warning in report.brought.iter().flat_map(|brought| &brought.warnings) {
            tracing::warn!("{warning}");
        }
        match &report.outcome {
            Outcome::Activated(id) => tracing::info!("version {} is active", id.short()),
            Outcome::NotActive(id, why) if report.brought.is_some() => {
                tracing::warn!("version {} is sealed but not active: {why}", id.short());
            }
            _ => tracing::debug!("nothing new"),
        }
    }

    /// Serves the active version from the next request on.
    async fn show_active(&mut self) {
        let active = self.writer.store().record().ok().and_then(|record| record.active);
        let Some(id) = active.filter(|&id| self.shown != Some(id)) else {
            return;
        };
        let (writer, effort) = (Arc::clone(&self.writer), self.config.intent.effort);
        match tokio::task::spawn_blocking(move || {
            open::open(&writer, id, &effort, writer.store().suspect() == Some(id))
        })
        .await
        {
            Ok(Ok(version)) => {
                self.site.show(version);
                self.shown = Some(id);
            }
            Ok(Err(error)) => tracing::error!("{}; the version before it stays", Chain(&error)),
            Err(panic) => tracing::error!("cannot open version {}: {panic}", id.short()),
        }
    }
}

/// `origin`: the management API until a signal says stop. What it has made is gone afterwards.
pub fn origin(origin: &Arc<Origin>, listeners: Vec<std::net::TcpListener>) -> Result<(), DaemonError> {
    let ended = serve(Arc::clone(origin), listeners);
    origin.close();
    ended
}
