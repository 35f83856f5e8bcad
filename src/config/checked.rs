//! The checked configuration: every value has its type, and every default is filled in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use docwharf_agent::publish::PublishSettings;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::SyncIntent;
use docwharf_agent::sync::schedule::Schedule;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_serve::SiteSettings;
use docwharf_serve::access_log::AccessLogSettings;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::rules::RuleSet;

use super::access::check_log;
use super::checker::ValueChecker;
use super::intent::check_intent;
use super::listen::check_listen;
use super::problem::ConfigProblem;
use super::publish::check_publish;
use super::rules::{check_rules, redirects_file};
use super::serving::{check_codings, check_hosts, check_settings};
use super::store_path::{outside_store, store_path};
use super::store_space;
use super::tls::{TlsSettings, check_tls};
use super::written::WrittenConfig;

/// The default address of the site; no other listener has a default.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// The checked configuration, with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The part that a sync needs.
    pub intent: SyncIntent,
    /// The schedule of checks of the source, which replaces the interval.
    pub schedule: Option<Schedule>,
    /// The inbox: a folder whose files are imported.
    pub inbox: Option<PathBuf>,
    /// The number of threads for sealing, if it is set.
    pub threads: Option<usize>,
    /// The path of the store.
    pub store: PathBuf,
    /// The time after which a version is verified again; `None` for never.
    pub scrub: Option<Duration>,
    /// The addresses on which the site is served.
    pub listen: Vec<SocketAddr>,
    /// The settings of serving.
    pub settings: SiteSettings,
    /// The codings in which the active version is precompressed, in this order.
    pub codings: Vec<ContentCoding>,
    /// The operator's redirects, rewrites and header fields.
    pub rules: Arc<RuleSet>,
    /// The file from which some of the rules come.
    pub rules_file: Option<PathBuf>,
    /// The TLS addresses of the site, and its certificate.
    pub tls: Option<TlsSettings>,
    /// The settings of the access log.
    pub log: Option<AccessLogSettings>,
    /// The addresses on which health, status and metrics are served, besides the control socket.
    pub admin: Vec<SocketAddr>,
    /// The host names that the admin listener accepts, besides those that it always accepts.
    pub admin_hosts: Vec<String>,
    /// The addresses on which the version that waits to become active is served.
    pub staged: Vec<SocketAddr>,
    /// The settings of publishing as files for another server.
    pub publish: Option<PublishSettings>,
    /// Warnings about values that are allowed but probably not intended.
    pub warnings: Vec<ConfigProblem>,
}

impl Config {
    /// Returns whether versions can arrive without a command: from a source, or through the inbox.
    pub fn receives_versions(&self) -> bool {
        self.intent.has_source() || self.inbox.is_some()
    }

    /// Returns the addresses on which the site is served.
    pub fn site_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listen.iter().chain(self.tls.iter().flat_map(|tls| &tls.listen)).copied()
    }

    /// Returns whether `run` would end at once, because there is neither a source nor a stored version. A store that
    /// cannot be read counts as one with versions.
    pub fn has_nothing_to_serve(&self) -> bool {
        !self.receives_versions() && VersionStore::at(&self.store).versions().is_ok_and(|versions| versions.is_empty())
    }
}

/// Returns the message about a configuration with nothing to serve. `run`, `config check` and `doctor` use it.
pub fn nothing_to_serve_message(store: &Path) -> String {
    format!("there is nothing to serve: no source is set, and the store {} is empty", store.display())
}

/// The advice that follows [`nothing_to_serve_message`].
pub const SET_SOURCE_HINT: &str =
    "set [api] (baseUrl, domain and a key), staticExport.bundleUrl or sync.inbox, or import a bundle";

/// Checks a configuration. Relative paths in the file refer to `config_folder`, its folder; those in the environment to
/// the working directory.
pub(super) fn check(raw: &WrittenConfig, config_folder: &Path) -> Result<Config, Vec<ConfigProblem>> {
    let mut checker = ValueChecker { raw, problems: raw.problems.clone() };
    let base_of = |key: &str| raw.base_of(key, config_folder);
    let mut warnings = raw.warnings.clone();
    let settings = check_settings(&mut checker);
    let codings = check_codings(&mut checker);
    let rules = check_rules(&mut checker, &base_of);
    let rules_file = redirects_file(&mut checker, &base_of);
    let addresses =
        AddressSettings { base_path: settings.base_path.clone(), slashes: settings.slashes, rules: Arc::clone(&rules) };
    let intent = check_intent(&mut checker, &base_of, &mut warnings, addresses);
    let schedule = checker.parsed("sync.schedule", Schedule::parse);
    if let (Some(_), Some(written)) = (&schedule, raw.get("sync.interval")) {
        let message = "sync.interval: sync.schedule replaces it; remove one of them".to_owned();
        warnings.push(ConfigProblem { place: written.place.clone(), message });
    }
    let threads = checker.number("sync.threads").map(|n| n as usize);
    let store = store_path(&mut checker, &base_of);
    let inbox = checker.parsed("sync.inbox", |text| outside_store(base_of("sync.inbox").join(text), &store));
    let scrub = store_space::check_scrub(&mut checker);
    let tls = check_tls(&mut checker, &base_of);
    let log = check_log(&mut checker, &base_of);
    // The site may be served over TLS only.
    let listen = check_listen(&mut checker, "server.listen", &[DEFAULT_LISTEN], tls.is_some());
    let admin = check_listen(&mut checker, "admin.listen", &[], false);
    let admin_hosts = check_hosts(&mut checker);
    let staged = check_listen(&mut checker, "activate.listen", &[], false);
    let publish = check_publish(&mut checker, &base_of, &store, &mut warnings);
    if !checker.problems.is_empty() {
        ConfigProblem::sort(&mut checker.problems);
        return Err(checker.problems);
    }
    Ok(Config {
        intent,
        schedule,
        inbox,
        threads,
        store,
        scrub,
        listen,
        settings,
        codings,
        rules,
        rules_file,
        tls,
        log,
        admin,
        admin_hosts,
        staged,
        publish,
        warnings,
    })
}

#[cfg(test)]
mod defaults;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::intent::{DEFAULT_INTERVAL, DEFAULT_JOB_INTERVAL};
    use docwharf_agent::sync::BundleLocation;

    fn checked(text: &str) -> Result<Config, Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("/etc/c.toml"));
        check(&raw, Path::new("/etc")).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn paths_are_relative_to_the_file_and_defaults_are_filled_in() {
        let config = checked("[staticExport]\nbundleUrl = \"docs.zip\"\n[store]\npath = \"store\"\n").unwrap();
        assert_eq!(config.intent.bundle, Some(BundleLocation::File("/etc/docs.zip".into())));
        assert_eq!(config.store, Path::new("/etc/store"));
        assert!(config.intent.enabled);
        assert_eq!(config.listen, [DEFAULT_LISTEN.parse().unwrap()]);
        assert_eq!(config.intent.interval, DEFAULT_INTERVAL);
    }

    #[test]
    fn every_wrong_value_is_one_line_that_names_its_key() {
        let text = "[staticExport]\nenabled = \"perhaps\"\nsha256 = \"12\"\nversion = \"\"\n\
                    [server]\nlisten = [\"here\"]\nbasePath = \"docs\"\nslashes = \"both\"\n\
                    [sync]\ninterval = 5\nkeep = -1\n[limits]\narchive = \"1XB\"\nentries = 0\n";
        let problems = checked(text).unwrap_err();
        let keys =
            ["enabled", "sha256", "version", "listen", "basePath", "slashes", "interval", "keep", "archive", "entries"];
        assert_eq!(problems.len(), keys.len(), "{problems:#?}");
        for key in keys {
            assert_eq!(problems.iter().filter(|line| line.contains(&format!(".{key}:"))).count(), 1, "{key}");
        }
    }

    const API: &str = "[api]\nbaseUrl = \"https://api.example/v1/\"\ndomain = \"docs.example.com\"\n";

    #[test]
    fn without_probes_each_interval_exports_and_with_them_it_only_looks() {
        let intent_with = |more: &str| checked(&format!("{API}{more}")).unwrap().intent;
        let probing = intent_with("");
        assert_eq!(
            (probing.exports_at_each_check, probing.interval, probing.probes.len()),
            (false, DEFAULT_INTERVAL, 2)
        );
        assert_eq!(probing.probes[0].without_secrets(), "https://docs.example.com/sitemap.xml");
        let without_probes = intent_with("[sync]\nprobe = []\n");
        assert_eq!(
            (without_probes.exports_at_each_check, without_probes.interval, without_probes.probes.len()),
            (true, DEFAULT_JOB_INTERVAL, 0)
        );
        let interval = intent_with("[sync]\ninterval = \"1h\"\n");
        assert_eq!((interval.exports_at_each_check, interval.interval), (true, Duration::from_hours(1)));
        let both = intent_with("[sync]\ninterval = \"1h\"\nprobe = \"https://x.example/a\"\n");
        assert_eq!((both.exports_at_each_check, both.probes.len()), (false, 1));
    }

    #[test]
    fn the_api_needs_base_url_and_domain_and_is_warned_about_what_looks_wrong() {
        let problems = checked("[api]\nkeyFile = \"k\"\n").unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:#?}");
        let config = checked("[api]\nbaseUrl = \"http://api.example/\"\ndomain = \"d.example\"\n").unwrap();
        assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
        assert!(checked(API).unwrap().warnings.is_empty());
    }
}
