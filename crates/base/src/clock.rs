//! The wall clock as numbers and as text. Other programs may set it, so a wait is measured with [`std::time::Instant`]
//! instead.

use std::time::{Duration, SystemTime};

use crate::model::units::format_unix_seconds;

/// Returns the current time in seconds since 1970.
pub fn now_unix_seconds() -> i64 {
    unix_seconds(SystemTime::now())
}

/// Returns the current time in milliseconds since 1970.
pub fn now_unix_millis() -> i64 {
    unix_millis(SystemTime::now())
}

/// Formats the current time as RFC 3339 in UTC, to the second.
pub fn now_rfc3339() -> String {
    format_system_time(SystemTime::now())
}

/// Formats a time as RFC 3339 in UTC, to the second.
pub fn format_system_time(time: SystemTime) -> String {
    format_unix_seconds(unix_seconds(time))
}

/// Converts a time to seconds since 1970; earlier times are negative.
pub fn unix_seconds(time: SystemTime) -> i64 {
    count_since_1970(time, |duration| u128::from(duration.as_secs()))
}

/// Converts a time to milliseconds since 1970; earlier times are negative.
pub fn unix_millis(time: SystemTime) -> i64 {
    count_since_1970(time, |duration| duration.as_millis())
}

/// Converts a duration to whole seconds, rounded up, for a wait that is stored and must not become shorter.
pub fn seconds_ceil(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

fn count_since_1970(time: SystemTime, count: impl Fn(Duration) -> u128) -> i64 {
    let bounded = |duration| i64::try_from(count(duration)).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => bounded(after),
        Err(before) => -bounded(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::parse_time;

    #[test]
    fn seconds_ceil_never_shortens_a_wait() {
        let cases = [(0, 0, 0), (0, 1, 1), (5, 0, 5), (5, 999_999_999, 6), (u64::MAX, 1, u64::MAX)];
        for (seconds, nanos, expected) in cases {
            assert_eq!(seconds_ceil(Duration::new(seconds, nanos)), expected, "{seconds} s and {nanos} ns");
        }
    }

    #[test]
    fn unix_times_before_1970_are_negative() {
        let epoch = SystemTime::UNIX_EPOCH;
        for (time, seconds, millis) in [
            (epoch, 0, 0),
            (epoch + Duration::from_millis(7999), 7, 7999),
            (epoch - Duration::from_secs(7), -7, -7000),
            (epoch - Duration::from_millis(1), 0, -1),
        ] {
            assert_eq!((unix_seconds(time), unix_millis(time)), (seconds, millis), "{time:?}");
        }
    }

    #[test]
    fn a_time_is_shown_in_utc_to_the_second() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(format_system_time(epoch + Duration::from_millis(1999)), "1970-01-01T00:00:01Z");
        assert_eq!(format_system_time(epoch - Duration::from_secs(5)), "1969-12-31T23:59:55Z");
    }

    #[test]
    fn the_current_time_is_the_same_in_every_form() {
        let before = now_unix_seconds();
        let times = [now_unix_millis() / 1000, parse_time(&now_rfc3339()).unwrap()];
        let after = now_unix_seconds();
        assert!(before > 1_577_836_800 && times.iter().all(|time| (before..=after).contains(time)), "{times:?}");
    }
}
