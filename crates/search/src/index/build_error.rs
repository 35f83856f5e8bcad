//! The reason why an index cannot be built.

use std::io;
use std::path::PathBuf;

use tantivy::TantivyError;

/// The reason why an index cannot be built. Nothing about the content of a site is one: pages that cannot be read are
/// left out.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The folder for the index has files already.
    #[error("{} is not empty", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// A file of the index cannot be written, or a folder cannot be created.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A folder or file of the index cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The sections cannot be written to the index.
    #[error("cannot write the search index")]
    Index(#[from] TantivyError),
    /// The header cannot be encoded.
    #[error("cannot encode the header of the search index")]
    Header(#[source] serde_json::Error),
}
