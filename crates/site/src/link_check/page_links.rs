//! The links of one page, resolved to addresses of the site.

use std::collections::{BTreeSet, HashSet};

use percent_encoding::{percent_decode, percent_encode};
use url::Url;

use docwharf_base::encode_sets;
use docwharf_base::model::digest::Digest;

/// The size of the addresses of one page that are collected before they are checked, in bytes.
const MAX_PENDING_BYTES: usize = 1 << 20;
/// The maximum length of an address or a base URL, in bytes. A longer one is ignored, to bound memory; only the
/// percent-encoded address of a path near the limit for paths can be longer. The limit also bounds each URL that is
/// resolved from the two.
const MAX_ADDRESS_BYTES: usize = 4096;
/// The maximum number of broken addresses that are counted on one page.
const MAX_BROKEN_ADDRESSES: usize = 65_536;
/// The number of examples that messages contain.
pub(super) const MAX_EXAMPLES: usize = 3;
/// The origin against which links are resolved (RFC 2606 reserves `.invalid`, so that no link can name it).
const PLACEHOLDER_ORIGIN: &str = "http://docwharf.invalid";

/// Creates the URL of the page at a decoded address, with a placeholder for the site's origin.
pub(super) fn placeholder_url(address: &[u8]) -> Option<Url> {
    Url::parse(&format!("{PLACEHOLDER_ORIGIN}{}", percent_encode(address, encode_sets::URL_PATH))).ok()
}

/// The links of one page that were read so far. It needs a few MiB at most, for any page.
#[derive(Default)]
pub(super) struct PageLinks {
    base: Option<Url>,
    pending: HashSet<String>,
    pending_bytes: usize,
    broken: BrokenAddresses,
}

/// Addresses that lead to no page or file, each once.
#[derive(Default)]
pub(super) struct BrokenAddresses {
    /// The digests of the addresses; the addresses themselves may be long.
    pub(super) digests: HashSet<Digest>,
    /// The first addresses in byte order, as examples.
    pub(super) first: BTreeSet<Vec<u8>>,
}

impl PageLinks {
    /// Sets the base of relative links, unless an earlier `base` element has set it.
    pub(super) fn set_base(&mut self, page_url: &Url, text: &str) {
        if self.base.is_none() && text.len() <= MAX_ADDRESS_BYTES {
            self.base = page_url.join(text).ok();
        }
    }

    /// Collects an address once, without query and fragment.
    pub(super) fn add_link(&mut self, text: &str) {
        let text = text.trim_matches(|c: char| c <= ' ');
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let text = &text[..end];
        if text.len() <= MAX_ADDRESS_BYTES && !self.pending.contains(text) && !has_scheme(text) {
            self.pending_bytes += text.len() + size_of::<String>();
            self.pending.insert(text.to_owned());
        }
    }

    /// Whether the collected links take so much memory that they must be checked now.
    pub(super) fn is_full(&self) -> bool {
        self.pending_bytes > MAX_PENDING_BYTES
    }

    /// Checks the collected links and discards them. `is_answered` returns whether a decoded address is answered.
    pub(super) fn check_pending(&mut self, page_url: &Url, is_answered: impl Fn(&[u8]) -> bool) {
        self.pending_bytes = 0;
        let base = self.base.as_ref().unwrap_or(page_url);
        for text in self.pending.drain() {
            let Some(address) = resolve_link(base, page_url, &text) else { continue };
            if !is_answered(&address) {
                self.broken.insert(address);
            }
        }
    }

    /// Returns the broken addresses among the links that were checked.
    pub(super) fn into_broken(self) -> BrokenAddresses {
        self.broken
    }
}

impl BrokenAddresses {
    /// Counts an address, up to [`MAX_BROKEN_ADDRESSES`], and stores it if it is one of the first.
    pub(super) fn insert(&mut self, address: Vec<u8>) {
        if self.digests.len() < MAX_BROKEN_ADDRESSES {
            self.digests.insert(Digest::compute(&address));
        }
        self.first.insert(address);
        if self.first.len() > MAX_EXAMPLES {
            self.first.pop_last();
        }
    }
}

/// Whether a link begins with a scheme: `mailto:`, `https:`, `javascript:`. Tabs and line breaks within it are ignored
/// (URL Standard, basic URL parser).
fn has_scheme(text: &str) -> bool {
    let mut letters = text.bytes().filter(|b| !matches!(b, b'\t' | b'\n' | b'\r'));
    letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.find(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b))) == Some(b':')
}

/// Resolves a link without a scheme to a decoded path of this site; `None` if it leads to another origin.
fn resolve_link(base: &Url, page_url: &Url, link: &str) -> Option<Vec<u8>> {
    let url = base.join(link).ok()?;
    let is_own_origin =
        url.scheme() == page_url.scheme() && url.host_str() == page_url.host_str() && url.port() == page_url.port();
    is_own_origin.then(|| percent_decode(url.path().as_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve_from_page(base: &str, link: &str) -> Option<String> {
        let page_url = Url::parse(&format!("{PLACEHOLDER_ORIGIN}/docs/guides/start.html")).unwrap();
        let mut page = PageLinks::default();
        if !base.is_empty() {
            page.set_base(&page_url, base);
        }
        page.add_link(link);
        let text = page.pending.drain().next()?;
        let address = resolve_link(page.base.as_ref().unwrap_or(&page_url), &page_url, &text)?;
        Some(String::from_utf8(address).unwrap())
    }

    #[test]
    fn page_link_is_resolved_to_the_address_that_a_browser_would_request() {
        for (base, link, expected) in [
            ("", "next", Some("/docs/guides/next")),
            ("", " ./a/../b.html?x=1#y ", Some("/docs/guides/b.html")),
            ("", "#top", Some("/docs/guides/start.html")),
            ("", "?q=1", Some("/docs/guides/start.html")),
            ("", "../../../../x", Some("/x")),
            ("", "%2e%2e/x", Some("/docs/x")),
            ("", "a%20b%2Fc%25.html", Some("/docs/guides/a b/c%.html")),
            ("", "a b\\c", Some("/docs/guides/a b/c")),
            ("", "ne\nxt", Some("/docs/guides/next")),
            ("", "/", Some("/")),
            ("", "ä.html", Some("/docs/guides/ä.html")),
            ("", "//docs.example.com/x", None),
            ("", "/\\docs.example.com/x", None),
            ("", "https://docs.example.com/x", None),
            ("", "mailto:me@example.com", None),
            ("", "java\tscript:void(0)", None),
            ("", "data:,x", None),
            ("", "a/b:c", Some("/docs/guides/a/b:c")),
            ("/b/", "x", Some("/b/x")),
            ("../", "x", Some("/docs/x")),
            ("https://cdn.example.com/", "x", None),
            ("//cdn.example.com/", "/x", None),
        ] {
            assert_eq!(resolve_from_page(base, link).as_deref(), expected, "{base:?} {link:?}");
        }
    }

    // Regression: the check of a page with a long base address and many short links took gigabytes of memory.
    #[test]
    fn long_base_and_link_addresses_use_bounded_memory() {
        let long = |len: usize| format!("/{}/", "a".repeat(len - 2));
        let under = |base: &str| resolve_from_page(base, "x").unwrap().len();
        assert_eq!(
            (under(&long(MAX_ADDRESS_BYTES)), under(&long(MAX_ADDRESS_BYTES + 1))),
            (MAX_ADDRESS_BYTES + 1, "/docs/guides/x".len())
        );
        assert!(
            resolve_from_page("", &long(MAX_ADDRESS_BYTES)).is_some()
                && resolve_from_page("", &long(MAX_ADDRESS_BYTES + 1)).is_none()
        );
        assert!(resolve_from_page("", &format!("x?{}", long(MAX_ADDRESS_BYTES))).is_some(), "a query does not count");

        let page_url = Url::parse(&format!("{PLACEHOLDER_ORIGIN}/start.html")).unwrap();
        let mut page = PageLinks::default();
        page.set_base(&page_url, &long(MAX_ADDRESS_BYTES));
        for n in (0..MAX_BROKEN_ADDRESSES + 10).rev() {
            page.add_link(&format!("x{n:05}"));
            if page.pending_bytes > MAX_PENDING_BYTES {
                page.check_pending(&page_url, |_| false);
            }
            assert!(page.pending_bytes <= MAX_PENDING_BYTES);
        }
        page.check_pending(&page_url, |_| false);
        let BrokenAddresses { digests, first } = page.broken;
        assert_eq!(digests.len(), MAX_BROKEN_ADDRESSES);
        let memory: usize = first.iter().map(Vec::len).sum::<usize>() + digests.len() * size_of::<Digest>();
        assert!(memory < 4 << 20, "{memory}");
        let first_expected = [long(MAX_ADDRESS_BYTES).as_bytes(), b"x00000"].concat();
        assert_eq!((first.len(), first.first()), (MAX_EXAMPLES, Some(&first_expected)), "in any order");
    }
}
