//! The pages that were requested last.

use std::fmt;
use std::hash::RandomState;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use quick_cache::OptionsBuilder;
use quick_cache::sync::{Cache, DefaultLifecycle};

use docwharf_base::codec::gzip::encode_member;
use docwharf_base::model::digest::Digest;
use docwharf_search::markdown::PageMarkdown;

use crate::entity_tag::EntityTag;
use crate::negotiate::{AcceptedCodings, ResponseForm};

/// The maximum size of all pages of a site that are kept, in bytes.
const MAX_CACHE_BYTES: u64 = 8 << 20;
/// The largest size with which a page counts, in bytes. The cache refuses a larger entry; then a page would be
/// converted again by each request. The largest page, with the texts of its sections, can take 4 MiB more.
const MAX_COUNTED_BYTES: u64 = MAX_CACHE_BYTES * 9 / 10;
/// The estimated number of pages in a full cache.
const ESTIMATED_PAGES: usize = 512;
/// The estimated memory of a page besides its text, in bytes.
const PAGE_OVERHEAD_BYTES: u64 = 512;
/// The estimated memory of a section besides its texts, in bytes.
const SECTION_OVERHEAD_BYTES: u64 = 64;

/// The compression level of gzip: the fastest one that shortens text to about a third.
const GZIP_LEVEL: u32 = 1;
/// The longest text that a serving thread compresses, in bytes. It takes about two milliseconds.
const MAX_INLINE_GZIP_BYTES: usize = 256 << 10;

/// A page, ready to be sent.
#[derive(Debug)]
pub(crate) struct MarkdownPage {
    pub(crate) markdown: Arc<PageMarkdown>,
    digest: Digest,
    /// The text as a gzip file, once a client has wanted it.
    gzip: OnceLock<Bytes>,
}

/// The text of a page in the form that a client gets.
#[derive(Debug)]
pub(crate) struct MarkdownForm {
    pub(crate) body: Bytes,
    /// The value of Content-Encoding; `None` for none.
    pub(crate) coding: Option<&'static str>,
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
        let digest = Digest::compute(markdown.text.as_bytes());
        MarkdownPage { markdown: Arc::new(markdown), digest, gzip: OnceLock::new() }
    }

    /// Returns the text for a client that accepts these codings.
    pub(crate) fn choose_form(&self, accepted: AcceptedCodings) -> MarkdownForm {
        // No other coding is made.
        let form = accepted.choose(0, |_| None);
        match form {
            ResponseForm::Gzip => {
                let body = self.gzip();
                let entity_tag = EntityTag::of_content(&self.digest, None, Some((b'g', crc32fast::hash(&body))));
                MarkdownForm { body, coding: form.token(), entity_tag }
            }
            _ => MarkdownForm {
                // Not copied.
                body: Bytes::from_owner(SharedText(Arc::clone(&self.markdown))),
                coding: None,
                entity_tag: EntityTag::of_content(&self.digest, None, None),
            },
        }
    }

    /// Returns whether the form for a client that accepts these codings takes no time.
    pub(crate) fn has_form(&self, accepted: AcceptedCodings) -> bool {
        self.markdown.text.len() <= MAX_INLINE_GZIP_BYTES
            || self.gzip.get().is_some()
            || accepted.choose(0, |_| None) != ResponseForm::Gzip
    }

    fn gzip(&self) -> Bytes {
        self.gzip.get_or_init(|| encode_member(self.markdown.text.as_bytes(), GZIP_LEVEL).into()).clone()
    }

    fn estimate_bytes(&self) -> u64 {
        let page = &*self.markdown;
        let sections = page.sections.iter().map(|section| section.anchor.len() + section.heading.len());
        // A gzip form, which a page has once a client has wanted it, is estimated as half of the text.
        let texts = page.text.len() + page.text.len() / 2 + 4 * page.block_starts.len() + sections.sum::<usize>();
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
        (PAGE_OVERHEAD_BYTES + bytes).min(MAX_COUNTED_BYTES)
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
        // In one shard, so that the largest page fits.
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
    fn the_largest_page_is_kept() {
        let heading = "w".repeat(400);
        let anchor = "a".repeat(1_000);
        let sections: Vec<String> = (0..5_000).map(|n| format!("<h2 id='{anchor}{n}'>{heading}</h2>")).collect();
        let settings = MarkdownSettings { page_url: "/h", base_path: "" };
        let page = MarkdownPage::new(render_page(sections.concat().as_bytes(), &settings).unwrap());
        assert!(page.estimate_bytes() > MAX_COUNTED_BYTES, "{}", page.estimate_bytes());
        let cache = PageCache::default();
        cache.insert((1, 1), ConvertedFile::Page(Arc::new(page)));
        assert!(cache.get((1, 1)).is_some());
    }

    #[test]
    fn a_serving_thread_compresses_no_long_text() {
        let mut headers = http::HeaderMap::new();
        headers.insert(http::header::ACCEPT_ENCODING, "gzip".parse().unwrap());
        let (plain, gzip) = (AcceptedCodings::parse(&http::HeaderMap::new()), AcceptedCodings::parse(&headers));
        let render = |html: &str| {
            let settings = MarkdownSettings { page_url: "", base_path: "/" };
            MarkdownPage::new(render_page(html.as_bytes(), &settings).unwrap())
        };
        let (short, long) = (render("<p>short"), render(&"word ".repeat(MAX_INLINE_GZIP_BYTES / 5 + 1)));
        assert!(short.has_form(plain) && short.has_form(gzip) && long.has_form(plain) && !long.has_form(gzip));
        let form = long.choose_form(gzip);
        assert!(form.coding == Some("gzip") && form.body.len() < long.markdown.text.len() / 10);
        assert!(long.has_form(gzip), "another thread has compressed it");
    }

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
