//! Ingest: turns a bundle into a version of the store. Steps: verify, seal, commit, receipt, record, history.

use crate::store::incoming_version::CommitOutcome;
use crate::store::operations::StoreOperations;
use crate::store::record::{LabelledVersion, StoreRecord};
use crate::store::{Receipt, StoreError};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::{SealOptions, SealProgress};

use super::incoming_bundle::{ArrivalCause, IncomingBundle};
use super::seal_operations::{BundleSummary, SealOperations};
use super::{SyncError, SyncSettings, disk_space};

/// A bundle that has become a version of the store.
#[derive(Debug)]
pub struct IngestedBundle {
    /// The version's id.
    pub id: VersionId,
    /// SHA-256 of the archive.
    pub sha256: Option<Digest>,
    /// Warnings about the content.
    pub warnings: Vec<String>,
    /// The effect of the commit on the store: a new version, none, or a repaired version.
    pub committed: CommitOutcome,
    /// Number of pages, for messages.
    pub pages: u64,
    /// Size of the content in bytes.
    pub bytes: u64,
}

/// Frees disk space, verifies, seals and commits a bundle, and updates and writes `record`. It activates nothing.
/// `may_move` allows moving the file.
pub fn ingest_bundle<W: SealOperations>(
    store: &W,
    record: &mut StoreRecord,
    sync_settings: &SyncSettings,
    incoming_bundle: &IncomingBundle<'_>,
    may_move: bool,
    author: &str,
    progress: &SealProgress,
) -> Result<IngestedBundle, SyncError> {
    let mut space = store.estimate_space(incoming_bundle, may_move);
    if incoming_bundle.streamed_seal.borrow().is_some() {
        // The image has been written during the download.
        space.remaining_bytes = 0;
    }
    disk_space::reserve_space(store, record, sync_settings, space, author)?;
    let seal_options = SealOptions { may_move, ..sync_settings.seal_options };
    let (summary, mut incoming) = store.seal(incoming_bundle, &seal_options, progress)?;
    if let (Some(expected), Some((found, _))) = (incoming_bundle.demanded, summary.archive)
        && expected != found
    {
        return Err(SyncError::WrongDigest { name: incoming_bundle.title.to_owned(), found, demanded: expected });
    }
    let id = summary.id;
    let date_sources: Vec<VersionId> = record.active.into_iter().chain(record.newest).collect();
    let committed = store.commit(&mut incoming, &date_sources, &seal_options)?;
    let before = record.clone();
    let stored = store_receipt_and_record(store, record, incoming_bundle, &summary, author);
    if stored.is_err() {
        *record = before;
        if committed == CommitOutcome::New
            && let Err(error) = withdraw(store, id)
        {
            // A version that no record names is used when its content arrives again, and pruned otherwise.
            tracing::warn!("{}", ErrorChain(&error));
        }
    }
    let label_warning = stored?;
    let BundleSummary { archive, pages, bytes, warnings, .. } = summary;
    let sha256 = archive.map(|(digest, _)| digest);
    let warnings = warnings.into_iter().chain(label_warning).collect();
    Ok(IngestedBundle { id, sha256, warnings, committed, pages, bytes })
}

/// Removes a version whose receipt or record could not be written, unless a person has already chosen it.
fn withdraw<W: SealOperations>(store: &W, id: VersionId) -> Result<(), StoreError> {
    store.with_record_lock(|| {
        let record = store.record()?;
        if record.active == Some(id) || record.previous == Some(id) { Ok(()) } else { store.remove_ignoring_leases(id) }
    })
}

/// Writes receipt, record and history of a committed version. Returns a warning if another version had the label.
fn store_receipt_and_record<W: SealOperations>(
    store: &W,
    record: &mut StoreRecord,
    incoming_bundle: &IncomingBundle<'_>,
    summary: &BundleSummary,
    author: &str,
) -> Result<Option<String>, SyncError> {
    let id = summary.id;
    // If the version was stored already, its image has just been compared or verified.
    if store.is_marked_damaged(id) {
        store.clear_damage_mark(id)?;
    }
    let time = format_unix_seconds(store.now());
    store.add_receipt(
        id,
        &Receipt {
            time: time.clone(),
            author: author.to_owned(),
            source: incoming_bundle.source.to_owned(),
            kind: summary.kind.to_owned(),
            archive_sha256: summary.archive.map(|(digest, _)| digest.to_hex()),
            archive_bytes: summary.archive.map(|(_, len)| len),
            label: incoming_bundle.label.map(ToString::to_string),
            job: incoming_bundle.job.map(str::to_owned),
            validator: incoming_bundle.sent.map(|sent| sent.validator.clone()),
            sent_bytes: incoming_bundle.sent.map(|sent| sent.size),
            found_by_check: incoming_bundle.cause != ArrivalCause::Import,
        },
    )?;
    match incoming_bundle.cause {
        ArrivalCause::Import => record.newest = Some(id),
        ArrivalCause::SourceCheck => record.note_offered(incoming_bundle.source, id, false, |id| store.has(id)),
        ArrivalCause::Refresh => record.note_offered(incoming_bundle.source, id, true, |id| store.has(id)),
    }
    let mut label_warning = None;
    if let Some(label) = incoming_bundle.label {
        if let Some(previous) = record.labels.get(label.as_str()).map(|labelled| labelled.version).filter(|&v| v != id)
        {
            let moved = format!("the label {label} has moved to this version from version {}", previous.short());
            store.note(author, "label moved", Some(id), Some(format!("{label} from {}", previous.short())));
            label_warning = Some(moved);
        }
        let sha256 = summary.archive.map(|(digest, _)| digest.to_hex());
        let labelled = LabelledVersion { version: id, source: incoming_bundle.source.to_owned(), sha256, time };
        record.labels.insert(label.to_string(), labelled);
    }
    store.save_sync_record(record)?;
    store.note(author, "imported", Some(id), incoming_bundle.label.map(ToString::to_string));
    Ok(label_warning)
}

/// Records that a check of `source` has found the stored version `id`. If the source had another version before, it has
/// returned to this one. The return counts as an arrival and gets a receipt, so that the recovery of a lost record does
/// not select a version that the source has withdrawn.
pub fn note_offered_again<S: StoreOperations>(
    store: &S,
    record: &mut StoreRecord,
    source: &str,
    id: VersionId,
    author: &str,
) -> Result<(), StoreError> {
    let before = record.newest;
    record.note_offered(source, id, false, |id| store.has(id));
    if record.newest == before {
        return Ok(());
    }
    let receipts = store.receipts(id);
    if let Some(receipt) = receipts.into_iter().rev().find(|receipt| receipt.source == source) {
        let time = format_unix_seconds(store.now());
        let receipt = Receipt { time, author: author.to_owned(), job: None, found_by_check: true, ..receipt };
        if let Err(error) = store.add_receipt(id, &receipt) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }
    store.save_sync_record(record)?;
    store.note(author, "offered again", Some(id), None);
    Ok(())
}
