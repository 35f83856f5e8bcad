//! What is answered where: one table, which requests are looked up in and which the `OpenAPI` document is made of.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    StartPreview,
    PreviewStatus,
    StartExport,
    ExportStatus,
    ExportBundle,
    Searches,
    Ingest,
}

/// An operation and where it is.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) operation: Operation,
    pub(super) method: Method,
    /// With `{names}` for what is part of a question.
    pub(super) path: &'static str,
    /// Its name, for clients that are generated and for metrics.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
}

const fn route(
    operation: Operation,
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Route {
    Route { operation, method, path, id, summary }
}

/// All of them. Whatever else begins with `/v1` is not there.
pub(super) static ROUTES: [Route; 7] = [
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
        "How a deployment stands",
    ),
    route(Operation::StartExport, Method::POST, "/v1/static-export/jobs", "startExport", "Starts an export job"),
    route(
        Operation::ExportStatus,
        Method::GET,
        "/v1/static-export/jobs/{jobId}",
        "getExport",
        "How an export job stands",
    ),
    route(
        Operation::ExportBundle,
        Method::POST,
        "/v1/static-export/jobs/{jobId}/bundle",
        "createBundleLink",
        "A fresh link to the bundle of a completed job",
    ),
    route(
        Operation::Searches,
        Method::GET,
        "/v1/analytics/{projectId}/searches",
        "getSearches",
        "What readers searched for, the most frequent first",
    ),
    route(
        Operation::Ingest,
        Method::POST,
        "/v1/analytics/{projectId}/searches",
        "ingestSearches",
        "Takes searches that happened elsewhere, once for each batch",
    ),
];

/// What a request is for.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// This, with the value in the path, if there is one.
    Route(&'static Route, Option<Cow<'a, str>>),
    /// The address is there, for these methods.
    Allowed(Vec<&'static str>),
    /// Nothing.
    Nothing,
}

/// Looks a request up. HEAD is asked as GET is.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    let mut allowed = Vec::new();
    for route in &ROUTES {
        let Some(value) = matches(route.path, path) else { continue };
        let value = Some(value).filter(|value| !value.is_empty());
        if route.method == *method || route.method == Method::GET && *method == Method::HEAD {
            return Found::Route(route, value);
        }
        allowed.push(route.method.as_str());
        if route.method == Method::GET {
            allowed.push("HEAD");
        }
    }
    if allowed.is_empty() { Found::Nothing } else { Found::Allowed(allowed) }
}

/// If `path` is one of these its value, empty where there is none to have.
fn matches<'a>(template: &str, path: &'a str) -> Option<Cow<'a, str>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_looked_up_with_its_method_and_its_value_is_decoded() {
        let found = |method: Method, path: &str| match find(&method, path) {
            Found::Route(route, value) => format!("{} {}", route.id, value.unwrap_or_default()),
            Found::Allowed(methods) => methods.join(", "),
            Found::Nothing => "nothing".to_owned(),
        };
        assert_eq!(found(Method::GET, "/v1/static-export/jobs/se%5F1"), "getExport se_1");
        assert_eq!(found(Method::HEAD, "/v1/static-export/jobs/x"), "getExport x");
        assert_eq!(found(Method::POST, "/v1/static-export/jobs"), "startExport ");
        assert_eq!(found(Method::DELETE, "/v1/analytics/p/searches"), "GET, HEAD, POST");
        for nothing in
            ["/v1", "/v1/", "/v1/static-export/jobs/", "/v1/static-export/jobs/a/b", "/v2/static-export/jobs"]
        {
            assert_eq!(found(Method::GET, nothing), "nothing", "{nothing}");
        }
    }
}
