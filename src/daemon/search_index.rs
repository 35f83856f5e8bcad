//! Builds and opens the search index of the served version in the background: neither a start nor an activation waits
//! for it.
//!
//! It is level-triggered, like the codings: whenever the served version or the settings of its index are others than
//! those of the open index, the stored index is opened or a new one is built. A separate process builds it
//! ([`index_process`](super::index_process)); it takes turns with the process that makes the Brotli and Zstandard forms
//! ([`build_turn`](super::build_turn)). Until the new index is open, the site answers from the previous one. An index
//! stays with its version, so that a restart or a rollback finds it. The task is cancelled when another version is
//! served, the settings change, or the daemon stops; the unfinished index is removed then.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::time::sleep_until;

use crate::admin::daemon_state::{DaemonState, IndexStatistics, SearchFacts, SearchPhase, SearchState};
use crate::admin::metrics::DaemonMetrics;
use docwharf_agent::store::StoreError;
use docwharf_agent::store::derived::SEARCH;
use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_base::model::version::VersionId;
use docwharf_search::index::{OpenError, SearchIndex};
use docwharf_serve::Site;
use docwharf_site::own_policy::find_script_barrier;
use docwharf_site::own_search::find_own_search;
use docwharf_site::sealed_version::SealedVersion;

use super::build_failures::{BuildFailures, is_no_space};
use super::build_turn::{BuildTurn, TurnGuard};
use super::derived_space::{find_space_problem, space_limits};
use super::index_limits::estimate_index_bytes;
use super::index_process::{BuildProduct, IndexProgress, IndexReport, IndexTask, build_in_process};
use super::index_settings::{IndexKey, SearchConfigInForce};
use super::markdown_file::MarkdownTask;
use super::own_programs::own_program_network;
use super::task::lower_priority_to_background;

/// Interval between checks whether to continue.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Interval between checks of the free disk space.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time until the next attempt after there was too little disk space.
const NO_SPACE_RETRY_DELAY: Duration = Duration::from_mins(10);

/// The parts of the daemon that the task uses.
#[derive(Debug, Clone)]
pub(super) struct SearchParts {
    pub(super) site: Arc<Site>,
    pub(super) writer: Arc<StoreWriter>,
    pub(super) daemon_state: Arc<DaemonState>,
    pub(super) metrics: Arc<DaemonMetrics>,
    pub(super) turn: Arc<BuildTurn>,
    /// The settings in force, now and later.
    pub(super) settings: watch::Receiver<Arc<SearchConfigInForce>>,
}

/// The result of a job.
#[derive(Debug)]
enum IndexJobResult {
    Done,
    /// Cancelled: another version is served, the settings have changed, or the daemon stops.
    Cancelled,
    /// There is too little disk space, for this reason.
    NoSpace(String),
    Failed(String),
}

impl IndexJobResult {
    /// Converts the result of a job that has failed into an error with the same reason.
    fn into_io_error(self) -> io::Error {
        match self {
            IndexJobResult::NoSpace(why) | IndexJobResult::Failed(why) => io::Error::other(why),
            IndexJobResult::Done | IndexJobResult::Cancelled => io::ErrorKind::Interrupted.into(),
        }
    }
}

/// Keeps the search index of the site up to date until the daemon stops.
pub(super) async fn maintain_search_index(parts: SearchParts, mut stopped: watch::Receiver<bool>) {
    let mut settings = parts.settings.clone();
    let mut versions = parts.site.subscribe_to_versions();
    let (mut handled, mut failures) = (None, BuildFailures::default());
    let mut retry_at: Option<Instant> = None;
    // The index for which there was no space even without the other derived files. They are not removed again for it:
    // else they would be made and removed in turn.
    let mut without_space: Option<IndexKey> = None;
    loop {
        versions.mark_unchanged();
        let in_force = Arc::clone(&settings.borrow_and_update());
        if let Some(version) = parts.site.served_version() {
            let id = version.id;
            match in_force.index_key(id) {
                None => {
                    parts.turn_off(id);
                    (handled, retry_at) = (None, None);
                }
                Some(key) if handled == Some(key) => parts.update_inject_mode(&in_force),
                Some(key) => {
                    failures.begin_attempt(key);
                    let (stop, stop_channel) = channel();
                    let job = IndexJob {
                        parts: parts.clone(),
                        version,
                        in_force: Arc::clone(&in_force),
                        key,
                        may_remove_forms: without_space != Some(key),
                        stop_channel,
                    };
                    let Some(result) = run_job(job, stop, &mut stopped).await else { return };
                    if matches!(result, IndexJobResult::NoSpace(_)) {
                        without_space = Some(key);
                    }
                    parts.turn.finish_index(id);
                    (handled, retry_at) = (Some(key), None);
                    match parts.report_result(id, result, &mut failures) {
                        NextAttempt::None => {}
                        NextAttempt::Now => {
                            handled = None;
                            continue;
                        }
                        NextAttempt::After(delay) => retry_at = Some(Instant::now() + delay),
                    }
                }
            }
        }
        tokio::select! {
            changed = versions.changed() => if changed.is_err() { return },
            changed = settings.changed() => if changed.is_err() { return },
            _ = stopped.changed() => return,
            () = sleep_until(retry_at.unwrap_or_else(Instant::now).into()), if retry_at.is_some() => handled = None,
        }
    }
}

/// When the task makes another attempt for the same version.
enum NextAttempt {
    None,
    Now,
    After(Duration),
}

impl SearchParts {
    /// Stops answering queries.
    fn turn_off(&self, id: VersionId) {
        self.site.set_search_building(false);
        self.site.set_search_index(None);
        self.site.set_site_markdown(None);
        self.site.set_site_markdown_expected(false);
        self.turn.finish_index(id);
        self.daemon_state.update(|snapshot| snapshot.search = None);
    }

    /// Shows the mode of insertion in the status, which may have changed without the index.
    fn update_inject_mode(&self, in_force: &SearchConfigInForce) {
        self.daemon_state.update(|snapshot| {
            if let Some(search) = &mut snapshot.search {
                search.inject = in_force.config.inject;
            }
        });
    }

    /// Shows in the status whether an older index answers, which changes while the new one is opened or built.
    fn show_older_index(&self) {
        let has_older_index = self.site.search_index().is_some();
        self.daemon_state.update(|snapshot| {
            if let Some(search) = snapshot.search.as_mut() {
                search.has_older_index = has_older_index && !matches!(search.phase, SearchPhase::Ready(_));
            }
        });
    }

    /// Reports a failure in log, status and metrics, and returns when to try again.
    fn report_result(
        &self,
        id: VersionId,
        result: IndexJobResult,
        failures: &mut BuildFailures<IndexKey>,
    ) -> NextAttempt {
        let served = match self.site.search_index() {
            Some(_) => "the site is served with an older one",
            None => "the site is served without it",
        };
        let set_failed = |why: String| {
            self.site.set_search_building(false);
            self.daemon_state.update(|snapshot| {
                if let Some(search) = &mut snapshot.search {
                    search.phase = SearchPhase::Failed(why);
                }
            });
            self.show_older_index();
        };
        match result {
            IndexJobResult::Done => {
                *failures = BuildFailures::default();
                NextAttempt::None
            }
            IndexJobResult::Cancelled => NextAttempt::Now,
            IndexJobResult::NoSpace(why) => {
                tracing::warn!("the search index of version {} is not built: {why}; {served}", id.short());
                self.metrics.count_search_build("no_space");
                set_failed(why);
                NextAttempt::After(NO_SPACE_RETRY_DELAY)
            }
            IndexJobResult::Failed(why) => {
                let delay = failures.count();
                let next = match delay {
                    Some(_) => "trying again later",
                    None => "the next version or start tries again",
                };
                tracing::warn!("cannot build the search index of version {}: {why}; {served}, {next}", id.short());
                self.metrics.count_search_build("failed");
                set_failed(why);
                delay.map_or(NextAttempt::None, NextAttempt::After)
            }
        }
    }
}

/// Runs the job on a separate thread. Returns `None` if the daemon stops; the thread has ended then.
async fn run_job(job: IndexJob, stop: Sender<()>, stopped: &mut watch::Receiver<bool>) -> Option<IndexJobResult> {
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

/// The task of one thread: to open the index of a version, or to build it.
struct IndexJob {
    parts: SearchParts,
    version: Arc<SealedVersion>,
    in_force: Arc<SearchConfigInForce>,
    key: IndexKey,
    /// Whether other derived files are removed if there is no space.
    may_remove_forms: bool,
    /// Carries no message; it is closed when the daemon stops.
    stop_channel: Receiver<()>,
}

impl IndexJob {
    fn run(&self) -> IndexJobResult {
        self.show_phase(SearchPhase::Building);
        // Before the stored index is read: meanwhile, readers are asked to come again.
        self.parts.site.set_search_building(true);
        // Until it is made, the site must not make it itself.
        self.parts.site.set_site_markdown_expected(self.markdown_task().is_needed());
        match self.run_for_index() {
            IndexJobResult::Done => self.keep_markdown(),
            other => {
                self.parts.site.set_site_markdown_expected(false);
                other
            }
        }
    }

    fn markdown_task(&self) -> MarkdownTask<'_> {
        MarkdownTask {
            site: &self.parts.site,
            writer: &self.parts.writer,
            version: &self.version,
            settings: &self.in_force.index,
            network: own_program_network(&self.parts.daemon_state),
        }
    }

    fn run_for_index(&self) -> IndexJobResult {
        let opened = match self.open_stored() {
            Ok(index) => index.map(|index| self.serve(index)),
            Err(result) => Some(result),
        };
        self.read_facts();
        if let Some(result) = opened {
            return result;
        }
        self.open_previous();
        // Also for the stored index, if it was built with other settings.
        self.parts.show_older_index();
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
            Ok(index) => self.serve(index),
            Err(result) => result,
        }
    }

    /// Opens or makes the Markdown of the pages. Without it they are converted on request, so a failure is only logged.
    fn keep_markdown(&self) -> IndexJobResult {
        let task = self.markdown_task();
        if !task.is_needed() {
            self.parts.site.set_site_markdown(None);
            return IndexJobResult::Done;
        }
        if task.serve_stored() {
            return IndexJobResult::Done;
        }
        let Some(turn) = self.wait_for_turn() else { return IndexJobResult::Cancelled };
        let built = self.check_space_before().map_err(IndexJobResult::into_io_error).and_then(|()| {
            task.build(&mut |_| if self.is_cancelled() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) })
        });
        drop(turn);
        if self.is_cancelled() {
            return IndexJobResult::Cancelled;
        }
        if let Err(error) = built {
            self.parts.site.set_site_markdown_expected(false);
            let id = self.key.id.short();
            tracing::warn!("cannot make the Markdown of version {id}: {error}; its pages are converted on request");
        }
        IndexJobResult::Done
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
        self.stop_channel.try_recv() != Err(TryRecvError::Empty)
            || self.parts.site.served_version().is_none_or(|now| now.id != self.key.id)
            || self.parts.settings.borrow().index_key(self.key.id) != Some(self.key)
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

    /// Answers queries from this index from now on.
    fn serve(&self, index: SearchIndex) -> IndexJobResult {
        if self.is_cancelled() {
            return IndexJobResult::Cancelled;
        }
        let statistics = IndexStatistics { pages: index.pages(), sections: index.sections(), bytes: index.bytes() };
        self.parts.site.set_search_index(Some(Arc::new(index)));
        self.parts.site.set_search_building(false);
        self.show_phase(SearchPhase::Ready(statistics));
        IndexJobResult::Done
    }

    /// Opens the stored index, which was built when the version was served before. An index that cannot be used, or was
    /// built with other settings, is built again.
    fn open_stored(&self) -> Result<Option<SearchIndex>, IndexJobResult> {
        let id = self.key.id;
        let Some(directory) = self.parts.writer.store().open_search_index(id) else { return Ok(None) };
        let opened = SearchIndex::open(&directory, id);
        if self.is_cancelled() {
            return Err(IndexJobResult::Cancelled);
        }
        match opened {
            Ok(index) if index.settings() == self.key.settings => return Ok(Some(index)),
            // Until the new one is open, this index answers: it has most pages.
            Ok(index) => self.parts.site.set_search_index(Some(Arc::new(index))),
            Err(error @ OpenError::OtherFormat { .. }) => {
                tracing::info!("version {}: {}; it is rebuilt", id.short(), ErrorChain(&error));
                self.remove_stored();
            }
            Err(error) => {
                let path = self.parts.writer.store().derived_dir(id).join(SEARCH);
                tracing::warn!("cannot use {}: {}; it is rebuilt", path.display(), ErrorChain(&error));
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
        if let Err(error) = self.parts.writer.remove_derived(self.key.id, SEARCH) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }

    fn build(&self) -> Result<SearchIndex, IndexJobResult> {
        let (id, writer) = (self.key.id, &self.parts.writer);
        self.check_space_before()?;
        let started = Instant::now();
        let mut report = None;
        let written = writer.write_derived_directory(id, SEARCH, |directory| {
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
        let directory = writer.store().open_search_index(id);
        let directory = directory.ok_or_else(|| IndexJobResult::Failed("it has been removed".to_owned()))?;
        let index = SearchIndex::open(&directory, id)
            .map_err(|error| IndexJobResult::Failed(ErrorChain(&error).to_string()))?;
        if let Some(report) = report {
            self.report_build(&report, started.elapsed());
        }
        Ok(index)
    }

    /// Runs the index process until it has ended, is not needed any more, or there is too little disk space.
    fn run_process(&self, image: File, directory: &Directory) -> io::Result<IndexReport> {
        let (version, settings) = (&*self.version, &self.in_force.index);
        let network = own_program_network(&self.parts.daemon_state);
        let product = BuildProduct::SearchIndex;
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

    /// Checks that there is space for the index. If not, the other derived files are removed: they are made again, if
    /// there is space for them beside the index.
    fn check_space_before(&self) -> Result<(), IndexJobResult> {
        let failed = |error: StoreError| IndexJobResult::Failed(ErrorChain(&error).to_string());
        let max_bytes = estimate_index_bytes(&self.version);
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
        let build = &report.build;
        tracing::info!(
            "version {} has a search index of {} with {} ({}); it took {} ms, and {} of memory",
            self.key.id.short(),
            format_count(build.pages, "page"),
            format_count(build.sections, "section"),
            format_size(build.bytes),
            took.as_millis(),
            format_size(report.peak_memory)
        );
        self.parts.metrics.count_search_build("built");
        self.parts.metrics.set_search_build_seconds(took);
    }
}
