//! The index of a book that the style sheets of `DocBook` have made: entries in nested definition lists, each with
//! links whose texts are the titles of sections; and the table of contents.

use crate::corpus::{OpenCorpus, Target};
use crate::doc_index::DocIndex;
use crate::html::{HtmlScanner, HtmlToken, clean_text, links};

/// Endings that the index of `PostgreSQL` adds to names. Readers search for the name alone.
const NAME_SUFFIXES: &[&str] = &[" configuration parameter", " storage parameter", " environment variable"];
/// Pages of tables of functions, whose entries are names also if they look like words.
const FUNCTION_PAGES: &str = "functions-";
/// The class of the links from an entry to its places.
const TARGET_CLASS: &str = "indexterm";

/// An entry while it is read.
#[derive(Debug, Default)]
struct OpenEntry {
    text: String,
    targets: Vec<Target>,
}

/// Reads the index in `file`, and the titles in `index.html`.
pub(crate) fn read_index(corpus: &OpenCorpus, file: &str, has_nested_terms: bool) -> Result<DocIndex, String> {
    let html = corpus.read_text(file)?;
    let start = html.find("class=\"indexdiv\"").ok_or_else(|| format!("{file} has no index"))?;
    let mut reader =
        IndexReader { corpus, file, has_nested_terms, index: DocIndex::default(), parents: Vec::new(), depth: 0 };
    reader.read(&html[start..]);
    let mut index = reader.index;
    for link in links(&corpus.read_text("index.html")?) {
        let title = without_number(&link.text);
        index.titles.add(title, Target::from_href(&link.href, "index.html"), &corpus.pages);
    }
    Ok(index)
}

/// Reads entries. The text of an entry at each depth is remembered for the entries below it.
struct IndexReader<'a> {
    corpus: &'a OpenCorpus,
    file: &'a str,
    has_nested_terms: bool,
    index: DocIndex,
    parents: Vec<(usize, String)>,
    depth: usize,
}

impl IndexReader<'_> {
    fn read(&mut self, html: &str) {
        let mut entry: Option<OpenEntry> = None;
        let mut link: Option<(Option<Target>, String)> = None;
        for (_, token) in HtmlScanner::new(html) {
            match (token, &mut entry, &mut link) {
                (HtmlToken::Start(tag), ..) if tag.name == "dl" => self.depth += 1,
                (HtmlToken::End("dl"), ..) => self.depth = self.depth.saturating_sub(1),
                (HtmlToken::Start(tag), ..) if tag.name == "dt" => entry = Some(OpenEntry::default()),
                (HtmlToken::End("dt"), Some(_), _) => {
                    if let Some(entry) = entry.take() {
                        self.finish(&entry);
                    }
                }
                (HtmlToken::Start(tag), Some(_), _) if tag.name == "a" => {
                    let is_target = tag.attribute("class").is_some_and(|class| class == TARGET_CLASS);
                    let href = tag.attribute("href").filter(|_| is_target);
                    link = Some((href.and_then(|href| Target::from_href(&href, self.file)), String::new()));
                }
                (HtmlToken::End("a"), Some(entry), Some((target, title))) => {
                    self.index.titles.add(&clean_text(title), target.clone(), &self.corpus.pages);
                    entry.targets.extend(target.take());
                    link = None;
                }
                (HtmlToken::Text(text), Some(_), Some((_, title))) => title.push_str(text),
                (HtmlToken::Text(text), Some(entry), None) if entry.targets.is_empty() => entry.text.push_str(text),
                _ => {}
            }
        }
    }

    /// Adds an entry, and its places to the entry above it. An entry with a reference (`see …`) has no places.
    fn finish(&mut self, entry: &OpenEntry) {
        let text = clean_text(&entry.text);
        let text = text.trim_end_matches(',').trim_end_matches("...").trim();
        let text = NAME_SUFFIXES.iter().find_map(|suffix| text.strip_suffix(suffix)).unwrap_or(text);
        while self.parents.last().is_some_and(|(depth, _)| *depth >= self.depth) {
            self.parents.pop();
        }
        let parent = self.parents.first().map(|(_, parent)| parent.clone());
        if parent.is_none() || self.has_nested_terms {
            self.add(text, &entry.targets);
        }
        if let Some(parent) = parent {
            self.add(&parent, &entry.targets);
        }
        self.parents.push((self.depth, text.to_owned()));
    }

    fn add(&mut self, text: &str, targets: &[Target]) {
        let is_function = targets.iter().any(|target| target.page.starts_with(FUNCTION_PAGES));
        let entries = if is_name(text, is_function) { &mut self.index.names } else { &mut self.index.terms };
        for target in targets {
            entries.add(text, Some(target.clone()), &self.corpus.pages);
        }
    }
}

/// Whether a text is a name: a command in capitals, or a word that no dictionary has.
fn is_name(text: &str, is_function: bool) -> bool {
    if !text.contains(' ') {
        let has_inner_capital = text.chars().skip(1).any(|c| c.is_ascii_uppercase());
        return is_function || has_inner_capital || text.contains(['_', '.']);
    }
    text.chars().all(|c| c.is_ascii_uppercase() || c == ' ')
}

/// Removes the number of a chapter or section: `4.1.2. Title`, `IV. Title`, `A. Title`.
fn without_number(title: &str) -> &str {
    let Some((number, rest)) = title.split_once(". ") else { return title };
    let is_number = number.split('.').all(|part| {
        let is_roman = !part.is_empty() && part.chars().all(|c| "IVXL".contains(c));
        is_roman || part.parse::<u32>().is_ok() || (part.len() == 1 && part.chars().all(|c| c.is_ascii_uppercase()))
    });
    if is_number { rest.trim_start() } else { title }
}
