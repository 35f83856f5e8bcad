//! Moments as an upstream writes them.

use std::time::{Duration, SystemTime};

/// Returns the time so many seconds from now.
pub(super) fn shifted(seconds: i64) -> SystemTime {
    let by = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
}

/// A moment as the API writes it, so many seconds from now.
pub fn stamp(seconds: i64) -> String {
    jiff::Timestamp::try_from(shifted(seconds)).expect("a moment of our age").to_string()
}

/// A moment as HTTP writes it, so many seconds from now.
pub fn http_date(seconds: i64) -> String {
    httpdate::fmt_http_date(shifted(seconds))
}
