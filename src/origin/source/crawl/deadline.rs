//! When a crawl ends that does not end by itself.

use std::time::{Duration, Instant};

use super::{CrawlError, Watch};

/// The time by which a crawl must have ended, and the watch through which it may be ended before. Whatever loops over
/// something that a server has sent asks here.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrawlDeadline<'a> {
    pub(super) watch: &'a Watch,
    time: Duration,
    /// `None`: too far away to be a time.
    until: Option<Instant>,
}

impl<'a> CrawlDeadline<'a> {
    pub(super) fn new(watch: &'a Watch, time: Duration) -> CrawlDeadline<'a> {
        CrawlDeadline { watch, time, until: Instant::now().checked_add(time) }
    }

    /// Whether the crawl has to end.
    pub(super) fn is_over(&self) -> bool {
        self.watch.is_over() || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The error with which it ends, if it has to.
    pub(super) fn check(&self) -> Result<(), CrawlError> {
        match () {
            () if self.watch.is_over() => Err(CrawlError::Stopped),
            () if self.is_over() => Err(CrawlError::Time { time: self.time }),
            () => Ok(()),
        }
    }
}
