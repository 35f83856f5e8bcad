//! Links that lead nowhere: every page of a sealed version is read, and each internal link and asset in it is looked up
//! as the server would.
//!
//! **The number** counts, for each page, the distinct addresses of this site that it points at and that are answered with
//! 404. The same dead link twice on a page is one, on two pages two. Query and fragment do not count. Not judged are
//! links to other origins (also to the site's own, spelt with a host), `mailto:` and the like, and the targets of forms.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use url::Url;

use crate::codec::inflate::{Inflate, Status};
use crate::model::site_path::is_page;

use super::index::{Coding, Entry};
use super::links::{self, Said};
use super::lookup::{Addresses, Slashes, answers};
use super::sealed::Sealed;

/// Addresses on one page that are kept apart until they are looked up, in bytes.
const PENDING: usize = 1 << 20;
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
}

/// Reads all pages of `site`, with so many threads.
pub fn broken(site: &Sealed, addresses: &Addresses, threads: usize) -> Broken {
    let index = site.index();
    let slashes = addresses.slashes.unwrap_or(site.auto_slashes);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Broken::default());
    let work = || {
        let mut reader = Reader { site, addresses, slashes, inflate: Inflate::new(), found: Broken::default() };
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= index.len() {
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
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Whichever threads found them: the same site gives the same examples.
    total.examples.sort();
    total.examples.truncate(EXAMPLES);
    total
}

/// One thread's part.
struct Reader<'a> {
    site: &'a Sealed,
    addresses: &'a Addresses,
    slashes: Slashes,
    inflate: Inflate,
    found: Broken,
}

/// What one page has said so far.
#[derive(Default)]
struct Page {
    base: Option<Url>,
    pending: HashSet<String>,
    bytes: usize,
    dead: HashSet<Vec<u8>>,
}

impl Reader<'_> {
    fn page(&mut self, file: usize) {
        let path = self.site.index().path(file);
        let address = [self.addresses.base_path.as_bytes(), path].concat();
        if !is_page(path) || !self.answers(&address) {
            return;
        }
        // The page's own path: whatever `slashes` says, the addresses at which it is meant to be read are in this folder.
        let Ok(home) = Url::parse(&format!("{ORIGIN}{}", percent_encode(&address, IN_URL))) else { return };
        let entry = self.site.entry(file);
        let (site, addresses, slashes) = (self.site, self.addresses, self.slashes);
        let mut page = Page::default();
        let feed = |take: &mut dyn FnMut(&[u8]) -> bool| pieces(site, &entry, &mut self.inflate, take);
        links::read(feed, |said| match said {
            Said::Base(text) => {
                if page.base.is_none() {
                    page.base = home.join(text).ok();
                }
            }
            Said::Link(text) => {
                page.note(text);
                if page.bytes > PENDING {
                    page.look_up(&home, |address| answers(site, addresses, slashes, address));
                }
            }
        });
        page.look_up(&home, |address| answers(site, addresses, slashes, address));
        self.found.pages += 1;
        self.found.count += page.dead.len() as u64;
        let mut dead: Vec<Vec<u8>> = page.dead.into_iter().collect();
        if !dead.is_empty() && self.found.examples.len() < EXAMPLES {
            // A thread meets its pages in order, so these are among the first of all.
            dead.sort();
            self.found.examples.extend(dead.into_iter().take(EXAMPLES).map(|target| (path.to_vec(), target)));
        }
    }

    fn answers(&self, address: &[u8]) -> bool {
        answers(self.site, self.addresses, self.slashes, address)
    }
}

impl Page {
    /// Remembers an address without query and fragment, once.
    fn note(&mut self, text: &str) {
        let text = text.trim_matches(|c: char| c <= ' ');
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let text = &text[..end];
        if !self.pending.contains(text) && !has_scheme(text) {
            self.bytes += text.len() + size_of::<String>();
            self.pending.insert(text.to_owned());
        }
    }

    fn look_up(&mut self, home: &Url, answers: impl Fn(&[u8]) -> bool) {
        self.bytes = 0;
        let base = self.base.as_ref().unwrap_or(home);
        for text in self.pending.drain() {
            let Some(address) = target(base, home, &text) else { continue };
            if !answers(&address) && self.dead.len() < MOST {
                self.dead.insert(address);
            }
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
fn pieces(site: &Sealed, entry: &Entry, inflate: &mut Inflate, take: &mut dyn FnMut(&[u8]) -> bool) {
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
        let mut page = Page { base: (!base.is_empty()).then(|| home.join(base).unwrap()), ..Page::default() };
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
}
