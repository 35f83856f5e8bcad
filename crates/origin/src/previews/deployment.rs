//! Deployments as the API reports them: the fields of the status endpoint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::source::git;

/// Status of a deployment. The last two are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Status")]
pub enum DeploymentStatus {
    /// The deployment waits in the queue.
    Queued,
    /// The deployment is being built.
    InProgress,
    /// The preview serves the deployment.
    Success,
    /// The deployment has failed; the preview still serves the previous deployment. If the branch no longer exists, the
    /// preview is removed.
    Failure,
}

impl DeploymentStatus {
    /// Returns the name used in the database and by clients.
    pub fn name(self) -> &'static str {
        match self {
            DeploymentStatus::Queued => "queued",
            DeploymentStatus::InProgress => "in_progress",
            DeploymentStatus::Success => "success",
            DeploymentStatus::Failure => "failure",
        }
    }

    /// Returns the status with this name; an unknown name is a failure.
    pub(super) fn from_name(name: &str) -> DeploymentStatus {
        let all = [DeploymentStatus::Queued, DeploymentStatus::InProgress, DeploymentStatus::Success];
        all.into_iter().find(|status| status.name() == name).unwrap_or(DeploymentStatus::Failure)
    }
}

/// Source of the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Trigger")]
pub enum DeploymentSource {
    /// A call of the API, which is the only source at this origin.
    Api,
}

/// Author of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Author")]
pub struct ApiAuthor {
    /// The name.
    pub name: String,
    /// The mail address.
    pub email: String,
}

/// The paths that a commit changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesChanged {
    /// Added paths.
    pub added: Vec<String>,
    /// Paths with changed content.
    pub modified: Vec<String>,
    /// Removed paths.
    pub removed: Vec<String>,
}

/// The commit that was deployed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Commit")]
pub struct ApiCommit {
    /// The commit id.
    pub sha: String,
    /// The branch.
    #[serde(rename = "ref")]
    pub branch: String,
    /// The commit message.
    pub message: String,
    /// The paths that the commit changes.
    pub files_changed: FilesChanged,
}

/// Deployment of a preview, as the API reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The id of the deployment, the `statusId` that the request to deploy returned.
    #[serde(rename = "_id")]
    pub id: String,
    /// The organization of the preview. The field is not serialized, but compared with that of the client.
    #[serde(skip)]
    pub organization: String,
    /// The project.
    pub project_id: String,
    /// When the deployment was requested, in RFC 3339.
    pub created_at: String,
    /// When the deployment ended.
    pub ended_at: Option<String>,
    /// The status of the deployment.
    pub status: DeploymentStatus,
    /// The result of the deployment in one sentence.
    pub summary: Option<String>,
    /// Lines of the build log; while the deployment is being built, those so far.
    pub logs: Vec<String>,
    /// First label of the preview's host, or last segment of its path.
    pub subdomain: String,
    /// Author of the commit.
    pub author: Option<ApiAuthor>,
    /// The deployed commit, once it is known.
    pub commit: Option<ApiCommit>,
    /// Source of the deployment.
    pub source: DeploymentSource,
}

/// Converts a commit to the types of the API.
pub(super) fn to_api_commit(commit: git::GitCommit) -> (ApiCommit, Option<ApiAuthor>) {
    let git::GitCommit { sha, branch, message, author, added, modified, removed } = commit;
    let author = author.map(|git::GitAuthor { name, email }| ApiAuthor { name, email });
    (ApiCommit { sha, branch, message, files_changed: FilesChanged { added, modified, removed } }, author)
}
