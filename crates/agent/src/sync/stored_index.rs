//! Reading of stored indexes; no index is repaired or written here.

use std::io;

use bytes::Bytes;

use crate::store::VersionStore;
use docwharf_base::model::version::VersionId;
use docwharf_site::index::ImageIndex;
use docwharf_site::mapping;

/// Reads a version's index and verifies it against its image.
pub fn read_index(store: &VersionStore, id: VersionId) -> io::Result<ImageIndex> {
    let (bytes, length) = map_index(store, id)?;
    ImageIndex::decode(bytes, length, id).map_err(io::Error::other)
}

/// Maps a version's index; also returns the length of the image, which the index must match.
pub(super) fn map_index(store: &VersionStore, id: VersionId) -> io::Result<(Bytes, u64)> {
    let length = store.image(id)?.metadata()?.len();
    Ok((mapping::map_index(&store.index(id)?)?, length))
}
