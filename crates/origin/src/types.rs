//! What requests and answers are made of. The `OpenAPI` document is generated from these types, so that it says what is so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, in one line.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct Wrong {
    /// What, and what to do about it.
    pub(super) error: String,
    /// Each single mistake, where there can be several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) details: Vec<Detail>,
}

/// What went wrong with a request for analytics.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "AnalyticsError")]
#[allow(dead_code, reason = "only described: answers::with_details completes what is written as the other")]
pub(super) struct AnalyticsWrong {
    /// What, and what to do about it.
    pub(super) error: String,
    /// Each single mistake; the error itself where there is only one.
    #[schemars(length(min = 1))]
    pub(super) details: Vec<Detail>,
}

/// One mistake.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Detail {
    /// What is wrong.
    pub(super) message: String,
}

/// What is to be exported.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StartExport {
    /// The domain: a host name only, without scheme, port, path or slash.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"))]
    #[allow(dead_code, reason = "read field by field, for messages that say which one is wrong")]
    pub(super) domain: String,
    /// A label for the export.
    #[schemars(length(min = 1))]
    #[allow(dead_code, reason = "as above")]
    pub(super) version: Option<String>,
    /// Addresses of the pages to export, such as `/guides/start`; all pages without it.
    #[schemars(length(min = 1, max = 1000))]
    #[allow(dead_code, reason = "as above")]
    pub(super) paths: Option<Vec<String>>,
}

/// An export job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Job {
    /// Its id.
    #[serde(rename = "jobId")]
    pub(super) id: String,
    /// What is exported.
    pub(super) domain: String,
    /// The label that it was asked for under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// `queued`, `running`, `completed` or `failed`; nothing leads back.
    #[schemars(extend("enum" = ["queued", "running", "completed", "failed"]))]
    pub(super) status: String,
    /// In percent.
    #[schemars(range(max = 100))]
    pub(super) progress: u64,
    /// Pages so far.
    pub(super) page_count: u64,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(super) created_at: String,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(super) updated_at: String,
    /// Why it has failed.
    pub(super) error: Option<String>,
}

/// A link to a bundle.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundleLink {
    /// The job.
    pub(super) job_id: String,
    /// The link: whoever has it gets the bundle. Its query is a secret.
    #[schemars(extend("format" = "uri"))]
    pub(super) bundle_url: String,
    /// How large the bundle is.
    pub(super) size_bytes: u64,
    /// When the link stops working, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(super) expires_at: String,
}

/// A branch to be previewed.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StartPreview {
    /// Its name.
    #[schemars(length(min = 1, max = 244))]
    #[allow(dead_code, reason = "read field by field, for messages that say which one is wrong")]
    pub(super) branch: String,
}

/// A deployment of a preview.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Deploying {
    /// What its status is asked for by.
    pub(super) status_id: String,
    /// Where the preview is, or will be.
    #[schemars(extend("format" = "uri"))]
    pub(super) preview_url: String,
}
