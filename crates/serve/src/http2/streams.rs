//! The streams with a pending response, and their flow-control windows (RFC 9113, section 5.2). They take turns, one
//! frame each, so that a small response does not wait for a large one.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::Body as _;

use crate::logged_body::{LoggedBody, LoggedChunk};

use super::abuse_counters::ServedTotals;
use super::frame::{self, ErrorCode, Http2Error};
use super::send_buffer::SendBuffer;

/// The largest flow-control window (RFC 9113, section 6.9.1).
const MAX_WINDOW: i64 = 0x7fff_ffff;
/// The initial window of a connection and of its streams (RFC 9113, section 6.9.2).
const INITIAL_WINDOW: i64 = 65_535;
/// The largest number of bodies of a connection that are inflated at the same time: each has a decoder and its output.
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
    piece: Option<LoggedChunk>,
    body: Option<LoggedBody>,
    /// Whether the request's body, which is not used, is still being sent.
    is_request_open: bool,
    /// Whether inflating the body has begun.
    is_inflating: bool,
}

/// The pending responses of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    sending: VecDeque<SendingStream>,
    window: i64,
    /// The initial window of a new stream.
    initial: i64,
    /// The largest payload that the peer accepts, in bytes.
    max_payload: usize,
    /// The responses that have been queued completely, and the DATA that has been queued.
    pub(super) served: ServedTotals,
    /// Whether a response waits for bytes that are being inflated, not for the peer.
    pub(super) is_making: bool,
    /// Streams whose response has been queued completely while the request has not ended.
    answered_uploads: Vec<u32>,
}

impl Default for Streams {
    fn default() -> Streams {
        let most = frame::MAX_PAYLOAD_BYTES;
        Streams {
            sending: VecDeque::new(),
            window: INITIAL_WINDOW,
            initial: INITIAL_WINDOW,
            max_payload: most,
            served: ServedTotals::default(),
            is_making: false,
            answered_uploads: Vec::new(),
        }
    }
}

/// The outcome of one step of a stream.
enum StreamStep {
    Sent,
    /// It waits for the peer or for other streams.
    Waits,
    /// An inflate step gave no output; another will follow.
    Makes,
    Done,
}

impl Streams {
    /// Returns the number of pending responses.
    pub(super) fn len(&self) -> usize {
        self.sending.len()
    }

    /// Drops all pending responses.
    pub(super) fn clear(&mut self) {
        self.sending.clear();
        self.is_making = false;
    }

    /// Adds a response that has a body to send.
    pub(super) fn begin(&mut self, id: u32, piece: Option<LoggedChunk>, body: Option<LoggedBody>, is_fed: bool) {
        self.sending.push_back(SendingStream {
            id,
            window: self.initial,
            piece,
            body,
            is_request_open: is_fed,
            is_inflating: false,
        });
    }

    /// Records that the peer has ended a stream.
    pub(super) fn end_request(&mut self, id: u32) {
        if let Some(one) = self.sending.iter_mut().find(|one| one.id == id) {
            one.is_request_open = false;
        }
    }

    /// Drops the pending response of a stream; returns whether there was one.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let at = self.sending.iter().position(|one| one.id == id);
        at.and_then(|at| self.sending.remove(at)).is_some()
    }

    /// Widens the window of a stream or, with 0, that of the connection. An update for a stream that has ended is
    /// ignored.
    pub(super) fn widen(&mut self, id: u32, by: u32) -> Result<(), Http2Error> {
        if id == 0 {
            self.window = widened(self.window, i64::from(by)).ok_or(Http2Error::Connection(ErrorCode::FlowControl))?;
        } else if let Some(one) = self.sending.iter_mut().find(|one| one.id == id) {
            one.window = widened(one.window, i64::from(by)).ok_or(Http2Error::Stream(id, ErrorCode::FlowControl))?;
        }
        Ok(())
    }

    /// Changes the initial window, and the windows of the existing streams by the difference (RFC 9113, section 6.9.2).
    pub(super) fn resize(&mut self, initial: u32) -> Result<(), Http2Error> {
        let initial = i64::from(initial);
        if initial > MAX_WINDOW {
            return Err(Http2Error::Connection(ErrorCode::FlowControl));
        }
        let by = initial - self.initial;
        for one in &mut self.sending {
            one.window = widened(one.window, by).ok_or(Http2Error::Connection(ErrorCode::FlowControl))?;
        }
        self.initial = initial;
        Ok(())
    }

    /// Sets the largest payload that the peer accepts (`SETTINGS_MAX_FRAME_SIZE`).
    pub(super) fn set_max_payload(&mut self, most: u32) -> Result<(), Http2Error> {
        if !(1 << 14..1 << 24).contains(&most) {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        self.max_payload = (most as usize).min(MAX_DATA_BYTES);
        Ok(())
    }

    /// Takes one of the streams whose response has been queued completely while the request has not ended; each is
    /// returned once.
    pub(super) fn next_answered_upload(&mut self) -> Option<u32> {
        self.answered_uploads.pop()
    }

    /// Queues as much as the windows and `out` allow; returns whether more could follow once that is sent.
    pub(super) fn fill(&mut self, out: &mut SendBuffer, context: &mut Context<'_>) -> bool {
        self.is_making = false;
        let (mut waiting, mut steps) = (0, 0);
        let mut made = self.sending.iter().filter(|one| one.is_inflating).count();
        while waiting < self.sending.len() {
            if out.is_full() {
                return true;
            }
            let Some(mut one) = self.sending.pop_front() else { break };
            let may_make = steps < MAX_EMPTY_STEPS && (one.is_inflating || made < MAX_INFLATING);
            let was_made = one.is_inflating;
            let window = self.window;
            let step = one.step(&mut self.window, self.max_payload, may_make, out, context);
            made += usize::from(one.is_inflating && !was_made);
            let taken = (window - self.window).unsigned_abs();
            self.served.data_bytes += taken;
            self.served.data_frames += u64::from(taken > 0);
            match step {
                StreamStep::Sent => waiting = 0,
                StreamStep::Waits => waiting += 1,
                StreamStep::Makes => {
                    (waiting, steps, self.is_making) = (waiting + 1, steps + 1, true);
                }
                StreamStep::Done => {
                    // Another stream may wait for the place of this one.
                    (waiting, made) = (0, made - usize::from(one.is_inflating));
                    self.served.answers += 1;
                    if one.is_request_open {
                        self.answered_uploads.push(one.id);
                    }
                    continue;
                }
            }
            self.sending.push_back(one);
        }
        false
    }
}

fn widened(window: i64, by: i64) -> Option<i64> {
    Some(window + by).filter(|window| *window <= MAX_WINDOW)
}

impl SendingStream {
    /// Queues one frame. A body is inflated only if `may_make`, and if the windows let some of it be sent.
    fn step(
        &mut self,
        window: &mut i64,
        most: usize,
        may_make: bool,
        out: &mut SendBuffer,
        context: &mut Context<'_>,
    ) -> StreamStep {
        let may = usize::try_from(self.window.min(*window)).unwrap_or(0);
        if self.piece.is_none()
            && let Some(body) = &mut self.body
        {
            if body.is_made() {
                if may == 0 || !may_make {
                    return StreamStep::Waits;
                }
                self.is_inflating = true;
            }
            match Pin::new(body).poll_frame(context) {
                Poll::Pending => return StreamStep::Makes,
                Poll::Ready(Some(Ok(frame))) => self.piece = frame.into_data().ok(),
                Poll::Ready(Some(Err(never))) => match never {},
                Poll::Ready(None) => self.body = None,
            }
        }
        let after = self.body.as_ref().map_or(0, LoggedBody::len);
        let Some(piece) = &mut self.piece else {
            // The body is shorter than its Content-Length. The stream must be reset, so that the peer notices.
            out.queue_frame(frame::RST_STREAM, 0, self.id, &(ErrorCode::Internal as u32).to_be_bytes());
            self.is_request_open = false;
            return StreamStep::Done;
        };
        let n = piece.remaining().min(most).min(may);
        if n == 0 && piece.has_remaining() {
            return StreamStep::Waits;
        }
        let is_last = n == piece.remaining() && after == 0;
        out.queue_copy(&frame::encode_header(n, frame::DATA, if is_last { frame::END_STREAM } else { 0 }, self.id));
        let (front, (bytes, len), back) = piece.first(n);
        out.queue_copy(front);
        out.queue_shared(bytes, len);
        out.queue_copy(back);
        out.ends_with_data();
        piece.advance(n);
        let taken = i64::try_from(n).unwrap_or(i64::MAX);
        self.window -= taken;
        *window -= taken;
        if !piece.has_remaining() {
            self.piece = None;
        }
        if is_last { StreamStep::Done } else { StreamStep::Sent }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::Bytes;

    use super::*;
    use crate::body::ResponseBody;

    /// The DATA frames that leave in one turn: stream, length, whether it is the last.
    fn turn(streams: &mut Streams) -> Vec<(u32, usize, bool)> {
        let mut out = SendBuffer::default();
        streams.fill(&mut out, &mut Context::from_waker(Waker::noop()));
        let mut bytes = out.all();
        let mut frames = Vec::new();
        while let Some((frame, _)) = frame::FrameHeader::parse(&bytes).unwrap() {
            frames.push((frame.stream, frame.len, frame.has(frame::END_STREAM)));
            bytes.drain(..frame::HEADER_BYTES + frame.len);
        }
        frames
    }

    fn begin(streams: &mut Streams, id: u32, len: usize) {
        streams.begin(id, None, Some(ResponseBody::full(Bytes::from(vec![7; len])).into()), false);
    }

    #[test]
    fn streams_take_turns_and_stop_where_a_window_ends() {
        let mut streams = Streams::default();
        begin(&mut streams, 1, 100_000);
        begin(&mut streams, 3, 20_000);
        begin(&mut streams, 5, 1);
        let frames = [
            (1, 16_384, false),
            (3, 16_384, false),
            (5, 1, true),
            (1, 16_384, false),
            (3, 3_616, true),
            (1, 12_766, false),
        ];
        assert_eq!(turn(&mut streams), frames);
        assert_eq!(turn(&mut streams), []);
        // The connection's window was used up first, then that of the stream.
        streams.widen(0, 100_000).unwrap();
        assert_eq!(turn(&mut streams), [(1, 16_384, false), (1, 3_617, false)]);
        streams.widen(1, 7).unwrap();
        assert_eq!(turn(&mut streams), [(1, 7, false)]);
        // A smaller initial window makes the stream's window negative, which has to be made up for first.
        streams.resize(65_000).unwrap();
        streams.widen(1, 535).unwrap();
        assert_eq!(turn(&mut streams), []);
        streams.widen(1, 1_000_000).unwrap();
        assert_eq!(turn(&mut streams).last(), Some(&(1, 100_000 - 65_542 - 16_384 * 2, true)));
        assert_eq!((streams.len(), streams.served.answers), (0, 3));
    }

    #[test]
    fn no_window_is_wider_than_can_be_said() {
        let mut streams = Streams::default();
        begin(&mut streams, 1, 100_000);
        let most = 0x7fff_ffff - 65_535;
        assert_eq!((streams.widen(0, most), streams.widen(1, most), streams.widen(9, 1)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(streams.widen(0, 1), Err(Http2Error::Connection(ErrorCode::FlowControl)));
        assert_eq!(streams.widen(1, 1), Err(Http2Error::Stream(1, ErrorCode::FlowControl)));
        assert_eq!(streams.resize(65_536), Err(Http2Error::Connection(ErrorCode::FlowControl)));
        assert_eq!(streams.resize(0x8000_0000), Err(Http2Error::Connection(ErrorCode::FlowControl)));
        assert!(streams.set_max_payload(16_383).is_err() && streams.set_max_payload(1 << 24).is_err());
        assert!(streams.set_max_payload(16_384).is_ok() && streams.set_max_payload((1 << 24) - 1).is_ok());
    }

    #[test]
    fn a_body_that_breaks_off_is_reset_and_one_whose_reader_still_writes_is_known() {
        let mut streams = Streams::default();
        let broken =
            ResponseBody::inflating(Bytes::from_static(b"\xff"), [crate::inflating_body::BodySegment::Inflated(0, 10)]);
        streams.begin(1, None, Some(broken.into()), false);
        streams.begin(3, None, Some(ResponseBody::full("x").into()), true);
        assert_eq!(turn(&mut streams), [(1, 4, false), (3, 1, true)]);
        assert_eq!((streams.next_answered_upload(), streams.next_answered_upload()), (Some(3), None));
        assert_eq!(streams.len(), 0);
    }

    #[test]
    fn a_body_that_waits_for_a_place_to_be_made_in_begins_as_soon_as_there_is_one() {
        let coded = {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            std::io::Write::write_all(&mut encoder, b"0123456789").unwrap();
            Bytes::from(encoder.finish().unwrap())
        };
        let mut streams = Streams::default();
        let all = 3 * MAX_INFLATING as u32;
        for at in 0..all {
            let body = ResponseBody::inflating(coded.clone(), [crate::inflating_body::BodySegment::Inflated(0, 10)]);
            streams.begin(2 * at + 1, None, Some(body.into()), false);
        }
        let mut sent = Vec::new();
        while streams.len() > 0 {
            sent.extend(turn(&mut streams));
            let made = streams.sending.iter().filter(|one| one.is_inflating).count();
            assert!(made <= MAX_INFLATING, "{made} at a time");
            // The windows are open, so nothing else would wake the task.
            assert!(streams.is_making || streams.len() == 0, "{} of {all} are left", streams.len());
        }
        sent.sort_unstable();
        assert_eq!(sent, (0..all).map(|at| (2 * at + 1, 10, true)).collect::<Vec<_>>());
    }

    #[test]
    fn frames_are_as_long_as_the_peer_takes_but_not_longer_than_64_kib() {
        for (most, expected) in [(16_384, 16_384), (20_000, 20_000), (65_537, 65_536), ((1 << 24) - 1, 65_536)] {
            let mut streams = Streams::default();
            streams.set_max_payload(most).unwrap();
            streams.widen(0, 100_000).unwrap();
            streams.resize(100_000).unwrap();
            begin(&mut streams, 1, 100_000);
            let mut out = SendBuffer::default();
            streams.fill(&mut out, &mut Context::from_waker(Waker::noop()));
            assert_eq!(frame::read_be(&out.all()[..3]), expected, "{most}");
        }
    }

    #[test]
    fn a_new_initial_window_counts_for_streams_only() {
        let mut streams = Streams::default();
        assert_eq!(streams.resize(0x7fff_ffff), Ok(()), "the widest that there may be");
        begin(&mut streams, 1, 100_000);
        let sent: usize = turn(&mut streams).iter().map(|(_, len, _)| len).sum();
        assert_eq!(sent, 65_535, "what the connection takes has not changed");
        assert_eq!(streams.resize(0), Ok(()));
        streams.widen(0, 100_000).unwrap();
        begin(&mut streams, 3, 10);
        assert_eq!(turn(&mut streams), [], "neither what is on its way nor what is new");
        streams.widen(3, 9).unwrap();
        assert_eq!(turn(&mut streams), [(3, 9, false)]);
        streams.resize(1).unwrap();
        assert_eq!(turn(&mut streams), [(3, 1, true)]);
        assert_eq!((streams.served.data_frames, streams.served.data_bytes), (6, 65_545));
    }

    #[test]
    fn what_is_removed_sends_nothing_more_and_what_has_been_said_is_no_upload() {
        let mut streams = Streams::default();
        for id in [1, 3, 5] {
            streams.begin(id, None, Some(ResponseBody::full("x").into()), true);
        }
        assert_eq!((streams.remove(3), streams.remove(3), streams.remove(7)), (true, false, false));
        streams.end_request(5);
        assert_eq!(turn(&mut streams), [(1, 1, true), (5, 1, true)]);
        assert_eq!((streams.next_answered_upload(), streams.next_answered_upload()), (Some(1), None));
        // A stream that was reset needs no further RST_STREAM.
        let broken =
            ResponseBody::inflating(Bytes::from_static(b"\xff"), [crate::inflating_body::BodySegment::Inflated(0, 10)]);
        streams.begin(9, None, Some(broken.into()), true);
        assert_eq!(turn(&mut streams), [(9, 4, false)]);
        assert_eq!(streams.next_answered_upload(), None);
    }
}
