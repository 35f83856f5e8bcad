//! The time that a query may take.

use std::time::Instant;

/// The number of steps between two checks of the time.
const STEPS_PER_TIME_CHECK: usize = 1024;

/// The clock by which a query ends in time. A step is a section that is examined, a word of the dictionary,
/// or a character of one that is compared.
#[derive(Debug)]
pub(super) struct QueryClock {
    deadline: Option<Instant>,
    steps: usize,
    is_over: bool,
}

impl QueryClock {
    /// Creates a clock; without a deadline the time is never over.
    pub(super) fn new(deadline: Option<Instant>) -> QueryClock {
        // A deadline that is over already is noticed at the first step.
        QueryClock { deadline, steps: STEPS_PER_TIME_CHECK, is_over: false }
    }

    /// Counts steps. Returns whether the time is over.
    pub(super) fn advance(&mut self, steps: usize) -> bool {
        self.steps += steps;
        if self.steps >= STEPS_PER_TIME_CHECK && !self.is_over {
            self.steps = 0;
            self.is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        }
        self.is_over
    }

    /// Checks the time. Returns whether it is over. For steps that take long.
    pub(super) fn check_time(&mut self) -> bool {
        self.advance(STEPS_PER_TIME_CHECK)
    }

    /// Ends the time, which is not noticed before the next check.
    #[cfg(test)]
    pub(super) fn end_time(&mut self) {
        self.deadline = Some(Instant::now());
    }

    /// Whether the time was over at the last check.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_is_over_at_the_deadline_and_stays_over() {
        let mut clock = QueryClock::new(None);
        assert!(!clock.advance(1 << 20));
        let mut clock = QueryClock::new(Some(Instant::now()));
        assert!(!clock.is_over() && clock.advance(1) && clock.advance(1) && clock.is_over());
        let mut clock = QueryClock::new(Some(Instant::now() + Duration::from_hours(1)));
        assert!(!clock.advance(1 << 20) && !clock.is_over());
    }

    #[test]
    fn a_check_notices_the_end_of_the_time_at_once() {
        let mut clock = QueryClock::new(None);
        assert!(!clock.advance(1) && !clock.check_time());
        clock.end_time();
        assert!(!clock.advance(1), "few steps since the last check");
        assert!(clock.check_time());
    }
}
