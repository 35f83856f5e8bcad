//! The threads that serve connections: one per core, each with a separate tokio runtime.
//!
//! A connection stays on the thread that it was assigned to. Its requests, its header fields and its allocations
//! therefore stay in the caches of that core, and there is no work stealing. The first thread also accepts, and assigns
//! each connection to the thread that has the fewest.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use docwharf_base::{processors, runtime};

use super::reclaim;
use super::turn;
use super::watchdog::Watchdog;

/// The largest number of serving threads. More would not help: most of the time of a request is spent in the kernel.
const MAX_SERVING_THREADS: usize = 64;

/// The number of tasks that a serving thread polls before it checks its sockets and timers again; tokio's default is
/// 61. A turn may take [`turn::MAX_TURN`], so a smaller number bounds how long a new connection waits. A check costs a
/// system call, so there is none after each task.
const TASKS_PER_DRIVER_POLL: u32 = 16;

/// The number of threads for blocking work in all runtimes together; the default of a single tokio runtime.
const MAX_BLOCKING_THREADS: usize = 512;

/// The runtimes that serve connections; the first one is that of the accept loop.
#[derive(Debug, Clone)]
pub(super) struct ServingThreads(Arc<[ServingThread]>);

#[derive(Debug)]
struct ServingThread {
    handle: Handle,
    /// The number of connections on this thread.
    load: Arc<AtomicUsize>,
    /// The largest number since [`ServingThreads::take_peak_connections`].
    peak: AtomicUsize,
}

/// The count of one connection on the thread that serves it. Dropping it decrements the count.
#[derive(Debug)]
pub(super) struct ThreadConnectionGuard(Arc<AtomicUsize>);

impl Drop for ThreadConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ends the serving threads when it is dropped.
#[derive(Debug)]
pub(super) struct ServingThreadsGuard {
    _end_signals: Vec<oneshot::Sender<()>>,
}

impl ServingThreads {
    /// Returns the runtime of the caller as the only one.
    pub(super) fn on_current_runtime() -> ServingThreads {
        ServingThreads(
            [ServingThread { handle: Handle::current(), load: Arc::default(), peak: AtomicUsize::default() }].into(),
        )
    }

    /// Starts one thread per core that this process may use. Each thread reports to the watchdog.
    pub(super) fn start(watchdog: &Arc<Watchdog>) -> io::Result<(ServingThreads, ServingThreadsGuard)> {
        let count = processors::count().min(MAX_SERVING_THREADS);
        let (mut threads, mut end_signals) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for number in 0..count {
            // All runtimes together have as many threads for blocking work as one shared runtime would.
            let blocking = (MAX_BLOCKING_THREADS / count).max(1);
            let mut builder = Builder::new_current_thread();
            builder.max_blocking_threads(blocking).event_interval(TASKS_PER_DRIVER_POLL);
            let runtime = runtime::build_runtime(&mut builder)?;
            let (end, ended) = oneshot::channel::<()>();
            threads.push(ServingThread {
                handle: runtime.handle().clone(),
                load: Arc::default(),
                peak: AtomicUsize::default(),
            });
            end_signals.push(end);
            let watchdog = Arc::clone(watchdog);
            let thread_main = move || {
                runtime.block_on(async {
                    tokio::spawn(turn::resume_queued());
                    // An error means that the sender was dropped, which also ends the thread.
                    let _ = watchdog.register().beat_while(ended).await;
                });
                // The shutdown of their listener has already cut the connections that are still open.
                runtime.shutdown_background();
            };
            thread::Builder::new().name(format!("serve-{number}")).spawn(thread_main)?;
        }
        let threads = ServingThreads(threads.into());
        if let Some(first) = threads.0.first() {
            let counted = threads.clone();
            first.handle.spawn(reclaim::return_memory(move || {
                let peak = counted.take_peak_connections();
                (peak, counted.connections())
            }));
        }
        Ok((threads, ServingThreadsGuard { _end_signals: end_signals }))
    }

    /// Runs `future` on the first serving thread and waits for its result.
    pub(super) async fn run_on_first<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        self.0[0].handle.spawn(future).await.map_err(io::Error::other)
    }

    /// Returns the number of connections on all threads.
    pub(super) fn connections(&self) -> usize {
        self.0.iter().map(|thread| thread.load.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sum of the threads' peaks since the last call: an upper bound of the largest number of connections
    /// on all threads, because the peaks were perhaps not at the same time.
    fn take_peak_connections(&self) -> usize {
        let take_peak =
            |thread: &ServingThread| thread.peak.swap(thread.load.load(Ordering::Relaxed), Ordering::Relaxed);
        self.0.iter().map(take_peak).sum()
    }

    /// Selects the thread with the fewest connections for the next one, and counts it there. The handle is `None` if
    /// that is the first thread, on which the caller runs.
    pub(super) fn assign(&self) -> (Option<&Handle>, ThreadConnectionGuard) {
        let (index, least_loaded) = self
            .0
            .iter()
            .enumerate()
            .min_by_key(|(_, thread)| thread.load.load(Ordering::Relaxed))
            .unwrap_or((0, &self.0[0]));
        let load = least_loaded.load.fetch_add(1, Ordering::Relaxed) + 1;
        least_loaded.peak.fetch_max(load, Ordering::Relaxed);
        ((index > 0).then_some(&least_loaded.handle), ThreadConnectionGuard(Arc::clone(&least_loaded.load)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_is_assigned_to_the_least_loaded_thread_and_counts_until_it_closes() {
        let thread = || ServingThread { handle: Handle::current(), load: Arc::default(), peak: AtomicUsize::default() };
        let threads = ServingThreads([thread(), thread(), thread()].into());
        let loads = || -> Vec<usize> { threads.0.iter().map(|thread| thread.load.load(Ordering::Relaxed)).collect() };
        let mut assigned: Vec<ThreadConnectionGuard> = Vec::new();
        for (is_other_thread, expected) in
            [(false, [1, 0, 0]), (true, [1, 1, 0]), (true, [1, 1, 1]), (false, [2, 1, 1])]
        {
            let (handle, load) = threads.assign();
            assert_eq!((handle.is_some(), loads()), (is_other_thread, expected.to_vec()));
            assigned.push(load);
        }
        assert_eq!((threads.connections(), threads.take_peak_connections()), (4, 4));
        drop(assigned.remove(2));
        assert_eq!((loads(), threads.connections()), (vec![2, 1, 0], 3));
        let (handle, load) = threads.assign();
        assert_eq!((handle.is_some(), loads()), (true, vec![2, 1, 1]));
        drop((load, assigned));
        assert_eq!((loads(), threads.connections()), (vec![0, 0, 0], 0));
        // A peak counts though it is over, and once.
        assert_eq!((threads.take_peak_connections(), threads.take_peak_connections()), (4, 0));
        let single = ServingThreads::on_current_runtime();
        assert!(single.assign().0.is_none(), "there is no other thread");
        assert_eq!(threads.run_on_first(async { 7 }).await.unwrap(), 7);
    }
}
