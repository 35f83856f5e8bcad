//! The errors of sealing and verifying.

use std::io;
use std::path::{Path, PathBuf};

use crate::bundle::bundle_reader::BundleReadError;
use crate::bundle::refusal::BundleRefusal;

/// The reason why a bundle was not sealed or verified.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The bundle is refused.
    #[error("{}", path.display())]
    Refused {
        /// The bundle.
        path: PathBuf,
        /// The reason.
        #[source]
        source: BundleRefusal,
    },
    /// The bundle cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The bundle, or the file in it.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The image cannot be written.
    #[error("cannot write in {}", path.display())]
    Write {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl SealError {
    pub(super) fn from_read(error: BundleReadError, bundle: &Path, written_to: &Path) -> SealError {
        match error {
            BundleReadError::Refused(source) => SealError::Refused { path: bundle.to_owned(), source },
            BundleReadError::Io { path, source } => SealError::Read { path, source },
            BundleReadError::Sink(source) => SealError::Write { path: written_to.to_owned(), source },
        }
    }
}
