//! `sync.schedule`: the five fields of cron, in the machine's local time.

use std::time::{Duration, SystemTime};

use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::Zoned;

/// The value of `sync.schedule`: a cron expression that sets the times of the checks of the source.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    cron: Cron,
}

impl Schedule {
    /// Parses `minute hour day month weekday`.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let error = |why: &str| format!("{text:?} is no schedule{why}: write five fields, such as \"15 4 * * 1-5\"");
        if text.split_whitespace().count() != 5 {
            return Err(error(""));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).build();
        let cron = parser.parse(text).map_err(|cause| error(&format!(" ({cause})")))?;
        let schedule = Schedule { cron };
        // A time that never occurs, such as 30 February, is an error.
        if schedule.time_until_next(&Zoned::now()).is_none() { Err(error(" (it never occurs)")) } else { Ok(schedule) }
    }

    /// Returns the time from `now` to the next occurrence.
    pub fn time_until_next(&self, now: &Zoned) -> Option<Duration> {
        let next = self.cron.find_next_occurrence(now, false).ok()?;
        Duration::try_from(next.duration_since(now)).ok()
    }

    /// The time from `now` to the next occurrence, in the machine's time zone; 24 hours if no next occurrence can be
    /// computed. It is at least a second, so that a clock that is set back cannot cause a busy loop.
    pub fn wait(&self, now: SystemTime) -> Duration {
        let wait = Zoned::try_from(now).ok().and_then(|now| self.time_until_next(&now));
        wait.unwrap_or(Duration::from_hours(24)).max(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_is_parsed_from_five_cron_fields() {
        let now: Zoned = "2026-11-20T22:10:30+00:00[UTC]".parse().unwrap();
        let wait = |text: &str| Schedule::parse(text).unwrap().time_until_next(&now).unwrap().as_secs();
        assert_eq!(wait("15 * * * *"), 4 * 60 + 30);
        assert_eq!(wait("10 22 * * *"), 24 * 3600 - 30);
        assert_eq!(wait("0 4 * * 1"), (2 * 24 + 5) * 3600 + 49 * 60 + 30);
        for wrong in ["", "* * * *", "* * * * * *", "61 * * * *", "every day at 4 o'clock", "0 0 30 2 *"] {
            assert!(Schedule::parse(wrong).is_err(), "{wrong:?}");
        }
    }
    #[test]
    fn a_schedule_counts_from_the_time_that_it_is_given() {
        // Time zones differ by quarters of an hour.
        let schedule = Schedule::parse("*/15 * * * *").unwrap();
        // 2026-11-20T12:00:00Z
        let noon = SystemTime::UNIX_EPOCH + Duration::from_hours(498_660);
        for (past, wait) in [(0, 900), (1, 899), (899, 1), (900, 900), (86_400 + 60, 840)] {
            assert_eq!(schedule.wait(noon + Duration::from_secs(past)), Duration::from_secs(wait), "{past}");
        }
        assert_eq!(schedule.wait(noon + Duration::from_millis(899_500)), Duration::from_secs(1));
        assert_eq!(schedule.wait(noon + Duration::from_hours(24 * 365 * 20_000)), Duration::from_hours(24));
    }
}
