//! The size of the store, the disk space that it leaves free, and the interval at which it is verified.

use std::time::Duration;

use docwharf_agent::store::space::SpaceLimits;
use docwharf_base::model::units::parse_duration;

use super::checker::ValueChecker;

/// The default number of versions that are kept besides the protected ones.
const DEFAULT_KEPT_VERSIONS: usize = 3;

/// The default time after which a version is verified again.
const DEFAULT_SCRUB_INTERVAL: Duration = Duration::from_hours(7 * 24);

/// The shortest time after which a version may be verified again: with a shorter one, the disk would do nothing else.
const MIN_SCRUB_INTERVAL: Duration = Duration::from_mins(10);

/// Checks the time after which a version is verified again (`store.scrub`); `None` for never.
pub(super) fn check_scrub(checker: &mut ValueChecker<'_>) -> Option<Duration> {
    let every = checker.parsed("store.scrub", |text| match parse_duration(text)? {
        every if every.is_zero() || every >= MIN_SCRUB_INTERVAL => Ok(every),
        _ => Err("at least 10m is needed, or 0s for never".to_owned()),
    });
    Some(every.unwrap_or(DEFAULT_SCRUB_INTERVAL)).filter(|every| !every.is_zero())
}

pub(super) fn check_space(checker: &mut ValueChecker<'_>) -> SpaceLimits {
    SpaceLimits {
        keep: checker.number("sync.keep", 0, 10_000).map_or(DEFAULT_KEPT_VERSIONS, |n| n as usize),
        max_bytes: checker.size("store.maxBytes"),
        min_free: checker.size("store.minFree"),
    }
}
