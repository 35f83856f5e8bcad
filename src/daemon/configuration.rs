//! The configuration of a running daemon: read again on request, watched, and in force for tasks in progress.
//!
//! A configuration that has mistakes leaves the previous one in force. Keys that need a restart keep their previous
//! value, with a warning at each reload.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::analytics_delivery::DeliverySettings;
use crate::config::assistant;
use crate::config::checked::Config;
use crate::config::inputs::ConfigInputs;
use crate::config::link_file;
use crate::config::problem::ConfigProblem;
use crate::config::tls::TlsSettings;
use docwharf_agent::analytics::key_file::AnalyticsKeyFile;
use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::file_watch::{ChangedFiles, FileWatch, WatchedKind};
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
    /// The keys whose last value waits for a restart.
    restart_keys: Vec<&'static str>,
    watch: FileWatch,
}

impl LiveConfiguration {
    /// Puts `config` in force and watches its files.
    pub(super) fn new(config_inputs: ConfigInputs, config: Config) -> LiveConfiguration {
        let watch = FileWatch::new(watched_files(&config_inputs, &config));
        let in_force = Arc::new(ArcSwap::from_pointee(sync_settings_for_tasks(&config)));
        LiveConfiguration { config_inputs, config, in_force, error: None, restart_keys: Vec::new(), watch }
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

    /// Returns the keys that have changed, but keep their value until a restart.
    pub(super) fn restart_keys(&self) -> &[&'static str] {
        &self.restart_keys
    }

    /// Waits until a watched file has changed; returns those that have, by kind. It is cancel safe.
    pub(super) async fn changed(&mut self) -> ChangedFiles {
        self.watch.changed().await
    }

    /// Returns the watched files that have changed since the last comparison, by kind.
    pub(super) fn compare_files(&mut self) -> ChangedFiles {
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
                self.restart_keys.clone_from(&change.restart_keys);
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
        let analytics = &self.config.analytics;
        let keys = analytics.key_file.as_ref().and_then(AnalyticsKeyFile::mode_warning);
        let delivery_key = analytics.deliver.as_ref().and_then(DeliverySettings::mode_warning);
        let endpoint_key = assistant::key_mode_warning(&self.config.assistant);
        let link = self.config.sync_settings.bundle_url_file.as_deref().and_then(link_file::mode_warning);
        for warning in keys.into_iter().chain(delivery_key).chain(endpoint_key).chain(link) {
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
    /// Whether `[assistant]` has changed, or the network of the endpoint.
    pub(super) assistant: bool,
    /// Whether `[playground]` has changed, or `assistant.hosts`, or the network of the targets.
    pub(super) playground: bool,
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
            assistant: config.assistant != old.assistant,
            playground: config.playground != old.playground,
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
        // It depends on the listener, not on the configuration.
        is_unpublished: _,
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
            .chain(sync_settings.bundle_url_file.clone())
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
    // Not `assistant.keyFile`: it is read for each question, and a changed one would interrupt a sync.
    files.extend(config.inbox.clone().map(|path| (WatchedKind::Inbox, path)));
    files
}

#[cfg(test)]
mod tests;
