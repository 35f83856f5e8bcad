//! Where a project's pages come from: a folder or archive, a Git repository with a build, a running site.

pub mod crawl;
pub mod git;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
}

impl Watch {
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
