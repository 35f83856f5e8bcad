//! Opens the index that the [index process](super::index_process) has built in a folder.

use std::io::{self, Read};

use docwharf_base::directory::Directory;
use docwharf_base::model::version::VersionId;
use docwharf_search::index::{OpenError, SearchIndex};

/// The size of the pieces in which files are read before they are mapped, in bytes.
const READ_BUFFER_BYTES: usize = 256 << 10;

/// The reason why a stored index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredIndexError {
    /// A file cannot be read from the disk.
    #[error("cannot read the search index")]
    Read(#[source] io::Error),
    /// The index is not one, or of another program.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Opens the index of a version in `directory`. All files are read before they are mapped: data that the disk has lost
/// is an error here, not a SIGBUS later.
pub fn open_index(directory: &Directory, id: VersionId) -> Result<SearchIndex, StoredIndexError> {
    read_files(directory).map_err(StoredIndexError::Read)?;
    Ok(SearchIndex::open(directory, id)?)
}

fn read_files(directory: &Directory) -> io::Result<()> {
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    for entry in directory.entries()? {
        let mut file = directory.open_for_reading(entry?.name)?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}
