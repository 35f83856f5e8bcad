//! Sitemaps, by which a client without a key can find out whether a site has changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::sync::{Mutex, Semaphore};

use docwharf_base::error_chain::ErrorChain;
use docwharf_serve::conditional::{self, ContentDates, PreconditionOutcome};

use super::body::ApiBody;
use super::responses::{empty_response, error, nothing_here, set_field, text, try_later};
use super::site_survey::SiteSurvey;
use super::source::{Git, JobContext, ProjectSource, git};
use super::{Domain, OriginServer};

/// The time for which a request without a key may wait for others.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the last known head of a repository is reused.
const BRANCH_HEAD_MAX_AGE: Duration = Duration::from_secs(5);

pub(super) async fn sitemap(origin: &OriginServer, domain: &str, headers: &HeaderMap) -> Response<ApiBody> {
    let domain = percent_decode_str(domain).decode_utf8_lossy();
    let found = Domain::parse(&domain).ok().and_then(|domain| origin.domains.get_key_value(&domain));
    let Some((domain, (_, project))) = found else {
        return error(StatusCode::NOT_FOUND, "no site of that domain is served here");
    };
    let path = match &origin.projects[project].source {
        ProjectSource::Directory(path) => path,
        ProjectSource::Git(_) => return git_sitemap(origin, domain, project, headers).await,
        ProjectSource::Crawl(_) => {
            let why = "this project is crawled from a running site: request the sitemap from that site";
            return error(StatusCode::NOT_FOUND, why);
        }
    };
    let Some(survey) = origin.folder_sitemaps.get(project) else { return nothing_here() };
    let (path, limits, name) = (path.clone(), origin.effort.limits, domain.clone());
    let look = move || match SiteSurvey::read(&path, &limits) {
        Ok(survey) => Ok(Arc::new(FolderSitemap { tag: survey.entity_tag(), text: survey.sitemap(&name) })),
        Err(why) => {
            tracing::error!("cannot list the site of {name}: {}", ErrorChain(&why));
            Err(SiteUnreadable)
        }
    };
    match survey.0.get(&origin.sitemaps, look).await {
        Some(Ok(sitemap)) => conditional_answer(&sitemap.tag, || sitemap.text.clone(), headers),
        Some(Err(SiteUnreadable)) => cannot_read(),
        None => busy(),
    }
}

/// The sitemap of a folder as text, with its entity tag.
#[derive(Debug)]
struct FolderSitemap {
    tag: String,
    text: String,
}

/// The folder cannot be read; the reason is in the log.
#[derive(Debug, Clone, Copy)]
struct SiteUnreadable;

/// The shared computation of the sitemap of a project's folder.
#[derive(Debug, Default)]
pub(super) struct SharedFolderSitemap(SharedComputation<Result<Arc<FolderSitemap>, SiteUnreadable>>);

/// An expensive result that concurrent requests share. One computation runs at a time, and every request that arrived
/// before it started gets its result. So no request gets a result whose computation started before the request arrived,
/// and each request waits for two computations at most, however many there are.
#[derive(Debug)]
struct SharedComputation<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Default for SharedComputation<T> {
    fn default() -> SharedComputation<T> {
        SharedComputation(Arc::default())
    }
}

impl<T: Clone + Send + 'static> SharedComputation<T> {
    /// Returns the shared result, or computes it; `None` if that takes too long or panics.
    async fn get(&self, turns: &Arc<Semaphore>, make: impl FnOnce() -> T + Send + 'static) -> Option<T> {
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

fn busy() -> Response<ApiBody> {
    try_later(StatusCode::SERVICE_UNAVAILABLE, "too many requests for sitemaps at the moment")
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
    async fn look_up(&self, git: &Git, domain: &Domain) -> Result<Option<String>, ()> {
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

/// Answers a request for the sitemap of a project with a repository. Its entity tag is the head of the branch, so that
/// a client can detect a change.
async fn git_sitemap(origin: &OriginServer, domain: &Domain, project: &str, headers: &HeaderMap) -> Response<ApiBody> {
    let (ProjectSource::Git(git), Some(head)) = (&origin.projects[project].source, origin.branch_heads.get(project))
    else {
        return nothing_here();
    };
    let head = match head.look_up(git, domain).await {
        Ok(Some(head)) => head,
        Ok(None) => return unreadable(domain, &"its repository cannot be read, or has no such branch"),
        Err(()) => return busy(),
    };
    let text = || {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- head of the branch: {head} -->\n\
             <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n\
             <url><loc>https://{domain}/</loc></url>\n</urlset>\n"
        )
    };
    conditional_answer(&format!("\"{head}\""), text, headers)
}

fn conditional_answer(tag: &str, body: impl FnOnce() -> String, headers: &HeaderMap) -> Response<ApiBody> {
    // There is no single modification time: a deletion leaves none. So only the conditions on entity tags apply.
    let mut conditions = headers.clone();
    conditions.remove(IF_MODIFIED_SINCE);
    conditions.remove(IF_UNMODIFIED_SINCE);
    let mut response = match conditional::evaluate_preconditions(&conditions, tag, ContentDates::never_replaced(0)) {
        PreconditionOutcome::Proceed => text(StatusCode::OK, "application/xml", body()),
        PreconditionOutcome::NotModified => empty_response(StatusCode::NOT_MODIFIED),
        PreconditionOutcome::Failed => {
            error(StatusCode::PRECONDITION_FAILED, "the site is not, or no longer, what If-Match names")
        }
    };
    set_field(response.headers_mut(), ETAG, tag);
    set_field(response.headers_mut(), CACHE_CONTROL, "no-cache");
    response
}

/// Creates the 503 response for a site that cannot be read. The reason goes to the log only, because clients without a
/// key must not learn where sites are stored.
fn unreadable(domain: &Domain, why: &dyn std::fmt::Display) -> Response<ApiBody> {
    tracing::error!("cannot list the site of {domain}: {why}");
    cannot_read()
}

fn cannot_read() -> Response<ApiBody> {
    try_later(StatusCode::SERVICE_UNAVAILABLE, "the site cannot be read just now; the origin's log says why")
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
