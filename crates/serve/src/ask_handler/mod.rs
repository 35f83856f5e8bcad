//! Answers `POST BASE/_docwharf/ask`: a question of a reader, which a model answers from the documentation.
//!
//! A request is checked before its body is read ([`check_ask_request`]). Then the question is parsed, the limits are
//! applied, and the search starts on a thread of its own ([`retrieval`]); the rest is a future that needs no connection
//! ([`AskRequest::answer`]). A failure before the first text has a status of its own, also for a client that wants
//! events: only then does the response begin.

mod retrieval;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::ask::{
    AnswerEvent, AskInForce, AskOutcome, ChatFailure, CompleteAnswer, MAX_BODY_BYTES, ReaderQuestion, RunningAnswer,
    RunningQuestion, build_messages, describe_failure, nothing_found,
};
use super::body::{PostAnswer, ResponseBody};
use super::fixed_responses::{self, INDEXING_RETRY_SECONDS, JSON_TYPE, uncached_response, with_retry_after};
use super::header_pool;
use super::held_bytes::HeldBytes;
use super::negotiate::prefers_events_to_json;
use super::own_origin::{RequestOrigin, UntrustedHostLog, has_trusted_host, is_own_origin};
use super::recording::Recorder;
use super::recording::recorded_fields::RecordedFields;
use super::request_body::{BodyFault, BodyLimits, CountedBytes};
use super::request_context::RequestContext;
use super::request_rate::RATE_RETRY_SECONDS;
use super::search::{MissingIndex, PendingAnswer, SearchFailure, SearchResource};
use super::site::Site;

use retrieval::Retrieval;

/// The limit of [`BODY_MEMORY`], in bytes.
const MAX_BODY_MEMORY_BYTES: u64 = 16 << 20;
/// The memory of the bodies of all questions of the process.
static BODY_MEMORY: HeldBytes = HeldBytes::new(MAX_BODY_MEMORY_BYTES);
/// The limits of bodies.
pub(super) static BODY_LIMITS: BodyLimits = BodyLimits::new(MAX_BODY_BYTES, &BODY_MEMORY);

/// The log of questions for untrusted hosts.
static UNTRUSTED_HOST_LOG: UntrustedHostLog = UntrustedHostLog::new("_docwharf/ask");

/// `X-Accel-Buffering`, by which nginx passes a response on as it arrives.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const EVENT_STREAM_TYPE: &str = "text/event-stream";

/// The time after the deadline of the model in which the end of an answer is sent to a client that reads.
const END_GRACE: Duration = Duration::from_secs(1);
/// The Retry-After while too many questions are being answered, in seconds.
const QUESTION_RETRY_SECONDS: u32 = 5;

/// A question that is answered after its body was read.
#[derive(Debug)]
pub(super) struct AskRequest {
    in_force: Arc<AskInForce>,
    start: Instant,
}

/// Returns whether the site answers questions: it has an endpoint, and its search is on.
pub(super) fn is_on(site: &Site) -> bool {
    site.ask.is_enabled() && site.search.is_enabled()
}

/// Checks a request before its body is read: returns the request, or the refusal; `None` if no questions are answered.
pub(super) fn check_ask_request(context: &RequestContext<'_>) -> Option<Result<AskRequest, Response<ResponseBody>>> {
    let site = context.site();
    let in_force = site.ask.in_force().filter(|_| is_on(site))?;
    let settings = site.assistant_settings()?;
    if RequestOrigin::read(context) != RequestOrigin::Absent && !is_own_origin(context) {
        let error = "the field Origin names another site; only pages of this site may ask";
        return Some(Err(refuse(site, AskOutcome::Forbidden, StatusCode::FORBIDDEN, error)));
    }
    if !has_trusted_host(context, &settings.hosts) {
        UNTRUSTED_HOST_LOG.warn(context);
        let error = "questions are not answered for the host of this request; the log of docwharf has the reason";
        return Some(Err(refuse(site, AskOutcome::Forbidden, StatusCode::FORBIDDEN, error)));
    }
    // A question is counted after its body was read, if it can be answered. A client without one left sends no body.
    if site.ask.is_client_limited(context.client().address, in_force.settings.per_minute.get()) {
        return Some(Err(refuse_limited(site)));
    }
    Some(Ok(AskRequest { in_force, start: Instant::now() }))
}

/// Refuses a question of a client that has sent too many.
fn refuse_limited(site: &Site) -> Response<ResponseBody> {
    let error = "too many questions from this network address; try again in a minute";
    let response = refuse(site, AskOutcome::RateLimited, StatusCode::TOO_MANY_REQUESTS, error);
    with_retry_after(response, RATE_RETRY_SECONDS)
}

/// Runs a future as a task until a deadline, also while the body that it makes is not polled because its client does
/// not read. The task ends when the returned future is dropped.
fn run_until(
    deadline: tokio::time::Instant,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = timeout_at(deadline, work).await;
    });
    async move {
        tasks.join_next().await;
    }
}

impl AskRequest {
    /// Answers the request, whose body was read.
    pub(super) fn answer(self, context: &RequestContext<'_>, body: Result<CountedBytes, BodyFault>) -> PostAnswer {
        match self.start_search(context, body) {
            Ok(search) => Box::pin(search.answer()),
            Err(refusal) => Box::pin(std::future::ready(refusal)),
        }
    }

    /// Parses the question, applies the limits and starts the search.
    #[allow(clippy::result_large_err)] // a refusal is moved once, and a box would cost an allocation
    fn start_search(
        self,
        context: &RequestContext<'_>,
        body: Result<CountedBytes, BodyFault>,
    ) -> Result<PendingQuestion, Response<ResponseBody>> {
        let site = context.site();
        let body = body.map_err(|fault| {
            let retry_seconds = fault.retry_seconds();
            let outcome = if retry_seconds.is_some() { AskOutcome::Busy } else { AskOutcome::Invalid };
            with_retry_after(refuse(site, outcome, fault.status(), &fault.message(BODY_LIMITS)), retry_seconds)
        })?;
        let settings = &self.in_force.settings;
        let question = ReaderQuestion::parse(body.as_ref(), settings.max_question.get())
            .map_err(|fault| refuse(site, AskOutcome::Invalid, StatusCode::BAD_REQUEST, &fault.to_string()))?;
        drop(body);
        if !site.ask.allows_client(context.client().address, settings.per_minute.get()) {
            return Err(refuse_limited(site));
        }
        let version = context.shared_version().ok_or_else(|| fixed_responses::no_version(false))?;
        // Search or ask may have been turned off since the check.
        let search_settings = site.search.settings().ok_or_else(|| fixed_responses::file_not_found(false))?;
        let index = site.search.require_index().map_err(|missing| refuse_without_index(site, missing))?;
        let mut running = site.ask.start_question(settings.parallel.get()).ok_or_else(|| refuse_busy(site))?;
        if let Err(seconds) = site.ask.allows_today(settings.per_day.get()) {
            running.finish(AskOutcome::RateLimited);
            let error = "the questions of today are used up; try again tomorrow";
            return Err(with_retry_after(error_response(StatusCode::TOO_MANY_REQUESTS, error), seconds));
        }
        let query = retrieval::build_query(site, &question, index, version, &search_settings.settings);
        if query.is_of_earlier_index() {
            site.search.request_index();
        }
        let parallel = search_settings.settings.parallel.get();
        let retrieval = retrieval::start(site, query, parallel, &self.in_force);
        Ok(PendingQuestion {
            in_force: self.in_force,
            start: self.start,
            wants_events: prefers_events_to_json(context.headers()),
            recording: recording_of(context),
            question,
            running,
            retrieval,
        })
    }
}

/// Returns the recorder and the address of the client, if its questions are recorded.
fn recording_of(context: &RequestContext<'_>) -> Option<(Arc<Recorder>, IpAddr)> {
    let recorder = context.site().recorder().filter(|recorder| recorder.records_searches())?;
    let fields = RecordedFields::from_request(context.target(), context.headers());
    recorder.records_events_of(&fields).then(|| (recorder, context.client().address))
}

/// A question whose search has started.
struct PendingQuestion {
    in_force: Arc<AskInForce>,
    start: Instant,
    wants_events: bool,
    recording: Option<(Arc<Recorder>, IpAddr)>,
    question: ReaderQuestion,
    running: RunningQuestion,
    retrieval: PendingAnswer<Retrieval>,
}

impl PendingQuestion {
    /// Waits for the search and asks the model. Dropping the future cancels the request to the endpoint.
    async fn answer(mut self) -> Response<ResponseBody> {
        let retrieval = match self.retrieval.wait().await {
            Ok(retrieval) => retrieval,
            Err(SearchFailure::Busy) => {
                self.running.finish(AskOutcome::Busy);
                let error = "the server is busy; try again in a moment";
                return with_retry_after(
                    error_response(StatusCode::SERVICE_UNAVAILABLE, error),
                    QUESTION_RETRY_SECONDS,
                );
            }
            Err(SearchFailure::Failed) => {
                self.running.finish(AskOutcome::Indexing);
                let error = "the search index cannot be read; the log of docwharf has the reason";
                return error_response(StatusCode::SERVICE_UNAVAILABLE, error);
            }
        };
        if let Some((recorder, client)) = &self.recording {
            recorder.note_question(*client, &self.question.text, retrieval.total);
        }
        let model = &self.in_force.settings.model;
        if retrieval.passages.is_empty() {
            self.running.finish(AskOutcome::NothingFound);
            let end = nothing_found(model, self.start);
            if !self.wants_events {
                return answer_response(&CompleteAnswer::without_text(end));
            }
            let events = AnswerEvent::Citations(&[]).encode() + &AnswerEvent::Done(&end).encode();
            return event_response(ResponseBody::full(events));
        }
        let messages = build_messages(&self.question.text, &retrieval.passages);
        let key = match retrieval.key {
            Ok(key) => key,
            Err(failure) => return fail(&mut self.running, &failure),
        };
        let chat = match self.in_force.endpoint.ask(key.as_ref(), &messages, self.wants_events).await {
            Ok(chat) => chat,
            Err(failure) => return fail(&mut self.running, &failure),
        };
        let mut answer = RunningAnswer::new(self.running, retrieval.passages, chat, model, self.start);
        if !self.wants_events {
            return match answer.complete().await {
                Ok(answer) => answer_response(&answer),
                Err(failure) => failure_response(&failure),
            };
        }
        match answer.next_text().await {
            Ok(first) => event_response(ResponseBody::streamed(|sender| {
                let deadline = answer.deadline() + END_GRACE;
                run_until(deadline, answer.stream(first, sender))
            })),
            Err(failure) => failure_response(&failure),
        }
    }
}

/// Notes that the endpoint has failed, and returns the response.
fn fail(running: &mut RunningQuestion, failure: &ChatFailure) -> Response<ResponseBody> {
    running.fail(failure);
    failure_response(failure)
}

fn failure_response(failure: &ChatFailure) -> Response<ResponseBody> {
    let (status, error) = describe_failure(failure);
    error_response(status, error)
}

fn refuse_without_index(site: &Site, missing: MissingIndex) -> Response<ResponseBody> {
    let (error, retry_seconds) = match missing {
        MissingIndex::Building => {
            ("the search index is being built; try again in a moment", Some(INDEXING_RETRY_SECONDS))
        }
        MissingIndex::Failed => {
            ("the site has no search index, because its build has failed; the log of docwharf has the reason", None)
        }
    };
    with_retry_after(refuse(site, AskOutcome::Indexing, StatusCode::SERVICE_UNAVAILABLE, error), retry_seconds)
}

fn refuse_busy(site: &Site) -> Response<ResponseBody> {
    let error = "other questions are being answered; try again in a moment";
    with_retry_after(refuse(site, AskOutcome::Busy, StatusCode::SERVICE_UNAVAILABLE, error), QUESTION_RETRY_SECONDS)
}

/// Refuses a question, and counts that.
fn refuse(site: &Site, outcome: AskOutcome, status: StatusCode, error: &str) -> Response<ResponseBody> {
    site.ask.count(outcome);
    error_response(status, error)
}

fn error_response(status: StatusCode, error: &str) -> Response<ResponseBody> {
    attach_resource(uncached_response(status, JSON_TYPE, json!({ "error": error }).to_string()))
}

fn answer_response(answer: &CompleteAnswer) -> Response<ResponseBody> {
    attach_resource(uncached_response(StatusCode::OK, JSON_TYPE, json!(answer).to_string()))
}

/// Creates the response with events. It is neither stored nor compressed, and a proxy passes it on as it arrives.
fn event_response(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = header_pool::new_response(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    attach_resource(response)
}

/// Marks a response as one of the search, to which the rules of the bundle do not apply.
fn attach_resource(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.extensions_mut().insert(SearchResource::Answers);
    response
}

#[cfg(test)]
mod tests;
