//! Records when the content of a site last changed, for preconditions by date.

use std::sync::atomic::{AtomicI64, Ordering};

use docwharf_base::clock::now_unix_seconds;

use super::conditional::ContentDates;

/// The value of a second that is not set.
const NEVER: i64 = i64::MIN;

/// The times of the last changes of the files that paths lead to, in seconds since 1970; [`NEVER`] if there was none.
#[derive(Debug)]
pub(super) struct ContentChanges {
    /// The last second in which some path may have led to other content than now.
    replaced: AtomicI64,
    /// The last second in which a change of rules may have led a path to another file.
    rerouted: AtomicI64,
}

impl Default for ContentChanges {
    fn default() -> ContentChanges {
        ContentChanges { replaced: AtomicI64::new(NEVER), rerouted: AtomicI64::new(NEVER) }
    }
}

impl ContentChanges {
    /// Records that until now some path may have led to other content. A Last-Modified date up to this second is then
    /// no evidence about the content that the path leads to from now on. Must be called before the change, so that no
    /// response relies on such a date.
    pub(super) fn note_content_change(&self) {
        self.replaced.fetch_max(now_unix_seconds(), Ordering::Relaxed);
    }

    /// Records that until now rules may have led some path to another file with the same date. Must be called before
    /// the change.
    pub(super) fn note_route_change(&self) {
        self.rerouted.fetch_max(now_unix_seconds(), Ordering::Relaxed);
    }

    /// Returns the dates by which preconditions of a file with this modification time are evaluated.
    pub(super) fn dates(&self, modified: i64) -> ContentDates {
        let last = |second: &AtomicI64| Some(second.load(Ordering::Relaxed)).filter(|&second| second != NEVER);
        ContentDates { modified, replaced: last(&self.replaced), rerouted: last(&self.rerouted) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_content_change_time_does_not_decrease_when_the_clock_is_set_back() {
        let changes = ContentChanges::default();
        assert_eq!(changes.dates(5), ContentDates::never_replaced(5));
        changes.replaced.store(i64::MAX, Ordering::Relaxed);
        changes.note_content_change();
        assert_eq!(changes.dates(5).replaced, Some(i64::MAX));
        assert_eq!(changes.dates(5).rerouted, None);
        changes.note_route_change();
        assert!(changes.dates(5).rerouted.is_some());
    }
}
