//! What the store may hold and must leave, and how often it is read again.

use std::time::Duration;

use docwharf_base::model::units::parse_duration;
use docwharf_agent::store::space::Allowance;

use super::checker::Checker;

/// Versions kept besides the protected ones.
const KEEP: usize = 3;

/// A version is proved again after so long.
const SCRUB: Duration = Duration::from_hours(7 * 24);

/// Reading faster than this would be all that the disk does.
const SHORTEST: Duration = Duration::from_mins(10);

/// None: never.
pub(super) fn scrub(checker: &mut Checker<'_>) -> Option<Duration> {
    let every = checker.parsed("store.scrub", |text| match parse_duration(text)? {
        every if every.is_zero() || every >= SHORTEST => Ok(every),
        _ => Err("at least 10m is needed, or 0s for never".to_owned()),
    });
    Some(every.unwrap_or(SCRUB)).filter(|every| !every.is_zero())
}

pub(super) fn check(checker: &mut Checker<'_>) -> Allowance {
    Allowance {
        keep: checker.number("sync.keep", 0, 10_000).map_or(KEEP, |n| n as usize),
        max_bytes: checker.size("store.maxBytes"),
        min_free: checker.size("store.minFree"),
    }
}
