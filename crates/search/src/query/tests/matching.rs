//! What a word of a query matches.

use std::time::{Duration, Instant};

use super::super::SearchRequest;
use super::super::test_indexes::{addresses, index_of_pages, index_of_words};
use crate::analyze::SynonymTable;
use crate::index::test_sites::page;

#[test]
fn a_typing_error_is_corrected_and_reported() {
    let test = index_of_words(&["the connection is closed", "a cache of results", "other words"]);
    let synonyms = SynonymTable::default();
    for (query, expected, corrected) in [
        ("conection", "000.html", "connection"),
        ("conectoin", "000.html", "connection"),
        ("cahce results", "001.html", "cache results"),
        ("Closed, conection!", "000.html", "Closed, connection!"),
    ] {
        let outcome = test.ask(&SearchRequest::new(query, &synonyms));
        assert_eq!(addresses(&outcome), [expected], "{query}");
        assert_eq!(outcome.corrected.as_deref(), Some(corrected), "{query}");
    }
}

#[test]
fn a_known_word_is_never_changed() {
    let test = index_of_words(&["cache", "caches", "cache cacher"]);
    let outcome = test.ask(&SearchRequest::new("caches ", &SynonymTable::default()));
    assert_eq!(outcome.corrected, None);
    let test = index_of_words(&["form the firm", "from the farm"]);
    assert_eq!(test.find("firm "), ["000.html"]);
    assert_eq!(test.find("form "), ["000.html"]);
}

#[test]
fn short_words_and_first_letters_are_not_corrected() {
    let test = index_of_words(&["cat", "cache"]);
    for query in ["cta", "kache", "bat"] {
        assert!(test.find(query).is_empty(), "{query}");
    }
}

#[test]
fn an_identifier_with_a_typing_error_is_found_whole_and_in_pieces() {
    let test = index_of_words(&["call lru_cache here", "use ThreadPoolExecutor", "nothing"]);
    let synonyms = SynonymTable::default();
    for (query, expected, corrected) in
        [("lru_cahce", "000.html", "lru_cache"), ("ThreadPoolExecuter", "001.html", "threadpoolexecutor")]
    {
        let outcome = test.ask(&SearchRequest::new(query, &synonyms));
        assert_eq!(addresses(&outcome), [expected], "{query}");
        assert_eq!(outcome.corrected.as_deref(), Some(corrected), "{query}");
    }
}

#[test]
fn the_last_word_is_also_a_prefix_and_the_others_are_not() {
    let test = index_of_words(&["connection string", "connection strange", "connect strings", "other"]);
    assert_eq!(test.find("connection stri")[..2], ["000.html", "002.html"]);
    assert_eq!(test.find("connection strin")[0], "000.html");
    assert_eq!(test.find("strange"), ["001.html"]);
    // Stems must not make a word vanish while it is typed.
    for query in ["conn", "connec", "connecti", "connectio"] {
        assert!(test.find(query).contains(&"000.html".to_owned()), "{query}");
    }
    let outcome = test.ask(&SearchRequest::new("connectio", &SynonymTable::default()));
    assert_eq!(outcome.corrected, None);
}

#[test]
fn a_whole_word_is_before_words_that_begin_with_it() {
    let test = index_of_words(&["sorted text of a kind", "a sort of a text", "sorting text of a kind"]);
    assert_eq!(test.find("sort")[0], "001.html");
}

#[test]
fn a_phrase_in_quotes_must_be_found_as_it_is() {
    let test = index_of_words(&["pool of a thread", "a thread pool here", "the ThreadPool class", "thread, pool"]);
    assert_eq!(sorted(test.find("\"thread pool\"")), ["001.html", "002.html", "003.html"]);
    assert_eq!(test.find("\"a thread pool\""), ["001.html"]);
    assert_eq!(test.find("\"thread pool\" class")[0], "002.html");
    assert!(test.find("\"pool thread\"").is_empty());
    assert!(test.find("\"missing\"").is_empty());
    assert_eq!(test.find("\"class\""), ["002.html"]);
}

#[test]
fn no_result_lacks_a_phrase_in_quotes() {
    let html = page("Sorting Lists", "<h1 id=a>Sorting Lists</h1><p>How a list is sorted.</p>");
    let test = index_of_pages(&[
        ("a.html", &html),
        ("b.html", &page("-", "<p>the sort list of a pool</p>")),
        ("c.html", &page("Pool", "<h1 id=c>Pool</h1><p>a pool</p>")),
    ]);
    // The stems of the name, a name without the phrase, and some of the words are not enough.
    assert_eq!(test.find("\"sort list\""), ["b.html"]);
    assert_eq!(test.find("\"sort list\" pool"), ["b.html"]);
    assert_eq!(test.find("what is pool \"sort list\""), ["b.html"]);
    assert!(test.find("\"missing phrase\" pool").is_empty());
    assert_eq!(test.find("\"sorting lists\""), ["a.html#a"]);
}

#[test]
fn one_letter_is_a_prefix_although_it_is_a_word() {
    let test = index_of_words(&["it's a thread", "a string", "s"]);
    let found = test.find("s");
    assert_eq!((found[0].as_str(), found.len()), ("002.html", 3), "{found:?}");
}

#[test]
fn identifiers_are_found_whole_and_in_parts() {
    let test = index_of_words(&[
        "ThreadPoolExecutor",
        "lru_cache",
        "os.path.join",
        "the option --no-color",
        "C++ and C",
        "only C here",
        "threadpool",
    ]);
    for (query, expected) in [
        ("threadpoolexecutor", "000.html"),
        ("thread executor", "000.html"),
        ("pool executor", "000.html"),
        ("lru", "001.html"),
        ("LRU cache", "001.html"),
        ("path.join", "002.html"),
        ("os.path.join", "002.html"),
        ("--no-color", "003.html"),
        ("no color", "003.html"),
        ("c++", "004.html"),
    ] {
        assert_eq!(test.find(query).first().map(String::as_str), Some(expected), "{query}");
    }
    // Adjacent words also match what is written together.
    assert!(test.find("thread pool").contains(&"006.html".to_owned()));
}

#[test]
fn stems_and_accents_make_no_difference_but_the_exact_form_is_first() {
    let test = index_of_words(&["configured caches", "configure a cache", "über cafés"]);
    assert_eq!(test.find("configure cache")[0], "001.html");
    assert_eq!(test.find("configuring caching").len(), 2);
    assert_eq!(test.find("uber cafe"), ["002.html"]);
    assert_eq!(test.find("ÜBER CAFÉS"), ["002.html"]);
}

#[test]
fn synonyms_match_and_are_worth_less() {
    let test = index_of_words(&["terminate the process", "kill the process", "sign in to the process", "wait"]);
    let synonyms = SynonymTable::with_file("sets = [['kill', 'terminate'], ['login', 'sign in']]").unwrap();
    let find = |text: &str| addresses(&test.ask(&SearchRequest::new(text, &synonyms)));
    assert_eq!(find("kill process")[..2], ["001.html", "000.html"]);
    assert_eq!(find("login"), ["002.html"]);
    assert!(test.find("login").is_empty());
}

#[test]
fn question_words_need_not_match() {
    let test = index_of_words(&["sort lists with a function", "how do I do it", "lists"]);
    assert_eq!(test.find("how do I sort lists?")[0], "000.html");
    assert_eq!(test.find("how do I ")[0], "001.html");
}

#[test]
fn nothing_typed_is_an_error() {
    let test = index_of_words(&["some words"]);
    let long = "word ".repeat(40);
    let bigrams = "字".repeat(200);
    let quotes = "\"".repeat(199);
    for text in [
        "",
        " ",
        "\"",
        "\"\"",
        "+-&|!(){}[]^~*?:\\/",
        "\0\u{1}\u{ffff}",
        "a\u{0}b",
        "AND OR NOT",
        &long,
        &bigrams,
        &quotes,
    ] {
        let outcome = test.ask(&SearchRequest::new(text, &SynonymTable::built_in()));
        assert!(outcome.total <= 1 && !outcome.partial, "{text:?}");
    }
}

#[test]
fn a_search_ends_at_its_deadline_with_what_it_has() {
    let texts: Vec<String> = (0..40).map(|number| format!("word{number} common text")).collect();
    let test = index_of_words(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let synonyms = SynonymTable::default();
    let over = SearchRequest { deadline: Some(Instant::now()), ..SearchRequest::new("common text", &synonyms) };
    let outcome = test.ask(&over);
    assert!(outcome.partial);
    // The first word was looked for, and the rest of the question was not.
    assert_eq!((outcome.total, outcome.results.len()), (40, 10));
    let later = Instant::now() + Duration::from_hours(1);
    let in_time = test.ask(&SearchRequest { deadline: Some(later), ..SearchRequest::new("common text", &synonyms) });
    assert!(!in_time.partial);
    assert_eq!(in_time.total, 40);
}

#[test]
fn a_page_without_text_is_found_by_its_title() {
    let test = index_of_pages(&[("a.html", &page("Dashboard", "")), ("b.html", &page("Other", "<p>text</p>"))]);
    assert_eq!(test.find("dashboard"), ["a.html"]);
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts
}

#[test]
fn names_and_words_are_found_in_all_sections_of_a_large_site() {
    // Sections are passed over in blocks if they have neither the words nor a name of the query.
    let sections: Vec<String> =
        (0..200).map(|number| format!("<h2 id=s{number}>Heading{number}</h2><p>body{number} text</p>")).collect();
    let test = index_of_pages(&[("a.html", &page("Large", &sections.concat()))]);
    for number in [0, 1, 31, 32, 63, 64, 100, 198, 199] {
        let expected = [format!("a.html#s{number}")];
        assert_eq!(test.find(&format!("heading{number}")), expected);
        assert_eq!(test.find(&format!("body{number}")), expected);
    }
}
