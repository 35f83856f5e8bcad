//! The state of the search of a site: the settings and the index in force, and how its queries are run.

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::Digest;
use docwharf_base::processors;
use docwharf_search::index::SearchIndex;
use docwharf_search::page::SearchResponse;
use docwharf_site::rules::pattern::Pattern;

use super::answer::{QueryFailure, SearchAnswer, SearchQuery};
use super::assets::SearchAsset;
use super::query_threads::{PendingResult, QueryThreads, ResultFailure};
use super::settings::SearchSettings;
use super::statistics::{QueryCounters, QueryOutcome, QueryStatistics};

/// The longest time that a query runs. Then it is answered with the results that have been found.
const MAX_QUERY_TIME: Duration = Duration::from_millis(250);

/// An action that is called once, at the first search of a site that has no index of the served version.
type FirstSearchAction = Box<dyn FnOnce() + Send>;

/// Settings with which the search is on, and what is made from them.
#[derive(Debug)]
pub(crate) struct SearchSettingsInForce {
    pub(crate) settings: Arc<SearchSettings>,
    /// A digest of the settings on which answers depend: excluded addresses, and words that mean the same.
    pub(crate) answers_digest: Digest,
    /// The script of the search box, and the maximum length of a question for which it was made.
    script: Mutex<Option<(Option<NonZeroUsize>, Arc<SearchAsset>)>>,
}

impl SearchSettingsInForce {
    fn new(settings: Arc<SearchSettings>) -> SearchSettingsInForce {
        let facts = format!("{:?} {:?}", settings.synonyms.digest(), settings.exclude);
        SearchSettingsInForce { answers_digest: Digest::compute(facts.as_bytes()), settings, script: Mutex::default() }
    }

    /// Returns the script of the search box. `max_question` is the maximum length of a question, if questions are
    /// answered. The script is made when it is first needed, and again when that length changes.
    pub(crate) fn script(&self, max_question: Option<NonZeroUsize>) -> Arc<SearchAsset> {
        let mut cached = self.script.lock();
        if let Some((made_for, script)) = &*cached
            && *made_for == max_question
        {
            return Arc::clone(script);
        }
        let script = Arc::new(SearchAsset::render_script(&self.settings.search_box, max_question));
        *cached = Some((max_question, Arc::clone(&script)));
        script
    }
}

/// The reason why a query has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchFailure {
    /// It did not start in time, or does not end.
    Busy,
    /// The index could not be read.
    Failed,
}

/// The reason why there is no index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingIndex {
    /// It is being built or will be.
    Building,
    /// Its build has failed. A client that waits would wait for ever.
    Failed,
}

/// The answer to a query that may not have started yet, or the result of another job on the threads of queries.
#[derive(Debug)]
pub(crate) struct PendingAnswer<T = SearchAnswer>(PendingResult<Option<T>>);

impl<T> PendingAnswer<T> {
    /// Waits for the answer.
    pub(crate) async fn wait(self) -> Result<T, SearchFailure> {
        match self.0.wait().await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(ResultFailure::Panicked) => Err(SearchFailure::Failed),
            Err(ResultFailure::Busy) => Err(SearchFailure::Busy),
        }
    }
}

/// The state of the search of a site. Settings and index can be replaced at any time; a query keeps those that were in
/// force when its request was received.
pub(crate) struct SearchState {
    /// `None` if the search is off.
    settings: ArcSwapOption<SearchSettingsInForce>,
    /// The settings as they were set, also if the search is off.
    written_settings: ArcSwapOption<SearchSettings>,
    index: ArcSwapOption<SearchIndex>,
    /// Whether an index is being built or will be, as far as this module knows.
    is_building: AtomicBool,
    first_search_action: Mutex<Option<FirstSearchAction>>,
    counters: QueryCounters,
    threads: Arc<QueryThreads>,
    /// The longest time that a query runs: [`MAX_QUERY_TIME`], but for tests.
    max_query_time: Duration,
    /// Whether a failure of the index in force was logged.
    has_logged_failure: AtomicBool,
}

impl Default for SearchState {
    fn default() -> SearchState {
        SearchState {
            settings: ArcSwapOption::empty(),
            written_settings: ArcSwapOption::empty(),
            index: ArcSwapOption::empty(),
            is_building: AtomicBool::new(true),
            first_search_action: Mutex::new(None),
            counters: QueryCounters::default(),
            threads: QueryThreads::shared(),
            max_query_time: MAX_QUERY_TIME,
            has_logged_failure: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for SearchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchState")
            .field("settings", &self.settings)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl SearchState {
    /// Replaces the settings.
    pub(crate) fn set_settings(&self, settings: Arc<SearchSettings>) {
        self.written_settings.store(Some(Arc::clone(&settings)));
        let settings = settings.enabled.then(|| Arc::new(SearchSettingsInForce::new(settings)));
        self.settings.store(settings);
    }

    /// Returns the settings in force; `None` if the search is off.
    pub(crate) fn settings(&self) -> Option<Arc<SearchSettingsInForce>> {
        self.settings.load_full()
    }

    /// Returns the addresses of pages that are excluded from the search, also if the search is off.
    pub(crate) fn excluded_addresses(&self) -> Arc<[Pattern]> {
        self.written_settings.load().as_ref().map_or_else(Arc::default, |settings| Arc::clone(&settings.exclude))
    }

    /// Returns how many jobs may run on the threads of queries at a time.
    pub(crate) fn parallel(&self) -> usize {
        self.written_settings.load().as_ref().map_or_else(processors::count, |settings| settings.parallel.get())
    }

    /// Returns whether the search is on.
    pub(crate) fn is_enabled(&self) -> bool {
        self.settings.load().is_some()
    }

    /// Replaces the index.
    pub(crate) fn set_index(&self, index: Option<Arc<SearchIndex>>) {
        self.index.store(index);
        self.has_logged_failure.store(false, Ordering::Relaxed);
    }

    /// Returns the index in force.
    pub(crate) fn index(&self) -> Option<Arc<SearchIndex>> {
        self.index.load_full()
    }

    /// Returns the index in force. If there is none, it is requested, and the reason is returned.
    pub(crate) fn require_index(&self) -> Result<Arc<SearchIndex>, MissingIndex> {
        self.index().ok_or_else(|| {
            self.request_index();
            if self.is_building() { MissingIndex::Building } else { MissingIndex::Failed }
        })
    }

    /// Sets whether an index is being built or will be.
    pub(crate) fn set_building(&self, is_building: bool) {
        self.is_building.store(is_building, Ordering::Relaxed);
    }

    /// Returns whether an index is being built or will be.
    pub(crate) fn is_building(&self) -> bool {
        self.is_building.load(Ordering::Relaxed)
    }

    /// Sets the action that is called at the first search without an index of the served version.
    pub(crate) fn set_first_search_action(&self, action: FirstSearchAction) {
        *self.first_search_action.lock() = Some(action);
    }

    /// Calls the action of [`set_first_search_action`](Self::set_first_search_action), unless it was called before.
    pub(crate) fn request_index(&self) {
        let action = self.first_search_action.lock().take();
        if let Some(action) = action {
            self.set_building(true);
            action();
        }
    }

    /// Counts a request that had a question.
    pub(crate) fn count(&self, outcome: QueryOutcome) {
        self.counters.count(outcome);
    }

    /// Returns the counts of queries.
    pub(crate) fn statistics(&self) -> QueryStatistics {
        self.counters.read()
    }

    /// Runs a query on another thread, once fewer than `parallel` queries run. Does not block.
    pub(crate) fn submit(self: &Arc<Self>, parallel: usize, query: SearchQuery) -> PendingAnswer {
        let state = Arc::clone(self);
        let run = move || state.run_timed(|| query.run(Instant::now() + state.max_query_time));
        PendingAnswer(self.threads.submit(parallel, run))
    }

    /// Runs a query like [`submit`](Self::submit), and passes its answer to `use_answer` on the same thread.
    pub(crate) fn submit_with<T: Send + 'static>(
        self: &Arc<Self>,
        parallel: usize,
        query: SearchQuery,
        use_answer: impl FnOnce(SearchResponse) -> T + Send + 'static,
    ) -> PendingAnswer<T> {
        let state = Arc::clone(self);
        let run = move || state.run_timed(|| query.search(Instant::now() + state.max_query_time)).map(use_answer);
        PendingAnswer(self.threads.submit(parallel, run))
    }

    /// Runs another job on the threads of queries, once fewer than `parallel` jobs run. Does not block.
    pub(crate) fn submit_job<T: Send + 'static>(
        &self,
        parallel: usize,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> PendingAnswer<T> {
        PendingAnswer(self.threads.submit(parallel, move || Some(job())))
    }

    /// Runs a query and records its duration; `None` if it has failed. tantivy may panic if it cannot read an index.
    fn run_timed<T>(&self, run: impl FnOnce() -> Result<T, QueryFailure>) -> Option<T> {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(run));
        self.counters.record_duration(start.elapsed());
        match result {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                self.report_failure(&ErrorChain(&error));
                None
            }
            Err(panic) => {
                let message = panic.downcast_ref::<&str>().copied();
                let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                self.report_failure(&format_args!("a panic: {}", OneLine(message.unwrap_or("without a message"))));
                None
            }
        }
    }

    /// Logs the first failure of an index.
    fn report_failure(&self, reason: &dyn fmt::Display) {
        if !self.has_logged_failure.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "a search cannot be answered: {reason}; restart docwharf, which checks the index and builds it again if it is \
                 damaged (further failures of this index are not logged)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use docwharf_site::rules::pattern::PatternDialect;

    use super::*;
    use crate::search::SearchParameters;
    use crate::search::answer::{AnswerFormat, SearchAudience};
    use crate::search::test_indexes;
    use crate::test_versions::version_with_files;

    fn answer(is_partial: bool, has_results: bool) -> SearchAnswer {
        SearchAnswer { body: Vec::new(), is_indexing: false, is_partial, has_results, total: 0 }
    }

    #[test]
    fn durations_are_recorded_and_failures_and_panics_are_caught() {
        let state = SearchState::default();
        assert_eq!(state.run_timed(|| Ok(answer(false, true))), Some(answer(false, true)));
        assert_eq!(state.run_timed(|| Ok(answer(true, true))), Some(answer(true, true)));
        let failure = || QueryFailure::Search(std::io::Error::other("the disk is gone").into());
        assert!(!state.has_logged_failure.load(Ordering::Relaxed));
        assert_eq!(state.run_timed::<SearchAnswer>(|| Err(failure())), None);
        assert!(state.has_logged_failure.load(Ordering::Relaxed));
        assert_eq!(state.run_timed::<SearchAnswer>(|| panic!("expected")), None);
        assert_eq!(state.run_timed::<SearchAnswer>(|| panic!("expected {}", 1)), None);
        assert_eq!(state.statistics().durations.iter().sum::<u64>(), 5);
        // Failures of another index are logged again.
        state.set_index(None);
        assert!(!state.has_logged_failure.load(Ordering::Relaxed));
    }

    #[test]
    fn the_first_search_without_an_index_is_reported_once() {
        let state = SearchState::default();
        assert!(state.is_building(), "an index is expected until the program says otherwise");
        state.set_building(false);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let action = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        state.set_first_search_action(Box::new(action));
        assert_eq!((calls.load(Ordering::Relaxed), state.is_building()), (0, false));
        for _ in 0..3 {
            assert_eq!(state.require_index().map(|_| ()), Err(MissingIndex::Building));
        }
        assert_eq!((calls.load(Ordering::Relaxed), state.is_building()), (1, true));
        state.set_building(false);
        assert_eq!(state.require_index().map(|_| ()), Err(MissingIndex::Failed));
        let counted = Arc::clone(&calls);
        state.set_first_search_action(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        state.request_index();
        assert_eq!(state.require_index().map(|_| ()), Err(MissingIndex::Building));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn settings_that_turn_the_search_off_are_not_in_force() {
        let state = SearchState::default();
        assert!(!state.is_enabled() && state.settings().is_none());
        state.set_settings(Arc::new(test_indexes::settings()));
        let first = state.settings().unwrap();
        assert!(state.is_enabled() && Arc::ptr_eq(&first.script(None), &first.script(None)), "the script is made once");
        let with_ask = first.script(NonZeroUsize::new(1000));
        assert!(!Arc::ptr_eq(&with_ask, &first.script(None)), "the script depends on the questions");
        state.set_settings(Arc::new(test_indexes::settings()));
        assert_eq!(first.answers_digest, state.settings().unwrap().answers_digest);
        let exclude = Arc::new([Pattern::parse("/a", PatternDialect::DocsJson).unwrap()]);
        state.set_settings(Arc::new(SearchSettings { exclude, ..test_indexes::settings() }));
        assert_ne!(first.answers_digest, state.settings().unwrap().answers_digest);
        state.set_settings(Arc::new(SearchSettings { enabled: false, ..test_indexes::settings() }));
        assert!(!state.is_enabled() && state.settings().is_none());
    }

    fn query() -> SearchQuery {
        let version = Arc::new(version_with_files(&[("a.html", "<h1>Anchors</h1><p>text")], 0));
        SearchQuery {
            parameters: SearchParameters { text: "anchors".to_owned(), ..SearchParameters::default() },
            format: AnswerFormat::Json,
            audience: SearchAudience::Readers,
            index: test_indexes::build_index(&version),
            version,
            addresses: docwharf_site::lookup::AddressSettings::default(),
            exclude: Arc::default(),
            synonyms: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_submitted_query_is_answered() {
        // Not the time limit of readers, which a busy machine may exceed.
        let state = Arc::new(SearchState { max_query_time: Duration::from_hours(1), ..SearchState::default() });
        let answer = state.submit(4, query()).wait().await.unwrap();
        assert!(answer.has_results && !answer.is_partial);
    }

    #[tokio::test]
    async fn a_submitted_query_ends_at_its_time_limit_with_what_it_has() {
        assert_eq!(SearchState::default().max_query_time, Duration::from_millis(250));
        let state = Arc::new(SearchState { max_query_time: Duration::ZERO, ..SearchState::default() });
        assert!(state.submit(4, query()).wait().await.unwrap().is_partial);
    }
}
