//! Tests of building and opening whole indexes.

use std::collections::BTreeSet;
use std::fs;

use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::rules::pattern::{Pattern, PatternDialect};
use docwharf_site::rules::{RuleDraft, RuleSet, netlify_files};

use super::header::{HEADER_FILE, IndexHeader, PAGES_FILE};
use super::test_sites::{TestIndex, build_index, page, seal_site};
use super::*;
use crate::analyze::ANALYZER_NUMBER;

fn build_site(files: &[(&str, &str)]) -> TestIndex {
    build_index(&seal_site(files), &BuildSettings::default())
}

/// The paths of the pages that have sections.
fn indexed_pages(test: &TestIndex) -> BTreeSet<String> {
    let sections = test.index.segment.as_ref().map_or(&[][..], |segment| &segment.page_of_section);
    sections.iter().map(|page| test.index.page_table.record(*page).path.to_owned()).collect()
}

fn expect_pages(test: &TestIndex, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&path| path.to_owned()).collect();
    assert_eq!(indexed_pages(test), expected);
    assert_eq!(test.report.pages, expected.len() as u64);
}

#[test]
fn an_index_has_a_section_for_each_heading_and_definition() {
    let html = page(
        "Guide",
        "<h1 id=top>Guide</h1><p>Start</p><h2 id=one>One</h2><p>text</p><dl><dt id=x.y>x.y</dt><dd>value</dd></dl>",
    );
    let test = build_site(&[("index.html", &html), ("a.html", &page("A", "<p>only text</p>"))]);
    expect_pages(&test, &["a.html", "index.html"]);
    assert_eq!((test.report.sections, test.index.sections(), test.index.pages()), (4, 4, 2));
    assert_eq!(test.report.left_out, LeftOutPages::default());
    assert_eq!(test.report.bytes, test.index.bytes());
    let size: u64 =
        fs::read_dir(test.folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(size, test.report.bytes, "nothing else is left in the folder");
}

#[test]
fn pages_that_ask_for_it_errors_and_stubs_are_left_out() {
    let no_index = "<html><head><meta name=robots content=noindex></head><body><main><p>a</p></main></body></html>";
    let refresh = "<html><head><meta http-equiv=refresh content='0; url=a.html'></head><body><p>b</p></body></html>";
    let test = build_site(&[
        ("404.html", &page("404", "<p>not found</p>")),
        ("a.html", &page("A", "<p>text</p>")),
        ("hidden.html", no_index),
        ("old.html", refresh),
        ("script.js", "text"),
    ]);
    expect_pages(&test, &["a.html"]);
    let expected = LeftOutPages { no_index: 1, refresh: 1, not_found_page: 1, ..LeftOutPages::default() };
    assert_eq!(test.report.left_out, expected);
    let page = test.index.find_page("a.html");
    assert_eq!(page, Some(IndexedPage { address: "a.html", title: "A" }));
    for left_out in ["404.html", "hidden.html", "old.html", "script.js", "none.html", ""] {
        assert_eq!(test.index.find_page(left_out), None, "{left_out}");
    }
}

#[test]
fn redirected_and_excluded_pages_are_left_out() {
    let version = seal_site(&[
        ("a.html", page("A", "<p>one</p>")),
        ("b.html", page("B", "<p>two</p>")),
        ("internal/c.html", page("C", "<p>three</p>")),
    ]);
    let mut draft = RuleDraft::default();
    netlify_files::read_redirects("/b* /a 301!\n", "rules", &mut draft);
    let rules = std::sync::Arc::new(RuleSet::new(draft));
    let settings = BuildSettings {
        addresses: AddressSettings { rules, base_path: "/docs/".to_owned(), ..AddressSettings::default() },
        exclude: vec![Pattern::parse("/internal/:rest*", PatternDialect::DocsJson).unwrap()],
        ..BuildSettings::default()
    };
    let test = build_index(&version, &settings);
    expect_pages(&test, &["a.html"]);
    assert_eq!(test.report.left_out, LeftOutPages { not_served: 1, excluded: 1, ..LeftOutPages::default() });
}

#[test]
fn of_pages_with_the_same_text_the_canonical_one_is_kept_else_that_in_the_sitemap_else_the_first() {
    let html =
        |head: &str, text: &str| format!("<html><head>{head}</head><body><main><p>{text}</p></main></body></html>");
    let canonical = "<link rel=canonical href=https://x.example/docs/b.html>";
    let sitemap = "<urlset><url><loc>https://x.example/docs/d.html</loc></url></urlset>";
    let test = build_site(&[
        ("a.html", &html(canonical, "first text")),
        ("b.html", &html("<title>Other title</title>", "first text")),
        ("c.html", &html("", "second text")),
        ("d.html", &html("", "second text")),
        ("e.html", &html("", "third text")),
        ("f.html", &html("", "third text")),
        ("g.html", &html("", "fourth text")),
        ("sitemap.xml", sitemap),
    ]);
    expect_pages(&test, &["b.html", "d.html", "e.html", "g.html"]);
    assert_eq!((test.report.left_out.repeated, test.report.sections, test.index.sections()), (3, 4, 4));
}

#[test]
fn a_site_without_text_has_an_index_without_results() {
    let test = build_site(&[("404.html", "<p>x</p>")]);
    assert_eq!((test.report.pages, test.report.sections, test.index.pages()), (0, 0, 0));
    assert!(test.index.segment.is_none());
    let synonyms = crate::analyze::SynonymTable::default();
    let request = crate::query::SearchRequest::new("x", &synonyms);
    assert_eq!(test.index.search(&request, &|_| true).unwrap(), crate::query::SearchOutcome::default());
}

fn open_in(folder: &std::path::Path, version: VersionId) -> Result<SearchIndex, OpenError> {
    SearchIndex::open(&Directory::open(folder).unwrap(), version)
}

#[test]
fn damage_of_each_file_is_found_when_the_index_is_opened() {
    let version = seal_site(&[("a.html", page("A", "<h1 id=a>A</h1><p>text</p>"))]);
    let test = build_index(&version, &BuildSettings::default());
    let files: Vec<_> = fs::read_dir(test.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 9, "{files:?}");
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let content = fs::read(&path).unwrap();
        let open = || open_in(test.folder.path(), version.id);
        let mut damaged = content.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x40;
        for bytes in [&damaged[..], &content[..content.len() - 1], &[&content[..], b"x"].concat()] {
            // Another file: the old one is still mapped.
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
            assert!(matches!(open(), Err(OpenError::Damaged { file }) if file == name), "{name}");
        }
        fs::remove_file(&path).unwrap();
        match open() {
            Err(OpenError::Absent { .. }) => assert_eq!(name, HEADER_FILE),
            Err(OpenError::Damaged { file }) => assert_eq!(file, name),
            other => panic!("{name}: {other:?}"),
        }
        fs::write(&path, content).unwrap();
        open().unwrap();
    }
}

#[test]
fn an_index_of_another_version_or_number_is_distinguished_from_a_damaged_one() {
    let version = seal_site(&[("a.html", page("A", "<p>text</p>"))]);
    let test = build_index(&version, &BuildSettings::default());
    let other = VersionId(Digest::compute(b"other"));
    assert!(matches!(
        open_in(test.folder.path(), other),
        Err(OpenError::OtherVersion { version: found }) if found == version.id
    ));
    let path = test.folder.path().join(HEADER_FILE);
    let header = IndexHeader::decode(&fs::read(&path).unwrap()).unwrap();
    for (format, analyzer) in [(FORMAT_NUMBER + 1, ANALYZER_NUMBER), (FORMAT_NUMBER, ANALYZER_NUMBER + 1)] {
        fs::write(&path, IndexHeader { format, analyzer, ..header.clone() }.encode().unwrap()).unwrap();
        assert!(matches!(
            open_in(test.folder.path(), version.id),
            Err(OpenError::OtherFormat { format: f, analyzer: a }) if (f, a) == (format, analyzer)
        ));
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(open_in(empty.path(), version.id), Err(OpenError::Absent { .. })));
}

#[test]
fn an_open_index_can_be_deleted() {
    let version = seal_site(&[("a.html", page("A", "<p>needle</p>"))]);
    let TestIndex { index, folder, .. } = build_index(&version, &BuildSettings::default());
    folder.close().unwrap();
    let synonyms = crate::analyze::SynonymTable::default();
    let request = crate::query::SearchRequest::new("needle", &synonyms);
    assert_eq!(index.search(&request, &|_| true).unwrap().total, 1);
}

#[test]
fn an_index_is_only_built_in_an_empty_folder() {
    let version = seal_site(&[("a.html", page("A", "<p>text</p>"))]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x"), "").unwrap();
    let target = Directory::open(folder.path()).unwrap();
    let result = build(&version, &BuildSettings::default(), &target, &BuildProgress::default());
    assert!(matches!(result, Err(BuildError::NotEmpty { .. })));
}

#[test]
fn many_threads_and_little_memory_give_the_same_results() {
    let files: Vec<(String, String)> = (0..60)
        .map(|number| {
            let words: Vec<String> = (0..400).map(|word| format!("word{}", (word * 7 + number * 13) % 997)).collect();
            let words = words.join(" ");
            (
                format!("{number:02}.html"),
                page(&format!("Page {number}"), &format!("<h1 id=h>Page {number}</h1><p>{words}</p>")),
            )
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, html)| (path.as_str(), html.as_str())).collect();
    let version = seal_site(&files);
    let answers = |threads: usize, memory_bytes: usize| {
        let test = build_index(&version, &BuildSettings { threads, memory_bytes, ..BuildSettings::default() });
        let synonyms = crate::analyze::SynonymTable::default();
        let search = |text: &str| {
            let request = crate::query::SearchRequest::new(text, &synonyms);
            let outcome = test.index.search(&request, &|_| true).unwrap();
            (outcome.total, outcome.results.into_iter().map(|page| page.path).collect::<Vec<_>>())
        };
        ["word7 word20", "page 31", "word99"].map(search)
    };
    let expected = answers(1, 64 << 20);
    assert_eq!(expected[1].1[0], "31.html");
    assert_eq!(answers(4, 0), expected);
    assert_eq!(answers(100, 64 << 20), expected);
}

#[test]
fn titles_are_shown_without_the_name_of_the_site() {
    let files: Vec<(String, String)> = (0..6)
        .map(|number| {
            (format!("{number}.html"), page(&format!("Page {number} — Site 1.0"), &format!("<p>text {number}</p>")))
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, html)| (path.as_str(), html.as_str())).collect();
    let test = build_site(&files);
    assert_eq!(test.index.page_table.record(3).title, "Page 3");
}

#[test]
fn a_page_for_printing_ranks_lower_than_the_pages_that_it_repeats() {
    let chapter = |number: u32| {
        format!("<h1 id=c{number}>Chapter {number}</h1><p>This is what chapter {number} says about the harbour.</p>")
    };
    let (first, second, third) = (chapter(1), chapter(2), chapter(3));
    let test = build_site(&[
        ("1.html", &page("Chapter 1", &first)),
        ("2.html", &page("Chapter 2", &second)),
        ("3.html", &page("Chapter 3", &third)),
        ("print.html", &page("The book", &[first.as_str(), &second, &third].concat())),
    ]);
    let percents: Vec<u8> = (0..4).map(|page| test.index.page_table.record(page).score_percent).collect();
    assert!(percents[..3] == [100; 3] && percents[3] < 50, "{percents:?}");
}

#[test]
fn hostile_pages_are_cut_or_left_out_and_counted() {
    let deep = "<div>".repeat(100_000) + "deep text";
    let many: Vec<String> = (0..6000).map(|number| format!("<h2 id=h{number}>h</h2><p>t</p>")).collect();
    let many = many.concat();
    let test = build_site(&[
        ("deep.html", &deep),
        ("empty.html", ""),
        ("many.html", &many),
        ("nul.html", "\0\0<p>a\0b"),
        ("tags.html", &"<a ".repeat(50_000)),
    ]);
    assert_eq!(test.report.pages + test.report.left_out.total(), 5);
    assert!(test.report.cut.sections >= 1000, "{:?}", test.report.cut);
    assert!(test.report.sections < 5100);
}

#[test]
fn the_table_of_pages_is_one_of_the_files() {
    let test = build_site(&[("a.html", &page("A", "<p>text</p>"))]);
    assert!(test.folder.path().join(PAGES_FILE).is_file());
    let record = test.index.page_table.record(0);
    assert_eq!((record.path, record.address, record.title, record.lang), ("a.html", "a.html", "A", "en"));
}
