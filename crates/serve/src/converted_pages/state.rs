//! The Markdown of a site: the file that was made beforehand, and the pages that were converted on request.

use std::sync::{Arc, LazyLock};

use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_search::index::BuildSettings;
use docwharf_search::site_markdown::{SiteMarkdown, render_file};
use docwharf_site::sealed_version::SealedVersion;

use crate::negotiate::AcceptedCodings;
use crate::search::{PendingResult, QueryThreads};

use super::MAX_CONVERSIONS;
use super::file_progress::{FileProspect, SiteMarkdownSource};
use super::file_queue::FileQueue;
use super::page_cache::{ConvertedFile, MarkdownPage, PageCache};
use super::site_file::SiteFile;

/// The largest page, in bytes of HTML, that a serving thread reads from the file that was made beforehand. It takes
/// less than a millisecond.
const MAX_INLINE_PAGE_BYTES: u64 = 256 << 10;

/// The threads that convert pages, for all sites of this process.
static CONVERSION_THREADS: LazyLock<Arc<QueryThreads>> = LazyLock::new(|| Arc::new(QueryThreads::new("markdown")));

/// The Markdown of a site.
#[derive(Debug, Default)]
pub(crate) struct MarkdownState {
    /// The file with all pages.
    file: Arc<SiteFile>,
    cache: PageCache,
}

/// A page that is being converted.
#[derive(Debug)]
pub(crate) struct PendingPage(PendingResult<()>);

impl PendingPage {
    /// Waits until the page is converted or its time is over.
    pub(crate) async fn wait(self) {
        // If the page is not there then, the client is asked to come again.
        let _ = self.0.wait().await;
    }
}

impl MarkdownState {
    /// Sets the file.
    pub(crate) fn set_file(&self, file: Option<Arc<SiteMarkdown>>) {
        self.file.set(file);
    }

    /// Sets the source of the file.
    pub(crate) fn set_source(&self, source: SiteMarkdownSource) {
        self.file.set_source(source);
    }

    /// Begins to serve a version: discards the pages that were converted, and the file of another version.
    pub(crate) fn begin_version(&self, id: VersionId) {
        self.file.begin_version(id);
        self.cache.clear();
    }

    /// Returns the file of a version if its lists are those to serve: it was made by the program, or on request with
    /// these settings.
    pub(crate) fn file_in_force(&self, version: &SealedVersion, settings: Digest) -> Option<Arc<SiteMarkdown>> {
        self.file.in_force(version, settings)
    }

    /// Returns the file of a version, if it is made.
    pub(crate) fn file_of(&self, version: &SealedVersion) -> Option<Arc<SiteMarkdown>> {
        self.file.of(version)
    }

    /// Returns the page if that, and its form for a client that accepts these codings, takes no time.
    pub(crate) fn get_ready(
        &self,
        version: &SealedVersion,
        file: usize,
        accepted: AcceptedCodings,
    ) -> Option<ConvertedFile> {
        let key = (version.instance_id, file);
        if let Some(converted) = self.cache.get(key) {
            let is_ready = match &converted {
                ConvertedFile::Page(page) => page.has_form(accepted),
                ConvertedFile::NotConvertible => true,
            };
            return is_ready.then_some(converted);
        }
        if version.entry(file).len > MAX_INLINE_PAGE_BYTES {
            return None;
        }
        let page = Arc::new(MarkdownPage::new(self.file_of(version)?.find(file)?));
        let converted = ConvertedFile::Page(Arc::clone(&page));
        self.cache.insert(key, converted.clone());
        page.has_form(accepted).then_some(converted)
    }

    /// Returns the page, converted by this thread if need be.
    pub(crate) fn find_or_convert(
        &self,
        version: &SealedVersion,
        file: usize,
        base_path: &str,
    ) -> Option<Arc<MarkdownPage>> {
        let key = (version.instance_id, file);
        if let Some(converted) = self.cache.get(key) {
            return converted.into_page();
        }
        let stored = self.file_of(version).and_then(|stored| stored.find(file));
        let page = stored.or_else(|| render_file(version, file, base_path));
        let converted = match page {
            Some(markdown) => ConvertedFile::Page(Arc::new(MarkdownPage::new(markdown))),
            None => ConvertedFile::NotConvertible,
        };
        self.cache.insert(key, converted.clone());
        converted.into_page()
    }

    /// Starts the conversion of a page on another thread, into the form for a client that accepts these codings.
    pub(crate) fn start_conversion(
        self: &Arc<Self>,
        version: Arc<SealedVersion>,
        file: usize,
        base_path: String,
        accepted: AcceptedCodings,
    ) -> PendingPage {
        let state = Arc::clone(self);
        let convert = move || {
            if let Some(page) = state.find_or_convert(&version, file, &base_path) {
                page.choose_form(accepted);
            }
        };
        PendingPage(CONVERSION_THREADS.submit(MAX_CONVERSIONS, convert))
    }

    /// Requests the file of a version from the queue of all sites, unless the program makes it. Returns whether it will
    /// be there.
    pub(crate) fn request_file(
        self: &Arc<Self>,
        version: &Arc<SealedVersion>,
        settings: BuildSettings,
    ) -> FileProspect {
        self.request_file_from(&FileQueue::shared(), version, settings)
    }

    /// Requests the file as [`MarkdownState::request_file`] does, from this queue.
    pub(super) fn request_file_from(
        &self,
        queue: &Arc<FileQueue>,
        version: &Arc<SealedVersion>,
        settings: BuildSettings,
    ) -> FileProspect {
        if let Err(prospect) = self.file.request(version.id) {
            return prospect;
        }
        if !queue.add(&self.file, version, settings) {
            self.file.end_request(version.id, None);
        }
        FileProspect::Pending
    }

    /// Returns whether the file of a version was requested and is to be made.
    #[cfg(test)]
    pub(crate) fn is_wanted(&self, id: VersionId) -> bool {
        self.file.is_wanted(id)
    }
}
