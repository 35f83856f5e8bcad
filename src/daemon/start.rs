//! Starts `run`: serves the active version before anything else, then starts the background tasks and the agent.

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
use crate::config::checked::{Config, Sources};
use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::store::{CONTROL, VersionStore};
use docwharf_agent::sync::activation::{candidates, read_record};
use docwharf_agent::sync::{SyncError, open};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::access::{AccessControl, AccessPolicy};
use docwharf_serve::access_log::AccessLog;
use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::retained_versions::OpeningGuard;
use docwharf_serve::tls::ServerTls;
use docwharf_serve::watchdog::{HEARTBEAT_INTERVAL, Watchdog};
use docwharf_serve::{Site, SiteSettings};
use docwharf_site::mapping;
use docwharf_site::sealed_version::SealedVersion;

use super::agent::{Agent, Ground};
use super::notify::{self, Notifier};
use super::orders::Describe;
use super::work::half_the_cores;
use super::{
    DaemonError, StopSignals, announce, bind, codings, earlier, finish, listeners, open_log, policies, proof, runtime,
    scrub, sockets, urls,
};

/// The maximum number of queued commands; further ones wait at the socket.
const ORDERS_WAITING: usize = 16;

/// The longest time that the end of the process waits for background work.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);

/// The maximum number of connections to the admin listener. They use the file descriptors that the server reserves.
const FEW: usize = 24;

/// The maximum number of connections to the listener of the staged version, from the same reserve: enough for two
/// browsers.
const STAGED_CONNECTIONS: usize = 12;

/// The effect of SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// Read the configuration again and check the source.
    Reload,
    /// The terminal was closed: stop.
    Stop,
}

/// The parameters of `run`.
#[derive(Debug)]
pub struct Start {
    /// The sources of the configuration, for reloads.
    pub sources: Sources,
    /// The configuration at the start.
    pub config: Config,
    /// The longest time to wait for the lock of the store.
    pub patience: Duration,
    /// The effect of SIGHUP.
    pub hangup: Hangup,
    /// Converts errors for clients of the control socket.
    pub describe: Describe,
}

/// The sockets and files that are opened before the store.
#[derive(Debug)]
struct Opened {
    public: Vec<HttpListener>,
    admin: Vec<TcpListener>,
    staged: Vec<TcpListener>,
    tls: Option<Arc<ServerTls>>,
    log: Option<Arc<AccessLog>>,
}

/// Runs the daemon until a stop signal arrives. Without `serve`, there is no listener for the site.
pub fn run(start: Start, serve: bool) -> Result<(), DaemonError> {
    let passed = sockets::passed()?;
    let opened = open(&start.config, passed, serve)?;
    // Only `run` reports to a service manager; the demonstration does not, even if it was started by one.
    begin(opened, start, &Notifier::from_env())
}

/// Opens the certificate, the access log and the sockets. Passed sockets replace the configured addresses of their
/// kind.
fn open(config: &Config, passed: sockets::Passed, serve: bool) -> Result<Opened, DaemonError> {
    // Before any socket listens, so that an unusable certificate or log is an error first.
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

/// Runs the daemon on sockets that are already bound, without TLS, access log and service manager.
pub fn run_on(sockets: Vec<TcpListener>, start: Start) -> Result<(), DaemonError> {
    let (admin, staged) = (bind(&start.config.admin)?, bind(&start.config.staged)?);
    let opened = Opened { public: listeners(sockets, None), admin, staged, tls: None, log: None };
    begin(opened, start, &Notifier::none())
}

fn begin(opened: Opened, start: Start, notifier: &Notifier) -> Result<(), DaemonError> {
    let config = &start.config;
    // Checked first, so that no empty store is created.
    if !config.receives_versions() && VersionStore::at(&config.store).versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store.clone() });
    }
    let runtime = runtime()?;
    let log = opened.log.clone();
    let result = runtime.block_on(live(start, opened, notifier));
    // A seal in progress is abandoned; the next start continues from what has been downloaded.
    runtime.shutdown_background();
    if let Some(log) = log {
        log.finish();
    }
    result
}

async fn live(start: Start, opened: Opened, notifier: &Notifier) -> Result<(), DaemonError> {
    let Opened { public: listeners, admin: admin_listeners, staged: staged_listeners, tls, log } = opened;
    let Start { sources, config, patience, hangup: on_hangup, describe } = start;
    // Installed before any other process can know of this one; opening the store may take long.
    let mut signals = StopSignals::new(on_hangup == Hangup::Stop)?;
    let hangup = signal(SignalKind::hangup()).map_err(DaemonError::Start)?;
    let site = Site::with_access_log(config.settings.clone(), log);
    site.set_rules(Arc::clone(&config.rules));
    let opening = {
        let (config, site) = (config.clone(), Arc::clone(&site));
        tokio::task::spawn_blocking(move || open_store(&config, &site, patience))
    };
    notifier.status("opening the store");
    let (writer, shown) = tokio::select! {
        opened = opening => opened.map_err(|panic| DaemonError::Died(io::Error::other(panic)))??,
        () = signals.stop() => return Ok(()),
        // Opening waits for the lock and may have to rebuild an index.
        never = notifier.ask_for_time() => match never {},
    };
    let (stop, stopped) = watch::channel(false);
    let reached = listeners.iter().filter_map(|listener| listener.address().ok()).collect();
    let (for_admin, for_staged) = (addresses(&admin_listeners), addresses(&staged_listeners));
    let live = Arc::new(Live::new(urls(&listeners), for_admin, for_staged, tls.clone()));
    live.allow_hosts(AllowedHosts::new(&config.admin_hosts));
    let pulse = pulse(notifier);
    // Bound before the announcement: a command that follows it at once waits in the socket's queue instead of finding
    // no daemon.
    let control = bind_control(writer.store().root());
    announce(&live.addresses);
    notifier.ready();
    let opening_earlier = OpeningGuard::start(&site);
    let (waits, readers) = oneshot::channel();
    let mut server = tokio::spawn({
        let (site, stopped, pulse) = (Arc::clone(&site), stopped.clone(), Arc::clone(&pulse));
        async move { listener::serve_watched(listeners, site, stopped, &pulse, Some(waits)).await }
    });
    // On a machine with one core, the remaining work would delay the first requests.
    let _ = readers.await;
    earlier::keep(&writer, &site, opening_earlier);
    let (send, orders) = mpsc::channel(ORDERS_WAITING);
    let metrics = Arc::new(Metrics::new(tls.is_some()));
    // Every client that reaches the listener of the staged version may read it, whatever [access] says. A staged
    // version that is replaced needs no asset grace, because no reader has its pages open.
    let (asset_grace, door) = (Duration::ZERO, open_to_all(&config.settings.access_control));
    let staged = Site::new(SiteSettings { asset_grace, access_control: door, ..config.settings.clone() });
    staged.set_rules(Arc::clone(&config.rules));
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
    // The lock must outlive the control socket: otherwise this process could remove the socket of the next daemon.
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
    // Clients that still wait for a reply learn that there will be none.
    drop(agent);
    let ended = finish(server.await);
    // Half-made files are removed while this process holds the lock. If the thread gets no processor in time, the next
    // start removes them.
    let _ = tokio::time::timeout(PATIENCE_AT_END, codings).await;
    while admins.join_next().await.is_some() {}
    if let Err(error) = lock.end_run() {
        tracing::warn!("{}; what is stored is read again at the next start", ErrorChain(&error));
    }
    drop(lock);
    ended
}

/// Returns access control with the same trusted proxies that admits every client.
pub(super) fn open_to_all(door: &AccessControl) -> AccessControl {
    AccessControl { access: AccessPolicy::default(), proxies: door.proxies.clone() }
}

fn addresses(listeners: &[TcpListener]) -> Vec<String> {
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    addresses.map(|address| format!("http://{address}/")).collect()
}

/// Binds the control socket. Without it the site is served all the same; commands then report that the store is locked.
fn bind_control(store: &Path) -> Option<Control> {
    let bound = Control::bind(store).inspect_err(|error| {
        tracing::warn!(
            "cannot listen on {}: {error}; commands such as `docwharf sync` cannot reach this daemon",
            store.join(CONTROL).display()
        );
    });
    bound.ok()
}

/// Serves the admin routes on the control socket, and on the admin listener if there is one.
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

/// Serves the version that waits to become active, if there is a listener for it.
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
        tracing::info!("a version that waits to become active is served at {address}");
    }
    let site = Arc::new(StagedSite(Arc::clone(staged)));
    let serving_on = listener::serve_limited(listeners, site, stopped.clone(), STAGED_CONNECTIONS);
    serving.spawn(async move {
        if let Err(error) = serving_on.await {
            tracing::error!("the listener of the staged version stopped: {error}");
        }
    });
}

/// Creates the watchdog of the accept loops. It notifies the service manager at least three times within the manager's
/// watchdog timeout.
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

/// Locks the store and serves the best version in it.
fn open_store(
    config: &Config,
    site: &Site,
    patience: Duration,
) -> Result<(Arc<StoreWriter>, Option<VersionId>), DaemonError> {
    let writer = Arc::new(StoreWriter::open(&config.store, patience)?);
    let shown = show_best(&writer, config, site)?;
    // Stored versions that wait for a person are a reason to run, too.
    if shown.is_none() && !config.receives_versions() && writer.store().versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store.clone() });
    }
    Ok((writer, shown))
}

/// Logs the mistakes in the rules that a version contains.
pub(super) fn warn_of(version: &SealedVersion) {
    if let Some(doubts) = version.describe_rule_faults() {
        tracing::warn!("version {}: {doubts}", version.id.short());
    }
}

/// Serves the active version, or the best of the others if it is damaged.
fn show_best(writer: &StoreWriter, config: &Config, site: &Site) -> Result<Option<VersionId>, DaemonError> {
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
                // Caches of clients may hold responses from another version, which was served before this process
                // started.
                if record.previous.is_some() || record.active != Some(id) {
                    site.note_content_change();
                }
                site.set_version(version);
                shown = Some(id);
                break;
            }
            Err(error) => tracing::error!("{}; trying the version before it", ErrorChain(&error)),
        }
    }
    mapping::set_suspect_file(writer.suspect_file()?);
    if shown.is_some() && record.active != shown {
        // The record keeps the decision of the operator or of the last sync: once that version is repaired, it is
        // served again.
        writer.note("docwharf run", "fell back", shown, None);
    }
    Ok(shown)
}
