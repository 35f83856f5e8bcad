//! Finds the addresses in a body and resolves them.

use url::Url;

use super::address::{LinkTarget, resolve_link};
use super::body_format::{AddressPurpose, AddressVisitor, BodyFormat, manifest, style};
use super::script::ReadBudget;
use super::{html, script};

/// Calls `tell` for each address in a body. The search for Next.js chunks stops early if `is_over` returns true.
pub(super) fn visit_addresses(
    sort: BodyFormat,
    path: &str,
    text: &str,
    body: &[u8],
    is_over: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(AddressPurpose, &str),
) {
    let mut meet = |how: AddressPurpose, text: &str| {
        tell(how, text);
        None
    };
    let meet: &mut AddressVisitor<'_> = &mut meet;
    match sort {
        BodyFormat::Page => drop(html::rewrite_page(body, meet)),
        BodyFormat::Style => drop(style(text, meet)),
        BodyFormat::Manifest => drop(manifest(text, meet)),
        BodyFormat::Script => script::modules(text, &mut |name| drop(meet(AddressPurpose::Guess, name))),
        BodyFormat::Payload | BodyFormat::Xml | BodyFormat::Other => {}
    }
    if matches!(sort, BodyFormat::Page | BodyFormat::Script | BodyFormat::Payload) {
        // These names are absolute paths, so no `base` element applies to them.
        let mut budget = ReadBudget::new(text.len(), is_over);
        script::chunks(path, text, &mut budget, &mut |name| drop(meet(AddressPurpose::Guess, name)));
    }
}

/// Resolves the addresses in one body.
pub(super) struct Resolver<'a> {
    start: &'a Url,
    base: Url,
    has_base: bool,
}

impl Resolver<'_> {
    pub(super) fn new(start: &Url, base: Url) -> Resolver<'_> {
        Resolver { start, base, has_base: false }
    }

    /// Resolves an address; `None` if it has no target. The first `base` element changes the base of the addresses
    /// after it.
    pub(super) fn leads(&mut self, how: AddressPurpose, text: &str) -> Option<LinkTarget> {
        let leads = resolve_link(self.start, &self.base, text);
        if how == AddressPurpose::Base && !std::mem::replace(&mut self.has_base, true) {
            self.base = self.base.join(text.trim()).unwrap_or_else(|_| self.base.clone());
        }
        (leads != LinkTarget::Nowhere).then_some(leads)
    }
}
