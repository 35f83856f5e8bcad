//! The scheduler: when the source is checked next, and by which trigger. It reads no clock: the current time is an
//! argument. A trigger that arrives during a sync is remembered; a stronger one is not replaced by a weaker one.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::store::record::StoreRecord;
use docwharf_base::backoff;
use docwharf_base::clock::unix_seconds;
use docwharf_base::model::units::parse_time;
use docwharf_base::net::request_error::MAX_RETRY_AFTER;

use super::SyncError;
use super::activation::{Postponement, SyncReport};
use super::plan::SyncTrigger;
use super::run::wait_after;
use super::schedule::Schedule;

/// A moment on two clocks: the monotonic one and the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The time on the monotonic clock.
    pub monotonic: Instant,
    /// The time on the wall clock, which may be set.
    pub wall: SystemTime,
}

impl ClockReading {
    /// Reads both clocks.
    pub fn now() -> ClockReading {
        ClockReading { monotonic: Instant::now(), wall: SystemTime::now() }
    }
}

/// The interval or the schedule of the regular checks of the source.
#[derive(Debug, Clone, Copy)]
pub struct CheckTiming<'a> {
    /// `sync.interval`
    pub interval: Duration,
    /// `sync.schedule`, which replaces the interval.
    pub schedule: Option<&'a Schedule>,
}

/// Decides when the source is checked next, and by which trigger.
#[derive(Debug, Clone)]
pub struct SyncScheduler {
    /// Failures in a row.
    pub failures: u32,
    /// The trigger of the sync that starts as soon as no other task runs.
    pub pending: Option<SyncTrigger>,
    /// The time at which the timer fires, and the trigger of the next check. With `scheduled_at`, the timer may only
    /// read the clock again.
    pub next_check: (Instant, SyncTrigger),
    /// The wall-clock time of the next check, if a schedule sets it: it is valid even if the clock is set meanwhile.
    pub scheduled_at: Option<SystemTime>,
}

impl SyncScheduler {
    /// Creates the scheduler of a daemon that starts: the first check is due at once.
    pub fn new(now: Instant) -> SyncScheduler {
        SyncScheduler { failures: 0, pending: None, next_check: (now, SyncTrigger::Start), scheduled_at: None }
    }

    /// Continues the back-off of the previous process if the source and the demands on it are unchanged
    /// (`source_digest`). Returns the rest of the back-off.
    pub fn resume_backoff(&mut self, record: &StoreRecord, source_digest: &str, now: ClockReading) -> Option<Duration> {
        let attempt = record.last_attempt.as_ref().filter(|attempt| attempt.source_digest == source_digest)?;
        self.failures = attempt.failures;
        let age = parse_time(&attempt.time).map(|time| unix_seconds(now.wall) - time);
        // A clock that was set back since then must not make the wait longer than it was. Both times are cut to whole
        // seconds, so the age can be up to a second too high, and no request may be earlier than was asked for.
        let age = u64::try_from(age.unwrap_or(0)).unwrap_or(0).saturating_sub(1);
        let remaining = Duration::from_secs(attempt.wait.saturating_sub(age)).min(MAX_RETRY_AFTER);
        if attempt.failures == 0 || remaining.is_zero() {
            return None;
        }
        self.next_check.0 = now.monotonic + remaining;
        Some(remaining)
    }

    /// Schedules a sync as soon as possible. A stronger pending trigger stays.
    pub fn wake(&mut self, trigger: SyncTrigger) {
        self.pending = self.pending.max(Some(trigger));
    }

    /// Handles the timer of `next_check`.
    pub fn handle_timer(&mut self, now: ClockReading) {
        match self.scheduled_at.and_then(|time| time.duration_since(now.wall).ok()) {
            // The scheduled time has not come yet. The clock is read again within a minute, because it may be set, or
            // the machine may be suspended.
            Some(remaining) if !remaining.is_zero() => {
                self.next_check.0 = now.monotonic + remaining.min(Duration::from_mins(1));
            }
            _ => {
                self.scheduled_at = None;
                self.wake(self.next_check.1);
            }
        }
    }

    /// Schedules the next check after `wait`, or else by `timing`. `random` returns numbers from 0 to 1.
    pub fn schedule_next_check(
        &mut self,
        wait: Option<Duration>,
        timing: CheckTiming<'_>,
        now: ClockReading,
        mut random: impl FnMut() -> f64,
    ) {
        self.scheduled_at = None;
        let wait = match (wait, timing.schedule) {
            (Some(wait), _) => wait,
            (None, Some(schedule)) => {
                let wait = schedule.wait(now.wall);
                self.scheduled_at = now.wall.checked_add(wait);
                wait.min(Duration::from_mins(1))
            }
            (None, None) => backoff::add_jitter(timing.interval, random()),
        };
        self.next_check = (now.monotonic + wait, SyncTrigger::RegularCheck);
    }

    /// Applies another interval or schedule: if its next check is earlier, that counts; if it is later, the next check
    /// is not postponed.
    pub fn change_timing(&mut self, timing: CheckTiming<'_>, now: ClockReading, random: impl FnMut() -> f64) {
        let before = self.clone();
        self.schedule_next_check(None, timing, now, random);
        if before.time_to_next_check(now) < self.time_to_next_check(now) {
            *self = before;
        }
    }

    /// Returns the time until the next check. The timer may fire before, to read the clock.
    fn time_to_next_check(&self, now: ClockReading) -> Duration {
        match self.scheduled_at {
            Some(time) => time.duration_since(now.wall).unwrap_or_default(),
            None => self.next_check.0.saturating_duration_since(now.monotonic),
        }
    }

    /// Handles a change of the configuration, the API key, a CA certificate or the redirects file, after they could be
    /// read.
    pub fn handle_changed_settings(&mut self) {
        // After a failure the change is probably meant to correct it, so the source is checked, and a refused bundle
        // is judged again.
        let trigger = if self.failures > 0 { SyncTrigger::Corrected } else { SyncTrigger::Changed };
        self.failures = 0;
        self.wake(trigger);
    }

    /// Handles an explicit request for the current content.
    pub fn request_check(&mut self, trigger: SyncTrigger) {
        self.failures = 0;
        self.wake(trigger);
    }

    /// Handles the end of a sync. Returns the wait until the next check after a failure.
    pub fn after_sync(
        &mut self,
        trigger: SyncTrigger,
        result: &Result<SyncReport, SyncError>,
        timing: CheckTiming<'_>,
        now: ClockReading,
        mut random: impl FnMut() -> f64,
    ) -> Option<Duration> {
        match result {
            // An earlier failure is retried as soon as the upstream allows it.
            Ok(SyncReport { postponed: Some(postponement), .. }) => {
                let wait = match *postponement {
                    Postponement::For(wait) => Some(wait).filter(|&wait| wait < timing.interval),
                    Postponement::UntilNextCheck => None,
                };
                self.schedule_next_check(wait, timing, now, random);
                None
            }
            Ok(report) => {
                self.failures = 0;
                // A sync for a changed configuration that fetched nothing does not postpone the next check.
                let is_idle = trigger == SyncTrigger::Changed && report.ingested.is_none();
                if !is_idle || self.next_check.0 <= now.monotonic {
                    self.schedule_next_check(None, timing, now, random);
                }
                None
            }
            // The event that cancelled the sync is handled first, but the sync is not forgotten.
            Err(SyncError::Cancelled) => {
                self.wake(trigger);
                None
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.schedule_next_check(None, timing, now, &mut random);
                let next_wait = self.time_to_next_check(now);
                let wait = wait_after(error, self.failures, next_wait, &mut random);
                if wait != next_wait {
                    self.schedule_next_check(Some(wait), timing, now, random);
                }
                Some(wait)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::incoming_version::CommitOutcome;
    use crate::store::record::SyncAttempt;
    use crate::sync::SyncOutcome;
    use crate::sync::ingest::IngestedBundle;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;

    #[test]
    fn strongest_trigger_is_pending_in_any_order_of_requests() {
        let triggers = [
            SyncTrigger::Changed,
            SyncTrigger::Start,
            SyncTrigger::RegularCheck,
            SyncTrigger::Corrected,
            SyncTrigger::Signal,
            SyncTrigger::Command,
            SyncTrigger::Refresh,
        ];
        for first in triggers {
            for second in triggers {
                let mut scheduler = SyncScheduler::new(Instant::now());
                scheduler.wake(first);
                scheduler.wake(second);
                assert_eq!(scheduler.pending, Some(first.max(second)), "{first:?}, {second:?}");
            }
        }
        assert!(triggers.is_sorted());
        // A refresh by command stays pending while the interval passes.
        let mut scheduler = SyncScheduler::new(Instant::now());
        scheduler.request_check(SyncTrigger::Refresh);
        scheduler.handle_timer(ClockReading::now());
        scheduler.handle_changed_settings();
        assert_eq!(scheduler.pending, Some(SyncTrigger::Refresh));
    }

    fn noon() -> ClockReading {
        // 2026-11-20T12:00:00Z
        ClockReading { monotonic: Instant::now(), wall: SystemTime::UNIX_EPOCH + Duration::from_hours(498_660) }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn every(interval: u64) -> CheckTiming<'static> {
        CheckTiming { interval: seconds(interval), schedule: None }
    }

    #[test]
    fn restart_resumes_the_remaining_back_off_of_the_same_source_digest() {
        // Failures, the wait, the time of the attempt, the rest of the wait.
        let cases = [
            (3, 100, "11:59:20", Some(seconds(61))),
            (1, 100, "11:58:20", Some(seconds(1))),
            (1, 100, "11:58:19", None),
            (1, 100, "11:59:59", Some(seconds(100))),
            (1, 100, "12:00:50", Some(seconds(100))),
            (1, 100, "soon", Some(seconds(100))),
            (1, u64::MAX, "11:59:20", Some(MAX_RETRY_AFTER)),
            (1, 0, "12:00:00", None),
            (0, 100, "11:59:20", None),
        ];
        for (failures, wait, time, remaining) in cases {
            let attempt = SyncAttempt {
                time: format!("2026-11-20T{time}Z"),
                result: String::new(),
                saw: None,
                error: None,
                failures,
                source_digest: "q".to_owned(),
                wait,
            };
            let record = StoreRecord { last_attempt: Some(attempt), ..StoreRecord::default() };
            let now = noon();
            let mut scheduler = SyncScheduler::new(now.monotonic);
            assert_eq!(scheduler.resume_backoff(&record, "another", now), None);
            assert_eq!(
                (scheduler.failures, scheduler.next_check),
                (0, (now.monotonic, SyncTrigger::Start)),
                "another source: no back-off is resumed"
            );
            assert_eq!(scheduler.resume_backoff(&record, "q", now), remaining, "{failures} {wait} {time}");
            let next = (now.monotonic + remaining.unwrap_or_default(), SyncTrigger::Start);
            assert_eq!((scheduler.failures, scheduler.next_check), (failures, next), "{failures} {wait} {time}");
        }
        assert_eq!(SyncScheduler::new(noon().monotonic).resume_backoff(&StoreRecord::default(), "q", noon()), None);
    }

    #[test]
    fn scheduled_check_follows_the_wall_clock_and_reads_it_every_minute() {
        // Seconds until the scheduled time; seconds until the clock is read again.
        for (remaining, next_reading) in
            [(30, Some(30)), (60, Some(60)), (61, Some(60)), (1, Some(1)), (0, None), (-1, None)]
        {
            let now = noon();
            let scheduled = now.wall + seconds(100) - seconds(u64::try_from(100 - remaining).unwrap());
            let mut scheduler = SyncScheduler { scheduled_at: Some(scheduled), ..SyncScheduler::new(now.monotonic) };
            scheduler.next_check.1 = SyncTrigger::RegularCheck;
            scheduler.handle_timer(now);
            let pending = next_reading.is_none().then_some(SyncTrigger::RegularCheck);
            assert_eq!(
                (scheduler.pending, scheduler.scheduled_at),
                (pending, next_reading.map(|_| scheduled)),
                "{remaining}"
            );
            assert_eq!(scheduler.next_check.0, now.monotonic + seconds(next_reading.unwrap_or(0)), "{remaining}");
        }
    }

    #[test]
    fn next_check_is_after_the_back_off_or_else_the_schedule_or_else_the_interval() {
        let now = noon();
        let schedules = [("* * * * *", 60), ("*/15 * * * *", 900)];
        let schedules = schedules.map(|(text, wait)| (Schedule::parse(text).unwrap(), seconds(wait)));
        let mut scheduler = SyncScheduler::new(now.monotonic);
        for (schedule, wait) in &schedules {
            let timing = CheckTiming { schedule: Some(schedule), ..every(7) };
            scheduler.schedule_next_check(None, timing, now, || 0.5);
            assert_eq!(scheduler.scheduled_at, Some(now.wall + *wait));
            assert_eq!(scheduler.next_check, (now.monotonic + (*wait).min(seconds(60)), SyncTrigger::RegularCheck));
            scheduler.schedule_next_check(Some(seconds(9)), timing, now, || 0.5);
            assert_eq!(
                (scheduler.next_check, scheduler.scheduled_at),
                ((now.monotonic + seconds(9), SyncTrigger::RegularCheck), None)
            );
        }
        for (random, wait) in [(0.0, 90), (0.5, 100), (1.0, 110)] {
            scheduler.scheduled_at = Some(now.wall);
            scheduler.schedule_next_check(None, every(100), now, || random);
            assert_eq!(
                (scheduler.next_check, scheduler.scheduled_at),
                ((now.monotonic + seconds(wait), SyncTrigger::RegularCheck), None)
            );
        }
    }

    // Regression: where a schedule was involved, the next readings of the clock were compared, not the next checks.
    #[test]
    fn shorter_interval_counts_from_now_and_a_longer_one_delays_no_check() {
        let now = noon();
        for (interval, wait, trigger) in [(50, 50, SyncTrigger::RegularCheck), (200, 100, SyncTrigger::Start)] {
            let scheduled = Some(now.wall + seconds(100));
            let mut scheduler = SyncScheduler {
                next_check: (now.monotonic + seconds(100), SyncTrigger::Start),
                scheduled_at: scheduled,
                ..SyncScheduler::new(now.monotonic)
            };
            scheduler.change_timing(every(interval), now, || 0.5);
            assert_eq!(scheduler.next_check, (now.monotonic + seconds(wait), trigger), "{interval}");
            assert_eq!(scheduler.scheduled_at, scheduled.filter(|_| trigger == SyncTrigger::Start), "{interval}");
        }
        // From one timing to another, in seconds until the next check; `None` is an interval of 300 s.
        let schedules = [("* * * * *", 60), ("*/10 * * * *", 600), ("0 * * * *", 3600)];
        let schedules = schedules.map(|(text, wait)| (Some(Schedule::parse(text).unwrap()), seconds(wait)));
        let timings: Vec<_> = schedules.into_iter().chain([(None, seconds(300))]).collect();
        let timing = |n: usize| CheckTiming { schedule: timings[n].0.as_ref(), ..every(300) };
        for from in 0..timings.len() {
            for to in 0..timings.len() {
                let mut scheduler = SyncScheduler::new(now.monotonic);
                scheduler.schedule_next_check(None, timing(from), now, || 0.5);
                scheduler.change_timing(timing(to), now, || 0.5);
                let expected = timings[from].1.min(timings[to].1);
                assert_eq!(scheduler.time_to_next_check(now), expected, "{:?} to {:?}", timings[from], timings[to]);
            }
        }
        for (failures, trigger) in [(0, SyncTrigger::Changed), (1, SyncTrigger::Corrected)] {
            let mut scheduler = SyncScheduler { failures, ..SyncScheduler::new(now.monotonic) };
            scheduler.handle_changed_settings();
            assert_eq!((scheduler.failures, scheduler.pending), (0, Some(trigger)));
            let mut scheduler = SyncScheduler { failures, ..SyncScheduler::new(now.monotonic) };
            scheduler.request_check(SyncTrigger::Signal);
            assert_eq!((scheduler.failures, scheduler.pending), (0, Some(SyncTrigger::Signal)));
        }
    }

    #[test]
    fn next_check_after_a_sync_is_at_the_interval_or_at_the_retry() {
        let now = noon();
        let report = || Ok(SyncReport::from_outcome(SyncOutcome::Current(None)));
        let postponed = |postponement| {
            Ok(SyncReport { postponed: Some(postponement), ..SyncReport::from_outcome(SyncOutcome::Current(None)) })
        };
        let ingested = || {
            let id = VersionId(Digest::compute(b"x"));
            let (sha256, warnings, committed) = (None, Vec::new(), CommitOutcome::New);
            let ingested = IngestedBundle { id, sha256, warnings, committed, pages: 0, bytes: 0 };
            Ok(SyncReport { ingested: Some(ingested), ..SyncReport::from_outcome(SyncOutcome::Activated(id)) })
        };
        let (regular, changed) = (SyncTrigger::RegularCheck, SyncTrigger::Changed);
        // There were four failures, and the next check was in this many seconds. Then the trigger of a sync and its
        // result; the failures, the pending trigger, the time of the next check, and the wait after a failure.
        let cases = [
            (10, regular, postponed(Postponement::For(seconds(30))), 4, None, seconds(30), None),
            (10, regular, postponed(Postponement::For(seconds(60))), 4, None, seconds(54), None),
            (10, regular, postponed(Postponement::UntilNextCheck), 4, None, seconds(54), None),
            (10, regular, report(), 0, None, seconds(54), None),
            (10, changed, report(), 0, None, seconds(10), None),
            (0, changed, report(), 0, None, seconds(54), None),
            (10, changed, ingested(), 0, None, seconds(54), None),
            (10, SyncTrigger::Signal, Err(SyncError::Cancelled), 4, Some(SyncTrigger::Signal), seconds(10), None),
            // The fifth failure: 80 s, less a tenth.
            (10, regular, Err(SyncError::Bug(String::new())), 5, None, seconds(72), Some(seconds(72))),
            (10, regular, Err(SyncError::StillRefused(String::new())), 5, None, seconds(54), Some(seconds(54))),
            (0, changed, Err(SyncError::UnusableSetting(String::new())), 5, None, seconds(72), Some(seconds(72))),
        ];
        for (n, (next, trigger, result, failures, pending, wait, expected)) in cases.into_iter().enumerate() {
            let next = (now.monotonic + seconds(next), SyncTrigger::Start);
            let mut scheduler = SyncScheduler { failures: 4, next_check: next, ..SyncScheduler::new(now.monotonic) };
            assert_eq!(scheduler.after_sync(trigger, &result, every(60), now, || 0.0), expected, "case {n}");
            assert_eq!((scheduler.failures, scheduler.pending), (failures, pending), "case {n}");
            assert_eq!(scheduler.next_check.0, now.monotonic + wait, "case {n}");
        }
        // Regression: after a refusal the wait until the next reading of the clock was reported, not the wait until the
        // check.
        let hourly = Schedule::parse("0 * * * *").unwrap();
        let timing = CheckTiming { schedule: Some(&hourly), ..every(60) };
        let refused = Err(SyncError::StillRefused(String::new()));
        let mut scheduler = SyncScheduler::new(now.monotonic);
        assert_eq!(scheduler.after_sync(regular, &refused, timing, now, || 0.0), Some(seconds(3600)));
        assert_eq!(scheduler.scheduled_at, Some(now.wall + seconds(3600)));
        let mut scheduler = SyncScheduler { failures: u32::MAX, ..SyncScheduler::new(now.monotonic) };
        scheduler.after_sync(regular, &Err(SyncError::Bug(String::new())), every(60), now, || 0.0);
        assert_eq!(scheduler.failures, u32::MAX);
    }
}
