//! Verifies the index of the served version after a start. The start itself checks only what takes no time, so that
//! serving begins at once; the rest is verified afterwards, at low priority.

use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use docwharf_agent::sync::{SyncError, open};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;

use super::agent::Agent;
use super::scrub::{DamagedVersion, VersionFault};
use super::task::lower_priority;

/// Verifies the index of the version that `site` serves, on a thread of its own. Sends [`VersionFault::WrongIndex`] if
/// the index is wrong.
pub(super) fn verify_index(site: &Site, found: mpsc::Sender<VersionFault>) {
    let Some(version) = site.current() else { return };
    let work = move || {
        lower_priority(1);
        if let Err(fault) = version.verify_index() {
            tracing::warn!("{fault}: version {}; it is made again", version.id.short());
            // The receiver is gone when the program ends.
            let _ = found.blocking_send(VersionFault::WrongIndex(version.id));
        }
    };
    if let Err(error) = thread::Builder::new().name("docwharf-proof".to_owned()).spawn(work) {
        tracing::warn!("cannot start a thread to prove the index that is served: {error}");
    }
}

impl Agent {
    /// Opens a version again if it is served, because its index was wrong or has been rebuilt. No content is lost with
    /// an index.
    pub(super) async fn reopen_version(&mut self, id: VersionId) {
        if self.served_version != Some(id) {
            return;
        }
        let (writer, effort) = (Arc::clone(&self.writer), self.config.intent.effort);
        let opened = spawn_blocking(move || open::open(&writer, id, &effort, false)).await;
        match opened.unwrap_or_else(|died| Err(SyncError::Broken(died.to_string()))) {
            Ok(version) => self.site.set_version(version),
            Err(error @ SyncError::DamagedVersion { .. }) => {
                if let Err(error) = self.writer.mark_suspect(id) {
                    tracing::warn!("{}", ErrorChain(&error));
                }
                self.handle_damage(DamagedVersion { id, why: ErrorChain(&error).to_string() }).await;
            }
            Err(error) => {
                tracing::error!("{}; it is served with the index that it was opened with", ErrorChain(&error));
            }
        }
    }
}
