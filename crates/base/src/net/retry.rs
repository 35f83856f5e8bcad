//! Decides whether and when to retry a call (`docs/design/agent.md`, rule 4). No I/O.

use std::time::Duration;

use crate::backoff;

use super::trouble::{Cause, Trouble};

/// Upper bound of the attempts at one call.
const ATTEMPTS: u32 = 5;
/// Upper bound of the repetitions of a POST whose response was lost: the server may have processed each of them.
const BLIND: u32 = 2;
/// Upper bound of the `Retry-After` that a sync waits for; a longer one ends it.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The kind of call, which decides whether it may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A POST that starts a job.
    Start,
    /// A GET.
    Read,
    /// The POST that requests a link: it starts nothing.
    Link,
}

/// The attempts made so far at one call.
#[derive(Debug, Clone, Default)]
pub struct Attempts {
    made: u32,
    blind: u32,
}

impl Attempts {
    /// Starts counting again, after a good response.
    pub fn reset(&mut self) {
        *self = Attempts::default();
    }

    /// Whether an attempt may have been processed by the server although its response was lost.
    pub fn was_blind(&self) -> bool {
        self.blind > 0
    }

    /// Records a failed attempt. Returns how long to wait before the next one, or `None` to give up. `random` is from 0
    /// to 1.
    pub fn next(&mut self, call: Call, trouble: &Trouble, random: f64) -> Option<Duration> {
        self.made += 1;
        let again = match trouble.cause {
            Cause::NotSent | Cause::Status(408 | 429 | 500..=599) => true,
            Cause::Status(409) => call == Call::Link,
            Cause::Lost | Cause::Unreadable => {
                self.blind += 1;
                call != Call::Start || self.blind <= BLIND
            }
            Cause::Status(_) | Cause::Redirected | Cause::Tls | Cause::TooLarge | Cause::Disk => false,
        };
        if !again || self.made >= ATTEMPTS || trouble.retry_after.is_some_and(|wait| wait > PATIENCE) {
            return None;
        }
        Some(backoff::step(self.made, random).max(trouble.retry_after.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(cause: Cause) -> Trouble {
        Trouble::new(cause, "x")
    }

    fn pauses(call: Call, cause: Cause, random: f64) -> Vec<u128> {
        let mut attempts = Attempts::default();
        std::iter::from_fn(|| attempts.next(call, &trouble(cause), random)).map(|d| d.as_millis()).collect()
    }

    #[test]
    fn five_attempts_with_pauses_that_double_and_are_never_less_than_half() {
        assert_eq!(pauses(Call::Read, Cause::Status(503), 1.0), [1000, 2000, 4000, 8000]);
        assert_eq!(pauses(Call::Link, Cause::Lost, 0.0), [500, 1000, 2000, 4000]);
        assert_eq!(pauses(Call::Start, Cause::NotSent, 1.0).len(), 4);
    }

    #[test]
    fn a_post_whose_answer_was_lost_is_repeated_twice_at_most() {
        assert_eq!(pauses(Call::Start, Cause::Lost, 1.0).len(), 2);
        assert_eq!(pauses(Call::Start, Cause::Unreadable, 1.0).len(), 2);
        assert_eq!(pauses(Call::Start, Cause::Status(500), 1.0).len(), 4);
    }

    #[test]
    fn refusals_are_final_at_once() {
        for status in [400, 401, 403, 404, 422] {
            assert!(pauses(Call::Read, Cause::Status(status), 1.0).is_empty(), "{status}");
        }
        assert!(pauses(Call::Start, Cause::Status(409), 1.0).is_empty());
        assert_eq!(pauses(Call::Link, Cause::Status(409), 1.0).len(), 4);
    }

    #[test]
    fn retry_after_is_a_lower_bound_and_ends_it_when_too_long() {
        let mut busy = trouble(Cause::Status(429));
        busy.retry_after = Some(Duration::from_secs(7));
        assert_eq!(Attempts::default().next(Call::Read, &busy, 0.0), Some(Duration::from_secs(7)));
        busy.retry_after = Some(Duration::from_mins(1));
        assert_eq!(Attempts::default().next(Call::Read, &busy, 0.0), Some(Duration::from_mins(1)));
        busy.retry_after = Some(Duration::from_secs(61));
        assert_eq!(Attempts::default().next(Call::Read, &busy, 0.0), None);
    }

    #[test]
    fn what_may_pass_is_asked_for_again_and_what_will_not_is_final() {
        for status in [200, 302, 400, 405, 407, 410, 418, 428, 430, 451, 499, 600] {
            for call in [Call::Start, Call::Read, Call::Link] {
                assert!(pauses(call, Cause::Status(status), 1.0).is_empty(), "{call:?} {status}");
            }
        }
        for status in [408, 429, 500, 502, 503, 504, 599] {
            for call in [Call::Start, Call::Read, Call::Link] {
                assert_eq!(pauses(call, Cause::Status(status), 1.0).len(), 4, "{call:?} {status}");
            }
        }
        for (cause, start, others) in [
            (Cause::NotSent, 4, 4),
            (Cause::Lost, 2, 4),
            (Cause::Unreadable, 2, 4),
            (Cause::Redirected, 0, 0),
            (Cause::Tls, 0, 0),
            (Cause::TooLarge, 0, 0),
            (Cause::Disk, 0, 0),
        ] {
            let found = [Call::Start, Call::Read, Call::Link].map(|call| pauses(call, cause, 0.5).len());
            assert_eq!(found, [start, others, others], "{cause:?}");
        }
        assert!(pauses(Call::Read, Cause::Status(409), 1.0).is_empty());
    }

    #[test]
    fn lost_answers_are_counted_among_others_until_a_good_one() {
        let mut attempts = Attempts::default();
        let mut next = |cause| (attempts.next(Call::Start, &trouble(cause), 1.0).is_some(), attempts.was_blind());
        assert_eq!(next(Cause::Status(503)), (true, false));
        assert_eq!(next(Cause::Lost), (true, true));
        assert_eq!(next(Cause::Status(503)), (true, true));
        assert_eq!(next(Cause::Unreadable), (true, true));
        assert_eq!(next(Cause::NotSent), (false, true), "that was the fifth");
        attempts.reset();
        assert!(!attempts.was_blind());
        let next = |cause| attempts.next(Call::Start, &trouble(cause), 1.0).map(|wait| wait.as_secs());
        let lost = [Cause::Lost, Cause::Unreadable, Cause::Lost].map(next);
        assert_eq!(lost, [Some(1), Some(2), None]);
    }

    #[test]
    fn a_short_retry_after_shortens_no_pause() {
        let mut busy = trouble(Cause::Status(503));
        for (wait, pause) in
            [(0, Some(1000)), (999, Some(1000)), (1001, Some(1001)), (60_000, Some(60_000)), (60_001, None)]
        {
            busy.retry_after = Some(Duration::from_millis(wait));
            let next = Attempts::default().next(Call::Read, &busy, 1.0);
            assert_eq!(next.map(|next| next.as_millis()), pause, "{wait}");
        }
    }
}
