//! Sealing a bundle while it arrives: a tar is read from its begin to its end, so what has come of it is decoded, proved and
//! compressed while the rest is on its way. A ZIP has its directory at the end and is sealed when it is whole.
//!
//! This only saves time. What is sealed ahead counts if the very bytes that were read have arrived whole; if they are
//! forgotten (another file under the same link, a bundle that is too large, a sync that ends), so is this. It lies in a stage of
//! its own, which goes with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::base::chain::Chain;
use crate::base::growth::Growth;
use crate::fetch::Coming;
use crate::seal::{self, Effort, Meter, SealError, Sealing, Space};
use crate::store::keeper::Keeper;
use crate::store::writer::{Stage, Writer};

/// A bundle of which so many bytes are still to come is worth a thread.
const WORTH: u64 = 256 * 1024;
/// There must be room for so many times the bundle, its download not counted: a disk that is nearly full is left to what has
/// to be on it.
const ROOM: u64 = 3;

/// A bundle that is being sealed while it arrives.
#[derive(Debug)]
pub struct Ahead {
    path: PathBuf,
    /// Goes before the stage in which it works.
    worker: Worker,
    stage: Stage,
}

/// The thread that seals. When this goes, it has ended.
#[derive(Debug)]
struct Worker {
    growth: Arc<Growth>,
    /// None once it has been waited for.
    thread: Option<JoinHandle<Result<Option<Sealing>, SealError>>>,
}

impl Ahead {
    /// Begins, if that is worth it.
    pub(super) fn begin(writer: &Writer, effort: &Effort, coming: &Coming<'_>) -> Option<Ahead> {
        let has_room = || {
            let wanted = coming.whole.saturating_mul(ROOM).saturating_add(coming.more);
            writer.free().is_ok_and(|free| free.is_none_or(|free| free >= wanted))
        };
        if coming.more < WORTH || !has_room() {
            return None;
        }
        let stage = writer.stage().ok()?;
        let (path, growth) = (coming.path.clone(), Arc::clone(coming.growth));
        let work = {
            let (path, growth, space) = (path.clone(), Arc::clone(&growth), Space::Dir(stage.dir().to_owned()));
            let effort = Effort { durable: true, take: false, ..*effort };
            // What it has done shows when it is waited for, or the download would seem to be over.
            move || seal::seal_arriving(&path, &growth, &space, &effort, &Meter::default())
        };
        let thread = thread::Builder::new().name("docwharf-ahead".to_owned()).spawn(work).ok()?;
        Some(Ahead { path, worker: Worker { growth, thread: Some(thread) }, stage })
    }

    /// Whether this is what is about to go on arriving.
    pub(super) fn is_of(&self, coming: &Coming<'_>) -> bool {
        Arc::ptr_eq(&self.worker.growth, coming.growth)
    }

    /// What has become of it, when `path` has arrived whole. None if this was another file, or if that has to be sealed as if
    /// nothing had been done: it fails again then, if it has to.
    pub(super) fn finish(mut self, path: &Path) -> Option<(Stage, Sealing)> {
        if self.path != path {
            return None;
        }
        let sealed = self.worker.wait()?.inspect_err(|error| tracing::debug!("sealing ahead: {}", Chain(error)));
        Some((self.stage, sealed.ok()??))
    }
}

impl Worker {
    fn wait(&mut self) -> Option<Result<Option<Sealing>, SealError>> {
        // If it has died of a panic, the same happens again where it is told.
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
