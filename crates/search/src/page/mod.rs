//! The parts of the search that readers see: the page of results, the files of the search box, and `opensearch.xml`.
//!
//! Everything here is a pure function from values to text. Titles, headings and excerpts come from the pages of a
//! bundle, and queries from clients. `markup` is the only place where such text becomes part of a document, and it
//! escapes all of it. The links in the search page are relative to its address, `BASE/_docwharf/search`, so that the
//! page also works behind a proxy that changes the base path.

mod language;
mod markup;
mod open_search;
mod response;
mod search_box;
mod texts;

use std::fmt::Write;

use docwharf_base::encode_sets::SEGMENT;
use docwharf_base::model::reader_activity::SearchId;
use percent_encoding::utf8_percent_encode;

use language::{is_language_tag, text_direction};
use markup::{is_site_address, push_escaped, push_marked};
use texts::{FilledText, PageTexts};

pub use open_search::render_open_search;
pub use response::{
    DEFAULT_LIMIT, ExcerptMark, MAX_LIMIT, MAX_OFFSET, MAX_QUERY_CHARS, SearchResponse, SearchResult, SectionResult,
};
pub use search_box::{ASK_CSS, PAGE_CSS, SEARCH_CSS, SearchScriptSettings, render_ask_script, render_search_script};

/// The content security policy of the search page, without `frame-ancestors`, which the server decides. It allows the
/// style sheet and the form, which is all the page has, and images: browsers request `/favicon.ico` for each page, and
/// would report a violation.
pub const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; img-src 'self'";

/// The time after which a browser requests the page again while the index is built, in seconds.
const REFRESH_SECS: u32 = 5;

/// A search page: the question of the client, and what the page shows for it.
#[derive(Debug, Clone, Copy)]
pub struct SearchPage<'a> {
    /// The parameter `q`; empty for a page with a form only.
    pub query: &'a str,
    /// The parameter `section`.
    pub section: Option<&'a str>,
    /// The parameter `lang`. The texts of the page are in this language if there are any.
    pub lang: Option<&'a str>,
    /// The parameter `limit`, or [`DEFAULT_LIMIT`].
    pub limit: u32,
    /// The parameter `offset`, or 0.
    pub offset: u32,
    /// The parameter `record`: the search is recorded under this id already.
    pub record: Option<SearchId>,
    /// The answer.
    pub content: SearchPageContent<'a>,
}

/// The answer that a search page shows below the form.
#[derive(Debug, Clone, Copy)]
pub enum SearchPageContent<'a> {
    /// The results of the query.
    Results(&'a SearchResponse),
    /// No version has an index yet (status 503).
    IndexBuilding,
    /// The query had to wait for too long (status 503).
    Busy,
    /// The parameters of the request are not valid (status 400).
    Invalid,
}

/// Renders the page. All texts may be any text; all are escaped.
pub fn render_page(page: &SearchPage<'_>) -> String {
    let lang = page.lang.filter(|lang| is_language_tag(lang)).unwrap_or("en");
    let texts = PageTexts::for_language(lang);
    let mut out = String::with_capacity(16 * 1024);
    write_head(&mut out, page, lang, texts);
    // The texts are in English if there are none in the language of the page.
    if language::primary_subtag(lang).eq_ignore_ascii_case(texts.lang) {
        out.push_str("<body>\n");
    } else {
        let _ = writeln!(out, "<body lang=\"{}\">", texts.lang);
    }
    let _ = write!(out, "<header><a href=\"../\"><bdi>{}</bdi></a></header>\n<main>\n", texts.home);
    write_form(&mut out, page, texts);
    match page.content {
        SearchPageContent::Results(response) => write_response(&mut out, page, response, texts),
        SearchPageContent::IndexBuilding => write_words(&mut out, &[FilledText::plain(texts.building)]),
        SearchPageContent::Busy => write_words(&mut out, &[FilledText::plain(texts.failed)]),
        SearchPageContent::Invalid => write_words(&mut out, &[FilledText::plain(texts.invalid)]),
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn write_head(out: &mut String, page: &SearchPage<'_>, lang: &str, texts: &PageTexts) {
    out.push_str("<!doctype html>\n<html lang=\"");
    push_escaped(out, lang);
    let _ = writeln!(out, "\" dir=\"{}\">\n<head>\n<meta charset=\"utf-8\">", text_direction(lang));
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n");
    if matches!(page.content, SearchPageContent::IndexBuilding) {
        let _ = writeln!(out, "<meta http-equiv=\"refresh\" content=\"{REFRESH_SECS}\">");
    }
    out.push_str("<title>");
    if !page.query.is_empty() {
        push_escaped(out, page.query);
        out.push_str(" – ");
    }
    let _ = write!(
        out,
        "{}</title>\n<link rel=\"stylesheet\" href=\"page.css\">\n\
         <link rel=\"search\" type=\"application/opensearchdescription+xml\" href=\"opensearch.xml\" title=\"{}\">\n\
         </head>\n",
        texts.search, texts.search
    );
}

fn write_form(out: &mut String, page: &SearchPage<'_>, texts: &PageTexts) {
    let _ = write!(
        out,
        "<h1><label for=\"q\"><bdi>{}</bdi></label></h1>\n<form role=\"search\" action=\"search\">\n\
         <input type=\"search\" id=\"q\" name=\"q\" maxlength=\"{MAX_QUERY_CHARS}\" dir=\"auto\" autocomplete=\"off\" \
         autocapitalize=\"none\" spellcheck=\"false\"{} value=\"",
        texts.search,
        if page.query.is_empty() { " autofocus" } else { "" }
    );
    push_escaped(out, page.query);
    out.push_str("\">\n");
    let limit = (page.limit != DEFAULT_LIMIT).then(|| page.limit.to_string());
    for (name, value) in [("section", page.section), ("lang", page.lang), ("limit", limit.as_deref())] {
        if let Some(value) = value {
            let _ = write!(out, "<input type=\"hidden\" name=\"{name}\" value=\"");
            push_escaped(out, value);
            out.push_str("\">\n");
        }
    }
    let _ = writeln!(out, "<button><bdi>{}</bdi></button>\n</form>", texts.search);
}

/// Writes a paragraph of sentences. Each is isolated, because it may have another direction than the page.
fn write_words(out: &mut String, sentences: &[FilledText<'_>]) {
    out.push_str("<p class=\"words\">");
    for (index, sentence) in sentences.iter().enumerate() {
        out.push_str(if index == 0 { "<bdi>" } else { " <bdi>" });
        sentence.push_to(out);
        out.push_str("</bdi>");
    }
    out.push_str("</p>\n");
}

fn write_response(out: &mut String, page: &SearchPage<'_>, response: &SearchResponse, texts: &PageTexts) {
    if let Some(section) = page.section {
        out.push_str("<p class=\"words\"><bdi>");
        FilledText::new(texts.within, section).push_to(out);
        out.push_str("</bdi> <a href=\"");
        push_link(out, &SearchPage { section: None, ..*page }, 0);
        let _ = writeln!(out, "\"><bdi>{}</bdi></a></p>", texts.everywhere);
    }
    if page.query.trim().is_empty() {
        return;
    }
    let total = response.total.to_string();
    let mut sentences = Vec::new();
    sentences.extend(response.corrected.as_deref().map(|words| FilledText::new(texts.corrected, words)));
    sentences.push(match response.total {
        0 => FilledText::new(texts.none, page.query),
        _ => FilledText::new(texts.count, &total),
    });
    sentences.extend(response.indexing.then(|| FilledText::plain(texts.indexing)));
    sentences.extend(response.partial.then(|| FilledText::plain(texts.partial)));
    write_words(out, &sentences);
    if !response.results.is_empty() {
        let _ = writeln!(out, "<ol class=\"results\" start=\"{}\">", u64::from(page.offset) + 1);
        for result in &response.results {
            write_result(out, result);
        }
        out.push_str("</ol>\n");
    }
    write_paging(out, page, response, texts);
}

fn write_result(out: &mut String, result: &SearchResult) {
    match result.lang.as_deref().filter(|lang| is_language_tag(lang)) {
        Some(lang) => {
            out.push_str("<li lang=\"");
            push_escaped(out, lang);
            let _ = write!(out, "\" dir=\"{}\">", text_direction(lang));
        }
        // An empty `lang` says that the language is not known.
        None => out.push_str("<li lang=\"\" dir=\"auto\">"),
    }
    out.push_str("\n<h2>");
    push_title(out, &result.url, &result.title);
    out.push_str("</h2>\n");
    let path: Vec<&str> = result.section.iter().map(String::as_str).filter(|text| *text != result.title).collect();
    if !path.is_empty() {
        out.push_str("<p class=\"path\">");
        push_escaped(out, &path.join(" › "));
        out.push_str("</p>\n");
    }
    write_excerpt(out, &result.excerpt, &result.marks);
    if !result.sections.is_empty() {
        out.push_str("<ul class=\"sections\">\n");
        for section in &result.sections {
            out.push_str("<li>");
            push_title(out, &section.url, &section.title);
            write_excerpt(out, &section.excerpt, &section.marks);
            out.push_str("</li>\n");
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</li>\n");
}

fn write_excerpt(out: &mut String, excerpt: &str, marks: &[ExcerptMark]) {
    if !excerpt.is_empty() {
        out.push_str("<p class=\"excerpt\">");
        push_marked(out, excerpt, marks);
        out.push_str("</p>\n");
    }
}

/// Appends a link. Without a title, the text of the link is its address, because readers could not see the link
/// otherwise. An address that leads to another host becomes no link.
fn push_title(out: &mut String, url: &str, title: &str) {
    let text = if title.trim().is_empty() { url } else { title };
    if is_site_address(url) {
        out.push_str("<a href=\"");
        push_escaped(out, url);
        out.push_str("\">");
        push_escaped(out, text);
        out.push_str("</a>");
    } else {
        push_escaped(out, text);
    }
}

fn write_paging(out: &mut String, page: &SearchPage<'_>, response: &SearchResponse, texts: &PageTexts) {
    let (previous, next) = neighbor_offsets(page.offset, page.limit, response.total);
    if previous.is_none() && next.is_none() {
        return;
    }
    let _ = writeln!(out, "<nav aria-label=\"{}\">", texts.pages);
    if let Some(offset) = previous {
        write_paging_link(out, page, offset, "prev", texts.previous);
    }
    if !response.results.is_empty() {
        let first = u64::from(page.offset) + 1;
        let last = u64::from(page.offset) + response.results.len() as u64;
        let _ = writeln!(out, "<span aria-current=\"page\">{first}–{last}</span>");
    }
    if let Some(offset) = next {
        write_paging_link(out, page, offset, "next", texts.next);
    }
    out.push_str("</nav>\n");
}

fn write_paging_link(out: &mut String, page: &SearchPage<'_>, offset: u32, relation: &str, text: &str) {
    let _ = write!(out, "<a rel=\"{relation}\" href=\"");
    push_link(out, page, offset);
    let _ = writeln!(out, "\"><bdi>{text}</bdi></a>");
}

/// Returns the offsets of the previous and the next page of results. A page beyond the last result leads back to the
/// last results. No page begins beyond [`MAX_OFFSET`].
fn neighbor_offsets(offset: u32, limit: u32, total: u64) -> (Option<u32>, Option<u32>) {
    let limit = limit.max(1);
    let last_start = total.saturating_sub(1) / u64::from(limit) * u64::from(limit);
    let last_start = u32::try_from(last_start).unwrap_or(u32::MAX);
    let previous = (offset > 0 && total > 0).then(|| offset.saturating_sub(limit).min(last_start));
    let next = offset.checked_add(limit).filter(|&next| u64::from(next) < total && next <= MAX_OFFSET);
    (previous, next)
}

/// Appends the address of a page of results, escaped.
fn push_link(out: &mut String, page: &SearchPage<'_>, offset: u32) {
    let limit = (page.limit != DEFAULT_LIMIT).then(|| page.limit.to_string());
    let offset = (offset > 0).then(|| offset.to_string());
    let mut address = format!("search?q={}", utf8_percent_encode(page.query, SEGMENT));
    let record = page.record.map(|id| id.to_string());
    let parameters = [
        ("section", page.section),
        ("lang", page.lang),
        ("limit", limit.as_deref()),
        ("offset", offset.as_deref()),
        ("record", record.as_deref()),
    ];
    for (name, value) in parameters {
        if let Some(value) = value {
            let _ = write!(address, "&{name}={}", utf8_percent_encode(value, SEGMENT));
        }
    }
    push_escaped(out, &address);
}

#[cfg(test)]
mod tests;
