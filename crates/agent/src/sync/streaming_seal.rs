//! Streaming seal: seals a bundle while it is downloaded. A tar is read from its beginning to its end, so the part that
//! has arrived is decoded, verified and compressed while the rest is on its way. A ZIP has its directory at the end and
//! is sealed once it is complete.
//!
//! This only saves time. The result counts if the very bytes that were read have arrived completely; if the download is
//! discarded (another file under the same link, a bundle that is too large, a sync that ends), the result is discarded,
//! too. It lies in a stage of its own, which is removed with it, and before anything else is removed for lack of space.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::fetch::ExpectedBundle;
use crate::store::operations::StoreOperations;
use crate::store::space::SpaceLimits;
use crate::store::version_stage::VersionStage;
use crate::store::writer::StoreWriter;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::growing_file::WriteProgress;
use docwharf_site::seal::{self, ImageSpace, SealError, SealOptions, SealProgress, SealedBundle};

use super::SyncIntent;

/// Bytes still to come for which a thread is worth its cost.
const MIN_REMAINING_BYTES: u64 = 256 * 1024;
/// Disk space needed, as a multiple of the bundle's size, besides its download: a nearly full disk is left to the data
/// that has to be on it.
const SPACE_FACTOR: u64 = 3;

/// A bundle that is being sealed while it is downloaded.
#[derive(Debug)]
pub(super) struct StreamingSeal {
    path: PathBuf,
    /// The directory of the download, and its name there.
    place: (Directory, &'static str),
    /// Declared before the stage in which it works, so that it is dropped first.
    worker: Worker,
    stage: VersionStage,
}

/// The sealing thread. Dropping this waits for its end.
#[derive(Debug)]
struct Worker {
    growth: Arc<WriteProgress>,
    /// None once it has been joined.
    thread: Option<JoinHandle<Result<Option<SealedBundle>, SealError>>>,
}

/// A bundle that was sealed while it was downloaded, and has arrived completely.
#[derive(Debug)]
pub struct StreamedSeal {
    /// The stage with the image.
    pub(super) stage: VersionStage,
    /// The sealed content.
    pub(super) sealing: SealedBundle,
}

/// Whether this many bytes can be written besides those that must stay free; true where the free space is unknown.
fn has_room(writer: &StoreWriter, allowance: &SpaceLimits, bytes: u64) -> bool {
    let target = bytes.saturating_add(allowance.min_free.unwrap_or(0));
    writer.free().is_ok_and(|free| free.is_none_or(|free| free >= target))
}

impl StreamingSeal {
    /// Starts sealing, if that is worth it.
    pub(super) fn begin(
        writer: &StoreWriter,
        intent: &SyncIntent,
        coming: &ExpectedBundle<'_>,
    ) -> Option<StreamingSeal> {
        let wanted = coming.size.saturating_mul(SPACE_FACTOR).saturating_add(coming.remaining);
        if coming.remaining < MIN_REMAINING_BYTES || !has_room(writer, &intent.allowance, wanted) {
            return None;
        }
        let stage = writer.stage().ok()?;
        let (path, growth) = (coming.path.clone(), Arc::clone(coming.growth));
        let (directory, name) = (coming.place.0.clone(), coming.place.1);
        let work = {
            let (directory, growth) = (directory.clone(), Arc::clone(&growth));
            let space = ImageSpace::Dir(stage.directory().clone());
            let effort = SealOptions { durable: true, may_move: false, ..intent.effort };
            // The download is displayed; this waits for it, so its own progress is not shown.
            move || seal::seal_arriving((&directory, name.as_ref()), &growth, &space, &effort, &SealProgress::default())
        };
        let thread = thread::Builder::new().name("docwharf-ahead".to_owned()).spawn(work).ok()?;
        Some(StreamingSeal { path, place: (directory, name), worker: Worker { growth, thread: Some(thread) }, stage })
    }

    /// Returns this if it seals the download that is about to continue, and there is space for the rest of that; else
    /// discards it.
    pub(super) fn goes_on(
        self,
        writer: &StoreWriter,
        intent: &SyncIntent,
        coming: &ExpectedBundle<'_>,
    ) -> Option<StreamingSeal> {
        Some(self)
            .filter(|ahead| Arc::ptr_eq(&ahead.worker.growth, coming.growth))
            .and_then(|ahead| ahead.gives_way(writer, intent, coming.remaining))
    }

    /// Returns this if there is space for `more` bytes besides it; else discards it. Nothing is pruned for what only
    /// saves time.
    pub(super) fn gives_way(self, writer: &StoreWriter, intent: &SyncIntent, more: u64) -> Option<StreamingSeal> {
        Some(self).filter(|_| has_room(writer, &intent.allowance, more))
    }

    /// Waits for the result, once `path` has arrived completely. None if that is not the file that was read, or if
    /// sealing failed: then the bundle is sealed anew, and fails again if it has to.
    pub(super) fn finish(mut self, path: &Path) -> Option<StreamedSeal> {
        if self.path != path || !self.worker.growth.is_complete() {
            return None;
        }
        let sealed = self.worker.wait()?.inspect_err(|error| tracing::debug!("sealing ahead: {}", ErrorChain(error)));
        let sealing = sealed.ok()??;
        let length = self.place.0.metadata_of(self.place.1).ok()?.len();
        let is_all = sealing.proven.archive.is_some_and(|(_, read)| read == length);
        is_all.then_some(StreamedSeal { stage: self.stage, sealing })
    }
}

impl Worker {
    fn wait(&mut self) -> Option<Result<Option<SealedBundle>, SealError>> {
        self.thread.take()?.join().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.growth.give_up();
            let _ = self.wait();
        }
    }
}
