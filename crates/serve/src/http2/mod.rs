//! HTTP/2 (RFC 9113) for site resources, written by hand because a site needs only part of it: few request bodies are
//! used, nothing is pushed, and nearly every response is available at once, so a request needs no separate object and
//! no separate task.
//!
//! A turn has one or more rounds. In each round the connection queues as much of the pending responses as the
//! flow-control windows allow ([`streams`]), sends the queue ([`send_buffer`]), then reads the received bytes and
//! handles them frame by frame ([`receive`], [`frame`]). A request is decoded ([`hpack`]), checked ([`request`]) and
//! answered ([`respond`]) from the response cache or by the handler.
//!
//! Flow control (RFC 9113, section 5.2) for sending is in [`streams`], for receiving in [`receive_window`], and for
//! deferred responses in [`receive`] (`handle_window_update`, `handle_settings`), until their bodies are in
//! [`streams`].
//!
//! The memory that a peer can make the connection hold is limited: a partial frame and one read of input; a partial
//! field block; a dynamic table of 4 KiB; [`MAX_STREAMS`] pending responses, which refer to the mapped image except for
//! a few that are being inflated, or streamed ([`crate::streamed_body`]); the counters of 256 request bodies
//! ([`receive_window`]), of which eight are collected ([`request_bodies`]); and queued heads and replies, because no
//! more input is handled while much is queued. Useless work is limited by [`abuse_limits`] and [`receive_window`], and
//! the time for which a peer can make the connection wait by [`deadlines`].

mod abuse_limits;
mod deadlines;
mod frame;
pub mod hpack;
mod receive;
mod receive_window;
mod request;
mod request_bodies;
mod respond;
mod send_buffer;
mod streams;

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_deadlines::LAST_REQUEST_TIMEOUT;
use super::peer::Peer;
use super::respond::DeferredSiteResponse;
use super::site::Site;
use super::turn::{TurnBudget, end_turn};

use abuse_limits::AbuseLimits;
use deadlines::{DeadlineAction, Deadlines, WaitConditions};
use frame::ErrorCode;
use hpack::HpackDecoder;
use receive_window::ReceiveWindow;
use request_bodies::RequestBodies;
use send_buffer::SendBuffer;
use streams::Streams;

/// The connection preface of an HTTP/2 client (RFC 9113, section 3.4).
pub(super) const CLIENT_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest number of pending responses on a connection (`SETTINGS_MAX_CONCURRENT_STREAMS`).
const MAX_STREAMS: usize = 128;
/// The size of the read buffer in bytes.
const READ_BUFFER_BYTES: usize = 32 * 1024;
/// The payload of the PING that follows the first GOAWAY. Its acknowledgement shows that the peer has seen the GOAWAY.
const SHUTDOWN_PING: &[u8; 8] = b"docwharf";
/// The payload of the PING that checks whether a silent peer is still connected.
const KEEPALIVE_PING: &[u8; 8] = b"liveness";
/// The longest time for which input is still read and discarded after the last output was sent.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// The largest number of bytes that are read and discarded in that time.
const MAX_LINGER_BYTES: usize = 1 << 20;

thread_local! {
    /// The read buffer of the thread.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An HTTP/2 connection to a site.
#[allow(clippy::struct_excessive_bools)] // the flags are independent of each other
pub struct Http2Connection {
    site: Arc<Site>,
    peer: Peer,
    /// Set when the first request is received.
    request_received: Arc<AtomicBool>,
    /// The rest of the connection preface that the peer still has to send.
    preface: &'static [u8],
    /// Whether the SETTINGS frame that follows the preface was received.
    has_settings: bool,
    /// Bytes that were read but not handled: a partial frame, or more if `has_unhandled_frames` is set.
    unhandled_input: Vec<u8>,
    /// Whether `unhandled_input` may hold complete frames, which wait until queued output is sent or the next turn
    /// starts.
    has_unhandled_frames: bool,
    /// A field block whose last frame was not received yet.
    partial_block: Option<PartialFieldBlock>,
    decoder: HpackDecoder,
    /// The newest stream that the peer has opened.
    newest_stream: u32,
    receive_window: ReceiveWindow,
    streams: Streams,
    /// Responses that are not available yet: searches, those to POST requests, and others while replaced versions are
    /// opened after a start.
    deferred: Vec<DeferredResponse>,
    /// The request bodies on which deferred responses depend.
    request_bodies: RequestBodies,
    send_buffer: SendBuffer,
    /// Whether a response head was queued: the first one starts with [`hpack::encode::TABLE_SIZE_ZERO`].
    has_sent_head: bool,
    abuse_limits: AbuseLimits,
    turn_budget: TurnBudget,
    /// Whether the turn's time is over: received input then waits for the next turn.
    is_turn_over: bool,
    shutdown: ShutdownState,
    /// Whether the peer has closed its sending side.
    is_input_closed: bool,
    deadlines: Deadlines,
    /// The time at which the connection is dropped, once everything has been sent.
    linger_deadline: Option<Instant>,
    lingered_bytes: usize,
    /// The last stream in the newest GOAWAY.
    last_goaway_stream: u32,
}

/// A response that is not available yet.
struct DeferredResponse {
    stream: u32,
    /// Whether the request's body is still being sent.
    is_request_open: bool,
    /// The sum of the increments of the WINDOW_UPDATE frames that were received for the stream meanwhile, in bytes.
    window_increment: u32,
    /// Whether the response is dropped when the peer closes its sending side.
    ends_with_input: bool,
    response: DeferredSiteResponse,
}

/// A field block that continues in the next frame.
struct PartialFieldBlock {
    stream: u32,
    /// Whether the HEADERS frame has END_STREAM.
    ends_stream: bool,
    bytes: Vec<u8>,
    frame_count: usize,
}

/// The outcome of a turn.
enum TurnOutcome {
    /// The connection has ended.
    Ended,
    /// The connection waits for the peer, for the socket or for a body that is being inflated.
    Waiting,
    /// More work is pending, but other connections have their turn first.
    Yield,
}

/// The progress of the connection's shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShutdownState {
    Open,
    /// The first GOAWAY was sent, which still allows all streams; the PING after it may be acknowledged until this
    /// deadline.
    Draining(Instant),
    /// The final GOAWAY was sent; later requests are not answered.
    FinalGoawaySent,
    /// The peer has sent GOAWAY and opens no more streams.
    GoawayReceived,
    /// The connection ended with a connection error (RFC 9113, section 5.4.1).
    Failed,
}

impl Http2Connection {
    /// Creates a connection on which nothing was read. `request_received` is set when the first request is received.
    pub fn new(site: Arc<Site>, peer: Peer, request_received: Arc<AtomicBool>) -> Http2Connection {
        let mut connection = Http2Connection {
            site,
            peer,
            request_received,
            preface: CLIENT_PREFACE,
            has_settings: false,
            unhandled_input: Vec::new(),
            has_unhandled_frames: false,
            partial_block: None,
            decoder: HpackDecoder::default(),
            newest_stream: 0,
            receive_window: ReceiveWindow::default(),
            streams: Streams::default(),
            deferred: Vec::new(),
            request_bodies: RequestBodies::default(),
            send_buffer: SendBuffer::default(),
            has_sent_head: false,
            abuse_limits: AbuseLimits::new(Instant::now()),
            turn_budget: TurnBudget::new(),
            is_turn_over: false,
            shutdown: ShutdownState::Open,
            is_input_closed: false,
            deadlines: Deadlines::default(),
            linger_deadline: None,
            lingered_bytes: 0,
            last_goaway_stream: 0x7fff_ffff,
        };
        connection.queue_settings();
        connection
    }

    /// Queues the SETTINGS of this server.
    fn queue_settings(&mut self) {
        let settings = [
            (frame::SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS as u32),
            (frame::SETTINGS_MAX_HEADER_LIST_SIZE, hpack::MAX_FIELD_LIST_BYTES as u32),
            (frame::SETTINGS_NO_RFC7540_PRIORITIES, 1),
        ];
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        self.send_buffer.queue_frame(frame::SETTINGS, 0, 0, &payload);
    }

    /// Handles the bytes that were read to detect the protocol.
    pub(super) fn receive_initial_bytes(&mut self, bytes: &[u8]) {
        self.receive(bytes);
    }

    /// Replaces the time after which the connection ends if it is idle.
    #[cfg(test)]
    pub(super) fn set_idle_timeout(&mut self, idle_timeout: Duration) {
        self.deadlines.idle_timeout = idle_timeout;
    }

    /// Returns the nearest deadline by which the peer must act.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let drain_deadline = if let ShutdownState::Draining(deadline) = self.shutdown { Some(deadline) } else { None };
        self.deadlines.next().into_iter().chain(self.linger_deadline).chain(drain_deadline).min()
    }

    /// Acts on deadlines that have passed; returns whether the connection has to be dropped.
    pub(super) fn handle_deadlines(&mut self) -> bool {
        let now = Instant::now();
        if self.linger_deadline.is_some_and(|deadline| now >= deadline) {
            return true;
        }
        match self.deadlines.check(now, self.send_buffer.has_sent) {
            DeadlineAction::None => {}
            DeadlineAction::SendPing => self.send_buffer.queue_frame(frame::PING, 0, 0, KEEPALIVE_PING),
            DeadlineAction::ShutDown => self.begin_shutdown(),
            // A GOAWAY can be sent only if no output waits for the socket.
            DeadlineAction::Fail if self.send_buffer.is_empty() => self.fail_connection(ErrorCode::EnhanceYourCalm),
            DeadlineAction::Fail | DeadlineAction::Drop => return true,
        }
        if let ShutdownState::Draining(deadline) = self.shutdown
            && now >= deadline
        {
            self.queue_final_goaway();
        }
        false
    }

    /// Starts a graceful shutdown: requests are answered until the peer has acknowledged the PING after the first
    /// GOAWAY. The second GOAWAY then names the last request that is answered, so that no request sent meanwhile is
    /// lost (RFC 9113, section 6.8).
    pub(super) fn begin_shutdown(&mut self) {
        if self.shutdown == ShutdownState::Open {
            self.queue_goaway(0x7fff_ffff, ErrorCode::NoError);
            self.send_buffer.queue_frame(frame::PING, 0, 0, SHUTDOWN_PING);
            self.shutdown = ShutdownState::Draining(Instant::now() + LAST_REQUEST_TIMEOUT);
        }
    }

    fn queue_final_goaway(&mut self) {
        self.queue_goaway(self.newest_stream, ErrorCode::NoError);
        self.shutdown = ShutdownState::FinalGoawaySent;
    }

    fn queue_goaway(&mut self, last_stream: u32, code: ErrorCode) {
        // The last stream id must not increase (RFC 9113, section 6.8).
        let last_stream = last_stream.min(self.last_goaway_stream);
        self.last_goaway_stream = last_stream;
        let payload = [last_stream.to_be_bytes(), (code as u32).to_be_bytes()].concat();
        self.send_buffer.queue_frame(frame::GOAWAY, 0, 0, &payload);
    }

    /// Runs a turn; ready when the connection has ended.
    pub fn poll<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<()> {
        (self.turn_budget, self.is_turn_over) = (TurnBudget::new(), false);
        match self.run_turn(stream, context) {
            TurnOutcome::Ended => return Poll::Ready(()),
            TurnOutcome::Yield => end_turn(context),
            TurnOutcome::Waiting => {
                let conditions = self.wait_conditions();
                if self.linger_deadline.is_none() && self.shutdown != ShutdownState::Failed {
                    self.deadlines.update(Instant::now(), &conditions);
                }
                debug_assert!(conditions.is_busy || self.deadline().is_some(), "a waiting state needs a deadline");
            }
        }
        Poll::Pending
    }

    /// Describes what the connection waits for when it cannot proceed.
    fn wait_conditions(&self) -> WaitConditions {
        let sending_responses = self.streams.len();
        WaitConditions {
            // While received input is not handled, it may hold the rest of the frame or field block.
            is_partial: !self.has_unhandled_frames
                && (!self.unhandled_input.is_empty() || self.partial_block.is_some() || !self.has_settings),
            needs_window: self.streams.needs_window(),
            sends_data: self.send_buffer.has_queued_data(),
            is_busy: !self.send_buffer.is_empty() || self.streams.waits_for_inflater || self.has_unhandled_frames,
            is_idle: sending_responses == 0
                && self.deferred.is_empty()
                && !self.send_buffer.has_queued_data()
                && self.shutdown == ShutdownState::Open,
            data_frames: self.streams.queued.data_frames,
            newest_stream: self.newest_stream,
        }
    }

    /// Counts work of this cost (see [`TurnBudget::spend`]).
    fn spend(&mut self, cost: usize) {
        self.is_turn_over |= self.turn_budget.spend(cost);
    }

    fn run_turn<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> TurnOutcome {
        loop {
            match self.run_round(stream, context) {
                Some(outcome) => return outcome,
                None if self.is_turn_over => return TurnOutcome::Yield,
                None => {}
            }
        }
    }

    /// Sends, reads and handles input once. Returns the outcome of the turn if the turn is over.
    fn run_round<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Option<TurnOutcome> {
        let can_queue_more = self.queue_responses(context);
        let sent_before = self.send_buffer.sent();
        let is_send_blocked = match self.send_buffer.send(stream, context) {
            Poll::Ready(Err(_)) => return Some(TurnOutcome::Ended),
            sent => sent.is_pending(),
        };
        self.spend((self.send_buffer.sent() - sent_before) as usize);
        if !is_send_blocked && !can_queue_more && self.is_finished() {
            return Some(if self.linger(stream, context).is_ready() {
                TurnOutcome::Ended
            } else {
                TurnOutcome::Waiting
            });
        }
        if self.has_unhandled_frames && !self.send_buffer.is_full() {
            self.receive(&[]);
            return None;
        }
        // Input is read even while output is pending: it may be another request or the reset of an earlier one.
        let can_read = !self.is_input_closed && !self.has_unhandled_frames && self.shutdown != ShutdownState::Failed;
        let input = if can_read { self.read(stream, context) } else { Poll::Pending };
        match input {
            Poll::Ready(None) => Some(TurnOutcome::Ended),
            Poll::Ready(Some(())) if !is_send_blocked && !self.streams.waits_for_inflater => None,
            Poll::Ready(Some(())) => Some(TurnOutcome::Yield),
            // The socket wakes the task, or the step that inflates a body has already woken it.
            Poll::Pending if is_send_blocked || self.streams.waits_for_inflater => Some(TurnOutcome::Waiting),
            Poll::Pending if can_queue_more => None,
            Poll::Pending if self.is_input_closed && self.deferred.is_empty() => {
                // The peer sends nothing more, so it cannot enlarge a window: close.
                let is_shut = Pin::new(stream).poll_shutdown(context).is_ready();
                Some(if is_shut { TurnOutcome::Ended } else { TurnOutcome::Waiting })
            }
            Poll::Pending => Some(TurnOutcome::Waiting),
        }
    }

    /// Closes the sending side, then reads and discards input for a moment. Closing a socket with unread bytes resets
    /// the connection, and the peer may lose data that it has not read yet.
    fn linger<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<()> {
        if self.linger_deadline.is_none() {
            match Pin::new(&mut *stream).poll_shutdown(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            self.linger_deadline = Some(Instant::now() + LINGER_TIMEOUT);
            self.deadlines.clear();
        }
        let mut buffer = BUFFER.take();
        buffer.resize(READ_BUFFER_BYTES, 0);
        let done = loop {
            let mut read_buf = ReadBuf::new(&mut buffer);
            match Pin::new(&mut *stream).poll_read(context, &mut read_buf) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(())) if !read_buf.filled().is_empty() && self.lingered_bytes < MAX_LINGER_BYTES => {
                    self.lingered_bytes += read_buf.filled().len();
                }
                Poll::Ready(_) => break Poll::Ready(()),
            }
        };
        BUFFER.set(buffer);
        done
    }

    /// Queues as much of the pending responses as possible; returns whether more can be queued once that is sent.
    fn queue_responses(&mut self, context: &mut Context<'_>) -> bool {
        if self.shutdown == ShutdownState::Failed {
            self.streams.waits_for_inflater = false;
            return false;
        }
        let mut index = 0;
        while let Some(deferred) = self.deferred.get_mut(index) {
            match deferred.response.as_mut().poll(context) {
                Poll::Pending => index += 1,
                Poll::Ready(response) => {
                    let DeferredResponse { stream, is_request_open, window_increment, .. } =
                        self.deferred.swap_remove(index);
                    self.request_bodies.remove(stream);
                    self.receive_window.stop_collecting(stream);
                    self.queue_response(stream, is_request_open, response, None);
                    // Cannot fail: the sum was checked when its frames arrived.
                    let _ = self.streams.increase_window(stream, window_increment);
                }
            }
        }
        let can_queue_more = self.streams.queue_data(&mut self.send_buffer, context);
        while let Some(id) = self.streams.next_unfinished_request() {
            self.handle_unfinished_request(id);
        }
        can_queue_more
    }

    /// Returns whether nothing more has to be sent.
    fn is_finished(&self) -> bool {
        match self.shutdown {
            ShutdownState::Failed => true,
            ShutdownState::FinalGoawaySent | ShutdownState::GoawayReceived => {
                self.streams.len() == 0 && self.deferred.is_empty()
            }
            ShutdownState::Open | ShutdownState::Draining(_) => false,
        }
    }

    /// Reads from the stream and handles the input; `None` if reading failed.
    fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Option<()>> {
        let mut buffer = BUFFER.take();
        buffer.resize(READ_BUFFER_BYTES, 0);
        let mut read_buf = ReadBuf::new(&mut buffer);
        let read = Pin::new(stream).poll_read(context, &mut read_buf);
        let filled = read_buf.filled().len();
        let input = match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(None),
            Poll::Ready(Ok(())) => {
                self.is_input_closed = filled == 0;
                if self.is_input_closed {
                    // Their rest will not come.
                    self.request_bodies.clear();
                    // The peer has most likely gone. What costs more than reading a file ends.
                    self.deferred.retain(|deferred| !deferred.ends_with_input);
                    self.streams.remove_streamed();
                }
                self.deadlines.clear_input();
                self.send_buffer.has_sent = false;
                self.receive(&buffer[..filled]);
                Poll::Ready(Some(()))
            }
        };
        BUFFER.set(buffer);
        input
    }
}

#[cfg(test)]
mod streamed_tests;
#[cfg(test)]
mod tests;
