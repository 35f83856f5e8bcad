//! The deadlines by which the peer of an HTTP/2 connection must act. Every state that waits for the peer has a
//! deadline, and only the awaited frame moves it. Pure: the time is passed in.

use std::time::{Duration, Instant};

use crate::connection_deadlines::HEAD_TIMEOUT;

/// The time within which some DATA must be sent while a response waits for a window. Below HTTP, [`crate::progress`]
/// allows 67 s between acknowledged bytes.
const DATA_TIMEOUT: Duration = Duration::from_mins(1);
/// The time after which a connection without a request and without a pending response ends; browsers close theirs after
/// as long.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// The time for the answer to a PING if much was sent to the peer: the PING arrives only after all of that.
const SLOW_TIMEOUT: Duration = Duration::from_mins(3);

/// The conditions that a connection waits on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct WaitConditions {
    /// Part of the preface, of a frame or of a field block has come.
    pub(super) is_partial: bool,
    /// Pending responses wait for a window.
    pub(super) needs_window: bool,
    /// DATA is queued for the socket; [`crate::guard`] checks there whether the peer reads.
    pub(super) sends_data: bool,
    /// Work or output is pending: silence of the peer means nothing.
    pub(super) is_busy: bool,
    /// No response is pending, and the connection waits for the next request.
    pub(super) is_idle: bool,
    /// DATA frames queued since the connection began.
    pub(super) data_frames: u64,
    /// The newest stream.
    pub(super) newest: u32,
}

/// The action for a deadline that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadlineAction {
    /// No deadline has passed.
    Nothing,
    /// Send a PING: the peer has been silent.
    Silent,
    /// Shut the connection down gracefully: it has been idle.
    Idle,
    /// End the connection: the peer accepts no DATA.
    Stalled,
    /// Drop the connection.
    Lost,
}

/// The deadlines of a connection. None is set before the connection first has to wait.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// The deadline for the rest of a partial frame or block.
    whole_by: Option<Instant>,
    /// The deadline for any input.
    heard_by: Option<Instant>,
    /// Whether a PING was sent since the peer was last heard.
    was_asked: bool,
    /// The deadline for DATA, and the number of DATA frames when it was set.
    data_by: Option<(Instant, u64)>,
    /// The deadline for a request, and the newest stream when it was set.
    request_by: Option<(Instant, u32)>,
}

impl Deadlines {
    /// Clears the deadline for a partial frame or block, because it is complete.
    pub(super) fn clear_partial(&mut self) {
        self.whole_by = None;
    }

    /// Clears the deadline for input, because some has come.
    pub(super) fn clear_silence(&mut self) {
        (self.heard_by, self.was_asked) = (None, false);
    }

    /// Clears all deadlines.
    pub(super) fn clear(&mut self) {
        *self = Deadlines::default();
    }

    /// Sets and clears deadlines for what the connection now waits for. A deadline that is already set stays.
    pub(super) fn update(&mut self, now: Instant, waiting: &WaitConditions) {
        if waiting.is_partial {
            self.whole_by.get_or_insert(now + HEAD_TIMEOUT);
        }
        if waiting.is_busy {
            self.clear_silence();
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

    /// Returns the nearest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        let data_by = self.data_by.map(|(until, _)| until);
        let request_by = self.request_by.map(|(until, _)| until);
        self.whole_by.into_iter().chain(self.heard_by).chain(data_by).chain(request_by).min()
    }

    /// Returns the action that is due. `has_sent` is whether anything was sent since the peer was last heard.
    pub(super) fn check(&mut self, now: Instant, has_sent: bool) -> DeadlineAction {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| now >= until);
        if is_over(self.data_by.map(|(until, _)| until)) {
            return DeadlineAction::Stalled;
        }
        if is_over(self.whole_by) || (is_over(self.heard_by) && self.was_asked) {
            return DeadlineAction::Lost;
        }
        if is_over(self.request_by.map(|(until, _)| until)) {
            self.request_by = None;
            return DeadlineAction::Idle;
        }
        if is_over(self.heard_by) {
            self.was_asked = true;
            self.heard_by = Some(now + if has_sent { SLOW_TIMEOUT } else { HEAD_TIMEOUT });
            return DeadlineAction::Silent;
        }
        DeadlineAction::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a connection second by second: `state` gives what it waits for, and whether the peer sends anything in
    /// that second. Returns the second in which it ends, and how.
    fn end(seconds: u64, state: impl Fn(u64) -> (WaitConditions, bool)) -> Option<(u64, DeadlineAction)> {
        let (begun, mut deadlines) = (Instant::now(), Deadlines::default());
        for second in 0..seconds {
            let now = begun + Duration::from_secs(second);
            match deadlines.check(now, false) {
                DeadlineAction::Nothing | DeadlineAction::Silent => {}
                end => return Some((second, end)),
            }
            let (waiting, is_heard) = state(second);
            if is_heard {
                deadlines.clear_silence();
            }
            deadlines.update(now, &waiting);
            assert!(waiting.is_busy || deadlines.next().is_some_and(|next| next > now), "a state without a deadline");
        }
        None
    }

    const STALLS: WaitConditions = WaitConditions {
        is_partial: false,
        needs_window: true,
        sends_data: false,
        is_busy: false,
        is_idle: false,
        data_frames: 7,
        newest: 9,
    };
    const IDLE: WaitConditions = WaitConditions { needs_window: false, is_idle: true, ..STALLS };

    #[test]
    fn a_reader_that_takes_nothing_is_ended_whatever_frames_it_sends() {
        for frames_every in [1, 5, 25, 29] {
            let ended = end(600, |second| (STALLS, second.is_multiple_of(frames_every)));
            assert_eq!(ended, Some((60, DeadlineAction::Stalled)), "a frame every {frames_every} seconds");
        }
        // The peer keeps requesting, and other output is stuck in between.
        let asks = |second: u64| WaitConditions { newest: second as u32, is_busy: second.is_multiple_of(3), ..STALLS };
        assert_eq!(end(600, |second| (asks(second), true)), Some((60, DeadlineAction::Stalled)));
        // The peer sends nothing at all.
        assert_eq!(end(600, |_| (STALLS, false)), Some((60, DeadlineAction::Stalled)));
    }

    #[test]
    fn a_reader_that_takes_a_little_within_each_minute_is_not_ended() {
        for takes_every in [1, 30, 59] {
            let takes = |second: u64| WaitConditions { data_frames: second / takes_every, ..STALLS };
            assert_eq!(
                end(3_600, |second| (takes(second), second.is_multiple_of(takes_every))),
                None,
                "every {takes_every} s"
            );
        }
        // Queued output leaves slowly: the progress of the peer is checked at the socket.
        let slow = WaitConditions { sends_data: true, is_busy: true, ..STALLS };
        assert_eq!(end(3_600, |_| (slow, false)), None);
    }

    #[test]
    fn a_connection_without_requests_ends_within_its_idle_time_whatever_frames_come() {
        for frames_every in [1, 25] {
            let ended = end(3_600, |second| (IDLE, second.is_multiple_of(frames_every)));
            assert_eq!(ended, Some((300, DeadlineAction::Idle)), "a frame every {frames_every} seconds");
        }
        assert_eq!(end(3_600, |second| (WaitConditions { newest: (second / 299) as u32, ..IDLE }, true)), None);
        assert_eq!(end(3_600, |_| (IDLE, false)), Some((60, DeadlineAction::Lost)), "one that is not there any more");
    }

    #[test]
    fn what_has_begun_to_come_must_be_whole_in_time() {
        let partial = |waiting: WaitConditions| WaitConditions { is_partial: true, ..waiting };
        assert_eq!(end(600, |_| (partial(IDLE), true)), Some((30, DeadlineAction::Lost)));
        assert_eq!(end(600, |_| (partial(STALLS), true)), Some((30, DeadlineAction::Lost)));
    }

    #[test]
    fn a_peer_to_which_much_is_on_its_way_has_longer_to_answer() {
        let (begun, mut deadlines) = (Instant::now(), Deadlines::default());
        let at = |seconds| begun + Duration::from_secs(seconds);
        deadlines.update(begun, &IDLE);
        assert_eq!(deadlines.check(at(30), true), DeadlineAction::Silent);
        assert_eq!(deadlines.check(at(209), true), DeadlineAction::Nothing);
        assert_eq!(deadlines.check(at(210), true), DeadlineAction::Lost);
    }
}
