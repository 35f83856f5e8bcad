//! The effects of open elements on the text in them.

use super::content_rules::{RootKind, is_left_out_by_attributes, is_left_out_by_name};
use super::element_name::ElementName;
use super::section_store::CurrentSection;
use super::tags::StartTag;

/// The part of an element that is left out. Elements in this part have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftOutElement {
    /// All content is left out.
    Whole,
    /// A `header` in an article or in the main content. It often has the heading of the page, which is read.
    ExceptH1,
}

/// A formatting element that is left out and was ended by the end of a block around it, before its own end tag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnclosedElement {
    pub(crate) name: ElementName,
    /// The depth at which it was open.
    pub(crate) depth: usize,
    pub(crate) left_out: LeftOutElement,
}

impl UnclosedElement {
    /// Returns the element that is opened again after an element has ended at this depth, too; `unclosed` is that of
    /// the elements that ended before it. `left_out` is what the element leaves out. A cell or a template keeps the
    /// elements in it.
    pub(crate) fn after_end_of(
        unclosed: Option<UnclosedElement>,
        name: ElementName,
        depth: usize,
        left_out: Option<LeftOutElement>,
    ) -> Option<UnclosedElement> {
        match (name, left_out) {
            (name, Some(left_out)) if name.is_formatting() => Some(UnclosedElement { name, depth, left_out }),
            (ElementName::Cell | ElementName::TablePart(_) | ElementName::Template, _) => None,
            _ => unclosed,
        }
    }

    /// Whether the end tag of this name, which ends the elements from this depth on, is that of the element.
    pub(crate) fn has_end_tag(&self, name: ElementName, depth: usize) -> bool {
        self.depth == depth && self.name == name
    }
}

/// The effects that all builders give to elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CommonEffect {
    #[default]
    None,
    /// The text is left out.
    LeaveOut(LeftOutElement),
    /// In a `header` of which only `h1` is read. The value is the part of this element that is left out.
    InHeader(Option<LeftOutElement>),
    Title,
    Root(RootKind),
}

/// The effects of open elements in a builder: the common ones and its own.
pub(crate) trait EffectOfElement: Default + From<CommonEffect> {
    /// Returns the common effect, or `None` if the effect is one of the builder's own.
    fn common(&self) -> Option<CommonEffect>;

    fn has_effect(&self) -> bool {
        self.common() != Some(CommonEffect::None)
    }
}

/// The effect of an open element on the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionEffect {
    Common(CommonEffect),
    Link(LinkStart),
    Code,
    /// `pre`: code that keeps its line feeds.
    Preformatted,
    /// `dl`: the section around the list continues after it.
    DefinitionList {
        around: CurrentSection,
        /// The section around the outer list.
        outer: Option<CurrentSection>,
    },
}

impl SectionEffect {
    pub(super) const NONE: SectionEffect = SectionEffect::Common(CommonEffect::None);
}

impl Default for SectionEffect {
    fn default() -> Self {
        SectionEffect::NONE
    }
}

impl From<CommonEffect> for SectionEffect {
    fn from(effect: CommonEffect) -> Self {
        SectionEffect::Common(effect)
    }
}

impl EffectOfElement for SectionEffect {
    fn common(&self) -> Option<CommonEffect> {
        if let SectionEffect::Common(effect) = self { Some(*effect) } else { None }
    }
}

/// The place where a link starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkStart {
    /// The section, or `None` in a heading.
    pub(super) section: Option<CurrentSection>,
    /// The length of the text before the link, in bytes.
    pub(super) text_len: usize,
    /// Whether the link leads to its own page.
    pub(super) is_fragment: bool,
}

/// Returns the effect of an element in a `header` of which only `h1` is read.
pub(super) fn header_effect(tag: &StartTag<'_>) -> CommonEffect {
    if is_left_out_by_attributes(tag) || is_left_out_by_name(tag.name) {
        CommonEffect::InHeader(Some(LeftOutElement::Whole))
    } else if tag.name == ElementName::Heading(1) {
        CommonEffect::InHeader(None)
    } else {
        CommonEffect::None
    }
}
