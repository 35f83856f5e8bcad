//! `docwharf stage`: shows the version that waits for activation, with the gate's verdict and its changes.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use docwharf_agent::store::VersionStore;
use docwharf_agent::store::record::StoreRecord;
use docwharf_agent::sync::SyncIntent;
use docwharf_agent::sync::open;
use docwharf_agent::sync::waiting::{WaitingReason, WaitingVersion, staged, way_out};
use docwharf_base::model::version::VersionId;
use docwharf_site::diff::count_pages;

use super::diff::{between, counts, index, one_line, summary};
use super::order::status_of;
use super::{Context, Failure};

#[derive(Debug, Args)]
pub(super) struct Stage {}

impl Stage {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let store = VersionStore::at(&context.store()?);
        let config = context.config().ok();
        let intent = config.as_ref().map(|config| &config.intent);
        let record = store.record()?;
        let active =
            record.active.map_or_else(|| "nothing is active".to_owned(), |id| format!("{} is active", id.short()));
        let Some(waiting) = staged(&record, intent).filter(|staged| store.has(staged.version)) else {
            let json =
                json!({ "schemaVersion": 1, "staged": null, "active": record.active, "gate": null, "diff": null });
            return context.result(&json, &format!("nothing is staged; {active}\n"));
        };
        let id = waiting.version;
        let gate = verdict(&store, &record, intent, id)?;
        let active = record.active.filter(|&active| store.has(active));
        let diff = active.map(|active| between(&store, active, id)).transpose()?;
        let labels: Vec<&String> =
            record.labels.iter().filter(|(_, labelled)| labelled.version == id).map(|(label, _)| label).collect();
        let receipt = store.receipts(id).pop();
        // If the daemon serves the waiting version on a listener of its own, its addresses are shown.
        let seen =
            status_of(store.root()).and_then(|status| status.daemon).map(|daemon| daemon.staged).unwrap_or_default();
        let json = json!({
            "schemaVersion": 1,
            "addresses": seen,
            "staged": {
                "version": id, "labels": labels, "receipt": receipt, "waits": waiting.waits.name(), "next": way_out(&waiting),
            },
            "active": record.active,
            "gate": gate.as_ref().map(|said| json!({ "passed": said.refused.is_none(), "refused": said.refused })),
            "diff": diff.as_ref().map(counts),
        });
        let names: String = labels.iter().map(|label| [" ", label].concat()).collect();
        let mut text = format!("staged     {}{}\n", id.short(), one_line(&names));
        if let Some(receipt) = &receipt {
            let _ = writeln!(text, "came       {} by {} from {}", receipt.time, receipt.who, one_line(&receipt.source));
        }
        let _ = writeln!(text, "waits      {}: {}", waits_for(&waiting), way_out(&waiting));
        for address in &seen {
            let _ = writeln!(text, "to be seen {address}");
        }
        let _ = match &gate {
            None => Ok(()),
            Some(Said { refused: None }) => writeln!(text, "gate       lets it through"),
            Some(Said { refused: Some(why) }) => writeln!(text, "gate       refuses it: {}", one_line(why)),
        };
        let _ = match (&diff, record.active) {
            (Some(diff), Some(active)) => write!(text, "against    {}\n{}", active.short(), summary(diff, 11)),
            _ => writeln!(text, "pages      {}\nagainst    nothing is active", count_pages(&index(&store, id)?)),
        };
        context.result(&json, &text)
    }
}

/// Returns what a version waits for, in words.
fn waits_for(staged: &WaitingVersion) -> &'static str {
    match staged.waits {
        WaitingReason::Person => "for a person",
        WaitingReason::Gate(_) => "because the gate keeps it back",
        WaitingReason::Release => "because of a hold",
        WaitingReason::Look => "for the next look",
    }
}

/// The gate's verdict on a version: the reason if it refuses the version.
struct Said {
    refused: Option<String>,
}

/// Returns the gate's verdict, if a gate is configured. If the record does not have it, it is computed now; nothing is
/// written.
fn verdict(
    store: &VersionStore,
    record: &StoreRecord,
    intent: Option<&SyncIntent>,
    id: VersionId,
) -> Result<Option<Said>, Failure> {
    let Some(intent) = intent.filter(|intent| !intent.gate.is_off()) else { return Ok(None) };
    if let Some(known) = record.gate.as_ref().filter(|verdict| intent.gate.covers(verdict, id, record.active)) {
        return Ok(Some(Said { refused: known.refused.clone() }));
    }
    let cannot = |id: VersionId| Failure::local(format!("cannot read version {}", id.short()));
    let version = open::read(store, id).map_err(cannot(id))?;
    // As in a sync, an active version that cannot be read is not compared with.
    let active = record.active.filter(|_| intent.gate.compares()).and_then(|id| open::read(store, id).ok());
    let threads = intent.effort.threads;
    let known = record.gate.as_ref();
    let verdict = intent.gate.judge(&version, record.active, active.as_ref(), known, threads, &|| false);
    Ok(verdict.map(|verdict| Said { refused: verdict.refused }))
}
