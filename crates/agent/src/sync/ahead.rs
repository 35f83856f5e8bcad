//! Sealing a bundle while it arrives: a tar is read from its begin to its end, so what has come of it is decoded, proved and
//! compressed while the rest is on its way. A ZIP has its directory at the end and is sealed when it is whole.
//!
//! This only saves time. What is sealed ahead counts if the very bytes that were read have arrived whole; if they are
//! forgotten (another file under the same link, a bundle that is too large, a sync that ends), so is this. It lies in a stage of
//! its own, which goes with it, and before anything else has to go for want of room.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use docwharf_base::chain::Chain;
use docwharf_base::directory::Directory;
use docwharf_base::growth::Growth;
use crate::fetch::Coming;
use docwharf_site::seal::{self, Effort, Meter, SealError, Sealing, Space};
use crate::store::keeper::Keeper;
use crate::store::space::Allowance;
use crate::store::writer::{Stage, Writer};

use super::Intent;

/// A bundle of which so many bytes are still to come is worth a thread.
const WORTH: u64 = 256 * 1024;
/// There must be room for so many times the bundle, its download not counted: a disk that is nearly full is left to what has
/// to be on it.
const ROOM: u64 = 3;

/// A bundle that is being sealed while it arrives.
#[derive(Debug)]
pub(super) struct Ahead {
    path: PathBuf,
    /// The directory of that, and its name there.
    place: (Directory, &'static str),
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

/// A bundle that was sealed while it arrived, and has arrived whole.
#[derive(Debug)]
pub struct Done {
    /// Where.
    pub(super) stage: Stage,
    /// What.
    pub(super) sealing: Sealing,
}

/// Whether so many bytes can be written beside what must stay free; yes where nobody knows.
fn has_room(writer: &Writer, allowance: &Allowance, bytes: u64) -> bool {
    let target = bytes.saturating_add(allowance.min_free.unwrap_or(0));
    writer.free().is_ok_and(|free| free.is_none_or(|free| free >= target))
}

impl Ahead {
    /// Begins, if that is worth it.
    pub(super) fn begin(writer: &Writer, intent: &Intent, coming: &Coming<'_>) -> Option<Ahead> {
        let wanted = coming.whole.saturating_mul(ROOM).saturating_add(coming.more);
        if coming.more < WORTH || !has_room(writer, &intent.allowance, wanted) {
            return None;
        }
        let stage = writer.stage().ok()?;
        let (path, growth) = (coming.path.clone(), Arc::clone(coming.growth));
        let (directory, name) = (coming.place.0.clone(), coming.place.1);
        let work = {
            let (directory, growth) = (directory.clone(), Arc::clone(&growth));
            let space = Space::Dir(stage.directory().clone());
            let effort = Effort { durable: true, take: false, ..intent.effort };
            // Whoever watches is shown the download: this waits for that.
            move || seal::seal_arriving((&directory, name.as_ref()), &growth, &space, &effort, &Meter::default())
        };
        let thread = thread::Builder::new().name("docwharf-ahead".to_owned()).spawn(work).ok()?;
        Some(Ahead { path, place: (directory, name), worker: Worker { growth, thread: Some(thread) }, stage })
    }

    /// The same, if it is of what is about to go on arriving, and as long as there is room for the rest of that beside it.
    pub(super) fn goes_on(self, writer: &Writer, intent: &Intent, coming: &Coming<'_>) -> Option<Ahead> {
        Some(self)
            .filter(|ahead| Arc::ptr_eq(&ahead.worker.growth, coming.growth))
            .and_then(|ahead| ahead.gives_way(writer, intent, coming.more))
    }

    /// The same, if there is room for so many bytes beside it: nothing has to go for what only saves time.
    pub(super) fn gives_way(self, writer: &Writer, intent: &Intent, more: u64) -> Option<Ahead> {
        Some(self).filter(|_| has_room(writer, &intent.allowance, more))
    }

    /// What has become of it, when `path` has arrived whole. None if that was not what it has read, or if it has to be sealed as
    /// if nothing had been done: it fails again then, if it has to.
    pub(super) fn finish(mut self, path: &Path) -> Option<Done> {
        if self.path != path || !self.worker.growth.is_whole() {
            return None;
        }
        let sealed = self.worker.wait()?.inspect_err(|error| tracing::debug!("sealing ahead: {}", Chain(error)));
        let sealing = sealed.ok()??;
        let length = self.place.0.metadata_of(self.place.1).ok()?.len();
        let is_all = sealing.proven.archive.is_some_and(|(_, read)| read == length);
        is_all.then_some(Done { stage: self.stage, sealing })
    }
}

impl Worker {
    fn wait(&mut self) -> Option<Result<Option<Sealing>, SealError>> {
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
