//! The work that the response to a request waits for, decided in one place for all listeners and protocols.
//!
//! [`RequestStep::of`] decides, without effects but for the start of a query. [`RequestStep::finish`] waits, and
//! [`respond_to_step`](super::handler::respond_to_step) answers, with the version that was served when the request was
//! received.

use std::sync::Arc;

use http::{Request, Response};

use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::markdown_handler::{self, UnconvertedPage};
use super::peer::Peer;
use super::post_resources::{PostRequest, check_post_request};
use super::request_body::RequestBody;
use super::request_checks::{check_access, check_request};
use super::request_context::RequestContext;
use super::search_handler::{self, FinishedQuery, PendingQuery};
use super::site::Site;

/// The work that the response to a request waits for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are `Now`, and a box would cost an allocation for each of the others
pub(super) enum RequestStep {
    /// Nothing: the response is available at once.
    Now,
    /// Nothing, because a POST request was refused before its body is read.
    Refused(Response<ResponseBody>),
    /// The body of a POST request, and its resource.
    Post(PostRequest),
    /// The query of a search.
    Query(PendingQuery),
    /// A page that must be converted to Markdown.
    Conversion(UnconvertedPage),
}

/// A [`RequestStep`] that has ended.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // as for `RequestStep`
pub(super) enum FinishedStep {
    /// The response depends on the request alone.
    Now,
    /// A POST request has this response.
    Post(Response<ResponseBody>),
    Query(FinishedQuery),
    /// A page of this version was converted.
    Conversion(Arc<SealedVersion>),
}

impl RequestStep {
    /// Decides what the response to a request waits for.
    pub(super) fn of(context: &RequestContext<'_>) -> RequestStep {
        match check_post_request(context) {
            Some(Ok(post)) => return RequestStep::Post(post),
            Some(Err(refusal)) => return RequestStep::Refused(refusal),
            None => {}
        }
        let target = context.target().path_and_query();
        let is_search = target.is_some_and(|target| search_handler::may_need_query(context.site(), target.as_str()));
        // Nothing is looked at for a client that may not read the site.
        if !(is_search || markdown_handler::may_be_markdown(context))
            || check_access(context).is_some()
            || check_request(context).is_some()
        {
            return RequestStep::Now;
        }
        let query = if is_search { search_handler::start_query(context) } else { None };
        match query {
            Some(query) => RequestStep::Query(query),
            None => markdown_handler::find_unconverted_page(context).map_or(RequestStep::Now, RequestStep::Conversion),
        }
    }

    /// Returns whether the work ends when the client closes its sending side, because it costs far more than a file.
    pub(super) fn ends_with_client(&self) -> bool {
        matches!(self, RequestStep::Post(post) if post.ends_with_client())
    }

    /// Waits for the work. Returns the request as well, without its body if that was read.
    pub(super) async fn finish<B: RequestBody>(
        self,
        site: &Site,
        request: Request<B>,
        peer: Option<Peer>,
    ) -> (FinishedStep, Request<Option<B>>) {
        let finished = match self {
            RequestStep::Now => FinishedStep::Now,
            RequestStep::Refused(refusal) => FinishedStep::Post(refusal),
            RequestStep::Post(post) => {
                let (head, body) = request.into_parts();
                let body = body.read(post.body_limits()).await;
                let request = Request::from_parts(head, None);
                let answer = post.answer(&RequestContext::new(site, &request, peer), body);
                return (FinishedStep::Post(answer.await), request);
            }
            RequestStep::Query(query) => FinishedStep::Query(query.wait().await),
            RequestStep::Conversion(page) => {
                let version = Arc::clone(&page.version);
                page.start_conversion(site).wait().await;
                FinishedStep::Conversion(version)
            }
        };
        (finished, request.map(Some))
    }
}

impl FinishedStep {
    /// Returns the version that was served when the request was received, if the response has to be of that one.
    pub(super) fn version(&self) -> Option<Arc<SealedVersion>> {
        match self {
            FinishedStep::Now | FinishedStep::Post(_) => None,
            FinishedStep::Query(query) => Some(query.version()),
            FinishedStep::Conversion(version) => Some(Arc::clone(version)),
        }
    }
}
