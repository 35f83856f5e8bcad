//! The job of one thread: to open the search index of a version or the Markdown of its pages, or to build it. Both have
//! the same checks, and end for the same reasons.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::admin::daemon_state::{IndexStatistics, SearchFacts, SearchPhase, SearchState};
use docwharf_agent::store::StoreError;
use docwharf_agent::store::operations::StoreOperations;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_search::index::SearchIndex;
use docwharf_site::own_policy::find_script_barrier;
use docwharf_site::own_search::find_own_search;
use docwharf_site::sealed_version::SealedVersion;

use super::build_failures::is_no_space;
use super::build_product::BuildProduct;
use super::build_turn::TurnGuard;
use super::derived_space::{find_space_problem, space_limits};
use super::index_limits::{estimate_index_bytes, estimate_markdown_bytes};
use super::index_process::{IndexProgress, IndexReport, IndexTask, build_in_process};
use super::index_settings::{ProductKey, SearchConfigInForce};
use super::open_product::OpenProduct;
use super::own_programs::own_program_network;
use super::search_parts::SearchParts;
use super::task::lower_priority_to_background;

/// Interval between checks whether to continue.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Interval between checks of the free disk space.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The result of a job.
#[derive(Debug)]
pub(super) enum IndexJobResult {
    Done,
    /// Cancelled: another version is served, the settings have changed, or the daemon stops.
    Cancelled,
    /// There is too little disk space, for this reason.
    NoSpace(String),
    Failed(String),
}

/// The task of one thread: to open a product of a version, or to build it.
pub(super) struct IndexJob {
    pub(super) parts: SearchParts,
    pub(super) version: Arc<SealedVersion>,
    pub(super) in_force: Arc<SearchConfigInForce>,
    pub(super) key: ProductKey,
    /// Whether other derived files are removed if there is no space.
    pub(super) may_remove_forms: bool,
    /// Carries no message; it is closed when the daemon stops.
    pub(super) stop_channel: Receiver<()>,
}

/// Runs the job on a separate thread. Returns `None` if the daemon stops; the thread has ended then.
pub(super) async fn run_job(
    job: IndexJob,
    stop: Sender<()>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<IndexJobResult> {
    let (send, mut done) = oneshot::channel();
    let task = move || {
        lower_priority_to_background(usize::MAX);
        let result = job.run();
        drop(job);
        // There is no receiver any more when the program ends.
        let _ = send.send(result);
    };
    if let Err(error) = thread::Builder::new().name("docwharf-search".to_owned()).spawn(task) {
        return Some(IndexJobResult::Failed(format!("cannot start a thread: {error}")));
    }
    tokio::select! {
        result = &mut done => {
            Some(result.unwrap_or_else(|_| IndexJobResult::Failed("the thread died; this is a bug".to_owned())))
        }
        _ = stopped.changed() => {
            drop(stop);
            let _ = done.await;
            None
        }
    }
}

impl IndexJob {
    fn run(&self) -> IndexJobResult {
        let is_index = self.key.product == BuildProduct::SearchIndex;
        if is_index {
            self.show_phase(SearchPhase::Building);
            // Before the stored index is read: meanwhile, readers are asked to come again.
            self.parts.site.set_search_building(true);
        }
        let opened = match self.open_stored() {
            Ok(product) => product.map(|product| self.serve(product)),
            Err(result) => Some(result),
        };
        if is_index {
            self.read_facts();
        }
        if let Some(result) = opened {
            return result;
        }
        if is_index {
            self.open_previous();
            // Also for the stored index, if it was built with other settings.
            self.parts.show_older_index();
        }
        // The first requests and the replaced versions come first.
        while self.parts.site.is_opening() {
            if !self.wait_poll_interval() {
                return IndexJobResult::Cancelled;
            }
        }
        let Some(turn) = self.wait_for_turn() else { return IndexJobResult::Cancelled };
        let built = self.build();
        drop(turn);
        match built {
            Ok(product) => self.serve(product),
            Err(result) => result,
        }
    }

    fn wait_for_turn(&self) -> Option<TurnGuard> {
        loop {
            if let Some(turn) = self.parts.turn.take_for_index() {
                return Some(turn);
            }
            if !self.wait_poll_interval() {
                return None;
            }
        }
    }

    /// Waits for [`POLL_INTERVAL`], or until the daemon stops. Returns whether the task is still needed.
    fn wait_poll_interval(&self) -> bool {
        matches!(self.stop_channel.recv_timeout(POLL_INTERVAL), Err(RecvTimeoutError::Timeout)) && !self.is_cancelled()
    }

    fn is_cancelled(&self) -> bool {
        let ProductKey { id, product, .. } = self.key;
        self.stop_channel.try_recv() != Err(TryRecvError::Empty)
            || self.parts.site.served_version().is_none_or(|now| now.id != id)
            || self.parts.settings.borrow().key(id, product) != Some(self.key)
    }

    /// Shows the state of the index in the status.
    fn show_phase(&self, phase: SearchPhase) {
        let (version, inject) = (self.key.id, self.in_force.config.inject);
        let has_older_index = !matches!(phase, SearchPhase::Ready(_)) && self.parts.site.search_index().is_some();
        self.parts.daemon_state.update(|snapshot| {
            let known = snapshot.search.take().filter(|search| search.version == version);
            let facts = known.and_then(|search| search.facts);
            snapshot.search = Some(SearchState { version, phase, has_older_index, inject, facts });
        });
    }

    /// Shows in the status what the site itself has that concerns the search box. Some pages are read for that.
    fn read_facts(&self) {
        let facts = SearchFacts {
            own_search: find_own_search(&self.version).map(|own| own.to_string()),
            barrier: find_script_barrier(&self.version, &self.parts.site.rules()),
        };
        let id = self.key.id;
        self.parts.daemon_state.update(|snapshot| {
            if let Some(search) = snapshot.search.as_mut().filter(|search| search.version == id) {
                search.facts = Some(facts);
            }
        });
    }

    /// Answers requests from this product from now on.
    fn serve(&self, product: OpenProduct) -> IndexJobResult {
        if self.is_cancelled() {
            return IndexJobResult::Cancelled;
        }
        match product {
            OpenProduct::SearchIndex(index) => self.serve_index(index),
            OpenProduct::SiteMarkdown(file) => self.parts.site.set_site_markdown(Some(file)),
        }
        IndexJobResult::Done
    }

    fn serve_index(&self, index: Arc<SearchIndex>) {
        let statistics = IndexStatistics { pages: index.pages(), sections: index.sections(), bytes: index.bytes() };
        self.parts.site.set_search_index(Some(index));
        self.parts.site.set_search_building(false);
        self.show_phase(SearchPhase::Ready(statistics));
    }

    /// Opens the stored product, which was built when the version was served before. One that cannot be used, or was
    /// built with other settings, is built again.
    fn open_stored(&self) -> Result<Option<OpenProduct>, IndexJobResult> {
        let ProductKey { id, product, settings } = self.key;
        let (store, folder) = (self.parts.writer.store(), product.folder_name());
        let Some(directory) = store.open_derived_directory(id, folder) else { return Ok(None) };
        let opened = OpenProduct::open(product, &directory, id);
        if self.is_cancelled() {
            return Err(IndexJobResult::Cancelled);
        }
        match opened {
            Ok(opened) if opened.settings() == settings => return Ok(Some(opened)),
            // Until the new one is open, this index answers: it has most pages.
            Ok(OpenProduct::SearchIndex(index)) => self.parts.site.set_search_index(Some(index)),
            // Its lists may have pages that are to be left out now.
            Ok(OpenProduct::SiteMarkdown(_)) => self.remove_stored(),
            Err(error) => {
                if error.is_other_format() {
                    tracing::info!("version {}: {}; it is rebuilt", id.short(), ErrorChain(&error));
                } else {
                    let path = store.derived_dir(id).join(folder);
                    tracing::warn!("cannot use {}: {}; it is rebuilt", path.display(), ErrorChain(&error));
                }
                self.remove_stored();
            }
        }
        Ok(None)
    }

    /// Lets the index of the version before answer until the new one is open, if no index answers yet: this process was
    /// started after the activation, or in the middle of it.
    fn open_previous(&self) {
        let store = self.parts.writer.store();
        if self.parts.site.search_index().is_some() {
            return;
        }
        let Some(id) = store.record().ok().and_then(|record| record.previous) else { return };
        // If it cannot be used, it is built again when its version is served again.
        let index = store.open_search_index(id).and_then(|directory| SearchIndex::open(&directory, id).ok());
        if let Some(index) = index.filter(|index| index.settings() == self.key.settings && !self.is_cancelled()) {
            self.parts.site.set_search_index(Some(Arc::new(index)));
        }
    }

    fn remove_stored(&self) {
        if let Err(error) = self.parts.writer.remove_derived(self.key.id, self.key.product.folder_name()) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }

    /// Builds the product in its folder, and opens it.
    fn build(&self) -> Result<OpenProduct, IndexJobResult> {
        let (ProductKey { id, product, .. }, writer) = (self.key, &self.parts.writer);
        self.check_space_before()?;
        let started = Instant::now();
        let mut report = None;
        let written = writer.write_derived_directory(id, product.folder_name(), |directory| {
            let image = writer.store().image(id)?.into_file();
            report = Some(self.run_process(image, directory)?);
            Ok(())
        });
        if self.is_cancelled() {
            return Err(IndexJobResult::Cancelled);
        }
        written.map_err(|error| match &error {
            StoreError::Io { source, .. } if is_no_space(source) => IndexJobResult::NoSpace(source.to_string()),
            _ => IndexJobResult::Failed(ErrorChain(&error).to_string()),
        })?;
        let directory = writer.store().open_derived_directory(id, product.folder_name());
        let directory = directory.ok_or_else(|| IndexJobResult::Failed("it has been removed".to_owned()))?;
        let opened = OpenProduct::open(product, &directory, id)
            .map_err(|error| IndexJobResult::Failed(ErrorChain(&error).to_string()))?;
        if let Some(report) = report {
            self.report_build(&report, started.elapsed());
        }
        Ok(opened)
    }

    /// Runs the index process until it has ended, is not needed any more, or there is too little disk space.
    fn run_process(&self, image: File, directory: &Directory) -> io::Result<IndexReport> {
        let (version, settings, product) = (&*self.version, &self.in_force.index, self.key.product);
        let network = own_program_network(&self.parts.daemon_state);
        let task = IndexTask { version, image, settings, product, is_background: true, network };
        let mut last_space_check = Instant::now();
        build_in_process(task, directory, &mut |_: IndexProgress| {
            if self.is_cancelled() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "cancelled"));
            }
            if last_space_check.elapsed() >= SPACE_CHECK_INTERVAL {
                last_space_check = Instant::now();
                if let Some(why) = self.find_space_problem(0).map_err(io::Error::other)? {
                    return Err(io::Error::new(io::ErrorKind::StorageFull, why));
                }
            }
            Ok(())
        })
    }

    fn find_space_problem(&self, added_bytes: u64) -> Result<Option<String>, StoreError> {
        find_space_problem(self.parts.writer.store(), &space_limits(&self.parts.daemon_state), added_bytes, 0)
    }

    /// Checks that there is space for the product. If not, the other derived files are removed: they are made again, if
    /// there is space for them beside it.
    fn check_space_before(&self) -> Result<(), IndexJobResult> {
        let failed = |error: StoreError| IndexJobResult::Failed(ErrorChain(&error).to_string());
        let max_bytes = match self.key.product {
            BuildProduct::SearchIndex => estimate_index_bytes(&self.version),
            BuildProduct::SiteMarkdown => estimate_markdown_bytes(&self.version),
        };
        let mut problem = self.find_space_problem(max_bytes).map_err(failed)?;
        if problem.is_some()
            && self.may_remove_forms
            && StoreOperations::remove_large_derived_files(&*self.parts.writer)
        {
            problem = self.find_space_problem(max_bytes).map_err(failed)?;
        }
        problem.map_or(Ok(()), |why| Err(IndexJobResult::NoSpace(why)))
    }

    fn report_build(&self, report: &IndexReport, took: Duration) {
        let (id, build, milliseconds) = (self.key.id.short(), &report.build, took.as_millis());
        let pages = format_count(build.pages, "page");
        let [bytes, memory] = [build.bytes, report.peak_memory].map(format_size);
        match self.key.product {
            BuildProduct::SearchIndex => {
                let sections = format_count(build.sections, "section");
                tracing::info!(
                    "version {id} has a search index of {pages} with {sections} ({bytes}); it took {milliseconds} ms, \
                     and {memory} of memory"
                );
                self.parts.metrics.set_search_build_seconds(took);
            }
            BuildProduct::SiteMarkdown => tracing::info!(
                "version {id} has the Markdown of {pages} ({bytes}); it took {milliseconds} ms, and {memory} of memory"
            ),
        }
        self.parts.count_build(self.key.product, "built");
    }
}
