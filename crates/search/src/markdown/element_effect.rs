//! The effect of an open element on the Markdown of the text in it.

use crate::extract::content_rules::{RootKind, is_left_out_by_attributes, is_left_out_by_name};
use crate::extract::element_effect::LeftOutElement;
use crate::extract::element_name::ElementName;
use crate::extract::tags::StartTag;

use super::inline_text::Mark;
use super::table::Table;

/// The effect of an open element on the text in it.
#[derive(Debug, Default)]
pub(super) enum MarkdownEffect {
    #[default]
    None,
    /// The text is left out.
    LeaveOut(LeftOutElement),
    /// In a `header` of which only `h1` is read. The value is the part of this element that is left out.
    InHeader(Option<LeftOutElement>),
    Title,
    Root(RootKind),
    /// A root that is greater than those around it: the containers and the table around it have no effect on it.
    OuterRoot {
        root: RootKind,
        depth: usize,
        table: Option<Box<Table>>,
    },
    /// Emphasis or a link.
    Mark(OpenedMark),
    /// A `code` element in a paragraph.
    Code,
    Preformatted,
    /// A quote or an item of a list. The containers from this depth on end with it.
    Container(usize),
    List,
    DefinitionList,
    Table,
    /// `thead`.
    TableHead,
    Row,
    Cell,
    /// The language of the code in it.
    Language,
}

/// A mark, and the length of the plain text of a heading before it.
#[derive(Debug)]
pub(super) struct OpenedMark {
    pub(super) mark: Mark,
    pub(super) heading_len: usize,
}

/// Returns the effect of an element in a `header` of which only `h1` is read.
pub(super) fn header_effect(tag: &StartTag<'_>) -> MarkdownEffect {
    if is_left_out_by_attributes(tag) || is_left_out_by_name(tag.name) {
        MarkdownEffect::InHeader(Some(LeftOutElement::Whole))
    } else if tag.name == ElementName::Heading(1) {
        MarkdownEffect::InHeader(None)
    } else {
        MarkdownEffect::None
    }
}

/// Whether an element has the numbers of the lines of code, as the highlighters Pygments, Rouge and Chroma write them.
pub(super) fn has_line_numbers(tag: &StartTag<'_>) -> bool {
    ["linenos", "linenodiv", "lineno", "gutter", "rouge-gutter", "lnt", "ln"].iter().any(|class| tag.has_class(class))
}

/// Whether a `table` element only places its parts: its cells are no table in Markdown.
pub(super) fn is_layout_table(tag: &StartTag<'_>) -> bool {
    tag.has_role("presentation")
        || tag.has_role("none")
        || ["highlighttable", "rouge-table", "lntable"].iter().any(|class| tag.has_class(class))
}
