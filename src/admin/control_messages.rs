//! The messages on the control socket: a command and its reply, as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use docwharf_agent::sync::SyncOutcome;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_base::model::version::VersionId;

/// The route that accepts commands.
// The wire name is older than the term "command"; it must not change.
pub const COMMANDS_PATH: &str = "/orders";

/// The action of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase")]
pub enum CommandAction {
    /// Activate a version and hold it, unless it is the one that waits for a person.
    Activate {
        /// A label, or the beginning of an id.
        name: String,
    },
    /// Activate the previous version and hold it.
    Rollback,
    /// Stop automatic activation.
    Hold {
        /// The reason, for status and history.
        reason: String,
    },
    /// End a hold.
    Release,
    /// Remove versions that are not needed.
    Gc {
        /// Only list the versions that would be removed.
        dry_run: bool,
    },
    /// Check the source now.
    Sync {
        /// Check the source even if the pinned label is stored.
        refresh: bool,
        /// Activate the version although the gate refuses it.
        #[serde(default)]
        force: bool,
    },
    /// Import a bundle.
    Import(ImportCommand),
}

/// A bundle to import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportCommand {
    /// The path of the bundle for the process that imports it.
    pub path: PathBuf,
    /// The name of the bundle in receipts and messages.
    pub source: String,
    /// The label it gets.
    pub label: Option<String>,
    /// Whether the version becomes active although the gate refuses it.
    #[serde(default)]
    pub force: bool,
}

/// A command to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonCommand {
    /// The action.
    #[serde(flatten)]
    pub action: CommandAction,
    /// The user who runs the command, for receipts and history.
    #[serde(rename = "who")]
    pub author: String,
    /// The digest of the source and of the demands on it (`SyncSettings::source_digest`) in the configuration that the
    /// caller has named; that of the daemon must be equal.
    // The wire name is older than the term "source digest"; it must not change.
    #[serde(default, rename = "question")]
    pub source_digest: Option<String>,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandResult {
    /// The result for programs.
    pub json: Value,
    /// The result for people.
    pub text: String,
    /// Warnings for people.
    pub warnings: Vec<String>,
    /// The reason why the version is sealed but not active.
    pub not_active: Option<String>,
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CommandReply {
    /// The command was executed.
    // The wire name is older than the term "executed"; it must not change.
    #[serde(rename = "told")]
    Executed(CommandResult),
    /// The command failed.
    Failed {
        /// The exit code.
        code: u8,
        /// The error message on one line.
        message: String,
    },
}

/// The message of a sync without a source. A sync does not import files from the inbox.
const NO_SOURCE_MESSAGE: &str = "no source is configured: versions arrive through `docwharf import`, and through the inbox of \
                         `docwharf run` if sync.inbox is set; for a source, set [api], staticExport.bundleUrl or \
                         bundleUrlFile";

impl CommandResult {
    /// Creates a result without warnings.
    pub fn without_warnings(json: Value, text: String) -> CommandResult {
        CommandResult { json, text, warnings: Vec::new(), not_active: None }
    }

    /// Creates the result for a version that a person has activated; `held` says whether it is held until a release.
    pub fn activated(result_name: &str, id: VersionId, held: bool) -> CommandResult {
        let json = json!({ "schemaVersion": 1, "result": result_name, "version": id, "held": held });
        let note = if held { "; held until `docwharf release`" } else { "" };
        CommandResult::without_warnings(json, format!("{result_name} {}{note}\n", id.short()))
    }

    /// Creates the result of a sync or an import.
    pub fn from_report(report: &SyncReport) -> CommandResult {
        let size = report.ingested.as_ref().map_or_else(String::new, |ingested| {
            format!(" ({}, {})", format_count(ingested.pages, "page"), format_size(ingested.bytes))
        });
        let (version, text) = match &report.outcome {
            SyncOutcome::Disabled => (None, "disabled: staticExport.enabled is false\n".to_owned()),
            SyncOutcome::NoSource => (None, format!("{NO_SOURCE_MESSAGE}\n")),
            SyncOutcome::Current(None) => (None, "nothing is active yet\n".to_owned()),
            SyncOutcome::Current(Some(id)) => (Some(id), format!("already current: {}{size}\n", id.short())),
            SyncOutcome::Activated(id) => (Some(id), format!("activated {}{size}\n", id.short())),
            SyncOutcome::Staged(id) => {
                let short = id.short();
                (Some(id), format!("staged {short}{size}: `docwharf activate {short}` makes it active\n"))
            }
            SyncOutcome::NotActive(id, _) => (Some(id), format!("sealed {}{size}\n", id.short())),
        };
        let not_active = match &report.outcome {
            SyncOutcome::NotActive(_, why) => Some(why.clone()),
            _ => None,
        };
        let ingested = report.ingested.as_ref();
        let warnings = ingested.map(|ingested| ingested.warnings.clone()).unwrap_or_default();
        let json = json!({
            "schemaVersion": 1,
            "result": report.outcome.name(),
            "version": version,
            "saw": report.check_summary,
            "pages": ingested.map(|ingested| ingested.pages),
            "bytes": ingested.map(|ingested| ingested.bytes),
            "archiveSha256": ingested.and_then(|ingested| ingested.sha256).map(|digest| digest.to_hex()),
            "reason": not_active,
            "warnings": warnings,
        });
        CommandResult { json, text, warnings, not_active }
    }
}
