//! Serving one sealed version over HTTP/1.1 and HTTP/2, encrypted ([`tls`], [`pair`]) or not.
//!
//! A request goes: who asks ([`peer`], [`cidr`]) → whether they may ([`access`]) → checks that protect the connection ([`handler`]) → where its address leads (`site::lookup`) → what
//! the client holds already ([`conditional`]) → which form it accepts ([`negotiate`]) → which part it wants ([`range`]) →
//! the bytes ([`body`]) → what goes along with every answer ([`dress`]) → what is
//! written down of it, if anything is ([`tally`], [`line`], [`log`]). No path from the network reaches the file system: everything comes from the one image.

pub mod access;
pub mod body;
pub mod cidr;
pub mod conditional;
pub mod dress;
pub mod guard;
pub mod handler;
pub mod line;
pub mod listener;
pub mod log;
pub mod negotiate;
pub mod pair;
pub mod peer;
pub mod pulse;
pub mod range;
pub mod reply;
pub mod tally;
pub mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use quick_cache::sync::Cache;
use tokio::sync::Notify;

use crate::model::digest::Digest;
use crate::site::lookup::Slashes;
use crate::site::sealed::Sealed;

use self::access::Access;
use self::cidr::Networks;
use self::log::Log;

/// How sites are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where the site begins: `/` or `/docs/`.
    pub base_path: String,
    /// What is done about several addresses of one page; `None` decides by the site.
    pub slashes: Option<Slashes>,
    /// Bytes of inflated pages kept for clients that do not accept gzip.
    pub identity_cache: u64,
    /// Proxies whose word is believed about who asks.
    pub proxies: Networks,
    /// Who may read.
    pub access: Access,
    /// Strict-Transport-Security, for clients that speak https.
    pub hsts: Option<HeaderValue>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            base_path: "/".to_owned(),
            slashes: None,
            identity_cache: 64 << 20,
            proxies: Networks::default(),
            access: Access::default(),
            hsts: None,
        }
    }
}

/// The version being served, exchangeable at any moment; every request holds on to the one it began with.
#[derive(Debug)]
pub struct Site {
    pub(crate) settings: Settings,
    current: ArcSwapOption<Sealed>,
    /// Inflated pages by the digest of their content, so that a version shares what it has in common with the last.
    pub(crate) inflated: Cache<Digest, Bytes, ByLength>,
    requests: [AtomicU64; CLASSES.len()],
    shown: Notify,
    log: Option<Arc<Log>>,
}

/// Classes of status codes, as requests are counted.
pub const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Weighs cached pages by their bytes.
#[derive(Debug, Clone)]
pub(crate) struct ByLength;

impl quick_cache::Weighter<Digest, Bytes> for ByLength {
    fn weight(&self, _key: &Digest, page: &Bytes) -> u64 {
        page.len() as u64 + 128
    }
}

impl Site {
    /// Nothing to serve yet: every request is answered with 503.
    pub fn new(settings: Settings) -> Arc<Site> {
        Site::logged(settings, None)
    }

    /// The same, where what is answered is written down.
    pub fn logged(settings: Settings, log: Option<Arc<Log>>) -> Arc<Site> {
        let typical = (settings.identity_cache / 32_768).max(16) as usize;
        let inflated = Cache::with_weighter(typical, settings.identity_cache, ByLength);
        let (current, shown) = (ArcSwapOption::empty(), Notify::new());
        Arc::new(Site { settings, current, inflated, requests: Default::default(), shown, log })
    }

    /// Serves `version` from the next request on.
    pub fn show(&self, version: Sealed) {
        self.current.store(Some(Arc::new(version)));
        self.shown.notify_one();
    }

    /// Waits until a version has been shown since the last call; meant for one who waits.
    pub async fn shown(&self) {
        self.shown.notified().await;
    }

    /// Serves nothing from the next request on.
    pub fn clear(&self) {
        self.current.store(None);
    }

    /// The version being served.
    pub fn current(&self) -> Option<Arc<Sealed>> {
        self.current.load_full()
    }

    /// Requests answered since the start, by class.
    pub fn requests(&self) -> [u64; CLASSES.len()] {
        self.requests.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The access log, if there is one.
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.log.as_ref()
    }

    fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2).min(CLASSES.len() - 1);
        self.requests[class].fetch_add(1, Ordering::Relaxed);
    }
}
