//! Sites for the tests of indexing and searching.

use docwharf_base::directory::Directory;
use docwharf_base::model::limits::BundleLimits;
use docwharf_site::index::ImageIndex;
use docwharf_site::mapping;
use docwharf_site::seal::{ImageTarget, SealOptions, SealProgress, seal};
use docwharf_site::sealed_version::SealedVersion;

use super::{BuildProgress, BuildReport, BuildSettings, SearchIndex, build};

/// Seals a site of these files.
pub(crate) fn seal_site<T: AsRef<[u8]>>(files: &[(&str, T)]) -> SealedVersion {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let options = SealOptions::new(BundleLimits::default());
    let target = ImageTarget::Unlinked(std::env::temp_dir());
    let sealed = seal(folder.path(), &target, &options, &SealProgress::default()).unwrap();
    let id = sealed.verified.id;
    let index = ImageIndex::decode(sealed.verified.encode_index(sealed.image_len), sealed.image_len, id).unwrap();
    SealedVersion::new(id, mapping::map_image(sealed.image).unwrap(), index)
}

/// An index in a folder that disappears with it.
pub(crate) struct TestIndex {
    pub(crate) index: SearchIndex,
    pub(crate) report: BuildReport,
    pub(crate) folder: tempfile::TempDir,
}

/// Builds and opens the index of a site.
pub(crate) fn build_index(version: &SealedVersion, settings: &BuildSettings) -> TestIndex {
    let folder = tempfile::tempdir().unwrap();
    let target = Directory::open(folder.path()).unwrap();
    let report = build(version, settings, &target, &BuildProgress::default()).unwrap();
    let index = SearchIndex::open(&target, version.id).unwrap();
    TestIndex { index, report, folder }
}

/// Returns a page with this title, and this content of its `main` element.
pub(crate) fn page(title: &str, content: &str) -> String {
    format!(
        "<!doctype html><html lang=en><head><title>{title}</title></head><body><main>{content}</main></body></html>"
    )
}
