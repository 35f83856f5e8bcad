//! The table of operations. Requests are looked up in it, and the `OpenAPI` document is generated from it.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    StartPreview,
    PreviewStatus,
    StartExport,
    ExportStatus,
    CreateBundleLink,
    Searches,
    ReceiveBatch,
    Views,
    ReceiveViewBatch,
    PageCounts,
}

/// An operation with its method, its path and its description.
#[derive(Debug)]
pub(super) struct ApiRoute {
    pub(super) operation: Operation,
    pub(super) method: Method,
    /// The path, with `{name}` for a parameter.
    pub(super) path: &'static str,
    /// The name of the operation, for generated clients and for metrics.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
}

const fn route(
    operation: Operation,
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> ApiRoute {
    ApiRoute { operation, method, path, id, summary }
}

/// All routes. Any other path below `/v1` is answered with 404.
pub(super) static ROUTES: [ApiRoute; 10] = [
    route(
        Operation::StartPreview,
        Method::POST,
        "/v1/project/preview/{projectId}",
        "startPreview",
        "Deploys a preview of a branch, or deploys it again",
    ),
    route(
        Operation::PreviewStatus,
        Method::GET,
        "/v1/project/update-status/{statusId}",
        "getDeploymentStatus",
        "Returns the status of a deployment",
    ),
    route(Operation::StartExport, Method::POST, "/v1/static-export/jobs", "startExport", "Starts an export job"),
    route(
        Operation::ExportStatus,
        Method::GET,
        "/v1/static-export/jobs/{jobId}",
        "getExport",
        "Returns the status of an export job",
    ),
    route(
        Operation::CreateBundleLink,
        Method::POST,
        "/v1/static-export/jobs/{jobId}/bundle",
        "createBundleLink",
        "Creates a new link to the bundle of a completed job",
    ),
    route(
        Operation::Searches,
        Method::GET,
        "/v1/analytics/{projectId}/searches",
        "getSearches",
        "Lists the terms that readers searched for, the most frequent first",
    ),
    route(
        Operation::ReceiveBatch,
        Method::POST,
        "/v1/analytics/{projectId}/searches",
        "ingestSearches",
        "Records a batch of searches; a batch that is sent again counts once",
    ),
    route(
        Operation::Views,
        Method::GET,
        "/v1/analytics/{projectId}/views",
        "getViews",
        "Lists the pages that readers viewed, those with the most views first",
    ),
    route(
        Operation::ReceiveViewBatch,
        Method::POST,
        "/v1/analytics/{projectId}/views",
        "ingestViews",
        "Records the daily counts; a count that is sent again counts once",
    ),
    route(
        Operation::PageCounts,
        Method::GET,
        "/v1/analytics/{projectId}/pages",
        "getPages",
        "Lists counts by day, referrer, entry page, path that does not exist, or program",
    ),
];

/// The result of looking up a request.
#[derive(Debug)]
pub(super) enum RouteMatch<'a> {
    /// A route, with the decoded value of the path parameter if it has one.
    ApiRoute(&'static ApiRoute, Option<Cow<'a, str>>),
    /// The path exists, with these methods only.
    OtherMethods(Vec<&'static str>),
    /// The path does not exist.
    NotFound,
}

/// Looks up a request. HEAD finds the route of GET.
pub(super) fn find_route<'a>(method: &Method, path: &'a str) -> RouteMatch<'a> {
    let mut allowed = Vec::new();
    for route in &ROUTES {
        let Some(value) = match_template(route.path, path) else { continue };
        let value = Some(value).filter(|value| !value.is_empty());
        if route.method == *method || route.method == Method::GET && *method == Method::HEAD {
            return RouteMatch::ApiRoute(route, value);
        }
        allowed.push(route.method.as_str());
        if route.method == Method::GET {
            allowed.push("HEAD");
        }
    }
    if allowed.is_empty() { RouteMatch::NotFound } else { RouteMatch::OtherMethods(allowed) }
}

/// Returns the parameter if `path` matches the template; it is empty if the template has none.
fn match_template<'a>(template: &str, path: &'a str) -> Option<Cow<'a, str>> {
    let (mut names, mut parts, mut value) = (template.split('/'), path.split('/'), Cow::default());
    loop {
        match (names.next(), parts.next()) {
            (None, None) => return Some(value),
            (Some(name), Some(part)) if name.starts_with('{') => {
                value = Some(percent_decode_str(part).decode_utf8_lossy()).filter(|value| !value.is_empty())?;
            }
            (Some(name), Some(part)) if name == part => {}
            _ => return None,
        }
    }
}

impl Operation {
    /// Returns whether the operation receives a batch of analytics.
    pub(super) fn receives_batch(self) -> bool {
        matches!(self, Operation::ReceiveBatch | Operation::ReceiveViewBatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_matched_by_method_and_path_and_path_parameters_are_percent_decoded() {
        let found = |method: Method, path: &str| match find_route(&method, path) {
            RouteMatch::ApiRoute(route, value) => format!("{} {}", route.id, value.unwrap_or_default()),
            RouteMatch::OtherMethods(methods) => methods.join(", "),
            RouteMatch::NotFound => "nothing".to_owned(),
        };
        assert_eq!(found(Method::GET, "/v1/static-export/jobs/se%5F1"), "getExport se_1");
        assert_eq!(found(Method::HEAD, "/v1/static-export/jobs/x"), "getExport x");
        assert_eq!(found(Method::POST, "/v1/static-export/jobs"), "startExport ");
        assert_eq!(found(Method::DELETE, "/v1/analytics/p/searches"), "GET, HEAD, POST");
        assert_eq!(found(Method::POST, "/v1/analytics/p/pages"), "GET, HEAD");
        assert_eq!(found(Method::POST, "/v1/analytics/p/views"), "ingestViews p");
        for nothing in
            ["/v1", "/v1/", "/v1/static-export/jobs/", "/v1/static-export/jobs/a/b", "/v2/static-export/jobs"]
        {
            assert_eq!(found(Method::GET, nothing), "nothing", "{nothing}");
        }
    }
}
