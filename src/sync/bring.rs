//! From a bundle to a version in the store: prove, seal, commit, receipt, record, history.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::base::chain::Chain;
use rustix::fs::{FlockOperation, flock};

use crate::fetch::Known;
use crate::model::digest::Digest;
use crate::model::units::{now, unix_seconds};
use crate::model::version::{Label, VersionId};
use crate::seal::{self, Effort, Meter, Proven, SealError, Space};
use crate::store::record::{Labelled, Record};
use crate::store::writer::{Committed, Writer};
use crate::store::{IMAGE, Receipt, StoreError};

use super::SyncError;
use super::open;

/// Where a bundle comes from and under what name.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The bundle.
    pub path: &'a Path,
    /// The source's name, as receipts and labels have it.
    pub source: &'a str,
    /// What messages call it.
    pub title: &'a str,
    /// The label that the result gets.
    pub label: Option<&'a Label>,
    /// The archive that alone is accepted.
    pub demanded: Option<Digest>,
    /// The export job it comes from.
    pub job: Option<&'a str>,
    /// What the server named it with, and its size as it was sent.
    pub sent: Option<&'a Known>,
}

/// A bundle that has become a version.
#[derive(Debug)]
pub struct Brought {
    /// Which.
    pub id: VersionId,
    /// SHA-256 of its archive.
    pub sha256: Option<Digest>,
    /// Things worth knowing.
    pub warnings: Vec<String>,
    /// Whether the store had it.
    pub committed: Committed,
    /// Pages and size, for messages.
    pub pages: u64,
    /// Size of the content in bytes.
    pub bytes: u64,
}

/// Proves, seals and commits a bundle and updates `record`, which is written; nothing is activated here.
pub fn bring(
    writer: &Writer,
    record: &mut Record,
    arrival: &Arrival<'_>,
    effort: &Effort,
    who: &str,
    meter: &Meter,
) -> Result<Brought, SyncError> {
    let stage = writer.stage()?;
    let effort = Effort { durable: true, ..*effort };
    let sealing = seal::seal(arrival.path, &Space::Dir(stage.dir().to_owned()), &effort, meter);
    let mut sealing = sealing.map_err(|error| match error {
        // People know the bundle by where it comes from, not by where it lies while it is judged.
        SealError::Refused { source, .. } => SealError::Refused { path: arrival.title.into(), source },
        other => other,
    })?;
    if let (Some(demanded), Some((found, _))) = (arrival.demanded, sealing.proven.archive)
        && demanded != found
    {
        return Err(SyncError::WrongDigest { name: arrival.title.to_owned(), found, demanded });
    }
    let id = sealing.proven.id;
    let image = stage.dir().join(IMAGE);
    let sealed_at = sealing.image.metadata().and_then(|m| m.modified()).map_err(StoreError::io("read", &image))?;
    let known: Vec<VersionId> = record.active.into_iter().chain(record.newest).collect();
    date_files(&mut sealing.proven, unix_seconds(sealed_at), writer, &known);
    writer.finish_stage(&stage, &sealing.proven.index(sealing.image_len))?;
    // Nobody knows it until the record names it: the lease keeps it from being pruned meanwhile.
    let stored = File::open(writer.store().version_dir(id).join(IMAGE)).ok();
    for lease in stored.iter().chain([&sealing.image]) {
        // A file system without locks has no leases.
        let _ = flock(lease, FlockOperation::NonBlockingLockShared);
    }
    let committed = writer.commit(&stage, id, |dir| is_whole(dir, id, &sealing.image, &effort))?;
    if committed == Committed::Known && open::index(writer.store(), id).is_err() {
        // The image is good, but what stands beside it is not: opening makes it again.
        open::open(writer, id, &effort, false)?;
    }
    let before = record.clone();
    let filed = file(writer, record, arrival, &sealing.proven, who);
    if filed.is_err() {
        *record = before;
        if committed == Committed::New
            && let Err(error) = writer.withdraw(id)
        {
            // What no record names is used when its content arrives again, and pruned otherwise.
            tracing::warn!("{}", Chain(&error));
        }
    }
    let moved_label = filed?;
    Ok(Brought {
        id,
        sha256: sealing.proven.archive.map(|(digest, _)| digest),
        committed,
        pages: sealing.proven.flavor.pages,
        bytes: sealing.proven.content_len(),
        warnings: sealing.proven.warnings.into_iter().chain(moved_label).collect(),
    })
}

/// Receipt, record and history of a version that has been committed; says so if a label has moved.
fn file(
    writer: &Writer,
    record: &mut Record,
    arrival: &Arrival<'_>,
    proven: &Proven,
    who: &str,
) -> Result<Option<String>, SyncError> {
    let id = proven.id;
    // What was known has been compared, or proved.
    if writer.store().is_suspect(id) {
        writer.clear_suspect(id)?;
    }
    let time = now();
    writer.receive(
        id,
        &Receipt {
            time: time.clone(),
            who: who.to_owned(),
            source: arrival.source.to_owned(),
            kind: proven.kind.name().to_owned(),
            archive_sha256: proven.archive.map(|(digest, _)| digest.hex()),
            archive_bytes: proven.archive.map(|(_, len)| len),
            label: arrival.label.map(ToString::to_string),
            job: arrival.job.map(str::to_owned),
            validator: arrival.sent.map(|sent| sent.validator.clone()),
            sent_bytes: arrival.sent.map(|sent| sent.size),
        },
    )?;
    record.newest = Some(id);
    let mut moved_label = None;
    if let Some(label) = arrival.label {
        if let Some(before) = record.labels.get(label.as_str()).map(|labelled| labelled.version).filter(|&v| v != id) {
            let moved = format!("the label {label} has moved here from version {}", before.short());
            writer.note(who, "label moved", Some(id), Some(format!("{label} from {}", before.short())));
            moved_label = Some(moved);
        }
        let sha256 = proven.archive.map(|(digest, _)| digest.hex());
        let labelled = Labelled { version: id, source: arrival.source.to_owned(), sha256, time };
        record.labels.insert(label.to_string(), labelled);
    }
    writer.save(record)?;
    writer.note(who, "imported", Some(id), arrival.label.map(ToString::to_string));
    Ok(moved_label)
}

/// Last-Modified: a file that one of the `known` versions has with the same content keeps its date, that of the first of
/// them. Any other gets the date of the sealing, or a second before it that is no other content's: two versions may be
/// sealed within one second, and a date must not lie ahead (RFC 9110, 8.8.2.1).
pub(super) fn date_files(proven: &mut Proven, sealed_at: i64, writer: &Writer, known: &[VersionId]) {
    let before: Vec<_> = known.iter().filter_map(|&id| open::index(writer.store(), id).ok()).collect();
    for (path, entry) in &mut proven.files {
        let at_path = || before.iter().filter_map(|index| Some(index.entry(index.find(path.as_bytes())?)));
        entry.modified = at_path().find(|other| other.content == entry.content).map_or(sealed_at, |same| same.modified);
        while at_path().any(|other| other.content != entry.content && other.modified == entry.modified) {
            entry.modified -= 1;
        }
    }
}

/// Whether the version in `dir` is undamaged: the very bytes that have just been proved, or proved again by itself.
fn is_whole(dir: &Path, id: VersionId, proved: &File, effort: &Effort) -> bool {
    let stored = dir.join(IMAGE);
    if File::open(&stored).and_then(|file| same_bytes(&file, proved)).unwrap_or(false) {
        return true;
    }
    seal::verify_image(&stored, effort).is_ok_and(|proven| proven.id == id)
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
