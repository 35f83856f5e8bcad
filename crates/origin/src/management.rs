//! The operations below `/v1`, for clients that are authenticated.

use std::time::{Duration, Instant, SystemTime};

use http::request::Parts;
use http::{Response, StatusCode};

use docwharf_analytics::{searches, views};
use docwharf_base::clock::{format_system_time, unix_seconds};
use docwharf_base::error_chain::{ErrorChain, QuotedName};

use super::analytics::{self, AnalyticsError, BatchRefusal};
use super::api_keys::AuthenticatedClient;
use super::api_types::{BundleLink, PreviewStarted};
use super::body::ApiBody;
use super::exports::{BundleLookup, QueueJobError};
use super::limits::SharedResource;
use super::operations::Operation;
use super::previews::DeployError;
use super::requests;
use super::resource_pools::LimitReached;
use super::responses::{error, error_with_details, error_with_retry, job_not_found, json, try_later, unavailable};
use super::server::OriginServer;
use super::settings::OriginProject;
use super::source::ProjectSource;

/// The time for which an analytics query waits for others to end.
const QUERY_WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs an operation that uses GET. The response for data of another organization is the same as for data that does not
/// exist.
pub(super) fn run_get_operation(
    origin: &OriginServer,
    operation: Operation,
    value: &str,
    head: &Parts,
    client: &AuthenticatedClient,
) -> Response<ApiBody> {
    match operation {
        Operation::ExportStatus => match origin.export_jobs.job_status(value, &client.organization) {
            Ok(Some(job)) => json(StatusCode::OK, &job),
            Ok(None) => job_not_found(),
            Err(reason) => unavailable("look up a job", &ErrorChain(&reason)),
        },
        Operation::PreviewStatus => match origin.preview_service.status(value) {
            Ok(Some(deployment)) if deployment.organization == client.organization => json(StatusCode::OK, &deployment),
            Ok(_) => error(StatusCode::NOT_FOUND, "no such deployment; it may be too old; deploy the branch again"),
            Err(reason) => unavailable("look up a deployment", &ErrorChain(&reason)),
        },
        Operation::Searches | Operation::Views | Operation::PageCounts => {
            query_analytics(origin, operation, value, head, client).unwrap_or_else(|refusal| *refusal)
        }
        // The table has no other operation with GET.
        _ => super::responses::not_found(),
    }
}

/// Makes the checks that need no body: fails if the rate limit is exceeded or the project belongs to another
/// organization.
pub(super) fn check_before_body(
    origin: &OriginServer,
    operation: Operation,
    value: &str,
    client: &AuthenticatedClient,
) -> Result<(), ErrorResponse> {
    let (rate_limiter, reason) = match operation {
        Operation::ReceiveBatch | Operation::ReceiveViewBatch => (
            &origin.batch_rate_limiter,
            "an organization may send 10,000 batches an hour; put more into each batch, and try again later",
        ),
        Operation::StartPreview => {
            (&origin.preview_rate_limiter, "an organization may request 5 previews a minute; try again later")
        }
        _ => return Ok(()),
    };
    if let Err(wait) = rate_limiter.use_one(&client.organization, Instant::now()) {
        return Err(Box::new(error_with_retry(StatusCode::TOO_MANY_REQUESTS, reason, wait)));
    }
    find_project(origin, value, client).map(drop)
}

/// Runs an operation that uses POST.
pub(super) fn run_post_operation(
    origin: &OriginServer,
    operation: Operation,
    value: &str,
    head: &Parts,
    body: &[u8],
    client: &AuthenticatedClient,
) -> Response<ApiBody> {
    let result = match operation {
        Operation::StartExport => start_export(origin, body, client),
        Operation::CreateBundleLink => create_link(origin, value, head, client),
        Operation::StartPreview => start_preview(origin, value, head, body, client),
        Operation::ReceiveBatch => receive_batch(origin, value, body, client),
        Operation::ReceiveViewBatch => receive_view_batch(origin, value, body, client),
        _ => Err(Box::new(super::responses::not_found())),
    };
    result.unwrap_or_else(|refusal| *refusal)
}

/// An error response. It is boxed because responses are large and errors are rare.
type ErrorResponse = Box<Response<ApiBody>>;
type OperationResult = Result<Response<ApiBody>, ErrorResponse>;

/// Returns the project of this id if it belongs to the client's organization.
fn find_project<'a>(
    origin: &'a OriginServer,
    id: &str,
    client: &AuthenticatedClient,
) -> Result<&'a OriginProject, ErrorResponse> {
    let owner = origin.owners.get(id).filter(|owner| **owner == client.organization);
    owner.and_then(|_| origin.projects.get(id)).ok_or_else(|| refusal(StatusCode::NOT_FOUND, "no such project"))
}

fn start_export(origin: &OriginServer, body: &[u8], client: &AuthenticatedClient) -> OperationResult {
    let bad_request = |reason: &str| refusal(StatusCode::BAD_REQUEST, reason);
    let request = requests::parse_export_request(body).map_err(|reason| bad_request(&reason))?;
    let domain_entry = origin.domains.get(&request.domain).filter(|(owner, _)| *owner == client.organization);
    let (_, project_id) =
        domain_entry.ok_or_else(|| bad_request(&format!("bad domain: {} is not served here", request.domain)))?;
    let project = &origin.projects[project_id];
    if !project.allows_exports {
        return Err(refusal(
            StatusCode::FORBIDDEN,
            "static exports are not enabled for this project (exports = false)",
        ));
    }
    let version = request.version.map(|label| label.as_str().to_owned());
    match origin.export_jobs.enqueue_job(project, &client.organization, version, request.paths) {
        Ok(job) => Ok(json(StatusCode::ACCEPTED, &job)),
        Err(reason) => Err(Box::new(match reason {
            QueueJobError::Full(LimitReached::Organization) => {
                let reason = "too many jobs of your organization are waiting (limits.organization.waitingJobs); start this one later";
                try_later(StatusCode::TOO_MANY_REQUESTS, reason)
            }
            QueueJobError::Full(LimitReached::Total) => {
                let reason = "too many jobs are waiting (limits.total.waitingJobs); start this one later";
                try_later(StatusCode::TOO_MANY_REQUESTS, reason)
            }
            QueueJobError::NoId(reason) => unavailable("create an id for a job", &reason),
            QueueJobError::Database(reason) => unavailable("write a job to the database", &ErrorChain(&reason)),
        })),
    }
}

/// Creates a link to the bundle of a completed job.
fn create_link(origin: &OriginServer, job: &str, head: &Parts, client: &AuthenticatedClient) -> OperationResult {
    let bundle = match origin.export_jobs.find_bundle(job, Some(&client.organization)) {
        Ok(BundleLookup::Found(bundle)) => bundle,
        Ok(BundleLookup::Unknown) => return Err(Box::new(job_not_found())),
        Ok(BundleLookup::NotReady(status)) if status == "failed" => {
            let reason = "the job has failed, so it has no bundle; start another one";
            return Err(refusal(StatusCode::CONFLICT, reason));
        }
        Ok(BundleLookup::NotReady(status)) => {
            let reason = format!("the job is {status}; request the link again when it is completed");
            return Err(refusal(StatusCode::CONFLICT, &reason));
        }
        Err(reason) => return Err(Box::new(unavailable("look up a job", &ErrorChain(&reason)))),
    };
    let base_url = link_base_url(origin, head)?;
    origin.link_rate_limiter.use_amount(&client.organization, 1, Instant::now()).map_err(|exceeded| {
        origin.pools.pool(SharedResource::DownloadLinks).count_refusal();
        let reason = match exceeded.limit {
            LimitReached::Organization => {
                "your organization has created as many links within an hour as it may (limits.organization.links); try again later"
            }
            LimitReached::Total => {
                "all organizations together have created as many links within an hour as they may (limits.total.links); try again later"
            }
        };
        Box::new(error_with_retry(StatusCode::TOO_MANY_REQUESTS, reason, exceeded.wait_time))
    })?;
    let expires = SystemTime::now() + origin.link_lifetime;
    let recorded = origin.export_jobs.retain_until(job, expires);
    recorded
        .map_err(|reason| Box::new(unavailable("write the expiry of a link to the database", &ErrorChain(&reason))))?;
    let query = origin.secret.sign_link_query(job, unix_seconds(expires));
    let link = BundleLink {
        job_id: job.to_owned(),
        bundle_url: format!("{base_url}/bundles/{job}/{}?{query}", bundle.link_file_name()),
        size_bytes: bundle.len,
        expires_at: format_system_time(expires),
    };
    Ok(json(StatusCode::OK, &link))
}

/// Returns the base URL of links, or the error response if it is unknown.
fn link_base_url(origin: &OriginServer, head: &Parts) -> Result<String, ErrorResponse> {
    let reason = "the request has no Host, from which the link would be made: send a Host field, or let the operator set the \
                  public URL (server.publicUrl)";
    origin.link_base_url(head).ok_or_else(|| refusal(StatusCode::BAD_REQUEST, reason))
}

fn start_preview(
    origin: &OriginServer,
    id: &str,
    head: &Parts,
    body: &[u8],
    client: &AuthenticatedClient,
) -> OperationResult {
    let project = find_project(origin, id, client)?;
    if !project.allows_previews || !matches!(project.source, ProjectSource::Git(_)) {
        let reason = "previews are not available for this project: they need previews = true and a git source";
        return Err(refusal(StatusCode::FORBIDDEN, reason));
    }
    let branch = requests::parse_preview_request(body).map_err(|reason| refusal(StatusCode::BAD_REQUEST, &reason))?;
    let base_url = link_base_url(origin, head)?;
    let accepted = origin.preview_service.deploy(id, &branch).map_err(|reason| {
        Box::new(match reason {
            DeployError::Full => {
                try_later(StatusCode::TOO_MANY_REQUESTS, "too many previews are waiting; try again later")
            }
            DeployError::BranchName(reason) => {
                error(StatusCode::BAD_REQUEST, &format!("bad branch {}: {reason}", QuotedName(branch.as_bytes())))
            }
            reason => unavailable("deploy a preview", &ErrorChain(&reason)),
        })
    })?;
    let preview_url = origin.preview_url(&base_url, id, &accepted);
    Ok(json(StatusCode::ACCEPTED, &PreviewStarted { status_id: accepted.status_id, preview_url }))
}

/// Runs an analytics query. All of them share the limits.
fn query_analytics(
    origin: &OriginServer,
    operation: Operation,
    id: &str,
    head: &Parts,
    client: &AuthenticatedClient,
) -> OperationResult {
    if let Err(wait) = origin.query_rate_limiter.use_one(&client.organization, Instant::now()) {
        let reason = "an organization may send 100 analytics queries an hour; try again later";
        return Err(Box::new(error_with_retry(StatusCode::TOO_MANY_REQUESTS, reason, wait)));
    }
    find_project(origin, id, client)?;
    let queries_busy = |_| {
        let reason = "too many analytics queries run or wait; try again in a moment";
        Box::new(try_later(StatusCode::TOO_MANY_REQUESTS, reason))
    };
    let waiting_share = origin.waiting_queries.acquire(&client.organization, 1);
    let shares = waiting_share.and_then(|waiting_share| {
        Ok((waiting_share, origin.running_queries.acquire_within(&client.organization, 1, QUERY_WAIT_TIMEOUT)?))
    });
    let _shares = shares.map_err(queries_busy)?;
    let (db, query) = (&*origin.database, head.uri.query());
    let response = match operation {
        Operation::Views => views::query_views(db, id, query).map(|views| json(StatusCode::OK, &views)),
        Operation::PageCounts => views::query_pages(db, id, query).map(|pages| json(StatusCode::OK, &pages)),
        _ => searches::query_searches(db, id, query, &origin.cursor_secret, origin.oldest_searches())
            .map(|page| json(StatusCode::OK, &page)),
    };
    response.map_err(|reason| Box::new(analytics_error_response(reason.into())))
}

fn receive_batch(origin: &OriginServer, id: &str, body: &[u8], client: &AuthenticatedClient) -> OperationResult {
    let limits = origin.analytics_limits(&client.organization);
    let receipt = analytics::receive_batch(&origin.database, id, body, &limits)
        .map_err(|reason| Box::new(analytics_error_response(reason)))?;
    if !receipt.duplicate {
        origin.metrics.count_searches(receipt.accepted);
    }
    Ok(json(StatusCode::OK, &receipt))
}

fn receive_view_batch(origin: &OriginServer, id: &str, body: &[u8], client: &AuthenticatedClient) -> OperationResult {
    let limits = origin.analytics_limits(&client.organization);
    let receipt = analytics::receive_view_batch(&origin.database, id, body, &limits)
        .map_err(|reason| Box::new(analytics_error_response(reason)))?;
    origin.metrics.count_views(receipt.views);
    Ok(json(StatusCode::OK, &receipt))
}

fn analytics_error_response(reason: AnalyticsError) -> Response<ApiBody> {
    match reason {
        AnalyticsError::Invalid(bad) => error_with_details(StatusCode::BAD_REQUEST, &bad.error, bad.details),
        AnalyticsError::Refused(reason) => {
            let status = match reason {
                BatchRefusal::Disk => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            error_with_retry(status, &reason.to_string(), reason.retry_after())
        }
        AnalyticsError::Database(reason) => unavailable("read or write analytics", &ErrorChain(&reason)),
    }
}

fn refusal(status: StatusCode, reason: &str) -> ErrorResponse {
    Box::new(error(status, reason))
}
