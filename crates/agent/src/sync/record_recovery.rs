//! Recovery of a lost record from versions, receipts and history.

use crate::store::StoreError;
use crate::store::operations::StoreOperations;
use crate::store::record::{ActivationHold, LabelledVersion, OfferedVersion, StoreRecord};
use docwharf_base::error_chain::ErrorChain;

/// Reads the record. A damaged one is replaced by a record recovered from versions, receipts and history.
pub fn read_record<S: StoreOperations>(store: &S) -> Result<StoreRecord, StoreError> {
    match store.record() {
        Ok(record) => Ok(record),
        Err(error @ StoreError::DamagedRecord { .. }) => {
            // A recovered record that cannot be written is still used, so that the site is served also on a full disk.
            let copied = store.copy_damaged_record(&error);
            let record = recover_record(store)?;
            if let Err(error) = copied.and_then(|()| store.replace_record(&record)) {
                tracing::warn!("{}", ErrorChain(&error));
            }
            Ok(record)
        }
        Err(error) => Err(error),
    }
}

/// Recovers a lost record from versions, receipts and history.
fn recover_record<S: StoreOperations>(store: &S) -> Result<StoreRecord, StoreError> {
    let mut record = StoreRecord::default();
    let versions = store.versions()?;
    record.newest = versions.first().map(|version| version.id);
    let history = store.history()?;
    // Not every version was activated: history has the last activation.
    let activations = history.iter().rev().filter(|event| event.is_activation());
    let last = activations.filter_map(|event| event.version).find(|&id| store.has(id));
    // A history without an activation means that no version was active.
    record.active = last.or(record.newest.filter(|_| history.is_empty()));
    // The newest arrival comes first, so the first receipt with a label counts.
    for version in &versions {
        for receipt in version.receipts.iter().rev() {
            let Some(label) = &receipt.label else { continue };
            record.labels.entry(label.clone()).or_insert_with(|| LabelledVersion {
                version: version.id,
                source: receipt.source.clone(),
                sha256: receipt.archive_sha256.clone(),
                time: receipt.time.clone(),
            });
        }
    }
    // Of two arrivals within a second the last counts, so the newest version comes last.
    let receipts = versions.iter().rev().flat_map(|v| v.receipts.iter().map(move |receipt| (v.id, receipt)));
    let last_check =
        receipts.filter(|(_, receipt)| receipt.found_by_check).max_by(|(_, a), (_, b)| a.time.cmp(&b.time));
    record.offered = last_check.map(|(version, receipt)| OfferedVersion { source: receipt.source.clone(), version });
    // The last decision of a person survives the loss of the record.
    let decision = history.iter().rev().find(|event| event.is_hold_decision());
    if let Some(event) = decision.filter(|event| event.what != "released") {
        record.active = event.version.filter(|&id| store.has(id)).or(record.active);
        let why = event.note.clone().unwrap_or_else(|| event.what.clone());
        record.hold = Some(ActivationHold { author: event.author.clone(), when: event.time.clone(), why });
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::store::history::BY_HAND;
    use crate::store::writer::StoreWriter;
    use crate::store::{HistoryEvent, IMAGE, Receipt};
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    fn time_at(minute: u8) -> String {
        format!("2026-11-21T10:{minute:02}:00Z")
    }

    /// A store whose versions are never read: each has arrived once, in the order of its number.
    fn store(root: &Path, versions: &[u8]) -> StoreWriter {
        let writer = StoreWriter::open(root, Duration::ZERO).unwrap();
        for &n in versions {
            std::fs::create_dir(writer.store().version_dir(id(n))).unwrap();
            std::fs::write(writer.store().version_dir(id(n)).join(IMAGE), "image").unwrap();
            add_arrival(&writer, n, n, "s", None, true);
        }
        writer
    }

    fn add_arrival(writer: &StoreWriter, n: u8, minute: u8, source: &str, label: Option<&str>, found_by_check: bool) {
        let receipt = Receipt {
            time: time_at(minute),
            author: String::new(),
            source: source.to_owned(),
            kind: String::new(),
            archive_sha256: Some(format!("{n}")),
            archive_bytes: None,
            label: label.map(str::to_owned),
            job: None,
            validator: None,
            sent_bytes: None,
            found_by_check,
        };
        writer.add_receipt(id(n), &receipt).unwrap();
    }

    fn event(what: &str, version: Option<u8>, note: Option<&str>) -> HistoryEvent {
        let note = note.map(str::to_owned);
        HistoryEvent {
            time: time_at(9),
            author: "me".to_owned(),
            what: what.to_owned(),
            version: version.map(id),
            note,
        }
    }

    #[test]
    fn lost_record_is_rebuilt_from_the_activations_and_holds_in_history() {
        let by_hand = format!("activated x{BY_HAND}");
        // The history; the active version and the reason of the hold. The versions 1 and 2 are stored, 3 is not.
        let cases: [(&[HistoryEvent], Option<u8>, Option<&str>); 16] = [
            (&[], Some(2), None),
            // History has no activation, so none has happened.
            (&[event("imported", Some(2), None)], None, None),
            (&[event("imported", Some(2), None), event("kept back", Some(2), None)], None, None),
            (&[event("activated", Some(1), None)], Some(1), None),
            (&[event("activated", Some(1), None), event("activated", Some(2), None)], Some(2), None),
            (&[event("activated", Some(2), None), event("activated", Some(1), None)], Some(1), None),
            (&[event("activated", Some(1), None), event("activated", Some(3), None)], Some(1), None),
            (&[event("activated", Some(3), None)], None, None),
            (&[event("activated", Some(2), None), event("rolled back", Some(1), None)], Some(1), Some("rolled back")),
            (&[event("activated", Some(1), Some(&by_hand))], Some(1), Some(&by_hand)),
            (&[event("activated", Some(2), None), event("held", Some(1), Some("why"))], Some(1), Some("why")),
            (&[event("activated", Some(2), None), event("held", Some(3), Some("why"))], Some(2), Some("why")),
            (&[event("activated", Some(2), None), event("held", None, Some("why"))], Some(2), Some("why")),
            (&[event("held", Some(1), None), event("activated", Some(2), None)], Some(1), Some("held")),
            (&[event("rolled back", Some(1), None), event("released", Some(1), None)], Some(1), None),
            (&[event("held", Some(1), None), event("held", Some(2), Some("later"))], Some(2), Some("later")),
        ];
        for (n, (history, active, why)) in cases.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let writer = store(dir.path(), &[1, 2]);
            for event in history {
                writer.append_event(event);
            }
            std::fs::write(dir.path().join("state.json"), "{").unwrap();
            let record = read_record(&writer).unwrap();
            assert_eq!((record.active, record.newest), (active.map(id), Some(id(2))), "case {n}");
            let hold = record.hold.as_ref();
            assert_eq!(hold.map(|hold| hold.why.as_str()), why, "case {n}");
            assert!(hold.is_none_or(|hold| hold.author == "me" && hold.when == time_at(9)), "case {n}");
            // The record is stored again, and a copy of the damaged one beside it.
            assert_eq!(writer.record().unwrap(), record, "case {n}");
            assert_eq!(std::fs::read(dir.path().join("state.json.damaged")).unwrap(), b"{", "case {n}");
        }
    }

    #[test]
    fn lost_record_is_rebuilt_with_labels_and_offered_version_from_the_receipts() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store(dir.path(), &[1, 2, 3]);
        add_arrival(&writer, 1, 11, "a", Some("one"), false);
        add_arrival(&writer, 1, 12, "b", Some("both"), false);
        add_arrival(&writer, 1, 13, "c", Some("one"), false);
        add_arrival(&writer, 2, 14, "d", Some("both"), true);
        add_arrival(&writer, 3, 14, "e", None, true);
        add_arrival(&writer, 3, 15, "f", None, false);
        std::fs::write(dir.path().join("state.json"), "{").unwrap();
        let record = read_record(&writer).unwrap();
        let labels: Vec<_> = record
            .labels
            .iter()
            .map(|(label, labelled)| {
                let LabelledVersion { version, source, sha256, time } = labelled;
                (label.as_str(), *version, source.as_str(), sha256.as_deref(), time.clone())
            })
            .collect();
        assert_eq!(labels, [("both", id(2), "d", Some("2"), time_at(14)), ("one", id(1), "c", Some("1"), time_at(13))]);
        assert_eq!(record.newest, Some(id(3)));
        let offered = OfferedVersion { source: "e".to_owned(), version: id(3) };
        assert_eq!(record.offered, Some(offered), "of two checks at one time that of the newest version counts");
        // An empty store gives an empty record; the record of a later docwharf is not replaced.
        let dir = tempfile::tempdir().unwrap();
        let writer = store(dir.path(), &[]);
        std::fs::write(dir.path().join("state.json"), "").unwrap();
        assert_eq!(read_record(&writer).unwrap(), StoreRecord::default());
        std::fs::write(dir.path().join("state.json"), "{\"schemaVersion\": 99}").unwrap();
        assert!(read_record(&writer).is_err());
        assert_eq!(std::fs::read(dir.path().join("state.json")).unwrap(), b"{\"schemaVersion\": 99}");
    }
}
