//! Opens stored versions for serving: quickly if the index matches its image, and by verifying the image again
//! otherwise. A start postpones the checks of an index that take time.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use docwharf_base::chain::Chain;
use docwharf_base::directory::FileId;
use docwharf_base::model::units::unix_seconds;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::{self, Effort};
use docwharf_site::index::Index;
use docwharf_site::mapping;
use docwharf_site::sealed::Sealed;
use crate::store::keeper::Keeper;
use crate::store::writer::Writer;
use crate::store::{IMAGE, Store};

use super::SyncError;
use super::bring::date_files;

/// Longest duration of a removal: a version that is locked for longer is locked by another process.
const REMOVAL: Duration = Duration::from_secs(1);
/// Pause between two attempts to open a version that is being removed.
const PAUSE: Duration = Duration::from_millis(10);

/// The checks before a version is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// The index is read; [`Index::prove`] follows later.
    Quick,
    /// The index is verified.
    Index,
    /// The image is verified, and its index is rebuilt.
    Image,
}

/// Reads a version's index and verifies it against its image.
pub fn index(store: &Store, id: VersionId) -> io::Result<Index> {
    let (bytes, length) = index_bytes(store, id)?;
    Index::decode(bytes, length, id).map_err(io::Error::other)
}

/// Maps a version's index; also returns the length of the image that it must belong to.
fn index_bytes(store: &Store, id: VersionId) -> io::Result<(Bytes, u64)> {
    let length = store.image(id)?.metadata()?.len();
    Ok((mapping::map_index(store.index(id)?, id)?, length))
}

/// Opens a version without repairing or writing anything.
pub fn read(store: &Store, id: VersionId) -> io::Result<Sealed> {
    let index = index(store, id)?;
    let image = mapping::map(store.image(id)?, id)?;
    Ok(Sealed::new(id, image, index))
}

/// Opens an image and leases it, so that it is not pruned. An image that is being pruned is no longer there. If another
/// process holds an exclusive lock, that lock keeps the version from being pruned; it is served all the same.
fn leased(store: &Store, id: VersionId) -> io::Result<File> {
    let deadline = Instant::now() + REMOVAL;
    loop {
        let file = store.image(id)?;
        let is_locked = flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        let (held, named) = (file.metadata()?, store.image(id)?.metadata()?);
        let is_there = FileId::of(&held) == FileId::of(&named);
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
pub fn open_doubted(writer: &Writer, id: VersionId, effort: &Effort) -> Result<Sealed, SyncError> {
    open_unless_doubted(writer, id, effort, Care::Index)
}

/// Opens a version at a start, which serves first. The caller must have the index verified afterwards
/// ([`Sealed::prove_index`]), and must open the version again if that fails.
pub fn open_quickly(writer: &Writer, id: VersionId, effort: &Effort) -> Result<Sealed, SyncError> {
    open_unless_doubted(writer, id, effort, Care::Quick)
}

fn open_unless_doubted(writer: &Writer, id: VersionId, effort: &Effort, care: Care) -> Result<Sealed, SyncError> {
    let is_doubted = writer.store().is_suspect(id);
    let version = open_with(writer, id, effort, if is_doubted { Care::Image } else { care })?;
    if is_doubted && let Err(error) = writer.clear_suspect(id) {
        // The only consequence is that the next start verifies the version again.
        tracing::warn!("{}", Chain(&error));
    }
    Ok(version)
}

/// Opens a version. If the index does not match, the image is verified and the index rebuilt; `in_full` does so in any
/// case.
pub fn open(writer: &Writer, id: VersionId, effort: &Effort, in_full: bool) -> Result<Sealed, SyncError> {
    open_with(writer, id, effort, if in_full { Care::Image } else { Care::Index })
}

fn open_with(writer: &Writer, id: VersionId, effort: &Effort, care: Care) -> Result<Sealed, SyncError> {
    let failed = |source| SyncError::Open { id, source };
    let file = leased(writer.store(), id).map_err(failed)?;
    let index = match known(writer, id, care) {
        Some(index) => index,
        None => made_again(writer, id, effort, &file)?,
    };
    let image = mapping::map(file, id).map_err(failed)?;
    Ok(Sealed::new(id, image, index))
}

/// Reads the stored index, if `care` allows that and it matches. One of the previous format is rewritten.
fn known(writer: &Writer, id: VersionId, care: Care) -> Option<Index> {
    let (bytes, length) = index_bytes(writer.store(), id).ok().filter(|_| care != Care::Image)?;
    if care == Care::Quick
        && let Ok(index) = Index::read(bytes.clone(), length, id)
    {
        return Some(index);
    }
    let index = Index::decode(bytes.clone(), length, id).ok()?;
    if index.bytes() == bytes {
        return Some(index);
    }
    Some(kept(writer, id, length, index))
}

/// Verifies an image and rebuilds its index.
fn made_again(writer: &Writer, id: VersionId, effort: &Effort, image: &File) -> Result<Index, SyncError> {
    let failed = |source| SyncError::Open { id, source };
    let path = writer.store().version_dir(id).join(IMAGE);
    let proven = seal::verify_opened_image(image.try_clone().map_err(failed)?, &path, effort);
    let mut proven = proven.map_err(|source| SyncError::DamagedVersion { id, source: Some(source) })?;
    if proven.id != id {
        return Err(SyncError::DamagedVersion { id, source: None });
    }
    let metadata = image.metadata().map_err(failed)?;
    let sealed_at = unix_seconds(metadata.modified().map_err(failed)?);
    let record = writer.store().record().unwrap_or_default();
    let known: Vec<VersionId> =
        [record.active, record.previous].into_iter().flatten().filter(|&other| other != id).collect();
    date_files(&mut proven, sealed_at, writer, &known);
    let bytes = proven.index(metadata.len());
    let index = Index::decode(bytes, metadata.len(), id).map_err(|error| failed(io::Error::other(error)))?;
    Ok(kept(writer, id, metadata.len(), index))
}

/// Stores a new index and returns it as it is stored then. The index is a cache: a store that cannot be written to is
/// served all the same.
fn kept(writer: &Writer, id: VersionId, length: u64, index: Index) -> Index {
    if let Err(error) = writer.replace_index(id, index.bytes()) {
        tracing::warn!("{error}");
        return index;
    }
    let written = index_bytes(writer.store(), id).ok().and_then(|(bytes, _)| Index::read(bytes, length, id).ok());
    written.unwrap_or(index)
}
