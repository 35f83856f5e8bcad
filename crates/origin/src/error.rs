//! The errors that prevent the start of an origin.

use std::io;
use std::path::PathBuf;

use super::database::DatabaseError;
use super::domain::Domain;
use super::key_file::ApiKeyFileError;
use super::previews::PreviewError;

/// An error that prevents the start of an origin.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// A folder or archive does not exist or cannot be read.
    #[error("cannot read {}, the site of {domain}", path.display())]
    Site {
        /// The domain of the site.
        domain: Domain,
        /// The configured path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The key file has no valid API key.
    #[error(transparent)]
    Key(#[from] ApiKeyFileError),
    /// The database cannot be read or written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The previews cannot be opened.
    #[error(transparent)]
    Previews(#[from] PreviewError),
    /// Another origin uses the state folder.
    #[error("another origin is using {}; stop that one, or set another store.path for this one", .0.display())]
    Locked(PathBuf),
    /// The operating system provides no folder, no thread or no random bytes.
    #[error("cannot {doing}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}
