//! Copies a running site to static files.
//!
//! [`crawler`] requests the start page and follows links, sitemaps and the assets that pages need, until every known
//! address has been requested. Meanwhile the bodies are in one unnamed file. Only then are files named ([`file_names`])
//! and written ([`site_copy`]), because the name of a file depends on all addresses. The folder is therefore the same
//! whatever the order of the responses.
//!
//! Which links must be rewritten depends on how the copy will be served, so the decision uses [`docwharf_site::lookup`]
//! itself. A link stays unchanged if the server of the copy will resolve its address to the file that was saved for
//! that address. Other links are rewritten: absolute links to the site's own host, links with a query that changes the
//! response, and links to addresses whose file has another name. Redirects become lines of `_redirects`.
//!
//! Next.js: a client of `next start` requests `/page?_rsc=…` with the header field `RSC: 1` when a reader navigates to
//! a page, and accepts only `text/x-component`. A static file server answers with the page itself. The client then
//! loads that page as a browser does, which works without the Next.js server and without a failed request. Payloads are
//! stored under the names that a static export uses (`page.txt`) nevertheless, and every chunk that is named anywhere
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
use url::{Host, Url};

use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::net::client::ClientError;
use docwharf_base::net::connect;
use docwharf_base::net::format_seconds;
use docwharf_base::net::request_error::RequestError;
use docwharf_base::runtime;

use super::{JobContext, LimitReached, SharedResource};
use deadline::CrawlDeadline;

/// A running site, and how it is crawled.
#[derive(Debug, Clone)]
pub struct CrawlSource {
    /// URL of the start page.
    pub start: Url,
    /// Maximum number of concurrent requests.
    pub max_concurrent_requests: usize,
    /// Whether the crawl obeys robots.txt (RFC 9309).
    pub obeys_robots: bool,
    /// Maximum number of pages and assets; more are an error.
    pub max_files: u64,
    /// Maximum duration of the crawl.
    pub max_duration: Duration,
    /// The outbound connections that the crawl may open.
    pub outbound_policy: OutboundPolicy,
}

/// Result of a crawl.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrawlSummary {
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
    #[error("cannot crawl {0}: use an http or https address without user name and password")]
    Start(Url),
    /// The HTTP client cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A page or asset could not be fetched. An incomplete copy is worse than none.
    #[error("cannot fetch {url}; exports fail until the site returns it")]
    Fetch {
        /// The requested URL.
        url: Url,
        /// The reason why there is no usable response.
        #[source]
        source: RequestError,
    },
    /// The site has more pages and assets than the limit.
    #[error(
        "there are more than {max_files} pages and assets; one of the last is {address}: if it belongs to an endless part of the site (a calendar, a search), disallow that part in robots.txt; otherwise raise `most` of the project"
    )]
    TooMany {
        /// The limit.
        max_files: u64,
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
        "the crawl was ended after {}: the site responds too slowly for its size, or is endless; allow more time (limits.organization.crawlTime), or disallow a part of the site in robots.txt", format_seconds(*time)
    )]
    Time {
        /// The time limit.
        time: Duration,
    },
    /// The crawl, together with all others, exceeds a limit.
    #[error("the crawl was ended: {}; start the crawl again later, or raise the limit", reason.describe("crawls", *resource))]
    Share {
        /// The exhausted resource.
        resource: SharedResource,
        /// The reached limit: that of the organization, or that of all together.
        reason: LimitReached,
    },
    /// The site is larger than a crawl may be.
    #[error("the site is larger than {} GiB, the fixed limit of a crawl; disallow large files in robots.txt", limit >> 30)]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The response of the start page is not a page.
    #[error("{url} is not a page at which a crawl can start: {reason}")]
    NoPage {
        /// URL of the start page.
        url: Url,
        /// The first warning, or that the response is not HTML.
        reason: String,
    },
    /// The crawl was cancelled.
    #[error("the crawl was cancelled")]
    Cancelled,
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
    fn share_error(resource: SharedResource) -> impl FnOnce(LimitReached) -> CrawlError {
        move |reason| CrawlError::Share { resource, reason }
    }
}

/// Returns why this policy does not permit a crawl that begins at `start`; `None` if it does. In an air-gapped
/// deployment the host must be an address. A crawl sends all its requests to that host.
pub fn find_outbound_problem(start: &Url, policy: &OutboundPolicy) -> Option<String> {
    if policy.is_air_gapped() && !matches!(start.host(), Some(Host::Ipv4(_) | Host::Ipv6(_))) {
        let problem = "deployment.type is \"air-gapped\": write the host as an IP address, not as a name";
        return Some(problem.to_owned());
    }
    connect::check_url(start, policy).err().map(|error| error.to_string())
}

/// Copies a running site to static files in the folder `target`, which must be empty or not exist. With `paths`, copies
/// only these pages and the assets that they need, whatever they link to. Blocks; must not be called from within an
/// async runtime.
pub fn crawl(
    source: &CrawlSource,
    paths: Option<&[String]>,
    target: &Path,
    context: &JobContext,
) -> Result<CrawlSummary, CrawlError> {
    let has_credentials = !source.start.username().is_empty() || source.start.password().is_some();
    if !matches!(source.start.scheme(), "http" | "https") || !source.start.has_host() || has_credentials {
        let mut redacted = source.start.clone();
        // Both calls fail only for a URL without a host, which has no credentials to hide.
        let _ = (redacted.set_username(""), redacted.set_password(None));
        return Err(CrawlError::Start(redacted));
    }
    let write_error = |error| CrawlError::Write { path: target.to_owned(), source: error };
    std::fs::create_dir_all(target).map_err(write_error)?;
    if std::fs::read_dir(target).map_err(write_error)?.next().is_some() {
        return Err(write_error(io::Error::other("the folder is not empty")));
    }
    let runtime = runtime::build_runtime(&mut Builder::new_current_thread()).map_err(CrawlError::Runtime)?;
    let deadline = CrawlDeadline::new(context, source.max_duration);
    let results = runtime.block_on(crawler::crawl_site(source, paths, target, deadline))?;
    site_copy::write_copy(source, &results, target, deadline)
}
