//! Sockets: accepting, bounding and ending connections, encrypted or not. What is said on them is somebody else's: see
//! [`Answer`].

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Site;
use super::guard::Guarded;
use super::handler::{asset_to_come, handle_on};
use super::peer::Peer;
use super::pulse::{EVERY, Heart, Pulse};
use super::tally::Told;
use super::tls::Tls;

/// A request's head must be whole after this time, and a kept connection is closed when idle for as long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection that has not brought its first request by now is closed, whatever version of HTTP it began to speak.
const FIRST_REQUEST: Duration = Duration::from_secs(35);
/// A TLS handshake takes a few packets. Its time counts towards the first request's.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Whoever connected just before the server stops gets so long to say what it wants: its request may be on its way.
const LAST_REQUEST: Duration = Duration::from_millis(500);
/// A client that takes nothing for this long has gone.
const STALLED: Duration = Duration::from_mins(1);
/// Connections that are still busy when the server stops are cut after this.
pub const DRAIN: Duration = Duration::from_secs(8);
/// Request line and fields together; more is 431. Above hyper's limit for the target alone (65,534 bytes), so that a
/// target that is too long gets its own 414.
const HEAD_BYTES: usize = 128 * 1024;
/// The same for HTTP/2, where there is no such difference.
const FIELD_BYTES: u32 = 64 * 1024;
/// What the kernel takes beyond what is on its way, for each connection, which inherits it from the listening socket. Without
/// a bound every client that stalls costs megabytes of the kernel's memory (Linux: `tcp_wmem`), and the time to copy them.
const UNSENT_BYTES: u32 = 256 * 1024;
/// Descriptors kept back for files, sockets of our own and the like.
pub const RESERVED_DESCRIPTORS: u64 = 64;

/// Opens a listening socket. A port in use is an error, not a reason to wait.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` may both be asked for.
        socket.set_only_v6(true)?;
    }
    // A restart must not wait for old connections to be forgotten.
    socket.set_reuse_address(true)?;
    // Inherited by what is accepted: answers go out at once.
    socket.set_tcp_nodelay(true)?;
    // Before anybody can connect: what is accepted has what the listening socket had then.
    bound_unsent(&SockRef::from(&socket));
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// See [`UNSENT_BYTES`]. Where it cannot be had, the kernel's own bounds hold.
fn bound_unsent(socket: &SockRef<'_>) {
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
}

/// A socket that listens, and what its connections are encrypted with.
#[derive(Debug)]
pub struct Listener {
    socket: std::net::TcpListener,
    tls: Option<Arc<Tls>>,
}

impl From<std::net::TcpListener> for Listener {
    fn from(socket: std::net::TcpListener) -> Listener {
        Listener { socket, tls: None }
    }
}

impl Listener {
    /// Connections on this socket are encrypted.
    pub fn encrypted(socket: std::net::TcpListener, tls: &Arc<Tls>) -> Listener {
        Listener { socket, tls: Some(Arc::clone(tls)) }
    }

    /// Where it is bound.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The same as clients write it: `https://127.0.0.1:8443/`.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}/", self.address()?))
    }
}

/// How many files, sockets among them, this process may have open, having raised the soft limit to the hard one.
pub fn files_allowed() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// As many connections as descriptors allow.
fn most_connections() -> usize {
    files_allowed().saturating_sub(RESERVED_DESCRIPTORS).clamp(16, 60_000) as usize
}

/// Who answers the requests of all connections.
pub trait Answer: Send + Sync + 'static {
    /// What responses carry.
    type Body: http_body::Body<Data: Buf + Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers one request. The future is the implementer's own type, so that an answer that is there at once costs no
    /// allocation; it holds on to what it needs of `self`, because it may outlive the connection's other requests.
    fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static + use<Self>;
}

impl Answer for Site {
    type Body = Told;

    fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Told>> + Send + 'static + use<> {
        let begun = self.log().map(|_| std::time::Instant::now());
        if let Some(asset) =
            self.is_opening().then(|| asset_to_come(self, self.current().as_deref(), &request)).flatten()
        {
            let site = Arc::clone(self);
            return Answered::Later(Box::pin(async move {
                site.retained.wait_for(&asset).await;
                told(&site, &request, begun)
            }));
        }
        Answered::Now(ready(told(self, &request, begun)))
    }
}

/// The answer to a request, counted and written down if somebody looked when it had begun.
fn told<B>(site: &Arc<Site>, request: &Request<B>, begun: Option<std::time::Instant>) -> Response<Told> {
    let version = site.current();
    let response = handle_on(site, version.as_deref(), request);
    site.count(response.status());
    match site.log().zip(begun) {
        None => response.map(Told::from),
        Some((log, begun)) => Told::to(site, log, request, version.map(|version| version.id), begun, response),
    }
}

/// An answer of a site: there at once, but for a moment at a start.
enum Answered {
    Now(Ready<Response<Told>>),
    Later(Pin<Box<dyn Future<Output = Response<Told>> + Send>>),
}

impl Future for Answered {
    type Output = Response<Told>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<Told>> {
        match self.get_mut() {
            Answered::Now(answer) => Pin::new(answer).poll(context),
            Answered::Later(answer) => answer.as_mut().poll(context),
        }
    }
}

/// Accepts and serves until `stop` turns true, then lets connections finish for at most [`DRAIN`]. Without a listener it
/// only waits.
pub async fn serve<A: Answer>(
    listeners: Vec<Listener>,
    answerer: Arc<A>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    serve_beating(listeners, answerer, stop, &Pulse::new(EVERY, || {})).await
}

/// The same for few: at most so many connections at a time, which take nothing from those who are served for real.
pub async fn serve_few<A: Answer>(
    listeners: Vec<std::net::TcpListener>,
    answerer: Arc<A>,
    stop: watch::Receiver<bool>,
    most: usize,
) -> io::Result<()> {
    let listeners = listeners.into_iter().map(Listener::from).collect();
    accept_all(listeners, answerer, stop, &Pulse::new(EVERY, || {}), most).await
}

/// The same, for somebody who wants to know whether it still accepts: each listener's loop beats.
pub async fn serve_beating<A: Answer>(
    listeners: Vec<Listener>,
    answerer: Arc<A>,
    stop: watch::Receiver<bool>,
    pulse: &Arc<Pulse>,
) -> io::Result<()> {
    accept_all(listeners, answerer, stop, pulse, most_connections()).await
}

async fn accept_all<A: Answer>(
    listeners: Vec<Listener>,
    answerer: Arc<A>,
    mut stop: watch::Receiver<bool>,
    pulse: &Arc<Pulse>,
    most: usize,
) -> io::Result<()> {
    if listeners.is_empty() {
        // Whoever could say stop has gone: that says it, too.
        let _ = pulse.heart().beside(stop.wait_for(|&stop| stop)).await;
        return Ok(());
    }
    let room = Arc::new(Semaphore::new(most));
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        let (socket, tls) = (TcpListener::from_std(listener.socket)?, listener.tls);
        // Once more for one that somebody else has opened.
        bound_unsent(&SockRef::from(&socket));
        acceptors.spawn(accept(socket, tls, Arc::clone(&answerer), Arc::clone(&room), stop.clone(), pulse.heart()));
    }
    while let Some(ended) = acceptors.join_next().await {
        ended.map_err(io::Error::other)?;
    }
    Ok(())
}

async fn accept<A: Answer>(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    answerer: Arc<A>,
    room: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
    mut heart: Heart,
) {
    let mut connections = JoinSet::new();
    loop {
        // Beyond the limit new connections wait in the kernel's queue. A full house is no hang.
        let Ok(place) = heart.beside(Arc::clone(&room).acquire_owned()).await else {
            break;
        };
        let accepted = heart.beside(async {
            tokio::select! {
                accepted = listener.accept() => Some(accepted),
                _ = stop.wait_for(|&stop| stop) => None,
            }
        });
        match accepted.await {
            None => break,
            Some(Ok((stream, address))) => {
                let peer = Peer { address, is_encrypted: tls.is_some() };
                let (tls, answerer, stop) = (tls.clone(), Arc::clone(&answerer), stop.clone());
                connections.spawn(async move {
                    let first = Instant::now() + FIRST_REQUEST;
                    match tls {
                        None => {
                            let stream = Guarded::new(stream, STALLED);
                            connection(stream, Speaks::Either, first, peer, answerer, stop).await;
                        }
                        // Boxed, so that connections in the clear do not pay for what these need.
                        Some(tls) => Box::pin(encrypted(stream, tls, first, peer, answerer, stop)).await,
                    }
                    drop(place);
                });
            }
            Some(Err(error)) => {
                // Out of descriptors or memory: asking again at once would only burn the processor.
                tracing::warn!("cannot accept a connection: {error}; trying again in a moment");
                sleep(Duration::from_millis(50)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop((listener, heart));
    let drained = timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(
            "{} cut {DRAIN:?} after the stop",
            crate::model::units::count(connections.len() as u64, "connection")
        );
    }
}

/// What is spoken on a connection, as far as it was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Http1,
    Http2,
    Either,
}

/// A connection that begins with a handshake. Until that is over it is like one that has sent half a request.
async fn encrypted<A: Answer>(
    stream: TcpStream,
    tls: Arc<Tls>,
    first: Instant,
    peer: Peer,
    answerer: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let stopped = async {
        let _ = stop.wait_for(|&stop| stop).await;
        sleep(LAST_REQUEST).await;
    };
    let agreed = tokio::select! {
        agreed = timeout(HANDSHAKE, tls.shake(stream, STALLED)) => agreed.ok().flatten(),
        () = stopped => None,
    };
    let Some(stream) = agreed else { return };
    let speaks = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Speaks::Http2,
        Some(_) => Speaks::Http1,
        None => Speaks::Either,
    };
    connection(stream, speaks, first, peer, answerer, stop).await;
}

async fn connection<A: Answer>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    speaks: Speaks,
    first: Instant,
    peer: Peer,
    answerer: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let begun = Arc::new(AtomicBool::new(false));
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        begun.store(true, Ordering::Relaxed);
        let response = answerer.answer(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = match speaks {
        Speaks::Http1 => builder.http1_only(),
        Speaks::Http2 => builder.http2_only(),
        Speaks::Either => builder,
    };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        // A client that has said everything and only listens gets its answer.
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(128)
        .max_header_list_size(FIELD_BYTES)
        .keep_alive_interval(Some(HEAD_TIMEOUT))
        .keep_alive_timeout(HEAD_TIMEOUT);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let first = sleep_until(first);
    tokio::pin!(first);
    let mut waiting = true;
    let mut stopping = false;
    loop {
        tokio::select! {
            // Errors here are the client's: it went away, or spoke something else. Nobody is to be told.
            _ = serving.as_mut() => return,
            () = &mut first, if waiting => {
                if !begun.load(Ordering::Relaxed) {
                    return;
                }
                waiting = false;
                if stopping {
                    serving.as_mut().graceful_shutdown();
                }
            }
            _ = stop.wait_for(|&stop| stop), if !stopping => {
                stopping = true;
                if begun.load(Ordering::Relaxed) {
                    serving.as_mut().graceful_shutdown();
                } else {
                    first.as_mut().reset(Instant::now() + LAST_REQUEST);
                }
            }
        }
    }
}
