//! The queue of sites whose Markdown of all pages is made on request: one thread makes the files of all sites, one at a
//! time, and the files that are open have bounds together.
//!
//! The file of a site has no name any more, but takes disk space as long as the site has it. If too many are open, or
//! they are too large, those that were made first are closed; the next request for one makes it again.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::Mutex;
use docwharf_base::model::version::VersionId;
use docwharf_base::thread_priority::lower_to_minimum;
use docwharf_search::index::BuildSettings;
use docwharf_search::site_markdown::SiteMarkdown;
use docwharf_site::sealed_version::SealedVersion;

use super::site_file::SiteFile;
use super::temporary_file::build_in_temporary_folder;

/// The maximum number of sites that wait. The request of a further one waits for its client to come again.
const MAX_WAITING_SITES: usize = 64;
/// The maximum number of open files.
const MAX_OPEN_FILES: usize = 32;
/// The maximum size of the open files together, in bytes.
const MAX_OPEN_BYTES: u64 = 1 << 30;
/// The time after which the file of a site is made again on request, if that has failed.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// The queue of all sites of this process.
static SHARED_QUEUE: LazyLock<Arc<FileQueue>> =
    LazyLock::new(|| Arc::new(FileQueue::new(RETRY_DELAY, Box::new(build_in_temporary_folder))));

/// Makes the file of a version, until the third argument returns true.
type BuildFile =
    dyn Fn(&SealedVersion, &BuildSettings, &(dyn Fn() -> bool + Sync)) -> io::Result<SiteMarkdown> + Send + Sync;

/// The queue, its thread, and the files that were made.
pub(super) struct FileQueue {
    retry_delay: Duration,
    build: Box<BuildFile>,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<FileRequest>,
    /// Whether the thread runs. It ends when no site waits.
    has_thread: bool,
    /// The files that were made, in this order. Those that their sites have closed are removed with the next one.
    open: VecDeque<OpenFile>,
}

/// A site whose file is to be made. It keeps neither the site nor its version.
struct FileRequest {
    site: Weak<SiteFile>,
    version: Weak<SealedVersion>,
    id: VersionId,
    settings: BuildSettings,
}

impl FileRequest {
    fn is_wanted(&self) -> bool {
        self.site.upgrade().is_some_and(|site| site.is_wanted(self.id))
    }
}

struct OpenFile {
    site: Weak<SiteFile>,
    file: Weak<SiteMarkdown>,
    bytes: u64,
}

impl OpenFile {
    fn is_open(&self) -> bool {
        self.site.upgrade().is_some_and(|site| site.has(&self.file))
    }
}

impl FileQueue {
    /// Creates an empty queue.
    pub(super) fn new(retry_delay: Duration, build: Box<BuildFile>) -> FileQueue {
        FileQueue { retry_delay, build, state: Mutex::default() }
    }

    /// Returns the queue of all sites of this process.
    pub(super) fn shared() -> Arc<FileQueue> {
        Arc::clone(&SHARED_QUEUE)
    }

    /// Adds a site that wants the file of a version, and starts the thread if it does not run. Returns whether the file
    /// will be made.
    pub(super) fn add(
        self: &Arc<Self>,
        site: &Arc<SiteFile>,
        version: &Arc<SealedVersion>,
        settings: BuildSettings,
    ) -> bool {
        let request =
            FileRequest { site: Arc::downgrade(site), version: Arc::downgrade(version), id: version.id, settings };
        let needs_thread = {
            let mut state = self.state.lock();
            state.waiting.retain(FileRequest::is_wanted);
            if state.waiting.len() >= MAX_WAITING_SITES {
                return false;
            }
            state.waiting.push_back(request);
            !std::mem::replace(&mut state.has_thread, true)
        };
        let queue = Arc::clone(self);
        let run = move || queue.run();
        if needs_thread && std::thread::Builder::new().name("docwharf-md".to_owned()).spawn(run).is_err() {
            let mut state = self.state.lock();
            state.has_thread = false;
            let refused = std::mem::take(&mut state.waiting);
            drop(state);
            for request in refused {
                if let Some(site) = request.site.upgrade() {
                    site.end_request(request.id, None);
                }
            }
            return false;
        }
        true
    }

    /// Makes the files of the sites that wait. It is the function of the thread.
    fn run(&self) {
        lower_to_minimum();
        loop {
            let request = {
                let mut state = self.state.lock();
                let Some(request) = state.waiting.pop_front() else {
                    state.has_thread = false;
                    return;
                };
                request
            };
            // A fault in a page must neither end the thread nor leave the request without an end.
            if catch_unwind(AssertUnwindSafe(|| self.make(&request))).is_err() {
                self.end_failed(&request, &io::Error::other("the thread has panicked; this is a bug"));
            }
        }
    }

    fn make(&self, request: &FileRequest) {
        let Some(version) = request.version.upgrade().filter(|_| request.is_wanted()) else {
            // Another version is served, this one was opened again, or the site has been removed.
            if let Some(site) = request.site.upgrade() {
                site.end_request(request.id, None);
            }
            return;
        };
        let built = (self.build)(&version, &request.settings, &|| !request.is_wanted());
        let Some(site) = request.site.upgrade() else { return };
        match built {
            Ok(file) => {
                let file = Arc::new(file);
                if site.set_requested(request.id, &file) {
                    self.add_open(&site, &file);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => site.end_request(request.id, None),
            Err(error) => self.end_failed(request, &error),
        }
    }

    /// Reports a failure, and lets requests after the delay try again.
    fn end_failed(&self, request: &FileRequest, error: &io::Error) {
        tracing::warn!(
            "cannot make the Markdown of version {} in a temporary folder: {}; requests after {} seconds try again; free \
             space in TMPDIR if it is full",
            request.id.short(),
            ErrorChain(error),
            self.retry_delay.as_secs()
        );
        if let Some(site) = request.site.upgrade() {
            site.end_request(request.id, Some(Instant::now() + self.retry_delay));
        }
    }

    /// Counts a file that a site has now, and closes others beyond the bounds.
    fn add_open(&self, site: &Arc<SiteFile>, file: &Arc<SiteMarkdown>) {
        let excess = {
            let mut state = self.state.lock();
            let open = &mut state.open;
            open.retain(OpenFile::is_open);
            open.push_back(OpenFile { site: Arc::downgrade(site), file: Arc::downgrade(file), bytes: file.bytes() });
            take_excess(open)
        };
        for OpenFile { site, file, .. } in excess {
            if let Some(site) = site.upgrade() {
                site.close(&file);
            }
        }
    }
}

/// Takes the first files out that are beyond the bounds. The last one stays: a file has a bound of its own.
fn take_excess(open: &mut VecDeque<OpenFile>) -> Vec<OpenFile> {
    let mut total: u64 = open.iter().map(|file| file.bytes).sum();
    let mut excess = Vec::new();
    while open.len() > 1 && (open.len() > MAX_OPEN_FILES || total > MAX_OPEN_BYTES) {
        let Some(first) = open.pop_front() else { break };
        total -= first.bytes;
        excess.push(first);
    }
    excess
}

impl fmt::Debug for FileQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileQueue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
