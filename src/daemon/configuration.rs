//! The configuration of a running daemon: read again on request, watched, and in force for tasks in progress.
//!
//! A configuration that has mistakes leaves the previous one in force. Keys that need a restart keep their previous
//! value, with a warning at each reload.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::checked::Config;
use crate::config::inputs::ConfigInputs;
use crate::config::problem::ConfigProblem;
use crate::config::tls::TlsSettings;
use docwharf_agent::analytics::key_file::AnalyticsKeyFile;
use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::file_watch::{FileWatch, WatchedKind};
use docwharf_agent::sync::scheduler::CheckTiming;
use docwharf_agent::sync::{BundleLocation, SyncSettings};
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_serve::SiteSettings;
use docwharf_serve::security_headers::SecurityHeaderSettings;
use docwharf_site::external::csp::CspSettings;
use docwharf_site::lookup::AddressSettings;

use super::task::default_thread_count;

/// The configuration in force, its inputs, and the files that are watched for changes.
pub(super) struct LiveConfiguration {
    config_inputs: ConfigInputs,
    config: Config,
    /// The part of the configuration that tasks in progress read.
    in_force: Arc<ArcSwap<SyncSettings>>,
    /// The mistakes of the last configuration, if it was refused.
    error: Option<String>,
    watch: FileWatch,
}

impl LiveConfiguration {
    /// Puts `config` in force and watches its files.
    pub(super) fn new(config_inputs: ConfigInputs, config: Config) -> LiveConfiguration {
        let watch = FileWatch::new(watched_files(&config_inputs, &config));
        let in_force = Arc::new(ArcSwap::from_pointee(sync_settings_for_tasks(&config)));
        LiveConfiguration { config_inputs, config, in_force, error: None, watch }
    }

    /// Returns the configuration in force.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the part of the configuration in force that a sync needs.
    pub(super) fn sync_settings(&self) -> &SyncSettings {
        &self.config.sync_settings
    }

    /// Returns the sync settings in force for tasks in progress, with the default number of threads filled in.
    pub(super) fn in_force(&self) -> &Arc<ArcSwap<SyncSettings>> {
        &self.in_force
    }

    /// Returns when the source is checked regularly.
    pub(super) fn check_timing(&self) -> CheckTiming<'_> {
        CheckTiming { interval: self.config.sync_settings.interval, schedule: self.config.schedule.as_ref() }
    }

    /// Returns the mistakes of the last configuration, if it was refused.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Waits until a watched file has changed; returns the kinds of those that have. It is cancel safe.
    pub(super) async fn changed(&mut self) -> BTreeSet<WatchedKind> {
        self.watch.changed().await
    }

    /// Returns the kinds of the watched files that have changed since the last comparison.
    pub(super) fn compare_files(&mut self) -> BTreeSet<WatchedKind> {
        self.watch.compare()
    }

    /// Watches the files of the configuration in force, and no other files.
    pub(super) fn watch_files(&mut self) {
        self.watch.rewatch(watched_files(&self.config_inputs, &self.config));
    }

    /// Reads the configuration again and puts it in force. If it has mistakes, they are logged and the previous one
    /// stays in force. The caller applies the change.
    pub(super) fn reload(&mut self) -> Option<ConfigChange> {
        match self.read() {
            Ok(new) => {
                self.error = None;
                let (config, change) = ConfigChange::between(&self.config, new);
                for key in &change.restart_keys {
                    tracing::warn!("{key} has changed, which needs a restart");
                }
                self.config = config;
                self.in_force.store(Arc::new(sync_settings_for_tasks(&self.config)));
                Some(change)
            }
            Err(problems) => {
                for problem in &problems {
                    tracing::error!("{}; the previous configuration stays in force", OneLine(&problem.to_string()));
                }
                let lines: Vec<String> = problems.iter().map(ConfigProblem::to_string).collect();
                self.error = Some(OneLine(&lines.join("; ")).to_string());
                None
            }
        }
    }

    /// Reads the configuration. A file that it names for the first time is watched before it is read: a change in
    /// between would otherwise go unnoticed.
    fn read(&mut self) -> Result<Config, Vec<ConfigProblem>> {
        loop {
            let config = self.config_inputs.reload()?;
            let files = watched_files(&self.config_inputs, &config);
            if self.watch.covers(&files) {
                return Ok(config);
            }
            self.watch.rewatch(files);
        }
    }

    /// Logs the warnings about the configuration in force.
    pub(super) fn log_warnings(&self) {
        for warning in &self.config.warnings {
            tracing::warn!("{}", OneLine(&warning.to_string()));
        }
        if let Some(api) = &self.config.sync_settings.api
            && api.api_key.is_too_open()
        {
            tracing::warn!("{} is open to more than owner and group: chmod 0640 it", api.api_key.name());
        }
        if let Some(warning) = self.config.analytics.key_file.as_ref().and_then(AnalyticsKeyFile::mode_warning) {
            tracing::warn!("{}", OneLine(&warning));
        }
    }

    /// Records in the store whether the last configuration was refused, for the status.
    pub(super) fn record_error(&self, writer: &StoreWriter) {
        if let Err(error) = writer.change_record(|record| record.config_error.clone_from(&self.error)) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }
}

/// The changes of a reload that need further steps.
#[derive(Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is another step, in any combination
pub(super) struct ConfigChange {
    /// Whether anything that is in force now has changed.
    pub(super) is_different: bool,
    /// Whether `access` or `server.trustedProxies` has changed.
    pub(super) access_control: bool,
    /// Whether the interval or the schedule of checks has changed.
    pub(super) check_timing: bool,
    /// Whether `[search]` has changed.
    pub(super) search: bool,
    /// Whether `[analytics]` has changed, or the project that it takes from `[api]`. The content of
    /// `analytics.keyFile` is not part of it, because the keys are read for each request.
    pub(super) analytics: bool,
    /// Keys that have changed, but keep their value until a restart.
    restart_keys: Vec<&'static str>,
}

impl ConfigChange {
    /// Returns the configuration that is in force after `new` has been read, and the change from `old`.
    fn between(old: &Config, new: Config) -> (Config, ConfigChange) {
        // Access control must not wait for a restart.
        let access_control = new.settings.access_control.clone();
        let settings = SiteSettings { access_control, ..old.settings.clone() };
        let other_keys = [
            ("store.path", new.store == old.store),
            ("store.scrub", new.scrub == old.scrub),
            ("server.listen", new.listen == old.listen),
            ("tls.listen", tls_addresses(&new) == tls_addresses(old)),
            ("access.log", new.log == old.log),
            ("admin.listen", new.admin == old.admin),
            ("activate.listen", new.waiting_listen == old.waiting_listen),
            ("server.codings", new.codings == old.codings),
        ];
        let restart_keys = other_keys
            .into_iter()
            .chain(compare_site_settings(&new.settings, &old.settings))
            .filter(|(_, is_same)| !is_same)
            .map(|(key, _)| key)
            .collect();
        let address_settings =
            AddressSettings { rules: Arc::clone(&new.rules), ..old.sync_settings.gate.address_settings.clone() };
        // Keys that need a restart keep their previous value, so that the next reload warns of them again.
        let mut config = Config {
            store: old.store.clone(),
            scrub: old.scrub,
            tls: with_addresses_of(old.tls.as_ref(), new.tls),
            listen: old.listen.clone(),
            admin: old.admin.clone(),
            waiting_listen: old.waiting_listen.clone(),
            settings,
            codings: old.codings.clone(),
            log: old.log.clone(),
            ..new
        };
        // The gate must resolve paths as the server does: with the new rules, but with the base path in force.
        config.sync_settings.gate.address_settings = address_settings;
        let change = ConfigChange {
            is_different: config != *old,
            access_control: config.settings.access_control != old.settings.access_control,
            check_timing: (config.sync_settings.interval, &config.schedule)
                != (old.sync_settings.interval, &old.schedule),
            search: config.search != old.search,
            analytics: config.analytics != old.analytics,
            restart_keys,
        };
        (config, change)
    }
}

/// Compares the settings of the site that need a restart: each key, and whether its value is the same in both.
fn compare_site_settings(new: &SiteSettings, old: &SiteSettings) -> [(&'static str, bool); 11] {
    // Without `..`, so that a new setting cannot be forgotten here. Access control changes without a restart.
    let SiteSettings {
        base_path,
        slashes,
        identity_cache,
        held_bytes,
        asset_grace,
        security_headers: SecurityHeaderSettings { referrer, frames, csp },
        access_control: _,
        hsts,
        http2,
    } = new;
    let old_csp = old.security_headers.csp.as_ref();
    let preset = |settings: &CspSettings| settings.preset;
    // The size has an effect only with a policy. `CspSettings::ancestors` follows from `server.frames`, compared below.
    let is_same_size = csp.as_ref().zip(old_csp).is_none_or(|(new, old)| new.max_bytes == old.max_bytes);
    [
        ("server.basePath", *base_path == old.base_path),
        ("server.slashes", *slashes == old.slashes),
        ("server.identityCache", *identity_cache == old.identity_cache),
        ("server.heldBytes", *held_bytes == old.held_bytes),
        ("server.csp", csp.as_ref().map(preset) == old_csp.map(preset)),
        ("server.cspSize", is_same_size),
        ("server.frames", *frames == old.security_headers.frames),
        ("server.referrerPolicy", *referrer == old.security_headers.referrer),
        ("server.assetGrace", *asset_grace == old.asset_grace),
        ("server.http2", *http2 == old.http2),
        ("tls.hsts", *hsts == old.hsts),
    ]
}

/// Returns the TLS addresses for a comparison; `None` without a certificate, which differs from no addresses.
fn tls_addresses(config: &Config) -> Option<&[std::net::SocketAddr]> {
    config.tls.as_ref().map(|tls| tls.listen.as_slice())
}

/// Combines the certificate files of the new configuration with the addresses of the old one. If only one of the two
/// has TLS, the old settings stay.
fn with_addresses_of(old: Option<&TlsSettings>, new: Option<TlsSettings>) -> Option<TlsSettings> {
    let listen = &old?.listen;
    new.map(|new| TlsSettings { listen: listen.clone(), ..new }).or_else(|| old.cloned())
}

/// Returns the sync settings of a configuration for tasks, with the default number of threads filled in.
fn sync_settings_for_tasks(config: &Config) -> SyncSettings {
    let mut sync_settings = config.sync_settings.clone();
    sync_settings.seal_options.threads = config.threads.unwrap_or_else(default_thread_count);
    sync_settings
}

/// Returns the files whose changes concern a running daemon.
fn watched_files(config_inputs: &ConfigInputs, config: &Config) -> Vec<(WatchedKind, PathBuf)> {
    let mut files = vec![(WatchedKind::Settings, config_inputs.file().0)];
    let sync_settings = &config.sync_settings;
    let key = sync_settings.api.as_ref().and_then(|api| api.api_key.file().cloned());
    let ca = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    files.extend(
        key.into_iter()
            .chain(sync_settings.network.ca_file.clone())
            .chain(ca)
            .map(|path| (WatchedKind::Settings, path)),
    );
    let pair = config.tls.iter().flat_map(|tls| [&tls.files.certificate, &tls.files.key]);
    files.extend(pair.map(|path| (WatchedKind::Certificate, path.clone())));
    if let Some(BundleLocation::File(path)) = &sync_settings.bundle {
        files.push((WatchedKind::Bundle, path.clone()));
    }
    files.extend(config.rules_file.clone().map(|path| (WatchedKind::Settings, path)));
    files.extend(config.search.synonyms.file.clone().map(|path| (WatchedKind::Settings, path)));
    files.extend(config.analytics.bots.file.clone().map(|path| (WatchedKind::Settings, path)));
    let analytics_keys = config.analytics.key_file.as_ref().map(|file| file.path().to_owned());
    let delivery_key = config.analytics.deliver.as_ref().map(|settings| settings.key_file.clone());
    files.extend(analytics_keys.into_iter().chain(delivery_key).map(|path| (WatchedKind::Settings, path)));
    files.extend(config.inbox.clone().map(|path| (WatchedKind::Inbox, path)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const TLS: &str = "[tls]\ncertFile = \"/tls/cert\"\nkeyFile = \"/tls/key\"\n";

    fn config(text: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let config_inputs =
            ConfigInputs { config_path: Some(path), ignores_environment: true, ..ConfigInputs::default() };
        config_inputs.load().unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
    }

    #[test]
    fn a_key_that_needs_a_restart_keeps_its_value_and_is_named_at_each_reload() {
        for (key, text) in [
            ("store.path", "[store]\npath = \"/other\"\n"),
            ("store.scrub", "[store]\nscrub = \"3d\"\n"),
            ("server.listen", "[server]\nlisten = \"127.0.0.1:1234\"\n"),
            ("tls.listen", TLS),
            ("access.log", "[access]\nlog = \"json\"\n"),
            ("admin.listen", "[admin]\nlisten = \"127.0.0.1:1234\"\n"),
            ("activate.listen", "[activate]\nlisten = \"127.0.0.1:1234\"\n"),
            ("server.codings", "[server]\ncodings = []\n"),
            ("server.basePath", "[server]\nbasePath = \"/docs\"\n"),
            ("server.csp", "[server]\ncsp = \"report\"\n"),
            ("server.frames", "[server]\nframes = \"none\"\n"),
            ("tls.hsts", "[tls]\nhsts = \"1d\"\n"),
        ] {
            let old = config("");
            let (first, change) = ConfigChange::between(&old, config(text));
            assert_eq!(change.restart_keys, [key]);
            assert_eq!(first.tls, None, "{key}: a certificate that appears waits for a restart");
            let (second, change) = ConfigChange::between(&first, config(text));
            assert_eq!(change.restart_keys, [key], "it is named again");
            assert_eq!(second, first);
        }
    }

    #[test]
    fn reload_keeps_a_removed_certificate_but_accepts_new_certificate_files() {
        let old = config(TLS);
        let (config_without, change) = ConfigChange::between(&old, config(""));
        assert_eq!((config_without.tls, change.restart_keys), (old.tls.clone(), vec!["tls.listen"]));
        let (renewed, change) = ConfigChange::between(&old, config(&TLS.replace("/tls/", "/new/")));
        assert_eq!(renewed.tls.unwrap().files.certificate, PathBuf::from("/new/cert"));
        assert_eq!((change.is_different, change.restart_keys), (true, vec![]));
    }

    #[test]
    fn each_file_that_the_configuration_names_is_watched_with_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let rules = dir.path().join("moved");
        std::fs::write(&rules, "/a /b\n").unwrap();
        let config_inputs = ConfigInputs { config_path: Some("/etc/c.toml".into()), ..ConfigInputs::default() };
        let watched = |text: &str| {
            let mut watched = watched_files(&config_inputs, &config(text));
            // The environment of the test may name it.
            let roots = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
            watched.retain(|(_, path)| Some(path) != roots.as_ref());
            watched.into_iter().collect::<BTreeSet<_>>()
        };
        let expected = |files: &[(WatchedKind, &str)]| {
            let own = (WatchedKind::Settings, PathBuf::from("/etc/c.toml"));
            let files = files.iter().map(|(kind, path)| (*kind, PathBuf::from(path)));
            files.chain([own]).collect::<BTreeSet<_>>()
        };
        assert_eq!(watched(""), expected(&[]));
        let api = "[api]\nbaseUrl = \"https://api.example/v1\"\ndomain = \"d.example\"\nkeyFile = \"/key\"\n";
        assert_eq!(watched(api), expected(&[(WatchedKind::Settings, "/key")]));
        // Without [api], the key is not used; the roots are, for links.
        let link = "[api]\ncaFile = \"/ca\"\n[staticExport]\nbundleUrl = \"https://b.example/b.zip\"\n";
        assert_eq!(watched(link), expected(&[(WatchedKind::Settings, "/ca")]));
        let files = "[staticExport]\nbundleUrl = \"/b.zip\"\n[sync]\ninbox = \"/in\"\n";
        assert_eq!(watched(files), expected(&[(WatchedKind::Bundle, "/b.zip"), (WatchedKind::Inbox, "/in")]));
        let pair = [(WatchedKind::Certificate, "/tls/cert"), (WatchedKind::Certificate, "/tls/key")];
        assert_eq!(watched(TLS), expected(&pair));
        let rules = rules.to_str().expect("a temporary folder has a plain name");
        let file = watched(&format!("[server]\nredirectsFile = \"{rules}\"\n"));
        assert_eq!(file, expected(&[(WatchedKind::Settings, rules)]));
        let words = dir.path().join("words.toml");
        std::fs::write(&words, "sets = []\n").unwrap();
        let words = words.to_str().expect("a temporary folder has a plain name");
        let file = watched(&format!("[search]\nsynonyms = \"{words}\"\n"));
        assert_eq!(file, expected(&[(WatchedKind::Settings, words)]));
    }

    #[test]
    #[cfg(feature = "analytics")]
    fn the_file_of_patterns_and_the_file_of_keys_are_watched_and_changed_patterns_are_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let bots = dir.path().join("bots");
        let text = format!("[analytics]\nbots = {bots:?}\nkeyFile = \"/keys\"\n");
        let put = |pattern: &str| {
            std::fs::write(&bots, pattern).unwrap();
            config(&text)
        };
        let old = put("bot Checker\n");
        let files = watched_files(&ConfigInputs::default(), &old);
        for path in [bots.clone(), PathBuf::from("/keys")] {
            assert!(files.contains(&(WatchedKind::Settings, path)), "{files:?}");
        }
        let (same, change) = ConfigChange::between(&old, put("bot Checker\n"));
        assert_eq!((change.is_different, change.analytics), (false, false));
        let (_, change) = ConfigChange::between(&same, put("bot Inspector\n"));
        assert_eq!((change.is_different, change.analytics), (true, true));
    }

    #[test]
    fn the_gate_resolves_addresses_with_the_new_rules_below_the_base_path_in_force() {
        let text = "[server]\nbasePath = \"/docs\"\nslashes = \"serve\"\n\
                    [[server.redirects]]\nsource = \"/a\"\ndestination = \"/b\"\n";
        let (new, change) = ConfigChange::between(&config(""), config(text));
        let addresses = &new.sync_settings.gate.address_settings;
        assert_eq!((addresses.base_path.as_str(), addresses.slashes), ("/", None));
        assert_eq!((new.settings.base_path.as_str(), new.settings.slashes), ("/", None));
        assert_eq!((addresses.rules.list().len(), new.rules.list().len()), (1, 1));
        assert_eq!(change.restart_keys, ["server.basePath", "server.slashes"]);
    }

    #[test]
    fn seal_threads_are_the_configured_number_or_half_of_the_processors() {
        assert_eq!(sync_settings_for_tasks(&config("[sync]\nthreads = 7\n")).seal_options.threads, 7);
        assert_eq!(sync_settings_for_tasks(&config("")).seal_options.threads, default_thread_count());
    }

    #[test]
    fn reload_applies_to_running_tasks_and_an_invalid_file_keeps_the_old_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let put = |text: &str| std::fs::write(&path, text).unwrap();
        put("[sync]\nkeep = 1\n");
        let config_inputs =
            ConfigInputs { config_path: Some(path.clone()), ignores_environment: true, ..ConfigInputs::default() };
        let config_inputs = config_inputs.with_file_state();
        let config = config_inputs.load().unwrap_or_else(|problems| panic!("{problems:?}"));
        let mut live = LiveConfiguration::new(config_inputs, config);
        let keep = |live: &LiveConfiguration| {
            (live.sync_settings().space_limits.keep, live.in_force().load().space_limits.keep)
        };
        assert_eq!((keep(&live), live.error()), ((1, 1), None));
        put("[sync]\nkeep = 2\n");
        assert!(live.reload().is_some_and(|change| change.is_different));
        assert_eq!((keep(&live), live.error()), ((2, 2), None));
        put("[sync]\nkeep = -1\n[limits]\nentries = 0\n");
        assert_eq!(live.reload(), None);
        let name = path.display();
        let error = format!(
            "{name}:2:1: sync.keep: a whole number from 0 to 10000 is needed; \
             {name}:4:1: limits.entries: a whole number from 1 to 10000000 is needed"
        );
        assert_eq!((keep(&live), live.error()), ((2, 2), Some(&*error)));
        put("");
        assert_eq!(live.reload(), None);
        assert_eq!(live.error(), Some(&*format!("configuration: {name} is empty or missing")));
        // The same configuration again is no change, and the mistake is gone.
        put("[sync]\nkeep = 2\n");
        assert!(live.reload().is_some_and(|change| !change.is_different));
        assert_eq!((keep(&live), live.error()), ((2, 2), None));
    }

    #[test]
    fn config_change_reports_access_control_and_check_timing() {
        let none = || ConfigChange {
            is_different: true,
            access_control: false,
            check_timing: false,
            search: false,
            analytics: false,
            restart_keys: vec![],
        };
        for (text, expected) in [
            ("", ConfigChange { is_different: false, ..none() }),
            ("[access]\nallow = [\"10.0.0.0/8\"]\n", ConfigChange { access_control: true, ..none() }),
            ("[server]\ntrustedProxies = [\"10.0.0.1\"]\n", ConfigChange { access_control: true, ..none() }),
            ("[sync]\ninterval = \"3h\"\n", ConfigChange { check_timing: true, ..none() }),
            ("[sync]\nschedule = \"0 3 * * *\"\n", ConfigChange { check_timing: true, ..none() }),
            (
                "[server]\ntrustedProxies = \"::1\"\n[access]\nheader = \"X-User\"\n",
                ConfigChange { access_control: true, ..none() },
            ),
            ("[search]\nenabled = false\n", ConfigChange { search: true, ..none() }),
            ("[search]\nexclude = \"/internal/:path*\"\n", ConfigChange { search: true, ..none() }),
            #[cfg(feature = "analytics")]
            ("[analytics]\nenabled = false\n", ConfigChange { analytics: true, ..none() }),
            #[cfg(feature = "analytics")]
            ("[analytics]\nkeyFile = \"/keys\"\n", ConfigChange { analytics: true, ..none() }),
            // Without analytics.projectId, the project is that of the API.
            (
                "[api]\nbaseUrl = \"https://api.example/v1\"\ndomain = \"d.example\"\nprojectId = \"p_1\"\n",
                ConfigChange { analytics: true, ..none() },
            ),
            ("[publish]\ndirectory = \"/www\"\n", none()),
            ("[admin]\nhosts = \"a.example\"\n", none()),
            ("[sync]\ninbox = \"/inbox\"\n", none()),
        ] {
            let (_, change) = ConfigChange::between(&config(""), config(text));
            assert_eq!(change, expected, "{text}");
        }
    }
}
