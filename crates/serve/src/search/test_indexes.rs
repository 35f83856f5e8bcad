//! Indexes for tests.

use std::num::NonZeroUsize;
use std::sync::Arc;

use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Digest;
use docwharf_search::analyze::SynonymTable;
use docwharf_search::index::{BuildProgress, BuildSettings, SearchIndex, build};
use docwharf_site::sealed_version::SealedVersion;

use super::settings::{InjectMode, SearchBoxSettings, SearchSettings};

/// Builds and opens the index of a version. Its files are deleted and stay mapped.
pub(crate) fn build_index(version: &SealedVersion) -> Arc<SearchIndex> {
    build_index_with(version, Digest::compute(b""))
}

/// Builds and opens an index like [`build_index`], which keeps this digest of its settings.
pub(crate) fn build_index_with(version: &SealedVersion, digest: Digest) -> Arc<SearchIndex> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = BuildSettings { threads: 1, digest, ..BuildSettings::default() };
    let target = Directory::open(folder.path()).expect("the folder exists");
    build(version, &settings, &target, &BuildProgress::default()).expect("the index is built");
    Arc::new(SearchIndex::open(&target, version.id).expect("the index is valid"))
}

/// Returns settings with which the search is on.
pub(crate) fn settings() -> SearchSettings {
    SearchSettings {
        enabled: true,
        search_box: SearchBoxSettings { selectors: vec!["#search".to_owned()], button: true, events: false },
        parallel: NonZeroUsize::new(16).expect("it is not 0"),
        exclude: Arc::default(),
        synonyms: Arc::new(SynonymTable::built_in()),
        inject: InjectMode::Never,
    }
}
