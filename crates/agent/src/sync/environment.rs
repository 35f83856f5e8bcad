//! The environment of a sync: a trait for everything that a sync reads, requests, waits for or changes, so that a
//! simulation can replace the real system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::responses::{ExportJob, SignedLink};
use crate::fetch::{BundleValidator, DownloadResult, ReceivedBundle};
use crate::store::record::{ProbeResult, StoreRecord};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_base::net::request_error::RequestError;
use docwharf_base::secret::SafeUrl;

use super::SyncError;
use super::activation::SyncReport;
use super::incoming_bundle::IncomingBundle;
use super::ingest::IngestedBundle;
use super::plan::BundleFileState;

/// The result of a network call: a response, or an error that may be temporary. The outer error ends the sync.
pub type CallResult<T> = Result<Result<T, RequestError>, SyncError>;

/// A bundle that need not be downloaded again, and the version in it; none if it was refused.
pub type KnownBundle = (BundleValidator, Option<VersionId>);

/// The effects of a sync on the store, on files and on the network.
pub trait SyncEnvironment {
    /// Returns the current time in seconds since 1970.
    fn now(&mut self) -> i64;
    /// Returns the time since a fixed moment, on the monotonic clock.
    fn elapsed(&mut self) -> Duration;
    /// Returns a random number from 0 to 1.
    fn random(&mut self) -> f64;
    /// Sleeps; fails if the sync is cancelled.
    fn wait(&mut self, pause: Duration) -> Result<(), SyncError>;
    /// Reports the step that begins: it is logged and displayed.
    fn begin_step(&mut self, step: &str);
    /// Shows the progress of an export job in percent.
    fn show_progress(&mut self, percent: Option<f64>);
    /// Shows an error that does not end the sync.
    fn warn(&mut self, message: &str);

    /// Makes the record durable, after copying from the stored record what people have decided since the sync began.
    fn save_record(&mut self, record: &mut StoreRecord) -> Result<(), SyncError>;
    /// Appends an event to history.
    fn append_event(&mut self, what: &str, version: Option<VersionId>, note: Option<String>);
    /// Whether a version is stored and not marked as damaged.
    fn has_undamaged(&self, id: VersionId) -> bool;
    /// Whether the store has no version.
    fn is_empty(&self) -> Result<bool, SyncError>;

    /// Reads the size and time of a bundle's file.
    fn bundle_file_state(&mut self, path: &Path) -> Result<BundleFileState, SyncError>;
    /// Computes the SHA-256 of a bundle's file.
    fn digest_file(&mut self, path: &Path) -> Result<Digest, SyncError>;

    /// Reads a probe; `None` if it has not changed.
    fn read_probe(&mut self, url: &SafeUrl, before: Option<&ProbeResult>) -> CallResult<Option<ProbeResult>>;
    /// Prepares calls to the API; fails if there is no key.
    fn prepare_api(&mut self) -> Result<(), SyncError>;
    /// Starts an export job.
    fn start_job(&mut self) -> CallResult<String>;
    /// Requests the state of a job.
    fn poll_job(&mut self, id: &str) -> CallResult<ExportJob>;
    /// Requests a link to the bundle of a job.
    fn request_link(&mut self, id: &str) -> CallResult<SignedLink>;

    /// Returns the bundles of this source that need not be downloaded again.
    fn known_bundles(&self, record: &StoreRecord, source: &str) -> Vec<KnownBundle>;
    /// Begins the download of a bundle. The part that an earlier download from the same source has left is continued.
    fn begin_download(&mut self, source: &str, known: Vec<BundleValidator>) -> Result<(), SyncError>;
    /// Frees the space for a bundle of `size` bytes.
    fn reserve_space(&mut self, record: &StoreRecord, size: u64) -> Result<(), SyncError>;
    /// Makes one attempt to download the bundle, if there is space for it.
    fn attempt_download(&mut self, record: &StoreRecord, url: &SafeUrl) -> CallResult<DownloadResult>;
    /// Returns true once for each further MiB that a download has received; the attempts are then counted from zero.
    fn has_received_another_mebibyte(&mut self) -> bool;
    /// Discards the downloaded bytes.
    fn discard_download(&mut self);
    /// Removes gzip that is around a complete archive. Returns the path of the inner archive; `None` if there is none.
    fn remove_outer_gzip_layer(&mut self, received: &ReceivedBundle) -> Result<Option<PathBuf>, SyncError>;

    /// Verifies, seals and commits a bundle; `may_move` allows moving the file.
    fn ingest(
        &mut self,
        record: &mut StoreRecord,
        incoming_bundle: &IncomingBundle<'_>,
        may_move: bool,
    ) -> Result<IngestedBundle, SyncError>;
    /// Records that a check of `source` has found a version that is stored.
    fn note_offered_again(&mut self, record: &mut StoreRecord, source: &str, id: VersionId) -> Result<(), SyncError>;
    /// Activates the target version ([`StoreRecord::target_version`]) if the gate and the activation mode allow it, and
    /// prunes. `reported` is the version that the source has, or one that was imported since; `ingested` is the bundle
    /// that was ingested for the source's version, if any.
    fn activate_target_version(
        &mut self,
        record: &mut StoreRecord,
        reported: Option<VersionId>,
        ingested: Option<IngestedBundle>,
    ) -> Result<SyncReport, SyncError>;
}
