//! Results that concurrent requests for sitemaps share: the sitemap of a folder, and the head of a branch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore};

use docwharf_base::error_chain::ErrorChain;

use super::domain::Domain;
use super::source::{GitSource, JobContext, git};

/// The time for which a request without a key may wait for others.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the last known head of a repository is reused.
const BRANCH_HEAD_MAX_AGE: Duration = Duration::from_secs(5);

/// The sitemap of a folder as text, with its entity tag.
#[derive(Debug)]
pub(super) struct FolderSitemap {
    pub(super) tag: String,
    pub(super) text: String,
}

/// The folder cannot be read; the reason is in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct SiteUnreadable;

/// The shared computation of the sitemap of a project's folder.
#[derive(Debug, Default)]
pub(super) struct SharedFolderSitemap(pub(super) SharedComputation<Result<Arc<FolderSitemap>, SiteUnreadable>>);

/// An expensive result that concurrent requests share. One computation runs at a time, and every request that arrived
/// before it started gets its result. So no request gets a result whose computation started before the request arrived,
/// and each request waits for two computations at most, however many there are.
#[derive(Debug)]
pub(super) struct SharedComputation<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Default for SharedComputation<T> {
    fn default() -> SharedComputation<T> {
        SharedComputation(Arc::default())
    }
}

impl<T: Clone + Send + 'static> SharedComputation<T> {
    /// Returns the shared result, or computes it with a permit of `permits`; `None` if that takes too long or panics.
    pub(super) async fn get(
        &self,
        permits: &Arc<Semaphore>,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let arrived = Instant::now();
        let mut latest = tokio::time::timeout(WAIT_TIMEOUT, Arc::clone(&self.0).lock_owned()).await.ok()?;
        if let Some((_, result)) = latest.as_ref().filter(|(started, _)| *started >= arrived) {
            return Some(result.clone());
        }
        let permit = tokio::time::timeout(WAIT_TIMEOUT, Arc::clone(permits).acquire_owned()).await.ok()?.ok()?;
        let computation = tokio::task::spawn_blocking(move || {
            // The permit is released at the end of the computation, even if the request was cancelled.
            let _permit = permit;
            let started = Instant::now();
            let result = compute();
            *latest = Some((started, result.clone()));
            (started, result)
        });
        let (started, result) = computation.await.ok()?;
        // After this time no waiting request can use the result, which may be large, so it is removed.
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(WAIT_TIMEOUT).await;
            let mut latest = shared.lock().await;
            latest.take_if(|(latest_start, _)| *latest_start == started);
        });
        Some(result)
    }
}

/// The time of the latest look-up of a branch, and the head that it found.
type LatestLookup = Option<(Instant, Option<String>)>;

/// The head of a project's branch, as last read from the repository. One look-up runs at a time, and concurrent
/// requests share its result.
#[derive(Debug, Default)]
pub(super) struct CachedBranchHead {
    latest: Arc<Mutex<LatestLookup>>,
}

impl CachedBranchHead {
    /// Returns the head, or `None` if the repository cannot be read or has no such branch. `Err` if the look-up takes
    /// too long or panics.
    pub(super) async fn look_up(&self, git: &GitSource, domain: &Domain) -> Result<Option<String>, ()> {
        let latest = tokio::time::timeout(WAIT_TIMEOUT, Arc::clone(&self.latest).lock_owned()).await.map_err(drop)?;
        if let Some((_, head)) = latest.as_ref().filter(|(time, _)| time.elapsed() < BRANCH_HEAD_MAX_AGE) {
            return Ok(head.clone());
        }
        let (git, domain) = (git.clone(), domain.clone());
        let lookup = tokio::task::spawn_blocking(move || {
            let mut latest = latest;
            let head = match git::list_branches(&git, &JobContext::default()) {
                Ok(mut heads) => heads.remove(&git.branch),
                Err(reason) => {
                    tracing::error!("cannot list the branches of {domain}: {}", ErrorChain(&reason));
                    None
                }
            };
            *latest = Some((Instant::now(), head.clone()));
            head
        });
        tokio::time::timeout(WAIT_TIMEOUT, lookup).await.map_err(drop)?.map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use docwharf_base::model::deployment::OutboundPolicy;

    use super::*;

    // Regression: clients with many connections and no key kept agents from reading sitemaps.
    #[tokio::test]
    async fn concurrent_sitemap_requests_share_at_most_two_computations() {
        let (shared, permits) = (Arc::new(SharedComputation::default()), Arc::new(Semaphore::new(4)));
        let (computations, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let request = |released: Option<mpsc::Receiver<()>>, started: Option<tokio::sync::oneshot::Sender<()>>| {
            let (shared, permits) = (Arc::clone(&shared), Arc::clone(&permits));
            let (computations, requests) = (Arc::clone(&computations), Arc::clone(&requests));
            tokio::spawn(async move {
                requests.fetch_add(1, Ordering::SeqCst);
                let compute = move || {
                    if let Some(started) = started {
                        let _ = started.send(());
                    }
                    if let Some(released) = released {
                        let _ = released.recv();
                    }
                    computations.fetch_add(1, Ordering::SeqCst)
                };
                shared.get(&permits, compute).await
            })
        };
        let ((release, released), (started, start)) = (mpsc::channel(), tokio::sync::oneshot::channel());
        let first = request(Some(released), Some(started));
        start.await.unwrap();
        let others: Vec<_> = (0..100).map(|_| request(None, None)).collect();
        // The test has one thread, on which each task runs until it waits.
        while requests.load(Ordering::SeqCst) <= others.len() {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Some(0));
        for other in others {
            assert_eq!(other.await.unwrap(), Some(1), "the computation of its result started after the request");
        }
        assert_eq!(computations.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_cached_branch_head_is_read_again_only_after_its_maximum_age() {
        let dir = tempfile::tempdir().unwrap();
        let git = GitSource {
            repository: dir.path().join("absent").display().to_string(),
            branch: "main".to_owned(),
            build: None,
            output: None,
            tools: Vec::new(),
            allows_network: false,
            allows_no_sandbox: false,
            max_duration: Duration::from_mins(1),
            max_bytes: 1 << 20,
            max_memory_bytes: 1 << 30,
            max_processes: 64,
            outbound_policy: OutboundPolicy::Any,
        };
        let domain = Domain::parse("docs.example").unwrap();
        let known_for = |age: Duration| {
            let read_at = Instant::now().checked_sub(age).unwrap();
            CachedBranchHead { latest: Arc::new(Mutex::new(Some((read_at, Some("head".to_owned()))))) }
        };
        let known = known_for(Duration::ZERO);
        assert_eq!(known.look_up(&git, &domain).await, Ok(Some("head".to_owned())));
        let too_old = known_for(BRANCH_HEAD_MAX_AGE);
        assert_eq!(too_old.look_up(&git, &domain).await, Ok(None), "the repository is asked, and there is none");
    }
}
