//! HTTP server of docwharf: answers HTTP/1.1 and HTTP/2 requests from one sealed version of a site, with or without
//! TLS.
//!
//! A [`Site`] holds the version that is served and everything else that responses depend on: rules, access control,
//! policies, precompressed files. Each of them can be replaced while the server runs; a request uses the version that
//! was active when it began. [`listener`] accepts connections and passes their requests to the site. No request reaches
//! the file system: every response comes from the memory-mapped image of a version.
//!
//! # Path of a request
//!
//! The client is identified ([`peer`], [`cidr`]) and checked against the access policy ([`access`]). The request is
//! then checked as HTTP requires ([`handler`]), its path is resolved to a file or a rule ([`docwharf_site::lookup`],
//! [`docwharf_site::rules`]), and its preconditions are evaluated ([`conditional`]). The form ([`negotiate`],
//! [`precompressed`]) and the byte ranges ([`byte_range`], [`multipart`]) of the response are chosen, and the body is
//! made ([`body`]). Header fields that every response has are added ([`security_headers`], [`header_rules`],
//! [`csp_header`]). The access log gets a line when the body has been sent ([`logged_body`], [`access_log_line`],
//! [`access_log`]). Most requests are simple ones; the heads of their
//! responses come from a cache of rendered heads.
//!
//! Below that are the threads that serve, the connections and their protocols ([`http1`] for HTTP/1.1, [`http2`] for
//! HTTP/2) and their transport ([`tls`]).
//!
//! # Example
//!
//! ```no_run
//! use std::io;
//!
//! use docwharf_serve::listener::{self, HttpListener};
//! use docwharf_serve::{Site, SiteSettings};
//! use docwharf_site::sealed_version::SealedVersion;
//!
//! /// Serves one version until the process ends.
//! async fn run(version: SealedVersion) -> io::Result<()> {
//!     let site = Site::new(SiteSettings::default());
//!     site.set_version(version);
//!     let socket = listener::bind(([127, 0, 0, 1], 8080).into())?;
//!     let (_stop, stopped) = tokio::sync::watch::channel(false);
//!     listener::serve(vec![HttpListener::from(socket)], site, stopped).await
//! }
//! ```

pub mod access;
pub mod access_log;
pub mod access_log_line;
pub mod body;
pub mod byte_range;
pub mod cidr;
pub mod conditional;
mod connection;
pub mod csp_header;
mod damage_reports;
mod decoder_pool;
mod entity_tag;
pub mod fixed_responses;
pub mod handler;
mod head_timer;
mod header_pool;
pub mod header_rules;
pub mod held_bytes;
pub mod http1;
pub mod http2;
pub mod key_pair;
mod lazy_stream;
pub mod listener;
pub mod logged_body;
pub mod multipart;
pub mod negotiate;
mod page_cache;
pub mod peer;
mod peer_progress;
pub mod precompressed;
mod reclaim;
mod replay_stream;
mod response_cache;
pub mod retained_versions;
pub mod security_headers;
pub mod service;
mod stall_timeout;
pub mod tls;
mod turn;
pub mod watchdog;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::sync::watch;

use docwharf_base::clock::now_unix_seconds;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::version::VersionId;
use docwharf_site::external::csp;
use docwharf_site::lookup::{SiteFiles, Slashes};
use docwharf_site::rules::RuleSet;
use docwharf_site::sealed_version::SealedVersion;

use access::AccessControl;
use access_log::AccessLog;
use conditional::ContentDates;
use csp_header::VersionPolicies;
use damage_reports::DamageReports;
use held_bytes::HELD;
use negotiate::{AcceptedCodings, ResponseForm};
use page_cache::PageCache;
use precompressed::PrecompressedCodings;
use retained_versions::RetainedVersions;
use security_headers::{ProtectionSettings, SecurityHeaders};

/// The implementation that serves HTTP/2 to the clients of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Http2Server {
    /// The implementation in [`http2`].
    #[default]
    Own,
    /// The implementation in hyper, which also serves the listeners that are not for a site.
    Hyper,
    /// None. TLS offers HTTP/1.1 only, and the preface of HTTP/2 is read as HTTP/1.1, which has no such request.
    Off,
}

/// The settings of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteSettings {
    /// The path below which the site is served, with a slash at both ends: `/` or `/docs/`.
    pub base_path: String,
    /// Which of the several paths of a page is canonical; `None` decides by the site.
    pub slashes: Option<Slashes>,
    /// The capacity, in bytes, of the cache of inflated files for clients that do not accept gzip.
    pub identity_cache: u64,
    /// The memory, in bytes, that all responses of the process may hold beyond that cache while their clients read
    /// them.
    pub held_bytes: u64,
    /// The time for which hashed assets of a replaced version are still served; zero to stop at once.
    pub asset_grace: Duration,
    /// The header fields that protect readers.
    pub protection: ProtectionSettings,
    /// The access control at the start; [`Site::set_access_control`] replaces it.
    pub access_control: AccessControl,
    /// The value of Strict-Transport-Security, for clients that use https; `None` to send none.
    pub hsts: Option<HeaderValue>,
    /// Which implementation serves HTTP/2.
    pub http2: Http2Server,
}

impl Default for SiteSettings {
    fn default() -> Self {
        SiteSettings {
            base_path: "/".to_owned(),
            slashes: None,
            identity_cache: 64 << 20,
            held_bytes: 64 << 20,
            asset_grace: Duration::from_hours(72),
            protection: ProtectionSettings::default(),
            access_control: AccessControl::default(),
            hsts: None,
            http2: Http2Server::default(),
        }
    }
}

/// A site: the version that is served, and everything else that its responses depend on. Each part can be replaced at
/// any time; a request keeps the version that was served when it began.
#[derive(Debug)]
pub struct Site {
    pub(crate) settings: SiteSettings,
    /// Identifies this site among all sites of the process.
    number: u64,
    security_headers: SecurityHeaders,
    current: ArcSwapOption<SealedVersion>,
    /// Versions that were served before.
    pub(crate) retained_versions: RetainedVersions,
    /// The operator's rules.
    rules: ArcSwap<RuleSet>,
    /// The access control.
    access_control: ArcSwap<AccessControl>,
    /// The content security policies of a version, once they are computed.
    policies: ArcSwapOption<VersionPolicies>,
    /// The Brotli and Zstandard forms of a version, once they are made.
    codings: ArcSwapOption<PrecompressedCodings>,
    /// The cache of inflated files.
    pub(crate) inflated: Arc<PageCache>,
    requests: [AtomicU64; STATUS_CLASSES.len()],
    shown: watch::Sender<()>,
    /// The last second, since 1970, in which some path may have led to other content than now; [`NEVER`] if there was
    /// none.
    exchanged: AtomicI64,
    /// The last second, since 1970, in which a change of rules may have put one file in the place of another; [`NEVER`]
    /// if there was none.
    rerouted: AtomicI64,
    /// Incremented after each change of something that responses depend on.
    edition: AtomicU64,
    /// Receives a report when stored bytes turn out to differ from what was sealed.
    damage_reports: Arc<DamageReports>,
    log: Option<Arc<AccessLog>>,
}

/// The value of a second that is not set.
const NEVER: i64 = i64::MIN;

/// The classes of status codes by which requests are counted.
pub const STATUS_CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

impl Site {
    /// Creates a site without a version, which answers every request with 503.
    pub fn new(settings: SiteSettings) -> Arc<Site> {
        Site::with_access_log(settings, None)
    }

    /// Creates a site without a version that writes its requests to an access log, if one is given.
    pub fn with_access_log(settings: SiteSettings, log: Option<Arc<AccessLog>>) -> Arc<Site> {
        static SITES: AtomicU64 = AtomicU64::new(0);
        let doubts = Arc::<DamageReports>::default();
        let inflated = Arc::new(PageCache::new(settings.identity_cache, Arc::clone(&doubts)));
        HELD.set_limit(settings.held_bytes);
        let (current, policies, rules) = (ArcSwapOption::empty(), ArcSwapOption::empty(), ArcSwap::default());
        let (dress, shown) = (SecurityHeaders::new(&settings.protection), watch::Sender::default());
        let retained = RetainedVersions::new(settings.asset_grace);
        let door = ArcSwap::from_pointee(settings.access_control.clone());
        Arc::new(Site {
            settings,
            number: SITES.fetch_add(1, Ordering::Relaxed),
            security_headers: dress,
            current,
            retained_versions: retained,
            rules,
            access_control: door,
            policies,
            codings: ArcSwapOption::empty(),
            inflated,
            requests: Default::default(),
            shown,
            exchanged: AtomicI64::new(NEVER),
            rerouted: AtomicI64::new(NEVER),
            edition: AtomicU64::new(0),
            damage_reports: doubts,
            log,
        })
    }

    /// Serves `version` from the next request on, and hashed assets of the version before it for the grace period.
    pub fn set_version(&self, version: SealedVersion) {
        let id = version.id;
        // The old version is retained before the new one is stored, so that its assets are found at every moment.
        if let Some(before) = self.current().filter(|before| before.id != id) {
            self.note_content_change();
            if before.rules() != version.rules() {
                self.note_route_change();
            }
            self.retained_versions.keep(before, Duration::ZERO);
        }
        self.current.store(Some(Arc::new(version)));
        if self.codings.load().as_ref().is_some_and(|codings| codings.id != id) {
            self.codings.store(None);
        }
        self.retained_versions.remove(id);
        self.retained_versions.remove_expired();
        self.invalidate_responses();
        self.shown.send_replace(());
    }

    /// Serves hashed assets of `version` as well, which was replaced `age` ago, before this process started.
    pub fn retain_version(&self, version: SealedVersion, age: Duration) {
        let id = version.id;
        self.retained_versions.keep(Arc::new(version), age);
        // The version may have become active again meanwhile.
        if self.current().is_some_and(|current| current.id == id) {
            self.retained_versions.remove(id);
        }
        self.invalidate_responses();
    }

    /// Records that until now some path may have led to other content. A Last-Modified date up to this second then
    /// proves nothing about what the path leads to from now on. Must be called before the change, so that no response
    /// relies on such a date.
    pub fn note_content_change(&self) {
        self.exchanged.fetch_max(now_unix_seconds(), Ordering::Relaxed);
    }

    /// Records that until now rules may have led some path to another file with the same date. Must be called before
    /// the change.
    fn note_route_change(&self) {
        self.rerouted.fetch_max(now_unix_seconds(), Ordering::Relaxed);
    }

    /// Invalidates all cached responses. Must be called after the change: a thread that reads the new number also sees
    /// the change.
    fn invalidate_responses(&self) {
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of calls of [`Site::invalidate_responses`].
    fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// Returns the dates by which preconditions of a file with this modification time are evaluated.
    pub(crate) fn content_dates(&self, modified: i64) -> ContentDates {
        let of = |second: &AtomicI64| Some(second.load(Ordering::Relaxed)).filter(|&second| second != NEVER);
        ContentDates { modified, replaced: of(&self.exchanged), rerouted: of(&self.rerouted) }
    }

    /// Returns whether versions that were replaced before this process started are still being opened.
    pub fn is_opening(&self) -> bool {
        self.retained_versions.is_opening()
    }

    /// Returns the time for which hashed assets of a replaced version are served.
    pub fn asset_grace(&self) -> Duration {
        self.settings.asset_grace
    }

    /// Reports that a file could not be sent as it was sealed; `what` says why. The file may be of any version that is
    /// served or retained, so all of them are reported.
    pub(crate) fn report_damage(&self, what: &str) {
        let current = self.current().map(|version| version.id);
        let versions: Vec<VersionId> = current.into_iter().chain(self.retained_versions.ids()).collect();
        self.damage_reports.report(&versions, what);
    }

    /// Waits for a report of damage and returns the versions that may be damaged.
    pub async fn wait_for_damage(&self) -> BTreeSet<VersionId> {
        self.damage_reports.wait_for_report().await
    }

    /// Stops serving assets of a replaced version, because the version is to be removed.
    pub fn release_version(&self, id: VersionId) {
        self.retained_versions.remove(id);
        self.invalidate_responses();
    }

    /// Stops serving assets of versions that were replaced longer ago than the grace period.
    pub fn release_expired_versions(&self) {
        self.retained_versions.remove_expired();
    }

    /// Replaces the operator's rules from the next request on.
    pub fn set_rules(&self, rules: Arc<RuleSet>) {
        // Rules can lead a path to another file.
        if self.current.load().is_some() && **self.rules.load() != *rules {
            self.note_content_change();
            self.note_route_change();
        }
        self.rules.store(rules);
        self.invalidate_responses();
    }

    /// Returns the operator's rules.
    pub fn rules(&self) -> Guard<Arc<RuleSet>> {
        self.rules.load()
    }

    /// Replaces the access control from the next request on, also on connections that are open.
    pub fn set_access_control(&self, door: AccessControl) {
        self.access_control.store(Arc::new(door));
        self.invalidate_responses();
    }

    /// Returns the access control in force.
    pub fn access_control(&self) -> Guard<Arc<AccessControl>> {
        self.access_control.load()
    }

    /// Returns a receiver that is notified each time a version has been set.
    pub fn subscribe_to_versions(&self) -> watch::Receiver<()> {
        self.shown.subscribe()
    }

    /// Returns the settings of content security policies; `None` if none are sent.
    pub fn csp_rules(&self) -> Option<&csp::CspRules> {
        self.settings.protection.csp.as_ref()
    }

    /// Sends these content security policies with responses of the version that they were computed for.
    pub fn set_policies(&self, policies: VersionPolicies) {
        self.policies.store(Some(Arc::new(policies)));
        self.invalidate_responses();
    }

    /// Serves these Brotli and Zstandard forms of a version to clients that accept them; with `None`, stops serving
    /// any.
    pub fn set_precompressed(&self, codings: Option<PrecompressedCodings>) {
        self.codings.store(codings.map(Arc::new));
        self.invalidate_responses();
    }

    /// Returns the body of a file of `version` in a dense coding, if that coding still has the bytes with this CRC-32.
    fn precompressed_body(
        &self,
        version: &SealedVersion,
        file: usize,
        coding: ContentCoding,
        crc: u32,
    ) -> Option<Bytes> {
        let codings = self.codings.load();
        let codings = codings.as_ref().filter(|codings| codings.id == version.id)?;
        codings.body(coding, file).filter(|(_, known)| *known == crc).map(|(body, _)| body)
    }

    /// Chooses the coding in which a compressed file of `version` is sent; `gzip` is the length of its gzip form in
    /// bytes. For a dense coding, also returns the body and its CRC-32.
    fn choose_form(
        &self,
        version: &SealedVersion,
        file: usize,
        gzip: u64,
        accepted: AcceptedCodings,
    ) -> (ResponseForm, Bytes, u32) {
        if accepted.accepts_dense() {
            let codings = self.codings.load();
            if let Some(codings) = codings.as_ref().filter(|codings| codings.id == version.id)
                && let ResponseForm::Dense(coding) = accepted.choose(gzip, |coding| codings.len(coding, file))
                && let Some((body, crc)) = codings.body(coding, file)
            {
                return (ResponseForm::Dense(coding), body, crc);
            }
        }
        (accepted.choose(gzip, |_| None), Bytes::new(), 0)
    }

    /// Serves no version from the next request on.
    pub fn remove_version(&self) {
        self.note_content_change();
        self.current.store(None);
        self.codings.store(None);
        self.invalidate_responses();
    }

    /// Returns the version that is served.
    pub fn current(&self) -> Option<Arc<SealedVersion>> {
        self.current.load_full()
    }

    /// Returns the version that is served, for the duration of one response. Cheaper than [`Site::current`].
    fn load_version(&self) -> Guard<Option<Arc<SealedVersion>>> {
        self.current.load()
    }

    /// Returns the bytes in the cache of inflated files, as `server.identityCache` limits them.
    pub fn page_cache_bytes(&self) -> u64 {
        self.inflated.bytes()
    }

    /// Returns the bytes of memory that responses hold while clients read them, as `server.heldBytes` limits them.
    pub fn held_bytes(&self) -> u64 {
        HELD.held()
    }

    /// Returns the number of requests answered since the start, by class of status code.
    pub fn request_counts(&self) -> [u64; STATUS_CLASSES.len()] {
        self.requests.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns whether the response or the access log depends on the client.
    pub(crate) fn depends_on_client(&self) -> bool {
        let door = self.access_control();
        !door.access.is_open() || self.settings.hsts.is_some() || self.log.is_some()
    }

    /// Returns the access log, if there is one.
    pub fn log(&self) -> Option<&Arc<AccessLog>> {
        self.log.as_ref()
    }

    fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2).min(STATUS_CLASSES.len() - 1);
        self.requests[class].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::AccessPolicy;
    use access_log::AccessLogSettings;
    use access_log_line::{AccessLogFormat, LoggedAddress};
    use cidr::IpRanges;
    use docwharf_base::model::digest::Digest;

    fn closed() -> AccessControl {
        AccessControl {
            access: AccessPolicy { allow: Some(IpRanges::default()), user_header: None },
            proxies: IpRanges::default(),
        }
    }

    #[test]
    fn each_answer_is_counted_in_the_class_of_its_status() {
        let site = Site::new(SiteSettings::default());
        for (status, expected) in [
            (200, [1, 0, 0, 0]),
            (204, [2, 0, 0, 0]),
            (206, [3, 0, 0, 0]),
            (301, [3, 1, 0, 0]),
            (304, [3, 2, 0, 0]),
            (400, [3, 2, 1, 0]),
            (499, [3, 2, 2, 0]),
            (503, [3, 2, 2, 1]),
            (999, [3, 2, 2, 2]),
        ] {
            site.count(StatusCode::from_u16(status).unwrap());
            assert_eq!(site.request_counts(), expected, "{status}");
        }
    }

    #[test]
    fn whatever_changes_answers_ends_what_was_answered_before() {
        type Change = fn(&Site, VersionId);
        let site = Site::new(SiteSettings::default());
        let version = VersionId(Digest::of(b"x"));
        let changes: [(&str, Change); 6] = [
            ("rules", |site, _| site.set_rules(Arc::default())),
            ("who may read", |site, _| site.set_access_control(AccessControl::default())),
            ("other codings", |site, version| site.set_precompressed(Some(PrecompressedCodings::empty(version)))),
            ("no codings", |site, _| site.set_precompressed(None)),
            ("a version that is gone", Site::release_version),
            ("nothing to serve", |site, _| site.remove_version()),
        ];
        for (what, change) in changes {
            let before = (site.edition(), response_cache::SiteState::of(&site));
            change(&site, version);
            assert!(site.edition() > before.0 && response_cache::SiteState::of(&site) != before.1, "{what}");
        }
    }

    #[test]
    fn a_date_says_nothing_about_the_time_before_an_exchange() {
        let site = Site::new(SiteSettings::default());
        assert_eq!(site.content_dates(5), ContentDates::never_replaced(5));
        // Without a version, changed rules change no response.
        site.set_rules(Arc::default());
        site.set_access_control(AccessControl::default());
        assert_eq!(site.content_dates(-5), ContentDates::never_replaced(-5));
        for change in [Site::note_content_change, Site::remove_version] {
            let site = Site::new(SiteSettings::default());
            let before = now_unix_seconds();
            change(&site);
            let replaced = site.content_dates(5).replaced.unwrap();
            assert!((before..=now_unix_seconds()).contains(&replaced));
            site.exchanged.store(i64::MAX, Ordering::Relaxed);
            change(&site);
            assert_eq!(site.content_dates(5).replaced, Some(i64::MAX), "a clock that is set back takes nothing back");
        }
    }

    #[test]
    fn who_asks_matters_only_where_an_answer_or_a_line_depends_on_it() {
        let hsts = Some(HeaderValue::from_static("max-age=60"));
        let named = AccessPolicy { allow: None, user_header: Some(http::header::FROM) };
        let proxies = IpRanges::parse(&["10.0.0.0/8"]).unwrap();
        for (settings, expected) in [
            (SiteSettings::default(), false),
            (
                SiteSettings {
                    access_control: AccessControl { access: AccessPolicy::default(), proxies: proxies.clone() },
                    ..SiteSettings::default()
                },
                false,
            ),
            (SiteSettings { access_control: closed(), ..SiteSettings::default() }, true),
            (
                SiteSettings { access_control: AccessControl { access: named, proxies }, ..SiteSettings::default() },
                true,
            ),
            (SiteSettings { hsts, ..SiteSettings::default() }, true),
        ] {
            let site = Site::new(settings);
            assert_eq!(site.depends_on_client(), expected, "{:?}", site.settings);
            assert_eq!(response_cache::SiteState::of(&site).is_none(), expected, "{:?}", site.settings);
            site.set_access_control(closed());
            assert!(site.depends_on_client() && response_cache::SiteState::of(&site).is_none());
        }
        let dir = tempfile::tempdir().unwrap();
        let log = AccessLogSettings {
            format: AccessLogFormat::Json,
            address: LoggedAddress::Full,
            file: Some(dir.path().join("log")),
        };
        let log = AccessLog::open(&log).unwrap();
        let site = Site::with_access_log(SiteSettings::default(), Some(Arc::clone(&log)));
        assert!(site.depends_on_client() && response_cache::SiteState::of(&site).is_none());
        log.finish();
    }
}
