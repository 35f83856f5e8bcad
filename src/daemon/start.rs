//! `run`: the last good version is served before anything else is done; then the agent begins.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::base::chain::Chain;
use crate::config::checked::{Config, Sources};
use crate::model::version::VersionId;
use crate::serve::pulse::{EVERY, Pulse};
use crate::serve::{Site, listener};
use crate::site::mapping;
use crate::store::Store;
use crate::store::writer::Writer;
use crate::sync::settle::{candidates, read_record};
use crate::sync::{SyncError, open};

use super::agent::Agent;
use super::notify::{self, Notifier};
use super::{DaemonError, StopSignals, announce, bind, finish, runtime, sockets};

/// What SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// Read the configuration again and look.
    Reload,
    /// The terminal was closed: stop.
    Stop,
}

/// The daemon, until a signal says stop.
pub fn run(sources: Sources, config: Config, patience: Duration) -> Result<(), DaemonError> {
    let passed = sockets::passed()?;
    let listeners = if passed.public.is_empty() { bind(&config.listen)? } else { passed.public };
    for address in passed.admin.iter().filter_map(|listener| listener.local_addr().ok()) {
        tracing::warn!(
            "the socket for the admin side that was passed, {address}, is closed: there is no use for it yet"
        );
    }
    drop(passed.admin);
    run_on(listeners, sources, config, patience, Hangup::Reload)
}

/// The same on sockets that are bound already.
pub fn run_on(
    listeners: Vec<std::net::TcpListener>,
    sources: Sources,
    config: Config,
    patience: Duration,
    hangup: Hangup,
) -> Result<(), DaemonError> {
    // Before a store is made for nothing.
    if !has_origin(&config) && Store::at(&config.store).versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store });
    }
    let runtime = runtime()?;
    // The demonstration is nobody's service, whatever it was started from.
    let notifier = if hangup == Hangup::Reload { Notifier::from_env() } else { Notifier::none() };
    let result = runtime.block_on(live(sources, config, listeners, patience, hangup, &notifier));
    // A seal under way is abandoned: whatever it has done so far, the next start goes on from there.
    runtime.shutdown_background();
    result
}

async fn live(
    sources: Sources,
    config: Config,
    listeners: Vec<std::net::TcpListener>,
    patience: Duration,
    on_hangup: Hangup,
    notifier: &Notifier,
) -> Result<(), DaemonError> {
    // Before anybody can know that we are there; the store may keep us waiting.
    let mut signals = StopSignals::new(on_hangup == Hangup::Stop)?;
    let hangup = signal(SignalKind::hangup()).map_err(DaemonError::Start)?;
    let site = Site::new(config.settings.clone());
    let opening = {
        let (config, site) = (config.clone(), Arc::clone(&site));
        tokio::task::spawn_blocking(move || open_store(&config, &site, patience))
    };
    notifier.status("opening the store");
    let (writer, shown) = tokio::select! {
        opened = opening => opened.map_err(|panic| DaemonError::Died(io::Error::other(panic)))??,
        () = signals.stop() => return Ok(()),
        // The lock is waited for, and a lost index is made again.
        never = notifier.ask_for_time() => match never {},
    };
    let (stop, stopped) = watch::channel(false);
    let pulse = pulse(notifier);
    announce(&listeners);
    notifier.ready();
    let answerer = Arc::clone(&site);
    let mut server = tokio::spawn(async move { listener::serve_beating(listeners, answerer, stopped, &pulse).await });
    let mut agent = Agent::new(writer, sources, config, site, shown, notifier.clone());
    tokio::select! {
        ended = &mut server => return finish(ended),
        () = signals.stop() => notifier.stopping(),
        ended = agent.live(hangup) => {
            notifier.stopping();
            return ended;
        }
    }
    agent.call_off();
    stop.send_replace(true);
    finish(server.await)
}

/// The pulse of the loops that accept: the manager hears it at least three times in the time in which it must.
fn pulse(notifier: &Notifier) -> Arc<Pulse> {
    let watchdog = notify::watchdog();
    let every = watchdog.map_or(EVERY, |period| EVERY.min(period / 3));
    let notifier = notifier.clone();
    Pulse::new(every, move || {
        if watchdog.is_some() {
            notifier.beat();
        }
    })
}

/// Takes the store and shows the best that it has.
fn open_store(
    config: &Config,
    site: &Site,
    patience: Duration,
) -> Result<(Arc<Writer>, Option<VersionId>), DaemonError> {
    let writer = Arc::new(Writer::open(&config.store, patience)?);
    let shown = show_best(&writer, config, site)?;
    if shown.is_none() && !has_origin(config) {
        return Err(DaemonError::NothingToServe { store: config.store.clone() });
    }
    Ok((writer, shown))
}

/// Whether versions can come from anywhere.
fn has_origin(config: &Config) -> bool {
    config.intent.has_source() || config.inbox.is_some()
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
