//! A period as the API accepts it: `dateFrom` inclusive, `dateTo` exclusive, each ISO 8601 or YYYY-MM-DD. Pure.

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use docwharf_base::model::units::format_duration;

const DAY: Duration = Duration::from_hours(24);

/// Both ends of a period, in the form in which they are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// First moment; none for the beginning of the records.
    pub from: Option<String>,
    /// End, exclusive; none for now.
    pub to: Option<String>,
}

/// One end of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeriodEnd {
    /// The beginning of a day.
    Day(Date),
    /// A point in time.
    Point(Timestamp),
}

impl PeriodEnd {
    fn parse(text: &str) -> Result<PeriodEnd, String> {
        let text = text.trim();
        let is_day = text.len() == 10;
        let day = || text.parse::<Date>().ok().map(PeriodEnd::Day).filter(|_| is_day);
        let point = || text.parse::<Timestamp>().ok().map(PeriodEnd::Point);
        // A time without a zone is in UTC, like all times of the API.
        let without_zone = || text.parse::<DateTime>().ok().filter(|_| text.contains([':', 'T']));
        let in_utc = || {
            without_zone()
                .and_then(|time| time.to_zoned(TimeZone::UTC).ok())
                .map(|time| PeriodEnd::Point(time.timestamp()))
        };
        day()
            .or_else(point)
            .or_else(in_utc)
            .ok_or_else(|| format!("{text:?} is no date: write it like 2026-11-01 or 2026-11-01T08:30:00Z (ISO 8601)"))
    }

    /// Returns the time in UTC; of a day, its beginning.
    fn timestamp(self) -> Timestamp {
        match self {
            PeriodEnd::Day(day) => day.to_zoned(TimeZone::UTC).map_or(Timestamp::MIN, |time| time.timestamp()),
            PeriodEnd::Point(point) => point,
        }
    }

    fn earlier_by(self, span: Duration) -> Option<PeriodEnd> {
        Some(match self {
            PeriodEnd::Day(day) if span.as_secs().is_multiple_of(DAY.as_secs()) => {
                PeriodEnd::Day(day.checked_sub(span).ok()?)
            }
            PeriodEnd::Day(_) => PeriodEnd::Point(self.timestamp().checked_sub(span).ok()?),
            PeriodEnd::Point(point) => PeriodEnd::Point(point.checked_sub(span).ok()?),
        })
    }

    fn to_text(self) -> String {
        match self {
            PeriodEnd::Day(day) => day.to_string(),
            PeriodEnd::Point(point) => Timestamp::from_second(point.as_second()).unwrap_or(point).to_string(),
        }
    }
}

fn day_of(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

/// Parses one end of a period; a day is its first moment in UTC. The error describes the mistake.
pub fn parse_period_end(text: &str) -> Result<Timestamp, String> {
    PeriodEnd::parse(text).map(PeriodEnd::timestamp)
}

impl Period {
    /// Creates the period between two ends as a person writes them; they are sent unchanged. The error describes the
    /// mistake.
    pub fn between(from: Option<&str>, to: Option<&str>) -> Result<Period, String> {
        let first = from.map(PeriodEnd::parse).transpose()?;
        let last = to.map(PeriodEnd::parse).transpose()?;
        if let (Some(first), Some(last)) = (first, last)
            && first.timestamp() >= last.timestamp()
        {
            return Err("the period is empty: it ends before it begins (--to is exclusive)".to_owned());
        }
        let trim = |text: Option<&str>| text.map(|text| text.trim().to_owned());
        Ok(Period { from: trim(from), to: trim(to) })
    }

    /// Creates the period of length `span` before `to`, or before now. Whole days are calendar days in UTC, and today
    /// is added to them if `to` is none.
    pub fn since(span: Duration, to: Option<&str>, now: Timestamp) -> Result<Period, String> {
        if span < Duration::from_secs(1) {
            return Err("a period is at least a second long".to_owned());
        }
        let end = match to {
            Some(to) => PeriodEnd::parse(to)?,
            None if span.as_secs().is_multiple_of(DAY.as_secs()) => PeriodEnd::Day(day_of(now)),
            None => PeriodEnd::Point(now),
        };
        let range_error = || format!("{} before that is out of range", format_duration(span));
        let from = end.earlier_by(span).ok_or_else(range_error)?.to_text();
        Ok(Period { from: Some(from), to: to.map(|to| to.trim().to_owned()) })
    }

    /// Ends a period without an end at the beginning of today, so that two periods of whole days are compared.
    #[must_use]
    pub fn until_today(mut self, now: Timestamp) -> Period {
        let today = PeriodEnd::Day(day_of(now));
        let start = self.from.as_deref().and_then(|from| PeriodEnd::parse(from).ok());
        if self.to.is_none() && start.is_none_or(|from| from.timestamp() < today.timestamp()) {
            self.to = Some(today.to_text());
        }
        self
    }

    /// Returns the period of the same length that ends where this one begins; none if this one has no beginning.
    pub fn previous(&self, now: Timestamp) -> Option<Period> {
        let from = PeriodEnd::parse(self.from.as_deref()?).ok()?;
        let to = match &self.to {
            Some(to) => PeriodEnd::parse(to).ok()?,
            // Today counts as a whole day.
            None if matches!(from, PeriodEnd::Day(_)) => PeriodEnd::Day(day_of(now).checked_add(1.day()).ok()?),
            None => PeriodEnd::Point(now),
        };
        let length = to.timestamp().duration_since(from.timestamp());
        let start = from.earlier_by(Duration::try_from(length).ok()?)?;
        Some(Period { from: Some(start.to_text()), to: self.from.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T15:30:10.5Z".parse().unwrap()
    }

    fn pair(period: &Period) -> (Option<&str>, Option<&str>) {
        (period.from.as_deref(), period.to.as_deref())
    }

    #[test]
    fn period_ends_are_sent_as_written_without_surrounding_spaces() {
        for (from, to) in [
            (Some("2026-01-01"), Some("2026-02-01")),
            (Some("2026-01-01T00:00:00Z"), None),
            (Some("2026-01-01T01:30:00+02:00"), Some("2026-01-01")),
            (None, Some("2026-01-01T08:30")),
        ] {
            assert_eq!(pair(&Period::between(from, to).unwrap()), (from, to));
        }
        assert_eq!(Period::between(Some(" 2026-01-01 "), None).unwrap().from.as_deref(), Some("2026-01-01"));
    }

    #[test]
    fn invalid_dates_and_empty_periods_are_refused() {
        for wrong in ["", "yesterday", "2026-13-01", "2026-02-30", "01.02.2026", "2026-1-1", "20260101", "12:30"] {
            assert!(Period::between(Some(wrong), None).is_err(), "{wrong:?}");
        }
        for (from, to) in [("2026-01-01", "2026-01-01"), ("2026-01-02", "2026-01-01T23:59:59Z")] {
            assert!(Period::between(Some(from), Some(to)).unwrap_err().contains("exclusive"));
        }
    }

    #[test]
    fn since_counts_whole_days_by_the_calendar_and_other_spans_from_now() {
        let days = |n: u64| Duration::from_hours(24 * n);
        let since = |span, to| Period::since(span, to, now()).unwrap();
        assert_eq!(pair(&since(days(30), None)), (Some("2026-10-22"), None));
        assert_eq!(pair(&since(days(1), Some("2026-03-01"))), (Some("2026-02-28"), Some("2026-03-01")));
        assert_eq!(pair(&since(Duration::from_hours(36), None)), (Some("2026-11-20T03:30:10Z"), None));
        assert!(Period::since(Duration::MAX, None, now()).is_err());
        assert!(Period::since(Duration::ZERO, None, now()).is_err());
    }

    #[test]
    fn the_period_before_is_as_long_and_ends_where_this_one_begins() {
        let before = |from, to| Period::between(from, to).unwrap().previous(now());
        assert_eq!(
            pair(&before(Some("2026-03-01"), Some("2026-03-08")).unwrap()),
            (Some("2026-02-22"), Some("2026-03-01"))
        );
        assert_eq!(pair(&before(Some("2026-11-20"), None).unwrap()), (Some("2026-11-18"), Some("2026-11-20")));
        let point = before(Some("2026-11-21T14:30:10Z"), Some("2026-11-21T15:30:10Z")).unwrap();
        assert_eq!(pair(&point), (Some("2026-11-21T13:30:10Z"), Some("2026-11-21T14:30:10Z")));
        assert_eq!(before(None, Some("2026-03-08")), None);
        let month = Period::since(DAY * 30, None, now()).unwrap().until_today(now());
        assert_eq!(pair(&month), (Some("2026-10-22"), Some("2026-11-21")));
        assert_eq!(pair(&month.previous(now()).unwrap()), (Some("2026-09-22"), Some("2026-10-22")));
        for (from, to, expected) in [
            // A period without an end ends now; if it begins with a day, it ends with today.
            (Some("2026-11-21"), None, Some(("2026-11-20", "2026-11-21"))),
            (Some("2026-11-21T15:00:10.5Z"), None, Some(("2026-11-21T14:30:10Z", "2026-11-21T15:00:10.5Z"))),
            (Some("2026-11-23"), None, None),
            (Some("2026-11-22T00:00:00Z"), None, None),
            (Some("2026-11-20"), Some("2026-11-20T12:00"), Some(("2026-11-19T12:00:00Z", "2026-11-20"))),
            (None, None, None),
        ] {
            let period = before(from, to);
            let found = period.as_ref().map(pair);
            assert_eq!(found, expected.map(|(from, to)| (Some(from), Some(to))), "{from:?} {to:?}");
        }
    }

    #[test]
    fn a_period_without_an_end_ends_with_yesterday_unless_it_begins_today() {
        for (from, to, expected) in [
            (Some("2026-11-20"), None, Some("2026-11-21")),
            (Some("2026-11-20T23:59:59Z"), None, Some("2026-11-21")),
            (Some("2026-11-21"), None, None),
            (Some("2026-11-21T00:00:01Z"), None, None),
            (Some("2026-11-22"), None, None),
            (None, None, Some("2026-11-21")),
            (Some("2026-11-01"), Some("2026-11-02"), Some("2026-11-02")),
            (None, Some("2026-11-25"), Some("2026-11-25")),
        ] {
            let period = Period::between(from, to).unwrap().until_today(now());
            assert_eq!(pair(&period), (from, expected), "{from:?} {to:?}");
        }
    }

    #[test]
    fn since_subtracts_the_span_from_a_given_end_and_refuses_spans_below_one_second() {
        for (span, to, expected) in [
            (Duration::from_hours(12), Some("2026-11-20"), Some("2026-11-19T12:00:00Z")),
            (Duration::from_hours(48), Some("2026-11-20"), Some("2026-11-18")),
            (Duration::from_hours(24), Some("2026-11-20T06:00:00Z"), Some("2026-11-19T06:00:00Z")),
            (Duration::from_secs(1), None, Some("2026-11-21T15:30:09Z")),
            (Duration::from_millis(999), None, None),
            (Duration::from_hours(24), Some("soon"), None),
        ] {
            let found = Period::since(span, to, now());
            assert_eq!(found.as_ref().ok().and_then(|period| period.from.as_deref()), expected, "{span:?} {to:?}");
            assert_eq!(found.ok().and_then(|period| period.to).as_deref(), to.filter(|_| expected.is_some()));
        }
        assert_eq!(parse_period_end("2026-11-20").unwrap(), parse_period_end("2026-11-20T00:00:00Z").unwrap());
        assert_eq!(
            parse_period_end(" 2026-11-20T01:30+01:30 ").unwrap(),
            parse_period_end("2026-11-20T00:00").unwrap()
        );
    }
}
