//! The errors of publication.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why `current` was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The directory is the store or is in it; publication must not damage the store.
    #[error("cannot publish into {}: it is the store or lies in it; set publish.directory to a directory outside the store", .0.display())]
    InStore(PathBuf),
    /// The name of the link is taken by a file of another kind.
    #[error("cannot publish: {} is there and is no symbolic link; move it away, or publish elsewhere", .0.display())]
    NotALink(PathBuf),
    /// A directory has the version's name and was not made by docwharf.
    #[error("cannot publish: {} is there and not known as made by docwharf; move it away, or publish elsewhere", .0.display())]
    Foreign(PathBuf),
    /// Another process is publishing here and has not finished in time.
    #[error("cannot publish into {}: another docwharf process is publishing there", .0.display())]
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
    /// Wraps an error of the operating system: `doing` is a verb, `path` the file that it was about.
    pub(super) fn io<'a, E: Into<io::Error>>(
        doing: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(E) -> PublishError + 'a {
        move |source| PublishError::Io { doing, path: path.to_owned(), source: source.into() }
    }
}
