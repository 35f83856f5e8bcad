//! The output of `docwharf search` as text. Titles, headings and excerpts come from pages that may be hostile: no
//! control character of them reaches the terminal.

use std::fmt::Write;

use crate::daemon::IndexReport;
use docwharf_base::error_chain::is_printable;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_base::model::version::VersionId;
use docwharf_search::index::{CutContent, LeftOutPages};
use docwharf_search::page::{ExcerptMark, MAX_LIMIT, SearchResponse, SearchResult};

/// The escape sequence that begins bold text.
const BOLD: &str = "\x1b[1m";
/// The escape sequence that ends it.
const PLAIN: &str = "\x1b[0m";

/// Formats an answer: for each page its title and headings, the address and the excerpt. With `in_bold`, titles and
/// matches are bold.
pub(super) fn results_as_text(response: &SearchResponse, in_bold: bool) -> String {
    let mut text = String::new();
    if let Some(corrected) = &response.corrected {
        let _ = writeln!(text, "results for: {}\n", printable(corrected));
    }
    if response.results.is_empty() {
        text.push_str("no results\n");
    }
    for result in &response.results {
        write_result(&mut text, result, in_bold);
    }
    let shown = response.results.len() as u64;
    if response.total > shown && shown > 0 {
        let more = if shown < u64::from(MAX_LIMIT) {
            "--limit shows more"
        } else {
            "more words or --section narrow the search"
        };
        let _ = writeln!(text, "{shown} of {}: {more}", format_count(response.total, "page"));
    }
    text
}

fn write_result(text: &mut String, result: &SearchResult, in_bold: bool) {
    let title = if result.title.trim().is_empty() { &result.url } else { &result.title };
    let headings: Vec<String> =
        result.section.iter().filter(|heading| **heading != result.title).map(|heading| printable(heading)).collect();
    let title = printable(title);
    let title = if in_bold { format!("{BOLD}{title}{PLAIN}") } else { title };
    let path = if headings.is_empty() { String::new() } else { format!(" — {}", headings.join(" › ")) };
    let _ = writeln!(text, "{title}{path}\n  {}", printable(&result.url));
    if !result.excerpt.is_empty() {
        let _ = writeln!(text, "  {}", excerpt_as_text(&result.excerpt, &result.marks, in_bold));
    }
    for section in &result.sections {
        let _ = writeln!(text, "  › {}: {}", printable(&section.title), printable(&section.url));
    }
    text.push('\n');
}

/// Returns a text on one line, without the characters that a terminal would not only show.
fn printable(text: &str) -> String {
    text.chars().filter_map(printable_char).collect()
}

fn printable_char(c: char) -> Option<char> {
    match c {
        '\n' | '\r' | '\t' => Some(' '),
        c => is_printable(c).then_some(c),
    }
}

/// Returns an excerpt with its matches in bold. The offsets of matches count UTF-16 units.
fn excerpt_as_text(excerpt: &str, marks: &[ExcerptMark], in_bold: bool) -> String {
    let mut text = String::with_capacity(excerpt.len() + 16);
    let mut marks = marks.iter().map(|mark| (mark.start, mark.start.saturating_add(mark.length))).peekable();
    let (mut unit, mut is_bold) = (0, false);
    for c in excerpt.chars() {
        if is_bold && marks.peek().is_some_and(|&(_, end)| unit >= end) {
            text.push_str(PLAIN);
            is_bold = false;
        }
        while marks.next_if(|&(_, end)| unit >= end).is_some() {}
        if in_bold && !is_bold && marks.peek().is_some_and(|&(start, end)| (start..end).contains(&unit)) {
            text.push_str(BOLD);
            is_bold = true;
        }
        text.extend(printable_char(c));
        unit += c.len_utf16() as u32;
    }
    if is_bold {
        text.push_str(PLAIN);
    }
    text
}

/// Formats the numbers of an index that was built.
pub(super) fn report_as_text(id: VersionId, report: &IndexReport, is_kept: bool) -> String {
    let build = &report.build;
    let mut lines = vec![
        ("version", id.short()),
        ("pages", build.pages.to_string()),
        ("sections", build.sections.to_string()),
        ("left out", describe_left_out(&build.left_out)),
        ("size", format_size(build.bytes)),
        ("duration", format!("{:.1} s", build.seconds)),
        ("memory", format_size(report.peak_memory)),
    ];
    if let Some(cut) = describe_cut(&build.cut) {
        lines.insert(4, ("cut", cut));
    }
    if !is_kept {
        lines.push(("kept", "no: the store is in use, or this is not one of its versions".to_owned()));
    }
    lines.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:11}{value}");
        text
    })
}

fn describe_left_out(left_out: &LeftOutPages) -> String {
    let reasons = [
        (left_out.no_index, "noindex"),
        (left_out.refresh, "only lead elsewhere"),
        (left_out.not_found_page, "for missing addresses"),
        (left_out.not_served, "not served"),
        (left_out.excluded, "excluded"),
        (left_out.repeated, "repeated"),
        (left_out.unreadable, "unreadable"),
    ];
    let named: Vec<String> =
        reasons.iter().filter(|(number, _)| *number > 0).map(|(number, reason)| format!("{number} {reason}")).collect();
    if named.is_empty() { "0".to_owned() } else { format!("{} ({})", left_out.total(), named.join(", ")) }
}

/// Describes what exceeded the limits of a page; `None` if nothing did.
fn describe_cut(cut: &CutContent) -> Option<String> {
    let parts = [
        (cut.text_bytes, format!("{} of text", format_size(cut.text_bytes))),
        (cut.sections, format_count(cut.sections, "section")),
        (cut.headings, format_count(cut.headings, "heading")),
        (cut.slow_pages, format!("the rest of {}", format_count(cut.slow_pages, "page"))),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, part)| part).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;
    use docwharf_search::index::BuildReport;
    use docwharf_search::page::SectionResult;

    use super::*;

    fn response(results: Vec<SearchResult>, total: u64) -> SearchResponse {
        SearchResponse {
            query: "q".to_owned(),
            corrected: None,
            total,
            ms: 1.0,
            indexing: false,
            partial: false,
            version: String::new(),
            results,
        }
    }

    fn result(title: &str, excerpt: &str, marks: &[(u32, u32)]) -> SearchResult {
        SearchResult {
            url: "/docs/a.html#b".to_owned(),
            title: title.to_owned(),
            section: vec![title.to_owned(), "Part".to_owned(), "Own".to_owned()],
            lang: None,
            excerpt: excerpt.to_owned(),
            marks: marks.iter().copied().map(ExcerptMark::from).collect(),
            score: 1.0,
            sections: Vec::new(),
        }
    }

    #[test]
    fn a_result_has_title_headings_address_and_excerpt() {
        let mut first = result("Title", "some text", &[(5, 4)]);
        first.sections.push(SectionResult {
            url: "/docs/a.html#c".to_owned(),
            title: "Other".to_owned(),
            excerpt: String::new(),
            marks: Vec::new(),
        });
        let answer = response(vec![first], 3);
        let expected = "Title — Part › Own\n  /docs/a.html#b\n  some text\n  › Other: /docs/a.html#c\n\n\
                        1 of 3 pages: --limit shows more\n";
        assert_eq!(results_as_text(&answer, false), expected);
        let bold = expected.replace("Title —", "\x1b[1mTitle\x1b[0m —").replace("some text", "some \x1b[1mtext\x1b[0m");
        assert_eq!(results_as_text(&answer, true), bold);
        assert_eq!(results_as_text(&response(Vec::new(), 0), false), "no results\n");
        let corrected = SearchResponse { corrected: Some("tide".to_owned()), ..response(Vec::new(), 0) };
        assert_eq!(results_as_text(&corrected, false), "results for: tide\n\nno results\n");
    }

    #[test]
    fn no_control_character_of_a_page_reaches_the_terminal() {
        let hostile = "a\x1b[31m\x07\u{202e}b\r\nc\u{9b}d\u{2066}";
        let mut page = result(hostile, hostile, &[(0, 1)]);
        page.section.push(hostile.to_owned());
        page.url = hostile.to_owned();
        for in_bold in [false, true] {
            let text = results_as_text(&response(vec![page.clone()], 1), in_bold);
            let without_bold = text.replace(BOLD, "").replace(PLAIN, "");
            assert!(without_bold.chars().all(|c| c == '\n' || is_printable(c)), "{text:?}");
            assert!(text.contains("a[31mb  cd"), "{text:?}");
        }
    }

    #[test]
    fn marks_count_utf_16_units_and_end_with_the_excerpt() {
        for (excerpt, marks, expected) in [
            ("😀 tide 😀", &[(3, 4)][..], "😀 <tide> 😀"),
            ("ab", &[(0, 1), (1, 1)], "<a><b>"),
            ("ab", &[(1, 99)], "a<b>"),
            ("ab", &[(9, 1)], "ab"),
            ("", &[(0, 1)], ""),
            ("ab", &[(0, 0), (1, 1)], "a<b>"),
        ] {
            let marks: Vec<ExcerptMark> = marks.iter().copied().map(ExcerptMark::from).collect();
            let shown = excerpt_as_text(excerpt, &marks, true).replace(BOLD, "<").replace(PLAIN, ">");
            assert_eq!(shown, expected, "{excerpt}");
            assert_eq!(excerpt_as_text(excerpt, &marks, false), excerpt);
        }
    }

    #[test]
    fn the_report_names_what_is_left_out_and_what_was_cut() {
        let id = VersionId(Digest::compute(b"x"));
        let mut report = IndexReport {
            build: BuildReport { pages: 2, sections: 5, bytes: 7, seconds: 1.25, ..BuildReport::default() },
            peak_memory: 9,
        };
        let text = report_as_text(id, &report, true);
        assert!(text.contains("pages      2\nsections   5\nleft out   0\nsize       7 B\n"), "{text}");
        assert!(text.ends_with("memory     9 B\n"), "{text}");
        report.build.left_out = LeftOutPages { no_index: 1, repeated: 2, ..LeftOutPages::default() };
        report.build.cut = CutContent { sections: 3, ..CutContent::default() };
        let text = report_as_text(id, &report, false);
        assert!(text.contains("left out   3 (1 noindex, 2 repeated)\ncut        3 sections\n"), "{text}");
        assert!(text.contains("\nkept       no"), "{text}");
    }
}
