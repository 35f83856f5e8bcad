//! The file with the Markdown of all pages of one site: the open one, and what is known of the next.

use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;

use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_search::site_markdown::SiteMarkdown;
use docwharf_site::sealed_version::SealedVersion;

use super::file_progress::{FileProgress, FileProspect, SiteMarkdownSource};

/// The file of a site.
#[derive(Debug, Default)]
pub(super) struct SiteFile {
    /// The file of a version, once it is made.
    open: ArcSwapOption<SiteMarkdown>,
    /// The progress of a file that is not open. Locked while the file is replaced.
    progress: Mutex<FileProgress>,
}

impl SiteFile {
    /// Sets the file.
    pub(super) fn set(&self, file: Option<Arc<SiteMarkdown>>) {
        let _progress = self.progress.lock();
        self.open.store(file);
    }

    /// Sets the source of the file.
    pub(super) fn set_source(&self, source: SiteMarkdownSource) {
        self.progress.lock().set_source(source);
    }

    /// Begins to serve a version: closes the file of another one.
    pub(super) fn begin_version(&self, id: VersionId) {
        let mut progress = self.progress.lock();
        progress.begin_version(id);
        if self.open.load().as_ref().is_some_and(|file| file.version() != id) {
            self.open.store(None);
        }
    }

    /// Returns the file of a version, if it is made.
    pub(super) fn of(&self, version: &SealedVersion) -> Option<Arc<SiteMarkdown>> {
        self.open.load_full().filter(|file| file.version() == version.id)
    }

    /// Returns the file of a version if its lists are those to serve: it was made by the program, or on request with
    /// these settings.
    pub(super) fn in_force(&self, version: &SealedVersion, settings: Digest) -> Option<Arc<SiteMarkdown>> {
        let source = self.progress.lock().source;
        self.of(version).filter(|file| match source {
            SiteMarkdownSource::Program => true,
            // It was made before the settings changed for which it cannot be made.
            SiteMarkdownSource::Failed => false,
            SiteMarkdownSource::OnRequest => file.settings() == settings,
        })
    }

    /// Requests the file of a version. Returns whether it must be added to the queue, else whether it will be there.
    pub(super) fn request(&self, id: VersionId) -> Result<(), FileProspect> {
        self.progress.lock().request(id, Instant::now())
    }

    /// Returns whether the requested file of a version is still to be made.
    pub(super) fn is_wanted(&self, id: VersionId) -> bool {
        self.progress.lock().is_wanted(id)
    }

    /// Ends the request for the file of a version, which is not made; a request before `retry_at` does not try again.
    pub(super) fn end_request(&self, id: VersionId, retry_at: Option<Instant>) {
        self.progress.lock().end_request(id, retry_at);
    }

    /// Sets the file that was made on request, if it is still wanted. Returns whether it is.
    pub(super) fn set_requested(&self, id: VersionId, file: &Arc<SiteMarkdown>) -> bool {
        let mut progress = self.progress.lock();
        let is_wanted = progress.is_wanted(id);
        if is_wanted {
            progress.end_request(id, None);
            self.open.store(Some(Arc::clone(file)));
        }
        is_wanted
    }

    /// Returns whether this file is the open one.
    pub(super) fn has(&self, file: &Weak<SiteMarkdown>) -> bool {
        self.open.load().as_ref().is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), file.as_ptr()))
    }

    /// Closes this file, if it is the open one.
    pub(super) fn close(&self, file: &Weak<SiteMarkdown>) {
        let _progress = self.progress.lock();
        if self.has(file) {
            self.open.store(None);
        }
    }
}
