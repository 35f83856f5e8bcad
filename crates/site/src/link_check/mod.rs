//! The check for broken links: reads every page of a sealed version and looks up each internal link and asset as the
//! server does.
//!
//! **The count** is, summed over the pages, the number of distinct addresses of this site that a page links to and that
//! lead to no page or file: to a 404, to a redirect loop, or to an address that the server refuses. At most
//! `MAX_BROKEN_ADDRESSES` of a page count. A broken link that occurs twice on a page counts once; on two pages it
//! counts twice. Query and fragment are ignored. Not checked are links to other origins (also to the site's own origin,
//! written with a host), `mailto:` and other schemes, and the targets of forms.

mod page_links;

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use docwharf_base::codec::inflate::Inflater;
use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::is_page;

use crate::links::{self, PageAddress};
use crate::lookup::addresses::{AddressSettings, is_answered_with_budget};
use crate::lookup::resolve::Slashes;
use crate::rules::route::ComparisonBudget;
use crate::sealed_version::SealedVersion;

use page_links::{BrokenAddresses, MAX_EXAMPLES, PageLinks, placeholder_url};

/// The maximum number of broken links of a version that another version is compared with, at 32 bytes each. A version
/// with more is not compared.
const MAX_COMPARED_LINKS: usize = 1 << 18;
/// The broken links of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokenLinks {
    /// The number of broken links, counted as the module's documentation says.
    pub count: u64,
    /// The number of pages that were read.
    pub pages: u64,
    /// The first broken links: the path of the page and the address that it links to.
    pub examples: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the budget was spent before all links were looked up. Then there may be more broken links.
    pub is_incomplete: bool,
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

/// Finds the broken links on all pages of `version`, with `threads` threads. `stop` is called before each page and each
/// lookup; after it has returned true, the result is `None`. A bundle can contain any number of rules and links, so
/// `budget` bounds the comparisons.
pub fn find_broken_links(
    version: &SealedVersion,
    addresses: &AddressSettings,
    threads: usize,
    budget: &ComparisonBudget,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<BrokenLinks> {
    check_pages(LinkChecker::new(version, addresses, budget, stop), threads).map(|totals| totals.all)
}

/// Finds the broken links of `version`, and those among them that are not broken in `before`, another version of the
/// site. Both checks share the budget. The parameters are those of [`find_broken_links`].
pub fn compare_broken_links(
    version: &SealedVersion,
    before: &SealedVersion,
    addresses: &AddressSettings,
    threads: usize,
    budget: &ComparisonBudget,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<BrokenLinkComparison> {
    let checker_of = |version| LinkChecker::new(version, addresses, budget, stop);
    let earlier = check_pages(LinkChecker { collects_links: true, ..checker_of(before) }, threads)?;
    let is_comparable = !earlier.all.is_incomplete && earlier.link_digests.len() < MAX_COMPARED_LINKS;
    let known_broken = Some(&earlier.link_digests).filter(|_| is_comparable);
    let LinkCheckTotals { all, new, .. } = check_pages(LinkChecker { known_broken, ..checker_of(version) }, threads)?;
    Some(BrokenLinkComparison { all, new: is_comparable.then_some(new) })
}

fn check_pages(checker: LinkChecker<'_>, threads: usize) -> Option<LinkCheckTotals> {
    let files = checker.version.index().len();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(LinkCheckTotals::default());
    let run_worker = || {
        let mut worker = LinkCheckWorker { checker, inflate: Inflater::new(), totals: LinkCheckTotals::default() };
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= files || checker.has_stopped() {
                break;
            }
            worker.check_page(file);
        }
        total.lock().add(worker.totals);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            // If a thread cannot be started, the others do its share.
            let _ = std::thread::Builder::new().name("docwharf-links".to_owned()).spawn_scoped(scope, run_worker);
        }
        run_worker();
    });
    if (checker.stop)() {
        return None;
    }
    let mut total = total.into_inner();
    for broken in [&mut total.all, &mut total.new] {
        // Sorted, so that one site always has the same examples, independent of the distribution of pages to threads.
        broken.examples.sort();
        broken.examples.truncate(MAX_EXAMPLES);
        broken.is_incomplete = checker.budget.is_spent();
    }
    Some(total)
}

/// The results of the pages that have been read so far.
#[derive(Default)]
struct LinkCheckTotals {
    all: BrokenLinks,
    /// The broken links that are not broken in the other version.
    new: BrokenLinks,
    /// The digests of the broken links (see [`broken_link_digest`]), if another version is compared with them.
    link_digests: HashSet<Digest>,
}

impl LinkCheckTotals {
    fn add(&mut self, worker_totals: LinkCheckTotals) {
        for (total, part) in [(&mut self.all, worker_totals.all), (&mut self.new, worker_totals.new)] {
            total.count += part.count;
            total.pages += part.pages;
            total.examples.extend(part.examples);
        }
        self.link_digests.extend(worker_totals.link_digests);
    }
}

/// Computes the digest that identifies a broken link, from its page and the digest of the address.
fn broken_link_digest(page: &[u8], address: &Digest) -> Digest {
    Digest::compute(&[&address.0, page].concat())
}

/// The inputs of the check, shared by all threads.
#[derive(Clone, Copy)]
struct LinkChecker<'a> {
    version: &'a SealedVersion,
    addresses: &'a AddressSettings,
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
        version: &'a SealedVersion,
        addresses: &'a AddressSettings,
        budget: &'a ComparisonBudget,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> LinkChecker<'a> {
        let slashes = addresses.slashes.unwrap_or(version.auto_slashes);
        LinkChecker { version, addresses, slashes, budget, stop, known_broken: None, collects_links: false }
    }
}

impl LinkChecker<'_> {
    /// Whether the check stops: the budget is spent, or the caller has requested it.
    fn has_stopped(&self) -> bool {
        self.budget.is_spent() || (self.stop)()
    }

    /// Whether an address leads to a page or file, or to another host. After the check has stopped, every address
    /// counts as answered.
    fn is_answered(&self, address: &[u8]) -> bool {
        if self.has_stopped() {
            return true;
        }
        // The lookup itself costs about as much as matching one pattern.
        self.budget.spend_matches(1, address);
        is_answered_with_budget(self.version, self.addresses, self.slashes, address, Some(self.budget))
    }
}

/// The state of one thread.
struct LinkCheckWorker<'a> {
    checker: LinkChecker<'a>,
    inflate: Inflater,
    totals: LinkCheckTotals,
}

impl LinkCheckWorker<'_> {
    fn check_page(&mut self, file: usize) {
        let (checker, version) = (self.checker, self.checker.version);
        let path = version.index().path(file);
        let address = [checker.addresses.base_path.as_bytes(), path].concat();
        if !is_page(path) || !checker.is_answered(&address) {
            return;
        }
        // The base of relative links is the page's own path. With any value of `slashes`, the links of a page are
        // written for an address in this folder.
        let Some(page_url) = placeholder_url(&address) else { return };
        let entry = version.entry(file);
        let (mut page, new) = (PageLinks::default(), RefCell::new(BrokenAddresses::default()));
        let is_answered = |address: &[u8]| {
            let is_answered = checker.is_answered(address);
            let is_new = || {
                checker
                    .known_broken
                    .is_some_and(|known| !known.contains(&broken_link_digest(path, &Digest::compute(address))))
            };
            if !is_answered && is_new() {
                new.borrow_mut().insert(address.to_vec());
            }
            is_answered
        };
        let feed = |sink: &mut dyn FnMut(&[u8]) -> bool| {
            version.read_in_pieces(&entry, &mut self.inflate, &mut |piece| !checker.has_stopped() && sink(piece));
        };
        links::read_links(feed, |address| match address {
            PageAddress::Base(text) => page.set_base(&page_url, text),
            PageAddress::Link(text) => {
                page.add_link(text);
                if page.is_full() {
                    page.check_pending(&page_url, is_answered);
                }
            }
        });
        page.check_pending(&page_url, is_answered);
        let (broken, new) = (page.into_broken(), new.into_inner());
        if checker.collects_links && self.totals.link_digests.len() < MAX_COMPARED_LINKS {
            self.totals.link_digests.extend(broken.digests.iter().map(|address| broken_link_digest(path, address)));
        }
        self.totals.all.add_page(path, broken);
        self.totals.new.add_page(path, new);
    }
}

impl BrokenLinks {
    /// Adds the broken addresses of one page.
    fn add_page(&mut self, path: &[u8], broken: BrokenAddresses) {
        self.pages += 1;
        self.count += broken.digests.len() as u64;
        if self.examples.len() < MAX_EXAMPLES {
            // A thread reads its pages in order, so these examples are among the first of the version.
            self.examples.extend(broken.first.into_iter().map(|target| (path.to_vec(), target)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed_version::test_versions::version_with_files;

    fn check_links(files: &[(&str, &str)]) -> (u64, u64, Vec<String>) {
        let budget = ComparisonBudget::new(u64::MAX);
        let all =
            find_broken_links(&version_with_files(files), &AddressSettings::default(), 1, &budget, &|| false).unwrap();
        assert!(!all.is_incomplete);
        (all.count, all.pages, describe_examples(&all))
    }

    fn describe_examples(broken: &BrokenLinks) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        broken.examples.iter().map(|(page, target)| format!("{} {}", text(page), text(target))).collect()
    }

    #[test]
    fn broken_link_counts_once_per_visible_page() {
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
        assert_eq!(check_links(&files), (3, 2, expected.to_vec()));
        assert_eq!(check_links(&files[..6]), (3, 3, expected.to_vec()));
        assert_eq!(
            check_links(&[(
                "index.html",
                "<a href=/e>x</a><a href=/d>x</a><a href=/c>x</a><a href=/b>x</a><a href=/a>x</a>"
            )]),
            (5, 1, ["index.html /a", "index.html /b", "index.html /c"].map(str::to_owned).to_vec())
        );
        let page = "<base href=/d/><base href=/e/><a href=x>x</a>";
        assert_eq!(check_links(&[("index.html", page), ("d/x.html", "<p>")]).0, 0, "the first base counts");
        assert_eq!(check_links(&[("index.html", page), ("e/x.html", "<p>")]).2, ["index.html /d/x"]);
        assert_eq!(
            check_links(&[("a/b.html", "<a href=c>x</a><a href=/a/c>x</a>"), ("c.html", "")]).2,
            ["a/b.html /a/c"]
        );
    }

    #[test]
    fn examples_of_broken_links_are_the_first_ones_of_all_pages() {
        let links =
            |names: &str| names.chars().map(|name| format!("<a href=/{name}>x</a>")).collect::<Vec<_>>().concat();
        let (one, three) = (links("z"), links("rpq"));
        let files = [("a.html", &*one), ("b.html", &*three), ("c.html", &*three)];
        let expected = ["a.html /z", "b.html /p", "b.html /q"].map(str::to_owned);
        assert_eq!(check_links(&files), (7, 3, expected.to_vec()));
        let (site, addresses) = (version_with_files(&files), AddressSettings::default());
        let budget = ComparisonBudget::new(u64::MAX);
        let all = find_broken_links(&site, &addresses, 3, &budget, &|| false).unwrap();
        assert_eq!((all.count, all.pages, describe_examples(&all)), (7, 3, expected.to_vec()));
    }

    #[test]
    fn broken_link_is_new_unless_the_same_page_of_the_other_version_has_it_too() {
        let before =
            version_with_files(&[("index.html", "<a href=/old>x</a><a href=/there>x</a>"), ("there.html", "<p>")]);
        let after = version_with_files(&[
            ("index.html", "<a href=/old>x</a><a href=/there>x</a><a href=/new>x</a>"),
            ("c.html", "<a href=/old>x</a>"),
        ]);
        let (addresses, budget) = (AddressSettings::default(), ComparisonBudget::new(u64::MAX));
        for threads in [0, 1, 3] {
            let comparison = compare_broken_links(&after, &before, &addresses, threads, &budget, &|| false).unwrap();
            assert_eq!((comparison.all.count, comparison.all.pages), (4, 2));
            let new = comparison.new.unwrap();
            assert_eq!(
                (new.count, describe_examples(&new)),
                (3, ["c.html /old", "index.html /new", "index.html /there"].map(str::to_owned).to_vec())
            );
            let reverse = compare_broken_links(&before, &after, &addresses, threads, &budget, &|| false).unwrap();
            assert_eq!((reverse.all.count, reverse.new.unwrap().count), (1, 0));
        }
        let spent = ComparisonBudget::new(0);
        let incomplete = compare_broken_links(&after, &before, &addresses, 1, &spent, &|| false).unwrap();
        assert!(incomplete.all.is_incomplete && incomplete.all.count == 0 && incomplete.new.is_none());
        assert!(find_broken_links(&after, &addresses, 1, &spent, &|| false).unwrap().is_incomplete);
        assert_eq!(find_broken_links(&after, &addresses, 1, &budget, &|| true), None);
        assert_eq!(compare_broken_links(&after, &before, &addresses, 1, &budget, &|| true), None);
    }
}
