//! The check for broken links: reads every page of a sealed version and looks each internal link and asset up as the
//! server would.
//!
//! **The count** is, summed over the pages, the number of distinct addresses of this site that a page links to and that
//! are answered with 404. The same dead link twice on a page counts once, on two pages twice. Query and fragment are
//! ignored. Not checked are links to other origins (also to the site's own origin, written with a host), `mailto:` and
//! other schemes, and the targets of forms.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use percent_encoding::{percent_decode, percent_encode};
use url::Url;

use docwharf_base::codec::inflate::{Inflate, InflateStatus};
use docwharf_base::encode_sets;
use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::is_page;

use super::index::{EntryCompression, IndexEntry};
use super::links::{self, PageAddress};
use super::lookup::addresses::{Addresses, is_answered_within};
use super::lookup::resolve::Slashes;
use super::rules::route::ComparisonBudget;
use super::sealed_version::SealedVersion;

/// The size of the addresses of one page that are collected before they are looked up, in bytes.
const MAX_PENDING_BYTES: usize = 1 << 20;
/// The maximum length of an address or a base URL, in bytes. A longer one is ignored: no legal path is longer. The
/// limit also bounds each URL that is resolved from the two.
const MAX_ADDRESS_BYTES: usize = 4096;
/// The maximum number of dead addresses that are counted on one page.
const MAX_DEAD_ADDRESSES: usize = 65_536;
/// The maximum number of broken links of a version that another version is compared with, at 32 bytes each. A version
/// with more is not compared.
const MAX_COMPARED_LINKS: usize = 1 << 18;
/// The number of examples that are kept for messages.
const MAX_EXAMPLES: usize = 3;
/// The origin against which links are resolved (RFC 2606 reserves `.invalid`, so that no link can name it).
const PLACEHOLDER_ORIGIN: &str = "http://docwharf.invalid";

/// The broken links of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokenLinks {
    /// The number of broken links, counted as the module's documentation says.
    pub count: u64,
    /// The number of pages that were read.
    pub pages: u64,
    /// The first broken links: the path of the page and the address that it links to.
    pub examples: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the budget ran out before all links were looked up. Then there may be more broken links.
    pub is_cut: bool,
}

/// The broken links of a version compared with those of another version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokenLinkComparison {
    /// All broken links.
    pub all: BrokenLinks,
    /// The links that are not broken on the same page of the other version; `None` if that version has too many broken
    /// links to compare.
    pub new: Option<BrokenLinks>,
}

/// Finds the broken links on all pages of `site`, with `threads` threads. `stop` is called before each page and each
/// look-up; once it returns true, the result is `None`. A bundle can bring any number of rules and links, so `budget`
/// bounds the comparisons.
pub fn find_broken_links(
    site: &SealedVersion,
    addresses: &Addresses,
    threads: usize,
    budget: &ComparisonBudget,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<BrokenLinks> {
    check_pages(LinkChecker::new(site, addresses, budget, stop), threads).map(|found| found.all)
}

/// Finds the broken links of `site`, and those among them that are not broken in `before`, another version of the site.
/// Both checks share the budget. Otherwise as [`broken`].
pub fn compare_broken_links(
    site: &SealedVersion,
    before: &SealedVersion,
    addresses: &Addresses,
    threads: usize,
    budget: &ComparisonBudget,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<BrokenLinkComparison> {
    let of = |site| LinkChecker::new(site, addresses, budget, stop);
    let known = check_pages(LinkChecker { collects_links: true, ..of(before) }, threads)?;
    let can_tell = !known.all.is_cut && known.links.len() < MAX_COMPARED_LINKS;
    let known = Some(&known.links).filter(|_| can_tell);
    let LinkCheckTotals { all, new, .. } = check_pages(LinkChecker { known_broken: known, ..of(site) }, threads)?;
    Some(BrokenLinkComparison { all, new: can_tell.then_some(new) })
}

fn check_pages(look: LinkChecker<'_>, threads: usize) -> Option<LinkCheckTotals> {
    let files = look.site.index().len();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(LinkCheckTotals::default());
    let work = || {
        let mut reader = LinkCheckWorker { look, inflate: Inflate::new(), found: LinkCheckTotals::default() };
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= files || look.has_stopped() {
                break;
            }
            reader.check_page(file);
        }
        total.lock().add(reader.found);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            // If a thread cannot be started, the others do its share.
            let _ = std::thread::Builder::new().name("docwharf-links".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    if (look.stop)() {
        return None;
    }
    let mut total = total.into_inner();
    for broken in [&mut total.all, &mut total.new] {
        // Sorted, so that the same site always gives the same examples, however the pages were distributed.
        broken.examples.sort();
        broken.examples.truncate(MAX_EXAMPLES);
        broken.is_cut = look.budget.is_spent();
    }
    Some(total)
}

/// The results of the pages that have been read so far.
#[derive(Default)]
struct LinkCheckTotals {
    all: BrokenLinks,
    /// The broken links that are not broken in the other version.
    new: BrokenLinks,
    /// The broken links by name (see [`link`]), if another version is to be compared with them.
    links: HashSet<Digest>,
}

impl LinkCheckTotals {
    fn add(&mut self, other: LinkCheckTotals) {
        for (total, part) in [(&mut self.all, other.all), (&mut self.new, other.new)] {
            total.count += part.count;
            total.pages += part.pages;
            total.examples.extend(part.examples);
        }
        self.links.extend(other.links);
    }
}

/// Returns the name of a broken link: a digest of the page and the digest of the address that it links to.
fn broken_link_digest(page: &[u8], address: &Digest) -> Digest {
    Digest::of(&[&address.0, page].concat())
}

/// The inputs of the check, shared by all threads.
#[derive(Clone, Copy)]
struct LinkChecker<'a> {
    site: &'a SealedVersion,
    addresses: &'a Addresses,
    slashes: Slashes,
    budget: &'a ComparisonBudget,
    stop: &'a (dyn Fn() -> bool + Sync),
    /// The broken links of the other version.
    known_broken: Option<&'a HashSet<Digest>>,
    /// Whether broken links are collected for a later comparison.
    collects_links: bool,
}

impl<'a> LinkChecker<'a> {
    fn new(
        site: &'a SealedVersion,
        addresses: &'a Addresses,
        budget: &'a ComparisonBudget,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> LinkChecker<'a> {
        let slashes = addresses.slashes.unwrap_or(site.auto_slashes);
        LinkChecker { site, addresses, slashes, budget, stop, known_broken: None, collects_links: false }
    }
}

impl LinkChecker<'_> {
    /// Whether the check stops: the budget is spent, or the caller asked for it.
    fn has_stopped(&self) -> bool {
        self.budget.is_spent() || (self.stop)()
    }

    /// Whether an address is answered with something else than 404. After the check has stopped, every address counts
    /// as answered.
    fn is_answered(&self, address: &[u8]) -> bool {
        if self.has_stopped() {
            return true;
        }
        // The look-up itself costs about as much as matching one pattern.
        self.budget.spend_matches(1, address);
        is_answered_within(self.site, self.addresses, self.slashes, address, Some(self.budget))
    }
}

/// The state of one thread.
struct LinkCheckWorker<'a> {
    look: LinkChecker<'a>,
    inflate: Inflate,
    found: LinkCheckTotals,
}

/// The links of one page that were read so far. It takes a few MiB at most, whatever the page contains.
#[derive(Default)]
struct PageLinks {
    base: Option<Url>,
    pending: HashSet<String>,
    bytes: usize,
    dead: DeadAddresses,
}

/// Dead addresses, each once.
#[derive(Default)]
struct DeadAddresses {
    /// The digests of the addresses; the addresses themselves may be long.
    digests: HashSet<Digest>,
    /// The first addresses in byte order, as examples.
    first: BTreeSet<Vec<u8>>,
}

impl LinkCheckWorker<'_> {
    fn check_page(&mut self, file: usize) {
        let (look, site) = (self.look, self.look.site);
        let path = site.index().path(file);
        let address = [look.addresses.base_path.as_bytes(), path].concat();
        if !is_page(path) || !look.is_answered(&address) {
            return;
        }
        // The base of relative links is the page's own path. Whatever `slashes` says, a page's links are written for an
        // address in this folder.
        let Ok(home) = Url::parse(&format!("{PLACEHOLDER_ORIGIN}{}", percent_encode(&address, encode_sets::URL_PATH)))
        else {
            return;
        };
        let entry = site.entry(file);
        let (mut page, new) = (PageLinks::default(), RefCell::new(DeadAddresses::default()));
        let answers = |address: &[u8]| {
            let is_there = look.is_answered(address);
            let is_new = || {
                look.known_broken.is_some_and(|known| !known.contains(&broken_link_digest(path, &Digest::of(address))))
            };
            if !is_there && is_new() {
                new.borrow_mut().insert(address.to_vec());
            }
            is_there
        };
        let feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
            read_in_pieces(site, &entry, &mut self.inflate, &mut |piece| !look.has_stopped() && take(piece));
        };
        links::read_links(feed, |said| match said {
            PageAddress::Base(text) => page.set_base(&home, text),
            PageAddress::Link(text) => {
                page.add_link(text);
                if page.bytes > MAX_PENDING_BYTES {
                    page.look_up(&home, answers);
                }
            }
        });
        page.look_up(&home, answers);
        let (dead, new) = (page.dead, new.into_inner());
        if look.collects_links && self.found.links.len() < MAX_COMPARED_LINKS {
            self.found.links.extend(dead.digests.iter().map(|address| broken_link_digest(path, address)));
        }
        self.found.all.add_page(path, dead);
        self.found.new.add_page(path, new);
    }
}

impl BrokenLinks {
    /// Adds the dead addresses of one page.
    fn add_page(&mut self, path: &[u8], dead: DeadAddresses) {
        self.pages += 1;
        self.count += dead.digests.len() as u64;
        if self.examples.len() < MAX_EXAMPLES {
            // A thread reads its pages in order, so these examples are among the first of the version.
            self.examples.extend(dead.first.into_iter().map(|target| (path.to_vec(), target)));
        }
    }
}

impl PageLinks {
    /// Sets the base of relative links, unless an earlier `base` element has set it.
    fn set_base(&mut self, home: &Url, text: &str) {
        if self.base.is_none() && text.len() <= MAX_ADDRESS_BYTES {
            self.base = home.join(text).ok();
        }
    }

    /// Collects an address once, without query and fragment.
    fn add_link(&mut self, text: &str) {
        let text = text.trim_matches(|c: char| c <= ' ');
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let text = &text[..end];
        if text.len() <= MAX_ADDRESS_BYTES && !self.pending.contains(text) && !has_scheme(text) {
            self.bytes += text.len() + size_of::<String>();
            self.pending.insert(text.to_owned());
        }
    }

    fn look_up(&mut self, home: &Url, answers: impl Fn(&[u8]) -> bool) {
        self.bytes = 0;
        let base = self.base.as_ref().unwrap_or(home);
        for text in self.pending.drain() {
            let Some(address) = resolve_link(base, home, &text) else { continue };
            if !answers(&address) {
                self.dead.insert(address);
            }
        }
    }
}

impl DeadAddresses {
    fn insert(&mut self, address: Vec<u8>) {
        if self.digests.len() < MAX_DEAD_ADDRESSES {
            self.digests.insert(Digest::of(&address));
        }
        self.first.insert(address);
        if self.first.len() > MAX_EXAMPLES {
            self.first.pop_last();
        }
    }
}

/// Whether a link begins with a scheme: `mailto:`, `https:`, `javascript:`. Tabs and line breaks within it are ignored,
/// as the URL Standard says.
fn has_scheme(text: &str) -> bool {
    let mut letters = text.bytes().filter(|b| !matches!(b, b'\t' | b'\n' | b'\r'));
    letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.find(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b))) == Some(b':')
}

/// Resolves a link without a scheme to a decoded path of this site; `None` if it leads to another origin.
fn resolve_link(base: &Url, home: &Url, link: &str) -> Option<Vec<u8>> {
    let url = base.join(link).ok()?;
    let ours = url.scheme() == home.scheme() && url.host_str() == home.host_str() && url.port() == home.port();
    ours.then(|| percent_decode(url.path().as_bytes()).collect())
}

/// Passes the content of a file to `take` piece by piece, until `take` returns false.
pub(super) fn read_in_pieces(
    site: &SealedVersion,
    entry: &IndexEntry,
    inflate: &mut Inflate,
    take: &mut dyn FnMut(&[u8]) -> bool,
) {
    const PIECE_BYTES: usize = 256 * 1024;
    let coded = site.compressed_bytes(entry);
    if entry.coding == EntryCompression::Stored {
        let _ = coded.chunks(PIECE_BYTES).all(take);
        return;
    }
    inflate.reset();
    let mut at = 0;
    // The stream was verified when it was sealed. If the file has been damaged since, the page ends at the damage.
    while let Ok(step) = inflate.run(&coded[at..], true) {
        at += step.consumed;
        let output = inflate.output();
        let stands_still = step.consumed == 0 && output.is_empty();
        if !take(output) || step.status == InflateStatus::Done || stands_still {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sealed_version::made::sealed;
    use super::*;

    fn led(base: &str, link: &str) -> Option<String> {
        let home = Url::parse(&format!("{PLACEHOLDER_ORIGIN}/docs/guides/start.html")).unwrap();
        let mut page = PageLinks::default();
        if !base.is_empty() {
            page.set_base(&home, base);
        }
        page.add_link(link);
        let text = page.pending.drain().next()?;
        let address = resolve_link(page.base.as_ref().unwrap_or(&home), &home, &text)?;
        Some(String::from_utf8(address).unwrap())
    }

    #[test]
    fn a_link_leads_where_a_browser_would_go() {
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
            assert_eq!(led(base, link).as_deref(), expected, "{base:?} {link:?}");
        }
    }

    #[test]
    fn what_a_page_says_at_any_length_is_bounded() {
        let long = |len: usize| format!("/{}/", "a".repeat(len - 2));
        let under = |base: &str| led(base, "x").unwrap().len();
        assert_eq!(
            (under(&long(MAX_ADDRESS_BYTES)), under(&long(MAX_ADDRESS_BYTES + 1))),
            (MAX_ADDRESS_BYTES + 1, "/docs/guides/x".len())
        );
        assert!(led("", &long(MAX_ADDRESS_BYTES)).is_some() && led("", &long(MAX_ADDRESS_BYTES + 1)).is_none());
        assert!(led("", &format!("x?{}", long(MAX_ADDRESS_BYTES))).is_some(), "a query does not count");

        let home = Url::parse(&format!("{PLACEHOLDER_ORIGIN}/start.html")).unwrap();
        let mut page = PageLinks::default();
        page.set_base(&home, &long(MAX_ADDRESS_BYTES));
        for n in (0..MAX_DEAD_ADDRESSES + 10).rev() {
            page.add_link(&format!("x{n:05}"));
            if page.bytes > MAX_PENDING_BYTES {
                page.look_up(&home, |_| false);
            }
            assert!(page.bytes <= MAX_PENDING_BYTES);
        }
        page.look_up(&home, |_| false);
        let DeadAddresses { digests, first } = page.dead;
        assert_eq!(digests.len(), MAX_DEAD_ADDRESSES);
        let held: usize = first.iter().map(Vec::len).sum::<usize>() + digests.len() * size_of::<Digest>();
        assert!(held < 4 << 20, "{held}");
        let least = [long(MAX_ADDRESS_BYTES).as_bytes(), b"x00000"].concat();
        assert_eq!((first.len(), first.first()), (MAX_EXAMPLES, Some(&least)), "in whatever order they came");
    }

    fn found(files: &[(&str, &str)]) -> (u64, u64, Vec<String>) {
        let budget = ComparisonBudget::new(u64::MAX);
        let all = find_broken_links(&sealed(files), &Addresses::default(), 1, &budget, &|| false).unwrap();
        assert!(!all.is_cut);
        (all.count, all.pages, told(&all))
    }

    fn told(broken: &BrokenLinks) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        broken.examples.iter().map(|(page, target)| format!("{} {}", text(page), text(target))).collect()
    }

    #[test]
    fn each_address_counts_once_on_each_page_that_readers_see() {
        let page = "<a href=/gone>x</a><a href=gone?x>x</a><a href=gone#y>x</a><a href=/there>x</a><a href=//x.example/gone>x</a>";
        let files = [
            ("index.html", page),
            ("b.htm", "<a href=gone>x</a><img src=no.png>"),
            ("there.html", "<p>"),
            (".hidden/p.html", page),
            ("_docwharf/x.html", page),
            ("a.txt", page),
            ("_redirects", "/there.html /gone 301!\n"),
        ];
        let expected = ["b.htm /gone", "b.htm /no.png", "index.html /gone"].map(str::to_owned);
        // A page that a redirect rule replaces is not read.
        assert_eq!(found(&files), (3, 2, expected.to_vec()));
        assert_eq!(found(&files[..6]), (3, 3, expected.to_vec()));
        assert_eq!(
            found(&[(
                "index.html",
                "<a href=/e>x</a><a href=/d>x</a><a href=/c>x</a><a href=/b>x</a><a href=/a>x</a>"
            )]),
            (5, 1, ["index.html /a", "index.html /b", "index.html /c"].map(str::to_owned).to_vec())
        );
        let based = "<base href=/d/><base href=/e/><a href=x>x</a>";
        assert_eq!(found(&[("index.html", based), ("d/x.html", "<p>")]).0, 0, "the first base counts");
        assert_eq!(found(&[("index.html", based), ("e/x.html", "<p>")]).2, ["index.html /d/x"]);
        assert_eq!(found(&[("a/b.html", "<a href=c>x</a><a href=/a/c>x</a>"), ("c.html", "")]).2, ["a/b.html /a/c"]);
    }

    #[test]
    fn a_link_is_new_that_is_not_broken_on_the_same_page_of_the_other_version() {
        let before = sealed(&[("index.html", "<a href=/old>x</a><a href=/there>x</a>"), ("there.html", "<p>")]);
        let after = sealed(&[
            ("index.html", "<a href=/old>x</a><a href=/there>x</a><a href=/new>x</a>"),
            ("c.html", "<a href=/old>x</a>"),
        ]);
        let (addresses, budget) = (Addresses::default(), ComparisonBudget::new(u64::MAX));
        for threads in [0, 1, 3] {
            let beside = compare_broken_links(&after, &before, &addresses, threads, &budget, &|| false).unwrap();
            assert_eq!((beside.all.count, beside.all.pages), (4, 2));
            let new = beside.new.unwrap();
            assert_eq!(
                (new.count, told(&new)),
                (3, ["c.html /old", "index.html /new", "index.html /there"].map(str::to_owned).to_vec())
            );
            let none = compare_broken_links(&before, &after, &addresses, threads, &budget, &|| false).unwrap();
            assert_eq!((none.all.count, none.new.unwrap().count), (1, 0));
        }
        let spent = ComparisonBudget::new(0);
        let cut = compare_broken_links(&after, &before, &addresses, 1, &spent, &|| false).unwrap();
        assert!(cut.all.is_cut && cut.all.count == 0 && cut.new.is_none());
        assert!(find_broken_links(&after, &addresses, 1, &spent, &|| false).unwrap().is_cut);
        assert_eq!(find_broken_links(&after, &addresses, 1, &budget, &|| true), None);
        assert_eq!(compare_broken_links(&after, &before, &addresses, 1, &budget, &|| true), None);
    }
}
