//! The passages of the documentation that a model gets with a question: sections of pages as Markdown. Pure.
//!
//! The best section of each page that the search has found comes first, then further sections. The characters of all
//! passages are bounded; a section that is too long is cut between two blocks.

use docwharf_search::markdown::PageMarkdown;
use serde::Serialize;

/// The largest number of passages.
pub(crate) const MAX_PASSAGES: usize = 12;
/// The share of all characters that one passage has at most: a single long section must not displace all others.
const MAX_PASSAGE_SHARE: usize = 4;
/// The smallest number of characters for which a passage is still added at the end.
const MIN_PASSAGE_CHARS: usize = 200;

/// A passage, numbered from 1 by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    /// The address of the section from the root of the host, percent-encoded.
    pub(crate) url: String,
    /// The title of the page.
    pub(crate) title: String,
    /// The heading of the section; `None` for the page itself.
    pub(crate) section: Option<String>,
    /// The text as Markdown.
    pub(crate) text: String,
}

/// A citation, as a client gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Citation {
    /// The number by which the answer refers to the passage.
    pub(crate) n: usize,
    /// The address of the section from the root of the host.
    pub(crate) url: String,
    /// The title of the page.
    pub(crate) title: String,
    /// The heading of the section; `None` for the page itself.
    pub(crate) section: Option<String>,
}

/// A section that the search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundSection {
    /// The address of the section from the root of the host, percent-encoded.
    pub(crate) url: String,
    /// The fragment identifier; `None` for the page itself.
    pub(crate) anchor: Option<String>,
    /// The heading; `None` for the page itself.
    pub(crate) heading: Option<String>,
}

/// Selects the text of passages, within a number of characters.
#[derive(Debug)]
pub(crate) struct PassageSelector {
    passages: Vec<Passage>,
    remaining_chars: usize,
    max_passage_chars: usize,
}

impl PassageSelector {
    /// Creates a selector for passages that have this number of characters in total.
    pub(crate) fn new(max_chars: usize) -> PassageSelector {
        PassageSelector {
            passages: Vec::new(),
            remaining_chars: max_chars,
            max_passage_chars: (max_chars / MAX_PASSAGE_SHARE).max(MIN_PASSAGE_CHARS),
        }
    }

    /// Returns whether no more passages fit.
    pub(crate) fn is_full(&self) -> bool {
        self.passages.len() >= MAX_PASSAGES || self.remaining_chars < MIN_PASSAGE_CHARS.min(self.max_passage_chars)
    }

    /// Adds a section of a page, unless it is full. `taken` has the parts of the page that are passages already, as
    /// byte offsets; a section within one of them is left out, and so is one without text.
    pub(crate) fn add(
        &mut self,
        title: &str,
        page: &PageMarkdown,
        section: &FoundSection,
        taken: &mut Vec<(usize, usize)>,
    ) {
        if self.is_full() {
            return;
        }
        let (start, end) = find_range(page, section.anchor.as_deref());
        if taken.iter().any(|&(from, to)| from <= start && start < to) {
            return;
        }
        // The text of a passage that was added before is not repeated.
        let end = taken.iter().map(|&(from, _)| from).filter(|&from| from > start).fold(end, usize::min);
        let end = cut_between_blocks(page, start, end, self.max_passage_chars.min(self.remaining_chars));
        let text = page.text.get(start..end).unwrap_or_default().trim();
        if text.is_empty() {
            return;
        }
        taken.push((start, end));
        self.remaining_chars -= text.chars().count().min(self.remaining_chars);
        self.passages.push(Passage {
            url: section.url.clone(),
            title: title.to_owned(),
            section: section.heading.clone(),
            text: text.to_owned(),
        });
    }

    /// Returns the passages in the order in which they were added.
    pub(crate) fn finish(self) -> Vec<Passage> {
        self.passages
    }
}

/// Returns the byte offsets of a section; those of the whole page without an anchor, or if it has no such section.
fn find_range(page: &PageMarkdown, anchor: Option<&str>) -> (usize, usize) {
    let section = anchor.and_then(|anchor| page.find_section(anchor));
    section.map_or((0, page.text.len()), |section| (section.start as usize, section.end as usize))
}

/// Returns the end of the text from `start` up to `end` that has at most this number of characters: the beginning of a
/// block if one is in the second half, else any character.
fn cut_between_blocks(page: &PageMarkdown, start: usize, end: usize, max_chars: usize) -> usize {
    let text = page.text.get(start..end).unwrap_or_default();
    let Some((len, _)) = text.char_indices().nth(max_chars) else { return start + text.len() };
    let limit = start + len;
    let blocks = page.block_starts.iter().map(|&block| block as usize);
    blocks.filter(|&block| block > start + len / 2 && block <= limit).max().unwrap_or(limit)
}

/// Returns the citations of the passages for which `is_cited` returns true for their number.
pub(crate) fn list_citations(passages: &[Passage], is_cited: impl Fn(usize) -> bool) -> Vec<Citation> {
    let numbered = passages.iter().enumerate().map(|(index, passage)| (index + 1, passage));
    let cited = numbered.filter(|(number, _)| is_cited(*number)).map(|(n, passage)| Citation {
        n,
        url: passage.url.clone(),
        title: passage.title.clone(),
        section: passage.section.clone(),
    });
    cited.collect()
}

#[cfg(test)]
mod tests {
    use docwharf_search::markdown::MarkdownSection;

    use super::*;

    /// Creates a page of these sections, each an anchor and its text. The anchor is also the heading.
    fn page(sections: &[(&str, &str)]) -> PageMarkdown {
        let (mut text, mut block_starts, mut list) = (String::new(), Vec::new(), Vec::new());
        for (anchor, content) in sections {
            let start = text.len() as u32;
            for block in content.split_inclusive("\n\n") {
                block_starts.push(text.len() as u32);
                text.push_str(block);
            }
            let (anchor, heading) = ((*anchor).to_owned(), (*anchor).to_owned());
            list.push(MarkdownSection { anchor, heading, start, end: text.len() as u32 });
        }
        PageMarkdown {
            title: "Title".to_owned(),
            description: None,
            lang: None,
            exclusion: None,
            text,
            block_starts,
            sections: list,
            is_cut: false,
        }
    }

    fn found(anchor: Option<&str>) -> FoundSection {
        let url = anchor.map_or("/p".to_owned(), |anchor| format!("/p#{anchor}"));
        FoundSection { url, anchor: anchor.map(str::to_owned), heading: anchor.map(str::to_owned) }
    }

    /// Returns the texts of the passages for these anchors of a page.
    fn texts(page: &PageMarkdown, max_chars: usize, anchors: &[Option<&str>]) -> Vec<String> {
        let (mut selector, mut taken) = (PassageSelector::new(max_chars), Vec::new());
        for anchor in anchors {
            selector.add("Title", page, &found(*anchor), &mut taken);
        }
        selector.finish().into_iter().map(|passage| passage.text).collect()
    }

    #[test]
    fn a_passage_is_the_section_with_the_anchor_or_the_page() {
        let page = page(&[("a", "# A\n\none\n\n"), ("b", "## B\n\ntwo\n\n")]);
        assert_eq!(texts(&page, 10_000, &[Some("b"), Some("a")]), ["## B\n\ntwo", "# A\n\none"]);
        assert_eq!(texts(&page, 10_000, &[Some("gone")]), ["# A\n\none\n\n## B\n\ntwo"]);
        assert_eq!(texts(&page, 10_000, &[None, Some("b")]), ["# A\n\none\n\n## B\n\ntwo"], "no text comes twice");
        assert_eq!(texts(&page, 10_000, &[Some("b"), None]), ["## B\n\ntwo", "# A\n\none"]);
        let mut selector = PassageSelector::new(10_000);
        selector.add("Title", &page, &found(Some("b")), &mut Vec::new());
        let passage = selector.finish().remove(0);
        assert_eq!((&*passage.url, &*passage.title, passage.section.as_deref()), ("/p#b", "Title", Some("b")));
    }

    #[test]
    fn the_characters_of_all_passages_are_bounded_and_a_long_one_is_cut_between_blocks() {
        let block = "線".repeat(98) + "\n\n";
        let long = page(&[("a", &block.repeat(50)), ("b", "short\n\n"), ("c", &"x".repeat(5000))]);
        let cut = texts(&long, 4000, &[Some("a"), Some("b"), Some("c")]);
        assert_eq!(cut.iter().map(|text| text.chars().count()).collect::<Vec<_>>(), [998, 5, 1000]);
        assert!(cut[0].ends_with('線'));
        let many: Vec<(String, String)> = (0..40).map(|n| (format!("s{n}"), "y".repeat(300))).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(anchor, text)| (&**anchor, &**text)).collect();
        let anchors: Vec<Option<&str>> = many.iter().map(|(anchor, _)| Some(*anchor)).collect();
        let bounded = texts(&page(&many), 1000, &anchors);
        assert!(bounded.iter().map(String::len).sum::<usize>() <= 1000 && bounded.len() >= 3, "{bounded:?}");
        assert_eq!(texts(&page(&many), 1 << 20, &anchors).len(), MAX_PASSAGES);
    }

    #[test]
    fn citations_have_the_numbers_of_their_passages() {
        let page = page(&[("a", "one\n\n"), ("b", "two\n\n")]);
        let (mut selector, mut taken) = (PassageSelector::new(1000), Vec::new());
        selector.add("Title", &page, &found(Some("a")), &mut taken);
        selector.add("Title", &page, &found(Some("b")), &mut taken);
        let passages = selector.finish();
        let cited = list_citations(&passages, |number| number == 2);
        let json = serde_json::to_value(&cited).unwrap();
        assert_eq!(json, serde_json::json!([{ "n": 2, "url": "/p#b", "title": "Title", "section": "b" }]));
    }
}
