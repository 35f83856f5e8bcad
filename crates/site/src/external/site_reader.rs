//! Reads all files of a site that can name resources.

use std::sync::atomic::{AtomicUsize, Ordering};

use docwharf_base::codec::inflate::Inflate;

use crate::index::IndexEntry;
use crate::link_check::read_in_pieces;
use crate::sealed_version::SealedVersion;

use super::content_fact::{ContentFact, FactSink};
use super::source_format::{SourceFormat, source_format};
use super::{css, manifest, page, script, xml};

/// The number of bytes that are read of one style sheet, script, manifest or XML document.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// The number of bytes of a converted XML document that are parsed at a time.
const PARSE_CHUNK_BYTES: usize = 64 << 10;

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
        SourceFormat::Manifest => manifest::read_manifest(&read_text(site, &entry, inflate), tell),
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

#[cfg(test)]
mod tests {
    use super::super::content_fact::{RESOURCE_KINDS, ResourceKind};
    use super::*;
    use crate::sealed_version::made::sealed;

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
