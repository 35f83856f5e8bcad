//! Ingest: turns a bundle into a version of the store. Steps: verify, seal, commit, receipt, record, history.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::fetch::BundleValidator;
use crate::store::operations::StoreOperations;
use crate::store::record::{LabelledVersion, StoreRecord};
use crate::store::version_stage::CommitOutcome;
use crate::store::writer::StoreWriter;
use crate::store::{Receipt, StoreError};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::show_unix;
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_site::seal::{self, SealOptions, SealProgress, VerifiedBundle};

use super::seal_operations::{BundleSummary, SealOperations};
use super::streaming_seal::StreamedSeal;
use super::{SyncError, SyncIntent, disk_space, open};

/// A bundle that has arrived, and its origin.
#[derive(Debug)]
pub struct IncomingBundle<'a> {
    /// Path of the bundle.
    pub path: &'a Path,
    /// The open bundle, if it is open already: then nothing is opened by path.
    pub file: Option<&'a File>,
    /// Name of the source in receipts and labels.
    pub source: &'a str,
    /// Name of the bundle in messages.
    pub title: &'a str,
    /// The cause of the arrival.
    pub occasion: Occasion,
    /// The label that the version gets.
    pub label: Option<&'a VersionLabel>,
    /// The only archive that is accepted.
    pub demanded: Option<Digest>,
    /// The export job that made the bundle.
    pub job: Option<&'a str>,
    /// The server's validator for the bundle, and its size as it was sent.
    pub sent: Option<&'a BundleValidator>,
    /// The result of sealing during the download, if it covers the whole bundle.
    pub ahead: RefCell<Option<StreamedSeal>>,
}

/// The cause of a bundle's arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// A check of the source.
    Look,
    /// A person has asked for the source's bundle, whether or not it has changed.
    Refresh,
    /// A person has imported it, or it lay in the inbox.
    Import,
}

/// A bundle that has become a version.
#[derive(Debug)]
pub struct IngestedBundle {
    /// The version's id.
    pub id: VersionId,
    /// SHA-256 of the archive.
    pub sha256: Option<Digest>,
    /// Warnings about the content.
    pub warnings: Vec<String>,
    /// Whether the store had the version already.
    pub committed: CommitOutcome,
    /// Number of pages, for messages.
    pub pages: u64,
    /// Size of the content in bytes.
    pub bytes: u64,
}

/// Frees disk space, verifies, seals and commits a bundle, and updates and writes `record`. Nothing is activated here.
/// `ours` says that the file may be moved.
pub fn ingest_bundle<W: SealOperations>(
    shop: &W,
    record: &mut StoreRecord,
    intent: &SyncIntent,
    arrival: &IncomingBundle<'_>,
    ours: bool,
    who: &str,
    meter: &SealProgress,
) -> Result<IngestedBundle, SyncError> {
    let mut wanted = shop.wanted(arrival, ours);
    if arrival.ahead.borrow().is_some() {
        // The image is written already.
        wanted.more = 0;
    }
    disk_space::reserve_space(shop, record, intent, wanted, who)?;
    let effort = SealOptions { may_move: ours, ..intent.effort };
    let (proved, mut stage) = shop.seal(arrival, &effort, meter)?;
    if let (Some(demanded), Some((found, _))) = (arrival.demanded, proved.archive)
        && demanded != found
    {
        return Err(SyncError::WrongDigest { name: arrival.title.to_owned(), found, demanded });
    }
    let id = proved.id;
    let known: Vec<VersionId> = record.active.into_iter().chain(record.newest).collect();
    let committed = shop.commit(&mut stage, &known, &effort)?;
    let before = record.clone();
    let filed = file(shop, record, arrival, &proved, who);
    if filed.is_err() {
        *record = before;
        if committed == CommitOutcome::New
            && let Err(error) = withdraw(shop, id)
        {
            // A version that no record names is used when its content arrives again, and pruned otherwise.
            tracing::warn!("{}", ErrorChain(&error));
        }
    }
    let moved_label = filed?;
    let BundleSummary { archive, pages, bytes, warnings, .. } = proved;
    let sha256 = archive.map(|(digest, _)| digest);
    let warnings = warnings.into_iter().chain(moved_label).collect();
    Ok(IngestedBundle { id, sha256, warnings, committed, pages, bytes })
}

/// Removes a version whose receipt or record could not be written, unless a person has already chosen it.
fn withdraw<W: SealOperations>(shop: &W, id: VersionId) -> Result<(), StoreError> {
    shop.with_record_lock(|| {
        let record = shop.record()?;
        if record.active == Some(id) || record.previous == Some(id) { Ok(()) } else { shop.withdraw(id) }
    })
}

/// Writes receipt, record and history of a committed version. Returns a warning if a label has moved to it.
fn file<W: SealOperations>(
    shop: &W,
    record: &mut StoreRecord,
    arrival: &IncomingBundle<'_>,
    proved: &BundleSummary,
    who: &str,
) -> Result<Option<String>, SyncError> {
    let id = proved.id;
    // A version that was stored already has just been compared or verified.
    if shop.is_suspect(id) {
        shop.clear_suspect(id)?;
    }
    let time = show_unix(shop.now());
    shop.receive(
        id,
        &Receipt {
            time: time.clone(),
            who: who.to_owned(),
            source: arrival.source.to_owned(),
            kind: proved.kind.to_owned(),
            archive_sha256: proved.archive.map(|(digest, _)| digest.hex()),
            archive_bytes: proved.archive.map(|(_, len)| len),
            label: arrival.label.map(ToString::to_string),
            job: arrival.job.map(str::to_owned),
            validator: arrival.sent.map(|sent| sent.validator.clone()),
            sent_bytes: arrival.sent.map(|sent| sent.size),
            looked: arrival.occasion != Occasion::Import,
        },
    )?;
    match arrival.occasion {
        Occasion::Import => record.newest = Some(id),
        Occasion::Look => record.note_offered(arrival.source, id, false, |id| shop.has(id)),
        Occasion::Refresh => record.note_offered(arrival.source, id, true, |id| shop.has(id)),
    }
    let mut moved_label = None;
    if let Some(label) = arrival.label {
        if let Some(before) = record.labels.get(label.as_str()).map(|labelled| labelled.version).filter(|&v| v != id) {
            let moved = format!("the label {label} has moved here from version {}", before.short());
            shop.note(who, "label moved", Some(id), Some(format!("{label} from {}", before.short())));
            moved_label = Some(moved);
        }
        let sha256 = proved.archive.map(|(digest, _)| digest.hex());
        let labelled = LabelledVersion { version: id, source: arrival.source.to_owned(), sha256, time };
        record.labels.insert(label.to_string(), labelled);
    }
    shop.save(record)?;
    shop.note(who, "imported", Some(id), arrival.label.map(ToString::to_string));
    Ok(moved_label)
}

/// Records that a check of `source` has found the stored version `id`. If the source had another one before, it has
/// gone back to this one. That is an arrival with a receipt, so that the recovery of a lost record does not bring back
/// a version that the source has withdrawn.
pub fn note_offered_again<K: StoreOperations>(
    keeper: &K,
    record: &mut StoreRecord,
    source: &str,
    id: VersionId,
    who: &str,
) -> Result<(), StoreError> {
    let before = record.newest;
    record.note_offered(source, id, false, |id| keeper.has(id));
    if record.newest == before {
        return Ok(());
    }
    let receipts = keeper.receipts(id);
    if let Some(receipt) = receipts.into_iter().rev().find(|receipt| receipt.source == source) {
        let time = show_unix(keeper.now());
        let receipt = Receipt { time, who: who.to_owned(), job: None, looked: true, ..receipt };
        if let Err(error) = keeper.receive(id, &receipt) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }
    keeper.save(record)?;
    keeper.note(who, "offered again", Some(id), None);
    Ok(())
}

/// Sets Last-Modified of each file. A file that one of the `known` versions has with the same content keeps its date,
/// that of the first such version. Any other file gets the time of sealing, or the latest second before it at which no
/// known version has other content: two versions may be sealed within one second, and a date must not be in the future
/// (RFC 9110, section 8.8.2.1).
pub(super) fn date_files(proven: &mut VerifiedBundle, sealed_at: i64, writer: &StoreWriter, known: &[VersionId]) {
    let before: Vec<_> = known.iter().filter_map(|&id| open::index(writer.store(), id).ok()).collect();
    for (path, entry) in &mut proven.files {
        let at_path = || before.iter().filter_map(|index| Some(index.entry(index.find(path.as_bytes())?)));
        entry.modified = at_path().find(|other| other.content == entry.content).map_or(sealed_at, |same| same.modified);
        while at_path().any(|other| other.content != entry.content && other.modified == entry.modified) {
            entry.modified -= 1;
        }
    }
}

/// Whether a stored image is undamaged: it has the very bytes that have just been verified, or is verified itself.
/// `path` is for messages.
pub(super) fn is_whole(stored: File, path: &Path, id: VersionId, proved: &File, effort: &SealOptions) -> bool {
    same_bytes(&stored, proved).unwrap_or(false)
        || seal::verify_opened_image(stored, path, effort).is_ok_and(|proven| proven.id == id)
}

fn same_bytes(a: &File, b: &File) -> std::io::Result<bool> {
    use std::io::Seek;
    let (mut a, mut b) = (a, b);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    b.rewind()?;
    let (mut left, mut right) = (vec![0; 256 * 1024], vec![0; 256 * 1024]);
    loop {
        let n = a.read(&mut left)?;
        if n == 0 {
            return Ok(true);
        }
        b.read_exact(&mut right[..n])?;
        if left[..n] != right[..n] {
            return Ok(false);
        }
    }
}
