//! Answers `POST BASE/_docwharf/mcp`: the messages of the Model Context Protocol over HTTP, without sessions and with
//! JSON answers only. Here is what belongs to HTTP; [`mcp`](super::mcp) answers the messages.

use std::sync::Arc;

use http::{Response, StatusCode};

use docwharf_site::sealed_version::SealedVersion;

use super::assistant_settings::AssistantSettings;
use super::body::ResponseBody;
use super::fixed_responses::{
    FIRST_VERSION_RETRY_SECONDS, JSON_TYPE, PLAIN_TEXT_TYPE, uncached_response, with_retry_after,
};
use super::held_bytes::{HeldBytes, hold_body};
use super::mcp::McpServer;
use super::mcp::dispatch::answer_request;
use super::mcp::http_message::{McpHeaders, McpMessage, MessageRefusal, check_message};
use super::mcp_statistics::{McpOperation, McpOutcome};
use super::named_host::HostAndPort;
use super::negotiate::accepts_json;
use super::own_origin::{RequestOrigin, requested_host};
use super::request_body::{BodyFault, BodyLimits, CountedBytes};
use super::request_checks::declared_media_type;
use super::request_context::RequestContext;
use super::request_rate::{BUSY_RETRY_SECONDS, RATE_RETRY_SECONDS};
use super::site::Site;

/// The largest body, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;
/// The limit of [`BODY_MEMORY`], in bytes.
const MAX_BODY_MEMORY_BYTES: u64 = 16 << 20;
/// The memory of the bodies of all MCP requests of the process.
static BODY_MEMORY: HeldBytes = HeldBytes::new(MAX_BODY_MEMORY_BYTES);
/// The limits of bodies.
pub(super) static BODY_LIMITS: BodyLimits = BodyLimits::new(MAX_BODY_BYTES, &BODY_MEMORY);

/// A request that is answered after its body was read.
#[derive(Debug)]
pub(super) struct McpRequest {
    site: Arc<Site>,
    version: Arc<SealedVersion>,
    host: Option<HostAndPort>,
    headers: McpHeaders,
}

/// Returns whether the resource is on.
pub(super) fn is_on(site: &Site) -> bool {
    site.assistant.load().as_ref().is_some_and(|settings| settings.mcp)
}

/// Checks a request before its body is read: returns the request, or the refusal; `None` if the resource is off.
pub(super) fn check_mcp_request(context: &RequestContext<'_>) -> Option<Result<McpRequest, Response<ResponseBody>>> {
    let site = context.site().shared()?;
    let settings = site.assistant_settings().filter(|settings| settings.mcp)?;
    Some(check(context, &settings, &site).map_err(|refusal| {
        let (outcome, response) = *refusal;
        site.mcp.count(McpOperation::Other, outcome);
        response
    }))
}

fn check(
    context: &RequestContext<'_>,
    settings: &AssistantSettings,
    site: &Arc<Site>,
) -> Result<McpRequest, Box<(McpOutcome, Response<ResponseBody>)>> {
    let refuse = |status, text: &str| Err(Box::new((McpOutcome::Refused, text_response(status, text.to_owned()))));
    if let Some(text) = refuse_host(context, settings) {
        return refuse(StatusCode::FORBIDDEN, text);
    }
    if !accepts_json(context.headers()) {
        return refuse(StatusCode::NOT_ACCEPTABLE, "406: answers are application/json, which Accept does not list\n");
    }
    if !declared_media_type(context).eq_ignore_ascii_case(JSON_TYPE.as_bytes()) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "415: the body must be application/json\n");
    }
    if !site.mcp.allows_request_from(context.client().address, settings.mcp_per_minute) {
        let max = settings.mcp_per_minute;
        let text =
            format!("429: more than {max} requests in a minute from this network address; try again in a minute\n");
        let response = text_response(StatusCode::TOO_MANY_REQUESTS, text);
        return Err(Box::new((McpOutcome::Limited, with_retry_after(response, RATE_RETRY_SECONDS))));
    }
    let Some(version) = context.shared_version() else {
        let text = format!("503: the site has no version yet; try again in {FIRST_VERSION_RETRY_SECONDS} seconds\n");
        let response = text_response(StatusCode::SERVICE_UNAVAILABLE, text);
        return Err(Box::new((McpOutcome::Busy, with_retry_after(response, FIRST_VERSION_RETRY_SECONDS))));
    };
    Ok(McpRequest {
        site: Arc::clone(site),
        version,
        host: requested_host(context),
        headers: McpHeaders::read(context.headers()),
    })
}

/// Returns the text of the refusal if the request may come from a page of another site, or from one whose name was
/// rebound to this server (DNS rebinding).
fn refuse_host(context: &RequestContext<'_>, settings: &AssistantSettings) -> Option<&'static str> {
    let is_listed = match RequestOrigin::read(context) {
        RequestOrigin::Absent => true,
        RequestOrigin::Page(origin) => origin.host().is_listed(&settings.hosts),
        RequestOrigin::Unusable => false,
    };
    if !is_listed {
        tracing::debug!("a request to _docwharf/mcp is refused: assistant.hosts does not list the host of its Origin");
        return Some("403: the request has the field Origin, and the key assistant.hosts does not list its host\n");
    }
    let is_loopback_listener = context.peer().is_some_and(|peer| peer.is_loopback_listener);
    let is_own_host = !is_loopback_listener
        || requested_host(context).is_some_and(|host| host.is_loopback() || host.is_listed(&settings.hosts));
    if !is_own_host {
        tracing::debug!("a request to _docwharf/mcp is refused: assistant.hosts does not list the host that it names");
        return Some("403: on a loopback listener, Host must be loopback or listed in the key assistant.hosts\n");
    }
    None
}

impl McpRequest {
    /// Answers the request, whose body was read.
    pub(super) async fn answer(self, body: Result<CountedBytes, BodyFault>) -> Response<ResponseBody> {
        let site = Arc::clone(&self.site);
        let (outcome, response) = match body {
            Ok(body) => self.answer_body(body).await,
            Err(fault) => {
                let (status, retry_seconds) = (fault.status(), fault.retry_seconds());
                let text = format!("{}: {}\n", status.as_u16(), fault.message(BODY_LIMITS));
                let outcome = if retry_seconds.is_some() { McpOutcome::Busy } else { McpOutcome::Refused };
                (Some(outcome), with_retry_after(text_response(status, text), retry_seconds))
            }
        };
        if let Some(outcome) = outcome {
            site.mcp.count(McpOperation::Other, outcome);
        }
        response
    }

    /// Answers a message. Returns the outcome if the message itself was not counted.
    async fn answer_body(self, body: CountedBytes) -> (Option<McpOutcome>, Response<ResponseBody>) {
        let request = match check_message(&self.headers, body.as_ref()) {
            Ok(McpMessage::Request(request)) => request,
            Ok(McpMessage::Notification) => {
                let mut response = text_response(StatusCode::ACCEPTED, String::new());
                response.headers_mut().remove(http::header::CONTENT_TYPE);
                return (None, response);
            }
            Err(refusal) => {
                let response = uncached_response(MessageRefusal::STATUS, JSON_TYPE, refusal.to_json());
                return (Some(McpOutcome::Refused), response);
            }
        };
        drop(body);
        let Some(_permit) = self.site.mcp.try_begin_call() else { return (Some(McpOutcome::Busy), busy()) };
        let server = McpServer::for_request(self.site, self.version, self.host);
        let (status, answer) = answer_request(server, *request).await;
        match hold_body(answer.into_boxed_slice()) {
            Some(answer) => (None, uncached_response(status, JSON_TYPE, answer)),
            None => (Some(McpOutcome::Busy), busy()),
        }
    }
}

/// Returns the response while too many requests are answered, or clients that read slowly hold too much memory.
fn busy() -> Response<ResponseBody> {
    let text = "503: too many requests at a time; try again in a second\n".to_owned();
    with_retry_after(text_response(StatusCode::SERVICE_UNAVAILABLE, text), BUSY_RETRY_SECONDS)
}

fn text_response(status: StatusCode, text: String) -> Response<ResponseBody> {
    uncached_response(status, PLAIN_TEXT_TYPE, text)
}
