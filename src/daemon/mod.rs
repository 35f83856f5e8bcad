//! The life of `run`, `serve` and `origin`: serve what there is, then look for more, until told to stop.
//!
//! Async is for sockets, timers and signals; looking, proving and sealing happen on a thread of their own ([`work`]).
//! Whichever of server and agent ends first ends the other. [`start`] is how `run` begins, [`agent`] how it goes on,
//! [`publisher`] what makes files of what it serves.

mod agent;
mod arrivals;
mod certificate;
mod codings;
mod earlier;
mod maker;
mod notify;
mod orders;
mod pace;
mod policies;
mod proof;
mod publisher;
mod reload;
mod scrub;
mod sockets;
mod start;
mod work;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use docwharf_base::chain::Chain;
use crate::config::checked::{SET_A_SOURCE, nothing_to_serve};
use docwharf_origin::{Ops, Origin};
use docwharf_serve::answer::Answer;
use docwharf_serve::listener::{self, HttpListener, RESERVED_DESCRIPTORS};
use docwharf_serve::log::{Log, LogSettings};
use docwharf_serve::key_pair::{KeyPairFiles, KeyPair, KeyPairError};
use docwharf_serve::tls::ServerTls;
use docwharf_agent::store::StoreError;
use docwharf_agent::sync::SyncError;

pub use maker::{COMMAND, Order, make};
pub use orders::Describe;
pub use policies::protect_alone;
pub use start::{Hangup, Start, run, run_on};

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
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] KeyPairError),
    /// A socket is to be encrypted, and there is nothing to do it with.
    #[error(
        "a socket named https was passed, and there is no certificate: set tls.certFile and tls.keyFile, or pass the credentials tls-cert and tls-key"
    )]
    NoPair,
    /// There is nowhere to serve.
    #[error(
        "there is nowhere to serve: server.listen and tls.listen are empty, and no socket was passed; set one of them, or use --no-serve"
    )]
    Nowhere,
    /// The access log cannot be written.
    #[error("cannot open the access log {}", path.display())]
    Log {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A socket was passed that is not what it should be.
    #[error("cannot serve on descriptor {descriptor}, which was passed under the name {name:?}")]
    Passed {
        /// Its number.
        descriptor: usize,
        /// The name in `LISTEN_FDNAMES`, or nothing.
        name: String,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// The runtime or a signal handler cannot be had.
    #[error("cannot start serving")]
    Start(#[source] io::Error),
    /// With fewer open files than this it could neither read its store nor answer anybody.
    #[error("cannot start serving: a process may have only {0} files open here, and {least} are needed; raise LimitNOFILE= of the unit, or ulimit -n", least = RESERVED_DESCRIPTORS)]
    TooFewFiles(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing to serve and nothing to look at.
    #[error("{}; {SET_A_SOURCE}", nothing_to_serve(store))]
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

/// What answers on these sockets is encrypted if there is a pair.
pub fn listeners(sockets: Vec<std::net::TcpListener>, tls: Option<&Arc<ServerTls>>) -> Vec<HttpListener> {
    let of = |socket| match tls {
        Some(tls) => HttpListener::with_tls(socket, tls),
        None => HttpListener::from(socket),
    };
    sockets.into_iter().map(of).collect()
}

/// Listens on every address, or on none.
pub fn bind(addresses: &[std::net::SocketAddr]) -> Result<Vec<std::net::TcpListener>, DaemonError> {
    addresses
        .iter()
        .map(|&address| listener::bind(address).map_err(|source| DaemonError::Bind { address, source }))
        .collect()
}

/// The pair for encrypted listeners. One whose dates are wrong is served under all the same, with a warning: a site that
/// browsers warn of helps more than one that is down.
pub fn tls(files: &KeyPairFiles) -> Result<Arc<ServerTls>, DaemonError> {
    let pair = KeyPair::load(files)?;
    if let Some(doubt) = pair.date_problem(std::time::SystemTime::now()) {
        tracing::warn!("{doubt}");
    }
    Ok(ServerTls::new(pair))
}

/// Opens the access log, if there is to be one.
pub fn open_log(settings: Option<&LogSettings>) -> Result<Option<Arc<Log>>, DaemonError> {
    let Some(settings) = settings else { return Ok(None) };
    let path = settings.file.clone().unwrap_or_else(|| PathBuf::from("(standard output)"));
    Log::open(settings).map(Some).map_err(|source| DaemonError::Log { path, source })
}

fn runtime() -> Result<tokio::runtime::Runtime, DaemonError> {
    let files = listener::files_allowed();
    if files < RESERVED_DESCRIPTORS {
        return Err(DaemonError::TooFewFiles(files));
    }
    // Readers have threads of their own (`serve::crew`); this is for what goes on beside them.
    docwharf_base::runtime::build(tokio::runtime::Builder::new_multi_thread().worker_threads(2))
        .map_err(DaemonError::Start)
}

/// Prints where the site is, one line an address, once the sockets answer.
fn announce(addresses: &[String]) {
    let mut out = io::stdout().lock();
    for address in addresses {
        // Whoever closed our standard output does not want to know.
        let _ = writeln!(out, "{address}");
    }
    let _ = out.flush();
}

/// What clients open to reach these.
fn urls(listeners: &[HttpListener]) -> Vec<String> {
    listeners.iter().filter_map(|listener| listener.url().ok()).collect()
}

/// The signals that say stop.
struct StopSignals {
    term: Signal,
    int: Signal,
    /// A terminal that is closed; none where a hangup means something else.
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

/// `serve`: one site, or whatever else answers, until a signal says stop.
pub fn serve<A: Answer>(answerer: Arc<A>, listeners: Vec<HttpListener>) -> Result<(), DaemonError> {
    let runtime = runtime()?;
    let result = serve_in(&runtime, answerer, listeners, true);
    runtime.shutdown_background();
    result
}

fn serve_in<A: Answer>(
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
            ended = &mut server => return finish(ended),
            () = signals.stop() => {}
        }
        stop.send_replace(true);
        finish(server.await)
    })
}

fn finish(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), DaemonError> {
    ended.map_err(io::Error::other).flatten().map_err(DaemonError::Died)
}

/// What an origin does when it is hung up on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHangup {
    /// It ends, like whatever runs on a terminal that is closed.
    Stop,
    /// It goes on, and says so.
    GoOn,
}

/// Connections to an origin's health and metrics at a time.
const ADMIN_CONNECTIONS: usize = 32;
/// How often it is looked whether an origin's certificate is a new one.
const RENEWAL: Duration = Duration::from_mins(1);

/// `origin`: the management API until a signal says stop; beside it, for few, health and metrics.
pub fn origin(
    origin: &Arc<Origin>,
    listeners: Vec<HttpListener>,
    admin: Vec<std::net::TcpListener>,
    pair: Option<(Arc<ServerTls>, KeyPairFiles)>,
    hangup: OnHangup,
) -> Result<(), DaemonError> {
    for url in urls(&listeners) {
        tracing::info!("the API is at {url}v1 (api.baseUrl)");
    }
    for address in admin.iter().filter_map(|listener| listener.local_addr().ok()) {
        tracing::info!("health and metrics are at http://{address}/");
    }
    let runtime = runtime()?;
    let (stop, stopped) = watch::channel(false);
    let few = listener::serve_limited(admin, Arc::new(Ops(Arc::clone(origin))), stopped, ADMIN_CONNECTIONS);
    runtime.spawn(async move {
        if let Err(error) = few.await {
            tracing::error!("health and metrics are not told any more: {error}");
        }
    });
    if let Some((tls, files)) = pair {
        runtime.spawn(renew(tls, files));
    }
    if hangup == OnHangup::GoOn {
        // Before anything is served: nobody's closed terminal or rotated log ends it.
        let mut hangups = {
            let _inside = runtime.enter();
            signal(SignalKind::hangup()).map_err(DaemonError::Start)?
        };
        runtime.spawn(async move {
            while hangups.recv().await.is_some() {
                tracing::warn!("SIGHUP does nothing here: an origin reads its file when it starts; restart it");
            }
        });
    }
    let ended = serve_in(&runtime, Arc::clone(origin), listeners, hangup == OnHangup::Stop);
    tracing::info!("stopping; what is under way is given up");
    stop.send_replace(true);
    origin.close();
    runtime.shutdown_background();
    ended
}

/// Takes over a new certificate when its files have changed, for as long as anybody wants it.
async fn renew(tls: Arc<ServerTls>, files: KeyPairFiles) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        match tls.reload(&files) {
            Ok(None) => {}
            Ok(Some(_)) => tracing::info!("the TLS certificate is a new one"),
            Err(error) => tracing::error!("{}; the certificate before it stays in force", Chain(&error)),
        }
    }
}
