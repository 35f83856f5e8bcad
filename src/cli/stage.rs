//! `docwharf stage`: shows the version that waits for activation, with the gate's verdict and its changes.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use docwharf_agent::store::VersionStore;
use docwharf_agent::store::record::StoreRecord;
use docwharf_agent::sync::SyncSettings;
use docwharf_agent::sync::open;
use docwharf_agent::sync::waiting::{WaitingReason, WaitingVersion, activation_advice, find_waiting_version};
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
        let sync_settings = config.as_ref().map(|config| &config.sync_settings);
        let record = store.record()?;
        let active =
            record.active.map_or_else(|| "nothing is active".to_owned(), |id| format!("{} is active", id.short()));
        let Some(waiting) = find_waiting_version(&record, sync_settings).filter(|waiting| store.has(waiting.version))
        else {
            let json =
                json!({ "schemaVersion": 1, "staged": null, "active": record.active, "gate": null, "diff": null });
            return context.print_result(&json, &format!("nothing is staged; {active}\n"));
        };
        let id = waiting.version;
        let gate = gate_verdict(&store, &record, sync_settings, id)?;
        let active = record.active.filter(|&active| store.has(active));
        let diff = active.map(|active| compare_stored_versions(&store, active, id)).transpose()?;
        let labels: Vec<&String> =
            record.labels.iter().filter(|(_, labelled)| labelled.version == id).map(|(label, _)| label).collect();
        let receipt = store.receipts(id).pop();
        // If the daemon serves the waiting version on a separate listener, its URLs are shown.
        let urls = daemon_status(store.root())
            .and_then(|status| status.daemon)
            .map(|daemon| daemon.waiting_urls)
            .unwrap_or_default();
        let json = json!({
            "schemaVersion": 1,
            "addresses": urls,
            "staged": {
                "version": id, "labels": labels, "receipt": receipt, "waits": waiting.reason.name(), "next": activation_advice(&waiting),
            },
            "active": record.active,
            "gate": gate.as_ref().map(|verdict| json!({ "passed": verdict.refused.is_none(), "refused": verdict.refused })),
            "diff": diff.as_ref().map(counts),
        });
        let names: String = labels.iter().map(|label| [" ", label].concat()).collect();
        let mut text = format!("staged     {}{}\n", id.short(), one_line(&names));
        if let Some(receipt) = &receipt {
            let _ =
                writeln!(text, "received   {} by {} from {}", receipt.time, receipt.author, one_line(&receipt.source));
        }
        let _ = writeln!(text, "waits      {}: {}", waits_for(&waiting), activation_advice(&waiting));
        for url in &urls {
            let _ = writeln!(text, "address    {url}");
        }
        let _ = match &gate {
            None => Ok(()),
            Some(WaitingVersionVerdict { refused: None }) => writeln!(text, "gate       accepts it"),
            Some(WaitingVersionVerdict { refused: Some(why) }) => {
                writeln!(text, "gate       refuses it: {}", one_line(why))
            }
        };
        let _ = match (&diff, record.active) {
            (Some(diff), Some(active)) => write!(text, "against    {}\n{}", active.short(), summary(diff, 11)),
            _ => writeln!(text, "pages      {}\nagainst    nothing is active", count_pages(&open_index(&store, id)?)),
        };
        context.print_result(&json, &text)
    }
}

/// Returns the reason why a version waits, in words.
fn waits_for(waiting: &WaitingVersion) -> &'static str {
    match waiting.reason {
        WaitingReason::ManualMode => "for a person",
        WaitingReason::Gate(_) => "because the gate refused it at the last check",
        WaitingReason::Hold => "because of a hold",
        WaitingReason::NextCheck => "for the next check",
    }
}

/// The gate's verdict on a version: the reason if it refuses the version.
struct WaitingVersionVerdict {
    refused: Option<String>,
}

/// Returns the gate's verdict, if a gate is configured. If the record does not have it, it is computed now; nothing is
/// written.
fn gate_verdict(
    store: &VersionStore,
    record: &StoreRecord,
    sync_settings: Option<&SyncSettings>,
    id: VersionId,
) -> Result<Option<WaitingVersionVerdict>, CommandFailure> {
    let Some(sync_settings) = sync_settings.filter(|sync_settings| !sync_settings.gate.is_off()) else {
        return Ok(None);
    };
    if let Some(recorded) = record.gate.as_ref().filter(|verdict| sync_settings.gate.covers(verdict, id, record.active))
    {
        return Ok(Some(WaitingVersionVerdict { refused: recorded.refused.clone() }));
    }
    let unreadable = |id: VersionId| CommandFailure::local(format!("cannot read version {}", id.short()));
    let version = open::open_read_only(store, id).map_err(unreadable(id))?;
    // As in a sync, an active version that cannot be read is not compared with.
    let active =
        record.active.filter(|_| sync_settings.gate.compares()).and_then(|id| open::open_read_only(store, id).ok());
    let threads = sync_settings.seal_options.threads;
    let recorded = record.gate.as_ref();
    let verdict = sync_settings.gate.evaluate(&version, record.active, active.as_ref(), recorded, threads, &|| false);
    Ok(verdict.map(|verdict| WaitingVersionVerdict { refused: verdict.refused }))
}
