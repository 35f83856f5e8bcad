//! Commands of a person. The operator has the last word: only a release ends a hold.

use crate::store::history::BY_HAND;
use crate::store::operations::StoreOperations;
use crate::store::record::{ActivationHold, StoreRecord};
use crate::store::{StoreError, named};
use docwharf_base::model::units::show_unix;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::SealOptions;

use super::activation::SyncReport;
use super::activation_decision::{ActivationRequest, NEVER_CANCELLED, decide, outcome, tell_history};
use super::record_recovery::read_record;
use super::seal_operations::SealOperations;
use super::waiting::{WaitingReason, staged};
use super::{SyncError, SyncIntent};

/// A version that a person has chosen, opened for serving.
pub type Chosen<W> = (VersionId, <W as SealOperations>::Opened);

/// Makes the version called `name` active and holds it. With `activate.mode = "manual"` a person promotes each version,
/// and the waiting version becomes active without a hold: a hold would stop the next exports.
pub fn activate<W: SealOperations>(
    shop: &W,
    name: &str,
    who: &str,
    intent: &SyncIntent,
) -> Result<Chosen<W>, SyncError> {
    let effort = &intent.effort;
    let record = read_record(shop)?;
    let id = named(name, &shop.record()?, &shop.versions()?)?;
    let waits = staged(&record, Some(intent))
        .filter(|staged| staged.waits == WaitingReason::Person)
        .map(|staged| staged.version);
    if waits == Some(id) {
        let sealed = opened(shop, id, effort)?;
        let when = show_unix(shop.now());
        let told = ("activated", Some(id), Some("promoted".to_owned()));
        shop.change_and_note(who, |record| record.activate(id, &when), |()| Some(told))?;
        return Ok((id, sealed));
    }
    hold_at(shop, id, who, effort, "activated", format!("activated {name}{BY_HAND}"))
}

/// Makes the previous version active and holds it.
pub fn rollback<W: SealOperations>(shop: &W, who: &str, effort: &SealOptions) -> Result<Chosen<W>, SyncError> {
    let record = read_record(shop)?;
    let id = record.previous.filter(|&id| shop.has(id)).ok_or(StoreError::NoPrevious)?;
    hold_at(shop, id, who, effort, "rolled back", "rolled back by hand".to_owned())
}

/// Opens a version before it is chosen: one that cannot be served is not chosen, and this one stays leased.
fn opened<W: SealOperations>(shop: &W, id: VersionId, effort: &SealOptions) -> Result<W::Opened, SyncError> {
    shop.open(id, effort)
}

fn hold_at<W: SealOperations>(
    shop: &W,
    id: VersionId,
    who: &str,
    effort: &SealOptions,
    what: &'static str,
    why: String,
) -> Result<Chosen<W>, SyncError> {
    let sealed = opened(shop, id, effort)?;
    let when = show_unix(shop.now());
    let said = (what == "activated").then(|| why.clone());
    let choose = |record: &mut StoreRecord| {
        record.activate(id, &when);
        record.hold = Some(ActivationHold { who: who.to_owned(), when: when.clone(), why });
    };
    // If the record is lost, history must distinguish this from an automatic activation.
    shop.change_and_note(who, choose, |()| Some((what, Some(id), said)))?;
    Ok((id, sealed))
}

/// Stops automatic activation; returns the version that stays active.
pub fn hold<K: StoreOperations>(shop: &K, who: &str, why: &str) -> Result<Option<VersionId>, SyncError> {
    read_record(shop)?;
    let when = show_unix(shop.now());
    let hold = |record: &mut StoreRecord| {
        record.hold = Some(ActivationHold { who: who.to_owned(), when, why: why.to_owned() });
        record.active
    };
    Ok(shop.change_and_note(who, hold, |&active| Some(("held", active, Some(why.to_owned()))))?)
}

/// Ends a hold, and activates the pinned or newest version at once if the gate allows it. Returns `false` if there was
/// no hold.
pub fn release<W: SealOperations>(shop: &W, intent: &SyncIntent, who: &str) -> Result<(bool, SyncReport), SyncError> {
    let was_held = end_hold(shop, who)?;
    Ok((was_held, activate_due(shop, &|| intent.clone(), who, NEVER_CANCELLED)?))
}

/// Ends a hold, without activating anything; this takes no time. Returns `false` if there was no hold.
pub fn end_hold<K: StoreOperations>(shop: &K, who: &str) -> Result<bool, SyncError> {
    read_record(shop)?;
    let end = |record: &mut StoreRecord| (record.hold.take().is_some(), record.active);
    let tell = |&(was_held, stayed): &(bool, Option<VersionId>)| was_held.then_some(("released", stayed, None));
    Ok(shop.change_and_note(who, end, tell)?.0)
}

/// Activates the version that is due after a hold. The gate may take seconds; if `stop` returns true meanwhile, nothing
/// is decided: [`SyncError::Interrupted`]. `in_force` returns the configuration in force.
pub fn activate_due<W: SealOperations>(
    shop: &W,
    in_force: &dyn Fn() -> SyncIntent,
    who: &str,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<SyncReport, SyncError> {
    let stayed = read_record(shop)?.active;
    let asker = ActivationRequest { who, force: false, stop, in_force };
    let decided = decide(shop, asker, |step| Ok(shop.change(step)?))?;
    tell_history(shop, who, &decided);
    Ok(SyncReport::of(outcome(decided, stayed)))
}
