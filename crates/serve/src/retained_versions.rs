//! Replaced versions whose assets are still served. A page that is open in a browser may request assets of its own
//! version that the active version does not have. Assets whose name contains a hash of their content are served from
//! replaced versions for `server.assetGrace`. Nothing else of these versions is reachable.
//!
//! At the start of the daemon, the replaced versions are opened while the active version is served already
//! ([`super::OpeningGuard`]). A page that was
//! open before the start may request an asset at once: until all replaced versions are open, a request for a
//! possible asset of one of them waits for a limited time before it gets a 404 response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::timeout;

use docwharf_base::locks::Mutex;
use docwharf_base::model::version::VersionId;
use docwharf_site::lookup::find_exact;
use docwharf_site::media_types::{CacheClass, cache_class};
use docwharf_site::sealed_version::SealedVersion;

/// The largest number of replaced versions; the ones replaced last are retained. Each takes a file descriptor and the
/// memory of its index.
pub const MAX_RETAINED_VERSIONS: usize = 8;

/// The longest time that a request for an asset waits for versions to be opened. The browser shows the page meanwhile.
const ASSET_WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A replaced version, and when it expires.
#[derive(Debug, Clone)]
struct RetainedVersion {
    version: Arc<SealedVersion>,
    expires_at: Instant,
}

/// The replaced versions, the one replaced last first.
#[derive(Debug)]
pub struct RetainedVersions {
    grace: Duration,
    versions: ArcSwap<Vec<RetainedVersion>>,
    /// Serializes changes of the list.
    change_lock: Mutex<()>,
    /// Whether versions are being opened.
    is_opening: AtomicBool,
    /// Notifies of each version that was opened, and of the end of opening.
    opened: watch::Sender<()>,
}

impl RetainedVersions {
    /// Creates an empty list. Each version is retained for `grace` after it was replaced.
    pub fn new(grace: Duration) -> RetainedVersions {
        RetainedVersions {
            grace,
            versions: ArcSwap::default(),
            change_lock: Mutex::default(),
            is_opening: AtomicBool::new(false),
            opened: watch::Sender::default(),
        }
    }

    /// Adds a version that was replaced `age` ago, unless it has expired.
    pub fn retain(&self, version: Arc<SealedVersion>, age: Duration) {
        let now = Instant::now();
        // A grace period that the clock cannot represent is limited to a hundred years.
        let remaining = self.grace.saturating_sub(age).min(Duration::from_hours(24 * 36_500));
        if remaining.is_zero() {
            return;
        }
        self.change(|versions| {
            versions.retain(|retained| retained.version.id != version.id);
            versions.push(RetainedVersion { version, expires_at: now + remaining });
            versions.sort_by_key(|retained| std::cmp::Reverse(retained.expires_at));
            versions.truncate(MAX_RETAINED_VERSIONS);
        });
        self.opened.send_replace(());
    }

    /// Sets whether versions are being opened, and notifies the requests that wait for one of them of the end.
    pub(super) fn set_opening(&self, is_opening: bool) {
        self.is_opening.store(is_opening, Ordering::Release);
        if !is_opening {
            self.opened.send_replace(());
        }
    }

    /// Returns whether versions are being opened.
    pub fn is_opening(&self) -> bool {
        self.is_opening.load(Ordering::Acquire)
    }

    /// Returns whether a version that is not open yet may have a file at this decoded path, and no open one has.
    pub fn may_be_in_unopened_version(&self, path: &[u8]) -> bool {
        self.is_opening() && cache_class(path) == CacheClass::Immutable && self.find(path).is_none()
    }

    /// Waits until an open version has the file, all versions are open, or the time limit is reached.
    pub async fn wait_for(&self, path: &[u8]) {
        let mut opened = self.opened.subscribe();
        // The sender exists as long as `self`. A timeout is not an error: the request is then answered without the
        // version.
        let _ = timeout(ASSET_WAIT_TIMEOUT, opened.wait_for(|()| !self.may_be_in_unopened_version(path))).await;
    }

    /// Removes a version, because it is active again or is to be deleted.
    pub fn remove(&self, id: VersionId) {
        self.change(|versions| versions.retain(|retained| retained.version.id != id));
    }

    /// Removes expired versions.
    pub fn remove_expired(&self) {
        let now = Instant::now();
        if self.versions.load().iter().any(|retained| retained.expires_at <= now) {
            self.change(|versions| versions.retain(|retained| retained.expires_at > now));
        }
    }

    /// Returns the ids of the retained versions.
    pub(super) fn ids(&self) -> Vec<VersionId> {
        self.versions.load().iter().map(|retained| retained.version.id).collect()
    }

    /// Returns the file of a replaced version at exactly this decoded path, if its name contains a hash of its content.
    pub fn find(&self, path: &[u8]) -> Option<(Arc<SealedVersion>, usize)> {
        let versions = self.versions.load();
        if versions.is_empty() || cache_class(path) != CacheClass::Immutable {
            return None;
        }
        let now = Instant::now();
        let unexpired = versions.iter().filter(|retained| retained.expires_at > now);
        let mut candidates = unexpired.map(|retained| &retained.version);
        candidates.find_map(|version| find_exact(&**version, path).map(|file| (Arc::clone(version), file)))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<RetainedVersion>)) {
        let _guard = self.change_lock.lock();
        let mut versions = Vec::clone(&self.versions.load());
        change(&mut versions);
        self.versions.store(Arc::new(versions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpeningGuard, Site, SiteSettings};

    const ASSET: &[u8] = b"/_next/static/chunks/app-0ab12cd34e.js";

    /// Waits for the asset on a separate thread, and returns how long that took.
    fn spawn_waiter(site: &Arc<Site>) -> std::thread::JoinHandle<Duration> {
        let site = Arc::clone(site);
        std::thread::spawn(move || {
            let start = Instant::now();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(site.retained_versions.wait_for(ASSET));
            start.elapsed()
        })
    }

    // Regression: after a restart, assets of earlier versions were answered with 404 until these versions were open.
    #[test]
    fn an_asset_is_waited_for_while_earlier_versions_are_opened_and_not_for_ever() {
        let site = Site::new(SiteSettings::default());
        assert!(!site.retained_versions.may_be_in_unopened_version(ASSET), "nothing is being opened");
        let opening = OpeningGuard::start(&site);
        assert!(site.retained_versions.may_be_in_unopened_version(ASSET));
        assert!(
            !site.retained_versions.may_be_in_unopened_version(b"/only-v1")
                && !site.retained_versions.may_be_in_unopened_version(b"/missing.txt"),
            "these are not assets"
        );
        // No version with the asset is opened.
        assert!(spawn_waiter(&site).join().unwrap() >= ASSET_WAIT_TIMEOUT);
        let waiting = spawn_waiter(&site);
        drop(opening);
        waiting.join().unwrap();
        assert!(!site.retained_versions.may_be_in_unopened_version(ASSET));
    }
}
