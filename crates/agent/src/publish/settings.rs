//! Settings of publication: the directory, and the permissions of files.

use std::path::PathBuf;

use docwharf_site::extract::FileModes;

/// Settings of publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishSettings {
    /// The directory to publish into.
    pub directory: PathBuf,
    /// The store; `directory` must not be in it.
    pub store: PathBuf,
    /// Permissions of files and directories, independent of the umask.
    pub modes: FileModes,
}
