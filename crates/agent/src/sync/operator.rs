//! Commands of an operator. They take precedence over syncs: only a release ends a hold.

use crate::store::history::BY_HAND;
use crate::store::operations::StoreOperations;
use crate::store::record::{ActivationHold, StoreRecord};
use crate::store::{StoreError, find_version};
use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::SealOptions;

use super::activation::SyncReport;
use super::activation_decision::{ActivationRequest, NEVER_CANCELLED, decide, note_decision, outcome};
use super::record_recovery::read_record;
use super::seal_operations::SealOperations;
use super::waiting::{WaitingReason, find_waiting_version};
use super::{SyncError, SyncSettings};

/// A version that a command has activated, opened for serving.
pub type ActivatedVersion<W> = (VersionId, <W as SealOperations>::Opened);

/// Makes the version called `name` active and sets a hold. With `activate.mode = "manual"` a person activates each
/// version, and the waiting version becomes active without a hold: a hold would stop the next exports.
pub fn activate<W: SealOperations>(
    store: &W,
    name: &str,
    author: &str,
    sync_settings: &SyncSettings,
) -> Result<ActivatedVersion<W>, SyncError> {
    let seal_options = &sync_settings.seal_options;
    let record = read_record(store)?;
    let id = find_version(name, &store.record()?, &store.versions()?)?;
    let waiting_for_person = find_waiting_version(&record, Some(sync_settings))
        .filter(|waiting| waiting.reason == WaitingReason::ManualMode)
        .map(|waiting| waiting.version);
    if waiting_for_person == Some(id) {
        let version = store.open(id, seal_options)?;
        let when = format_unix_seconds(store.now());
        // This note distinguishes the event from an activation by hand, which sets a hold (`BY_HAND`).
        let event = ("activated", Some(id), Some("promoted".to_owned()));
        store.change_record_and_note(author, |record| record.activate(id, &when), |()| Some(event))?;
        return Ok((id, version));
    }
    activate_and_hold(store, id, author, seal_options, "activated", format!("activated {name}{BY_HAND}"))
}

/// Makes the previous version active and sets a hold.
pub fn rollback<W: SealOperations>(
    store: &W,
    author: &str,
    seal_options: &SealOptions,
) -> Result<ActivatedVersion<W>, SyncError> {
    let record = read_record(store)?;
    let id = record.previous.filter(|&id| store.has(id)).ok_or(StoreError::NoPrevious)?;
    activate_and_hold(store, id, author, seal_options, "rolled back", "rolled back by hand".to_owned())
}

/// Activates a version and sets a hold. The version is opened first: one that cannot be served is not activated, and
/// the opened one is leased.
fn activate_and_hold<W: SealOperations>(
    store: &W,
    id: VersionId,
    author: &str,
    seal_options: &SealOptions,
    event: &'static str,
    why: String,
) -> Result<ActivatedVersion<W>, SyncError> {
    let version = store.open(id, seal_options)?;
    let when = format_unix_seconds(store.now());
    let note = (event == "activated").then(|| why.clone());
    let activate = |record: &mut StoreRecord| {
        record.activate(id, &when);
        record.hold = Some(ActivationHold { author: author.to_owned(), when: when.clone(), why });
    };
    // If the record is lost, history must distinguish this from an automatic activation.
    store.change_record_and_note(author, activate, |()| Some((event, Some(id), note)))?;
    Ok((id, version))
}

/// Stops automatic activation; returns the version that stays active.
pub fn hold<S: StoreOperations>(store: &S, author: &str, why: &str) -> Result<Option<VersionId>, SyncError> {
    read_record(store)?;
    let when = format_unix_seconds(store.now());
    let hold = |record: &mut StoreRecord| {
        record.hold = Some(ActivationHold { author: author.to_owned(), when, why: why.to_owned() });
        record.active
    };
    Ok(store.change_record_and_note(author, hold, |&active| Some(("held", active, Some(why.to_owned()))))?)
}

/// Ends a hold, and activates the target version at once if the gate and the activation mode allow it. Returns `false`
/// if there was no hold.
pub fn release<W: SealOperations>(
    store: &W,
    sync_settings: &SyncSettings,
    author: &str,
) -> Result<(bool, SyncReport), SyncError> {
    let was_held = end_hold(store, author)?;
    Ok((was_held, activate_target_version(store, &|| sync_settings.clone(), author, NEVER_CANCELLED)?))
}

/// Ends a hold, without activating a version, so it returns at once. Returns `false` if there was no hold.
pub fn end_hold<S: StoreOperations>(store: &S, author: &str) -> Result<bool, SyncError> {
    read_record(store)?;
    let end = |record: &mut StoreRecord| (record.hold.take().is_some(), record.active);
    let event = |&(was_held, active): &(bool, Option<VersionId>)| was_held.then_some(("released", active, None));
    Ok(store.change_record_and_note(author, end, event)?.0)
}

/// Activates the target version after a hold. The gate may need seconds; if `is_cancelled` returns true meanwhile,
/// the error is [`SyncError::Cancelled`] and nothing is activated. `in_force` returns the configuration in force.
pub fn activate_target_version<W: SealOperations>(
    store: &W,
    in_force: &dyn Fn() -> SyncSettings,
    author: &str,
    is_cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<SyncReport, SyncError> {
    let active = read_record(store)?.active;
    let request = ActivationRequest { author, force: false, is_cancelled, in_force };
    let decision = decide(store, request, |step| Ok(store.change_record(step)?))?;
    note_decision(store, author, &decision);
    Ok(SyncReport::from_outcome(outcome(decision, active)))
}
