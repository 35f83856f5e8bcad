//! The types of requests and responses. The `OpenAPI` document is generated from them, so it describes exactly what is
//! sent. Their comments are its descriptions. Where a type has another name than its schema, `schemars(rename)` has the
//! published name of the schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An error.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct ErrorBody {
    /// The error in one line, and how to correct it.
    pub(super) error: String,
    /// Each single mistake, if there can be several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) details: Vec<ErrorDetail>,
}

/// An error of an analytics request.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "AnalyticsError")]
#[allow(
    dead_code,
    reason = "only for the OpenAPI document; responses::with_details creates such a body from an ErrorBody"
)]
pub(super) struct AnalyticsErrorBody {
    /// The error in one line, and how to correct it.
    pub(super) error: String,
    /// Each single mistake; the error itself if there is only one.
    #[schemars(length(min = 1))]
    pub(super) details: Vec<ErrorDetail>,
}

/// A single mistake.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Detail")]
pub(super) struct ErrorDetail {
    /// The mistake in one line.
    pub(super) message: String,
}

/// A request for an export.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StartExport {
    /// The domain of the project: a host name only, without scheme, port, path or slash.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"))]
    #[allow(dead_code, reason = "parsed field by field, so that the message names the wrong one")]
    pub(super) domain: String,
    /// A label for the export.
    #[schemars(length(min = 1))]
    #[allow(dead_code, reason = "as above")]
    pub(super) version: Option<String>,
    /// Addresses of the pages to export, such as `/guides/start`; all pages if it is absent.
    #[schemars(length(min = 1, max = 1000))]
    #[allow(dead_code, reason = "as above")]
    pub(super) paths: Option<Vec<String>>,
}

/// An export job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Job {
    /// The id of the job.
    #[serde(rename = "jobId")]
    pub(super) id: String,
    /// The domain of the project.
    pub(super) domain: String,
    /// The label from the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// `queued`, `running`, `completed` or `failed`. It never changes back.
    #[schemars(extend("enum" = ["queued", "running", "completed", "failed"]))]
    pub(super) status: String,
    /// Progress in percent.
    #[schemars(range(max = 100))]
    pub(super) progress: u64,
    /// The number of pages so far.
    pub(super) page_count: u64,
    /// The time of creation (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub(super) created_at: String,
    /// The time of the last change (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub(super) updated_at: String,
    /// The reason of a failure.
    pub(super) error: Option<String>,
}

/// A link to a bundle.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundleLink {
    /// The id of the job.
    pub(super) job_id: String,
    /// The link. It is a secret: it gives access to the bundle without a key.
    #[schemars(extend("format" = "uri"))]
    pub(super) bundle_url: String,
    /// The size of the bundle in bytes.
    pub(super) size_bytes: u64,
    /// The time at which the link expires (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub(super) expires_at: String,
}

/// A request for a preview.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StartPreview {
    /// The name of the branch.
    #[schemars(length(min = 1, max = 244))]
    #[allow(dead_code, reason = "read field by field, for messages that say which one is wrong")]
    pub(super) branch: String,
}

/// A preview deployment that was accepted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Deploying")]
pub(super) struct PreviewStarted {
    /// The id by which its status is requested.
    pub(super) status_id: String,
    /// The URL of the preview, which may not exist yet.
    #[schemars(extend("format" = "uri"))]
    pub(super) preview_url: String,
}
