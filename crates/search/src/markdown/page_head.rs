//! The facts in the head of a page that only its Markdown has: its description, and the base of its addresses.

use crate::extract::element_name::ElementName;
use crate::extract::tags::StartTag;
use crate::extract::text_buffer::{LineFeeds, MAX_CHARACTER_BYTES, TextBuffer};

use super::MarkdownSettings;
use super::link_address::LinkBase;

/// The maximum length of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1000;

/// The facts that have been read so far. Of several of the same kind, the first counts.
#[derive(Debug)]
pub(super) struct PageHead {
    description: Option<String>,
    base: LinkBase,
    has_base_element: bool,
}

impl PageHead {
    pub(super) fn new(settings: &MarkdownSettings<'_>) -> Self {
        PageHead { description: None, base: LinkBase::of_page(settings), has_base_element: false }
    }

    /// Reads the start tag of an element that is not left out.
    pub(super) fn read_element(&mut self, tag: &StartTag<'_>) {
        match tag.name {
            ElementName::Meta if self.description.is_none() => self.description = read_description(tag),
            ElementName::Void if tag.is_named("base") && !self.has_base_element => {
                if let Some(base) = tag.href().and_then(|href| self.base.with_base_element(&href)) {
                    self.base = base;
                    self.has_base_element = true;
                }
            }
            _ => {}
        }
    }

    pub(super) fn base(&self) -> &LinkBase {
        &self.base
    }

    pub(super) fn into_description(self) -> Option<String> {
        self.description
    }
}

fn read_description(tag: &StartTag<'_>) -> Option<String> {
    let is_description = tag.name_value().is_some_and(|name| name.trim().eq_ignore_ascii_case("description"));
    let content = tag.content().filter(|_| is_description)?;
    let mut text = TextBuffer::default();
    text.push(&content, LineFeeds::Collapse, &mut (MAX_DESCRIPTION_CHARS * MAX_CHARACTER_BYTES));
    let (description, _) = text.into_line(MAX_DESCRIPTION_CHARS);
    (!description.is_empty()).then_some(description)
}
