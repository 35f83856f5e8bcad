//! The size of the store, the disk space that it leaves free, and the interval at which it is verified.

use std::time::Duration;

use docwharf_agent::store::space::SpaceLimits;
use docwharf_base::model::units::{format_duration, parse_duration};

use super::checker::ValueChecker;

/// The default number of versions that are stored besides the protected ones.
const DEFAULT_KEPT_VERSIONS: usize = 3;

/// The default time after which a version is verified again.
const DEFAULT_SCRUB_INTERVAL: Duration = Duration::from_hours(7 * 24);

/// Checks the time after which a version is verified again (`store.scrub`); `None` for never.
pub(super) fn check_scrub(checker: &mut ValueChecker<'_>) -> Option<Duration> {
    // With a shorter interval, the disk would do nothing else.
    let min = checker.min_duration("store.scrub");
    let interval = checker.parsed("store.scrub", |text| match parse_duration(text)? {
        interval if interval.is_zero() || interval >= min => Ok(interval),
        _ => Err(format!("at least {} is needed, or 0s for never", format_duration(min))),
    });
    Some(interval.unwrap_or(DEFAULT_SCRUB_INTERVAL)).filter(|interval| !interval.is_zero())
}

pub(super) fn check_space(checker: &mut ValueChecker<'_>) -> SpaceLimits {
    SpaceLimits {
        keep: checker.number("sync.keep").map_or(DEFAULT_KEPT_VERSIONS, |n| n as usize),
        max_bytes: checker.size("store.maxBytes"),
        min_free: checker.size("store.minFree"),
    }
}
