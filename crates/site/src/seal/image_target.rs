//! The place where images are written, and that of an archive which may be moved there.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use docwharf_base::directory::Directory;

use super::seal_error::SealError;

/// The place where images are written before they are verified.
#[derive(Debug)]
pub enum ImageSpace {
    /// Named files in a folder of the store, which another user may own.
    Dir(Directory),
    /// Files without a name in this folder, which disappear with the process.
    Unlinked(PathBuf),
}

/// The name of the image in [`ImageSpace::Dir`].
pub const IMAGE_FILE_NAME: &str = "site.zip";
/// The name of a received ZIP that cannot be adopted, while it is rewritten.
pub(super) const RECEIVED_FILE_NAME: &str = "received.zip";

impl ImageSpace {
    pub(super) fn create(&self, name: &str) -> Result<File, SealError> {
        let made = match self {
            ImageSpace::Dir(dir) => dir.create_file(name, 0o600).map_err(|e| (dir.path().join(name), e)),
            ImageSpace::Unlinked(dir) => tempfile::tempfile_in(dir).map_err(|e| (dir.clone(), e)),
        };
        made.map_err(|(path, source)| SealError::Write { path, source })
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            ImageSpace::Dir(dir) => dir.path(),
            ImageSpace::Unlinked(dir) => dir,
        }
    }
}

/// The place of a file: its directory, and its name in it.
pub type FilePlace<'a> = (&'a Directory, &'a OsStr);
