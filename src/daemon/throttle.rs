//! Decides when a background task may run while the site is served: never under load, and never for more than a share
//! of one processor. It is pure: the time and the number of answered requests are arguments.

use std::time::{Duration, Instant};

/// Share of one processor that the task may take on average, in percent.
const MAX_CPU_PERCENT: u32 = 50;
/// Length of a period of work before a rest; shorter periods cost more than they save.
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
    /// The rest that is still due for the work done.
    due_rest: Duration,
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
            due_rest: Duration::ZERO,
            window: (now, answered),
            no_load_at: now + TIME_WITHOUT_LOAD,
        }
    }

    /// Decides whether to work until the next call. `answered` is the number of requests answered so far. All of the
    /// time after a decision to work counts as worked: one thread cannot have taken more.
    pub(super) fn may_work(&mut self, now: Instant, answered: u64) -> bool {
        let (decided_at, worked) = self.last;
        let passed = now.saturating_duration_since(decided_at);
        self.due_rest = if worked {
            self.due_rest + passed * (100 - MAX_CPU_PERCENT) / MAX_CPU_PERCENT
        } else {
            self.due_rest.saturating_sub(passed)
        };
        let (window_start, answered_before) = self.window;
        let elapsed = now.saturating_duration_since(window_start);
        if elapsed >= REQUEST_WINDOW {
            if u128::from(answered.saturating_sub(answered_before)) * 1000
                > LOAD_REQUESTS_PER_SECOND * elapsed.as_millis()
            {
                self.no_load_at = now + TIME_WITHOUT_LOAD;
            }
            self.window = (now, answered);
        }
        let is_rested = if worked { self.due_rest < WORK_PERIOD } else { self.due_rest.is_zero() };
        let decision = now >= self.no_load_at && is_rested;
        self.last = (now, decision);
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(25);

    /// Simulates `long` with `each` requests in every tick; returns the time worked.
    fn simulate(throttle: &mut Throttle, now: &mut Instant, answered: &mut u64, long: Duration, each: u64) -> Duration {
        let (end, mut worked) = (*now + long, Duration::ZERO);
        while *now < end {
            let may = throttle.may_work(*now, *answered);
            *now += TICK;
            *answered += each;
            worked += if may { TICK } else { Duration::ZERO };
        }
        worked
    }

    #[test]
    fn throttled_work_starts_after_an_idle_period_and_stays_within_its_cpu_share() {
        let (mut now, mut answered) = (Instant::now(), 7);
        let mut throttle = Throttle::new(now, answered);
        assert_eq!(simulate(&mut throttle, &mut now, &mut answered, TIME_WITHOUT_LOAD, 0), Duration::ZERO);
        let long = Duration::from_secs(20);
        let worked = simulate(&mut throttle, &mut now, &mut answered, long, 1);
        let share = worked.as_secs_f64() / long.as_secs_f64() * 100.0;
        assert!((40.0..=f64::from(MAX_CPU_PERCENT) + 2.0).contains(&share), "{share} %");
    }

    #[test]
    fn throttled_work_pauses_under_load_and_resumes_after_an_idle_period() {
        let (mut now, mut answered) = (Instant::now(), 0);
        let mut throttle = Throttle::new(now, answered);
        let mut run = |long: Duration, each: u64| simulate(&mut throttle, &mut now, &mut answered, long, each);
        run(TIME_WITHOUT_LOAD, 0);
        assert!(run(TIME_WITHOUT_LOAD, 20) > Duration::ZERO, "800 requests a second are no load");
        run(REQUEST_WINDOW + TICK, 50);
        assert_eq!(run(Duration::from_mins(1), 50), Duration::ZERO, "2,000 are");
        assert_eq!(run(TIME_WITHOUT_LOAD / 2, 0), Duration::ZERO, "it may come back");
        assert!(run(TIME_WITHOUT_LOAD * 2, 0) > Duration::ZERO);
    }

    #[test]
    fn a_thousand_requests_a_second_are_no_load_and_more_are() {
        for (requests, may_work) in [(250, true), (251, false)] {
            let began = Instant::now();
            let mut throttle = Throttle::new(began, 7);
            // A new window begins in time for a whole one to end with the time without load.
            assert!(!throttle.may_work(began + Duration::from_millis(750), 7));
            assert_eq!(throttle.may_work(began + TIME_WITHOUT_LOAD, 7 + requests), may_work, "{requests}");
            // From then on, the time without load is counted anew.
            if !may_work {
                assert!(!throttle.may_work(began + Duration::from_millis(1999), 7 + requests));
                assert!(throttle.may_work(began + 2 * TIME_WITHOUT_LOAD, 7 + requests));
            }
        }
    }

    #[test]
    fn throttle_treats_the_time_since_its_last_call_as_work() {
        let began = Instant::now();
        let mut throttle = Throttle::new(began, 0);
        assert!(throttle.may_work(began + TIME_WITHOUT_LOAD, 0));
        assert!(!throttle.may_work(began + Duration::from_hours(1), 0), "it may have worked all the time");
        assert!(throttle.may_work(began + Duration::from_hours(2), 0));
    }
}
