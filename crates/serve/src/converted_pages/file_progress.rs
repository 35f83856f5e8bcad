//! The source of the file with the Markdown of all pages of a site, and whether a request for it waits.

use std::time::Instant;

use docwharf_base::model::version::VersionId;

/// The source of the file with the Markdown of all pages of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SiteMarkdownSource {
    /// The site, when a request needs the file.
    #[default]
    OnRequest,
    /// The program, beforehand. Until it has done so, a list of the pages is answered later.
    Program,
    /// None: the program could not make it. It has bounds that the site does not have, so the site makes no file.
    Failed,
}

/// Whether the file will be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileProspect {
    /// It is made, by the program or because of a request.
    Pending,
    /// It could not be made. The log has the reason.
    Failed,
}

/// The progress of a file that is not there yet.
#[derive(Debug, Default)]
pub(super) struct FileProgress {
    pub(super) source: SiteMarkdownSource,
    /// The version that the site serves; `None` before the first one.
    version: Option<VersionId>,
    /// The version whose file was requested and is not made yet.
    requested: Option<VersionId>,
    /// The time before which the file is not made again on request, because that has failed.
    retry_at: Option<Instant>,
}

impl FileProgress {
    /// Begins to serve a version. What is known of the file of another one is forgotten.
    pub(super) fn begin_version(&mut self, id: VersionId) {
        if self.version.replace(id) != Some(id) {
            (self.requested, self.retry_at) = (None, None);
        }
    }

    /// Requests the file of a version. Returns whether it must be added to the queue, else whether it will be there.
    pub(super) fn request(&mut self, id: VersionId, now: Instant) -> Result<(), FileProspect> {
        match self.source {
            SiteMarkdownSource::Program => return Err(FileProspect::Pending),
            SiteMarkdownSource::Failed => return Err(FileProspect::Failed),
            SiteMarkdownSource::OnRequest => {}
        }
        // A request that began before the version was replaced.
        if self.requested.is_some() || self.version.is_some_and(|served| served != id) {
            return Err(FileProspect::Pending);
        }
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return Err(FileProspect::Failed);
        }
        self.requested = Some(id);
        Ok(())
    }

    /// Returns whether the requested file of a version is still to be made.
    pub(super) fn is_wanted(&self, id: VersionId) -> bool {
        self.source == SiteMarkdownSource::OnRequest && self.requested == Some(id)
    }

    /// Ends the request for the file of a version; it is not made again before `retry_at`.
    pub(super) fn end_request(&mut self, id: VersionId, retry_at: Option<Instant>) {
        if self.requested == Some(id) {
            (self.requested, self.retry_at) = (None, retry_at);
        }
    }

    /// Sets the source of the file.
    pub(super) fn set_source(&mut self, source: SiteMarkdownSource) {
        self.source = source;
        if source != SiteMarkdownSource::OnRequest {
            self.requested = None;
        }
    }
}
