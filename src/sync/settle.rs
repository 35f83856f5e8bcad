//! What is due is activated; what is not needed is pruned. And the ways into the store besides a sync: `import`, the
//! record that was lost.

use std::path::Path;
use std::time::Duration;

use crate::base::chain::Chain;
use crate::model::units::now;
use crate::model::version::{Label, VersionId};
use crate::seal::Meter;
use crate::store::Store;
use crate::store::record::{Hold, Labelled, Record};
use crate::store::writer::Writer;

use super::bring::{Arrival, Brought, bring};
use super::{Intent, Outcome, SyncError};

/// A sync and what it has to say.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What was brought, if anything.
    pub brought: Option<Brought>,
    /// Nothing was asked because it was too early; it no longer is after so long.
    pub too_early: Option<Duration>,
    /// No probe could be read, so nothing is known of changes: why.
    pub blind: Option<String>,
    /// What the look saw, in a few words.
    pub saw: Option<String>,
}

impl Report {
    /// One that says how it ended and nothing else.
    pub fn of(outcome: Outcome) -> Report {
        Report { outcome, brought: None, too_early: None, blind: None, saw: None }
    }
}

/// The record; one that is damaged is replaced by what the versions themselves tell.
pub fn read_record(writer: &Writer) -> Result<Record, SyncError> {
    match writer.store().record() {
        Ok(record) => Ok(record),
        Err(error @ crate::store::StoreError::Damaged { .. }) => {
            tracing::warn!("{}", Chain(&error));
            let record = remembered(writer.store())?;
            writer.mend(&record)?;
            Ok(record)
        }
        Err(error) => Err(error.into()),
    }
}

/// What versions, receipts and history tell of a record that was lost.
fn remembered(store: &Store) -> Result<Record, SyncError> {
    let mut record = Record::default();
    let versions = store.versions()?;
    record.newest = versions.first().map(|version| version.id);
    record.active = record.newest;
    // The newest arrival comes first, so the first to claim a label has it.
    for version in &versions {
        for receipt in version.receipts.iter().rev() {
            let Some(label) = &receipt.label else { continue };
            record.labels.entry(label.clone()).or_insert_with(|| Labelled {
                version: version.id,
                source: receipt.source.clone(),
                sha256: receipt.archive_sha256.clone(),
                time: receipt.time.clone(),
            });
        }
    }
    // The operator's last word outlives the record.
    let history = store.history()?;
    let last = history.iter().rev().find(|event| matches!(event.what.as_str(), "held" | "rolled back" | "released"));
    if let Some(event) = last.filter(|event| event.what != "released") {
        record.active = event.version.filter(|&id| store.has(id)).or(record.active);
        let why = event.note.clone().unwrap_or_else(|| event.what.clone());
        record.hold = Some(Hold { who: event.who.clone(), when: event.time.clone(), why });
    }
    Ok(record)
}

/// Activates what is due and prunes. `found` is what the source holds.
pub(super) fn settle(
    writer: &Writer,
    record: &mut Record,
    intent: &Intent,
    who: &str,
    found: Option<VersionId>,
    brought: Option<Brought>,
) -> Result<Report, SyncError> {
    let changed = writer.decide(record, |record| flip(writer, record, intent))?;
    if let Some(id) = changed {
        writer.note(who, "activated", Some(id), None);
    }
    if brought.is_some() {
        prune(writer, record, intent, who);
    }
    let outcome = match (found, changed) {
        (Some(found), _) if record.active != Some(found) => Outcome::NotActive(found, why_not_active(record, intent)),
        (_, Some(id)) => Outcome::Activated(id),
        (_, None) => Outcome::Current(record.active),
    };
    Ok(Report { brought, ..Report::of(outcome) })
}

/// Makes the version that is due the active one; gives it if it was not.
pub(super) fn flip(writer: &Writer, record: &mut Record, intent: &Intent) -> Option<VersionId> {
    let due = record.due(intent.pin.as_ref().map(Label::as_str));
    let due = due.filter(|&id| record.active != Some(id) && writer.store().has(id));
    due.inspect(|&id| record.activate(id, &now()))
}

fn why_not_active(record: &Record, intent: &Intent) -> String {
    match (&record.hold, &intent.pin) {
        (Some(hold), _) => {
            format!("held by {} since {} ({}); `docwharf release` ends the hold", hold.who, hold.when, hold.why)
        }
        (None, Some(pin)) => format!("pinned to {pin:?} (staticExport.version)", pin = pin.as_str()),
        (None, None) => "a newer version is there".to_owned(),
    }
}

/// Failing to prune is no failure of the sync: it is tried again after the next one.
fn prune(writer: &Writer, record: &Record, intent: &Intent, who: &str) {
    match writer.prune(record, intent.keep) {
        Ok(removed) => {
            for version in removed {
                writer.note(who, "pruned", Some(version.id), None);
            }
        }
        Err(error) => tracing::warn!("{}", Chain(&error)),
    }
}

/// Brings a bundle that a person names, and activates it unless a hold or a pin says otherwise. `source` is what receipts
/// and messages call it.
pub fn import(
    writer: &Writer,
    intent: &Intent,
    path: &Path,
    source: &str,
    label: Option<&Label>,
    who: &str,
    meter: &Meter,
) -> Result<Report, SyncError> {
    let mut record = read_record(writer)?;
    let arrival = Arrival { path, source, title: source, label, demanded: None, job: None, sent: None };
    let brought = match bring(writer, &mut record, &arrival, &intent.effort, who, meter) {
        Ok(brought) => brought,
        Err(error) => {
            if error.is_refusal() {
                writer.note(who, "refused", None, Some(Chain(&error).to_string()));
            }
            return Err(error);
        }
    };
    settle(writer, &mut record, intent, who, Some(brought.id), Some(brought))
}

/// The version that should be served now, with those to fall back to behind it.
pub fn candidates(record: &Record, stored: impl Iterator<Item = VersionId>) -> Vec<VersionId> {
    let mut all: Vec<VersionId> = Vec::new();
    for id in record.active.into_iter().chain(record.previous).chain(stored) {
        if !all.contains(&id) {
            all.push(id);
        }
    }
    all
}
