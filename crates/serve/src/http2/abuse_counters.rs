//! Limits useless work that a peer can cause: a burst, a rate per second, and an allowance for each response that it
//! accepts.
//!
//! A total for the life of a connection would end honest clients: those that leave pages before they are loaded, and
//! those that measure the round trip with PING all the time. Pure: the time is passed in.

use std::time::Instant;

/// The number of responses that a peer may reset at once; the default of nghttp2
/// (`NGHTTP2_DEFAULT_STREAM_RESET_BURST`).
const RESET_BURST: u32 = 1_000;
/// The number of responses that a peer may reset per second: two pages of 100 resources each that are left before they
/// are loaded.
const RESETS_PER_SECOND: u32 = 200;
/// The number of control frames that a peer may send at once, and per second. They cost less than as many requests,
/// which are not limited.
const CONTROL_BURST: u32 = 10_000;
const CONTROL_PER_SECOND: u32 = 1_000;
/// The further control frames for each response that was queued completely: priorities, window updates, a late reset.
const CONTROL_PER_ANSWER: u64 = 32;
/// The further control frames for each DATA frame: window updates of its stream and of the connection, and a PING.
const CONTROL_PER_DATA_FRAME: u64 = 4;
/// The bytes of DATA that allow one further control frame: some clients widen windows in small steps.
const DATA_BYTES_PER_CONTROL: u64 = 1_024;

/// A token bucket whose tokens come back with time and can also be earned.
#[derive(Debug)]
struct TokenBucket {
    tokens: u32,
    capacity: u32,
    per_second: u32,
    /// The time up to which the tokens that come back have been counted.
    counted_to: Instant,
}

impl TokenBucket {
    /// Creates a full bucket.
    fn new(capacity: u32, per_second: u32, now: Instant) -> TokenBucket {
        TokenBucket { tokens: capacity, capacity, per_second, counted_to: now }
    }

    /// Takes a token; false if there is none. Reads the clock only if no token is left, so that most frames do not read
    /// it. After a pause, up to twice the capacity can therefore be taken at once.
    fn take(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.tokens == 0 {
            let now = now();
            let nanos = now.saturating_duration_since(self.counted_to).as_nanos();
            let came_back = nanos * u128::from(self.per_second) / 1_000_000_000;
            if came_back == 0 {
                return false;
            }
            // The fraction of a token is lost, which is less than one in a thousand where it matters.
            self.counted_to = now;
            self.tokens = u32::try_from(came_back).unwrap_or(u32::MAX).min(self.capacity);
        }
        self.tokens -= 1;
        true
    }

    /// Adds tokens, up to the capacity.
    fn earn(&mut self, tokens: u64) {
        let room = self.capacity - self.tokens;
        self.tokens += u32::try_from(tokens).unwrap_or(u32::MAX).min(room);
    }
}

/// The responses and DATA that were queued for a peer since its connection began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ServedTotals {
    /// Responses that were queued completely.
    pub(super) answers: u64,
    /// DATA frames, and the bytes in them.
    pub(super) data_frames: u64,
    pub(super) data_bytes: u64,
}

/// The limits of the peer of one connection.
#[derive(Debug)]
pub(super) struct AbuseCounters {
    resets: TokenBucket,
    control: TokenBucket,
    /// The work for which tokens have been earned.
    served: ServedTotals,
}

impl AbuseCounters {
    /// Creates the limits of a new connection.
    pub(super) fn new(now: Instant) -> AbuseCounters {
        AbuseCounters {
            resets: TokenBucket::new(RESET_BURST, RESETS_PER_SECOND, now),
            control: TokenBucket::new(CONTROL_BURST, CONTROL_PER_SECOND, now),
            served: ServedTotals::default(),
        }
    }

    /// Earns tokens for the responses and DATA queued since the last call.
    pub(super) fn earn(&mut self, served: ServedTotals) {
        let answers = served.answers - self.served.answers;
        let frames = served.data_frames - self.served.data_frames;
        let bytes = served.data_bytes - self.served.data_bytes;
        if answers + frames == 0 {
            return;
        }
        self.resets.earn(answers);
        self.control
            .earn(answers * CONTROL_PER_ANSWER + frames * CONTROL_PER_DATA_FRAME + bytes / DATA_BYTES_PER_CONTROL);
        self.served = served;
    }

    /// Counts a response that was dropped, whichever side caused it (CVE-2023-44487, CVE-2025-8671); false if there
    /// were too many.
    pub(super) fn count_reset(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.resets.take(now)
    }

    /// Counts a frame that does not request anything; false if there were too many.
    pub(super) fn count_control_frame(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.control.take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the first of at most so many seconds in which fewer than `each` of what is `taken` are allowed; `None`
    /// if there is none.
    fn refused_in(
        budget: &mut AbuseCounters,
        begun: Instant,
        (seconds, each): (u64, u64),
        taken: impl Fn(&mut AbuseCounters, Instant) -> bool,
    ) -> Option<u64> {
        (0..seconds).find(|second| {
            let now = |n: u64| begun + Duration::from_secs(*second) + Duration::from_secs(1) * n as u32 / each as u32;
            (0..each).any(|n| !taken(budget, now(n)))
        })
    }

    #[test]
    fn pages_left_before_they_have_come_are_no_abuse_and_rapid_reset_is() {
        let reset = |budget: &mut AbuseCounters, now| budget.count_reset(|| now);
        // Resets per second for ten minutes, and the second in which they are too many.
        for (each, expected) in
            [(1, None), (100, None), (199, None), (400, Some(4)), (2_000, Some(0)), (50_000, Some(0))]
        {
            let begun = Instant::now();
            let refused = refused_in(&mut AbuseCounters::new(begun), begun, (600, each), reset);
            assert_eq!(refused, expected, "{each} resets in each second");
        }
        // All at once, after an hour without any: at most twice the burst.
        let begun = Instant::now();
        let mut budget = AbuseCounters::new(begun);
        let later = begun + Duration::from_hours(1);
        assert_eq!((0..100_000).take_while(|_| budget.count_reset(|| later)).count(), 2_000);
    }

    #[test]
    fn a_reset_for_each_answer_that_is_taken_is_no_abuse() {
        let begun = Instant::now();
        let mut budget = AbuseCounters::new(begun);
        for answers in 0..1_000_000 {
            budget.earn(ServedTotals { answers, ..ServedTotals::default() });
            assert!(budget.count_reset(|| begun), "reset {answers}");
        }
        let left = (0..100_000).take_while(|_| budget.count_reset(|| begun)).count();
        assert_eq!(left, RESET_BURST as usize - 1, "no more than a burst is saved up");
    }

    #[test]
    fn control_frames_are_counted_by_rate_and_against_what_was_sent() {
        let control = |budget: &mut AbuseCounters, now| budget.count_control_frame(|| now);
        for (each, expected) in [(1, None), (990, None), (3_000, Some(4)), (20_000, Some(0))] {
            let begun = Instant::now();
            let refused = refused_in(&mut AbuseCounters::new(begun), begun, (3_600, each), control);
            assert_eq!(refused, expected, "{each} frames in each second");
        }
        // Without any time passing: a DATA frame, however short, allows window updates and a PING.
        let begun = Instant::now();
        let mut budget = AbuseCounters::new(begun);
        for n in 1..100_000 {
            budget.earn(ServedTotals { data_frames: n, data_bytes: n, ..ServedTotals::default() });
            assert!((0..3).all(|_| budget.count_control_frame(|| begun)), "after {n} frames of DATA");
        }
        let left = (0..100_000).take_while(|_| budget.count_control_frame(|| begun)).count();
        assert_eq!(left, CONTROL_BURST as usize - 3, "no more than a burst is saved up");
        budget.earn(ServedTotals { answers: 1, data_frames: 100_000, data_bytes: 1 << 20 });
        let left = (0..100_000).take_while(|_| budget.count_control_frame(|| begun)).count() as u64;
        assert_eq!(left, 32 + 4 + ((1 << 20) - 99_999) / 1024);
    }
}
