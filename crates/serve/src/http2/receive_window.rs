//! Receive-side flow control: the windows of the connection and of its streams. Request bodies are read; all but those
//! on which a response depends (`request_bodies`) are discarded. Decides on which streams DATA is allowed (RFC 9113,
//! section 5.1), how many bytes of it, and when WINDOW_UPDATE lets the peer send more.

use std::collections::VecDeque;

use super::frame::{ErrorCode, Http2Error};

/// The flow-control window of the connection and of each stream, in bytes: the same number as
/// [`super::streams::INITIAL_WINDOW_BYTES`] (RFC 9113, section 6.9.2).
const WINDOW_BYTES: usize = 65_535;
/// The number of received bytes after which a WINDOW_UPDATE is sent for the connection.
const MIN_CONNECTION_INCREMENT: usize = 32 * 1024;
/// The largest number of bodies that are tracked. A body is tracked after this server has sent RST_STREAM as well,
/// because DATA may still arrive.
const MAX_TRACKED_BODIES: usize = 256;
/// The number of bytes that may be discarded on a connection before its first response. A peer that sends more ignores
/// the responses and resets that stop it.
const MAX_CONNECTION_DISCARD_BYTES: u64 = 16 << 20;
/// The number of further bytes that may be discarded for each completed response.
const DISCARDED_BYTES_PER_RESPONSE: u64 = 64 << 10;

/// The longest request body in bytes, counted from its first byte, that is read to its end after its response was
/// queued. The stream of a longer one is reset. A client that is stopped by RST_STREAM may lose the response with it
/// (curl before 8), so a short body is read to its end.
const MAX_BODY_DISCARD_BYTES: u64 = 4 << 20;
/// The smallest increment of a WINDOW_UPDATE for a stream.
const MIN_STREAM_INCREMENT: u32 = MIN_CONNECTION_INCREMENT as u32;

/// The action that lets a peer send more of a request body, or stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyAction {
    /// Nothing is sent.
    None,
    /// Send a WINDOW_UPDATE for the stream with this increment.
    UpdateWindow(u32),
    /// Send RST_STREAM.
    ResetStream,
}

/// The receive window of a connection, and those of the streams whose request bodies have not ended.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    bodies: VecDeque<TrackedBody>,
    /// The newest stream whose body was removed from the list although it may still arrive.
    newest_removed: u32,
    /// Bytes received since the last WINDOW_UPDATE of the connection.
    unacknowledged: usize,
    /// Bytes received since the connection began, except for those of bodies that are collected.
    discarded: u64,
}

/// A request body that is received, and the receive window of its stream.
#[derive(Debug)]
struct TrackedBody {
    /// The stream.
    id: u32,
    /// Bytes of the body that were received.
    received: u64,
    /// Used bytes of the stream's flow-control window, padding included.
    window_used: u32,
    /// Whether the response has been queued completely, so that the rest of the body is only discarded.
    is_response_queued: bool,
    /// Whether RST_STREAM was sent to stop the peer.
    is_reset: bool,
    /// Whether the body is collected, so that the response needs all of it.
    is_collected: bool,
    /// The declared Content-Length.
    content_length: Option<u64>,
}

impl ReceiveWindow {
    /// Starts tracking the body of a request. `content_length` is its declared Content-Length.
    pub(super) fn add(&mut self, id: u32, content_length: Option<u64>) {
        if self.bodies.len() == MAX_TRACKED_BODIES
            && let Some(oldest) = self.bodies.pop_front()
        {
            self.newest_removed = oldest.id;
        }
        self.bodies.push_back(TrackedBody {
            id,
            received: 0,
            window_used: 0,
            is_response_queued: false,
            is_reset: false,
            is_collected: false,
            content_length,
        });
    }

    /// Marks the body of a stream as collected.
    pub(super) fn collect(&mut self, id: u32) {
        self.set_collected(id, true);
    }

    /// Marks the body of a stream as discarded from now on.
    pub(super) fn stop_collecting(&mut self, id: u32) {
        self.set_collected(id, false);
    }

    fn set_collected(&mut self, id: u32, is_collected: bool) {
        if let Some(body) = self.bodies.iter_mut().find(|body| body.id == id) {
            body.is_collected = is_collected;
        }
    }

    /// Stops tracking the body of a stream that the peer has reset; returns whether it was tracked.
    pub(super) fn end(&mut self, id: u32) -> bool {
        let index = self.bodies.iter().position(|body| body.id == id);
        index.and_then(|index| self.bodies.remove(index)).is_some()
    }

    /// Ends a request whose trailers were received. Returns whether its body has the declared length (RFC 9113, section
    /// 8.1.1).
    pub(super) fn end_by_trailers(&mut self, id: u32) -> Result<bool, Http2Error> {
        match self.bodies.iter().position(|body| body.id == id).and_then(|index| self.bodies.remove(index)) {
            Some(body) => Ok(body.content_length.is_none_or(|length| length == body.received)),
            None if id <= self.newest_removed => Ok(true),
            None => Err(Http2Error::Connection(ErrorCode::StreamClosed)),
        }
    }

    /// Records that the response to a request has been queued completely before the request ended.
    pub(super) fn mark_response_queued(&mut self, id: u32) {
        if let Some(body) = self.bodies.iter_mut().find(|body| body.id == id) {
            body.is_response_queued = true;
        }
    }

    /// Returns the next action for a body of which a part was received, or whose response was just queued completely.
    /// Unless the body is collected, the window of a stream is not updated before its response is queued.
    pub(super) fn next_body_action(&mut self, id: u32) -> BodyAction {
        let Some(body) = self.bodies.iter_mut().find(|body| body.id == id) else { return BodyAction::None };
        if !(body.is_response_queued || body.is_collected) || body.is_reset {
            return BodyAction::None;
        }
        if !body.is_collected
            && (body.received > MAX_BODY_DISCARD_BYTES
                || body.content_length.is_some_and(|length| length > MAX_BODY_DISCARD_BYTES))
        {
            body.is_reset = true;
            return BodyAction::ResetStream;
        }
        if body.window_used < MIN_STREAM_INCREMENT {
            return BodyAction::None;
        }
        BodyAction::UpdateWindow(std::mem::take(&mut body.window_used))
    }

    /// Checks that DATA is allowed on a stream; an error if its request has ended (RFC 9113, section 5.1).
    pub(super) fn check_open(&self, id: u32) -> Result<(), Http2Error> {
        let is_open = id <= self.newest_removed || self.bodies.iter().any(|body| body.id == id);
        if is_open { Ok(()) } else { Err(Http2Error::Connection(ErrorCode::StreamClosed)) }
    }

    /// Counts a DATA frame that uses `len` bytes of the windows, of which `content` belong to the body. Returns the
    /// increment of the WINDOW_UPDATE that has to be sent for the connection, or 0 for none. `responses` is the number
    /// of completed responses.
    pub(super) fn receive_data(
        &mut self,
        id: u32,
        len: usize,
        content: usize,
        ends_stream: bool,
        responses: u64,
    ) -> Result<u32, Http2Error> {
        self.unacknowledged += len;
        // The content of a collected body has its own bound; padding has none.
        let is_collected = self.bodies.iter().any(|body| body.id == id && body.is_collected);
        self.discarded += if is_collected { len - content } else { len } as u64;
        if self.unacknowledged > WINDOW_BYTES {
            return Err(Http2Error::Connection(ErrorCode::FlowControl));
        }
        if self.discarded > MAX_CONNECTION_DISCARD_BYTES + responses.saturating_mul(DISCARDED_BYTES_PER_RESPONSE) {
            return Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm));
        }
        if let Some(index) = self.bodies.iter().position(|body| body.id == id) {
            let body = &mut self.bodies[index];
            body.received += content as u64;
            body.window_used += len as u32;
            if body.window_used as usize > WINDOW_BYTES {
                return Err(Http2Error::Connection(ErrorCode::FlowControl));
            }
            let (received, declared) = (body.received, body.content_length);
            if ends_stream {
                self.bodies.remove(index);
            }
            if declared.is_some_and(|length| received > length || (ends_stream && received < length)) {
                return Err(Http2Error::Stream(id, ErrorCode::Protocol));
            }
        } else if id > self.newest_removed {
            return Err(Http2Error::Connection(ErrorCode::StreamClosed));
        }
        let is_due = self.unacknowledged >= MIN_CONNECTION_INCREMENT;
        Ok(if is_due { std::mem::take(&mut self.unacknowledged) as u32 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_body_bytes_are_limited_by_flow_control_and_in_total() {
        let mut receive_window = ReceiveWindow::default();
        receive_window.add(1, None);
        assert_eq!(receive_window.receive_data(1, 16_384, 16_000, false, 0), Ok(0));
        assert_eq!(receive_window.receive_data(1, 16_384, 16_000, false, 0), Ok(32_768));
        assert_eq!(receive_window.receive_data(1, 16_384, 16_384, false, 0), Ok(0));
        assert_eq!(
            receive_window.receive_data(1, 20_000, 20_000, false, 0),
            Err(Http2Error::Connection(ErrorCode::FlowControl))
        );
        let mut receive_window = ReceiveWindow::default();
        for id in (1..).step_by(2) {
            receive_window.add(id, None);
            match receive_window.receive_data(id, 16_384, 16_384, true, 0) {
                Ok(_) => assert!(id < 2 * 1024, "{id}"),
                Err(error) => {
                    assert_eq!((error, id), (Http2Error::Connection(ErrorCode::EnhanceYourCalm), 2 * 1024 + 1));
                    break;
                }
            }
        }
    }

    #[test]
    fn a_discarded_body_ends_once_and_must_match_its_content_length() {
        let mut receive_window = ReceiveWindow::default();
        receive_window.add(1, Some(5));
        assert_eq!(receive_window.receive_data(1, 5, 5, true, 0), Ok(0));
        assert_eq!(receive_window.receive_data(1, 0, 0, true, 0), Err(Http2Error::Connection(ErrorCode::StreamClosed)));
        for (length, received, ends_stream) in [(5, 6, false), (5, 4, true)] {
            receive_window.add(3, Some(length));
            assert_eq!(
                receive_window.receive_data(3, received, received, ends_stream, 0),
                Err(Http2Error::Stream(3, ErrorCode::Protocol))
            );
            receive_window.end(3);
        }
        assert!(!receive_window.end(3));
        for (length, expected) in [(None, true), (Some(5), true), (Some(6), false)] {
            receive_window.add(5, length);
            assert_eq!(receive_window.receive_data(5, 5, 5, false, 0), Ok(0));
            assert_eq!(receive_window.end_by_trailers(5), Ok(expected), "{length:?} before trailers");
            assert_eq!(receive_window.end_by_trailers(5), Err(Http2Error::Connection(ErrorCode::StreamClosed)));
        }
    }

    #[test]
    fn a_discarded_body_may_finish_after_the_response_unless_it_is_too_long() {
        let mut receive_window = ReceiveWindow::default();
        let send = |receive_window: &mut ReceiveWindow, id| {
            receive_window.receive_data(id, 16_384, 16_384, false, 0).map(|_| receive_window.next_body_action(id))
        };
        receive_window.add(1, None);
        assert_eq!(
            (send(&mut receive_window, 1), send(&mut receive_window, 1)),
            (Ok(BodyAction::None), Ok(BodyAction::None))
        );
        assert_eq!(receive_window.next_body_action(1), BodyAction::None, "its response is still pending");
        receive_window.mark_response_queued(1);
        assert_eq!(
            (receive_window.next_body_action(1), receive_window.next_body_action(1)),
            (BodyAction::UpdateWindow(32_768), BodyAction::None)
        );
        for sent in 3..=MAX_BODY_DISCARD_BYTES / 16_384 {
            let expected = if sent % 2 == 0 { BodyAction::UpdateWindow(32_768) } else { BodyAction::None };
            assert_eq!(send(&mut receive_window, 1), Ok(expected));
        }
        // Bytes that were already on the network still arrive.
        for expected in [BodyAction::ResetStream, BodyAction::None, BodyAction::None] {
            assert_eq!(send(&mut receive_window, 1), Ok(expected));
        }
        receive_window.add(3, Some(MAX_BODY_DISCARD_BYTES + 1));
        receive_window.mark_response_queued(3);
        assert_eq!(receive_window.next_body_action(3), BodyAction::ResetStream, "the declared length is too large");
        assert_eq!(receive_window.next_body_action(5), BodyAction::None);
    }

    #[test]
    fn a_collected_body_gets_its_window_before_the_response_and_does_not_count_as_discarded() {
        let mut receive_window = ReceiveWindow::default();
        receive_window.add(1, None);
        receive_window.collect(1);
        for sent in 1..=2 * MAX_CONNECTION_DISCARD_BYTES / 16_384 {
            assert!(receive_window.receive_data(1, 16_384, 16_384, false, 0).is_ok(), "{sent}");
            let expected = if sent % 2 == 0 { BodyAction::UpdateWindow(32_768) } else { BodyAction::None };
            assert_eq!(receive_window.next_body_action(1), expected, "{sent}");
        }
        assert_eq!(receive_window.discarded, 0);
        assert!(receive_window.receive_data(1, 256, 1, false, 0).is_ok());
        assert_eq!(receive_window.discarded, 255, "padding is in no body");
        // The rest of a body that is too large is discarded like any other.
        receive_window.stop_collecting(1);
        assert!(receive_window.receive_data(1, 16_384, 16_384, false, 0).is_ok());
        assert_eq!(receive_window.next_body_action(1), BodyAction::None);
        receive_window.mark_response_queued(1);
        assert_eq!(receive_window.next_body_action(1), BodyAction::ResetStream);
        assert_eq!(receive_window.discarded, 255 + 16_384);
    }

    #[test]
    fn frames_for_evicted_discarded_bodies_are_accepted() {
        let mut receive_window = ReceiveWindow::default();
        (0..300).for_each(|n| receive_window.add(n * 2 + 1, None));
        assert_eq!(receive_window.receive_data(1, 1, 1, true, 0), Ok(0));
        assert_eq!(receive_window.end_by_trailers(3), Ok(true));
        assert_eq!(receive_window.receive_data(599, 1, 1, true, 0), Ok(0));
        assert_eq!(
            receive_window.receive_data(601, 1, 1, true, 0),
            Err(Http2Error::Connection(ErrorCode::StreamClosed))
        );
        assert_eq!(receive_window.bodies.len(), MAX_TRACKED_BODIES - 1);
    }

    #[test]
    fn padding_uses_flow_control_windows_but_does_not_count_as_body() {
        let mut receive_window = ReceiveWindow::default();
        receive_window.add(1, Some(5));
        assert_eq!(receive_window.receive_data(1, 32_767, 2, false, 0), Ok(0));
        assert_eq!(receive_window.receive_data(1, 1, 0, false, 0), Ok(32_768), "padding counts as well");
        assert_eq!(receive_window.receive_data(1, 100, 3, true, 0), Ok(0));
        receive_window.add(3, Some(5));
        assert_eq!(receive_window.receive_data(3, 256, 6, false, 0), Err(Http2Error::Stream(3, ErrorCode::Protocol)));
    }

    #[test]
    fn data_beyond_the_last_byte_of_a_window_is_a_flow_control_error() {
        let flow_control_error = Err(Http2Error::Connection(ErrorCode::FlowControl));
        for (len, expected) in [(65_535, Ok(65_535)), (65_536, flow_control_error)] {
            let mut receive_window = ReceiveWindow::default();
            receive_window.add(1, None);
            assert_eq!(receive_window.receive_data(1, len, len, false, 0), expected, "the window of the connection");
        }
        for (len, expected) in [(32_767, Ok(0)), (32_768, flow_control_error)] {
            let mut receive_window = ReceiveWindow::default();
            receive_window.add(1, None);
            assert_eq!(receive_window.receive_data(1, 32_768, 32_768, false, 0), Ok(32_768));
            assert_eq!(
                receive_window.receive_data(1, len, len, false, 0),
                expected,
                "the window of the stream, which gets no update"
            );
        }
        // Each stream has its own window.
        let mut receive_window = ReceiveWindow::default();
        for id in [1, 3] {
            receive_window.add(id, None);
            assert_eq!(receive_window.receive_data(id, 60_000, 60_000, false, 0), Ok(60_000));
        }
    }

    #[test]
    fn each_response_allows_another_64_kib_of_discarded_body() {
        let mut receive_window = ReceiveWindow::default();
        let mut send = |len: u64, responses| {
            receive_window.add(1, None);
            let result = receive_window.receive_data(1, len as usize, len as usize, true, responses);
            receive_window.end(1);
            result
        };
        for _ in 0..MAX_CONNECTION_DISCARD_BYTES / 32_768 {
            assert_eq!(send(32_768, 0), Ok(32_768));
        }
        assert_eq!((send(32_768, 1), send(32_768, 1)), (Ok(32_768), Ok(32_768)));
        assert_eq!(send(1, 1), Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm)));
        assert_eq!(send(1, 2), Ok(0), "there was another response");
    }

    #[test]
    fn a_discarded_body_of_exactly_the_maximum_length_is_not_reset() {
        let mut receive_window = ReceiveWindow::default();
        receive_window.add(1, Some(MAX_BODY_DISCARD_BYTES));
        receive_window.mark_response_queued(1);
        assert_eq!(receive_window.next_body_action(1), BodyAction::None);
        for _ in 0..MAX_BODY_DISCARD_BYTES / 32_768 {
            assert_eq!(receive_window.receive_data(1, 32_768, 32_768, false, 0), Ok(32_768));
            assert_eq!(receive_window.next_body_action(1), BodyAction::UpdateWindow(32_768));
        }
        assert_eq!(receive_window.receive_data(1, 0, 0, true, 0), Ok(0));
        assert_eq!(receive_window.check_open(1), Err(Http2Error::Connection(ErrorCode::StreamClosed)));
    }
}
