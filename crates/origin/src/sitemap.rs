//! Sitemaps, by which a client without a key can find out whether a site has changed.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::percent_decode_str;

use docwharf_base::error_chain::ErrorChain;
use docwharf_serve::conditional::{self, ContentDates, PreconditionOutcome};

use super::body::ApiBody;
use super::domain::Domain;
use super::responses::{empty_response, error, nothing_here, set_field, text, try_later};
use super::server::OriginServer;
use super::site_survey::SiteSurvey;
use super::sitemap_cache::{FolderSitemap, SiteUnreadable};
use super::source::ProjectSource;

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

fn busy() -> Response<ApiBody> {
    try_later(StatusCode::SERVICE_UNAVAILABLE, "too many requests for sitemaps at the moment")
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
