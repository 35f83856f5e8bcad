//! When the source is looked at next, and why: pure, the moment being told. What wakes a sync while one is under way is
//! remembered; a stronger trigger is not replaced by a weaker one.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::base::backoff;
use crate::model::units::{parse_time, unix_seconds};
use crate::net::trouble::LONGEST;
use crate::store::record::Record;

use super::SyncError;
use super::plan::Trigger;
use super::run::wait_after;
use super::schedule::Schedule;
use super::settle::Report;

/// A moment, on both clocks: one that nobody can set, and the wall's.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Never goes back.
    pub at: Instant,
    /// May be set by anybody.
    pub wall: SystemTime,
}

impl Moment {
    /// This one.
    pub fn now() -> Moment {
        Moment { at: Instant::now(), wall: SystemTime::now() }
    }
}

/// How often the source is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm<'a> {
    /// `sync.interval`
    pub interval: Duration,
    /// `sync.schedule`, which replaces it.
    pub schedule: Option<&'a Schedule>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Agenda {
    /// Failures in a row.
    pub failures: u32,
    /// What is to be done as soon as nothing else is.
    pub pending: Option<Trigger>,
    /// When to look next, and by what trigger.
    pub next: (Instant, Trigger),
    /// The same where a schedule says so: the wall's clock decides, whatever was done to it meanwhile.
    pub scheduled: Option<SystemTime>,
}

impl Agenda {
    /// That of a daemon that starts.
    pub fn new(now: Instant) -> Agenda {
        Agenda { failures: 0, pending: None, next: (now, Trigger::Start), scheduled: None }
    }

    /// A restart goes on waiting where the one before left off, for the same question; gives how long that is, if so.
    pub fn take_up(&mut self, record: &Record, question: &str, now: Moment) -> Option<Duration> {
        let attempt = record.last_attempt.as_ref().filter(|attempt| attempt.question == question)?;
        self.failures = attempt.failures;
        let ago = parse_time(&attempt.time).map(|time| unix_seconds(now.wall) - time);
        // A clock that was set back since then must not make it wait longer than it would have.
        let ago = u64::try_from(ago.unwrap_or(0)).unwrap_or(0);
        let left = Duration::from_secs(attempt.wait.saturating_sub(ago)).min(LONGEST);
        if attempt.failures == 0 || left.is_zero() {
            return None;
        }
        self.next.0 = now.at + left;
        Some(left)
    }

    /// Looks as soon as can be.
    pub fn wake(&mut self, trigger: Trigger) {
        self.pending = self.pending.max(Some(trigger));
    }

    /// The time that `next` names has come.
    pub fn time_has_come(&mut self, now: Moment) {
        match self.scheduled.and_then(|time| time.duration_since(now.wall).ok()) {
            // The machine has slept, or its clock was set: ask again soon, it may be again.
            Some(left) if !left.is_zero() => self.next.0 = now.at + left.min(Duration::from_mins(1)),
            _ => {
                self.scheduled = None;
                self.wake(self.next.1);
            }
        }
    }

    /// Looks again after `wait`, or when the rhythm says so. `random` gives numbers from 0 to 1.
    pub fn look_after(
        &mut self,
        wait: Option<Duration>,
        rhythm: Rhythm<'_>,
        now: Moment,
        mut random: impl FnMut() -> f64,
    ) {
        self.scheduled = None;
        let wait = match (wait, rhythm.schedule) {
            (Some(wait), _) => wait,
            (None, Some(schedule)) => {
                let wait = schedule.wait();
                self.scheduled = now.wall.checked_add(wait);
                wait.min(Duration::from_mins(1))
            }
            (None, None) => backoff::jitter(rhythm.interval, random()),
        };
        self.next = (now.at + wait, Trigger::Interval);
    }

    /// Another rhythm: a shorter one counts from now, a longer one does not put off what is due.
    pub fn change_rhythm(&mut self, rhythm: Rhythm<'_>, now: Moment, random: impl FnMut() -> f64) {
        let due = (self.next, self.scheduled);
        self.look_after(None, rhythm, now, random);
        if due.0.0 < self.next.0 {
            (self.next, self.scheduled) = due;
        }
    }

    /// The configuration, the key or a certificate has changed, and could be read.
    pub fn settings_changed(&mut self) {
        // After a failure there is something to make good: that is what the change was for, probably.
        let trigger = if self.failures > 0 { Trigger::Interval } else { Trigger::Changed };
        self.failures = 0;
        self.wake(trigger);
    }

    /// Somebody wants the content of now.
    pub fn asked(&mut self, trigger: Trigger) {
        self.failures = 0;
        self.wake(trigger);
    }

    /// A sync has ended; after a failure, how long until the next look.
    pub fn after_sync(
        &mut self,
        trigger: Trigger,
        result: &Result<Report, SyncError>,
        rhythm: Rhythm<'_>,
        now: Moment,
        mut random: impl FnMut() -> f64,
    ) -> Option<Duration> {
        match result {
            // What failed before is to be made good as soon as may be.
            Ok(Report { too_early: Some(more), .. }) => {
                let wait = (*more).min(rhythm.interval);
                self.look_after((wait < rhythm.interval).then_some(wait), rhythm, now, random);
                None
            }
            Ok(report) => {
                self.failures = 0;
                // A changed configuration that asked for nothing puts nothing off.
                let asked_nothing = trigger == Trigger::Changed && report.brought.is_none();
                if !asked_nothing || self.next.0 <= now.at {
                    self.look_after(None, rhythm, now, random);
                }
                None
            }
            // What called it off comes first, but it is not forgotten.
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

    #[test]
    fn of_several_wishes_the_strongest_is_done_in_whichever_order_they_come() {
        let rising =
            [Trigger::Changed, Trigger::Start, Trigger::Interval, Trigger::Hook, Trigger::Asked, Trigger::Refresh];
        for first in rising {
            for second in rising {
                let mut agenda = Agenda::new(Instant::now());
                agenda.wake(first);
                agenda.wake(second);
                assert_eq!(agenda.pending, Some(first.max(second)), "{first:?}, {second:?}");
            }
        }
        assert!(rising.is_sorted());
        // A person waits for a refresh while the interval comes round.
        let mut agenda = Agenda::new(Instant::now());
        agenda.asked(Trigger::Refresh);
        agenda.time_has_come(Moment::now());
        agenda.settings_changed();
        assert_eq!(agenda.pending, Some(Trigger::Refresh));
    }
}
