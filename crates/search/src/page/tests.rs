//! Tests of the search page.

use super::*;

const HOSTILE: &str = "\"'><script>alert(1)</script>&\u{202e}\0";

fn result(url: &str, title: &str) -> SearchResult {
    SearchResult {
        url: url.to_owned(),
        title: title.to_owned(),
        section: Vec::new(),
        lang: Some("en".to_owned()),
        excerpt: String::new(),
        marks: Vec::new(),
        score: 1.0,
        sections: Vec::new(),
    }
}

fn response(total: u64, results: Vec<SearchResult>) -> SearchResponse {
    SearchResponse {
        query: "lock".to_owned(),
        corrected: None,
        total,
        ms: 1.0,
        indexing: false,
        partial: false,
        version: "v".to_owned(),
        results,
    }
}

fn page<'a>(query: &'a str, content: SearchPageContent<'a>) -> SearchPage<'a> {
    SearchPage { query, section: None, lang: None, limit: DEFAULT_LIMIT, offset: 0, record: None, content }
}

#[test]
fn a_page_shows_results_with_marks_headings_and_sections() {
    let mut answer = response(1, vec![result("/docs/a.html#lock", "Locks")]);
    let first = &mut answer.results[0];
    first.section = ["Locks", "Threads", "Lock objects"].map(str::to_owned).to_vec();
    first.excerpt = "A lock is held.".to_owned();
    first.marks = vec![ExcerptMark { start: 2, length: 4 }];
    first.sections = vec![SectionResult {
        url: "/docs/a.html#rlock".to_owned(),
        title: "RLock".to_owned(),
        excerpt: "reentrant".to_owned(),
        marks: vec![ExcerptMark { start: 0, length: 2 }],
    }];
    let html = render_page(&page("lock", SearchPageContent::Results(&answer)));
    for expected in [
        "<html lang=\"en\" dir=\"ltr\">",
        "<meta name=\"robots\" content=\"noindex\">",
        "<title>lock – Search</title>",
        "<link rel=\"search\" type=\"application/opensearchdescription+xml\" href=\"opensearch.xml\"",
        "name=\"q\"",
        "value=\"lock\"",
        "<bdi>Results: <bdi>1</bdi>.</bdi>",
        "<li lang=\"en\" dir=\"ltr\">\n<h2><a href=\"/docs/a.html#lock\">Locks</a></h2>",
        "<p class=\"path\">Threads › Lock objects</p>",
        "<p class=\"excerpt\">A <mark>lock</mark> is held.</p>",
        "<li><a href=\"/docs/a.html#rlock\">RLock</a><p class=\"excerpt\"><mark>re</mark>entrant</p>",
    ] {
        assert!(html.contains(expected), "{expected}\n{html}");
    }
    assert!(!html.contains("<nav"), "{html}");
}

#[test]
fn hostile_text_in_any_field_stays_text() {
    let hostile = || HOSTILE.to_owned();
    let section = SectionResult {
        url: format!("/{HOSTILE}"),
        title: hostile(),
        excerpt: hostile(),
        marks: vec![ExcerptMark { start: 1, length: 8 }],
    };
    let hit = SearchResult {
        url: "/a?b=\"><script>".to_owned(),
        title: hostile(),
        section: vec![hostile(), format!("{HOSTILE}2")],
        lang: Some(hostile()),
        excerpt: hostile(),
        marks: vec![ExcerptMark { start: 3, length: 4 }],
        score: f32::NAN,
        sections: vec![section],
    };
    let mut answer = response(100, vec![hit]);
    answer.query = hostile();
    answer.corrected = Some(hostile());
    answer.version = hostile();
    for content in [
        SearchPageContent::Results(&answer),
        SearchPageContent::IndexBuilding,
        SearchPageContent::Busy,
        SearchPageContent::Invalid,
    ] {
        let question = SearchPage {
            query: HOSTILE,
            section: Some(HOSTILE),
            lang: Some(HOSTILE),
            limit: 7,
            offset: 7,
            record: Some(SearchId(10)),
            content,
        };
        let html = render_page(&question);
        assert!(!html.contains("<script") && !html.contains("'>") && !html.contains("&\u{202e}"), "{html}");
        assert!(!html.contains(['\0', '\u{202e}']), "{html}");
        // No attribute value ends early: each quote is the begin or the end of one that the page wrote.
        assert_eq!(html.matches('"').count() % 2, 0, "{html}");
        assert!(html.contains("<html lang=\"en\" dir=\"ltr\">"), "{html}");
    }
    // A result without a known language is isolated by its own text.
    assert!(render_page(&page("x", SearchPageContent::Results(&answer))).contains("<li lang=\"\" dir=\"auto\">"));
}

#[test]
fn an_address_of_another_host_is_no_link() {
    for url in ["//evil.example/", "javascript:alert(1)", "https://evil.example/", "/\\evil.example/"] {
        let answer = response(1, vec![result(url, "Title")]);
        let html = render_page(&page("x", SearchPageContent::Results(&answer)));
        assert!(html.contains("<h2>Title</h2>"), "{html}");
        assert!(!html.contains(&format!("href=\"{url}")), "{html}");
    }
}

#[test]
fn a_result_without_a_title_has_its_address_as_text() {
    let answer = response(1, vec![result("/a.html", " ")]);
    let html = render_page(&page("x", SearchPageContent::Results(&answer)));
    assert!(html.contains("<a href=\"/a.html\">/a.html</a>"), "{html}");
}

#[test]
fn paging_ends_at_the_first_and_the_last_result_and_at_the_largest_offset() {
    for (offset, limit, total, previous, next) in [
        (0, 10, 0, None, None),
        (0, 10, 10, None, None),
        (0, 10, 11, None, Some(10)),
        (10, 10, 11, Some(0), None),
        (10, 10, 57, Some(0), Some(20)),
        (5, 10, 57, Some(0), Some(15)),
        (50, 10, 57, Some(40), None),
        (480, 10, 5000, Some(470), Some(490)),
        (490, 10, 5000, Some(480), None),
        (450, 50, 5000, Some(400), None),
        (490, 10, 57, Some(50), None),
        (490, 10, 0, None, None),
        (0, 0, 2, None, Some(1)),
        (u32::MAX, u32::MAX, u64::MAX, Some(0), None),
    ] {
        assert_eq!(neighbor_offsets(offset, limit, total), (previous, next), "{offset} {limit} {total}");
    }
}

#[test]
fn paging_keeps_section_language_limit_and_the_id_of_a_recorded_search() {
    let answer = response(57, vec![result("/a.html", "A"); 5]);
    let question = SearchPage {
        query: "a&b c+d",
        section: Some("/guide/é"),
        lang: Some("de"),
        limit: 5,
        offset: 10,
        record: Some(SearchId(10)),
        content: SearchPageContent::Results(&answer),
    };
    let html = render_page(&question);
    let record = "&amp;record=000000000000000a";
    let common = "search?q=a%26b%20c%2Bd&amp;section=%2Fguide%2F%C3%A9&amp;lang=de&amp;limit=5";
    for expected in [
        &format!("<a rel=\"prev\" href=\"{common}&amp;offset=5{record}\"><bdi>Zurück</bdi></a>"),
        &format!("<a rel=\"next\" href=\"{common}&amp;offset=15{record}\"><bdi>Weiter</bdi></a>"),
        "<span aria-current=\"page\">11–15</span>",
        "<ol class=\"results\" start=\"11\">",
        "<input type=\"hidden\" name=\"section\" value=\"/guide/é\">",
        "<input type=\"hidden\" name=\"lang\" value=\"de\">",
        "<input type=\"hidden\" name=\"limit\" value=\"5\">",
        "href=\"search?q=a%26b%20c%2Bd&amp;lang=de&amp;limit=5&amp;record=000000000000000a\"",
    ] {
        assert!(html.contains(expected), "{expected}\n{html}");
    }
    let first = render_page(&SearchPage { offset: 5, ..question });
    assert!(first.contains(&format!("<a rel=\"prev\" href=\"{common}{record}\">")), "{first}");
}

#[test]
fn the_texts_and_the_direction_follow_the_language() {
    let answer = response(1, vec![SearchResult { lang: Some("he".to_owned()), ..result("/a", "א") }]);
    for (lang, html_element, body, text) in [
        (None, "<html lang=\"en\" dir=\"ltr\">", "<body>", "Results: "),
        (Some("fr-CA"), "<html lang=\"fr-CA\" dir=\"ltr\">", "<body>", "Résultats : "),
        (Some("ar"), "<html lang=\"ar\" dir=\"rtl\">", "<body lang=\"en\">", "Results: "),
        (Some("not a tag"), "<html lang=\"en\" dir=\"ltr\">", "<body>", "Results: "),
    ] {
        let html = render_page(&SearchPage { lang, ..page("x", SearchPageContent::Results(&answer)) });
        for expected in [html_element, body, text, "<li lang=\"he\" dir=\"rtl\">"] {
            assert!(html.contains(expected), "{lang:?} {expected}\n{html}");
        }
    }
}

#[test]
fn the_state_of_the_search_is_shown_in_words() {
    let mut answer = response(0, Vec::new());
    answer.indexing = true;
    answer.partial = true;
    answer.corrected = Some("locks".to_owned());
    let html = render_page(&page("lokc", SearchPageContent::Results(&answer)));
    for expected in [
        "Results for “<bdi>locks</bdi>”.",
        "No results for “<bdi>lokc</bdi>”.",
        "A new version is being indexed.",
        "The search took too long.",
    ] {
        assert!(html.contains(expected), "{expected}\n{html}");
    }
    let building = render_page(&page("lock", SearchPageContent::IndexBuilding));
    assert!(building.contains("The search index is being built."), "{building}");
    assert!(building.contains("<meta http-equiv=\"refresh\" content=\"5\">"), "{building}");
    let busy = render_page(&page("lock", SearchPageContent::Busy));
    assert!(busy.contains("The search did not answer.") && !busy.contains("refresh"), "{busy}");
    assert!(render_page(&page("lock", SearchPageContent::Invalid)).contains("is not valid."));
}

#[test]
fn an_empty_query_shows_the_form_only() {
    for query in ["", "  "] {
        let answer = response(0, Vec::new());
        let html = render_page(&page(query, SearchPageContent::Results(&answer)));
        assert!(html.contains("<form role=\"search\" action=\"search\">"), "{html}");
        assert!(!html.contains("results") && !html.contains("<nav"), "{html}");
    }
    let answer = response(0, Vec::new());
    assert!(render_page(&page("", SearchPageContent::Results(&answer))).contains(" autofocus value=\"\">"));
}

#[test]
fn the_page_needs_no_more_than_its_policy_allows() {
    let answer = response(30, vec![result("/a", "A"); 10]);
    let html = render_page(&page("x", SearchPageContent::Results(&answer)));
    for forbidden in ["<script", "<style", " style=", "<img", "<base", " on"] {
        assert!(!html.contains(forbidden), "{forbidden}\n{html}");
    }
    assert!(PAGE_POLICY.starts_with("default-src 'none'; style-src 'self'; form-action 'self'"));
}
