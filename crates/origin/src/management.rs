//! The operations below `/v1`, for clients that are authenticated.

use std::time::{Duration, Instant, SystemTime};

use http::request::Parts;
use http::{Response, StatusCode};

use docwharf_base::chain::{Chain, Name};
use docwharf_base::model::units::{show_time, unix_seconds};

use super::analytics::{self, NoRoom, QueryError};
use super::answers::{error, failed, json, no_such_job, try_after, try_later, wrong};
use super::body::Body;
use super::exports::{BundleLookup, StartJobError};
use super::keys::Caller;
use super::limits::Resource;
use super::previews::DeployError;
use super::settings::Project;
use super::shares::NoShare;
use super::source::ProjectSource;
use super::table::Operation;
use super::types::{BundleLink, Deploying};
use super::{Origin, requests};

/// The time for which an analytics query waits for others to end.
const QUESTION_PATIENCE: Duration = Duration::from_secs(5);

/// Answers an operation that uses GET. Data of another organization is answered as if it did not exist.
pub(super) fn get(origin: &Origin, operation: Operation, value: &str, head: &Parts, caller: &Caller) -> Response<Body> {
    match operation {
        Operation::ExportStatus => match origin.exports.show(value, &caller.organization) {
            Ok(Some(job)) => json(StatusCode::OK, &job),
            Ok(None) => no_such_job(),
            Err(why) => failed("look up a job", &Chain(&why)),
        },
        Operation::PreviewStatus => match origin.previews.status(value) {
            Ok(Some(deployment)) if deployment.organization == caller.organization => json(StatusCode::OK, &deployment),
            Ok(_) => error(StatusCode::NOT_FOUND, "no such deployment; it may be too old"),
            Err(why) => failed("look up a deployment", &Chain(&why)),
        },
        Operation::Searches => searches(origin, value, head, caller),
        // The table has no other operation with GET.
        _ => super::answers::nothing_here(),
    }
}

/// Refuses a request whatever its body contains: the rate limit is exceeded, or the project belongs to another
/// organization.
pub(super) fn before_body(origin: &Origin, operation: Operation, value: &str, caller: &Caller) -> Result<(), Refusal> {
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
    if let Err(wait) = budget.take(&caller.organization, Instant::now()) {
        return Err(Box::new(try_after(StatusCode::TOO_MANY_REQUESTS, why, wait)));
    }
    project(origin, value, caller).map(drop)
}

/// Runs an operation that uses POST.
pub(super) fn post(
    origin: &Origin,
    operation: Operation,
    value: &str,
    head: &Parts,
    body: &[u8],
    caller: &Caller,
) -> Response<Body> {
    let answer = match operation {
        Operation::StartExport => start_export(origin, body, caller),
        Operation::ExportBundle => link(origin, value, head, caller),
        Operation::StartPreview => start_preview(origin, value, head, body, caller),
        Operation::Ingest => ingest(origin, value, body, caller),
        _ => Err(Box::new(super::answers::nothing_here())),
    };
    answer.unwrap_or_else(|refusal| *refusal)
}

/// An error response. It is boxed because responses are large and errors are rare.
type Refusal = Box<Response<Body>>;
type Answer = Result<Response<Body>, Refusal>;

/// Returns the project of this id if it belongs to the caller's organization.
fn project<'a>(origin: &'a Origin, id: &str, caller: &Caller) -> Result<&'a Project, Refusal> {
    let owner = origin.owners.get(id).filter(|owner| **owner == caller.organization);
    owner.and_then(|_| origin.projects.get(id)).ok_or_else(|| refusal(StatusCode::NOT_FOUND, "no such project"))
}

fn start_export(origin: &Origin, body: &[u8], caller: &Caller) -> Answer {
    let bad = |why: &str| refusal(StatusCode::BAD_REQUEST, why);
    let wanted = requests::export(body).map_err(|why| bad(&why))?;
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
            StartJobError::Full(NoShare::Organization) => {
                let why = "too many jobs of your organization are waiting (limits.organization.waitingJobs); start this one later";
                try_later(StatusCode::TOO_MANY_REQUESTS, why)
            }
            StartJobError::Full(NoShare::Total) => {
                let why = "too many jobs are waiting (limits.total.waitingJobs); start this one later";
                try_later(StatusCode::TOO_MANY_REQUESTS, why)
            }
            StartJobError::NoId(why) => failed("make an id for a job", &why),
            StartJobError::Database(why) => failed("write down a job", &Chain(&why)),
        })),
    }
}

/// Creates a link to the bundle of a completed job.
fn link(origin: &Origin, job: &str, head: &Parts, caller: &Caller) -> Answer {
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
        Err(why) => return Err(Box::new(failed("look up a job", &Chain(&why)))),
    };
    let begin = own_address(origin, head)?;
    origin.link_budget.take_many(&caller.organization, 1, Instant::now()).map_err(|over| {
        origin.shares.pool(Resource::Links).refuse();
        let why = match over.why {
            NoShare::Organization => {
                "your organization had as many links within an hour as it may (limits.organization.links)"
            }
            NoShare::Total => {
                "all organizations together had as many links within an hour as they may (limits.total.links)"
            }
        };
        Box::new(try_after(StatusCode::TOO_MANY_REQUESTS, why, over.wait))
    })?;
    let expires = SystemTime::now() + origin.link_lifetime;
    let promised = origin.exports.keep_until(job, expires);
    promised.map_err(|why| Box::new(failed("write down a link", &Chain(&why))))?;
    let query = origin.signer.query(job, unix_seconds(expires));
    let link = BundleLink {
        job_id: job.to_owned(),
        bundle_url: format!("{begin}/bundles/{job}/{}?{query}", archive.name()),
        size_bytes: archive.len,
        expires_at: show_time(expires),
    };
    Ok(json(StatusCode::OK, &link))
}

fn own_address(origin: &Origin, head: &Parts) -> Result<String, Refusal> {
    let why = "the request names no host that a link could lead to";
    origin.own_address(head).ok_or_else(|| refusal(StatusCode::BAD_REQUEST, why))
}

fn start_preview(origin: &Origin, id: &str, head: &Parts, body: &[u8], caller: &Caller) -> Answer {
    let project = project(origin, id, caller)?;
    if !project.previews || !matches!(project.source, ProjectSource::Git(_)) {
        let why = "previews are not available for this project: they need previews = true and a git source";
        return Err(refusal(StatusCode::FORBIDDEN, why));
    }
    let branch = requests::branch(body).map_err(|why| refusal(StatusCode::BAD_REQUEST, &why))?;
    let begin = own_address(origin, head)?;
    let started = origin.previews.deploy(id, &branch).map_err(|why| {
        Box::new(match why {
            DeployError::Full => {
                try_later(StatusCode::TOO_MANY_REQUESTS, "too many previews are waiting; try again later")
            }
            DeployError::Branch(why) => {
                error(StatusCode::BAD_REQUEST, &format!("bad branch {}: {why}", Name(branch.as_bytes())))
            }
            other => failed("deploy a preview", &Chain(&other)),
        })
    })?;
    let preview_url = origin.preview_url(&begin, id, &started);
    Ok(json(StatusCode::ACCEPTED, &Deploying { status_id: started.status_id, preview_url }))
}

fn searches(origin: &Origin, id: &str, head: &Parts, caller: &Caller) -> Response<Body> {
    if let Err(wait) = origin.question_budget.take(&caller.organization, Instant::now()) {
        let why = "an organization may ask 100 times an hour for analytics; try again later";
        return try_after(StatusCode::TOO_MANY_REQUESTS, why, wait);
    }
    if let Err(refusal) = project(origin, id, caller) {
        return *refusal;
    }
    let busy = |_| {
        let why = "too many analytics queries at a time; try again in a moment";
        try_later(StatusCode::TOO_MANY_REQUESTS, why)
    };
    let asked = origin.asked.take(&caller.organization, 1);
    let turn =
        asked.and_then(|asked| Ok((asked, origin.questions.take_within(&caller.organization, 1, QUESTION_PATIENCE)?)));
    let _turn = match turn.map_err(busy) {
        Ok(turn) => turn,
        Err(refusal) => return refusal,
    };
    match analytics::searches(&origin.db, id, head.uri.query(), &origin.cursor, origin.oldest_searches()) {
        Ok(found) => json(StatusCode::OK, &found),
        Err(why) => refused(why),
    }
}

fn ingest(origin: &Origin, id: &str, body: &[u8], caller: &Caller) -> Answer {
    let allowance = origin.allowance(&caller.organization);
    let accepted = analytics::ingest(&origin.db, id, body, &allowance).map_err(|why| Box::new(refused(why)))?;
    if !accepted.duplicate {
        origin.counted.searches(accepted.accepted);
    }
    Ok(json(StatusCode::OK, &accepted))
}

fn refused(why: QueryError) -> Response<Body> {
    match why {
        QueryError::Bad(bad) => wrong(StatusCode::BAD_REQUEST, &bad.error, bad.details),
        QueryError::Full(why) => {
            let status = match why {
                NoRoom::Disk => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            try_after(status, &why.to_string(), why.wait())
        }
        QueryError::Database(why) => failed("read or write searches", &Chain(&why)),
    }
}

fn refusal(status: StatusCode, why: &str) -> Refusal {
    Box::new(error(status, why))
}
