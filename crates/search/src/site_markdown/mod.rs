//! The Markdown of all pages of a version in one file, with its `llms.txt` and `llms-full.txt`.
//!
//! [`build_site_markdown`] writes the file into an empty folder, [`build_site_markdown_within`] as long as its caller
//! permits it; [`SiteMarkdown::open`] maps it. It has, one after the other (`file_format`):
//!
//! - the pages, each as JSON that is compressed with DEFLATE,
//! - the two texts (`llms`), each followed by its gzip form,
//! - the table of pages, with a record of fixed length for each, in the order of the files of the version,
//! - the end of the file: the number of the format, the version, the digest of the settings, the places of the parts,
//!   and the checksum of everything before it.
//!
//! A file that is incomplete, damaged, or of another format is not opened and must be built again. Nothing is synced to
//! disk: the checksum finds what a power failure has destroyed.

mod build;
mod file_format;
mod llms;
mod open_file;
#[cfg(test)]
mod tests;

pub use build::{MarkdownReport, MayContinue, build_site_markdown, build_site_markdown_within};
pub use file_format::FORMAT_NUMBER;
pub use llms::{LlmsText, MAX_LLMS_BYTES, MAX_LLMS_PAGES};
pub use open_file::{SiteMarkdown, SiteMarkdownError};

use docwharf_site::sealed_version::SealedVersion;
use percent_encoding::percent_encode;

use docwharf_base::encode_sets;

use crate::index::MAX_PAGE_BYTES;
use crate::markdown::{MarkdownSettings, PageMarkdown, render_page};

/// The name of the file in its folder.
pub const FILE_NAME: &str = "pages";

/// Writes a file of a version as Markdown; `None` if it is too large, or its content cannot be read.
pub fn render_file(version: &SealedVersion, file: usize, base_path: &str) -> Option<PageMarkdown> {
    let entry = version.entry(file);
    if entry.len > MAX_PAGE_BYTES {
        return None;
    }
    let page_url = page_url(version.index().path(file));
    render_page(&version.content(&entry).ok()?, &MarkdownSettings { page_url: &page_url, base_path }).ok()
}

/// Returns the address that the links of a page are relative to, below the base path: a folder stands for its
/// `index.html`.
fn page_url(path: &[u8]) -> String {
    let path = match path.strip_suffix(b"index.html") {
        Some(folder) if folder.is_empty() || folder.ends_with(b"/") => folder,
        _ => path,
    };
    percent_encode(path, encode_sets::LOCATION_PATH).to_string()
}

/// Returns the path of the Markdown of a page that has none of its own: `x.md` for `x.html`.
pub fn markdown_path(path: &[u8]) -> Vec<u8> {
    [path.strip_suffix(b".html").unwrap_or(path), b".md"].concat()
}
