//! The frames that a peer sends (RFC 9113, section 6), and what the connection does about each.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::frame::{self, ErrorCode, FrameHeader, Http2Error, read_be};
use super::hpack::DecodedFields;
use super::request::are_trailers;
use super::uploads::DiscardAction;
use super::{Http2Connection, MAX_STREAMS, PartialFieldBlock, SHUTDOWN_PING, ShutdownState};

/// The largest field block in bytes, encoded; the decoded size has a limit of its own.
const MAX_BLOCK_BYTES: usize = 128 * 1024;
/// The largest number of frames in a field block, some of which may be empty.
const MAX_BLOCK_FRAMES: usize = 64;
/// The cost of a frame besides its bytes, and of each byte of a field block, in bytes handled (see [`crate::turn`]).
/// Decoding takes about a microsecond for 16 references to the dynamic table, which are 16 bytes.
const FRAME_COST: usize = 64;
const FIELD_BYTE_COST: usize = 64;

thread_local! {
    /// The decoded fields of the current block, reused by all connections of the thread.
    static FIELDS: RefCell<DecodedFields> = RefCell::new(DecodedFields::default());
}

impl Http2Connection {
    /// Handles input.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if self.rest.is_empty() {
            let taken = self.receive_frames(bytes);
            if taken < bytes.len() {
                self.rest = bytes[taken..].to_vec();
            }
            return;
        }
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let taken = self.receive_frames(&all);
        if taken < all.len() {
            all.drain(..taken);
            self.rest = all;
        }
    }

    /// Handles the complete frames at the start of `bytes`, and returns their length.
    fn receive_frames(&mut self, bytes: &[u8]) -> usize {
        let mut at = self.preface.len().min(bytes.len());
        if bytes[..at] != self.preface[..at] {
            return self.fail(ErrorCode::Protocol, bytes);
        }
        self.preface = &self.preface[at..];
        self.is_behind = false;
        self.abuse_counters.earn(self.streams.served);
        while self.end != ShutdownState::Failed {
            if self.send_buffer.is_full() || (self.is_turn_over && at < bytes.len()) {
                self.is_behind = true;
                return at;
            }
            let fault = match FrameHeader::parse(&bytes[at..]) {
                Ok(None) => return at,
                Ok(Some((frame, payload))) => {
                    at += frame::HEADER_BYTES + frame.len;
                    self.spend(FRAME_COST + frame.len);
                    let fault = self.frame(frame, payload).err();
                    if self.block.is_none() {
                        self.deadlines.clear_partial();
                    }
                    fault
                }
                Err(fault) => Some(fault),
            };
            match fault {
                None => {}
                Some(Http2Error::Stream(id, code)) => {
                    if let Err(Http2Error::Connection(code)) = self.reset(id, code) {
                        return self.fail(code, bytes);
                    }
                }
                Some(Http2Error::Connection(code)) => return self.fail(code, bytes),
            }
        }
        bytes.len()
    }

    /// Ends the connection with an error, and counts all of `bytes` as handled.
    fn fail(&mut self, code: ErrorCode, bytes: &[u8]) -> usize {
        self.fail_connection(code);
        bytes.len()
    }

    /// Sends GOAWAY with an error code. Pending responses are dropped, and what they hold is freed.
    pub(super) fn fail_connection(&mut self, code: ErrorCode) {
        self.queue_goaway(self.newest_stream, code);
        self.end = ShutdownState::Failed;
        self.streams.clear();
        self.deferred.clear();
        self.deadlines.clear();
    }

    /// Resets a stream.
    fn reset(&mut self, id: u32, code: ErrorCode) -> Result<(), Http2Error> {
        self.send_buffer.queue_frame(frame::RST_STREAM, 0, id, &(code as u32).to_be_bytes());
        self.drop_response(id)
    }

    /// Drops the response of a stream that was reset. If it was still pending, the work for it was in vain, whichever
    /// side caused the reset (CVE-2023-44487, CVE-2025-8671). A client does that now and then, but not continuously, so
    /// it is counted.
    fn drop_response(&mut self, id: u32) -> Result<(), Http2Error> {
        let waiting = self.deferred.len();
        self.deferred.retain(|later| later.stream != id);
        let is_in_vain = self.streams.remove(id) || self.deferred.len() < waiting;
        if is_in_vain && !self.abuse_counters.count_reset(Instant::now) {
            return Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm));
        }
        self.control_frame()
    }

    fn frame(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        let wrong = Http2Error::Connection(ErrorCode::Protocol);
        if !self.has_settings && (frame.kind != frame::SETTINGS || frame.has(frame::ACK)) {
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
            frame::PRIORITY if frame.len != 5 => Err(Http2Error::Stream(frame.stream, ErrorCode::FrameSize)),
            frame::GOAWAY if frame.len < 8 => Err(Http2Error::Connection(ErrorCode::FrameSize)),
            frame::GOAWAY => {
                self.end = ShutdownState::PeerLeft;
                self.control_frame()
            }
            // PRIORITY, and frames of unknown types (RFC 9113, section 5.5).
            _ => self.control_frame(),
        }
    }

    /// Counts a frame that does not request anything; an error if there were too many.
    fn control_frame(&mut self) -> Result<(), Http2Error> {
        if self.abuse_counters.count_control_frame(Instant::now) {
            Ok(())
        } else {
            Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm))
        }
    }

    /// Checks that a stream has been opened. Other streams can be neither reset nor widened, and have no DATA.
    fn check_opened(&self, id: u32) -> Result<(), Http2Error> {
        let is_known = id % 2 == 1 && id <= self.newest_stream;
        if is_known { Ok(()) } else { Err(Http2Error::Connection(ErrorCode::Protocol)) }
    }

    fn data(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        self.check_opened(frame.stream)?;
        let content = frame.unpadded(payload)?;
        let is_last = frame.has(frame::END_STREAM);
        if content.is_empty() && !is_last {
            self.control_frame()?;
            if frame.len == 0 {
                // An empty frame uses no window and adds nothing to a body, so only the state of its stream can be
                // wrong.
                return self.uploads.is_open(frame.stream);
            }
        }
        let more =
            self.uploads.receive_data(frame.stream, frame.len, content.len(), is_last, self.streams.served.answers)?;
        if more > 0 {
            self.send_buffer.queue_frame(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
        if is_last {
            self.end_request(frame.stream);
        } else {
            self.go_on_discarding(frame.stream);
        }
        Ok(())
    }

    /// Handles the end of a response whose request has not ended (RFC 9113, section 8.1).
    pub(super) fn has_answered_upload(&mut self, id: u32) {
        self.uploads.mark_answered(id);
        self.go_on_discarding(id);
    }

    /// Lets the peer send more of a body whose request is answered, or stops it.
    fn go_on_discarding(&mut self, id: u32) {
        match self.uploads.discard(id) {
            DiscardAction::Nothing => {}
            DiscardAction::Widen(by) => self.send_buffer.queue_frame(frame::WINDOW_UPDATE, 0, id, &by.to_be_bytes()),
            DiscardAction::Stop => {
                self.send_buffer.queue_frame(frame::RST_STREAM, 0, id, &(ErrorCode::None as u32).to_be_bytes());
            }
        }
    }

    /// Handles `END_STREAM` on a stream.
    fn end_request(&mut self, id: u32) {
        self.streams.end_request(id);
        if let Some(later) = self.deferred.iter_mut().find(|later| later.stream == id) {
            later.is_request_open = false;
        }
    }

    fn headers(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        let fragment = frame.unpadded(payload)?;
        if frame.stream.is_multiple_of(2) {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        let is_last = frame.has(frame::END_STREAM);
        if frame.has(frame::END_HEADERS) {
            return self.fields(frame.stream, is_last, fragment);
        }
        self.block = Some(PartialFieldBlock { stream: frame.stream, is_last, bytes: fragment.to_vec(), frames: 1 });
        Ok(())
    }

    fn continuation(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        let mut block = self.block.take().ok_or(Http2Error::Connection(ErrorCode::Protocol))?;
        block.bytes.extend_from_slice(payload);
        block.frames += 1;
        if block.bytes.len() > MAX_BLOCK_BYTES || block.frames > MAX_BLOCK_FRAMES {
            return Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm));
        }
        if frame.has(frame::END_HEADERS) {
            return self.fields(block.stream, block.is_last, &block.bytes);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Decodes a complete field block and handles the request or the trailers in it. The block has to be decoded
    /// whatever it is for, because the dynamic table depends on it.
    fn fields(&mut self, id: u32, is_last: bool, block: &[u8]) -> Result<(), Http2Error> {
        self.spend(block.len() * FIELD_BYTE_COST);
        let mut fields = FIELDS.take();
        fields.clear();
        let decoded =
            self.decoder.decode(block, &mut fields).map_err(|_| Http2Error::Connection(ErrorCode::Compression));
        let done = decoded.and_then(|()| self.receive_request(id, is_last, &fields));
        FIELDS.set(fields);
        done
    }

    /// Handles the fields of a request, or the trailers of one.
    fn receive_request(&mut self, id: u32, is_last: bool, fields: &DecodedFields) -> Result<(), Http2Error> {
        if id <= self.newest_stream {
            return self.trailers(id, is_last && are_trailers(fields));
        }
        self.newest_stream = id;
        if self.end == ShutdownState::FinalGoaway {
            // According to the final GOAWAY this request is not answered, so the peer retries it elsewhere.
            if !is_last {
                self.uploads.begin(id, None);
            }
            return Ok(());
        }
        self.begun.store(true, Ordering::Relaxed);
        if self.streams.len() + self.deferred.len() >= MAX_STREAMS {
            if !is_last {
                self.uploads.begin(id, None);
            }
            return Err(Http2Error::Stream(id, ErrorCode::RefusedStream));
        }
        self.respond(id, is_last, fields)
    }

    /// Handles trailers, which are malformed unless `is_good` and the body has its declared length (RFC 9113, section
    /// 8.1).
    fn trailers(&mut self, id: u32, is_good: bool) -> Result<(), Http2Error> {
        let is_whole = self.uploads.end_by_trailers(id)?;
        self.end_request(id);
        if is_good && is_whole { Ok(()) } else { Err(Http2Error::Stream(id, ErrorCode::Protocol)) }
    }

    fn rst_stream(&mut self, frame: FrameHeader) -> Result<(), Http2Error> {
        self.check_opened(frame.stream)?;
        if frame.len != 4 {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        self.uploads.end(frame.stream);
        self.drop_response(frame.stream)
    }

    fn settings(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        if frame.stream != 0 {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        let is_reply = frame.has(frame::ACK);
        if (is_reply && frame.len > 0) || !frame.len.is_multiple_of(6) {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        for setting in payload.chunks_exact(6) {
            let value = read_be(&setting[2..]);
            match read_be(&setting[..2]) {
                2 if value > 1 => return Err(Http2Error::Connection(ErrorCode::Protocol)),
                4 => self.streams.resize(value)?,
                5 => self.streams.set_max_payload(value)?,
                // The other settings are advice, or concern server push and our encoder's dynamic table, which we do
                // not use.
                _ => {}
            }
        }
        self.has_settings = true;
        if !is_reply {
            self.send_buffer.queue_frame(frame::SETTINGS, frame::ACK, 0, &[]);
        }
        self.control_frame()
    }

    fn ping(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        if frame.stream != 0 {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        if frame.len != 8 {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        if frame.has(frame::ACK) {
            if payload == SHUTDOWN_PING && matches!(self.end, ShutdownState::Draining(_)) {
                self.queue_final_goaway();
            }
            return self.control_frame();
        }
        // A client that sends one PING at a time while a response is pending measures the round trip; that ends with
        // the response.
        let measures = self.send_buffer.is_empty() && self.streams.len() > 0;
        self.send_buffer.queue_frame(frame::PING, frame::ACK, 0, payload);
        if measures { Ok(()) } else { self.control_frame() }
    }

    fn window_update(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        if frame.len != 4 {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        if frame.stream != 0 {
            self.check_opened(frame.stream)?;
        }
        self.control_frame()?;
        match (read_be(payload) & 0x7fff_ffff, frame.stream) {
            (0, 0) => Err(Http2Error::Connection(ErrorCode::Protocol)),
            (0, id) => Err(Http2Error::Stream(id, ErrorCode::Protocol)),
            (by, id) => {
                if let Some(later) = self.deferred.iter_mut().find(|later| later.stream == id && id != 0) {
                    later.widened = later.widened.saturating_add(by);
                }
                self.streams.widen(id, by)
            }
        }
    }
}

#[cfg(test)]
mod tests;
