//! Compares the text of random pages with that of the document tree which another HTML parser builds.

use std::fmt::Write as _;

use scraper::{Html, Node};

use super::*;

/// The depth of elements below which only words are written.
const MAX_DEPTH: u32 = 4;

/// Writes random pages. Elements are nested as authors nest them, but some end tags are missing.
///
/// A page has either formatting elements or blocks in inline elements. With both, the "adoption agency algorithm" of
/// the HTML Standard moves blocks out of the elements in which they are written, which extraction does not imitate.
struct PageWriter {
    state: u64,
    words: u32,
    has_formatting: bool,
    html: String,
}

impl PageWriter {
    fn write_page(seed: u64) -> String {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut writer = PageWriter { state, words: 0, has_formatting: seed.is_multiple_of(2), html: String::new() };
        writer.html.push_str("<!doctype html><html><head><title>title</title></head><body>");
        writer.write_flow(0);
        if writer.below(2) == 0 {
            let root = ["main", "div role=main", "article", "div data-pagefind-body"][writer.below(4) as usize];
            writer.write_element(root, Content::Flow, 0, false);
            writer.write_flow(1);
        }
        writer.html
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % bound
    }

    fn write_words(&mut self) {
        for _ in 0..=self.below(2) {
            self.words += 1;
            write!(self.html, "w{} ", self.words).unwrap();
        }
    }

    fn write_element(&mut self, tag: &str, content: Content, depth: u32, may_omit_end: bool) {
        write!(self.html, "<{tag}>").unwrap();
        match content {
            Content::Flow => self.write_flow(depth + 1),
            Content::Phrase => self.write_phrase(depth + 1),
            Content::Items(item) => {
                for _ in 0..=self.below(3) {
                    let (tag, content) = item.random(self);
                    self.write_element(tag, content, depth + 1, true);
                }
            }
        }
        if !may_omit_end || self.below(2) == 0 {
            let name = tag.split(' ').next().unwrap();
            write!(self.html, "</{name}>").unwrap();
        }
    }

    fn write_flow(&mut self, depth: u32) {
        for _ in 0..=self.below(4) {
            if depth > MAX_DEPTH {
                self.write_words();
                continue;
            }
            match self.below(16) {
                0 | 1 => self.write_element("p", Content::Phrase, depth, true),
                2 => self.write_element("div", Content::Flow, depth, false),
                3 => self.write_element("section", Content::Flow, depth, false),
                4 => self.write_element("nav", Content::Flow, depth, true),
                5 => self.write_element("aside", Content::Flow, depth, true),
                6 => self.write_element("h2", Content::Phrase, depth, false),
                7 => self.write_element("ul", Content::Items(ChildElement::ListItem), depth, false),
                8 => self.write_element("dl", Content::Items(ChildElement::Definition), depth, false),
                9 => self.write_element("table", Content::Items(ChildElement::Row), depth, false),
                10 => self.write_element("blockquote", Content::Flow, depth, false),
                11 => self.write_element("div aria-hidden=true", Content::Flow, depth, false),
                12 => self.write_element("pre", Content::Phrase, depth, false),
                _ => self.write_phrase(depth),
            }
        }
    }

    fn write_phrase(&mut self, depth: u32) {
        for _ in 0..=self.below(3) {
            if depth > MAX_DEPTH {
                self.write_words();
                continue;
            }
            match self.below(12) {
                0 if self.has_formatting => self.write_element("b", Content::Phrase, depth, false),
                1 if self.has_formatting => self.write_element("code", Content::Phrase, depth, false),
                2 if self.has_formatting => self.write_element("a href=x", Content::Phrase, depth, false),
                0 => self.write_element("button", Content::Phrase, depth, false),
                1 => self.write_element("span", Content::Flow, depth, false),
                2 | 3 => self.write_element("span", Content::Phrase, depth, false),
                4 => self.write_element("span aria-hidden=true", Content::Phrase, depth, false),
                7 => self.html.push_str("<script>'<p>no'</script><!-- <p>no -->"),
                8 => self.html.push_str("</p></div x></span>"),
                _ => self.write_words(),
            }
        }
    }
}

/// The content that is written into an element.
#[derive(Clone, Copy)]
enum Content {
    Flow,
    Phrase,
    Items(ChildElement),
}

/// The children of an element that has only children of some kinds.
#[derive(Clone, Copy)]
enum ChildElement {
    ListItem,
    Definition,
    Row,
    Cell,
}

impl ChildElement {
    fn random(self, writer: &mut PageWriter) -> (&'static str, Content) {
        match self {
            ChildElement::ListItem => ("li", Content::Flow),
            ChildElement::Definition => [("dt", Content::Phrase), ("dd", Content::Flow)][writer.below(2) as usize],
            ChildElement::Row => ("tr", Content::Items(ChildElement::Cell)),
            ChildElement::Cell => [("td", Content::Flow), ("th", Content::Phrase)][writer.below(2) as usize],
        }
    }
}

/// Returns the words of a page that the rules of extraction select in its document tree.
fn words_in_tree(html: &str) -> Vec<String> {
    let document = Html::parse_document(html);
    let mut best_root = 0_u8;
    let mut words: Vec<String> = Vec::new();
    for node in document.tree.root().descendants() {
        let Node::Text(text) = node.value() else { continue };
        let mut root = 0_u8;
        let mut is_left_out = text.trim().is_empty();
        for element in node.ancestors().filter_map(|ancestor| ancestor.value().as_element()) {
            is_left_out |= ["title", "script", "nav", "aside", "button"].contains(&element.name());
            is_left_out |= element.attr("aria-hidden") == Some("true");
            root = root.max(match element.name() {
                _ if element.attr("data-pagefind-body").is_some() => 4,
                "main" => 3,
                _ if element.attr("role") == Some("main") => 2,
                "article" => 1,
                _ => 0,
            });
        }
        if is_left_out || root < best_root {
            continue;
        }
        if root > best_root {
            best_root = root;
            words.clear();
        }
        words.extend(text.split_whitespace().map(str::to_owned));
    }
    words.sort();
    words
}

/// Returns the words of the headings and texts that are extracted.
fn words_of_sections(html: &str) -> Vec<String> {
    let limits = ExtractLimits { heading_chars: usize::MAX, ..ExtractLimits::default() };
    let page = extract_page(html.as_bytes(), &limits).unwrap();
    let texts = page.sections.iter().flat_map(|section| section.headings.last().into_iter().chain([&section.text]));
    let mut words: Vec<String> = texts.flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
    words.sort();
    words
}

#[test]
fn random_pages_have_the_text_of_their_document_tree() {
    for seed in 1..=1000 {
        let html = PageWriter::write_page(seed);
        assert_eq!(words_of_sections(&html), words_in_tree(&html), "seed {seed}: {html}");
    }
}
