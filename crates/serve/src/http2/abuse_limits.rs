//! Limits useless work that a peer can cause: a burst, a rate per second, and a further budget for each response and
//! for the DATA that was queued.
//!
//! A total for the lifetime of a connection would disconnect honest clients: those that leave pages before they are
//! loaded, and those that measure the round trip with PING all the time. Pure: the time is passed in.

use std::time::Instant;

/// The number of responses that a peer may reset at once; after a pause twice as many (see
/// [`TokenBucket::take_token`]). The default of nghttp2 (`NGHTTP2_DEFAULT_STREAM_RESET_BURST`).
const RESET_BURST: u32 = 1_000;
/// The number of responses that a peer may reset per second: two pages of 100 resources each that are left before they
/// are loaded.
const RESETS_PER_SECOND: u32 = 200;
/// The number of control frames that a peer may send at once; after a pause twice as many. They cost less
/// than as many requests, which are not limited.
const CONTROL_FRAME_BURST: u32 = 10_000;
/// The number of control frames that a peer may send per second.
const CONTROL_FRAMES_PER_SECOND: u32 = 1_000;
/// The further control frames for each response that was queued completely: PRIORITY, WINDOW_UPDATE, a late RST_STREAM.
const CONTROL_FRAMES_PER_RESPONSE: u64 = 32;
/// The further control frames for each DATA frame: WINDOW_UPDATE for its stream and for the connection, and PING.
const CONTROL_FRAMES_PER_DATA_FRAME: u64 = 4;
/// The bytes of DATA that allow one further control frame: some clients send WINDOW_UPDATE with small increments.
const DATA_BYTES_PER_CONTROL_FRAME: u64 = 1_024;

/// A token bucket that is refilled with time, and to which further tokens can be added.
#[derive(Debug)]
struct TokenBucket {
    tokens: u32,
    capacity: u32,
    per_second: u32,
    /// The time up to which the bucket was refilled.
    refilled_until: Instant,
}

impl TokenBucket {
    /// Creates a full bucket.
    fn new(capacity: u32, per_second: u32, now: Instant) -> TokenBucket {
        TokenBucket { tokens: capacity, capacity, per_second, refilled_until: now }
    }

    /// Takes a token; false if there is none. Reads the clock only if no token is left, so that most frames do not read
    /// it. After a pause, up to twice the capacity can therefore be taken at once.
    #[inline]
    fn take_token(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.tokens == 0 {
            self.refill(now());
        }
        let has_token = self.tokens > 0;
        self.tokens -= u32::from(has_token);
        has_token
    }

    /// Adds the tokens for the time since the last refill.
    #[cold]
    fn refill(&mut self, now: Instant) {
        let nanos = now.saturating_duration_since(self.refilled_until).as_nanos();
        let tokens = nanos * u128::from(self.per_second) / 1_000_000_000;
        if tokens > 0 {
            // A fraction of a token is lost: less than one in a thousand at rates near the limit.
            self.refilled_until = now;
            self.tokens = u32::try_from(tokens).unwrap_or(u32::MAX).min(self.capacity);
        }
    }

    /// Adds tokens, up to the capacity.
    fn add_tokens(&mut self, tokens: u64) {
        let missing = self.capacity - self.tokens;
        self.tokens += u32::try_from(tokens).unwrap_or(u32::MAX).min(missing);
    }
}

/// The responses and DATA that were queued for a peer since its connection began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QueuedTotals {
    /// Responses that have ended: they were queued completely, or reset because their body failed.
    pub(super) responses: u64,
    /// DATA frames.
    pub(super) data_frames: u64,
    /// The payload bytes of these frames.
    pub(super) data_bytes: u64,
}

/// The limits of the peer of one connection.
#[derive(Debug)]
pub(super) struct AbuseLimits {
    resets: TokenBucket,
    control_frames: TokenBucket,
    /// The responses and DATA for which tokens were added.
    queued: QueuedTotals,
}

impl AbuseLimits {
    /// Creates the limits of a new connection.
    pub(super) fn new(now: Instant) -> AbuseLimits {
        AbuseLimits {
            resets: TokenBucket::new(RESET_BURST, RESETS_PER_SECOND, now),
            control_frames: TokenBucket::new(CONTROL_FRAME_BURST, CONTROL_FRAMES_PER_SECOND, now),
            queued: QueuedTotals::default(),
        }
    }

    /// Adds tokens for the responses and DATA queued since the last call.
    pub(super) fn add_budget(&mut self, queued: QueuedTotals) {
        let responses = queued.responses - self.queued.responses;
        let frames = queued.data_frames - self.queued.data_frames;
        let bytes = queued.data_bytes - self.queued.data_bytes;
        if responses + frames == 0 {
            return;
        }
        self.resets.add_tokens(responses);
        self.control_frames.add_tokens(
            responses * CONTROL_FRAMES_PER_RESPONSE
                + frames * CONTROL_FRAMES_PER_DATA_FRAME
                + bytes / DATA_BYTES_PER_CONTROL_FRAME,
        );
        self.queued = queued;
    }

    /// Counts a response that was dropped before it was complete, whichever side caused it (CVE-2023-44487,
    /// CVE-2025-8671); false if there were too many.
    pub(super) fn count_reset(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.resets.take_token(now)
    }

    /// Counts a control frame or a stream error; false if there were too many.
    pub(super) fn count_control_frame(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.control_frames.take_token(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Makes `per_second` calls of `count` in each of `seconds`. Returns the first second in which `count` returned
    /// false; `None` if it never did.
    fn first_refused_second(
        limits: &mut AbuseLimits,
        start: Instant,
        (seconds, per_second): (u64, u64),
        count: impl Fn(&mut AbuseLimits, Instant) -> bool,
    ) -> Option<u64> {
        (0..seconds).find(|second| {
            let now =
                |n: u64| start + Duration::from_secs(*second) + Duration::from_secs(1) * n as u32 / per_second as u32;
            (0..per_second).any(|n| !count(limits, now(n)))
        })
    }

    // Regression: HTTP/2: the server counted pages that were left before their resources had arrived as abuse, and
    // ended the connection.
    #[test]
    fn rapid_reset_is_abuse_but_cancelled_page_loads_are_not() {
        let reset = |limits: &mut AbuseLimits, now| limits.count_reset(|| now);
        // Resets per second for ten minutes, and the second in which they are too many.
        for (per_second, expected) in
            [(1, None), (100, None), (199, None), (400, Some(4)), (2_000, Some(0)), (50_000, Some(0))]
        {
            let start = Instant::now();
            let refused = first_refused_second(&mut AbuseLimits::new(start), start, (600, per_second), reset);
            assert_eq!(refused, expected, "{per_second} resets in each second");
        }
        // All at once, after an hour without any: at most twice the burst.
        let start = Instant::now();
        let mut limits = AbuseLimits::new(start);
        let later = start + Duration::from_hours(1);
        assert_eq!((0..100_000).take_while(|_| limits.count_reset(|| later)).count(), 2_000);
    }

    #[test]
    fn one_stream_reset_for_each_sent_response_is_not_abuse() {
        let start = Instant::now();
        let mut limits = AbuseLimits::new(start);
        for responses in 0..1_000_000 {
            limits.add_budget(QueuedTotals { responses, ..QueuedTotals::default() });
            assert!(limits.count_reset(|| start), "reset {responses}");
        }
        let remaining = (0..100_000).take_while(|_| limits.count_reset(|| start)).count();
        assert_eq!(remaining, RESET_BURST as usize - 1, "the budget is never larger than a burst");
    }

    #[test]
    fn control_frames_are_limited_by_rate_plus_a_budget_from_sent_data() {
        let control_frames = |limits: &mut AbuseLimits, now| limits.count_control_frame(|| now);
        for (per_second, expected) in [(1, None), (990, None), (3_000, Some(4)), (20_000, Some(0))] {
            let start = Instant::now();
            let refused =
                first_refused_second(&mut AbuseLimits::new(start), start, (3_600, per_second), control_frames);
            assert_eq!(refused, expected, "{per_second} frames in each second");
        }
        // No time passes: each DATA frame, however short, allows two WINDOW_UPDATE frames and a PING.
        let start = Instant::now();
        let mut limits = AbuseLimits::new(start);
        for n in 1..100_000 {
            limits.add_budget(QueuedTotals { data_frames: n, data_bytes: n, ..QueuedTotals::default() });
            assert!((0..3).all(|_| limits.count_control_frame(|| start)), "after {n} frames of DATA");
        }
        let remaining = (0..100_000).take_while(|_| limits.count_control_frame(|| start)).count();
        assert_eq!(remaining, CONTROL_FRAME_BURST as usize - 3, "the budget is never larger than a burst");
        limits.add_budget(QueuedTotals { responses: 1, data_frames: 100_000, data_bytes: 1 << 20 });
        let remaining = (0..100_000).take_while(|_| limits.count_control_frame(|| start)).count() as u64;
        assert_eq!(remaining, 32 + 4 + ((1 << 20) - 99_999) / 1024);
    }
}
