//! The folder of an index, as tantivy reads and writes it.
//!
//! tantivy's own directory opens each file by the path of the folder, and syncs each file that it has written. This one
//! opens files below the descriptor of the folder, wherever the folder has been moved to, and does not sync: an index
//! is a cache with checksums, and if a power failure leaves half of it, it is built again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use docwharf_base::directory::Directory;
use docwharf_site::mapping::{MappedFile, SealedFile};
use tantivy::directory::error::{DeleteError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, FileHandle, OwnedBytes, TerminatingWrite, WatchCallback, WatchHandle, WritePtr,
};

/// The permissions of files and folders of an index.
pub(super) const FILE_MODE: u32 = 0o644;
pub(super) const FOLDER_MODE: u32 = 0o755;
/// The maximum size of a file that is read as a whole, in bytes: the header, and tantivy's list of segments.
const MAX_READ_BYTES: u64 = 64 << 20;

/// The size of the pieces in which files are read for their checksum, in bytes.
const CHECKSUM_PIECE_BYTES: usize = 256 << 10;

/// A folder with the files of an index.
#[derive(Debug, Clone)]
pub(super) struct IndexDirectory {
    folder: Directory,
    /// Files that are mapped already, by name.
    mapped: Arc<HashMap<PathBuf, OwnedBytes>>,
}

impl IndexDirectory {
    pub(super) fn new(folder: &Directory) -> IndexDirectory {
        IndexDirectory { folder: folder.clone(), mapped: Arc::default() }
    }

    /// Creates the directory of an index whose files are mapped, so that what was checked is what is used.
    pub(super) fn with_mapped(
        folder: &Directory,
        files: impl Iterator<Item = (PathBuf, OwnedBytes)>,
    ) -> IndexDirectory {
        IndexDirectory { folder: folder.clone(), mapped: Arc::new(files.collect()) }
    }

    fn map(&self, path: &Path) -> io::Result<OwnedBytes> {
        self.mapped.get(path).map_or_else(|| map_file(&self.folder, path), |bytes| Ok(bytes.clone()))
    }
}

/// Maps a file of an index. Once it is complete, no process writes to it.
pub(super) fn map_file(folder: &Directory, name: &Path) -> io::Result<OwnedBytes> {
    Ok(OwnedBytes::new(MappedFile::new(&SealedFile::open_derived(folder, name)?)?))
}

/// Reads a small file of an index.
pub(super) fn read_file(folder: &Directory, name: &Path) -> io::Result<Vec<u8>> {
    folder.read(name, MAX_READ_BYTES)
}

/// Returns the length and the CRC-32 of a file.
pub(super) fn compute_checksum(mut file: File) -> io::Result<(u64, u32)> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; CHECKSUM_PIECE_BYTES];
    let mut len = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((len, hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
        len += read as u64;
    }
}

fn to_read_error(error: io::Error, path: &Path) -> OpenReadError {
    match error.kind() {
        io::ErrorKind::NotFound => OpenReadError::FileDoesNotExist(path.to_owned()),
        _ => OpenReadError::wrap_io_error(error, path.to_owned()),
    }
}

impl tantivy::Directory for IndexDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        Ok(Arc::new(self.map(path).map_err(|error| to_read_error(error, path))?))
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.folder.remove_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DeleteError::FileDoesNotExist(path.to_owned()),
            _ => DeleteError::IoError { io_error: Arc::new(error), filepath: path.to_owned() },
        })
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        match self.folder.metadata_of(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(OpenReadError::wrap_io_error(error, path.to_owned())),
        }
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let file = self.folder.create_file(path, FILE_MODE).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => OpenWriteError::FileAlreadyExists(path.to_owned()),
            _ => OpenWriteError::wrap_io_error(error, path.to_owned()),
        })?;
        Ok(BufWriter::new(Box::new(UnsyncedFile(file))))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        match self.mapped.get(path) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => read_file(&self.folder, path).map_err(|error| to_read_error(error, path)),
        }
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        // No process reads the folder while the index is built.
        self.folder.remove_file_if_exists(path)?;
        self.folder.create_file(path, FILE_MODE)?.write_all(data)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

/// A file that is written.
struct UnsyncedFile(File);

impl Write for UnsyncedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl TerminatingWrite for UnsyncedFile {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tantivy::Directory as _;

    #[test]
    fn files_are_written_once_and_read_after_that() {
        let folder = tempfile::tempdir().unwrap();
        let directory = IndexDirectory::new(&Directory::open(folder.path()).unwrap());
        let path = Path::new("a");
        let mut writer = directory.open_write(path).unwrap();
        writer.write_all(b"text").unwrap();
        writer.terminate().unwrap();
        assert_eq!(directory.open_read(path).unwrap().read_bytes().unwrap().as_slice(), b"text");
        assert!(matches!(directory.open_write(path), Err(OpenWriteError::FileAlreadyExists(_))));
        directory.atomic_write(path, b"other").unwrap();
        assert_eq!(directory.atomic_read(path).unwrap(), b"other");
        directory.delete(path).unwrap();
        assert!(!directory.exists(path).unwrap());
        assert!(matches!(directory.atomic_read(path), Err(OpenReadError::FileDoesNotExist(_))));
        assert!(matches!(directory.get_file_handle(path), Err(OpenReadError::FileDoesNotExist(_))));
    }

    // Regression: an index could not be built in a folder whose path another mount namespace has, or that was renamed.
    #[test]
    fn a_folder_that_has_another_name_now_is_still_used() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::create_dir(parent.path().join("before")).unwrap();
        let directory = IndexDirectory::new(&Directory::open(&parent.path().join("before")).unwrap());
        std::fs::rename(parent.path().join("before"), parent.path().join("after")).unwrap();
        directory.atomic_write(Path::new("a"), b"text").unwrap();
        assert_eq!(directory.map(Path::new("a")).unwrap().as_slice(), b"text");
        assert_eq!(std::fs::read(parent.path().join("after/a")).unwrap(), b"text");
    }
}
