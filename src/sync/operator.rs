//! What a person does to the store. The operator has the last word: a hold is never undone by anything but a release.

use crate::model::units::now;
use crate::model::version::VersionId;
use crate::store::StoreError;
use crate::store::record::Hold;
use crate::store::writer::Writer;

use super::settle::{Report, read_record, settle};
use super::{Intent, SyncError};

/// Makes the version called `name` active and holds it.
pub fn activate(writer: &Writer, name: &str, who: &str) -> Result<VersionId, SyncError> {
    let id = writer.store().named(name)?;
    hold_at(writer, id, who, "activated", format!("activated {name} by hand"))?;
    Ok(id)
}

/// Makes the previous version active and holds it.
pub fn rollback(writer: &Writer, who: &str) -> Result<VersionId, SyncError> {
    let record = read_record(writer)?;
    let id = record.previous.filter(|&id| writer.store().has(id)).ok_or(StoreError::NoPrevious)?;
    hold_at(writer, id, who, "rolled back", "rolled back by hand".to_owned())?;
    Ok(id)
}

fn hold_at(writer: &Writer, id: VersionId, who: &str, what: &str, why: String) -> Result<(), SyncError> {
    let mut record = read_record(writer)?;
    let when = now();
    record.activate(id, &when);
    record.hold = Some(Hold { who: who.to_owned(), when, why });
    writer.write(&record)?;
    writer.note(who, what, Some(id), None);
    Ok(())
}

/// Stops automatic activation where it is.
pub fn hold(writer: &Writer, who: &str, why: &str) -> Result<(), SyncError> {
    let mut record = read_record(writer)?;
    record.hold = Some(Hold { who: who.to_owned(), when: now(), why: why.to_owned() });
    writer.write(&record)?;
    writer.note(who, "held", record.active, Some(why.to_owned()));
    Ok(())
}

/// Ends a hold and goes at once to what the pin or the newest version asks for. `false` if there was none.
pub fn release(writer: &Writer, intent: &Intent, who: &str) -> Result<(bool, Report), SyncError> {
    let mut record = read_record(writer)?;
    let held = record.hold.take().is_some();
    if held {
        writer.write(&record)?;
        writer.note(who, "released", record.active, None);
    }
    let report = settle(writer, &mut record, intent, who, None, None)?;
    Ok((held, report))
}
