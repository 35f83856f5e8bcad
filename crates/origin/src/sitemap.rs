//! Sitemaps, by which a client without a key can find out whether a site has changed.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::percent_decode_str;

use docwharf_base::error_chain::ErrorChain;
use docwharf_serve::conditional::{self, ContentDates, PreconditionOutcome};

use super::body::ApiBody;
use super::domain::Domain;
use super::responses::{empty_response, error, not_found, set_field, text, try_later};
use super::server::OriginServer;
use super::site_survey::SiteSurvey;
use super::sitemap_cache::{FolderSitemap, SiteUnreadable};
use super::source::ProjectSource;

/// Responds with the sitemap of the site with this domain.
pub(super) async fn respond_with_sitemap(
    origin: &OriginServer,
    domain: &str,
    headers: &HeaderMap,
) -> Response<ApiBody> {
    let domain = percent_decode_str(domain).decode_utf8_lossy();
    let domain_entry = Domain::parse(&domain).ok().and_then(|domain| origin.domains.get_key_value(&domain));
    let Some((domain, (_, project))) = domain_entry else {
        return error(StatusCode::NOT_FOUND, "no site of this domain is served here");
    };
    let path = match &origin.projects[project].source {
        ProjectSource::FolderOrArchive(path) => path,
        ProjectSource::Git(_) => return git_sitemap(origin, domain, project, headers).await,
        ProjectSource::Crawl(_) => {
            let reason = "this project is crawled from a running site: request the sitemap from that site";
            return error(StatusCode::NOT_FOUND, reason);
        }
    };
    let Some(shared_sitemap) = origin.folder_sitemaps.get(project) else { return not_found() };
    let (path, limits, name) = (path.clone(), origin.seal_options.limits, domain.clone());
    let create_sitemap = move || match SiteSurvey::read(&path, &limits) {
        Ok(survey) => Ok(Arc::new(FolderSitemap { tag: survey.entity_tag(), text: survey.to_sitemap(&name) })),
        Err(reason) => {
            tracing::error!("cannot list the site of {name}: {}", ErrorChain(&reason));
            Err(SiteUnreadable)
        }
    };
    match shared_sitemap.0.get(&origin.sitemap_permits, create_sitemap).await {
        Some(Ok(sitemap)) => conditional_response(&sitemap.tag, || sitemap.text.clone(), headers),
        Some(Err(SiteUnreadable)) => site_unreadable(),
        None => sitemaps_busy(),
    }
}

fn sitemaps_busy() -> Response<ApiBody> {
    try_later(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many requests for sitemaps at the moment; try again in a few seconds",
    )
}

/// Responds to a request for the sitemap of a project with a repository. Its entity tag is the head of the branch, so
/// that a client can detect a change.
async fn git_sitemap(origin: &OriginServer, domain: &Domain, project: &str, headers: &HeaderMap) -> Response<ApiBody> {
    let (ProjectSource::Git(git), Some(head)) = (&origin.projects[project].source, origin.branch_heads.get(project))
    else {
        return not_found();
    };
    let head = match head.look_up(git, domain).await {
        Ok(Some(head)) => head,
        Ok(None) => return log_site_unreadable(domain, &"its repository cannot be read, or has no such branch"),
        Err(()) => return sitemaps_busy(),
    };
    let text = || {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- head of the branch: {head} -->\n\
             <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n\
             <url><loc>https://{domain}/</loc></url>\n</urlset>\n"
        )
    };
    conditional_response(&format!("\"{head}\""), text, headers)
}

fn conditional_response(tag: &str, body: impl FnOnce() -> String, headers: &HeaderMap) -> Response<ApiBody> {
    // There is no single modification time: a deletion leaves none. So only the conditions on entity tags apply.
    let mut conditions = headers.clone();
    conditions.remove(IF_MODIFIED_SINCE);
    conditions.remove(IF_UNMODIFIED_SINCE);
    let mut response = match conditional::evaluate_preconditions(&conditions, tag, ContentDates::never_replaced(0)) {
        PreconditionOutcome::Proceed => text(StatusCode::OK, "application/xml", body()),
        PreconditionOutcome::NotModified => empty_response(StatusCode::NOT_MODIFIED),
        PreconditionOutcome::Failed => {
            error(StatusCode::PRECONDITION_FAILED, "the entity tag of the site is not one of If-Match")
        }
    };
    set_field(response.headers_mut(), ETAG, tag);
    set_field(response.headers_mut(), CACHE_CONTROL, "no-cache");
    response
}

/// Logs the reason and creates the 503 response for a site that cannot be read. The reason goes to the log only,
/// because clients without a key must not learn where sites are stored.
fn log_site_unreadable(domain: &Domain, reason: &dyn std::fmt::Display) -> Response<ApiBody> {
    tracing::error!("cannot list the site of {domain}: {reason}");
    site_unreadable()
}

fn site_unreadable() -> Response<ApiBody> {
    try_later(
        StatusCode::SERVICE_UNAVAILABLE,
        "the site cannot be read at the moment; the log of the origin has the reason",
    )
}
