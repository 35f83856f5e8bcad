//! Links that lead nowhere: every page of a sealed version is read, and each internal link and asset in it is looked up
//! as the server would.
//!
//! **The number** counts, for each page, the distinct addresses of this site that it points at and that are answered with
//! 404. The same dead link twice on a page is one, on two pages two. Query and fragment do not count. Not judged are
//! links to other origins (also to the site's own, spelt with a host), `mailto:` and the like, and the targets of forms.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use url::Url;

use crate::codec::inflate::{Inflate, Status};
use crate::model::digest::Digest;
use crate::model::site_path::is_page;

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

/// Reads all pages of `site`, with so many threads. `stop` is asked before each page and each look-up; once it says yes,
/// nothing is known: `None`. A bundle can bring rules and links without number, so what is compared is bounded by `budget`.
pub fn broken(
    site: &Sealed,
    addresses: &Addresses,
    threads: usize,
    budget: &Budget,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Broken> {
    let index = site.index();
    let slashes = addresses.slashes.unwrap_or(site.auto_slashes);
    let look = Look { site, addresses, slashes, budget, stop };
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Broken::default());
    let work = || {
        let (inflate, found) = (Inflate::new(), Broken::default());
        let mut reader = Reader { look, inflate, found };
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= index.len() || look.ends() {
                break;
            }
            reader.page(file);
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.count += reader.found.count;
        total.pages += reader.found.pages;
        total.examples.append(&mut reader.found.examples);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            // A thread that cannot be started leaves its share to the others.
            let _ = std::thread::Builder::new().name("docwharf-links".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    if stop() {
        return None;
    }
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Whichever threads found them: the same site gives the same examples.
    total.examples.sort();
    total.examples.truncate(EXAMPLES);
    total.is_cut = budget.is_spent();
    Some(total)
}

/// What addresses are looked up with.
#[derive(Clone, Copy)]
struct Look<'a> {
    site: &'a Sealed,
    addresses: &'a Addresses,
    slashes: Slashes,
    budget: &'a Budget,
    stop: &'a (dyn Fn() -> bool + Sync),
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
    found: Broken,
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
        let mut page = Page::default();
        let feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
            pieces(site, &entry, &mut self.inflate, &mut |piece| !look.ends() && take(piece));
        };
        links::read(feed, |said| match said {
            Said::Base(text) => page.lie_at(&home, text),
            Said::Link(text) => {
                page.note(text);
                if page.bytes > PENDING {
                    page.look_up(&home, |address| look.answers(address));
                }
            }
        });
        page.look_up(&home, |address| look.answers(address));
        self.found.pages += 1;
        self.found.count += page.dead.digests.len() as u64;
        if self.found.examples.len() < EXAMPLES {
            // A thread meets its pages in order, so these are among the first of all.
            self.found.examples.extend(page.dead.first.into_iter().map(|target| (path.to_vec(), target)));
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
}
