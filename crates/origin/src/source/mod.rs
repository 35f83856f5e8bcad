//! Where a project's pages come from: a folder or archive, a Git repository with a build, a running site.

pub mod crawl;
pub mod git;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::Resource;
use super::shares::{NoShare, Share, Shares};

pub use crawl::Crawl;
pub use git::Git;

/// Lines of a log that are kept: the first and, beyond them, the newest.
const LINES: usize = 2000;

/// Where a project's pages come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A folder, or an archive that is proved and handed out as it is.
    Directory(PathBuf),
    /// A branch of a repository, as it is or built.
    Git(Git),
    /// A server that renders pages.
    Crawl(Crawl),
}

/// What is known of work under way: those who do it count, those who wait for it look, or end it.
#[derive(Debug, Default)]
pub struct Watch {
    pages: AtomicU64,
    /// Pages known of so far; 0 while nothing is known.
    known: AtomicU64,
    is_over: AtomicBool,
    log: Mutex<Vec<String>>,
    /// For whom it is, if what it takes is shared with others.
    held: Option<HeldShares>,
}

/// What work holds of what organizations share.
#[derive(Debug)]
struct HeldShares {
    shares: Arc<Shares>,
    organization: String,
    each: Mutex<HashMap<Resource, Share>>,
}

impl Watch {
    /// Of work for an organization, which shares with others what the work takes.
    pub fn of(shares: Arc<Shares>, organization: &str) -> Watch {
        let held = HeldShares { shares, organization: organization.to_owned(), each: Mutex::default() };
        Watch { held: Some(held), ..Watch::default() }
    }

    /// The work takes so much of a resource now. An error if its organization, or all together, would have more than they
    /// may: then the work has to end.
    pub fn hold(&self, resource: Resource, amount: u64) -> Result<(), NoShare> {
        let Some(held) = &self.held else { return Ok(()) };
        let mut each = held.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = each.get_mut(&resource) {
            return share.resize(amount);
        }
        each.insert(resource, held.shares.take(&held.organization, resource, amount)?);
        Ok(())
    }

    /// The work has ended and takes nothing any more, even if somebody still looks at what is known of it.
    pub fn give_back(&self) {
        if let Some(held) = &self.held {
            held.each.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Another page is there.
    pub fn page(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    /// So many pages are there or still to come.
    pub fn expect(&self, pages: u64) {
        self.known.store(pages, Ordering::Relaxed);
    }

    /// Pages that are there, and those known of.
    pub fn pages(&self) -> (u64, u64) {
        (self.pages.load(Ordering::Relaxed), self.known.load(Ordering::Relaxed))
    }

    /// Asks whoever works to stop.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked for that.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// A line for whoever wants to know why it went as it did.
    pub fn say(&self, line: impl Into<String>) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() >= LINES {
            log.remove(LINES / 2);
        }
        log.push(line.into());
    }

    /// What was said.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OriginLimits;

    #[test]
    fn work_of_an_organization_shares_its_bounds_and_gives_back_what_it_took() {
        let of = |resource| (resource == Resource::CrawlAddresses).then_some(10);
        let shares = Shares::new(OriginLimits::of(of, |_| None).unwrap(), 2);
        let [one, two] = [(); 2].map(|()| Watch::of(Arc::clone(&shares), "a"));
        one.hold(Resource::CrawlAddresses, 4).unwrap();
        one.hold(Resource::CrawlAddresses, 7).unwrap();
        two.hold(Resource::CrawlAddresses, 3).unwrap();
        assert_eq!(two.hold(Resource::CrawlAddresses, 4), Err(NoShare::Organization));
        Watch::of(Arc::clone(&shares), "b").hold(Resource::CrawlAddresses, 10).unwrap();
        one.give_back();
        two.hold(Resource::CrawlAddresses, 10).unwrap();
        assert!(Watch::default().hold(Resource::CrawlAddresses, u64::MAX).is_ok(), "nobody shares anything");
    }
}
