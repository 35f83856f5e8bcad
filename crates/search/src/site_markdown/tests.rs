//! Files that are built from small versions and opened.

use docwharf_base::codec::gzip::{GZIP_HEADER, GZIP_TRAILER_BYTES, encode_trailer};
use docwharf_base::codec::inflate::inflate_all;
use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Digest;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::rules::pattern::{Pattern, PatternDialect};
use docwharf_site::sealed_version::SealedVersion;

use super::*;
use crate::index::test_sites::seal_site;
use crate::index::{BuildProgress, BuildSettings};

const PAGES: [(&str, &str); 10] = [
    ("404.html", "<title>Missing</title>"),
    ("_headers", "/closed/*\n X-Robots-Tag: nofollow, noindex\n"),
    ("b.html", "<title>B</title><meta name=description content=About><h1>B</h1><a href=guide/>g</a>"),
    ("closed/index.html", "<title>Closed</title><p>closed text"),
    ("guide/index.html", "<title>Guide</title><h1>G</h1><a href=a.html>a</a>"),
    ("guide/own.html", "<title>Own</title><p>o"),
    ("guide/own.md", "own"),
    ("hidden.html", "<meta name=robots content=noindex><title>H</title>hidden text"),
    ("index.html", "<title>Docs</title><p>start"),
    ("private.html", "<title>P</title><p>private text"),
];

fn settings() -> BuildSettings {
    BuildSettings {
        addresses: AddressSettings { base_path: "/docs/".to_owned(), ..AddressSettings::default() },
        exclude: vec![Pattern::parse("/private.html", PatternDialect::DocsJson).unwrap()],
        digest: Digest::compute(b"settings"),
        threads: 3,
        ..BuildSettings::default()
    }
}

fn build(version: &SealedVersion) -> (tempfile::TempDir, MarkdownReport) {
    build_with(version, &settings())
}

fn build_with(version: &SealedVersion, settings: &BuildSettings) -> (tempfile::TempDir, MarkdownReport) {
    let folder = tempfile::tempdir().unwrap();
    let target = Directory::open(folder.path()).unwrap();
    let report = build_site_markdown(version, settings, &target, &BuildProgress::default()).unwrap();
    (folder, report)
}

fn open(folder: &tempfile::TempDir, version: &SealedVersion) -> Result<SiteMarkdown, SiteMarkdownError> {
    SiteMarkdown::open(&Directory::open(folder.path()).unwrap(), version.id)
}

#[test]
fn every_page_has_its_markdown_in_the_file() {
    let version = seal_site(&PAGES);
    let (folder, report) = build(&version);
    let site = open(&folder, &version).unwrap();
    assert_eq!((report.pages, u64::from(site.pages()), report.listed, report.bytes), (8, 8, 4, site.bytes()));
    assert_eq!((site.version(), site.settings()), (version.id, settings().digest));
    for file in 0..version.index().len() {
        let is_page = version.index().path(file).ends_with(b".html");
        let expected = if is_page { render_file(&version, file, "/docs/") } else { None };
        assert_eq!(site.find(file), expected, "{file}");
        assert_eq!(expected.is_some(), is_page);
    }
    assert_eq!(site.find(usize::MAX), None);
    let guide = version.index().find(b"guide/index.html").unwrap();
    assert_eq!(site.find(guide).unwrap().text, "# G\n\n[a](/docs/guide/a.html)\n");
}

#[test]
fn build_ends_before_the_write_or_the_page_that_its_caller_does_not_permit() {
    let version = seal_site(&PAGES);
    let (_folder, report) = build(&version);
    // Whether it is built, and the size of the file, if this is called with the size and the number of the call.
    let build_within = |may_continue: MayContinue<'_>| {
        let folder = tempfile::tempdir().unwrap();
        let target = Directory::open(folder.path()).unwrap();
        let settings = BuildSettings { threads: 1, ..settings() };
        let built = build_site_markdown_within(&version, &settings, &target, &BuildProgress::default(), may_continue);
        (built.map_err(|error| error.kind()).map(|_| ()), folder.path().join(FILE_NAME).metadata().unwrap().len())
    };
    let within = |max_bytes: u64| {
        build_within(&|bytes| if bytes > max_bytes { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) })
    };
    assert_eq!(within(report.bytes), (Ok(()), report.bytes));
    for max_bytes in [0, 1, report.bytes / 2, report.bytes - 1] {
        let (built, bytes) = within(max_bytes);
        assert_eq!(built, Err(std::io::ErrorKind::StorageFull), "{max_bytes}");
        assert!(bytes <= max_bytes, "{bytes} of {max_bytes}");
    }
    // A page is not read after the caller wants no more, however many there are.
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let stopped = build_within(&|_| {
        calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Err(std::io::ErrorKind::Interrupted.into())
    });
    assert_eq!((stopped, calls.into_inner()), ((Err(std::io::ErrorKind::Interrupted), 0), 1));
}

#[test]
fn lists_leave_out_pages_that_ask_for_it_and_name_the_markdown_of_the_site_itself() {
    let version = seal_site(&PAGES);
    let (folder, _) = build(&version);
    let site = open(&folder, &version).unwrap();
    let index = "# Docs\n\n## Pages\n\n- [B](/docs/b.md): About\n- [Docs](/docs/index.md)\n\n\
                 ## guide\n\n- [Guide](/docs/guide/index.md)\n- [Own](/docs/guide/own.md)\n";
    assert_eq!(site.llms(LlmsText::Index), index);
    for text in [LlmsText::Index, LlmsText::Full] {
        let (plain, coded) = (site.llms(text), site.llms_gzip(text));
        let inner = &coded[GZIP_HEADER.len()..coded.len() - GZIP_TRAILER_BYTES];
        assert_eq!(inflate_all(inner, plain.len()).unwrap(), plain, "{text:?}");
        assert_eq!(coded[..GZIP_HEADER.len()], GZIP_HEADER);
        let trailer = encode_trailer(crc32fast::hash(&plain), plain.len() as u64);
        assert!(coded.ends_with(&trailer), "{text:?}");
    }
    let full = String::from_utf8(site.llms(LlmsText::Full).to_vec()).unwrap();
    assert!(full.contains("Page: [B](/docs/b.md)\n\n# B\n\n[g](/docs/guide/)\n"), "{full}");
    for left_out in ["hidden text", "private text", "closed text"] {
        assert!(!full.contains(left_out), "{full}");
    }
    let sitemap = "<urlset><loc>https://x/guide/own.html</loc><loc>https://x/index.html</loc></urlset>";
    let version = seal_site(&[&PAGES[..], &[("sitemap.xml", sitemap)]].concat());
    let (folder, _) = build(&version);
    let text = open(&folder, &version).unwrap().llms(LlmsText::Index);
    let text = String::from_utf8(text.to_vec()).unwrap();
    let order: Vec<usize> = ["[Own]", "[Guide]", "[Docs]", "[B]"].map(|title| text.find(title).unwrap()).to_vec();
    assert!(order.is_sorted(), "{text}");
}

#[test]
fn lists_lead_to_the_pages_themselves_while_there_is_no_markdown() {
    let version = seal_site(&PAGES);
    let (folder, _) = build_with(&version, &BuildSettings { links_to_markdown: false, ..settings() });
    let site = open(&folder, &version).unwrap();
    let index = "# Docs\n\n## Pages\n\n- [B](/docs/b.html): About\n- [Docs](/docs/)\n\n\
                 ## guide\n\n- [Guide](/docs/guide/)\n- [Own](/docs/guide/own.html)\n";
    assert_eq!(site.llms(LlmsText::Index), index);
    let full = String::from_utf8(site.llms(LlmsText::Full).to_vec()).unwrap();
    assert!(full.contains("Page: [B](/docs/b.html)\n") && !full.contains(".md)"), "{full}");
}

#[test]
fn file_that_is_damaged_cut_or_of_another_version_is_not_opened() {
    let version = seal_site(&PAGES);
    let (folder, _) = build(&version);
    let path = folder.path().join(FILE_NAME);
    let bytes = std::fs::read(&path).unwrap();
    for index in (0..bytes.len()).step_by(37) {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert!(matches!(open(&folder, &version), Err(SiteMarkdownError::Damaged)), "{index}");
    }
    for len in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        assert!(matches!(open(&folder, &version), Err(SiteMarkdownError::Damaged)), "{len}");
    }
    std::fs::write(&path, &bytes).unwrap();
    assert!(open(&folder, &version).is_ok());
    assert!(matches!(open(&folder, &seal_site(&PAGES[1..])), Err(SiteMarkdownError::OtherVersion(_))));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(open(&folder, &version), Err(SiteMarkdownError::Read(_))));
}

#[test]
fn markdown_of_a_page_is_beside_it() {
    for (path, expected) in [("a.html", "a.md"), ("a/index.html", "a/index.md"), ("a.htm", "a.htm.md")] {
        assert_eq!(markdown_path(path.as_bytes()), expected.as_bytes());
    }
    for (path, expected) in [("index.html", ""), ("a/index.html", "a/"), ("a b.html", "a%20b.html")] {
        assert_eq!(page_url(path.as_bytes()), expected);
    }
    assert_eq!(page_url(b"myindex.html"), "myindex.html");
}
