//! The budgets of requests: when requests were sent, within a rate limit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds added to each window: the server counts from the arrival of a request, this process from when it is
/// sent.
const MARGIN: i64 = 500;

/// A rate limit: the number of requests in a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of requests allowed in a window.
    pub requests: usize,
    /// Length of the sliding window.
    pub window: Duration,
}

/// The reason why no request may be sent now, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The budget is used up.
    UsedUp(Duration),
    /// The server wants no requests for a while.
    Closed(Duration),
}

/// The times at which requests were sent, in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    sent: Vec<i64>,
    /// Time until which the server wants no requests.
    closed_until: Option<i64>,
}

impl Ledger {
    /// Takes one request from the budget at `now`, or returns how long to wait for one. The wait is never longer than
    /// the allowance's window plus a margin of half a second, whatever a server or a clock says.
    pub fn take(&mut self, allowance: RateLimit, now: i64) -> Result<(), Wait> {
        let window = i64::try_from(allowance.window.as_millis()).unwrap_or(i64::MAX / 4) + MARGIN;
        // A time in the future comes from a clock that was set back; it must not keep the budget used up for ever.
        for sent in &mut self.sent {
            *sent = (*sent).min(now);
        }
        self.sent.retain(|&sent| sent > now - window);
        self.sent.sort_unstable();
        self.closed_until = self.closed_until.map(|until| until.min(now + window)).filter(|&until| until > now);
        let oldest = self.sent.len().checked_sub(allowance.requests).map(|at| self.sent[at] + window);
        let after = |free: i64| Duration::from_millis(u64::try_from(free - now).unwrap_or_default());
        if let Some(until) = self.closed_until.filter(|&until| oldest.is_none_or(|free| free <= until)) {
            return Err(Wait::Closed(after(until)));
        }
        if let Some(free) = oldest {
            return Err(Wait::UsedUp(after(free)));
        }
        self.sent.push(now);
        Ok(())
    }

    /// Returns the request taken at `then` to the budget, because it was never sent.
    pub fn give_back(&mut self, then: i64) {
        if let Some(at) = self.sent.iter().rposition(|&sent| sent == then) {
            self.sent.remove(at);
        }
    }

    /// Closes the budget until `until`, as the server asked.
    pub fn close(&mut self, until: i64) {
        self.closed_until = self.closed_until.max(Some(until));
    }
}

/// The content of the budget file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetFile {
    schema_version: u32,
    pub(super) budgets: BTreeMap<String, Ledger>,
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
    const MINUTE: i64 = 60_000 + MARGIN;

    #[test]
    fn no_span_of_a_minute_has_more_requests_than_allowed() {
        let mut ledger = Ledger::default();
        let mut now = 1_000_000;
        let mut sent = Vec::new();
        for step in 0..500_i64 {
            match ledger.take(FIVE, now) {
                Ok(()) => sent.push(now),
                Err(Wait::UsedUp(wait)) => {
                    assert!(wait > Duration::ZERO && wait <= Duration::from_millis(MINUTE as u64));
                }
                Err(Wait::Closed(_)) => panic!("nobody has closed it"),
            }
            now += step * 7919 % 9001;
        }
        assert!(sent.len() > 50);
        for window in sent.windows(6) {
            assert!(window[5] - window[0] >= 60_000, "{window:?}");
        }
    }

    #[test]
    fn the_wait_that_is_told_is_enough_and_not_too_long() {
        let mut ledger = Ledger::default();
        for at in 0..5 {
            ledger.take(FIVE, at * 1000).unwrap();
        }
        assert_eq!(ledger.take(FIVE, 10_000), Err(Wait::UsedUp(Duration::from_millis((MINUTE - 10_000) as u64))));
        assert_eq!(ledger.take(FIVE, MINUTE), Ok(()));
        assert_eq!(ledger.take(FIVE, MINUTE), Err(Wait::UsedUp(Duration::from_secs(1))));
    }

    #[test]
    fn what_never_left_costs_nothing_and_what_the_server_says_counts() {
        let mut ledger = Ledger::default();
        for _ in 0..5 {
            ledger.take(FIVE, 7).unwrap();
        }
        ledger.give_back(7);
        assert_eq!(ledger.take(FIVE, 8), Ok(()));
        let mut closed = Ledger::default();
        closed.close(50_000);
        closed.close(40_000);
        assert_eq!(closed.take(FIVE, 0), Err(Wait::Closed(Duration::from_secs(50))));
        assert_eq!(closed.take(FIVE, 50_000), Ok(()));
    }

    #[test]
    fn a_clock_that_jumps_closes_no_budget_for_longer_than_its_window() {
        let mut ledger = Ledger { sent: vec![i64::MAX; 5], closed_until: Some(i64::MAX) };
        let window = Duration::from_millis(MINUTE as u64);
        assert_eq!(ledger.take(FIVE, 0), Err(Wait::Closed(window)));
        ledger.closed_until = None;
        assert_eq!(ledger.take(FIVE, 0), Err(Wait::UsedUp(window)));
        assert_eq!(ledger.take(FIVE, MINUTE), Ok(()));
    }

    #[test]
    fn a_budget_outlives_its_process_and_damage_begins_it_anew() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let take = || ApiStateDirectory::open(&root).unwrap().with("x", |ledger| ledger.take(FIVE, 1_000)).unwrap();
        for _ in 0..5 {
            assert_eq!(take(), Ok(()));
        }
        assert!(take().is_err());
        std::fs::write(root.join("api/budget.json"), "{").unwrap();
        assert_eq!(take(), Ok(()));
    }

    #[test]
    fn a_budget_as_it_was_kept_last_is_told_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let asked = ApiStateDirectory::open(dir.path()).unwrap();
        assert_eq!(asked.last("x"), Ledger::default());
        asked.with("x", |ledger| ledger.take(FIVE, 1_000)).unwrap().unwrap();
        asked.with("y", |ledger| ledger.close(2_000)).unwrap();
        assert_eq!(asked.last("x"), Ledger { sent: vec![1_000], closed_until: None });
        assert_eq!(asked.last("y"), Ledger { sent: Vec::new(), closed_until: Some(2_000) });
        assert_eq!(asked.last("z"), Ledger::default());
        std::fs::write(dir.path().join("api/budget.json"), "{").unwrap();
        assert_eq!(asked.last("x"), Ledger::default());
    }

    #[test]
    fn whichever_ends_later_is_told_and_what_is_given_back_is_one_request() {
        let minute = Duration::from_millis(MINUTE as u64);
        let ledger = |closed_until| Ledger { sent: vec![0; 5], closed_until };
        assert_eq!(ledger(Some(MINUTE)).take(FIVE, 0), Err(Wait::Closed(minute)));
        assert_eq!(ledger(Some(MINUTE - 1)).take(FIVE, 0), Err(Wait::UsedUp(minute)));
        assert_eq!(ledger(None).take(FIVE, MINUTE - 1), Err(Wait::UsedUp(Duration::from_millis(1))));
        let mut given = Ledger { sent: vec![1, 2, 2, 3], closed_until: None };
        given.give_back(2);
        given.give_back(7);
        assert_eq!(given.sent, [1, 2, 3]);
    }
}
