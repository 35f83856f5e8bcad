//! What the store may hold and must leave.

use crate::store::space::Allowance;

use super::checker::Checker;

/// Versions kept besides the protected ones.
const KEEP: usize = 3;

pub(super) fn check(checker: &mut Checker<'_>) -> Allowance {
    Allowance {
        keep: checker.number("sync.keep", 0, 10_000).map_or(KEEP, |n| n as usize),
        max_bytes: checker.size("store.maxBytes"),
        min_free: checker.size("store.minFree"),
    }
}
