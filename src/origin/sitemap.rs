//! Sitemaps, which tell without a key whether a site has changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::sync::{Mutex, OwnedSemaphorePermit};

use crate::base::chain::Chain;
use crate::serve::conditional::{self, Dated, Verdict};

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
        Source::Crawl(crawl) => {
            let why = format!(
                "this site tells itself when it changes: ask {} for its sitemap",
                crawl.start.origin().ascii_serialization()
            );
            return error(StatusCode::NOT_FOUND, &why);
        }
    };
    let Some(turn) = turn(origin).await else { return busy() };
    let (path, limits) = (path.clone(), origin.effort.limits);
    let survey = tokio::task::spawn_blocking(move || {
        // Given up when the work is done, also if whoever asked has gone.
        let _turn = turn;
        Survey::of(&path, &limits)
    })
    .await;
    let survey = match survey {
        Ok(Ok(survey)) => survey,
        Ok(Err(why)) => return unreadable(domain, &Chain(&why)),
        Err(why) => return unreadable(domain, &why),
    };
    conditional_answer(&survey.tag(), || survey.sitemap(domain), headers)
}

/// A turn among those who look at folders.
async fn turn(origin: &Origin) -> Option<OwnedSemaphorePermit> {
    let turn = Arc::clone(&origin.sitemaps).acquire_owned();
    tokio::time::timeout(PATIENCE, turn).await.ok()?.ok()
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
    try_later(StatusCode::SERVICE_UNAVAILABLE, "the site cannot be read just now; the origin's log says why")
}
