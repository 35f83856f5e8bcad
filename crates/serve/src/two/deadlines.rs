//! By when a peer must have done what its connection waits for. Every state that waits for the peer has a deadline, and no frame
//! moves one but that which was waited for. Pure: each moment is passed in.

use std::time::{Duration, Instant};

use crate::connection::HEAD_TIMEOUT;

/// While an answer waits for a window, some DATA must go within this time; below HTTP, `serve/progress` allows 67 s between
/// acknowledged bytes.
const DATA_TIMEOUT: Duration = Duration::from_mins(1);
/// A connection without a request, and without an answer on its way, ends after this time, as browsers end theirs.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// For how long a peer may take to say that it is there, if much is on its way to it: the question is behind all of that.
const SLOW_TIMEOUT: Duration = Duration::from_mins(3);

/// What a connection waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct Waiting {
    /// Part of the preface, of a frame or of a block of fields has come.
    pub(super) is_partial: bool,
    /// Answers are on their way that wait for a window.
    pub(super) needs_window: bool,
    /// DATA is in the way to the socket, where somebody else looks whether the peer reads.
    pub(super) sends_data: bool,
    /// Something has still to be done or to be sent: silence of the peer means nothing.
    pub(super) is_busy: bool,
    /// No answer is on its way, and the next request is waited for.
    pub(super) is_idle: bool,
    /// Frames of DATA that were put out since the connection began.
    pub(super) data_frames: u64,
    /// The newest stream.
    pub(super) newest: u32,
}

/// What has to follow now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Nothing.
    Nothing,
    /// The peer is to be asked whether it is there.
    Silent,
    /// The connection has to end, once all that is due is served.
    Idle,
    /// The connection has to end, because its peer takes nothing.
    Stalled,
    /// The connection has to be cut.
    Lost,
}

/// Each deadline of a connection. None is set before the connection has to wait for the first time.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// By when what has begun to come must be whole.
    whole_by: Option<Instant>,
    /// By when anything must be heard of the peer.
    heard_by: Option<Instant>,
    /// Whether it was asked for a sign.
    was_asked: bool,
    /// By when DATA must go, and how many frames of it had gone when that was set.
    data_by: Option<(Instant, u64)>,
    /// By when a request must come, and which was the newest when that was set.
    request_by: Option<(Instant, u32)>,
}

impl Deadlines {
    /// A frame or block is whole.
    pub(super) fn is_whole(&mut self) {
        self.whole_by = None;
    }

    /// The peer has said something.
    pub(super) fn is_heard(&mut self) {
        (self.heard_by, self.was_asked) = (None, false);
    }

    /// Nothing is waited for any more.
    pub(super) fn clear(&mut self) {
        *self = Deadlines::default();
    }

    /// From now on the peer is waited for, or still is.
    pub(super) fn wait(&mut self, now: Instant, waiting: &Waiting) {
        if waiting.is_partial {
            self.whole_by.get_or_insert(now + HEAD_TIMEOUT);
        }
        if waiting.is_busy {
            self.is_heard();
        } else {
            self.heard_by.get_or_insert(now + HEAD_TIMEOUT);
        }
        let stalls = waiting.needs_window && !waiting.sends_data;
        self.data_by = self.data_by.filter(|(_, frames)| stalls && *frames == waiting.data_frames);
        if stalls {
            self.data_by.get_or_insert((now + DATA_TIMEOUT, waiting.data_frames));
        }
        self.request_by = self.request_by.filter(|(_, newest)| waiting.is_idle && *newest == waiting.newest);
        if waiting.is_idle {
            self.request_by.get_or_insert((now + IDLE_TIMEOUT, waiting.newest));
        }
    }

    /// The nearest of them.
    pub(super) fn next(&self) -> Option<Instant> {
        let data_by = self.data_by.map(|(until, _)| until);
        let request_by = self.request_by.map(|(until, _)| until);
        self.whole_by.into_iter().chain(self.heard_by).chain(data_by).chain(request_by).min()
    }

    /// What is overdue. `has_sent` says whether anything was sent since the peer was last heard.
    pub(super) fn check(&mut self, now: Instant, has_sent: bool) -> Overdue {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| now >= until);
        if is_over(self.data_by.map(|(until, _)| until)) {
            return Overdue::Stalled;
        }
        if is_over(self.whole_by) || (is_over(self.heard_by) && self.was_asked) {
            return Overdue::Lost;
        }
        if is_over(self.request_by.map(|(until, _)| until)) {
            self.request_by = None;
            return Overdue::Idle;
        }
        if is_over(self.heard_by) {
            self.was_asked = true;
            self.heard_by = Some(now + if has_sent { SLOW_TIMEOUT } else { HEAD_TIMEOUT });
            return Overdue::Silent;
        }
        Overdue::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives a connection second by second: `state` gives what it waits for, and whether the peer says anything in that second.
    /// The second in which it ends, and how.
    fn end(seconds: u64, state: impl Fn(u64) -> (Waiting, bool)) -> Option<(u64, Overdue)> {
        let (begun, mut deadlines) = (Instant::now(), Deadlines::default());
        for second in 0..seconds {
            let now = begun + Duration::from_secs(second);
            match deadlines.check(now, false) {
                Overdue::Nothing | Overdue::Silent => {}
                end => return Some((second, end)),
            }
            let (waiting, is_heard) = state(second);
            if is_heard {
                deadlines.is_heard();
            }
            deadlines.wait(now, &waiting);
            assert!(waiting.is_busy || deadlines.next().is_some_and(|next| next > now), "a state without a deadline");
        }
        None
    }

    const STALLS: Waiting = Waiting {
        is_partial: false,
        needs_window: true,
        sends_data: false,
        is_busy: false,
        is_idle: false,
        data_frames: 7,
        newest: 9,
    };
    const IDLE: Waiting = Waiting { needs_window: false, is_idle: true, ..STALLS };

    #[test]
    fn a_reader_that_takes_nothing_is_ended_whatever_frames_it_sends() {
        for frames_every in [1, 5, 25, 29] {
            let ended = end(600, |second| (STALLS, second.is_multiple_of(frames_every)));
            assert_eq!(ended, Some((60, Overdue::Stalled)), "a frame every {frames_every} seconds");
        }
        // It goes on asking, and what is sent beside DATA is stuck in between.
        let asks = |second: u64| Waiting { newest: second as u32, is_busy: second.is_multiple_of(3), ..STALLS };
        assert_eq!(end(600, |second| (asks(second), true)), Some((60, Overdue::Stalled)));
        // It says nothing at all.
        assert_eq!(end(600, |_| (STALLS, false)), Some((60, Overdue::Stalled)));
    }

    #[test]
    fn a_reader_that_takes_a_little_within_each_minute_is_not_ended() {
        for takes_every in [1, 30, 59] {
            let takes = |second: u64| Waiting { data_frames: second / takes_every, ..STALLS };
            assert_eq!(
                end(3_600, |second| (takes(second), second.is_multiple_of(takes_every))),
                None,
                "every {takes_every} s"
            );
        }
        // What was put out goes slowly to the socket: that the peer takes of it is looked at there.
        let slow = Waiting { sends_data: true, is_busy: true, ..STALLS };
        assert_eq!(end(3_600, |_| (slow, false)), None);
    }

    #[test]
    fn a_connection_without_requests_ends_within_its_idle_time_whatever_frames_come() {
        for frames_every in [1, 25] {
            let ended = end(3_600, |second| (IDLE, second.is_multiple_of(frames_every)));
            assert_eq!(ended, Some((300, Overdue::Idle)), "a frame every {frames_every} seconds");
        }
        assert_eq!(end(3_600, |second| (Waiting { newest: (second / 299) as u32, ..IDLE }, true)), None);
        assert_eq!(end(3_600, |_| (IDLE, false)), Some((60, Overdue::Lost)), "one that is not there any more");
    }

    #[test]
    fn what_has_begun_to_come_must_be_whole_in_time() {
        let partial = |waiting: Waiting| Waiting { is_partial: true, ..waiting };
        assert_eq!(end(600, |_| (partial(IDLE), true)), Some((30, Overdue::Lost)));
        assert_eq!(end(600, |_| (partial(STALLS), true)), Some((30, Overdue::Lost)));
    }

    #[test]
    fn a_peer_to_which_much_is_on_its_way_has_longer_to_answer() {
        let (begun, mut deadlines) = (Instant::now(), Deadlines::default());
        let at = |seconds| begun + Duration::from_secs(seconds);
        deadlines.wait(begun, &IDLE);
        assert_eq!(deadlines.check(at(30), true), Overdue::Silent);
        assert_eq!(deadlines.check(at(209), true), Overdue::Nothing);
        assert_eq!(deadlines.check(at(210), true), Overdue::Lost);
    }
}
