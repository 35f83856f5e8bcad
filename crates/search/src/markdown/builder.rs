//! Builds the Markdown of a page from its start tags, end tags and texts.

use crate::extract::MAX_HEADING_CHARS;
use crate::extract::element_effect::{CommonEffect, EffectOfElement, LeftOutElement};
use crate::extract::element_ends::ElementEnds;
use crate::extract::element_name::ElementName;
use crate::extract::page_reader::PageEventHandler;
use crate::extract::reading_scope::{ReadingScope, TextPlace};
use crate::extract::tags::{PageEvent, StartTag};

use super::content::PageContent;
use super::element_effect::{MarkdownEffect, OpenedMark, has_line_numbers, is_layout_table};
use super::inline_text::Mark;
use super::page_head::PageHead;
use super::table::Table;
use super::{MarkdownSettings, PageMarkdown, code_language};

/// The number of elements between code and the element around it that may name its language.
const MAX_LANGUAGE_DISTANCE: usize = 3;

/// Reads the events of a page and builds its Markdown.
#[derive(Debug)]
pub(super) struct MarkdownBuilder {
    scope: ReadingScope<MarkdownEffect>,
    head: PageHead,
    content: PageContent,
    /// The number of open `code` elements in a paragraph.
    open_code: u32,
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
            scope: ReadingScope::new(MAX_HEADING_CHARS),
            head: PageHead::new(settings),
            content: PageContent::new(),
            open_code: 0,
            language: None,
        }
    }

    /// Ends all open elements and returns the page.
    pub(super) fn finish(mut self, time_exceeded: bool) -> PageMarkdown {
        self.close_elements(0);
        let (title, _) = self.scope.facts.take_title();
        let content = self.content.finish(time_exceeded);
        PageMarkdown {
            title: if title.is_empty() { content.first_h1 } else { title },
            description: self.head.into_description(),
            lang: self.scope.facts.lang,
            exclusion: self.scope.facts.exclusion,
            text: content.text,
            block_starts: content.block_starts,
            sections: content.sections,
            is_cut: content.is_cut,
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
            self.head.read_element(tag);
            if name.ends_heading() && self.content.has_heading_text() {
                self.content.finish_heading(|| self.scope.use_ids());
            }
        }
        self.separate_blocks(name);
        if self.scope.start_page(tag) {
            return;
        }
        if self.scope.has_no_end(tag) {
            if name.is_void() {
                self.read_void_element(tag);
            }
            return;
        }
        let effect = self.element_effect(tag);
        self.use_anchor(tag, &effect);
        self.start_heading(tag, &effect);
        self.push_element(tag, effect);
    }

    /// Reads an element without content.
    fn read_void_element(&mut self, tag: &StartTag<'_>) {
        if !self.scope.is_void_read(tag) {
            return;
        }
        match tag.name {
            ElementName::Rule if !self.content.is_inline_only() && self.scope.open_root() == self.scope.root() => {
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
        if self.scope.is_read() && has_line_numbers(tag) {
            return CommonEffect::LeaveOut(LeftOutElement::Whole).into();
        }
        match self.scope.common_effect(tag) {
            Some(CommonEffect::Root(root)) if self.scope.is_outer_root(root) => {
                MarkdownEffect::OuterRoot { root, depth: self.content.depth(), table: self.content.table.take() }
            }
            Some(effect) => effect.into(),
            None if self.content.code_block.is_some() => self.effect_in_code_block(tag),
            None => self.content_effect(tag),
        }
    }

    fn effect_in_code_block(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        if let (Some(code_block), ElementName::Code(_)) = (&mut self.content.code_block, tag.name)
            && code_block.language.is_none()
        {
            code_block.language = code_language::of_code_element(tag);
        }
        MarkdownEffect::NONE
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
                    MarkdownEffect::NONE
                } else {
                    MarkdownEffect::Container(self.content.depth())
                }
            }
            ElementName::Div | ElementName::Block(_) => match code_language::of_element_around_code(tag) {
                Some(language) => {
                    self.language = Some((self.scope.elements().len(), language));
                    MarkdownEffect::Language
                }
                None => MarkdownEffect::NONE,
            },
            ElementName::Row if is_in_table => MarkdownEffect::Row,
            ElementName::Cell if is_in_table => MarkdownEffect::Cell,
            ElementName::RowGroup if is_in_table && tag.is_named("thead") => MarkdownEffect::TableHead,
            _ if is_inline_only => MarkdownEffect::NONE,
            ElementName::List(_) => MarkdownEffect::List,
            ElementName::Li => MarkdownEffect::Container(self.content.depth()),
            ElementName::Dl => MarkdownEffect::DefinitionList,
            ElementName::Table if self.content.table.is_none() && !is_layout_table(tag) => MarkdownEffect::Table,
            _ => MarkdownEffect::NONE,
        }
    }

    fn link_effect(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        let address = tag.href().filter(|_| self.open_code == 0).and_then(|href| self.head.base().resolve(&href));
        address.map_or(MarkdownEffect::NONE, |address| self.mark_effect(Mark::Link(address)))
    }

    fn formatting_effect(&mut self, tag: &StartTag<'_>) -> MarkdownEffect {
        let is_named = |names: &[&str]| names.iter().any(|name| tag.is_named(name));
        // A heading is emphasised as a whole.
        if self.open_code > 0 || self.content.is_in_heading() {
            MarkdownEffect::NONE
        } else if is_named(&["tt"]) {
            MarkdownEffect::Code
        } else if is_named(&["em", "i"]) {
            self.mark_effect(Mark::Emphasis)
        } else if is_named(&["strong", "b"]) {
            self.mark_effect(Mark::Strong)
        } else if is_named(&["del", "s", "strike"]) {
            self.mark_effect(Mark::Strike)
        } else {
            MarkdownEffect::NONE
        }
    }

    fn mark_effect(&mut self, mark: Mark) -> MarkdownEffect {
        let heading_len = self.content.heading_len();
        if self.content.open_mark(mark.clone()) {
            MarkdownEffect::Mark(OpenedMark { mark, heading_len })
        } else {
            MarkdownEffect::NONE
        }
    }

    /// Uses the id of an element for the heading that it is in or comes before.
    fn use_anchor(&mut self, tag: &StartTag<'_>, effect: &MarkdownEffect) {
        if !self.scope.is_anchor_read(tag, effect) {
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
        let is_in_heading = self.content.heading.is_some() || self.content.is_inline_only();
        let is_read = self.scope.is_content_read(effect) && self.scope.open_root() >= self.scope.root();
        if !is_read || is_in_heading {
            return;
        }
        match tag.name {
            ElementName::Heading(level) => {
                self.content.start_heading(self.scope.elements().len(), Some(level), tag.anchor());
            }
            ElementName::Dt => self.content.start_heading(self.scope.elements().len(), None, tag.anchor()),
            _ => {}
        }
    }

    /// Adds an element to the open elements, and starts its effect.
    fn push_element(&mut self, tag: &StartTag<'_>, effect: MarkdownEffect) {
        if !self.scope.is_remembered(tag.name, &effect) {
            return;
        }
        let has_no_other_use = !effect.has_effect() || matches!(effect, MarkdownEffect::Language);
        let gives_id_to_heading = tag.name.gives_id_to_heading() && has_no_other_use && self.scope.is_read();
        let id = if gives_id_to_heading { tag.anchor() } else { None };
        self.start_effect(tag, &effect);
        if tag.name == ElementName::Dd && self.scope.is_read() {
            self.content.start_definition();
        }
        self.scope.push(tag.name, effect, id);
    }

    fn start_effect(&mut self, tag: &StartTag<'_>, effect: &MarkdownEffect) {
        match effect {
            MarkdownEffect::Language => {}
            MarkdownEffect::Common(effect) => self.scope.start_common(*effect),
            MarkdownEffect::OuterRoot { root, .. } => {
                self.scope.start_common(CommonEffect::Root(*root));
                self.content.start_root();
            }
            MarkdownEffect::Mark(opened) => self.scope.open_links += u32::from(matches!(opened.mark, Mark::Link(_))),
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
        let around =
            self.language.as_ref().filter(|(depth, _)| self.scope.elements().len() - depth <= MAX_LANGUAGE_DISTANCE);
        let language = code_language::of_code_element(tag).or_else(|| around.map(|(_, language)| language.clone()));
        self.content.start_code_block(language);
    }

    fn read_text(&mut self, text: &str) {
        let place = self.scope.place_text(text);
        match place {
            TextPlace::Ignored => return,
            TextPlace::WhiteSpace => {}
            TextPlace::Content | TextPlace::FirstInGreaterRoot => {
                if place == TextPlace::FirstInGreaterRoot {
                    self.content.restart();
                }
                self.content.preceding_anchor = None;
            }
        }
        self.content.push_text(text, self.open_code > 0);
    }
}

impl ElementEnds for MarkdownBuilder {
    type Effect = MarkdownEffect;

    fn scope(&mut self) -> &mut ReadingScope<MarkdownEffect> {
        &mut self.scope
    }

    fn end_element_at(&mut self, depth: usize, name: ElementName, effect: MarkdownEffect) {
        if self.content.heading.as_ref().is_some_and(|heading| heading.depth == depth) {
            self.content.finish_heading(|| self.scope.use_ids());
        }
        if self.language.as_ref().is_some_and(|(of, _)| *of == depth) {
            self.language = None;
        }
        self.separate_blocks(name);
        self.end_effect(effect);
    }

    fn end_effect(&mut self, effect: MarkdownEffect) {
        match effect {
            MarkdownEffect::Language => {}
            MarkdownEffect::Common(effect) => self.scope.end_common(effect),
            MarkdownEffect::OuterRoot { root, depth, table } => {
                self.scope.end_common(CommonEffect::Root(root));
                self.content.end_containers(depth);
                // What the table around it has is not content, once there is content in a greater root.
                self.content.table = table.filter(|_| self.scope.root() < root);
            }
            MarkdownEffect::Mark(opened) => {
                self.scope.open_links -= u32::from(matches!(opened.mark, Mark::Link(_)));
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

    fn separate_blocks(&mut self, name: ElementName) {
        if !self.scope.separates_blocks(name) {
            return;
        }
        if name == ElementName::LineBreak {
            self.content.break_line();
        } else {
            self.content.break_block();
        }
    }
}
