//! What goes over the control socket: an order and the answer to it, as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use docwharf_base::model::units::{count_noun, show_size};
use docwharf_base::model::version::VersionId;
use docwharf_agent::sync::Outcome;
use docwharf_agent::sync::settle::Report;

/// Where orders go.
pub const ORDERS: &str = "/orders";

/// Something that a person wants done to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase")]
pub enum Verb {
    /// Make this version active and hold it, unless it is the one that waits for a person.
    Activate {
        /// A label, or the beginning of an id.
        name: String,
    },
    /// Make the version before active and hold it.
    Rollback,
    /// Stop automatic activation.
    Hold {
        /// Why.
        reason: String,
    },
    /// End a hold.
    Release,
    /// Remove what is not needed.
    Gc {
        /// Only say what would go.
        dry_run: bool,
    },
    /// Look at the source now.
    Sync {
        /// Even if the pinned label is there.
        refresh: bool,
        /// Whatever the gate says.
        #[serde(default)]
        force: bool,
    },
    /// Bring this bundle.
    Import(Import),
}

/// A bundle that a person brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Where it lies for whoever imports it.
    pub path: PathBuf,
    /// What receipts and messages call it.
    pub source: String,
    /// The label it gets.
    pub label: Option<String>,
    /// Whether it passes the gate unasked.
    #[serde(default)]
    pub force: bool,
}

/// An order, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What is to be done.
    #[serde(flatten)]
    pub verb: Verb,
    /// By whom, for receipts and history.
    pub who: String,
    /// What the configuration that the caller has named asks for (`Intent::question`); the daemon's must be the same.
    #[serde(default)]
    pub question: Option<String>,
}

/// What a verb has to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// For programs.
    pub json: Value,
    /// For people.
    pub text: String,
    /// Worth knowing.
    pub warnings: Vec<String>,
    /// The version is sealed but not active, for this reason.
    pub not_active: Option<String>,
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// It was done.
    Told(Told),
    /// It was not.
    Failed {
        /// The exit code.
        code: u8,
        /// The error on one line.
        message: String,
    },
}

/// What a sync says without a source; what lies in the inbox is not its business.
const NO_SOURCE: &str = "no source is configured: versions arrive through `docwharf import`, and through the inbox of \
                         `docwharf run` if sync.inbox is set; for a source, set [api] or staticExport.bundleUrl";

impl Told {
    /// One that says this and nothing else.
    pub fn plain(json: Value, text: String) -> Told {
        Told { json, text, warnings: Vec::new(), not_active: None }
    }

    /// A version that was chosen by a person; `held` until a release, or not.
    pub fn chosen(what: &str, id: VersionId, held: bool) -> Told {
        let json = json!({ "schemaVersion": 1, "result": what, "version": id, "held": held });
        let until = if held { "; held until `docwharf release`" } else { "" };
        Told::plain(json, format!("{what} {}{until}\n", id.short()))
    }

    /// How a sync or an import ended.
    pub fn of(report: &Report) -> Told {
        let of = report.brought.as_ref().map_or_else(String::new, |brought| {
            format!(" ({}, {})", count_noun(brought.pages, "page"), show_size(brought.bytes))
        });
        let (version, text) = match &report.outcome {
            Outcome::Disabled => (None, "disabled: staticExport.enabled is false\n".to_owned()),
            Outcome::NoSource => (None, format!("{NO_SOURCE}\n")),
            Outcome::Current(None) => (None, "nothing is active yet\n".to_owned()),
            Outcome::Current(Some(id)) => (Some(id), format!("already current: {}{of}\n", id.short())),
            Outcome::Activated(id) => (Some(id), format!("activated {}{of}\n", id.short())),
            Outcome::Staged(id) => {
                let short = id.short();
                (Some(id), format!("staged {short}{of}: `docwharf activate {short}` makes it active\n"))
            }
            Outcome::NotActive(id, _) => (Some(id), format!("sealed {}{of}\n", id.short())),
        };
        let not_active = match &report.outcome {
            Outcome::NotActive(_, why) => Some(why.clone()),
            _ => None,
        };
        let brought = report.brought.as_ref();
        let warnings = brought.map(|brought| brought.warnings.clone()).unwrap_or_default();
        let json = json!({
            "schemaVersion": 1,
            "result": report.outcome.name(),
            "version": version,
            "saw": report.saw,
            "pages": brought.map(|brought| brought.pages),
            "bytes": brought.map(|brought| brought.bytes),
            "archiveSha256": brought.and_then(|brought| brought.sha256).map(|digest| digest.hex()),
            "reason": not_active,
            "warnings": warnings,
        });
        Told { json, text, warnings, not_active }
    }
}
