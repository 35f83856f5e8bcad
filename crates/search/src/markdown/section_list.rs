//! The headings and terms of a page with their places in its Markdown.

use crate::extract::MAX_SECTIONS;

use super::MarkdownSection;

#[derive(Debug)]
struct OpenSection {
    anchor: String,
    heading: String,
    /// The level of a heading; `None` for a term.
    level: Option<u8>,
    start: usize,
    /// The end of what explains a term, once it is known.
    end: Option<usize>,
}

/// The sections that have been read so far.
#[derive(Debug, Default)]
pub(super) struct SectionList {
    drafts: Vec<OpenSection>,
}

impl SectionList {
    /// Discards all sections.
    pub(super) fn restart(&mut self) {
        self.drafts.clear();
    }

    pub(super) fn add_heading(&mut self, level: u8, anchor: Option<String>, heading: String, start: usize) {
        self.add(OpenSection { anchor: anchor.unwrap_or_default(), heading, level: Some(level), start, end: None });
    }

    /// Adds a term. Returns its place, for [`end_term`](Self::end_term).
    pub(super) fn add_term(&mut self, anchor: String, heading: String, start: usize) -> Option<usize> {
        self.add(OpenSection { anchor, heading, level: None, start, end: None })
    }

    fn add(&mut self, draft: OpenSection) -> Option<usize> {
        let place = self.drafts.len();
        (place < MAX_SECTIONS).then(|| {
            self.drafts.push(draft);
            place
        })
    }

    /// Ends a term. After a restart, its place has no meaning.
    pub(super) fn end_term(&mut self, place: usize, end: usize) {
        if let Some(draft) = self.drafts.get_mut(place).filter(|draft| draft.level.is_none() && draft.start <= end) {
            draft.end = Some(end);
        }
    }

    /// Returns the first heading of level 1.
    pub(super) fn first_h1(&self) -> Option<&str> {
        self.drafts.iter().find(|draft| draft.level == Some(1)).map(|draft| draft.heading.as_str())
    }

    /// Ends all sections in a text of `len` bytes.
    pub(super) fn finish(mut self, len: usize) -> Vec<MarkdownSection> {
        // The headings that have not ended.
        let mut open: Vec<(u8, usize)> = Vec::new();
        for place in 0..self.drafts.len() {
            let Some(level) = self.drafts[place].level else { continue };
            let start = self.drafts[place].start;
            while let Some((_, ended)) = open.pop_if(|(above, _)| *above >= level) {
                self.drafts[ended].end = Some(start);
            }
            open.push((level, place));
        }
        let finish_draft = |draft: OpenSection| MarkdownSection {
            anchor: draft.anchor,
            heading: draft.heading,
            start: draft.start as u32,
            end: draft.end.unwrap_or(len) as u32,
        };
        self.drafts.into_iter().map(finish_draft).collect()
    }
}
