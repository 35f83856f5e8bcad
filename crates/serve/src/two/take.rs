//! What a peer sends, frame by frame (RFC 9113, 6).

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::frame::{self, Code, Fault, Frame, number};
use super::hpack::Fields;
use super::request::are_trailers;
use super::uploads::Discard;
use super::{Block, End, MOST_STREAMS, SIGN, Two};

/// Bytes of a block of fields; what they expand to is bounded besides.
const LONGEST_BLOCK: usize = 128 * 1024;
/// Frames of a block of fields, some of which may be empty.
const MOST_FRAMES: usize = 64;
/// What a frame costs beside its bytes, and each byte of a block of fields, in bytes that were handled: a block of references to
/// the table takes a microsecond for 16 bytes.
const COST_OF_FRAME: usize = 64;
const COST_OF_FIELDS: usize = 64;

thread_local! {
    /// The fields of the block that is looked at.
    static FIELDS: RefCell<Fields> = RefCell::new(Fields::default());
}

impl Two {
    /// Takes what has come.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.rest.is_empty() {
            let taken = self.take_frames(bytes);
            if taken < bytes.len() {
                self.rest = bytes[taken..].to_vec();
            }
            return;
        }
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let taken = self.take_frames(&all);
        if taken < all.len() {
            all.drain(..taken);
            self.rest = all;
        }
    }

    /// Takes the whole frames at the beginning of `bytes`; gives their length.
    fn take_frames(&mut self, bytes: &[u8]) -> usize {
        let mut at = self.preface.len().min(bytes.len());
        if bytes[..at] != self.preface[..at] {
            return self.fail(Code::Protocol, bytes);
        }
        self.preface = &self.preface[at..];
        self.is_behind = false;
        self.budget.earn(self.streams.served);
        while self.end != End::Failed {
            if self.out.is_full() || (self.is_turn_over && at < bytes.len()) {
                self.is_behind = true;
                return at;
            }
            let fault = match Frame::first(&bytes[at..]) {
                Ok(None) => return at,
                Ok(Some((frame, payload))) => {
                    at += frame::HEAD + frame.len;
                    self.spend(COST_OF_FRAME + frame.len);
                    let fault = self.frame(frame, payload).err();
                    if self.block.is_none() {
                        self.deadlines.is_whole();
                    }
                    fault
                }
                Err(fault) => Some(fault),
            };
            match fault {
                None => {}
                Some(Fault::Stream(id, code)) => {
                    if let Err(Fault::Connection(code)) = self.reset(id, code) {
                        return self.fail(code, bytes);
                    }
                }
                Some(Fault::Connection(code)) => return self.fail(code, bytes),
            }
        }
        bytes.len()
    }

    /// Ends the connection; nothing more of `bytes` counts.
    fn fail(&mut self, code: Code, bytes: &[u8]) -> usize {
        self.give_up(code);
        bytes.len()
    }

    /// Says why the connection ends. Nothing more of any answer is sent, and nothing of it is held any longer.
    pub(super) fn give_up(&mut self, code: Code) {
        self.say_goodbye(self.highest, code);
        self.end = End::Failed;
        self.streams.clear();
        self.later.clear();
        self.deadlines.clear();
    }

    /// Ends a stream.
    fn reset(&mut self, id: u32, code: Code) -> Result<(), Fault> {
        self.out.frame(frame::RST_STREAM, 0, id, &(code as u32).to_be_bytes());
        self.forget(id)
    }

    /// Nothing more is sent on a stream. If anything would have been, it was made in vain, whichever side has brought it about
    /// (CVE-2023-44487, CVE-2025-8671): a reader does that now and then, not one time after another.
    fn forget(&mut self, id: u32) -> Result<(), Fault> {
        let waiting = self.later.len();
        self.later.retain(|later| later.stream != id);
        let is_in_vain = self.streams.remove(id) || self.later.len() < waiting;
        if is_in_vain && !self.budget.reset(Instant::now) {
            return Err(Fault::Connection(Code::Calm));
        }
        self.control_frame()
    }

    fn frame(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        let wrong = Fault::Connection(Code::Protocol);
        if !self.is_settled && (frame.kind != frame::SETTINGS || frame.has(frame::ACK)) {
            return Err(wrong);
        }
        if let Some(block) = &self.block
            && (frame.kind != frame::CONTINUATION || frame.stream != block.stream)
        {
            return Err(wrong);
        }
        match frame.kind {
            frame::DATA => self.data(frame, payload),
            frame::HEADERS => self.headers(frame, payload),
            frame::CONTINUATION => self.continuation(frame, payload),
            frame::RST_STREAM => self.rst_stream(frame),
            frame::SETTINGS => self.settings(frame, payload),
            frame::PING => self.ping(frame, payload),
            frame::WINDOW_UPDATE => self.window_update(frame, payload),
            frame::PUSH_PROMISE => Err(wrong),
            frame::PRIORITY | frame::GOAWAY if (frame.kind == frame::GOAWAY) != (frame.stream == 0) => Err(wrong),
            frame::PRIORITY if frame.len != 5 => Err(Fault::Stream(frame.stream, Code::FrameSize)),
            frame::GOAWAY if frame.len < 8 => Err(Fault::Connection(Code::FrameSize)),
            frame::GOAWAY => {
                self.end = End::Left;
                self.control_frame()
            }
            // Priorities, and what we do not know (RFC 9113, 5.5).
            _ => self.control_frame(),
        }
    }

    /// A frame that asks for nothing of the site.
    fn control_frame(&mut self) -> Result<(), Fault> {
        if self.budget.control_frame(Instant::now) { Ok(()) } else { Err(Fault::Connection(Code::Calm)) }
    }

    /// Whether this is a stream that has begun: others can be neither reset nor widened, and have no data.
    fn known(&self, id: u32) -> Result<(), Fault> {
        let is_known = id % 2 == 1 && id <= self.highest;
        if is_known { Ok(()) } else { Err(Fault::Connection(Code::Protocol)) }
    }

    fn data(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        self.known(frame.stream)?;
        let content = frame.content(payload)?;
        let is_last = frame.has(frame::END_STREAM);
        if content.is_empty() && !is_last {
            self.control_frame()?;
            if frame.len == 0 {
                // It takes nothing of any window and brings nothing of a body, so only its stream can be wrong.
                return self.uploads.is_open(frame.stream);
            }
        }
        let more = self.uploads.come(frame.stream, frame.len, content.len(), is_last, self.streams.served.answers)?;
        if more > 0 {
            self.out.frame(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
        if is_last {
            self.is_said(frame.stream);
        } else {
            self.go_on_discarding(frame.stream);
        }
        Ok(())
    }

    /// An answer has been put out whole whose request has not ended (RFC 9113, 8.1).
    pub(super) fn has_answered_upload(&mut self, id: u32) {
        self.uploads.is_answered(id);
        self.go_on_discarding(id);
    }

    /// Lets more of a body come whose request is answered, or tells the peer to stop.
    fn go_on_discarding(&mut self, id: u32) {
        match self.uploads.discard(id) {
            Discard::Nothing => {}
            Discard::Widen(by) => self.out.frame(frame::WINDOW_UPDATE, 0, id, &by.to_be_bytes()),
            Discard::Stop => self.out.frame(frame::RST_STREAM, 0, id, &(Code::None as u32).to_be_bytes()),
        }
    }

    /// The peer says no more on a stream.
    fn is_said(&mut self, id: u32) {
        self.streams.is_said(id);
        if let Some(later) = self.later.iter_mut().find(|later| later.stream == id) {
            later.is_fed = false;
        }
    }

    fn headers(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        let fragment = frame.content(payload)?;
        if frame.stream.is_multiple_of(2) {
            return Err(Fault::Connection(Code::Protocol));
        }
        let is_last = frame.has(frame::END_STREAM);
        if frame.has(frame::END_HEADERS) {
            return self.fields(frame.stream, is_last, fragment);
        }
        self.block = Some(Block { stream: frame.stream, is_last, bytes: fragment.to_vec(), frames: 1 });
        Ok(())
    }

    fn continuation(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        let mut block = self.block.take().ok_or(Fault::Connection(Code::Protocol))?;
        block.bytes.extend_from_slice(payload);
        block.frames += 1;
        if block.bytes.len() > LONGEST_BLOCK || block.frames > MOST_FRAMES {
            return Err(Fault::Connection(Code::Calm));
        }
        if frame.has(frame::END_HEADERS) {
            return self.fields(block.stream, block.is_last, &block.bytes);
        }
        self.block = Some(block);
        Ok(())
    }

    /// A block of fields is whole. It has to be decoded, whatever it is about.
    fn fields(&mut self, id: u32, is_last: bool, block: &[u8]) -> Result<(), Fault> {
        self.spend(block.len() * COST_OF_FIELDS);
        let mut fields = FIELDS.take();
        fields.clear();
        let decoded = self.decoder.decode(block, &mut fields).map_err(|_| Fault::Connection(Code::Compression));
        let done = decoded.and_then(|()| self.asked(id, is_last, &fields));
        FIELDS.set(fields);
        done
    }

    /// A request, or what comes behind the body of one.
    fn asked(&mut self, id: u32, is_last: bool, fields: &Fields) -> Result<(), Fault> {
        if id <= self.highest {
            return self.trailers(id, is_last && are_trailers(fields));
        }
        self.highest = id;
        if self.end == End::Told {
            // It was told that this would not be answered, and asks elsewhere.
            if !is_last {
                self.uploads.begin(id, None);
            }
            return Ok(());
        }
        self.begun.store(true, Ordering::Relaxed);
        if self.streams.len() + self.later.len() >= MOST_STREAMS {
            if !is_last {
                self.uploads.begin(id, None);
            }
            return Err(Fault::Stream(id, Code::Refused));
        }
        self.answer(id, is_last, fields)
    }

    /// What comes behind the body of a request; malformed unless it `is_good` (RFC 9113, 8.1).
    fn trailers(&mut self, id: u32, is_good: bool) -> Result<(), Fault> {
        let is_whole = self.uploads.conclude(id)?;
        self.is_said(id);
        if is_good && is_whole { Ok(()) } else { Err(Fault::Stream(id, Code::Protocol)) }
    }

    fn rst_stream(&mut self, frame: Frame) -> Result<(), Fault> {
        self.known(frame.stream)?;
        if frame.len != 4 {
            return Err(Fault::Connection(Code::FrameSize));
        }
        self.uploads.end(frame.stream);
        self.forget(frame.stream)
    }

    fn settings(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        if frame.stream != 0 {
            return Err(Fault::Connection(Code::Protocol));
        }
        let is_reply = frame.has(frame::ACK);
        if (is_reply && frame.len > 0) || !frame.len.is_multiple_of(6) {
            return Err(Fault::Connection(Code::FrameSize));
        }
        for setting in payload.chunks_exact(6) {
            let value = number(&setting[2..]);
            match number(&setting[..2]) {
                2 if value > 1 => return Err(Fault::Connection(Code::Protocol)),
                4 => self.streams.resize(value)?,
                5 => self.streams.take_frames_of(value)?,
                // The others are about tables and pushes, which we do not use, or advice.
                _ => {}
            }
        }
        self.is_settled = true;
        if !is_reply {
            self.out.frame(frame::SETTINGS, frame::ACK, 0, &[]);
        }
        self.control_frame()
    }

    fn ping(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        if frame.stream != 0 {
            return Err(Fault::Connection(Code::Protocol));
        }
        if frame.len != 8 {
            return Err(Fault::Connection(Code::FrameSize));
        }
        if frame.has(frame::ACK) {
            if payload == SIGN && matches!(self.end, End::Asked(_)) {
                self.tell_last();
            }
            return self.control_frame();
        }
        // One at a time while an answer is on its way measures the round trip: it ends when the answer does.
        let measures = self.out.is_empty() && self.streams.len() > 0;
        self.out.frame(frame::PING, frame::ACK, 0, payload);
        if measures { Ok(()) } else { self.control_frame() }
    }

    fn window_update(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        if frame.len != 4 {
            return Err(Fault::Connection(Code::FrameSize));
        }
        if frame.stream != 0 {
            self.known(frame.stream)?;
        }
        self.control_frame()?;
        match (number(payload) & 0x7fff_ffff, frame.stream) {
            (0, 0) => Err(Fault::Connection(Code::Protocol)),
            (0, id) => Err(Fault::Stream(id, Code::Protocol)),
            (by, id) => {
                if let Some(later) = self.later.iter_mut().find(|later| later.stream == id && id != 0) {
                    later.widened = later.widened.saturating_add(by);
                }
                self.streams.widen(id, by)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TurnBudget;
    use super::super::hpack::encode;
    use super::super::tests::{begun, faults, frame, replies, request};
    use super::*;
    use crate::body::Body;

    const WHOLE: u8 = frame::END_STREAM | frame::END_HEADERS;
    const PADDED: u8 = 0x8;
    const WITH_PRIORITY: u8 = 0x20;

    /// A connection with two answers on their way. The request of stream 1 has still to bring a body of `length`, that
    /// of stream 5 has ended, and stream 3 was never used.
    fn busy(length: u64) -> Two {
        let mut two = begun();
        two.highest = 5;
        two.uploads.begin(1, Some(length));
        two.streams.begin(1, None, Some(Body::full(vec![7; 100_000]).into()), true);
        two.streams.begin(5, None, Some(Body::full("x").into()), false);
        two
    }

    /// Has `two` take all of `bytes`, in as many turns as that needs.
    fn feed(two: &mut Two, bytes: &[u8]) {
        two.take(bytes);
        while two.is_behind {
            (two.turn, two.is_turn_over) = (TurnBudget::new(), false);
            two.take(&[]);
        }
    }

    fn block(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            encode::field(name, value.as_bytes(), &mut block);
        }
        block
    }

    fn setting(name: u8, value: u32) -> Vec<u8> {
        [&[0, name], &value.to_be_bytes()[..]].concat()
    }

    #[test]
    fn each_fault_of_a_connection_ends_it_with_its_code() {
        use super::super::frame::{CONTINUATION, DATA, GOAWAY, HEADERS, PING, PRIORITY, PUSH_PROMISE, RST_STREAM};
        use super::super::frame::{SETTINGS, WINDOW_UPDATE};
        let good = request(7)[frame::HEAD..].to_vec();
        let settings = |payload: &[u8]| frame(SETTINGS, 0, 0, payload);
        let begin = |flags, id| frame(HEADERS, flags, id, &good);
        let cases: Vec<(&str, Code, Vec<u8>)> = vec![
            ("SETTINGS with ACK and a payload", Code::FrameSize, frame(SETTINGS, frame::ACK, 0, &setting(3, 1))),
            ("SETTINGS of 5 bytes", Code::FrameSize, settings(&[0; 5])),
            ("SETTINGS of 7 bytes", Code::FrameSize, settings(&[0; 7])),
            ("SETTINGS on a stream", Code::Protocol, frame(SETTINGS, 0, 1, &[])),
            ("SETTINGS with ACK on a stream", Code::Protocol, frame(SETTINGS, frame::ACK, 1, &[])),
            ("ENABLE_PUSH 2", Code::Protocol, settings(&setting(2, 2))),
            ("INITIAL_WINDOW_SIZE 2^31", Code::FlowControl, settings(&setting(4, 1 << 31))),
            ("MAX_FRAME_SIZE 2^14 - 1", Code::Protocol, settings(&setting(5, (1 << 14) - 1))),
            ("MAX_FRAME_SIZE 2^24", Code::Protocol, settings(&setting(5, 1 << 24))),
            ("the second setting is wrong", Code::Protocol, settings(&[setting(3, 1), setting(2, 2)].concat())),
            ("PING of 7 bytes", Code::FrameSize, frame(PING, 0, 0, &[0; 7])),
            ("PING of 9 bytes", Code::FrameSize, frame(PING, 0, 0, &[0; 9])),
            ("PING with ACK of 7 bytes", Code::FrameSize, frame(PING, frame::ACK, 0, &[0; 7])),
            ("PING on a stream", Code::Protocol, frame(PING, 0, 1, &[0; 8])),
            ("WINDOW_UPDATE of 3 bytes", Code::FrameSize, frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1])),
            ("WINDOW_UPDATE of 5 bytes on a stream", Code::FrameSize, frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 0, 1])),
            ("WINDOW_UPDATE by 0", Code::Protocol, frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
            ("WINDOW_UPDATE by the reserved bit", Code::Protocol, frame(WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 0])),
            ("WINDOW_UPDATE of an idle stream", Code::Protocol, frame(WINDOW_UPDATE, 0, 7, &[0, 0, 0, 1])),
            ("WINDOW_UPDATE of an even stream", Code::Protocol, frame(WINDOW_UPDATE, 0, 2, &[0, 0, 0, 1])),
            ("a window of 2^31", Code::FlowControl, frame(WINDOW_UPDATE, 0, 0, &0x7fff_0001_u32.to_be_bytes())),
            ("RST_STREAM of 3 bytes", Code::FrameSize, frame(RST_STREAM, 0, 1, &[0; 3])),
            ("RST_STREAM of the connection", Code::Protocol, frame(RST_STREAM, 0, 0, &[0; 4])),
            ("RST_STREAM of an idle stream", Code::Protocol, frame(RST_STREAM, 0, 7, &[0; 4])),
            ("RST_STREAM of an even stream", Code::Protocol, frame(RST_STREAM, 0, 4, &[0; 4])),
            ("PRIORITY of the connection", Code::Protocol, frame(PRIORITY, 0, 0, &[0; 5])),
            ("GOAWAY on a stream", Code::Protocol, frame(GOAWAY, 0, 1, &[0; 8])),
            ("GOAWAY of 7 bytes", Code::FrameSize, frame(GOAWAY, 0, 0, &[0; 7])),
            ("PUSH_PROMISE", Code::Protocol, frame(PUSH_PROMISE, frame::END_HEADERS, 1, &[0, 0, 0, 2])),
            ("DATA of the connection", Code::Protocol, frame(DATA, 0, 0, b"x")),
            ("DATA of an idle stream", Code::Protocol, frame(DATA, 0, 7, b"x")),
            ("DATA of an even stream", Code::Protocol, frame(DATA, 0, 2, b"x")),
            ("DATA after END_STREAM", Code::StreamClosed, frame(DATA, 0, 5, b"x")),
            ("empty DATA after END_STREAM", Code::StreamClosed, frame(DATA, 0, 5, b"")),
            ("END_STREAM after END_STREAM", Code::StreamClosed, frame(DATA, frame::END_STREAM, 5, b"")),
            (
                "DATA after RST_STREAM",
                Code::StreamClosed,
                [frame(RST_STREAM, 0, 1, &[0; 4]), frame(DATA, 0, 1, b"x")].concat(),
            ),
            ("DATA with too much padding", Code::Protocol, frame(DATA, PADDED, 1, &[3, 1, 2])),
            ("DATA without the length of its padding", Code::FrameSize, frame(DATA, PADDED, 1, &[])),
            ("HEADERS with too much padding", Code::Protocol, frame(HEADERS, WHOLE | PADDED, 7, &[200, 0x82])),
            (
                "HEADERS without all of its priority",
                Code::FrameSize,
                frame(HEADERS, WHOLE | WITH_PRIORITY, 7, &good[..4]),
            ),
            ("HEADERS of the connection", Code::Protocol, begin(WHOLE, 0)),
            ("HEADERS of an even stream", Code::Protocol, begin(WHOLE, 8)),
            ("HEADERS after END_STREAM", Code::StreamClosed, begin(WHOLE, 5)),
            ("fields that cannot be decoded", Code::Compression, frame(HEADERS, WHOLE, 7, &[0x80])),
            ("CONTINUATION of nothing", Code::Protocol, frame(CONTINUATION, frame::END_HEADERS, 1, &good)),
            (
                "CONTINUATION of another stream",
                Code::Protocol,
                [begin(frame::END_STREAM, 7), frame(CONTINUATION, frame::END_HEADERS, 9, &[])].concat(),
            ),
            ("HEADERS within a block", Code::Protocol, [begin(frame::END_STREAM, 7), begin(WHOLE, 7)].concat()),
            (
                "an unknown frame within a block",
                Code::Protocol,
                [begin(frame::END_STREAM, 7), frame(0x7f, 0, 7, &[])].concat(),
            ),
            ("a frame of 2^14 + 1 bytes", Code::FrameSize, frame(0x7f, 0, 0, &[0; 16_385])),
        ];
        for (what, code, mut bytes) in cases {
            let mut two = busy(10);
            // What follows does not count.
            bytes.extend(frame(PING, 0, 0, b"12345678"));
            feed(&mut two, &bytes);
            assert_eq!(faults(&two), [(GOAWAY, 5, code as u32)], "{what}");
            assert!(two.end == End::Failed && two.streams.len() == 0, "{what}");
            assert!(!replies(&two).iter().any(|reply| reply.0 == PING), "{what}");
        }
    }

    #[test]
    fn a_stream_that_was_passed_over_is_not_begun_later() {
        let mut two = busy(10);
        feed(&mut two, &request(3));
        // It was never open and is closed; either code says so (RFC 9113, 5.1 and 5.1.1).
        assert!(matches!(faults(&two)[..], [(frame::GOAWAY, 5, 1 | 5)]), "{:?}", faults(&two));
        assert!(!replies(&two).iter().any(|reply| reply.0 == frame::HEADERS));
    }

    #[test]
    fn each_fault_of_a_stream_resets_that_stream_only() {
        let trailers = block(&[("x-checksum", "abc")]);
        let wider = |by: u32| frame(frame::WINDOW_UPDATE, 0, 1, &by.to_be_bytes());
        for (what, code, bytes) in [
            ("WINDOW_UPDATE by 0", Code::Protocol, wider(0)),
            ("WINDOW_UPDATE by the reserved bit", Code::Protocol, wider(1 << 31)),
            ("a window of 2^31", Code::FlowControl, wider(0x7fff_0001)),
            ("PRIORITY of 4 bytes", Code::FrameSize, frame(frame::PRIORITY, 0, 1, &[0; 4])),
            ("PRIORITY of 6 bytes", Code::FrameSize, frame(frame::PRIORITY, 0, 1, &[0; 6])),
            ("a body that is too long", Code::Protocol, frame(frame::DATA, 0, 1, &[0; 11])),
            ("a body that is too short", Code::Protocol, frame(frame::DATA, frame::END_STREAM, 1, &[0; 9])),
            ("no body", Code::Protocol, frame(frame::DATA, frame::END_STREAM, 1, &[])),
            ("trailers that do not end it", Code::Protocol, frame(frame::HEADERS, frame::END_HEADERS, 1, &trailers)),
        ] {
            let mut two = busy(10);
            feed(&mut two, &[bytes, frame(frame::PING, 0, 0, b"12345678")].concat());
            assert_eq!(faults(&two), [(frame::RST_STREAM, 1, code as u32)], "{what}");
            assert_eq!(two.streams.len(), 1, "{what}: the other answer is still sent");
            let last = replies(&two).pop();
            assert_eq!(last, Some((frame::PING, frame::ACK, 0, b"12345678".to_vec())), "{what}");
        }
        for bytes in [wider(0x7fff_0000), frame(frame::DATA, frame::END_STREAM, 1, &[0; 10])] {
            let mut two = busy(10);
            feed(&mut two, &bytes);
            assert_eq!((faults(&two), two.streams.len()), (vec![], 2));
        }
    }

    #[test]
    fn what_was_on_its_way_when_a_stream_was_reset_is_no_fault() {
        let mut two = busy(10);
        let body = frame(frame::DATA, frame::END_STREAM, 1, &[0; 10]);
        let late = [frame(frame::WINDOW_UPDATE, 0, 1, &[0; 4]), frame(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), body];
        feed(&mut two, &late.concat());
        assert_eq!(faults(&two), [(frame::RST_STREAM, 1, Code::Protocol as u32)]);
        // The same for a request that is malformed, and whose body comes all the same.
        let mut two = busy(10);
        let fields = block(&[(":method", "POST"), (":path", "/")]);
        let late =
            [frame(frame::HEADERS, frame::END_HEADERS, 7, &fields), frame(frame::DATA, frame::END_STREAM, 7, b"abc")];
        feed(&mut two, &late.concat());
        assert_eq!(faults(&two), [(frame::RST_STREAM, 7, Code::Protocol as u32)]);
    }

    #[test]
    fn a_malformed_request_is_an_error_of_its_stream() {
        let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")];
        let faults_of = |fields: &[(&str, &str)]| {
            let mut two = busy(10);
            feed(&mut two, &frame(frame::HEADERS, WHOLE, 7, &block(fields)));
            let is_answered = replies(&two).iter().any(|reply| (reply.0, reply.2) == (frame::HEADERS, 7));
            assert_eq!(is_answered, faults(&two).is_empty(), "{fields:?}");
            faults(&two)
        };
        let malformed = [(frame::RST_STREAM, 7, Code::Protocol as u32)];
        for missing in 0..3 {
            let mut fields = usual.to_vec();
            let name = fields.remove(missing).0;
            assert_eq!(faults_of(&fields), malformed, "without {name}");
        }
        for field in usual {
            assert_eq!(faults_of(&[&usual[..], &[field]].concat()), malformed, "{field:?} twice");
            let mut fields = usual.to_vec();
            fields.retain(|other| *other != field);
            fields.extend([("accept", "*/*"), field]);
            assert_eq!(faults_of(&fields), malformed, "{field:?} behind another field");
        }
        for (field, is_good) in [
            ((":status", "200"), false),
            ((":unknown", "a"), false),
            ((":protocol", "websocket"), false),
            (("Accept", "*/*"), false),
            (("accepT", "*/*"), false),
            (("connection", "close"), false),
            (("connection", "keep-alive"), false),
            (("keep-alive", "timeout=5"), false),
            (("proxy-connection", "keep-alive"), false),
            (("transfer-encoding", "chunked"), false),
            (("upgrade", "h2c"), false),
            (("te", "gzip"), false),
            (("te", "trailers, gzip"), false),
            (("te", ""), false),
            (("content-length", "1"), false),
            (("te", "trailers"), true),
            (("te", "Trailers"), true),
            (("content-length", "0"), true),
            (("cookie", "a=b"), true),
            (("x-upgrade", "h2c"), true),
        ] {
            let expected = if is_good { &[][..] } else { &malformed };
            assert_eq!(faults_of(&[&usual[..], &[field]].concat()), expected, "{field:?}");
        }
        let cookies = [("cookie", "a=b"), ("cookie", "c=d")];
        assert_eq!(faults_of(&[&usual[..], &cookies].concat()), [], "cookies may come one by one");
    }

    #[test]
    fn each_frame_has_the_reply_that_it_asks_for() {
        let acknowledged = (frame::SETTINGS, frame::ACK, 0, vec![]);
        let several =
            [setting(1, 0), setting(2, 1), setting(4, 0x7fff_0000), setting(5, 16_384), setting(99, 1)].concat();
        let fields = &request(7)[frame::HEAD..];
        // It depends on itself, which counts for nothing any more (RFC 9113, 5.3.2).
        let itself = [&[0, 0, 0, 7, 16], fields].concat();
        for (what, bytes, expected) in [
            ("SETTINGS", frame(frame::SETTINGS, 0, 0, &several), vec![acknowledged]),
            ("SETTINGS with ACK", frame(frame::SETTINGS, frame::ACK, 0, &[]), vec![]),
            (
                "PING",
                frame(frame::PING, 0xfe, 0, b"12345678"),
                vec![(frame::PING, frame::ACK, 0, b"12345678".to_vec())],
            ),
            ("PING with ACK", frame(frame::PING, frame::ACK, 0, b"12345678"), vec![]),
            ("PRIORITY of an idle stream", frame(frame::PRIORITY, 0, 8, &[0; 5]), vec![]),
            ("WINDOW_UPDATE of a stream that has ended", frame(frame::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), vec![]),
            ("RST_STREAM of a stream that has ended", frame(frame::RST_STREAM, 0, 3, &[0; 4]), vec![]),
            ("an unknown frame", frame(0x7f, 0xff, 8, &[0; 16_384]), vec![]),
            ("empty DATA", frame(frame::DATA, 0, 1, &[]), vec![]),
        ] {
            let mut two = busy(10);
            feed(&mut two, &bytes);
            assert_eq!(replies(&two)[2..], expected, "{what}");
        }
        let mut two = busy(10);
        feed(&mut two, &frame(frame::HEADERS, WHOLE | WITH_PRIORITY, 7, &itself));
        assert!(matches!(replies(&two)[2..], [(frame::HEADERS, _, 7, _)]));
    }

    #[test]
    fn the_129th_answer_is_refused_and_its_fields_and_body_are_taken_all_the_same() {
        let mut two = begun();
        two.highest = 255;
        for id in (1..MOST_STREAMS as u32 * 2 - 1).step_by(2) {
            two.streams.begin(id, None, Some(Body::full("x").into()), false);
        }
        // `:authority: x`, which goes into the table.
        let kept = [0x82, 0x86, 0x84, 0x41, 1, b'x'];
        two.streams.begin(255, None, Some(Body::full("x").into()), false);
        let frames =
            [frame(frame::HEADERS, frame::END_HEADERS, 257, &kept), frame(frame::DATA, frame::END_STREAM, 257, b"abc")];
        feed(&mut two, &frames.concat());
        let refused = vec![(frame::RST_STREAM, 257, Code::Refused as u32)];
        assert_eq!((faults(&two), two.streams.len()), (refused.clone(), MOST_STREAMS));
        // One has gone, and the next is answered.
        assert!(two.streams.remove(255));
        feed(&mut two, &frame(frame::HEADERS, WHOLE, 259, &[0x82, 0x86, 0x84, 0xbe]));
        assert_eq!(faults(&two), refused);
        assert!(matches!(replies(&two).last(), Some((frame::HEADERS, _, 259, _))));
    }

    #[test]
    fn a_block_of_fields_has_at_most_128_kib() {
        // It cannot be decoded, which is noticed only if that is tried.
        let mut block = vec![0x80];
        for (len, expected) in [(LONGEST_BLOCK, Code::Compression), (LONGEST_BLOCK + 1, Code::Calm)] {
            block.resize(len, 0);
            let mut two = begun();
            let count = block.chunks(frame::LONGEST).count();
            for (n, part) in block.chunks(frame::LONGEST).enumerate() {
                let kind = if n == 0 { frame::HEADERS } else { frame::CONTINUATION };
                let flags = if n + 1 == count { frame::END_HEADERS } else { 0 };
                feed(&mut two, &frame(kind, flags, 1, part));
            }
            assert_eq!(faults(&two), [(frame::GOAWAY, 0, expected as u32)], "{len} bytes");
        }
    }

    #[test]
    fn windows_are_given_back_with_padding_and_a_streams_own_once_it_is_answered() {
        let mut two = busy(40_000);
        let mut padded = vec![0; 16_384];
        padded[0] = 255;
        let widened = |two: &Two| {
            let frames = replies(two).into_iter().filter(|reply| reply.0 == frame::WINDOW_UPDATE);
            frames.map(|(_, _, id, by)| (id, number(&by))).collect::<Vec<_>>()
        };
        feed(&mut two, &frame(frame::DATA, PADDED, 1, &padded));
        assert_eq!(widened(&two), []);
        feed(&mut two, &frame(frame::DATA, 0, 1, &[0; 16_384]));
        assert_eq!(widened(&two), [(0, 32_768)]);
        two.has_answered_upload(1);
        assert_eq!(widened(&two), [(0, 32_768), (1, 32_768)]);
        // 256 bytes were padding.
        feed(&mut two, &frame(frame::DATA, frame::END_STREAM, 1, &[0; 40_000 - 32_768 + 256]));
        assert_eq!((widened(&two).len(), faults(&two)), (2, vec![]));
    }
}
