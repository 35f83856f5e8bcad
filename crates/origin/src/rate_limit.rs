//! Rate limits: how much each organization may use within a sliding window of time. The state is in memory, and the
//! caller passes the current time.
//!
//! The use of each organization is recorded separately and in bounded memory. Requests of one organization do not
//! affect another one, unless there is a limit for all organizations together.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::locks::Mutex;

use super::shares::LimitReached;

/// The number of entries of one organization that are recorded individually, at 40 bytes each.
const MAX_EXACT_ENTRIES: usize = 1024;
/// The fraction of the window that one combined entry covers, once an organization has [`MAX_EXACT_ENTRIES`] entries. A
/// combined entry expires when the last use in it expires. So an organization has about `MAX_EXACT_ENTRIES + PARTS`
/// entries at most, and never exceeds its limit in any window.
const WINDOW_PARTS: u32 = 1024;

/// A limit for each organization in a sliding window, and one for all organizations together.
#[derive(Debug)]
pub struct RateLimiter {
    organization: u64,
    total: u64,
    /// The amount that an organization which has used something must leave for organizations that have used nothing.
    reserve: u64,
    window: Duration,
    taken: Mutex<RateLimiterState>,
}

/// The error if a rate limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitExceeded {
    /// The limit that is exceeded: that of the organization, or the total.
    pub limit: LimitReached,
    /// The time after which the requested amount is available.
    pub wait: Duration,
}

/// The use within the last window.
#[derive(Debug, Default)]
struct RateLimiterState {
    /// The latest time that a caller has passed.
    latest: Option<Instant>,
    /// The time at which organizations without recent use were last removed.
    swept: Option<Instant>,
    all: WindowUsage,
    each: HashMap<Arc<str>, WindowUsage>,
}

/// The use of one organization, or of all of them, in the order of time.
#[derive(Debug, Default)]
struct WindowUsage {
    entries: VecDeque<WindowUsageEntry>,
    sum: u64,
}

#[derive(Debug)]
struct WindowUsageEntry {
    first: Instant,
    last: Instant,
    amount: u64,
}

impl RateLimiter {
    /// Creates a limit of `organization` in any `window` for each organization, without a total limit.
    pub fn new(organization: u32, window: Duration) -> RateLimiter {
        RateLimiter::with_total(u64::from(organization), u64::MAX, 0, window)
    }

    /// Creates a limit of `organization` for each organization and of `total` for all together. An organization that
    /// has used something must leave `reserve` of the total for the others.
    pub fn with_total(organization: u64, total: u64, reserve: u64, window: Duration) -> RateLimiter {
        RateLimiter { organization, total, reserve, window, taken: Mutex::default() }
    }

    /// Uses one unit of the limit of `who`. The error is the time until a unit is available. A unit becomes available
    /// again exactly one window after its use.
    pub fn use_one(&self, who: &str, now: Instant) -> Result<(), Duration> {
        self.use_amount(who, 1, now).map_err(|over| over.wait)
    }

    /// Uses `amount` units of the limit of `who`, all of them or none.
    ///
    /// Threads may call this in another order than they read the clock. A `now` that is earlier than a previous one
    /// counts as the latest time so far.
    pub fn use_amount(&self, who: &str, amount: u64, now: Instant) -> Result<(), RateLimitExceeded> {
        let taken = &mut *self.taken.lock();
        let now = taken.latest.map_or(now, |latest| now.max(latest));
        taken.latest = Some(now);
        taken.sweep(now, self.window);
        taken.all.forget(now, self.window);
        let who = taken.each.get_key_value(who).map_or_else(|| Arc::from(who), |(who, _)| Arc::clone(who));
        let none = WindowUsage::default();
        let own = match taken.each.get_mut(&who) {
            Some(own) => {
                own.forget(now, self.window);
                &*own
            }
            None => &none,
        };
        if let Some(over) = own.sum.saturating_add(amount).checked_sub(self.organization).filter(|over| *over > 0) {
            return Err(RateLimitExceeded {
                limit: LimitReached::Organization,
                wait: own.wait(over, now, self.window),
            });
        }
        let reserve = if own.sum > 0 { self.reserve } else { 0 };
        let wanted = taken.all.sum.saturating_add(amount).saturating_add(reserve);
        if let Some(over) = wanted.checked_sub(self.total).filter(|over| *over > 0) {
            return Err(RateLimitExceeded { limit: LimitReached::Total, wait: taken.all.wait(over, now, self.window) });
        }
        taken.each.entry(who).or_default().push(amount, now, self.window);
        // The total is recorded only if there is a limit for it.
        if self.total < u64::MAX {
            taken.all.push(amount, now, self.window);
        }
        Ok(())
    }

    /// Returns the use of all organizations within the last window. It is recorded only if there is a total limit.
    pub fn in_use(&self, now: Instant) -> u64 {
        let mut taken = self.taken.lock();
        taken.all.forget(now, self.window);
        taken.all.sum
    }
}

impl RateLimiterState {
    /// Removes organizations without use in the last window. It does so once per window.
    fn sweep(&mut self, now: Instant, window: Duration) {
        let swept = *self.swept.get_or_insert(now);
        if now.saturating_duration_since(swept) >= window {
            self.swept = Some(now);
            self.each.retain(|_, own| {
                own.forget(now, window);
                !own.entries.is_empty()
            });
        }
    }
}

impl WindowUsage {
    /// Removes the entries that are at least one window old.
    fn forget(&mut self, now: Instant, window: Duration) {
        while let Some(oldest) = self.entries.front()
            && now.saturating_duration_since(oldest.last) >= window
        {
            self.sum -= oldest.amount;
            self.entries.pop_front();
        }
    }

    fn push(&mut self, amount: u64, now: Instant, window: Duration) {
        self.sum += amount;
        let is_full = self.entries.len() >= MAX_EXACT_ENTRIES;
        match self.entries.back_mut() {
            Some(last) if is_full && now.saturating_duration_since(last.first) < window / WINDOW_PARTS => {
                last.last = now;
                last.amount += amount;
            }
            _ => self.entries.push_back(WindowUsageEntry { first: now, last: now, amount }),
        }
    }

    /// Returns the time until `amount` units expire, or the whole window if fewer are recorded.
    fn wait(&self, mut amount: u64, now: Instant, window: Duration) -> Duration {
        for entry in &self.entries {
            if entry.amount >= amount {
                return window.saturating_sub(now.saturating_duration_since(entry.last));
            }
            amount -= entry.amount;
        }
        window
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
        let (budget, start) = (RateLimiter::new(2, HOUR), Instant::now());
        assert_eq!(budget.use_one("a", start), Ok(()));
        assert_eq!(budget.use_one("a", start + seconds(10)), Ok(()));
        assert_eq!(budget.use_one("a", start + seconds(20)), Err(seconds(3580)));
        let just_before = start + Duration::from_nanos(3_599_999_999_999);
        assert_eq!(budget.use_one("a", just_before), Err(Duration::from_nanos(1)));
        assert_eq!(budget.use_one("a", start + HOUR), Ok(()));
        assert_eq!(budget.use_one("a", start + HOUR), Err(seconds(10)));
    }

    #[test]
    fn a_refusal_costs_nothing_and_nobody_pays_for_another() {
        let (budget, start) = (RateLimiter::new(1, seconds(60)), Instant::now());
        budget.use_one("a", start).unwrap();
        for n in 1..50 {
            assert_eq!(budget.use_one("a", start + seconds(n)), Err(seconds(60 - n)));
        }
        assert_eq!(budget.use_one("b", start + seconds(50)), Ok(()));
        assert_eq!(budget.use_one("a", start + seconds(60)), Ok(()));
        assert_eq!(RateLimiter::new(0, HOUR).use_one("a", start), Err(HOUR));
    }

    #[test]
    fn never_more_than_the_budget_in_any_window_and_never_less_than_it_gives() {
        let (most, window) = (5, 100);
        let (budget, start) = (RateLimiter::new(most, seconds(window)), Instant::now());
        let (mut now, mut state, mut taken) = (0, 7_u64, Vec::new());
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += (state >> 33) % 30;
            let within = taken.iter().filter(|at| now - **at < window).count();
            match budget.use_one("a", start + seconds(now)) {
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
    fn one_organization_does_not_close_the_budget_for_others_and_memory_is_bounded() {
        let (budget, start) = (RateLimiter::new(10_000, HOUR), Instant::now());
        let names: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        for who in &names {
            for n in 0..10_000 {
                assert_eq!(budget.use_one(who, start + Duration::from_millis(n)), Ok(()), "{who}: the {n}th");
            }
            assert!(budget.use_one(who, start + seconds(10)).is_err());
        }
        // The use is spread over the whole window.
        for n in 0..10_000 {
            budget.use_one("even", start + seconds(11) + Duration::from_millis(n * 300)).unwrap();
        }
        let entries: usize = budget.taken.lock().each.values().map(|own| own.entries.len()).sum();
        assert!(entries <= 61 * (MAX_EXACT_ENTRIES + WINDOW_PARTS as usize + 1), "{entries}");
        assert_eq!(budget.use_one("0", start + HOUR + HOUR), Ok(()));
        assert_eq!(budget.taken.lock().each.len(), 1, "those who have taken nothing for an hour are gone");
    }

    #[test]
    fn what_is_remembered_together_is_free_when_the_last_of_it_is() {
        let (most, window) = (4000, seconds(1024));
        let (budget, start) = (RateLimiter::new(most, window), Instant::now());
        for _ in 0..MAX_EXACT_ENTRIES {
            budget.use_one("a", start).unwrap();
        }
        for tenth in 0..10 {
            budget.use_one("a", start + seconds(5) + Duration::from_millis(tenth * 100)).unwrap();
        }
        let now = start + window;
        assert_eq!(budget.use_amount("a", u64::from(most) - 10, now), Ok(()));
        let wait = Duration::from_millis(5900);
        assert_eq!(budget.use_amount("a", 1, now), Err(RateLimitExceeded { limit: LimitReached::Organization, wait }));
    }

    #[test]
    fn all_together_have_a_bound_and_leave_some_of_it_to_who_has_taken_nothing() {
        let (budget, start) = (RateLimiter::with_total(80, 100, 10, HOUR), Instant::now());
        budget.use_amount("a", 70, start).unwrap();
        assert_eq!(budget.use_amount("a", 11, start).unwrap_err().limit, LimitReached::Organization);
        budget.use_amount("b", 15, start + seconds(60)).unwrap();
        let over = RateLimitExceeded { limit: LimitReached::Total, wait: seconds(3530) };
        assert_eq!(budget.use_amount("b", 6, start + seconds(70)), Err(over));
        assert_eq!(budget.use_amount("c", 15, start + seconds(70)), Ok(()));
        assert_eq!(budget.in_use(start + seconds(70)), 100);
        assert_eq!(budget.use_amount("b", 6, start + HOUR), Ok(()));
        assert_eq!(
            budget.use_amount("x", 101, start + HOUR).unwrap_err(),
            RateLimitExceeded { limit: LimitReached::Organization, wait: HOUR }
        );
    }

    #[test]
    fn threads_that_come_in_another_order_than_their_clocks_get_no_more() {
        let (budget, start) = (RateLimiter::new(2, seconds(10)), Instant::now());
        budget.use_one("a", start + seconds(5)).unwrap();
        budget.use_one("a", start).unwrap();
        assert_eq!(budget.use_one("a", start + seconds(14)), Err(seconds(1)));
        assert_eq!(budget.use_one("a", start + seconds(15)), Ok(()));
    }
}
