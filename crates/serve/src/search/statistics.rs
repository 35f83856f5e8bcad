//! Counts of the queries of a site: by outcome, and by duration.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The outcome of a request to the search that had a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryOutcome {
    /// There were results.
    Ok,
    /// Nothing was found.
    Empty,
    /// The query was ended by its deadline.
    Partial,
    /// The query waited for too long, or too many were waiting: status 503.
    Busy,
    /// There was no index yet: status 503.
    Indexing,
    /// The parameters were not valid: status 400.
    Invalid,
    /// The index could not be read: status 500.
    Failed,
}

impl QueryOutcome {
    /// All outcomes.
    pub const ALL: [QueryOutcome; 7] = [
        QueryOutcome::Ok,
        QueryOutcome::Empty,
        QueryOutcome::Partial,
        QueryOutcome::Busy,
        QueryOutcome::Indexing,
        QueryOutcome::Invalid,
        QueryOutcome::Failed,
    ];

    /// The name of the outcome in metrics.
    pub fn name(self) -> &'static str {
        match self {
            QueryOutcome::Ok => "ok",
            QueryOutcome::Empty => "empty",
            QueryOutcome::Partial => "partial",
            QueryOutcome::Busy => "busy",
            QueryOutcome::Indexing => "indexing",
            QueryOutcome::Invalid => "invalid",
            QueryOutcome::Failed => "failed",
        }
    }
}

/// The upper bounds of the buckets of the histogram of durations, in seconds. The last bucket has no bound.
pub const QUERY_DURATION_BOUNDS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/// The counts at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryStatistics {
    outcomes: [u64; QueryOutcome::ALL.len()],
    /// The number of queries that ran, by duration: one number for each of [`QUERY_DURATION_BOUNDS`], and one for all
    /// longer ones. The buckets do not overlap.
    pub durations: [u64; QUERY_DURATION_BOUNDS.len() + 1],
    /// The sum of the durations in seconds.
    pub total_seconds: f64,
}

impl QueryStatistics {
    /// Returns the number of queries with this outcome.
    pub fn count(&self, outcome: QueryOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }
}

/// The counters of a site.
#[derive(Debug, Default)]
pub(super) struct QueryCounters {
    outcomes: [AtomicU64; QueryOutcome::ALL.len()],
    durations: [AtomicU64; QUERY_DURATION_BOUNDS.len() + 1],
    total_micros: AtomicU64,
}

impl QueryCounters {
    /// Counts a query with this outcome.
    pub(super) fn count(&self, outcome: QueryOutcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a query that ran for this time.
    pub(super) fn record_duration(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket =
            QUERY_DURATION_BOUNDS.iter().position(|&bound| seconds <= bound).unwrap_or(QUERY_DURATION_BOUNDS.len());
        self.durations[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.total_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub(super) fn read(&self) -> QueryStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueryStatistics {
            outcomes: self.outcomes.each_ref().map(load),
            durations: self.durations.each_ref().map(load),
            total_seconds: Duration::from_micros(load(&self.total_micros)).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_own_name_and_count() {
        let counters = QueryCounters::default();
        for (index, outcome) in QueryOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index, "{outcome:?}");
            for _ in 0..=index {
                counters.count(outcome);
            }
        }
        let statistics = counters.read();
        for (index, outcome) in QueryOutcome::ALL.into_iter().enumerate() {
            assert_eq!(statistics.count(outcome), index as u64 + 1, "{outcome:?}");
            let others = QueryOutcome::ALL.into_iter().filter(|other| other.name() == outcome.name());
            assert_eq!(others.count(), 1, "{outcome:?}");
        }
    }

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let counters = QueryCounters::default();
        for micros in [0, 1_000, 1_001, 250_000, 500_000, 500_001, 7_000_000] {
            counters.record_duration(Duration::from_micros(micros));
        }
        let statistics = counters.read();
        assert_eq!(statistics.durations, [2, 1, 0, 0, 0, 0, 0, 1, 1, 2]);
        assert!((statistics.total_seconds - 8.252_002).abs() < 1e-9, "{}", statistics.total_seconds);
    }
}
