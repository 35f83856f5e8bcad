//! Sealing and opening of versions: the operations of a store that read and write content. The code that decides about
//! versions uses this trait alone, so that a simulation can replace the implementation.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::store::operations::StoreOperations;
use crate::store::record::GateVerdict;
use crate::store::space::SpaceRequest;
use crate::store::version_stage::{CommitOutcome, VersionStage};
use crate::store::writer::StoreWriter;
use crate::store::{IMAGE, StoreError};
use docwharf_base::clock::unix_seconds;
use docwharf_base::directory::{FileAccess, FileRequirements};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::SealedFile;
use docwharf_site::seal::{self, ImageSpace, SealError, SealOptions, SealProgress, SealedBundle};
use docwharf_site::sealed_version::SealedVersion;

use super::file_dates::date_files;
use super::incoming_bundle::IncomingBundle;
use super::stored_index::read_index;
use super::streaming_seal::StreamedSeal;
use super::{SyncError, SyncIntent, disk_space, open};

/// The properties of a bundle that has been read to its end and verified.
#[derive(Debug, Clone)]
pub struct BundleSummary {
    /// Id of the version in the bundle.
    pub id: VersionId,
    /// Format of the bundle: `zip`, `tar.gz`, …
    pub kind: &'static str,
    /// SHA-256 and size of the archive; none for a folder.
    pub archive: Option<(Digest, u64)>,
    /// Number of pages of the site.
    pub pages: u64,
    /// Size of the content in bytes.
    pub bytes: u64,
    /// Warnings about the content.
    pub warnings: Vec<String>,
}

/// A store that can also seal bundles and open versions.
pub trait SealOperations: StoreOperations {
    /// A version opened for serving; it is not pruned as long as this lives.
    type Opened;
    /// A sealed bundle that is not committed yet. The version that it becomes is not pruned as long as this lives.
    type Stage;

    /// Estimates the space that sealing a bundle needs; `ours` says that the file may be moved.
    fn wanted(&self, arrival: &IncomingBundle<'_>, ours: bool) -> SpaceRequest;
    /// Verifies a bundle and seals it into a stage.
    fn seal(
        &self,
        arrival: &IncomingBundle<'_>,
        effort: &SealOptions,
        meter: &SealProgress,
    ) -> Result<(BundleSummary, Self::Stage), SyncError>;
    /// Commits a stage. Files that the versions `beside` have with the same content keep their dates.
    fn commit(
        &self,
        stage: &mut Self::Stage,
        beside: &[VersionId],
        effort: &SealOptions,
    ) -> Result<CommitOutcome, SyncError>;
    /// Opens a version; one that is marked as damaged is verified first.
    fn open(&self, id: VersionId, effort: &SealOptions) -> Result<Self::Opened, SyncError>;
    /// Evaluates the gate for a version against the active one; [`SyncError::Interrupted`] if `stop` returns true
    /// meanwhile.
    fn check_gate(
        &self,
        intent: &SyncIntent,
        id: VersionId,
        active: Option<VersionId>,
        before: Option<&GateVerdict>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<GateVerdict, SyncError>;
}

/// A sealed bundle in a stage of the real store.
#[derive(Debug)]
pub struct SealedStage {
    stage: VersionStage,
    sealing: SealedBundle,
    /// Shared locks on the image, and on the version's stored image if it is known already.
    leases: Vec<SealedFile>,
}

/// Verifies and seals a bundle that has arrived completely.
fn seal_whole(
    writer: &StoreWriter,
    arrival: &IncomingBundle<'_>,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<StreamedSeal, SyncError> {
    let stage = writer.stage()?;
    let effort = SealOptions { durable: true, ..*effort };
    let space = ImageSpace::Dir(stage.directory().clone());
    let path = arrival.path;
    let read = |source| SealError::Read { path: path.to_owned(), source };
    let sealing = if let Some(file) = arrival.file {
        let file = file.try_clone().map_err(read)?;
        seal::seal_opened(file, path, None, &space, &effort, meter)
    } else if effort.may_move {
        // A downloaded file lies in `downloads/`, which another user may own.
        let (downloads, name) = (writer.store().downloads_directory()?, path.file_name().unwrap_or_default());
        let file = downloads.open_file(name, FileAccess::Read, FileRequirements::SINGLE_NAME).map_err(read)?;
        seal::seal_opened(file, path, Some((&downloads, name)), &space, &effort, meter)
    } else {
        seal::seal(path, &space, &effort, meter)
    };
    let sealing = sealing.map_err(|error| match error {
        // People know the bundle by its source, not by its path while it is verified.
        SealError::Refused { source, .. } => SealError::Refused { path: arrival.title.into(), source },
        other => other,
    })?;
    Ok(StreamedSeal { stage, sealing })
}

impl SealOperations for StoreWriter {
    type Opened = SealedVersion;
    type Stage = SealedStage;

    fn wanted(&self, arrival: &IncomingBundle<'_>, ours: bool) -> SpaceRequest {
        disk_space::to_seal(arrival, ours)
    }

    fn seal(
        &self,
        arrival: &IncomingBundle<'_>,
        effort: &SealOptions,
        meter: &SealProgress,
    ) -> Result<(BundleSummary, SealedStage), SyncError> {
        let StreamedSeal { stage, sealing } = match arrival.ahead.take() {
            Some(done) => done,
            None => seal_whole(self, arrival, effort, meter)?,
        };
        let proven = &sealing.proven;
        let summary = BundleSummary {
            id: proven.id,
            kind: proven.kind.name(),
            archive: proven.archive,
            pages: proven.flavor.pages,
            bytes: proven.content_len(),
            warnings: proven.warnings.clone(),
        };
        Ok((summary, SealedStage { stage, sealing, leases: Vec::new() }))
    }

    fn commit(
        &self,
        made: &mut SealedStage,
        beside: &[VersionId],
        effort: &SealOptions,
    ) -> Result<CommitOutcome, SyncError> {
        let SealedStage { stage, sealing, leases } = made;
        let id = sealing.proven.id;
        let image = stage.directory().path().join(IMAGE);
        let sealed_at = sealing.image.metadata().and_then(|m| m.modified()).map_err(StoreError::io("read", &image))?;
        date_files(&mut sealing.proven, unix_seconds(sealed_at), self, beside);
        self.finish_stage(stage, &sealing.image, &sealing.proven.index(sealing.image_len))?;
        // No record names the version yet: the lease keeps it from being pruned.
        leases.extend(self.store().image(id).ok());
        for lease in leases.iter().chain([&sealing.image]) {
            // A file system without locks has no leases.
            let _ = flock(lease, FlockOperation::NonBlockingLockShared);
        }
        let stored = self.store().version_dir(id).join(IMAGE);
        let whole = |file: SealedFile| is_whole(file.into_file(), &stored, id, &sealing.image, effort);
        let committed = StoreWriter::commit(self, stage, &sealing.image, id, whole)?;
        if committed == CommitOutcome::Known && read_index(self.store(), id).is_err() {
            // The image is undamaged, but the index is not: opening rebuilds it.
            open::open(self, id, effort, false)?;
        }
        Ok(committed)
    }

    fn open(&self, id: VersionId, effort: &SealOptions) -> Result<SealedVersion, SyncError> {
        open::open_suspect(self, id, effort)
    }

    fn check_gate(
        &self,
        intent: &SyncIntent,
        id: VersionId,
        active: Option<VersionId>,
        before: Option<&GateVerdict>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<GateVerdict, SyncError> {
        let version = open::open(self, id, &intent.effort, false)?;
        let compared = active.filter(|_| intent.gate.compares());
        // If the active version cannot be read, the gate compares with nothing.
        let beside = match compared.map(|id| open::open(self, id, &intent.effort, false)) {
            Some(Ok(active)) => Some(active),
            Some(Err(error)) => {
                tracing::warn!("{}; the gate compares with nothing", ErrorChain(&error));
                None
            }
            None => None,
        };
        let verdict = intent.gate.check(&version, active, beside.as_ref(), before, intent.effort.threads, stop);
        verdict.ok_or(SyncError::Interrupted)
    }
}

/// Whether a stored image is undamaged: it has the very bytes that have just been verified, or is verified itself.
/// `path` is for messages.
fn is_whole(stored: File, path: &Path, id: VersionId, verified: &File, effort: &SealOptions) -> bool {
    same_bytes(&stored, verified).unwrap_or(false)
        || seal::verify_opened_image(stored, path, effort).is_ok_and(|image| image.id == id)
}

fn same_bytes(a: &File, b: &File) -> io::Result<bool> {
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
