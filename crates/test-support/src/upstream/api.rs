//! The answers of the specification: export jobs, and links to their bundles.

use std::net::SocketAddr;

use docwharf::model::digest::Digest;
use serde_json::{Value, json};

use super::clock::stamp;
use super::outgoing::Outgoing;
use super::plan::Plan;
use super::request::{Call, Request};

/// Beginning of each signature of a link.
pub const SIGNATURE: &str = "51gna7ure0fTheBucket";

/// The addresses that links lead to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origins {
    pub(super) scheme: &'static str,
    pub(super) api: SocketAddr,
    pub(super) bucket: SocketAddr,
}

/// Returns a fresh link to the bundle of a job.
pub(super) fn link(origins: Origins, plan: &mut Plan, job: &str) -> String {
    let signature = format!("{SIGNATURE}{:04}", plan.links.len());
    let uses = plan.link_uses;
    plan.links.insert(signature.clone(), uses);
    let origin = if plan.link_on_api { origins.api } else { origins.bucket };
    let job: String = job.chars().filter(char::is_ascii_alphanumeric).collect();
    format!(
        "{}://{origin}/exports/{job}/bundle.tar.gz?X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=AKIDEXAMPLE%2F20260801%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Expires=3600\
         &X-Amz-Security-Token={SIGNATURE}T0ken&X-Amz-Signature={signature}",
        origins.scheme
    )
}

/// The answer of the specification.
pub(super) fn answer(origins: Origins, plan: &mut Plan, request: &Request, whole: bool) -> Outgoing {
    match request.call {
        Call::Download => return plan.download(request, whole),
        Call::Probe => {
            let page = plan.pages.get(&request.target).unwrap_or(&plan.probe);
            let etag = format!("\"{}\"", &Digest::of(page).hex()[..16]);
            let mut outgoing = Outgoing::new(200, "application/xml", page.clone());
            if request.header("if-none-match") == Some(&etag) {
                outgoing = Outgoing::new(304, "application/xml", Vec::new());
            }
            outgoing.set("ETag", Some(&etag));
            return outgoing;
        }
        _ => {}
    }
    if request.header("authorization") != Some(&format!("Bearer {}", plan.key)) {
        return Outgoing::json(401, &json!({"error": "invalid API key"}));
    }
    let vanished = || Outgoing::json(404, &json!({"error": "no such job"}));
    match request.call {
        Call::Start => {
            let domain = serde_json::from_slice::<Value>(&request.body).ok();
            let domain = domain.and_then(|body| body["domain"].as_str().map(str::to_owned));
            if domain.is_none_or(|domain| domain.is_empty() || domain.contains(['/', ':'])) {
                return Outgoing::json(400, &json!({"error": "domain is missing or no host name"}));
            }
            plan.started += 1;
            let id = plan.job_ids.pop_front().unwrap_or_else(|| format!("se_{:016x}", plan.started));
            plan.jobs.insert(id.clone(), 0);
            let now = stamp(plan.skew);
            Outgoing::json(
                202,
                &json!({"jobId": id, "status": "queued", "progress": 0, "pageCount": 0, "createdAt": now,
                    "updatedAt": now}),
            )
        }
        Call::Poll => {
            let Some((id, polls)) = request.job().and_then(|id| plan.jobs.get_key_value(&id)) else {
                return vanished();
            };
            let (id, polls) = (id.clone(), *polls);
            plan.jobs.insert(id.clone(), polls + 1);
            let last = plan.statuses.len() - 1;
            match &plan.statuses[polls.min(last)] {
                Value::String(status) => {
                    let progress = if status == "completed" { 100 } else { polls.min(99) };
                    Outgoing::json(
                        200,
                        &json!({"jobId": id, "status": status, "progress": progress, "pageCount": progress * 3,
                            "updatedAt": stamp(plan.skew), "error": null}),
                    )
                }
                other => Outgoing::json(200, other),
            }
        }
        Call::Bundle => {
            let Some((id, polls)) = request.job().and_then(|id| plan.jobs.get_key_value(&id)) else {
                return vanished();
            };
            let (id, polls) = (id.clone(), *polls);
            let last = plan.statuses.len() - 1;
            let said = &plan.statuses[polls.saturating_sub(1).min(last)];
            if said != "completed" && said["status"] != "completed" {
                return Outgoing::json(409, &json!({"error": "the job is not finished"}));
            }
            let link = plan.link.clone().unwrap_or_else(|| link(origins, plan, &id));
            let size = plan.size_bytes.clone().unwrap_or_else(|| plan.representation().len().into());
            let expires = plan.expires_at.clone().unwrap_or_else(|| stamp(plan.skew + 3600).into());
            let mut body = json!({"jobId": id, "bundleUrl": link, "sizeBytes": size});
            if !expires.is_null() {
                body["expiresAt"] = expires;
            }
            Outgoing::json(200, &body)
        }
        Call::Preview | Call::Deployment | Call::Searches => {
            let origin = format!("{}://{}", origins.scheme, origins.api);
            let (status, body) = plan.studio.answer(request, &origin);
            Outgoing::json(status, &body)
        }
        _ => Outgoing::json(404, &json!({"error": "no such route"})),
    }
}
