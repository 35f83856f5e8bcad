//! The pages that were requested last.

use std::fmt;
use std::hash::RandomState;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::OptionsBuilder;
use quick_cache::sync::{Cache, DefaultLifecycle};

use docwharf_base::model::digest::Digest;
use docwharf_search::markdown::PageMarkdown;

use crate::entity_tag::EntityTag;

/// The maximum size of all pages of a site that are kept, in bytes.
const MAX_CACHE_BYTES: u64 = 8 << 20;
/// The estimated number of pages in a full cache.
const ESTIMATED_PAGES: usize = 512;
/// The estimated memory of a page besides its text, in bytes.
const PAGE_OVERHEAD_BYTES: u64 = 512;
/// The estimated memory of a section besides its texts, in bytes.
const SECTION_OVERHEAD_BYTES: u64 = 64;

/// A page, ready to be sent.
#[derive(Debug)]
pub(crate) struct MarkdownPage {
    pub(crate) markdown: Arc<PageMarkdown>,
    pub(crate) entity_tag: EntityTag,
}

/// The text of a page as the body of responses.
struct SharedText(Arc<PageMarkdown>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.text.as_bytes()
    }
}

impl MarkdownPage {
    pub(crate) fn new(markdown: PageMarkdown) -> MarkdownPage {
        let entity_tag = EntityTag::of_content(&Digest::compute(markdown.text.as_bytes()), None, None);
        MarkdownPage { markdown: Arc::new(markdown), entity_tag }
    }

    /// Returns the text without copying it.
    pub(crate) fn body(&self) -> Bytes {
        Bytes::from_owner(SharedText(Arc::clone(&self.markdown)))
    }

    fn estimate_bytes(&self) -> u64 {
        let page = &*self.markdown;
        let sections = page.sections.iter().map(|section| section.anchor.len() + section.heading.len());
        let texts = page.text.len() + 4 * page.block_starts.len() + sections.sum::<usize>();
        texts as u64 + SECTION_OVERHEAD_BYTES * page.sections.len() as u64
    }
}

/// The result of a conversion.
#[derive(Debug, Clone)]
pub(crate) enum ConvertedFile {
    Page(Arc<MarkdownPage>),
    /// The file is no page, is too large, or cannot be read.
    NotConvertible,
}

impl ConvertedFile {
    pub(super) fn into_page(self) -> Option<Arc<MarkdownPage>> {
        match self {
            ConvertedFile::Page(page) => Some(page),
            ConvertedFile::NotConvertible => None,
        }
    }
}

/// A page of an opened version: the number of the opening, and that of the file.
pub(super) type PageKey = (u64, usize);

#[derive(Debug, Clone)]
struct PageWeighter;

impl quick_cache::Weighter<PageKey, ConvertedFile> for PageWeighter {
    fn weight(&self, _: &PageKey, file: &ConvertedFile) -> u64 {
        let bytes = if let ConvertedFile::Page(page) = file { page.estimate_bytes() } else { 0 };
        PAGE_OVERHEAD_BYTES + bytes
    }
}

type PageLifecycle = DefaultLifecycle<PageKey, ConvertedFile>;

/// The files that were requested last.
pub(super) struct PageCache {
    pages: Cache<PageKey, ConvertedFile, PageWeighter, RandomState, PageLifecycle>,
}

impl Default for PageCache {
    fn default() -> PageCache {
        let (hasher, lifecycle) = (RandomState::default(), PageLifecycle::default());
        // In one shard, so that a page of the largest size fits.
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(ESTIMATED_PAGES)
            .weight_capacity(MAX_CACHE_BYTES)
            .build()
            .expect("both capacities are set");
        PageCache { pages: Cache::with_options(options, PageWeighter, hasher, lifecycle) }
    }
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache").field("bytes", &self.pages.weight()).finish_non_exhaustive()
    }
}

impl PageCache {
    pub(super) fn get(&self, key: PageKey) -> Option<ConvertedFile> {
        self.pages.get(&key)
    }

    pub(super) fn insert(&self, key: PageKey, file: ConvertedFile) {
        self.pages.insert(key, file);
    }

    pub(super) fn clear(&self) {
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use docwharf_search::markdown::{MarkdownSettings, render_page};

    use super::*;

    #[test]
    fn pages_in_memory_are_bounded() {
        let cache = PageCache::default();
        let html = format!("<p>{}", "word ".repeat(200_000));
        let settings = MarkdownSettings { page_url: "", base_path: "/" };
        for file in 0..50 {
            let page = MarkdownPage::new(render_page(html.as_bytes(), &settings).unwrap());
            cache.insert((1, file), ConvertedFile::Page(Arc::new(page)));
            assert!(cache.pages.weight() <= MAX_CACHE_BYTES, "{}", cache.pages.weight());
        }
        assert!(cache.pages.len() > 1);
        cache.clear();
        assert_eq!(cache.pages.weight(), 0);
    }
}
