//! Results of a crawl: what was requested, for which purpose, and with which result.

use std::collections::BTreeMap;
use std::sync::Arc;

use url::Url;

use docwharf_base::net::request_error::RequestError;

use super::address::{LinkTarget, SiteAddress};
use super::body_format::{AddressPurpose, BodyFormat};
use super::file_names::NamingCandidate;
use super::spool::{BodySpool, SpoolRange};

/// Path at which no site has a page. The response to it is the site's 404 page.
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
    Redirected(u16, LinkTarget),
    /// No content, with this status.
    Missing(u16),
    /// No usable response for an address that is not required.
    Failed(RequestError),
}

/// A response with content.
#[derive(Debug)]
pub(super) struct FetchedBody {
    pub(super) format: BodyFormat,
    pub(super) range: SpoolRange,
    /// Input for choosing its file name.
    pub(super) naming: NamingCandidate,
    /// Whether it is UTF-8 text and can be rewritten.
    pub(super) is_text: bool,
    /// Charset of the header field, if it is not UTF-8 and the body is not ASCII.
    pub(super) charset: Option<String>,
    /// Whether the status was 404.
    pub(super) is_404: bool,
    /// Whether the addresses in the body have been queued.
    pub(super) has_queued_addresses: bool,
}

/// Purpose of a request, and the first document (in address order) that its address was found on.
#[derive(Debug)]
pub(super) struct RequestPurpose {
    pub(super) purpose: AddressPurpose,
    pub(super) found_on: Option<Arc<SiteAddress>>,
}

/// Links to addresses that robots.txt disallows. A site may have any number of them, so only the first few in the order
/// of addresses are stored; these do not depend on the order in which pages arrive.
#[derive(Debug, Default)]
pub(super) struct DisallowedLinks {
    /// Disallowed addresses, each with the first page that links to it.
    pub(super) first: BTreeMap<SiteAddress, Option<Arc<SiteAddress>>>,
    /// Number of all such links.
    pub(super) count: u64,
}

impl DisallowedLinks {
    /// Maximum number of addresses in `first`.
    const MAX_LISTED_ADDRESSES: usize = 20;

    pub(super) fn record(&mut self, address: SiteAddress, found_on: Option<&Arc<SiteAddress>>) {
        self.count += 1;
        match self.first.get_mut(&address) {
            Some(first_page) => *first_page = first_page.take().min(found_on.cloned()),
            None => drop(self.first.insert(address, found_on.cloned())),
        }
        if self.first.len() > Self::MAX_LISTED_ADDRESSES {
            self.first.pop_last();
        }
    }
}

/// Everything that a crawl has found.
#[derive(Debug)]
pub(super) struct CrawlResults {
    /// The outcome of each request that has ended.
    pub(super) outcomes: BTreeMap<CrawlRequest, CrawlOutcome>,
    /// The purpose of each request.
    pub(super) purposes: BTreeMap<CrawlRequest, RequestPurpose>,
    pub(super) spool: BodySpool,
    /// Number of sitemap addresses of other origins, and the first of these URLs in the order of characters.
    pub(super) foreign_sitemap_links: (u64, Option<Url>),
    pub(super) disallowed: DisallowedLinks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disallowed_links_are_all_counted_and_the_first_20_in_sort_order_are_stored() {
        let address = |n: usize| SiteAddress::from_path(&format!("/{n:02}"));
        let page = |path: &str| Arc::new(SiteAddress::from_path(path));
        let numbers: Vec<usize> = (0..25).collect();
        let (mut upward, mut downward) = (DisallowedLinks::default(), DisallowedLinks::default());
        for n in &numbers {
            upward.record(address(*n), Some(&page("/a")));
            upward.record(address(*n), Some(&page("/b")));
        }
        for n in numbers.iter().rev() {
            downward.record(address(*n), Some(&page("/b")));
            downward.record(address(*n), Some(&page("/a")));
        }
        assert_eq!((upward.count, downward.count), (50, 50));
        assert_eq!(upward.first, downward.first);
        let expected: Vec<(SiteAddress, Option<Arc<SiteAddress>>)> =
            (0..20).map(|n| (address(n), Some(page("/a")))).collect();
        assert_eq!(upward.first.into_iter().collect::<Vec<_>>(), expected);
    }
}
