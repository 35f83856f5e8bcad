//! Answers `POST BASE/_docwharf/playground`, and requests for the script of pages ([`playground`](super::playground)).

use std::sync::Arc;
use std::time::Instant;

use http::{Response, StatusCode};
use tokio::time::timeout;

use docwharf_base::net::format_seconds;

use super::body::ResponseBody;
use super::fixed_responses::{JSON_TYPE, with_retry_after};
use super::held_bytes::HeldBytesGuard;
use super::own_origin::{UntrustedHostLog, has_trusted_host, is_own_origin};
use super::playground::answer::{refuse, render_answer, respond_with_answer};
use super::playground::request::{RequestFault, TargetRequest};
use super::playground::rules::{PlaygroundRule, find_target};
use super::playground::target_client::{SendConditions, TargetFault, send_to_target};
use super::playground::{BODY_MEMORY, Playground, PlaygroundInForce, PlaygroundOutcome, is_script_path};
use super::playground_settings::PlaygroundSettings;
use super::request_body::{BodyFault, BodyLimits, CountedBytes};
use super::request_checks::declared_media_type;
use super::request_context::RequestContext;
use super::request_rate::{BUSY_RETRY_SECONDS, RATE_RETRY_SECONDS};
use super::search_handler::respond_with_asset;

/// The log of requests for untrusted hosts.
static UNTRUSTED_HOST_LOG: UntrustedHostLog = UntrustedHostLog::new("_docwharf/playground");

/// A request to the playground that is answered after its body was read.
#[derive(Debug)]
pub(super) struct PlaygroundRequest {
    playground: Arc<Playground>,
    in_force: Arc<PlaygroundInForce>,
}

/// A response, and what is counted with it.
type CountedResponse = (PlaygroundOutcome, Response<ResponseBody>);

/// Checks a request to the playground before its body is read: returns the request, or the refusal; `None` while the
/// playground is off.
pub(super) fn check_playground_request(
    context: &RequestContext<'_>,
) -> Option<Result<PlaygroundRequest, Response<ResponseBody>>> {
    let playground = &context.site().playground;
    let in_force = Option::clone(&playground.load())?;
    Some(match check_head(context, playground, &in_force.settings) {
        Some((outcome, refusal)) => {
            playground.count_outcome(outcome);
            Err(refusal)
        }
        None => Ok(PlaygroundRequest { playground: Arc::clone(playground), in_force }),
    })
}

fn check_head(
    context: &RequestContext<'_>,
    playground: &Playground,
    settings: &PlaygroundSettings,
) -> Option<CountedResponse> {
    let refused = |status, error, message: &str| Some((PlaygroundOutcome::Refused, refuse(status, error, message)));
    if !has_trusted_host(context, &settings.hosts) {
        UNTRUSTED_HOST_LOG.warn(context);
        return refused(StatusCode::FORBIDDEN, "host", "the playground does not answer at this host; the log says why");
    }
    if !is_own_origin(context) {
        let message = "only pages of this site may use the playground: the field Origin must name this site";
        return refused(StatusCode::FORBIDDEN, "foreign", message);
    }
    if !declared_media_type(context).eq_ignore_ascii_case(JSON_TYPE.as_bytes()) {
        let message = "the media type of the body must be application/json";
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", message);
    }
    let per_minute = settings.per_minute.get();
    if !playground.allows_request_from(context.client().address, per_minute) {
        let message =
            format!("more than {per_minute} requests in a minute from this network address; try again in a minute");
        let response = refuse(StatusCode::TOO_MANY_REQUESTS, "rate", message);
        return Some((PlaygroundOutcome::Limited, with_retry_after(response, RATE_RETRY_SECONDS)));
    }
    None
}

impl PlaygroundRequest {
    /// Answers the request.
    pub(super) async fn respond(
        self,
        body: Result<CountedBytes, BodyFault>,
        limits: BodyLimits,
    ) -> Response<ResponseBody> {
        let (outcome, response) = self.answer(body, limits).await;
        self.playground.count_outcome(outcome);
        response
    }

    async fn answer(&self, body: Result<CountedBytes, BodyFault>, limits: BodyLimits) -> CountedResponse {
        let settings = &*self.in_force.settings;
        let request = match body {
            Ok(body) => self.parse_request(&body),
            Err(fault) => {
                let (outcome, error) = match fault {
                    // The limit of the body is that of its JSON; the key has that of the request in it.
                    BodyFault::TooLarge => return too_large(settings),
                    BodyFault::OutOfMemory => (PlaygroundOutcome::Limited, "busy"),
                    BodyFault::Slow => (PlaygroundOutcome::Refused, "slow"),
                    BodyFault::Incomplete => (PlaygroundOutcome::Refused, "incomplete"),
                };
                let response = refuse(fault.status(), error, fault.message(limits));
                Err(Box::new((outcome, with_retry_after(response, fault.retry_seconds()))))
            }
        };
        let (request, _guard) = match request {
            Ok(request) => request,
            Err(refusal) => return *refusal,
        };
        let target = match find_target(&settings.allow, &request.method, &request.url) {
            Ok(target) => target,
            Err(rule) => return not_allowed(rule),
        };
        let Some(permit) = self.playground.take_permit() else { return busy() };
        let conditions = SendConditions {
            addresses: &target.addresses,
            network: &settings.network,
            tls: self.in_force.tls.clone(),
            max_response: settings.max_response,
        };
        let started = Instant::now();
        match timeout(settings.timeout, send_to_target(request, permit, &conditions)).await {
            Ok(Ok(response)) => match render_answer(&response, started.elapsed()) {
                Some(answer) => (PlaygroundOutcome::Answered, respond_with_answer(answer)),
                None => busy(),
            },
            Ok(Err(fault)) => answer_to_fault(fault),
            Err(_) => {
                let timeout = format_seconds(settings.timeout);
                let message = format!(
                    "there was no complete response within {timeout}; try again, or ask the operator to raise \
                     playground.timeout"
                );
                (PlaygroundOutcome::TimedOut, refuse(StatusCode::GATEWAY_TIMEOUT, "timeout", message))
            }
        }
    }

    /// Parses the body; also returns the guard of the memory of what is parsed.
    fn parse_request(&self, body: &CountedBytes) -> Result<(TargetRequest, HeldBytesGuard), Box<CountedResponse>> {
        let json = body.as_ref();
        let guard = BODY_MEMORY.try_hold(json.len() as u64).ok_or_else(|| Box::new(busy()))?;
        let settings = &*self.in_force.settings;
        let request = TargetRequest::parse(json, settings.max_request).map_err(|fault| match fault {
            RequestFault::Malformed(message) => malformed(message),
            RequestFault::NoOrigin => not_allowed(PlaygroundRule::Origin),
            RequestFault::ClimbingPath => not_allowed(PlaygroundRule::Path),
            RequestFault::TooLarge => too_large(settings),
        });
        request.map(|request| (request, guard)).map_err(Box::new)
    }
}

fn malformed(message: &str) -> CountedResponse {
    (PlaygroundOutcome::Refused, refuse(StatusCode::BAD_REQUEST, "malformed", message))
}

fn too_large(settings: &PlaygroundSettings) -> CountedResponse {
    let message = format!("the body of the request is larger than {} bytes; send less", settings.max_request);
    (PlaygroundOutcome::Refused, refuse(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message))
}

/// Refuses a request by a rule. The response is the same whether the target exists or not.
fn not_allowed(rule: PlaygroundRule) -> CountedResponse {
    (PlaygroundOutcome::NotAllowed, refuse(StatusCode::FORBIDDEN, rule.name(), rule.message()))
}

fn busy() -> CountedResponse {
    let message = "there are too many requests at a time; try again in a moment";
    let response = refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", message);
    (PlaygroundOutcome::Limited, with_retry_after(response, BUSY_RETRY_SECONDS))
}

fn answer_to_fault(fault: TargetFault) -> CountedResponse {
    let message = match fault {
        TargetFault::Malformed => return malformed("url is not a URL that a request can have"),
        TargetFault::Address => return not_allowed(PlaygroundRule::Address),
        TargetFault::OutOfMemory => return busy(),
        TargetFault::NoAddress => {
            "the name of the target has no address; check the url, or the name server of docwharf's host"
        }
        TargetFault::NotConnected => {
            "the target does not accept a connection; check the url, or try again when the API runs"
        }
        TargetFault::Tls => {
            "the TLS handshake with the target failed; the operator can check its certificate with `docwharf doctor`"
        }
        TargetFault::NoUsableResponse => {
            "the target sent no usable response; check that the url is that of an HTTP API"
        }
    };
    (PlaygroundOutcome::Failed, refuse(StatusCode::BAD_GATEWAY, "target", message))
}

/// Answers a request for the script of pages; `None` if `path`, the decoded path within the site, is another one, or
/// pages have no script.
pub(super) fn respond_with_script(context: &RequestContext<'_>, path: &[u8]) -> Option<Response<ResponseBody>> {
    if !is_script_path(path) {
        return None;
    }
    let in_force = context.site().playground.load();
    let script = in_force.as_ref()?.script.as_ref()?;
    Some(respond_with_asset(context, script))
}

#[cfg(test)]
mod tests;
