//! Finds the addresses in a body and resolves them.

use url::Url;

use super::address::{LinkTarget, resolve_link};
use super::body_format::{AddressPurpose, AddressVisitor, BodyFormat, rewrite_manifest, rewrite_style};
use super::script::ReadBudget;
use super::{html, script};

/// Calls `visit` for each address in a body. The search for Next.js chunks stops early if `is_cancelled` returns true.
pub(super) fn visit_addresses(
    format: BodyFormat,
    path: &str,
    text: &str,
    body: &[u8],
    is_cancelled: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(AddressPurpose, &str),
) {
    let mut visitor = |purpose: AddressPurpose, text: &str| {
        visit(purpose, text);
        None
    };
    let visitor: &mut AddressVisitor<'_> = &mut visitor;
    match format {
        BodyFormat::Page => drop(html::rewrite_page(body, visitor)),
        BodyFormat::Style => drop(rewrite_style(text, visitor)),
        BodyFormat::Manifest => drop(rewrite_manifest(text, visitor)),
        BodyFormat::Script => script::visit_modules(text, &mut |name| drop(visitor(AddressPurpose::Guess, name))),
        BodyFormat::Payload | BodyFormat::Xml | BodyFormat::Other => {}
    }
    if matches!(format, BodyFormat::Page | BodyFormat::Script | BodyFormat::Payload) {
        // These names are absolute paths, so no `base` element applies to them.
        let mut budget = ReadBudget::new(text.len(), is_cancelled);
        script::visit_chunks(path, text, &mut budget, &mut |name| drop(visitor(AddressPurpose::Guess, name)));
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

    /// Resolves an address; `None` if it is not requested. The first `base` element changes the base of the addresses
    /// after it.
    pub(super) fn resolve(&mut self, purpose: AddressPurpose, text: &str) -> Option<LinkTarget> {
        let target = resolve_link(self.start, &self.base, text);
        if purpose == AddressPurpose::Base && !std::mem::replace(&mut self.has_base, true) {
            self.base = self.base.join(text.trim()).unwrap_or_else(|_| self.base.clone());
        }
        (target != LinkTarget::Ignored).then_some(target)
    }
}
