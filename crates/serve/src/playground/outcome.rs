//! The outcomes of requests to the playground, and how many there were of each.

use std::sync::atomic::{AtomicU64, Ordering};

/// The outcome of a request to the playground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaygroundOutcome {
    /// The target has answered, with whatever status.
    Answered,
    /// The request is malformed, too large, too slow, of another media type, or not from a page of the site itself
    /// (400, 403, 408, 413, 415).
    Refused,
    /// A rule of `playground.allow`, or the address of the target, does not permit the request (403).
    NotAllowed,
    /// The client has sent too many requests (429), or there are too many at a time (503).
    Limited,
    /// The target cannot be reached, or has sent no usable response (502).
    Failed,
    /// The target has not answered in time (504).
    TimedOut,
}

impl PlaygroundOutcome {
    /// All outcomes.
    pub const ALL: [PlaygroundOutcome; 6] = [
        PlaygroundOutcome::Answered,
        PlaygroundOutcome::Refused,
        PlaygroundOutcome::NotAllowed,
        PlaygroundOutcome::Limited,
        PlaygroundOutcome::Failed,
        PlaygroundOutcome::TimedOut,
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            PlaygroundOutcome::Answered => "answered",
            PlaygroundOutcome::Refused => "refused",
            PlaygroundOutcome::NotAllowed => "not_allowed",
            PlaygroundOutcome::Limited => "limited",
            PlaygroundOutcome::Failed => "failed",
            PlaygroundOutcome::TimedOut => "timed_out",
        }
    }
}

/// Counts requests by their outcomes.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCounts([AtomicU64; PlaygroundOutcome::ALL.len()]);

impl OutcomeCounts {
    pub(crate) fn count(&self, outcome: PlaygroundOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of requests with this outcome.
    pub(crate) fn get(&self, outcome: PlaygroundOutcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_own_count_and_name() {
        let counts = OutcomeCounts::default();
        for (n, outcome) in PlaygroundOutcome::ALL.into_iter().enumerate() {
            (0..=n).for_each(|_| counts.count(outcome));
        }
        for (n, outcome) in PlaygroundOutcome::ALL.into_iter().enumerate() {
            assert_eq!(counts.get(outcome), n as u64 + 1, "{outcome:?}");
        }
        let mut names = PlaygroundOutcome::ALL.map(PlaygroundOutcome::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
