//! The `OpenAPI` 3.1 document, generated from the table of routes and the types of requests and responses.

use std::sync::OnceLock;

use http::Method;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::api_types::{AnalyticsErrorBody, BundleLink, ErrorBody, Job, PreviewStarted, StartExport, StartPreview};
use super::operations::{ApiRoute, Operation, ROUTES};
use super::previews::Deployment;
use docwharf_analytics::delivery::{SearchBatch, SearchReceipt, ViewBatch, ViewReceipt};
use docwharf_analytics::searches::Searches;
use docwharf_analytics::views::{Pages, Views};

/// The version of the API in `info.version`.
const API_VERSION: &str = "1.0.0";

/// Returns the document as JSON.
pub(super) fn document_json() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document().to_string())
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for route in &ROUTES {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Documentation hosting management API",
            "version": API_VERSION,
            "description": "Static exports, preview deployments and analytics, as served by docwharf.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "adminKey": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "adminKey": {
                "type": "http", "scheme": "bearer",
                "description": "An API key. A key of scope `read` allows only GET.",
            } },
            "schemas": schemas.take_definitions(true),
        },
    })
}

fn json_content<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    json!({ "application/json": { "schema": schemas.subschema_for::<T>() } })
}

fn operation(route: &ApiRoute, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": responses(route, schemas),
    });
    if let Some(content) = request_content(route.operation, schemas) {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn request_content(operation: Operation, schemas: &mut SchemaGenerator) -> Option<Value> {
    match operation {
        Operation::StartPreview => Some(json_content::<StartPreview>(schemas)),
        Operation::StartExport => Some(json_content::<StartExport>(schemas)),
        Operation::ReceiveBatch => Some(json_content::<SearchBatch>(schemas)),
        Operation::ReceiveViewBatch => Some(json_content::<ViewBatch>(schemas)),
        Operation::PreviewStatus
        | Operation::ExportStatus
        | Operation::CreateBundleLink
        | Operation::Searches
        | Operation::Views
        | Operation::PageCounts => None,
    }
}

fn parameters(route: &ApiRoute) -> Vec<Value> {
    let mut parameters = Vec::new();
    if let Some((_, rest)) = route.path.split_once('{') {
        let name = rest.split('}').next().unwrap_or_default();
        parameters.push(json!({
            "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 },
        }));
    }
    parameters.extend(query_parameters(route.operation));
    parameters
}

/// Returns the query parameters of an analytics query.
fn query_parameters(operation: Operation) -> Vec<Value> {
    let query = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "query", "schema": schema, "description": description });
    let limit = |max: u64| json!({ "type": "integer", "minimum": 1, "maximum": max, "default": 50 });
    let date = json!({ "type": "string", "anyOf": [{ "format": "date" }, { "format": "date-time" }] });
    let mut parameters = vec![
        query("dateFrom", date.clone(), "The start of the range, inclusive: YYYY-MM-DD (midnight UTC) or ISO 8601."),
        query("dateTo", date, "The end of the range, exclusive."),
    ];
    match operation {
        Operation::Searches => parameters.extend([
            query("limit", limit(100), "Terms on a page."),
            query("cursor", json!({ "type": "string", "minLength": 1 }), "The `nextCursor` of the previous page."),
            query("noResults", json!({ "type": "boolean", "default": false }), "Only searches that found nothing."),
        ]),
        Operation::Views | Operation::PageCounts => parameters.extend([
            query("limit", limit(250), "Rows on a page."),
            query(
                "offset",
                json!({ "type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 0 }),
                "Rows before the page.",
            ),
        ]),
        _ => return Vec::new(),
    }
    if operation == Operation::PageCounts {
        let keys = json!({ "type": "string", "enum": ["day", "referrer", "entry", "notFound", "agent"] });
        parameters.push(json!({
            "name": "by", "in": "query", "required": true, "schema": keys, "description": "The kind of the keys.",
        }));
    }
    parameters
}

/// Returns the responses of an operation: its own statuses, and those that every operation can have.
fn responses(route: &ApiRoute, schemas: &mut SchemaGenerator) -> Value {
    let (status, description, content) = match route.operation {
        Operation::StartPreview => (202, "The preview is queued.", json_content::<PreviewStarted>(schemas)),
        Operation::PreviewStatus => (200, "The deployment.", json_content::<Deployment>(schemas)),
        Operation::StartExport => (202, "The job is queued.", json_content::<Job>(schemas)),
        Operation::ExportStatus => (200, "The job.", json_content::<Job>(schemas)),
        Operation::CreateBundleLink => (200, "A new link.", json_content::<BundleLink>(schemas)),
        Operation::Searches => (200, "A page of terms.", json_content::<Searches>(schemas)),
        Operation::ReceiveBatch => (200, "The batch is on disk.", json_content::<SearchReceipt>(schemas)),
        Operation::Views => (200, "The views of pages.", json_content::<Views>(schemas)),
        Operation::ReceiveViewBatch => (200, "The counts are on disk.", json_content::<ViewReceipt>(schemas)),
        Operation::PageCounts => (200, "The counts of one kind.", json_content::<Pages>(schemas)),
    };
    let mut responses = Map::new();
    let mut response = json!({ "description": description, "content": content });
    // Generated clients follow these links from the id in a response to the operations that need it.
    match route.operation {
        Operation::StartPreview => response["links"] = links(&["getDeploymentStatus"], "statusId"),
        Operation::StartExport => response["links"] = links(&["getExport", "createBundleLink"], "jobId"),
        _ => {}
    }
    responses.insert(status.to_string(), response);
    let error_content = if route.path.starts_with("/v1/analytics/") {
        json_content::<AnalyticsErrorBody>(schemas)
    } else {
        json_content::<ErrorBody>(schemas)
    };
    let mut add_error = |status: u16, description: &str| {
        responses.insert(status.to_string(), json!({ "description": description, "content": error_content }));
    };
    for (status, description) in operation_errors(route) {
        add_error(*status, description);
    }
    add_error(401, "The key is missing, unknown, expired or revoked.");
    add_error(500, "An internal error of the origin.");
    add_error(503, "The origin cannot respond at the moment; `Retry-After` states when to try again.");
    if route.method == Method::POST {
        add_error(408, "The body was not received in time.");
        add_error(413, "The body is too long.");
        if route.operation == Operation::CreateBundleLink {
            add_error(429, "Too many links in an hour, or too many bodies are sent at a time.");
        }
    }
    Value::Object(responses)
}

/// Creates link objects: the id in the response body is the path parameter of these operations.
fn links(operations: &[&str], id: &str) -> Value {
    let link = |operation: &&str| {
        let parameters = json!({ (id): format!("$response.body#/{id}") });
        ((*operation).to_owned(), json!({ "operationId": operation, "parameters": parameters }))
    };
    Value::Object(operations.iter().map(link).collect())
}

fn operation_errors(route: &ApiRoute) -> &'static [(u16, &'static str)] {
    match route.operation {
        Operation::StartPreview => &[
            (400, "The branch is missing or invalid."),
            (403, "Previews are not available for this project, or the key may only read."),
            (404, "No such project."),
            (
                429,
                "More than 5 requests in a minute, too many previews are waiting, or too many bodies are sent at a time.",
            ),
        ],
        Operation::StartExport => &[
            (400, "The domain or a path is invalid, or the domain is not served here."),
            (403, "Exports are not available for this project, or the key may only read."),
            (429, "Too many jobs are waiting, or too many bodies are sent at a time."),
        ],
        Operation::CreateBundleLink => &[
            (400, "The request has no host that a link could contain."),
            (403, "The key may only read."),
            (404, "No such job."),
            (409, "The job is not completed."),
        ],
        Operation::ExportStatus => &[(404, "No such job.")],
        Operation::PreviewStatus => &[(404, "No such deployment.")],
        Operation::Searches | Operation::Views | Operation::PageCounts => &[
            (400, "A parameter or the cursor is invalid; `details` has each mistake."),
            (404, "No such project."),
            (429, "More than 100 requests in an hour, or too many at a time."),
        ],
        Operation::ReceiveBatch | Operation::ReceiveViewBatch => &[
            (400, "The batch is invalid; `details` has each mistake."),
            (403, "The key may only read."),
            (404, "No such project."),
            (
                429,
                "More than 10,000 requests in an hour, too many searches in an hour or rows in all, or too many bodies are sent at a time.",
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_openapi_document_describes_every_route_and_defines_every_referenced_schema() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], "1.0.0");
        for route in &ROUTES {
            let operation = &document["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
            assert_eq!(operation["operationId"], route.id);
            let (is_post, responses) = (route.method == Method::POST, &operation["responses"]);
            for (status, is_expected) in
                [("401", true), ("500", true), ("503", true), ("408", is_post), ("413", is_post)]
            {
                assert_eq!(responses[status].is_object(), is_expected, "{} {status}", route.id);
            }
            let is_analytics = route.path.starts_with("/v1/analytics/");
            let error = if is_analytics { "#/components/schemas/AnalyticsError" } else { "#/components/schemas/Error" };
            assert_eq!(responses["401"]["content"]["application/json"]["schema"]["$ref"], error, "{}", route.id);
        }
        let text = document.to_string();
        for (position, _) in text.match_indices("#/components/schemas/") {
            let name = text[position + 21..].split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name} is missing");
        }
        assert!(!text.contains("$defs"), "all schemas are components");
    }
}
