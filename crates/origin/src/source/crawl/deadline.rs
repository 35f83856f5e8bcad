//! Time limit and cancellation of a crawl.

use std::time::{Duration, Instant};

use super::{CrawlError, JobContext, SharedResource};

/// Time limit of a crawl, and the job state through which it may be cancelled earlier. Every loop over data that a
/// server has sent checks it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrawlDeadline<'a> {
    pub(super) watch: &'a JobContext,
    time: Duration,
    began: Instant,
}

impl<'a> CrawlDeadline<'a> {
    pub(super) fn new(watch: &'a JobContext, time: Duration) -> CrawlDeadline<'a> {
        CrawlDeadline { watch, time, began: Instant::now() }
    }

    /// Whether the crawl has to end.
    pub(super) fn is_over(&self) -> bool {
        self.watch.is_over() || self.began.elapsed() >= self.time
    }

    /// Does [`CrawlDeadline::check`], and also counts the time so far as crawl time of the organization. Must be called
    /// several times a second.
    pub(super) fn hold(&self) -> Result<(), CrawlError> {
        self.check()?;
        let time = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.watch.hold_share(SharedResource::CrawlTime, time).map_err(CrawlError::share(SharedResource::CrawlTime))
    }

    /// Fails if the crawl was cancelled or its time is over.
    pub(super) fn check(&self) -> Result<(), CrawlError> {
        match () {
            () if self.watch.is_over() => Err(CrawlError::Stopped),
            () if self.is_over() => Err(CrawlError::Time { time: self.time }),
            () => Ok(()),
        }
    }
}
