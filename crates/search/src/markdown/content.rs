//! The content of a page: collects the current block and writes the finished ones.

use crate::extract::MAX_HEADING_CHARS;
use crate::extract::content_rules::is_permalink_sign;
use crate::extract::text_buffer::{LineFeeds, MAX_CHARACTER_BYTES, TextBuffer};

use super::block_writer::{BlockSeparator, BlockWriter};
use super::code_block::CodeBlock;
use super::element_effect::OpenedMark;
use super::inline_text::{InlineContext, InlineSeparator, InlineText, Mark};
use super::section_list::SectionList;
use super::table::Table;
use super::{MAX_MARKDOWN_BYTES, MarkdownSection};

/// The bytes that are kept free for what ends a block: its marks, the targets of its links, and its lines.
const BLOCK_END_BYTES: usize = 8 << 10;

/// A heading or the term of a definition that is being read.
#[derive(Debug)]
pub(super) struct CurrentHeading {
    /// The depth of the element in the open elements.
    pub(super) depth: usize,
    /// The level of a heading; `None` for a term.
    level: Option<u8>,
    /// The id of the element or of one in it.
    pub(super) anchor: Option<String>,
    /// The id of an empty element right before the heading.
    preceding_anchor: Option<String>,
    /// The text without marks.
    text: TextBuffer,
    remaining_bytes: usize,
    /// The start of the block, once it is written.
    start: Option<usize>,
}

/// An open list.
#[derive(Debug)]
struct OpenList {
    /// The number of containers around it.
    depth: usize,
    /// The number of the next item of an ordered list.
    next_number: Option<u32>,
    has_items: bool,
}

/// An open list of definitions.
#[derive(Debug, Default)]
struct OpenDefinitions {
    /// The number of containers around it.
    depth: usize,
    /// The places of the terms of the current definition.
    terms: Vec<usize>,
    /// Whether the definition of these terms has begun.
    has_definition: bool,
    has_items: bool,
}

/// The content that has been read so far.
#[derive(Debug)]
pub(super) struct PageContent {
    writer: BlockWriter,
    inline: InlineText,
    sections: SectionList,
    pub(super) heading: Option<CurrentHeading>,
    lists: Vec<OpenList>,
    definitions: Vec<OpenDefinitions>,
    pub(super) table: Option<Box<Table>>,
    /// The code of the open `pre` element.
    pub(super) code_block: Option<CodeBlock>,
    /// The id of an inline element after which no text has come.
    pub(super) preceding_anchor: Option<String>,
    is_cut: bool,
}

/// The content of a page as Markdown.
pub(super) struct FinishedContent {
    pub(super) text: String,
    pub(super) block_starts: Vec<u32>,
    pub(super) sections: Vec<MarkdownSection>,
    /// The text of the first heading of level 1.
    pub(super) first_h1: String,
    pub(super) is_cut: bool,
}

impl PageContent {
    pub(super) fn new() -> Self {
        let mut content = PageContent {
            writer: BlockWriter::new(MAX_MARKDOWN_BYTES),
            inline: InlineText::default(),
            sections: SectionList::default(),
            heading: None,
            lists: Vec::new(),
            definitions: Vec::new(),
            table: None,
            code_block: None,
            preceding_anchor: None,
            is_cut: false,
        };
        content.inline.restart(content.block_bytes());
        content
    }

    /// Ends the last block and returns the content.
    pub(super) fn finish(mut self, time_exceeded: bool) -> FinishedContent {
        self.break_block();
        let first_h1 = self.sections.first_h1().unwrap_or_default().to_owned();
        let (text, block_starts, are_blocks_cut) = self.writer.finish();
        FinishedContent {
            sections: self.sections.finish(text.len()),
            text,
            block_starts,
            first_h1,
            is_cut: self.is_cut || self.inline.is_cut() || are_blocks_cut || time_exceeded,
        }
    }

    /// The number of bytes that the next block may have.
    fn block_bytes(&self) -> usize {
        self.writer.remaining_bytes().saturating_sub(BLOCK_END_BYTES)
    }

    /// Whether the place permits no blocks.
    pub(super) fn is_inline_only(&self) -> bool {
        self.code_block.is_some() || self.is_in_cell() || self.heading.as_ref().is_some_and(|h| h.level.is_some())
    }

    /// Whether a cell of a table is open.
    pub(super) fn is_in_cell(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.is_cell_open())
    }

    /// The number of containers around the current place.
    pub(super) fn depth(&self) -> usize {
        self.writer.depth()
    }

    /// The length of the text of the open heading.
    pub(super) fn heading_len(&self) -> usize {
        self.heading.as_ref().map_or(0, |heading| heading.text.len())
    }

    /// Whether a heading is open that has text.
    pub(super) fn has_heading_text(&self) -> bool {
        self.heading.as_ref().is_some_and(|heading| heading.level.is_some() && !heading.text.is_empty())
    }

    /// Whether a heading is open, not a term.
    pub(super) fn is_in_heading(&self) -> bool {
        self.heading.as_ref().is_some_and(|heading| heading.level.is_some())
    }

    /// Opens a mark. Returns whether it counts: not if one of its kind is open.
    pub(super) fn open_mark(&mut self, mark: Mark) -> bool {
        self.inline.open_mark(mark)
    }

    /// Starts a heading with its level, or a term, at a depth of the open elements.
    pub(super) fn start_heading(&mut self, depth: usize, level: Option<u8>, anchor: Option<String>) {
        match level {
            Some(_) => self.inline.context = InlineContext::Heading,
            None => self.start_term(),
        }
        self.heading = Some(CurrentHeading {
            depth,
            level,
            anchor,
            preceding_anchor: self.preceding_anchor.take(),
            text: TextBuffer::default(),
            remaining_bytes: MAX_HEADING_CHARS * MAX_CHARACTER_BYTES,
            start: None,
        });
    }

    /// Starts the item of a definition, which begins with its term.
    fn start_term(&mut self) {
        self.inline.open_mark(Mark::Strong);
        let is_in_item = self.writer.is_in_item();
        let Some(list) = self.definitions.last_mut() else { return };
        let follows_term = list.has_items && !list.has_definition;
        if list.has_definition {
            self.end_definition();
        }
        let Some(list) = self.definitions.last_mut() else { return };
        self.writer.end_containers(list.depth);
        if follows_term || !list.has_items && is_in_item {
            self.writer.set_separator(BlockSeparator::Line);
        }
        list.has_items = true;
        self.writer.start_item(None);
    }

    /// Ends the terms of the current definition of the innermost list.
    fn end_definition(&mut self) {
        if let Some(list) = self.definitions.last_mut() {
            list.has_definition = false;
            for place in std::mem::take(&mut list.terms) {
                self.sections.end_term(place, self.writer.len());
            }
        }
    }

    /// Notes that what explains the last term has begun.
    pub(super) fn start_definition(&mut self) {
        if let Some(list) = self.definitions.last_mut() {
            list.has_definition = true;
        }
    }

    pub(super) fn start_definition_list(&mut self) {
        self.definitions.push(OpenDefinitions { depth: self.writer.depth(), ..OpenDefinitions::default() });
    }

    pub(super) fn end_definition_list(&mut self) {
        self.end_definition();
        if let Some(list) = self.definitions.pop() {
            self.writer.end_containers(list.depth);
        }
        self.writer.set_separator(BlockSeparator::BlankLine);
    }

    /// Starts a list. `next_number` is the number of the first item of an ordered one.
    pub(super) fn start_list(&mut self, next_number: Option<u32>) {
        self.lists.push(OpenList { depth: self.writer.depth(), next_number, has_items: false });
    }

    pub(super) fn end_list(&mut self) {
        if let Some(list) = self.lists.pop() {
            self.writer.end_containers(list.depth);
        }
        self.writer.set_separator(BlockSeparator::BlankLine);
    }

    /// Starts an item of the innermost list.
    pub(super) fn start_item(&mut self) {
        let is_nested = self.writer.is_in_item();
        let list = self.lists.last_mut().filter(|list| list.depth <= self.writer.depth());
        let number = list.as_ref().and_then(|list| list.next_number);
        // Only an item with the number 1 may follow a paragraph without a blank line (`CommonMark`, 5.2).
        let may_follow_text = is_nested && number.is_none_or(|number| number == 1);
        if may_follow_text || list.as_ref().is_some_and(|list| list.has_items) {
            self.writer.set_separator(BlockSeparator::Line);
        }
        if let Some(list) = list {
            list.has_items = true;
            list.next_number = list.next_number.map(|number| number.saturating_add(1));
        }
        self.writer.start_item(number);
    }

    pub(super) fn start_quote(&mut self) {
        self.writer.start_quote();
    }

    /// Ends the quotes and items from a depth on.
    pub(super) fn end_containers(&mut self, depth: usize) {
        self.writer.end_containers(depth);
    }

    /// Starts a part of the page that is written as if nothing contained it.
    pub(super) fn start_root(&mut self) {
        self.writer.start_root();
    }

    /// Writes a thematic break.
    pub(super) fn write_rule(&mut self) {
        self.writer.write_block("", "---");
    }

    pub(super) fn start_table(&mut self) {
        self.table = Some(Box::new(Table::new(self.block_bytes())));
    }

    /// Starts a cell of the open table, which may cover several columns and rows.
    pub(super) fn start_cell(&mut self, is_head: bool, column_span: usize, row_span: u32) {
        self.with_table(|table| table.start_cell(is_head, column_span, row_span));
        self.inline.context = InlineContext::Cell;
    }

    /// Starts the code of a `pre` element.
    pub(super) fn start_code_block(&mut self, language: Option<String>) {
        self.code_block = Some(CodeBlock::new(language, self.block_bytes()));
    }

    /// Changes the open table, if there is one.
    pub(super) fn with_table(&mut self, change: impl FnOnce(&mut Table)) {
        if let Some(table) = &mut self.table {
            change(table);
        }
    }

    /// Closes a mark.
    pub(super) fn end_mark(&mut self, opened: &OpenedMark) {
        self.inline.close_mark(&opened.mark);
        let heading = self.heading.as_mut();
        let is_fragment = matches!(&opened.mark, Mark::Link(address) if address.is_fragment);
        if let Some(heading) = heading.filter(|_| is_fragment) {
            heading.text.revert_if(opened.heading_len, is_permalink_sign);
        }
    }

    /// Ends the open cell of the table.
    pub(super) fn end_cell(&mut self) {
        if !self.is_in_cell() {
            return;
        }
        let text = self.inline.take(self.block_bytes());
        self.with_table(|table| table.end_cell(&text));
        self.inline.context = InlineContext::Paragraph;
    }

    /// Ends the table and writes it.
    pub(super) fn end_table(&mut self) {
        self.end_cell();
        let Some(table) = self.table.take() else { return };
        self.is_cut |= table.is_cut();
        if let Some(text) = table.finish() {
            self.writer.write_block("", &text);
        }
        self.inline.restart(self.block_bytes());
    }

    /// Ends the code of a `pre` element and writes it.
    pub(super) fn end_code_block(&mut self) {
        let Some(code_block) = self.code_block.take() else { return };
        self.is_cut |= code_block.is_cut();
        let Some(code) = code_block.code() else { return };
        if self.is_inline_only() {
            self.inline.push_code(code);
            return;
        }
        self.write_paragraph();
        let start = self.writer.write_code_block(code_block.language.as_deref().unwrap_or_default(), code);
        self.note_term_start(start);
        self.inline.restart(self.block_bytes());
    }

    /// Ends the heading that has been read. One without text is ignored. `use_ids` returns the id of an element around
    /// it.
    pub(super) fn finish_heading(&mut self, use_ids: impl FnOnce() -> Option<Box<str>>) {
        let Some(level) = self.heading.as_ref().map(|heading| heading.level) else { return };
        if level.is_some() {
            self.write_heading();
        } else {
            self.write_paragraph();
            self.inline.close_mark(&Mark::Strong);
        }
        self.inline.context = if self.is_in_cell() { InlineContext::Cell } else { InlineContext::Paragraph };
        let Some(heading) = self.heading.take().filter(|heading| !heading.text.is_empty()) else { return };
        let enclosing_id = if level.is_some() { use_ids().map(String::from) } else { None };
        let Some(start) = heading.start else { return };
        let anchor = heading.anchor.or(enclosing_id).or(heading.preceding_anchor);
        let (text, _) = heading.text.into_line(MAX_HEADING_CHARS);
        match (level, anchor) {
            (Some(level), anchor) => self.sections.add_heading(level, anchor, text, start),
            (None, Some(anchor)) => {
                let place = self.sections.add_term(anchor, text, start);
                if let Some(list) = self.definitions.last_mut() {
                    list.terms.extend(place);
                }
            }
            (None, None) => {}
        }
    }

    fn write_heading(&mut self) {
        let text = self.take_inline();
        let Some(heading) = self.heading.as_mut().filter(|_| !text.is_empty()) else { return };
        let level = usize::from(heading.level.unwrap_or(1));
        heading.start = self.writer.write_block(&"###### "[6 - level.clamp(1, 6)..], &text);
        self.inline.restart(self.block_bytes());
    }

    fn write_paragraph(&mut self) {
        let text = self.take_inline();
        if text.is_empty() {
            return;
        }
        let start = self.writer.write_block("", &text);
        self.note_term_start(start);
        self.inline.restart(self.block_bytes());
    }

    /// Remembers the start of the first block of an open term.
    fn note_term_start(&mut self, start: Option<usize>) {
        if let Some(heading) = self.heading.as_mut().filter(|heading| heading.level.is_none()) {
            heading.start = heading.start.or(start);
        }
    }

    fn take_inline(&mut self) -> String {
        self.inline.take(self.block_bytes())
    }

    /// Appends text. `is_code` says whether it is in a `code` element.
    pub(super) fn push_text(&mut self, text: &str, is_code: bool) {
        if let Some(code_block) = &mut self.code_block {
            code_block.push(text);
            return;
        }
        if let Some(heading) = &mut self.heading {
            heading.text.push(text, LineFeeds::Collapse, &mut heading.remaining_bytes);
        }
        if is_code {
            self.inline.push_code(text);
        } else {
            self.inline.push_text(text);
        }
    }

    /// Starts a new line in the current block.
    pub(super) fn break_line(&mut self) {
        match &mut self.code_block {
            Some(code_block) => code_block.break_line(),
            None => self.inline.separate(InlineSeparator::Break),
        }
    }

    /// Discards everything that has been read, because it was not in the main content.
    pub(super) fn restart(&mut self) {
        self.writer.restart();
        self.sections.restart();
        self.is_cut = false;
        let max_bytes = self.block_bytes();
        self.inline.restart_page(max_bytes);
        if let Some(heading) = &mut self.heading {
            heading.text = TextBuffer::default();
            heading.start = None;
        }
        self.with_table(|table| table.restart(max_bytes));
        if let Some(code_block) = &mut self.code_block {
            code_block.restart(max_bytes);
        }
        for list in &mut self.lists {
            list.has_items = false;
        }
        for list in &mut self.definitions {
            list.terms.clear();
        }
    }

    /// Ends the current block, where the place permits blocks.
    pub(super) fn break_block(&mut self) {
        if let Some(code_block) = &mut self.code_block {
            code_block.end_line();
        } else if self.is_inline_only() {
            self.inline.separate(InlineSeparator::Space);
        } else if !self.inline.is_blank() {
            self.write_paragraph();
        }
    }
}
