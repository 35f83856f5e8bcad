//! Making a stored version ready to be served: quickly when its index matches, by proving it again when not.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::base::chain::Chain;
use crate::model::units::unix_seconds;
use crate::model::version::VersionId;
use crate::seal::{self, Effort};
use crate::site::index::Index;
use crate::site::mapping;
use crate::site::sealed::Sealed;
use crate::store::keeper::Keeper;
use crate::store::writer::Writer;
use crate::store::{IMAGE, INDEX, Store};

use super::SyncError;
use super::bring::date_files;

/// A version's index, checked against its image.
pub fn index(store: &Store, id: VersionId) -> io::Result<Index> {
    let dir = store.version_dir(id);
    let length = std::fs::metadata(dir.join(IMAGE))?.len();
    Index::decode(std::fs::read(dir.join(INDEX))?, length, id).map_err(io::Error::other)
}

/// A version as it lies there; nothing is mended, nothing is written.
pub fn read(store: &Store, id: VersionId) -> io::Result<Sealed> {
    let index = index(store, id)?;
    let image = mapping::open(&store.version_dir(id).join(IMAGE), id)?;
    Ok(Sealed::new(id, image, index))
}

/// Opens an image so that it is not pruned. One that is being pruned at this moment is there no more.
fn leased(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it is being removed"));
    }
    let (held, named) = (file.metadata()?, std::fs::metadata(path)?);
    if (held.dev(), held.ino()) == (named.dev(), named.ino()) { Ok(file) } else { leased(path) }
}

/// Opens a version that may have been found damaged: then it is proved first, and no longer doubted if it is whole.
pub fn open_doubted(writer: &Writer, id: VersionId, effort: &Effort) -> Result<Sealed, SyncError> {
    let is_doubted = writer.store().is_suspect(id);
    let version = open(writer, id, effort, is_doubted)?;
    if is_doubted && let Err(error) = writer.clear_suspect(id) {
        // It is proved again at the next start, no more than that.
        tracing::warn!("{}", Chain(&error));
    }
    Ok(version)
}

/// Opens a version. With an index that does not match, the image is proved again and the index made anew; `in_full`
/// does so in any case.
pub fn open(writer: &Writer, id: VersionId, effort: &Effort, in_full: bool) -> Result<Sealed, SyncError> {
    let store = writer.store();
    let failed = |source| SyncError::Open { id, source };
    let path = store.version_dir(id).join(IMAGE);
    let file = leased(&path).map_err(failed)?;
    let index = match index(store, id) {
        Ok(index) if !in_full => index,
        _ => {
            let mut proven = seal::verify_image(&path, effort)
                .map_err(|source| SyncError::DamagedVersion { id, source: Some(source) })?;
            if proven.id != id {
                return Err(SyncError::DamagedVersion { id, source: None });
            }
            let metadata = file.metadata().map_err(failed)?;
            let sealed_at = unix_seconds(metadata.modified().map_err(failed)?);
            let record = writer.store().record().unwrap_or_default();
            let known: Vec<VersionId> =
                [record.active, record.previous].into_iter().flatten().filter(|&other| other != id).collect();
            date_files(&mut proven, sealed_at, writer, &known);
            let bytes = proven.index(metadata.len());
            // A cache: a store that cannot be written to serves all the same.
            if let Err(error) = writer.replace_index(id, &bytes) {
                tracing::warn!("{error}");
            }
            Index::decode(bytes, metadata.len(), id).map_err(|error| failed(io::Error::other(error)))?
        }
    };
    let image = mapping::map(file, id).map_err(failed)?;
    Ok(Sealed::new(id, image, index))
}
