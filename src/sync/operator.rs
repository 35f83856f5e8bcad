//! What a person does to the store. The operator has the last word: a hold is never undone by anything but a release.

use crate::model::units::now;
use crate::model::version::VersionId;
use crate::seal::Effort;
use crate::site::sealed::Sealed;
use crate::store::StoreError;
use crate::store::record::Hold;
use crate::store::writer::Writer;

use super::decide::{Asker, NEVER, decide, outcome, tell_history};
use super::settle::{Report, read_record};
use super::staged::{Waits, staged};
use super::{Intent, SyncError, open};

/// A version that a person has chosen, ready to be served.
pub type Chosen = (VersionId, Sealed);

/// Makes the version called `name` active and holds it. Where a person promotes each version (`activate.mode` is
/// "manual"), the one that waits becomes active without a hold: otherwise nothing newer would be exported.
pub fn activate(writer: &Writer, name: &str, who: &str, intent: &Intent) -> Result<Chosen, SyncError> {
    let effort = &intent.effort;
    let record = read_record(writer)?;
    let id = writer.store().named(name)?;
    let waits =
        staged(&record, Some(intent)).filter(|staged| staged.waits == Waits::Person).map(|staged| staged.version);
    if waits == Some(id) {
        let sealed = opened(writer, id, effort)?;
        writer.change(|record| record.activate(id, &now()))?;
        writer.note(who, "activated", Some(id), Some("promoted".to_owned()));
        return Ok((id, sealed));
    }
    hold_at(writer, id, who, effort, "activated", format!("activated {name} by hand"))
}

/// Makes the previous version active and holds it.
pub fn rollback(writer: &Writer, who: &str, effort: &Effort) -> Result<Chosen, SyncError> {
    let record = read_record(writer)?;
    let id = record.previous.filter(|&id| writer.store().has(id)).ok_or(StoreError::NoPrevious)?;
    hold_at(writer, id, who, effort, "rolled back", "rolled back by hand".to_owned())
}

/// A version that cannot be served is not chosen: it is opened first, and stays leased from then on.
fn opened(writer: &Writer, id: VersionId, effort: &Effort) -> Result<Sealed, SyncError> {
    open::open_doubted(writer, id, effort)
}

fn hold_at(
    writer: &Writer,
    id: VersionId,
    who: &str,
    effort: &Effort,
    what: &str,
    why: String,
) -> Result<Chosen, SyncError> {
    let sealed = opened(writer, id, effort)?;
    writer.change(|record| {
        let when = now();
        record.activate(id, &when);
        record.hold = Some(Hold { who: who.to_owned(), when, why });
    })?;
    writer.note(who, what, Some(id), None);
    Ok((id, sealed))
}

/// Stops automatic activation where it is; gives the version that stays.
pub fn hold(writer: &Writer, who: &str, why: &str) -> Result<Option<VersionId>, SyncError> {
    read_record(writer)?;
    let active = writer.change(|record| {
        record.hold = Some(Hold { who: who.to_owned(), when: now(), why: why.to_owned() });
        record.active
    })?;
    writer.note(who, "held", active, Some(why.to_owned()));
    Ok(active)
}

/// Ends a hold and goes at once to what the pin or the newest version asks for, if the gate lets it. `false` if there was
/// none.
pub fn release(writer: &Writer, intent: &Intent, who: &str) -> Result<(bool, Report), SyncError> {
    let was_held = end_hold(writer, who)?;
    Ok((was_held, go_on(writer, intent, who, NEVER)?))
}

/// The first half of a release, which takes no time: from here on nothing is held. `false` if nothing was.
pub fn end_hold(writer: &Writer, who: &str) -> Result<bool, SyncError> {
    read_record(writer)?;
    let (was_held, stayed) = writer.change(|record| (record.hold.take().is_some(), record.active))?;
    if was_held {
        writer.note(who, "released", stayed, None);
    }
    Ok(was_held)
}

/// The second half, which may take the gate seconds. If `stop` says yes while pages have to be read, nothing is decided:
/// [`SyncError::Interrupted`].
pub fn go_on(
    writer: &Writer,
    intent: &Intent,
    who: &str,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Report, SyncError> {
    let stayed = read_record(writer)?.active;
    let decided = decide(writer, intent, Asker { who, force: false, stop }, |step| Ok(writer.change(step)?))?;
    tell_history(writer, who, &decided);
    Ok(Report::of(outcome(decided, stayed)))
}
