//! A product of a version that was built beforehand, opened: its search index, or the file with the Markdown of its
//! pages.

use std::sync::Arc;

use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_search::index::{OpenError, SearchIndex};
use docwharf_search::site_markdown::{SiteMarkdown, SiteMarkdownError};

use super::build_product::BuildProduct;

/// A product that is open.
#[derive(Debug)]
pub(super) enum OpenProduct {
    SearchIndex(Arc<SearchIndex>),
    SiteMarkdown(Arc<SiteMarkdown>),
}

/// The reason why a product cannot be opened. The remedy is always to build it again.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenProductError {
    #[error(transparent)]
    SearchIndex(#[from] OpenError),
    #[error(transparent)]
    SiteMarkdown(#[from] SiteMarkdownError),
}

impl OpenProductError {
    /// Returns whether another version of this program has written it, so that nothing is wrong with it.
    pub(super) fn is_other_format(&self) -> bool {
        matches!(
            self,
            OpenProductError::SearchIndex(OpenError::OtherFormat { .. })
                | OpenProductError::SiteMarkdown(SiteMarkdownError::OtherFormat(_))
        )
    }
}

impl OpenProduct {
    /// Opens the product of a version in its folder.
    pub(super) fn open(
        product: BuildProduct,
        directory: &Directory,
        id: VersionId,
    ) -> Result<OpenProduct, OpenProductError> {
        Ok(match product {
            BuildProduct::SearchIndex => OpenProduct::SearchIndex(Arc::new(SearchIndex::open(directory, id)?)),
            BuildProduct::SiteMarkdown => OpenProduct::SiteMarkdown(Arc::new(SiteMarkdown::open(directory, id)?)),
        })
    }

    /// Returns the digest of the settings with which it was built.
    pub(super) fn settings(&self) -> Digest {
        match self {
            OpenProduct::SearchIndex(index) => index.settings(),
            OpenProduct::SiteMarkdown(file) => file.settings(),
        }
    }
}
