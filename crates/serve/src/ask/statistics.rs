//! Counts of the questions of a site, by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

/// The outcome of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskOutcome {
    /// The model has answered with citations.
    Answered,
    /// The search found nothing, so the model was not asked.
    NothingFound,
    /// The answer had no citation and was withheld.
    Uncited,
    /// The request was malformed or too large: status 400, 408 or 413.
    Invalid,
    /// The request came from another site, or for another host: status 403.
    Forbidden,
    /// The client has asked too often, or all clients have: status 429.
    RateLimited,
    /// Too many questions were being answered: status 503.
    Busy,
    /// There was no index yet: status 503.
    Indexing,
    /// The endpoint has failed or sent no usable answer: status 502.
    EndpointFailed,
    /// The endpoint did not answer in time: status 504.
    TimedOut,
    /// The reader has disconnected before the end.
    Cancelled,
}

impl AskOutcome {
    /// All outcomes.
    pub const ALL: [AskOutcome; 11] = [
        AskOutcome::Answered,
        AskOutcome::NothingFound,
        AskOutcome::Uncited,
        AskOutcome::Invalid,
        AskOutcome::Forbidden,
        AskOutcome::RateLimited,
        AskOutcome::Busy,
        AskOutcome::Indexing,
        AskOutcome::EndpointFailed,
        AskOutcome::TimedOut,
        AskOutcome::Cancelled,
    ];

    /// The name of the outcome in metrics.
    pub fn name(self) -> &'static str {
        match self {
            AskOutcome::Answered => "answered",
            AskOutcome::NothingFound => "nothing_found",
            AskOutcome::Uncited => "uncited",
            AskOutcome::Invalid => "invalid",
            AskOutcome::Forbidden => "forbidden",
            AskOutcome::RateLimited => "rate_limited",
            AskOutcome::Busy => "busy",
            AskOutcome::Indexing => "indexing",
            AskOutcome::EndpointFailed => "endpoint_failed",
            AskOutcome::TimedOut => "timed_out",
            AskOutcome::Cancelled => "cancelled",
        }
    }
}

/// The counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskStatistics([u64; AskOutcome::ALL.len()]);

impl AskStatistics {
    /// Returns the number of questions with this outcome.
    pub fn count(&self, outcome: AskOutcome) -> u64 {
        self.0[outcome as usize]
    }
}

/// The counts since the start.
#[derive(Debug, Default)]
pub(super) struct AskCounters([AtomicU64; AskOutcome::ALL.len()]);

impl AskCounters {
    /// Counts a question.
    pub(super) fn count(&self, outcome: AskOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the counts.
    pub(super) fn read(&self) -> AskStatistics {
        AskStatistics(std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_own_count_and_name() {
        let counters = AskCounters::default();
        for (index, outcome) in AskOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
            for _ in 0..=index {
                counters.count(outcome);
            }
        }
        let statistics = counters.read();
        for (index, outcome) in AskOutcome::ALL.into_iter().enumerate() {
            assert_eq!(statistics.count(outcome), index as u64 + 1, "{}", outcome.name());
            assert_eq!(AskOutcome::ALL.iter().filter(|other| other.name() == outcome.name()).count(), 1);
        }
    }
}
