//! Handles the frames that a peer sends (RFC 9113, section 6).

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::frame::{self, ErrorCode, FrameHeader, Http2Error, read_be};
use super::hpack::DecodedFields;
use super::receive_window::BodyAction;
use super::request::are_trailers;
use super::{Http2Connection, MAX_STREAMS, PartialFieldBlock, SHUTDOWN_PING, ShutdownState};

/// The largest field block in bytes, encoded; the decoded size has a separate limit.
const MAX_BLOCK_BYTES: usize = 128 * 1024;
/// The largest number of frames in a field block, some of which may be empty.
const MAX_BLOCK_FRAMES: usize = 64;
/// The cost of a frame besides its bytes, in bytes handled (see [`crate::turn`]).
const FRAME_COST: usize = 64;
/// The cost of each byte of a field block, in bytes handled. Decoding takes about a microsecond for 16 references to
/// the dynamic table, which are 16 bytes.
const FIELD_BYTE_COST: usize = 64;

thread_local! {
    /// The decoded fields of the current block, reused by all connections of the thread.
    static FIELDS: RefCell<DecodedFields> = RefCell::new(DecodedFields::default());
}

impl Http2Connection {
    /// Handles received bytes, and stores an incomplete frame until more is received.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if self.unhandled_input.is_empty() {
            let handled = self.receive_frames(bytes);
            if handled < bytes.len() {
                self.unhandled_input = bytes[handled..].to_vec();
            }
            return;
        }
        let mut input = std::mem::take(&mut self.unhandled_input);
        input.extend_from_slice(bytes);
        let handled = self.receive_frames(&input);
        if handled < input.len() {
            input.drain(..handled);
            self.unhandled_input = input;
        }
    }

    /// Handles the complete frames at the start of `bytes`, and returns their length.
    fn receive_frames(&mut self, bytes: &[u8]) -> usize {
        let mut handled = self.preface.len().min(bytes.len());
        if bytes[..handled] != self.preface[..handled] {
            return self.fail_and_discard(ErrorCode::Protocol, bytes);
        }
        self.preface = &self.preface[handled..];
        self.has_unhandled_frames = false;
        self.abuse_limits.add_budget(self.streams.queued);
        while self.shutdown != ShutdownState::Failed {
            if self.send_buffer.is_full() || (self.is_turn_over && handled < bytes.len()) {
                self.has_unhandled_frames = true;
                return handled;
            }
            let error = match FrameHeader::parse(&bytes[handled..]) {
                Ok(None) => return handled,
                Ok(Some((frame, payload))) => {
                    handled += frame::HEADER_BYTES + frame.len;
                    self.spend(FRAME_COST + frame.len);
                    let error = self.handle_frame(frame, payload).err();
                    if self.partial_block.is_none() {
                        self.deadlines.clear_partial_input();
                    }
                    error
                }
                Err(error) => Some(error),
            };
            match error {
                None => {}
                Some(Http2Error::Stream(id, code)) => {
                    if let Err(Http2Error::Connection(code)) = self.reset_stream(id, code) {
                        return self.fail_and_discard(code, bytes);
                    }
                }
                Some(Http2Error::Connection(code)) => return self.fail_and_discard(code, bytes),
            }
        }
        bytes.len()
    }

    /// Ends the connection with an error, and counts all of `bytes` as handled.
    fn fail_and_discard(&mut self, code: ErrorCode, bytes: &[u8]) -> usize {
        self.fail_connection(code);
        bytes.len()
    }

    /// Ends the connection with a connection error: sends GOAWAY with an error code, and drops pending responses.
    pub(super) fn fail_connection(&mut self, code: ErrorCode) {
        self.queue_goaway(self.newest_stream, code);
        self.shutdown = ShutdownState::Failed;
        self.streams.clear();
        self.deferred.clear();
        self.request_bodies.clear();
        self.deadlines.clear();
    }

    /// Ends a stream with a stream error (RFC 9113, section 5.4.2).
    fn reset_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), Http2Error> {
        self.send_buffer.queue_frame(frame::RST_STREAM, 0, id, &(code as u32).to_be_bytes());
        self.drop_response(id)
    }

    /// Drops the response of a stream that was reset. If the response was still pending, the work for it was useless,
    /// whichever side caused the reset (CVE-2023-44487, CVE-2025-8671). An honest client causes a few such resets, an
    /// attacker very many, so they are counted.
    fn drop_response(&mut self, id: u32) -> Result<(), Http2Error> {
        self.request_bodies.remove(id);
        let deferred_before = self.deferred.len();
        self.deferred.retain(|deferred| deferred.stream != id);
        let was_pending = self.streams.remove(id) || self.deferred.len() < deferred_before;
        if was_pending && !self.abuse_limits.count_reset(Instant::now) {
            return Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm));
        }
        self.count_control_frame()
    }

    /// Handles one frame.
    fn handle_frame(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        let protocol_error = Http2Error::Connection(ErrorCode::Protocol);
        if !self.has_settings && (frame.kind != frame::SETTINGS || frame.has(frame::ACK)) {
            return Err(protocol_error);
        }
        if let Some(block) = &self.partial_block
            && (frame.kind != frame::CONTINUATION || frame.stream != block.stream)
        {
            return Err(protocol_error);
        }
        match frame.kind {
            frame::DATA => self.handle_data(frame, payload),
            frame::HEADERS => self.handle_headers(frame, payload),
            frame::CONTINUATION => self.handle_continuation(frame, payload),
            frame::RST_STREAM => self.handle_rst_stream(frame),
            frame::SETTINGS => self.handle_settings(frame, payload),
            frame::PING => self.handle_ping(frame, payload),
            frame::WINDOW_UPDATE => self.handle_window_update(frame, payload),
            frame::PUSH_PROMISE => Err(protocol_error),
            frame::PRIORITY | frame::GOAWAY if (frame.kind == frame::GOAWAY) != (frame.stream == 0) => {
                Err(protocol_error)
            }
            frame::PRIORITY if frame.len != 5 => Err(Http2Error::Stream(frame.stream, ErrorCode::FrameSize)),
            frame::GOAWAY if frame.len < 8 => Err(Http2Error::Connection(ErrorCode::FrameSize)),
            frame::GOAWAY => {
                self.shutdown = ShutdownState::GoawayReceived;
                self.count_control_frame()
            }
            // PRIORITY, and frames of unknown types (RFC 9113, section 5.5).
            _ => self.count_control_frame(),
        }
    }

    /// Counts a control frame or a stream error; a connection error if there were too many. Control frames are all but
    /// HEADERS, CONTINUATION and DATA that has content or ends its stream.
    fn count_control_frame(&mut self) -> Result<(), Http2Error> {
        if self.abuse_limits.count_control_frame(Instant::now) {
            Ok(())
        } else {
            Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm))
        }
    }

    /// Checks that a stream was opened. RST_STREAM, WINDOW_UPDATE and DATA on an idle stream are connection errors (RFC
    /// 9113, section 5.1).
    fn check_stream_opened(&self, id: u32) -> Result<(), Http2Error> {
        let is_opened = id % 2 == 1 && id <= self.newest_stream;
        if is_opened { Ok(()) } else { Err(Http2Error::Connection(ErrorCode::Protocol)) }
    }

    fn handle_data(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        self.check_stream_opened(frame.stream)?;
        let content = frame.content(payload)?;
        let ends_stream = frame.has(frame::END_STREAM);
        if content.is_empty() && !ends_stream {
            self.count_control_frame()?;
            if frame.len == 0 {
                // An empty frame uses no flow-control window and adds nothing to a body, so only the state of its
                // stream can be wrong.
                return self.receive_window.check_open(frame.stream);
            }
        }
        let increment = self.receive_window.receive_data(
            frame.stream,
            frame.len,
            content.len(),
            ends_stream,
            self.streams.queued.responses,
        )?;
        if increment > 0 {
            self.send_buffer.queue_frame(frame::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
        }
        if !self.request_bodies.receive(frame.stream, content) {
            self.receive_window.stop_collecting(frame.stream);
        }
        if ends_stream {
            self.end_request(frame.stream);
        } else {
            self.continue_receiving(frame.stream);
        }
        Ok(())
    }

    /// Handles the end of a response whose request has not ended (RFC 9113, section 8.1).
    pub(super) fn handle_unfinished_request(&mut self, id: u32) {
        self.receive_window.mark_response_queued(id);
        self.continue_receiving(id);
    }

    /// Lets the peer send more of a body that is collected or discarded, or resets the stream.
    fn continue_receiving(&mut self, id: u32) {
        match self.receive_window.next_body_action(id) {
            BodyAction::None => {}
            BodyAction::UpdateWindow(increment) => {
                self.send_buffer.queue_frame(frame::WINDOW_UPDATE, 0, id, &increment.to_be_bytes());
            }
            BodyAction::ResetStream => {
                self.send_buffer.queue_frame(frame::RST_STREAM, 0, id, &(ErrorCode::NoError as u32).to_be_bytes());
            }
        }
    }

    /// Handles `END_STREAM` on a stream.
    fn end_request(&mut self, id: u32) {
        self.request_bodies.complete(id);
        self.streams.end_request(id);
        if let Some(deferred) = self.deferred.iter_mut().find(|deferred| deferred.stream == id) {
            deferred.is_request_open = false;
        }
    }

    fn handle_headers(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        let fragment = frame.content(payload)?;
        if frame.stream.is_multiple_of(2) {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        let ends_stream = frame.has(frame::END_STREAM);
        if frame.has(frame::END_HEADERS) {
            return self.handle_field_block(frame.stream, ends_stream, fragment);
        }
        self.partial_block =
            Some(PartialFieldBlock { stream: frame.stream, ends_stream, bytes: fragment.to_vec(), frame_count: 1 });
        Ok(())
    }

    fn handle_continuation(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        let mut block = self.partial_block.take().ok_or(Http2Error::Connection(ErrorCode::Protocol))?;
        block.bytes.extend_from_slice(payload);
        block.frame_count += 1;
        if block.bytes.len() > MAX_BLOCK_BYTES || block.frame_count > MAX_BLOCK_FRAMES {
            return Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm));
        }
        if frame.has(frame::END_HEADERS) {
            return self.handle_field_block(block.stream, block.ends_stream, &block.bytes);
        }
        self.partial_block = Some(block);
        Ok(())
    }

    /// Decodes a complete field block and handles the request or the trailers in it. Every block has to be decoded,
    /// because the dynamic table depends on it.
    fn handle_field_block(&mut self, id: u32, ends_stream: bool, block: &[u8]) -> Result<(), Http2Error> {
        self.spend(block.len() * FIELD_BYTE_COST);
        let mut fields = FIELDS.take();
        fields.clear();
        let decoded =
            self.decoder.decode(block, &mut fields).map_err(|_| Http2Error::Connection(ErrorCode::Compression));
        let result = decoded.and_then(|()| self.handle_request(id, ends_stream, &fields));
        FIELDS.set(fields);
        result
    }

    /// Handles the fields of a request, or the trailers of one.
    fn handle_request(&mut self, id: u32, ends_stream: bool, fields: &DecodedFields) -> Result<(), Http2Error> {
        if id <= self.newest_stream {
            return self.handle_trailers(id, ends_stream && are_trailers(fields));
        }
        self.newest_stream = id;
        if self.shutdown == ShutdownState::FinalGoawaySent {
            // According to the final GOAWAY this request is not answered, so the peer retries it elsewhere.
            if !ends_stream {
                self.receive_window.add(id, None);
            }
            return Ok(());
        }
        self.request_received.store(true, Ordering::Relaxed);
        if self.streams.len() + self.deferred.len() >= MAX_STREAMS {
            if !ends_stream {
                self.receive_window.add(id, None);
            }
            return Err(Http2Error::Stream(id, ErrorCode::RefusedStream));
        }
        self.answer_request(id, ends_stream, fields)
    }

    /// Handles trailers. They are malformed unless `is_valid` is set and the body has its declared length (RFC 9113,
    /// section 8.1).
    fn handle_trailers(&mut self, id: u32, is_valid: bool) -> Result<(), Http2Error> {
        let has_declared_length = self.receive_window.end_by_trailers(id)?;
        self.end_request(id);
        if is_valid && has_declared_length { Ok(()) } else { Err(Http2Error::Stream(id, ErrorCode::Protocol)) }
    }

    fn handle_rst_stream(&mut self, frame: FrameHeader) -> Result<(), Http2Error> {
        self.check_stream_opened(frame.stream)?;
        if frame.len != 4 {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        self.receive_window.end(frame.stream);
        self.drop_response(frame.stream)
    }

    fn handle_settings(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        if frame.stream != 0 {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        let is_ack = frame.has(frame::ACK);
        if (is_ack && frame.len > 0) || !frame.len.is_multiple_of(6) {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        for setting in payload.chunks_exact(6) {
            let value = read_be(&setting[2..]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                frame::SETTINGS_ENABLE_PUSH if value > 1 => return Err(Http2Error::Connection(ErrorCode::Protocol)),
                frame::SETTINGS_INITIAL_WINDOW_SIZE => {
                    self.streams.set_initial_window(value)?;
                    if !self.deferred.iter().all(|deferred| self.streams.fits_new_window(deferred.window_increment)) {
                        return Err(Http2Error::Connection(ErrorCode::FlowControl));
                    }
                }
                frame::SETTINGS_MAX_FRAME_SIZE => self.streams.set_max_payload(value)?,
                // The other settings are advisory, or they concern server push and the encoder's dynamic table, which
                // this server does not use.
                _ => {}
            }
        }
        self.has_settings = true;
        if !is_ack {
            self.send_buffer.queue_frame(frame::SETTINGS, frame::ACK, 0, &[]);
        }
        self.count_control_frame()
    }

    fn handle_ping(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        if frame.stream != 0 {
            return Err(Http2Error::Connection(ErrorCode::Protocol));
        }
        if frame.len != 8 {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        }
        if frame.has(frame::ACK) {
            if payload == SHUTDOWN_PING && matches!(self.shutdown, ShutdownState::Draining(_)) {
                self.queue_final_goaway();
            }
            return self.count_control_frame();
        }
        // A client that sends one PING at a time while a response is pending measures the round trip; that ends with
        // the response.
        let is_rtt_measurement = self.send_buffer.is_empty() && self.streams.len() > 0;
        self.send_buffer.queue_frame(frame::PING, frame::ACK, 0, payload);
        if is_rtt_measurement { Ok(()) } else { self.count_control_frame() }
    }

    fn handle_window_update(&mut self, frame: FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        let Ok(increment) = payload.try_into().map(u32::from_be_bytes) else {
            return Err(Http2Error::Connection(ErrorCode::FrameSize));
        };
        if frame.stream != 0 {
            self.check_stream_opened(frame.stream)?;
        }
        self.count_control_frame()?;
        match (increment & 0x7fff_ffff, frame.stream) {
            (0, 0) => Err(Http2Error::Connection(ErrorCode::Protocol)),
            (0, id) => Err(Http2Error::Stream(id, ErrorCode::Protocol)),
            (increment, id) => {
                if let Some(deferred) = self.deferred.iter_mut().find(|deferred| deferred.stream == id && id != 0) {
                    deferred.window_increment = deferred.window_increment.saturating_add(increment);
                    if !self.streams.fits_new_window(deferred.window_increment) {
                        return Err(Http2Error::Stream(id, ErrorCode::FlowControl));
                    }
                }
                self.streams.increase_window(id, increment)
            }
        }
    }
}

#[cfg(test)]
mod tests;
