//! Making a stored version ready to be served: quickly when its index matches, by proving it again when not. A start
//! leaves what takes time to check of an index for later.

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

/// So long a removal that has been begun takes at most: a version that is locked for longer is locked by somebody else.
const REMOVAL: Duration = Duration::from_secs(1);
/// Between two looks at a version that is being removed.
const PAUSE: Duration = Duration::from_millis(10);

/// What is done before a version is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Its index is read: [`Index::prove`] is for later.
    Quick,
    /// Its index is proved.
    Index,
    /// Its image is proved, and its index made again.
    Image,
}

/// A version's index, checked against its image.
pub fn index(store: &Store, id: VersionId) -> io::Result<Index> {
    let (bytes, length) = index_bytes(store, id)?;
    Index::decode(bytes, length, id).map_err(io::Error::other)
}

/// A version's index, and the length of the image that it has to belong to.
fn index_bytes(store: &Store, id: VersionId) -> io::Result<(Bytes, u64)> {
    let length = store.image(id)?.metadata()?.len();
    Ok((mapping::map_index(store.index(id)?, id)?, length))
}

/// A version as it lies there; nothing is mended, nothing is written.
pub fn read(store: &Store, id: VersionId) -> io::Result<Sealed> {
    let index = index(store, id)?;
    let image = mapping::map(store.image(id)?, id)?;
    Ok(Sealed::new(id, image, index))
}

/// Opens an image so that it is not pruned. One that is being pruned at this moment is there no more. Who else has locked
/// the file keeps it from being pruned as well, and nobody from being served.
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

/// Opens a version that may have been found damaged: then it is proved first, and no longer doubted if it is whole.
pub fn open_doubted(writer: &Writer, id: VersionId, effort: &Effort) -> Result<Sealed, SyncError> {
    open_unless_doubted(writer, id, effort, Care::Index)
}

/// The same for a start, which serves first: whoever calls this has the index proved afterwards ([`Sealed::prove_index`]),
/// and opens the version again if it is not what it should be.
pub fn open_quickly(writer: &Writer, id: VersionId, effort: &Effort) -> Result<Sealed, SyncError> {
    open_unless_doubted(writer, id, effort, Care::Quick)
}

fn open_unless_doubted(writer: &Writer, id: VersionId, effort: &Effort, care: Care) -> Result<Sealed, SyncError> {
    let is_doubted = writer.store().is_suspect(id);
    let version = open_with(writer, id, effort, if is_doubted { Care::Image } else { care })?;
    if is_doubted && let Err(error) = writer.clear_suspect(id) {
        // It is proved again at the next start, no more than that.
        tracing::warn!("{}", Chain(&error));
    }
    Ok(version)
}

/// Opens a version. With an index that does not match, the image is proved again and the index made anew; `in_full`
/// does so in any case.
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

/// The index that lies there, if it is to be used and matches. One of the format before is written anew.
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

/// Proves an image and makes its index of that.
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

/// Writes an index that is in memory, and goes on with it as it lies there then. A cache: a store that cannot be written to
/// serves all the same.
fn kept(writer: &Writer, id: VersionId, length: u64, index: Index) -> Index {
    if let Err(error) = writer.replace_index(id, index.bytes()) {
        tracing::warn!("{error}");
        return index;
    }
    let written = index_bytes(writer.store(), id).ok().and_then(|(bytes, _)| Index::read(bytes, length, id).ok());
    written.unwrap_or(index)
}
