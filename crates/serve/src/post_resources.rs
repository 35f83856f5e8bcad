//! The resources of a site that answer POST requests: all of them are below `_docwharf/`. This is the one path of
//! requests with bodies, for all protocols.
//!
//! A request is checked before its body is read ([`check_post_request`]), so that nothing is received from a client
//! that is refused anyway. Its body is then read within the limits of the resource
//! ([`request_body`](super::request_body)), and the resource answers, at once or later ([`PostRequest::answer`]). No
//! other resource has a body.

use std::borrow::Cow;

use http::header::ALLOW;
use http::{HeaderValue, Method, Response};
use percent_encoding::percent_decode;

use docwharf_site::lookup::{BasePathMatch, RESERVED_FOLDER, match_base_path};

use super::ask_handler::{self, AskRequest};
use super::body::{PostAnswer, ResponseBody};
use super::events_handler::{self, EventRequest};
use super::fixed_responses;
use super::mcp_handler::{self, McpRequest};
use super::playground_handler::{self, PlaygroundRequest};
use super::request_body::{BodyFault, BodyLimits, CountedBytes};
use super::request_checks::{check_access, check_request_head};
use super::request_context::{MethodClass, RequestContext};
use super::site::Site;

/// The methods of these resources, as `Allow` lists them.
const ALLOWED_METHODS: &str = "POST, OPTIONS";

/// A resource that answers POST requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PostResource {
    /// Events of readers.
    Events,
    /// The Model Context Protocol.
    Mcp,
    /// Requests of pages to APIs.
    Playground,
    /// The questions of readers.
    Ask,
}

/// The resources, by their names below `_docwharf/`.
pub(super) const POST_RESOURCES: [(&str, PostResource); 4] = [
    ("events", PostResource::Events),
    ("mcp", PostResource::Mcp),
    ("playground", PostResource::Playground),
    ("ask", PostResource::Ask),
];

impl PostResource {
    /// Returns the resource at a decoded path within the site; `None` if there is none.
    fn at_path(path: &[u8]) -> Option<PostResource> {
        let name = path.strip_prefix(b"/")?.strip_prefix(RESERVED_FOLDER)?.strip_prefix(b"/")?;
        POST_RESOURCES.iter().find(|(resource, _)| resource.as_bytes() == name).map(|(_, resource)| *resource)
    }

    /// Returns the resource of a request target, path and query; `None` if there is none.
    fn of_target(site: &Site, target: &str) -> Option<PostResource> {
        let path = target.split('?').next().unwrap_or_default();
        let decoded: Cow<'_, [u8]> = percent_decode(path.as_bytes()).into();
        let base_path = &site.settings.base_path;
        let BasePathMatch::Inside(_) = match_base_path(base_path, &decoded) else { return None };
        PostResource::at_path(&decoded[base_path.len() - 1..])
    }

    /// Returns the limits of bodies; `None` if the resource is off.
    fn body_limits(self, site: &Site) -> Option<BodyLimits> {
        match self {
            PostResource::Events => site.load_recorder().is_some().then_some(events_handler::BODY_LIMITS),
            PostResource::Mcp => mcp_handler::is_on(site).then_some(mcp_handler::BODY_LIMITS),
            PostResource::Playground => site.playground.body_limits(),
            PostResource::Ask => ask_handler::is_on(site).then_some(ask_handler::BODY_LIMITS),
        }
    }
}

/// Returns the limits of the body of a POST request for this target, path and query; `None` if its body is not used.
pub(super) fn post_body_limits(site: &Site, target: &str) -> Option<BodyLimits> {
    PostResource::of_target(site, target).and_then(|resource| resource.body_limits(site))
}

/// A POST request that is answered after its body was read.
#[derive(Debug)]
pub(super) struct PostRequest {
    body_limits: BodyLimits,
    kind: PostRequestKind,
}

#[derive(Debug)]
enum PostRequestKind {
    Events(EventRequest),
    Mcp(McpRequest),
    Playground(PlaygroundRequest),
    Ask(AskRequest),
}

/// Checks a POST request before its body is read: returns the request, or the refusal; `None` if it is for no resource
/// that is on. A client that may not read the site learns nothing more.
pub(super) fn check_post_request(context: &RequestContext<'_>) -> Option<Result<PostRequest, Response<ResponseBody>>> {
    if context.method() != Method::POST {
        return None;
    }
    let resource = PostResource::at_path(context.path_in_site()?)?;
    if let Some(refusal) = check_access(context).or_else(|| check_request_head(context)) {
        return Some(Err(refusal));
    }
    let body_limits = resource.body_limits(context.site())?;
    let kind = match resource {
        PostResource::Events => events_handler::check_event_request(context)?.map(PostRequestKind::Events),
        PostResource::Mcp => mcp_handler::check_mcp_request(context)?.map(PostRequestKind::Mcp),
        PostResource::Playground => {
            playground_handler::check_playground_request(context)?.map(PostRequestKind::Playground)
        }
        PostResource::Ask => ask_handler::check_ask_request(context)?.map(PostRequestKind::Ask),
    };
    Some(kind.map(|kind| PostRequest { body_limits, kind }))
}

/// Refuses a request for one of these resources that is not a POST, or that comes while the resource is off; `None` if
/// the request is for something else.
pub(super) fn refuse_post_resource(context: &RequestContext<'_>) -> Option<Response<ResponseBody>> {
    let resource = PostResource::at_path(context.path_in_site()?)?;
    if let Some(refusal) = check_request_head(context) {
        return Some(refusal);
    }
    let is_on = resource.body_limits(context.site()).is_some();
    if *context.method() == Method::POST {
        // The resource was off, or was turned off, when the request was checked.
        return Some(fixed_responses::file_not_found(false));
    }
    let mut response = match (context.method_class(), is_on) {
        (MethodClass::Options, true) => fixed_responses::options(),
        (MethodClass::Options, false) => return None,
        (_, true) => fixed_responses::method_not_allowed(context.is_head()),
        (_, false) => return Some(fixed_responses::file_not_found(context.is_head())),
    };
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED_METHODS));
    Some(response)
}

impl PostRequest {
    /// Returns the limits of the body.
    pub(super) fn body_limits(&self) -> BodyLimits {
        self.body_limits
    }

    /// Returns whether the work for the response ends when the client closes its sending side.
    pub(super) fn ends_with_client(&self) -> bool {
        matches!(self.kind, PostRequestKind::Ask(_) | PostRequestKind::Playground(_))
    }

    /// Answers the request, whose body was read.
    pub(super) fn answer(self, context: &RequestContext<'_>, body: Result<CountedBytes, BodyFault>) -> PostAnswer {
        // The access control may have changed since the check.
        if let Some(refusal) = check_access(context) {
            return Box::pin(std::future::ready(refusal));
        }
        match self.kind {
            PostRequestKind::Events(events) => Box::pin(std::future::ready(events.respond(context, body))),
            PostRequestKind::Mcp(request) => Box::pin(request.answer(body)),
            PostRequestKind::Playground(playground) => Box::pin(playground.respond(body, self.body_limits)),
            PostRequestKind::Ask(ask) => ask.answer(context, body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteSettings;

    #[test]
    fn a_resource_has_one_decoded_path_below_the_base_path() {
        let site = Site::new(SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() });
        for (target, expected) in [
            ("/docs/_docwharf/events", true),
            ("/docs/_docwharf/events?x=1", true),
            ("/docs/%5fdocwharf/%65vents", true),
            ("/docs/_docwharf/events/", false),
            ("/docs/_docwharf/eventsx", false),
            ("/docs/_docwharf/", false),
            ("/docs/_docwharf", false),
            ("/_docwharf/events", false),
            ("/docs/a?/docs/_docwharf/events", false),
            ("*", false),
        ] {
            let resource = PostResource::of_target(&site, target);
            assert_eq!(resource == Some(PostResource::Events), expected, "{target}");
        }
        let playground = PostResource::of_target(&site, "/docs/_docwharf/playground");
        assert_eq!(playground, Some(PostResource::Playground));
        for off in ["/docs/_docwharf/events", "/docs/_docwharf/mcp", "/docs/_docwharf/playground"] {
            assert!(post_body_limits(&site, off).is_none(), "{off}");
        }
    }
}
