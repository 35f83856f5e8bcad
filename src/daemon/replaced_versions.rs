//! Opens the versions that were replaced before this process started, so that their hashed assets are served for the
//! rest of `server.assetGrace`. The site is served first; only a request for what may be such an asset waits until
//! these versions are open.

use std::sync::Arc;
use std::time::Duration;

use docwharf_agent::store::VersionStore;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::open;
use docwharf_base::clock::now_unix_seconds;
use docwharf_base::error_chain::error_message;
use docwharf_serve::retained_versions;
use docwharf_serve::{OpeningGuard, Site};

/// Interval between releases of expired versions. An expired version is not served; until it is released, it only takes
/// memory.
const RELEASE_INTERVAL: Duration = Duration::from_mins(1);

/// Opens the replaced versions in the background. Releases a version before the store removes it, and expired ones at
/// intervals. The task ends with the runtime.
///
/// `opening` must have begun before the sockets accepted connections: until it is dropped, requests for assets wait.
pub(super) fn retain_replaced_versions(writer: &StoreWriter, site: &Arc<Site>, opening: OpeningGuard) {
    let (releasing_site, store) = (Arc::clone(site), writer.store().clone());
    writer.before_removing(move |id| releasing_site.release_version(id));
    let site = Arc::clone(site);
    tokio::spawn(async move {
        let site_to_fill = Arc::clone(&site);
        let _ = tokio::task::spawn_blocking(move || {
            open_replaced_versions(&store, &site_to_fill);
            drop(opening);
        })
        .await;
        loop {
            tokio::time::sleep(RELEASE_INTERVAL).await;
            site.release_expired_versions();
        }
    });
}

/// Opens the versions that were replaced within the grace period, the one replaced last first. One that cannot be
/// opened is skipped: nothing else that is served depends on it.
fn open_replaced_versions(store: &VersionStore, site: &Site) {
    let grace = site.asset_grace();
    if grace.is_zero() {
        return;
    }
    let now = now_unix_seconds();
    let mut replaced = store.replaced_versions();
    replaced.retain(|&(id, _)| store.has_undamaged(id));
    replaced.sort_by_key(|&(_, until)| std::cmp::Reverse(until));
    for (id, until) in replaced.into_iter().take(retained_versions::MAX_RETAINED_VERSIONS) {
        // If the clock was set back since then, the version counts as replaced just now.
        let age = Duration::from_secs(u64::try_from(now - until).unwrap_or(0));
        if age >= grace {
            break;
        }
        match open::open_read_only(store, id) {
            Ok(version) => site.retain_version(version, age),
            Err(error) => {
                tracing::debug!("version {} is not retained for its assets: {}", id.short(), error_message(&error));
            }
        }
    }
}
