//! The settings that decide what the index of a version contains. An index keeps their digest, and is built again when
//! they have changed.

use std::sync::Arc;

use crate::config::search::SearchConfig;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_serve::AssistantSettings;
use docwharf_site::lookup::AddressSettings;

use super::build_product::BuildProduct;

/// The settings that decide what an index contains.
#[derive(Debug, Clone)]
pub struct IndexSettings {
    pub(super) addresses: AddressSettings,
    pub(super) exclude: Vec<String>,
    /// Whether `llms.txt` links to the Markdown of pages, else to the pages.
    pub(super) links_to_markdown: bool,
    pub(super) digest: Digest,
}

impl IndexSettings {
    /// Creates settings; `exclude` are patterns of addresses that are left out.
    pub fn new(addresses: AddressSettings, exclude: Vec<String>) -> IndexSettings {
        let digest = Digest::compute(format!("{addresses:?} {exclude:?}").as_bytes());
        IndexSettings { addresses, exclude, links_to_markdown: true, digest }
    }

    /// Returns the same settings with another value of `assistant.markdown`. True before a call.
    #[must_use]
    pub fn with_markdown(self, is_on: bool) -> IndexSettings {
        IndexSettings { links_to_markdown: is_on, ..self }
    }

    /// Returns a digest of the settings. An index that was built with another one is built again.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns a digest of the settings of the file with the Markdown of all pages. A file that was made with another
    /// one is made again.
    pub fn markdown_digest(&self) -> Digest {
        Digest::compute(format!("{} {}", self.digest.to_hex(), self.links_to_markdown).as_bytes())
    }
}

/// The settings of the search and of the Markdown of all pages that are in force.
#[derive(Debug, Clone)]
pub(super) struct SearchConfigInForce {
    /// `[search]`.
    pub(super) config: SearchConfig,
    /// The settings of the index.
    pub(super) index: IndexSettings,
    needs_markdown: bool,
}

impl SearchConfigInForce {
    /// Combines `[search]` with the settings by which the server resolves addresses, and `[assistant]`.
    pub(super) fn new(
        config: SearchConfig,
        addresses: AddressSettings,
        assistant: &AssistantSettings,
    ) -> Arc<SearchConfigInForce> {
        let index = IndexSettings::new(addresses, config.exclude.clone()).with_markdown(assistant.markdown);
        Arc::new(SearchConfigInForce { config, index, needs_markdown: assistant.needs_site_markdown() })
    }

    /// Returns what identifies a product of a version; `None` if nothing that is on needs it.
    pub(super) fn key(&self, id: VersionId, product: BuildProduct) -> Option<ProductKey> {
        let (is_needed, settings) = match product {
            BuildProduct::SearchIndex => (self.config.enabled, self.index.digest()),
            BuildProduct::SiteMarkdown => (self.needs_markdown, self.index.markdown_digest()),
        };
        is_needed.then_some(ProductKey { id, product, settings })
    }
}

/// A version, a product of it, and the digest of its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProductKey {
    pub(super) id: VersionId,
    pub(super) product: BuildProduct,
    pub(super) settings: Digest,
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_site::lookup::Slashes;
    use docwharf_site::rules::{RuleDraft, RuleSet, netlify_files};

    #[test]
    fn an_index_is_built_again_after_any_setting_that_changes_its_content() {
        let addresses = AddressSettings::default;
        let digest = |addresses, exclude: &[&str]| {
            IndexSettings::new(addresses, exclude.iter().map(|&source| source.to_owned()).collect()).digest()
        };
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects("/a /b 301!\n", "rules", &mut draft);
        let rules = Arc::new(RuleSet::new(draft));
        let plain = digest(addresses(), &[]);
        assert_eq!(plain, digest(addresses(), &[]));
        for other in [
            digest(addresses(), &["/a"]),
            digest(AddressSettings { base_path: "/docs/".to_owned(), ..addresses() }, &[]),
            digest(AddressSettings { slashes: Some(Slashes::Serve), ..addresses() }, &[]),
            digest(AddressSettings { rules, ..addresses() }, &[]),
        ] {
            assert_ne!(plain, other);
        }
        let settings = || IndexSettings::new(addresses(), Vec::new());
        assert_ne!(settings().markdown_digest(), settings().with_markdown(false).markdown_digest());
        assert_eq!(plain, settings().with_markdown(false).digest(), "the search index is the same");
    }
}
