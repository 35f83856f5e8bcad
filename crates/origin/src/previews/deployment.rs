//! How a deployment is told to clients: the fields of the status endpoint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::source::git;

/// How far a deployment is. The last two end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for its turn.
    Queued,
    /// It is being built.
    InProgress,
    /// Its preview shows it.
    Success,
    /// Nothing has come of it; what the preview showed before, it shows still.
    Failure,
}

impl Status {
    /// As the database and clients write it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::InProgress => "in_progress",
            Status::Success => "success",
            Status::Failure => "failure",
        }
    }

    /// The reverse; of what nobody has written there, that it has failed.
    pub(super) fn of(name: &str) -> Status {
        let all = [Status::Queued, Status::InProgress, Status::Success];
        all.into_iter().find(|status| status.name() == name).unwrap_or(Status::Failure)
    }
}

/// What has asked for a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A call of the API: there is nothing else here.
    Api,
}

/// Who wrote a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

/// The paths that a commit changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesChanged {
    /// New ones.
    pub added: Vec<String>,
    /// Other content.
    pub modified: Vec<String>,
    /// Gone.
    pub removed: Vec<String>,
}

/// What was deployed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    /// Its id.
    pub sha: String,
    /// Its branch.
    #[serde(rename = "ref")]
    pub branch: String,
    /// What its author says of it.
    pub message: String,
    /// What it changes.
    pub files_changed: FilesChanged,
}

/// The deployment of a preview, as the API tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// Its id, the `statusId` that it was started with.
    #[serde(rename = "_id")]
    pub id: String,
    /// Whose preview it is; not told, but to be compared with who asks.
    #[serde(skip)]
    pub organization: String,
    /// The project.
    pub project_id: String,
    /// When it was asked for, in RFC 3339.
    pub created_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// How far it is.
    pub status: Status,
    /// What has come of it, in a sentence.
    pub summary: Option<String>,
    /// What was said meanwhile, line by line; of one that is being built, so far.
    pub logs: Vec<String>,
    /// The first label of the host where the preview is, or the last part of its path.
    pub subdomain: String,
    /// Who wrote the commit.
    pub author: Option<Author>,
    /// What was deployed, once that is known.
    pub commit: Option<Commit>,
    /// What has asked for it.
    pub source: Trigger,
}

/// What is known of a commit, in the words of the API.
pub(super) fn told(commit: git::Commit) -> (Commit, Option<Author>) {
    let git::Commit { sha, branch, message, author, added, modified, removed } = commit;
    let author = author.map(|git::Author { name, email }| Author { name, email });
    (Commit { sha, branch, message, files_changed: FilesChanged { added, modified, removed } }, author)
}
