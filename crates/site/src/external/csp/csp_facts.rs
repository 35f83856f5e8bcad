//! The facts about a version from which its policies are rendered ([`super::csp_template`]).

use std::collections::BTreeSet;

use docwharf_base::model::digest::Digest;

use super::super::address::ExternalOrigin;
use super::super::content_fact::ResourceKind;

/// The set number of a file that is not a page.
pub(super) const NO_SET: u32 = u32::MAX;

/// The facts about a whole site.
#[allow(clippy::struct_excessive_bools)] // the facts are independent
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteFacts {
    /// The external origins, by the purpose of the requests.
    pub origins: BTreeSet<(ResourceKind, ExternalOrigin)>,
    /// The purposes for which there are too many origins. Their origins are not stored.
    pub unlisted_kinds: BTreeSet<ResourceKind>,
    /// Whether a script evaluates text as code.
    pub uses_eval: bool,
    /// Whether a script runs WebAssembly.
    pub uses_wasm: bool,
    /// Whether a script is loaded from a `data:` address.
    pub data_scripts: bool,
    /// Whether a style sheet is loaded from a `data:` address.
    pub data_styles: bool,
}

/// The inline code of a page. The numbers are indices of digests. Pages with equal inline code share a set.
#[allow(clippy::struct_excessive_bools)] // the facts are independent
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct InlineCodeSet {
    /// The inline scripts and event handlers.
    pub scripts: Box<[u32]>,
    /// The inline styles and `style` attributes.
    pub styles: Box<[u32]>,
    /// Whether the page runs a script.
    pub runs_scripts: bool,
    /// Whether there are event handler attributes.
    pub has_handlers: bool,
    /// Whether there are `style` attributes.
    pub has_style_attributes: bool,
    /// Whether the scripts cannot be allowed by hash.
    pub script_hashes_unknown: bool,
    /// Whether the styles cannot be allowed by hash.
    pub style_hashes_unknown: bool,
}

/// The facts about one version from which its policies are rendered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CspFacts {
    /// The set number of each file; [`NO_SET`] for a file that is not a page.
    pub(super) set_numbers: Vec<u32>,
    pub(super) sets: Vec<InlineCodeSet>,
    pub(super) digests: Vec<Digest>,
    /// The facts about the whole site.
    pub site_facts: SiteFacts,
}

impl CspFacts {
    /// Returns the set number of a page; `None` for a file that is not a page.
    pub fn set(&self, file: usize) -> Option<u32> {
        self.set_numbers.get(file).copied().filter(|&set| set != NO_SET)
    }

    /// Returns the number of different policies.
    pub fn distinct_count(&self) -> usize {
        self.sets.len()
    }
}
