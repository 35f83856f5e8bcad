//! The products that the index process builds.

use serde::{Deserialize, Serialize};

use docwharf_agent::store::derived::{MARKDOWN, SEARCH};

/// The product of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildProduct {
    /// The search index.
    SearchIndex,
    /// The file with the Markdown of all pages. The report has the numbers of pages and bytes.
    SiteMarkdown,
}

impl BuildProduct {
    /// Returns the name of its folder among the derived files of a version.
    pub(super) fn folder_name(self) -> &'static str {
        match self {
            BuildProduct::SearchIndex => SEARCH,
            BuildProduct::SiteMarkdown => MARKDOWN,
        }
    }
}
