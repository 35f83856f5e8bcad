//! Versions that were replaced a while ago. A page that is still open in somebody's browser belongs to one of them, and may
//! yet ask for assets that the active version has not: those whose names say what they hold go on being answered, for
//! `server.assetGrace`. Nothing else of them is reachable.
//!
//! At a start they are opened while the site is served already ([`Opening`]). A page that was open before it may ask at
//! once: for so long a request for what may be theirs waits, for a moment at most, instead of being told that there is none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::timeout;

use docwharf_base::model::version::VersionId;
use docwharf_site::lookup::exact;
use docwharf_site::sealed::Sealed;
use docwharf_site::types::{CacheClass, cache_class};

use super::Site;

/// Each has a descriptor and its index in memory, so no more than this many are kept: the ones replaced last.
pub const MOST: usize = 8;

/// How long a request for an asset waits at most for versions to be opened. A browser shows the page meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// A replaced version.
#[derive(Debug, Clone)]
struct Kept {
    version: Arc<Sealed>,
    until: Instant,
}

/// Replaced versions, the one replaced last first.
#[derive(Debug)]
pub struct Retained {
    grace: Duration,
    kept: ArcSwap<Vec<Kept>>,
    /// Whose turn it is to change the list.
    turn: Mutex<()>,
    /// Whether more are being opened.
    opening: AtomicBool,
    /// Tells of each that was, and of the last.
    opened: watch::Sender<()>,
}

/// As long as this is there, versions that were replaced before this process began are being opened.
#[derive(Debug)]
pub struct Opening(Arc<Site>);

impl Opening {
    /// From now on, until it is dropped.
    pub fn begin(site: &Arc<Site>) -> Opening {
        site.retained.opening.store(true, Ordering::Release);
        Opening(Arc::clone(site))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let retained = &self.0.retained;
        retained.opening.store(false, Ordering::Release);
        retained.opened.send_replace(());
    }
}

impl Retained {
    /// None yet; each is kept for `grace` from when it was replaced.
    pub fn new(grace: Duration) -> Retained {
        Retained {
            grace,
            kept: ArcSwap::default(),
            turn: Mutex::default(),
            opening: AtomicBool::new(false),
            opened: watch::Sender::default(),
        }
    }

    /// Keeps a version that was replaced `age` ago, if that is not too long.
    pub fn keep(&self, version: Arc<Sealed>, age: Duration) {
        let now = Instant::now();
        // A grace beyond what a clock can tell is none that ends.
        let left = self.grace.saturating_sub(age).min(Duration::from_hours(24 * 36_500));
        if left.is_zero() {
            return;
        }
        self.change(|kept| {
            kept.retain(|other| other.version.id != version.id);
            kept.push(Kept { version, until: now + left });
            kept.sort_by_key(|kept| std::cmp::Reverse(kept.until));
            kept.truncate(MOST);
        });
        self.opened.send_replace(());
    }

    /// Whether versions are being opened.
    pub fn is_opening(&self) -> bool {
        self.opening.load(Ordering::Acquire)
    }

    /// Whether one that is not open yet may have a file at this decoded address, and none that is has.
    pub fn may_have(&self, address: &[u8]) -> bool {
        self.is_opening() && cache_class(address) == CacheClass::Immutable && self.find(address).is_none()
    }

    /// Waits until one has it, all are open, or too much time has gone by.
    pub async fn wait_for(&self, address: &[u8]) {
        let mut opened = self.opened.subscribe();
        // Whoever could tell of it is ourselves; and late is an answer, too.
        let _ = timeout(PATIENCE, opened.wait_for(|()| !self.may_have(address))).await;
    }

    /// Lets go of a version: it is active again, or somebody needs its place.
    pub fn let_go(&self, id: VersionId) {
        self.change(|kept| kept.retain(|kept| kept.version.id != id));
    }

    /// Lets go of those whose time has come.
    pub fn let_go_of_old(&self) {
        let now = Instant::now();
        if self.kept.load().iter().any(|kept| kept.until <= now) {
            self.change(|kept| kept.retain(|kept| kept.until > now));
        }
    }

    /// The versions that are kept.
    pub(super) fn ids(&self) -> Vec<VersionId> {
        self.kept.load().iter().map(|kept| kept.version.id).collect()
    }

    /// The file of a replaced version at exactly this decoded address, if its name is derived from its content.
    pub fn find(&self, address: &[u8]) -> Option<(Arc<Sealed>, usize)> {
        let kept = self.kept.load();
        if kept.is_empty() || cache_class(address) != CacheClass::Immutable {
            return None;
        }
        let now = Instant::now();
        let living = kept.iter().filter(|kept| kept.until > now);
        let mut versions = living.map(|kept| &kept.version);
        versions.find_map(|version| exact(&**version, address).map(|file| (Arc::clone(version), file)))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Kept>)) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = Vec::clone(&self.kept.load());
        change(&mut kept);
        self.kept.store(Arc::new(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    const ASSET: &[u8] = b"/_next/static/chunks/app-0ab12cd34e.js";

    /// Waits for the asset in a thread of its own; gives how long that took.
    fn waiter(site: &Arc<Site>) -> std::thread::JoinHandle<Duration> {
        let site = Arc::clone(site);
        std::thread::spawn(move || {
            let begun = Instant::now();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(site.retained.wait_for(ASSET));
            begun.elapsed()
        })
    }

    #[test]
    fn an_asset_is_waited_for_while_earlier_versions_are_opened_and_not_for_ever() {
        let site = Site::new(Settings::default());
        assert!(!site.retained.may_have(ASSET), "nothing is being opened");
        let opening = Opening::begin(&site);
        assert!(site.retained.may_have(ASSET));
        assert!(!site.retained.may_have(b"/only-v1") && !site.retained.may_have(b"/missing.txt"), "no asset");
        // Nobody opens what is asked for.
        assert!(waiter(&site).join().unwrap() >= PATIENCE);
        let waiting = waiter(&site);
        drop(opening);
        waiting.join().unwrap();
        assert!(!site.retained.may_have(ASSET));
    }
}
