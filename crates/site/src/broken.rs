//! Links that lead nowhere: every page of a sealed version is read, and each internal link and asset in it is looked up
//! as the server would.
//!
//! **The number** counts, for each page, the distinct addresses of this site that it points at and that are answered with
//! 404. The same dead link twice on a page is one, on two pages two. Query and fragment do not count. Not judged are
//! links to other origins (also to the site's own, spelt with a host), `mailto:` and the like, and the targets of forms.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use url::Url;

use docwharf_base::codec::inflate::{Inflate, Status};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::is_page;

use super::index::{Coding, Entry};
use super::links::{self, Said};
use super::lookup::{Addresses, Slashes, answers_within};
use super::rules::route::Budget;
use super::sealed::Sealed;

/// Addresses on one page that are kept apart until they are looked up, in bytes.
const PENDING: usize = 1 << 20;
/// An address or a base that is longer, in bytes, is passed over: no legal path is. What the two make together is all that
/// is ever resolved.
const LONGEST: usize = 4096;
/// More dead addresses on one page are not told apart.
const MOST: usize = 65_536;
/// Broken links of a version that another is compared with, at 32 bytes each. With more of them nothing is compared.
const MOST_COMPARED: usize = 1 << 18;
/// Examples that are kept for messages.
const EXAMPLES: usize = 3;
/// An origin that no link can name: pages are read as if they stood there.
const ORIGIN: &str = "http://docwharf.invalid";
/// What a path in a URL cannot have as it is.
const IN_URL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Broken {
    /// See the module.
    pub count: u64,
    /// Pages that were read.
    pub pages: u64,
    /// The first of them: the page's path and the address it points at.
    pub examples: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the budget was spent before all were looked up: there may be more.
    pub is_cut: bool,
}

/// What was found in a version beside another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    /// All of it.
    pub all: Broken,
    /// Those links that are not broken on the same page of the other version; `None` if that has too many to tell.
    pub new: Option<Broken>,
}

/// Reads all pages of `site`, with so many threads. `stop` is asked before each page and each look-up; once it says yes,
/// nothing is known: `None`. A bundle can bring rules and links without number, so what is compared is bounded by `budget`.
pub fn broken(
    site: &Sealed,
    addresses: &Addresses,
    threads: usize,
    budget: &Budget,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Broken> {
    read(Look::new(site, addresses, budget, stop), threads).map(|found| found.all)
}

/// The same, and which of the links are not broken in `before`, another version of the site. Both share the budget.
pub fn broken_beside(
    site: &Sealed,
    before: &Sealed,
    addresses: &Addresses,
    threads: usize,
    budget: &Budget,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Beside> {
    let of = |site| Look::new(site, addresses, budget, stop);
    let known = read(Look { keeps: true, ..of(before) }, threads)?;
    let can_tell = !known.all.is_cut && known.links.len() < MOST_COMPARED;
    let known = Some(&known.links).filter(|_| can_tell);
    let Found { all, new, .. } = read(Look { known, ..of(site) }, threads)?;
    Some(Beside { all, new: can_tell.then_some(new) })
}

fn read(look: Look<'_>, threads: usize) -> Option<Found> {
    let files = look.site.index().len();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Found::default());
    let work = || {
        let mut reader = Reader { look, inflate: Inflate::new(), found: Found::default() };
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= files || look.ends() {
                break;
            }
            reader.page(file);
        }
        total.lock().unwrap_or_else(PoisonError::into_inner).add(reader.found);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            // A thread that cannot be started leaves its share to the others.
            let _ = std::thread::Builder::new().name("docwharf-links".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    if (look.stop)() {
        return None;
    }
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    for broken in [&mut total.all, &mut total.new] {
        // Whichever threads found them: the same site gives the same examples.
        broken.examples.sort();
        broken.examples.truncate(EXAMPLES);
        broken.is_cut = look.budget.is_spent();
    }
    Some(total)
}

/// What all pages have said so far.
#[derive(Default)]
struct Found {
    all: Broken,
    /// Of these, those that are not known from another version.
    new: Broken,
    /// For another version to be compared with, if they are to be kept.
    links: HashSet<Digest>,
}

impl Found {
    fn add(&mut self, other: Found) {
        for (total, part) in [(&mut self.all, other.all), (&mut self.new, other.new)] {
            total.count += part.count;
            total.pages += part.pages;
            total.examples.extend(part.examples);
        }
        self.links.extend(other.links);
    }
}

/// Names a broken link: the page, and the digest of the address that it points at.
fn link(page: &[u8], address: &Digest) -> Digest {
    Digest::of(&[&address.0, page].concat())
}

/// What addresses are looked up with.
#[derive(Clone, Copy)]
struct Look<'a> {
    site: &'a Sealed,
    addresses: &'a Addresses,
    slashes: Slashes,
    budget: &'a Budget,
    stop: &'a (dyn Fn() -> bool + Sync),
    /// Broken links that are not new.
    known: Option<&'a HashSet<Digest>>,
    /// Whether links are kept for that.
    keeps: bool,
}

impl<'a> Look<'a> {
    fn new(
        site: &'a Sealed,
        addresses: &'a Addresses,
        budget: &'a Budget,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Look<'a> {
        let slashes = addresses.slashes.unwrap_or(site.auto_slashes);
        Look { site, addresses, slashes, budget, stop, known: None, keeps: false }
    }
}

impl Look<'_> {
    /// Whether nothing more is to be found out.
    fn ends(&self) -> bool {
        self.budget.is_spent() || (self.stop)()
    }

    /// Whether there is something at an address; of what is not looked up any more nobody says that there is not.
    fn answers(&self, address: &[u8]) -> bool {
        if self.ends() {
            return true;
        }
        // Finding it takes as long as holding one pattern against it, rules or not.
        self.budget.compare(1, address);
        answers_within(self.site, self.addresses, self.slashes, address, Some(self.budget))
    }
}

/// One thread's part.
struct Reader<'a> {
    look: Look<'a>,
    inflate: Inflate,
    found: Found,
}

/// What one page has said so far: a few MiB at most, whatever that is.
#[derive(Default)]
struct Page {
    base: Option<Url>,
    pending: HashSet<String>,
    bytes: usize,
    dead: Dead,
}

/// Addresses that lead nowhere, each once.
#[derive(Default)]
struct Dead {
    /// Their digests: the addresses themselves may be long.
    digests: HashSet<Digest>,
    /// The first of them, in byte order.
    first: BTreeSet<Vec<u8>>,
}

impl Reader<'_> {
    fn page(&mut self, file: usize) {
        let (look, site) = (self.look, self.look.site);
        let path = site.index().path(file);
        let address = [look.addresses.base_path.as_bytes(), path].concat();
        if !is_page(path) || !look.answers(&address) {
            return;
        }
        // The page's own path: whatever `slashes` says, the addresses at which it is meant to be read are in this folder.
        let Ok(home) = Url::parse(&format!("{ORIGIN}{}", percent_encode(&address, IN_URL))) else { return };
        let entry = site.entry(file);
        let (mut page, new) = (Page::default(), RefCell::new(Dead::default()));
        let answers = |address: &[u8]| {
            let is_there = look.answers(address);
            let is_new = || look.known.is_some_and(|known| !known.contains(&link(path, &Digest::of(address))));
            if !is_there && is_new() {
                new.borrow_mut().insert(address.to_vec());
            }
            is_there
        };
        let feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
            pieces(site, &entry, &mut self.inflate, &mut |piece| !look.ends() && take(piece));
        };
        links::read(feed, |said| match said {
            Said::Base(text) => page.lie_at(&home, text),
            Said::Link(text) => {
                page.note(text);
                if page.bytes > PENDING {
                    page.look_up(&home, answers);
                }
            }
        });
        page.look_up(&home, answers);
        let (dead, new) = (page.dead, new.into_inner());
        if look.keeps && self.found.links.len() < MOST_COMPARED {
            self.found.links.extend(dead.digests.iter().map(|address| link(path, address)));
        }
        self.found.all.page(path, dead);
        self.found.new.page(path, new);
    }
}

impl Broken {
    /// Takes over what one page has said.
    fn page(&mut self, path: &[u8], dead: Dead) {
        self.pages += 1;
        self.count += dead.digests.len() as u64;
        if self.examples.len() < EXAMPLES {
            // A thread meets its pages in order, so these are among the first of all.
            self.examples.extend(dead.first.into_iter().map(|target| (path.to_vec(), target)));
        }
    }
}

impl Page {
    /// What its relative links are relative to, unless it has said so before.
    fn lie_at(&mut self, home: &Url, text: &str) {
        if self.base.is_none() && text.len() <= LONGEST {
            self.base = home.join(text).ok();
        }
    }

    /// Remembers an address without query and fragment, once.
    fn note(&mut self, text: &str) {
        let text = text.trim_matches(|c: char| c <= ' ');
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let text = &text[..end];
        if text.len() <= LONGEST && !self.pending.contains(text) && !has_scheme(text) {
            self.bytes += text.len() + size_of::<String>();
            self.pending.insert(text.to_owned());
        }
    }

    fn look_up(&mut self, home: &Url, answers: impl Fn(&[u8]) -> bool) {
        self.bytes = 0;
        let base = self.base.as_ref().unwrap_or(home);
        for text in self.pending.drain() {
            let Some(address) = target(base, home, &text) else { continue };
            if !answers(&address) {
                self.dead.insert(address);
            }
        }
    }
}

impl Dead {
    fn insert(&mut self, address: Vec<u8>) {
        if self.digests.len() < MOST {
            self.digests.insert(Digest::of(&address));
        }
        self.first.insert(address);
        if self.first.len() > EXAMPLES {
            self.first.pop_last();
        }
    }
}

/// Whether a link begins with a scheme of its own: `mailto:`, `https:`, `javascript:`, also with a line break inside.
fn has_scheme(text: &str) -> bool {
    let mut letters = text.bytes().filter(|b| !matches!(b, b'\t' | b'\n' | b'\r'));
    letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.find(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b))) == Some(b':')
}

/// The decoded path that a link without a scheme asks this site for; `None` if it leads to another.
fn target(base: &Url, home: &Url, link: &str) -> Option<Vec<u8>> {
    let url = base.join(link).ok()?;
    let ours = url.scheme() == home.scheme() && url.host_str() == home.host_str() && url.port() == home.port();
    ours.then(|| percent_decode(url.path().as_bytes()).collect())
}

/// Gives the content of a file piece by piece, until `take` has enough.
pub(super) fn pieces(site: &Sealed, entry: &Entry, inflate: &mut Inflate, take: &mut dyn FnMut(&[u8]) -> bool) {
    const PIECE: usize = 256 * 1024;
    let coded = site.coded(entry);
    if entry.coding == Coding::Stored {
        let _ = coded.chunks(PIECE).all(take);
        return;
    }
    inflate.reset();
    let mut at = 0;
    // The stream was proved when it was sealed; if the file has rotted since, the page ends here.
    while let Ok(step) = inflate.run(&coded[at..], true) {
        at += step.consumed;
        let output = inflate.output();
        let stands_still = step.consumed == 0 && output.is_empty();
        if !take(output) || step.status == Status::Done || stands_still {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sealed::made::sealed;
    use super::*;

    fn led(base: &str, link: &str) -> Option<String> {
        let home = Url::parse(&format!("{ORIGIN}/docs/guides/start.html")).unwrap();
        let mut page = Page::default();
        if !base.is_empty() {
            page.lie_at(&home, base);
        }
        page.note(link);
        let text = page.pending.drain().next()?;
        let address = target(page.base.as_ref().unwrap_or(&home), &home, &text)?;
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
        assert_eq!((under(&long(LONGEST)), under(&long(LONGEST + 1))), (LONGEST + 1, "/docs/guides/x".len()));
        assert!(led("", &long(LONGEST)).is_some() && led("", &long(LONGEST + 1)).is_none());
        assert!(led("", &format!("x?{}", long(LONGEST))).is_some(), "a query does not count");

        let home = Url::parse(&format!("{ORIGIN}/start.html")).unwrap();
        let mut page = Page::default();
        page.lie_at(&home, &long(LONGEST));
        for n in (0..MOST + 10).rev() {
            page.note(&format!("x{n:05}"));
            if page.bytes > PENDING {
                page.look_up(&home, |_| false);
            }
            assert!(page.bytes <= PENDING);
        }
        page.look_up(&home, |_| false);
        let Dead { digests, first } = page.dead;
        assert_eq!(digests.len(), MOST);
        let held: usize = first.iter().map(Vec::len).sum::<usize>() + digests.len() * size_of::<Digest>();
        assert!(held < 4 << 20, "{held}");
        let least = [long(LONGEST).as_bytes(), b"x00000"].concat();
        assert_eq!((first.len(), first.first()), (EXAMPLES, Some(&least)), "in whatever order they came");
    }

    fn found(files: &[(&str, &str)]) -> (u64, u64, Vec<String>) {
        let budget = Budget::new(u64::MAX);
        let all = broken(&sealed(files), &Addresses::default(), 1, &budget, &|| false).unwrap();
        assert!(!all.is_cut);
        (all.count, all.pages, told(&all))
    }

    fn told(broken: &Broken) -> Vec<String> {
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
        // A page that a rule takes away is not read.
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
        let (addresses, budget) = (Addresses::default(), Budget::new(u64::MAX));
        for threads in [0, 1, 3] {
            let beside = broken_beside(&after, &before, &addresses, threads, &budget, &|| false).unwrap();
            assert_eq!((beside.all.count, beside.all.pages), (4, 2));
            let new = beside.new.unwrap();
            assert_eq!(
                (new.count, told(&new)),
                (3, ["c.html /old", "index.html /new", "index.html /there"].map(str::to_owned).to_vec())
            );
            let none = broken_beside(&before, &after, &addresses, threads, &budget, &|| false).unwrap();
            assert_eq!((none.all.count, none.new.unwrap().count), (1, 0));
        }
        let spent = Budget::new(0);
        let cut = broken_beside(&after, &before, &addresses, 1, &spent, &|| false).unwrap();
        assert!(cut.all.is_cut && cut.all.count == 0 && cut.new.is_none());
        assert!(broken(&after, &addresses, 1, &spent, &|| false).unwrap().is_cut);
        assert_eq!(broken(&after, &addresses, 1, &budget, &|| true), None);
        assert_eq!(broken_beside(&after, &before, &addresses, 1, &budget, &|| true), None);
    }
}
