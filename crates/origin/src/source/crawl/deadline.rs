//! When a crawl ends that does not end by itself.

use std::time::{Duration, Instant};

use super::{CrawlError, Resource, Watch};

/// The time by which a crawl must have ended, and the watch through which it may be ended before. Whatever loops over
/// something that a server has sent asks here.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrawlDeadline<'a> {
    pub(super) watch: &'a Watch,
    time: Duration,
    began: Instant,
}

impl<'a> CrawlDeadline<'a> {
    pub(super) fn new(watch: &'a Watch, time: Duration) -> CrawlDeadline<'a> {
        CrawlDeadline { watch, time, began: Instant::now() }
    }

    /// Whether the crawl has to end.
    pub(super) fn is_over(&self) -> bool {
        self.watch.is_over() || self.began.elapsed() >= self.time
    }

    /// As [`CrawlDeadline::check`]; also counts the time so far among that of all crawls of the organization. To be asked
    /// several times a second.
    pub(super) fn hold(&self) -> Result<(), CrawlError> {
        self.check()?;
        let time = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.watch.hold(Resource::CrawlTime, time).map_err(CrawlError::share(Resource::CrawlTime))
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
