//! Threads that run the queries of all sites of the process, apart from the serving threads. The conversions of pages
//! have threads of the same kind.
//!
//! A thread is started when a query needs one and fewer threads than allowed exist, and ends when it has been idle for
//! a while. A query that cannot start at once waits in a queue with a bound. Its caller gives up after
//! [`MAX_QUERY_WAIT`]; the query is then not run, and neither is one whose client has closed the connection.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

use docwharf_base::locks::{Condvar, Mutex};

/// The maximum number of queries that wait. Further ones are refused at once.
const MAX_WAITING_QUERIES: usize = 256;
/// The longest time that a query waits before it starts.
const MAX_QUERY_WAIT: Duration = Duration::from_millis(500);
/// The longest time that a caller waits for a query that runs. Queries end by themselves far earlier, unless the
/// machine cannot read the index.
const MAX_RESULT_WAIT: Duration = Duration::from_secs(10);
/// The time after which an idle thread ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The threads for the queries of all sites of this process.
static SHARED_THREADS: LazyLock<Arc<QueryThreads>> = LazyLock::new(|| Arc::new(QueryThreads::new("search")));

/// A query with the channel for its result. It returns at once if its caller has given up.
type QueryJob = Box<dyn FnOnce() + Send>;

/// Threads that run queries.
pub(crate) struct QueryThreads {
    /// The name of the threads.
    name: &'static str,
    state: Mutex<ThreadsState>,
    /// Notifies an idle thread of a job.
    job_added: Condvar,
}

/// The jobs that wait, and the numbers of jobs and threads.
#[derive(Default)]
struct ThreadsState {
    waiting: VecDeque<QueryJob>,
    /// The number of jobs that may run at a time, as the last caller has set it.
    limit: usize,
    /// The number of jobs that run.
    running: usize,
    /// The number of threads, with those that are being started.
    threads: usize,
    /// The number of threads that wait for a job.
    idle: usize,
}

impl ThreadsState {
    fn can_start_job(&self) -> bool {
        !self.waiting.is_empty() && self.running < self.limit
    }
}

/// The reason why a query has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultFailure {
    /// It did not start in time, or does not end.
    Busy,
    /// It panicked.
    Panicked,
}

/// The result of a query that may not have started yet. When this is dropped before the query starts, the query is not
/// run.
#[derive(Debug)]
pub(crate) struct PendingResult<T> {
    started: oneshot::Receiver<()>,
    result: oneshot::Receiver<T>,
    /// The time by which the query must start.
    start_deadline: Instant,
    /// The longest time that the result is awaited once the query runs.
    result_timeout: Duration,
}

impl<T> PendingResult<T> {
    /// Waits for the result.
    pub(crate) async fn wait(self) -> Result<T, ResultFailure> {
        let PendingResult { started, result, start_deadline, result_timeout } = self;
        // A channel that closed without a message belongs to a job that was refused.
        match timeout_at(start_deadline.into(), started).await {
            Ok(Ok(())) => match timeout(result_timeout, result).await {
                Ok(result) => result.map_err(|_| ResultFailure::Panicked),
                Err(_) => Err(ResultFailure::Busy),
            },
            Ok(Err(_)) | Err(_) => Err(ResultFailure::Busy),
        }
    }
}

impl QueryThreads {
    /// Creates threads with this name, none of which runs yet.
    pub(crate) fn new(name: &'static str) -> QueryThreads {
        QueryThreads { name, state: Mutex::default(), job_added: Condvar::new() }
    }

    /// Returns the threads for the queries of all sites of this process.
    pub(super) fn shared() -> Arc<QueryThreads> {
        Arc::clone(&SHARED_THREADS)
    }

    /// Runs `query` on a thread as soon as fewer than `limit` queries run. Does not block.
    pub(crate) fn submit<T: Send + 'static>(
        self: &Arc<Self>,
        limit: usize,
        query: impl FnOnce() -> T + Send + 'static,
    ) -> PendingResult<T> {
        let (start_sender, started) = oneshot::channel();
        let (result_sender, result) = oneshot::channel();
        let job = move || {
            // Fails if the caller has given up.
            if start_sender.send(()).is_ok() {
                let _ = result_sender.send(query());
            }
        };
        self.add_job(limit, Box::new(job));
        let start_deadline = Instant::now() + MAX_QUERY_WAIT;
        PendingResult { started, result, start_deadline, result_timeout: MAX_RESULT_WAIT }
    }

    /// Adds a job to the queue, or drops it if the queue is full, and starts a thread if one is needed.
    fn add_job(self: &Arc<Self>, limit: usize, job: QueryJob) {
        let mut state = self.state.lock();
        if state.waiting.len() >= MAX_WAITING_QUERIES {
            return;
        }
        state.limit = limit.max(1);
        state.waiting.push_back(job);
        let needs_thread = state.waiting.len() > state.idle && state.threads < state.limit;
        if needs_thread {
            state.threads += 1;
        }
        drop(state);
        self.job_added.notify_one();
        if needs_thread && self.start_thread().is_err() {
            self.handle_failed_start();
        }
    }

    fn start_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let threads = Arc::clone(self);
        thread::Builder::new().name(self.name.to_owned()).spawn(move || threads.run_jobs()).map(drop)
    }

    /// Counts a thread that could not be started. If no other thread is left, the jobs that wait are refused.
    fn handle_failed_start(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        let refused = if state.threads == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
        drop(state);
        // Dropping a job wakes its caller, which must not happen under the lock.
        drop(refused);
    }

    /// Runs jobs until there have been none for [`IDLE_TIMEOUT`].
    fn run_jobs(&self) {
        let mut state = self.state.lock();
        loop {
            if state.can_start_job()
                && let Some(job) = state.waiting.pop_front()
            {
                state.running += 1;
                drop(state);
                // A job that panics drops the channel of its result, by which its caller learns of the panic.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock();
                state.running -= 1;
                continue;
            }
            state.idle += 1;
            state = self.job_added.wait_timeout_while(state, IDLE_TIMEOUT, |state| !state.can_start_job());
            state.idle -= 1;
            if !state.can_start_job() {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl fmt::Debug for QueryThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryThreads").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};

    use super::*;

    /// A job that runs until a message ends it.
    struct BlockedQuery {
        end: mpsc::Sender<()>,
        result: PendingResult<()>,
    }

    /// Submits a job that runs until a message ends it, and waits until it runs.
    fn start_blocked(threads: &Arc<QueryThreads>, limit: usize) -> BlockedQuery {
        let (end, ended) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let result = threads.submit(limit, move || {
            start.send(()).unwrap();
            let _ = ended.recv();
        });
        started.recv().unwrap();
        BlockedQuery { end, result }
    }

    #[tokio::test]
    async fn queries_run_on_other_threads_and_return_their_results() {
        let threads = Arc::new(QueryThreads::new("search"));
        let caller = thread::current().id();
        for number in 0..20 {
            let result = threads.submit(2, move || (number, thread::current().id())).wait().await.unwrap();
            assert!(result.0 == number && result.1 != caller);
        }
        assert!(threads.state.lock().threads <= 2, "an idle thread is used again");
    }

    #[test]
    fn at_most_the_allowed_number_of_queries_runs_at_a_time() {
        let threads = Arc::new(QueryThreads::new("search"));
        let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, ended) = mpsc::channel();
        // No query ends before all have been submitted.
        let all_submitted = Arc::new(Mutex::new(()));
        let closed = all_submitted.lock();
        // The results are held, because a query whose result was dropped is not run.
        let _pending: Vec<PendingResult<()>> = (0..40)
            .map(|_| {
                let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
                let (all_submitted, done) = (Arc::clone(&all_submitted), done.clone());
                threads.submit(3, move || {
                    peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    drop(all_submitted.lock());
                    running.fetch_sub(1, Ordering::SeqCst);
                    done.send(()).expect("the test waits");
                })
            })
            .collect();
        assert_eq!(threads.state.lock().threads, 3);
        drop(closed);
        for _ in 0..40 {
            ended.recv_timeout(Duration::from_secs(20)).expect("each query runs");
        }
        assert!((1..=3).contains(&peak.load(Ordering::SeqCst)), "{peak:?}");
        assert_eq!(threads.state.lock().threads, 3, "no thread was added");
    }

    #[tokio::test]
    async fn two_queries_at_once_run_side_by_side() {
        let threads = Arc::new(QueryThreads::new("search"));
        // An idle thread counts as idle until it has taken its query; the second query must not wait for it.
        assert_eq!(threads.submit(2, || 7).wait().await, Ok(7));
        let both_run = Arc::new(Barrier::new(2));
        let pending = [(); 2].map(|()| {
            let both_run = Arc::clone(&both_run);
            threads.submit(2, move || {
                both_run.wait();
            })
        });
        for result in pending {
            assert_eq!(result.wait().await, Ok(()));
        }
    }

    #[tokio::test]
    async fn a_query_that_waits_for_too_long_is_refused_and_does_not_run() {
        let threads = Arc::new(QueryThreads::new("search"));
        let blocked = start_blocked(&threads, 1);
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let start = Instant::now();
        let late = threads.submit(1, move || counted.fetch_add(1, Ordering::SeqCst));
        assert_eq!(late.wait().await, Err(ResultFailure::Busy));
        assert!(start.elapsed() >= MAX_QUERY_WAIT && start.elapsed() < 20 * MAX_QUERY_WAIT);
        blocked.end.send(()).unwrap();
        assert_eq!(blocked.result.wait().await, Ok(()));
        // The thread has dropped the late query before it runs another one.
        assert_eq!(threads.submit(1, || 7).wait().await, Ok(7));
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_query_that_does_not_end_is_not_awaited_for_ever() {
        let threads = Arc::new(QueryThreads::new("search"));
        let mut blocked = start_blocked(&threads, 1);
        assert_eq!(blocked.result.result_timeout, MAX_RESULT_WAIT);
        blocked.result.result_timeout = Duration::ZERO;
        assert_eq!(blocked.result.wait().await, Err(ResultFailure::Busy));
        blocked.end.send(()).unwrap();
    }

    #[tokio::test]
    async fn queries_beyond_the_bound_of_waiting_ones_are_refused_at_once() {
        let threads = Arc::new(QueryThreads::new("search"));
        let blocked = start_blocked(&threads, 1);
        let waiting: Vec<PendingResult<usize>> =
            (0..MAX_WAITING_QUERIES).map(|number| threads.submit(1, move || number)).collect();
        let start = Instant::now();
        assert_eq!(threads.submit(1, || 0).wait().await, Err(ResultFailure::Busy));
        assert!(start.elapsed() < MAX_QUERY_WAIT);
        blocked.end.send(()).unwrap();
        assert_eq!(blocked.result.wait().await, Ok(()));
        for (number, result) in waiting.into_iter().enumerate() {
            assert_eq!(result.wait().await, Ok(number));
        }
    }

    #[tokio::test]
    async fn a_query_whose_caller_is_gone_does_not_run() {
        let threads = Arc::new(QueryThreads::new("search"));
        let blocked = start_blocked(&threads, 1);
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        drop(threads.submit(1, move || counted.fetch_add(1, Ordering::SeqCst)));
        blocked.end.send(()).unwrap();
        assert_eq!(threads.submit(1, || 7).wait().await, Ok(7));
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_query_that_panics_ends_no_thread_and_its_caller_gets_an_error() {
        let threads = Arc::new(QueryThreads::new("search"));
        let panicked = threads.submit(1, || -> u8 { panic!("expected") });
        assert_eq!(panicked.wait().await, Err(ResultFailure::Panicked));
        assert_eq!(threads.submit(1, || 7).wait().await, Ok(7));
        let state = threads.state.lock();
        assert_eq!((state.threads, state.waiting.len()), (1, 0));
    }

    #[tokio::test]
    async fn a_larger_limit_is_in_force_from_the_next_query_on() {
        let threads = Arc::new(QueryThreads::new("search"));
        let first = start_blocked(&threads, 1);
        let second = start_blocked(&threads, 2);
        for query in [first, second] {
            query.end.send(()).unwrap();
            assert_eq!(query.result.wait().await, Ok(()));
        }
    }
}
