//! Serving one sealed version over HTTP/1.1 and HTTP/2, encrypted ([`tls`], [`pair`]) or not.
//!
//! A request goes: who asks ([`peer`], [`cidr`]) → whether they may ([`access`]) → checks that protect the connection
//! ([`handler`]) → where its address leads (`site::lookup`, `site::rules`) → what the client holds already
//! ([`conditional`]) → which form it accepts ([`negotiate`]) → which part it wants ([`range`], [`multipart`]) → the bytes
//! ([`body`]) → what goes along with every answer ([`dress`]) → what is written down of it, if anything is ([`tally`],
//! [`line`], [`log`]). Below that are threads (`crew`), connections (`listener`, `connection`) and what they are carried by
//! (`stream`, `guard`, `wire`). No path from the network reaches the file system: everything comes from the one image.

pub mod access;
mod alarm;
pub mod answer;
pub mod body;
pub mod cidr;
pub mod coded;
pub mod conditional;
mod connection;
mod crew;
mod decoders;
mod doubts;
pub mod dress;
pub mod fields;
mod guard;
pub mod handler;
pub mod held;
pub mod line;
pub mod listener;
pub mod log;
mod memo;
pub mod multipart;
pub mod negotiate;
mod pages;
pub mod pair;
pub mod peer;
pub mod plain;
pub mod policy;
mod progress;
pub mod pulse;
pub mod range;
mod reclaim;
pub mod reply;
pub mod retained;
mod spare;
mod stream;
mod tag;
pub mod tally;
pub mod tls;
mod turn;
pub mod two;
mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::sync::watch;

use docwharf_base::codec::dense::Dense;
use docwharf_base::model::units::unix_seconds;
use docwharf_base::model::version::VersionId;
use docwharf_site::lookup::{Files, Slashes};
use docwharf_site::outside::csp;
use docwharf_site::rules::Rules;
use docwharf_site::sealed::Sealed;

use access::Door;
use coded::Codings;
use conditional::Dated;
use doubts::Doubts;
use dress::{Dress, Protection};
use held::HELD;
use log::Log;
use negotiate::{Accepted, Form};
use pages::Pages;
use policy::Ready;
use retained::Retained;

/// How sites are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where the site begins: `/` or `/docs/`.
    pub base_path: String,
    /// What is done about several addresses of one page; `None` decides by the site.
    pub slashes: Option<Slashes>,
    /// Bytes of inflated pages kept for clients that do not accept gzip.
    pub identity_cache: u64,
    /// Bytes of memory that answers may hold beyond that while their readers take them, in the whole process.
    pub held_bytes: u64,
    /// For how long hashed assets of a replaced version are answered for; zero for not at all.
    pub asset_grace: Duration,
    /// What goes along with answers to protect readers.
    pub protection: Protection,
    /// Who may read when it begins; see [`Site::admit`].
    pub door: Door,
    /// Strict-Transport-Security, for clients that speak https.
    pub hsts: Option<HeaderValue>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            base_path: "/".to_owned(),
            slashes: None,
            identity_cache: 64 << 20,
            held_bytes: 64 << 20,
            asset_grace: Duration::from_hours(72),
            protection: Protection::default(),
            door: Door::default(),
            hsts: None,
        }
    }
}

/// The version being served, exchangeable at any moment; every request holds on to the one it began with.
#[derive(Debug)]
pub struct Site {
    pub(crate) settings: Settings,
    /// Tells it from all other sites of this process.
    number: u64,
    dress: Dress,
    current: ArcSwapOption<Sealed>,
    /// Versions that were shown before.
    pub(crate) retained: Retained,
    /// The operator's rules, which can change while it runs.
    rules: ArcSwap<Rules>,
    /// Who may read, which can, too.
    door: ArcSwap<Door>,
    /// The policies of a version, as soon as they are known.
    policies: ArcSwapOption<Ready>,
    /// Denser forms of a version, as soon as they are made.
    codings: ArcSwapOption<Codings>,
    /// Inflated pages.
    pub(crate) inflated: Arc<Pages>,
    requests: [AtomicU64; CLASSES.len()],
    shown: watch::Sender<()>,
    /// The second, since 1970, in which something else was last at some address; [`NEVER`] if nothing ever was.
    exchanged: AtomicI64,
    /// The second in which rules last put one file in the place of another, likewise.
    rerouted: AtomicI64,
    /// Raised after each change of what answers depend on.
    edition: AtomicU64,
    /// Told when something is sent that is not what was sealed.
    doubts: Arc<Doubts>,
    log: Option<Arc<Log>>,
}

/// No second.
const NEVER: i64 = i64::MIN;

/// Classes of status codes, as requests are counted.
pub const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

impl Site {
    /// Nothing to serve yet: every request is answered with 503.
    pub fn new(settings: Settings) -> Arc<Site> {
        Site::logged(settings, None)
    }

    /// The same, where what is answered is written down.
    pub fn logged(settings: Settings, log: Option<Arc<Log>>) -> Arc<Site> {
        static SITES: AtomicU64 = AtomicU64::new(0);
        let doubts = Arc::<Doubts>::default();
        let inflated = Arc::new(Pages::new(settings.identity_cache, Arc::clone(&doubts)));
        HELD.set_limit(settings.held_bytes);
        let (current, policies, rules) = (ArcSwapOption::empty(), ArcSwapOption::empty(), ArcSwap::default());
        let (dress, shown) = (Dress::new(&settings.protection), watch::Sender::default());
        let retained = Retained::new(settings.asset_grace);
        let door = ArcSwap::from_pointee(settings.door.clone());
        Arc::new(Site {
            settings,
            number: SITES.fetch_add(1, Ordering::Relaxed),
            dress,
            current,
            retained,
            rules,
            door,
            policies,
            codings: ArcSwapOption::empty(),
            inflated,
            requests: Default::default(),
            shown,
            exchanged: AtomicI64::new(NEVER),
            rerouted: AtomicI64::new(NEVER),
            edition: AtomicU64::new(0),
            doubts,
            log,
        })
    }

    /// Serves `version` from the next request on, and hashed assets of the one before it for a while.
    pub fn show(&self, version: Sealed) {
        let id = version.id;
        // First, so that at no moment an asset is neither here nor there.
        if let Some(before) = self.current().filter(|before| before.id != id) {
            self.changes();
            if before.rules() != version.rules() {
                self.reroutes();
            }
            self.retained.keep(before, Duration::ZERO);
        }
        self.current.store(Some(Arc::new(version)));
        if self.codings.load().as_ref().is_some_and(|codings| codings.id != id) {
            self.codings.store(None);
        }
        self.retained.let_go(id);
        self.retained.let_go_of_old();
        self.changed();
        self.shown.send_replace(());
    }

    /// Answers for hashed assets of `version`, too, which was replaced `age` ago, before this process began.
    pub fn retain(&self, version: Sealed, age: Duration) {
        let id = version.id;
        self.retained.keep(Arc::new(version), age);
        // It may have become active again in between.
        if self.current().is_some_and(|current| current.id == id) {
            self.retained.let_go(id);
        }
        self.changed();
    }

    /// Says that until now there was something else at some address, or may have been: dates from before this second say
    /// nothing about what is there from now on. Comes before the change, so that no answer relies on such a date.
    pub fn changes(&self) {
        self.exchanged.fetch_max(unix_seconds(SystemTime::now()), Ordering::Relaxed);
    }

    /// Says that until now rules may have put another file of the same date at some address. Comes before the change.
    fn reroutes(&self) {
        self.rerouted.fetch_max(unix_seconds(SystemTime::now()), Ordering::Relaxed);
    }

    /// Says that something is different now that answers depend on: none from before is given again. Comes after the
    /// change, so that whoever has seen this number has seen the change.
    fn changed(&self) {
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// How often that was said.
    fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// A file of this date, as preconditions look at it.
    pub(crate) fn dated(&self, modified: i64) -> Dated {
        let of = |second: &AtomicI64| Some(second.load(Ordering::Relaxed)).filter(|&second| second != NEVER);
        Dated { modified, replaced: of(&self.exchanged), rerouted: of(&self.rerouted) }
    }

    /// Whether versions that were replaced before this process began are still being opened.
    pub fn is_opening(&self) -> bool {
        self.retained.is_opening()
    }

    /// For how long hashed assets of a replaced version are answered for.
    pub fn asset_grace(&self) -> Duration {
        self.settings.asset_grace
    }

    /// Says that something that is served could not be sent as it was sealed: `what` says why. It may be of any version that
    /// is answered from.
    pub(crate) fn doubt(&self, what: &str) {
        let current = self.current().map(|version| version.id);
        let versions: Vec<VersionId> = current.into_iter().chain(self.retained.ids()).collect();
        self.doubts.doubt(&versions, what);
    }

    /// Waits until somebody says so; which versions it may be.
    pub async fn doubted(&self) -> BTreeSet<VersionId> {
        self.doubts.raised().await
    }

    /// Lets go of a version that was replaced, because it is to be removed.
    pub fn let_go(&self, id: VersionId) {
        self.retained.let_go(id);
        self.changed();
    }

    /// Lets go of the versions that were replaced longer ago than the grace time.
    pub fn let_go_of_old(&self) {
        self.retained.let_go_of_old();
    }

    /// Goes by these rules of the operator from the next request on.
    pub fn obey(&self, rules: Arc<Rules>) {
        // Rules can put one file in the place of another.
        if self.current.load().is_some() && **self.rules.load() != *rules {
            self.changes();
            self.reroutes();
        }
        self.rules.store(rules);
        self.changed();
    }

    /// The operator's rules.
    pub fn rules(&self) -> Guard<Arc<Rules>> {
        self.rules.load()
    }

    /// Lets these in, and nobody else, from the next request on, also of connections that are open.
    pub fn admit(&self, door: Door) {
        self.door.store(Arc::new(door));
        self.changed();
    }

    /// Who may read now.
    pub fn door(&self) -> Guard<Arc<Door>> {
        self.door.load()
    }

    /// Tells whenever a version has been shown.
    pub fn shown(&self) -> watch::Receiver<()> {
        self.shown.subscribe()
    }

    /// What policies are made for, if any are sent.
    pub fn csp_rules(&self) -> Option<&csp::Rules> {
        self.settings.protection.csp.as_ref()
    }

    /// Sends these policies along with the version that they are of.
    pub fn protect(&self, policies: Ready) {
        self.policies.store(Some(Arc::new(policies)));
        self.changed();
    }

    /// Sends these forms of the version that they are of to those who accept them; none of any version with `None`.
    pub fn offer(&self, codings: Option<Codings>) {
        self.codings.store(codings.map(Arc::new));
        self.changed();
    }

    /// A file of `version` in a dense form, if that is still the one whose bytes have this CRC-32.
    fn dense(&self, version: &Sealed, file: usize, coding: Dense, crc: u32) -> Option<Bytes> {
        let codings = self.codings.load();
        let codings = codings.as_ref().filter(|codings| codings.id == version.id)?;
        codings.body(coding, file).filter(|(_, known)| *known == crc).map(|(body, _)| body)
    }

    /// In which form a file of `version` goes out that is compressed, of `gzip` bytes with gzip; and its body and the CRC-32
    /// of that if it is a dense one.
    fn form(&self, version: &Sealed, file: usize, gzip: u64, accepted: Accepted) -> (Form, Bytes, u32) {
        if accepted.takes_dense() {
            let codings = self.codings.load();
            if let Some(codings) = codings.as_ref().filter(|codings| codings.id == version.id)
                && let Form::Dense(coding) = accepted.choose(gzip, |coding| codings.len(coding, file))
                && let Some((body, crc)) = codings.body(coding, file)
            {
                return (Form::Dense(coding), body, crc);
            }
        }
        (accepted.choose(gzip, |_| None), Bytes::new(), 0)
    }

    /// Serves nothing from the next request on.
    pub fn clear(&self) {
        self.changes();
        self.current.store(None);
        self.codings.store(None);
        self.changed();
    }

    /// The version being served.
    pub fn current(&self) -> Option<Arc<Sealed>> {
        self.current.load_full()
    }

    /// The same for the length of one answer, at less cost.
    fn showing(&self) -> Guard<Option<Arc<Sealed>>> {
        self.current.load()
    }

    /// Bytes of inflated pages that are kept, as `server.identityCache` counts them.
    pub fn cached(&self) -> u64 {
        self.inflated.bytes()
    }

    /// Bytes of memory that answers hold while their readers take them, as `server.heldBytes` counts them.
    pub fn held(&self) -> u64 {
        HELD.held()
    }

    /// Requests answered since the start, by class.
    pub fn requests(&self) -> [u64; CLASSES.len()] {
        self.requests.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether it matters who asks.
    pub(crate) fn looks_at_peers(&self) -> bool {
        let door = self.door();
        !door.access.is_open() || self.settings.hsts.is_some() || self.log.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;
    use access::Access;
    use cidr::Networks;
    use line::{Address, Format};
    use log::LogSettings;

    fn closed() -> Door {
        Door { access: Access { allow: Some(Networks::default()), header: None }, proxies: Networks::default() }
    }

    #[test]
    fn each_answer_is_counted_in_the_class_of_its_status() {
        let site = Site::new(Settings::default());
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
            assert_eq!(site.requests(), expected, "{status}");
        }
    }

    #[test]
    fn whatever_changes_answers_ends_what_was_answered_before() {
        type Change = fn(&Site, VersionId);
        let site = Site::new(Settings::default());
        let version = VersionId(Digest::of(b"x"));
        let changes: [(&str, Change); 6] = [
            ("rules", |site, _| site.obey(Arc::default())),
            ("who may read", |site, _| site.admit(Door::default())),
            ("other codings", |site, version| site.offer(Some(Codings::none(version)))),
            ("no codings", |site, _| site.offer(None)),
            ("a version that is gone", Site::let_go),
            ("nothing to serve", |site, _| site.clear()),
        ];
        for (what, change) in changes {
            let before = (site.edition(), memo::State::of(&site));
            change(&site, version);
            assert!(site.edition() > before.0 && memo::State::of(&site) != before.1, "{what}");
        }
    }

    #[test]
    fn a_date_says_nothing_about_the_time_before_an_exchange() {
        let site = Site::new(Settings::default());
        assert_eq!(site.dated(5), Dated::once(5));
        // Where nothing is served nothing is exchanged.
        site.obey(Arc::default());
        site.admit(Door::default());
        assert_eq!(site.dated(-5), Dated::once(-5));
        for change in [Site::changes, Site::clear] {
            let site = Site::new(Settings::default());
            let before = unix_seconds(SystemTime::now());
            change(&site);
            let replaced = site.dated(5).replaced.unwrap();
            assert!((before..=unix_seconds(SystemTime::now())).contains(&replaced));
            site.exchanged.store(i64::MAX, Ordering::Relaxed);
            change(&site);
            assert_eq!(site.dated(5).replaced, Some(i64::MAX), "a clock that is set back takes nothing back");
        }
    }

    #[test]
    fn who_asks_matters_only_where_an_answer_or_a_line_depends_on_it() {
        let hsts = Some(HeaderValue::from_static("max-age=60"));
        let named = Access { allow: None, header: Some(http::header::FROM) };
        let proxies = Networks::parse(&["10.0.0.0/8"]).unwrap();
        for (settings, expected) in [
            (Settings::default(), false),
            (
                Settings { door: Door { access: Access::default(), proxies: proxies.clone() }, ..Settings::default() },
                false,
            ),
            (Settings { door: closed(), ..Settings::default() }, true),
            (Settings { door: Door { access: named, proxies }, ..Settings::default() }, true),
            (Settings { hsts, ..Settings::default() }, true),
        ] {
            let site = Site::new(settings);
            assert_eq!(site.looks_at_peers(), expected, "{:?}", site.settings);
            assert_eq!(memo::State::of(&site).is_none(), expected, "{:?}", site.settings);
            site.admit(closed());
            assert!(site.looks_at_peers() && memo::State::of(&site).is_none());
        }
        let dir = tempfile::tempdir().unwrap();
        let log = LogSettings { format: Format::Json, address: Address::Full, file: Some(dir.path().join("log")) };
        let log = Log::open(&log).unwrap();
        let site = Site::logged(Settings::default(), Some(Arc::clone(&log)));
        assert!(site.looks_at_peers() && memo::State::of(&site).is_none());
        log.finish();
    }
}
