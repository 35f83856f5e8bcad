//! The bundle of a download, before and after it is received.

use std::path::PathBuf;
use std::sync::Arc;

use docwharf_base::directory::Directory;
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::net::request_error::RequestError;

/// Identifies a bundle at its server by validator and size. A bundle that is known from an earlier download is not
/// downloaded again while the server still has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleValidator {
    /// The validator: a strong `ETag`, or Last-Modified if there is none.
    pub validator: String,
    /// Size of the received file in bytes.
    pub size: u64,
}

/// The result of a successful download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadResult {
    /// The server still has this known bundle.
    Unchanged(BundleValidator),
    /// The bundle has been received.
    Received(ReceivedBundle),
}

/// A received bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedBundle {
    /// Path of the file; the caller must remove it.
    pub path: PathBuf,
    /// Validator and size of the file, if the server sent a validator.
    pub validator: Option<BundleValidator>,
    /// Whether a part of the file was received before this download began, by an earlier sync or process. A power cut
    /// may have damaged that part.
    pub resumed: bool,
    /// Whether the server named a content coding although none was requested.
    pub encoded: bool,
}

/// A bundle that is about to be received.
#[derive(Debug)]
pub struct ExpectedBundle<'a> {
    /// Size of the bundle in bytes; the number received so far if the size is unknown.
    pub size: u64,
    /// Number of bytes still to be received; 0 if the size is unknown.
    pub remaining: u64,
    /// Path of the file, which exists once the first byte has been received.
    pub path: PathBuf,
    /// Directory of the file, and its name there.
    pub directory_entry: (&'a Directory, &'static str),
    /// The number of bytes of the file that can be read.
    pub write_progress: &'a Arc<WriteProgress>,
}

/// Prepares for a bundle that is about to be received: frees disk space for it, and may start to seal it while it
/// arrives; or fails. It is called again during the download of a bundle whose size is unknown.
pub type BeforeReceiving<'a> = &'a dyn Fn(&ExpectedBundle<'_>) -> Result<(), RequestError>;
