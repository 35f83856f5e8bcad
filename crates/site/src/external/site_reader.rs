//! Reads all files of a site that can name resources.

use std::sync::atomic::{AtomicUsize, Ordering};

use docwharf_base::codec::inflate::Inflater;

use crate::index::IndexEntry;
use crate::sealed_version::SealedVersion;

use super::content_fact::{ContentFact, FactSink};
use super::source_format::{SourceFormat, detect_source_format};
use super::{css, manifest, page, script, xml};

/// The number of bytes that are read of one style sheet, script, manifest or XML document.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// The number of bytes of a converted XML document that are parsed at a time.
const PARSE_CHUNK_BYTES: usize = 64 << 10;

/// Reads all files of `version` that can name resources, with `threads` threads, each with a sink from `create_sink`.
/// `stop` is called before each file and between the pieces of pages and XML documents. After it has returned `true`,
/// the result is `None`.
pub(super) fn read_site_files<S: FactSink + Send>(
    version: &SealedVersion,
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
    create_sink: impl Fn() -> S + Sync,
) -> Option<Vec<S>> {
    let next = AtomicUsize::new(0);
    let run_worker = || {
        let mut sink = create_sink();
        let mut inflate = Inflater::new();
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= version.index().len() || stop() {
                return sink;
            }
            if let Some(format) = detect_source_format(version.index().path(file)) {
                read_file(version, file, format, &mut inflate, stop, &mut sink);
                sink.end_file(file, format);
            }
        }
    };
    let sinks = std::thread::scope(|scope| {
        let start = || std::thread::Builder::new().name("docwharf-facts".to_owned()).spawn_scoped(scope, run_worker);
        // If a thread cannot be started, the others read its share.
        let others: Vec<_> = (1..threads.max(1)).filter_map(|_| start().ok()).collect();
        let mut sinks = vec![run_worker()];
        for other in others {
            sinks.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        sinks
    });
    (!stop()).then_some(sinks)
}

fn read_file(
    version: &SealedVersion,
    file: usize,
    format: SourceFormat,
    inflate: &mut Inflater,
    stop: &(dyn Fn() -> bool + Sync),
    sink: &mut impl FactSink,
) {
    let entry = version.entry(file);
    let report = &mut |fact: ContentFact<'_>| sink.record(fact);
    match format {
        SourceFormat::Html => {
            let mut feed = |receive: &mut dyn FnMut(&[u8]) -> bool| {
                version.read_in_pieces(&entry, inflate, &mut |piece| !stop() && receive(piece));
            };
            page::read_page(&mut feed, report);
        }
        SourceFormat::Xml | SourceFormat::Svg => {
            let html = xml::xml_to_html(&read_text(version, &entry, inflate), format == SourceFormat::Svg);
            let mut feed = |receive: &mut dyn FnMut(&[u8]) -> bool| {
                let _ = html.as_bytes().chunks(PARSE_CHUNK_BYTES).all(|piece| !stop() && receive(piece));
            };
            page::read_page(&mut feed, report);
        }
        SourceFormat::Style => css::read_css(&read_text(version, &entry, inflate), report),
        SourceFormat::Script => script::read_script(&read_text(version, &entry, inflate), report),
        SourceFormat::Manifest => manifest::read_manifest(&read_text(version, &entry, inflate), report),
    }
}

/// Reads at most [`MAX_TEXT_BYTES`] bytes of a file as text.
fn read_text(version: &SealedVersion, entry: &IndexEntry, inflate: &mut Inflater) -> String {
    let mut bytes = Vec::new();
    version.read_in_pieces(entry, inflate, &mut |piece| {
        bytes.extend_from_slice(&piece[..piece.len().min(MAX_TEXT_BYTES - bytes.len())]);
        bytes.len() < MAX_TEXT_BYTES
    });
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::content_fact::{RESOURCE_KINDS, ResourceKind};
    use super::*;
    use crate::sealed_version::test_versions::version_with_files;

    /// Collects the addresses of each file.
    #[derive(Default)]
    struct AddressRecorder {
        facts: Vec<String>,
        files: Vec<(usize, SourceFormat, String)>,
    }

    impl FactSink for AddressRecorder {
        fn record(&mut self, fact: ContentFact<'_>) {
            if let ContentFact::Address(kind, text) = fact {
                self.facts.push(format!("{} {text}", kind.name()));
            }
        }

        fn end_file(&mut self, file: usize, format: SourceFormat) {
            self.files.push((file, format, std::mem::take(&mut self.facts).concat()));
        }
    }

    #[test]
    fn each_site_file_is_read_once_in_its_format_up_to_a_size_limit() {
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
        let site = version_with_files(&files);
        for threads in [0, 1, 4] {
            let sinks = read_site_files(&site, threads, &|| false, AddressRecorder::default).unwrap();
            assert_eq!(sinks.len(), threads.max(1));
            let mut files: Vec<(usize, SourceFormat, String)> = sinks.into_iter().flat_map(|sink| sink.files).collect();
            files.sort_unstable_by_key(|(file, ..)| *file);
            let addresses: Vec<(usize, &str)> = files.iter().map(|(file, _, text)| (*file, text.as_str())).collect();
            let expected = [
                (0, "image 1"),
                (1, "image 2"),
                (2, "image 3"),
                (3, "image 4"),
                (4, "connect //5.example"),
                (5, "image 6"),
            ];
            assert_eq!(addresses[..6], expected);
            assert_eq!(addresses[6..], [(7, "style xy"), (8, "style x")]);
        }
        assert!(read_site_files(&site, 2, &|| true, AddressRecorder::default).is_none());
        assert_eq!(
            RESOURCE_KINDS.map(ResourceKind::name).concat(),
            "scriptstylefontimagemediaframeobjectconnectworkermanifestformbaserefreshhint"
        );
    }
}
