//! What is due is activated; what is not needed is pruned. And the ways into the store besides a sync: `import`, the
//! record that was lost.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::base::chain::Chain;
use crate::model::version::{Label, VersionId};
use crate::seal::Meter;
use crate::store::keeper::Keeper;
use crate::store::record::{Hold, Labelled, Offered, Record};

use super::bring::{Arrival, Brought, Occasion, bring};
use super::decide::{Asker, Decided, NEVER, decide, outcome, tell_history};
use super::workshop::Workshop;
use super::{Activation, Intent, Outcome, SyncError, room};

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
    /// The gate has kept a version back, and has not said so before.
    pub refused_now: bool,
}

impl Report {
    /// One that says how it ended and nothing else.
    pub fn of(outcome: Outcome) -> Report {
        Report { outcome, brought: None, too_early: None, blind: None, saw: None, refused_now: false }
    }
}

/// The record; one that is damaged is replaced by what the versions themselves tell.
pub fn read_record<K: Keeper>(keeper: &K) -> Result<Record, SyncError> {
    match keeper.record() {
        Ok(record) => Ok(record),
        Err(error @ crate::store::StoreError::Damaged { .. }) => {
            // Also on a disk that is full there is a site to be served.
            let kept = keeper.keep_damaged(&error);
            let record = remembered(keeper)?;
            if let Err(error) = kept.and_then(|()| keeper.mend(&record)) {
                tracing::warn!("{}", Chain(&error));
            }
            Ok(record)
        }
        Err(error) => Err(error.into()),
    }
}

/// What versions, receipts and history tell of a record that was lost.
fn remembered<K: Keeper>(keeper: &K) -> Result<Record, SyncError> {
    let mut record = Record::default();
    let versions = keeper.versions()?;
    record.newest = versions.first().map(|version| version.id);
    let history = keeper.history()?;
    // Not every version is meant to be active: what was so last is told by history.
    let last = history.iter().rev().filter(|event| event.is_activation());
    let last = last.filter_map(|event| event.version).find(|&id| keeper.has(id));
    // With a history that tells of no activation, there has been none.
    record.active = last.or(record.newest.filter(|_| history.is_empty()));
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
    // Of two within a second the last one counts, so the newest version comes last.
    let receipts = versions.iter().rev().flat_map(|v| v.receipts.iter().map(move |receipt| (v.id, receipt)));
    let look = receipts.filter(|(_, receipt)| receipt.looked).max_by(|(_, a), (_, b)| a.time.cmp(&b.time));
    record.offered = look.map(|(version, receipt)| Offered { source: receipt.source.clone(), version });
    // The operator's last word outlives the record.
    let last = history.iter().rev().find(|event| event.is_word());
    if let Some(event) = last.filter(|event| event.what != "released") {
        record.active = event.version.filter(|&id| keeper.has(id)).or(record.active);
        let why = event.note.clone().unwrap_or_else(|| event.what.clone());
        record.hold = Some(Hold { who: event.who.clone(), when: event.time.clone(), why });
    }
    Ok(record)
}

/// Activates what is due and prunes. `found` is what the source holds.
pub fn settle<W: Workshop>(
    shop: &W,
    record: &mut Record,
    asker: Asker<'_>,
    found: Option<VersionId>,
    brought: Option<Brought>,
) -> Result<Report, SyncError> {
    let decided = decide(shop, asker, |step| Ok(shop.decide(record, step)?));
    if let (Err(SyncError::Interrupted), Some(brought)) = (&decided, &brought) {
        // It is in the store, and the next look decides about it, but does not bring it again.
        for warning in &brought.warnings {
            tracing::warn!("{warning}");
        }
    }
    let decided = decided?;
    let intent = &(asker.in_force)();
    tell_history(shop, asker.who, &decided);
    // Also when nothing came: whoever was killed between accepting a version and pruning has left that to this look.
    let removed = prune(shop, record, intent, asker.who);
    if brought.is_some() || removed {
        room::warn_if_over(shop, &intent.allowance);
    }
    let refused_now = matches!(decided, Decided::Refused(_, _, true));
    let outcome = match (found, outcome(decided, record.active)) {
        // What the source holds is what is told of, if it is not what was decided about.
        (Some(found), outcome) if record.active != Some(found) && !outcome.is_about(found) => {
            Outcome::NotActive(found, why_not_active(record, intent))
        }
        // The source holds what is active: that another version waits is no failure of this look.
        (Some(found), Outcome::NotActive(..) | Outcome::Staged(_)) if record.active == Some(found) => {
            Outcome::Current(record.active)
        }
        (_, outcome) => outcome,
    };
    Ok(Report { brought, refused_now, ..Report::of(outcome) })
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

/// Whether something went. Failing to prune is no failure of the sync: it is tried again by the next one.
fn prune<K: Keeper>(keeper: &K, record: &Record, intent: &Intent, who: &str) -> bool {
    match keeper.prune(record, &intent.allowance) {
        Ok(removed) => {
            for version in &removed {
                keeper.note(who, "pruned", Some(version.id), None);
            }
            !removed.is_empty()
        }
        Err(error) => {
            tracing::warn!("{}", Chain(&error));
            false
        }
    }
}

/// A bundle that somebody has brought.
#[derive(Debug, Clone, Copy)]
pub struct Handed<'a> {
    /// Where it lies.
    pub path: &'a Path,
    /// The bundle itself, if it is open already: then nothing is opened by path.
    pub file: Option<&'a File>,
    /// What receipts and messages call it.
    pub source: &'a str,
    /// The label that the result gets.
    pub label: Option<&'a Label>,
    /// By whom.
    pub who: &'a str,
    /// Whether it passes the gate unasked.
    pub force: bool,
}

/// Seals a bundle that somebody has brought, and activates it unless a hold, a pin or the gate says otherwise. It is not
/// called off: nobody would bring the bundle again. `in_force` tells the configuration that counts at a moment.
pub fn import<W: Workshop>(
    shop: &W,
    in_force: &dyn Fn() -> Intent,
    handed: Handed<'_>,
    meter: &Meter,
) -> Result<Report, SyncError> {
    let Handed { path, file, source, label, who, force } = handed;
    let mut record = read_record(shop)?;
    let intent = &in_force();
    let ahead = RefCell::default();
    let occasion = Occasion::Import;
    let arrival =
        Arrival { path, file, source, title: source, occasion, label, demanded: None, job: None, sent: None, ahead };
    let brought = match bring(shop, &mut record, intent, &arrival, false, who, meter) {
        Ok(brought) => brought,
        Err(error) => {
            if error.is_refusal() {
                shop.note(who, "refused", None, Some(Chain(&error).to_string()));
            }
            return Err(error);
        }
    };
    let asker = Asker { who, force, stop: NEVER, in_force };
    settle(shop, &mut record, asker, Some(brought.id), Some(brought))
}

/// The version that should be served now, with those to fall back to behind it. One that has never been active because it
/// waits for a person or was kept back by the gate is none of them.
pub fn candidates(record: &Record, intent: &Intent, stored: impl Iterator<Item = VersionId>) -> Vec<VersionId> {
    let guarded = intent.activation == Activation::Manual || !intent.gate.is_off();
    if guarded && record.active.is_none() && record.newest.is_some() {
        // What is there has been kept back so far, all of it.
        return Vec::new();
    }
    // Any other may have been kept back.
    let others = stored.filter(|_| !guarded);
    let mut all: Vec<VersionId> = Vec::new();
    for id in record.active.into_iter().chain(record.previous).chain(others) {
        if !all.contains(&id) {
            all.push(id);
        }
    }
    all
}
