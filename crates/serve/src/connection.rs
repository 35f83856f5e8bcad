//! One connection: which protocol is spoken on it, how long it may take to say what it wants, how it ends.
//!
//! A hand-written future, because it is polled for every request: what it waits for beside its protocol (a stop, a
//! deadline) is entered once and looked at only when it has happened.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Buf;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Sleep, sleep_until};

use super::Site;
use super::alarm::Alarm;
use super::crew::Load;
use super::peer::Peer;
use super::plain::{Plain, Turn};
use super::stream::SendFile;
use super::two::Two;
use super::wire::Wire;

/// A request's head must be whole after this time, and a kept connection is closed when idle for as long.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection that has not brought its first request by now is closed, whatever version of HTTP it began to speak.
const FIRST_REQUEST: Duration = Duration::from_secs(35);
/// Whoever connected just before the server stops gets so long to say what it wants: its request may be on its way.
pub(super) const LAST_REQUEST: Duration = Duration::from_millis(500);
/// Request line and fields together; more is 431. Above hyper's limit for the target alone (65,534 bytes), so that a
/// target that is too long gets its own 414.
const HEAD_BYTES: usize = 128 * 1024;
/// The same for HTTP/2, where there is no such difference.
const FIELD_BYTES: u32 = 64 * 1024;
/// What every HTTP/2 connection begins with (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A first read: most heads are smaller.
const FIRST_READ: usize = 2048;

/// What is spoken on a connection, as far as it was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
    Either,
}

/// Where the connections of a listener live, and what they are told.
#[derive(Debug, Default)]
pub(super) struct House {
    phase: AtomicU8,
    told: Arc<Notify>,
    guests: AtomicUsize,
    left: Notify,
}

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

impl House {
    fn is_open(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OPEN
    }

    /// Connections finish what they are doing, and begin nothing more.
    pub(super) fn close(&self) {
        self.say(CLOSING);
    }

    /// Connections end.
    pub(super) fn cut(&self) {
        self.say(CLOSED);
    }

    fn say(&self, phase: u8) {
        self.phase.store(phase, Ordering::Release);
        self.told.notify_waiters();
    }

    /// Waits until connections are to finish.
    pub(super) async fn closed(&self) {
        loop {
            let told = self.told.notified();
            if !self.is_open() {
                return;
            }
            told.await;
        }
    }

    /// Connections in it.
    pub(super) fn guests(&self) -> usize {
        self.guests.load(Ordering::Acquire)
    }

    /// Waits until there are none.
    pub(super) async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            if self.guests() == 0 {
                return;
            }
            left.await;
        }
    }
}

/// A connection's place in a house, for as long as it lives.
#[derive(Debug)]
pub(super) struct Place {
    house: Arc<House>,
    _room: OwnedSemaphorePermit,
    _load: Load,
}

impl Place {
    /// One more in `house`; `room` is of all there is room for in this process.
    pub(super) fn new(house: &Arc<House>, room: OwnedSemaphorePermit, load: Load) -> Place {
        house.guests.fetch_add(1, Ordering::AcqRel);
        Place { house: Arc::clone(house), _room: room, _load: load }
    }

    /// Where it is.
    pub(super) fn house(&self) -> &House {
        &self.house
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.house.guests.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.house.left.notify_waiters();
        }
    }
}

/// A connection being served.
pub(super) struct Connection<S, V: HttpService<Incoming>> {
    protocol: Protocol<S, V>,
    house: Arc<House>,
    /// What it knows of the house.
    phase: u8,
    /// Who is woken by what it waits for beside its protocol; none before it had to wait.
    waker: Option<Waker>,
    /// Told by the house.
    told: Option<Pin<Box<OwnedNotified>>>,
    /// Whose requests these are, if they are a site's.
    site: Sited,
    /// Whether it has brought a request.
    begun: Arc<AtomicBool>,
    /// Goes off when the nearest deadline may have come.
    timer: Option<Pin<Box<Sleep>>>,
    /// When the first request must have come.
    first: Option<Instant>,
    _place: Place,
}

type One<S, V> = http1::Connection<Wire<S>, V>;
type OtherTwo<S, V> = http2::Connection<Wire<S>, V, TokioExecutor>;

/// What a connection waits for while it cannot go on. Every state that waits for bytes of the peer says until when, and cannot
/// be entered without: a state without a deadline would keep a descriptor for as long as the peer likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// For bytes of the peer, until then.
    Peer(Instant),
    /// For the peer to take bytes. The stream below ends that (`guard`), whoever writes to it.
    Reader,
    /// For an answer, or for another turn; a protocol by hyper that asks for no timer.
    Itself,
}

enum Protocol<S, V: HttpService<Incoming>> {
    /// Only plain requests have come; what follows them is going to be answered by the service.
    Plain(Option<(S, V)>, Box<Plain>, Speaks),
    /// The protocol is not known yet: the service that will answer, the bytes read so far, what was agreed on, and the
    /// deadline by which the protocol must be known.
    Unknown(Option<(S, V)>, Vec<u8>, Speaks, Instant),
    /// With the deadlines of its heads.
    One(Box<One<S, V>>, Alarm),
    /// HTTP/2 to a site.
    Two(S, Box<Two>),
    /// The same to anything else.
    OtherTwo(Pin<Box<OtherTwo<S, V>>>),
}

/// A site that needs less than a service does, and who asks it.
pub(super) type Sited = Option<(Arc<Site>, Peer)>;

impl<S, V> Connection<S, V>
where
    S: AsyncRead + SendFile + Unpin + Send + 'static,
    V: HttpService<Incoming> + Unpin,
    V::Future: Send + 'static,
    V::Error: Into<Box<dyn Error + Send + Sync>>,
    V::ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>, Data: Buf + Send> + Send + 'static,
{
    /// Serves `stream` for a `site` as far as it can be, and else by `service`, which says by `begun` that a request has come.
    /// `accepted` is when it connected.
    pub(super) fn new(
        stream: S,
        speaks: Speaks,
        service: V,
        site: Sited,
        begun: Arc<AtomicBool>,
        accepted: Instant,
        place: Place,
    ) -> Self {
        let protocol = match &site {
            Some((site, peer)) if speaks != Speaks::Http2 => {
                let plain = Plain::new(Arc::clone(site), *peer, Arc::clone(&begun));
                Protocol::Plain(Some((stream, service)), Box::new(plain), speaks)
            }
            _ => Protocol::Unknown(Some((stream, service)), Vec::new(), speaks, accepted + FIRST_REQUEST),
        };
        Connection {
            protocol,
            house: Arc::clone(&place.house),
            phase: OPEN,
            waker: None,
            told: None,
            site,
            begun,
            timer: None,
            first: Some(accepted + FIRST_REQUEST),
            _place: place,
        }
    }

    /// The first turn, before anything has to wait; ready when that was all.
    pub(super) fn begin(&mut self) -> Poll<()> {
        // Whoever has to wait is polled again, by a task of its own.
        self.serve(&mut Context::from_waker(Waker::noop()))
    }

    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Reads until it is known what is spoken; `None` if nothing is to come.
    fn recognize(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        let Protocol::Unknown(place, early, speaks, _) = &mut self.protocol else { return Poll::Ready(Some(())) };
        let Some((stream, _)) = place else { return Poll::Ready(None) };
        let is_two = match speaks {
            Speaks::Http1 => false,
            Speaks::Http2 => true,
            Speaks::Either => match ready!(recognized(stream, early, context)) {
                Ok(is_two) => is_two,
                Err(_) => return Poll::Ready(None),
            },
        };
        let Some((stream, service)) = place.take() else { return Poll::Ready(None) };
        let early = std::mem::take(early);
        if let Some((site, peer)) = self.site.as_ref().filter(|_| is_two) {
            let mut two = Box::new(Two::new(Arc::clone(site), *peer, Arc::clone(&self.begun)));
            two.begin(&early);
            self.protocol = Protocol::Two(stream, two);
        } else if is_two {
            let two = by_two().serve_connection(Wire::new(stream, early), service);
            self.protocol = Protocol::OtherTwo(Box::pin(two));
        } else {
            let alarm = Alarm::new();
            let one = by_one(&alarm).serve_connection(Wire::new(stream, early), service);
            self.protocol = Protocol::One(Box::new(one), alarm);
        }
        if self.phase != OPEN && self.has_begun() {
            self.finish();
        }
        Poll::Ready(Some(()))
    }

    /// One turn of the protocol; ready when the connection has ended. Errors are the client's: it went away, or spoke
    /// something else. Nobody is to be told.
    fn serve(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Protocol::Plain(place, plain, speaks) = &mut self.protocol {
            let Some((stream, _)) = place else { return Poll::Ready(()) };
            match ready!(plain.poll(stream, context)) {
                Turn::Ended => return Poll::Ready(()),
                Turn::Other(early) => {
                    // HTTP/2 begins with a connection's first bytes or not at all (RFC 9113, 3.3).
                    let speaks = if self.begun.load(Ordering::Relaxed) { Speaks::Http1 } else { *speaks };
                    let by = self.first.unwrap_or_else(|| Instant::now() + HEAD_TIMEOUT);
                    self.protocol = Protocol::Unknown(place.take(), early, speaks, by);
                }
            }
        }
        if ready!(self.recognize(context)).is_none() {
            return Poll::Ready(());
        }
        match &mut self.protocol {
            Protocol::Plain(..) | Protocol::Unknown(..) => Poll::Ready(()),
            Protocol::One(one, _) => Pin::new(&mut **one).poll(context).map(drop),
            Protocol::Two(stream, two) => two.poll(stream, context),
            Protocol::OtherTwo(two) => two.as_mut().poll(context).map(drop),
        }
    }

    /// Answers what has begun, and no more.
    fn finish(&mut self) {
        match &mut self.protocol {
            Protocol::Plain(_, plain, _) => plain.finish(),
            Protocol::Unknown(..) => {}
            Protocol::One(one, _) => Pin::new(&mut **one).graceful_shutdown(),
            Protocol::Two(_, two) => two.finish(),
            Protocol::OtherTwo(two) => two.as_mut().graceful_shutdown(),
        }
    }

    /// Looks whether the house has said something; ready when the connection has to go at once.
    fn listen(&mut self, context: &mut Context<'_>, is_new: bool) -> Poll<()> {
        if is_new {
            self.enter(context);
        }
        while self.house.phase.load(Ordering::Acquire) != self.phase {
            // Whoever is told once is told once more: of the end.
            self.told = None;
            self.enter(context);
            if self.obey().is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Waits to be told, before it is looked whether there is anything to be told, so that nothing is missed.
    fn enter(&mut self, context: &mut Context<'_>) {
        let told = self.told.get_or_insert_with(|| Box::pin(Arc::clone(&self.house.told).notified_owned()));
        // If that has happened the phase is another one.
        let _ = told.as_mut().poll(context);
    }

    /// Takes over what the house has said; ready when that is the end.
    fn obey(&mut self) -> Poll<()> {
        self.phase = self.house.phase.load(Ordering::Acquire);
        if self.phase == CLOSED {
            return Poll::Ready(());
        }
        if self.has_begun() {
            self.finish();
        } else {
            self.first = Some(Instant::now() + LAST_REQUEST);
        }
        Poll::Pending
    }

    /// What the protocol waits for.
    fn waits(&self) -> Waits {
        match &self.protocol {
            Protocol::Plain(_, plain, _) => plain.waits(),
            Protocol::Unknown(.., by) => Waits::Peer(*by),
            // hyper asks for a timer whenever it waits for a head.
            Protocol::One(_, alarm) => alarm.deadline().map_or(Waits::Itself, Waits::Peer),
            Protocol::Two(_, two) => two.deadline().map_or(Waits::Itself, Waits::Peer),
            // By its own PINGs.
            Protocol::OtherTwo(_) => Waits::Itself,
        }
    }

    /// The nearest deadline.
    fn deadline(&mut self) -> Option<Instant> {
        if self.first.is_some() && self.phase == OPEN && self.has_begun() {
            self.first = None;
        }
        let own = match self.waits() {
            Waits::Peer(by) => Some(by),
            Waits::Reader | Waits::Itself => None,
        };
        debug_assert!(
            own.is_some() || !matches!(self.protocol, Protocol::Unknown(..)),
            "a state that waits for the peer has a deadline"
        );
        self.first.into_iter().chain(own).min()
    }

    /// Looks whether a deadline has come; ready when the connection has to go.
    fn watch_clock(&mut self, context: &mut Context<'_>, is_new: bool) -> Poll<()> {
        // A timer that there is although nothing is due is kept for the next head.
        while let Some(deadline) = self.deadline() {
            let mut is_asked = is_new;
            let timer = self.timer.get_or_insert_with(|| {
                is_asked = true;
                Box::pin(sleep_until(deadline.into()))
            });
            // When a deadline has moved it goes off too early; never too late.
            if timer.deadline().into_std() > deadline {
                is_asked = true;
                timer.as_mut().reset(deadline.into());
            }
            if !is_asked && !timer.is_elapsed() {
                return Poll::Pending;
            }
            ready!(timer.as_mut().poll(context));
            self.timer = None;
            if self.run_out(context).is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// What follows when the timer has gone off.
    fn run_out(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.first.is_some_and(|first| Instant::now() >= first) {
            self.first = None;
            if !self.has_begun() {
                return Poll::Ready(());
            }
            if self.phase != OPEN {
                self.finish();
            }
        }
        if matches!(self.protocol, Protocol::Plain(..) | Protocol::Unknown(..))
            && matches!(self.waits(), Waits::Peer(by) if Instant::now() >= by)
        {
            return Poll::Ready(());
        }
        if let Protocol::Two(_, two) = &mut self.protocol {
            if two.run_out() {
                return Poll::Ready(());
            }
            return self.serve(context);
        }
        let has_come = matches!(&self.protocol, Protocol::One(_, alarm) if alarm.has_come());
        if self.phase != OPEN || has_come {
            // hyper acts upon it: it finds its timer expired, or its connection at its end.
            return self.serve(context);
        }
        Poll::Pending
    }
}

impl<S, V> Future for Connection<S, V>
where
    S: AsyncRead + SendFile + Unpin + Send + 'static,
    V: HttpService<Incoming> + Unpin,
    V::Future: Send + 'static,
    V::Error: Into<Box<dyn Error + Send + Sync>>,
    V::ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>, Data: Buf + Send> + Send + 'static,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.serve(context).is_ready() {
            return Poll::Ready(());
        }
        let is_new = this.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker()));
        if is_new {
            this.waker = Some(context.waker().clone());
        }
        let phase = this.phase;
        if this.listen(context, is_new).is_ready() || this.watch_clock(context, is_new).is_ready() {
            return Poll::Ready(());
        }
        // What was said to the protocol it has to act upon.
        if this.phase == phase { Poll::Pending } else { this.serve(context) }
    }
}

/// Reads what comes first; whether that is HTTP/2. Whoever ends before that is known speaks HTTP/1, if anything.
fn recognized<S: AsyncRead + Unpin>(
    stream: &mut S,
    early: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<io::Result<bool>> {
    loop {
        let n = early.len().min(PREFACE.len());
        if early[..n] != PREFACE[..n] {
            return Poll::Ready(Ok(false));
        }
        if n == PREFACE.len() {
            return Poll::Ready(Ok(true));
        }
        let mut room = [const { std::mem::MaybeUninit::uninit() }; FIRST_READ];
        let mut buffer = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        match buffer.filled() {
            [] if early.is_empty() => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            [] => return Poll::Ready(Ok(false)),
            more => early.extend_from_slice(more),
        }
    }
}

fn by_one(alarm: &Alarm) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(alarm.clone())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        // A client that has said everything and only listens gets its answer.
        .half_close(true);
    builder
}

fn by_two() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(128)
        .max_header_list_size(FIELD_BYTES)
        .keep_alive_interval(Some(HEAD_TIMEOUT))
        .keep_alive_timeout(HEAD_TIMEOUT);
    builder
}
