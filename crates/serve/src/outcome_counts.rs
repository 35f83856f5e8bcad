//! Counts of requests by their outcome, and by one more label where a resource has several operations.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// A label of counts, with a fixed number of values.
pub trait CountLabel: Copy + PartialEq + 'static {
    /// The name of the label in metrics; empty for [`()`](unit), which metrics leave out.
    const KEY: &'static str;
    /// All values. No two have the same name.
    const ALL: &'static [Self];

    /// Returns the name of the value in metrics.
    fn name(self) -> &'static str;
}

/// The second label of counts that have only an outcome.
impl CountLabel for () {
    const KEY: &'static str = "";
    const ALL: &'static [()] = &[()];

    fn name(self) -> &'static str {
        ""
    }
}

/// The number of requests with each outcome since the start, for each value of a second label.
#[derive(Debug)]
pub struct OutcomeCounts<O: CountLabel, L: CountLabel = ()> {
    counts: Box<[AtomicU64]>,
    labels: PhantomData<fn() -> (O, L)>,
}

impl<O: CountLabel, L: CountLabel> Default for OutcomeCounts<O, L> {
    fn default() -> OutcomeCounts<O, L> {
        let counts = (0..O::ALL.len() * L::ALL.len()).map(|_| AtomicU64::default()).collect();
        OutcomeCounts { counts, labels: PhantomData }
    }
}

impl<O: CountLabel, L: CountLabel> OutcomeCounts<O, L> {
    /// Counts a request.
    pub(crate) fn count_with(&self, label: L, outcome: O) {
        if let Some(count) = self.find(label, outcome) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of requests with these labels.
    pub fn get_with(&self, label: L, outcome: O) -> u64 {
        self.find(label, outcome).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn find(&self, label: L, outcome: O) -> Option<&AtomicU64> {
        let row = L::ALL.iter().position(|one| *one == label)?;
        let column = O::ALL.iter().position(|one| *one == outcome)?;
        self.counts.get(row * O::ALL.len() + column)
    }
}

impl<O: CountLabel> OutcomeCounts<O> {
    /// Counts a request.
    pub(crate) fn count(&self, outcome: O) {
        self.count_with((), outcome);
    }

    /// Returns the number of requests with this outcome.
    pub fn get(&self, outcome: O) -> u64 {
        self.get_with((), outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::AskOutcome;
    use crate::markdown_statistics::{MarkdownEndpoint, MarkdownOutcome};
    use crate::mcp_statistics::{McpOperation, McpOutcome};
    use crate::playground::PlaygroundOutcome;

    /// Counts each pair of values another number of times, and checks the counts and the names.
    fn check<O: CountLabel, L: CountLabel>() {
        let counts = OutcomeCounts::<O, L>::default();
        let pairs = || L::ALL.iter().flat_map(|label| O::ALL.iter().map(move |outcome| (*label, *outcome)));
        for (times, (label, outcome)) in pairs().enumerate() {
            (0..=times).for_each(|_| counts.count_with(label, outcome));
        }
        for (times, (label, outcome)) in pairs().enumerate() {
            assert_eq!(counts.get_with(label, outcome), times as u64 + 1, "{} {}", label.name(), outcome.name());
            assert_eq!(
                pairs().filter(|other| (other.0.name(), other.1.name()) == (label.name(), outcome.name())).count(),
                1
            );
        }
        assert_eq!(pairs().count(), O::ALL.len() * L::ALL.len());
    }

    #[test]
    fn each_outcome_and_each_operation_has_its_own_count_and_name() {
        check::<AskOutcome, ()>();
        check::<PlaygroundOutcome, ()>();
        check::<McpOutcome, McpOperation>();
        check::<MarkdownOutcome, MarkdownEndpoint>();
    }
}
