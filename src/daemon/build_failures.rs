//! Failures to make files that are derived from a version, and when another attempt is made.

use std::io;
use std::time::Duration;

use docwharf_base::backoff;

/// The number of failed attempts in a row after which no further attempt is made.
const MAX_FAILURES: u32 = 3;

/// The number of attempts in a row to make the same files that have failed. `K` identifies the files.
#[derive(Debug)]
pub(super) struct BuildFailures<K> {
    /// The files of the last attempt.
    key: Option<K>,
    number: u32,
}

impl<K> Default for BuildFailures<K> {
    fn default() -> BuildFailures<K> {
        BuildFailures { key: None, number: 0 }
    }
}

impl<K: PartialEq> BuildFailures<K> {
    /// Begins an attempt to make these files. Failures to make others do not count.
    pub(super) fn begin_attempt(&mut self, key: K) {
        if self.key.as_ref() != Some(&key) {
            *self = BuildFailures { key: Some(key), number: 0 };
        }
    }

    /// Counts a failure. Returns the time until the next attempt; `None` if no further attempt is made.
    pub(super) fn count(&mut self) -> Option<Duration> {
        self.number += 1;
        (self.number < MAX_FAILURES).then(|| backoff::wait_after_failures(self.number))
    }
}

/// Whether an error says that the disk or a quota is full, or that the space is not to be used.
pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Regression: failures of one version counted for the next one, if that was activated during a build.
    #[test]
    fn failures_to_build_one_index_do_not_count_for_another() {
        let mut failures = BuildFailures::default();
        for key in ["1 a", "2 a", "2 b"] {
            failures.begin_attempt(key);
            assert!(failures.count().is_some());
            failures.begin_attempt(key);
            assert!(failures.count().is_some(), "two of three attempts have failed");
        }
        failures.begin_attempt("2 b");
        assert_eq!(failures.count(), None);
    }
}
