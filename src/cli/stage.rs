//! `docwharf stage`: the version that waits to become active, and what is to be known before it does.

use clap::Args;
use serde_json::json;

use crate::model::version::VersionId;
use crate::store::Store;
use crate::store::record::Record;
use crate::sync::Intent;
use crate::sync::open;
use crate::sync::staged::{Staged, Waits, staged, way_out};

use super::diff::{between, counts, index, one_line, summary};
use super::{Context, Failure};

#[derive(Debug, Args)]
pub(super) struct Stage {}

impl Stage {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let store = Store::at(&context.store()?);
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
        let json = json!({
            "schemaVersion": 1,
            "staged": {
                "version": id, "labels": labels, "receipt": receipt, "waits": waiting.waits.name(), "next": way_out(&waiting),
            },
            "active": record.active,
            "gate": gate.as_ref().map(|refused| json!({ "passed": refused.is_none(), "refused": refused })),
            "diff": diff.as_ref().map(counts),
        });
        let mut text = format!("staged     {}", id.short());
        for label in &labels {
            text.push_str(&format!(" {}", one_line(label)));
        }
        if let Some(receipt) = &receipt {
            text.push_str(&format!(
                "\ncame       {} by {} from {}",
                receipt.time,
                receipt.who,
                one_line(&receipt.source)
            ));
        }
        text.push_str(&format!("\nwaits      {}: {}\n", waits_for(&waiting), way_out(&waiting)));
        match &gate {
            None => {}
            Some(None) => text.push_str("gate       lets it through\n"),
            Some(Some(why)) => text.push_str(&format!("gate       refuses it: {}\n", one_line(why))),
        }
        text.push_str(&match (&diff, record.active) {
            (Some(diff), Some(active)) => format!("against    {}\n{}", active.short(), summary(diff, 11)),
            _ => {
                format!("pages      {}\nagainst    nothing is active\n", crate::site::diff::pages(&index(&store, id)?))
            }
        });
        context.result(&json, &text)
    }
}

/// What a version waits for, in words.
fn waits_for(staged: &Staged) -> &'static str {
    match staged.waits {
        Waits::Person => "for a person",
        Waits::Gate(_) => "because the gate keeps it back",
        Waits::Release => "because of a hold",
        Waits::Look => "for the next look",
    }
}

/// What the gate says: `None` without a gate, else why it refuses, if it does. Where the record does not know, it is
/// asked now; nothing is written.
fn verdict(
    store: &Store,
    record: &Record,
    intent: Option<&Intent>,
    id: VersionId,
) -> Result<Option<Option<String>>, Failure> {
    let Some(intent) = intent.filter(|intent| !intent.gate.is_off()) else { return Ok(None) };
    if let Some(known) = record.gate.as_ref().filter(|verdict| intent.gate.covers(verdict, id, record.active)) {
        return Ok(Some(known.refused.clone()));
    }
    let cannot = |id: VersionId| Failure::local(format!("cannot read version {}", id.short()));
    let version = open::read(store, id).map_err(cannot(id))?;
    // As in a sync, one that cannot be read is none to compare with.
    let active = record.active.filter(|_| intent.gate.compares()).and_then(|id| open::read(store, id).ok());
    let threads = intent.effort.threads;
    Ok(Some(intent.gate.judge(&version, record.active, active.as_ref(), record.gate.as_ref(), threads).refused))
}
