//! The facts about a page outside its content: title, language, canonical address, and whether it asks not to be
//! indexed.

use docwharf_site::links::refresh_address;

use super::PageExclusion;
use super::element_name::ElementName;
use super::tags::StartTag;
use super::text_buffer::{LineFeeds, MAX_CHARACTER_BYTES, TextBuffer};

/// The maximum length of a language tag, in bytes (RFC 5646, 4.4.1).
const MAX_LANGUAGE_TAG_BYTES: usize = 35;
/// The maximum length of a canonical address, in bytes. A longer one is ignored.
const MAX_CANONICAL_BYTES: usize = 8192;

/// The state of reading the title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TitleState {
    Missing,
    Open,
    Read,
}

/// The facts that have been read so far. Of several of the same kind, the first counts.
#[derive(Debug)]
pub(crate) struct PageFacts {
    pub(crate) lang: Option<String>,
    pub(crate) canonical: Option<String>,
    pub(crate) exclusion: Option<PageExclusion>,
    title: TextBuffer,
    title_state: TitleState,
    remaining_title_bytes: usize,
    max_title_chars: usize,
    is_title_cut: bool,
}

impl PageFacts {
    pub(crate) fn new(max_title_chars: usize) -> Self {
        PageFacts {
            lang: None,
            canonical: None,
            exclusion: None,
            title: TextBuffer::default(),
            title_state: TitleState::Missing,
            remaining_title_bytes: max_title_chars.saturating_mul(MAX_CHARACTER_BYTES),
            max_title_chars,
            is_title_cut: false,
        }
    }

    /// Reads the start tag of an element that is not left out.
    pub(crate) fn read_element(&mut self, tag: &StartTag<'_>) {
        match tag.name {
            ElementName::Html => self.lang = self.lang.take().or_else(|| read_language(tag)),
            ElementName::Link => self.canonical = self.canonical.take().or_else(|| read_canonical(tag)),
            ElementName::Meta => self.exclusion = self.exclusion.or_else(|| read_exclusion(tag)),
            _ => {}
        }
        // Pagefind leaves out the whole page, too.
        let is_page = matches!(tag.name, ElementName::Html | ElementName::Body);
        if is_page && tag.has_pagefind_ignore() {
            self.exclusion = self.exclusion.or(Some(PageExclusion::NoIndex));
        }
    }

    /// Starts a `title` element. Returns whether it is the one that counts.
    pub(crate) fn start_title(&mut self) -> bool {
        let is_first = self.title_state == TitleState::Missing;
        if is_first {
            self.title_state = TitleState::Open;
        }
        is_first
    }

    pub(crate) fn end_title(&mut self) {
        self.title_state = TitleState::Read;
    }

    pub(crate) fn is_title_open(&self) -> bool {
        self.title_state == TitleState::Open
    }

    pub(crate) fn push_title(&mut self, text: &str) {
        let pushed = self.title.push(text, LineFeeds::Collapse, &mut self.remaining_title_bytes);
        self.is_title_cut |= pushed.left_out_bytes > 0;
    }

    /// Returns the title, or an empty text, and whether it was cut.
    pub(crate) fn take_title(&mut self) -> (String, bool) {
        let (title, is_cut) = std::mem::take(&mut self.title).into_line(self.max_title_chars);
        (title, is_cut || self.is_title_cut)
    }
}

fn read_language(tag: &StartTag<'_>) -> Option<String> {
    let lang = tag.lang()?.trim().to_ascii_lowercase();
    let is_tag = lang.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    (is_tag && !lang.is_empty() && lang.len() <= MAX_LANGUAGE_TAG_BYTES).then_some(lang)
}

fn read_canonical(tag: &StartTag<'_>) -> Option<String> {
    let href = tag.href().filter(|_| tag.has_rel("canonical"))?;
    let href = href.trim();
    (!href.is_empty() && href.len() <= MAX_CANONICAL_BYTES).then(|| href.to_owned())
}

fn read_exclusion(tag: &StartTag<'_>) -> Option<PageExclusion> {
    let content = tag.content()?;
    let has_value = |value: Option<&str>, names: &[&str]| {
        value.is_some_and(|value| names.iter().any(|name| value.trim().eq_ignore_ascii_case(name)))
    };
    let is_for_robots = has_value(tag.name_value().as_deref(), &["robots", "googlebot"]);
    if is_for_robots && content.split([',', ' ']).any(|rule| has_value(Some(rule), &["noindex", "none"])) {
        return Some(PageExclusion::NoIndex);
    }
    let is_refresh = has_value(tag.http_equiv().as_deref(), &["refresh"]);
    // Without an address, the page only loads itself again.
    (is_refresh && refresh_address(&content).is_some_and(|address| !address.is_empty()))
        .then_some(PageExclusion::Refresh)
}

#[cfg(test)]
mod tests {
    use super::super::tags::{PageEvent, TagReader};
    use super::*;

    fn read(markup: &str) -> PageFacts {
        let mut facts = PageFacts::new(10);
        for event in TagReader::new(markup.as_bytes()) {
            if let PageEvent::Start(tag) = event {
                facts.read_element(&tag);
            }
        }
        facts
    }

    #[test]
    fn page_is_excluded_by_noindex_by_pagefind_and_by_a_refresh_that_leads_elsewhere() {
        for (markup, expected) in [
            ("<meta name=robots content=noindex>", Some(PageExclusion::NoIndex)),
            ("<META NAME=Robots CONTENT='nofollow, NoIndex'>", Some(PageExclusion::NoIndex)),
            ("<meta name=googlebot content='none'>", Some(PageExclusion::NoIndex)),
            ("<meta name=robots content='index, follow'>", None),
            ("<meta name=robots content='noindexing'>", None),
            ("<meta name=description content=noindex>", None),
            ("<meta name=robots>", None),
            ("<meta http-equiv=refresh content='0; url=next.html'>", Some(PageExclusion::Refresh)),
            ("<meta http-equiv=Refresh content='0;URL=&quot;/a?b&amp;c&quot;'>", Some(PageExclusion::Refresh)),
            ("<meta http-equiv=refresh content=30>", None),
            ("<meta http-equiv=refresh content='30; url='>", None),
            ("<meta http-equiv=content-type content='0; url=next.html'>", None),
            (
                "<meta name=robots content=none><meta http-equiv=refresh content='0;url=x'>",
                Some(PageExclusion::NoIndex),
            ),
            ("<body data-pagefind-ignore>", Some(PageExclusion::NoIndex)),
            ("<html data-pagefind-ignore=all><body>", Some(PageExclusion::NoIndex)),
            ("<body><div data-pagefind-ignore>", None),
        ] {
            assert_eq!(read(markup).exclusion, expected, "{markup}");
        }
    }

    #[test]
    fn canonical_address_is_the_first_one_with_references_decoded() {
        for (markup, expected) in [
            ("<link rel=canonical href=' /a?b&amp;c '>", Some("/a?b&c")),
            ("<link rel='Canonical other' href=/a><link rel=canonical href=/b>", Some("/a")),
            ("<link rel=canonical><link rel=canonical href=''><link rel=canonical href=/b>", Some("/b")),
            ("<link rel=stylesheet href=/a>", None),
        ] {
            assert_eq!(read(markup).canonical.as_deref(), expected, "{markup}");
        }
    }

    #[test]
    fn language_is_that_of_the_html_element_in_lower_case() {
        for (markup, expected) in [
            ("<html lang=zh-Hans-CN>", Some("zh-hans-cn")),
            ("<html lang=' EN_us '>", Some("en_us")),
            ("<html lang=''>", None),
            ("<html lang='e\"n'>", None),
            ("<html><html lang=de>", Some("de")),
            ("<body lang=de>", None),
        ] {
            assert_eq!(read(markup).lang.as_deref(), expected, "{markup}");
        }
        assert_eq!(read(&format!("<html lang={}>", "e".repeat(MAX_LANGUAGE_TAG_BYTES + 1))).lang, None);
    }

    #[test]
    fn first_title_counts_and_is_cut() {
        let mut facts = PageFacts::new(10);
        assert!(facts.start_title());
        facts.push_title("  A title \n");
        facts.push_title("that is long");
        facts.end_title();
        assert!(!facts.start_title() && !facts.is_title_open());
        assert_eq!(facts.take_title(), ("A title th".to_owned(), true));
        let mut facts = PageFacts::new(1);
        facts.start_title();
        facts.push_title("abcd");
        facts.push_title("e");
        assert_eq!(facts.take_title(), ("a".to_owned(), true));
        assert_eq!(PageFacts::new(1).take_title(), (String::new(), false));
    }
}
