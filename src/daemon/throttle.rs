//! Decides when background work may run beside serving: never under load, and never for more than a share of one
//! processor. It is pure: the time and the number of answered requests are arguments.

use std::time::{Duration, Instant};

/// Share of one processor that the work may take on average, in percent.
const MAX_CPU_PERCENT: u32 = 50;
/// Length of a period of work before a rest; shorter periods cost more than they spare.
const WORK_PERIOD: Duration = Duration::from_millis(100);
/// Length of the window in which requests are counted.
const REQUEST_WINDOW: Duration = Duration::from_millis(250);
/// Requests per second above which the site is under load. The server could answer a hundred times as many. On a site
/// that always exceeds this rate, the work never ends.
const LOAD_REQUESTS_PER_SECOND: u128 = 1000;
/// Time without load that must pass before the work starts or continues.
const TIME_WITHOUT_LOAD: Duration = Duration::from_secs(1);

/// The throttle of one background task.
#[derive(Debug)]
pub(super) struct Throttle {
    /// The time and the result of the last decision.
    last: (Instant, bool),
    /// The rest that is still owed for the work done.
    owed_rest: Duration,
    /// The start of the window, and the number of requests that were answered before it.
    window: (Instant, u64),
    /// The earliest time at which the site counts as without load.
    no_load_at: Instant,
}

impl Throttle {
    /// Creates a throttle. The work may start once there has been no load for [`TIME_WITHOUT_LOAD`].
    pub(super) fn new(now: Instant, answered: u64) -> Throttle {
        Throttle {
            last: (now, false),
            owed_rest: Duration::ZERO,
            window: (now, answered),
            no_load_at: now + TIME_WITHOUT_LOAD,
        }
    }

    /// Decides whether to work until the next call. `answered` is the number of requests answered so far. All of the
    /// time after a decision to work counts as worked: one thread cannot have taken more.
    pub(super) fn may_work(&mut self, now: Instant, answered: u64) -> bool {
        let (asked, worked) = self.last;
        let passed = now.saturating_duration_since(asked);
        self.owed_rest = if worked {
            self.owed_rest + passed * (100 - MAX_CPU_PERCENT) / MAX_CPU_PERCENT
        } else {
            self.owed_rest.saturating_sub(passed)
        };
        let (began, then) = self.window;
        let long = now.saturating_duration_since(began);
        if long >= REQUEST_WINDOW {
            if u128::from(answered.saturating_sub(then)) * 1000 > LOAD_REQUESTS_PER_SECOND * long.as_millis() {
                self.no_load_at = now + TIME_WITHOUT_LOAD;
            }
            self.window = (now, answered);
        }
        let is_rested = if worked { self.owed_rest < WORK_PERIOD } else { self.owed_rest.is_zero() };
        let may = now >= self.no_load_at && is_rested;
        self.last = (now, may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(25);

    /// Simulates `long` with `each` requests in every tick; returns the time worked.
    fn go(pace: &mut Throttle, now: &mut Instant, answered: &mut u64, long: Duration, each: u64) -> Duration {
        let (end, mut worked) = (*now + long, Duration::ZERO);
        while *now < end {
            let may = pace.may_work(*now, *answered);
            *now += TICK;
            *answered += each;
            worked += if may { TICK } else { Duration::ZERO };
        }
        worked
    }

    #[test]
    fn it_begins_after_a_calm_moment_and_takes_no_more_than_its_share() {
        let (mut now, mut answered) = (Instant::now(), 7);
        let mut pace = Throttle::new(now, answered);
        assert_eq!(go(&mut pace, &mut now, &mut answered, TIME_WITHOUT_LOAD, 0), Duration::ZERO);
        let long = Duration::from_secs(20);
        let worked = go(&mut pace, &mut now, &mut answered, long, 1);
        let share = worked.as_secs_f64() / long.as_secs_f64() * 100.0;
        assert!((40.0..=f64::from(MAX_CPU_PERCENT) + 2.0).contains(&share), "{share} %");
    }

    #[test]
    fn under_load_it_rests_and_goes_on_once_it_has_been_calm() {
        let (mut now, mut answered) = (Instant::now(), 0);
        let mut pace = Throttle::new(now, answered);
        let mut go = |long: Duration, each: u64| go(&mut pace, &mut now, &mut answered, long, each);
        go(TIME_WITHOUT_LOAD, 0);
        assert!(go(TIME_WITHOUT_LOAD, 20) > Duration::ZERO, "800 requests a second are no load");
        go(REQUEST_WINDOW + TICK, 50);
        assert_eq!(go(Duration::from_mins(1), 50), Duration::ZERO, "2,000 are");
        assert_eq!(go(TIME_WITHOUT_LOAD / 2, 0), Duration::ZERO, "it may come back");
        assert!(go(TIME_WITHOUT_LOAD * 2, 0) > Duration::ZERO);
    }

    #[test]
    fn whoever_asks_late_rests_for_as_long_as_it_may_have_worked() {
        let began = Instant::now();
        let mut pace = Throttle::new(began, 0);
        assert!(pace.may_work(began + TIME_WITHOUT_LOAD, 0));
        assert!(!pace.may_work(began + Duration::from_hours(1), 0), "it may have worked all the time");
        assert!(pace.may_work(began + Duration::from_hours(2), 0));
    }
}
