//! The responses of `search`: answers and refusals, as JSON or as a page.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use docwharf_search::page::{PAGE_POLICY, SearchPageContent};
use docwharf_site::rules::robots_tag::X_ROBOTS_TAG;

use super::SearchQuestion;
use crate::body::ResponseBody;
use crate::fixed_responses::{INDEXING_RETRY_SECONDS, with_retry_after};
use crate::header_pool;
use crate::held_bytes::hold_body;
use crate::recording::recorded_fields::RecordedFields;
use crate::request_context::{MethodClass, RequestContext};
use crate::request_rate::BUSY_RETRY_SECONDS;
use crate::search::{
    AnswerFormat, InvalidParameters, MissingIndex, QueryOutcome, SearchAnswer, SearchFailure, SearchParameters,
    render_search_page,
};
use crate::security_headers::FramePolicy;

/// The Cache-Control of a complete answer. The time is short, because the next version may have other pages.
const ANSWER_CACHE: &str = "private, max-age=60";
/// The Cache-Control of refusals, and of answers that may soon be others.
const NO_STORE: &str = "no-store";

/// Counts the outcome of a request that has a question. Each is counted once, when its response is decided.
fn count(context: &RequestContext<'_>, parameters: &SearchParameters, outcome: QueryOutcome) {
    if !parameters.is_empty() {
        context.site().search.count(outcome);
    }
}

/// Answers a question with the result of its query, and counts that.
pub(super) fn respond_with_result(
    context: &RequestContext<'_>,
    question: &SearchQuestion,
    result: Result<SearchAnswer, SearchFailure>,
) -> Response<ResponseBody> {
    let (format, parameters) = (question.format, &question.parameters);
    match result {
        Ok(SearchAnswer { body, is_indexing, is_partial, has_results, total }) => {
            match hold_body(body.into_boxed_slice()) {
                Some(body) => {
                    count(
                        context,
                        parameters,
                        match (is_partial, has_results) {
                            (true, _) => QueryOutcome::Partial,
                            (false, true) => QueryOutcome::Ok,
                            (false, false) => QueryOutcome::Empty,
                        },
                    );
                    record(context, question, total, is_partial);
                    respond_with_answer(context, question, body, is_indexing || is_partial)
                }
                None => refuse_busy(context, format, parameters),
            }
        }
        Err(SearchFailure::Busy) => refuse_busy(context, format, parameters),
        Err(SearchFailure::Failed) => {
            count(context, parameters, QueryOutcome::Failed);
            let error = json!({ "error": "the search index cannot be read; the log of docwharf has the reason" });
            let content = SearchPageContent::Busy;
            refuse(context, StatusCode::INTERNAL_SERVER_ERROR, format, parameters, &error, content)
        }
    }
}

/// Records a search with this number of results, if it is recorded.
fn record(context: &RequestContext<'_>, question: &SearchQuestion, total: u64, is_partial: bool) {
    let recorder = context.site().load_recorder();
    if let Some(recorder) = &*recorder
        && context.method_class() == MethodClass::Get
        && !question.parameters.is_empty()
    {
        let fields = RecordedFields::from_request(context.target(), context.headers());
        // A part of the results says nothing about their number.
        let total = (!is_partial).then_some(total);
        let is_page = question.format == AnswerFormat::Page;
        recorder.note_answer(&fields, context.client().address, &question.parameters, is_page, total);
    }
}

/// Creates the response with an answer. If `is_temporary`, the same question may soon have another answer, so that
/// clients must not store it.
fn respond_with_answer(
    context: &RequestContext<'_>,
    question: &SearchQuestion,
    body: Bytes,
    is_temporary: bool,
) -> Response<ResponseBody> {
    let mut response = create_response(context, StatusCode::OK, question.format, body);
    if let Some(tag) = question.tag.as_ref().filter(|_| !is_temporary) {
        add_tag(response.headers_mut(), tag);
    }
    response
}

/// Returns the response to a client that has the answer with this opaque tag.
pub(super) fn respond_not_modified(tag: &str) -> Response<ResponseBody> {
    let mut response = header_pool::new_response(StatusCode::NOT_MODIFIED, ResponseBody::empty());
    add_common_fields(response.headers_mut());
    add_tag(response.headers_mut(), tag);
    response
}

/// Returns the response to a client that wants no answer but one that it has.
pub(super) fn respond_precondition_failed() -> Response<ResponseBody> {
    let mut response = header_pool::new_response(StatusCode::PRECONDITION_FAILED, ResponseBody::empty());
    let headers = response.headers_mut();
    add_common_fields(headers);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    response
}

/// Refuses parameters that are not valid, and counts that.
pub(super) fn refuse_parameters(
    context: &RequestContext<'_>,
    format: AnswerFormat,
    invalid: &InvalidParameters,
) -> Response<ResponseBody> {
    context.site().search.count(QueryOutcome::Invalid);
    let error = json!({ "error": invalid.fault.to_string() });
    refuse(context, StatusCode::BAD_REQUEST, format, &invalid.valid, &error, SearchPageContent::Invalid)
}

/// Refuses a question while there is no index, and counts that.
pub(super) fn refuse_without_index(
    context: &RequestContext<'_>,
    format: AnswerFormat,
    parameters: &SearchParameters,
) -> Response<ResponseBody> {
    let search = &context.site().search;
    search.count(QueryOutcome::Indexing);
    if matches!(search.require_index(), Err(MissingIndex::Failed)) {
        let error = json!({ "indexing": false, "error": "the site has no search index, because its build has failed; the log of docwharf has the reason" });
        return refuse(context, StatusCode::SERVICE_UNAVAILABLE, format, parameters, &error, SearchPageContent::Busy);
    }
    let state = json!({ "indexing": true });
    let content = SearchPageContent::IndexBuilding;
    let response = refuse(context, StatusCode::SERVICE_UNAVAILABLE, format, parameters, &state, content);
    with_retry_after(response, INDEXING_RETRY_SECONDS)
}

/// Refuses a question for which there was no time or no memory, and counts that.
fn refuse_busy(
    context: &RequestContext<'_>,
    format: AnswerFormat,
    parameters: &SearchParameters,
) -> Response<ResponseBody> {
    count(context, parameters, QueryOutcome::Busy);
    let error = json!({ "error": "too many searches at a time; try again in a second" });
    let content = SearchPageContent::Busy;
    let response = refuse(context, StatusCode::SERVICE_UNAVAILABLE, format, parameters, &error, content);
    with_retry_after(response, BUSY_RETRY_SECONDS)
}

fn refuse(
    context: &RequestContext<'_>,
    status: StatusCode,
    format: AnswerFormat,
    parameters: &SearchParameters,
    json: &Value,
    content: SearchPageContent<'_>,
) -> Response<ResponseBody> {
    let body = match format {
        AnswerFormat::Json => json.to_string(),
        AnswerFormat::Page => render_search_page(parameters, content),
    };
    create_response(context, status, format, body.into())
}

/// Creates a response that clients must not store. For HEAD, its body is left out.
fn create_response(
    context: &RequestContext<'_>,
    status: StatusCode,
    format: AnswerFormat,
    body: Bytes,
) -> Response<ResponseBody> {
    let len = body.len();
    let body = if context.is_head() { ResponseBody::empty() } else { ResponseBody::full(body) };
    let mut response = header_pool::new_response(status, body);
    let headers = response.headers_mut();
    add_common_fields(headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    if format == AnswerFormat::Page {
        let frames = context.site().settings.security_headers.frames.unwrap_or_default();
        if let Ok(policy) = HeaderValue::from_str(&page_policy(frames)) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
    }
    response
}

/// Adds the fields that all responses of `search` have.
fn add_common_fields(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(NO_STORE));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
}

/// Adds the weak entity tag of an answer, and allows clients to store it.
fn add_tag(headers: &mut HeaderMap, tag: &str) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(ANSWER_CACHE));
    if let Ok(tag) = HeaderValue::from_str(&format!("W/{tag}")) {
        headers.insert(ETAG, tag);
    }
}

/// Returns the content security policy of the search page. Browsers that apply `frame-ancestors` ignore
/// X-Frame-Options, so both must agree.
fn page_policy(frames: FramePolicy) -> String {
    match frames.frame_ancestors() {
        Some(ancestors) => format!("{PAGE_POLICY}; frame-ancestors {ancestors}"),
        None => PAGE_POLICY.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_the_page_names_the_frames_that_the_operator_allows() {
        const START: &str = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; img-src 'self'";
        for (frames, end) in [
            (FramePolicy::SameOrigin, "; frame-ancestors 'self'"),
            (FramePolicy::Deny, "; frame-ancestors 'none'"),
            (FramePolicy::Any, ""),
        ] {
            assert_eq!(page_policy(frames), format!("{START}{end}"), "{frames:?}");
        }
    }
}
