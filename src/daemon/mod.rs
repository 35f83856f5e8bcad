//! Runs the commands `run`, `serve` and `origin`: serves what is stored, brings newer versions, and ends on a signal.
//!
//! Async code handles sockets, timers and signals only. Checking the source, verifying and sealing run on a thread of
//! their own ([`work`]). Server and agent end together: the one that ends first stops the other. [`start`] starts
//! `run`, [`agent`] is its main loop, and [`publisher`] publishes the served version as files.

mod agent;
mod commands;
mod configuration;
mod encoder_process;
mod inbox;
mod index_check;
mod notify;
#[cfg(feature = "origin")]
mod origin;
mod passed_sockets;
mod pending_tasks;
mod policies;
mod precompression;
mod previous_versions;
mod publisher;
mod reporter;
mod scrub;
mod served_version;
mod site_listeners;
mod staged_version;
mod start;
mod task;
mod throttle;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::config::checked::{SET_SOURCE_HINT, nothing_to_serve_message};
use docwharf_agent::store::StoreError;
use docwharf_agent::sync::SyncError;
use docwharf_serve::access_log::{AccessLog, AccessLogSettings};
use docwharf_serve::key_pair::{KeyPair, KeyPairError, KeyPairFiles};
use docwharf_serve::listener::{self, HttpListener, RESERVED_DESCRIPTORS};
use docwharf_serve::service::RequestService;
use docwharf_serve::tls::ServerTls;

pub use encoder_process::{ENCODER_COMMAND, EncoderTask, run_encoder};
#[cfg(feature = "origin")]
pub use origin::{OriginHangup, origin};
pub use policies::protect_site;
pub use reporter::{CommandError, DescribeError};
pub use start::{RunHangup, RunParameters, run, run_on};

/// The reason why the daemon ended without a stop signal.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Listening on an address failed.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] KeyPairError),
    /// A socket named `https` was passed, but there is no certificate.
    #[error(
        "a socket named https was passed, and there is no certificate: set tls.certFile and tls.keyFile, or pass the credentials tls-cert and tls-key"
    )]
    NoCertificate,
    /// No listener is configured, and no socket was passed.
    #[error(
        "there is nowhere to serve: server.listen and tls.listen are empty, and no socket was passed; set one of them, or use --no-serve"
    )]
    NoListener,
    /// The access log cannot be opened.
    #[error("cannot open the access log {}", path.display())]
    Log {
        /// The path of the log.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A passed socket cannot be used.
    #[error("cannot serve on descriptor {descriptor}, which was passed under the name {name:?}")]
    Passed {
        /// The number of the descriptor.
        descriptor: usize,
        /// The name in `LISTEN_FDNAMES`; empty if there is none.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The async runtime or a signal handler cannot be created.
    #[error("cannot start serving")]
    Start(#[source] io::Error),
    /// The process may open so few files that it could neither read its store nor accept connections. Contains that
    /// number.
    #[error("cannot start serving: a process may have only {0} files open here, and {least} are needed; raise LimitNOFILE= of the unit, or ulimit -n", least = RESERVED_DESCRIPTORS)]
    TooFewFiles(u64),
    /// A store operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store is empty, and no source is configured.
    #[error("{}; {SET_SOURCE_HINT}", nothing_to_serve_message(store))]
    NothingToServe {
        /// The path of the store.
        store: PathBuf,
    },
    /// The store is empty, and the first sync failed because something that the configuration names is missing.
    #[error(transparent)]
    FirstSync(SyncError),
    /// The server or a thread of the daemon ended unexpectedly.
    #[error("the server stopped unexpectedly")]
    EndedUnexpectedly(#[source] io::Error),
}

/// Converts bound sockets into listeners, with TLS if `tls` is given.
pub fn listeners(sockets: Vec<std::net::TcpListener>, tls: Option<&Arc<ServerTls>>) -> Vec<HttpListener> {
    let of = |socket| match tls {
        Some(tls) => HttpListener::with_tls(socket, tls),
        None => HttpListener::from(socket),
    };
    sockets.into_iter().map(of).collect()
}

/// Binds every address. If one cannot be bound, none stays bound.
pub fn bind(addresses: &[std::net::SocketAddr]) -> Result<Vec<std::net::TcpListener>, DaemonError> {
    addresses
        .iter()
        .map(|&address| listener::bind(address).map_err(|source| DaemonError::Bind { address, source }))
        .collect()
}

/// Loads certificate and key for TLS listeners. A certificate that has expired or is not valid yet is used all the
/// same, with a warning: a site that browsers warn about is more useful than one that is down.
pub fn load_tls(files: &KeyPairFiles) -> Result<Arc<ServerTls>, DaemonError> {
    let pair = KeyPair::load(files)?;
    if let Some(doubt) = pair.date_problem(std::time::SystemTime::now()) {
        tracing::warn!("{doubt}");
    }
    Ok(ServerTls::new(pair))
}

/// Opens the access log; `None` if no log is configured.
pub fn open_log(settings: Option<&AccessLogSettings>) -> Result<Option<Arc<AccessLog>>, DaemonError> {
    let Some(settings) = settings else { return Ok(None) };
    let path = settings.file.clone().unwrap_or_else(|| PathBuf::from("(standard output)"));
    AccessLog::open(settings).map(Some).map_err(|source| DaemonError::Log { path, source })
}

fn build_runtime() -> Result<tokio::runtime::Runtime, DaemonError> {
    let files = listener::files_allowed();
    if files < RESERVED_DESCRIPTORS {
        return Err(DaemonError::TooFewFiles(files));
    }
    // The server has threads of its own for requests; this runtime is for everything beside them.
    docwharf_base::runtime::build_runtime(tokio::runtime::Builder::new_multi_thread().worker_threads(2))
        .map_err(DaemonError::Start)
}

/// Prints the URLs of the site to standard output, one per line, once the sockets accept connections.
fn announce(addresses: &[String]) {
    let mut out = io::stdout().lock();
    for address in addresses {
        // If standard output is closed, no process reads the URLs.
        let _ = writeln!(out, "{address}");
    }
    let _ = out.flush();
}

/// Returns the URLs under which clients reach these listeners.
fn urls(listeners: &[HttpListener]) -> Vec<String> {
    listeners.iter().filter_map(|listener| listener.url().ok()).collect()
}

/// The signals that stop the process.
struct StopSignals {
    term: Signal,
    int: Signal,
    /// SIGHUP from a closed terminal; `None` if SIGHUP has another meaning.
    hup: Option<Signal>,
}

impl StopSignals {
    fn new(hangup: bool) -> Result<StopSignals, DaemonError> {
        let of = |kind| signal(kind).map_err(DaemonError::Start);
        let hup = if hangup { Some(of(SignalKind::hangup())?) } else { None };
        Ok(StopSignals { term: of(SignalKind::terminate())?, int: of(SignalKind::interrupt())?, hup })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
            () = hangup(self.hup.as_mut()) => {}
        }
    }
}

async fn hangup(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Runs `serve`: answers requests with `answerer` until a stop signal arrives.
pub fn serve<A: RequestService>(answerer: Arc<A>, listeners: Vec<HttpListener>) -> Result<(), DaemonError> {
    let runtime = build_runtime()?;
    let result = serve_in(&runtime, answerer, listeners, true);
    runtime.shutdown_background();
    result
}

fn serve_in<A: RequestService>(
    runtime: &tokio::runtime::Runtime,
    answerer: Arc<A>,
    listeners: Vec<HttpListener>,
    hangup: bool,
) -> Result<(), DaemonError> {
    runtime.block_on(async {
        let mut signals = StopSignals::new(hangup)?;
        let (stop, stopped) = watch::channel(false);
        announce(&urls(&listeners));
        let server = tokio::spawn(listener::serve(listeners, answerer, stopped));
        tokio::pin!(server);
        tokio::select! {
            ended = &mut server => return server_result(ended),
            () = signals.stop() => {}
        }
        stop.send_replace(true);
        server_result(server.await)
    })
}

fn server_result(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), DaemonError> {
    ended.map_err(io::Error::other).flatten().map_err(DaemonError::EndedUnexpectedly)
}
