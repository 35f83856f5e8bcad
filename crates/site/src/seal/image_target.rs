//! The folder to which images are written, and the location of an archive that may be moved there.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use docwharf_base::directory::Directory;

use super::seal_error::SealError;

/// The folder to which an image is written before it is verified.
#[derive(Debug)]
pub enum ImageTarget {
    /// Named files in a folder of the store, which another user may own.
    Dir(Directory),
    /// Files without a name in this folder, which disappear with the process.
    Unlinked(PathBuf),
}

/// The name of the image in [`ImageTarget::Dir`].
pub const IMAGE_FILE_NAME: &str = "site.zip";
/// The name of a received ZIP that cannot be adopted, while it is rewritten.
pub(super) const RECEIVED_FILE_NAME: &str = "received.zip";

impl ImageTarget {
    pub(super) fn create(&self, name: &str) -> Result<File, SealError> {
        let created = match self {
            ImageTarget::Dir(dir) => dir.create_file(name, 0o600).map_err(|e| (dir.path().join(name), e)),
            ImageTarget::Unlinked(dir) => tempfile::tempfile_in(dir).map_err(|e| (dir.clone(), e)),
        };
        created.map_err(|(path, source)| SealError::Write { path, source })
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            ImageTarget::Dir(dir) => dir.path(),
            ImageTarget::Unlinked(dir) => dir,
        }
    }
}

/// The location of a file: its directory, and its name in it.
pub type FileLocation<'a> = (&'a Directory, &'a OsStr);
