//! Parses and formats durations, sizes, counts and times for users.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;

/// Parses a duration such as `90s`, `15m`, `2h30m`, `7d` or `250ms`. The error is a message that quotes the text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let parse_error = || format!("{text:?} is not a duration: write it like 90s, 15m, 2h30m or 7d");
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(parse_error());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| parse_error())?;
        rest = &rest[digits..];
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit = match &rest[..letters] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            "d" => Duration::from_hours(24),
            _ => return Err(parse_error()),
        };
        rest = &rest[letters..];
        let part = u32::try_from(number).ok().and_then(|n| unit.checked_mul(n)).ok_or_else(parse_error)?;
        total = total.checked_add(part).ok_or_else(parse_error)?;
    }
    Ok(total)
}

/// Formats a duration so that [`parse_duration`] can read it: `15m`, `2h30m`, `7d`.
pub fn format_duration(duration: Duration) -> String {
    let mut remaining = duration.as_millis();
    let mut out = String::new();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")] {
        if remaining >= unit {
            let _ = write!(out, "{}{name}", remaining / unit);
            remaining %= unit;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

/// Parses a size in bytes such as `1024`, `64KiB`, `64MiB` or `2GiB`, also with the decimal units `kB`, `MB` and `GB`.
/// The error is a message that quotes the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let parse_error = || format!("{text:?} is not a size: write it like 512KiB, 64MiB or 2GiB");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().map_err(|_| parse_error())?;
    let unit = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(parse_error()),
    };
    number.checked_mul(unit).ok_or_else(parse_error)
}

/// Formats a size in decimal units: `90 MB`, `1.5 kB`.
pub fn format_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger_unit in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger_unit;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else if value < 10.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Formats an age in its largest unit: `2 h ago`. An age of less than a second and a time in the future are `now`.
pub fn format_age(seconds: i64) -> String {
    match seconds {
        i64::MIN..=0 => "now".to_owned(),
        1..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} ago", format_count((seconds / 86_400).unsigned_abs(), "day")),
    }
}

/// Formats a count with its noun: `1 page`, `2 pages`.
pub fn format_count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Formats seconds since 1970 as RFC 3339 in UTC. A number that is out of range is shown as 1970.
pub fn format_unix_seconds(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Parses an RFC 3339 time into seconds since 1970.
pub fn parse_time(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_with_units_are_parsed() {
        assert_eq!(parse_duration("2h30m"), Ok(Duration::from_mins(150)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_hours(168)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        for invalid in ["", "15", "m", "-5s", "5 s", "1y", "99999999999999999999s"] {
            assert!(parse_duration(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn sizes_with_units_are_parsed() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("2GB"), Ok(2_000_000_000));
        assert_eq!(parse_size("17"), Ok(17));
        for invalid in ["", "MiB", "1.5GiB", "-1", "99999999999TiB", "1XB"] {
            assert!(parse_size(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn each_duration_unit_has_its_value_and_formatting_round_trips() {
        for (text, millis) in [
            ("0s", 0),
            ("1ms", 1),
            ("999ms", 999),
            ("1s", 1000),
            ("1s500ms", 1500),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("2h30m", 9_000_000),
            ("23h59m59s999ms", 86_399_999),
            ("1d", 86_400_000),
            ("7d1ms", 604_800_001),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!((parse_duration(text), format_duration(duration).as_str()), (Ok(duration), text));
        }
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("4294967295s"), Ok(Duration::from_secs(u32::MAX.into())));
        for invalid in ["4294967296s", "1S", "1.5s", "1s ", " 1s", "s1", "1s2", "1w"] {
            assert!(parse_duration(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn each_size_unit_has_its_value() {
        for (text, bytes) in [
            ("0", 0),
            ("1B", 1),
            ("1KiB", 1 << 10),
            ("1 MiB", 1 << 20),
            ("1GiB", 1 << 30),
            ("1TiB", 1 << 40),
            ("1kB", 1_000),
            ("1MB", 1_000_000),
            ("1GB", 1_000_000_000),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for invalid in ["16777216TiB", "1KB", "1kib", "1TB", "B", "1 2"] {
            assert!(parse_size(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn sizes_ages_and_counts_are_formatted_with_a_fitting_unit() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1540, "1.5 kB"),
            (9900, "9.9 kB"),
            (10_000, "10 kB"),
            (999_000, "999 kB"),
            (1_000_000, "1.0 MB"),
            (90_000_000, "90 MB"),
            (2_000_000_000, "2.0 GB"),
            (3_000_000_000_000, "3.0 TB"),
            (5_000_000_000_000_000, "5000 TB"),
        ] {
            assert_eq!(format_size(bytes), shown);
        }
        for (seconds, shown) in [
            (i64::MIN, "now"),
            (0, "now"),
            (1, "1 s ago"),
            (59, "59 s ago"),
            (60, "1 min ago"),
            (3599, "59 min ago"),
            (3600, "1 h ago"),
            (86_399, "23 h ago"),
            (86_400, "1 day ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(format_age(seconds), shown, "{seconds}");
        }
        assert_eq!([0, 1, 2].map(|n| format_count(n, "page")), ["0 pages", "1 page", "2 pages"]);
    }

    #[test]
    fn times_are_in_utc_to_the_second_and_may_lie_before_1970() {
        for (seconds, text) in
            [(0, "1970-01-01T00:00:00Z"), (1_577_836_800, "2020-01-01T00:00:00Z"), (-5, "1969-12-31T23:59:55Z")]
        {
            assert_eq!((format_unix_seconds(seconds).as_str(), parse_time(text)), (text, Some(seconds)));
        }
        assert_eq!(format_unix_seconds(i64::MAX), format_unix_seconds(0), "a number out of range");
        assert_eq!(parse_time("2020-01-01T01:00:00+01:00"), Some(1_577_836_800));
        assert_eq!((parse_time("yesterday"), parse_time("")), (None, None));
    }
}
