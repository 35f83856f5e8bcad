//! Reads all files of a site that can name resources.

use std::sync::atomic::{AtomicUsize, Ordering};

use docwharf_base::codec::inflate::Inflate;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::{file_name, is_hidden};

use crate::index::IndexEntry;
use crate::link_check::read_in_pieces;
use crate::lookup::unserved_paths::RESERVED_FOLDER;
use crate::media_types::{is_script, is_xml, media_type};
use crate::sealed_version::SealedVersion;

use super::{css, page, script, xml};

/// The number of bytes that are read of one style sheet, script, manifest or XML document.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// The number of bytes of a converted XML document that are parsed at a time.
const PARSE_CHUNK_BYTES: usize = 64 << 10;

/// The purpose for which a resource is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A script or module.
    Script,
    /// A style sheet, linked or imported.
    Style,
    /// A font.
    Font,
    /// An image, icon or background.
    Image,
    /// Audio, video or a text track.
    Media,
    /// A page in a frame.
    Frame,
    /// The content of an `object` or `embed` element.
    Object,
    /// A request of a script, such as `fetch` or a WebSocket.
    Connect,
    /// A worker: a script that runs in a thread of its own.
    Worker,
    /// A web app manifest.
    Manifest,
    /// The target of a form.
    Form,
    /// The address in a `base` element, against which relative addresses are resolved.
    Base,
    /// The target to which a page redirects its reader (`meta http-equiv=refresh`).
    Refresh,
    /// A resource hint that nothing depends on: preconnect, dns-prefetch, prefetch, prerender.
    Hint,
}

/// All kinds, in the order of their numbers in the file of the policies.
pub const RESOURCE_KINDS: [ResourceKind; 14] = [
    ResourceKind::Script,
    ResourceKind::Style,
    ResourceKind::Font,
    ResourceKind::Image,
    ResourceKind::Media,
    ResourceKind::Frame,
    ResourceKind::Object,
    ResourceKind::Connect,
    ResourceKind::Worker,
    ResourceKind::Manifest,
    ResourceKind::Form,
    ResourceKind::Base,
    ResourceKind::Refresh,
    ResourceKind::Hint,
];

impl ResourceKind {
    /// The name of the kind in output for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            ResourceKind::Script => "script",
            ResourceKind::Style => "style",
            ResourceKind::Font => "font",
            ResourceKind::Image => "image",
            ResourceKind::Media => "media",
            ResourceKind::Frame => "frame",
            ResourceKind::Object => "object",
            ResourceKind::Connect => "connect",
            ResourceKind::Worker => "worker",
            ResourceKind::Manifest => "manifest",
            ResourceKind::Form => "form",
            ResourceKind::Base => "base",
            ResourceKind::Refresh => "refresh",
            ResourceKind::Hint => "hint",
        }
    }
}

/// One fact that was found in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum ContentFact<'a> {
    /// An address that a browser fetches, as written but with character references resolved.
    Address(ResourceKind, &'a str),
    /// An inline script, with the digest that is its hash source in a policy.
    Script(Digest),
    /// An event handler attribute such as `onclick`.
    Handler(Digest),
    /// An inline style sheet.
    Style(Digest),
    /// A `style` attribute.
    StyleAttribute(Digest),
    /// The page runs a script from a file.
    Runs,
    /// A `javascript:` address with code that has an effect.
    CodeInAddress,
    /// The page may have an inline script whose exact text, and therefore its hash, is not certain.
    Unsure,
    /// The page may have an inline style whose exact text, and therefore its hash, is not certain.
    UnsureStyle,
    /// A script evaluates text as code (`eval`, `Function`).
    Evaluates,
    /// A script runs WebAssembly.
    Wasm,
    /// A script installs a service worker.
    ServiceWorker,
    /// An address in a script whose purpose is not known.
    Mention(&'a str),
    /// A nested page (`srcdoc`) begins. Its `base` element does not apply to the outer page.
    Enters,
    /// The nested page has ended.
    Leaves,
}

/// The format as which a file is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// HTML.
    Html,
    /// XML that a browser shows as a document. It may contain HTML and SVG elements.
    Xml,
    /// An SVG image. It may contain scripts and styles.
    Svg,
    /// CSS.
    Style,
    /// JavaScript.
    Script,
    /// A web app manifest.
    Manifest,
}

/// Returns the format as which a file is parsed, by the media type that it is served with. `None` for a file that is
/// not served or cannot name resources.
pub fn source_format(path: &[u8]) -> Option<SourceFormat> {
    if is_hidden(path) || path.split(|&b| b == b'/').next() == Some(RESERVED_FOLDER) {
        return None;
    }
    match media_type(path)? {
        "text/html" => Some(SourceFormat::Html),
        "image/svg+xml" => Some(SourceFormat::Svg),
        "text/css" => Some(SourceFormat::Style),
        "application/manifest+json" => Some(SourceFormat::Manifest),
        "application/json" if file_name(path) == b"manifest.json" => Some(SourceFormat::Manifest),
        other if is_xml(other) => Some(SourceFormat::Xml),
        other if is_script(other) => Some(SourceFormat::Script),
        _ => None,
    }
}

/// A receiver of facts. Each thread has its own.
pub(super) trait FactSink {
    /// Receives a fact about the current file.
    fn record(&mut self, fact: ContentFact<'_>);
    /// Ends the current file, which is number `file` of the index.
    fn end_file(&mut self, file: usize, sort: SourceFormat);
}

/// Reads all files of `site` that can name resources, with `threads` threads, each with a sink made by `make`. `stop`
/// is called before each file and between the pieces of pages and XML documents. Once it returns `true`, the result is
/// `None`.
pub(super) fn read_all<S: FactSink + Send>(
    site: &SealedVersion,
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
            if let Some(sort) = source_format(site.index().path(file)) {
                read_file(site, file, sort, &mut inflate, stop, &mut sink);
                sink.end_file(file, sort);
            }
        }
    };
    let sinks = std::thread::scope(|scope| {
        let start = || std::thread::Builder::new().name("docwharf-outside".to_owned()).spawn_scoped(scope, work);
        // If a thread cannot be started, the others read its share.
        let others: Vec<_> = (1..threads.max(1)).filter_map(|_| start().ok()).collect();
        let mut sinks = vec![work()];
        for other in others {
            sinks.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        sinks
    });
    (!stop()).then_some(sinks)
}

fn read_file(
    site: &SealedVersion,
    file: usize,
    sort: SourceFormat,
    inflate: &mut Inflate,
    stop: &(dyn Fn() -> bool + Sync),
    sink: &mut impl FactSink,
) {
    let entry = site.entry(file);
    let tell = &mut |fact: ContentFact<'_>| sink.record(fact);
    match sort {
        SourceFormat::Html => {
            let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
                read_in_pieces(site, &entry, inflate, &mut |piece| !stop() && take(piece));
            };
            page::read_page(&mut feed, tell);
        }
        SourceFormat::Xml | SourceFormat::Svg => {
            let html = xml::xml_to_html(&read_text(site, &entry, inflate), sort == SourceFormat::Svg);
            let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
                let _ = html.as_bytes().chunks(PARSE_CHUNK_BYTES).all(|piece| !stop() && take(piece));
            };
            page::read_page(&mut feed, tell);
        }
        SourceFormat::Style => css::read_css(&read_text(site, &entry, inflate), tell),
        SourceFormat::Script => script::read_script(&read_text(site, &entry, inflate), tell),
        SourceFormat::Manifest => read_manifest(&read_text(site, &entry, inflate), tell),
    }
}

/// Reads at most [`MAX_TEXT_BYTES`] bytes of a file as text.
fn read_text(site: &SealedVersion, entry: &IndexEntry, inflate: &mut Inflate) -> String {
    let mut all = Vec::new();
    read_in_pieces(site, entry, inflate, &mut |piece| {
        all.extend_from_slice(&piece[..piece.len().min(MAX_TEXT_BYTES - all.len())]);
        all.len() < MAX_TEXT_BYTES
    });
    String::from_utf8(all).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Reports the images that a web app manifest names at any level: icons, screenshots, icons of shortcuts.
fn read_manifest(text: &str, tell: &mut dyn FnMut(ContentFact<'_>)) {
    fn walk(value: &serde_json::Value, tell: &mut dyn FnMut(ContentFact<'_>)) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, tell)),
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text) if name == "src" => tell(ContentFact::Address(ResourceKind::Image, text)),
                        _ => walk(value, tell),
                    }
                }
            }
            _ => {}
        }
    }
    // The recursion is bounded: serde_json refuses more than 128 levels.
    if let Ok(value) = serde_json::from_str(text) {
        walk(&value, tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed_version::made::sealed;

    #[test]
    fn a_file_is_read_as_what_browsers_take_it_for() {
        for (path, expected) in [
            ("index.html", Some(SourceFormat::Html)),
            ("a/b.HTM", Some(SourceFormat::Html)),
            ("a.svg", Some(SourceFormat::Svg)),
            ("a.css", Some(SourceFormat::Style)),
            ("a.js", Some(SourceFormat::Script)),
            ("a.mjs", Some(SourceFormat::Script)),
            ("a.webmanifest", Some(SourceFormat::Manifest)),
            ("a/manifest.json", Some(SourceFormat::Manifest)),
            ("a.json", None),
            ("a.xml", Some(SourceFormat::Xml)),
            ("a.xhtml", Some(SourceFormat::Xml)),
            ("a.txt", None),
            ("a.png", None),
            ("LICENSE", None),
            (".git/a.html", None),
            ("a/.b.css", None),
            (".well-known/a.html", Some(SourceFormat::Html)),
            ("_docwharf/a.html", None),
            ("_docwharf.html", Some(SourceFormat::Html)),
            ("a/_docwharf/a.html", Some(SourceFormat::Html)),
        ] {
            assert_eq!(source_format(path.as_bytes()), expected, "{path}");
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
            read_manifest(text, &mut |fact| {
                let ContentFact::Address(ResourceKind::Image, text) = fact else { panic!("{fact:?}") };
                all.push(text.to_owned());
            });
            assert_eq!(all, expected, "{text}");
        }
    }

    /// Collects the addresses of each file.
    #[derive(Default)]
    struct Told {
        facts: Vec<String>,
        files: Vec<(usize, SourceFormat, String)>,
    }

    impl FactSink for Told {
        fn record(&mut self, fact: ContentFact<'_>) {
            if let ContentFact::Address(kind, text) = fact {
                self.facts.push(format!("{} {text}", kind.name()));
            }
        }

        fn end_file(&mut self, file: usize, sort: SourceFormat) {
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
            ("h.css", style(MAX_TEXT_BYTES)),
            ("i.css", style(MAX_TEXT_BYTES + 1)),
        ];
        let site = sealed(&files);
        for threads in [0, 1, 4] {
            let sinks = read_all(&site, threads, &|| false, Told::default).unwrap();
            assert_eq!(sinks.len(), threads.max(1));
            let mut all: Vec<(usize, SourceFormat, String)> = sinks.into_iter().flat_map(|sink| sink.files).collect();
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
            RESOURCE_KINDS.map(ResourceKind::name).concat(),
            "scriptstylefontimagemediaframeobjectconnectworkermanifestformbaserefreshhint"
        );
    }
}
