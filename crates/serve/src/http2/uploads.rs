//! The request bodies of a connection, which are read and discarded: which DATA may still come (RFC 9113, section 5.1),
//! and how much of it a peer may send.

use std::collections::VecDeque;

use super::frame::{ErrorCode, Http2Error};

/// The window of the connection and of each stream, in bytes: the initial value (RFC 9113, section 6.9.2).
const WINDOW_BYTES: usize = 65_535;
/// The number of received bytes after which the connection's window is widened again.
const WINDOW_UPDATE_BYTES: usize = 32 * 1024;
/// The number of bodies that are remembered: DATA may still arrive after a `RST_STREAM` that stops the peer.
const MAX_UPLOADS: usize = 256;
/// The number of bytes that may be discarded on a connection, and the increase for each completed response. A peer that
/// sends more does not stop when it should.
const MAX_DISCARDED_BYTES: u64 = 16 << 20;
const DISCARDED_BYTES_PER_RESPONSE: u64 = 64 << 10;

/// The number of bytes of a body that are read and discarded after its response. A client that is stopped by
/// `RST_STREAM` may lose the response with it (curl before 8), so a short body may end by itself.
const MAX_DISCARDED_BODY_BYTES: u64 = 4 << 20;
/// The least number of bytes by which the window of a stream is widened.
const MIN_WINDOW_UPDATE: u32 = WINDOW_UPDATE_BYTES as u32;

/// The reaction to a part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiscardAction {
    Nothing,
    /// Widen the window of the stream by this many bytes.
    Widen(u32),
    /// Stop the peer by `RST_STREAM`.
    Stop,
}

/// The request bodies of a connection that have not ended.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    list: VecDeque<Upload>,
    /// The newest stream that is no longer remembered although its body may still come.
    forgotten: u32,
    /// Bytes received since the connection's window was last widened.
    unacknowledged: usize,
    discarded: u64,
}

#[derive(Debug)]
struct Upload {
    id: u32,
    /// Bytes of the body that have come.
    received: u64,
    /// Bytes of the stream's window that are used up, padding included.
    used: u32,
    /// Whether the response has been queued completely, so that the rest of the body is only discarded.
    is_answered: bool,
    /// Whether the peer was stopped by `RST_STREAM`.
    is_stopped: bool,
    /// The declared Content-Length.
    length: Option<u64>,
}

impl Uploads {
    /// Adds a request whose body is still to come. `length` is its declared Content-Length.
    pub(super) fn begin(&mut self, id: u32, length: Option<u64>) {
        if self.list.len() == MAX_UPLOADS
            && let Some(oldest) = self.list.pop_front()
        {
            self.forgotten = oldest.id;
        }
        self.list.push_back(Upload { id, received: 0, used: 0, is_answered: false, is_stopped: false, length });
    }

    /// Removes a request that has ended or was reset; returns whether it had not ended.
    pub(super) fn end(&mut self, id: u32) -> bool {
        let at = self.list.iter().position(|upload| upload.id == id);
        at.and_then(|at| self.list.remove(at)).is_some()
    }

    /// Ends a request whose trailers have come. Returns whether its body has the declared length (RFC 9113, section
    /// 8.1.1).
    pub(super) fn end_by_trailers(&mut self, id: u32) -> Result<bool, Http2Error> {
        match self.list.iter().position(|upload| upload.id == id).and_then(|at| self.list.remove(at)) {
            Some(upload) => Ok(upload.length.is_none_or(|length| length == upload.received)),
            None if id <= self.forgotten => Ok(true),
            None => Err(Http2Error::Connection(ErrorCode::StreamClosed)),
        }
    }

    /// Records that the response to a request has been queued completely before the request ended.
    pub(super) fn mark_answered(&mut self, id: u32) {
        if let Some(upload) = self.list.iter_mut().find(|upload| upload.id == id) {
            upload.is_answered = true;
        }
    }

    /// Returns the reaction for a body of which a part has come, or whose response was just queued completely. Before
    /// the response the window of its stream is not widened.
    pub(super) fn discard(&mut self, id: u32) -> DiscardAction {
        let Some(upload) = self.list.iter_mut().find(|upload| upload.id == id) else { return DiscardAction::Nothing };
        if !upload.is_answered || upload.is_stopped {
            return DiscardAction::Nothing;
        }
        if upload.received > MAX_DISCARDED_BODY_BYTES
            || upload.length.is_some_and(|length| length > MAX_DISCARDED_BODY_BYTES)
        {
            upload.is_stopped = true;
            return DiscardAction::Stop;
        }
        if upload.used < MIN_WINDOW_UPDATE {
            return DiscardAction::Nothing;
        }
        DiscardAction::Widen(std::mem::take(&mut upload.used))
    }

    /// Checks that DATA may come on a stream: an error if its request has ended (RFC 9113, section 5.1).
    pub(super) fn is_open(&self, id: u32) -> Result<(), Http2Error> {
        let is_open = id <= self.forgotten || self.list.iter().any(|upload| upload.id == id);
        if is_open { Ok(()) } else { Err(Http2Error::Connection(ErrorCode::StreamClosed)) }
    }

    /// Accounts for a DATA frame that uses `len` bytes of the windows, of which `content` belong to the body. Returns
    /// by how many bytes the connection's window is to be widened now, which may be 0. `answered` is the number of
    /// completed responses.
    pub(super) fn receive_data(
        &mut self,
        id: u32,
        len: usize,
        content: usize,
        is_last: bool,
        answered: u64,
    ) -> Result<u32, Http2Error> {
        self.unacknowledged += len;
        self.discarded += len as u64;
        if self.unacknowledged > WINDOW_BYTES {
            return Err(Http2Error::Connection(ErrorCode::FlowControl));
        }
        if self.discarded > MAX_DISCARDED_BYTES + answered.saturating_mul(DISCARDED_BYTES_PER_RESPONSE) {
            return Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm));
        }
        if let Some(at) = self.list.iter().position(|upload| upload.id == id) {
            let upload = &mut self.list[at];
            upload.received += content as u64;
            upload.used += len as u32;
            if upload.used as usize > WINDOW_BYTES {
                return Err(Http2Error::Connection(ErrorCode::FlowControl));
            }
            let (came, length) = (upload.received, upload.length);
            if is_last {
                self.list.remove(at);
            }
            if length.is_some_and(|length| came > length || (is_last && came < length)) {
                return Err(Http2Error::Stream(id, ErrorCode::Protocol));
            }
        } else if id > self.forgotten {
            return Err(Http2Error::Connection(ErrorCode::StreamClosed));
        }
        let is_time = self.unacknowledged >= WINDOW_UPDATE_BYTES;
        Ok(if is_time { std::mem::take(&mut self.unacknowledged) as u32 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_vain_is_bounded_by_windows_and_in_all() {
        let mut uploads = Uploads::default();
        uploads.begin(1, None);
        assert_eq!(uploads.receive_data(1, 16_384, 16_000, false, 0), Ok(0));
        assert_eq!(uploads.receive_data(1, 16_384, 16_000, false, 0), Ok(32_768));
        assert_eq!(uploads.receive_data(1, 16_384, 16_384, false, 0), Ok(0));
        assert_eq!(
            uploads.receive_data(1, 20_000, 20_000, false, 0),
            Err(Http2Error::Connection(ErrorCode::FlowControl))
        );
        let mut uploads = Uploads::default();
        for id in (1..).step_by(2) {
            uploads.begin(id, None);
            match uploads.receive_data(id, 16_384, 16_384, true, 0) {
                Ok(_) => assert!(id < 2 * 1024, "{id}"),
                Err(fault) => {
                    assert_eq!((fault, id), (Http2Error::Connection(ErrorCode::EnhanceYourCalm), 2 * 1024 + 1));
                    break;
                }
            }
        }
    }

    #[test]
    fn a_body_ends_once_and_is_as_long_as_it_said() {
        let mut uploads = Uploads::default();
        uploads.begin(1, Some(5));
        assert_eq!(uploads.receive_data(1, 5, 5, true, 0), Ok(0));
        assert_eq!(uploads.receive_data(1, 0, 0, true, 0), Err(Http2Error::Connection(ErrorCode::StreamClosed)));
        for (length, came, is_last) in [(5, 6, false), (5, 4, true)] {
            uploads.begin(3, Some(length));
            assert_eq!(
                uploads.receive_data(3, came, came, is_last, 0),
                Err(Http2Error::Stream(3, ErrorCode::Protocol))
            );
            uploads.end(3);
        }
        assert!(!uploads.end(3));
        for (length, expected) in [(None, true), (Some(5), true), (Some(6), false)] {
            uploads.begin(5, length);
            assert_eq!(uploads.receive_data(5, 5, 5, false, 0), Ok(0));
            assert_eq!(uploads.end_by_trailers(5), Ok(expected), "{length:?} before trailers");
            assert_eq!(uploads.end_by_trailers(5), Err(Http2Error::Connection(ErrorCode::StreamClosed)));
        }
    }

    #[test]
    fn a_short_body_may_end_by_itself_after_its_answer_and_a_long_one_is_stopped() {
        let mut uploads = Uploads::default();
        let send =
            |uploads: &mut Uploads, id| uploads.receive_data(id, 16_384, 16_384, false, 0).map(|_| uploads.discard(id));
        uploads.begin(1, None);
        assert_eq!(
            (send(&mut uploads, 1), send(&mut uploads, 1)),
            (Ok(DiscardAction::Nothing), Ok(DiscardAction::Nothing))
        );
        assert_eq!(uploads.discard(1), DiscardAction::Nothing, "it waits for its answer");
        uploads.mark_answered(1);
        assert_eq!((uploads.discard(1), uploads.discard(1)), (DiscardAction::Widen(32_768), DiscardAction::Nothing));
        for sent in 3..=MAX_DISCARDED_BODY_BYTES / 16_384 {
            let expected = if sent % 2 == 0 { DiscardAction::Widen(32_768) } else { DiscardAction::Nothing };
            assert_eq!(send(&mut uploads, 1), Ok(expected));
        }
        // Bytes that were already on the network still come.
        for expected in [DiscardAction::Stop, DiscardAction::Nothing, DiscardAction::Nothing] {
            assert_eq!(send(&mut uploads, 1), Ok(expected));
        }
        uploads.begin(3, Some(MAX_DISCARDED_BODY_BYTES + 1));
        uploads.mark_answered(3);
        assert_eq!(uploads.discard(3), DiscardAction::Stop, "it says itself that it is too long");
        assert_eq!(uploads.discard(5), DiscardAction::Nothing);
    }

    #[test]
    fn what_was_forgotten_may_still_come() {
        let mut uploads = Uploads::default();
        (0..300).for_each(|n| uploads.begin(n * 2 + 1, None));
        assert_eq!(uploads.receive_data(1, 1, 1, true, 0), Ok(0));
        assert_eq!(uploads.end_by_trailers(3), Ok(true));
        assert_eq!(uploads.receive_data(599, 1, 1, true, 0), Ok(0));
        assert_eq!(uploads.receive_data(601, 1, 1, true, 0), Err(Http2Error::Connection(ErrorCode::StreamClosed)));
        assert_eq!(uploads.list.len(), MAX_UPLOADS - 1);
    }

    #[test]
    fn padding_takes_of_windows_and_is_no_part_of_a_body() {
        let mut uploads = Uploads::default();
        uploads.begin(1, Some(5));
        assert_eq!(uploads.receive_data(1, 32_767, 2, false, 0), Ok(0));
        assert_eq!(uploads.receive_data(1, 1, 0, false, 0), Ok(32_768), "all that came, of whatever kind");
        assert_eq!(uploads.receive_data(1, 100, 3, true, 0), Ok(0));
        uploads.begin(3, Some(5));
        assert_eq!(uploads.receive_data(3, 256, 6, false, 0), Err(Http2Error::Stream(3, ErrorCode::Protocol)));
    }

    #[test]
    fn a_window_may_be_used_to_its_last_byte_and_no_further() {
        let closed = Err(Http2Error::Connection(ErrorCode::FlowControl));
        for (len, expected) in [(65_535, Ok(65_535)), (65_536, closed)] {
            let mut uploads = Uploads::default();
            uploads.begin(1, None);
            assert_eq!(uploads.receive_data(1, len, len, false, 0), expected, "the connection's");
        }
        for (len, expected) in [(32_767, Ok(0)), (32_768, closed)] {
            let mut uploads = Uploads::default();
            uploads.begin(1, None);
            assert_eq!(uploads.receive_data(1, 32_768, 32_768, false, 0), Ok(32_768));
            assert_eq!(uploads.receive_data(1, len, len, false, 0), expected, "the stream's, which is not widened");
        }
        // Each stream has its own window.
        let mut uploads = Uploads::default();
        for id in [1, 3] {
            uploads.begin(id, None);
            assert_eq!(uploads.receive_data(id, 60_000, 60_000, false, 0), Ok(60_000));
        }
    }

    #[test]
    fn each_answer_lets_64_kib_more_come_in_vain() {
        let mut uploads = Uploads::default();
        let mut send = |len: u64, answered| {
            uploads.begin(1, None);
            let came = uploads.receive_data(1, len as usize, len as usize, true, answered);
            uploads.end(1);
            came
        };
        for _ in 0..MAX_DISCARDED_BYTES / 32_768 {
            assert_eq!(send(32_768, 0), Ok(32_768));
        }
        assert_eq!((send(32_768, 1), send(32_768, 1)), (Ok(32_768), Ok(32_768)));
        assert_eq!(send(1, 1), Err(Http2Error::Connection(ErrorCode::EnhanceYourCalm)));
        assert_eq!(send(1, 2), Ok(0), "it has had another answer");
    }

    #[test]
    fn a_body_of_the_longest_that_is_discarded_is_not_stopped() {
        let mut uploads = Uploads::default();
        uploads.begin(1, Some(MAX_DISCARDED_BODY_BYTES));
        uploads.mark_answered(1);
        assert_eq!(uploads.discard(1), DiscardAction::Nothing);
        for _ in 0..MAX_DISCARDED_BODY_BYTES / 32_768 {
            assert_eq!(uploads.receive_data(1, 32_768, 32_768, false, 0), Ok(32_768));
            assert_eq!(uploads.discard(1), DiscardAction::Widen(32_768));
        }
        assert_eq!(uploads.receive_data(1, 0, 0, true, 0), Ok(0));
        assert_eq!(uploads.is_open(1), Err(Http2Error::Connection(ErrorCode::StreamClosed)));
    }
}
