//! Results of a crawl: what was requested, for which purpose, and with which result.

use std::collections::BTreeMap;
use std::sync::Arc;

use url::Url;

use docwharf_base::net::request_error::RequestError;

use super::address::{LinkTarget, SiteAddress};
use super::body_format::{AddressPurpose, BodyFormat};
use super::file_names::NamingCandidate;
use super::spool::{BodySpool, SpoolRange};

/// Path that no site has a page at; its response is the site's 404 page.
pub(super) const NOT_FOUND_PATH: &str = "/docwharf-asks-for-a-page-that-is-not-there";

/// A request: an address as a browser requests it, or as a Next.js client does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CrawlRequest {
    pub(super) address: SiteAddress,
    pub(super) is_payload: bool,
}

/// Result of a request.
#[derive(Debug)]
pub(super) enum CrawlOutcome {
    FetchedBody(FetchedBody),
    /// A redirect with this status, to this target.
    Moved(u16, LinkTarget),
    /// No content, with this status.
    Missing(u16),
    /// No usable response for an address that is not required.
    Failed(RequestError),
}

/// A response with content.
#[derive(Debug)]
pub(super) struct FetchedBody {
    pub(super) sort: BodyFormat,
    pub(super) place: SpoolRange,
    /// Input for choosing its file name.
    pub(super) item: NamingCandidate,
    /// Whether it is UTF-8 text and can be rewritten.
    pub(super) is_text: bool,
    /// Charset of the header field, if it is not UTF-8 and the body is not ASCII.
    pub(super) charset: Option<String>,
    /// Whether the status was 404.
    pub(super) is_missing: bool,
    /// Whether the addresses in it have been queued.
    pub(super) is_read: bool,
}

/// Purpose of a request, and the first address (in address order) that names it.
#[derive(Debug)]
pub(super) struct RequestPurpose {
    pub(super) how: AddressPurpose,
    pub(super) by: Option<Arc<SiteAddress>>,
}

/// Links to addresses that robots.txt disallows. A site may have any number of them, so only the first few in the order
/// of addresses are kept; these do not depend on the order in which pages arrive.
#[derive(Debug, Default)]
pub(super) struct ForbiddenLinks {
    /// Disallowed addresses, each with the first page that links to it.
    pub(super) first: BTreeMap<SiteAddress, Option<Arc<SiteAddress>>>,
    /// Number of all such links.
    pub(super) count: u64,
}

impl ForbiddenLinks {
    /// Maximum number of addresses kept.
    const KEPT: usize = 20;

    pub(super) fn note(&mut self, address: SiteAddress, by: Option<&Arc<SiteAddress>>) {
        self.count += 1;
        match self.first.get_mut(&address) {
            Some(known) => *known = known.take().min(by.cloned()),
            None => drop(self.first.insert(address, by.cloned())),
        }
        if self.first.len() > Self::KEPT {
            self.first.pop_last();
        }
    }
}

/// Everything that a crawl has found.
#[derive(Debug)]
pub(super) struct CrawlResults {
    pub(super) met: BTreeMap<CrawlRequest, CrawlOutcome>,
    pub(super) wanted: BTreeMap<CrawlRequest, RequestPurpose>,
    pub(super) spool: BodySpool,
    /// Number of sitemap addresses of other origins, and the least of these URLs.
    pub(super) foreign: (u64, Option<Url>),
    pub(super) forbidden: ForbiddenLinks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_forbidden_links_are_kept_whatever_their_order_and_all_are_counted() {
        let address = |n: usize| SiteAddress::of_path(&format!("/{n:02}"));
        let page = |path: &str| Arc::new(SiteAddress::of_path(path));
        let numbers: Vec<usize> = (0..25).collect();
        let (mut upward, mut downward) = (ForbiddenLinks::default(), ForbiddenLinks::default());
        for n in &numbers {
            upward.note(address(*n), Some(&page("/a")));
            upward.note(address(*n), Some(&page("/b")));
        }
        for n in numbers.iter().rev() {
            downward.note(address(*n), Some(&page("/b")));
            downward.note(address(*n), Some(&page("/a")));
        }
        assert_eq!((upward.count, downward.count), (50, 50));
        assert_eq!(upward.first, downward.first);
        let expected: Vec<(SiteAddress, Option<Arc<SiteAddress>>)> =
            (0..20).map(|n| (address(n), Some(page("/a")))).collect();
        assert_eq!(upward.first.into_iter().collect::<Vec<_>>(), expected);
    }
}
