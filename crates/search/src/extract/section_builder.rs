//! Builds sections from the start tags, end tags and texts of a page.

use super::content_rules::{
    OpenRoots, RootKind, is_fragment_link, is_left_out_by_attributes, is_left_out_by_name, is_permalink_sign,
    is_site_link,
};
use super::element_effect::{ElementEffect, LeftOutElement, LinkStart, UnclosedElement, header_effect};
use super::element_ends::ElementEnds;
use super::element_name::ElementName;
use super::open_elements::{MAX_OPEN_ELEMENTS, OpenElements};
use super::page_facts::PageFacts;
use super::page_reader::PageEventHandler;
use super::section_store::{CurrentSection, NewSection, SectionStore, TextKind};
use super::tags::{PageEvent, StartTag};
use super::text_buffer::{LineFeeds, MAX_CHARACTER_BYTES, Separator, TextBuffer, has_visible_text};
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
    facts: PageFacts,
    sections: SectionStore<'l>,
    elements: OpenElements<ElementEffect>,
    /// The number of open elements beyond [`MAX_OPEN_ELEMENTS`], each of which must have an end tag.
    deeper_elements: u64,
    left_out: Option<LeftOutElement>,
    /// Whether an element that is left out was among those beyond the limit. Its end is not known, so nothing after it
    /// is read.
    has_deep_left_out: bool,
    open_roots: OpenRoots,
    /// The greatest kind of root in which text has been found.
    root: RootKind,
    open_links: u32,
    /// The number of open elements that are code, `pre` included.
    open_code: u32,
    open_preformatted: u32,
    /// The number of open inline elements that have an effect.
    inline_effects: u32,
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
            facts: PageFacts::new(limits.heading_chars),
            sections: SectionStore::new(limits),
            elements: OpenElements::default(),
            deeper_elements: 0,
            left_out: None,
            has_deep_left_out: false,
            open_roots: OpenRoots::default(),
            root: RootKind::Page,
            open_links: 0,
            open_code: 0,
            open_preformatted: 0,
            inline_effects: 0,
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
        let (title, is_title_cut) = self.facts.take_title();
        left_out.headings += usize::from(is_title_cut);
        let title = Some(title).filter(|title| !title.is_empty());
        ExtractedPage {
            title: title.or(stored.first_h1).unwrap_or_default(),
            lang: self.facts.lang,
            canonical: self.facts.canonical,
            exclusion: self.facts.exclusion,
            sections: stored.sections,
            words: stored.words,
            link_words: stored.link_words,
            site_links: stored.site_links,
            left_out,
        }
    }

    fn start_element(&mut self, tag: &StartTag<'_>) {
        let name = tag.name;
        if self.deeper_elements > 0 || self.elements.len() >= MAX_OPEN_ELEMENTS {
            self.deeper_elements += u64::from(!name.is_void());
            self.has_deep_left_out |= !name.is_void() && (is_left_out_by_attributes(tag) || is_left_out_by_name(name));
            self.separate_blocks(name);
            return;
        }
        if !self.close_before(name) {
            self.separate_blocks(name);
            return;
        }
        if self.left_out.is_none() {
            self.facts.read_element(tag);
            let has_heading_text = self.heading.as_ref().is_some_and(|heading| !heading.text.is_empty());
            if has_heading_text && name.ends_heading() {
                self.finish_heading();
            }
        }
        self.separate_blocks(name);
        if matches!(name, ElementName::Html | ElementName::Body) {
            // The content is in these elements to the end of the page, also after their end tags.
            if let Some(root) = RootKind::of_element(tag) {
                self.open_roots.start(root);
            }
            return;
        }
        let is_foreign = self.elements.holds_foreign_content() || matches!(name, ElementName::Svg | ElementName::Math);
        if name.is_void() || tag.is_self_closing && is_foreign {
            return;
        }
        let effect = self.element_effect(tag);
        self.use_anchor(tag, effect);
        self.start_heading(tag, effect);
        self.push_element(tag, effect);
    }

    fn element_effect(&mut self, tag: &StartTag<'_>) -> ElementEffect {
        match self.left_out {
            None => {}
            Some(LeftOutElement::Whole) => return ElementEffect::None,
            Some(LeftOutElement::ExceptH1) => return header_effect(tag),
        }
        if is_left_out_by_attributes(tag) {
            return ElementEffect::LeaveOut(LeftOutElement::Whole);
        }
        if tag.name == ElementName::Title && self.facts.start_title() {
            return ElementEffect::Title;
        }
        if is_left_out_by_name(tag.name) {
            let has_h1 = tag.name == ElementName::Header && self.open_roots.greatest() > RootKind::Page;
            return ElementEffect::LeaveOut(if has_h1 { LeftOutElement::ExceptH1 } else { LeftOutElement::Whole });
        }
        if let Some(root) = RootKind::of_element(tag) {
            return ElementEffect::Root(root);
        }
        match tag.name {
            ElementName::A => tag.href().map_or(ElementEffect::None, |href| self.link_effect(&href)),
            ElementName::Code(_) => ElementEffect::Code,
            ElementName::Pre => ElementEffect::Preformatted,
            ElementName::Dl => {
                ElementEffect::DefinitionList { around: self.sections.current(), outer: self.around_definitions }
            }
            _ => ElementEffect::None,
        }
    }

    fn link_effect(&mut self, href: &str) -> ElementEffect {
        self.has_uncounted_link = is_site_link(href);
        let (section, text_len) = match &self.heading {
            Some(heading) => (None, heading.text.len()),
            None => (Some(self.sections.current()), self.sections.text_len()),
        };
        ElementEffect::Link(LinkStart { section, text_len, is_fragment: is_fragment_link(href) })
    }

    /// Uses the id of an element for the heading that it is in or comes before.
    fn use_anchor(&mut self, tag: &StartTag<'_>, effect: ElementEffect) {
        // The sign that links to a heading often has the id of the heading, and is left out itself.
        let is_read = !matches!(effect, ElementEffect::LeaveOut(_)) || tag.name == ElementName::A;
        if self.left_out.is_some() || !is_read {
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

    fn start_heading(&mut self, tag: &StartTag<'_>, effect: ElementEffect) {
        let is_read = match effect {
            ElementEffect::LeaveOut(_) => false,
            ElementEffect::InHeader(left_out) => left_out.is_none(),
            _ => self.left_out.is_none(),
        };
        if !is_read || self.heading.is_some() {
            return;
        }
        match tag.name {
            ElementName::Heading(level) => self.open_heading(self.elements.len(), level, tag.anchor()),
            ElementName::Dt => match tag.anchor() {
                Some(anchor) => self.open_heading(self.elements.len(), DEFINITION_LEVEL, Some(anchor)),
                None => self.unnamed_definition = Some(self.elements.len()),
            },
            _ => {}
        }
    }

    fn open_heading(&mut self, depth: usize, level: u8, anchor: Option<String>) {
        if self.open_roots.greatest() < self.root {
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
    fn push_element(&mut self, tag: &StartTag<'_>, effect: ElementEffect) {
        let is_inline = tag.name.is_inline();
        let is_needed = effect != ElementEffect::None
            // Their end tags must not be taken for those of an element that has an effect.
            || self.inline_effects > 0
            || self.left_out.is_some()
            || self.elements.holds_foreign_content();
        if is_inline && !is_needed {
            return;
        }
        let gives_id_to_heading =
            tag.name.gives_id_to_heading() && effect == ElementEffect::None && self.left_out.is_none();
        let id = if gives_id_to_heading { tag.anchor() } else { None };
        self.inline_effects += u32::from(is_inline && effect != ElementEffect::None);
        match effect {
            ElementEffect::None | ElementEffect::Title => {}
            ElementEffect::LeaveOut(element) => self.left_out = Some(element),
            ElementEffect::InHeader(left_out) => self.left_out = left_out,
            ElementEffect::Root(root) => self.open_roots.start(root),
            ElementEffect::Link(_) => self.open_links += 1,
            ElementEffect::Code => self.open_code += 1,
            ElementEffect::Preformatted => {
                self.open_code += 1;
                self.open_preformatted += 1;
            }
            ElementEffect::DefinitionList { around, .. } => self.around_definitions = Some(around),
        }
        self.elements.push(tag.name, effect, id.map(String::into_boxed_str));
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
        let enclosing_id = if is_definition { None } else { self.elements.use_ids().map(String::from) };
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
        if self.facts.is_title_open() {
            self.facts.push_title(text);
            return;
        }
        let root = self.open_roots.greatest();
        if self.left_out.is_some() || self.has_deep_left_out || root < self.root {
            return;
        }
        if has_visible_text(text) {
            if root > self.root {
                self.root = root;
                self.sections.restart();
            }
            self.unnamed_definition = None;
            self.preceding_anchor = None;
            if std::mem::take(&mut self.has_uncounted_link) {
                self.sections.count_site_link();
            }
        } else if root > self.root {
            return;
        }
        let is_link = self.open_links > 0;
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
    type Effect = ElementEffect;

    fn elements(&mut self) -> &mut OpenElements<ElementEffect> {
        &mut self.elements
    }

    fn deeper_elements(&mut self) -> &mut u64 {
        &mut self.deeper_elements
    }

    fn may_be_in_link(&self) -> bool {
        self.open_links > 0 || self.left_out.is_some()
    }

    fn left_out_part(effect: &ElementEffect) -> Option<LeftOutElement> {
        if let ElementEffect::LeaveOut(left_out) = effect { Some(*left_out) } else { None }
    }

    fn end_element_at(&mut self, depth: usize, name: ElementName, effect: ElementEffect) {
        if self.heading.as_ref().is_some_and(|heading| heading.depth == depth) {
            self.finish_heading();
        }
        if self.unnamed_definition == Some(depth) {
            self.unnamed_definition = None;
        }
        self.end_effect(name, effect);
        self.separate_blocks(name);
    }

    fn end_effect(&mut self, name: ElementName, effect: ElementEffect) {
        self.inline_effects -= u32::from(name.is_inline() && effect != ElementEffect::None);
        match effect {
            ElementEffect::None => {}
            ElementEffect::LeaveOut(_) => self.left_out = None,
            ElementEffect::InHeader(_) => self.left_out = Some(LeftOutElement::ExceptH1),
            ElementEffect::Title => self.facts.end_title(),
            ElementEffect::Root(root) => self.open_roots.end(root),
            ElementEffect::Link(start) => {
                self.open_links -= 1;
                self.has_uncounted_link = false;
                self.remove_permalink(start);
            }
            ElementEffect::Code => self.end_code(),
            ElementEffect::Preformatted => {
                self.open_preformatted -= 1;
                self.end_code();
            }
            ElementEffect::DefinitionList { around, outer } => {
                self.around_definitions = outer;
                self.sections.return_to(around);
            }
        }
    }

    fn open_again(&mut self, element: UnclosedElement) {
        self.inline_effects += u32::from(element.name.is_inline());
        self.left_out = Some(element.left_out);
        self.elements.push(element.name, ElementEffect::LeaveOut(element.left_out), None);
    }

    fn separate_blocks(&mut self, name: ElementName) {
        if !name.is_block() || self.left_out.is_some() {
            return;
        }
        match &mut self.heading {
            Some(heading) => heading.text.separate(Separator::Line),
            None => self.sections.separate(Separator::Line),
        }
    }
}
