//! The Markdown of a site: the file that was made beforehand, and the pages that were converted on request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::Digest;
use docwharf_base::thread_priority::lower_to_minimum;
use docwharf_search::index::BuildSettings;
use docwharf_search::site_markdown::{SiteMarkdown, render_file};
use docwharf_site::sealed_version::SealedVersion;

use crate::negotiate::AcceptedCodings;
use crate::search::{PendingResult, QueryThreads};

use super::MAX_CONVERSIONS;
use super::page_cache::{ConvertedFile, MarkdownPage, PageCache};
use super::temporary_file::build_in_temporary_folder;

/// The largest page, in bytes of HTML, that a serving thread reads from the file that was made beforehand. It takes
/// less than a millisecond.
const MAX_INLINE_PAGE_BYTES: u64 = 256 << 10;
/// The time after which the file is made again on request, if that has failed.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// The threads that convert pages, for all sites of this process.
static CONVERSION_THREADS: LazyLock<Arc<QueryThreads>> = LazyLock::new(|| Arc::new(QueryThreads::new("markdown")));

/// Locked while a thread makes the file of a site: those of other sites wait.
static BUILD_TURN: Mutex<()> = Mutex::new(());

/// The Markdown of a site.
#[derive(Debug, Default)]
pub(crate) struct MarkdownState {
    /// The file with all pages of a version, once it is made.
    file: ArcSwapOption<SiteMarkdown>,
    /// Whether the program makes the file, so that it is not made on request.
    is_file_expected: AtomicBool,
    /// Whether a thread makes the file because of a request, or has failed lately.
    is_building: AtomicBool,
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
        self.file.store(file);
    }

    /// Sets whether the program makes the file.
    pub(crate) fn set_file_expected(&self, is_expected: bool) {
        self.is_file_expected.store(is_expected, Ordering::Relaxed);
    }

    /// Discards the pages that were converted.
    pub(crate) fn clear(&self) {
        self.cache.clear();
    }

    /// Returns the file of a version if it was made by the program, or on request with these settings.
    pub(crate) fn file_in_force(&self, version: &SealedVersion, settings: Digest) -> Option<Arc<SiteMarkdown>> {
        let is_expected = self.is_file_expected.load(Ordering::Relaxed);
        self.file_of(version).filter(|file| is_expected || file.settings() == settings)
    }

    /// Returns the file of a version, if it is made.
    pub(crate) fn file_of(&self, version: &SealedVersion) -> Option<Arc<SiteMarkdown>> {
        self.file.load_full().filter(|file| file.version() == version.id)
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

    /// Starts a thread that makes the file of a version, unless the program makes it, or a thread was started lately.
    pub(crate) fn request_file(self: &Arc<Self>, version: Arc<SealedVersion>, settings: BuildSettings) {
        if self.is_file_expected.load(Ordering::Relaxed) || self.is_building.swap(true, Ordering::Relaxed) {
            return;
        }
        let state = Arc::clone(self);
        let build = move || {
            lower_to_minimum();
            let turn = BUILD_TURN.lock();
            let built = build_in_temporary_folder(&version, &settings);
            drop(turn);
            match built {
                Ok(file) => state.set_file(Some(Arc::new(file))),
                Err(error) => {
                    let id = version.id.short();
                    tracing::warn!("cannot make the Markdown of version {id}: {error}; the next request tries again");
                    std::thread::sleep(RETRY_DELAY);
                }
            }
            state.is_building.store(false, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("docwharf-md".to_owned()).spawn(build).is_err() {
            self.is_building.store(false, Ordering::Relaxed);
        }
    }
}
