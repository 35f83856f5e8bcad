//! The indexes of sites that bring none: the headings of all chapters of an mdBook, and rustdoc's list of all items.

use crate::corpus::{OpenCorpus, Target};
use crate::doc_index::DocIndex;
use crate::html::{HtmlScanner, HtmlToken, clean_text, links};

/// Titles with at most this many words, and without code, are terms.
const MAX_TERM_WORDS: usize = 2;
/// The list of all items of the standard library.
const ITEMS: &str = "std/all.html";
/// The libraries that repeat items of the standard library.
const OTHER_LIBRARIES: &[&str] = &["core", "alloc"];

/// A heading while it is read.
#[derive(Debug, Default)]
struct OpenHeading {
    id: String,
    text: String,
    code: Option<String>,
    names: Vec<String>,
}

/// Reads the headings of all chapters in the table of contents. Code in a heading is a name, a short title is a term.
pub(crate) fn read_headings(corpus: &OpenCorpus) -> Result<DocIndex, String> {
    let mut index = DocIndex::default();
    for chapter in chapters(corpus)? {
        let html = corpus.read_text(&chapter)?;
        let mut heading: Option<OpenHeading> = None;
        for (_, token) in HtmlScanner::new(&html) {
            match (token, &mut heading) {
                (HtmlToken::Start(tag), _) if is_heading(tag.name) => {
                    heading = tag.attribute("id").map(|id| OpenHeading { id, ..OpenHeading::default() });
                }
                (HtmlToken::End(name), Some(open)) if is_heading(name) => {
                    add_heading(corpus, &mut index, &chapter, open);
                    heading = None;
                }
                (HtmlToken::Start(tag), Some(open)) if tag.name == "code" => open.code = Some(String::new()),
                (HtmlToken::End("code"), Some(open)) => {
                    open.names.extend(open.code.take().map(|code| clean_text(&code)));
                }
                (HtmlToken::Text(text), Some(open)) => {
                    open.text.push_str(text);
                    if let Some(code) = &mut open.code {
                        code.push_str(text);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(index)
}

/// The chapters of the book, without the old editions that it brings.
fn chapters(corpus: &OpenCorpus) -> Result<Vec<String>, String> {
    let mut chapters: Vec<String> = Vec::new();
    for link in links(&corpus.read_text("index.html")?) {
        let Some(target) = Target::from_href(&link.href, "index.html") else { continue };
        let is_chapter = target.page.starts_with("ch") || target.page.starts_with("appendix");
        if is_chapter && corpus.pages.has(&target.page) && !chapters.contains(&target.page) {
            chapters.push(target.page);
        }
    }
    Ok(chapters)
}

fn is_heading(name: &str) -> bool {
    matches!(name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6")
}

fn add_heading(corpus: &OpenCorpus, index: &mut DocIndex, chapter: &str, heading: &OpenHeading) {
    let target = || Some(Target { page: chapter.to_owned(), anchor: Some(heading.id.clone()) });
    let title = clean_text(&heading.text);
    index.titles.add(&title, target(), &corpus.pages);
    if heading.names.is_empty() && title.split(' ').count() <= MAX_TERM_WORDS {
        index.terms.add(&title, target(), &corpus.pages);
    }
    for name in &heading.names {
        index.names.add(name, target(), &corpus.pages);
    }
}

/// Reads the list of all items of the standard library. Pages of `core` and `alloc` with the same item are right, too.
pub(crate) fn read_items(corpus: &OpenCorpus) -> Result<DocIndex, String> {
    let mut index = DocIndex::default();
    for link in links(&corpus.read_text(ITEMS)?) {
        let Some(target) = Target::from_href(&link.href, ITEMS) else { continue };
        let Some(path) = target.page.strip_prefix("std/") else { continue };
        if link.text.is_empty() || !path.contains('.') || path == "all.html" || path == "index.html" {
            continue;
        }
        let last = link.text.rsplit("::").next().unwrap_or_default();
        let pages: Vec<String> = OTHER_LIBRARIES.iter().map(|library| format!("{library}/{path}")).collect();
        let others = pages.into_iter().map(|page| Target { page, anchor: target.anchor.clone() });
        for target in others.chain([target.clone()]) {
            index.names.add(last, Some(target.clone()), &corpus.pages);
            if last != link.text {
                index.names.add(&link.text, Some(target), &corpus.pages);
            }
        }
    }
    Ok(index)
}
