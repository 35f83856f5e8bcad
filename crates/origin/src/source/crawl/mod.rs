//! Copies a running site to static files.
//!
//! [`walk`] requests the start page and follows links, sitemaps and the assets that pages need, until every known
//! address has been requested. Bodies lie in one unnamed file meanwhile. Only then are files named ([`names`]) and
//! written ([`copy`]), because whether an address needs another name than its own depends on all other addresses. The
//! folder is therefore the same whatever the order of the responses.
//!
//! Which links must be rewritten depends on how the copy will be served, so the decision uses [`docwharf_site::lookup`]
//! itself. An address that leads to its file there stays unchanged in pages. Other links are rewritten: absolute links
//! to the site's own host, links with a query that changes the response, and links to addresses whose file has another
//! name. Redirects become lines of `_redirects`.
//!
//! Next.js: a client of `next start` requests `/page?_rsc=…` with the header field `RSC: 1` when a reader navigates to
//! a page, and accepts only `text/x-component`. A static file server answers with the page itself. The client then
//! loads that page as a browser does, which works without the Next.js server and without a failed request. Payloads are
//! stored under the names that a static export uses (`page.txt`) all the same, and every chunk that is named anywhere
//! is fetched ([`script`]). The images of the image optimizer become files, and the setting for sites without an
//! optimizer (`images.unoptimized`) is switched on in the scripts. Payloads are not rewritten, so links with a query
//! that React renders again lead to the address without the query.

pub mod address;
mod body_addresses;
mod body_format;
mod crawler;
mod deadline;
mod fetch;
mod file_names;
mod html;
mod results;
pub mod robots;
mod script;
mod site_copy;
pub mod sitemap;
mod spool;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Builder;
use url::Url;

use docwharf_base::net::client::ClientError;
use docwharf_base::net::format_seconds;
use docwharf_base::net::request_error::RequestError;
use docwharf_base::runtime;

use super::{JobContext, LimitReached, SharedResource};
use deadline::CrawlDeadline;

/// Settings of a crawl of a running site.
#[derive(Debug, Clone)]
pub struct Crawl {
    /// URL of the start page.
    pub start: Url,
    /// Maximum number of concurrent requests.
    pub parallel: usize,
    /// Whether the crawl obeys robots.txt (RFC 9309).
    pub robots: bool,
    /// Maximum number of pages and assets; more are an error.
    pub most: u64,
    /// Maximum duration of the crawl.
    pub time: Duration,
}

/// Result of a crawl.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Crawled {
    /// Pages written.
    pub pages: u64,
    /// Other files written.
    pub assets: u64,
    /// Size of all written files, in bytes.
    pub bytes: u64,
    /// Warnings for the operator, such as broken links, in order.
    pub warnings: Vec<String>,
}

/// Reason why a crawl failed.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// The start address is not an http or https URL with a host and without credentials.
    #[error("cannot crawl {0}: give an http or https address without user name and password")]
    Start(Url),
    /// The HTTP client cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A page or asset could not be fetched. An incomplete copy is worse than none.
    #[error("cannot fetch {url}; nothing is exported until it answers")]
    Fetch {
        /// The requested URL.
        url: Url,
        /// The reason why there is no usable response.
        #[source]
        source: RequestError,
    },
    /// The site has more pages and assets than the limit.
    #[error(
        "there are more than {most} pages and assets, {address} among the last: if the site is not endless there (a calendar, a search), raise the limit; otherwise disallow it in robots.txt"
    )]
    TooMany {
        /// The limit.
        most: u64,
        /// One address beyond the limit.
        address: String,
    },
    /// The addresses of pages and assets take more memory than a crawl may use for them.
    #[error("the addresses of pages and assets take more than {} MiB; disallow addresses with long queries in robots.txt", limit >> 20)]
    AddressBytes {
        /// The limit in bytes.
        limit: u64,
    },
    /// The crawl exceeded its time limit.
    #[error(
        "the crawl was ended after {}: the site answers too slowly for its size, or has no end; allow a longer time, or disallow a part of it in robots.txt", format_seconds(*time)
    )]
    Time {
        /// The time limit.
        time: Duration,
    },
    /// The crawl, together with all others, exceeds a limit.
    #[error("the crawl was ended: {}; start it again later, or raise that limit", why.describe("crawls", *resource))]
    Share {
        /// The exhausted resource.
        resource: SharedResource,
        /// The reached limit: that of the organization, or that of all together.
        why: LimitReached,
    },
    /// The site is larger than a crawl may be.
    #[error("the site is larger than {} GiB, which is the limit of a crawl", limit >> 30)]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// No response is a page.
    #[error("{url} gives no page to begin with: {why}")]
    NoPage {
        /// URL of the start page.
        url: Url,
        /// The first warning, or that the response is not HTML.
        why: String,
    },
    /// The crawl was cancelled.
    #[error("the crawl was stopped")]
    Stopped,
    /// The copy cannot be written.
    #[error("cannot write to {}", path.display())]
    Write {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The async runtime cannot be created, or one of its tasks failed.
    #[error("cannot start a crawl")]
    Runtime(#[source] io::Error),
}

impl CrawlError {
    fn share(resource: SharedResource) -> impl FnOnce(LimitReached) -> CrawlError {
        move |why| CrawlError::Share { resource, why }
    }
}

/// Copies a running site to static files in the folder `into`, which must be empty or not exist. With `paths`, copies
/// only these pages and the assets that they need, whatever they link to. Blocks; must not be called from within an
/// async runtime.
pub fn crawl(crawl: &Crawl, paths: Option<&[String]>, into: &Path, watch: &JobContext) -> Result<Crawled, CrawlError> {
    let has_credentials = !crawl.start.username().is_empty() || crawl.start.password().is_some();
    if !matches!(crawl.start.scheme(), "http" | "https") || !crawl.start.has_host() || has_credentials {
        let mut shown = crawl.start.clone();
        // Both calls fail only for a URL without a host, which has no credentials to hide.
        let _ = (shown.set_username(""), shown.set_password(None));
        return Err(CrawlError::Start(shown));
    }
    let write = |source| CrawlError::Write { path: into.to_owned(), source };
    std::fs::create_dir_all(into).map_err(write)?;
    if std::fs::read_dir(into).map_err(write)?.next().is_some() {
        return Err(write(io::Error::other("the folder is not empty")));
    }
    let runtime = runtime::build_runtime(&mut Builder::new_current_thread()).map_err(CrawlError::Runtime)?;
    let deadline = CrawlDeadline::new(watch, crawl.time);
    let found = runtime.block_on(crawler::crawl_site(crawl, paths, into, deadline))?;
    site_copy::write_copy(crawl, &found, into, deadline)
}
