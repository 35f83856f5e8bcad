//! Finds the addresses in a body and resolves them.

use url::Url;

use super::address::{Leads, leads};
use super::documents::{Meet, Sort, Use, manifest, style};
use super::script::ReadBudget;
use super::{html, script};

/// Calls `tell` for each address in a body. The search for Next.js chunks stops early if `is_over` returns true.
pub(super) fn names(
    sort: Sort,
    path: &str,
    text: &str,
    body: &[u8],
    is_over: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Use, &str),
) {
    let mut meet = |how: Use, text: &str| {
        tell(how, text);
        None
    };
    let meet: &mut Meet<'_> = &mut meet;
    match sort {
        Sort::Page => drop(html::page(body, meet)),
        Sort::Style => drop(style(text, meet)),
        Sort::Manifest => drop(manifest(text, meet)),
        Sort::Script => script::modules(text, &mut |name| drop(meet(Use::Guess, name))),
        Sort::Payload | Sort::Xml | Sort::Other => {}
    }
    if matches!(sort, Sort::Page | Sort::Script | Sort::Payload) {
        // These names are absolute paths, so no `base` element applies to them.
        let mut budget = ReadBudget::new(text.len(), is_over);
        script::chunks(path, text, &mut budget, &mut |name| drop(meet(Use::Guess, name)));
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
    pub(super) fn leads(&mut self, how: Use, text: &str) -> Option<Leads> {
        let leads = leads(self.start, &self.base, text);
        if how == Use::Base && !std::mem::replace(&mut self.has_base, true) {
            self.base = self.base.join(text.trim()).unwrap_or_else(|_| self.base.clone());
        }
        (leads != Leads::Nowhere).then_some(leads)
    }
}
