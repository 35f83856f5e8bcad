//! HTTP/2 (RFC 9113) for site resources, written by hand because a site needs only part of it: no request body is used,
//! nothing is pushed, and nearly every response is available at once, so a request needs no object and no task of its
//! own.
//!
//! In a turn the connection queues as much of the pending responses as the flow-control windows allow ([`streams`]),
//! sends the queue in one write ([`send_buffer`]), then reads and handles what has come, frame by frame ([`receive`],
//! [`frame`]). A request is decoded ([`hpack`]), checked ([`request`]) and answered ([`respond`]) from the response
//! cache or by the handler.
//!
//! The memory that a peer can make the connection hold is limited: one read of input; a partial field block; a dynamic
//! table of 4 KiB; [`MAX_STREAMS`] pending responses, which refer to the mapped image except for a few that are being
//! inflated; and queued heads and replies, because no more input is handled while much is queued. Useless work is
//! limited by [`abuse_counters`] and [`uploads`], and the time for which a peer can make the connection wait by
//! [`deadlines`].

mod abuse_counters;
mod deadlines;
mod frame;
pub mod hpack;
mod receive;
mod request;
mod respond;
mod send_buffer;
mod streams;
mod uploads;

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

use abuse_counters::AbuseCounters;
use deadlines::{DeadlineAction, Deadlines, WaitConditions};
use frame::ErrorCode;
use hpack::HpackDecoder;
use send_buffer::SendBuffer;
use streams::Streams;
use uploads::Uploads;

/// The connection preface of an HTTP/2 client (RFC 9113, section 3.4).
pub(super) const CLIENT_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest number of pending responses on a connection (`SETTINGS_MAX_CONCURRENT_STREAMS`).
const MAX_STREAMS: usize = 128;
/// The size of the read buffer in bytes.
const READ_BUFFER_BYTES: usize = 32 * 1024;
/// The payload of the PING that follows the first GOAWAY. Its acknowledgement shows that the peer has seen the GOAWAY.
const SHUTDOWN_PING: &[u8; 8] = b"docwharf";
/// The payload of the PING to a peer that has been silent.
const KEEPALIVE_PING: &[u8; 8] = b"anybody?";
/// The time, and the number of bytes, for which input is still read and dropped after the connection has ended.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 1 << 20;

thread_local! {
    /// The read buffer of the thread.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An HTTP/2 connection to a site.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct Http2Connection {
    site: Arc<Site>,
    peer: Peer,
    /// Set when a request has come.
    begun: Arc<AtomicBool>,
    /// The rest of the connection preface that the peer still has to send.
    preface: &'static [u8],
    /// Whether the SETTINGS frame that follows the preface has come.
    has_settings: bool,
    /// Bytes that were read but not handled: a partial frame, or more if `is_behind`.
    rest: Vec<u8>,
    /// Whether `rest` may hold complete frames, which wait until queued output is sent or the next turn starts.
    is_behind: bool,
    block: Option<PartialFieldBlock>,
    decoder: HpackDecoder,
    /// The newest stream that the peer has opened.
    newest_stream: u32,
    uploads: Uploads,
    streams: Streams,
    /// Responses that are not available yet; only while replaced versions are opened after a start.
    deferred: Vec<DeferredResponse>,
    send_buffer: SendBuffer,
    /// Whether a response head was sent: the first one starts with [`hpack::encode::TABLE_SIZE_ZERO`].
    has_sent_head: bool,
    abuse_counters: AbuseCounters,
    turn: TurnBudget,
    /// Whether the turn's time is over: input that has come waits for the next turn.
    is_turn_over: bool,
    end: ShutdownState,
    /// Whether the peer has closed its sending side.
    is_input_closed: bool,
    deadlines: Deadlines,
    /// The time at which the connection is dropped, once everything has been sent.
    linger_until: Option<Instant>,
    lingered_bytes: usize,
    /// The last stream in the newest GOAWAY.
    last_goaway_stream: u32,
}

/// A response that is not available yet.
struct DeferredResponse {
    stream: u32,
    /// Whether the request's body is still being sent.
    is_request_open: bool,
    /// The total of the `WINDOW_UPDATE` frames that came for the stream meanwhile, in bytes.
    widened: u32,
    response: DeferredSiteResponse,
}

/// A field block that continues in the next frame.
struct PartialFieldBlock {
    stream: u32,
    is_last: bool,
    bytes: Vec<u8>,
    frames: usize,
}

/// The outcome of a turn.
enum TurnOutcome {
    /// The connection has ended.
    Ended,
    /// The connection waits for the peer, for the socket or for a body that is being inflated.
    Waits,
    /// There is more work, but it is the turn of other connections.
    Yields,
}

/// The progress of the connection's shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShutdownState {
    Open,
    /// The first GOAWAY was sent, which still allows all streams; the PING after it may be acknowledged until this
    /// deadline.
    Draining(Instant),
    /// The final GOAWAY was sent; later requests are not answered.
    FinalGoaway,
    /// The peer has sent GOAWAY and opens no more streams.
    PeerLeft,
    /// The connection has failed with a connection error.
    Failed,
}

impl Http2Connection {
    /// Creates a connection on which nothing has been read. `begun` is set when a request has come.
    pub fn new(site: Arc<Site>, peer: Peer, begun: Arc<AtomicBool>) -> Http2Connection {
        let mut two = Http2Connection {
            site,
            peer,
            begun,
            preface: CLIENT_PREFACE,
            has_settings: false,
            rest: Vec::new(),
            is_behind: false,
            block: None,
            decoder: HpackDecoder::default(),
            newest_stream: 0,
            uploads: Uploads::default(),
            streams: Streams::default(),
            deferred: Vec::new(),
            send_buffer: SendBuffer::default(),
            has_sent_head: false,
            abuse_counters: AbuseCounters::new(Instant::now()),
            turn: TurnBudget::new(),
            is_turn_over: false,
            end: ShutdownState::Open,
            is_input_closed: false,
            deadlines: Deadlines::default(),
            linger_until: None,
            lingered_bytes: 0,
            last_goaway_stream: 0x7fff_ffff,
        };
        two.queue_settings();
        two
    }

    /// Queues our SETTINGS (RFC 9113, section 6.5.2). The last one is `SETTINGS_NO_RFC7540_PRIORITIES` (RFC 9218,
    /// section 2.1).
    fn queue_settings(&mut self) {
        let settings = [(3u16, MAX_STREAMS as u32), (6, hpack::MOST_FIELDS as u32), (9, 1)];
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        self.send_buffer.queue_frame(frame::SETTINGS, 0, 0, &payload);
    }

    /// Handles the bytes that were read to detect the protocol.
    pub(super) fn begin(&mut self, early: &[u8]) {
        self.receive(early);
    }

    /// Returns the nearest deadline of the peer.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let asked = if let ShutdownState::Draining(until) = self.end { Some(until) } else { None };
        self.deadlines.next().into_iter().chain(self.linger_until).chain(asked).min()
    }

    /// Acts on deadlines that have passed; returns whether the connection has to be dropped.
    pub(super) fn handle_deadlines(&mut self) -> bool {
        let now = Instant::now();
        if self.linger_until.is_some_and(|until| now >= until) {
            return true;
        }
        match self.deadlines.check(now, self.send_buffer.has_sent) {
            DeadlineAction::Nothing => {}
            DeadlineAction::Silent => self.send_buffer.queue_frame(frame::PING, 0, 0, KEEPALIVE_PING),
            DeadlineAction::Idle => self.finish(),
            // While output waits for the socket, a GOAWAY could not be sent.
            DeadlineAction::Stalled if self.send_buffer.is_empty() => self.fail_connection(ErrorCode::EnhanceYourCalm),
            DeadlineAction::Stalled | DeadlineAction::Lost => return true,
        }
        if let ShutdownState::Draining(until) = self.end
            && now >= until
        {
            self.queue_final_goaway();
        }
        false
    }

    /// Starts a graceful shutdown: pending and arriving requests are answered until the peer has acknowledged the first
    /// GOAWAY. The second GOAWAY then names the last request that is answered, so that no request sent meanwhile is
    /// lost (RFC 9113, section 6.8).
    pub(super) fn finish(&mut self) {
        if self.end == ShutdownState::Open {
            self.queue_goaway(0x7fff_ffff, ErrorCode::None);
            self.send_buffer.queue_frame(frame::PING, 0, 0, SHUTDOWN_PING);
            self.end = ShutdownState::Draining(Instant::now() + LAST_REQUEST_TIMEOUT);
        }
    }

    fn queue_final_goaway(&mut self) {
        self.queue_goaway(self.newest_stream, ErrorCode::None);
        self.end = ShutdownState::FinalGoaway;
    }

    fn queue_goaway(&mut self, last: u32, code: ErrorCode) {
        // The last stream may not increase (RFC 9113, section 6.8).
        let last = last.min(self.last_goaway_stream);
        self.last_goaway_stream = last;
        self.send_buffer.queue_frame(frame::GOAWAY, 0, 0, &[last.to_be_bytes(), (code as u32).to_be_bytes()].concat());
    }

    /// Runs a turn; ready when the connection has ended.
    pub fn poll<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<()> {
        (self.turn, self.is_turn_over) = (TurnBudget::new(), false);
        match self.turn(stream, context) {
            TurnOutcome::Ended => return Poll::Ready(()),
            TurnOutcome::Yields => end_turn(context),
            TurnOutcome::Waits => {
                let waiting = self.waiting();
                if self.linger_until.is_none() && self.end != ShutdownState::Failed {
                    self.deadlines.update(Instant::now(), &waiting);
                }
                debug_assert!(waiting.is_busy || self.deadline().is_some(), "a state that waits for ever");
            }
        }
        Poll::Pending
    }

    /// Describes what the connection waits for when it cannot proceed.
    fn waiting(&self) -> WaitConditions {
        let answers = self.streams.len();
        WaitConditions {
            // Input that waits for us does not make the peer late.
            is_partial: !self.is_behind && (!self.rest.is_empty() || self.block.is_some() || !self.has_settings),
            needs_window: answers > 0,
            sends_data: self.send_buffer.holds_data(),
            is_busy: !self.send_buffer.is_empty() || self.streams.is_making || self.is_behind,
            is_idle: answers == 0
                && self.deferred.is_empty()
                && !self.send_buffer.holds_data()
                && self.end == ShutdownState::Open,
            data_frames: self.streams.served.data_frames,
            newest: self.newest_stream,
        }
    }

    /// Counts work of this cost (see [`TurnBudget::spend`]).
    fn spend(&mut self, cost: usize) {
        self.is_turn_over |= self.turn.spend(cost);
    }

    fn turn<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> TurnOutcome {
        loop {
            match self.round(stream, context) {
                Some(turn) => return turn,
                None if self.is_turn_over => return TurnOutcome::Yields,
                None => {}
            }
        }
    }

    /// Sends, reads and handles input once. Returns the outcome of the turn if the turn is over.
    fn round<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Option<TurnOutcome> {
        let is_there_more = self.queue_responses(context);
        let before = self.send_buffer.sent();
        let is_stuck = match self.send_buffer.send(stream, context) {
            Poll::Ready(Err(_)) => return Some(TurnOutcome::Ended),
            sent => sent.is_pending(),
        };
        self.spend((self.send_buffer.sent() - before) as usize);
        if !is_stuck && !is_there_more && self.is_over() {
            return Some(if self.linger(stream, context).is_ready() { TurnOutcome::Ended } else { TurnOutcome::Waits });
        }
        if self.is_behind && !self.send_buffer.is_full() {
            self.receive(&[]);
            return None;
        }
        // Input is read even while output is pending: it may be another request or the reset of an earlier one.
        let can_read = !self.is_input_closed && !self.is_behind && self.end != ShutdownState::Failed;
        let came = if can_read { self.read(stream, context) } else { Poll::Pending };
        match came {
            Poll::Ready(None) => Some(TurnOutcome::Ended),
            Poll::Ready(Some(())) if !is_stuck && !self.streams.is_making => None,
            Poll::Ready(Some(())) => Some(TurnOutcome::Yields),
            // A body that is being inflated has already woken the task.
            Poll::Pending if is_stuck || self.streams.is_making => Some(TurnOutcome::Waits),
            Poll::Pending if is_there_more => None,
            Poll::Pending if self.is_input_closed && self.deferred.is_empty() => {
                // The peer sends nothing more, so no window can grow: close.
                let is_shut = Pin::new(stream).poll_shutdown(context).is_ready();
                Some(if is_shut { TurnOutcome::Ended } else { TurnOutcome::Waits })
            }
            Poll::Pending => Some(TurnOutcome::Waits),
        }
    }

    /// Closes the sending side, then reads and drops input for a moment. Closing a socket with unread bytes resets the
    /// connection, and the peer may lose data that it has not read yet.
    fn linger<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<()> {
        if self.linger_until.is_none() {
            match Pin::new(&mut *stream).poll_shutdown(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            self.linger_until = Some(Instant::now() + LINGER_TIMEOUT);
            self.deadlines.clear();
        }
        let mut buffer = BUFFER.take();
        buffer.resize(READ_BUFFER_BYTES, 0);
        let done = loop {
            let mut room = ReadBuf::new(&mut buffer);
            match Pin::new(&mut *stream).poll_read(context, &mut room) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(())) if !room.filled().is_empty() && self.lingered_bytes < MAX_LINGER_BYTES => {
                    self.lingered_bytes += room.filled().len();
                }
                Poll::Ready(_) => break Poll::Ready(()),
            }
        };
        BUFFER.set(buffer);
        done
    }

    /// Queues as much of the pending responses as possible; returns whether more could follow once that is sent.
    fn queue_responses(&mut self, context: &mut Context<'_>) -> bool {
        if self.end == ShutdownState::Failed {
            self.streams.is_making = false;
            return false;
        }
        let mut at = 0;
        while let Some(later) = self.deferred.get_mut(at) {
            match later.response.as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(response) => {
                    let DeferredResponse { stream, is_request_open: is_fed, widened, .. } =
                        self.deferred.swap_remove(at);
                    self.queue_response(stream, is_fed, response, None);
                    // A window that becomes too large is reported at the next WINDOW_UPDATE.
                    let _ = self.streams.widen(stream, widened);
                }
            }
        }
        let is_there_more = self.streams.fill(&mut self.send_buffer, context);
        while let Some(id) = self.streams.next_answered_upload() {
            self.has_answered_upload(id);
        }
        is_there_more
    }

    /// Returns whether nothing more will be sent.
    fn is_over(&self) -> bool {
        match self.end {
            ShutdownState::Failed => true,
            ShutdownState::FinalGoaway | ShutdownState::PeerLeft => self.streams.len() == 0 && self.deferred.is_empty(),
            ShutdownState::Open | ShutdownState::Draining(_) => false,
        }
    }

    /// Reads from the stream and handles the input; `None` if reading failed.
    fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Option<()>> {
        let mut buffer = BUFFER.take();
        buffer.resize(READ_BUFFER_BYTES, 0);
        let mut room = ReadBuf::new(&mut buffer);
        let read = Pin::new(stream).poll_read(context, &mut room);
        let filled = room.filled().len();
        let came = match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(None),
            Poll::Ready(Ok(())) => {
                self.is_input_closed = filled == 0;
                self.deadlines.clear_silence();
                self.send_buffer.has_sent = false;
                self.receive(&buffer[..filled]);
                Poll::Ready(Some(()))
            }
        };
        BUFFER.set(buffer);
        came
    }
}

#[cfg(test)]
mod tests;
