//! `docwharf status`, `versions`, `history`: what the store knows, read without a lock.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use crate::base::chain::OneLine;
use crate::model::units::show_size;
use crate::store::Store;
use crate::sync::staged::staged;

use super::{Context, Failure, print, stage};

#[derive(Debug, Args)]
pub(super) struct Status {}

#[derive(Debug, Args)]
pub(super) struct Versions {}

#[derive(Debug, Args)]
pub(super) struct History {
    /// Show the last N events
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    last: usize,
}

impl Status {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let path = context.store()?;
        // With mistakes in it, it has been told of them.
        let config = context.config().ok();
        let intent = config.as_ref().map(|config| &config.intent);
        let store = Store::at(&path);
        let record = store.record()?;
        let pin = intent.and_then(|intent| intent.pin.as_ref()).map(ToString::to_string);
        let present = record.active.map(|id| store.has(id));
        let waiting = staged(&record, intent);
        let json = json!({
            "schemaVersion": 1,
            "store": path,
            "active": record.active,
            "activeSince": record.active_since,
            "activePresent": present,
            "previous": record.previous,
            "newest": record.newest,
            "hold": record.hold,
            "pin": pin,
            "enabled": intent.map(|intent| intent.enabled),
            "lastAttempt": record.last_attempt,
            "job": record.job.as_ref().map(|job| json!({ "id": job.id, "source": job.source, "started": job.started, "pin": job.pin })),
            "configError": record.config_error,
            "staged": waiting.as_ref().map(stage::as_json),
            "gate": record.gate.as_ref().map(|verdict| json!({
                "version": verdict.version, "against": verdict.against, "time": verdict.time,
                "passed": verdict.refused.is_none(), "refused": verdict.refused,
            })),
        });
        let mut text = format!("store      {}\n", path.display());
        let _ = match (record.active, &record.active_since, present) {
            (Some(id), since, Some(true)) => {
                let since = since.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
                writeln!(text, "active     {}{since}", id.short())
            }
            (Some(id), _, _) => {
                writeln!(text, "active     {} is missing from the store", id.short())
            }
            (None, ..) => writeln!(text, "active     nothing yet"),
        };
        if let Some(id) = record.previous {
            let _ = writeln!(text, "previous   {}", id.short());
        }
        if let Some(hold) = &record.hold {
            let _ = writeln!(text, "held       by {} since {}: {}", hold.who, hold.when, OneLine(&hold.why));
        }
        if let Some(waiting) = &waiting {
            text.push_str(&stage::line(waiting));
        }
        if let Some(id) = record.newest.filter(|&id| record.active != Some(id)) {
            if waiting.as_ref().is_none_or(|waiting| waiting.version != id) {
                let _ = writeln!(text, "newest     {}, not active", id.short());
            }
        }
        if let Some(id) = store.suspect() {
            let _ = writeln!(text, "damaged    {}: import its bundle again to mend it", id.short());
        }
        if let Some(pin) = &pin {
            let there = record.labels.get(pin).is_some_and(|labelled| record.active == Some(labelled.version));
            let not = if there { "" } else { ", which is not what is active" };
            let _ = writeln!(text, "pinned to  {}{not}", OneLine(pin));
        }
        if intent.is_some_and(|intent| !intent.enabled && intent.has_source()) {
            let _ = writeln!(text, "sync       disabled");
        }
        if let Some(attempt) = &record.last_attempt {
            let error = attempt.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            let _ = writeln!(text, "last sync  {} {}{}", attempt.time, attempt.result, OneLine(&error));
        }
        if let Some(job) = &record.job {
            let _ = writeln!(text, "export     {} since {}", OneLine(&job.id), job.started);
        }
        if let Some(error) = &record.config_error {
            let _ = writeln!(text, "config     not taken over: {}", OneLine(error));
        }
        context.result(&json, &text)
    }
}

impl Versions {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let store = Store::at(&context.store()?);
        let record = store.record()?;
        let mut list = Vec::new();
        let mut text = String::new();
        for version in store.versions()? {
            let labels: Vec<&String> =
                record.labels.iter().filter(|(_, l)| l.version == version.id).map(|(label, _)| label).collect();
            let role = if record.active == Some(version.id) {
                "active"
            } else if record.previous == Some(version.id) {
                "previous"
            } else {
                ""
            };
            let receipt = version.receipts.last();
            let time = receipt.map_or("-", |receipt| receipt.time.as_str());
            let source = receipt.map_or("-", |receipt| receipt.source.as_str());
            let names = labels.iter().map(|label| label.as_str()).collect::<Vec<_>>().join(",");
            let _ = writeln!(
                text,
                "{}  {role:8}  {time:20}  {:>8}  {}",
                version.id.short(),
                show_size(version.bytes),
                OneLine(&if names.is_empty() { source.to_owned() } else { format!("{names}  {source}") })
            );
            list.push(json!({
                "id": version.id,
                "role": if role.is_empty() { None } else { Some(role) },
                "bytes": version.bytes,
                "labels": labels,
                "receipts": version.receipts,
            }));
        }
        context.result(&json!({ "schemaVersion": 1, "versions": list }), &text)
    }
}

impl History {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let store = Store::at(&context.store()?);
        let events = store.history()?;
        let events = &events[events.len().saturating_sub(self.last)..];
        if context.global.json {
            return context.result(&json!({ "schemaVersion": 1, "events": events }), "");
        }
        let mut text = String::new();
        for event in events {
            let version = event.version.map_or_else(String::new, |id| id.short());
            let note = event.note.as_deref().unwrap_or_default();
            let line = format!("{}  {:12}  {:12}  {}  {note}", event.time, event.what, version, event.who);
            let _ = writeln!(text, "{}", OneLine(line.trim_end()));
        }
        print(&text)
    }
}
