//! The file with the Markdown of all pages, in a temporary folder that is removed as soon as the file is open.

use std::io;

use docwharf_base::directory::Directory;
use docwharf_search::index::{BuildProgress, BuildSettings};
use docwharf_search::site_markdown::{SiteMarkdown, build_site_markdown};
use docwharf_site::sealed_version::SealedVersion;

/// Makes and opens the file of a version.
pub(super) fn build_in_temporary_folder(version: &SealedVersion, settings: &BuildSettings) -> io::Result<SiteMarkdown> {
    let folder = tempfile::Builder::new().prefix("docwharf-").tempdir()?;
    let target = Directory::open(folder.path())?;
    build_site_markdown(version, settings, &target, &BuildProgress::default())?;
    SiteMarkdown::open(&target, version.id).map_err(io::Error::other)
}
