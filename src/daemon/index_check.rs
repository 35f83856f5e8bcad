//! Verifies the index of the served version after a start. The start itself checks only what takes no time, so that
//! serving begins at once; the rest is verified afterwards, at low priority.

use std::thread;

use tokio::sync::mpsc;

use docwharf_serve::Site;

use super::scrub::VersionFault;
use super::task::lower_priority_to_background;

/// Verifies the index of the version that `site` serves, on a separate thread. Sends [`VersionFault::WrongIndex`] if
/// the index is wrong.
pub(super) fn verify_index(site: &Site, faults: mpsc::Sender<VersionFault>) {
    let Some(version) = site.served_version() else { return };
    let task = move || {
        lower_priority_to_background(1);
        if let Err(fault) = version.verify_index() {
            tracing::warn!("{fault}: version {}; the index is rebuilt", version.id.short());
            // There is no receiver any more when the program ends.
            let _ = faults.blocking_send(VersionFault::WrongIndex(version.id));
        }
    };
    if let Err(error) = thread::Builder::new().name("docwharf-verify".to_owned()).spawn(task) {
        tracing::warn!("cannot start a thread to verify the served index: {error}");
    }
}
