//! Times as an upstream writes them.

use std::time::{Duration, SystemTime};

/// Returns the time this many seconds from now; a negative number is in the past.
pub(super) fn seconds_from_now(seconds: i64) -> SystemTime {
    let offset = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { SystemTime::now() - offset } else { SystemTime::now() + offset }
}

/// Formats the time this many seconds from now as RFC 3339, as the API does.
pub fn rfc3339_in(seconds: i64) -> String {
    jiff::Timestamp::try_from(seconds_from_now(seconds)).expect("a time that jiff supports").to_string()
}

/// Formats the time this many seconds from now as an HTTP date.
pub fn http_date_in(seconds: i64) -> String {
    httpdate::fmt_http_date(seconds_from_now(seconds))
}
