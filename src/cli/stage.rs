//! `docwharf stage`: shows the version that waits for activation, with the gate's verdict and its changes.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use docwharf_agent::store::VersionStore;
use docwharf_agent::store::record::StoreRecord;
use docwharf_agent::sync::SyncIntent;
use docwharf_agent::sync::open;
use docwharf_agent::sync::waiting::{WaitingReason, WaitingVersion, find_waiting_version, next_step_hint};
use docwharf_base::model::version::VersionId;
use docwharf_site::diff::count_pages;

use super::context::CommandContext;
use super::diff::{compare_stored_versions, counts, one_line, open_index, summary};
use super::failure::CommandFailure;
use super::write_command::daemon_status;

#[derive(Debug, Args)]
pub(super) struct StageCommand {}

impl StageCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let store = VersionStore::at(&context.store()?);
        let config = context.config().ok();
        let intent = config.as_ref().map(|config| &config.intent);
        let record = store.record()?;
        let active =
            record.active.map_or_else(|| "nothing is active".to_owned(), |id| format!("{} is active", id.short()));
        let Some(waiting) = find_waiting_version(&record, intent).filter(|staged| store.has(staged.version)) else {
            let json =
                json!({ "schemaVersion": 1, "staged": null, "active": record.active, "gate": null, "diff": null });
            return context.print_result(&json, &format!("nothing is staged; {active}\n"));
        };
        let id = waiting.version;
        let gate = gate_verdict(&store, &record, intent, id)?;
        let active = record.active.filter(|&active| store.has(active));
        let diff = active.map(|active| compare_stored_versions(&store, active, id)).transpose()?;
        let labels: Vec<&String> =
            record.labels.iter().filter(|(_, labelled)| labelled.version == id).map(|(label, _)| label).collect();
        let receipt = store.receipts(id).pop();
        // If the daemon serves the waiting version on a separate listener, its addresses are shown.
        let addresses = daemon_status(store.root())
            .and_then(|status| status.daemon)
            .map(|daemon| daemon.staged)
            .unwrap_or_default();
        let json = json!({
            "schemaVersion": 1,
            "addresses": addresses,
            "staged": {
                "version": id, "labels": labels, "receipt": receipt, "waits": waiting.reason.name(), "next": next_step_hint(&waiting),
            },
            "active": record.active,
            "gate": gate.as_ref().map(|verdict| json!({ "passed": verdict.refused.is_none(), "refused": verdict.refused })),
            "diff": diff.as_ref().map(counts),
        });
        let names: String = labels.iter().map(|label| [" ", label].concat()).collect();
        let mut text = format!("staged     {}{}\n", id.short(), one_line(&names));
        if let Some(receipt) = &receipt {
            let _ = writeln!(text, "received   {} by {} from {}", receipt.time, receipt.who, one_line(&receipt.source));
        }
        let _ = writeln!(text, "waits      {}: {}", waits_for(&waiting), next_step_hint(&waiting));
        for address in &addresses {
            let _ = writeln!(text, "address    {address}");
        }
        let _ = match &gate {
            None => Ok(()),
            Some(StagedVerdict { refused: None }) => writeln!(text, "gate       accepts it"),
            Some(StagedVerdict { refused: Some(why) }) => writeln!(text, "gate       refuses it: {}", one_line(why)),
        };
        let _ = match (&diff, record.active) {
            (Some(diff), Some(active)) => write!(text, "against    {}\n{}", active.short(), summary(diff, 11)),
            _ => writeln!(text, "pages      {}\nagainst    nothing is active", count_pages(&open_index(&store, id)?)),
        };
        context.print_result(&json, &text)
    }
}

/// Returns the reason why a version waits, in words.
fn waits_for(staged: &WaitingVersion) -> &'static str {
    match staged.reason {
        WaitingReason::Person => "for a person",
        WaitingReason::Gate(_) => "because the gate refuses it",
        WaitingReason::Release => "because of a hold",
        WaitingReason::NextCheck => "for the next check",
    }
}

/// The gate's verdict on a version: the reason if it refuses the version.
struct StagedVerdict {
    refused: Option<String>,
}

/// Returns the gate's verdict, if a gate is configured. If the record does not have it, it is computed now; nothing is
/// written.
fn gate_verdict(
    store: &VersionStore,
    record: &StoreRecord,
    intent: Option<&SyncIntent>,
    id: VersionId,
) -> Result<Option<StagedVerdict>, CommandFailure> {
    let Some(intent) = intent.filter(|intent| !intent.gate.is_off()) else { return Ok(None) };
    if let Some(recorded) = record.gate.as_ref().filter(|verdict| intent.gate.covers(verdict, id, record.active)) {
        return Ok(Some(StagedVerdict { refused: recorded.refused.clone() }));
    }
    let unreadable = |id: VersionId| CommandFailure::local(format!("cannot read version {}", id.short()));
    let version = open::open_read_only(store, id).map_err(unreadable(id))?;
    // As in a sync, an active version that cannot be read is not compared with.
    let active = record.active.filter(|_| intent.gate.compares()).and_then(|id| open::open_read_only(store, id).ok());
    let threads = intent.seal_options.threads;
    let recorded = record.gate.as_ref();
    let verdict = intent.gate.check(&version, record.active, active.as_ref(), recorded, threads, &|| false);
    Ok(verdict.map(|verdict| StagedVerdict { refused: verdict.refused }))
}
