//! Where elements end: the rules that all builders share, which read the same events and give elements other effects.

use super::element_effect::{CommonEffect, EffectOfElement, UnclosedElement};
use super::element_name::ElementName;
use super::open_elements::{EndTagAction, OpenElement};
use super::reading_scope::ReadingScope;

/// A builder that follows the open elements of a page.
pub(crate) trait ElementEnds {
    /// The effect of an open element on the text in it.
    type Effect: EffectOfElement;

    /// Returns the open elements and their common effects.
    fn scope(&mut self) -> &mut ReadingScope<Self::Effect>;

    /// Ends an element that was open at this depth, after the elements in it.
    fn end_element_at(&mut self, depth: usize, name: ElementName, effect: Self::Effect);

    /// Ends the effect of an element. The elements in it may stay open.
    fn end_effect(&mut self, effect: Self::Effect);

    /// Separates the text before the start or end of a block element from the text after it.
    fn separate_blocks(&mut self, name: ElementName);

    /// Ends the elements that the start of another element ends. Returns false if the start tag is ignored.
    fn close_before(&mut self, name: ElementName) -> bool {
        if self.scope().elements().holds_foreign_content() && name.ends_foreign_content() {
            let depth = self.scope().elements().foreign_content_depth();
            self.close_to(depth);
        }
        let scope = self.scope();
        if name == ElementName::A && scope.may_be_in_link() && !scope.elements().holds_foreign_content() {
            self.end_element(name);
        }
        let depth = self.scope().elements().start_tag_depth(name);
        if let Some(depth) = depth {
            self.close_to(depth);
        }
        depth.is_some()
    }

    /// Reads an end tag.
    fn end_element(&mut self, name: ElementName) {
        if self.scope().skip_deep_end(name) {
            self.separate_blocks(name);
            return;
        }
        match self.scope().elements().end_tag_action(name) {
            EndTagAction::Ignore => {}
            EndTagAction::CloseTo(depth) => {
                let unclosed = self.close_elements(depth);
                if let Some(element) = unclosed.filter(|element| !element.has_end_tag(name, depth)) {
                    self.scope().open_again(element);
                }
            }
            EndTagAction::CloseOnly(depth) => {
                if let Some(effect) = self.scope().close_only(depth) {
                    self.end_effect(effect);
                }
            }
        }
    }

    /// Ends the open elements from a depth on, and opens the formatting element among them that is left out again, as
    /// browsers do after the block in which it was not closed ("reconstruct the active formatting elements", HTML
    /// Standard, 13.2.4.3).
    fn close_to(&mut self, depth: usize) {
        if let Some(element) = self.close_elements(depth) {
            self.scope().open_again(element);
        }
    }

    /// Ends the open elements from a depth on. Returns the formatting element among them that is left out, unless a
    /// cell or a template around it ends as well.
    fn close_elements(&mut self, depth: usize) -> Option<UnclosedElement> {
        let mut unclosed = None;
        while self.scope().elements().len() > depth
            && let Some(OpenElement { name, effect, .. }) = self.scope().pop()
        {
            let ended_depth = self.scope().elements().len();
            let left_out =
                if let Some(CommonEffect::LeaveOut(left_out)) = effect.common() { Some(left_out) } else { None };
            unclosed = UnclosedElement::after_end_of(unclosed, name, ended_depth, left_out);
            self.end_element_at(ended_depth, name, effect);
        }
        unclosed
    }
}
