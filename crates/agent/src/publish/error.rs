//! The errors of publication.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a publication; `current` was not changed, unless only the final sync of the directory failed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The directory is the store or is in it; publication must not damage the store.
    #[error("cannot publish into {}: it is the store or inside it; set publish.directory to a directory outside the store", .0.display())]
    InStore(PathBuf),
    /// A file that is no link has the name of the link.
    #[error("cannot publish: {} exists and is no symbolic link; move it away, or publish into another directory", .0.display())]
    NotALink(PathBuf),
    /// A directory with the version's name exists, and was not created by docwharf.
    #[error("cannot publish: {} exists, but docwharf has no record of creating it; move it away, or publish into another directory", .0.display())]
    Foreign(PathBuf),
    /// Another process publishes into the same directory, and has not finished in time.
    #[error("cannot publish into {}: another docwharf process is publishing there; try again when it has ended", .0.display())]
    Busy(PathBuf),
    /// The operating system reported an error.
    #[error("cannot publish: cannot {doing} {}", path.display())]
    Io {
        /// The failed operation: "read", "write", …
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl PublishError {
    /// Wraps an error of the operating system: `doing` is a verb, `path` the file of the operation.
    pub(super) fn io<'a, E: Into<io::Error>>(
        doing: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(E) -> PublishError + 'a {
        move |source| PublishError::Io { doing, path: path.to_owned(), source: source.into() }
    }
}
