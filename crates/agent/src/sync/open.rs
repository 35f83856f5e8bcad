//! Opens stored versions for serving: quickly if the index matches its image; otherwise the image is verified again. At
//! a start of the daemon, the slow checks of an index are postponed.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::store::operations::StoreOperations;
use crate::store::writer::StoreWriter;
use crate::store::{IMAGE, VersionStore};
use docwharf_base::clock::unix_seconds;
use docwharf_base::directory::FileId;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_site::index::ImageIndex;
use docwharf_site::mapping::{self, SealedFile};
use docwharf_site::seal::{self, SealOptions};
use docwharf_site::sealed_version::SealedVersion;

use super::SyncError;
use super::file_dates::date_files;
use super::stored_index::{map_index, read_index};

/// Upper bound of the duration of a removal: a version that is locked for longer is locked by another process.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two attempts to open a version that is being removed.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The checks before a version is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenCheck {
    /// The index is read; [`SealedVersion::verify_index`] follows later.
    Quick,
    /// The index is verified.
    Index,
    /// The image is verified, and its index is rebuilt.
    Image,
}

/// Opens a version without repairing or writing anything.
pub fn open_read_only(store: &VersionStore, id: VersionId) -> io::Result<SealedVersion> {
    let index = read_index(store, id)?;
    let image = mapping::map_image(store.image(id)?)?;
    Ok(SealedVersion::new(id, image, index))
}

/// Opens an image and leases it, so that it is not pruned. If the image is being pruned, the error is that it does not
/// exist. If another process holds an exclusive lock, the version is served without a lease: that lock prevents its
/// removal.
fn open_leased_image(store: &VersionStore, id: VersionId) -> io::Result<SealedFile> {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let file = store.image(id)?;
        let is_locked = flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        let (opened, named) = (file.metadata()?, store.image(id)?.metadata()?);
        let is_stored = FileId::from_metadata(&opened) == FileId::from_metadata(&named);
        if is_stored && is_locked && Instant::now() >= deadline {
            tracing::warn!(
                "version {} is locked by another process; it is served, but only that lock prevents its removal; lslocks shows \
                 the process",
                id.short()
            );
            return Ok(file);
        }
        if is_stored && !is_locked {
            return Ok(file);
        }
        if is_locked {
            std::thread::sleep(RETRY_PAUSE);
        }
    }
}

/// Opens a version after its index is verified. A version that is marked as damaged is verified in full, and its mark
/// is cleared if it is undamaged.
pub fn open_checked(
    writer: &StoreWriter,
    id: VersionId,
    seal_options: &SealOptions,
) -> Result<SealedVersion, SyncError> {
    open_verifying_damaged(writer, id, seal_options, OpenCheck::Index)
}

/// Opens a version at a start, before its index is verified. The caller must verify the index afterwards
/// ([`SealedVersion::verify_index`]), and must open the version again if that fails.
pub fn open_quickly(
    writer: &StoreWriter,
    id: VersionId,
    seal_options: &SealOptions,
) -> Result<SealedVersion, SyncError> {
    open_verifying_damaged(writer, id, seal_options, OpenCheck::Quick)
}

/// Opens a version with `check`. A version that is marked as damaged is verified in full, and its mark is cleared.
fn open_verifying_damaged(
    writer: &StoreWriter,
    id: VersionId,
    seal_options: &SealOptions,
    check: OpenCheck,
) -> Result<SealedVersion, SyncError> {
    let is_marked_damaged = writer.store().is_marked_damaged(id);
    let version = open_with(writer, id, seal_options, if is_marked_damaged { OpenCheck::Image } else { check })?;
    if is_marked_damaged && let Err(error) = writer.clear_damage_mark(id) {
        // The only consequence: the next start verifies the version again.
        tracing::warn!("{}", ErrorChain(&error));
    }
    Ok(version)
}

/// Opens a version. If the index does not match its image, or with `verify_image`, the image is verified and the index
/// is rebuilt.
pub fn open(
    writer: &StoreWriter,
    id: VersionId,
    seal_options: &SealOptions,
    verify_image: bool,
) -> Result<SealedVersion, SyncError> {
    open_with(writer, id, seal_options, if verify_image { OpenCheck::Image } else { OpenCheck::Index })
}

fn open_with(
    writer: &StoreWriter,
    id: VersionId,
    seal_options: &SealOptions,
    check: OpenCheck,
) -> Result<SealedVersion, SyncError> {
    let open_error = |source| SyncError::Open { id, source };
    let file = open_leased_image(writer.store(), id).map_err(open_error)?;
    let index = match read_stored_index(writer, id, check) {
        Some(index) => index,
        None => rebuild_index(writer, id, seal_options, &file)?,
    };
    let image = mapping::map_image(file).map_err(open_error)?;
    Ok(SealedVersion::new(id, image, index))
}

/// Reads the stored index, if `check` allows it and the index matches its image. An index of the previous format is
/// rewritten.
fn read_stored_index(writer: &StoreWriter, id: VersionId, check: OpenCheck) -> Option<ImageIndex> {
    let (bytes, length) = map_index(writer.store(), id).ok().filter(|_| check != OpenCheck::Image)?;
    if check == OpenCheck::Quick
        && let Ok(index) = ImageIndex::read(bytes.clone(), length, id)
    {
        return Some(index);
    }
    let index = ImageIndex::decode(bytes.clone(), length, id).ok()?;
    if index.bytes() == bytes {
        return Some(index);
    }
    Some(store_index(writer, id, length, index))
}

/// Verifies an image and rebuilds its index.
fn rebuild_index(
    writer: &StoreWriter,
    id: VersionId,
    seal_options: &SealOptions,
    image: &File,
) -> Result<ImageIndex, SyncError> {
    let open_error = |source| SyncError::Open { id, source };
    let path = writer.store().version_dir(id).join(IMAGE);
    let verified = seal::verify_opened_image(image.try_clone().map_err(open_error)?, &path, seal_options);
    let mut verified = verified.map_err(|source| SyncError::DamagedVersion { id, source: Some(source) })?;
    if verified.id != id {
        return Err(SyncError::DamagedVersion { id, source: None });
    }
    let metadata = image.metadata().map_err(open_error)?;
    let sealed_at = unix_seconds(metadata.modified().map_err(open_error)?);
    let record = writer.store().record().unwrap_or_default();
    let date_sources: Vec<VersionId> =
        [record.active, record.previous].into_iter().flatten().filter(|&other| other != id).collect();
    date_files(&mut verified, sealed_at, writer, &date_sources);
    let bytes = verified.encode_index(metadata.len());
    let index = ImageIndex::decode(bytes, metadata.len(), id).map_err(|error| open_error(io::Error::other(error)))?;
    Ok(store_index(writer, id, metadata.len(), index))
}

/// Stores a new index and returns the stored one. The index is a cache: if it cannot be stored, the new one is
/// returned.
fn store_index(writer: &StoreWriter, id: VersionId, length: u64, index: ImageIndex) -> ImageIndex {
    if let Err(error) = writer.replace_index(id, index.bytes()) {
        tracing::warn!("{error}");
        return index;
    }
    let stored = map_index(writer.store(), id).ok().and_then(|(bytes, _)| ImageIndex::read(bytes, length, id).ok());
    stored.unwrap_or(index)
}
