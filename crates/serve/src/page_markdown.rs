//! The Markdown of a page, for the parts of the server that read pages themselves.

use std::sync::Arc;

use docwharf_base::model::digest::Digest;
use docwharf_search::index::BuildSettings;
use docwharf_search::markdown::PageMarkdown;
use docwharf_site::sealed_version::SealedVersion;

use super::converted_pages::MarkdownState;
use super::site::Site;

/// Returns the Markdown of a file of a version; `None` if it is no page, or cannot be read. It may take as long as
/// reading the page takes ([`MAX_EXTRACT_TIME`](docwharf_search::extract::MAX_EXTRACT_TIME) at most), so it must not be
/// called on a serving thread.
///
/// A program that reads pages reads many of them. So without a file of this version, the site requests it.
pub fn find(site: &Site, version: &Arc<SealedVersion>, file: usize) -> Option<Arc<PageMarkdown>> {
    if site.markdown.file_of(version).is_none() {
        site.markdown.request_file(version, build_settings(site));
    }
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

/// Returns the settings of the file that is made on request.
pub(super) fn build_settings(site: &Site) -> BuildSettings {
    let addresses = site.address_settings();
    let exclude = site.search.excluded_addresses().to_vec();
    let links_to_markdown = site.assistant_settings_with(|settings| settings.markdown);
    let digest = Digest::compute(format!("{addresses:?} {exclude:?} {links_to_markdown}").as_bytes());
    BuildSettings { addresses, exclude, links_to_markdown, digest, threads: 1, ..BuildSettings::default() }
}

#[cfg(test)]
mod tests;
