//! Sites made from what a running server answers.
//!
//! [`walk`] asks: from the start page along links, sitemaps and what pages need, until nothing is left that is not known.
//! What it is told lies in one unnamed file meanwhile. Only then is anything named ([`names`]) and written ([`copy`]):
//! whether an address needs another name than its own depends on all others. So the folder is the same whatever the
//! order of the answers.
//!
//! What links need depends on how the copy will be served, so it is asked of [`docwharf_site::lookup`] itself: an address
//! that leads to its file there stays as it is in pages. Others are rewritten: absolute ones of the site's own host, those
//! with a query of which the answer depends, those whose file is called otherwise. Redirects become lines of `_redirects`.
//!
//! Sites of Next.js: what `next start` serves asks for `/page?_rsc=…` with the field `RSC: 1` when a reader goes on to a
//! page, and takes `text/x-component` only. A server of files answers with the page itself; the client then loads that
//! page as a browser does, which works without its server and without a failed request. Payloads are stored as an export
//! has them (`page.txt`) all the same, and every chunk that is named anywhere is fetched ([`script`]). The pictures of the
//! image optimizer become files, and its switch for sites without one (`images.unoptimized`) is set in its scripts.
//! What a payload says is left as it is, so links with a query that React draws anew lead to the address without it.

pub mod address;
mod copy;
mod deadline;
mod documents;
mod fetch;
mod found;
mod html;
mod names;
mod read;
pub mod robots;
mod script;
pub mod sitemap;
mod spool;
mod walk;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Builder;
use url::Url;

use docwharf_base::runtime;
use docwharf_base::net::client::ClientError;
use docwharf_base::net::seconds;
use docwharf_base::net::trouble::Trouble;

use super::{NoShare, Resource, Watch};
use deadline::CrawlDeadline;

/// A running site.
#[derive(Debug, Clone)]
pub struct Crawl {
    /// Its start page.
    pub start: Url,
    /// Requests at a time.
    pub parallel: usize,
    /// Whether robots.txt counts.
    pub robots: bool,
    /// Pages and assets beyond this number are an error.
    pub most: u64,
    /// How long all of it may take.
    pub time: Duration,
}

/// What a crawl has brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Crawled {
    /// Pages written.
    pub pages: u64,
    /// Other files written.
    pub assets: u64,
    /// Of all of them.
    pub bytes: u64,
    /// What a person should know, such as links that lead nowhere; in order.
    pub warnings: Vec<String>,
}

/// Why there is no copy of a site.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// The start page's address is not one to begin with.
    #[error("cannot crawl {0}: give an http or https address without user name and password")]
    Start(Url),
    /// There is no HTTP client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A page or asset could not be had. A copy with a hole in it is worse than none.
    #[error("cannot fetch {url}; nothing is exported until it answers")]
    Fetch {
        /// What was asked for.
        url: Url,
        /// Why there is no good answer.
        #[source]
        source: Trouble,
    },
    /// There are more than the limit.
    #[error(
        "there are more than {most} pages and assets, {address} among the last: if the site is not endless there (a calendar, a search), raise the limit; otherwise disallow it in robots.txt"
    )]
    TooMany {
        /// The limit.
        most: u64,
        /// One of those beyond it.
        address: String,
    },
    /// Their addresses alone take more than a crawl may keep in memory.
    #[error("the addresses of pages and assets take more than {} MiB; disallow addresses with long queries in robots.txt", limit >> 20)]
    AddressBytes {
        /// In bytes.
        limit: u64,
    },
    /// It took too long.
    #[error(
        "the crawl was ended after {}: the site answers too slowly for its size, or has no end; allow a longer time, or disallow a part of it in robots.txt", seconds(*time)
    )]
    Time {
        /// What was allowed.
        time: Duration,
    },
    /// With all other crawls it takes more than a limit allows.
    #[error("the crawl was ended: {}; start it again later, or raise that limit", why.reached("crawls", *resource))]
    Share {
        /// Of what there is no more.
        resource: Resource,
        /// For whom.
        why: NoShare,
    },
    /// The site is larger than a crawl may be.
    #[error("the site is larger than {} GiB, which is the limit of a crawl", limit >> 30)]
    TooLarge {
        /// In bytes.
        limit: u64,
    },
    /// Nothing that was asked for is a page.
    #[error("{url} gives no page to begin with: {why}")]
    NoPage {
        /// Where the crawl began.
        url: Url,
        /// What was there.
        why: String,
    },
    /// Somebody has asked for its end.
    #[error("the crawl was stopped")]
    Stopped,
    /// The copy cannot be written.
    #[error("cannot write to {}", path.display())]
    Write {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system gives no sockets or timers.
    #[error("cannot start a crawl")]
    Runtime(#[source] io::Error),
}

impl CrawlError {
    fn share(resource: Resource) -> impl FnOnce(NoShare) -> CrawlError {
        move |why| CrawlError::Share { resource, why }
    }
}

/// Makes a static site of a running one in the folder `into`, which must be empty or not there. With `paths`, only these
/// pages with what they need, whatever they link to. Blocks; must not be called from within a runtime.
pub fn crawl(crawl: &Crawl, paths: Option<&[String]>, into: &Path, watch: &Watch) -> Result<Crawled, CrawlError> {
    let has_credentials = !crawl.start.username().is_empty() || crawl.start.password().is_some();
    if !matches!(crawl.start.scheme(), "http" | "https") || !crawl.start.has_host() || has_credentials {
        let mut shown = crawl.start.clone();
        // Neither can fail where the address has a host, and there is nothing to hide where it has none.
        let _ = (shown.set_username(""), shown.set_password(None));
        return Err(CrawlError::Start(shown));
    }
    let write = |source| CrawlError::Write { path: into.to_owned(), source };
    std::fs::create_dir_all(into).map_err(write)?;
    if std::fs::read_dir(into).map_err(write)?.next().is_some() {
        return Err(write(io::Error::other("the folder is not empty")));
    }
    let runtime = runtime::build(&mut Builder::new_current_thread()).map_err(CrawlError::Runtime)?;
    let deadline = CrawlDeadline::new(watch, crawl.time);
    let found = runtime.block_on(walk::walk(crawl, paths, into, deadline))?;
    copy::write(crawl, &found, into, deadline)
}
