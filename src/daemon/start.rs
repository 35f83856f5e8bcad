//! `run`: the last good version is served before anything else is done; then the agent begins.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::admin::hosts::AllowedHosts;
use crate::admin::live::Live;
use crate::admin::metrics::Metrics;
use crate::admin::routes::Admin;
use crate::admin::socket::Control;
use crate::admin::staged_site::StagedSite;
use docwharf_base::chain::Chain;
use crate::config::checked::{Config, Sources};
use docwharf_base::model::version::VersionId;
use docwharf_serve::access::{Access, Door};
use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::log::Log;
use docwharf_serve::watchdog::{HEARTBEAT_INTERVAL, Watchdog};
use docwharf_serve::retained::Opening;
use docwharf_serve::tls::ServerTls;
use docwharf_serve::{Settings, Site};
use docwharf_site::mapping;
use docwharf_site::sealed::Sealed;
use docwharf_agent::store::keeper::Keeper;
use docwharf_agent::store::writer::Writer;
use docwharf_agent::store::{CONTROL, Store};
use docwharf_agent::sync::settle::{candidates, read_record};
use docwharf_agent::sync::{SyncError, open};

use super::agent::{Agent, Ground};
use super::notify::{self, Notifier};
use super::orders::Describe;
use super::work::half_the_cores;
use super::{
    DaemonError, StopSignals, announce, bind, codings, earlier, finish, listeners, open_log, policies, proof, runtime,
    scrub, sockets, urls,
};

/// Orders beyond this many wait at the socket.
const ORDERS_WAITING: usize = 16;

/// How long work beside serving is waited for at the end.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);

/// Connections to the admin listener, of those that the descriptors kept back for ourselves allow.
const FEW: usize = 24;

/// Connections to the listener of the staged version, likewise: a browser or two.
const STAGED_CONNECTIONS: usize = 12;

/// What SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// Read the configuration again and look.
    Reload,
    /// The terminal was closed: stop.
    Stop,
}

/// What `run` stands on.
#[derive(Debug)]
pub struct Start {
    /// Where the configuration comes from, to be read again.
    pub sources: Sources,
    /// The configuration as it is now.
    pub config: Config,
    /// How long to wait for another writer of the store.
    pub patience: Duration,
    /// What SIGHUP means.
    pub hangup: Hangup,
    /// What errors look like to those who ask over the control socket.
    pub describe: Describe,
}

/// What is open before anything else is done.
#[derive(Debug)]
struct Opened {
    public: Vec<HttpListener>,
    admin: Vec<TcpListener>,
    staged: Vec<TcpListener>,
    tls: Option<Arc<ServerTls>>,
    log: Option<Arc<Log>>,
}

/// The daemon, until a signal says stop; without `serve` there is nothing for readers to connect to.
pub fn run(start: Start, serve: bool) -> Result<(), DaemonError> {
    let passed = sockets::passed()?;
    let opened = open(&start.config, passed, serve)?;
    // Only a service has a manager: the demonstration has none, whatever it was started from.
    begin(opened, start, &Notifier::from_env())
}

/// Sockets that were passed stand in for those of their kind that are configured.
fn open(config: &Config, passed: sockets::Passed, serve: bool) -> Result<Opened, DaemonError> {
    // What cannot be used is told before anything listens.
    let tls = match &config.tls {
        Some(tls) if serve => Some(super::tls(&tls.files)?),
        _ => None,
    };
    let log = if serve { open_log(config.log.as_ref())? } else { None };
    let or_bind = |passed: Vec<TcpListener>, addresses: &[SocketAddr]| {
        if passed.is_empty() { bind(addresses) } else { Ok(passed) }
    };
    let mut public = Vec::new();
    if serve {
        public = listeners(or_bind(passed.public, &config.listen)?, None);
        match (&tls, &config.tls) {
            (Some(tls), Some(settings)) => {
                public.extend(listeners(or_bind(passed.tls, &settings.listen)?, Some(tls)));
            }
            _ if passed.tls.is_empty() => {}
            _ => return Err(DaemonError::NoPair),
        }
        if public.is_empty() {
            return Err(DaemonError::Nowhere);
        }
    }
    let admin = or_bind(passed.admin, &config.admin)?;
    let staged = or_bind(passed.staged, &config.staged)?;
    Ok(Opened { public, admin, staged, tls, log })
}

/// The same on sockets that are bound already, for nobody's manager.
pub fn run_on(sockets: Vec<TcpListener>, start: Start) -> Result<(), DaemonError> {
    let (admin, staged) = (bind(&start.config.admin)?, bind(&start.config.staged)?);
    let opened = Opened { public: listeners(sockets, None), admin, staged, tls: None, log: None };
    begin(opened, start, &Notifier::none())
}

fn begin(opened: Opened, start: Start, notifier: &Notifier) -> Result<(), DaemonError> {
    let config = &start.config;
    // Before a store is made for nothing.
    if !config.receives_versions() && Store::at(&config.store).versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store.clone() });
    }
    let runtime = runtime()?;
    let log = opened.log.clone();
    let result = runtime.block_on(live(start, opened, notifier));
    // A seal under way is abandoned: whatever it has done so far, the next start goes on from there.
    runtime.shutdown_background();
    if let Some(log) = log {
        log.finish();
    }
    result
}

async fn live(start: Start, opened: Opened, notifier: &Notifier) -> Result<(), DaemonError> {
    let Opened { public: listeners, admin: admin_listeners, staged: staged_listeners, tls, log } = opened;
    let Start { sources, config, patience, hangup: on_hangup, describe } = start;
    // Before anybody can know that we are there; the store may keep us waiting.
    let mut signals = StopSignals::new(on_hangup == Hangup::Stop)?;
    let hangup = signal(SignalKind::hangup()).map_err(DaemonError::Start)?;
    let site = Site::logged(config.settings.clone(), log);
    site.obey(Arc::clone(&config.rules));
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
    let reached = listeners.iter().filter_map(|listener| listener.address().ok()).collect();
    let (for_admin, for_staged) = (addresses(&admin_listeners), addresses(&staged_listeners));
    let live = Arc::new(Live::new(urls(&listeners), for_admin, for_staged, tls.clone()));
    live.allow_hosts(AllowedHosts::new(&config.admin_hosts));
    let pulse = pulse(notifier);
    // Commands that come right behind the announcement wait in its queue; otherwise they would find no daemon.
    let control = bind_control(writer.store().root());
    announce(&live.addresses);
    notifier.ready();
    let opening_earlier = Opening::begin(&site);
    let (waits, readers) = oneshot::channel();
    let mut server = tokio::spawn({
        let (site, stopped, pulse) = (Arc::clone(&site), stopped.clone(), Arc::clone(&pulse));
        async move { listener::serve_watched(listeners, site, stopped, &pulse, Some(waits)).await }
    });
    // What else is to be done would be in the way of the first readers where there is one core.
    let _ = readers.await;
    earlier::keep(&writer, &site, opening_earlier);
    let (send, orders) = mpsc::channel(ORDERS_WAITING);
    let metrics = Arc::new(Metrics::new(tls.is_some()));
    // Whoever reaches its listener may look at what waits, whoever may read the site. What waits and is replaced was never
    // read by anybody.
    let (asset_grace, door) = (Duration::ZERO, open_to_all(&config.settings.door));
    let staged = Site::new(Settings { asset_grace, door, ..config.settings.clone() });
    staged.obey(Arc::clone(&config.rules));
    let admin = Arc::new(Admin {
        store: writer.store().clone(),
        live: Arc::clone(&live),
        metrics: Arc::clone(&metrics),
        site: Arc::clone(&site),
        orders: send,
        pulse,
    });
    tokio::spawn(policies::live(
        Arc::clone(&site),
        Arc::clone(&writer),
        config.threads.unwrap_or_else(half_the_cores),
        Arc::clone(&live),
    ));
    let codings = tokio::spawn(codings::live(
        Arc::clone(&site),
        Arc::clone(&writer),
        config.codings.clone(),
        Arc::clone(&live),
        stopped.clone(),
    ));
    let (find, found) = mpsc::channel(1);
    proof::begin(&site, find.clone());
    if let Some(every) = config.scrub {
        tokio::spawn(scrub::live(Arc::clone(&writer), Arc::clone(&site), every, find));
    }
    // The lock outlives the control socket, or the next daemon's socket would be the one that goes.
    let lock = Arc::clone(&writer);
    let mut admins = serve_admin(&admin, control, admin_listeners, &stopped);
    serve_staged(&mut admins, &staged, staged_listeners, &admin.live, &stopped);
    let mut agent = Agent::new(Ground {
        writer,
        sources,
        config,
        site,
        staged,
        shown,
        live,
        metrics,
        describe,
        notifier: notifier.clone(),
        tls,
        reached,
    });
    tokio::select! {
        ended = &mut server => return finish(ended),
        () = signals.stop() => notifier.stopping(),
        ended = agent.live(hangup, orders, found) => {
            notifier.stopping();
            return ended;
        }
    }
    agent.call_off();
    stop.send_replace(true);
    // Who still waits for an answer learns that there will be none.
    drop(agent);
    let ended = finish(server.await);
    // What is half made goes while the store is still ours. If its thread gets no processor, the next start sweeps it.
    let _ = tokio::time::timeout(PATIENCE_AT_END, codings).await;
    while admins.join_next().await.is_some() {}
    if let Err(error) = lock.end_run() {
        tracing::warn!("{}; what is stored is read again at the next start", Chain(&error));
    }
    drop(lock);
    ended
}

/// The same proxies, and nobody is asked who they are.
pub(super) fn open_to_all(door: &Door) -> Door {
    Door { access: Access::default(), proxies: door.proxies.clone() }
}

fn addresses(listeners: &[TcpListener]) -> Vec<String> {
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    addresses.map(|address| format!("http://{address}/")).collect()
}

/// The control socket. Without it the site is served all the same; the verbs of the command line then say that the store is
/// locked.
fn bind_control(store: &Path) -> Option<Control> {
    let bound = Control::bind(store).inspect_err(|error| {
        tracing::warn!(
            "cannot listen on {}: {error}; the verbs of the command line will not reach this daemon",
            store.join(CONTROL).display()
        );
    });
    bound.ok()
}

/// The admin side on the control socket, and on its own listener if there is one.
fn serve_admin(
    admin: &Arc<Admin>,
    control: Option<Control>,
    listeners: Vec<TcpListener>,
    stopped: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut serving = JoinSet::new();
    if let Some(control) = control {
        serving.spawn(control.serve(Arc::clone(admin), stopped.clone()));
    }
    if !listeners.is_empty() {
        for address in &admin.live.admin {
            tracing::info!("health, status and metrics are at {address}");
        }
        let serving_on = listener::serve_limited(listeners, Arc::clone(admin), stopped.clone(), FEW);
        serving.spawn(async move {
            if let Err(error) = serving_on.await {
                tracing::error!("the admin listener stopped: {error}");
            }
        });
    }
    serving
}

/// Shows the version that waits to become active, if there is a listener for it.
fn serve_staged(
    serving: &mut JoinSet<()>,
    staged: &Arc<Site>,
    listeners: Vec<TcpListener>,
    live: &Live,
    stopped: &watch::Receiver<bool>,
) {
    if listeners.is_empty() {
        return;
    }
    for address in &live.staged {
        tracing::info!("a version that waits to become active is to be seen at {address}");
    }
    let site = Arc::new(StagedSite(Arc::clone(staged)));
    let serving_on = listener::serve_limited(listeners, site, stopped.clone(), STAGED_CONNECTIONS);
    serving.spawn(async move {
        if let Err(error) = serving_on.await {
            tracing::error!("the listener of the staged version stopped: {error}");
        }
    });
}

/// The pulse of the loops that accept: the manager hears it at least three times in the time in which it must.
fn pulse(notifier: &Notifier) -> Arc<Watchdog> {
    let watchdog = notify::watchdog();
    let every = watchdog.map_or(HEARTBEAT_INTERVAL, |period| HEARTBEAT_INTERVAL.min(period / 3));
    let notifier = notifier.clone();
    Watchdog::new(every, move || {
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
    // Versions that wait for a person are something to run for.
    if shown.is_none() && !config.receives_versions() && writer.store().versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store.clone() });
    }
    Ok((writer, shown))
}

/// Tells what is wrong with the rules that a version brings along.
pub(super) fn warn_of(version: &Sealed) {
    if let Some(doubts) = version.doubts() {
        tracing::warn!("version {}: {doubts}", version.id.short());
    }
}

/// Shows the active version, or the best that is left if it is damaged.
fn show_best(writer: &Writer, config: &Config, site: &Site) -> Result<Option<VersionId>, DaemonError> {
    let record = read_record(writer).map_err(|error| match error {
        SyncError::Store(error) => DaemonError::Store(error),
        other => DaemonError::FirstSync(other),
    })?;
    let stored = writer.store().versions()?;
    let mut shown = None;
    for id in candidates(&record, &config.intent, stored.iter().map(|version| version.id)) {
        match open::open_quickly(writer, id, &config.intent.effort) {
            Ok(version) => {
                warn_of(&version);
                // What readers keep may be from another version, as it was served before this process began.
                if record.previous.is_some() || record.active != Some(id) {
                    site.changes();
                }
                site.show(version);
                shown = Some(id);
                break;
            }
            Err(error) => tracing::error!("{}; trying the version before it", Chain(&error)),
        }
    }
    mapping::mark_suspects_in(writer.suspect_file()?);
    if shown.is_some() && record.active != shown {
        // The record keeps what the operator or the last sync decided: once it is mended, it is served again.
        writer.note("docwharf run", "fell back", shown, None);
    }
    Ok(shown)
}
