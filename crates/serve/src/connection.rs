//! Serves one accepted connection: detects the protocol, applies the deadlines and ends the connection.
//!
//! [`Connection`] is a hand-written future because it is polled for every request. It registers once for the shutdown
//! and once for its deadlines, and checks them again only after they have fired.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Sleep, sleep_until};

use super::connection_deadlines::{FIRST_REQUEST_TIMEOUT, HEAD_TIMEOUT, LAST_REQUEST_TIMEOUT, WaitReason};
use super::connection_tracker::{CLOSED, ConnectionTracker, OPEN, OpenConnectionGuard};
use super::head_timer::HeadTimer;
use super::http1::{Http1Connection, Http1Outcome};
use super::http2::{CLIENT_PREFACE, Http2Connection};
use super::lazy_stream::SendFile;
use super::peer::Peer;
use super::replay_stream::{EndWatch, ReplayStream};
use super::service::{HyperService, ListenerService};
use super::site::Site;
use super::site_settings::Http2Server;

/// The largest request line and header section together, in bytes, on HTTP/1; more gets 431. It is above hyper's limit
/// for the target alone (65,534 bytes), so that a target that is too long gets 414.
const MAX_HEAD_BYTES: usize = 128 * 1024;
/// The largest header list in bytes (`SETTINGS_MAX_HEADER_LIST_SIZE`) on the HTTP/2 connections that hyper serves.
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
/// The buffer of a read that detects the protocol, in bytes; most request heads are smaller.
const FIRST_READ_BYTES: usize = 2048;

/// The protocol of a connection as far as it is known: selected by TLS ALPN, or fixed by an earlier request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedProtocol {
    Http1,
    Http2,
    Unknown,
}

/// An accepted connection, as a future that ends when the connection does.
pub(super) struct Connection<S> {
    protocol: Protocol<S>,
    tracker: Arc<ConnectionTracker>,
    /// The shutdown phase that the connection has acted on.
    phase: u8,
    /// The waker that is registered for the shutdown and the timer; `None` before the connection first has to wait.
    waker: Option<Waker>,
    /// The registration for the next change of the shutdown phase.
    phase_change: Option<Pin<Box<OwnedNotified>>>,
    /// The site that the requests are for, and the peer; `None` if a service answers them instead.
    site: SiteAndPeer,
    /// Whether a request was received on the connection.
    request_received: Arc<AtomicBool>,
    /// Fires when the nearest deadline may have passed.
    timer: Option<Pin<Box<Sleep>>>,
    /// The deadline for the first request; `None` once it no longer applies.
    first_request_deadline: Option<Instant>,
    _guard: OpenConnectionGuard,
}

type HyperHttp1<S> = http1::Connection<ReplayStream<S>, HyperService>;
type HyperHttp2<S> = http2::Connection<ReplayStream<S>, HyperService, TokioExecutor>;

enum Protocol<S> {
    /// Only plain HTTP/1.1 requests were received so far. At the first other request, the stream, the service and the
    /// unanswered bytes become [`Protocol::Unknown`].
    Http1(Option<(S, HyperService)>, Box<Http1Connection>, ExpectedProtocol),
    /// The protocol is not detected yet: the stream and the service that will answer, the bytes read so far, the
    /// protocol that ALPN selected, and the deadline for the detection.
    Unknown(Option<(S, HyperService)>, Vec<u8>, ExpectedProtocol, Instant),
    /// HTTP/1 served by hyper, with the deadlines of its request heads.
    HyperHttp1(Box<HyperHttp1<S>>, HeadTimer),
    /// HTTP/2 to a site, served by [`super::http2`].
    Http2(S, Box<Http2Connection>),
    /// HTTP/2 served by hyper: to a service that is not a site, or to a site with [`Http2Server::Hyper`].
    HyperHttp2(Pin<Box<HyperHttp2<S>>>),
}

/// The site that a connection's requests are for, and the peer that sends them. A site is served without hyper where
/// possible.
pub(super) type SiteAndPeer = Option<(Arc<Site>, Peer)>;

impl<S: AsyncRead + SendFile + Unpin + Send + 'static> Connection<S> {
    /// Creates a connection whose requests from `peer` are answered by `service`. `accepted_at` is when the connection
    /// was accepted.
    pub(super) fn new(
        stream: S,
        expected_protocol: ExpectedProtocol,
        service: ListenerService,
        peer: Peer,
        accepted_at: Instant,
        guard: OpenConnectionGuard,
    ) -> Self {
        let request_received = Arc::new(AtomicBool::new(false));
        let site = service.site().map(|site| (Arc::clone(site), peer));
        let end_watch = None;
        let service = HyperService { service, peer, request_received: Arc::clone(&request_received), end_watch };
        let has_http2 = site.as_ref().is_none_or(|(site, _)| site.settings.http2 != Http2Server::Off);
        let expected_protocol = if has_http2 { expected_protocol } else { ExpectedProtocol::Http1 };
        let protocol = match &site {
            Some((site, peer)) if expected_protocol != ExpectedProtocol::Http2 => {
                let connection = Http1Connection::new(Arc::clone(site), *peer, Arc::clone(&request_received));
                Protocol::Http1(Some((stream, service)), Box::new(connection), expected_protocol)
            }
            _ => Protocol::Unknown(
                Some((stream, service)),
                Vec::new(),
                expected_protocol,
                accepted_at + FIRST_REQUEST_TIMEOUT,
            ),
        };
        Connection {
            protocol,
            tracker: Arc::clone(&guard.tracker),
            phase: OPEN,
            waker: None,
            phase_change: None,
            site,
            request_received,
            timer: None,
            first_request_deadline: Some(accepted_at + FIRST_REQUEST_TIMEOUT),
            _guard: guard,
        }
    }

    /// Runs the first turn, before the connection has a separate task; ready when the connection has already ended.
    pub(super) fn poll_first(&mut self) -> Poll<()> {
        // No waker is needed: a connection that has to wait is polled again by its own task.
        self.poll_protocol(&mut Context::from_waker(Waker::noop()))
    }

    fn has_received_request(&self) -> bool {
        self.request_received.load(Ordering::Relaxed)
    }

    /// Reads until the protocol is detected; `None` if the peer closed the connection before it sent anything, or the
    /// read failed.
    fn detect_protocol(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        let Protocol::Unknown(parts, initial_bytes, expected_protocol, _) = &mut self.protocol else {
            return Poll::Ready(Some(()));
        };
        let Some((stream, _)) = parts else { return Poll::Ready(None) };
        let is_http2 = match expected_protocol {
            ExpectedProtocol::Http1 => false,
            ExpectedProtocol::Http2 => true,
            ExpectedProtocol::Unknown => match ready!(detect_http2(stream, initial_bytes, context)) {
                Ok(is_http2) => is_http2,
                Err(_) => return Poll::Ready(None),
            },
        };
        let Some((stream, service)) = parts.take() else { return Poll::Ready(None) };
        let initial_bytes = std::mem::take(initial_bytes);
        let site_with_http2 = self.site.as_ref().filter(|(site, _)| site.settings.http2 == Http2Server::Own);
        if let Some((site, peer)) = site_with_http2.filter(|_| is_http2) {
            let mut connection =
                Box::new(Http2Connection::new(Arc::clone(site), *peer, Arc::clone(&self.request_received)));
            connection.receive_initial_bytes(&initial_bytes);
            self.protocol = Protocol::Http2(stream, connection);
        } else if is_http2 {
            let connection = http2_builder().serve_connection(ReplayStream::new(stream, initial_bytes), service);
            self.protocol = Protocol::HyperHttp2(Box::pin(connection));
        } else {
            let (head_timer, end_watch) = (HeadTimer::new(), EndWatch::default());
            let service = HyperService { end_watch: Some(end_watch.clone()), ..service };
            let stream = ReplayStream::new(stream, initial_bytes).with_end_watch(end_watch);
            let connection = http1_builder(&head_timer).serve_connection(stream, service);
            self.protocol = Protocol::HyperHttp1(Box::new(connection), head_timer);
        }
        if self.phase != OPEN && self.has_received_request() {
            self.finish_requests();
        }
        Poll::Ready(Some(()))
    }

    /// Runs one turn of the protocol; ready when the connection has ended. Errors are not logged: they mean that the
    /// client closed the connection or used another protocol.
    fn poll_protocol(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Protocol::Http1(parts, connection, expected_protocol) = &mut self.protocol {
            let Some((stream, _)) = parts else { return Poll::Ready(()) };
            match ready!(connection.poll(stream, context)) {
                Http1Outcome::Ended => return Poll::Ready(()),
                Http1Outcome::NotServedHere(unhandled) => {
                    // Only the first bytes of a connection can select HTTP/2 (RFC 9113, section 3.3).
                    let expected_protocol = if self.request_received.load(Ordering::Relaxed) {
                        ExpectedProtocol::Http1
                    } else {
                        *expected_protocol
                    };
                    let deadline = self.first_request_deadline.unwrap_or_else(|| Instant::now() + HEAD_TIMEOUT);
                    self.protocol = Protocol::Unknown(parts.take(), unhandled, expected_protocol, deadline);
                }
            }
        }
        if ready!(self.detect_protocol(context)).is_none() {
            return Poll::Ready(());
        }
        match &mut self.protocol {
            Protocol::Http1(..) | Protocol::Unknown(..) => Poll::Ready(()),
            Protocol::HyperHttp1(connection, _) => Pin::new(&mut **connection).poll(context).map(drop),
            Protocol::Http2(stream, connection) => connection.poll(stream, context),
            Protocol::HyperHttp2(connection) => connection.as_mut().poll(context).map(drop),
        }
    }

    /// Finishes the requests in progress, and accepts no more.
    fn finish_requests(&mut self) {
        match &mut self.protocol {
            Protocol::Http1(_, connection, _) => connection.finish(),
            Protocol::Unknown(..) => {}
            Protocol::HyperHttp1(connection, _) => Pin::new(&mut **connection).graceful_shutdown(),
            Protocol::Http2(_, connection) => connection.begin_shutdown(),
            Protocol::HyperHttp2(connection) => connection.as_mut().graceful_shutdown(),
        }
    }

    /// Checks whether the shutdown phase has changed; ready when the connection has to end at once.
    fn poll_shutdown(&mut self, context: &mut Context<'_>, is_new_waker: bool) -> Poll<()> {
        if is_new_waker {
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
        let notification =
            self.phase_change.get_or_insert_with(|| Box::pin(Arc::clone(&self.tracker.phase_changed).notified_owned()));
        // The result does not matter: when the notification has fired, the phase differs.
        let _ = notification.as_mut().poll(context);
    }

    /// Acts on the current shutdown phase; ready when the connection has to end.
    fn apply_phase(&mut self) -> Poll<()> {
        self.phase = self.tracker.phase.load(Ordering::Acquire);
        if self.phase == CLOSED {
            return Poll::Ready(());
        }
        if self.has_received_request() {
            self.finish_requests();
        } else {
            self.first_request_deadline = Some(Instant::now() + LAST_REQUEST_TIMEOUT);
        }
        Poll::Pending
    }

    /// Returns the event that the protocol waits for.
    fn wait_reason(&self) -> WaitReason {
        match &self.protocol {
            Protocol::Http1(_, connection, _) => connection.wait_reason(),
            Protocol::Unknown(.., deadline) => WaitReason::Peer(*deadline),
            // hyper creates a timer whenever it waits for a request head.
            Protocol::HyperHttp1(_, head_timer) => head_timer.deadline().map_or(WaitReason::Internal, WaitReason::Peer),
            Protocol::Http2(_, connection) => connection.deadline().map_or(WaitReason::Internal, WaitReason::Peer),
            // hyper sends PINGs to detect an absent peer.
            Protocol::HyperHttp2(_) => WaitReason::Internal,
        }
    }

    /// Returns the nearest deadline, and drops the one for the first request once a request was received.
    fn deadline(&mut self) -> Option<Instant> {
        if self.first_request_deadline.is_some() && self.phase == OPEN && self.has_received_request() {
            self.first_request_deadline = None;
        }
        let protocol_deadline = match self.wait_reason() {
            WaitReason::Peer(deadline) => Some(deadline),
            WaitReason::PeerReads | WaitReason::Internal => None,
        };
        debug_assert!(
            protocol_deadline.is_some() || !matches!(self.protocol, Protocol::Unknown(..)),
            "a state that waits for the peer has a deadline"
        );
        self.first_request_deadline.into_iter().chain(protocol_deadline).min()
    }

    /// Checks whether a deadline has passed; ready when the connection has to end.
    fn poll_deadlines(&mut self, context: &mut Context<'_>, is_new_waker: bool) -> Poll<()> {
        // Without a deadline the timer stays as it is, for the next request head.
        while let Some(deadline) = self.deadline() {
            let mut needs_poll = is_new_waker;
            let timer = self.timer.get_or_insert_with(|| {
                needs_poll = true;
                Box::pin(sleep_until(deadline.into()))
            });
            // A timer is moved only to an earlier time. After a deadline has moved to a later one it fires too early,
            // never too late.
            if timer.deadline().into_std() > deadline {
                needs_poll = true;
                timer.as_mut().reset(deadline.into());
            }
            if !needs_poll && !timer.is_elapsed() {
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
        if self.first_request_deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.first_request_deadline = None;
            if !self.has_received_request() {
                return Poll::Ready(());
            }
            if self.phase != OPEN {
                self.finish_requests();
            }
        }
        if matches!(self.protocol, Protocol::Http1(..) | Protocol::Unknown(..))
            && matches!(self.wait_reason(), WaitReason::Peer(deadline) if Instant::now() >= deadline)
        {
            return Poll::Ready(());
        }
        if let Protocol::Http2(_, connection) = &mut self.protocol {
            if connection.handle_deadlines() {
                return Poll::Ready(());
            }
            return self.poll_protocol(context);
        }
        let has_head_expired =
            matches!(&self.protocol, Protocol::HyperHttp1(_, head_timer) if head_timer.check_expired());
        if self.phase != OPEN || has_head_expired {
            // hyper acts on the expired timer or on the shutdown when it is polled.
            return self.poll_protocol(context);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + SendFile + Unpin + Send + 'static> Future for Connection<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let connection = self.get_mut();
        if connection.poll_protocol(context).is_ready() {
            return Poll::Ready(());
        }
        let is_new_waker = connection.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker()));
        if is_new_waker {
            connection.waker = Some(context.waker().clone());
        }
        let phase = connection.phase;
        if connection.poll_shutdown(context, is_new_waker).is_ready()
            || connection.poll_deadlines(context, is_new_waker).is_ready()
        {
            return Poll::Ready(());
        }
        // The protocol has to be polled once more to act on the new phase.
        if connection.phase == phase { Poll::Pending } else { connection.poll_protocol(context) }
    }
}

/// Reads the first bytes and returns whether they are the preface of HTTP/2. If the client stops sending before that is
/// certain, the result is false.
fn detect_http2<S: AsyncRead + Unpin>(
    stream: &mut S,
    initial_bytes: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<io::Result<bool>> {
    loop {
        let n = initial_bytes.len().min(CLIENT_PREFACE.len());
        if initial_bytes[..n] != CLIENT_PREFACE[..n] {
            return Poll::Ready(Ok(false));
        }
        if n == CLIENT_PREFACE.len() {
            return Poll::Ready(Ok(true));
        }
        let mut storage = [const { std::mem::MaybeUninit::uninit() }; FIRST_READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut storage);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        match buffer.filled() {
            [] if initial_bytes.is_empty() => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            [] => return Poll::Ready(Ok(false)),
            bytes => initial_bytes.extend_from_slice(bytes),
        }
    }
}

fn http1_builder(head_timer: &HeadTimer) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(head_timer.clone())
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

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests connect to their own sockets
mod tests;
