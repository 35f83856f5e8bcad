//! The settings that decide what the index of a version contains. An index keeps their digest, and is built again when
//! they have changed.

use std::sync::Arc;

use crate::config::search::SearchConfig;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_site::lookup::AddressSettings;

/// The settings that decide what an index contains.
#[derive(Debug, Clone)]
pub struct IndexSettings {
    pub(super) addresses: AddressSettings,
    pub(super) exclude: Vec<String>,
    pub(super) digest: Digest,
}

impl IndexSettings {
    /// Creates settings; `exclude` are patterns of addresses that are left out.
    pub fn new(addresses: AddressSettings, exclude: Vec<String>) -> IndexSettings {
        let digest = Digest::compute(format!("{addresses:?} {exclude:?}").as_bytes());
        IndexSettings { addresses, exclude, digest }
    }

    /// Returns a digest of the settings. An index that was built with another one is built again.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// The settings of the search that are in force.
#[derive(Debug, Clone)]
pub(super) struct SearchConfigInForce {
    /// `[search]`.
    pub(super) config: SearchConfig,
    /// The settings of the index.
    pub(super) index: IndexSettings,
}

impl SearchConfigInForce {
    /// Combines `[search]` with the settings by which the server resolves addresses.
    pub(super) fn new(config: SearchConfig, addresses: AddressSettings) -> Arc<SearchConfigInForce> {
        let index = IndexSettings::new(addresses, config.exclude.clone());
        Arc::new(SearchConfigInForce { config, index })
    }

    /// Returns what identifies the index of a version; `None` if there is none, because the search is off.
    pub(super) fn index_key(&self, id: VersionId) -> Option<IndexKey> {
        self.config.enabled.then(|| IndexKey { id, settings: self.index.digest() })
    }
}

/// A version, and the digest of the settings of its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexKey {
    pub(super) id: VersionId,
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
    }
}
