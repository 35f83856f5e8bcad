//! The Markdown of a page, for the parts of the server that read pages themselves.

use std::sync::Arc;

use docwharf_search::markdown::PageMarkdown;
use docwharf_site::sealed_version::SealedVersion;

use super::converted_pages::MarkdownState;
use super::site::Site;

/// Returns the Markdown of a file of a version; `None` if it is no page, or cannot be read. It may take as long as
/// reading the page takes ([`MAX_EXTRACT_TIME`](docwharf_search::extract::MAX_EXTRACT_TIME) at most), so it must not be
/// called on a serving thread.
pub fn find(site: &Site, version: &Arc<SealedVersion>, file: usize) -> Option<Arc<PageMarkdown>> {
    find_in(&site.markdown, &site.settings.base_path, version, file)
}

/// Returns the Markdown as [`find`] does, for code that has only this state of the site and its base path.
pub(super) fn find_in(
    state: &MarkdownState,
    base_path: &str,
    version: &Arc<SealedVersion>,
    file: usize,
) -> Option<Arc<PageMarkdown>> {
    let page = state.find_or_convert(version, file, base_path)?;
    Some(Arc::clone(&page.markdown))
}
