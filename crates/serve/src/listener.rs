//! Listening sockets: accepts connections, limits their number and ends them, with or without TLS.
//!
//! The protocols are in [`super::connection`], and the responses come from a [`ListenerService`].

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use docwharf_base::tcp_options;

use super::connection::{Connection, ExpectedProtocol};
use super::connection_deadlines::LAST_REQUEST_TIMEOUT;
use super::connection_tracker::{ConnectionTracker, OpenConnectionGuard};
use super::peer::Peer;
use super::service::ListenerService;
use super::serving_threads::ServingThreads;
use super::stall_timeout::StallTimeoutStream;
use super::tls::ServerTls;
use super::watchdog::{HEARTBEAT_INTERVAL, Heartbeat, Watchdog};

/// The time that a TLS handshake may take, which is a few packets. It counts towards the time for the first request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time within which connections may finish after the listener has closed, which is a moment after a stop; those
/// that are still busy then are cut.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);
/// The bytes that the kernel accepts for a connection beyond those in flight (`TCP_NOTSENT_LOWAT`); connections inherit
/// it from the listening socket. Without it every client that stalls would cost megabytes of kernel memory (Linux:
/// `tcp_wmem`), and the time to copy them.
const MAX_UNSENT_BYTES: u32 = 256 * 1024;
/// The longest time for which the kernel holds back a new connection that has sent nothing (`TCP_DEFER_ACCEPT`).
const ACCEPT_DEFER_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of connections that are accepted one after another before other tasks of the runtime run.
const ACCEPT_BATCH: usize = 32;
/// The number of file descriptors that are not used for connections, but for files and the server's own sockets.
pub const RESERVED_DESCRIPTORS: u64 = 64;

/// Opens a listening socket. Fails if the port is in use; does not wait for it.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // The IPv6 socket accepts no IPv4 connections, so `[::]` and `0.0.0.0` can be bound on the same port.
        socket.set_only_v6(true)?;
    }
    // A restart can bind the port while old connections are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    // Before `listen`: an accepted connection inherits the options that the listening socket had at that moment.
    set_inherited_options(&socket);
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Sets the socket options that connections inherit. An option that the kernel refuses keeps its default.
fn set_inherited_options(socket: &impl AsFd) {
    let options = SockRef::from(socket);
    // Responses are sent without delay.
    let _ = options.set_tcp_nodelay(true);
    let _ = options.set_tcp_notsent_lowat(MAX_UNSENT_BYTES);
    let _ = tcp_options::set_defer_accept(socket, ACCEPT_DEFER_TIMEOUT);
}

/// A listening socket, and the TLS configuration of its connections if they are encrypted.
#[derive(Debug)]
pub struct HttpListener {
    socket: std::net::TcpListener,
    tls: Option<Arc<ServerTls>>,
}

impl From<std::net::TcpListener> for HttpListener {
    fn from(socket: std::net::TcpListener) -> HttpListener {
        HttpListener { socket, tls: None }
    }
}

impl HttpListener {
    /// Encrypts the connections of this socket with `tls`.
    pub fn with_tls(socket: std::net::TcpListener, tls: &Arc<ServerTls>) -> HttpListener {
        HttpListener { socket, tls: Some(Arc::clone(tls)) }
    }

    /// Returns the address that the socket is bound to.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the address as the URL that clients use, such as `https://127.0.0.1:8443/`.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}/", self.address()?))
    }
}

/// Raises the soft limit of open files to the hard one, and returns how many files and sockets this process may have
/// open.
pub fn raise_open_file_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the connection limit: the number of file descriptors that are left for connections, at least 16 and at most
/// 60,000.
fn max_connections() -> usize {
    raise_open_file_limit().saturating_sub(RESERVED_DESCRIPTORS).clamp(16, 60_000) as usize
}

/// Accepts and serves connections until a moment after `stop` becomes true, then lets them finish for at most
/// [`DRAIN_TIMEOUT`].
/// Without a listener it only waits for the stop.
pub async fn serve(
    listeners: Vec<HttpListener>,
    service: ListenerService,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    serve_watched(listeners, service, stop, &Watchdog::new(HEARTBEAT_INTERVAL, || {}), None).await
}

/// Does what [`serve`] does, for at most `max_connections` connections at a time and on the caller's runtime. These
/// connections do not count towards the limit of the site's listeners.
pub async fn serve_limited(
    listeners: Vec<std::net::TcpListener>,
    service: ListenerService,
    stop: watch::Receiver<bool>,
    max_connections: usize,
) -> io::Result<()> {
    let listeners = listeners.into_iter().map(HttpListener::from).collect();
    run_accept_loops(
        listeners,
        service,
        stop,
        Watchdog::new(HEARTBEAT_INTERVAL, || {}),
        max_connections,
        ServingThreads::on_current_runtime(),
        None,
    )
    .await
}

/// Does what [`serve`] does, and reports to the watchdog from each accept loop and each serving thread.
/// `backlog_accepted` is dropped when each accept loop has accepted its first batch of the connections that arrived
/// before the start.
pub async fn serve_watched(
    listeners: Vec<HttpListener>,
    service: ListenerService,
    stop: watch::Receiver<bool>,
    watchdog: &Arc<Watchdog>,
    backlog_accepted: Option<oneshot::Sender<Infallible>>,
) -> io::Result<()> {
    if listeners.is_empty() {
        drop(backlog_accepted);
        // An error means that the sender was dropped, which counts as a stop.
        let mut stop = stop;
        let _ = watchdog.register().beat_while(stop.wait_for(|&stop| stop)).await;
        return Ok(());
    }
    let (serving_threads, _threads_guard) = ServingThreads::start(watchdog)?;
    let accept_loops = run_accept_loops(
        listeners,
        service,
        stop,
        Arc::clone(watchdog),
        max_connections(),
        serving_threads.clone(),
        backlog_accepted,
    );
    serving_threads.run_on_first(accept_loops).await?
}

/// Runs the accept loops of all listeners until they end.
async fn run_accept_loops(
    listeners: Vec<HttpListener>,
    service: ListenerService,
    stop: watch::Receiver<bool>,
    watchdog: Arc<Watchdog>,
    max_connections: usize,
    serving_threads: ServingThreads,
    backlog_accepted: Option<oneshot::Sender<Infallible>>,
) -> io::Result<()> {
    let permits = Arc::new(Semaphore::new(max_connections));
    let mut accept_loops = JoinSet::new();
    for listener in listeners {
        let HttpListener { socket, tls } = listener;
        // A socket from the service manager does not have these options yet.
        set_inherited_options(&socket);
        let socket = into_waitable(socket)?;
        let (service, permits, serving_threads) = (service.clone(), Arc::clone(&permits), serving_threads.clone());
        accept_loops.spawn(run_accept_loop(
            socket,
            tls,
            service,
            permits,
            serving_threads,
            stop.clone(),
            watchdog.register(),
        ));
    }
    // Runs after the first poll of each accept loop.
    tokio::task::yield_now().await;
    drop(backlog_accepted);
    while let Some(result) = accept_loops.join_next().await {
        result.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Accepts the connections of one listener until the stop, then waits for the end of the open ones.
async fn run_accept_loop(
    listener: TcpStream,
    tls: Option<Arc<ServerTls>>,
    service: ListenerService,
    permits: Arc<Semaphore>,
    serving_threads: ServingThreads,
    mut stop: watch::Receiver<bool>,
    mut heartbeat: Heartbeat,
) {
    let tracker = Arc::new(ConnectionTracker::default());
    // The time at which the loop stops accepting; set when the stop is noticed.
    let mut accept_deadline: Option<Instant> = None;
    let mut batch_len = 0;
    let is_loopback_listener = listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    loop {
        // At the limit new connections wait in the queue of the kernel. The loop reports to the watchdog meanwhile:
        // waiting for a permit is no hang.
        let permit = match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                heartbeat
                    .beat_while(async {
                        tokio::select! {
                            permit = Arc::clone(&permits).acquire_owned() => permit.ok(),
                            () = stop_or_deadline(&mut stop, accept_deadline) => None,
                        }
                    })
                    .await
            }
        };
        let accepted =
            permit.map_or(Ok(None), |permit| accept_next(&listener).map(|accepted| Some((permit, accepted))));
        match accepted {
            // The connection limit is reached and the server stops.
            Ok(None) => {}
            Ok(Some((permit, Some((socket, address))))) => {
                let peer = Peer { address, is_encrypted: tls.is_some(), is_loopback_listener };
                let (thread, thread_guard) = serving_threads.assign();
                let guard = OpenConnectionGuard::new(&tracker, permit, thread_guard);
                serve_accepted(socket, tls.as_ref(), peer, &service, guard, thread);
                batch_len += 1;
                if batch_len < ACCEPT_BATCH {
                    continue;
                }
                // Other tasks run first: open connections, the watchdog and a stop.
                heartbeat.beat_while(tokio::task::yield_now()).await;
            }
            Ok(Some((permit, None))) => {
                drop(permit);
                heartbeat
                    .beat_while(async {
                        tokio::select! {
                            _ = listener.readable() => {}
                            () = stop_or_deadline(&mut stop, accept_deadline) => {}
                        }
                    })
                    .await;
            }
            Err(error) => {
                // File descriptors or memory are exhausted: an immediate retry would only use CPU time.
                tracing::warn!("cannot accept a connection: {error}; retrying in 50 ms");
                sleep(Duration::from_millis(50)).await;
            }
        }
        batch_len = 0;
        if accept_deadline.is_none() && *stop.borrow() {
            // The kernel still holds back connections that have sent nothing (`TCP_DEFER_ACCEPT`), so the loop accepts
            // a little longer.
            accept_deadline = Some(Instant::now() + LAST_REQUEST_TIMEOUT);
            tracker.close();
        }
        if accept_deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
    }
    drop((listener, heartbeat));
    if timeout(DRAIN_TIMEOUT, tracker.wait_empty()).await.is_err() {
        tracing::warn!(
            "{} cut {DRAIN_TIMEOUT:?} after the listener closed",
            docwharf_base::model::units::format_count(tracker.open_connections() as u64, "connection")
        );
        tracker.close_now();
        tracker.wait_empty().await;
    }
}

/// Waits for the stop, or after the stop until `accept_deadline`.
async fn stop_or_deadline(stop: &mut watch::Receiver<bool>, accept_deadline: Option<Instant>) {
    match accept_deadline {
        None => drop(stop.wait_for(|&stop| stop).await),
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
    }
}

/// Wraps a listening socket so that its readiness can be awaited. tokio's listener type would register each accepted
/// connection with the runtime, which most connections with a single request do not need (see [`super::lazy_stream`]).
/// For a `TcpStream` tokio waits until the socket is readable, which for a listening socket means that a connection can
/// be accepted.
fn into_waitable(listener: std::net::TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    TcpStream::from_std(OwnedFd::from(listener).into())
}

/// Accepts the next connection; `None` if there is none.
fn accept_next(listener: &TcpStream) -> io::Result<Option<(std::net::TcpStream, SocketAddr)>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        match listener.try_io(Interest::READABLE, || Ok(acceptfrom_with(listener, flags)?)) {
            Ok((socket, address)) => {
                // Without a peer address the connection has already been closed.
                if let Some(address) = address.and_then(|address| SocketAddr::try_from(address).ok()) {
                    return Ok(Some((socket.into(), address)));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Serves a new connection: on `thread` if there is one, otherwise on this thread, with a task only if the connection
/// does not end in its first turn.
fn serve_accepted(
    socket: std::net::TcpStream,
    tls: Option<&Arc<ServerTls>>,
    peer: Peer,
    service: &ListenerService,
    guard: OpenConnectionGuard,
    thread: Option<&Handle>,
) {
    let (accepted_at, service) = (Instant::now(), service.clone());
    let spawn = |connection: Pin<Box<dyn Future<Output = ()> + Send>>| match thread {
        Some(thread) => thread.spawn(connection),
        None => tokio::spawn(connection),
    };
    if let Some(tls) = tls {
        spawn(Box::pin(serve_encrypted(socket, Arc::clone(tls), accepted_at, peer, service, guard)));
        return;
    }
    let stream = StallTimeoutStream::new(socket.into(), service.site().cloned());
    let mut connection =
        Box::pin(Connection::new(stream, ExpectedProtocol::Unknown, service, peer, accepted_at, guard));
    // The first turn runs inside the accept loop: a panic must end only this connection, as it would in a task.
    if thread.is_some()
        || catch_unwind(AssertUnwindSafe(|| connection.poll_first())).is_ok_and(|turn| turn.is_pending())
    {
        spawn(connection);
    }
}

/// Serves a connection that starts with a TLS handshake. Until that is complete it has the deadlines of a connection
/// without a request.
async fn serve_encrypted(
    socket: std::net::TcpStream,
    tls: Arc<ServerTls>,
    accepted_at: Instant,
    peer: Peer,
    service: ListenerService,
    guard: OpenConnectionGuard,
) {
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    let stopped = async {
        guard.tracker().wait_closing().await;
        sleep(LAST_REQUEST_TIMEOUT).await;
    };
    let handshake = tokio::select! {
        result = timeout(HANDSHAKE_TIMEOUT, tls.handshake(stream, service.site().cloned())) => result.ok().flatten(),
        () = stopped => None,
    };
    let Some(stream) = handshake else { return };
    let expected_protocol = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => ExpectedProtocol::Http2,
        Some(_) => ExpectedProtocol::Http1,
        None => ExpectedProtocol::Unknown,
    };
    Connection::new(stream, expected_protocol, service, peer, accepted_at, guard).await;
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests connect to their own sockets
mod tests;
