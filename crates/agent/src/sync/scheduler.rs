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
use super::activation::SyncReport;
use super::plan::SyncTrigger;
use super::run::wait_after;
use super::schedule::Schedule;

/// A moment on two clocks: the monotonic one and the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The time on the monotonic clock.
    pub at: Instant,
    /// The time on the wall clock, which may be set.
    pub wall: SystemTime,
}

impl ClockReading {
    /// Reads both clocks.
    pub fn now() -> ClockReading {
        ClockReading { at: Instant::now(), wall: SystemTime::now() }
    }
}

/// When the source is checked regularly.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm<'a> {
    /// `sync.interval`
    pub interval: Duration,
    /// `sync.schedule`, which replaces it.
    pub schedule: Option<&'a Schedule>,
}

/// The schedule of checks of the source.
#[derive(Debug, Clone)]
pub struct SyncScheduler {
    /// Failures in a row.
    pub failures: u32,
    /// The trigger of the sync that starts as soon as no other work runs.
    pub pending: Option<SyncTrigger>,
    /// When to check next, and by which trigger.
    pub next: (Instant, SyncTrigger),
    /// The wall-clock time of the next check, if a schedule sets it: it counts even if the clock is set meanwhile.
    pub scheduled: Option<SystemTime>,
}

impl SyncScheduler {
    /// Creates the schedule of a daemon that starts: it checks at once.
    pub fn new(now: Instant) -> SyncScheduler {
        SyncScheduler { failures: 0, pending: None, next: (now, SyncTrigger::Start), scheduled: None }
    }

    /// Continues the back-off of the previous process if the configuration asks the same `question`; returns what is
    /// left of it.
    pub fn take_up(&mut self, record: &StoreRecord, question: &str, now: ClockReading) -> Option<Duration> {
        let attempt = record.last_attempt.as_ref().filter(|attempt| attempt.question == question)?;
        self.failures = attempt.failures;
        let ago = parse_time(&attempt.time).map(|time| unix_seconds(now.wall) - time);
        // A clock that was set back since then must not make the wait longer than it was.
        let ago = u64::try_from(ago.unwrap_or(0)).unwrap_or(0);
        let left = Duration::from_secs(attempt.wait.saturating_sub(ago)).min(MAX_RETRY_AFTER);
        if attempt.failures == 0 || left.is_zero() {
            return None;
        }
        self.next.0 = now.at + left;
        Some(left)
    }

    /// Checks as soon as possible. A stronger pending trigger stays.
    pub fn wake(&mut self, trigger: SyncTrigger) {
        self.pending = self.pending.max(Some(trigger));
    }

    /// Handles the timer of `next`.
    pub fn time_has_come(&mut self, now: ClockReading) {
        match self.scheduled.and_then(|time| time.duration_since(now.wall).ok()) {
            // The machine was suspended, or its clock was set. Check the clock again within a minute: it may be set
            // again.
            Some(left) if !left.is_zero() => self.next.0 = now.at + left.min(Duration::from_mins(1)),
            _ => {
                self.scheduled = None;
                self.wake(self.next.1);
            }
        }
    }

    /// Schedules the next check after `wait`, or by the rhythm. `random` returns numbers from 0 to 1.
    pub fn look_after(
        &mut self,
        wait: Option<Duration>,
        rhythm: Rhythm<'_>,
        now: ClockReading,
        mut random: impl FnMut() -> f64,
    ) {
        self.scheduled = None;
        let wait = match (wait, rhythm.schedule) {
            (Some(wait), _) => wait,
            (None, Some(schedule)) => {
                let wait = schedule.wait(now.wall);
                self.scheduled = now.wall.checked_add(wait);
                wait.min(Duration::from_mins(1))
            }
            (None, None) => backoff::jitter(rhythm.interval, random()),
        };
        self.next = (now.at + wait, SyncTrigger::Interval);
    }

    /// Applies another rhythm: a shorter one counts from now, a longer one does not postpone a check that is due.
    pub fn change_rhythm(&mut self, rhythm: Rhythm<'_>, now: ClockReading, random: impl FnMut() -> f64) {
        let due = (self.next, self.scheduled);
        self.look_after(None, rhythm, now, random);
        if due.0.0 < self.next.0 {
            (self.next, self.scheduled) = due;
        }
    }

    /// Handles a change of the configuration, the key or a certificate that could be read.
    pub fn settings_changed(&mut self) {
        // After a failure the change is probably meant to correct it, so the source is checked.
        let trigger = if self.failures > 0 { SyncTrigger::Interval } else { SyncTrigger::Changed };
        self.failures = 0;
        self.wake(trigger);
    }

    /// Handles a request for the current content.
    pub fn asked(&mut self, trigger: SyncTrigger) {
        self.failures = 0;
        self.wake(trigger);
    }

    /// Handles the end of a sync. Returns the wait until the next check after a failure.
    pub fn after_sync(
        &mut self,
        trigger: SyncTrigger,
        result: &Result<SyncReport, SyncError>,
        rhythm: Rhythm<'_>,
        now: ClockReading,
        mut random: impl FnMut() -> f64,
    ) -> Option<Duration> {
        match result {
            // An earlier failure is retried as soon as the upstream allows it.
            Ok(SyncReport { too_early: Some(more), .. }) => {
                let wait = (*more).min(rhythm.interval);
                self.look_after((wait < rhythm.interval).then_some(wait), rhythm, now, random);
                None
            }
            Ok(report) => {
                self.failures = 0;
                // A changed configuration that fetched nothing does not postpone the next check.
                let asked_nothing = trigger == SyncTrigger::Changed && report.brought.is_none();
                if !asked_nothing || self.next.0 <= now.at {
                    self.look_after(None, rhythm, now, random);
                }
                None
            }
            // The event that cancelled the sync is handled first, but the sync is not forgotten.
            Err(SyncError::Interrupted) => {
                self.wake(trigger);
                None
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.look_after(None, rhythm, now, &mut random);
                let every = self.next.0.saturating_duration_since(now.at);
                let wait = wait_after(error, self.failures, every, &mut random);
                if wait != every {
                    self.look_after(Some(wait), rhythm, now, random);
                }
                Some(wait)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::SyncAttempt;
    use crate::store::version_stage::CommitOutcome;
    use crate::sync::SyncOutcome;
    use crate::sync::ingest::IngestedBundle;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;

    #[test]
    fn of_several_wishes_the_strongest_is_done_in_whichever_order_they_come() {
        let rising = [
            SyncTrigger::Changed,
            SyncTrigger::Start,
            SyncTrigger::Interval,
            SyncTrigger::Hook,
            SyncTrigger::Asked,
            SyncTrigger::Refresh,
        ];
        for first in rising {
            for second in rising {
                let mut agenda = SyncScheduler::new(Instant::now());
                agenda.wake(first);
                agenda.wake(second);
                assert_eq!(agenda.pending, Some(first.max(second)), "{first:?}, {second:?}");
            }
        }
        assert!(rising.is_sorted());
        // A person waits for a refresh while the interval passes.
        let mut agenda = SyncScheduler::new(Instant::now());
        agenda.asked(SyncTrigger::Refresh);
        agenda.time_has_come(ClockReading::now());
        agenda.settings_changed();
        assert_eq!(agenda.pending, Some(SyncTrigger::Refresh));
    }

    fn moment() -> ClockReading {
        // 2026-11-20T12:00:00Z
        ClockReading { at: Instant::now(), wall: SystemTime::UNIX_EPOCH + Duration::from_hours(498_660) }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn every(interval: u64) -> Rhythm<'static> {
        Rhythm { interval: seconds(interval), schedule: None }
    }

    #[test]
    fn a_restart_waits_for_what_is_left_of_the_wait_for_the_same_question() {
        // Failures, the wait, the time of the attempt, the wait that is left.
        let cases = [
            (3, 100, "11:59:20", Some(seconds(60))),
            (1, 100, "11:58:21", Some(seconds(1))),
            (1, 100, "11:58:20", None),
            (1, 100, "12:00:50", Some(seconds(100))),
            (1, 100, "soon", Some(seconds(100))),
            (1, u64::MAX, "11:59:20", Some(MAX_RETRY_AFTER)),
            (1, 0, "12:00:00", None),
            (0, 100, "11:59:20", None),
        ];
        for (failures, wait, time, left) in cases {
            let attempt = SyncAttempt {
                time: format!("2026-11-20T{time}Z"),
                result: String::new(),
                saw: None,
                error: None,
                failures,
                question: "q".to_owned(),
                wait,
            };
            let record = StoreRecord { last_attempt: Some(attempt), ..StoreRecord::default() };
            let now = moment();
            let mut agenda = SyncScheduler::new(now.at);
            assert_eq!(agenda.take_up(&record, "another", now), None);
            assert_eq!((agenda.failures, agenda.next), (0, (now.at, SyncTrigger::Start)), "nothing is taken up");
            assert_eq!(agenda.take_up(&record, "q", now), left, "{failures} {wait} {time}");
            let next = (now.at + left.unwrap_or_default(), SyncTrigger::Start);
            assert_eq!((agenda.failures, agenda.next), (failures, next), "{failures} {wait} {time}");
        }
        assert_eq!(SyncScheduler::new(moment().at).take_up(&StoreRecord::default(), "q", moment()), None);
    }

    #[test]
    fn what_is_scheduled_waits_for_the_clock_of_the_wall_and_asks_it_each_minute() {
        // Seconds until the scheduled time; seconds until the clock is read again.
        for (left, again) in [(30, Some(30)), (60, Some(60)), (61, Some(60)), (1, Some(1)), (0, None), (-1, None)] {
            let now = moment();
            let scheduled = now.wall + seconds(100) - seconds(u64::try_from(100 - left).unwrap());
            let mut agenda = SyncScheduler { scheduled: Some(scheduled), ..SyncScheduler::new(now.at) };
            agenda.next.1 = SyncTrigger::Interval;
            agenda.time_has_come(now);
            let pending = again.is_none().then_some(SyncTrigger::Interval);
            assert_eq!((agenda.pending, agenda.scheduled), (pending, again.map(|_| scheduled)), "{left}");
            assert_eq!(agenda.next.0, now.at + seconds(again.unwrap_or(0)), "{left}");
        }
    }

    #[test]
    fn the_next_look_is_when_a_wait_ends_else_by_the_schedule_else_after_the_interval() {
        let now = moment();
        let schedules = [("* * * * *", 60), ("*/15 * * * *", 900)];
        let schedules = schedules.map(|(text, wait)| (Schedule::parse(text).unwrap(), seconds(wait)));
        let mut agenda = SyncScheduler::new(now.at);
        for (schedule, wait) in &schedules {
            let rhythm = Rhythm { schedule: Some(schedule), ..every(7) };
            agenda.look_after(None, rhythm, now, || 0.5);
            assert_eq!(agenda.scheduled, Some(now.wall + *wait));
            assert_eq!(agenda.next, (now.at + (*wait).min(seconds(60)), SyncTrigger::Interval));
            agenda.look_after(Some(seconds(9)), rhythm, now, || 0.5);
            assert_eq!((agenda.next, agenda.scheduled), ((now.at + seconds(9), SyncTrigger::Interval), None));
        }
        for (random, wait) in [(0.0, 90), (0.5, 100), (1.0, 110)] {
            agenda.scheduled = Some(now.wall);
            agenda.look_after(None, every(100), now, || random);
            assert_eq!((agenda.next, agenda.scheduled), ((now.at + seconds(wait), SyncTrigger::Interval), None));
        }
    }

    #[test]
    fn a_shorter_rhythm_counts_from_now_and_a_longer_one_puts_off_nothing() {
        let now = moment();
        for (interval, wait, trigger) in [(50, 50, SyncTrigger::Interval), (200, 100, SyncTrigger::Start)] {
            let scheduled = Some(now.wall);
            let mut agenda = SyncScheduler {
                next: (now.at + seconds(100), SyncTrigger::Start),
                scheduled,
                ..SyncScheduler::new(now.at)
            };
            agenda.change_rhythm(every(interval), now, || 0.5);
            assert_eq!(agenda.next, (now.at + seconds(wait), trigger), "{interval}");
            assert_eq!(agenda.scheduled, scheduled.filter(|_| trigger == SyncTrigger::Start), "{interval}");
        }
        for (failures, trigger) in [(0, SyncTrigger::Changed), (1, SyncTrigger::Interval)] {
            let mut agenda = SyncScheduler { failures, ..SyncScheduler::new(now.at) };
            agenda.settings_changed();
            assert_eq!((agenda.failures, agenda.pending), (0, Some(trigger)));
            let mut agenda = SyncScheduler { failures, ..SyncScheduler::new(now.at) };
            agenda.asked(SyncTrigger::Hook);
            assert_eq!((agenda.failures, agenda.pending), (0, Some(SyncTrigger::Hook)));
        }
    }

    #[test]
    fn after_a_sync_it_is_looked_again_after_the_interval_or_when_trying_again_is_of_use() {
        let now = moment();
        let report = || Ok(SyncReport::of(SyncOutcome::Current(None)));
        let early = |more| Ok(SyncReport { too_early: Some(more), ..SyncReport::of(SyncOutcome::Current(None)) });
        let brought = || {
            let id = VersionId(Digest::of(b"x"));
            let (sha256, warnings, committed) = (None, Vec::new(), CommitOutcome::New);
            let brought = IngestedBundle { id, sha256, warnings, committed, pages: 0, bytes: 0 };
            Ok(SyncReport { brought: Some(brought), ..SyncReport::of(SyncOutcome::Activated(id)) })
        };
        let (interval, changed) = (SyncTrigger::Interval, SyncTrigger::Changed);
        // There were four failures, and the next check was in this many seconds. Then the trigger of a sync and its
        // result; the failures, the pending trigger, the time of the next check, and the wait after a failure.
        let cases = [
            (10, interval, early(seconds(30)), 4, None, seconds(30), None),
            (10, interval, early(seconds(60)), 4, None, seconds(54), None),
            (10, interval, early(Duration::MAX), 4, None, seconds(54), None),
            (10, interval, report(), 0, None, seconds(54), None),
            (10, changed, report(), 0, None, seconds(10), None),
            (0, changed, report(), 0, None, seconds(54), None),
            (10, changed, brought(), 0, None, seconds(54), None),
            (10, SyncTrigger::Hook, Err(SyncError::Interrupted), 4, Some(SyncTrigger::Hook), seconds(10), None),
            // The fifth failure: 80 s, less a tenth.
            (10, interval, Err(SyncError::Broken(String::new())), 5, None, seconds(72), Some(seconds(72))),
            (10, interval, Err(SyncError::StillRefused(String::new())), 5, None, seconds(54), Some(seconds(54))),
            (0, changed, Err(SyncError::Absent(String::new())), 5, None, seconds(72), Some(seconds(72))),
        ];
        for (n, (next, trigger, result, failures, pending, wait, told)) in cases.into_iter().enumerate() {
            let next = (now.at + seconds(next), SyncTrigger::Start);
            let mut agenda = SyncScheduler { failures: 4, next, ..SyncScheduler::new(now.at) };
            assert_eq!(agenda.after_sync(trigger, &result, every(60), now, || 0.0), told, "case {n}");
            assert_eq!((agenda.failures, agenda.pending), (failures, pending), "case {n}");
            assert_eq!(agenda.next.0, now.at + wait, "case {n}");
        }
        let mut agenda = SyncScheduler { failures: u32::MAX, ..SyncScheduler::new(now.at) };
        agenda.after_sync(interval, &Err(SyncError::Broken(String::new())), every(60), now, || 0.0);
        assert_eq!(agenda.failures, u32::MAX);
    }
}
