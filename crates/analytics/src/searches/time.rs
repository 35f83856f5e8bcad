//! Times as milliseconds since 1970. Pure functions.

use std::time::Duration;

use jiff::Timestamp;

/// The largest time by which a client's clock may be ahead of the server's.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_hours(24);

const NANOSECONDS_PER_MILLISECOND: i128 = 1_000_000;

/// Returns the millisecond that contains the time.
pub fn floor_to_millisecond(time: Timestamp) -> i64 {
    // A timestamp is not after the year 9999, so the value fits.
    time.as_nanosecond().div_euclid(NANOSECONDS_PER_MILLISECOND) as i64
}

/// Returns the first millisecond that is not before the time, for the start or the end of a range.
pub fn ceil_to_millisecond(time: Timestamp) -> i64 {
    -((-time.as_nanosecond()).div_euclid(NANOSECONDS_PER_MILLISECOND) as i64)
}

/// Formats a time by RFC 3339 in UTC, with a fraction only if it is not zero; `None` if the time is out of range.
pub fn format_rfc3339(millisecond: i64) -> Option<String> {
    Timestamp::from_millisecond(millisecond).ok().map(|time| time.to_string())
}

/// Parses a time by RFC 3339. Date, time with seconds, and offset are required.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let time: Timestamp = text.parse().ok().filter(|_| is_rfc3339(text.as_bytes()))?;
    Some(floor_to_millisecond(time))
}

/// Whether a text has the form of an RFC 3339 time. The values of its numbers are not checked.
fn is_rfc3339(text: &[u8]) -> bool {
    let has_form = |form: &[u8], text: &[u8]| {
        let fits = |(form, byte): (&u8, &u8)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte.eq_ignore_ascii_case(form),
        };
        form.len() == text.len() && form.iter().zip(text).all(fits)
    };
    let Some((begin, mut rest)) = text.split_at_checked(19) else { return false };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return false;
        }
        rest = &fraction[digits..];
    }
    has_form(b"0000-00-00T00:00:00", begin)
        && (has_form(b"Z", rest) || has_form(b"+00:00", rest) || has_form(b"-00:00", rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_time_is_an_rfc_3339_timestamp_with_an_offset() {
        for (text, millisecond) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:01.2345z", 1234),
            ("1970-01-01T02:00:00+02:00", 0),
            ("1969-12-31T22:30:00-01:30", 0),
            ("1969-12-31T23:59:59.9999Z", -1),
            ("2026-11-21T15:30:10.500000000Z", 1_795_275_010_500),
            ("1998-12-31T23:59:60Z", 915_148_799_000),
        ] {
            assert_eq!(parse_rfc3339(text), Some(millisecond), "{text}");
        }
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00Z",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "19700101T000000Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00,5Z",
            "1970-01-01T00:00:00+0200",
            "1970-01-01T00:00:00+02",
            "1970-02-30T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00+99:00",
            "+01970-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z[UTC]",
            " 1970-01-01T00:00:00Z",
            "1970-01-01T00:00:0٣Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_range_start_is_rounded_up_to_the_next_millisecond() {
        for (text, within, from) in [
            ("1970-01-01T00:00:00.0010Z", 1, 1),
            ("1970-01-01T00:00:00.0011Z", 1, 2),
            ("1969-12-31T23:59:59.9989Z", -2, -1),
        ] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!((floor_to_millisecond(time), ceil_to_millisecond(time)), (within, from), "{text}");
        }
        assert_eq!(format_rfc3339(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(format_rfc3339(1500).as_deref(), Some("1970-01-01T00:00:01.5Z"));
        assert_eq!(format_rfc3339(i64::MAX), None);
    }
}
