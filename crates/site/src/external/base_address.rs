//! The base address of a page, as its `base` elements set it.

use super::address::{AddressTarget, ExternalOrigin, classify_address};
use super::content_fact::ResourceKind;

/// The base address of one file, against which its relative addresses are resolved.
#[derive(Debug, Default)]
pub(super) struct BaseAddress {
    is_set: bool,
    origin: Option<ExternalOrigin>,
    /// The base address of the outer page, while a nested page is read.
    outer: Option<Box<BaseAddress>>,
}

impl BaseAddress {
    /// Begins a nested page. It inherits the base address of the outer page until it has its own `base` element.
    pub(super) fn enter_nested_page(&mut self) {
        let inner = BaseAddress { is_set: false, origin: self.origin.clone(), outer: None };
        let outer = std::mem::replace(self, inner);
        self.outer = Some(Box::new(outer));
    }

    /// Ends the nested page.
    pub(super) fn leave_nested_page(&mut self) {
        if let Some(outer) = self.outer.take() {
            *self = *outer;
        }
    }

    /// Classifies an address of the file. The first `base` element applies to the addresses after it.
    pub(super) fn classify(&mut self, kind: ResourceKind, text: &str) -> AddressTarget {
        let mut target = classify_address(text);
        if kind == ResourceKind::Base {
            if let (false, AddressTarget::External(origin)) = (self.is_set, &target) {
                self.origin = Some(origin.clone());
            }
            self.is_set = true;
        } else if let (AddressTarget::NoExternalRequest, Some(origin)) = (&target, &self.origin) {
            target = AddressTarget::External(origin.clone());
        }
        target
    }
}
