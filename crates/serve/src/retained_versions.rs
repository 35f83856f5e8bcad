//! Replaced versions whose assets are still served. A page that is open in a browser may request assets of its own
//! version that the active version does not have. Files of the class [`CacheClass::Immutable`] (below `_next/static/`,
//! or with a part of the name that looks like a hash) are served from replaced versions for `server.assetGrace`.
//! Nothing else of these versions is reachable.
//!
//! At the start of the daemon, the replaced versions are opened while the active version is served already
//! ([`super::OpeningGuard`]). A page that was open before the start may request an asset at once: until all replaced
//! versions are open, a request for a possible asset of one of them waits for a limited time before it gets a 404
//! response.

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

    /// Sets whether versions are being opened; at the end, wakes the requests that wait.
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

    /// Returns the file of a replaced version at exactly this decoded path, if its class is [`CacheClass::Immutable`].
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
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use docwharf_base::clock::now_unix_seconds;
    use docwharf_site::external::csp::{CspFacts, CspPreset, CspSettings};
    use docwharf_site::rules::{RuleDraft, RuleSet, netlify_files};

    use super::*;
    use crate::conditional::ContentDates;
    use crate::csp_header::VersionCsp;
    use crate::test_versions::version_with_files;
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
    fn a_request_for_a_missing_asset_waits_for_earlier_versions_until_a_timeout() {
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

    const GRACE: Duration = Duration::from_hours(1);

    /// Creates a version with one asset, whose name contains `n`.
    fn version(n: u64) -> Arc<SealedVersion> {
        Arc::new(version_with_files(&[(asset(n).as_str(), "x")], 0))
    }

    fn asset(n: u64) -> String {
        format!("_next/static/{n}.js")
    }

    fn is_found(versions: &RetainedVersions, n: u64) -> bool {
        versions.find(asset(n).as_bytes()).is_some()
    }

    #[test]
    fn the_most_recently_replaced_versions_are_retained_in_any_insertion_order() {
        let all: Vec<Arc<SealedVersion>> = (0..=MAX_RETAINED_VERSIONS as u64 + 1).map(version).collect();
        let expected: Vec<VersionId> = all.iter().take(MAX_RETAINED_VERSIONS).map(|version| version.id).collect();
        let in_order: Vec<usize> = (0..all.len()).collect();
        let backwards: Vec<usize> = (0..all.len()).rev().collect();
        for order in [in_order, backwards] {
            let versions = RetainedVersions::new(GRACE);
            for &n in &order {
                // Version `n` was replaced `n` seconds ago.
                versions.retain(Arc::clone(&all[n]), Duration::from_secs(n as u64));
            }
            assert_eq!(versions.ids(), expected, "{order:?}");
            // A version that is replaced once more is not retained twice.
            versions.retain(Arc::clone(&all[1]), Duration::ZERO);
            assert_eq!(versions.ids().iter().filter(|&&id| id == all[1].id).count(), 1, "{order:?}");
            assert_eq!(versions.ids().len(), MAX_RETAINED_VERSIONS, "{order:?}");
        }
    }

    #[test]
    fn a_version_ends_with_its_grace_time_and_is_then_released() {
        let versions = RetainedVersions::new(GRACE);
        versions.retain(version(1), GRACE);
        versions.retain(version(2), GRACE.saturating_add(GRACE));
        assert!(versions.ids().is_empty(), "replaced too long ago");
        versions.retain(version(1), GRACE.saturating_sub(Duration::from_nanos(1)));
        versions.retain(version(2), Duration::ZERO);
        let retained_at = Instant::now();
        while retained_at.elapsed() <= Duration::from_nanos(1) {}
        assert_eq!((is_found(&versions, 1), is_found(&versions, 2)), (false, true));
        assert_eq!(versions.ids().len(), 2);
        versions.remove_expired();
        assert_eq!(versions.ids(), [version(2).id]);
        assert!(is_found(&versions, 2));
        let for_ever = RetainedVersions::new(Duration::MAX);
        for_ever.retain(version(1), Duration::ZERO);
        assert!(is_found(&for_ever, 1), "also for a grace time that the clock cannot represent");
    }

    #[test]
    fn an_asset_request_waits_only_until_the_version_with_the_asset_is_open() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _context = runtime.enter();
        let versions = RetainedVersions::new(GRACE);
        versions.set_opening(true);
        let path = asset(1);
        // The timer does not run, because nothing runs the runtime.
        let mut waiting = pin!(versions.wait_for(path.as_bytes()));
        let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        versions.retain(version(2), Duration::ZERO);
        assert_eq!(poll(), Poll::Pending, "another version is open");
        versions.retain(version(1), Duration::ZERO);
        assert_eq!(poll(), Poll::Ready(()), "the other versions are still being opened");
    }

    /// Creates a site that serves version `n`.
    fn site_with_version(n: u64) -> Arc<Site> {
        let site = Site::new(SiteSettings::default());
        set_version(&site, n);
        site
    }

    fn set_version(site: &Site, n: u64) {
        site.set_version(version_with_files(&[(asset(n).as_str(), "x")], 0));
    }

    #[test]
    fn the_active_version_is_not_retained_as_well() {
        let site = site_with_version(1);
        let [one, two] = [version(1).id, version(2).id];
        site.retain_version(version_with_files(&[(asset(1).as_str(), "x")], 0), Duration::ZERO);
        assert_eq!(site.retained_versions.ids(), [], "it has become active again while it was opened");
        set_version(&site, 2);
        assert_eq!(site.retained_versions.ids(), [one]);
        set_version(&site, 1);
        assert_eq!(site.retained_versions.ids(), [two], "a rollback");
        set_version(&site, 1);
        assert_eq!(site.retained_versions.ids(), [two], "it was opened again from another image");
        site.release_version(two);
        assert_eq!(site.retained_versions.ids(), []);
    }

    #[test]
    fn damage_is_reported_of_each_version_that_a_response_may_be_from() {
        let site = site_with_version(1);
        set_version(&site, 2);
        set_version(&site, 3);
        site.report_damage("a test");
        let report = pin!(site.wait_for_damage()).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(report, Poll::Ready([1, 2, 3].map(|n| version(n).id).into()));
    }

    #[test]
    fn content_dates_change_only_if_a_version_or_rule_change_can_change_responses() {
        let site = site_with_version(1);
        let rules = |text: &str| {
            let mut draft = RuleDraft::default();
            netlify_files::read_redirects(text, "rules", &mut draft);
            Arc::new(RuleSet::new(draft))
        };
        // The same version may be opened again, and the configuration may be read again.
        set_version(&site, 1);
        site.set_rules(rules(""));
        assert_eq!(site.content_dates(5), ContentDates::never_replaced(5));
        let before = now_unix_seconds();
        set_version(&site, 2);
        let dates = site.content_dates(5);
        assert!(dates.replaced.is_some_and(|second| second >= before) && dates.rerouted.is_none(), "{dates:?}");
        site.set_rules(rules("# moved\n"));
        assert_eq!(site.content_dates(5).rerouted, None);
        site.set_rules(rules("/a /b\n"));
        let dates = site.content_dates(5);
        assert!(dates.rerouted.is_some_and(|second| second >= before), "{dates:?}");
    }

    #[test]
    fn retained_versions_and_csp_policies_invalidate_cached_responses() {
        let site = site_with_version(1);
        let generation = site.generation();
        site.retain_version(version_with_files(&[(asset(2).as_str(), "x")], 0), Duration::ZERO);
        let with_asset = site.generation();
        assert!(with_asset > generation, "an asset that was missing");
        let settings = CspSettings { preset: CspPreset::Connected, ancestors: None, max_bytes: 3072 };
        let csp = VersionCsp::new(version(1).id, CspFacts::default(), &settings);
        site.set_csp(csp);
        assert!(site.generation() > with_asset, "the policies of the version");
    }
}
