//! Sources of a project's pages: a folder or an archive, a Git repository with a build, or a running site that is
//! crawled.

pub mod crawl;
pub mod git;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use docwharf_base::locks::Mutex;

use super::limits::SharedResource;
use super::resource_pools::{LimitReached, ResourcePools, ResourceShare};

pub use crawl::CrawlSource;
pub use git::GitSource;

/// Maximum number of lines of a log. Beyond it, the first half stays and the second half holds the newest lines.
const MAX_LOG_LINES: usize = 2000;

/// The source of a project's pages.
#[derive(Debug, Clone)]
pub enum ProjectSource {
    /// A folder, or an archive that is verified and served unchanged.
    FolderOrArchive(PathBuf),
    /// A branch of a repository, checked out or built.
    Git(GitSource),
    /// A server that renders pages.
    Crawl(CrawlSource),
}

/// State of a running job that other threads read or change: page counts, log, cancellation, and the shares of limited
/// resources that it holds.
#[derive(Debug, Default)]
pub struct JobContext {
    pages: AtomicU64,
    /// Number of pages known so far; 0 while it is unknown.
    known_pages: AtomicU64,
    is_cancelled: AtomicBool,
    log: Mutex<Vec<String>>,
    /// The shares that the job holds of its organization's limits; `None` if no limit applies to the job.
    shares: Option<HeldShares>,
}

/// Shares of limited resources that one job holds.
#[derive(Debug)]
struct HeldShares {
    pools: Arc<ResourcePools>,
    organization: String,
    by_resource: Mutex<HashMap<SharedResource, ResourceShare>>,
}

impl JobContext {
    /// Creates the state of a job to which the limits of an organization apply.
    pub fn with_shares(pools: Arc<ResourcePools>, organization: &str) -> JobContext {
        let shares = HeldShares { pools, organization: organization.to_owned(), by_resource: Mutex::default() };
        JobContext { shares: Some(shares), ..JobContext::default() }
    }

    /// Sets the amount of a resource that the job holds now. Fails if its organization, or all organizations together,
    /// would exceed their limit; the job must then end.
    pub fn hold_share(&self, resource: SharedResource, amount: u64) -> Result<(), LimitReached> {
        let Some(shares) = &self.shares else { return Ok(()) };
        let mut by_resource = shares.by_resource.lock();
        if let Some(share) = by_resource.get_mut(&resource) {
            return share.resize(amount);
        }
        by_resource.insert(resource, shares.pools.acquire(&shares.organization, resource, amount)?);
        Ok(())
    }

    /// Returns all shares when the job has ended, even if other threads still hold this object.
    pub fn release_shares(&self) {
        if let Some(shares) = &self.shares {
            shares.by_resource.lock().clear();
        }
    }

    /// Counts one more finished page.
    pub fn count_page(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of pages known so far, finished or still to come.
    pub fn set_known_pages(&self, pages: u64) {
        self.known_pages.store(pages, Ordering::Relaxed);
    }

    /// Returns the number of finished pages and the number of pages known so far.
    pub fn pages(&self) -> (u64, u64) {
        (self.pages.load(Ordering::Relaxed), self.known_pages.load(Ordering::Relaxed))
    }

    /// Requests the cancellation of the job.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Appends a line to the log of the job.
    pub fn log_line(&self, line: impl Into<String>) {
        let mut log = self.log.lock();
        if log.len() >= MAX_LOG_LINES {
            log.remove(MAX_LOG_LINES / 2);
        }
        log.push(line.into());
    }

    /// Returns the lines of the log.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OriginLimits;

    #[test]
    fn jobs_of_one_organization_share_its_limits_and_release_their_shares() {
        let organization_limit = |resource| (resource == SharedResource::CrawlAddresses).then_some(10);
        let pools = ResourcePools::new(OriginLimits::from_config(organization_limit, |_| None).unwrap(), 2);
        let [first, second] = [(); 2].map(|()| JobContext::with_shares(Arc::clone(&pools), "a"));
        first.hold_share(SharedResource::CrawlAddresses, 4).unwrap();
        first.hold_share(SharedResource::CrawlAddresses, 7).unwrap();
        second.hold_share(SharedResource::CrawlAddresses, 3).unwrap();
        assert_eq!(second.hold_share(SharedResource::CrawlAddresses, 4), Err(LimitReached::Organization));
        JobContext::with_shares(Arc::clone(&pools), "b").hold_share(SharedResource::CrawlAddresses, 10).unwrap();
        first.release_shares();
        second.hold_share(SharedResource::CrawlAddresses, 10).unwrap();
        assert!(
            JobContext::default().hold_share(SharedResource::CrawlAddresses, u64::MAX).is_ok(),
            "a job without shares has no limit"
        );
    }

    #[test]
    fn a_long_log_keeps_its_first_half_and_its_newest_lines() {
        let context = JobContext::default();
        for n in 0..MAX_LOG_LINES + 500 {
            context.log_line(n.to_string());
        }
        let log = context.log();
        let shown = [0, MAX_LOG_LINES / 2 - 1, MAX_LOG_LINES / 2, MAX_LOG_LINES - 1].map(|index| log[index].as_str());
        assert_eq!((log.len(), shown), (MAX_LOG_LINES, ["0", "999", "1500", "2499"]));
    }
}
