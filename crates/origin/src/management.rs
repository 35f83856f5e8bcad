//! The operations below `/v1`, for clients that are authenticated.

use std::time::{Duration, Instant, SystemTime};

use http::request::Parts;
use http::{Response, StatusCode};

use docwharf_base::clock::{show_time, unix_seconds};
use docwharf_base::error_chain::{ErrorChain, QuotedName};

use super::analytics::{self, AnalyticsError, IngestRefusal};
use super::api_keys::AuthenticatedClient;
use super::api_types::{BundleLink, Deploying};
use super::body::ApiBody;
use super::exports::{BundleLookup, StartJobError};
use super::limits::SharedResource;
use super::operations::Operation;
use super::previews::DeployError;
use super::requests;
use super::responses::{error, error_with_details, error_with_retry, internal_error, json, no_such_job, try_later};
use super::server::OriginServer;
use super::settings::OriginProject;
use super::shares::LimitReached;
use super::source::ProjectSource;

/// The time for which an analytics query waits for others to end.
const QUERY_WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers an operation that uses GET. Data of another organization is answered as if it did not exist.
pub(super) fn answer_get(
    origin: &OriginServer,
    operation: Operation,
    value: &str,
    head: &Parts,
    caller: &AuthenticatedClient,
) -> Response<ApiBody> {
    match operation {
        Operation::ExportStatus => match origin.exports.show(value, &caller.organization) {
            Ok(Some(job)) => json(StatusCode::OK, &job),
            Ok(None) => no_such_job(),
            Err(why) => internal_error("look up a job", &ErrorChain(&why)),
        },
        Operation::PreviewStatus => match origin.previews.status(value) {
            Ok(Some(deployment)) if deployment.organization == caller.organization => json(StatusCode::OK, &deployment),
            Ok(_) => error(StatusCode::NOT_FOUND, "no such deployment; it may be too old"),
            Err(why) => internal_error("look up a deployment", &ErrorChain(&why)),
        },
        Operation::Searches => query_searches(origin, value, head, caller),
        // The table has no other operation with GET.
        _ => super::responses::nothing_here(),
    }
}

/// Refuses a request whatever its body contains: the rate limit is exceeded, or the project belongs to another
/// organization.
pub(super) fn check_before_body(
    origin: &OriginServer,
    operation: Operation,
    value: &str,
    caller: &AuthenticatedClient,
) -> Result<(), ErrorResponse> {
    let (budget, why) = match operation {
        Operation::Ingest => (
            &origin.ingest_budget,
            "an organization may send 10,000 batches an hour; put more into each, and try again later",
        ),
        Operation::StartPreview => {
            (&origin.preview_budget, "an organization may ask for 5 previews a minute; try again later")
        }
        _ => return Ok(()),
    };
    if let Err(wait) = budget.use_one(&caller.organization, Instant::now()) {
        return Err(Box::new(error_with_retry(StatusCode::TOO_MANY_REQUESTS, why, wait)));
    }
    find_project(origin, value, caller).map(drop)
}

/// Runs an operation that uses POST.
pub(super) fn answer_post(
    origin: &OriginServer,
    operation: Operation,
    value: &str,
    head: &Parts,
    body: &[u8],
    caller: &AuthenticatedClient,
) -> Response<ApiBody> {
    let answer = match operation {
        Operation::StartExport => start_export(origin, body, caller),
        Operation::ExportBundle => create_link(origin, value, head, caller),
        Operation::StartPreview => start_preview(origin, value, head, body, caller),
        Operation::Ingest => ingest(origin, value, body, caller),
        _ => Err(Box::new(super::responses::nothing_here())),
    };
    answer.unwrap_or_else(|refusal| *refusal)
}

/// An error response. It is boxed because responses are large and errors are rare.
type ErrorResponse = Box<Response<ApiBody>>;
type OperationResult = Result<Response<ApiBody>, ErrorResponse>;

/// Returns the project of this id if it belongs to the caller's organization.
fn find_project<'a>(
    origin: &'a OriginServer,
    id: &str,
    caller: &AuthenticatedClient,
) -> Result<&'a OriginProject, ErrorResponse> {
    let owner = origin.owners.get(id).filter(|owner| **owner == caller.organization);
    owner.and_then(|_| origin.projects.get(id)).ok_or_else(|| refusal(StatusCode::NOT_FOUND, "no such project"))
}

fn start_export(origin: &OriginServer, body: &[u8], caller: &AuthenticatedClient) -> OperationResult {
    let bad = |why: &str| refusal(StatusCode::BAD_REQUEST, why);
    let wanted = requests::parse_export_request(body).map_err(|why| bad(&why))?;
    let found = origin.domains.get(&wanted.domain).filter(|(owner, _)| *owner == caller.organization);
    let found = found.ok_or_else(|| bad(&format!("bad domain: {} is not served here", wanted.domain)))?;
    let project = &origin.projects[&found.1];
    if !project.exports {
        return Err(refusal(
            StatusCode::FORBIDDEN,
            "static exports are not enabled for this project (exports = false)",
        ));
    }
    let version = wanted.version.map(|label| label.as_str().to_owned());
    match origin.exports.start(project, &caller.organization, version, wanted.paths) {
        Ok(job) => Ok(json(StatusCode::ACCEPTED, &job)),
        Err(why) => Err(Box::new(match why {
            StartJobError::Full(LimitReached::Organization) => {
                let why = "too many jobs of your organization are waiting (limits.organization.waitingJobs); start this one later";
                try_later(StatusCode::TOO_MANY_REQUESTS, why)
            }
            StartJobError::Full(LimitReached::Total) => {
                let why = "too many jobs are waiting (limits.total.waitingJobs); start this one later";
                try_later(StatusCode::TOO_MANY_REQUESTS, why)
            }
            StartJobError::NoId(why) => internal_error("make an id for a job", &why),
            StartJobError::Database(why) => internal_error("write down a job", &ErrorChain(&why)),
        })),
    }
}

/// Creates a link to the bundle of a completed job.
fn create_link(origin: &OriginServer, job: &str, head: &Parts, caller: &AuthenticatedClient) -> OperationResult {
    let archive = match origin.exports.bundle(job, Some(&caller.organization)) {
        Ok(BundleLookup::Found(archive)) => archive,
        Ok(BundleLookup::Unknown) => return Err(Box::new(no_such_job())),
        Ok(BundleLookup::NotReady(status)) if status == "failed" => {
            let why = "the job has failed, so that it has no bundle; start another one";
            return Err(refusal(StatusCode::CONFLICT, why));
        }
        Ok(BundleLookup::NotReady(status)) => {
            let why = format!("the job is {status}; ask again when it is completed");
            return Err(refusal(StatusCode::CONFLICT, &why));
        }
        Err(why) => return Err(Box::new(internal_error("look up a job", &ErrorChain(&why)))),
    };
    let begin = own_address(origin, head)?;
    origin.link_budget.use_amount(&caller.organization, 1, Instant::now()).map_err(|over| {
        origin.shares.pool(SharedResource::Links).count_refusal();
        let why = match over.limit {
            LimitReached::Organization => {
                "your organization had as many links within an hour as it may (limits.organization.links)"
            }
            LimitReached::Total => {
                "all organizations together had as many links within an hour as they may (limits.total.links)"
            }
        };
        Box::new(error_with_retry(StatusCode::TOO_MANY_REQUESTS, why, over.wait))
    })?;
    let expires = SystemTime::now() + origin.link_lifetime;
    let promised = origin.exports.keep_until(job, expires);
    promised.map_err(|why| Box::new(internal_error("write down a link", &ErrorChain(&why))))?;
    let query = origin.signer.query(job, unix_seconds(expires));
    let link = BundleLink {
        job_id: job.to_owned(),
        bundle_url: format!("{begin}/bundles/{job}/{}?{query}", archive.name()),
        size_bytes: archive.len,
        expires_at: show_time(expires),
    };
    Ok(json(StatusCode::OK, &link))
}

fn own_address(origin: &OriginServer, head: &Parts) -> Result<String, ErrorResponse> {
    let why = "the request names no host that a link could lead to";
    origin.own_address(head).ok_or_else(|| refusal(StatusCode::BAD_REQUEST, why))
}

fn start_preview(
    origin: &OriginServer,
    id: &str,
    head: &Parts,
    body: &[u8],
    caller: &AuthenticatedClient,
) -> OperationResult {
    let project = find_project(origin, id, caller)?;
    if !project.previews || !matches!(project.source, ProjectSource::Git(_)) {
        let why = "previews are not available for this project: they need previews = true and a git source";
        return Err(refusal(StatusCode::FORBIDDEN, why));
    }
    let branch = requests::parse_preview_request(body).map_err(|why| refusal(StatusCode::BAD_REQUEST, &why))?;
    let begin = own_address(origin, head)?;
    let started = origin.previews.deploy(id, &branch).map_err(|why| {
        Box::new(match why {
            DeployError::Full => {
                try_later(StatusCode::TOO_MANY_REQUESTS, "too many previews are waiting; try again later")
            }
            DeployError::Branch(why) => {
                error(StatusCode::BAD_REQUEST, &format!("bad branch {}: {why}", QuotedName(branch.as_bytes())))
            }
            other => internal_error("deploy a preview", &ErrorChain(&other)),
        })
    })?;
    let preview_url = origin.preview_url(&begin, id, &started);
    Ok(json(StatusCode::ACCEPTED, &Deploying { status_id: started.status_id, preview_url }))
}

fn query_searches(origin: &OriginServer, id: &str, head: &Parts, caller: &AuthenticatedClient) -> Response<ApiBody> {
    if let Err(wait) = origin.query_budget.use_one(&caller.organization, Instant::now()) {
        let why = "an organization may ask 100 times an hour for analytics; try again later";
        return error_with_retry(StatusCode::TOO_MANY_REQUESTS, why, wait);
    }
    if let Err(refusal) = find_project(origin, id, caller) {
        return *refusal;
    }
    let busy = |_| {
        let why = "too many analytics queries at a time; try again in a moment";
        try_later(StatusCode::TOO_MANY_REQUESTS, why)
    };
    let asked = origin.waiting_queries.take(&caller.organization, 1);
    let turn = asked.and_then(|asked| {
        Ok((asked, origin.running_queries.take_within(&caller.organization, 1, QUERY_WAIT_TIMEOUT)?))
    });
    let _turn = match turn.map_err(busy) {
        Ok(turn) => turn,
        Err(refusal) => return refusal,
    };
    match analytics::query_searches(
        &origin.database,
        id,
        head.uri.query(),
        &origin.cursor_secret,
        origin.oldest_searches(),
    ) {
        Ok(found) => json(StatusCode::OK, &found),
        Err(why) => analytics_error(why),
    }
}

fn ingest(origin: &OriginServer, id: &str, body: &[u8], caller: &AuthenticatedClient) -> OperationResult {
    let allowance = origin.allowance(&caller.organization);
    let accepted = analytics::ingest_batch(&origin.database, id, body, &allowance)
        .map_err(|why| Box::new(analytics_error(why)))?;
    if !accepted.duplicate {
        origin.metrics.count_searches(accepted.accepted);
    }
    Ok(json(StatusCode::OK, &accepted))
}

fn analytics_error(why: AnalyticsError) -> Response<ApiBody> {
    match why {
        AnalyticsError::Invalid(bad) => error_with_details(StatusCode::BAD_REQUEST, &bad.error, bad.details),
        AnalyticsError::Refused(why) => {
            let status = match why {
                IngestRefusal::Disk => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            error_with_retry(status, &why.to_string(), why.retry_after())
        }
        AnalyticsError::Database(why) => internal_error("read or write searches", &ErrorChain(&why)),
    }
}

fn refusal(status: StatusCode, why: &str) -> ErrorResponse {
    Box::new(error(status, why))
}
