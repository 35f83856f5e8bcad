//! Results that concurrent requests for sitemaps share: the sitemap of a folder, and the head of a branch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore};

use docwharf_base::error_chain::ErrorChain;

use super::domain::Domain;
use super::source::{Git, JobContext, git};

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
    /// Returns the shared result, or computes it; `None` if that takes too long or panics.
    pub(super) async fn get(&self, turns: &Arc<Semaphore>, make: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let came = Instant::now();
        let mut known = tokio::time::timeout(WAIT_TIMEOUT, Arc::clone(&self.0).lock_owned()).await.ok()?;
        if let Some((_, answer)) = known.as_ref().filter(|(began, _)| *began >= came) {
            return Some(answer.clone());
        }
        let turn = tokio::time::timeout(WAIT_TIMEOUT, Arc::clone(turns).acquire_owned()).await.ok()?.ok()?;
        let making = tokio::task::spawn_blocking(move || {
            // The permit is released when the work is done, even if the request was cancelled.
            let _turn = turn;
            let began = Instant::now();
            let answer = make();
            *known = Some((began, answer.clone()));
            (began, answer)
        });
        let (began, answer) = making.await.ok()?;
        // After this time no waiting request can use the result, which may be large, so it is removed.
        let kept = Arc::clone(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(WAIT_TIMEOUT).await;
            let mut known = kept.lock().await;
            known.take_if(|(other, _)| *other == began);
        });
        Some(answer)
    }
}

/// The time of the last look-up of a branch, and the head that it found.
type KnownHead = Option<(Instant, Option<String>)>;

/// The head of a project's branch, as last read from the repository. One look-up runs at a time, and concurrent
/// requests share its result.
#[derive(Debug, Default)]
pub(super) struct CachedBranchHead {
    known: Arc<Mutex<KnownHead>>,
}

impl CachedBranchHead {
    /// Returns the head, or `None` if the repository cannot be read or has no such branch. `Err` if the look-up takes
    /// too long or panics.
    pub(super) async fn look_up(&self, git: &Git, domain: &Domain) -> Result<Option<String>, ()> {
        let known = tokio::time::timeout(WAIT_TIMEOUT, Arc::clone(&self.known).lock_owned()).await.map_err(drop)?;
        if let Some((_, head)) = known.as_ref().filter(|(when, _)| when.elapsed() < BRANCH_HEAD_MAX_AGE) {
            return Ok(head.clone());
        }
        let (git, domain) = (git.clone(), domain.clone());
        let asking = tokio::task::spawn_blocking(move || {
            let mut known = known;
            let head = match git::branches(&git, &JobContext::default()) {
                Ok(mut heads) => heads.remove(&git.branch),
                Err(why) => {
                    tracing::error!("cannot list the branches of {domain}: {}", ErrorChain(&why));
                    None
                }
            };
            *known = Some((Instant::now(), head.clone()));
            head
        });
        tokio::time::timeout(WAIT_TIMEOUT, asking).await.map_err(drop)?.map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn however_many_ask_for_a_sitemap_at_once_its_folder_is_looked_at_twice() {
        let (shared, turns) = (Arc::new(SharedComputation::default()), Arc::new(Semaphore::new(4)));
        let (made, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ask = |go: Option<mpsc::Receiver<()>>, begun: Option<tokio::sync::oneshot::Sender<()>>| {
            let (shared, turns) = (Arc::clone(&shared), Arc::clone(&turns));
            let (made, asked) = (Arc::clone(&made), Arc::clone(&asked));
            tokio::spawn(async move {
                asked.fetch_add(1, Ordering::SeqCst);
                let make = move || {
                    if let Some(begun) = begun {
                        let _ = begun.send(());
                    }
                    if let Some(go) = go {
                        let _ = go.recv();
                    }
                    made.fetch_add(1, Ordering::SeqCst)
                };
                shared.get(&turns, make).await
            })
        };
        let ((go, gone), (begin, begins)) = (mpsc::channel(), tokio::sync::oneshot::channel());
        let first = ask(Some(gone), Some(begin));
        begins.await.unwrap();
        let others: Vec<_> = (0..100).map(|_| ask(None, None)).collect();
        // The test has one thread, on which each task runs until it waits.
        while asked.load(Ordering::SeqCst) <= others.len() {
            tokio::task::yield_now().await;
        }
        go.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Some(0));
        for other in others {
            assert_eq!(other.await.unwrap(), Some(1), "what it is told was looked at after it had asked");
        }
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }
}
