//! Replaced versions whose assets are still served. A page that is open in a browser may request assets of its own
//! version that the active version does not have. Assets whose name contains a hash of their content are served from
//! replaced versions for `server.assetGrace`. Nothing else of these versions is reachable.
//!
//! At a start, they are opened while the active version is served already ([`super::OpeningGuard`]). A page that was
//! open before the start may request an asset at once: until all versions are open, a request for what may be one of
//! their assets waits, for a moment at most, before it gets a 404 response.

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
    until: Instant,
}

/// The replaced versions, the one replaced last first.
#[derive(Debug)]
pub struct RetainedVersions {
    grace: Duration,
    kept: ArcSwap<Vec<RetainedVersion>>,
    /// Serializes changes of the list.
    change_lock: Mutex<()>,
    /// Whether versions are being opened.
    opening: AtomicBool,
    /// Notifies of each version that was opened, and of the end of opening.
    opened: watch::Sender<()>,
}

impl RetainedVersions {
    /// Creates an empty list. Each version is retained for `grace` after it was replaced.
    pub fn new(grace: Duration) -> RetainedVersions {
        RetainedVersions {
            grace,
            kept: ArcSwap::default(),
            change_lock: Mutex::default(),
            opening: AtomicBool::new(false),
            opened: watch::Sender::default(),
        }
    }

    /// Adds a version that was replaced `age` ago, unless it has expired.
    pub fn keep(&self, version: Arc<SealedVersion>, age: Duration) {
        let now = Instant::now();
        // A grace period that the clock cannot represent is limited to a hundred years.
        let left = self.grace.saturating_sub(age).min(Duration::from_hours(24 * 36_500));
        if left.is_zero() {
            return;
        }
        self.change(|kept| {
            kept.retain(|other| other.version.id != version.id);
            kept.push(RetainedVersion { version, until: now + left });
            kept.sort_by_key(|kept| std::cmp::Reverse(kept.until));
            kept.truncate(MAX_RETAINED_VERSIONS);
        });
        self.opened.send_replace(());
    }

    /// Sets whether versions are being opened, and notifies the requests that wait for one of them of the end.
    pub(super) fn set_opening(&self, is_opening: bool) {
        self.opening.store(is_opening, Ordering::Release);
        if !is_opening {
            self.opened.send_replace(());
        }
    }

    /// Returns whether versions are being opened.
    pub fn is_opening(&self) -> bool {
        self.opening.load(Ordering::Acquire)
    }

    /// Returns whether a version that is not open yet may have a file at this decoded path, and no open one has.
    pub fn may_have_pending(&self, address: &[u8]) -> bool {
        self.is_opening() && cache_class(address) == CacheClass::Immutable && self.find(address).is_none()
    }

    /// Waits until an open version has the file, all versions are open, or the time limit is reached.
    pub async fn wait_for(&self, address: &[u8]) {
        let mut opened = self.opened.subscribe();
        // The sender lives as long as `self`. A time-out is no error: the request is then answered without the version.
        let _ = timeout(ASSET_WAIT_TIMEOUT, opened.wait_for(|()| !self.may_have_pending(address))).await;
    }

    /// Removes a version, because it is active again or is to be deleted.
    pub fn remove(&self, id: VersionId) {
        self.change(|kept| kept.retain(|kept| kept.version.id != id));
    }

    /// Removes expired versions.
    pub fn remove_expired(&self) {
        let now = Instant::now();
        if self.kept.load().iter().any(|kept| kept.until <= now) {
            self.change(|kept| kept.retain(|kept| kept.until > now));
        }
    }

    /// Returns the ids of the retained versions.
    pub(super) fn ids(&self) -> Vec<VersionId> {
        self.kept.load().iter().map(|kept| kept.version.id).collect()
    }

    /// Returns the file of a replaced version at exactly this decoded path, if its name contains a hash of its content.
    pub fn find(&self, address: &[u8]) -> Option<(Arc<SealedVersion>, usize)> {
        let kept = self.kept.load();
        if kept.is_empty() || cache_class(address) != CacheClass::Immutable {
            return None;
        }
        let now = Instant::now();
        let living = kept.iter().filter(|kept| kept.until > now);
        let mut versions = living.map(|kept| &kept.version);
        versions.find_map(|version| find_exact(&**version, address).map(|file| (Arc::clone(version), file)))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<RetainedVersion>)) {
        let _turn = self.change_lock.lock();
        let mut kept = Vec::clone(&self.kept.load());
        change(&mut kept);
        self.kept.store(Arc::new(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpeningGuard, Site, SiteSettings};

    const ASSET: &[u8] = b"/_next/static/chunks/app-0ab12cd34e.js";

    /// Waits for the asset in a thread of its own, and returns how long that took.
    fn waiter(site: &Arc<Site>) -> std::thread::JoinHandle<Duration> {
        let site = Arc::clone(site);
        std::thread::spawn(move || {
            let begun = Instant::now();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(site.retained_versions.wait_for(ASSET));
            begun.elapsed()
        })
    }

    #[test]
    fn an_asset_is_waited_for_while_earlier_versions_are_opened_and_not_for_ever() {
        let site = Site::new(SiteSettings::default());
        assert!(!site.retained_versions.may_have_pending(ASSET), "nothing is being opened");
        let opening = OpeningGuard::start(&site);
        assert!(site.retained_versions.may_have_pending(ASSET));
        assert!(
            !site.retained_versions.may_have_pending(b"/only-v1")
                && !site.retained_versions.may_have_pending(b"/missing.txt"),
            "no asset"
        );
        // No version with the asset is opened.
        assert!(waiter(&site).join().unwrap() >= ASSET_WAIT_TIMEOUT);
        let waiting = waiter(&site);
        drop(opening);
        waiting.join().unwrap();
        assert!(!site.retained_versions.may_have_pending(ASSET));
    }
}
