//! Sitemaps, which tell without a key whether a site has changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::sync::{Mutex, Semaphore};

use docwharf_base::chain::Chain;
use docwharf_serve::conditional::{self, Dated, Verdict};

use super::answers::{bare, error, nothing_here, set, text, try_later};
use super::body::Body;
use super::source::{Git, Source, Watch, git};
use super::survey::Survey;
use super::{Domain, Origin};

/// How long somebody without a key may wait for others.
const PATIENCE: Duration = Duration::from_secs(5);
/// For how long an answer of a repository is as good as a new one.
const FRESH: Duration = Duration::from_secs(5);

pub(super) async fn sitemap(origin: &Origin, domain: &str, headers: &HeaderMap) -> Response<Body> {
    let domain = percent_decode_str(domain).decode_utf8_lossy();
    let found = Domain::parse(&domain).ok().and_then(|domain| origin.domains.get_key_value(&domain));
    let Some((domain, (_, project))) = found else {
        return error(StatusCode::NOT_FOUND, "no site of that domain is served here");
    };
    let path = match &origin.projects[project].source {
        Source::Directory(path) => path,
        Source::Git(_) => return of_git(origin, domain, project, headers).await,
        Source::Crawl(_) => {
            let why = "this project is crawled from a running site: request the sitemap from that site";
            return error(StatusCode::NOT_FOUND, why);
        }
    };
    let Some(survey) = origin.surveys.get(project) else { return nothing_here() };
    let (path, limits, name) = (path.clone(), origin.effort.limits, domain.clone());
    let look = move || match Survey::of(&path, &limits) {
        Ok(survey) => Ok(Arc::new(FolderSitemap { tag: survey.tag(), text: survey.sitemap(&name) })),
        Err(why) => {
            tracing::error!("cannot list the site of {name}: {}", Chain(&why));
            Err(Unreadable)
        }
    };
    match survey.0.get(&origin.sitemaps, look).await {
        Some(Ok(sitemap)) => conditional_answer(&sitemap.tag, || sitemap.text.clone(), headers),
        Some(Err(Unreadable)) => cannot_read(),
        None => busy(),
    }
}

/// The sitemap of a folder.
#[derive(Debug)]
struct FolderSitemap {
    tag: String,
    text: String,
}

/// The log says why.
#[derive(Debug, Clone, Copy)]
struct Unreadable;

/// The sitemap of a project's folder.
#[derive(Debug, Default)]
pub(super) struct FolderSurvey(SharedAnswer<Result<Arc<FolderSitemap>, Unreadable>>);

/// An answer that takes time to make and is made for all who wait for it: one makes it at a time, and whoever came before
/// that began gets the same. So nobody is told what was so before it asked, and however many ask, each of them waits for two
/// answers to be made at most.
#[derive(Debug)]
struct SharedAnswer<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Default for SharedAnswer<T> {
    fn default() -> SharedAnswer<T> {
        SharedAnswer(Arc::default())
    }
}

impl<T: Clone + Send + 'static> SharedAnswer<T> {
    /// None if that takes too long.
    async fn get(&self, turns: &Arc<Semaphore>, make: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let came = Instant::now();
        let mut known = tokio::time::timeout(PATIENCE, Arc::clone(&self.0).lock_owned()).await.ok()?;
        if let Some((_, answer)) = known.as_ref().filter(|(began, _)| *began >= came) {
            return Some(answer.clone());
        }
        let turn = tokio::time::timeout(PATIENCE, Arc::clone(turns).acquire_owned()).await.ok()?.ok()?;
        let making = tokio::task::spawn_blocking(move || {
            // Given up when the work is done, also if whoever asked has gone.
            let _turn = turn;
            let began = Instant::now();
            let answer = make();
            *known = Some((began, answer.clone()));
            (began, answer)
        });
        let (began, answer) = making.await.ok()?;
        // Nobody is left after this time who could still want it, and it may be large.
        let kept = Arc::clone(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            let mut known = kept.lock().await;
            known.take_if(|(other, _)| *other == began);
        });
        Some(answer)
    }
}

fn busy() -> Response<Body> {
    try_later(StatusCode::SERVICE_UNAVAILABLE, "too many ask for sitemaps just now")
}

/// When somebody has asked, and what he got.
type Known = Option<(Instant, Option<String>)>;

/// The head of a project's branch when it was last asked for. One asks at a time; the others get his answer.
#[derive(Debug, Default)]
pub(super) struct Head {
    known: Arc<Mutex<Known>>,
}

impl Head {
    /// The head, none if the repository cannot be read or has no such branch; `Err` if that takes too long.
    async fn of(&self, git: &Git, domain: &Domain) -> Result<Option<String>, ()> {
        let known = tokio::time::timeout(PATIENCE, Arc::clone(&self.known).lock_owned()).await.map_err(drop)?;
        if let Some((_, head)) = known.as_ref().filter(|(when, _)| when.elapsed() < FRESH) {
            return Ok(head.clone());
        }
        let (git, domain) = (git.clone(), domain.clone());
        let asking = tokio::task::spawn_blocking(move || {
            let mut known = known;
            let head = match git::branches(&git, &Watch::default()) {
                Ok(mut heads) => heads.remove(&git.branch),
                Err(why) => {
                    tracing::error!("cannot list the branches of {domain}: {}", Chain(&why));
                    None
                }
            };
            *known = Some((Instant::now(), head.clone()));
            head
        });
        tokio::time::timeout(PATIENCE, asking).await.map_err(drop)?.map_err(drop)
    }
}

/// Whoever asks for the sitemap of a branch learns whether its head is another one.
async fn of_git(origin: &Origin, domain: &Domain, project: &str, headers: &HeaderMap) -> Response<Body> {
    let (Source::Git(git), Some(head)) = (&origin.projects[project].source, origin.heads.get(project)) else {
        return nothing_here();
    };
    let head = match head.of(git, domain).await {
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

fn conditional_answer(tag: &str, body: impl FnOnce() -> String, headers: &HeaderMap) -> Response<Body> {
    // There is no one time of change: a deletion leaves none. So only tags count.
    let mut conditions = headers.clone();
    conditions.remove(IF_MODIFIED_SINCE);
    conditions.remove(IF_UNMODIFIED_SINCE);
    let mut response = match conditional::judge(&conditions, tag, Dated::once(0)) {
        Verdict::Proceed => text(StatusCode::OK, "application/xml", body()),
        Verdict::NotModified => bare(StatusCode::NOT_MODIFIED),
        Verdict::Failed => error(StatusCode::PRECONDITION_FAILED, "the site is not, or no longer, what If-Match names"),
    };
    set(response.headers_mut(), ETAG, tag);
    set(response.headers_mut(), CACHE_CONTROL, "no-cache");
    response
}

/// A stranger is not told where sites lie; the log is.
fn unreadable(domain: &Domain, why: &dyn std::fmt::Display) -> Response<Body> {
    tracing::error!("cannot list the site of {domain}: {why}");
    cannot_read()
}

fn cannot_read() -> Response<Body> {
    try_later(StatusCode::SERVICE_UNAVAILABLE, "the site cannot be read just now; the origin's log says why")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn however_many_ask_for_a_sitemap_at_once_its_folder_is_looked_at_twice() {
        let (shared, turns) = (Arc::new(SharedAnswer::default()), Arc::new(Semaphore::new(4)));
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
        // On the one thread of this test each runs until it waits.
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
