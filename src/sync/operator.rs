//! What a person does to the store. The operator has the last word: a hold is never undone by anything but a release.

use crate::model::units::now;
use crate::model::version::VersionId;
use crate::seal::Effort;
use crate::site::sealed::Sealed;
use crate::store::StoreError;
use crate::store::record::Hold;
use crate::store::writer::Writer;

use super::settle::{Report, flip, read_record};
use super::{Intent, Outcome, SyncError, open};

/// A version that a person has chosen, ready to be served.
pub type Chosen = (VersionId, Sealed);

/// Makes the version called `name` active and holds it.
pub fn activate(writer: &Writer, name: &str, who: &str, effort: &Effort) -> Result<Chosen, SyncError> {
    read_record(writer)?;
    let id = writer.store().named(name)?;
    hold_at(writer, id, who, effort, "activated", format!("activated {name} by hand"))
}

/// Makes the previous version active and holds it.
pub fn rollback(writer: &Writer, who: &str, effort: &Effort) -> Result<Chosen, SyncError> {
    let record = read_record(writer)?;
    let id = record.previous.filter(|&id| writer.store().has(id)).ok_or(StoreError::NoPrevious)?;
    hold_at(writer, id, who, effort, "rolled back", "rolled back by hand".to_owned())
}

/// A version that cannot be served is not chosen: it is opened first, and stays leased from then on.
fn hold_at(
    writer: &Writer,
    id: VersionId,
    who: &str,
    effort: &Effort,
    what: &str,
    why: String,
) -> Result<Chosen, SyncError> {
    let sealed = open::open(writer, id, effort, writer.store().suspect() == Some(id))?;
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

/// Ends a hold and goes at once to what the pin or the newest version asks for. `false` if there was none.
pub fn release(writer: &Writer, intent: &Intent, who: &str) -> Result<(bool, Report), SyncError> {
    read_record(writer)?;
    let (was_held, stayed, changed) = writer.change(|record| {
        let (was_held, stayed) = (record.hold.take().is_some(), record.active);
        (was_held, stayed, flip(writer, record, intent))
    })?;
    if was_held {
        writer.note(who, "released", stayed, None);
    }
    if let Some(id) = changed {
        writer.note(who, "activated", Some(id), None);
    }
    let outcome = changed.map_or(Outcome::Current(stayed), Outcome::Activated);
    Ok((was_held, Report::of(outcome)))
}
