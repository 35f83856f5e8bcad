//! Languages, and text without spaces.

use super::super::SearchRequest;
use super::super::test_indexes::{addresses, index_of_pages, index_of_words};
use crate::analyze::SynonymTable;
use crate::index::test_sites::TestIndex;

fn page_in(lang: &str, text: &str) -> String {
    let lang = if lang.is_empty() { String::new() } else { format!(" lang={lang}") };
    format!("<!doctype html><html{lang}><head><title>-</title></head><body><main><p>{text}</p></main></body></html>")
}

fn find_in(test: &TestIndex, text: &str, lang: &str) -> Vec<String> {
    let synonyms = SynonymTable::default();
    addresses(&test.ask(&SearchRequest { lang: Some(lang), ..SearchRequest::new(text, &synonyms) }))
}

#[test]
fn pages_in_other_languages_are_results_only_if_there_is_none_in_the_language() {
    let test = index_of_pages(&[
        ("de.html", &page_in("de", "Der Server startet")),
        ("en.html", &page_in("en-US", "The server starts")),
        ("none.html", &page_in("", "server")),
    ]);
    assert_eq!(find_in(&test, "server", "en"), ["none.html", "en.html"]);
    assert_eq!(find_in(&test, "server", "de-AT"), ["none.html", "de.html"]);
    // No page in English has the word. Then stems of all languages count, and `starts` has the German stem of `startet`.
    assert_eq!(find_in(&test, "startet", "en"), ["de.html", "en.html"]);
    assert_eq!(test.find("server").len(), 3);
}

#[test]
fn each_language_has_its_own_stems() {
    let test = index_of_pages(&[
        ("de.html", &page_in("de", "Die Häuser der Automaten")),
        ("en.html", &page_in("en", "running connections")),
        ("pt.html", &page_in("pt-BR", "configurações do servidor")),
    ]);
    assert_eq!(find_in(&test, "Automat", "de"), ["de.html"]);
    assert_eq!(find_in(&test, "connection", "en"), ["en.html"]);
    assert_eq!(find_in(&test, "configuração", "pt"), ["pt.html"]);
    // Without a language, the stems of all languages of the site count.
    assert_eq!(test.find("connected"), ["en.html"]);
}

#[test]
fn stems_of_a_language_with_few_pages_are_found_when_it_is_asked_for() {
    let mut files: Vec<(String, String)> = Vec::new();
    for lang in ["de", "en", "es", "fr"] {
        for number in 0..2 {
            files.push((format!("{lang}/{number}.html"), page_in(lang, &format!("{lang} {number}"))));
        }
    }
    files.push(("pt/0.html".to_owned(), page_in("pt", "configurações do servidor")));
    let test = index_of_pages(&files.iter().map(|(path, html)| (path.as_str(), html.as_str())).collect::<Vec<_>>());
    assert_eq!(find_in(&test, "configuração", "pt"), ["pt/0.html"]);
}

#[test]
fn question_words_are_those_of_the_site_if_no_language_is_asked_for() {
    let test = index_of_pages(&[
        ("a.html", &page_in("de", "Eine Datei mit dem Editor offen")),
        ("b.html", &page_in("de", "Wie kann ich das wissen")),
    ]);
    assert_eq!(test.find("Wie kann ich eine Datei offen"), ["a.html"]);
    assert_eq!(test.find("wie Datei"), ["a.html"]);
}

#[test]
fn text_without_spaces_is_found_by_its_parts() {
    let test = index_of_words(&["连接数据库的方法", "数据和仓库", "データベースに接続する", "데이터베이스 연결"]);
    for (query, expected) in [
        ("数据库", "000.html"),
        ("连接数据库", "000.html"),
        ("法", "000.html"),
        ("仓库", "001.html"),
        ("データベース", "002.html"),
        ("接続", "002.html"),
        ("데이터", "003.html"),
        ("데이터베이스 연결", "003.html"),
    ] {
        assert_eq!(test.find(query).first().map(String::as_str), Some(expected), "{query}");
    }
    assert!(test.find("库数").is_empty());
}

#[test]
fn a_run_of_characters_is_before_its_pairs_in_other_places() {
    let test = index_of_words(&["数据 据库 在这里 数据", "一个数据库"]);
    assert_eq!(test.find("数据库")[0], "001.html");
}

#[test]
fn a_heading_that_begins_with_a_run_of_characters_is_before_others_that_have_them() {
    let section = |heading: &str, text: &str| format!("<h1 id=s>{heading}</h1><p>{text}</p>");
    let test = index_of_pages(&[
        ("a.html", &page_in("ja", &section("画像と再読の込み方", "画像を再読み込みする、画像を再読み込みする。"))),
        ("b.html", &page_in("ja", &section("画像を再読み込み", "開いたファイルに戻す。"))),
    ]);
    assert_eq!(test.find("画像を再読み")[0], "b.html#s");
}

#[test]
fn japanese_particles_need_not_be_found() {
    let test = index_of_pages(&[
        ("a.html", &page_in("ja", "直線を引く。")),
        ("b.html", &page_in("ja", "あるには、するには、どうすればよいですか。")),
    ]);
    assert_eq!(test.find("直線を引くにはどうすればよいですか")[0], "a.html");
}
