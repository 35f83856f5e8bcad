//! Collects the sections of a page within its limits.

use super::text_buffer::{LineFeeds, Separator, TextBuffer, has_visible_text, visible_bytes};
use super::{DEFINITION_LEVEL, ExtractLimits, LeftOutContent, Section};

/// The maximum number of headings in the path of a section. Of a longer path, the first and the last headings are kept.
const MAX_PATH_HEADINGS: usize = 8;
/// The maximum length of all headings that sections repeat from the sections above them, in bytes. Later sections have
/// only their own heading.
const MAX_REPEATED_HEADING_BYTES: usize = 8 << 20;

/// The section that text is appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CurrentSection {
    /// The text before the first heading.
    Start,
    /// The section with this number. Numbers are never used twice, also not after [`SectionStore::restart`].
    Number(usize),
    /// A section beyond the limit.
    LeftOut,
}

/// A heading or the term of a definition, as the start of a section.
#[derive(Debug)]
pub(super) struct NewSection {
    pub(super) level: u8,
    pub(super) anchor: Option<String>,
    pub(super) heading: String,
    /// Whether the heading was cut.
    pub(super) is_cut: bool,
    /// The number of words of the heading.
    pub(super) words: u32,
    /// The number of these that are in links.
    pub(super) link_words: u32,
}

/// The kind of a text that is appended.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextKind {
    pub(super) line_feeds: LineFeeds,
    pub(super) is_code: bool,
    pub(super) is_link: bool,
}

/// The content of a page within the limits.
#[derive(Debug)]
pub(super) struct StoredSections {
    pub(super) sections: Vec<Section>,
    pub(super) words: u32,
    pub(super) link_words: u32,
    pub(super) site_links: u32,
    /// The first heading of level 1.
    pub(super) first_h1: Option<String>,
    pub(super) left_out: LeftOutContent,
}

#[derive(Debug)]
struct SectionDraft {
    level: u8,
    anchor: Option<String>,
    /// `None` for the text before the first heading.
    heading: Option<String>,
    /// The number of the section above.
    parent: Option<usize>,
    text: TextBuffer,
    code_spans: Vec<(u32, u32)>,
}

/// The sections that have been read so far.
#[derive(Debug)]
pub(super) struct SectionStore<'l> {
    limits: &'l ExtractLimits,
    drafts: Vec<SectionDraft>,
    /// The number of the first draft.
    first_number: usize,
    current: CurrentSection,
    /// The number of the section for text before the first heading.
    start: Option<usize>,
    /// The levels and numbers of the headings above the current place.
    parents: Vec<(u8, usize)>,
    /// The offset of the open code in the text of the current section.
    open_code: Option<usize>,
    remaining_bytes: usize,
    words: u32,
    link_words: u32,
    site_links: u32,
    first_h1: Option<String>,
    left_out: LeftOutContent,
}

impl<'l> SectionStore<'l> {
    pub(super) fn new(limits: &'l ExtractLimits) -> Self {
        Self::with_first_number(limits, 0)
    }

    fn with_first_number(limits: &'l ExtractLimits, first_number: usize) -> Self {
        SectionStore {
            limits,
            drafts: Vec::new(),
            first_number,
            current: CurrentSection::Start,
            start: None,
            parents: Vec::new(),
            open_code: None,
            remaining_bytes: limits.text_bytes,
            words: 0,
            link_words: 0,
            site_links: 0,
            first_h1: None,
            left_out: LeftOutContent::default(),
        }
    }

    /// Discards everything that has been collected.
    pub(super) fn restart(&mut self) {
        *self = Self::with_first_number(self.limits, self.first_number + self.drafts.len());
    }

    pub(super) fn current(&self) -> CurrentSection {
        self.current
    }

    /// Starts a section. `definition_parent` is the section that contains the list of a definition.
    pub(super) fn start_section(&mut self, new: NewSection, definition_parent: Option<CurrentSection>) {
        self.end_code();
        if self.drafts.len() >= self.limits.sections {
            self.left_out.sections += 1;
            self.current = CurrentSection::LeftOut;
            return;
        }
        let number = self.first_number + self.drafts.len();
        let parent = if new.level == DEFINITION_LEVEL {
            match definition_parent {
                Some(CurrentSection::Number(parent)) if parent >= self.first_number => Some(parent),
                _ => self.parents.last().map(|&(_, parent)| parent),
            }
        } else {
            while self.parents.pop_if(|(level, _)| *level >= new.level).is_some() {}
            let parent = self.parents.last().map(|&(_, parent)| parent);
            self.parents.push((new.level, number));
            parent
        };
        if new.level == 1 && self.first_h1.is_none() {
            self.first_h1 = Some(new.heading.clone());
        }
        self.left_out.headings += usize::from(new.is_cut);
        self.words = self.words.saturating_add(new.words);
        self.link_words = self.link_words.saturating_add(new.link_words);
        self.current = CurrentSection::Number(number);
        self.drafts.push(SectionDraft {
            level: new.level,
            anchor: new.anchor,
            heading: Some(new.heading),
            parent,
            text: TextBuffer::default(),
            code_spans: Vec::new(),
        });
    }

    /// Continues a section that was current before. After it was discarded, that is the text before the first heading.
    pub(super) fn return_to(&mut self, section: CurrentSection) {
        let is_discarded = matches!(section, CurrentSection::Number(number) if number < self.first_number);
        let section = if is_discarded { CurrentSection::Start } else { section };
        if section != self.current {
            self.end_code();
            self.current = section;
            self.separate(Separator::Line);
        }
    }

    /// Appends text to the current section. White space alone does not start a section.
    pub(super) fn append(&mut self, text: &str, kind: TextKind) {
        if self.current == CurrentSection::Start {
            if !has_visible_text(text) {
                return;
            }
            self.continue_start_section();
        }
        let Some(draft) = current_draft(&mut self.drafts, self.first_number, self.current) else {
            self.left_out.text_bytes += visible_bytes(text);
            return;
        };
        let pushed = draft.text.push(text, kind.line_feeds, &mut self.remaining_bytes);
        if kind.is_code && self.open_code.is_none() {
            self.open_code = pushed.start;
        }
        self.left_out.text_bytes += pushed.left_out_bytes;
        self.words = self.words.saturating_add(pushed.words);
        if kind.is_link {
            self.link_words = self.link_words.saturating_add(pushed.words);
        }
    }

    /// Continues or creates the section for text before the first heading.
    fn continue_start_section(&mut self) {
        if self.start.is_none() && self.drafts.len() < self.limits.sections {
            self.start = Some(self.first_number + self.drafts.len());
            self.drafts.push(SectionDraft {
                level: 1,
                anchor: None,
                heading: None,
                parent: None,
                text: TextBuffer::default(),
                code_spans: Vec::new(),
            });
        }
        self.current = self.start.map_or(CurrentSection::LeftOut, CurrentSection::Number);
    }

    /// Separates the text of the current section from the text that follows.
    pub(super) fn separate(&mut self, separator: Separator) {
        if let Some(draft) = current_draft(&mut self.drafts, self.first_number, self.current) {
            draft.text.separate(separator);
        }
    }

    /// Ends the code to which text has been appended.
    pub(super) fn end_code(&mut self) {
        let Some(start) = self.open_code.take() else { return };
        if let Some(draft) = current_draft(&mut self.drafts, self.first_number, self.current)
            && draft.text.len() > start
        {
            draft.code_spans.push((start as u32, draft.text.len() as u32));
        }
    }

    pub(super) fn count_site_link(&mut self) {
        self.site_links = self.site_links.saturating_add(1);
    }

    /// The length of the text of the current section, in bytes.
    pub(super) fn text_len(&self) -> usize {
        let number = match self.current {
            CurrentSection::Number(number) => Some(number),
            CurrentSection::Start => self.start,
            CurrentSection::LeftOut => None,
        };
        let index = number.and_then(|number| number.checked_sub(self.first_number));
        index.and_then(|index| self.drafts.get(index)).map_or(0, |draft| draft.text.len())
    }

    /// Returns the length of the text that the current section had when `section` was current and had `len` bytes.
    /// `None` if it was another section.
    pub(super) fn len_at(&self, section: CurrentSection, len: usize) -> Option<usize> {
        match (section, self.current) {
            (CurrentSection::Start, CurrentSection::Number(number)) if self.start == Some(number) => Some(len),
            // Everything up to that place was discarded.
            (CurrentSection::Number(number), _) if number < self.first_number => Some(0),
            _ => (section == self.current).then_some(len),
        }
    }

    /// Removes the text of the current section after the first `len` bytes, if it consists of characters for which
    /// `is_removed` is true and is not code.
    pub(super) fn revert_if(&mut self, len: usize, is_removed: impl Fn(char) -> bool) {
        if let Some(draft) = current_draft(&mut self.drafts, self.first_number, self.current)
            && self.open_code.is_none_or(|start| start < len)
            && draft.code_spans.last().is_none_or(|&(_, end)| end as usize <= len)
        {
            draft.text.revert_if(len, is_removed);
        }
    }

    pub(super) fn finish(mut self) -> StoredSections {
        self.end_code();
        let mut sections: Vec<Section> = Vec::with_capacity(self.drafts.len());
        let mut repeated_bytes = 0;
        for draft in self.drafts {
            let parent = draft.parent.and_then(|number| sections.get(number.checked_sub(self.first_number)?));
            let anchor = draft.anchor.or_else(|| parent?.anchor.clone());
            let mut headings = parent.map_or_else(Vec::new, |parent| parent.headings.clone());
            repeated_bytes += headings.iter().map(String::len).sum::<usize>();
            if repeated_bytes > MAX_REPEATED_HEADING_BYTES {
                headings.clear();
            } else if headings.len() >= MAX_PATH_HEADINGS {
                headings.remove(1);
            }
            headings.extend(draft.heading);
            sections.push(Section {
                anchor,
                headings,
                level: draft.level,
                is_definition: draft.level == DEFINITION_LEVEL,
                text: draft.text.into_text(),
                code_spans: draft.code_spans,
            });
        }
        // All that was read before the first heading may have been a sign that links to it.
        sections.retain(|section| !section.headings.is_empty() || !section.text.is_empty());
        StoredSections {
            sections,
            words: self.words,
            link_words: self.link_words,
            site_links: self.site_links,
            first_h1: self.first_h1,
            left_out: self.left_out,
        }
    }
}

/// Returns the draft that text is appended to.
fn current_draft(
    drafts: &mut [SectionDraft],
    first_number: usize,
    current: CurrentSection,
) -> Option<&mut SectionDraft> {
    match current {
        CurrentSection::Number(number) => drafts.get_mut(number.checked_sub(first_number)?),
        CurrentSection::Start | CurrentSection::LeftOut => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TextKind = TextKind { line_feeds: LineFeeds::Collapse, is_code: false, is_link: false };

    fn new_section(level: u8, heading: &str, anchor: Option<&str>) -> NewSection {
        NewSection {
            level,
            anchor: anchor.map(str::to_owned),
            heading: heading.to_owned(),
            is_cut: false,
            words: 1,
            link_words: 0,
        }
    }

    /// Describes each section as its headings, anchor and text.
    fn describe(stored: &StoredSections) -> Vec<String> {
        let describe_section = |section: &Section| {
            let anchor = section.anchor.as_deref().unwrap_or("-");
            format!("{} ({anchor}): {}", section.headings.join(" > "), section.text)
        };
        stored.sections.iter().map(describe_section).collect()
    }

    #[test]
    fn path_of_a_section_has_the_nearest_headings_of_lower_levels() {
        let limits = ExtractLimits::default();
        let mut store = SectionStore::new(&limits);
        for (level, heading, anchor) in [
            (2, "Early", None),
            (1, "Page", Some("page")),
            (3, "Skipped", Some("skipped")),
            (2, "Part", Some("part")),
            (4, "Deep", None),
            (2, "Next", None),
            (1, "Second page", None),
        ] {
            store.start_section(new_section(level, heading, anchor), None);
        }
        let stored = store.finish();
        assert_eq!(
            describe(&stored),
            [
                "Early (-): ",
                "Page (page): ",
                "Page > Skipped (skipped): ",
                "Page > Part (part): ",
                "Page > Part > Deep (part): ",
                "Page > Next (page): ",
                "Second page (-): ",
            ]
        );
        assert_eq!((stored.first_h1.as_deref(), stored.words), (Some("Page"), 7));
    }

    #[test]
    fn text_after_a_list_of_definitions_continues_the_section_around_it() {
        let limits = ExtractLimits::default();
        let mut store = SectionStore::new(&limits);
        store.start_section(new_section(1, "os", Some("os")), None);
        store.append("before", PLAIN);
        let around = store.current();
        store.start_section(new_section(DEFINITION_LEVEL, "open()", Some("os.open")), Some(around));
        store.append("opens", PLAIN);
        store.return_to(around);
        store.append("after", PLAIN);
        let stored = store.finish();
        assert_eq!(describe(&stored), ["os (os): before\nafter", "os > open() (os.open): opens"]);
        assert!(stored.sections[1].is_definition && !stored.sections[0].is_definition);
    }

    #[test]
    fn sections_beyond_the_limit_are_counted_with_their_text() {
        let limits = ExtractLimits { sections: 2, text_bytes: 8, ..ExtractLimits::default() };
        let mut store = SectionStore::new(&limits);
        store.append("start", PLAIN);
        store.start_section(new_section(1, "One", None), None);
        store.append("one two", PLAIN);
        store.start_section(new_section(2, "Two", None), None);
        store.append("three four", PLAIN);
        let stored = store.finish();
        assert_eq!(describe(&stored), [" (-): start", "One (-): one"]);
        assert_eq!(stored.left_out, LeftOutContent { text_bytes: 12, sections: 1, ..LeftOutContent::default() });
        assert_eq!(stored.words, 3, "only words that are kept count");
    }

    #[test]
    fn restart_discards_sections_counts_and_places() {
        let limits = ExtractLimits { text_bytes: 6, ..ExtractLimits::default() };
        let mut store = SectionStore::new(&limits);
        store.start_section(new_section(1, "Outside", None), None);
        store.append("too long", PLAIN);
        store.count_site_link();
        let outside = store.current();
        store.restart();
        store.return_to(outside);
        store.append("inside", PLAIN);
        store.start_section(new_section(DEFINITION_LEVEL, "term", Some("t")), Some(outside));
        let stored = store.finish();
        assert_eq!(describe(&stored), [" (-): inside", "term (t): "]);
        assert_eq!((stored.words, stored.site_links, stored.first_h1), (2, 0, None));
        assert_eq!(stored.left_out, LeftOutContent::default());
    }

    #[test]
    fn text_after_a_list_that_began_before_a_restart_is_before_the_first_heading() {
        let limits = ExtractLimits::default();
        let mut store = SectionStore::new(&limits);
        store.append("outside", PLAIN);
        let outside = store.current();
        store.restart();
        store.start_section(new_section(DEFINITION_LEVEL, "term", Some("t")), Some(outside));
        store.append("inside", PLAIN);
        store.return_to(outside);
        store.append("after", PLAIN);
        assert_eq!(describe(&store.finish()), ["term (t): inside", " (-): after"]);
    }

    #[test]
    fn a_place_is_found_again_in_the_section_that_began_after_it() {
        let limits = ExtractLimits::default();
        let mut store = SectionStore::new(&limits);
        let start = (store.current(), store.text_len());
        store.append("abc", PLAIN);
        assert_eq!((store.len_at(start.0, start.1), store.text_len()), (Some(0), 3));
        let inside = (store.current(), store.text_len());
        store.append("d", PLAIN);
        assert_eq!(store.len_at(inside.0, inside.1), Some(3));
        store.start_section(new_section(1, "One", None), None);
        assert_eq!((store.len_at(inside.0, inside.1), store.len_at(start.0, start.1)), (None, None));
        store.restart();
        store.append("e", PLAIN);
        assert_eq!(store.len_at(inside.0, inside.1), Some(0));
    }

    #[test]
    fn code_spans_cover_the_code_without_white_space_around_it() {
        let limits = ExtractLimits::default();
        let mut store = SectionStore::new(&limits);
        let code = TextKind { is_code: true, ..PLAIN };
        store.append("use ", PLAIN);
        store.append(" lru", code);
        store.append("_cache(x) ", code);
        store.end_code();
        store.append("or", PLAIN);
        store.append(" ", code);
        store.end_code();
        store.append(" `none` ", PLAIN);
        store.append("b", code);
        store.start_section(new_section(1, "One", None), None);
        store.append("c", code);
        let stored = store.finish();
        let spans = |section: &Section| -> Vec<String> {
            let text = |&(start, end): &(u32, u32)| section.text[start as usize..end as usize].to_owned();
            section.code_spans.iter().map(text).collect()
        };
        assert_eq!(stored.sections[0].text, "use lru_cache(x) or `none` b");
        assert_eq!(spans(&stored.sections[0]), ["lru_cache(x)", "b"]);
        assert_eq!(spans(&stored.sections[1]), ["c"]);
    }

    #[test]
    fn paths_of_deeply_nested_definitions_are_bounded() {
        let limits = ExtractLimits::default();
        let mut store = SectionStore::new(&limits);
        let mut parent = None;
        for number in 0..limits.sections {
            let heading = format!("{number:0>500}");
            store.start_section(new_section(DEFINITION_LEVEL, &heading, Some("x")), parent);
            parent = Some(store.current());
        }
        let stored = store.finish();
        assert_eq!(stored.sections.len(), limits.sections);
        assert!(stored.sections.iter().all(|section| section.headings.len() <= MAX_PATH_HEADINGS));
        let repeated: usize =
            stored.sections.iter().flat_map(|section| section.headings.iter().rev().skip(1)).map(String::len).sum();
        assert!(repeated <= MAX_REPEATED_HEADING_BYTES);
        assert_eq!(stored.sections[20].headings.len(), MAX_PATH_HEADINGS);
        assert!(stored.sections[20].headings[0].ends_with("000"));
    }
}
