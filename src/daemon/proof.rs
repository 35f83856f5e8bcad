//! What a start leaves for later: the index of what it shows is proved once it is served, far behind serving.

use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use docwharf_base::chain::Chain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;
use docwharf_agent::sync::{SyncError, open};

use super::agent::Agent;
use super::scrub::{Finding, Rotten};
use super::work::step_back;

/// Proves the index that is served; whoever shows versions is told if it is not what it should be.
pub(super) fn begin(site: &Site, found: mpsc::Sender<Finding>) {
    let Some(version) = site.current() else { return };
    let work = move || {
        step_back(1);
        if let Err(fault) = version.prove_index() {
            tracing::warn!("{fault}: version {}; it is made again", version.id.short());
            // Nobody waits when the program ends.
            let _ = found.blocking_send(Finding::Index(version.id));
        }
    };
    if let Err(error) = thread::Builder::new().name("docwharf-proof".to_owned()).spawn(work) {
        tracing::warn!("cannot start a thread to prove the index that is served: {error}");
    }
}

impl Agent {
    /// The index of a version is not what it should be, or was not and has been made again. Nothing is lost with it; if the
    /// version is shown, it is opened anew.
    pub(super) async fn open_anew(&mut self, id: VersionId) {
        if self.shown != Some(id) {
            return;
        }
        let (writer, effort) = (Arc::clone(&self.writer), self.config.intent.effort);
        let opened = spawn_blocking(move || open::open(&writer, id, &effort, false)).await;
        match opened.unwrap_or_else(|died| Err(SyncError::Broken(died.to_string()))) {
            Ok(version) => self.site.show(version),
            Err(error @ SyncError::DamagedVersion { .. }) => {
                if let Err(error) = self.writer.mark_suspect(id) {
                    tracing::warn!("{}", Chain(&error));
                }
                self.give_up(Rotten { id, why: Chain(&error).to_string() }).await;
            }
            Err(error) => tracing::error!("{}; it is served with the index that it was opened with", Chain(&error)),
        }
    }
}
