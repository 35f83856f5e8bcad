//! Time limit and cancellation of a crawl.

use std::time::{Duration, Instant};

use super::{CrawlError, JobContext, SharedResource};

/// Time limit of a crawl, and the job state through which it may be cancelled earlier. Every loop over data that a
/// server has sent checks it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrawlDeadline<'a> {
    pub(super) context: &'a JobContext,
    max_duration: Duration,
    started: Instant,
}

impl<'a> CrawlDeadline<'a> {
    pub(super) fn new(context: &'a JobContext, max_duration: Duration) -> CrawlDeadline<'a> {
        CrawlDeadline { context, max_duration, started: Instant::now() }
    }

    /// Whether the crawl has to end.
    pub(super) fn must_end(&self) -> bool {
        self.context.is_cancelled() || self.started.elapsed() >= self.max_duration
    }

    /// Does [`CrawlDeadline::check`], and also counts the time so far as crawl time of the organization. Must be called
    /// several times a second.
    pub(super) fn check_and_count(&self) -> Result<(), CrawlError> {
        self.check()?;
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.context
            .hold_share(SharedResource::CrawlTime, elapsed)
            .map_err(CrawlError::share_error(SharedResource::CrawlTime))
    }

    /// Fails if the crawl was cancelled or its time is over.
    pub(super) fn check(&self) -> Result<(), CrawlError> {
        match () {
            () if self.context.is_cancelled() => Err(CrawlError::Cancelled),
            () if self.must_end() => Err(CrawlError::Time { time: self.max_duration }),
            () => Ok(()),
        }
    }
}
