//! The budgets of requests, with which this client observes the API's rate limits: the times at which requests were
//! sent, checked against a rate limit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds added to each window: the server counts from the arrival of a request, this process from when it is
/// sent.
const WINDOW_MARGIN_MS: i64 = 500;

/// A rate limit: the number of requests in a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of requests allowed in a window.
    pub requests: usize,
    /// Length of the sliding window.
    pub window: Duration,
}

/// The reason why no request may be sent now, and the time until one may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetWait {
    /// The budget is used up.
    UsedUp(Duration),
    /// The server has demanded a pause.
    Closed(Duration),
}

/// The budget of one rate limit: the times at which requests were sent, in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestBudget {
    sent: Vec<i64>,
    /// End of the pause that the server has demanded.
    closed_until: Option<i64>,
}

impl RequestBudget {
    /// Takes one request from the budget at `now`, or returns the time until one is free. That time is never longer
    /// than the window of the rate limit plus half a second, independent of the server and the clock.
    pub fn take_request(&mut self, rate_limit: RateLimit, now: i64) -> Result<(), BudgetWait> {
        let window = i64::try_from(rate_limit.window.as_millis()).unwrap_or(i64::MAX / 4) + WINDOW_MARGIN_MS;
        // A time in the future comes from a clock that was set back; it must not block the budget for ever.
        for sent in &mut self.sent {
            *sent = (*sent).min(now);
        }
        self.sent.retain(|&sent| sent > now - window);
        self.sent.sort_unstable();
        self.closed_until = self.closed_until.map(|until| until.min(now + window)).filter(|&until| until > now);
        let next_free = self.sent.len().checked_sub(rate_limit.requests).map(|index| self.sent[index] + window);
        let wait_until = |time: i64| Duration::from_millis(u64::try_from(time - now).unwrap_or_default());
        if let Some(until) = self.closed_until.filter(|&until| next_free.is_none_or(|free| free <= until)) {
            return Err(BudgetWait::Closed(wait_until(until)));
        }
        if let Some(free) = next_free {
            return Err(BudgetWait::UsedUp(wait_until(free)));
        }
        self.sent.push(now);
        Ok(())
    }

    /// Returns the request taken at `time` to the budget, because it was never sent.
    pub fn return_request(&mut self, time: i64) {
        if let Some(index) = self.sent.iter().rposition(|&sent| sent == time) {
            self.sent.remove(index);
        }
    }

    /// Closes the budget until `until`, in milliseconds since 1970, as the server has demanded.
    /// [`RequestBudget::take_request`] shortens a longer pause to the window of the rate limit plus half a second.
    pub fn close(&mut self, until: i64) {
        self.closed_until = self.closed_until.max(Some(until));
    }
}

/// The content of the budget file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetFile {
    schema_version: u32,
    pub(super) budgets: BTreeMap<String, RequestBudget>,
}

impl Default for BudgetFile {
    fn default() -> BudgetFile {
        BudgetFile { schema_version: 1, budgets: BTreeMap::new() }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use super::*;
    use crate::store::api_state::ApiStateDirectory;

    const FIVE: RateLimit = RateLimit { requests: 5, window: Duration::from_mins(1) };
    const MINUTE: i64 = 60_000 + WINDOW_MARGIN_MS;

    #[test]
    fn no_span_of_a_minute_has_more_requests_than_allowed() {
        let mut budget = RequestBudget::default();
        let mut now = 1_000_000;
        let mut sent = Vec::new();
        for step in 0..500_i64 {
            match budget.take_request(FIVE, now) {
                Ok(()) => sent.push(now),
                Err(BudgetWait::UsedUp(wait)) => {
                    assert!(wait > Duration::ZERO && wait <= Duration::from_millis(MINUTE as u64));
                }
                Err(BudgetWait::Closed(_)) => panic!("the server has demanded no pause"),
            }
            now += step * 7919 % 9001;
        }
        assert!(sent.len() > 50);
        for window in sent.windows(6) {
            assert!(window[5] - window[0] >= 60_000, "{window:?}");
        }
    }

    #[test]
    fn reported_wait_ends_when_the_next_request_is_allowed() {
        let mut budget = RequestBudget::default();
        for second in 0..5 {
            budget.take_request(FIVE, second * 1000).unwrap();
        }
        assert_eq!(
            budget.take_request(FIVE, 10_000),
            Err(BudgetWait::UsedUp(Duration::from_millis((MINUTE - 10_000) as u64)))
        );
        assert_eq!(budget.take_request(FIVE, MINUTE), Ok(()));
        assert_eq!(budget.take_request(FIVE, MINUTE), Err(BudgetWait::UsedUp(Duration::from_secs(1))));
    }

    #[test]
    fn returned_request_does_not_count_and_the_longest_pause_of_the_server_applies() {
        let mut budget = RequestBudget::default();
        for _ in 0..5 {
            budget.take_request(FIVE, 7).unwrap();
        }
        budget.return_request(7);
        assert_eq!(budget.take_request(FIVE, 8), Ok(()));
        let mut closed = RequestBudget::default();
        closed.close(50_000);
        closed.close(40_000);
        assert_eq!(closed.take_request(FIVE, 0), Err(BudgetWait::Closed(Duration::from_secs(50))));
        assert_eq!(closed.take_request(FIVE, 50_000), Ok(()));
    }

    // Regression: a `Retry-After` of years closed the request budget of all processes for a week.
    #[test]
    fn a_clock_that_jumps_closes_no_budget_for_longer_than_its_window() {
        let mut budget = RequestBudget { sent: vec![i64::MAX; 5], closed_until: Some(i64::MAX) };
        let window = Duration::from_millis(MINUTE as u64);
        assert_eq!(budget.take_request(FIVE, 0), Err(BudgetWait::Closed(window)));
        budget.closed_until = None;
        assert_eq!(budget.take_request(FIVE, 0), Err(BudgetWait::UsedUp(window)));
        assert_eq!(budget.take_request(FIVE, MINUTE), Ok(()));
    }

    #[test]
    fn budget_outlives_its_process_and_a_damaged_file_resets_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let take = || {
            ApiStateDirectory::open(&root)
                .unwrap()
                .change_budget("x", |budget| budget.take_request(FIVE, 1_000))
                .unwrap()
        };
        for _ in 0..5 {
            assert_eq!(take(), Ok(()));
        }
        assert!(take().is_err());
        std::fs::write(root.join("api/budget.json"), "{").unwrap();
        assert_eq!(take(), Ok(()));
    }

    #[test]
    fn no_other_process_changes_a_budget_while_it_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let api_state = ApiStateDirectory::open(dir.path()).unwrap();
        let acquire = |timeout| {
            let lock = docwharf_base::durable::FileLock::acquire(&dir.path().join("api/lock"), timeout);
            lock.unwrap().is_some()
        };
        assert!(!api_state.change_budget("x", |_| acquire(Duration::ZERO)).unwrap());
        assert!(acquire(Duration::from_secs(10)), "the lock is released afterwards");
    }

    #[test]
    fn read_budget_returns_the_last_stored_times_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let api_state = ApiStateDirectory::open(dir.path()).unwrap();
        assert_eq!(api_state.read_budget("x"), RequestBudget::default());
        api_state.change_budget("x", |_| ()).unwrap();
        assert!(!dir.path().join("api/budget.json").exists(), "a process that waits writes nothing");
        api_state.change_budget("x", |budget| budget.take_request(FIVE, 1_000)).unwrap().unwrap();
        api_state.change_budget("y", |budget| budget.close(2_000)).unwrap();
        assert_eq!(api_state.read_budget("x"), RequestBudget { sent: vec![1_000], closed_until: None });
        assert_eq!(api_state.read_budget("y"), RequestBudget { sent: Vec::new(), closed_until: Some(2_000) });
        assert_eq!(api_state.read_budget("z"), RequestBudget::default());
        std::fs::write(dir.path().join("api/budget.json"), "{").unwrap();
        assert_eq!(api_state.read_budget("x"), RequestBudget::default());
    }

    #[test]
    fn later_of_two_waits_is_reported_and_return_request_removes_one_time() {
        let minute = Duration::from_millis(MINUTE as u64);
        let budget = |closed_until| RequestBudget { sent: vec![0; 5], closed_until };
        assert_eq!(budget(Some(MINUTE)).take_request(FIVE, 0), Err(BudgetWait::Closed(minute)));
        assert_eq!(budget(Some(MINUTE - 1)).take_request(FIVE, 0), Err(BudgetWait::UsedUp(minute)));
        assert_eq!(budget(None).take_request(FIVE, MINUTE - 1), Err(BudgetWait::UsedUp(Duration::from_millis(1))));
        let mut budget = RequestBudget { sent: vec![1, 2, 2, 3], closed_until: None };
        budget.return_request(2);
        budget.return_request(7);
        assert_eq!(budget.sent, [1, 2, 3]);
    }
}
