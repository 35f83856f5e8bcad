//! Where elements end: the rules that all builders share, which read the same events and give elements other effects.

use super::element_effect::{LeftOutElement, UnclosedElement};
use super::element_name::ElementName;
use super::open_elements::{EndTagAction, OpenElement, OpenElements};

/// A builder that follows the open elements of a page.
pub(crate) trait ElementEnds {
    /// The effect of an open element on the text in it.
    type Effect: Default;

    /// Returns the open elements.
    fn elements(&mut self) -> &mut OpenElements<Self::Effect>;

    /// Returns the number of open elements beyond the limit, each of which must have an end tag.
    fn deeper_elements(&mut self) -> &mut u64;

    /// Returns whether the place may be in a link.
    fn may_be_in_link(&self) -> bool;

    /// Returns the part of an element with this effect that is left out.
    fn left_out_part(effect: &Self::Effect) -> Option<LeftOutElement>;

    /// Ends an element that was open at this depth, after the elements in it.
    fn end_element_at(&mut self, depth: usize, name: ElementName, effect: Self::Effect);

    /// Ends the effect of an element. The elements in it may stay open.
    fn end_effect(&mut self, name: ElementName, effect: Self::Effect);

    /// Opens a formatting element that is left out again, as browsers do after the block in which it was not closed
    /// ("reconstruct the active formatting elements", HTML Standard, 13.2.4.3).
    fn open_again(&mut self, element: UnclosedElement);

    /// Separates the text before the start or end of a block element from the text after it.
    fn separate_blocks(&mut self, name: ElementName);

    /// Ends the elements that the start of another element ends. Returns false if the start tag is ignored.
    fn close_before(&mut self, name: ElementName) -> bool {
        if self.elements().holds_foreign_content() && name.ends_foreign_content() {
            let depth = self.elements().foreign_content_depth();
            self.close_to(depth);
        }
        if name == ElementName::A && self.may_be_in_link() && !self.elements().holds_foreign_content() {
            self.end_element(name);
        }
        let depth = self.elements().start_tag_depth(name);
        if let Some(depth) = depth {
            self.close_to(depth);
        }
        depth.is_some()
    }

    /// Reads an end tag.
    fn end_element(&mut self, name: ElementName) {
        let deeper = self.deeper_elements();
        if *deeper > 0 {
            *deeper -= u64::from(!name.is_void());
            self.separate_blocks(name);
            return;
        }
        match self.elements().end_tag_action(name) {
            EndTagAction::Ignore => {}
            EndTagAction::CloseTo(depth) => {
                let unclosed = self.close_elements(depth);
                if let Some(element) = unclosed.filter(|element| !element.has_end_tag(name, depth)) {
                    self.open_again(element);
                }
            }
            EndTagAction::CloseOnly(depth) => {
                if let Some((name, effect)) = self.elements().close_only(depth) {
                    self.end_effect(name, effect);
                }
            }
        }
    }

    /// Ends the open elements from a depth on, and opens the formatting element among them that is left out again.
    fn close_to(&mut self, depth: usize) {
        if let Some(element) = self.close_elements(depth) {
            self.open_again(element);
        }
    }

    /// Ends the open elements from a depth on. Returns the formatting element among them that is left out, unless a
    /// cell or a template around it ends as well.
    fn close_elements(&mut self, depth: usize) -> Option<UnclosedElement> {
        let mut unclosed = None;
        while self.elements().len() > depth
            && let Some(OpenElement { name, effect, .. }) = self.elements().pop()
        {
            let ended_depth = self.elements().len();
            unclosed = UnclosedElement::after_end_of(unclosed, name, ended_depth, Self::left_out_part(&effect));
            self.end_element_at(ended_depth, name, effect);
        }
        unclosed
    }
}
