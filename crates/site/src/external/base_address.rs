//! The base address of a page, as its `base` elements set it.

use super::address::{AddressTarget, ExternalOrigin, classify_address};
use super::content_fact::ResourceKind;

/// The base address of one file, against which its relative addresses are resolved.
#[derive(Debug, Default)]
pub(super) struct BaseAddress {
    is_said: bool,
    origin: Option<ExternalOrigin>,
    /// The base address of the outer page, while a nested page is read.
    outer: Option<Box<BaseAddress>>,
}

impl BaseAddress {
    /// Begins a nested page. It inherits the base address of the outer page until it has a `base` element of its own.
    pub(super) fn enter(&mut self) {
        let inner = BaseAddress { is_said: false, origin: self.origin.clone(), outer: None };
        let outer = std::mem::replace(self, inner);
        self.outer = Some(Box::new(outer));
    }

    /// Ends the nested page.
    pub(super) fn leave(&mut self) {
        if let Some(outer) = self.outer.take() {
            *self = *outer;
        }
    }

    /// Classifies an address of the file. The first `base` element applies to the addresses behind it.
    pub(super) fn leads(&mut self, kind: ResourceKind, text: &str) -> AddressTarget {
        let mut to = classify_address(text);
        if kind == ResourceKind::Base {
            if let (false, AddressTarget::External(origin)) = (self.is_said, &to) {
                self.origin = Some(origin.clone());
            }
            self.is_said = true;
        } else if let (AddressTarget::Internal, Some(origin)) = (&to, &self.origin) {
            to = AddressTarget::External(origin.clone());
        }
        to
    }
}
