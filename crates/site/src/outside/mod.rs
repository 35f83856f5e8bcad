//! What a site needs from elsewhere: every page, style, script, drawing, manifest and document in XML of a sealed version
//! is read, and each address in it that a browser would fetch is told with what it is for. The content security policy
//! ([`csp`]) and `bundle audit` ([`audit`]) are made of that.
//!
//! Files may be hostile: one page costs its reader [`page::MEMORY`], of anything else the first [`TEXT`] bytes are read,
//! and what is kept of a whole site is bounded by who keeps it.

pub mod address;
pub mod audit;
mod collect;
pub mod csp;
pub mod css;
mod element;
mod encoded;
mod inline;
mod map;
pub mod page;
pub mod references;
mod script;
mod xml;

use std::sync::atomic::{AtomicUsize, Ordering};

use docwharf_base::codec::inflate::Inflate;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::{file_name, is_hidden};

use super::broken::pieces;
use super::index::Entry;
use super::lookup::RESERVED;
use super::sealed::Sealed;
use super::types::{is_script, is_xml, media_type};

/// Bytes of one style, script, manifest or document in XML that are looked through.
const TEXT: usize = 8 << 20;
/// Bytes of such a document that are read at a time.
const PIECE: usize = 64 << 10;

/// What something is fetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Scripts, modules included.
    Script,
    /// Style sheets, imported ones included.
    Style,
    /// Fonts.
    Font,
    /// Images, icons, backgrounds.
    Image,
    /// Sound, film, subtitles.
    Media,
    /// Pages within pages.
    Frame,
    /// What plugins show.
    Object,
    /// What scripts ask for.
    Connect,
    /// Scripts that run beside the page.
    Worker,
    /// The manifest of a web application.
    Manifest,
    /// Where a form is sent.
    Form,
    /// What relative addresses are relative to.
    Base,
    /// Where a page sends its reader by itself.
    Refresh,
    /// Preparations that nothing depends on: preconnect, dns-prefetch, prefetch.
    Hint,
}

/// All of them, in the order of their numbers.
pub const KINDS: [Kind; 14] = [
    Kind::Script,
    Kind::Style,
    Kind::Font,
    Kind::Image,
    Kind::Media,
    Kind::Frame,
    Kind::Object,
    Kind::Connect,
    Kind::Worker,
    Kind::Manifest,
    Kind::Form,
    Kind::Base,
    Kind::Refresh,
    Kind::Hint,
];

impl Kind {
    /// The name that people and programs see.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Script => "script",
            Kind::Style => "style",
            Kind::Font => "font",
            Kind::Image => "image",
            Kind::Media => "media",
            Kind::Frame => "frame",
            Kind::Object => "object",
            Kind::Connect => "connect",
            Kind::Worker => "worker",
            Kind::Manifest => "manifest",
            Kind::Form => "form",
            Kind::Base => "base",
            Kind::Refresh => "refresh",
            Kind::Hint => "hint",
        }
    }
}

/// Something that a file says.
#[derive(Debug, PartialEq, Eq)]
pub enum Fact<'a> {
    /// An address that is fetched, as it is written, character references taken out.
    Address(Kind, &'a str),
    /// A script that stands in the page; the digest is the one that a policy names it by.
    Script(Digest),
    /// An attribute such as `onclick`.
    Handler(Digest),
    /// A style that stands in the page.
    Style(Digest),
    /// A `style` attribute.
    StyleAttribute(Digest),
    /// A script from a file runs here.
    Runs,
    /// Code in an address (`javascript:`) that does something.
    CodeInAddress,
    /// There may be an inline script of which it cannot be told what a browser takes it for.
    Unsure,
    /// The same of a style.
    UnsureStyle,
    /// A script makes code of text (`eval`).
    Evaluates,
    /// A script runs WebAssembly.
    Wasm,
    /// A script installs a service worker.
    ServiceWorker,
    /// A script names an address, and it cannot be told what for.
    Mention(&'a str),
    /// A page within the page begins: what it says of its base is not the page's.
    Enters,
    /// That page has ended.
    Leaves,
}

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// HTML.
    Page,
    /// XML that a browser shows as a document, if it holds what pages hold.
    Document,
    /// An image that may hold what pages hold.
    Drawing,
    /// CSS.
    Style,
    /// JavaScript.
    Script,
    /// The manifest of a web application.
    Manifest,
}

/// What a served file is read as, if it is read: what browsers take it for by its media type.
pub fn sort(path: &[u8]) -> Option<Sort> {
    if is_hidden(path) || path.split(|&b| b == b'/').next() == Some(RESERVED) {
        return None;
    }
    match media_type(path)? {
        "text/html" => Some(Sort::Page),
        "image/svg+xml" => Some(Sort::Drawing),
        "text/css" => Some(Sort::Style),
        "application/manifest+json" => Some(Sort::Manifest),
        "application/json" if file_name(path) == b"manifest.json" => Some(Sort::Manifest),
        other if is_xml(other) => Some(Sort::Document),
        other if is_script(other) => Some(Sort::Script),
        _ => None,
    }
}

/// Takes what files say; each thread has its own.
pub(super) trait Sink {
    /// Something that the file at hand says.
    fn tell(&mut self, fact: Fact<'_>);
    /// The file has been read to its end.
    fn end(&mut self, file: usize, sort: Sort);
}

/// Reads all files of `site` that can name others, with so many threads. `stop` is asked before each file and within
/// long ones; once it says yes, nothing is known: `None`.
pub(super) fn read_all<S: Sink + Send>(
    site: &Sealed,
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
    make: impl Fn() -> S + Sync,
) -> Option<Vec<S>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sink = make();
        let mut inflate = Inflate::new();
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= site.index().len() || stop() {
                return sink;
            }
            if let Some(sort) = sort(site.index().path(file)) {
                read(site, file, sort, &mut inflate, stop, &mut sink);
                sink.end(file, sort);
            }
        }
    };
    let sinks = std::thread::scope(|scope| {
        let start = || std::thread::Builder::new().name("docwharf-outside".to_owned()).spawn_scoped(scope, work);
        // A thread that cannot be started leaves its share to the others.
        let others: Vec<_> = (1..threads.max(1)).filter_map(|_| start().ok()).collect();
        let mut sinks = vec![work()];
        for other in others {
            sinks.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        sinks
    });
    (!stop()).then_some(sinks)
}

fn read(
    site: &Sealed,
    file: usize,
    sort: Sort,
    inflate: &mut Inflate,
    stop: &(dyn Fn() -> bool + Sync),
    sink: &mut impl Sink,
) {
    let entry = site.entry(file);
    let tell = &mut |fact: Fact<'_>| sink.tell(fact);
    match sort {
        Sort::Page => {
            let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
                pieces(site, &entry, inflate, &mut |piece| !stop() && take(piece));
            };
            page::read(&mut feed, tell);
        }
        Sort::Document | Sort::Drawing => {
            let html = xml::as_html(&text(site, &entry, inflate), sort == Sort::Drawing);
            let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
                let _ = html.as_bytes().chunks(PIECE).all(|piece| !stop() && take(piece));
            };
            page::read(&mut feed, tell);
        }
        Sort::Style => css::read(&text(site, &entry, inflate), tell),
        Sort::Script => script::read(&text(site, &entry, inflate), tell),
        Sort::Manifest => manifest(&text(site, &entry, inflate), tell),
    }
}

/// The beginning of a file as text.
fn text(site: &Sealed, entry: &Entry, inflate: &mut Inflate) -> String {
    let mut all = Vec::new();
    pieces(site, entry, inflate, &mut |piece| {
        all.extend_from_slice(&piece[..piece.len().min(TEXT - all.len())]);
        all.len() < TEXT
    });
    String::from_utf8(all).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The pictures that a manifest names, on whatever level: icons, screenshots, those of shortcuts.
fn manifest(text: &str, tell: &mut dyn FnMut(Fact<'_>)) {
    fn walk(value: &serde_json::Value, tell: &mut dyn FnMut(Fact<'_>)) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, tell)),
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text) if name == "src" => tell(Fact::Address(Kind::Image, text)),
                        _ => walk(value, tell),
                    }
                }
            }
            _ => {}
        }
    }
    // serde_json ends at 128 levels by itself.
    if let Ok(value) = serde_json::from_str(text) {
        walk(&value, tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::made::sealed;

    #[test]
    fn a_file_is_read_as_what_browsers_take_it_for() {
        for (path, expected) in [
            ("index.html", Some(Sort::Page)),
            ("a/b.HTM", Some(Sort::Page)),
            ("a.svg", Some(Sort::Drawing)),
            ("a.css", Some(Sort::Style)),
            ("a.js", Some(Sort::Script)),
            ("a.mjs", Some(Sort::Script)),
            ("a.webmanifest", Some(Sort::Manifest)),
            ("a/manifest.json", Some(Sort::Manifest)),
            ("a.json", None),
            ("a.xml", Some(Sort::Document)),
            ("a.xhtml", Some(Sort::Document)),
            ("a.txt", None),
            ("a.png", None),
            ("LICENSE", None),
            (".git/a.html", None),
            ("a/.b.css", None),
            (".well-known/a.html", Some(Sort::Page)),
            ("_docwharf/a.html", None),
            ("_docwharf.html", Some(Sort::Page)),
            ("a/_docwharf/a.html", Some(Sort::Page)),
        ] {
            assert_eq!(sort(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn a_manifest_names_its_pictures_on_any_level() {
        for (text, expected) in [
            (r#"{"icons": [{"src": "a"}, {"src": "b", "sizes": "c"}], "start_url": "no"}"#, &["a", "b"][..]),
            (r#"{"shortcuts": [{"icons": [{"src": "a"}]}], "src": {"src": "b"}}"#, &["a", "b"]),
            (r#"[[{"src": "a"}]]"#, &["a"]),
            (r#"{"src": 7, "icons": "no"}"#, &[]),
            (r#"{"icons": [{"src": "a"}"#, &[]),
        ] {
            let mut all = Vec::new();
            manifest(text, &mut |fact| {
                let Fact::Address(Kind::Image, text) = fact else { panic!("{fact:?}") };
                all.push(text.to_owned());
            });
            assert_eq!(all, expected, "{text}");
        }
    }

    /// Takes what is told, file by file.
    #[derive(Default)]
    struct Told {
        facts: Vec<String>,
        files: Vec<(usize, Sort, String)>,
    }

    impl Sink for Told {
        fn tell(&mut self, fact: Fact<'_>) {
            if let Fact::Address(kind, text) = fact {
                self.facts.push(format!("{} {text}", kind.name()));
            }
        }

        fn end(&mut self, file: usize, sort: Sort) {
            self.files.push((file, sort, std::mem::take(&mut self.facts).concat()));
        }
    }

    #[test]
    fn every_file_is_read_once_as_what_it_is_up_to_a_bound() {
        let style = |len: usize| format!("{}@import 'xy';", " ".repeat(len - "@import 'xy".len()));
        let files = [
            ("a.html", "<img src=1>".to_owned()),
            ("b.svg", "<svg><image href='2'/></svg>".to_owned()),
            ("c.xml", "<s:image xmlns:s='http://www.w3.org/2000/svg' href='3'/><image href='no'/>".to_owned()),
            ("d.css", "a { x: url(4) }".to_owned()),
            ("e.js", "fetch('//5.example')".to_owned()),
            ("f.webmanifest", "{\"src\": \"6\"}".to_owned()),
            ("g.txt", "<img src=no>".to_owned()),
            ("h.css", style(TEXT)),
            ("i.css", style(TEXT + 1)),
        ];
        let site = sealed(&files);
        for threads in [0, 1, 4] {
            let sinks = read_all(&site, threads, &|| false, Told::default).unwrap();
            assert_eq!(sinks.len(), threads.max(1));
            let mut all: Vec<(usize, Sort, String)> = sinks.into_iter().flat_map(|sink| sink.files).collect();
            all.sort_unstable_by_key(|(file, ..)| *file);
            let told: Vec<(usize, &str)> = all.iter().map(|(file, _, text)| (*file, text.as_str())).collect();
            let expected = [
                (0, "image 1"),
                (1, "image 2"),
                (2, "image 3"),
                (3, "image 4"),
                (4, "connect //5.example"),
                (5, "image 6"),
            ];
            assert_eq!(told[..6], expected);
            assert_eq!(told[6..], [(7, "style xy"), (8, "style x")]);
        }
        assert!(read_all(&site, 2, &|| true, Told::default).is_none());
        assert_eq!(
            KINDS.map(Kind::name).concat(),
            "scriptstylefontimagemediaframeobjectconnectworkermanifestformbaserefreshhint"
        );
    }
}
