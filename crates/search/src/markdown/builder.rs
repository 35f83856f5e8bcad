//! Builds the Markdown of a page from its start tags, end tags and texts.

use crate::extract::MAX_HEADING_CHARS;
use crate::extract::content_rules::{OpenRoots, RootKind, is_hidden, is_left_out_by_attributes, is_left_out_by_name};
use crate::extract::element_effect::{LeftOutElement, UnclosedElement};
use crate::extract::element_ends::ElementEnds;
use crate::extract::element_name::ElementName;
use crate::extract::open_elements::{MAX_OPEN_ELEMENTS, OpenElements};
use crate::extract::page_facts::PageFacts;
use crate::extract::page_reader::PageEventHandler;
use crate::extract::tags::{PageEvent, StartTag};
use crate::extract::text_buffer::has_visible_text;

use super::content::PageContent;
use super::element_effect::{MarkdownEffect, OpenedMark, has_line_numbers, header_effect, is_layout_table};
use super::inline_text::Mark;
use super::page_head::PageHead;
use super::table::Table;
use super::{MarkdownSettings, PageMarkdown, code_language};

/// The number of elements between code and the element around it that may name its language.
const MAX_LANGUAGE_DISTANCE: usize = 3;

/// Reads the events of a page and builds its Markdown.
#[derive(Debug)]
pub(super) struct MarkdownBuilder {
    facts: PageFacts,
    head: PageHead,
    content: PageContent,
    elements: OpenElements<MarkdownEffect>,
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
    /// The number of open `code` elements in a paragraph.
    open_code: u32,
    /// The number of open inline elements that have an effect.
    inline_effects: u32,
    /// The language that an open element names, and its depth.
    language: Option<(usize, String)>,
}

impl PageEventHandler for MarkdownBuilder {
    fn handle(&mut self, event: &PageEvent<'_>) {
        match event {
            PageEvent::Start(tag) => self.start_element(tag),
            PageEvent::End(name) => self.end_element(*name),
            PageEvent::Text(text) => self.read_text(text),
        }
    }
}

impl MarkdownBuilder {
    pub(super) fn new(settings: &MarkdownSettings<'_>) -> Self {
        MarkdownBuilder {
            facts: PageFacts::new(MAX_HEADING_CHARS),
            head: PageHead::new(settings),
            content: PageContent::new(),
            elements: OpenElements::default(),
            deeper_elements: 0,
            left_out: None,
            has_deep_left_out: false,
            open_roots: OpenRoots::default(),
            root: RootKind::Page,
            open_links: 0,
            open_code: 0,
            inline_effects: 0,
            language: None,
        }
    }

    /// Ends all open elements and returns the page.
    pub(super) fn finish(mut self, time_exceeded: bool) -> PageMarkdown {
        self.close_elements(0);
        let (title, _) = self.facts.take_title();
        let content = self.content.finish(time_exceeded);
        PageMarkdown {
            title: if title.is_empty() { content.first_h1 } else { title },
            description: self.head.into_description(),
            lang: self.facts.lang,
            exclusion: self.facts.exclusion,
            text: content.text,
            block_starts: content.block_starts,
            sections: content.sections,
            is_cut: content.is_cut,
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
            self.head.read_element(tag);
            if name.ends_heading() && self.content.has_heading_text() {
                self.content.finish_heading(|| self.elements.use_ids());
            }
        }
        if matches!(name, ElementName::Html | ElementName::Body) {
            self.separate_blocks(name);
            // The content is in these elements to the end of the page, also after their end tags.
            if let Some(root) = RootKind::of_element(tag) {
                self.open_roots.start(root);
            }
            return;
        }
        self.separate_blocks(name);
        let is_foreign = self.elements.holds_foreign_content() || matches!(name, ElementName::Svg | ElementName::Math);
        if name.is_void() {
            self.read_void_element(tag);
            return;
        }
        if tag.is_self_closing && is_foreign {
            return;
        }
        let effect = self.element_effect(tag);
        self.use_anchor(tag, &effect);
        self.start_heading(tag, &effect);
        self.push_element(tag, effect);
    }

    /// Reads an element without content.
    fn read_void_element(&mut self, tag: &StartTag<'_>) {
        if self.left_out.is_some() || is_hidden(tag) || tag.has_pagefind_ignore() {
            return;
        }
        match tag.name {
            ElementName::Rule if !self.content.is_inline_only() && self.open_roots.greatest() == self.root => {
                self.content.write_rule();
            }
            ElementName::Void if tag.is_named("img") => {
                if let Some(text) = tag.attribute("alt") {
                    self.read_text(&text);
                }
            }
            _ => {}
        }
    }

    fn element_effect(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        match self.left_out {
            None => {}
            Some(LeftOutElement::Whole) => return MarkdownEffect::None,
            Some(LeftOutElement::ExceptH1) => return header_effect(tag),
        }
        if is_left_out_by_attributes(tag) || has_line_numbers(tag) {
            return MarkdownEffect::LeaveOut(LeftOutElement::Whole);
        }
        if tag.name == ElementName::Title && self.facts.start_title() {
            return MarkdownEffect::Title;
        }
        let open_root = self.open_roots.greatest();
        if is_left_out_by_name(tag.name) {
            let has_h1 = tag.name == ElementName::Header && open_root > RootKind::Page;
            return MarkdownEffect::LeaveOut(if has_h1 { LeftOutElement::ExceptH1 } else { LeftOutElement::Whole });
        }
        if let Some(root) = RootKind::of_element(tag) {
            if root > open_root && root > self.root {
                return MarkdownEffect::OuterRoot {
                    root,
                    depth: self.content.depth(),
                    table: self.content.table.take(),
                };
            }
            return MarkdownEffect::Root(root);
        }
        if self.content.code_block.is_some() { self.effect_in_code_block(tag) } else { self.content_effect(tag) }
    }

    fn effect_in_code_block(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        if let (Some(code_block), ElementName::Code(_)) = (&mut self.content.code_block, tag.name)
            && code_block.language.is_none()
        {
            code_block.language = code_language::of_code_element(tag);
        }
        MarkdownEffect::None
    }

    /// Returns the effect of an element that is content.
    fn content_effect(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        let is_inline_only = self.content.is_inline_only();
        // A table in a cell is text.
        let is_in_table = self.content.table.is_some() && !self.content.is_in_cell();
        match tag.name {
            ElementName::A => self.link_effect(tag),
            ElementName::Code(_) => MarkdownEffect::Code,
            ElementName::Formatting(_) | ElementName::Inline(_) => self.formatting_effect(tag),
            ElementName::Pre => MarkdownEffect::Preformatted,
            ElementName::Block(_) if tag.is_named("blockquote") => {
                if is_inline_only {
                    MarkdownEffect::None
                } else {
                    MarkdownEffect::Container(self.content.depth())
                }
            }
            ElementName::Div | ElementName::Block(_) => match code_language::of_element_around_code(tag) {
                Some(language) => {
                    self.language = Some((self.elements.len(), language));
                    MarkdownEffect::Language
                }
                None => MarkdownEffect::None,
            },
            ElementName::Row if is_in_table => MarkdownEffect::Row,
            ElementName::Cell if is_in_table => MarkdownEffect::Cell,
            ElementName::RowGroup if is_in_table && tag.is_named("thead") => MarkdownEffect::TableHead,
            _ if is_inline_only => MarkdownEffect::None,
            ElementName::List(_) => MarkdownEffect::List,
            ElementName::Li => MarkdownEffect::Container(self.content.depth()),
            ElementName::Dl => MarkdownEffect::DefinitionList,
            ElementName::Table if self.content.table.is_none() && !is_layout_table(tag) => MarkdownEffect::Table,
            _ => MarkdownEffect::None,
        }
    }

    fn link_effect(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        let address = tag.href().filter(|_| self.open_code == 0).and_then(|href| self.head.base().resolve(&href));
        address.map_or(MarkdownEffect::None, |address| self.mark_effect(Mark::Link(address)))
    }

    fn formatting_effect(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        let is_named = |names: &[&str]| names.iter().any(|name| tag.is_named(name));
        // A heading is emphasised as a whole.
        if self.open_code > 0 || self.content.is_in_heading() {
            MarkdownEffect::None
        } else if is_named(&["tt"]) {
            MarkdownEffect::Code
        } else if is_named(&["em", "i"]) {
            self.mark_effect(Mark::Emphasis)
        } else if is_named(&["strong", "b"]) {
            self.mark_effect(Mark::Strong)
        } else if is_named(&["del", "s", "strike"]) {
            self.mark_effect(Mark::Strike)
        } else {
            MarkdownEffect::None
        }
    }

    fn mark_effect(&mut self, mark: Mark) -> MarkdownEffect {
        let heading_len = self.content.heading_len();
        if self.content.open_mark(mark.clone()) {
            MarkdownEffect::Mark(OpenedMark { mark, heading_len })
        } else {
            MarkdownEffect::None
        }
    }

    /// Uses the id of an element for the heading that it is in or comes before.
    fn use_anchor(&mut self, tag: &StartTag<'_>, effect: &MarkdownEffect) {
        // The sign that links to a heading often has the id of the heading, and is left out itself.
        let is_read = !matches!(effect, MarkdownEffect::LeaveOut(_)) || tag.name == ElementName::A;
        if self.left_out.is_some() || !is_read {
            return;
        }
        if let Some(heading) = &mut self.content.heading {
            if heading.anchor.is_none() {
                heading.anchor = tag.anchor();
            }
        } else if tag.name.is_inline()
            && let Some(anchor) = tag.anchor()
        {
            self.content.preceding_anchor = Some(anchor);
        }
    }

    fn start_heading(&mut self, tag: &StartTag<'_>, effect: &MarkdownEffect) {
        let is_read = match effect {
            MarkdownEffect::LeaveOut(_) => false,
            MarkdownEffect::InHeader(left_out) => left_out.is_none(),
            _ => self.left_out.is_none(),
        };
        let is_in_heading = self.content.heading.is_some() || self.content.is_inline_only();
        if !is_read || is_in_heading || self.open_roots.greatest() < self.root {
            return;
        }
        match tag.name {
            ElementName::Heading(level) => {
                self.content.start_heading(self.elements.len(), Some(level), tag.anchor());
            }
            ElementName::Dt => self.content.start_heading(self.elements.len(), None, tag.anchor()),
            _ => {}
        }
    }

    /// Adds an element to the open elements, and starts its effect.
    fn push_element(&mut self, tag: &StartTag<'_>, effect: MarkdownEffect) {
        let is_inline = tag.name.is_inline();
        let has_effect = !matches!(effect, MarkdownEffect::None);
        let is_needed = has_effect
            // Their end tags must not be taken for those of an element that has an effect.
            || self.inline_effects > 0
            || self.left_out.is_some()
            || self.elements.holds_foreign_content();
        if is_inline && !is_needed {
            return;
        }
        let has_no_other_use = matches!(effect, MarkdownEffect::None | MarkdownEffect::Language);
        let gives_id_to_heading = tag.name.gives_id_to_heading() && has_no_other_use && self.left_out.is_none();
        let id = if gives_id_to_heading { tag.anchor() } else { None };
        self.inline_effects += u32::from(is_inline && has_effect);
        self.start_effect(tag, &effect);
        if tag.name == ElementName::Dd && self.left_out.is_none() {
            self.content.start_definition();
        }
        self.elements.push(tag.name, effect, id.map(String::into_boxed_str));
    }

    fn start_effect(&mut self, tag: &StartTag<'_>, effect: &MarkdownEffect) {
        match effect {
            MarkdownEffect::None | MarkdownEffect::Title | MarkdownEffect::Language => {}
            MarkdownEffect::LeaveOut(element) => self.left_out = Some(*element),
            MarkdownEffect::InHeader(left_out) => self.left_out = *left_out,
            MarkdownEffect::Root(root) => self.open_roots.start(*root),
            MarkdownEffect::OuterRoot { root, .. } => {
                self.open_roots.start(*root);
                self.content.start_root();
            }
            MarkdownEffect::Mark(opened) => self.open_links += u32::from(matches!(opened.mark, Mark::Link(_))),
            MarkdownEffect::Code => self.open_code += 1,
            MarkdownEffect::Preformatted => self.start_code_block(tag),
            MarkdownEffect::Container(_) if tag.name == ElementName::Li => self.content.start_item(),
            MarkdownEffect::Container(_) => self.content.start_quote(),
            MarkdownEffect::List => {
                let start = || tag.attribute("start").and_then(|start| start.trim().parse().ok()).unwrap_or(1);
                self.content.start_list(tag.is_named("ol").then(start));
            }
            MarkdownEffect::DefinitionList => self.content.start_definition_list(),
            MarkdownEffect::Table => self.content.start_table(),
            MarkdownEffect::TableHead => self.content.with_table(|table| table.open_heads += 1),
            MarkdownEffect::Row => self.content.with_table(Table::start_row),
            MarkdownEffect::Cell => {
                let span = |name: &str| tag.attribute(name).and_then(|value| value.trim().parse::<u32>().ok());
                let (columns, rows) = (span("colspan").unwrap_or(1), span("rowspan").unwrap_or(1));
                self.content.start_cell(tag.is_named("th"), columns as usize, rows);
            }
        }
    }

    fn start_code_block(&mut self, tag: &StartTag<'_>) {
        let around = self.language.as_ref().filter(|(depth, _)| self.elements.len() - depth <= MAX_LANGUAGE_DISTANCE);
        let language = code_language::of_code_element(tag).or_else(|| around.map(|(_, language)| language.clone()));
        self.content.start_code_block(language);
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
                self.content.restart();
            }
            self.content.preceding_anchor = None;
        } else if root > self.root {
            return;
        }
        self.content.push_text(text, self.open_code > 0);
    }
}

impl ElementEnds for MarkdownBuilder {
    type Effect = MarkdownEffect;

    fn elements(&mut self) -> &mut OpenElements<MarkdownEffect> {
        &mut self.elements
    }

    fn deeper_elements(&mut self) -> &mut u64 {
        &mut self.deeper_elements
    }

    fn may_be_in_link(&self) -> bool {
        self.open_links > 0 || self.left_out.is_some()
    }

    fn left_out_part(effect: &MarkdownEffect) -> Option<LeftOutElement> {
        if let MarkdownEffect::LeaveOut(left_out) = effect { Some(*left_out) } else { None }
    }

    fn end_element_at(&mut self, depth: usize, name: ElementName, effect: MarkdownEffect) {
        if self.content.heading.as_ref().is_some_and(|heading| heading.depth == depth) {
            self.content.finish_heading(|| self.elements.use_ids());
        }
        if self.language.as_ref().is_some_and(|(of, _)| *of == depth) {
            self.language = None;
        }
        self.separate_blocks(name);
        self.end_effect(name, effect);
    }

    fn end_effect(&mut self, name: ElementName, effect: MarkdownEffect) {
        self.inline_effects -= u32::from(name.is_inline() && !matches!(effect, MarkdownEffect::None));
        match effect {
            MarkdownEffect::None | MarkdownEffect::Language => {}
            MarkdownEffect::LeaveOut(_) => self.left_out = None,
            MarkdownEffect::InHeader(_) => self.left_out = Some(LeftOutElement::ExceptH1),
            MarkdownEffect::Title => self.facts.end_title(),
            MarkdownEffect::Root(root) => self.open_roots.end(root),
            MarkdownEffect::OuterRoot { root, depth, table } => {
                self.open_roots.end(root);
                self.content.end_containers(depth);
                // What the table around it has is not content, once there is content in a greater root.
                self.content.table = table.filter(|_| self.root < root);
            }
            MarkdownEffect::Mark(opened) => {
                self.open_links -= u32::from(matches!(opened.mark, Mark::Link(_)));
                self.content.end_mark(&opened);
            }
            MarkdownEffect::Code => self.open_code -= 1,
            MarkdownEffect::Preformatted => self.content.end_code_block(),
            MarkdownEffect::Container(depth) => self.content.end_containers(depth),
            MarkdownEffect::List => self.content.end_list(),
            MarkdownEffect::DefinitionList => self.content.end_definition_list(),
            MarkdownEffect::Table => self.content.end_table(),
            MarkdownEffect::TableHead => {
                self.content.with_table(|table| table.open_heads = table.open_heads.saturating_sub(1));
            }
            MarkdownEffect::Row => self.content.with_table(Table::end_row),
            MarkdownEffect::Cell => self.content.end_cell(),
        }
    }

    fn open_again(&mut self, element: UnclosedElement) {
        self.inline_effects += u32::from(element.name.is_inline());
        self.left_out = Some(element.left_out);
        self.elements.push(element.name, MarkdownEffect::LeaveOut(element.left_out), None);
    }

    fn separate_blocks(&mut self, name: ElementName) {
        if !name.is_block() || self.left_out.is_some() {
            return;
        }
        if name == ElementName::LineBreak {
            self.content.break_line();
        } else {
            self.content.break_block();
        }
    }
}
