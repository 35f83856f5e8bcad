//! The checked configuration: every value has its type, and every default is filled in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::features::{
    AssistantFeatureSettings, BundleSettings, BundleSource, FeatureSettings, PlaygroundFeatureSettings,
    ViewCountSettings,
};
use docwharf_agent::publish::PublishSettings;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::schedule::Schedule;
use docwharf_agent::sync::{BundleLocation, SyncSettings};
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::deployment::DeploymentSettings;
use docwharf_serve::access_log::AccessLogSettings;
use docwharf_serve::search::SearchSettings;
use docwharf_serve::{AssistantSettings, SiteSettings};
use docwharf_site::lookup::AddressSettings;
use docwharf_site::rules::RuleSet;

use super::access::check_log;
use super::analytics::{AnalyticsConfig, check_analytics};
use super::assistant::check_assistant;
use super::checker::ValueChecker;
use super::deployment::check_deployment;
use super::listen::check_listen;
use super::playground::{PlaygroundConfig, check_playground};
use super::problem::ConfigProblem;
use super::publish::check_publish;
use super::rules::{check_rules, redirects_file};
use super::search::{SearchConfig, check_search};
use super::serving::{check_codings, check_hosts, check_settings};
use super::store_path::{outside_store, store_path, without_parent_steps};
use super::store_space;
use super::sync_settings::check_sync_settings;
use super::tls::{TlsSettings, check_tls};
use super::written::WrittenConfig;

/// The default address of the site; no other listener has a default.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// The checked configuration, with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where this docwharf runs, and to which addresses it may connect.
    pub deployment: DeploymentSettings,
    /// The part that a sync needs.
    pub sync_settings: SyncSettings,
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
    /// The settings of the full-text search.
    pub search: SearchConfig,
    /// The parts of the site for assistants, and the model that answers questions.
    pub assistant: AssistantSettings,
    /// The APIs to which pages may send requests.
    pub playground: PlaygroundConfig,
    /// The settings of recording what readers do.
    pub analytics: AnalyticsConfig,
    /// The TLS addresses of the site, and its certificate.
    pub tls: Option<TlsSettings>,
    /// The settings of the access log.
    pub log: Option<AccessLogSettings>,
    /// The addresses on which health, status and metrics are served, besides the control socket.
    pub admin: Vec<SocketAddr>,
    /// The host names that the admin listener accepts, besides those that it always accepts.
    pub admin_hosts: Vec<String>,
    /// The addresses on which the version that waits to become active is served.
    pub waiting_listen: Vec<SocketAddr>,
    /// The settings of publishing as files for another server.
    pub publish: Option<PublishSettings>,
    /// Warnings about values that are allowed but probably not intended.
    pub warnings: Vec<ConfigProblem>,
}

impl Config {
    /// Returns the settings of the search for the served site, whose search box sends events if they are recorded.
    pub fn site_search_settings(&self) -> SearchSettings {
        let mut settings = self.search.to_site_settings();
        settings.search_box.events = self.analytics.records_searches() || self.analytics.records_pages();
        settings
    }

    /// Returns the part of the configuration that decides which features the site has.
    pub fn feature_settings(&self) -> FeatureSettings {
        let sync_settings = &self.sync_settings;
        let source = match (&sync_settings.api, &sync_settings.bundle_url_file, &sync_settings.bundle) {
            // With an API, the link is used for the empty store only.
            (Some(api), ..) => Some(BundleSource::Api(api.name())),
            (None, Some(file), _) => Some(BundleSource::LinkFile(file.display().to_string())),
            (None, None, Some(bundle @ BundleLocation::Link(_))) => Some(BundleSource::Link(bundle.name())),
            (None, None, Some(bundle)) => Some(BundleSource::File(bundle.name())),
            (None, None, None) => None,
        };
        FeatureSettings {
            deployment: self.deployment.deployment_type,
            allow: self.deployment.allow.iter().map(ToString::to_string).collect(),
            base_path: self.settings.base_path.clone(),
            is_search_enabled: self.search.enabled,
            assistant: AssistantFeatureSettings {
                is_mcp_enabled: self.assistant.mcp,
                model: self.assistant.ask.as_ref().map(|ask| ask.model.clone()),
            },
            playground: PlaygroundFeatureSettings {
                is_enabled: self.playground.enabled,
                origins: self.playground.origins().into_iter().map(|(origin, _)| origin).collect(),
            },
            views: cfg!(feature = "analytics").then_some(ViewCountSettings {
                is_analytics_enabled: self.analytics.enabled,
                counts_pages: self.analytics.pages,
            }),
            bundles: BundleSettings {
                is_enabled: sync_settings.enabled,
                source,
                inbox: self.inbox.as_ref().map(|path| path.display().to_string()),
            },
        }
    }

    /// Returns whether versions can arrive without a command: from a source, or through the inbox.
    pub fn receives_versions(&self) -> bool {
        self.sync_settings.has_source() || self.inbox.is_some()
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

/// Returns advice to create the configuration at `file`, which the advice to set a key in it follows.
pub fn create_config_advice(file: &Path) -> String {
    let file = file.display();
    format!("there is no {file}: `docwharf config init {file} --for vm` writes a short one; in it, ")
}

/// The advice that follows [`nothing_to_serve_message`].
pub const SET_SOURCE_ADVICE: &str =
    "set [api] (baseUrl, domain and a key), staticExport.bundleUrl or bundleUrlFile, or sync.inbox, or import a bundle";

/// Checks a configuration. Relative paths in the file refer to `config_folder`, its folder; those in the environment to
/// the working directory.
pub(super) fn check(raw: &WrittenConfig, config_folder: &Path) -> Result<Config, Vec<ConfigProblem>> {
    let mut checker = ValueChecker { raw, problems: raw.problems.clone() };
    let base_of = |key: &str| raw.base_of(key, config_folder);
    let mut warnings = raw.warnings.clone();
    let deployment = check_deployment(&mut checker, &mut warnings);
    let outbound = deployment.outbound_policy();
    let settings = check_settings(&mut checker, deployment.deployment_type);
    let codings = check_codings(&mut checker);
    let rules = check_rules(&mut checker, &base_of);
    let rules_file = redirects_file(&mut checker, &base_of);
    let search = check_search(&mut checker, &base_of);
    let address_settings =
        AddressSettings { base_path: settings.base_path.clone(), slashes: settings.slashes, rules: Arc::clone(&rules) };
    let sync_settings = check_sync_settings(&mut checker, &base_of, &mut warnings, address_settings, &outbound);
    let assistant = check_assistant(&mut checker, &base_of, &mut warnings, &sync_settings.network);
    let playground = check_playground(&mut checker, &mut warnings, &assistant.hosts, &sync_settings.network);
    let analytics = check_analytics(&mut checker, &base_of, &sync_settings.network);
    let schedule = checker.parsed("sync.schedule", Schedule::parse);
    if let (Some(_), Some(written)) = (&schedule, raw.get("sync.interval")) {
        let message = "sync.interval: sync.schedule replaces it; remove one of them".to_owned();
        warnings.push(ConfigProblem { place: written.place.clone(), message });
    }
    let threads = checker.number("sync.threads").map(|n| n as usize);
    let store = store_path(&mut checker, &base_of);
    let inbox = checker
        .parsed("sync.inbox", |text| outside_store(without_parent_steps(&base_of("sync.inbox").join(text)), &store));
    let scrub = store_space::check_scrub(&mut checker);
    let tls = check_tls(&mut checker, &base_of);
    let log = check_log(&mut checker, &base_of);
    // The site may be served over TLS only.
    let listen = check_listen(&mut checker, "server.listen", &[DEFAULT_LISTEN], tls.is_some());
    let admin = check_listen(&mut checker, "admin.listen", &[], false);
    let admin_hosts = check_hosts(&mut checker);
    let waiting_listen = check_listen(&mut checker, "activate.listen", &[], false);
    let publish = check_publish(&mut checker, &base_of, &store, &mut warnings);
    if !checker.problems.is_empty() {
        ConfigProblem::sort(&mut checker.problems);
        return Err(checker.problems);
    }
    Ok(Config {
        deployment,
        sync_settings,
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
        search,
        assistant,
        playground,
        analytics,
        tls,
        log,
        admin,
        admin_hosts,
        waiting_listen,
        publish,
        warnings,
    })
}

#[cfg(test)]
mod key_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sync_settings::{DEFAULT_INTERVAL, DEFAULT_JOB_INTERVAL};

    fn checked(text: &str) -> Result<Config, Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("/etc/c.toml"));
        check(&raw, Path::new("/etc")).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn config_paths_are_relative_to_the_config_file_and_unset_keys_get_defaults() {
        let config = checked("[staticExport]\nbundleUrl = \"docs.zip\"\n[store]\npath = \"store\"\n").unwrap();
        assert_eq!(config.sync_settings.bundle, Some(BundleLocation::File("/etc/docs.zip".into())));
        assert_eq!(config.store, Path::new("/etc/store"));
        assert!(config.sync_settings.enabled);
        assert_eq!(config.listen, [DEFAULT_LISTEN.parse().unwrap()]);
        assert_eq!(config.sync_settings.interval, DEFAULT_INTERVAL);
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
    fn without_probes_each_interval_starts_an_export_and_with_probes_it_only_checks() {
        let sync_settings_with = |more: &str| checked(&format!("{API}{more}")).unwrap().sync_settings;
        let probing = sync_settings_with("");
        assert_eq!(
            (probing.exports_at_each_check, probing.interval, probing.probes.len()),
            (false, DEFAULT_INTERVAL, 2)
        );
        assert_eq!(probing.probes[0].without_secrets(), "https://docs.example.com/sitemap.xml");
        let without_probes = sync_settings_with("[sync]\nprobe = []\n");
        assert_eq!(
            (without_probes.exports_at_each_check, without_probes.interval, without_probes.probes.len()),
            (true, DEFAULT_JOB_INTERVAL, 0)
        );
        let interval = sync_settings_with("[sync]\ninterval = \"1h\"\n");
        assert_eq!((interval.exports_at_each_check, interval.interval), (true, Duration::from_hours(1)));
        let both = sync_settings_with("[sync]\ninterval = \"1h\"\nprobe = \"https://x.example/a\"\n");
        assert_eq!((both.exports_at_each_check, both.probes.len()), (false, 1));
    }

    #[test]
    fn a_schedule_without_probes_exports_at_each_check_as_an_interval_does() {
        let sync_settings_with = |more: &str| checked(&format!("{API}[sync]\n{more}")).unwrap().sync_settings;
        let scheduled = sync_settings_with("schedule = \"0 3 * * *\"\n");
        assert_eq!(
            (scheduled.exports_at_each_check, scheduled.probes.len(), scheduled.has_configured_probes),
            (true, 0, false)
        );
        let probing = sync_settings_with("schedule = \"0 3 * * *\"\nprobe = \"https://x.example/a\"\n");
        assert_eq!(
            (probing.exports_at_each_check, probing.probes.len(), probing.has_configured_probes),
            (false, 1, true)
        );
        let both = checked("[sync]\ninterval = \"1h\"\nschedule = \"0 3 * * *\"\n").unwrap();
        let warnings: Vec<String> = both.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings, ["/etc/c.toml:2:1: sync.interval: sync.schedule replaces it; remove one of them"]);
    }

    #[test]
    fn api_section_requires_base_url_and_domain_and_warns_about_plain_http() {
        let problems = checked("[api]\nkeyFile = \"k\"\n").unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:#?}");
        let config = checked("[api]\nbaseUrl = \"http://api.example/\"\ndomain = \"d.example\"\n").unwrap();
        assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
        assert!(checked(API).unwrap().warnings.is_empty());
        // On this machine, no other one can read the key.
        for base in ["http://127.0.0.1:8090/v1", "http://localhost/v1/", "http://[::1]/v1"] {
            let config = checked(&format!("[api]\nbaseUrl = \"{base}\"\ndomain = \"d.example\"\n")).unwrap();
            assert!(config.warnings.is_empty(), "{base}: {:?}", config.warnings);
        }
        let elsewhere = checked("[api]\nbaseUrl = \"http://10.0.0.1/v1\"\ndomain = \"d.example\"\n").unwrap();
        let warnings: Vec<String> = elsewhere.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings, ["/etc/c.toml:2:1: api.baseUrl: plain http: the key can be read in transit"]);
    }

    #[test]
    fn invalid_lists_and_key_combinations_are_reported_with_their_key() {
        for (text, expected) in [
            ("[server]\nlisten = []\n", "server.listen: at least one address is needed"),
            ("[server]\nlisten = \"\"\n", "server.listen: at least one address is needed"),
            ("[admin]\nlisten = []\n", "admin.listen: at least one address is needed"),
            ("[activate]\nlisten = []\n", "activate.listen: at least one address is needed"),
            ("[store]\npath = \"\"\n", "store.path: it is empty"),
            ("[sync]\ninbox = \"\"\n", "sync.inbox: it is empty"),
            ("[publish]\ndirectory = \"\"\n", "publish.directory: it is empty"),
            ("[api]\ncaFile = \"\"\n", "api.caFile: it is empty"),
            ("[staticExport]\nbundleUrl = \"\"\n", "staticExport.bundleUrl: it is empty"),
            (
                "[sync]\nprobe = \"https://x.example/a\"\n",
                "sync.probe: probes need [api]: they decide when to start an export",
            ),
            (
                "[server]\ncodings = [\"br\", \"br\"]\n",
                "server.codings: only \"br\" and \"zstd\" are allowed, each once",
            ),
            ("[server]\ncodings = [\"gzip\"]\n", "server.codings: only \"br\" and \"zstd\" are allowed, each once"),
            (
                "[admin]\nhosts = [\"a.example\", \"a b\"]\n",
                "admin.hosts: \"a b\" is not a host name: write it like docs.example.com, without scheme, port and \
                 path",
            ),
            (
                "[gate]\nrequire = [\"/\", \"start\"]\n",
                "gate.require: \"start\" is not the address of a page: write it like \"/guides/start\", without host \
                 and query",
            ),
            ("[store]\nmaxBytes = -1\n", "store.maxBytes: a size is not negative"),
            ("[store]\nscrub = \"599s\"\n", "store.scrub: at least 10m is needed, or 0s for never"),
            ("[sync]\ninterval = \"99ms\"\n", "sync.interval: at least 100ms is needed"),
            ("[sync]\nkeep = 10001\n", "sync.keep: a whole number from 0 to 10000 is needed"),
        ] {
            assert_eq!(checked(text).unwrap_err(), [format!("/etc/c.toml:2:1: {expected}")], "{text}");
        }
        // The site may be served over TLS only.
        let tls = "[server]\nlisten = []\n[tls]\ncertFile = \"cert\"\nkeyFile = \"key\"\nlisten = \"[::]:443\"\n";
        let config = checked(tls).unwrap();
        assert!(config.listen.is_empty(), "{:?}", config.listen);
        assert_eq!(config.site_addresses().collect::<Vec<_>>(), ["[::]:443".parse().unwrap()]);
        let files = config.tls.unwrap().files;
        assert_eq!((files.certificate.as_path(), files.key.as_path()), (Path::new("/etc/cert"), Path::new("/etc/key")));
    }

    #[test]
    fn scrub_interval_is_a_week_by_default_and_0s_disables_scrubbing() {
        let scrub = |text: &str| checked(text).unwrap().scrub;
        assert_eq!(scrub(""), Some(Duration::from_hours(7 * 24)));
        assert_eq!(scrub("[store]\nscrub = \"10m\"\n"), Some(Duration::from_mins(10)));
        assert_eq!(scrub("[store]\nscrub = \"0s\"\n"), None);
    }

    #[test]
    fn the_path_of_the_inbox_has_no_parent_steps_through_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let mut raw = WrittenConfig::default();
        raw.read_toml("[sync]\ninbox = \"../inbox\"\n", Path::new("c.toml"));
        let config = check(&raw, &folder.path().join("etc")).unwrap();
        assert_eq!(config.inbox, Some(folder.path().join("inbox")));
    }

    #[test]
    fn versions_can_arrive_from_a_source_or_through_the_inbox() {
        for (text, receives) in [
            ("", false),
            ("[sync]\ninbox = \"in\"\n", true),
            ("[staticExport]\nbundleUrl = \"b.zip\"\n", true),
            (API, true),
            ("[publish]\ndirectory = \"www\"\n", false),
        ] {
            assert_eq!(checked(text).unwrap().receives_versions(), receives, "{text}");
        }
    }
}
