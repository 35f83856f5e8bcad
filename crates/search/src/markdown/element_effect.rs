//! The effect of an open element on the Markdown of the text in it.

use crate::extract::content_rules::RootKind;
use crate::extract::element_effect::{CommonEffect, EffectOfElement};
use crate::extract::tags::StartTag;

use super::inline_text::Mark;
use super::table::Table;

/// The effect of an open element on the text in it.
#[derive(Debug)]
pub(super) enum MarkdownEffect {
    Common(CommonEffect),
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

impl MarkdownEffect {
    pub(super) const NONE: MarkdownEffect = MarkdownEffect::Common(CommonEffect::None);
}

impl Default for MarkdownEffect {
    fn default() -> Self {
        MarkdownEffect::NONE
    }
}

impl From<CommonEffect> for MarkdownEffect {
    fn from(effect: CommonEffect) -> Self {
        MarkdownEffect::Common(effect)
    }
}

impl EffectOfElement for MarkdownEffect {
    fn common(&self) -> Option<CommonEffect> {
        if let MarkdownEffect::Common(effect) = self { Some(*effect) } else { None }
    }
}

/// A mark, and the length of the plain text of a heading before it.
#[derive(Debug)]
pub(super) struct OpenedMark {
    pub(super) mark: Mark,
    pub(super) heading_len: usize,
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
