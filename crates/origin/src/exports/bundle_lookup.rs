//! The result of looking up the bundle of a job.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use docwharf_base::model::digest::Digest;

use crate::database::DatabaseError;

/// The archive of a bundle: an open file, whether or not it still has a name.
#[derive(Debug)]
pub(crate) struct BundleFile {
    pub(crate) file: Arc<File>,
    pub(crate) kind: String,
    pub(crate) digest: Digest,
    pub(crate) len: u64,
    /// The time at which the job was completed, in seconds since 1970.
    pub(crate) completed_at: i64,
}

impl BundleFile {
    /// Returns the last component of the links to it.
    pub(crate) fn link_file_name(&self) -> String {
        format!("bundle.{}", self.kind)
    }
}

/// Result of looking up the bundle of a job.
#[derive(Debug)]
pub(crate) enum BundleLookup {
    /// The client has no job with this id, or the bundle of the job does not exist any more.
    Unknown,
    /// The job has no bundle, and has this status.
    NotReady(String),
    /// The bundle.
    Found(BundleFile),
}

/// The reason why the bundle of a job could not be looked up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleLookupError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The bundle exists, but cannot be opened at the moment.
    #[error("cannot open {}", path.display())]
    Open {
        /// The bundle file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}
