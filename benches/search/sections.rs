//! The sections of pages, to decide whether a result leads to the very section that an index entry names.
//!
//! An index names anchors of any element, engines name anchors of headings or of the elements around them. Both are
//! compared by the section that they lie in. The sections are those of docwharf's extractor, for all engines alike.

use std::collections::HashMap;

use docwharf_search::extract::{ExtractLimits, Section, extract_page};

use crate::corpus::{OpenCorpus, Target};
use crate::html::{HtmlScanner, HtmlToken};

/// The sections of one page.
#[derive(Debug, Default)]
struct SectionMap {
    /// The offset of the first text at or behind each anchor: anchors without text between them are the same place.
    anchors: HashMap<String, usize>,
    /// The offsets at which sections begin, in order.
    starts: Vec<usize>,
    /// The anchors and texts of definitions, in lower case.
    definitions: Vec<(String, String)>,
}

impl SectionMap {
    fn read(corpus: &OpenCorpus, page: &str) -> Result<Self, String> {
        let bytes = corpus.read(page)?;
        let extracted = extract_page(&bytes, &ExtractLimits::default()).map_err(|error| format!("{page}: {error}"))?;
        let anchors = anchor_offsets(&String::from_utf8_lossy(&bytes));
        let start = |section: &Section| section.anchor.as_ref().map_or(Some(0), |anchor| anchors.get(anchor).copied());
        let mut starts: Vec<usize> = extracted.sections.iter().filter_map(start).collect();
        starts.sort_unstable();
        starts.dedup();
        let definition = |section: &Section| {
            let text = section.headings.last()?.to_lowercase();
            section.anchor.clone().filter(|_| section.is_definition).map(|anchor| (anchor, text))
        };
        let definitions = extracted.sections.iter().filter_map(definition).collect();
        Ok(Self { anchors, starts, definitions })
    }

    /// The number of the section of an anchor, counted from 0. The text before the first heading and the section of the
    /// first heading are one: both are the top of the page. `None` if the page has no such anchor.
    fn section(&self, anchor: Option<&str>) -> Option<usize> {
        let offset = anchor.map_or(Some(0), |anchor| self.anchors.get(anchor).copied())?;
        let section = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let has_text_before = self.starts.first() == Some(&0);
        Some(if has_text_before { section.saturating_sub(1) } else { section })
    }
}

/// The offset of the first text that is not white space at or behind each `id` (or `name` of a link).
fn anchor_offsets(html: &str) -> HashMap<String, usize> {
    let mut anchors = HashMap::new();
    let mut pending: Vec<String> = Vec::new();
    for (offset, token) in HtmlScanner::new(html) {
        match token {
            HtmlToken::Start(tag) => {
                pending.extend(tag.attribute("id"));
                if tag.name == "a" {
                    pending.extend(tag.attribute("name"));
                }
            }
            HtmlToken::Text(text) if !pending.is_empty() && !text.trim().is_empty() => {
                anchors.extend(pending.drain(..).map(|anchor| (anchor, offset)));
            }
            HtmlToken::Text(_) | HtmlToken::End(_) => {}
        }
    }
    anchors.extend(pending.into_iter().map(|anchor| (anchor, html.len())));
    anchors
}

/// The sections of pages, read when they are asked for.
#[derive(Debug)]
pub(crate) struct SectionMaps<'a> {
    corpus: &'a OpenCorpus,
    pages: HashMap<String, SectionMap>,
}

impl<'a> SectionMaps<'a> {
    pub(crate) fn new(corpus: &'a OpenCorpus) -> Self {
        Self { corpus, pages: HashMap::new() }
    }

    /// The sections of a page. A page that cannot be read has none.
    fn page(&mut self, page: &str) -> &SectionMap {
        let corpus = self.corpus;
        self.pages.entry(page.to_owned()).or_insert_with(|| SectionMap::read(corpus, page).unwrap_or_default())
    }

    /// Adds the definitions of `name` on the pages of the targets. The index of a book names the section around them,
    /// and the definition itself is at least as good.
    pub(crate) fn add_definitions(&mut self, name: &str, targets: &mut Vec<Target>) {
        let name = name.to_lowercase();
        let is_of_name = |text: &str| {
            let rest = text.strip_prefix(&name);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        let mut pages: Vec<String> = targets.iter().map(|target| target.page.clone()).collect();
        pages.dedup();
        for page in pages {
            let definitions = self.page(&page).definitions.iter().filter(|(_, text)| is_of_name(text));
            let anchors: Vec<String> = definitions.map(|(anchor, _)| anchor.clone()).collect();
            for anchor in anchors {
                let target = Target { page: page.clone(), anchor: Some(anchor) };
                if !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
    }

    /// Whether a result leads to the section of one of the targets. A target without an anchor is a whole page, and each
    /// of its sections is right: an index names the page when its entry is a row of a table far down in it, and an
    /// engine that leads to the part with that row is not worse than one that leads to the top.
    pub(crate) fn is_at_section(&mut self, found: &Target, targets: &[Target]) -> bool {
        let sections = self.page(&found.page);
        let section = sections.section(found.anchor.as_deref());
        targets.iter().filter(|target| target.page == found.page).any(|target| {
            let expected = sections.section(target.anchor.as_deref());
            target.anchor.is_none() || target.anchor == found.anchor || (section.is_some() && section == expected)
        })
    }

    /// Whether the page has the anchor of a target.
    pub(crate) fn has_anchor(&mut self, target: &Target) -> bool {
        target.anchor.as_ref().is_none_or(|anchor| self.page(&target.page).anchors.contains_key(anchor))
    }
}
