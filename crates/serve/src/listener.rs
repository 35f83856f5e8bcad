//! Sockets: accepting, bounding and ending connections, encrypted or not. What is said on them is somebody else's: see
//! [`Answer`].

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Request;
use hyper::body::Incoming;
use hyper::service::{HttpService, service_fn};
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncRead, Interest};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use docwharf_base::defer;

use super::answer::Answer;
use super::connection::{Connection, House, LAST_REQUEST, Place, Speaks};
use super::crew::Crew;
use super::guard::Guarded;
use super::peer::Peer;
use super::pulse::{EVERY, Heart, Pulse};
use super::stream::SendFile;
use super::tls::Tls;

/// A TLS handshake takes a few packets. Its time counts towards the first request's.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that are still busy when the server stops are cut after this.
pub const DRAIN: Duration = Duration::from_secs(8);
/// What the kernel takes beyond what is on its way, for each connection, which inherits it from the listening socket. Without
/// a bound every client that stalls costs megabytes of the kernel's memory (Linux: `tcp_wmem`), and the time to copy them.
const UNSENT_BYTES: u32 = 256 * 1024;
/// How long a connection is held back at most on which nothing has come.
const DEFERRED: Duration = Duration::from_secs(1);
/// Connections accepted in one go, before others have their turn.
const AT_ONCE: usize = 32;
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
    // Before anybody can connect: what is accepted has what the listening socket had then.
    prepare(&socket);
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// What connections inherit. Where it cannot be had, the kernel's own ways do.
fn prepare(socket: &impl AsFd) {
    let options = SockRef::from(socket);
    // Answers go out at once.
    let _ = options.set_tcp_nodelay(true);
    let _ = options.set_tcp_notsent_lowat(UNSENT_BYTES);
    let _ = defer::accept(socket, DEFERRED);
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

/// Accepts and serves until `stop` turns true, then lets connections finish for at most [`DRAIN`]. Without a listener it
/// only waits.
pub async fn serve<A: Answer>(
    listeners: Vec<Listener>,
    answerer: Arc<A>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    serve_beating(listeners, answerer, stop, &Pulse::new(EVERY, || {}), None).await
}

/// The same for few: at most so many connections at a time, which take nothing from those who are served for real.
pub async fn serve_few<A: Answer>(
    listeners: Vec<std::net::TcpListener>,
    answerer: Arc<A>,
    stop: watch::Receiver<bool>,
    most: usize,
) -> io::Result<()> {
    let listeners = listeners.into_iter().map(Listener::from).collect();
    accept_all(listeners, answerer, stop, Pulse::new(EVERY, || {}), most, Crew::here(), None).await
}

/// The same, for somebody who wants to know whether it still accepts: each listener's loop beats. What is handed to it as
/// `waits` is dropped when whoever had connected before has been welcomed.
pub async fn serve_beating<A: Answer>(
    listeners: Vec<Listener>,
    answerer: Arc<A>,
    stop: watch::Receiver<bool>,
    pulse: &Arc<Pulse>,
    waits: Option<oneshot::Sender<Infallible>>,
) -> io::Result<()> {
    if listeners.is_empty() {
        drop(waits);
        // Whoever could say stop has gone: that says it, too.
        let mut stop = stop;
        let _ = pulse.heart().beside(stop.wait_for(|&stop| stop)).await;
        return Ok(());
    }
    let (crew, _hired) = Crew::hire(pulse)?;
    let all = accept_all(listeners, answerer, stop, Arc::clone(pulse), most_connections(), crew.clone(), waits);
    crew.first(all).await?
}

async fn accept_all<A: Answer>(
    listeners: Vec<Listener>,
    answerer: Arc<A>,
    stop: watch::Receiver<bool>,
    pulse: Arc<Pulse>,
    most: usize,
    crew: Crew,
    waits: Option<oneshot::Sender<Infallible>>,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(most));
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        let Listener { socket, tls } = listener;
        // Once more for one that somebody else has opened.
        prepare(&socket);
        let socket = waitable(socket)?;
        let (answerer, room, crew) = (Arc::clone(&answerer), Arc::clone(&room), crew.clone());
        acceptors.spawn(accept(socket, tls, answerer, room, crew, stop.clone(), pulse.heart()));
    }
    // Behind the first turn of each of them.
    tokio::task::yield_now().await;
    drop(waits);
    while let Some(ended) = acceptors.join_next().await {
        ended.map_err(io::Error::other)?;
    }
    Ok(())
}

async fn accept<A: Answer>(
    listener: TcpStream,
    tls: Option<Arc<Tls>>,
    answerer: Arc<A>,
    room: Arc<Semaphore>,
    crew: Crew,
    mut stop: watch::Receiver<bool>,
    mut heart: Heart,
) {
    let house = Arc::new(House::default());
    // When it stops accepting, once it has been told to.
    let mut last: Option<Instant> = None;
    let mut in_a_row = 0;
    loop {
        // Beyond the limit new connections wait in the kernel's queue. A full house is no hang.
        let place = match Arc::clone(&room).try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) => {
                heart
                    .beside(async {
                        tokio::select! {
                            place = Arc::clone(&room).acquire_owned() => place.ok(),
                            () = over(&mut stop, last) => None,
                        }
                    })
                    .await
            }
        };
        let came = place.map_or(Ok(None), |place| next(&listener).map(|came| Some((place, came))));
        match came {
            // A full house, and a stop.
            Ok(None) => {}
            Ok(Some((place, Some((socket, address))))) => {
                let peer = Peer { address, is_encrypted: tls.is_some() };
                let (member, load) = crew.next();
                let place = Place::new(&house, place, load);
                welcome(socket, tls.as_ref(), peer, &answerer, place, member);
                in_a_row += 1;
                if in_a_row < AT_ONCE {
                    continue;
                }
                // Those who are connected already, the pulse, and a stop.
                heart.beside(tokio::task::yield_now()).await;
            }
            Ok(Some((place, None))) => {
                drop(place);
                heart
                    .beside(async {
                        tokio::select! {
                            _ = listener.readable() => {}
                            () = over(&mut stop, last) => {}
                        }
                    })
                    .await;
            }
            Err(error) => {
                // Out of descriptors or memory: asking again at once would only burn the processor.
                tracing::warn!("cannot accept a connection: {error}; trying again in a moment");
                sleep(Duration::from_millis(50)).await;
            }
        }
        in_a_row = 0;
        if last.is_none() && *stop.borrow() {
            // Who has connected and said nothing yet is still in the kernel; see `DEFERRED`.
            last = Some(Instant::now() + LAST_REQUEST);
            house.close();
        }
        if last.is_some_and(|last| Instant::now() >= last) {
            break;
        }
    }
    drop((listener, heart));
    if timeout(DRAIN, house.emptied()).await.is_err() {
        tracing::warn!(
            "{} cut {DRAIN:?} after the stop",
            docwharf_base::model::units::count(house.guests() as u64, "connection")
        );
        house.cut();
        house.emptied().await;
    }
}

/// Until a stop, or, after that, until the last moment.
async fn over(stop: &mut watch::Receiver<bool>, last: Option<Instant>) {
    match last {
        None => drop(stop.wait_for(|&stop| stop).await),
        Some(last) => tokio::time::sleep_until(last.into()).await,
    }
}

/// A listening socket that can be waited for. The runtime's own listener enters each connection as it is accepted, and most
/// of those that ask one thing and go need not be (see [`super::stream`]); of a stream it wants to know when there is
/// something to be had, which is the same question.
fn waitable(listener: std::net::TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    TcpStream::from_std(OwnedFd::from(listener).into())
}

/// The next who waits to be accepted, if there is one.
fn next(listener: &TcpStream) -> io::Result<Option<(std::net::TcpStream, SocketAddr)>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        match listener.try_io(Interest::READABLE, || Ok(acceptfrom_with(listener, flags)?)) {
            Ok((socket, address)) => {
                // Without an address it has gone already.
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

/// Serves a new connection, by `member` if that is another one; else by a task of its own if it does not end at once.
fn welcome<A: Answer>(
    socket: std::net::TcpStream,
    tls: Option<&Arc<Tls>>,
    peer: Peer,
    answerer: &Arc<A>,
    place: Place,
    member: Option<&Handle>,
) {
    let (accepted, answerer) = (Instant::now(), Arc::clone(answerer));
    let spawn = |connection: Pin<Box<dyn Future<Output = ()> + Send>>| match member {
        Some(member) => member.spawn(connection),
        None => tokio::spawn(connection),
    };
    if let Some(tls) = tls {
        spawn(Box::pin(encrypted(socket, Arc::clone(tls), accepted, peer, answerer, place)));
        return;
    }
    let stream = Guarded::new(socket.into(), answerer.site());
    let mut connection = Box::pin(connection(stream, Speaks::Either, accepted, peer, answerer, place));
    // Its first turn is in the loop that accepts: a panic must end this connection only, as it would in a task of its own.
    if member.is_some() || catch_unwind(AssertUnwindSafe(|| connection.begin())).is_ok_and(|turn| turn.is_pending()) {
        spawn(connection);
    }
}

/// A connection that begins with a handshake. Until that is over it is like one that has sent half a request.
async fn encrypted<A: Answer>(
    socket: std::net::TcpStream,
    tls: Arc<Tls>,
    accepted: Instant,
    peer: Peer,
    answerer: Arc<A>,
    place: Place,
) {
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    let stopped = async {
        place.house().closed().await;
        sleep(LAST_REQUEST).await;
    };
    let agreed = tokio::select! {
        agreed = timeout(HANDSHAKE, tls.shake(stream, answerer.site())) => agreed.ok().flatten(),
        () = stopped => None,
    };
    let Some(stream) = agreed else { return };
    let speaks = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Speaks::Http2,
        Some(_) => Speaks::Http1,
        None => Speaks::Either,
    };
    connection(stream, speaks, accepted, peer, answerer, place).await;
}

/// A connection whose requests `answerer` answers.
fn connection<A: Answer, S: AsyncRead + SendFile + Send + Unpin + 'static>(
    stream: S,
    speaks: Speaks,
    accepted: Instant,
    peer: Peer,
    answerer: Arc<A>,
    place: Place,
) -> Connection<S, impl HttpService<Incoming, ResBody = A::Body, Future: Send + 'static, Error = Infallible> + Unpin> {
    let begun = Arc::new(AtomicBool::new(false));
    let has_begun = Arc::clone(&begun);
    let site = answerer.site().map(|site| (site, peer));
    let service = service_fn(move |request: Request<Incoming>| {
        has_begun.store(true, Ordering::Relaxed);
        let response = answerer.answer(request, peer);
        async move { Ok::<_, Infallible>(response.await) }
    });
    Connection::new(stream, speaks, service, site, begun, accepted, place)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use http::Response;

    use super::*;
    use crate::body::Body;

    /// Panics when it is asked for `/panic`.
    struct Fragile;

    impl Answer for Fragile {
        type Body = Body;

        fn answer(
            self: &Arc<Self>,
            request: Request<Incoming>,
            _peer: Peer,
        ) -> impl Future<Output = Response<Body>> + Send + 'static + use<> {
            assert!(request.uri().path() != "/panic", "asked to");
            std::future::ready(Response::new(Body::full("whole")))
        }
    }

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn an_address_of_ipv6_is_taken_for_ipv6_alone_so_that_both_can_be_asked_for() {
        // A machine without IPv6 has nothing to bind to.
        if let Ok(listener) = bind(SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0))) {
            assert!(SockRef::from(&listener).only_v6().unwrap());
        }
    }

    #[test]
    fn a_panic_in_the_first_turn_of_a_connection_does_not_end_accepting() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let server = runtime.spawn(serve_few(vec![socket], Arc::new(Fragile), stopped, 16));
        for _ in 0..3 {
            assert_eq!(ask(address, "/panic"), "");
            assert!(ask(address, "/").ends_with("whole"));
        }
        stop.send(true).unwrap();
        assert!(runtime.block_on(server).unwrap().is_ok());
    }
}
