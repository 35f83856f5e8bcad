//! The deadlines by which the peer of an HTTP/2 connection must act. Every state that waits for the peer has a
//! deadline, and only the frame that it waits for changes the deadline. Pure: the time is passed in.

use std::time::{Duration, Instant};

use crate::connection_deadlines::HEAD_TIMEOUT;

/// The time within which some DATA must be sent while a response waits for a flow-control window. Below HTTP,
/// [`crate::peer_progress`] ends the connection of a peer that acknowledged nothing between two checks 67 s apart.
const DATA_TIMEOUT: Duration = Duration::from_mins(1);
/// The time after which a connection without a request and without a pending response ends. Browsers close idle
/// connections after a similar time.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// The time without input after which a PING is sent, and within which it must then be acknowledged; see
/// [`SLOW_PING_TIMEOUT`].
const PING_TIMEOUT: Duration = HEAD_TIMEOUT;
/// The time within which a PING must be acknowledged if other output was sent since the peer last sent something: the
/// PING arrives only after that output.
const SLOW_PING_TIMEOUT: Duration = Duration::from_mins(3);

/// The conditions that a connection waits on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // the flags are independent of each other
pub(super) struct WaitConditions {
    /// The preface with its SETTINGS frame, another frame or a field block is incomplete.
    pub(super) is_partial: bool,
    /// A response body is not queued completely. It usually waits for a flow-control window.
    pub(super) needs_window: bool,
    /// DATA is queued for the socket. [`crate::stall_timeout`] checks whether the peer reads it.
    pub(super) sends_data: bool,
    /// Work or output is pending, so the peer need not send anything.
    pub(super) is_busy: bool,
    /// No response is pending, and the connection waits for the next request.
    pub(super) is_idle: bool,
    /// DATA frames queued since the connection began.
    pub(super) data_frames: u64,
    /// The newest stream that the peer has opened.
    pub(super) newest_stream: u32,
}

/// The action for a deadline that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadlineAction {
    /// No deadline has passed.
    None,
    /// Send a PING, because the peer has been silent.
    SendPing,
    /// Shut the connection down gracefully, because it has been idle.
    ShutDown,
    /// End the connection with a connection error, because the peer accepts no DATA.
    Fail,
    /// Drop the connection at once, because the peer does not respond or does not complete a frame.
    Drop,
}

/// The deadlines of a connection. None is set before the connection first has to wait.
#[derive(Debug)]
pub(super) struct Deadlines {
    /// [`IDLE_TIMEOUT`], except in tests.
    pub(super) idle_timeout: Duration,
    /// The deadline for the rest of a partial frame or block.
    partial_input_deadline: Option<Instant>,
    /// The deadline for any input. When it passes, a PING is sent and the deadline is extended; when it passes again
    /// without input, the connection is dropped.
    input_deadline: Option<Instant>,
    /// Whether a PING was sent since the last input.
    has_sent_ping: bool,
    /// The deadline for DATA, and the number of DATA frames when it was set.
    data_deadline: Option<(Instant, u64)>,
    /// The deadline for a request, and the newest stream when it was set.
    request_deadline: Option<(Instant, u32)>,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            idle_timeout: IDLE_TIMEOUT,
            partial_input_deadline: None,
            input_deadline: None,
            has_sent_ping: false,
            data_deadline: None,
            request_deadline: None,
        }
    }
}

impl Deadlines {
    /// Clears the deadline for a partial frame or block, because it is complete.
    pub(super) fn clear_partial_input(&mut self) {
        self.partial_input_deadline = None;
    }

    /// Clears the deadline for input, because some was received.
    pub(super) fn clear_input(&mut self) {
        (self.input_deadline, self.has_sent_ping) = (None, false);
    }

    /// Clears all deadlines.
    pub(super) fn clear(&mut self) {
        *self = Deadlines { idle_timeout: self.idle_timeout, ..Deadlines::default() };
    }

    /// Sets and clears deadlines for the conditions that the connection now waits on. A deadline whose condition
    /// still holds stays as it was.
    pub(super) fn update(&mut self, now: Instant, conditions: &WaitConditions) {
        if conditions.is_partial {
            self.partial_input_deadline.get_or_insert(now + HEAD_TIMEOUT);
        }
        if conditions.is_busy {
            self.clear_input();
        } else {
            self.input_deadline.get_or_insert(now + PING_TIMEOUT);
        }
        let is_stalled = conditions.needs_window && !conditions.sends_data;
        self.data_deadline = self.data_deadline.filter(|(_, frames)| is_stalled && *frames == conditions.data_frames);
        if is_stalled {
            self.data_deadline.get_or_insert((now + DATA_TIMEOUT, conditions.data_frames));
        }
        self.request_deadline = self
            .request_deadline
            .filter(|(_, newest_stream)| conditions.is_idle && *newest_stream == conditions.newest_stream);
        if conditions.is_idle {
            self.request_deadline.get_or_insert((now + self.idle_timeout, conditions.newest_stream));
        }
    }

    /// Returns the nearest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        let data_deadline = self.data_deadline.map(|(deadline, _)| deadline);
        let request_deadline = self.request_deadline.map(|(deadline, _)| deadline);
        self.partial_input_deadline
            .into_iter()
            .chain(self.input_deadline)
            .chain(data_deadline)
            .chain(request_deadline)
            .min()
    }

    /// Returns the action that is due. `has_sent` states whether anything was sent since the last input.
    pub(super) fn check(&mut self, now: Instant, has_sent: bool) -> DeadlineAction {
        let has_passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        if has_passed(self.data_deadline.map(|(deadline, _)| deadline)) {
            return DeadlineAction::Fail;
        }
        if has_passed(self.partial_input_deadline) || (has_passed(self.input_deadline) && self.has_sent_ping) {
            return DeadlineAction::Drop;
        }
        if has_passed(self.request_deadline.map(|(deadline, _)| deadline)) {
            self.request_deadline = None;
            return DeadlineAction::ShutDown;
        }
        if has_passed(self.input_deadline) {
            self.has_sent_ping = true;
            self.input_deadline = Some(now + if has_sent { SLOW_PING_TIMEOUT } else { PING_TIMEOUT });
            return DeadlineAction::SendPing;
        }
        DeadlineAction::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a connection second by second: `state` returns the conditions that it waits on, and whether the peer
    /// sends anything in that second. Returns the second in which the connection ends, and how.
    fn end(seconds: u64, state: impl Fn(u64) -> (WaitConditions, bool)) -> Option<(u64, DeadlineAction)> {
        let (start, mut deadlines) = (Instant::now(), Deadlines::default());
        for second in 0..seconds {
            let now = start + Duration::from_secs(second);
            match deadlines.check(now, false) {
                DeadlineAction::None | DeadlineAction::SendPing => {}
                action => return Some((second, action)),
            }
            let (conditions, has_input) = state(second);
            if has_input {
                deadlines.clear_input();
            }
            deadlines.update(now, &conditions);
            assert!(
                conditions.is_busy || deadlines.next().is_some_and(|next| next > now),
                "a state without a deadline"
            );
        }
        None
    }

    const STALLED: WaitConditions = WaitConditions {
        is_partial: false,
        needs_window: true,
        sends_data: false,
        is_busy: false,
        is_idle: false,
        data_frames: 7,
        newest_stream: 9,
    };
    const IDLE: WaitConditions = WaitConditions { needs_window: false, is_idle: true, ..STALLED };

    #[test]
    fn a_peer_that_reads_no_data_is_disconnected_after_60_seconds_despite_its_frames() {
        for frames_every in [1, 5, 25, 29] {
            let ended = end(600, |second| (STALLED, second.is_multiple_of(frames_every)));
            assert_eq!(ended, Some((60, DeadlineAction::Fail)), "a frame every {frames_every} seconds");
        }
        // The peer sends requests continuously, and other output waits for the socket in between.
        let requests =
            |second: u64| WaitConditions { newest_stream: second as u32, is_busy: second.is_multiple_of(3), ..STALLED };
        assert_eq!(end(600, |second| (requests(second), true)), Some((60, DeadlineAction::Fail)));
        // The peer sends nothing at all.
        assert_eq!(end(600, |_| (STALLED, false)), Some((60, DeadlineAction::Fail)));
    }

    #[test]
    fn a_slow_peer_that_reads_some_data_each_minute_is_not_disconnected() {
        for reads_every in [1, 30, 59] {
            let reads_slowly = |second: u64| WaitConditions { data_frames: second / reads_every, ..STALLED };
            assert_eq!(
                end(3_600, |second| (reads_slowly(second), second.is_multiple_of(reads_every))),
                None,
                "every {reads_every} s"
            );
        }
        // Queued output leaves slowly: the progress of the peer is checked at the socket.
        let slow = WaitConditions { sends_data: true, is_busy: true, ..STALLED };
        assert_eq!(end(3_600, |_| (slow, false)), None);
    }

    // Regression: HTTP/2: a connection without requests stayed open for as long as the client sent any frames.
    #[test]
    fn a_connection_without_requests_shuts_down_after_its_idle_timeout_despite_frames() {
        for frames_every in [1, 25] {
            let ended = end(3_600, |second| (IDLE, second.is_multiple_of(frames_every)));
            assert_eq!(ended, Some((300, DeadlineAction::ShutDown)), "a frame every {frames_every} seconds");
        }
        assert_eq!(end(3_600, |second| (WaitConditions { newest_stream: (second / 299) as u32, ..IDLE }, true)), None);
        assert_eq!(end(3_600, |_| (IDLE, false)), Some((60, DeadlineAction::Drop)), "a peer that is no longer there");
    }

    #[test]
    fn a_partially_received_frame_drops_the_connection_after_30_seconds() {
        let partial = |conditions: WaitConditions| WaitConditions { is_partial: true, ..conditions };
        assert_eq!(end(600, |_| (partial(IDLE), true)), Some((30, DeadlineAction::Drop)));
        assert_eq!(end(600, |_| (partial(STALLED), true)), Some((30, DeadlineAction::Drop)));
    }

    #[test]
    fn the_ping_timeout_is_longer_while_output_is_in_flight() {
        let (start, mut deadlines) = (Instant::now(), Deadlines::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        deadlines.update(start, &IDLE);
        assert_eq!(deadlines.check(at(30), true), DeadlineAction::SendPing);
        assert_eq!(deadlines.check(at(209), true), DeadlineAction::None);
        assert_eq!(deadlines.check(at(210), true), DeadlineAction::Drop);
    }
}
