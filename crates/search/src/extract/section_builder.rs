//! Builds sections from the start tags, end tags and texts of a page.

use super::content_rules::{is_fragment_link, is_permalink_sign, is_site_link};
use super::element_effect::{EffectOfElement, LinkStart, SectionEffect};
use super::element_ends::ElementEnds;
use super::element_name::ElementName;
use super::page_reader::PageEventHandler;
use super::reading_scope::{ReadingScope, TextPlace};
use super::section_store::{CurrentSection, NewSection, SectionStore, TextKind};
use super::tags::{PageEvent, StartTag};
use super::text_buffer::{LineFeeds, MAX_CHARACTER_BYTES, Separator, TextBuffer};
use super::{DEFINITION_LEVEL, ExtractLimits, ExtractedPage};

/// A heading or the term of a definition that is being read.
#[derive(Debug)]
struct OpenHeading {
    /// The depth of the element in the open elements.
    depth: usize,
    level: u8,
    /// The id of the element or of one in it.
    anchor: Option<String>,
    /// The id of an empty element right before the heading.
    preceding_anchor: Option<String>,
    text: TextBuffer,
    remaining_bytes: usize,
    is_cut: bool,
    words: u32,
    link_words: u32,
}

/// Reads the events of a page and builds its sections.
#[derive(Debug)]
pub(super) struct SectionBuilder<'l> {
    limits: &'l ExtractLimits,
    scope: ReadingScope<SectionEffect>,
    sections: SectionStore<'l>,
    /// The number of open elements that are code, `pre` included.
    open_code: u32,
    open_preformatted: u32,
    /// Whether a link to another page of the site is open, and has had no text.
    has_uncounted_link: bool,
    heading: Option<OpenHeading>,
    /// The depth of an open `dt` element without an id and text. An element in it may still have an id.
    unnamed_definition: Option<usize>,
    /// The section around the innermost list of definitions.
    around_definitions: Option<CurrentSection>,
    /// The id of an inline element after which no text has come.
    preceding_anchor: Option<String>,
}

impl PageEventHandler for SectionBuilder<'_> {
    fn handle(&mut self, event: &PageEvent<'_>) {
        match event {
            PageEvent::Start(tag) => self.start_element(tag),
            PageEvent::End(name) => self.end_element(*name),
            PageEvent::Text(text) => self.read_text(text),
        }
    }
}

impl<'l> SectionBuilder<'l> {
    pub(super) fn new(limits: &'l ExtractLimits) -> Self {
        SectionBuilder {
            limits,
            scope: ReadingScope::new(limits.heading_chars),
            sections: SectionStore::new(limits),
            open_code: 0,
            open_preformatted: 0,
            has_uncounted_link: false,
            heading: None,
            unnamed_definition: None,
            around_definitions: None,
            preceding_anchor: None,
        }
    }

    /// Ends all open elements and returns what has been read.
    pub(super) fn finish(mut self, time_exceeded: bool) -> ExtractedPage {
        self.close_elements(0);
        let stored = self.sections.finish();
        let mut left_out = stored.left_out;
        left_out.time_exceeded = time_exceeded;
        let (title, is_title_cut) = self.scope.facts.take_title();
        left_out.headings += usize::from(is_title_cut);
        let title = Some(title).filter(|title| !title.is_empty());
        ExtractedPage {
            title: title.or(stored.first_h1).unwrap_or_default(),
            lang: self.scope.facts.lang,
            canonical: self.scope.facts.canonical,
            exclusion: self.scope.facts.exclusion,
            sections: stored.sections,
            words: stored.words,
            link_words: stored.link_words,
            site_links: stored.site_links,
            left_out,
        }
    }

    fn start_element(&mut self, tag: &StartTag<'_>) {
        let name = tag.name;
        if self.scope.skip_deep(tag) || !self.close_before(name) {
            self.separate_blocks(name);
            return;
        }
        if self.scope.is_read() {
            self.scope.facts.read_element(tag);
            let has_heading_text = self.heading.as_ref().is_some_and(|heading| !heading.text.is_empty());
            if has_heading_text && name.ends_heading() {
                self.finish_heading();
            }
        }
        self.separate_blocks(name);
        if self.scope.start_page(tag) || self.scope.has_no_end(tag) {
            return;
        }
        let effect = match self.scope.common_effect(tag) {
            Some(effect) => SectionEffect::Common(effect),
            None => self.content_effect(tag),
        };
        self.use_anchor(tag, effect);
        self.start_heading(tag, effect);
        self.push_element(tag, effect);
    }

    /// Returns the effect of an element that is content.
    fn content_effect(&mut self, tag: &StartTag<'_>) -> SectionEffect {
        match tag.name {
            ElementName::A => tag.href().map_or(SectionEffect::NONE, |href| self.link_effect(&href)),
            ElementName::Code(_) => SectionEffect::Code,
            ElementName::Pre => SectionEffect::Preformatted,
            ElementName::Dl => {
                SectionEffect::DefinitionList { around: self.sections.current(), outer: self.around_definitions }
            }
            _ => SectionEffect::NONE,
        }
    }

    fn link_effect(&mut self, href: &str) -> SectionEffect {
        self.has_uncounted_link = is_site_link(href);
        let (section, text_len) = match &self.heading {
            Some(heading) => (None, heading.text.len()),
            None => (Some(self.sections.current()), self.sections.text_len()),
        };
        SectionEffect::Link(LinkStart { section, text_len, is_fragment: is_fragment_link(href) })
    }

    /// Uses the id of an element for the heading that it is in or comes before.
    fn use_anchor(&mut self, tag: &StartTag<'_>, effect: SectionEffect) {
        if !self.scope.is_anchor_read(tag, &effect) {
            return;
        }
        if let Some(heading) = &mut self.heading {
            if heading.anchor.is_none() {
                heading.anchor = tag.anchor();
            }
        } else if tag.name.is_inline()
            && let Some(anchor) = tag.anchor()
        {
            match self.unnamed_definition.take() {
                Some(depth) => self.open_heading(depth, DEFINITION_LEVEL, Some(anchor)),
                None => self.preceding_anchor = Some(anchor),
            }
        }
    }

    fn start_heading(&mut self, tag: &StartTag<'_>, effect: SectionEffect) {
        if !self.scope.is_content_read(&effect) || self.heading.is_some() {
            return;
        }
        match tag.name {
            ElementName::Heading(level) => self.open_heading(self.scope.elements().len(), level, tag.anchor()),
            ElementName::Dt => match tag.anchor() {
                Some(anchor) => self.open_heading(self.scope.elements().len(), DEFINITION_LEVEL, Some(anchor)),
                None => self.unnamed_definition = Some(self.scope.elements().len()),
            },
            _ => {}
        }
    }

    fn open_heading(&mut self, depth: usize, level: u8, anchor: Option<String>) {
        if self.scope.open_root() < self.scope.root() {
            return;
        }
        self.heading = Some(OpenHeading {
            depth,
            level,
            anchor,
            preceding_anchor: self.preceding_anchor.take(),
            text: TextBuffer::default(),
            remaining_bytes: self.limits.heading_chars.saturating_mul(MAX_CHARACTER_BYTES),
            is_cut: false,
            words: 0,
            link_words: 0,
        });
    }

    /// Adds an element to the open elements, and starts its effect.
    fn push_element(&mut self, tag: &StartTag<'_>, effect: SectionEffect) {
        if !self.scope.is_remembered(tag.name, &effect) {
            return;
        }
        let gives_id_to_heading = tag.name.gives_id_to_heading() && !effect.has_effect() && self.scope.is_read();
        let id = if gives_id_to_heading { tag.anchor() } else { None };
        match effect {
            SectionEffect::Common(effect) => self.scope.start_common(effect),
            SectionEffect::Link(_) => self.scope.open_links += 1,
            SectionEffect::Code => self.open_code += 1,
            SectionEffect::Preformatted => {
                self.open_code += 1;
                self.open_preformatted += 1;
            }
            SectionEffect::DefinitionList { around, .. } => self.around_definitions = Some(around),
        }
        self.scope.push(tag.name, effect, id);
    }

    fn end_code(&mut self) {
        self.open_code -= 1;
        if self.open_code == 0 {
            self.sections.end_code();
        }
    }

    /// Removes the text of a link if it is only a sign that links to the heading before it.
    fn remove_permalink(&mut self, start: LinkStart) {
        if !start.is_fragment {
            return;
        }
        match (&mut self.heading, start.section) {
            (Some(heading), None) => heading.text.revert_if(start.text_len, is_permalink_sign),
            (None, Some(section)) => {
                if let Some(len) = self.sections.len_at(section, start.text_len) {
                    self.sections.revert_if(len, is_permalink_sign);
                }
            }
            _ => {}
        }
    }

    /// Starts a section with the heading that has been read. A heading without text is ignored.
    fn finish_heading(&mut self) {
        let Some(heading) = self.heading.take().filter(|heading| !heading.text.is_empty()) else { return };
        let is_definition = heading.level == DEFINITION_LEVEL;
        let enclosing_id = if is_definition { None } else { self.scope.use_ids().map(String::from) };
        let (text, is_cut) = heading.text.into_line(self.limits.heading_chars);
        let new = NewSection {
            level: heading.level,
            anchor: heading.anchor.or(enclosing_id).or(heading.preceding_anchor),
            heading: text,
            is_cut: is_cut || heading.is_cut,
            words: heading.words,
            link_words: heading.link_words,
        };
        self.sections.start_section(new, self.around_definitions);
    }

    fn read_text(&mut self, text: &str) {
        let place = self.scope.place_text(text);
        match place {
            TextPlace::Ignored => return,
            TextPlace::WhiteSpace => {}
            TextPlace::Content | TextPlace::FirstInGreaterRoot => {
                if place == TextPlace::FirstInGreaterRoot {
                    self.sections.restart();
                }
                self.unnamed_definition = None;
                self.preceding_anchor = None;
                if std::mem::take(&mut self.has_uncounted_link) {
                    self.sections.count_site_link();
                }
            }
        }
        let is_link = self.scope.open_links > 0;
        let line_feeds = if self.open_preformatted > 0 { LineFeeds::Keep } else { LineFeeds::Collapse };
        if let Some(heading) = &mut self.heading {
            let pushed = heading.text.push(text, LineFeeds::Collapse, &mut heading.remaining_bytes);
            heading.is_cut |= pushed.left_out_bytes > 0;
            heading.words = heading.words.saturating_add(pushed.words);
            if is_link {
                heading.link_words = heading.link_words.saturating_add(pushed.words);
            }
        } else {
            self.sections.append(text, TextKind { line_feeds, is_code: self.open_code > 0, is_link });
        }
    }
}

impl ElementEnds for SectionBuilder<'_> {
    type Effect = SectionEffect;

    fn scope(&mut self) -> &mut ReadingScope<SectionEffect> {
        &mut self.scope
    }

    fn end_element_at(&mut self, depth: usize, name: ElementName, effect: SectionEffect) {
        if self.heading.as_ref().is_some_and(|heading| heading.depth == depth) {
            self.finish_heading();
        }
        if self.unnamed_definition == Some(depth) {
            self.unnamed_definition = None;
        }
        self.end_effect(effect);
        self.separate_blocks(name);
    }

    fn end_effect(&mut self, effect: SectionEffect) {
        match effect {
            SectionEffect::Common(effect) => self.scope.end_common(effect),
            SectionEffect::Link(start) => {
                self.scope.open_links -= 1;
                self.has_uncounted_link = false;
                self.remove_permalink(start);
            }
            SectionEffect::Code => self.end_code(),
            SectionEffect::Preformatted => {
                self.open_preformatted -= 1;
                self.end_code();
            }
            SectionEffect::DefinitionList { around, outer } => {
                self.around_definitions = outer;
                self.sections.return_to(around);
            }
        }
    }

    fn separate_blocks(&mut self, name: ElementName) {
        if !self.scope.separates_blocks(name) {
            return;
        }
        match &mut self.heading {
            Some(heading) => heading.text.separate(Separator::Line),
            None => self.sections.separate(Separator::Line),
        }
    }
}
