//! A site as it was found: what was asked for, what for, and what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use url::Url;

use docwharf_base::net::trouble::Trouble;

use super::address::{Address, Leads};
use super::documents::{Sort, Use};
use super::names::Item;
use super::spool::{Place, Spool};

/// What nobody has a page at: what is answered there is the page for what is missing.
pub(super) const NOWHERE: &str = "/docwharf-asks-for-a-page-that-is-not-there";

/// What is asked for: an address as a browser asks for it, or as a client of Next.js does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ask {
    pub(super) address: Address,
    pub(super) is_payload: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Met {
    Body(Body),
    /// The reader is sent on, with this status.
    Moved(u16, Leads),
    /// There is nothing, with this status.
    Missing(u16),
    /// No good answer to what need not be there.
    Failed(Trouble),
}

/// A good answer.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) sort: Sort,
    pub(super) place: Place,
    /// The names of it.
    pub(super) item: Item,
    /// Whether it can be rewritten: text in UTF-8.
    pub(super) is_text: bool,
    /// The charset that only the header knows.
    pub(super) charset: Option<String>,
    /// Whether it came with 404.
    pub(super) is_missing: bool,
    /// Whether what it names is wanted already.
    pub(super) is_read: bool,
}

/// What something is wanted for, and the first address that names it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) how: Use,
    pub(super) by: Option<Arc<Address>>,
}

/// Links to what robots.txt keeps crawlers from. A site may have any number of them, so only the first few in the order of
/// addresses are kept, which are the same ones in whatever order pages arrive.
#[derive(Debug, Default)]
pub(super) struct ForbiddenLinks {
    /// With the first page that leads there.
    pub(super) first: BTreeMap<Address, Option<Arc<Address>>>,
    /// All of them.
    pub(super) count: u64,
}

impl ForbiddenLinks {
    /// How many are kept.
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

/// A site as it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) met: BTreeMap<Ask, Met>,
    pub(super) wanted: BTreeMap<Ask, Wanted>,
    pub(super) spool: Spool,
    /// How many addresses in sitemaps are of other origins, and one of them.
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
