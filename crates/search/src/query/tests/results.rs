//! What a result contains.

use std::time::Instant;

use super::super::SearchRequest;
use super::super::test_indexes::{addresses, index_of_pages, index_of_words};
use crate::analyze::SynonymTable;
use crate::index::test_sites::page;
use crate::page::ExcerptMark;

#[test]
fn a_result_has_its_best_section_and_up_to_three_others() {
    let sections: Vec<String> = (1..=6)
        .map(|number| format!("<h2 id=s{number}>Part {number}</h2><p>{} end</p>", "widget ".repeat(number)))
        .collect();
    let html = page("Widgets", &format!("<h1 id=top>Widgets</h1><p>Start.</p>{}", sections.concat()));
    let test = index_of_pages(&[("a.html", &html), ("b.html", &page("Other", "<p>widget</p>"))]);
    let outcome = test.ask(&SearchRequest::new("part 3", &SynonymTable::default()));
    let result = &outcome.results[0];
    assert_eq!((result.path.as_str(), result.address.as_str(), result.title.as_str()), ("a.html", "a.html", "Widgets"));
    assert_eq!(result.lang.as_deref(), Some("en"));
    assert_eq!(result.best.anchor.as_deref(), Some("s3"));
    assert_eq!(result.best.headings, ["Widgets", "Part 3"]);
    let outcome = test.ask(&SearchRequest::new("widget", &SynonymTable::default()));
    assert_eq!(outcome.total, 2);
    let result = outcome.results.iter().find(|page| page.path == "a.html").unwrap();
    assert_eq!(result.sections.len(), 3);
    let mut anchors: Vec<_> = result.sections.iter().map(|section| section.anchor.clone()).collect();
    anchors.push(result.best.anchor.clone());
    anchors.sort();
    anchors.dedup();
    assert_eq!(anchors.len(), 4);
    let excerpt = &result.sections[0].excerpt;
    assert!(excerpt.contains("widget"), "{excerpt}");
    assert_eq!(result.sections[0].marks.len(), excerpt.matches("widget").count());
}

#[test]
fn results_after_the_deadline_have_no_further_sections() {
    let sections: Vec<String> =
        (1..=4).map(|number| format!("<h2 id=s{number}>Widget {number}</h2><p>widget</p>")).collect();
    let test = index_of_pages(&[("a.html", &page("Widgets", &sections.concat()))]);
    let synonyms = SynonymTable::default();
    let request = SearchRequest::new("widget", &synonyms);
    assert_eq!(test.ask(&request).results[0].sections.len(), 3);
    let outcome = test.ask(&SearchRequest { deadline: Some(Instant::now()), ..request });
    assert!(outcome.partial && outcome.results[0].sections.is_empty());
    assert!(outcome.results[0].best.excerpt.contains("widget"));
}

#[test]
fn marks_cover_exact_stemmed_longer_and_corrected_words() {
    let test = index_of_words(&["Connections of a connection pool", "executor"]);
    let synonyms = SynonymTable::default();
    let marks = |text: &str| test.ask(&SearchRequest::new(text, &synonyms)).results[0].best.marks.clone();
    let both = [ExcerptMark { start: 0, length: 11 }, ExcerptMark { start: 17, length: 10 }];
    for query in ["connection", "connecting", "connec"] {
        assert_eq!(marks(query), both, "{query}");
    }
    // The words that only make a question are not marked.
    let [first, second] = both;
    assert_eq!(marks("how do I pool a connection"), [first, second, ExcerptMark { start: 28, length: 4 }]);
    assert_eq!(marks("executro"), [ExcerptMark { start: 0, length: 8 }]);
}

#[test]
fn markup_in_a_page_is_text_in_a_result() {
    let test = index_of_pages(&[(
        "a.html",
        &page(
            "&lt;script&gt;",
            "<h1 id='x\"y'>&lt;b&gt;bold&lt;/b&gt;</h1><p>&lt;img src=x onerror=alert(1)&gt; needle</p>",
        ),
    )]);
    let outcome = test.ask(&SearchRequest::new("needle", &SynonymTable::default()));
    let result = &outcome.results[0];
    assert_eq!(result.title, "<script>");
    assert_eq!(result.best.headings, ["<b>bold</b>"]);
    assert_eq!(result.best.excerpt, "<img src=x onerror=alert(1)> needle");
    assert_eq!(result.best.anchor.as_deref(), Some("x\"y"));
}

#[test]
fn only_pages_below_the_section_are_results() {
    let text = page("-", "<p>needle</p>");
    let other = |word: &str| page("-", &format!("<p>needle {word}</p>"));
    let test = index_of_pages(&[
        ("guide/a.html", &text),
        ("guide/b/index.html", &other("one")),
        ("guides/a.html", &other("two")),
        ("index.html", &other("three")),
    ]);
    let synonyms = SynonymTable::default();
    for (section, expected) in [
        ("guide/", &["guide/a.html", "guide/b/"][..]),
        ("/guide", &["guide/a.html", "guide/b/"]),
        ("guide/b", &["guide/b/"]),
        ("guides/", &["guides/a.html"]),
        ("missing/", &[]),
        ("", &["", "guide/a.html", "guide/b/", "guides/a.html"]),
        ("/", &["", "guide/a.html", "guide/b/", "guides/a.html"]),
    ] {
        let request = SearchRequest { section: Some(section), ..SearchRequest::new("needle", &synonyms) };
        let mut found = addresses(&test.ask(&request));
        found.sort_unstable();
        assert_eq!(found, expected, "{section}");
    }
}

#[test]
fn pages_that_are_gone_are_left_out_and_not_counted() {
    let texts: Vec<String> = (0..20).map(|number| format!("needle {number}")).collect();
    let test = index_of_words(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let synonyms = SynonymTable::default();
    let request = SearchRequest::new("needle", &synonyms);
    let outcome = test.index.search(&request, &|address| !address.starts_with("00")).unwrap();
    assert_eq!(outcome.results.len(), 10);
    assert!(outcome.results.iter().all(|page| page.address.starts_with("01")));
    assert_eq!(outcome.total, 10);
    assert_eq!(test.index.search(&request, &|_| false).unwrap().total, 0);
}

#[test]
fn pages_of_results_do_not_overlap() {
    let texts: Vec<String> = (0..25).map(|number| format!("needle {}", "other ".repeat(number))).collect();
    let test = index_of_words(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let synonyms = SynonymTable::default();
    let mut all = Vec::new();
    for offset in [0, 10, 20, 30] {
        let outcome = test.ask(&SearchRequest { offset, ..SearchRequest::new("needle", &synonyms) });
        assert_eq!(outcome.total, 25);
        all.extend(addresses(&outcome));
    }
    assert_eq!(all.len(), 25);
    let whole = test.ask(&SearchRequest { limit: 50, ..SearchRequest::new("needle", &synonyms) });
    assert_eq!(addresses(&whole), all);
}
