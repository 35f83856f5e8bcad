//! The streams whose response bodies are being sent, and their flow-control windows (RFC 9113, section 5.2). The
//! streams send one frame each, in rotation, so that a small response does not wait for a large one.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::Body as _;

use crate::body_chunk::ChunkPart;
use crate::logged_body::{LoggedBody, LoggedChunk};

use super::abuse_limits::QueuedTotals;
use super::frame::{self, ErrorCode, Http2Error};
use super::send_buffer::SendBuffer;

/// The largest flow-control window in bytes (RFC 9113, section 6.9.1).
const MAX_WINDOW_BYTES: i64 = 0x7fff_ffff;
/// The initial window of a connection and of its streams, in bytes (RFC 9113, section 6.9.2).
pub(super) const INITIAL_WINDOW_BYTES: i64 = 65_535;
/// The largest number of bodies of a connection that are inflated at the same time. Each takes the memory of a decoder
/// and its output.
const MAX_INFLATING: usize = 4;
/// The largest number of inflate steps without output in one call, so that other connections get their turn.
const MAX_EMPTY_STEPS: usize = 2;
/// The largest DATA payload that is sent, in bytes. A peer may accept more, but other streams would wait for it.
const MAX_DATA_BYTES: usize = 64 * 1024;

/// A response body that is being sent.
#[derive(Debug)]
pub(super) struct SendingStream {
    id: u32,
    window: i64,
    /// The part of the body that is sent next.
    chunk: Option<LoggedChunk>,
    body: Option<LoggedBody>,
    /// Whether the request's body, which is not used, is still being sent.
    is_request_open: bool,
    /// Whether inflating the body has started.
    is_inflating: bool,
    /// Whether the next chunk of a streamed body is awaited.
    awaits_chunk: bool,
}

/// The response bodies that are being sent on a connection.
#[derive(Debug)]
pub(super) struct Streams {
    sending: VecDeque<SendingStream>,
    window: i64,
    /// The initial window of a new stream.
    initial_window: i64,
    /// The largest payload that the peer accepts, in bytes.
    max_payload: usize,
    /// The responses that have ended, and the DATA that has been queued.
    pub(super) queued: QueuedTotals,
    /// Whether a response waits for bytes that are being inflated, not for the peer.
    pub(super) waits_for_inflater: bool,
    /// Streams whose response has been queued completely while the request has not ended.
    unfinished_requests: Vec<u32>,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            sending: VecDeque::new(),
            window: INITIAL_WINDOW_BYTES,
            initial_window: INITIAL_WINDOW_BYTES,
            max_payload: frame::INITIAL_MAX_FRAME_SIZE,
            queued: QueuedTotals::default(),
            waits_for_inflater: false,
            unfinished_requests: Vec::new(),
        }
    }
}

/// The outcome of one step of a stream.
enum StreamStep {
    /// A DATA frame was queued, and more can follow.
    Queued,
    /// The stream waits for the peer or for other streams.
    Waiting,
    /// An inflate step returned no output; another step follows.
    Inflating,
    /// The response was queued completely, or the stream was reset because its body failed.
    Ended,
}

impl Streams {
    /// Returns the number of responses whose body is being sent. Deferred responses are not included.
    pub(super) fn len(&self) -> usize {
        self.sending.len()
    }

    /// Drops all response bodies.
    pub(super) fn clear(&mut self) {
        self.sending.clear();
        self.waits_for_inflater = false;
    }

    /// Adds a response that has a body to send: first `chunk`, then `body`. `is_request_open` states whether the
    /// request body is still being sent.
    pub(super) fn start_body(
        &mut self,
        id: u32,
        chunk: Option<LoggedChunk>,
        body: Option<LoggedBody>,
        is_request_open: bool,
    ) {
        self.sending.push_back(SendingStream {
            id,
            window: self.initial_window,
            chunk,
            body,
            is_request_open,
            is_inflating: false,
            awaits_chunk: false,
        });
    }

    /// Drops the response bodies that are made while they are sent, because the peer has closed its sending side.
    pub(super) fn remove_streamed(&mut self) {
        self.sending.retain(|stream| !stream.body.as_ref().is_some_and(LoggedBody::is_streamed));
    }

    /// Returns whether a response can be sent only when the peer enlarges a window, as far as that is known. One that
    /// awaits the next chunk of a streamed body does not wait for the peer.
    pub(super) fn needs_window(&self) -> bool {
        self.sending.iter().any(|stream| !stream.awaits_chunk)
    }

    /// Records that the peer has ended a request (END_STREAM).
    pub(super) fn end_request(&mut self, id: u32) {
        if let Some(stream) = self.sending.iter_mut().find(|stream| stream.id == id) {
            stream.is_request_open = false;
        }
    }

    /// Drops the response body of a stream; returns whether there was one.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let index = self.sending.iter().position(|stream| stream.id == id);
        index.and_then(|index| self.sending.remove(index)).is_some()
    }

    /// Applies the increment of a WINDOW_UPDATE frame to the flow-control window of a stream or, with 0, of the
    /// connection. An update for a stream that has ended is ignored.
    pub(super) fn increase_window(&mut self, id: u32, increment: u32) -> Result<(), Http2Error> {
        if id == 0 {
            self.window = add_to_window(self.window, i64::from(increment))
                .ok_or(Http2Error::Connection(ErrorCode::FlowControl))?;
        } else if let Some(stream) = self.sending.iter_mut().find(|stream| stream.id == id) {
            stream.window = add_to_window(stream.window, i64::from(increment))
                .ok_or(Http2Error::Stream(id, ErrorCode::FlowControl))?;
        }
        Ok(())
    }

    /// Whether the window of a stream that has not sent anything stays within its maximum after this increment.
    pub(super) fn fits_new_window(&self, increment: u32) -> bool {
        add_to_window(self.initial_window, i64::from(increment)).is_some()
    }

    /// Changes the initial window, and the windows of the existing streams by the difference (RFC 9113, section 6.9.2).
    pub(super) fn set_initial_window(&mut self, initial: u32) -> Result<(), Http2Error> {
        let initial = i64::from(initial);
        if initial > MAX_WINDOW_BYTES {
            return Err(Http2Error::Connection(ErrorCode::FlowControl));
        }
        let difference = initial - self.initial_window;
        for stream in &mut self.sending {
            stream.window =
                add_to_window(stream.window, difference).ok_or(Http2Error::Connection(ErrorCode::FlowControl))?;
        }
        self.initial_window = initial;
        Ok(())
    }

    /// Sets the largest payload that the peer accepts (`SETTINGS_MAX_FRAME_SIZE`).
    pub(super) fn set_max_payload(&mut self, max_payload: u32) -> Result<(), Http2Error> {
        if !(1 << 14..1 << 24).contains(&max_payload) {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        self.max_payload = (max_payload as usize).min(MAX_DATA_BYTES);
        Ok(())
    }

    /// Removes and returns a stream whose response was queued completely while its request has not ended; `None` if
    /// there is none.
    pub(super) fn next_unfinished_request(&mut self) -> Option<u32> {
        self.unfinished_requests.pop()
    }

    /// Queues as much DATA as the windows and `out` allow; returns whether more can be queued once that is sent.
    pub(super) fn queue_data(&mut self, out: &mut SendBuffer, context: &mut Context<'_>) -> bool {
        self.waits_for_inflater = false;
        let (mut waiting, mut empty_steps) = (0, 0);
        let mut inflating = self.sending.iter().filter(|stream| stream.is_inflating).count();
        while waiting < self.sending.len() {
            if out.is_full() {
                return true;
            }
            let Some(mut stream) = self.sending.pop_front() else { break };
            let may_inflate = empty_steps < MAX_EMPTY_STEPS && (stream.is_inflating || inflating < MAX_INFLATING);
            let was_inflating = stream.is_inflating;
            let window_before = self.window;
            let step = stream.queue_frame(&mut self.window, self.max_payload, may_inflate, out, context);
            inflating += usize::from(stream.is_inflating && !was_inflating);
            let data_bytes = (window_before - self.window).unsigned_abs();
            self.queued.data_bytes += data_bytes;
            self.queued.data_frames += u64::from(data_bytes > 0);
            match step {
                StreamStep::Queued => waiting = 0,
                StreamStep::Waiting => waiting += 1,
                StreamStep::Inflating => {
                    (waiting, empty_steps, self.waits_for_inflater) = (waiting + 1, empty_steps + 1, true);
                }
                StreamStep::Ended => {
                    // Another stream may wait until this one no longer inflates.
                    (waiting, inflating) = (0, inflating - usize::from(stream.is_inflating));
                    self.queued.responses += 1;
                    if stream.is_request_open {
                        self.unfinished_requests.push(stream.id);
                    }
                    continue;
                }
            }
            self.sending.push_back(stream);
        }
        false
    }
}

/// Changes a window by `change` bytes; `None` if it exceeds the largest flow-control window.
fn add_to_window(window: i64, change: i64) -> Option<i64> {
    Some(window + change).filter(|window| *window <= MAX_WINDOW_BYTES)
}

impl SendingStream {
    /// Queues one DATA frame of at most `max_payload` bytes. A body is inflated only if `may_inflate` is set and the
    /// windows allow some bytes to be sent. `connection_window` is the flow-control window of the connection.
    fn queue_frame(
        &mut self,
        connection_window: &mut i64,
        max_payload: usize,
        may_inflate: bool,
        out: &mut SendBuffer,
        context: &mut Context<'_>,
    ) -> StreamStep {
        let available = usize::try_from(self.window.min(*connection_window)).unwrap_or(0);
        if self.chunk.is_none()
            && let Some(body) = &mut self.body
        {
            if body.is_inflated() {
                if available == 0 || !may_inflate {
                    return StreamStep::Waiting;
                }
                self.is_inflating = true;
            }
            let is_streamed = body.is_streamed();
            let frame = Pin::new(body).poll_frame(context);
            self.awaits_chunk = is_streamed && frame.is_pending();
            match frame {
                // The future of the chunks wakes the task.
                Poll::Pending if is_streamed => return StreamStep::Waiting,
                Poll::Pending => return StreamStep::Inflating,
                Poll::Ready(Some(Ok(frame))) => self.chunk = frame.into_data().ok(),
                Poll::Ready(Some(Err(never))) => match never {},
                Poll::Ready(None) if is_streamed => {
                    // A frame without content needs no window (RFC 9113, section 6.9.1).
                    out.queue_frame(frame::DATA, frame::END_STREAM, self.id, &[]);
                    out.mark_data_end();
                    return StreamStep::Ended;
                }
                Poll::Ready(None) => self.body = None,
            }
        }
        let has_more = self.body.as_ref().is_some_and(|body| !body.is_empty());
        let Some(chunk) = &mut self.chunk else {
            // The body is shorter than its Content-Length. The stream must be reset, so that the peer notices.
            out.queue_frame(frame::RST_STREAM, 0, self.id, &(ErrorCode::Internal as u32).to_be_bytes());
            self.is_request_open = false;
            return StreamStep::Ended;
        };
        let n = chunk.remaining().min(max_payload).min(available);
        if n == 0 && chunk.has_remaining() {
            return StreamStep::Waiting;
        }
        let is_last = n == chunk.remaining() && !has_more;
        out.queue_copy(&frame::encode_header(n, frame::DATA, if is_last { frame::END_STREAM } else { 0 }, self.id));
        chunk.visit_first_bytes(n, |part| match part {
            ChunkPart::Short(bytes) => out.queue_copy(bytes),
            ChunkPart::Shared(bytes, len) => out.queue_shared(bytes, len),
        });
        out.mark_data_end();
        chunk.advance(n);
        let used = i64::try_from(n).unwrap_or(i64::MAX);
        self.window -= used;
        *connection_window -= used;
        if !chunk.has_remaining() {
            self.chunk = None;
        }
        if is_last { StreamStep::Ended } else { StreamStep::Queued }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::Bytes;

    use super::*;
    use crate::body::ResponseBody;

    /// Returns all frames that one call queues: stream, payload length, whether END_STREAM is set.
    fn queue_turn(streams: &mut Streams) -> Vec<(u32, usize, bool)> {
        let mut out = SendBuffer::default();
        streams.queue_data(&mut out, &mut Context::from_waker(Waker::noop()));
        let mut bytes = out.queued_bytes();
        let mut frames = Vec::new();
        while let Some((frame, _)) = frame::FrameHeader::parse(&bytes).unwrap() {
            frames.push((frame.stream, frame.len, frame.has(frame::END_STREAM)));
            bytes.drain(..frame::HEADER_BYTES + frame.len);
        }
        frames
    }

    fn start_body(streams: &mut Streams, id: u32, len: usize) {
        streams.start_body(id, None, Some(ResponseBody::full(Bytes::from(vec![7; len])).into()), false);
    }

    #[test]
    fn streams_send_frames_in_turn_and_stop_at_the_end_of_a_window() {
        let mut streams = Streams::default();
        start_body(&mut streams, 1, 100_000);
        start_body(&mut streams, 3, 20_000);
        start_body(&mut streams, 5, 1);
        let frames = [
            (1, 16_384, false),
            (3, 16_384, false),
            (5, 1, true),
            (1, 16_384, false),
            (3, 3_616, true),
            (1, 12_766, false),
        ];
        assert_eq!(queue_turn(&mut streams), frames);
        assert_eq!(queue_turn(&mut streams), []);
        // The connection's window was used up first, then that of the stream.
        streams.increase_window(0, 100_000).unwrap();
        assert_eq!(queue_turn(&mut streams), [(1, 16_384, false), (1, 3_617, false)]);
        streams.increase_window(1, 7).unwrap();
        assert_eq!(queue_turn(&mut streams), [(1, 7, false)]);
        // A smaller initial window makes the stream's window negative. The next increments only bring it back to zero.
        streams.set_initial_window(65_000).unwrap();
        streams.increase_window(1, 535).unwrap();
        assert_eq!(queue_turn(&mut streams), []);
        streams.increase_window(1, 1_000_000).unwrap();
        assert_eq!(queue_turn(&mut streams).last(), Some(&(1, 100_000 - 65_542 - 16_384 * 2, true)));
        assert_eq!((streams.len(), streams.queued.responses), (0, 3));
    }

    #[test]
    fn a_window_larger_than_2_31_minus_1_is_a_flow_control_error() {
        let mut streams = Streams::default();
        start_body(&mut streams, 1, 100_000);
        let increment = 0x7fff_ffff - 65_535;
        assert_eq!(
            (
                streams.increase_window(0, increment),
                streams.increase_window(1, increment),
                streams.increase_window(9, 1)
            ),
            (Ok(()), Ok(()), Ok(()))
        );
        assert_eq!(streams.increase_window(0, 1), Err(Http2Error::Connection(ErrorCode::FlowControl)));
        assert_eq!(streams.increase_window(1, 1), Err(Http2Error::Stream(1, ErrorCode::FlowControl)));
        assert_eq!(streams.set_initial_window(65_536), Err(Http2Error::Connection(ErrorCode::FlowControl)));
        assert_eq!(streams.set_initial_window(0x8000_0000), Err(Http2Error::Connection(ErrorCode::FlowControl)));
        assert!(streams.set_max_payload(16_383).is_err() && streams.set_max_payload(1 << 24).is_err());
        assert!(streams.set_max_payload(16_384).is_ok() && streams.set_max_payload((1 << 24) - 1).is_ok());
    }

    #[test]
    fn a_stream_with_a_failed_body_is_reset_and_an_unfinished_request_is_reported() {
        let mut streams = Streams::default();
        let broken =
            ResponseBody::inflating(Bytes::from_static(b"\xff"), [crate::inflating_body::BodySegment::Inflated(0, 10)]);
        streams.start_body(1, None, Some(broken.into()), false);
        streams.start_body(3, None, Some(ResponseBody::full("x").into()), true);
        assert_eq!(queue_turn(&mut streams), [(1, 4, false), (3, 1, true)]);
        assert_eq!((streams.next_unfinished_request(), streams.next_unfinished_request()), (Some(3), None));
        assert_eq!(streams.len(), 0);
    }

    #[test]
    fn a_body_that_waits_for_a_decoder_starts_as_soon_as_one_is_free() {
        let compressed = {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            std::io::Write::write_all(&mut encoder, b"0123456789").unwrap();
            Bytes::from(encoder.finish().unwrap())
        };
        let mut streams = Streams::default();
        let all = 3 * MAX_INFLATING as u32;
        for at in 0..all {
            let body =
                ResponseBody::inflating(compressed.clone(), [crate::inflating_body::BodySegment::Inflated(0, 10)]);
            streams.start_body(2 * at + 1, None, Some(body.into()), false);
        }
        let mut sent = Vec::new();
        while streams.len() > 0 {
            sent.extend(queue_turn(&mut streams));
            let inflating = streams.sending.iter().filter(|stream| stream.is_inflating).count();
            assert!(inflating <= MAX_INFLATING, "{inflating} at a time");
            // The windows are open, so nothing else would wake the task.
            assert!(streams.waits_for_inflater || streams.len() == 0, "{} of {all} remain", streams.len());
        }
        sent.sort_unstable();
        assert_eq!(sent, (0..all).map(|at| (2 * at + 1, 10, true)).collect::<Vec<_>>());
    }

    #[test]
    fn data_frames_use_the_peers_max_frame_size_up_to_64_kib() {
        for (max_payload, expected) in [(16_384, 16_384), (20_000, 20_000), (65_537, 65_536), ((1 << 24) - 1, 65_536)] {
            let mut streams = Streams::default();
            streams.set_max_payload(max_payload).unwrap();
            streams.increase_window(0, 100_000).unwrap();
            streams.set_initial_window(100_000).unwrap();
            start_body(&mut streams, 1, 100_000);
            let mut out = SendBuffer::default();
            streams.queue_data(&mut out, &mut Context::from_waker(Waker::noop()));
            assert_eq!(frame::read_be(&out.queued_bytes()[..3]), expected, "{max_payload}");
        }
    }

    #[test]
    fn a_new_initial_window_counts_for_streams_only() {
        let mut streams = Streams::default();
        assert_eq!(streams.set_initial_window(0x7fff_ffff), Ok(()), "the largest window");
        start_body(&mut streams, 1, 100_000);
        let sent: usize = queue_turn(&mut streams).iter().map(|(_, len, _)| len).sum();
        assert_eq!(sent, 65_535, "the window of the connection has not changed");
        assert_eq!(streams.set_initial_window(0), Ok(()));
        streams.increase_window(0, 100_000).unwrap();
        start_body(&mut streams, 3, 10);
        assert_eq!(queue_turn(&mut streams), [], "neither the existing stream nor the new one has a window");
        streams.increase_window(3, 9).unwrap();
        assert_eq!(queue_turn(&mut streams), [(3, 9, false)]);
        streams.set_initial_window(1).unwrap();
        assert_eq!(queue_turn(&mut streams), [(3, 1, true)]);
        assert_eq!((streams.queued.data_frames, streams.queued.data_bytes), (6, 65_545));
    }

    #[test]
    fn a_removed_stream_sends_nothing_and_a_complete_request_is_not_unfinished() {
        let mut streams = Streams::default();
        for id in [1, 3, 5] {
            streams.start_body(id, None, Some(ResponseBody::full("x").into()), true);
        }
        assert_eq!((streams.remove(3), streams.remove(3), streams.remove(7)), (true, false, false));
        streams.end_request(5);
        assert_eq!(queue_turn(&mut streams), [(1, 1, true), (5, 1, true)]);
        assert_eq!((streams.next_unfinished_request(), streams.next_unfinished_request()), (Some(1), None));
        // A stream that was reset needs no further RST_STREAM.
        let broken =
            ResponseBody::inflating(Bytes::from_static(b"\xff"), [crate::inflating_body::BodySegment::Inflated(0, 10)]);
        streams.start_body(9, None, Some(broken.into()), true);
        assert_eq!(queue_turn(&mut streams), [(9, 4, false)]);
        assert_eq!(streams.next_unfinished_request(), None);
    }

    #[test]
    fn data_is_queued_up_to_256_kib_and_the_rest_once_that_is_sent() {
        let mut streams = Streams::default();
        streams.increase_window(0, 1 << 30).unwrap();
        streams.set_initial_window(1 << 30).unwrap();
        start_body(&mut streams, 1, 1 << 20);
        let mut out = SendBuffer::default();
        let can_queue_more = streams.queue_data(&mut out, &mut Context::from_waker(Waker::noop()));
        assert!(can_queue_more && out.is_full(), "the windows are open");
        let queued = out.queued_bytes().len();
        assert!((256 << 10..(256 << 10) + 16_393).contains(&queued), "{queued} bytes");
    }
}
