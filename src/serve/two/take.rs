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
