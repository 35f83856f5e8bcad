//! One look at the source and what follows from it.

use std::path::Path;
use std::time::SystemTime;

use crate::base::chain::Chain;
use crate::model::digest::{Digest, Hasher};
use crate::model::units::now;
use crate::model::version::{Label, VersionId};
use crate::seal::Meter;
use crate::store::Store;
use crate::store::record::{Attempt, Hold, Labelled, Looked, Record};
use crate::store::writer::Writer;

use super::bring::{Arrival, Brought, bring};
use super::plan::{First, Seen, Then, Trigger, Wish, first, same_question, then};
use super::{Intent, Outcome, SyncError};

/// A sync and what it has to say.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What was brought, if anything.
    pub brought: Option<Brought>,
}

/// Looks, brings, activates; the attempt is recorded whatever comes of it.
pub fn look(writer: &Writer, intent: &Intent, trigger: Trigger, who: &str, meter: &Meter) -> Result<Report, SyncError> {
    let mut record = read_record(writer)?;
    let result = attempt(writer, &mut record, intent, trigger, who, meter);
    let (name, error) = match &result {
        // Not an attempt.
        Ok(Report { outcome: Outcome::Disabled, .. }) => return result,
        Ok(report) => (report.outcome.name(), None),
        Err(SyncError::StillRefused(said)) => ("failed", Some(said.clone())),
        Err(error) => ("failed", Some(Chain(error).to_string())),
    };
    if let Err(SyncError::Seal(_) | SyncError::WrongDigest { .. }) = &result {
        writer.note(who, "refused", None, error.clone());
    }
    record.last_attempt = Some(Attempt { time: now(), result: name.to_owned(), error });
    match (result, writer.write(&record)) {
        (Ok(_), Err(error)) => Err(error.into()),
        (result, _) => result,
    }
}

/// The record; one that is damaged is replaced by what the versions themselves tell.
pub fn read_record(writer: &Writer) -> Result<Record, SyncError> {
    match writer.store().record() {
        Ok(record) => Ok(record),
        Err(error @ crate::store::StoreError::Damaged { .. }) => {
            tracing::warn!("{}", Chain(&error));
            let record = remembered(writer.store())?;
            writer.write(&record)?;
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

fn attempt(
    writer: &Writer,
    record: &mut Record,
    intent: &Intent,
    trigger: Trigger,
    who: &str,
    meter: &Meter,
) -> Result<Report, SyncError> {
    let source = intent.source.as_deref().map(|path| path.display().to_string());
    let demanded = intent.sha256.map(|digest| digest.hex());
    let wish = Wish {
        enabled: intent.enabled,
        source: source.as_deref(),
        pin: intent.pin.as_ref().map(Label::as_str),
        sha256: demanded.as_deref(),
    };
    let store = writer.store();
    let has = |id| store.has(id);
    let path = match (first(record, &wish, trigger, has), &intent.source) {
        (First::Look, Some(path)) => path,
        (First::Settle, _) => return settle(writer, record, intent, who, None, None),
        _ => {
            return Ok(Report { outcome: Outcome::Disabled, brought: None });
        }
    };
    let seen = see(path)?;
    match then(record, &wish, trigger, &seen, has) {
        Then::Known(id) => return settle(writer, record, intent, who, Some(id), None),
        Then::StillRefused => {
            let said = record.last_attempt.as_ref().and_then(|attempt| attempt.error.clone());
            return Err(SyncError::StillRefused(said.unwrap_or_default()));
        }
        Then::Digest => {}
    }
    let found = digest_of(path)?;
    let mut looked = Looked {
        source: seen.source.clone(),
        label: wish.pin.map(str::to_owned),
        demanded: demanded.clone(),
        size: seen.size,
        modified: seen.modified,
        sha256: Some(found.hex()),
        version: None,
    };
    if let Some(known) = record.looked.as_ref().filter(|known| same_question(known, &wish, &seen.source))
        && trigger != Trigger::Refresh
        && known.sha256 == looked.sha256
        && let Some(id) = known.version.filter(|&id| store.has(id))
    {
        // Touched or copied again, the same bytes.
        looked.version = Some(id);
        record.looked = Some(looked);
        return settle(writer, record, intent, who, Some(id), None);
    }
    let brought = prove(writer, record, intent, path, &seen, found, who, meter);
    looked.version = brought.as_ref().ok().map(|brought| brought.id);
    if brought.as_ref().err().is_none_or(SyncError::is_refusal) {
        record.looked = Some(looked);
    }
    let brought = brought?;
    settle(writer, record, intent, who, Some(brought.id), Some(brought))
}

#[allow(clippy::too_many_arguments)] // one call, from right above
fn prove(
    writer: &Writer,
    record: &mut Record,
    intent: &Intent,
    path: &Path,
    seen: &Seen,
    found: Digest,
    who: &str,
    meter: &Meter,
) -> Result<Brought, SyncError> {
    if let Some(demanded) = intent.sha256.filter(|&demanded| demanded != found) {
        return Err(SyncError::WrongDigest { path: path.to_owned(), found, demanded });
    }
    let arrival = Arrival { path, source: &seen.source, label: intent.pin.as_ref(), demanded: intent.sha256, who };
    bring(writer, record, &arrival, &intent.effort, meter)
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
    let due = record.due(intent.pin.as_ref().map(Label::as_str)).filter(|&id| writer.store().has(id));
    let changed = due.filter(|&id| record.active != Some(id));
    if let Some(id) = changed {
        record.activate(id, &now());
        writer.write(record)?;
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
    Ok(Report { outcome, brought })
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
            for id in removed {
                writer.note(who, "pruned", Some(id), None);
            }
        }
        Err(error) => tracing::warn!("{}", Chain(&error)),
    }
}

fn see(path: &Path) -> Result<Seen, SyncError> {
    let metadata = std::fs::metadata(path).map_err(|source| SyncError::Missing { path: path.to_owned(), source })?;
    if metadata.is_dir() {
        return Err(SyncError::IsFolder { path: path.to_owned() });
    }
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    Ok(Seen {
        source: path.display().to_string(),
        size: metadata.len(),
        modified: modified.and_then(|d| i64::try_from(d.as_nanos()).ok()).unwrap_or(0),
    })
}

fn digest_of(path: &Path) -> Result<Digest, SyncError> {
    use std::io::Read;
    let missing = |source| SyncError::Missing { path: path.to_owned(), source };
    let mut file = std::fs::File::open(path).map_err(missing)?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let n = file.read(&mut buffer).map_err(missing)?;
        if n == 0 {
            return Ok(hasher.take());
        }
        hasher.update(&buffer[..n]);
    }
}

/// Brings a bundle that a person names, and activates it unless a hold or a pin says otherwise.
pub fn import(
    writer: &Writer,
    intent: &Intent,
    path: &Path,
    label: Option<&Label>,
    who: &str,
    meter: &Meter,
) -> Result<Report, SyncError> {
    let mut record = read_record(writer)?;
    let source = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let arrival = Arrival { path, source: &source, label, demanded: None, who };
    let brought = match bring(writer, &mut record, &arrival, &intent.effort, meter) {
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
