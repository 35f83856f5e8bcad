//! Answers requests for the addresses of the search: `BASE/_docwharf/search` and the files beside it.
//!
//! A request for `search` needs a query if the reader has typed something, the site has an index, and the client does
//! not have the answer already. A query runs on another thread, so its response is deferred: [`start_query`]
//! starts it, and [`FinishedQuery::respond`] answers the request. Every other response is available at once
//! ([`respond`]). Access control and the checks of the request come before all of this.

mod answer_tag;
mod answers;
mod files;

use std::borrow::Cow;
use std::sync::Arc;

use http::Response;
use percent_encoding::percent_decode;

use docwharf_site::lookup::{BasePathMatch, match_base_path};
use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::conditional::{fails_match_of_weak_tag, matches_none_match};
use super::negotiate::prefers_html_to_json;
use super::request_context::RequestContext;
use super::search::{
    AnswerFormat, InvalidParameters, PendingAnswer, SearchAnswer, SearchAsset, SearchAudience, SearchFailure,
    SearchParameters, SearchQuery, SearchResource, SearchSettingsInForce, empty_response, render_answer,
};
use super::site::Site;

use answer_tag::compute_answer_tag;

pub(super) use files::respond_with_asset;

/// A question, and how its answer is sent.
#[derive(Debug)]
struct SearchQuestion {
    parameters: SearchParameters,
    format: AnswerFormat,
    /// The opaque tag of the answer, with its quotes; `None` for an answer that clients must not store.
    tag: Option<String>,
}

/// A query that was started for a request.
#[derive(Debug)]
pub(super) struct PendingQuery {
    question: SearchQuestion,
    version: Arc<SealedVersion>,
    answer: PendingAnswer,
}

impl PendingQuery {
    /// Waits for the end of the query.
    pub(super) async fn wait(self) -> FinishedQuery {
        FinishedQuery { question: self.question, version: self.version, result: self.answer.wait().await }
    }
}

/// A query that has ended or was refused.
#[derive(Debug)]
pub(super) struct FinishedQuery {
    question: SearchQuestion,
    version: Arc<SealedVersion>,
    result: Result<SearchAnswer, SearchFailure>,
}

impl FinishedQuery {
    /// Returns the version that was served when the request was received.
    pub(super) fn version(&self) -> Arc<SealedVersion> {
        Arc::clone(&self.version)
    }

    /// Answers the request for which the query was started.
    pub(super) fn respond(self, context: &RequestContext<'_>) -> Response<ResponseBody> {
        attach_resource(answers::respond_with_result(context, &self.question, self.result), SearchResource::Answers)
    }
}

/// The inputs of an answer to a request for `search`.
enum SearchStep {
    /// A refusal, because the parameters are not valid.
    Refuse(InvalidParameters),
    /// A refusal, because there is no index.
    RefuseWithoutIndex(SearchParameters),
    /// 412, because the client wants no answer but one that it has.
    PreconditionFailed,
    /// 304, because the client has the answer with this opaque tag.
    NotModified(String),
    /// An answer without results, because the reader has typed nothing.
    AnswerWithoutWords(SearchQuestion),
    /// A query.
    Run(SearchQuestion, Box<SearchQuery>),
}

/// Returns whether the response to a request for this target, path and query, may depend on a query.
pub(super) fn may_need_query(site: &Site, target: &str) -> bool {
    let Some((path, _)) = target.split_once('?') else { return false };
    if !site.search.is_enabled() {
        return false;
    }
    let base_path = &site.settings.base_path;
    let decoded: Cow<'_, [u8]> = percent_decode(path.as_bytes()).into();
    let BasePathMatch::Inside(_) = match_base_path(base_path, &decoded) else { return false };
    SearchResource::from_path(&decoded[base_path.len() - 1..]) == Some(SearchResource::Answers)
}

/// Starts the query that a request needs; `None` if its response is available at once. The caller has checked that the
/// client may read the site.
pub(super) fn start_query(context: &RequestContext<'_>) -> Option<PendingQuery> {
    let search = &context.site().search;
    let settings = search.settings()?;
    if SearchResource::from_path(context.path_in_site()?) != Some(SearchResource::Answers) {
        return None;
    }
    let SearchStep::Run(question, query) = next_step(context, &settings, context.shared_version()?) else {
        return None;
    };
    if query.is_of_earlier_index() {
        search.request_index();
    }
    let version = Arc::clone(&query.version);
    let answer = search.submit(settings.settings.parallel.get(), *query);
    Some(PendingQuery { question, version, answer })
}

/// Answers a request for a resource of the search. `None` if the search is off, or if there is none at `path`, the
/// decoded path within the site with its leading slash. A request that needs a query is refused as if the query had
/// waited for too long: [`start_query`] must be called before.
pub(super) fn respond(context: &RequestContext<'_>, path: &[u8]) -> Option<Response<ResponseBody>> {
    let resource = SearchResource::from_path(path)?;
    let settings = context.site().search.settings()?;
    let max_question = context.site().ask.in_force().map(|ask| ask.settings.max_question);
    let response = match resource {
        SearchResource::Answers => respond_to_search(context, &settings, context.shared_version()?),
        SearchResource::BoxScript => files::respond_with_asset(context, &settings.script(max_question)),
        SearchResource::AskScript if max_question.is_some() => {
            files::respond_with_asset(context, SearchAsset::ask_script())
        }
        SearchResource::AskStyles if max_question.is_some() => {
            files::respond_with_asset(context, SearchAsset::ask_styles())
        }
        SearchResource::AskScript | SearchResource::AskStyles => return None,
        SearchResource::BoxStyles => files::respond_with_asset(context, SearchAsset::box_styles()),
        SearchResource::PageStyles => files::respond_with_asset(context, SearchAsset::page_styles()),
        SearchResource::OpenSearch => files::respond_with_open_search(context),
    };
    Some(attach_resource(response, resource))
}

/// Adds the resource to the extensions of its response, for the later stages of header fields.
fn attach_resource(mut response: Response<ResponseBody>, resource: SearchResource) -> Response<ResponseBody> {
    response.extensions_mut().insert(resource);
    response
}

fn respond_to_search(
    context: &RequestContext<'_>,
    settings: &SearchSettingsInForce,
    version: Arc<SealedVersion>,
) -> Response<ResponseBody> {
    let id = version.id;
    match next_step(context, settings, version) {
        SearchStep::Refuse(invalid) => answers::refuse_parameters(context, format_for(context), &invalid),
        SearchStep::RefuseWithoutIndex(parameters) => {
            answers::refuse_without_index(context, format_for(context), &parameters)
        }
        SearchStep::PreconditionFailed => answers::respond_precondition_failed(),
        SearchStep::NotModified(tag) => answers::respond_not_modified(&tag),
        SearchStep::AnswerWithoutWords(question) => {
            // Such an answer is stored unless the index is of an earlier version.
            let response = empty_response(&question.parameters.text, id, question.tag.is_none());
            let answer = render_answer(&question.parameters, question.format, &response);
            answers::respond_with_result(context, &question, answer.map_err(|_| SearchFailure::Failed))
        }
        SearchStep::Run(question, _) => answers::respond_with_result(context, &question, Err(SearchFailure::Busy)),
    }
}

fn format_for(context: &RequestContext<'_>) -> AnswerFormat {
    if prefers_html_to_json(context.headers()) { AnswerFormat::Page } else { AnswerFormat::Json }
}

/// Decides what a request for `search` needs, without effects.
fn next_step(
    context: &RequestContext<'_>,
    settings: &SearchSettingsInForce,
    version: Arc<SealedVersion>,
) -> SearchStep {
    let parameters = match SearchParameters::parse(context.target().query()) {
        Ok(parameters) => parameters,
        Err(invalid) => return SearchStep::Refuse(invalid),
    };
    let (site, format) = (context.site(), format_for(context));
    let index = site.search.index();
    if index.is_none() && !parameters.is_empty() {
        return SearchStep::RefuseWithoutIndex(parameters);
    }
    if fails_match_of_weak_tag(context.headers()) {
        return SearchStep::PreconditionFailed;
    }
    let addresses = site.address_settings();
    let is_indexing = index.as_ref().is_some_and(|index| index.version() != version.id);
    let tag = (!is_indexing).then(|| {
        let settings = &settings.answers_digest;
        compute_answer_tag(&parameters, format, version.id, index.as_deref(), &addresses, settings)
    });
    if let Some(tag) = tag.as_ref().filter(|tag| matches_none_match(context.headers(), tag)) {
        return SearchStep::NotModified(tag.clone());
    }
    let question = SearchQuestion { parameters, format, tag };
    match index {
        Some(index) if !question.parameters.is_empty() => {
            let parameters = question.parameters.clone();
            let (exclude, synonyms) = (Arc::clone(&settings.settings.exclude), Arc::clone(&settings.settings.synonyms));
            let query = SearchQuery {
                parameters,
                format,
                audience: SearchAudience::Readers,
                index,
                version,
                addresses,
                exclude,
                synonyms,
            };
            SearchStep::Run(question, Box::new(query))
        }
        _ => SearchStep::AnswerWithoutWords(question),
    }
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;
