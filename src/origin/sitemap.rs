//! Sitemaps, which tell without a key whether a site has changed.

use http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::percent_decode_str;

use crate::base::chain::Chain;
use crate::serve::conditional::{self, Dated, Verdict};

use super::answers::{bare, error, nothing_here, set, text, try_later};
use super::body::Body;
use super::source::{Source, Watch, git};
use super::survey::Survey;
use super::{Domain, Origin};

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
                crawl.start.host_str().unwrap_or_default()
            );
            return error(StatusCode::NOT_FOUND, &why);
        }
    };
    let Ok(_turn) = origin.sitemaps.acquire().await else { return nothing_here() };
    let (path, limits) = (path.clone(), origin.effort.limits);
    let survey = tokio::task::spawn_blocking(move || Survey::of(&path, &limits)).await;
    let survey = match survey {
        Ok(Ok(survey)) => survey,
        Ok(Err(why)) => return unreadable(domain, &Chain(&why)),
        Err(why) => return unreadable(domain, &why),
    };
    conditional_answer(&survey.tag(), || survey.sitemap(domain), headers)
}

/// Whoever asks for the sitemap of a branch learns whether its head is another one.
async fn of_git(origin: &Origin, domain: &Domain, project: &str, headers: &HeaderMap) -> Response<Body> {
    let Source::Git(git) = &origin.projects[project].source else { return nothing_here() };
    let Ok(_turn) = origin.sitemaps.acquire().await else { return nothing_here() };
    let (asked, branch) = (git.clone(), git.branch.clone());
    let heads = tokio::task::spawn_blocking(move || git::branches(&asked, &Watch::default())).await;
    let heads = match heads {
        Ok(Ok(heads)) => heads,
        Ok(Err(why)) => return unreadable(domain, &Chain(&why)),
        Err(why) => return unreadable(domain, &why),
    };
    let Some(head) = heads.get(&branch) else { return unreadable(domain, &format!("there is no branch {branch}")) };
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
