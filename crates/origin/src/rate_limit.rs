//! Rate limits: how much each organization may use within a sliding window of time. The state is in memory, and the
//! caller passes the current time.
//!
//! The use of each organization is recorded separately and in bounded memory. Requests of one organization do not
//! affect another one, unless there is a limit for all organizations together.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::locks::Mutex;

use super::resource_pools::LimitReached;

/// The number of entries of one organization that are recorded individually, at 40 bytes each.
const MAX_EXACT_ENTRIES: usize = 1024;
/// The number of parts of a window. Once an organization has [`MAX_EXACT_ENTRIES`] entries, one combined entry covers
/// the use within one part, and expires when the last use in it expires. So an organization has at most about
/// `MAX_EXACT_ENTRIES + WINDOW_PARTS` entries, and never exceeds its limit in any window.
const WINDOW_PARTS: u32 = 1024;

/// A limit for each organization in a sliding window, and one for all organizations together.
#[derive(Debug)]
pub struct RateLimiter {
    per_organization_limit: u64,
    total_limit: u64,
    /// The amount that an organization which has used something must leave for organizations that have used nothing.
    reserve: u64,
    window: Duration,
    state: Mutex<RateLimiterState>,
}

/// The error if a rate limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitExceeded {
    /// The limit that is exceeded: that of the organization, or the total.
    pub limit: LimitReached,
    /// The time after which the requested amount is available.
    pub wait_time: Duration,
}

/// The use within the last window.
#[derive(Debug, Default)]
struct RateLimiterState {
    /// The latest `now` of any call.
    latest: Option<Instant>,
    /// The time at which organizations without recent use were last removed.
    last_sweep: Option<Instant>,
    total: WindowUsage,
    by_organization: HashMap<Arc<str>, WindowUsage>,
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
    /// Creates a limit of `limit` uses per organization within any `window`, without a total limit.
    pub fn new(limit: u32, window: Duration) -> RateLimiter {
        RateLimiter::with_total(u64::from(limit), u64::MAX, 0, window)
    }

    /// Creates a limit of `per_organization_limit` for each organization and of `total_limit` for all together. An
    /// organization that has used something must leave `reserve` of the total for the others.
    pub fn with_total(per_organization_limit: u64, total_limit: u64, reserve: u64, window: Duration) -> RateLimiter {
        RateLimiter { per_organization_limit, total_limit, reserve, window, state: Mutex::default() }
    }

    /// Uses one unit of the limit of `organization`. The error is the time until a unit is available. A unit becomes
    /// available again one window after its use, or up to 1/1024 of a window later once entries are combined
    /// (`WINDOW_PARTS`).
    pub fn use_one(&self, organization: &str, now: Instant) -> Result<(), Duration> {
        self.use_amount(organization, 1, now).map_err(|exceeded| exceeded.wait_time)
    }

    /// Uses `amount` units of the limit of `organization`, all of them or none.
    ///
    /// Threads may call this method in another order than they read the clock. A `now` that is earlier than a previous
    /// one is replaced with the latest `now` so far.
    pub fn use_amount(&self, organization: &str, amount: u64, now: Instant) -> Result<(), RateLimitExceeded> {
        let state = &mut *self.state.lock();
        let now = state.latest.map_or(now, |latest| now.max(latest));
        state.latest = Some(now);
        state.remove_unused_organizations(now, self.window);
        state.total.remove_expired(now, self.window);
        let organization = state
            .by_organization
            .get_key_value(organization)
            .map_or_else(|| Arc::from(organization), |(organization, _)| Arc::clone(organization));
        let no_usage = WindowUsage::default();
        let own = match state.by_organization.get_mut(&organization) {
            Some(own) => {
                own.remove_expired(now, self.window);
                &*own
            }
            None => &no_usage,
        };
        if let Some(excess) =
            own.sum.saturating_add(amount).checked_sub(self.per_organization_limit).filter(|excess| *excess > 0)
        {
            return Err(RateLimitExceeded {
                limit: LimitReached::Organization,
                wait_time: own.wait_time(excess, now, self.window),
            });
        }
        let reserve = if own.sum > 0 { self.reserve } else { 0 };
        let required = state.total.sum.saturating_add(amount).saturating_add(reserve);
        if let Some(excess) = required.checked_sub(self.total_limit).filter(|excess| *excess > 0) {
            return Err(RateLimitExceeded {
                limit: LimitReached::Total,
                wait_time: state.total.wait_time(excess, now, self.window),
            });
        }
        state.by_organization.entry(organization).or_default().push(amount, now, self.window);
        // The total is recorded only if there is a limit for it.
        if self.total_limit < u64::MAX {
            state.total.push(amount, now, self.window);
        }
        Ok(())
    }

    /// Returns the use of all organizations within the last window. It is recorded only if there is a total limit.
    pub fn in_use(&self, now: Instant) -> u64 {
        let mut state = self.state.lock();
        state.total.remove_expired(now, self.window);
        state.total.sum
    }
}

impl RateLimiterState {
    /// Removes organizations without use in the last window, at most once per window.
    fn remove_unused_organizations(&mut self, now: Instant, window: Duration) {
        let last_sweep = *self.last_sweep.get_or_insert(now);
        if now.saturating_duration_since(last_sweep) >= window {
            self.last_sweep = Some(now);
            self.by_organization.retain(|_, own| {
                own.remove_expired(now, window);
                !own.entries.is_empty()
            });
        }
    }
}

impl WindowUsage {
    /// Removes the entries that are at least one window old.
    fn remove_expired(&mut self, now: Instant, window: Duration) {
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
    fn wait_time(&self, mut amount: u64, now: Instant, window: Duration) -> Duration {
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
    fn a_request_is_allowed_again_exactly_one_window_after_the_earliest_use() {
        let (limiter, start) = (RateLimiter::new(2, HOUR), Instant::now());
        assert_eq!(limiter.use_one("a", start), Ok(()));
        assert_eq!(limiter.use_one("a", start + seconds(10)), Ok(()));
        assert_eq!(limiter.use_one("a", start + seconds(20)), Err(seconds(3580)));
        let just_before = start + Duration::from_nanos(3_599_999_999_999);
        assert_eq!(limiter.use_one("a", just_before), Err(Duration::from_nanos(1)));
        assert_eq!(limiter.use_one("a", start + HOUR), Ok(()));
        assert_eq!(limiter.use_one("a", start + HOUR), Err(seconds(10)));
    }

    #[test]
    fn a_rate_limited_request_uses_no_budget_of_any_organization() {
        let (limiter, start) = (RateLimiter::new(1, seconds(60)), Instant::now());
        limiter.use_one("a", start).unwrap();
        for n in 1..50 {
            assert_eq!(limiter.use_one("a", start + seconds(n)), Err(seconds(60 - n)));
        }
        assert_eq!(limiter.use_one("b", start + seconds(50)), Ok(()));
        assert_eq!(limiter.use_one("a", start + seconds(60)), Ok(()));
        assert_eq!(RateLimiter::new(0, HOUR).use_one("a", start), Err(HOUR));
    }

    #[test]
    fn the_rate_limiter_allows_exactly_the_budget_in_every_sliding_window() {
        let (limit, window) = (5, 100);
        let (limiter, start) = (RateLimiter::new(limit, seconds(window)), Instant::now());
        let (mut now, mut state, mut acquired) = (0, 7_u64, Vec::new());
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += (state >> 33) % 30;
            let used = acquired.iter().filter(|time| now - **time < window).count();
            match limiter.use_one("a", start + seconds(now)) {
                Ok(()) => {
                    assert!(used < limit as usize);
                    acquired.push(now);
                }
                Err(until) => {
                    assert_eq!(used, limit as usize);
                    assert_eq!(until, seconds(acquired[acquired.len() - limit as usize] + window - now));
                }
            }
        }
        assert!(acquired.len() > 5_000);
    }

    // Regression: 27 organizations closed the request budget for all others.
    #[test]
    fn rate_limits_are_separate_for_each_organization_and_use_bounded_memory() {
        let (limiter, start) = (RateLimiter::new(10_000, HOUR), Instant::now());
        let names: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        for organization in &names {
            for n in 0..10_000 {
                assert_eq!(
                    limiter.use_one(organization, start + Duration::from_millis(n)),
                    Ok(()),
                    "{organization}: the {n}th"
                );
            }
            assert!(limiter.use_one(organization, start + seconds(10)).is_err());
        }
        // The use is spread over the whole window.
        for n in 0..10_000 {
            limiter.use_one("even", start + seconds(11) + Duration::from_millis(n * 300)).unwrap();
        }
        let entries: usize = limiter.state.lock().by_organization.values().map(|own| own.entries.len()).sum();
        assert!(entries <= 61 * (MAX_EXACT_ENTRIES + WINDOW_PARTS as usize + 1), "{entries}");
        assert_eq!(limiter.use_one("0", start + HOUR + HOUR), Ok(()));
        assert_eq!(
            limiter.state.lock().by_organization.len(),
            1,
            "organizations without use within an hour are removed"
        );
    }

    #[test]
    fn merged_rate_limit_entries_expire_together_with_their_latest_use() {
        let (limit, window) = (4000, seconds(1024));
        let (limiter, start) = (RateLimiter::new(limit, window), Instant::now());
        for _ in 0..MAX_EXACT_ENTRIES {
            limiter.use_one("a", start).unwrap();
        }
        for tenth in 0..10 {
            limiter.use_one("a", start + seconds(5) + Duration::from_millis(tenth * 100)).unwrap();
        }
        let now = start + window;
        assert_eq!(limiter.use_amount("a", u64::from(limit) - 10, now), Ok(()));
        let wait_time = Duration::from_millis(5900);
        assert_eq!(
            limiter.use_amount("a", 1, now),
            Err(RateLimitExceeded { limit: LimitReached::Organization, wait_time })
        );
    }

    #[test]
    fn the_total_rate_limit_reserves_budget_for_organizations_without_use() {
        let (limiter, start) = (RateLimiter::with_total(80, 100, 10, HOUR), Instant::now());
        limiter.use_amount("a", 70, start).unwrap();
        assert_eq!(limiter.use_amount("a", 11, start).unwrap_err().limit, LimitReached::Organization);
        limiter.use_amount("b", 15, start + seconds(60)).unwrap();
        let exceeded = RateLimitExceeded { limit: LimitReached::Total, wait_time: seconds(3530) };
        assert_eq!(limiter.use_amount("b", 6, start + seconds(70)), Err(exceeded));
        assert_eq!(limiter.use_amount("c", 15, start + seconds(70)), Ok(()));
        assert_eq!(limiter.in_use(start + seconds(70)), 100);
        assert_eq!(limiter.use_amount("b", 6, start + HOUR), Ok(()));
        assert_eq!(
            limiter.use_amount("x", 101, start + HOUR).unwrap_err(),
            RateLimitExceeded { limit: LimitReached::Organization, wait_time: HOUR }
        );
    }

    #[test]
    fn timestamps_out_of_order_do_not_raise_the_rate_limit() {
        let (limiter, start) = (RateLimiter::new(2, seconds(10)), Instant::now());
        limiter.use_one("a", start + seconds(5)).unwrap();
        limiter.use_one("a", start).unwrap();
        assert_eq!(limiter.use_one("a", start + seconds(14)), Err(seconds(1)));
        assert_eq!(limiter.use_one("a", start + seconds(15)), Ok(()));
    }
}
