//! Results of a crawl: what was requested, for which purpose, and with which result.

use std::collections::BTreeMap;
use std::sync::Arc;

use url::Url;

use docwharf_base::net::trouble::Trouble;

use super::address::{Address, Leads};
use super::documents::{Sort, Use};
use super::names::Item;
use super::spool::{Place, Spool};

/// Path that no site has a page at; its response is the site's 404 page.
pub(super) const NOWHERE: &str = "/docwharf-asks-for-a-page-that-is-not-there";

/// A request: an address as a browser requests it, or as a Next.js client does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ask {
    pub(super) address: Address,
    pub(super) is_payload: bool,
}

/// Result of a request.
#[derive(Debug)]
pub(super) enum Met {
    Body(Body),
    /// A redirect with this status, to this target.
    Moved(u16, Leads),
    /// No content, with this status.
    Missing(u16),
    /// No usable response for an address that is not required.
    Failed(Trouble),
}

/// A response with content.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) sort: Sort,
    pub(super) place: Place,
    /// Input for choosing its file name.
    pub(super) item: Item,
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
pub(super) struct Wanted {
    pub(super) how: Use,
    pub(super) by: Option<Arc<Address>>,
}

/// Links to addresses that robots.txt disallows. A site may have any number of them, so only the first few in the order
/// of addresses are kept; these do not depend on the order in which pages arrive.
#[derive(Debug, Default)]
pub(super) struct ForbiddenLinks {
    /// Disallowed addresses, each with the first page that links to it.
    pub(super) first: BTreeMap<Address, Option<Arc<Address>>>,
    /// Number of all such links.
    pub(super) count: u64,
}

impl ForbiddenLinks {
    /// Maximum number of addresses kept.
    const KEPT: usize = 20;

    pub(super) fn note(&mut self, address: Address, by: Option<&Arc<Address>>) {
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
pub(super) struct Found {
    pub(super) met: BTreeMap<Ask, Met>,
    pub(super) wanted: BTreeMap<Ask, Wanted>,
    pub(super) spool: Spool,
    /// Number of sitemap addresses of other origins, and the least of these URLs.
    pub(super) foreign: (u64, Option<Url>),
    pub(super) forbidden: ForbiddenLinks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_forbidden_links_are_kept_whatever_their_order_and_all_are_counted() {
        let address = |n: usize| Address::of_path(&format!("/{n:02}"));
        let page = |path: &str| Arc::new(Address::of_path(path));
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
        let expected: Vec<(Address, Option<Arc<Address>>)> = (0..20).map(|n| (address(n), Some(page("/a")))).collect();
        assert_eq!(upward.first.into_iter().collect::<Vec<_>>(), expected);
    }
}
