//! The normal responses of the API: export jobs, and links to their bundles.

use std::net::SocketAddr;

use docwharf::model::digest::Digest;
use serde_json::{Value, json};

use super::clock::rfc3339_in;
use super::outgoing::OutgoingResponse;
use super::request::{Request, UpstreamCall};
use super::state::UpstreamState;

/// The beginning of the signature of each link.
pub const SIGNATURE: &str = "51gna7ure0fTheBucket";

/// The addresses that links lead to.
#[derive(Debug, Clone, Copy)]
pub(super) struct UpstreamAddresses {
    pub(super) scheme: &'static str,
    pub(super) api: SocketAddr,
    pub(super) object_store: SocketAddr,
}

/// Makes a new link to the bundle of a job.
pub(super) fn make_link(addresses: UpstreamAddresses, state: &mut UpstreamState, job: &str) -> String {
    let signature = format!("{SIGNATURE}{:04}", state.links.len());
    let uses = state.link_uses;
    state.links.insert(signature.clone(), uses);
    let origin = if state.link_on_api { addresses.api } else { addresses.object_store };
    let job: String = job.chars().filter(char::is_ascii_alphanumeric).collect();
    format!(
        "{}://{origin}/exports/{job}/bundle.tar.gz?X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=AKIDEXAMPLE%2F20260801%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Expires=3600\
         &X-Amz-Security-Token={SIGNATURE}T0ken&X-Amz-Signature={signature}",
        addresses.scheme
    )
}

/// Makes the normal response to a request. `ignores_range` is for downloads.
pub(super) fn respond(
    addresses: UpstreamAddresses,
    state: &mut UpstreamState,
    request: &Request,
    ignores_range: bool,
) -> OutgoingResponse {
    match request.call {
        UpstreamCall::Download => return state.download(request, ignores_range),
        UpstreamCall::Probe => {
            let page = state.pages.get(&request.target).unwrap_or(&state.probe);
            let etag = format!("\"{}\"", &Digest::compute(page).to_hex()[..16]);
            let mut outgoing = OutgoingResponse::new(200, "application/xml", page.clone());
            if request.header("if-none-match") == Some(&etag) {
                outgoing = OutgoingResponse::new(304, "application/xml", Vec::new());
            }
            outgoing.set("ETag", Some(&etag));
            return outgoing;
        }
        _ => {}
    }
    if request.header("authorization") != Some(&format!("Bearer {}", state.key)) {
        return OutgoingResponse::json(401, &json!({"error": "invalid API key"}));
    }
    let job_not_found = || OutgoingResponse::json(404, &json!({"error": "no such job"}));
    match request.call {
        UpstreamCall::Start => {
            let domain = serde_json::from_slice::<Value>(&request.body).ok();
            let domain = domain.and_then(|body| body["domain"].as_str().map(str::to_owned));
            if domain.is_none_or(|domain| domain.is_empty() || domain.contains(['/', ':'])) {
                return OutgoingResponse::json(400, &json!({"error": "domain is missing or no host name"}));
            }
            state.started += 1;
            let id = state.job_ids.pop_front().unwrap_or_else(|| format!("se_{:016x}", state.started));
            state.jobs.insert(id.clone(), 0);
            let now = rfc3339_in(state.skew);
            OutgoingResponse::json(
                202,
                &json!({"jobId": id, "status": "queued", "progress": 0, "pageCount": 0, "createdAt": now,
                    "updatedAt": now}),
            )
        }
        UpstreamCall::Poll => {
            let Some((id, polls)) = request.job().and_then(|id| state.jobs.get_key_value(&id)) else {
                return job_not_found();
            };
            let (id, polls) = (id.clone(), *polls);
            state.jobs.insert(id.clone(), polls + 1);
            let last = state.statuses.len() - 1;
            match &state.statuses[polls.min(last)] {
                Value::String(status) => {
                    let progress = if status == "completed" { 100 } else { polls.min(99) };
                    OutgoingResponse::json(
                        200,
                        &json!({"jobId": id, "status": status, "progress": progress, "pageCount": progress * 3,
                            "updatedAt": rfc3339_in(state.skew), "error": null}),
                    )
                }
                response => OutgoingResponse::json(200, response),
            }
        }
        UpstreamCall::Link => {
            let Some((id, polls)) = request.job().and_then(|id| state.jobs.get_key_value(&id)) else {
                return job_not_found();
            };
            let (id, polls) = (id.clone(), *polls);
            let last = state.statuses.len() - 1;
            let status = &state.statuses[polls.saturating_sub(1).min(last)];
            if status != "completed" && status["status"] != "completed" {
                return OutgoingResponse::json(409, &json!({"error": "the job is not finished"}));
            }
            let link = state.link.clone().unwrap_or_else(|| make_link(addresses, state, &id));
            let size = state.size_bytes.clone().unwrap_or_else(|| state.representation().len().into());
            let expires = state.expires_at.clone().unwrap_or_else(|| rfc3339_in(state.skew + 3600).into());
            let mut body = json!({"jobId": id, "bundleUrl": link, "sizeBytes": size});
            if !expires.is_null() {
                body["expiresAt"] = expires;
            }
            OutgoingResponse::json(200, &body)
        }
        UpstreamCall::Preview | UpstreamCall::Deployment | UpstreamCall::Searches => {
            let origin = format!("{}://{}", addresses.scheme, addresses.api);
            let (status, body) = state.project_api.respond(request, &origin);
            OutgoingResponse::json(status, &body)
        }
        _ => OutgoingResponse::json(404, &json!({"error": "no such route"})),
    }
}
