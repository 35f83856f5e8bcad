//! Streams whose answers are on their way: who is to have the next frame, and how much the peer takes (RFC 9113, 5.2). They
//! take turns, a frame each, so that a small answer does not wait for a large one.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::Body as _;

use crate::tally::{Piece, Told};

use super::budget::Served;
use super::frame::{self, Code, Fault};
use super::out::Out;

/// No window is larger (RFC 9113, 6.9.1).
const WIDEST: i64 = 0x7fff_ffff;
/// What every window begins with (RFC 9113, 6.9.2).
const INITIAL: i64 = 65_535;
/// Bodies of a connection that are being made at the same time: each has a decoder and what it has made.
const MOST_MADE: usize = 4;
/// Steps of making, of which nothing comes to be sent, before others have their turn.
const MOST_STEPS: usize = 2;
/// A peer may take longer frames; others would wait for them.
const LONGEST: usize = 64 * 1024;

/// A body on its way.
#[derive(Debug)]
pub(super) struct Sending {
    id: u32,
    window: i64,
    piece: Option<Piece>,
    body: Option<Told>,
    /// Whether the peer is still sending a body, which nobody wants.
    is_fed: bool,
    /// Whether the body is being made, and that has begun.
    is_made: bool,
}

/// All of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    ring: VecDeque<Sending>,
    window: i64,
    /// What the window of a new stream is.
    initial: i64,
    /// Bytes of a frame that the peer takes.
    most: usize,
    /// Answers that have been put out whole, and DATA that has been put out.
    pub(super) served: Served,
    /// Whether one waits for bytes that are being made, not for the peer.
    pub(super) is_making: bool,
    /// Streams whose answers have been put out whole, and whose requests have not ended.
    answered_uploads: Vec<u32>,
}

impl Default for Streams {
    fn default() -> Streams {
        let most = frame::LONGEST;
        Streams {
            ring: VecDeque::new(),
            window: INITIAL,
            initial: INITIAL,
            most,
            served: Served::default(),
            is_making: false,
            answered_uploads: Vec::new(),
        }
    }
}

/// What became of a stream's turn.
enum Step {
    Sent,
    /// For the peer, or for others.
    Waits,
    /// A step of making has brought nothing to be sent; there will be another.
    Makes,
    Done,
}

impl Streams {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Nothing more of any is sent.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.is_making = false;
    }

    /// One more, of which something is to be sent.
    pub(super) fn begin(&mut self, id: u32, piece: Option<Piece>, body: Option<Told>, is_fed: bool) {
        self.ring.push_back(Sending { id, window: self.initial, piece, body, is_fed, is_made: false });
    }

    /// The peer says no more on a stream.
    pub(super) fn is_said(&mut self, id: u32) {
        if let Some(one) = self.ring.iter_mut().find(|one| one.id == id) {
            one.is_fed = false;
        }
    }

    /// The peer does not want the rest; whether there was any.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let at = self.ring.iter().position(|one| one.id == id);
        at.and_then(|at| self.ring.remove(at)).is_some()
    }

    /// The peer takes so much more, on a stream or, with 0, in all. What is for a stream that has ended comes too late.
    pub(super) fn widen(&mut self, id: u32, by: u32) -> Result<(), Fault> {
        if id == 0 {
            self.window = widened(self.window, i64::from(by)).ok_or(Fault::Connection(Code::FlowControl))?;
        } else if let Some(one) = self.ring.iter_mut().find(|one| one.id == id) {
            one.window = widened(one.window, i64::from(by)).ok_or(Fault::Stream(id, Code::FlowControl))?;
        }
        Ok(())
    }

    /// New streams have this window, and those that there are by as much more or less (RFC 9113, 6.9.2).
    pub(super) fn resize(&mut self, initial: u32) -> Result<(), Fault> {
        let initial = i64::from(initial);
        if initial > WIDEST {
            return Err(Fault::Connection(Code::FlowControl));
        }
        let by = initial - self.initial;
        for one in &mut self.ring {
            one.window = widened(one.window, by).ok_or(Fault::Connection(Code::FlowControl))?;
        }
        self.initial = initial;
        Ok(())
    }

    /// The peer takes frames of this length.
    pub(super) fn take_frames_of(&mut self, most: u32) -> Result<(), Fault> {
        if !(1 << 14..1 << 24).contains(&most) {
            return Err(Fault::Connection(Code::Protocol));
        }
        self.most = (most as usize).min(LONGEST);
        Ok(())
    }

    /// One of the streams, each once, whose answers have been put out whole, and whose requests have not ended.
    pub(super) fn next_answered_upload(&mut self) -> Option<u32> {
        self.answered_uploads.pop()
    }

    /// Puts out as much as windows and `out` take; whether more would follow once that is sent.
    pub(super) fn fill(&mut self, out: &mut Out, context: &mut Context<'_>) -> bool {
        self.is_making = false;
        let (mut waiting, mut steps) = (0, 0);
        let mut made = self.ring.iter().filter(|one| one.is_made).count();
        while waiting < self.ring.len() {
            if out.is_full() {
                return true;
            }
            let Some(mut one) = self.ring.pop_front() else { break };
            let may_make = steps < MOST_STEPS && (one.is_made || made < MOST_MADE);
            let was_made = one.is_made;
            let window = self.window;
            let step = one.step(&mut self.window, self.most, may_make, out, context);
            made += usize::from(one.is_made && !was_made);
            let taken = (window - self.window).unsigned_abs();
            self.served.data_bytes += taken;
            self.served.data_frames += u64::from(taken > 0);
            match step {
                Step::Sent => waiting = 0,
                Step::Waits => waiting += 1,
                Step::Makes => {
                    (waiting, steps, self.is_making) = (waiting + 1, steps + 1, true);
                }
                Step::Done => {
                    // Its place may be what another waits for.
                    (waiting, made) = (0, made - usize::from(one.is_made));
                    self.served.answers += 1;
                    if one.is_fed {
                        self.answered_uploads.push(one.id);
                    }
                    continue;
                }
            }
            self.ring.push_back(one);
        }
        false
    }
}

fn widened(window: i64, by: i64) -> Option<i64> {
    Some(window + by).filter(|window| *window <= WIDEST)
}

impl Sending {
    /// Puts out one frame. What has to be made is made only if it `may` be, and if the peer takes any of it.
    fn step(
        &mut self,
        window: &mut i64,
        most: usize,
        may_make: bool,
        out: &mut Out,
        context: &mut Context<'_>,
    ) -> Step {
        let may = usize::try_from(self.window.min(*window)).unwrap_or(0);
        if self.piece.is_none()
            && let Some(body) = &mut self.body
        {
            if body.is_made() {
                if may == 0 || !may_make {
                    return Step::Waits;
                }
                self.is_made = true;
            }
            match Pin::new(body).poll_frame(context) {
                Poll::Pending => return Step::Makes,
                Poll::Ready(Some(Ok(frame))) => self.piece = frame.into_data().ok(),
                Poll::Ready(Some(Err(never))) => match never {},
                Poll::Ready(None) => self.body = None,
            }
        }
        let after = self.body.as_ref().map_or(0, Told::len);
        let Some(piece) = &mut self.piece else {
            // What was promised does not come: the peer has to see that something is missing.
            out.frame(frame::RST_STREAM, 0, self.id, &(Code::Internal as u32).to_be_bytes());
            self.is_fed = false;
            return Step::Done;
        };
        let n = piece.remaining().min(most).min(may);
        if n == 0 && piece.has_remaining() {
            return Step::Waits;
        }
        let is_last = n == piece.remaining() && after == 0;
        out.put(&frame::head(n, frame::DATA, if is_last { frame::END_STREAM } else { 0 }, self.id));
        let (front, (bytes, len), back) = piece.first(n);
        out.put(front);
        out.lend(bytes, len);
        out.put(back);
        out.ends_with_data();
        piece.advance(n);
        let taken = i64::try_from(n).unwrap_or(i64::MAX);
        self.window -= taken;
        *window -= taken;
        if !piece.has_remaining() {
            self.piece = None;
        }
        if is_last { Step::Done } else { Step::Sent }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::Bytes;

    use super::*;
    use crate::body::Body;

    /// Frames of DATA that leave in one turn: stream, length, whether it is the last.
    fn turn(streams: &mut Streams) -> Vec<(u32, usize, bool)> {
        let mut out = Out::default();
        streams.fill(&mut out, &mut Context::from_waker(Waker::noop()));
        let mut bytes = out.all();
        let mut frames = Vec::new();
        while let Some((frame, _)) = frame::Frame::first(&bytes).unwrap() {
            frames.push((frame.stream, frame.len, frame.has(frame::END_STREAM)));
            bytes.drain(..frame::HEAD + frame.len);
        }
        frames
    }

    fn begin(streams: &mut Streams, id: u32, len: usize) {
        streams.begin(id, None, Some(Body::full(Bytes::from(vec![7; len])).into()), false);
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
        // The connection's window was the end, and then it is the stream's.
        streams.widen(0, 100_000).unwrap();
        assert_eq!(turn(&mut streams), [(1, 16_384, false), (1, 3_617, false)]);
        streams.widen(1, 7).unwrap();
        assert_eq!(turn(&mut streams), [(1, 7, false)]);
        // A smaller one for all leaves it below nothing, which has to be made up for first.
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
        assert_eq!(streams.widen(0, 1), Err(Fault::Connection(Code::FlowControl)));
        assert_eq!(streams.widen(1, 1), Err(Fault::Stream(1, Code::FlowControl)));
        assert_eq!(streams.resize(65_536), Err(Fault::Connection(Code::FlowControl)));
        assert_eq!(streams.resize(0x8000_0000), Err(Fault::Connection(Code::FlowControl)));
        assert!(streams.take_frames_of(16_383).is_err() && streams.take_frames_of(1 << 24).is_err());
        assert!(streams.take_frames_of(16_384).is_ok() && streams.take_frames_of((1 << 24) - 1).is_ok());
    }

    #[test]
    fn a_body_that_breaks_off_is_reset_and_one_whose_reader_still_writes_is_known() {
        let mut streams = Streams::default();
        let broken = Body::inflating(Bytes::from_static(b"\xff"), [crate::body::Wanted::Made(0, 10)]);
        streams.begin(1, None, Some(broken.into()), false);
        streams.begin(3, None, Some(Body::full("x").into()), true);
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
        let all = 3 * MOST_MADE as u32;
        for at in 0..all {
            let body = Body::inflating(coded.clone(), [crate::body::Wanted::Made(0, 10)]);
            streams.begin(2 * at + 1, None, Some(body.into()), false);
        }
        let mut sent = Vec::new();
        while streams.len() > 0 {
            sent.extend(turn(&mut streams));
            let made = streams.ring.iter().filter(|one| one.is_made).count();
            assert!(made <= MOST_MADE, "{made} at a time");
            // Windows are open: nobody else would say that it is time.
            assert!(streams.is_making || streams.len() == 0, "{} of {all} are left", streams.len());
        }
        sent.sort_unstable();
        assert_eq!(sent, (0..all).map(|at| (2 * at + 1, 10, true)).collect::<Vec<_>>());
    }

    #[test]
    fn frames_are_as_long_as_the_peer_takes_but_not_longer_than_64_kib() {
        for (most, expected) in [(16_384, 16_384), (20_000, 20_000), (65_537, 65_536), ((1 << 24) - 1, 65_536)] {
            let mut streams = Streams::default();
            streams.take_frames_of(most).unwrap();
            streams.widen(0, 100_000).unwrap();
            streams.resize(100_000).unwrap();
            begin(&mut streams, 1, 100_000);
            let mut out = Out::default();
            streams.fill(&mut out, &mut Context::from_waker(Waker::noop()));
            assert_eq!(frame::number(&out.all()[..3]), expected, "{most}");
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
            streams.begin(id, None, Some(Body::full("x").into()), true);
        }
        assert_eq!((streams.remove(3), streams.remove(3), streams.remove(7)), (true, false, false));
        streams.is_said(5);
        assert_eq!(turn(&mut streams), [(1, 1, true), (5, 1, true)]);
        assert_eq!((streams.next_answered_upload(), streams.next_answered_upload()), (Some(1), None));
        // A stream that was reset is not to be told to stop.
        let broken = Body::inflating(Bytes::from_static(b"\xff"), [crate::body::Wanted::Made(0, 10)]);
        streams.begin(9, None, Some(broken.into()), true);
        assert_eq!(turn(&mut streams), [(9, 4, false)]);
        assert_eq!(streams.next_answered_upload(), None);
    }
}
