//! Streaming seal: seals a bundle while it is downloaded. A tar is read from its beginning to its end, so the part that
//! has arrived is decoded, verified and compressed while the rest is downloaded. A ZIP has its directory at the end and
//! is sealed once it is complete.
//!
//! This only saves time. The result is used if the bytes that were read are the whole download; if the download is
//! discarded (another file under the same link, a bundle that is too large, a sync that ends), the result is discarded,
//! too. It is a separate incoming version, which is removed before any other data when disk space is scarce.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::fetch::ExpectedBundle;
use crate::store::incoming_version::IncomingVersion;
use crate::store::operations::StoreOperations;
use crate::store::space::SpaceLimits;
use crate::store::writer::StoreWriter;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::growing_file::WriteProgress;
use docwharf_site::seal::{self, ImageTarget, SealError, SealOptions, SealProgress, SealedBundle};

use super::SyncSettings;

/// Lower bound of the bytes still to be received for which a thread is worth its cost.
const MIN_REMAINING_BYTES: u64 = 256 * 1024;
/// Disk space needed besides the download, as a multiple of the bundle's size: on a nearly full disk the bundle is
/// sealed only after its download.
const SPACE_FACTOR: u64 = 3;

/// A bundle that is being sealed while it is downloaded.
#[derive(Debug)]
pub(super) struct StreamingSeal {
    path: PathBuf,
    /// The directory of the download, and its name there.
    directory_entry: (Directory, &'static str),
    /// Declared before the incoming version that it writes, so that it is dropped first.
    worker: Worker,
    incoming: IncomingVersion,
}

/// The sealing thread. Dropping a `Worker` waits until the thread has ended.
#[derive(Debug)]
struct Worker {
    write_progress: Arc<WriteProgress>,
    /// None once it has been joined.
    thread: Option<JoinHandle<Result<Option<SealedBundle>, SealError>>>,
}

/// A bundle that has arrived completely and is sealed, but not committed. It was sealed while it was downloaded, or
/// afterwards.
#[derive(Debug)]
pub struct SealedIncomingBundle {
    /// The incoming version with the image.
    pub(super) incoming: IncomingVersion,
    /// The sealed content.
    pub(super) bundle: SealedBundle,
}

/// Whether this many bytes can be written besides those that must stay free; true where the free space is unknown.
fn has_space(writer: &StoreWriter, space_limits: &SpaceLimits, bytes: u64) -> bool {
    let target = bytes.saturating_add(space_limits.min_free.unwrap_or(0));
    writer.free_bytes().is_ok_and(|free| free.is_none_or(|free| free >= target))
}

impl StreamingSeal {
    /// Starts to seal the expected bundle, if that is worth its cost.
    pub(super) fn start(
        writer: &StoreWriter,
        sync_settings: &SyncSettings,
        expected: &ExpectedBundle<'_>,
    ) -> Option<StreamingSeal> {
        let needed = expected.size.saturating_mul(SPACE_FACTOR).saturating_add(expected.remaining);
        if expected.remaining < MIN_REMAINING_BYTES || !has_space(writer, &sync_settings.space_limits, needed) {
            return None;
        }
        let incoming = writer.begin_incoming_version().ok()?;
        let (path, write_progress) = (expected.path.clone(), Arc::clone(expected.write_progress));
        let (directory, name) = (expected.directory_entry.0.clone(), expected.directory_entry.1);
        let seal_download = {
            let (directory, write_progress) = (directory.clone(), Arc::clone(&write_progress));
            let target = ImageTarget::Dir(incoming.directory().clone());
            let seal_options = SealOptions { durable: true, may_move: false, ..sync_settings.seal_options };
            // Sealing waits for the download, whose progress is displayed; the progress of sealing is not displayed.
            move || {
                seal::seal_growing_archive(
                    (&directory, name.as_ref()),
                    &write_progress,
                    &target,
                    &seal_options,
                    &SealProgress::default(),
                )
            }
        };
        let thread = thread::Builder::new().name("docwharf-seal".to_owned()).spawn(seal_download).ok()?;
        Some(StreamingSeal {
            path,
            directory_entry: (directory, name),
            worker: Worker { write_progress, thread: Some(thread) },
            incoming,
        })
    }

    /// Returns the streaming seal if it seals the download that is about to continue and the rest of the download fits
    /// on the disk; otherwise discards it.
    pub(super) fn retain_for_download(
        self,
        writer: &StoreWriter,
        sync_settings: &SyncSettings,
        expected: &ExpectedBundle<'_>,
    ) -> Option<StreamingSeal> {
        Some(self)
            .filter(|sealing| Arc::ptr_eq(&sealing.worker.write_progress, expected.write_progress))
            .and_then(|sealing| sealing.retain_if_space(writer, sync_settings, expected.remaining))
    }

    /// Returns the streaming seal if `bytes` more fit on the disk; otherwise discards it. No version is pruned to make
    /// space, because a streaming seal only saves time.
    pub(super) fn retain_if_space(
        self,
        writer: &StoreWriter,
        sync_settings: &SyncSettings,
        bytes: u64,
    ) -> Option<StreamingSeal> {
        Some(self).filter(|_| has_space(writer, &sync_settings.space_limits, bytes))
    }

    /// Waits for the result, once `path` has arrived completely. None if another file was sealed, or if sealing failed:
    /// the bundle is then sealed again, which reports the error.
    pub(super) fn finish(mut self, path: &Path) -> Option<SealedIncomingBundle> {
        if self.path != path || !self.worker.write_progress.is_complete() {
            return None;
        }
        let result = self
            .worker
            .join()?
            .inspect_err(|error| tracing::debug!("sealing during the download: {}", ErrorChain(error)));
        let bundle = result.ok()??;
        let length = self.directory_entry.0.metadata_of(self.directory_entry.1).ok()?.len();
        let is_complete = bundle.verified.archive.is_some_and(|(_, bytes)| bytes == length);
        is_complete.then_some(SealedIncomingBundle { incoming: self.incoming, bundle })
    }
}

impl Worker {
    fn join(&mut self) -> Option<Result<Option<SealedBundle>, SealError>> {
        self.thread.take()?.join().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.write_progress.mark_failed();
            let _ = self.join();
        }
    }
}
