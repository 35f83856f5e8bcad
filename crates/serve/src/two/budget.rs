//! How much of what nobody needs a peer may do: a burst, then so many a second, and more for each answer that it takes. A count
//! over the life of a connection would end honest clients: those that leave pages before they have come, and those that
//! measure the round trip with PING all the time. Pure: each moment is passed in.

use std::time::Instant;

/// Answers that a peer may have thrown away at once. The default of nghttp2 (`NGHTTP2_DEFAULT_STREAM_RESET_BURST`).
const RESET_BURST: u32 = 1_000;
/// And in each second: two pages of 100 resources each that are left before they have come.
const RESETS_PER_SECOND: u32 = 200;
/// Frames that ask for nothing at once, and in each second: less work than as many requests, which nobody counts.
const CONTROL_BURST: u32 = 10_000;
const CONTROL_PER_SECOND: u32 = 1_000;
/// More of them for each answer that has left whole: priorities, windows, a late reset.
const CONTROL_PER_ANSWER: u64 = 32;
/// More of them for each frame of DATA: a wider window of its stream and of the connection, and a PING.
const CONTROL_PER_DATA_FRAME: u64 = 4;
/// More of them for so many bytes of DATA: some clients widen windows by little more.
const DATA_BYTES_PER_CONTROL: u64 = 1_024;

/// Tokens that are taken one by one, come back with time, and can be earned.
#[derive(Debug)]
struct TokenBucket {
    tokens: u32,
    capacity: u32,
    per_second: u32,
    /// Up to when the tokens that came back with time have been counted.
    counted_to: Instant,
}

impl TokenBucket {
    /// A full one.
    fn new(capacity: u32, per_second: u32, now: Instant) -> TokenBucket {
        TokenBucket { tokens: capacity, capacity, per_second, counted_to: now }
    }

    /// Takes a token; false if there is none. Asks for the time only where no token is left, so that a frame costs no look at
    /// the clock; after a pause, up to twice the capacity can be taken at once.
    fn take(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.tokens == 0 {
            let now = now();
            let nanos = now.saturating_duration_since(self.counted_to).as_nanos();
            let came_back = nanos * u128::from(self.per_second) / 1_000_000_000;
            if came_back == 0 {
                return false;
            }
            // What is less than a token is lost, which is less than one in a thousand where it matters.
            self.counted_to = now;
            self.tokens = u32::try_from(came_back).unwrap_or(u32::MAX).min(self.capacity);
        }
        self.tokens -= 1;
        true
    }

    /// Puts in more, as far as there is room.
    fn earn(&mut self, tokens: u64) {
        let room = self.capacity - self.tokens;
        self.tokens += u32::try_from(tokens).unwrap_or(u32::MAX).min(room);
    }
}

/// What has been done for a peer since its connection began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Served {
    /// Answers that were put out whole.
    pub(super) answers: u64,
    /// Frames of DATA, and bytes in them.
    pub(super) data_frames: u64,
    pub(super) data_bytes: u64,
}

/// What the peer of a connection may still do that nobody needs.
#[derive(Debug)]
pub(super) struct PeerBudget {
    resets: TokenBucket,
    control: TokenBucket,
    /// What it has earned tokens for.
    served: Served,
}

impl PeerBudget {
    /// That of a new connection.
    pub(super) fn new(now: Instant) -> PeerBudget {
        PeerBudget {
            resets: TokenBucket::new(RESET_BURST, RESETS_PER_SECOND, now),
            control: TokenBucket::new(CONTROL_BURST, CONTROL_PER_SECOND, now),
            served: Served::default(),
        }
    }

    /// So much has been done for the peer by now.
    pub(super) fn earn(&mut self, served: Served) {
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

    /// An answer was made in vain, whichever side has brought it about (CVE-2023-44487, CVE-2025-8671); false if that is one too
    /// many.
    pub(super) fn reset(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.resets.take(now)
    }

    /// A frame came that asks for nothing; false if that is one too many.
    pub(super) fn control_frame(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.control.take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The first second, of at most so many, in which fewer than `each` of what is `taken` are allowed; none if that never is.
    fn refused_in(
        budget: &mut PeerBudget,
        begun: Instant,
        (seconds, each): (u64, u64),
        taken: impl Fn(&mut PeerBudget, Instant) -> bool,
    ) -> Option<u64> {
        (0..seconds).find(|second| {
            let now = |n: u64| begun + Duration::from_secs(*second) + Duration::from_secs(1) * n as u32 / each as u32;
            (0..each).any(|n| !taken(budget, now(n)))
        })
    }

    #[test]
    fn pages_left_before_they_have_come_are_no_abuse_and_rapid_reset_is() {
        let reset = |budget: &mut PeerBudget, now| budget.reset(|| now);
        // Resets in each second, for ten minutes; in which second it is too much.
        for (each, expected) in
            [(1, None), (100, None), (199, None), (400, Some(4)), (2_000, Some(0)), (50_000, Some(0))]
        {
            let begun = Instant::now();
            let refused = refused_in(&mut PeerBudget::new(begun), begun, (600, each), reset);
            assert_eq!(refused, expected, "{each} resets in each second");
        }
        // All at once, after an hour without any: never more than twice the burst.
        let begun = Instant::now();
        let mut budget = PeerBudget::new(begun);
        let later = begun + Duration::from_hours(1);
        assert_eq!((0..100_000).take_while(|_| budget.reset(|| later)).count(), 2_000);
    }

    #[test]
    fn a_reset_for_each_answer_that_is_taken_is_no_abuse() {
        let begun = Instant::now();
        let mut budget = PeerBudget::new(begun);
        for answers in 0..1_000_000 {
            budget.earn(Served { answers, ..Served::default() });
            assert!(budget.reset(|| begun), "reset {answers}");
        }
        let left = (0..100_000).take_while(|_| budget.reset(|| begun)).count();
        assert_eq!(left, RESET_BURST as usize - 1, "no more than a burst is saved up");
    }

    #[test]
    fn control_frames_are_counted_by_rate_and_against_what_was_sent() {
        let control = |budget: &mut PeerBudget, now| budget.control_frame(|| now);
        for (each, expected) in [(1, None), (990, None), (3_000, Some(4)), (20_000, Some(0))] {
            let begun = Instant::now();
            let refused = refused_in(&mut PeerBudget::new(begun), begun, (3_600, each), control);
            assert_eq!(refused, expected, "{each} frames in each second");
        }
        // Of no time at all: a frame of DATA is worth wider windows and a PING, also if it is as short as can be.
        let begun = Instant::now();
        let mut budget = PeerBudget::new(begun);
        for n in 1..100_000 {
            budget.earn(Served { data_frames: n, data_bytes: n, ..Served::default() });
            assert!((0..3).all(|_| budget.control_frame(|| begun)), "after {n} frames of DATA");
        }
        let left = (0..100_000).take_while(|_| budget.control_frame(|| begun)).count();
        assert_eq!(left, CONTROL_BURST as usize - 3, "no more than a burst is saved up");
        budget.earn(Served { answers: 1, data_frames: 100_000, data_bytes: 1 << 20 });
        let left = (0..100_000).take_while(|_| budget.control_frame(|| begun)).count() as u64;
        assert_eq!(left, 32 + 4 + ((1 << 20) - 99_999) / 1024);
    }
}
