//! Starts `run`: serves the active version before anything else, then starts the background tasks and the main loop.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::admin::allowed_hosts::AllowedHosts;
#[cfg(feature = "analytics")]
use crate::admin::analytics_api::AnalyticsApi;
use crate::admin::control_socket::ControlSocket;
use crate::admin::daemon_state::DaemonState;
use crate::admin::metrics::DaemonMetrics;
use crate::admin::routes::AdminService;
use crate::admin::waiting_version_service::WaitingVersionService;
use crate::config::checked::Config;
use crate::config::inputs::ConfigInputs;
use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::store::{CONTROL, VersionStore};
use docwharf_agent::sync::activation::candidates;
use docwharf_agent::sync::local_source::check_local_source;
use docwharf_agent::sync::open;
use docwharf_agent::sync::record_recovery::read_record;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::access_log::AccessLog;
use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::tls::ServerTls;
use docwharf_serve::{OpeningGuard, Site, SiteMarkdownSource, SiteSettings};
use docwharf_site::mapping;

use super::build_turn::BuildTurn;
use super::error::DaemonError;
use super::index_settings::SearchConfigInForce;
use super::listeners::{announce, bind, http_urls, listeners, open_log, urls};
use super::main_loop::{MainLoop, MainLoopParameters};
use super::notify::{Notifier, start_watchdog};
use super::passed_sockets::{PassedSockets, StoredSockets, take_passed_sockets};
#[cfg(feature = "analytics")]
use super::reader_recording::{self, ReaderRecording, RecordingParts};
use super::reporter::DescribeError;
use super::search_index::maintain_search_index;
use super::search_parts::SearchParts;
use super::served_version::warn_about_rules;
use super::server::{StopSignals, build_runtime, server_result};
use super::task::default_thread_count;
use super::waiting_version_site::admit_all;
use super::{index_check, policies, precompression, replaced_versions, scrub};

/// The maximum number of queued commands; further ones wait at the socket.
const MAX_QUEUED_COMMANDS: usize = 16;

/// The longest time that the process waits for background tasks before it ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of connections to the admin listener. They use the file descriptors that the server reserves.
const MAX_ADMIN_CONNECTIONS: usize = 24;

/// The maximum number of connections to the listener of the waiting version, from the same reserve: enough for two
/// browsers.
const MAX_WAITING_VERSION_CONNECTIONS: usize = 12;

/// The effect of SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunHangup {
    /// Read the configuration again and check the source.
    Reload,
    /// The terminal was closed: stop.
    Stop,
}

/// The parameters of `run`.
#[derive(Debug)]
pub struct RunParameters {
    /// The inputs of the configuration, for reloads.
    pub config_inputs: ConfigInputs,
    /// The configuration at the start.
    pub config: Config,
    /// The longest time to wait for the lock of the store.
    pub lock_timeout: Duration,
    /// The effect of SIGHUP.
    pub hangup: RunHangup,
    /// Converts errors for clients of the control socket.
    pub describe: DescribeError,
}

/// The sockets and files that are opened before the store.
#[derive(Debug)]
struct OpenedSockets {
    public: Vec<HttpListener>,
    admin: Vec<TcpListener>,
    waiting: Vec<TcpListener>,
    /// Copies of those that this process, or an earlier one, has bound: not of those of socket units.
    bound: Vec<TcpListener>,
    tls: Option<Arc<ServerTls>>,
    log: Option<Arc<AccessLog>>,
}

/// Runs the daemon until a stop signal arrives. Without `serve`, there is no listener for the site.
pub fn run(parameters: RunParameters, serve: bool) -> Result<(), DaemonError> {
    let passed = take_passed_sockets()?;
    let opened = open_listeners(&parameters.config, passed, serve)?;
    // Only `run` reports to a service manager; the demonstration does not, even if it was started by one.
    run_opened(opened, parameters, &Notifier::from_env())
}

/// Opens the certificate, the access log and the sockets. Sockets of socket units replace the configured addresses of
/// their kind. Sockets that an earlier process has stored are used for the same addresses.
fn open_listeners(config: &Config, passed: PassedSockets, serve: bool) -> Result<OpenedSockets, DaemonError> {
    // Before any socket listens, so that an unusable certificate or log is an error first.
    let tls = match &config.tls {
        Some(tls) if serve => Some(super::load_tls(&tls.files)?),
        _ => None,
    };
    let log = if serve { open_log(config.log.as_ref())? } else { None };
    let PassedSockets { public: passed_public, tls: passed_tls, admin, waiting, mut stored } = passed;
    let tls_addresses = config.tls.as_ref().map_or(&[][..], |settings| settings.listen.as_slice());
    stored.end_all_but(&[&config.listen, tls_addresses, &config.admin, &config.waiting_listen]);
    let mut bound = Vec::new();
    let mut or_bind = |passed: Vec<TcpListener>, addresses: &[SocketAddr]| {
        if !passed.is_empty() {
            return Ok(passed);
        }
        let sockets = bind_unless_stored(addresses, &mut stored)?;
        bound.extend(sockets.iter().filter_map(|socket| socket.try_clone().ok()));
        Ok::<_, DaemonError>(sockets)
    };
    let mut public = Vec::new();
    if serve {
        public = listeners(or_bind(passed_public, &config.listen)?, None);
        match (&tls, &config.tls) {
            (Some(tls), Some(settings)) => {
                public.extend(listeners(or_bind(passed_tls, &settings.listen)?, Some(tls)));
            }
            _ if passed_tls.is_empty() => {}
            _ => return Err(DaemonError::NoCertificate),
        }
        if public.is_empty() {
            return Err(DaemonError::NoListener);
        }
    }
    let admin = or_bind(admin, &config.admin)?;
    let waiting = or_bind(waiting, &config.waiting_listen)?;
    Ok(OpenedSockets { public, admin, waiting, bound, tls, log })
}

/// Takes the stored socket of each address, or binds it.
fn bind_unless_stored(addresses: &[SocketAddr], stored: &mut StoredSockets) -> Result<Vec<TcpListener>, DaemonError> {
    let mut sockets = Vec::new();
    for &address in addresses {
        match stored.take(address) {
            Some(socket) => sockets.push(socket),
            None => sockets.extend(bind(&[address])?),
        }
    }
    Ok(sockets)
}

/// Runs the daemon on sockets that are already bound, without TLS, access log and service manager.
pub fn run_on(sockets: Vec<TcpListener>, parameters: RunParameters) -> Result<(), DaemonError> {
    let (admin, waiting) = (bind(&parameters.config.admin)?, bind(&parameters.config.waiting_listen)?);
    let public = listeners(sockets, None);
    let opened = OpenedSockets { public, admin, waiting, bound: Vec::new(), tls: None, log: None };
    run_opened(opened, parameters, &Notifier::none())
}

fn run_opened(opened: OpenedSockets, parameters: RunParameters, notifier: &Notifier) -> Result<(), DaemonError> {
    check_first_version(&parameters.config, &parameters.config_inputs)?;
    let runtime = build_runtime()?;
    let log = opened.log.clone();
    let result = runtime.block_on(run_daemon(parameters, opened, notifier));
    // A seal in progress is abandoned; the next start continues from what has been downloaded.
    runtime.shutdown_background();
    if let Some(log) = log {
        log.finish();
    }
    result
}

/// Checks whether there is a version, or one can arrive. It comes before the URLs of the site are announced, and before
/// an empty store is created.
fn check_first_version(config: &Config, config_inputs: &ConfigInputs) -> Result<(), DaemonError> {
    let stored = VersionStore::at(&config.store).versions();
    if !config.receives_versions() && stored.as_ref().is_ok_and(Vec::is_empty) {
        let missing_config = config_inputs.missing_default_file();
        return Err(DaemonError::NothingToServe { store: config.store.clone(), missing_config });
    }
    if config.inbox.is_none() && stored.is_ok_and(|stored| stored.is_empty()) {
        check_local_source(&config.sync_settings).map_err(DaemonError::FirstSync)?;
    }
    Ok(())
}

async fn run_daemon(parameters: RunParameters, opened: OpenedSockets, notifier: &Notifier) -> Result<(), DaemonError> {
    let OpenedSockets { public: listeners, admin: admin_listeners, waiting: waiting_listeners, bound, tls, log } =
        opened;
    let RunParameters { config_inputs, config, lock_timeout, hangup: hangup_effect, describe } = parameters;
    // Installed before any other process can know of this one; opening the store may take long.
    let mut signals = StopSignals::new(hangup_effect == RunHangup::Stop)?;
    let hangup = signal(SignalKind::hangup()).map_err(DaemonError::Start)?;
    let site = Site::with_access_log(config.settings.clone(), log);
    site.set_rules(Arc::clone(&config.rules));
    let is_served = !listeners.is_empty();
    if is_served {
        site.set_search_settings(Arc::new(config.site_search_settings()));
        site.set_assistant_settings(Some(Arc::new(config.assistant.clone())));
        // From the first request on: only the index process makes the Markdown of all pages.
        site.set_site_markdown_source(SiteMarkdownSource::Program);
        site.set_playground_settings(config.playground.to_site_settings());
    }
    #[cfg(feature = "analytics")]
    let recorder = reader_recording::attach_recorder(&site, &config.analytics);
    let opening = {
        let (config, site) = (config.clone(), Arc::clone(&site));
        tokio::task::spawn_blocking(move || open_store(&config, &site, lock_timeout))
    };
    notifier.status("opening the store");
    let (writer, served) = tokio::select! {
        opened = opening => opened.map_err(|panic| DaemonError::EndedUnexpectedly(io::Error::other(panic)))??,
        () = signals.wait_for_stop() => return Ok(()),
        // Opening waits for the lock and may have to rebuild an index.
        never = notifier.extend_start_timeout() => match never {},
    };
    let (stop, stopped) = watch::channel(false);
    let socket_addresses = listeners.iter().filter_map(|listener| listener.address().ok()).collect();
    let (admin_urls, waiting_urls) = (http_urls(&admin_listeners), http_urls(&waiting_listeners));
    let daemon_state = Arc::new(DaemonState::new(urls(&listeners), admin_urls, waiting_urls, tls.clone()));
    daemon_state.allow_hosts(AllowedHosts::new(&config.admin_hosts));
    daemon_state.update(|snapshot| {
        snapshot.feature_settings = Some(config.feature_settings());
        // The first programs of docwharf start before the main loop, with the network of these settings.
        snapshot.sync_settings = Some(config.sync_settings.clone());
    });
    let watchdog = start_watchdog(notifier);
    // Bound before the announcement: a command that follows it at once waits in the socket's queue instead of finding
    // no daemon.
    let control = bind_control(writer.store().root());
    announce(&daemon_state.site_urls);
    // The copies end here: this process stops listening when its server closes the sockets.
    notifier.store_sockets(&bound);
    drop(bound);
    notifier.ready();
    let opening_replaced = OpeningGuard::start(&site);
    let (idle_sender, idle) = oneshot::channel();
    let mut server = tokio::spawn({
        let (site, stopped, watchdog) = (Arc::clone(&site), stopped.clone(), Arc::clone(&watchdog));
        async move { listener::serve_watched(listeners, site.into(), stopped, &watchdog, Some(idle_sender)).await }
    });
    // On a machine with one core, the remaining steps would delay the first requests.
    let _ = idle.await;
    replaced_versions::retain_replaced_versions(&writer, &site, opening_replaced);
    let (command_sender, commands) = mpsc::channel(MAX_QUEUED_COMMANDS);
    let metrics = Arc::new(DaemonMetrics::new(tls.is_some()));
    // Every client that reaches the listener of the waiting version may read it, whatever [access] says. A waiting
    // version that is replaced needs no asset grace, because no reader has its pages open.
    let (asset_grace, access_control) = (Duration::ZERO, admit_all(&config.settings.access_control));
    let settings = SiteSettings { asset_grace, access_control, is_unpublished: true, ..config.settings.clone() };
    let waiting_site = Site::new(settings);
    waiting_site.set_rules(Arc::clone(&config.rules));
    // Nothing leaves this host on behalf of a version that is not approved yet.
    waiting_site.set_assistant_settings(Some(Arc::new(config.assistant.without_ask())));
    #[cfg(feature = "analytics")]
    let analytics = Arc::new(AnalyticsApi::new(reader_recording::api_settings(&config.analytics)));
    #[cfg(feature = "analytics")]
    let recording_parts = RecordingParts {
        site: Arc::clone(&site),
        recorder,
        store: writer.store().root().to_owned(),
        api: Arc::clone(&analytics),
        daemon_state: Arc::clone(&daemon_state),
    };
    // Without a listener for the site there are no readers.
    #[cfg(feature = "analytics")]
    let recording =
        if is_served { ReaderRecording::start(recording_parts, config.analytics.clone()).await } else { None };
    let admin = Arc::new(AdminService {
        store: writer.store().clone(),
        daemon_state: Arc::clone(&daemon_state),
        metrics: Arc::clone(&metrics),
        site: Arc::clone(&site),
        commands: command_sender,
        watchdog,
        #[cfg(feature = "analytics")]
        analytics,
    });
    tokio::spawn(policies::maintain_policies(
        Arc::clone(&site),
        Arc::clone(&writer),
        config.threads.unwrap_or_else(default_thread_count),
        Arc::clone(&daemon_state),
    ));
    let turn = BuildTurn::new(is_served);
    let codings = tokio::spawn(precompression::maintain_codings(
        Arc::clone(&site),
        Arc::clone(&writer),
        config.codings.clone(),
        Arc::clone(&daemon_state),
        Arc::clone(&turn),
        stopped.clone(),
    ));
    let addresses = config.sync_settings.gate.address_settings.clone();
    let in_force = SearchConfigInForce::new(config.search.clone(), addresses, &config.assistant);
    let (search_settings, settings) = watch::channel(in_force);
    let search_parts = SearchParts {
        site: Arc::clone(&site),
        writer: Arc::clone(&writer),
        daemon_state: Arc::clone(&daemon_state),
        metrics: Arc::clone(&metrics),
        turn,
        settings,
    };
    // Without a listener for the site there are no readers who could search.
    let search_index = is_served.then(|| tokio::spawn(maintain_search_index(search_parts, stopped.clone())));
    let (fault_sender, faults) = mpsc::channel(1);
    index_check::verify_index(&site, fault_sender.clone());
    if let Some(every) = config.scrub {
        let was_cut_off = scrub::begin_run(&writer).await;
        tokio::spawn(scrub::verify_versions(Arc::clone(&writer), Arc::clone(&site), every, was_cut_off, fault_sender));
    }
    // The lock must outlive the control socket: otherwise this process could remove the socket of the next daemon.
    let lock_holder = Arc::clone(&writer);
    let mut admin_tasks = serve_admin(&admin, control, admin_listeners, &stopped);
    serve_waiting_version(&mut admin_tasks, &waiting_site, waiting_listeners, &admin.daemon_state, &stopped);
    let mut main_loop = MainLoop::new(MainLoopParameters {
        writer,
        config_inputs,
        config,
        site,
        waiting_site,
        served,
        daemon_state,
        metrics,
        describe,
        notifier: notifier.clone(),
        tls,
        socket_addresses,
        search_settings: is_served.then_some(search_settings),
        #[cfg(feature = "analytics")]
        recording,
    });
    tokio::select! {
        result = &mut server => {
            scrub::end_run(&lock_holder);
            return server_result(result);
        }
        () = signals.wait_for_stop() => notifier.stopping(),
        result = main_loop.run(hangup, commands, faults) => {
            notifier.stopping();
            // Nothing was cut off: the main loop has ended by itself.
            scrub::end_run(&lock_holder);
            return result;
        }
    }
    main_loop.cancel_task();
    stop.send_replace(true);
    #[cfg(feature = "analytics")]
    let recording = main_loop.take_recording();
    // Clients that still wait for a reply learn that there will be none.
    drop(main_loop);
    let result = server_result(server.await);
    // After the last request, so that it is recorded, too.
    #[cfg(feature = "analytics")]
    if let Some(recording) = recording {
        let finish = tokio::task::spawn_blocking(move || recording.finish());
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, finish).await;
    }
    // Half-made files are removed while this process holds the lock. If the thread gets no processor in time, the next
    // start removes them.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, codings).await;
    if let Some(search_index) = search_index {
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, search_index).await;
    }
    while admin_tasks.join_next().await.is_some() {}
    scrub::end_run(&lock_holder);
    drop(lock_holder);
    result
}

/// Binds the control socket. Without it the site is served all the same; commands then report that the store is locked.
fn bind_control(store: &Path) -> Option<ControlSocket> {
    let bound = ControlSocket::bind(store).inspect_err(|error| {
        tracing::warn!(
            "cannot listen on {}: {error}; commands such as `docwharf sync` cannot reach this daemon",
            store.join(CONTROL).display()
        );
    });
    bound.ok()
}

/// Serves the admin routes on the control socket, and on the admin listener if there is one.
fn serve_admin(
    admin: &Arc<AdminService>,
    control: Option<ControlSocket>,
    listeners: Vec<TcpListener>,
    stopped: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let Some(control) = control {
        tasks.spawn(control.serve(Arc::clone(admin), stopped.clone()));
    }
    if !listeners.is_empty() {
        for url in &admin.daemon_state.admin_urls {
            tracing::info!("health, status and metrics are at {url}");
        }
        let server =
            listener::serve_limited(listeners, Arc::clone(admin).into(), stopped.clone(), MAX_ADMIN_CONNECTIONS);
        tasks.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!("the admin listener stopped: {error}");
            }
        });
    }
    tasks
}

/// Serves the version that waits to become active, if there is a listener for it.
fn serve_waiting_version(
    tasks: &mut JoinSet<()>,
    site: &Arc<Site>,
    listeners: Vec<TcpListener>,
    daemon_state: &DaemonState,
    stopped: &watch::Receiver<bool>,
) {
    if listeners.is_empty() {
        return;
    }
    for url in &daemon_state.waiting_urls {
        tracing::info!("a version that waits to become active is served at {url}");
    }
    let service = Arc::new(WaitingVersionService(Arc::clone(site))).into();
    let server = listener::serve_limited(listeners, service, stopped.clone(), MAX_WAITING_VERSION_CONNECTIONS);
    tasks.spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(
                "the listener of the version that waits to become active (activate.listen) stopped: {error}"
            );
        }
    });
}

/// Locks the store and serves the best version in it.
fn open_store(
    config: &Config,
    site: &Site,
    lock_timeout: Duration,
) -> Result<(Arc<StoreWriter>, Option<VersionId>), DaemonError> {
    let writer = Arc::new(StoreWriter::open(&config.store, lock_timeout)?);
    let served = serve_best_version(&writer, config, site)?;
    // Stored versions that wait for a person are a reason to run, too.
    if served.is_none() && !config.receives_versions() && writer.store().versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store.clone(), missing_config: None });
    }
    Ok((writer, served))
}

/// Serves the active version, or the best of the others if it is damaged.
fn serve_best_version(writer: &StoreWriter, config: &Config, site: &Site) -> Result<Option<VersionId>, DaemonError> {
    let record = read_record(writer)?;
    let stored = writer.store().versions()?;
    let mut served = None;
    for id in candidates(&record, &config.sync_settings, stored.iter().map(|version| version.id)) {
        match open::open_quickly(writer, id, &config.sync_settings.seal_options) {
            Ok(version) => {
                warn_about_rules(&version);
                // Caches of clients may hold responses from another version, which was served before this process
                // started.
                if record.previous.is_some() || record.active != Some(id) {
                    site.note_content_change();
                }
                site.set_version(version);
                served = Some(id);
                break;
            }
            Err(error) => tracing::error!("{}; trying the previous version", ErrorChain(&error)),
        }
    }
    mapping::set_suspect_file(writer.suspect_file()?);
    if served.is_some() && record.active != served {
        // The record keeps the decision of the operator or of the last sync: once that version is repaired, it is
        // served again.
        writer.note("docwharf run", "fell back", served, None);
    }
    Ok(served)
}
