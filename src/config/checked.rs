//! The checked configuration: every value has its type, and every default is filled in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use docwharf_agent::api::preview::StatusPath;
use docwharf_agent::publish;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::api_key::KeyPlace;
use docwharf_agent::sync::schedule::Schedule;
use docwharf_agent::sync::{ApiSource, SyncIntent};
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::version::VersionLabel;
use docwharf_base::net::NetworkSettings;
use docwharf_base::regular_file;
use docwharf_base::secret::{SafeUrl, Secret};
use docwharf_serve::SiteSettings;
use docwharf_serve::access_log::AccessLogSettings;
use docwharf_site::lookup::Addresses;
use docwharf_site::rules::RuleSet;
use docwharf_site::seal::SealOptions;

use super::access::{check_access, check_log};
use super::checker::ValueChecker;
use super::gate::{check_activation, check_gate};
use super::protection;
use super::publish::check_publish;
use super::rules::{check_rules, redirects_file};
use super::store_space;
use super::systemd_credentials::{SystemdCredential, SystemdCredentials};
use super::systemd_unit::ServiceUnit;
use super::tls::{TlsSettings, check_hsts, check_tls};
use super::value_parsers::{
    parse_base_path, parse_base_url, parse_bundle, parse_domain, parse_http2, parse_listen, parse_listen_list,
    parse_project, parse_slashes,
};
use super::written::{ConfigValue, WrittenConfig};
use super::{ConfigPlace, ConfigProblem};

/// The default path of the configuration.
pub const DEFAULT_FILE: &str = "/etc/docwharf/config.toml";
/// The maximum size of a configuration file in bytes: it has a few lines, perhaps with rules.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The default path of the store.
const DEFAULT_STORE: &str = "/var/lib/docwharf";
/// The default address of the site; no other listener has a default.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
/// The default interval between checks of the source.
const DEFAULT_INTERVAL: Duration = Duration::from_mins(15);
/// The default interval between checks of the source if each check starts an export job.
pub(super) const DEFAULT_JOB_INTERVAL: Duration = Duration::from_hours(24);

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
    pub publish: Option<publish::PublishSettings>,
    /// Warnings about values that are allowed but probably not intended.
    pub warnings: Vec<ConfigProblem>,
}

impl Config {
    /// Returns whether versions can arrive without a command: from a source, or through the inbox.
    pub fn receives_versions(&self) -> bool {
        self.intent.has_source() || self.inbox.is_some()
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

/// The sources of the configuration: a file and the environment.
#[derive(Debug, Clone, Default)]
pub struct ConfigSources {
    /// `--config`
    pub flag: Option<PathBuf>,
    /// Whether the environment is ignored.
    pub bare: bool,
    /// Whether there was a file with content when the configuration was first read.
    pub had_file: bool,
    /// Whether a command of root uses the credentials and the environment of the systemd unit that runs this
    /// configuration. The service itself has only those that systemd passes to it.
    pub uses_unit: bool,
}

impl ConfigSources {
    /// Returns the path of the file, and whether it was named explicitly.
    pub fn file(&self) -> (PathBuf, bool) {
        let named = self.flag.clone().or_else(|| std::env::var_os("DOCWHARF_CONFIG").map(PathBuf::from));
        let is_named = named.is_some();
        let path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        // Absolute, so that the source's name in receipts says which file it was.
        (std::path::absolute(&path).unwrap_or(path), is_named)
    }

    /// Returns the folder of the file, to which relative paths in it refer.
    pub fn folder(&self) -> PathBuf {
        self.file().0.parent().unwrap_or(Path::new("/")).to_owned()
    }

    /// Returns the systemd unit that runs this configuration, if root runs a command beside the service.
    pub fn unit(&self) -> Option<ServiceUnit> {
        let is_root = rustix::process::geteuid().is_root();
        (self.uses_unit && is_root).then(|| ServiceUnit::for_configuration(&self.file().0)).flatten()
    }

    /// Reads file and environment, and checks them.
    pub fn load(&self) -> Result<Config, Vec<ConfigProblem>> {
        self.read().and_then(|raw| self.check(&raw))
    }

    /// Returns the path of the store, even if other parts of the configuration have mistakes.
    pub fn store(&self) -> Option<PathBuf> {
        let raw = self.read().ok()?;
        // The default would be a guess about a file with mistakes; a wrong store is worse than none.
        if raw.get("store.path").is_none() && std::env::var_os("STATE_DIRECTORY").is_none() {
            return None;
        }
        self.check_part(&raw, store_path)
    }

    /// Returns the settings of publishing for this store, even if other parts of the configuration have mistakes.
    pub fn publish(&self, store: &Path) -> Option<publish::PublishSettings> {
        let raw = self.read().ok()?;
        self.check_part(&raw, |checker, base_of| check_publish(checker, base_of, store, &mut Vec::new())).flatten()
    }

    /// Checks one part of the configuration; `None` if that part has mistakes.
    fn check_part<T>(
        &self,
        raw: &WrittenConfig,
        part: impl FnOnce(&mut ValueChecker<'_>, &dyn Fn(&str) -> PathBuf) -> T,
    ) -> Option<T> {
        let mut checker = ValueChecker { raw, problems: Vec::new() };
        let beside = self.folder();
        let base_of = |key: &str| raw.base_of(key, &beside);
        let found = part(&mut checker, &base_of);
        checker.problems.is_empty().then_some(found)
    }

    /// Reads the configuration again while an earlier one is in force. If there was a file and it is missing or empty
    /// now, that is a mistake and not a configuration.
    pub fn reload(&self) -> Result<Config, Vec<ConfigProblem>> {
        let (path, _) = self.file();
        let is_empty = std::fs::metadata(&path).map_or(self.had_file, |metadata| metadata.len() == 0);
        if self.had_file && is_empty {
            let what = format!("{} is empty or gone", path.display());
            return Err(vec![ConfigProblem { place: ConfigPlace::Missing, what }]);
        }
        self.load()
    }

    /// Records whether there is a file with content, for [`ConfigSources::reload`].
    #[must_use]
    pub fn with_file_state(self) -> ConfigSources {
        let had_file = std::fs::metadata(self.file().0).is_ok_and(|metadata| metadata.len() > 0);
        ConfigSources { had_file, ..self }
    }

    /// Reads file and environment as written.
    pub fn read(&self) -> Result<WrittenConfig, Vec<ConfigProblem>> {
        let (path, named) = self.file();
        let shown = self.flag.clone().unwrap_or_else(|| path.clone());
        let mut raw = WrittenConfig::default();
        match regular_file::read_text(&path, MAX_FILE_BYTES) {
            Ok(text) => raw.read_toml(&text, &shown),
            Err(error) if !named && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let what = format!("cannot read {}: {error}", shown.display());
                return Err(vec![ConfigProblem { place: ConfigPlace::Missing, what }]);
            }
        }
        let unit = self.unit();
        if !self.bare {
            let mut variables = unit.as_ref().map(ServiceUnit::environment).unwrap_or_default();
            variables.retain(|(name, _)| std::env::var_os(name).is_none());
            raw.read_env(variables.into_iter().chain(std::env::vars_os()));
        }
        raw.credentials = SystemdCredentials::new(unit);
        Ok(raw)
    }

    /// Checks a configuration that was read.
    pub fn check(&self, raw: &WrittenConfig) -> Result<Config, Vec<ConfigProblem>> {
        let mut config = check(raw, &self.folder())?;
        // The variables of HTTP proxies are part of the environment.
        config.intent.network.ignore_proxies = self.bare;
        Ok(config)
    }
}

/// Checks a configuration. Relative paths in the file refer to `beside`, its folder; those in the environment to the
/// working directory.
fn check(raw: &WrittenConfig, beside: &Path) -> Result<Config, Vec<ConfigProblem>> {
    let mut checker = ValueChecker { raw, problems: raw.problems.clone() };
    let base_of = |key: &str| raw.base_of(key, beside);
    let mut warnings = raw.warnings.clone();
    let settings = check_settings(&mut checker);
    let codings = check_codings(&mut checker);
    let rules = check_rules(&mut checker, &base_of);
    let rules_file = redirects_file(&mut checker, &base_of);
    let addresses =
        Addresses { base_path: settings.base_path.clone(), slashes: settings.slashes, rules: Arc::clone(&rules) };
    let intent = check_intent(&mut checker, &base_of, &mut warnings, addresses);
    let schedule = checker.parsed("sync.schedule", Schedule::parse);
    if let (Some(_), Some(written)) = (&schedule, raw.get("sync.interval")) {
        let what = "sync.interval: sync.schedule replaces it; remove one of them".to_owned();
        warnings.push(ConfigProblem { place: written.place.clone(), what });
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

/// Refuses a path in the store, where docwharf's own files would be mistaken for those of a user. Symbolic links are
/// not resolved.
pub(super) fn outside_store(place: PathBuf, store: &Path) -> Result<PathBuf, String> {
    if place.starts_with(store) { Err("it is the store or lies in it".to_owned()) } else { Ok(place) }
}

fn store_path(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> PathBuf {
    match checker.text("store.path") {
        Some(path) => base_of("store.path").join(path),
        None => std::env::var_os("STATE_DIRECTORY")
            // systemd passes a list if the unit has several state directories.
            .and_then(|value| value.to_str()?.split(':').next().map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DEFAULT_STORE)),
    }
}

fn check_intent(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    warnings: &mut Vec<ConfigProblem>,
    addresses: Addresses,
) -> SyncIntent {
    let enabled = checker.flag("staticExport.enabled");
    let base = base_of("staticExport.bundleUrl");
    let bundle = checker.parsed("staticExport.bundleUrl", |text| parse_bundle(text, &base));
    let pin = checker.parsed("staticExport.version", |text| VersionLabel::new(text).map_err(str::to_owned));
    let sha256 = checker.parsed("staticExport.sha256", |text| {
        Digest::parse(text.trim()).ok_or_else(|| "64 hex digits are needed".to_owned())
    });
    let network = check_network(checker, base_of);
    let api = check_api(checker, base_of, warnings);
    let probes = check_probes(checker, api.as_ref());
    let said = |key: &str| checker.raw.get(key).is_some();
    // Without probes, each check has to start an export job.
    let each_look = match &probes {
        Some(probes) => probes.is_empty(),
        None => said("sync.interval") || said("sync.schedule"),
    };
    let probes = match (probes, &api) {
        (Some(probes), _) => probes,
        (None, Some(api)) if !each_look => default_probes(&api.domain),
        _ => Vec::new(),
    };
    let by_default = if each_look && api.is_some() { DEFAULT_JOB_INTERVAL } else { DEFAULT_INTERVAL };
    SyncIntent {
        enabled: enabled.unwrap_or(true),
        bundle,
        api,
        pin,
        sha256,
        each_look,
        probes,
        probes_said: checker.raw.get("sync.probe").is_some(),
        interval: checker.duration("sync.interval").unwrap_or(by_default),
        max_age: checker.duration("sync.maxAge").unwrap_or(Duration::from_hours(24)),
        job_timeout: checker.duration("sync.jobTimeout").unwrap_or(Duration::from_mins(30)),
        network,
        effort: SealOptions::new(check_limits(checker)),
        allowance: store_space::check_space(checker),
        gate: check_gate(checker, addresses),
        activation: check_activation(checker),
    }
}

fn check_limits(checker: &mut ValueChecker<'_>) -> BundleLimits {
    let limits = BundleLimits::default();
    BundleLimits {
        entries: checker.number("limits.entries").unwrap_or(limits.entries),
        unpacked: checker.size("limits.unpacked").unwrap_or(limits.unpacked),
        archive: checker.size("limits.archive").unwrap_or(limits.archive),
        entry: checker.size("limits.entry").unwrap_or(limits.entry),
    }
}

fn check_network(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> NetworkSettings {
    let network = NetworkSettings::default();
    NetworkSettings {
        connect_timeout: checker.duration("network.connectTimeout").unwrap_or(network.connect_timeout),
        call_timeout: checker.duration("network.callTimeout").unwrap_or(network.call_timeout),
        idle_timeout: checker.duration("network.idleTimeout").unwrap_or(network.idle_timeout),
        first_poll_pause: checker.duration("network.pollFirst").unwrap_or(network.first_poll_pause),
        max_poll_pause: checker.duration("network.pollMost").unwrap_or(network.max_poll_pause),
        max_redirects: checker.number("network.redirects").map_or(network.max_redirects, |n| n as usize),
        ignore_proxies: network.ignore_proxies,
        ca_file: checker.text("api.caFile").map(|path| base_of("api.caFile").join(path)),
    }
}

fn check_api(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    warnings: &mut Vec<ConfigProblem>,
) -> Option<ApiSource> {
    let before = checker.problems.len();
    let base = checker.parsed("api.baseUrl", parse_base_url);
    let domain = checker.parsed("api.domain", parse_domain);
    let project = checker.parsed("api.projectId", parse_project);
    let status_path = checker.parsed("api.statusPath", StatusPath::parse).unwrap_or_default();
    let key_file = checker.text("api.keyFile").map(|path| base_of("api.keyFile").join(path));
    let raw = checker.raw;
    // An empty section has no effect, and api.caFile is used for links as well.
    let section = ["api.baseUrl", "api.domain", "api.projectId", "api.keyFile"];
    let place = section.iter().find_map(|key| raw.get(key)).map(|written| written.place.clone())?;
    for (key, missing) in [("api.baseUrl", base.is_none()), ("api.domain", domain.is_none())] {
        if missing && raw.get(key).is_none() {
            let what = format!("{key} is missing: [api] needs baseUrl and domain");
            checker.problems.push(ConfigProblem { place: place.clone(), what });
        }
    }
    if checker.problems.len() > before {
        return None;
    }
    let (base, domain) = (base?, domain?);
    let place = raw.get("api.baseUrl").map_or(place, |written| written.place.clone());
    let mut warn =
        |what: &str| warnings.push(ConfigProblem { place: place.clone(), what: format!("api.baseUrl: {what}") });
    if !base.expose().path().trim_end_matches('/').ends_with("/v1") {
        warn("it does not end in /v1, as the API's addresses do");
    }
    if !base.is_encrypted() && !base.is_loopback() {
        warn("plain http: the key can be read on its way");
    }
    Some(ApiSource { base, domain, project, status_path, api_key: key_place(key_file, &raw.credentials) })
}

/// Returns the place of the API key: the first that is set of `keyFile`, `$DOCWHARF_API_KEY` and the credential
/// `api-key`.
fn key_place(file: Option<PathBuf>, credentials: &SystemdCredentials) -> KeyPlace {
    if let Some(path) = file {
        return KeyPlace::File(path);
    }
    let own = std::env::var("DOCWHARF_API_KEY").ok().filter(|key| !key.trim().is_empty());
    if let Some(key) = own.or_else(|| credentials.variable("DOCWHARF_API_KEY")) {
        return KeyPlace::Given(Secret::new(key));
    }
    match credentials.find("api-key") {
        Some(SystemdCredential { path, unit: Some(unit) }) => KeyPlace::UnitCredential { path, unit },
        Some(SystemdCredential { path, unit: None }) => KeyPlace::Credential(path),
        None => KeyPlace::Nowhere,
    }
}

fn check_probes(checker: &mut ValueChecker<'_>, api: Option<&ApiSource>) -> Option<Vec<SafeUrl>> {
    let texts = checker.texts("sync.probe")?;
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    let parsed = texts.iter().map(|text| SafeUrl::parse(text)).collect::<Result<Vec<_>, _>>();
    match parsed {
        Ok(probes) if probes.is_empty() || api.is_some() => Some(probes),
        Ok(_) => {
            checker.value::<()>("sync.probe", |_| {
                Err("probes need [api]: they decide when to start an export".to_owned())
            });
            None
        }
        Err(why) => {
            checker.value::<()>("sync.probe", |_| Err(why));
            None
        }
    }
}

fn default_probes(domain: &str) -> Vec<SafeUrl> {
    let of = |file: &str| SafeUrl::parse(&format!("https://{domain}/{file}")).ok();
    ["sitemap.xml", "llms.txt"].into_iter().filter_map(of).collect()
}

fn check_listen(checker: &mut ValueChecker<'_>, key: &str, default: &[&str], may_be_none: bool) -> Vec<SocketAddr> {
    let Some(texts) = checker.texts(key) else {
        return default.iter().filter_map(|text| parse_listen(text).ok()).collect();
    };
    match parse_listen_list(&texts) {
        Ok(list) if may_be_none || !list.is_empty() => list,
        Ok(_) => {
            checker.value::<()>(key, |_| Err("at least one address is needed".to_owned()));
            Vec::new()
        }
        Err(why) => {
            checker.value::<()>(key, |_| Err(why));
            Vec::new()
        }
    }
}

/// Checks `admin.hosts`: host names without a port.
fn check_hosts(checker: &mut ValueChecker<'_>) -> Vec<String> {
    let names = checker.texts("admin.hosts").unwrap_or_default();
    let parsed: Result<Vec<String>, String> = names.iter().map(|name| parse_domain(name)).collect();
    parsed.unwrap_or_else(|why| {
        checker.value::<()>("admin.hosts", |_| Err(why));
        Vec::new()
    })
}

fn check_settings(checker: &mut ValueChecker<'_>) -> SiteSettings {
    let defaults = SiteSettings::default();
    let base_path = checker.value("server.basePath", |value| match value {
        ConfigValue::Text(text) => parse_base_path(text),
        _ => Err("a text in quotes is needed".to_owned()),
    });
    let slashes = checker.value("server.slashes", |value| match value {
        ConfigValue::Text(text) => parse_slashes(text),
        _ => Err("\"auto\", \"serve\" or \"redirect\" is needed".to_owned()),
    });
    let http2 = checker.value("server.http2", |value| match value {
        ConfigValue::Text(text) => parse_http2(text),
        _ => Err("\"own\", \"hyper\" or \"off\" is needed".to_owned()),
    });
    SiteSettings {
        base_path: base_path.unwrap_or(defaults.base_path),
        slashes: slashes.unwrap_or(defaults.slashes),
        identity_cache: checker.size("server.identityCache").unwrap_or(defaults.identity_cache),
        held_bytes: checker.size("server.heldBytes").unwrap_or(defaults.held_bytes),
        asset_grace: checker.duration("server.assetGrace").unwrap_or(defaults.asset_grace),
        protection: protection::check_protection(checker),
        access_control: check_access(checker),
        hsts: check_hsts(checker),
        http2: http2.unwrap_or(defaults.http2),
    }
}

/// Checks `server.codings`: all codings if the key is not set, none for an empty list.
fn check_codings(checker: &mut ValueChecker<'_>) -> Vec<ContentCoding> {
    let Some(names) = checker.texts("server.codings") else { return ContentCoding::ALL.to_vec() };
    let mut codings = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        match ContentCoding::from_token(name) {
            Some(coding) if !codings.contains(&coding) => codings.push(coding),
            _ => {
                checker.value::<()>("server.codings", |_| Err("\"br\" and \"zstd\" are known, each once".to_owned()));
                return Vec::new();
            }
        }
    }
    codings
}

#[cfg(test)]
mod defaults;

#[cfg(test)]
mod tests {
    use super::*;
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
        let of = |more: &str| checked(&format!("{API}{more}")).unwrap().intent;
        let probing = of("");
        assert_eq!((probing.each_look, probing.interval, probing.probes.len()), (false, DEFAULT_INTERVAL, 2));
        assert_eq!(probing.probes[0].without_secrets(), "https://docs.example.com/sitemap.xml");
        let none = of("[sync]\nprobe = []\n");
        assert_eq!((none.each_look, none.interval, none.probes.len()), (true, DEFAULT_JOB_INTERVAL, 0));
        let interval = of("[sync]\ninterval = \"1h\"\n");
        assert_eq!((interval.each_look, interval.interval), (true, Duration::from_hours(1)));
        let both = of("[sync]\ninterval = \"1h\"\nprobe = \"https://x.example/a\"\n");
        assert_eq!((both.each_look, both.probes.len()), (false, 1));
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
