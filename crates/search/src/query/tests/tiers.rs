//! The order of the results.

use super::super::SearchRequest;
use super::super::test_indexes::{addresses, index_of_pages, index_of_words};
use crate::analyze::SynonymTable;
use crate::index::test_sites::{TestIndex, page};

/// A small site of API documentation.
fn library() -> TestIndex {
    let futures = page(
        "concurrent.futures — Launching parallel tasks",
        "<h1 id=futures>concurrent.futures — Launching parallel tasks</h1><p>Runs tasks in a pool of threads.</p>\
         <dl><dt id=concurrent.futures.ThreadPoolExecutor>class concurrent.futures.ThreadPoolExecutor(max_workers=None)</dt>\
         <dd><p>An executor that uses a pool of threads to execute calls asynchronously.</p></dd></dl>",
    );
    let functools = page(
        "functools — Higher-order functions",
        "<h1 id=functools>functools — Higher-order functions</h1><p>Functions that act on functions.</p>\
         <dl><dt id=functools.lru_cache>@functools.lru_cache(maxsize=128)</dt>\
         <dd><p>Saves the results of up to <code>maxsize</code> calls in a cache.</p></dd>\
         <dt id=functools.cache>@functools.cache(user_function)</dt><dd><p>A cache without a limit.</p></dd></dl>",
    );
    let guide = page(
        "Guide",
        "<h1 id=guide>Guide</h1><p>Use ThreadPoolExecutor, and lru_cache(maxsize) for a cache. A cache is a cache.</p>\
         <h2 id=caching>Caching results</h2><p>The lru_cache decorator keeps results of calls.</p>\
         <h2 id=sorting>Sorting Lists</h2><p>How lists are sorted.</p>",
    );
    index_of_pages(&[("functools.html", &functools), ("futures.html", &futures), ("guide.html", &guide)])
}

#[test]
fn the_section_of_a_symbol_is_before_all_sections_that_mention_it() {
    let library = library();
    for (query, expected) in [
        ("ThreadPoolExecutor", "futures.html#concurrent.futures.ThreadPoolExecutor"),
        ("concurrent.futures.ThreadPoolExecutor", "futures.html#concurrent.futures.ThreadPoolExecutor"),
        ("thread pool executor", "futures.html#concurrent.futures.ThreadPoolExecutor"),
        ("lru_cache", "functools.html#functools.lru_cache"),
        ("lru cache", "functools.html#functools.lru_cache"),
        ("functools.lru_cache()", "functools.html#functools.lru_cache"),
        ("functools", "functools.html#functools"),
        ("sorting lists", "guide.html#sorting"),
        ("Sort lists", "guide.html#sorting"),
        ("what is functools?", "functools.html#functools"),
    ] {
        assert_eq!(library.find(query).first().map(String::as_str), Some(expected), "{query}");
    }
}

#[test]
fn the_section_of_a_name_with_a_typing_error_is_before_sections_that_mention_it() {
    let library = library();
    for (query, expected) in [
        ("lru_cahce", "functools.html#functools.lru_cache"),
        ("lru cahce", "functools.html#functools.lru_cache"),
        ("ThreadPoolExecuter", "futures.html#concurrent.futures.ThreadPoolExecutor"),
        ("sortng lists", "guide.html#sorting"),
    ] {
        assert_eq!(library.find(query).first().map(String::as_str), Some(expected), "{query}");
    }
}

#[test]
fn a_word_in_a_heading_is_worth_more_than_in_a_title_and_there_more_than_in_the_text() {
    let filler = "Some text that has nothing to do with it. ".repeat(3);
    let section = |heading: &str, text: &str| format!("<h2 id=s>{heading}</h2><p>{text}{filler}</p>");
    let test = index_of_pages(&[
        ("1.html", &page("Other", &section("Other things", "gadget "))),
        ("2.html", &page("The gadget manual", &section("Other things", "words "))),
        ("3.html", &page("Other", &section("Gadget settings", "text "))),
    ]);
    assert_eq!(test.find("gadget "), ["3.html#s", "2.html#s", "1.html#s"]);
}

#[test]
fn words_next_to_each_other_are_before_words_that_are_apart() {
    let test = index_of_words(&[
        "access to files and other things that need control in a system",
        "the access control of the system and other things, files",
        "control access of the system and other things, files, too",
    ]);
    assert_eq!(test.find("access control"), ["001.html", "002.html", "000.html"]);
}

#[test]
fn sections_with_all_words_are_before_those_with_some_and_rare_words_count_more() {
    let test = index_of_words(&["common common rare", "common", "common words", "common unique", "rare"]);
    let found = test.find("common rare unique");
    assert_eq!(found[..2], ["003.html", "000.html"], "{found:?}");
    let both = test.find("common rare");
    assert_eq!(both[0], "000.html");
    assert_eq!(both[1], "004.html", "{both:?}");
}

#[test]
fn later_tiers_are_empty_if_there_are_enough_pages() {
    let texts: Vec<String> =
        (0..17).map(|number| format!("needle {} {number}", if number < 12 { "haystack" } else { "straw" })).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let test = index_of_words(&texts);
    let synonyms = SynonymTable::default();
    let outcome = test.ask(&SearchRequest::new("needle haystack", &synonyms));
    assert_eq!((outcome.total, outcome.results.len()), (12, 10));
    let rest = test.ask(&SearchRequest { offset: 10, ..SearchRequest::new("needle haystack", &synonyms) });
    assert_eq!((rest.total, rest.results.len()), (12, 2));
    let few = index_of_words(&texts[8..]);
    assert_eq!(few.ask(&SearchRequest::new("needle haystack", &synonyms)).total, 9);
}

#[test]
fn pages_of_links_and_lists_of_changes_are_behind_pages_with_the_same_words() {
    let links = "<a href=a.html>widget one</a> <a href=b.html>widget two</a> <a href=c.html>widget three</a>";
    let test = index_of_pages(&[
        ("1.html", &page("Index", &format!("<p>{links}</p>"))),
        ("2.html", &page("Release notes", "<p>The widget is new, and the widget is better than before.</p>")),
        ("3.html", &page("Manual", "<p>The widget is a part, and a part of the widget is this.</p>")),
    ]);
    let found = test.find("widget");
    assert_eq!((found[0].as_str(), found.len()), ("3.html", 3));
}

#[test]
fn an_entry_of_an_index_is_behind_the_text_to_which_it_leads() {
    let entry = |name: &str| format!("<dt id=entry-{name}>{name}, <a href=functions.html>Functions of a kind</a></dt>");
    let others: String = (0..30).map(|number| entry(&format!("gadget_{number}"))).collect();
    let index = format!("<h1>Index</h1><dl>{}{}{others}</dl>", entry("widget_max"), entry("widget_min"));
    let text = "Functions that compute a value: widget_avg, widget_max, widget_min, and more of them.";
    let test = index_of_pages(&[
        ("bookindex.html", &page("Index", &index)),
        ("functions.html", &page("Functions", &format!("<h1 id=functions>Functions</h1><p>{text}</p>"))),
    ]);
    for query in ["widget_max", "widget max", "widget_ma"] {
        assert_eq!(test.find(query), ["functions.html#functions", "bookindex.html#entry-widget_max"], "{query}");
    }
    assert_eq!(test.find("index")[0], "bookindex.html", "its own name is found");
}

#[test]
fn of_equal_pages_the_one_nearer_to_the_root_of_the_site_is_first() {
    let text = |edition: &str| page("Editions", &format!("<h1 id=e>Editions</h1><p>Of the {edition} edition.</p>"));
    let test = index_of_pages(&[
        ("first/editions.html", &text("first")),
        ("next-editions.html", &text("third")),
        ("second/old/editions.html", &text("second")),
    ]);
    assert_eq!(test.find("editions"), ["next-editions.html#e", "first/editions.html#e", "second/old/editions.html#e"]);
}

#[test]
fn a_long_question_need_not_match_whole_if_a_section_is_about_most_of_it() {
    let filler = "Some text about other things that goes on for a while. ".repeat(8);
    let all = format!("<h1 id=o>Other</h1><p>connections {filler} limit {filler} number {filler} really</p>");
    let mut pages = vec![
        ("all.html".to_owned(), page("Other", &all)),
        (
            "limits.html".to_owned(),
            page("Limits", "<h1 id=l>Limit the number of connections</h1><p>With a setting.</p>"),
        ),
    ];
    // On a site of two pages, no word is rare.
    pages.extend((0..10).map(|n| (format!("{n}.html"), page("More", &format!("<p>Page {n} of other things.</p>")))));
    let pages: Vec<(&str, &str)> = pages.iter().map(|(path, html)| (&**path, &**html)).collect();
    let test = index_of_pages(&pages);
    assert_eq!(test.find("how do I really limit the number of connections")[0], "limits.html#l");
    // Without a question, all words are meant.
    assert_eq!(test.find("really limit number connections")[0], "all.html#o");
}

#[test]
fn scores_descend_over_all_tiers() {
    let library = library();
    let synonyms = SynonymTable::default();
    for query in ["cache", "lru_cache results", "threads limit"] {
        let outcome = library.ask(&SearchRequest::new(query, &synonyms));
        let scores: Vec<f32> = outcome.results.iter().map(|page| page.score).collect();
        assert!(!scores.is_empty() && scores.is_sorted_by(|a, b| a >= b), "{query}: {scores:?}");
        assert_eq!(addresses(&outcome).len(), outcome.results.len());
    }
}
