//! Bodies of requests, which nobody wants: what may still come of them, so that it is told from what may not (RFC 9113, 5.1),
//! and how much a peer may send in vain.

use std::collections::VecDeque;

use super::frame::{Code, Fault};

/// What a connection may send before it is told that it may send more, as each begins with (RFC 9113, 6.9.2).
const WINDOW: usize = 65_535;
/// When so much has come it is told.
const TOLD: usize = 32 * 1024;
/// Bodies that are remembered: a peer that was told to stop may have sent some more.
const MOST: usize = 256;
/// Bytes that are thrown away of a connection, and more of them for each answer that it has taken. Whoever does not stop is not
/// listening.
const IN_VAIN: u64 = 16 << 20;
const IN_VAIN_EACH: u64 = 64 << 10;

/// Bytes of a body that are read and thrown away after its answer. A client that is told to stop by `RST_STREAM` may lose the
/// answer with that (curl before 8), so short bodies may end by themselves.
const DISCARDED: u64 = 4 << 20;
/// A window of a stream is widened by no less.
const WIDENED: u32 = TOLD as u32;

/// What is to follow when some of a body has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discard {
    Nothing,
    /// The window of the stream is to be wider by so much.
    Widen(u32),
    /// The peer is to be told that nobody wants the rest.
    Stop,
}

#[derive(Debug, Default)]
pub(super) struct Uploads {
    list: VecDeque<Upload>,
    /// The newest stream that is not remembered though its body may still come.
    forgotten: u32,
    /// Bytes that came since the peer was last told.
    came: usize,
    in_vain: u64,
}

#[derive(Debug)]
struct Upload {
    id: u32,
    /// What has come of it.
    came: u64,
    /// Bytes of its window that are used up, and padding with them.
    used: u32,
    /// Whether its answer was put out whole, so that the rest is read only to be thrown away.
    is_answered: bool,
    /// Whether the peer was told to stop.
    is_stopped: bool,
    /// What it said that it would be.
    length: Option<u64>,
}

impl Uploads {
    /// A request that has not ended.
    pub(super) fn begin(&mut self, id: u32, length: Option<u64>) {
        if self.list.len() == MOST
            && let Some(oldest) = self.list.pop_front()
        {
            self.forgotten = oldest.id;
        }
        self.list.push_back(Upload { id, came: 0, used: 0, is_answered: false, is_stopped: false, length });
    }

    /// A request has ended, or nobody asks any more; whether it had not.
    pub(super) fn end(&mut self, id: u32) -> bool {
        let at = self.list.iter().position(|upload| upload.id == id);
        at.and_then(|at| self.list.remove(at)).is_some()
    }

    /// Trailers have ended a request: whether its body is as long as it said (RFC 9113, 8.1.1).
    pub(super) fn conclude(&mut self, id: u32) -> Result<bool, Fault> {
        match self.list.iter().position(|upload| upload.id == id).and_then(|at| self.list.remove(at)) {
            Some(upload) => Ok(upload.length.is_none_or(|length| length == upload.came)),
            None if id <= self.forgotten => Ok(true),
            None => Err(Fault::Connection(Code::StreamClosed)),
        }
    }

    /// The answer to a request that has not ended was put out whole.
    pub(super) fn is_answered(&mut self, id: u32) {
        if let Some(upload) = self.list.iter_mut().find(|upload| upload.id == id) {
            upload.is_answered = true;
        }
    }

    /// What is to follow now for a body of which some has come, or whose request was just answered. Before the answer its
    /// window is not widened.
    pub(super) fn discard(&mut self, id: u32) -> Discard {
        let Some(upload) = self.list.iter_mut().find(|upload| upload.id == id) else { return Discard::Nothing };
        if !upload.is_answered || upload.is_stopped {
            return Discard::Nothing;
        }
        if upload.came > DISCARDED || upload.length.is_some_and(|length| length > DISCARDED) {
            upload.is_stopped = true;
            return Discard::Stop;
        }
        if upload.used < WIDENED {
            return Discard::Nothing;
        }
        Discard::Widen(std::mem::take(&mut upload.used))
    }

    /// Whether DATA may come on a stream: an error where its request has ended (RFC 9113, 5.1).
    pub(super) fn is_open(&self, id: u32) -> Result<(), Fault> {
        let is_open = id <= self.forgotten || self.list.iter().any(|upload| upload.id == id);
        if is_open { Ok(()) } else { Err(Fault::Connection(Code::StreamClosed)) }
    }

    /// A frame has come that takes `len` bytes of a window, `content` of them for a body that perhaps ends with them. By how
    /// much the connection's window is to be widened, 0 for not yet. `answered` requests have had their answers.
    pub(super) fn come(
        &mut self,
        id: u32,
        len: usize,
        content: usize,
        is_last: bool,
        answered: u64,
    ) -> Result<u32, Fault> {
        self.came += len;
        self.in_vain += len as u64;
        if self.came > WINDOW {
            return Err(Fault::Connection(Code::FlowControl));
        }
        if self.in_vain > IN_VAIN + answered.saturating_mul(IN_VAIN_EACH) {
            return Err(Fault::Connection(Code::Calm));
        }
        if let Some(at) = self.list.iter().position(|upload| upload.id == id) {
            let upload = &mut self.list[at];
            upload.came += content as u64;
            upload.used += len as u32;
            if upload.used as usize > WINDOW {
                return Err(Fault::Connection(Code::FlowControl));
            }
            let (came, length) = (upload.came, upload.length);
            if is_last {
                self.list.remove(at);
            }
            if length.is_some_and(|length| came > length || (is_last && came < length)) {
                return Err(Fault::Stream(id, Code::Protocol));
            }
        } else if id > self.forgotten {
            return Err(Fault::Connection(Code::StreamClosed));
        }
        let is_time = self.came >= TOLD;
        Ok(if is_time { std::mem::take(&mut self.came) as u32 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_vain_is_bounded_by_windows_and_in_all() {
        let mut uploads = Uploads::default();
        uploads.begin(1, None);
        assert_eq!(uploads.come(1, 16_384, 16_000, false, 0), Ok(0));
        assert_eq!(uploads.come(1, 16_384, 16_000, false, 0), Ok(32_768));
        assert_eq!(uploads.come(1, 16_384, 16_384, false, 0), Ok(0));
        assert_eq!(uploads.come(1, 20_000, 20_000, false, 0), Err(Fault::Connection(Code::FlowControl)));
        let mut uploads = Uploads::default();
        for id in (1..).step_by(2) {
            uploads.begin(id, None);
            match uploads.come(id, 16_384, 16_384, true, 0) {
                Ok(_) => assert!(id < 2 * 1024, "{id}"),
                Err(fault) => {
                    assert_eq!((fault, id), (Fault::Connection(Code::Calm), 2 * 1024 + 1));
                    break;
                }
            }
        }
    }

    #[test]
    fn a_body_ends_once_and_is_as_long_as_it_said() {
        let mut uploads = Uploads::default();
        uploads.begin(1, Some(5));
        assert_eq!(uploads.come(1, 5, 5, true, 0), Ok(0));
        assert_eq!(uploads.come(1, 0, 0, true, 0), Err(Fault::Connection(Code::StreamClosed)));
        for (length, came, is_last) in [(5, 6, false), (5, 4, true)] {
            uploads.begin(3, Some(length));
            assert_eq!(uploads.come(3, came, came, is_last, 0), Err(Fault::Stream(3, Code::Protocol)));
            uploads.end(3);
        }
        assert!(!uploads.end(3));
        for (length, expected) in [(None, true), (Some(5), true), (Some(6), false)] {
            uploads.begin(5, length);
            assert_eq!(uploads.come(5, 5, 5, false, 0), Ok(0));
            assert_eq!(uploads.conclude(5), Ok(expected), "{length:?} before trailers");
            assert_eq!(uploads.conclude(5), Err(Fault::Connection(Code::StreamClosed)));
        }
    }

    #[test]
    fn a_short_body_may_end_by_itself_after_its_answer_and_a_long_one_is_stopped() {
        let mut uploads = Uploads::default();
        let send = |uploads: &mut Uploads, id| uploads.come(id, 16_384, 16_384, false, 0).map(|_| uploads.discard(id));
        uploads.begin(1, None);
        assert_eq!((send(&mut uploads, 1), send(&mut uploads, 1)), (Ok(Discard::Nothing), Ok(Discard::Nothing)));
        assert_eq!(uploads.discard(1), Discard::Nothing, "it waits for its answer");
        uploads.is_answered(1);
        assert_eq!((uploads.discard(1), uploads.discard(1)), (Discard::Widen(32_768), Discard::Nothing));
        for sent in 3..=DISCARDED / 16_384 {
            let expected = if sent % 2 == 0 { Discard::Widen(32_768) } else { Discard::Nothing };
            assert_eq!(send(&mut uploads, 1), Ok(expected));
        }
        // What is on its way meanwhile still comes.
        for expected in [Discard::Stop, Discard::Nothing, Discard::Nothing] {
            assert_eq!(send(&mut uploads, 1), Ok(expected));
        }
        uploads.begin(3, Some(DISCARDED + 1));
        uploads.is_answered(3);
        assert_eq!(uploads.discard(3), Discard::Stop, "it says itself that it is too long");
        assert_eq!(uploads.discard(5), Discard::Nothing);
    }

    #[test]
    fn what_was_forgotten_may_still_come() {
        let mut uploads = Uploads::default();
        (0..300).for_each(|n| uploads.begin(n * 2 + 1, None));
        assert_eq!(uploads.come(1, 1, 1, true, 0), Ok(0));
        assert_eq!(uploads.conclude(3), Ok(true));
        assert_eq!(uploads.come(599, 1, 1, true, 0), Ok(0));
        assert_eq!(uploads.come(601, 1, 1, true, 0), Err(Fault::Connection(Code::StreamClosed)));
        assert_eq!(uploads.list.len(), MOST - 1);
    }

    #[test]
    fn padding_takes_of_windows_and_is_no_part_of_a_body() {
        let mut uploads = Uploads::default();
        uploads.begin(1, Some(5));
        assert_eq!(uploads.come(1, 32_767, 2, false, 0), Ok(0));
        assert_eq!(uploads.come(1, 1, 0, false, 0), Ok(32_768), "all that came, of whatever kind");
        assert_eq!(uploads.come(1, 100, 3, true, 0), Ok(0));
        uploads.begin(3, Some(5));
        assert_eq!(uploads.come(3, 256, 6, false, 0), Err(Fault::Stream(3, Code::Protocol)));
    }

    #[test]
    fn a_window_may_be_used_to_its_last_byte_and_no_further() {
        let closed = Err(Fault::Connection(Code::FlowControl));
        for (len, expected) in [(65_535, Ok(65_535)), (65_536, closed)] {
            let mut uploads = Uploads::default();
            uploads.begin(1, None);
            assert_eq!(uploads.come(1, len, len, false, 0), expected, "the connection's");
        }
        for (len, expected) in [(32_767, Ok(0)), (32_768, closed)] {
            let mut uploads = Uploads::default();
            uploads.begin(1, None);
            assert_eq!(uploads.come(1, 32_768, 32_768, false, 0), Ok(32_768));
            assert_eq!(uploads.come(1, len, len, false, 0), expected, "the stream's, which is not widened");
        }
        // That of one stream is not that of another.
        let mut uploads = Uploads::default();
        for id in [1, 3] {
            uploads.begin(id, None);
            assert_eq!(uploads.come(id, 60_000, 60_000, false, 0), Ok(60_000));
        }
    }

    #[test]
    fn each_answer_lets_64_kib_more_come_in_vain() {
        let mut uploads = Uploads::default();
        let mut send = |len: u64, answered| {
            uploads.begin(1, None);
            let came = uploads.come(1, len as usize, len as usize, true, answered);
            uploads.end(1);
            came
        };
        for _ in 0..IN_VAIN / 32_768 {
            assert_eq!(send(32_768, 0), Ok(32_768));
        }
        assert_eq!((send(32_768, 1), send(32_768, 1)), (Ok(32_768), Ok(32_768)));
        assert_eq!(send(1, 1), Err(Fault::Connection(Code::Calm)));
        assert_eq!(send(1, 2), Ok(0), "it has had another answer");
    }

    #[test]
    fn a_body_of_the_longest_that_is_discarded_is_not_stopped() {
        let mut uploads = Uploads::default();
        uploads.begin(1, Some(DISCARDED));
        uploads.is_answered(1);
        assert_eq!(uploads.discard(1), Discard::Nothing);
        for _ in 0..DISCARDED / 32_768 {
            assert_eq!(uploads.come(1, 32_768, 32_768, false, 0), Ok(32_768));
            assert_eq!(uploads.discard(1), Discard::Widen(32_768));
        }
        assert_eq!(uploads.come(1, 0, 0, true, 0), Ok(0));
        assert_eq!(uploads.is_open(1), Err(Fault::Connection(Code::StreamClosed)));
    }
}
