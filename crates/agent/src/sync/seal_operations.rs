//! Sealing and opening of versions: the operations of a store that read and write content. The code that decides about
//! versions uses only this trait, so that a simulation can replace the implementation.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::store::incoming_version::{CommitOutcome, IncomingVersion};
use crate::store::operations::StoreOperations;
use crate::store::record::GateVerdict;
use crate::store::space::SpaceRequest;
use crate::store::writer::StoreWriter;
use crate::store::{IMAGE, StoreError};
use docwharf_base::clock::unix_seconds;
use docwharf_base::directory::{FileAccess, FileRequirements};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::SealedFile;
use docwharf_site::seal::{self, ImageTarget, SealError, SealOptions, SealProgress, SealedBundle};
use docwharf_site::sealed_version::SealedVersion;

use super::file_dates::date_files;
use super::incoming_bundle::IncomingBundle;
use super::stored_index::read_index;
use super::streaming_seal::SealedIncomingBundle;
use super::{SyncError, SyncSettings, disk_space, open};

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
    /// A version opened for serving; it is not pruned as long as this exists.
    type Opened;
    /// A sealed bundle that is not committed yet. The version that it becomes is not pruned as long as this exists.
    type Incoming;

    /// Estimates the disk space that sealing a bundle needs; `may_move` means that the file may be moved.
    fn estimate_space(&self, incoming_bundle: &IncomingBundle<'_>, may_move: bool) -> SpaceRequest;
    /// Verifies a bundle and seals it as an incoming version.
    fn seal(
        &self,
        incoming_bundle: &IncomingBundle<'_>,
        seal_options: &SealOptions,
        progress: &SealProgress,
    ) -> Result<(BundleSummary, Self::Incoming), SyncError>;
    /// Commits an incoming version. A file that one of the versions `date_sources` has at the same path with the same
    /// content gets the date that it has there.
    fn commit(
        &self,
        incoming: &mut Self::Incoming,
        date_sources: &[VersionId],
        seal_options: &SealOptions,
    ) -> Result<CommitOutcome, SyncError>;
    /// Opens a version; one that is marked as damaged is verified first.
    fn open(&self, id: VersionId, seal_options: &SealOptions) -> Result<Self::Opened, SyncError>;
    /// Evaluates the gate for a version against the active one; [`SyncError::Cancelled`] if `is_cancelled` returns
    /// true meanwhile.
    fn evaluate_gate(
        &self,
        sync_settings: &SyncSettings,
        id: VersionId,
        active: Option<VersionId>,
        previous: Option<&GateVerdict>,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<GateVerdict, SyncError>;
}

/// A [`SealedIncomingBundle`] with shared locks on its images.
#[derive(Debug)]
pub struct LeasedIncomingVersion {
    incoming: IncomingVersion,
    bundle: SealedBundle,
    /// The shared lock on the version's stored image, if it is known already; `bundle.image` has that on the new one.
    leases: Vec<SealedFile>,
}

/// Verifies and seals a bundle that has arrived completely.
fn seal_complete_bundle(
    writer: &StoreWriter,
    incoming_bundle: &IncomingBundle<'_>,
    seal_options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedIncomingBundle, SyncError> {
    let incoming = writer.begin_incoming_version()?;
    let seal_options = SealOptions { durable: true, ..*seal_options };
    let target = ImageTarget::Dir(incoming.directory().clone());
    let path = incoming_bundle.path;
    let read_error = |source| SealError::Read { path: path.to_owned(), source };
    let bundle = if let Some(file) = incoming_bundle.file {
        let file = file.try_clone().map_err(read_error)?;
        seal::seal_opened(file, path, None, &target, &seal_options, progress)
    } else if seal_options.may_move {
        // A downloaded file lies in `downloads/`, which another user may own.
        let (downloads, name) = (writer.store().downloads_directory()?, path.file_name().unwrap_or_default());
        let file = downloads.open_file(name, FileAccess::Read, FileRequirements::SINGLE_NAME).map_err(read_error)?;
        seal::seal_opened(file, path, Some((&downloads, name)), &target, &seal_options, progress)
    } else {
        seal::seal(path, &target, &seal_options, progress)
    };
    let bundle = bundle.map_err(|error| match error {
        // The message names the source of the bundle, not the path of its temporary file.
        SealError::Refused { source, .. } => SealError::Refused { path: incoming_bundle.title.into(), source },
        error => error,
    })?;
    Ok(SealedIncomingBundle { incoming, bundle })
}

impl SealOperations for StoreWriter {
    type Opened = SealedVersion;
    type Incoming = LeasedIncomingVersion;

    fn estimate_space(&self, incoming_bundle: &IncomingBundle<'_>, may_move: bool) -> SpaceRequest {
        disk_space::estimate_seal_space(incoming_bundle, may_move)
    }

    fn seal(
        &self,
        incoming_bundle: &IncomingBundle<'_>,
        seal_options: &SealOptions,
        progress: &SealProgress,
    ) -> Result<(BundleSummary, LeasedIncomingVersion), SyncError> {
        let SealedIncomingBundle { incoming, bundle } = match incoming_bundle.streamed_seal.take() {
            Some(streamed) => streamed,
            None => seal_complete_bundle(self, incoming_bundle, seal_options, progress)?,
        };
        let verified = &bundle.verified;
        let summary = BundleSummary {
            id: verified.id,
            kind: verified.kind.name(),
            archive: verified.archive,
            pages: verified.site_layout.pages,
            bytes: verified.content_len(),
            warnings: verified.warnings.clone(),
        };
        Ok((summary, LeasedIncomingVersion { incoming, bundle, leases: Vec::new() }))
    }

    fn commit(
        &self,
        sealed: &mut LeasedIncomingVersion,
        date_sources: &[VersionId],
        seal_options: &SealOptions,
    ) -> Result<CommitOutcome, SyncError> {
        let LeasedIncomingVersion { incoming, bundle, leases } = sealed;
        let id = bundle.verified.id;
        let image = incoming.directory().path().join(IMAGE);
        let sealed_at = bundle.image.metadata().and_then(|m| m.modified()).map_err(StoreError::io("read", &image))?;
        date_files(&mut bundle.verified, unix_seconds(sealed_at), self, date_sources);
        self.finish_incoming_version(incoming, &bundle.image, &bundle.verified.encode_index(bundle.image_len))?;
        // No record names the version yet: the lease prevents its removal.
        leases.extend(self.store().image(id).ok());
        for lease in leases.iter().chain([&bundle.image]) {
            // Ignored: some file systems have no locks.
            let _ = flock(lease, FlockOperation::NonBlockingLockShared);
        }
        let stored = self.store().version_dir(id).join(IMAGE);
        let is_undamaged =
            |file: SealedFile| is_image_undamaged(file.into_file(), &stored, id, &bundle.image, seal_options);
        let outcome = StoreWriter::commit(self, incoming, &bundle.image, id, is_undamaged)?;
        if outcome == CommitOutcome::AlreadyStored && read_index(self.store(), id).is_err() {
            // The image is undamaged, but the index is not: opening rebuilds it.
            open::open(self, id, seal_options, false)?;
        }
        Ok(outcome)
    }

    fn open(&self, id: VersionId, seal_options: &SealOptions) -> Result<SealedVersion, SyncError> {
        open::open_checked(self, id, seal_options)
    }

    fn evaluate_gate(
        &self,
        sync_settings: &SyncSettings,
        id: VersionId,
        active: Option<VersionId>,
        previous: Option<&GateVerdict>,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<GateVerdict, SyncError> {
        let version = open::open(self, id, &sync_settings.seal_options, false)?;
        let compared_id = active.filter(|_| sync_settings.gate.compares());
        // If the active version cannot be read, the gate does not compare.
        let compared = match compared_id.map(|id| open::open(self, id, &sync_settings.seal_options, false)) {
            Some(Ok(active)) => Some(active),
            Some(Err(error)) => {
                tracing::warn!("{}; the gate does not compare the new version with it", ErrorChain(&error));
                None
            }
            None => None,
        };
        let verdict = sync_settings.gate.evaluate(
            &version,
            active,
            compared.as_ref(),
            previous,
            sync_settings.seal_options.threads,
            is_cancelled,
        );
        verdict.ok_or(SyncError::Cancelled)
    }
}

/// Whether a stored image is undamaged: it has the bytes that have just been verified, or is verified here. `path` is
/// for messages.
fn is_image_undamaged(stored: File, path: &Path, id: VersionId, verified: &File, seal_options: &SealOptions) -> bool {
    has_same_bytes(&stored, verified).unwrap_or(false)
        || seal::verify_opened_image(stored, path, seal_options).is_ok_and(|image| image.id == id)
}

fn has_same_bytes(a: &File, b: &File) -> io::Result<bool> {
    let (mut a, mut b) = (a, b);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    b.rewind()?;
    let (mut a_buf, mut b_buf) = (vec![0; 256 * 1024], vec![0; 256 * 1024]);
    loop {
        let n = a.read(&mut a_buf)?;
        if n == 0 {
            return Ok(true);
        }
        b.read_exact(&mut b_buf[..n])?;
        if a_buf[..n] != b_buf[..n] {
            return Ok(false);
        }
    }
}
