//! A bundle that was read to its end and accepted, with or without its image.

use crate::bundle::bundle_reader::BundleKind;
use crate::bundle::refusal::{BundleRefusal, check_path_conflicts};
use crate::bundle::site_layout::SiteLayout;
use crate::index::{self, IndexEntry};
use crate::mapping::SealedFile;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::SitePath;
use docwharf_base::model::version::{VersionId, VersionManifest};

/// A verified bundle: it was read to its end and accepted.
#[derive(Debug)]
pub struct VerifiedBundle {
    /// The id of the version that it contains.
    pub id: VersionId,
    /// The format of the bundle.
    pub kind: BundleKind,
    /// The layout of the site in the bundle, which decides which entries are part of the site.
    pub site_layout: SiteLayout,
    /// The site's files, in byte order of their paths.
    pub files: Vec<(SitePath, IndexEntry)>,
    /// All files, including those that are not part of the site, with their paths in the archive.
    pub raw_files: Vec<(SitePath, IndexEntry)>,
    /// The folders that the archive names.
    pub folders: Vec<SitePath>,
    /// The SHA-256 and the size of the archive; `None` for a folder.
    pub archive: Option<(Digest, u64)>,
    /// Warnings, which are no reason to refuse the bundle.
    pub warnings: Vec<String>,
}

impl VerifiedBundle {
    /// Returns the size of the site's content in bytes.
    pub fn content_len(&self) -> u64 {
        self.files.iter().map(|(_, entry)| entry.len).sum()
    }

    /// Encodes the index of an image of `image_len` bytes that contains these files.
    pub fn encode_index(&self, image_len: u64) -> Vec<u8> {
        let files: Vec<(&[u8], IndexEntry)> =
            self.files.iter().map(|(path, entry)| (path.as_bytes(), *entry)).collect();
        index::encode_index(image_len, self.id, &files)
    }
}

/// A verified bundle and its image.
#[derive(Debug)]
pub struct SealedBundle {
    /// The verified bundle.
    pub verified: VerifiedBundle,
    /// The complete image, to which nothing is written any more.
    pub image: SealedFile,
    /// The length of the image in bytes.
    pub image_len: u64,
    /// Whether the received ZIP became the image unchanged.
    pub adopted: bool,
}

/// The files and folders of a bundle whose entries have been read.
pub(super) struct GatheredEntries {
    pub(super) files: Vec<(SitePath, IndexEntry)>,
    pub(super) folders: Vec<SitePath>,
}

/// Checks all entries of a bundle together, and computes the id of its version. `archive` is the digest and the size of
/// the archive; `None` for a folder or where they are not needed.
pub(super) fn finish_verification(
    gathered: GatheredEntries,
    kind: BundleKind,
    archive: Option<(Digest, u64)>,
) -> Result<VerifiedBundle, BundleRefusal> {
    let GatheredEntries { files: raw_files, mut folders } = gathered;
    check_path_conflicts(raw_files.iter().map(|(path, _)| path), folders.iter())?;
    folders.sort_unstable();
    folders.dedup();
    let site_layout = SiteLayout::detect(raw_files.iter().map(|(path, _)| path))?;
    let mut files: Vec<(SitePath, IndexEntry)> =
        raw_files.iter().filter_map(|(path, entry)| Some((site_layout.site_path(path)?, *entry))).collect();
    files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut manifest = VersionManifest::default();
    for (path, entry) in &files {
        manifest.add(&entry.content, entry.len, path.as_bytes());
    }
    let mut warnings = Vec::new();
    if !site_layout.has_root_index {
        warnings.push("there is no index.html at the root, so / will be 404".to_owned());
    }
    Ok(VerifiedBundle { id: manifest.id(), kind, site_layout, files, raw_files, folders, archive, warnings })
}
