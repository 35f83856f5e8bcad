//! Serves one accepted connection: detects the protocol, applies the deadlines and ends the connection.
//!
//! [`Connection`] is a hand-written future because it is polled for every request. It registers for a stop and for a
//! deadline once, and checks them again only after they have fired.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::Buf;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Sleep, sleep_until};

use super::connection_deadlines::{FIRST_REQUEST_TIMEOUT, HEAD_TIMEOUT, LAST_REQUEST_TIMEOUT, WaitReason};
use super::connection_tracker::{CLOSED, ConnectionSlot, ConnectionTracker, OPEN};
use super::head_timer::HeadTimer;
use super::http1::{Http1Connection, Http1Outcome};
use super::http2::{CLIENT_PREFACE, Http2Connection};
use super::lazy_stream::SendFile;
use super::peer::Peer;
use super::replay_stream::ReplayStream;
use super::site::Site;
use super::site_settings::Http2Server;

/// The largest request line and header section together, in bytes, on HTTP/1; more gets 431. It is above hyper's limit
/// for the target alone (65,534 bytes), so that a target that is too long gets 414.
const MAX_HEAD_BYTES: usize = 128 * 1024;
/// The largest header list in bytes (`SETTINGS_MAX_HEADER_LIST_SIZE`) on the HTTP/2 connections that hyper serves.
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
/// The buffer of the first read in bytes; most request heads are smaller.
const FIRST_READ_BYTES: usize = 2048;

/// The protocol of a connection as far as it is known: selected by TLS ALPN, or fixed by an earlier request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NegotiatedProtocol {
    Http1,
    Http2,
    Either,
}

/// An accepted connection, as a future that ends when the connection does.
pub(super) struct Connection<S, V: HttpService<Incoming>> {
    protocol: Protocol<S, V>,
    tracker: Arc<ConnectionTracker>,
    /// The shutdown phase that the connection has acted on.
    phase: u8,
    /// The waker that is registered for the stop and the timer; `None` before the connection first had to wait.
    waker: Option<Waker>,
    /// The registration for the next change of the shutdown phase.
    phase_change: Option<Pin<Box<OwnedNotified>>>,
    /// The site that the requests are for, and the peer; `None` if a service answers them instead.
    site: SiteAndPeer,
    /// Whether the connection has sent a request.
    begun: Arc<AtomicBool>,
    /// Fires when the nearest deadline may have passed.
    timer: Option<Pin<Box<Sleep>>>,
    /// The deadline for the first request; `None` once it no longer applies.
    first_request_by: Option<Instant>,
    _place: ConnectionSlot,
}

type HyperHttp1<S, V> = http1::Connection<ReplayStream<S>, V>;
type HyperHttp2<S, V> = http2::Connection<ReplayStream<S>, V, TokioExecutor>;

enum Protocol<S, V: HttpService<Incoming>> {
    /// Only plain HTTP/1.1 requests have come so far; the stream and the service are for hyper, which takes over at the
    /// first other request.
    Http1(Option<(S, V)>, Box<Http1Connection>, NegotiatedProtocol),
    /// The protocol is not known yet: the stream and the service that will answer, the bytes read so far, the protocol
    /// that ALPN selected, and the deadline by which the protocol must be known.
    Unknown(Option<(S, V)>, Vec<u8>, NegotiatedProtocol, Instant),
    /// HTTP/1 served by hyper, with the deadlines of its request heads.
    HyperHttp1(Box<HyperHttp1<S, V>>, HeadTimer),
    /// HTTP/2 to a site, served by [`super::http2`].
    Http2(S, Box<Http2Connection>),
    /// HTTP/2 served by hyper: to a service that is not a site, or to a site that wants it so ([`Http2Server::Hyper`]).
    HyperHttp2(Pin<Box<HyperHttp2<S, V>>>),
}

/// The site that a connection's requests are for, and the peer that sends them. A site is served without hyper where
/// possible.
pub(super) type SiteAndPeer = Option<(Arc<Site>, Peer)>;

impl<S, V> Connection<S, V>
where
    S: AsyncRead + SendFile + Unpin + Send + 'static,
    V: HttpService<Incoming> + Unpin,
    V::Future: Send + 'static,
    V::Error: Into<Box<dyn Error + Send + Sync>>,
    V::ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>, Data: Buf + Send> + Send + 'static,
{
    /// Serves `stream` for a `site` as far as possible, and otherwise by `service`, which sets `begun` when a request
    /// has come. `accepted` is when the connection was accepted.
    pub(super) fn new(
        stream: S,
        speaks: NegotiatedProtocol,
        service: V,
        site: SiteAndPeer,
        begun: Arc<AtomicBool>,
        accepted: Instant,
        place: ConnectionSlot,
    ) -> Self {
        let has_http2 = site.as_ref().is_none_or(|(site, _)| site.settings.http2 != Http2Server::Off);
        let speaks = if has_http2 { speaks } else { NegotiatedProtocol::Http1 };
        let protocol = match &site {
            Some((site, peer)) if speaks != NegotiatedProtocol::Http2 => {
                let plain = Http1Connection::new(Arc::clone(site), *peer, Arc::clone(&begun));
                Protocol::Http1(Some((stream, service)), Box::new(plain), speaks)
            }
            _ => Protocol::Unknown(Some((stream, service)), Vec::new(), speaks, accepted + FIRST_REQUEST_TIMEOUT),
        };
        Connection {
            protocol,
            tracker: Arc::clone(&place.tracker),
            phase: OPEN,
            waker: None,
            phase_change: None,
            site,
            begun,
            timer: None,
            first_request_by: Some(accepted + FIRST_REQUEST_TIMEOUT),
            _place: place,
        }
    }

    /// Runs the first turn, before the connection has a task of its own; ready when the connection has already ended.
    pub(super) fn poll_first(&mut self) -> Poll<()> {
        // No waker is needed: a connection that has to wait is polled again by its own task.
        self.poll_protocol(&mut Context::from_waker(Waker::noop()))
    }

    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Reads until the protocol is known; `None` if the peer closed the connection before it sent anything.
    fn recognize(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        let Protocol::Unknown(place, early, speaks, _) = &mut self.protocol else { return Poll::Ready(Some(())) };
        let Some((stream, _)) = place else { return Poll::Ready(None) };
        let is_two = match speaks {
            NegotiatedProtocol::Http1 => false,
            NegotiatedProtocol::Http2 => true,
            NegotiatedProtocol::Either => match ready!(detect_http2(stream, early, context)) {
                Ok(is_two) => is_two,
                Err(_) => return Poll::Ready(None),
            },
        };
        let Some((stream, service)) = place.take() else { return Poll::Ready(None) };
        let early = std::mem::take(early);
        let own = self.site.as_ref().filter(|(site, _)| site.settings.http2 == Http2Server::Own);
        if let Some((site, peer)) = own.filter(|_| is_two) {
            let mut two = Box::new(Http2Connection::new(Arc::clone(site), *peer, Arc::clone(&self.begun)));
            two.begin(&early);
            self.protocol = Protocol::Http2(stream, two);
        } else if is_two {
            let two = http2_builder().serve_connection(ReplayStream::new(stream, early), service);
            self.protocol = Protocol::HyperHttp2(Box::pin(two));
        } else {
            let alarm = HeadTimer::new();
            let one = http1_builder(&alarm).serve_connection(ReplayStream::new(stream, early), service);
            self.protocol = Protocol::HyperHttp1(Box::new(one), alarm);
        }
        if self.phase != OPEN && self.has_begun() {
            self.finish_requests();
        }
        Poll::Ready(Some(()))
    }

    /// Runs one turn of the protocol; ready when the connection has ended. Errors are not logged: they mean that the
    /// client went away or spoke another protocol.
    fn poll_protocol(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Protocol::Http1(place, plain, speaks) = &mut self.protocol {
            let Some((stream, _)) = place else { return Poll::Ready(()) };
            match ready!(plain.poll(stream, context)) {
                Http1Outcome::Ended => return Poll::Ready(()),
                Http1Outcome::Hyper(early) => {
                    // HTTP/2 starts with the first bytes of a connection or not at all (RFC 9113, section 3.3).
                    let speaks = if self.begun.load(Ordering::Relaxed) { NegotiatedProtocol::Http1 } else { *speaks };
                    let by = self.first_request_by.unwrap_or_else(|| Instant::now() + HEAD_TIMEOUT);
                    self.protocol = Protocol::Unknown(place.take(), early, speaks, by);
                }
            }
        }
        if ready!(self.recognize(context)).is_none() {
            return Poll::Ready(());
        }
        match &mut self.protocol {
            Protocol::Http1(..) | Protocol::Unknown(..) => Poll::Ready(()),
            Protocol::HyperHttp1(one, _) => Pin::new(&mut **one).poll(context).map(drop),
            Protocol::Http2(stream, two) => two.poll(stream, context),
            Protocol::HyperHttp2(two) => two.as_mut().poll(context).map(drop),
        }
    }

    /// Answers the requests that have begun, and accepts no more.
    fn finish_requests(&mut self) {
        match &mut self.protocol {
            Protocol::Http1(_, plain, _) => plain.finish(),
            Protocol::Unknown(..) => {}
            Protocol::HyperHttp1(one, _) => Pin::new(&mut **one).graceful_shutdown(),
            Protocol::Http2(_, two) => two.finish(),
            Protocol::HyperHttp2(two) => two.as_mut().graceful_shutdown(),
        }
    }

    /// Checks whether the shutdown phase has changed; ready when the connection has to end at once.
    fn poll_shutdown(&mut self, context: &mut Context<'_>, is_new: bool) -> Poll<()> {
        if is_new {
            self.register_for_shutdown(context);
        }
        while self.tracker.phase.load(Ordering::Acquire) != self.phase {
            // A notification fires only once: register again for the change from closing to closed.
            self.phase_change = None;
            self.register_for_shutdown(context);
            if self.apply_phase().is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Registers for the notification before the caller reads the phase; a change in between would otherwise be lost.
    fn register_for_shutdown(&mut self, context: &mut Context<'_>) {
        let told =
            self.phase_change.get_or_insert_with(|| Box::pin(Arc::clone(&self.tracker.phase_changed).notified_owned()));
        // The result does not matter: when the notification has fired, the phase differs.
        let _ = told.as_mut().poll(context);
    }

    /// Acts on the current shutdown phase; ready when the connection has to end.
    fn apply_phase(&mut self) -> Poll<()> {
        self.phase = self.tracker.phase.load(Ordering::Acquire);
        if self.phase == CLOSED {
            return Poll::Ready(());
        }
        if self.has_begun() {
            self.finish_requests();
        } else {
            self.first_request_by = Some(Instant::now() + LAST_REQUEST_TIMEOUT);
        }
        Poll::Pending
    }

    /// Returns the event that the protocol waits for.
    fn wait_reason(&self) -> WaitReason {
        match &self.protocol {
            Protocol::Http1(_, plain, _) => plain.waits(),
            Protocol::Unknown(.., by) => WaitReason::Peer(*by),
            // hyper creates a timer whenever it waits for a request head.
            Protocol::HyperHttp1(_, alarm) => alarm.deadline().map_or(WaitReason::Internal, WaitReason::Peer),
            Protocol::Http2(_, two) => two.deadline().map_or(WaitReason::Internal, WaitReason::Peer),
            // hyper detects an absent peer by PINGs of its own.
            Protocol::HyperHttp2(_) => WaitReason::Internal,
        }
    }

    /// Returns the nearest deadline, and drops the one for the first request once a request has come.
    fn deadline(&mut self) -> Option<Instant> {
        if self.first_request_by.is_some() && self.phase == OPEN && self.has_begun() {
            self.first_request_by = None;
        }
        let own = match self.wait_reason() {
            WaitReason::Peer(by) => Some(by),
            WaitReason::PeerReads | WaitReason::Internal => None,
        };
        debug_assert!(
            own.is_some() || !matches!(self.protocol, Protocol::Unknown(..)),
            "a state that waits for the peer has a deadline"
        );
        self.first_request_by.into_iter().chain(own).min()
    }

    /// Checks whether a deadline has passed; ready when the connection has to end.
    fn poll_deadlines(&mut self, context: &mut Context<'_>, is_new: bool) -> Poll<()> {
        // Without a deadline the timer stays as it is, for the next request head.
        while let Some(deadline) = self.deadline() {
            let mut is_asked = is_new;
            let timer = self.timer.get_or_insert_with(|| {
                is_asked = true;
                Box::pin(sleep_until(deadline.into()))
            });
            // A timer is moved only to an earlier time. After a deadline has moved to a later one it fires too early,
            // never too late.
            if timer.deadline().into_std() > deadline {
                is_asked = true;
                timer.as_mut().reset(deadline.into());
            }
            if !is_asked && !timer.is_elapsed() {
                return Poll::Pending;
            }
            ready!(timer.as_mut().poll(context));
            self.timer = None;
            if self.handle_deadlines(context).is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Acts on deadlines that have passed; ready when the connection has to end.
    fn handle_deadlines(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.first_request_by.is_some_and(|first| Instant::now() >= first) {
            self.first_request_by = None;
            if !self.has_begun() {
                return Poll::Ready(());
            }
            if self.phase != OPEN {
                self.finish_requests();
            }
        }
        if matches!(self.protocol, Protocol::Http1(..) | Protocol::Unknown(..))
            && matches!(self.wait_reason(), WaitReason::Peer(by) if Instant::now() >= by)
        {
            return Poll::Ready(());
        }
        if let Protocol::Http2(_, two) = &mut self.protocol {
            if two.handle_deadlines() {
                return Poll::Ready(());
            }
            return self.poll_protocol(context);
        }
        let has_come = matches!(&self.protocol, Protocol::HyperHttp1(_, alarm) if alarm.has_expired());
        if self.phase != OPEN || has_come {
            // The poll makes hyper act on it: its timer has expired, or the connection is shutting down.
            return self.poll_protocol(context);
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
        if this.poll_protocol(context).is_ready() {
            return Poll::Ready(());
        }
        let is_new = this.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker()));
        if is_new {
            this.waker = Some(context.waker().clone());
        }
        let phase = this.phase;
        if this.poll_shutdown(context, is_new).is_ready() || this.poll_deadlines(context, is_new).is_ready() {
            return Poll::Ready(());
        }
        // The protocol has to be polled once more to act on the new phase.
        if this.phase == phase { Poll::Pending } else { this.poll_protocol(context) }
    }
}

/// Reads the first bytes and returns whether they are the preface of HTTP/2. A client that stops sending before that is
/// known counts as HTTP/1.
fn detect_http2<S: AsyncRead + Unpin>(
    stream: &mut S,
    early: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<io::Result<bool>> {
    loop {
        let n = early.len().min(CLIENT_PREFACE.len());
        if early[..n] != CLIENT_PREFACE[..n] {
            return Poll::Ready(Ok(false));
        }
        if n == CLIENT_PREFACE.len() {
            return Poll::Ready(Ok(true));
        }
        let mut room = [const { std::mem::MaybeUninit::uninit() }; FIRST_READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        match buffer.filled() {
            [] if early.is_empty() => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            [] => return Poll::Ready(Ok(false)),
            more => early.extend_from_slice(more),
        }
    }
}

fn http1_builder(alarm: &HeadTimer) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(alarm.clone())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        // A client that has closed its sending side still gets its response.
        .half_close(true);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(128)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .keep_alive_interval(Some(HEAD_TIMEOUT))
        .keep_alive_timeout(HEAD_TIMEOUT);
    builder
}
