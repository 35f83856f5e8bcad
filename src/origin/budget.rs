//! How many requests each organization may make in a window of time. In memory; pure, for it is told what time it is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests of all organizations together that are remembered, at about 40 bytes each. Beyond it nobody gets one more:
/// what must not be exceeded is the budget, whoever asks under however many names.
const REMEMBERED: usize = 1 << 18;

/// Requests that each may make in a window.
#[derive(Debug)]
pub struct Budget {
    most: u32,
    window: Duration,
    remembered: usize,
    taken: Mutex<Taken>,
}

/// What was taken within the last window.
#[derive(Debug, Default)]
struct Taken {
    /// By all, in the order of time.
    all: VecDeque<(Instant, Arc<str>)>,
    /// By each of them, in the order of time; nobody is here who has taken nothing.
    each: HashMap<Arc<str>, VecDeque<Instant>>,
}

impl Budget {
    /// At most `most` in any `window`.
    pub fn new(most: u32, window: Duration) -> Budget {
        Budget { most, window, remembered: REMEMBERED, taken: Mutex::default() }
    }

    /// Takes one of the budget of `who`; the error is how long it lasts until there is one again. What was taken at one
    /// moment is free again a whole window later, and no sooner.
    ///
    /// Threads that read the clock and then come in another order are taken to come at the time of the latest of them.
    pub fn take(&self, who: &str, now: Instant) -> Result<(), Duration> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let now = taken.all.back().map_or(now, |(last, _)| now.max(*last));
        taken.forget(now, self.window);
        let until_free = |oldest: Instant| self.window.saturating_sub(now.saturating_duration_since(oldest));
        let own = taken.each.get(who);
        if own.map_or(0, VecDeque::len) >= self.most as usize {
            return Err(own.and_then(VecDeque::front).map_or(self.window, |oldest| until_free(*oldest)));
        }
        if taken.all.len() >= self.remembered {
            return Err(taken.all.front().map_or(self.window, |(oldest, _)| until_free(*oldest)));
        }
        let who = taken.each.get_key_value(who).map_or_else(|| Arc::from(who), |(who, _)| Arc::clone(who));
        taken.each.entry(Arc::clone(&who)).or_default().push_back(now);
        taken.all.push_back((now, who));
        Ok(())
    }
}

impl Taken {
    /// Forgets what was taken a window ago. Each is forgotten once, so that a take costs the same on average whoever takes.
    fn forget(&mut self, now: Instant, window: Duration) {
        while let Some((at, who)) = self.all.front()
            && now.saturating_duration_since(*at) >= window
        {
            if let Some(own) = self.each.get_mut(who) {
                own.pop_front();
                if own.is_empty() {
                    self.each.remove(who);
                }
            }
            self.all.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn one_is_free_again_exactly_a_window_after_it_was_taken() {
        let (budget, start) = (Budget::new(2, HOUR), Instant::now());
        assert_eq!(budget.take("a", start), Ok(()));
        assert_eq!(budget.take("a", start + seconds(10)), Ok(()));
        assert_eq!(budget.take("a", start + seconds(20)), Err(seconds(3580)));
        let just_before = start + Duration::from_nanos(3_599_999_999_999);
        assert_eq!(budget.take("a", just_before), Err(Duration::from_nanos(1)));
        assert_eq!(budget.take("a", start + HOUR), Ok(()));
        assert_eq!(budget.take("a", start + HOUR), Err(seconds(10)));
    }

    #[test]
    fn a_refusal_costs_nothing_and_nobody_pays_for_another() {
        let (budget, start) = (Budget::new(1, seconds(60)), Instant::now());
        budget.take("a", start).unwrap();
        for n in 1..50 {
            assert_eq!(budget.take("a", start + seconds(n)), Err(seconds(60 - n)));
        }
        assert_eq!(budget.take("b", start + seconds(50)), Ok(()));
        assert_eq!(budget.take("a", start + seconds(60)), Ok(()));
        assert_eq!(Budget::new(0, HOUR).take("a", start), Err(HOUR));
    }

    #[test]
    fn never_more_than_the_budget_in_any_window_and_never_less_than_it_gives() {
        let (most, window) = (5, 100);
        let (budget, start) = (Budget::new(most, seconds(window)), Instant::now());
        let (mut now, mut state, mut taken) = (0, 7_u64, Vec::new());
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += (state >> 33) % 30;
            let within = taken.iter().filter(|at| now - **at < window).count();
            match budget.take("a", start + seconds(now)) {
                Ok(()) => {
                    assert!(within < most as usize);
                    taken.push(now);
                }
                Err(until) => {
                    assert_eq!(within, most as usize);
                    assert_eq!(until, seconds(taken[taken.len() - most as usize] + window - now));
                }
            }
        }
        assert!(taken.len() > 5_000);
    }

    #[test]
    fn memory_is_bounded_however_many_ask_and_comes_back() {
        let start = Instant::now();
        let budget = Budget { remembered: 100, ..Budget::new(3, HOUR) };
        let names = |from: u32| (from..from + 1000).map(|n| n.to_string());
        let given = names(0).filter(|who| budget.take(who, start).is_ok()).count();
        assert_eq!(given, 100);
        assert_eq!(budget.take("new", start + seconds(1)), Err(seconds(3599)));
        assert_eq!(budget.take("new", start + HOUR), Ok(()));
        let taken = budget.taken.lock().unwrap();
        assert_eq!((taken.all.len(), taken.each.len()), (1, 1));
    }

    #[test]
    fn threads_that_come_in_another_order_than_their_clocks_get_no_more() {
        let (budget, start) = (Budget::new(2, seconds(10)), Instant::now());
        budget.take("a", start + seconds(5)).unwrap();
        budget.take("a", start).unwrap();
        assert_eq!(budget.take("a", start + seconds(14)), Err(seconds(1)));
        assert_eq!(budget.take("a", start + seconds(15)), Ok(()));
    }
}
