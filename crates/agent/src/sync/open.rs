//! Opens stored versions for serving: quickly if the index matches its image, and by verifying the image again
//! otherwise. A start postpones the checks of an index that take time.

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

/// Longest duration of a removal: a version that is locked for longer is locked by another process.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two attempts to open a version that is being removed.
const PAUSE: Duration = Duration::from_millis(10);

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
pub fn read(store: &VersionStore, id: VersionId) -> io::Result<SealedVersion> {
    let index = read_index(store, id)?;
    let image = mapping::map_image(store.image(id)?)?;
    Ok(SealedVersion::new(id, image, index))
}

/// Opens an image and leases it, so that it is not pruned. An image that is being pruned is no longer there. If another
/// process holds an exclusive lock, that lock keeps the version from being pruned; it is served all the same.
fn leased(store: &VersionStore, id: VersionId) -> io::Result<SealedFile> {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let file = store.image(id)?;
        let is_locked = flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        let (held, named) = (file.metadata()?, store.image(id)?.metadata()?);
        let is_there = FileId::from_metadata(&held) == FileId::from_metadata(&named);
        if is_there && is_locked && Instant::now() >= deadline {
            tracing::warn!(
                "version {} is locked by another process; it is served, but only that lock keeps it from being removed; \
                 lslocks shows the process",
                id.short()
            );
            return Ok(file);
        }
        if is_there && !is_locked {
            return Ok(file);
        }
        if is_locked {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Opens a version that may be marked as damaged. A marked one is verified first, and its mark is cleared if it is
/// undamaged.
pub fn open_suspect(writer: &StoreWriter, id: VersionId, effort: &SealOptions) -> Result<SealedVersion, SyncError> {
    open_unless_doubted(writer, id, effort, OpenCheck::Index)
}

/// Opens a version at a start, which serves first. The caller must have the index verified afterwards
/// ([`SealedVersion::verify_index`]), and must open the version again if that fails.
pub fn open_quickly(writer: &StoreWriter, id: VersionId, effort: &SealOptions) -> Result<SealedVersion, SyncError> {
    open_unless_doubted(writer, id, effort, OpenCheck::Quick)
}

fn open_unless_doubted(
    writer: &StoreWriter,
    id: VersionId,
    effort: &SealOptions,
    care: OpenCheck,
) -> Result<SealedVersion, SyncError> {
    let is_doubted = writer.store().is_suspect(id);
    let version = open_with(writer, id, effort, if is_doubted { OpenCheck::Image } else { care })?;
    if is_doubted && let Err(error) = writer.clear_suspect(id) {
        // The only consequence is that the next start verifies the version again.
        tracing::warn!("{}", ErrorChain(&error));
    }
    Ok(version)
}

/// Opens a version. If the index does not match, the image is verified and the index rebuilt; `in_full` does so in any
/// case.
pub fn open(
    writer: &StoreWriter,
    id: VersionId,
    effort: &SealOptions,
    in_full: bool,
) -> Result<SealedVersion, SyncError> {
    open_with(writer, id, effort, if in_full { OpenCheck::Image } else { OpenCheck::Index })
}

fn open_with(
    writer: &StoreWriter,
    id: VersionId,
    effort: &SealOptions,
    care: OpenCheck,
) -> Result<SealedVersion, SyncError> {
    let failed = |source| SyncError::Open { id, source };
    let file = leased(writer.store(), id).map_err(failed)?;
    let index = match known(writer, id, care) {
        Some(index) => index,
        None => made_again(writer, id, effort, &file)?,
    };
    let image = mapping::map_image(file).map_err(failed)?;
    Ok(SealedVersion::new(id, image, index))
}

/// Reads the stored index, if `care` allows that and it matches. One of the previous format is rewritten.
fn known(writer: &StoreWriter, id: VersionId, care: OpenCheck) -> Option<ImageIndex> {
    let (bytes, length) = map_index(writer.store(), id).ok().filter(|_| care != OpenCheck::Image)?;
    if care == OpenCheck::Quick
        && let Ok(index) = ImageIndex::read(bytes.clone(), length, id)
    {
        return Some(index);
    }
    let index = ImageIndex::decode(bytes.clone(), length, id).ok()?;
    if index.bytes() == bytes {
        return Some(index);
    }
    Some(kept(writer, id, length, index))
}

/// Verifies an image and rebuilds its index.
fn made_again(
    writer: &StoreWriter,
    id: VersionId,
    effort: &SealOptions,
    image: &File,
) -> Result<ImageIndex, SyncError> {
    let failed = |source| SyncError::Open { id, source };
    let path = writer.store().version_dir(id).join(IMAGE);
    let verified = seal::verify_opened_image(image.try_clone().map_err(failed)?, &path, effort);
    let mut verified = verified.map_err(|source| SyncError::DamagedVersion { id, source: Some(source) })?;
    if verified.id != id {
        return Err(SyncError::DamagedVersion { id, source: None });
    }
    let metadata = image.metadata().map_err(failed)?;
    let sealed_at = unix_seconds(metadata.modified().map_err(failed)?);
    let record = writer.store().record().unwrap_or_default();
    let known: Vec<VersionId> =
        [record.active, record.previous].into_iter().flatten().filter(|&other| other != id).collect();
    date_files(&mut verified, sealed_at, writer, &known);
    let bytes = verified.index(metadata.len());
    let index = ImageIndex::decode(bytes, metadata.len(), id).map_err(|error| failed(io::Error::other(error)))?;
    Ok(kept(writer, id, metadata.len(), index))
}

/// Stores a new index and returns it as it is stored then. The index is a cache: a store that cannot be written to is
/// served all the same.
fn kept(writer: &StoreWriter, id: VersionId, length: u64, index: ImageIndex) -> ImageIndex {
    if let Err(error) = writer.replace_index(id, index.bytes()) {
        tracing::warn!("{error}");
        return index;
    }
    let written = map_index(writer.store(), id).ok().and_then(|(bytes, _)| ImageIndex::read(bytes, length, id).ok());
    written.unwrap_or(index)
}
