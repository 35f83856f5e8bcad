//! Reloads the configuration of a running agent: applies what can change without a restart, and records a configuration
//! that has mistakes.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use crate::admin::allowed_hosts::AllowedHosts;
use crate::config::ConfigProblem;
use crate::config::checked::{Config, ConfigSources};
use crate::config::tls::TlsSettings;
use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::sync::BundleLocation;
use docwharf_agent::sync::file_watch::WatchedKind;
use docwharf_agent::sync::scheduler::ClockReading;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_site::lookup::Addresses;

use super::agent::{Agent, in_force, rhythm};

impl Agent {
    /// Reads the configuration again and applies it. If it has mistakes, they are logged and the previous one stays in
    /// force. Returns whether it was applied.
    pub(super) fn reload(&mut self) -> bool {
        match self.read_config() {
            Ok(config) => {
                self.config_error = None;
                self.apply_config(config);
                self.warn_of_config();
                // The configuration may name another certificate, or the files of the same one may have been replaced.
                self.reload_certificate();
                self.remember_config_error();
                true
            }
            Err(problems) => {
                for problem in &problems {
                    tracing::error!("{}; the configuration before it stays in force", OneLine(&problem.to_string()));
                }
                let lines: Vec<String> = problems.iter().map(ConfigProblem::to_string).collect();
                self.config_error = Some(OneLine(&lines.join("; ")).to_string());
                self.remember_config_error();
                false
            }
        }
    }

    /// Reads the configuration. A file that it names for the first time is watched before it is read: a change in
    /// between would otherwise go unnoticed.
    fn read_config(&mut self) -> Result<Config, Vec<ConfigProblem>> {
        loop {
            let config = self.sources.reload()?;
            let files = watched(&self.sources, &config);
            if self.watch.covers(&files) {
                return Ok(config);
            }
            self.watch.rewatch(files);
        }
    }

    /// Applies a configuration. Keys that need a restart keep their previous value, with a warning.
    pub(super) fn apply_config(&mut self, config: Config) {
        // Access control must not wait for a restart.
        let door = config.settings.access_control.clone();
        let is_other_door = door != self.config.settings.access_control;
        self.config.settings.access_control = door;
        for (key, same) in [
            ("store.path", config.store == self.config.store),
            ("store.scrub", config.scrub == self.config.scrub),
            ("server.listen", config.listen == self.config.listen),
            ("tls.listen", listens(&config) == listens(&self.config)),
            ("access.log", config.log == self.config.log),
            ("admin.listen", config.admin == self.config.admin),
            ("activate.listen", config.staged == self.config.staged),
            ("server.codings", config.codings == self.config.codings),
            ("server or tls.hsts", config.settings == self.config.settings),
        ] {
            if !same {
                tracing::warn!("{key} has changed, which takes a restart");
            }
        }
        let pace = |config: &Config| (config.intent.interval, config.schedule.clone());
        let paces_differ = pace(&config) != pace(&self.config);
        let addresses = Addresses { rules: Arc::clone(&config.rules), ..self.config.intent.gate.addresses.clone() };
        // Keys that need a restart keep their previous value, so that the next reload warns of them again.
        self.config = Config {
            store: self.config.store.clone(),
            scrub: self.config.scrub,
            tls: still_listening(config.tls, self.config.tls.as_ref()),
            listen: self.config.listen.clone(),
            admin: self.config.admin.clone(),
            staged: self.config.staged.clone(),
            settings: self.config.settings.clone(),
            codings: self.config.codings.clone(),
            log: self.config.log.clone(),
            ..config
        };
        // The gate must resolve paths as the server does: with the new rules, but with the base path in force.
        self.config.intent.gate.addresses = addresses;
        self.in_force.store(Arc::new(in_force(&self.config)));
        self.served.set_rules(Arc::clone(&self.config.rules));
        self.staged.set_rules(Arc::clone(&self.config.rules));
        if is_other_door {
            let door = &self.config.settings.access_control;
            self.served.set_access_control(door.clone());
            self.staged.set_access_control(door);
            tracing::info!("access or server.trustedProxies has changed: it counts from the next request on");
            self.listeners.warn_of_exposure(&door.access);
        }
        self.daemon_state.allow_hosts(AllowedHosts::new(&self.config.admin_hosts));
        self.served.configure_publishing(self.config.publish.clone());
        if paces_differ {
            self.pending.change_rhythm(rhythm(&self.config), ClockReading::now());
        }
        self.inbox.configure(self.config.inbox.as_ref(), Instant::now());
        self.watch.rewatch(watched(&self.sources, &self.config));
    }

    pub(super) fn warn_of_config(&self) {
        for warning in &self.config.warnings {
            tracing::warn!("{}", OneLine(&warning.to_string()));
        }
        if let Some(api) = &self.config.intent.api
            && api.api_key.is_too_open()
        {
            tracing::warn!("{} is open to more than owner and group: chmod 0640 it", api.api_key.name());
        }
    }

    /// Records in the store whether the last configuration was refused, for the status.
    pub(super) fn remember_config_error(&self) {
        if let Err(error) = self.writer.change(|record| record.config_error.clone_from(&self.config_error)) {
            tracing::warn!("{}", ErrorChain(&error));
        }
    }
}

/// Returns the TLS addresses for a comparison; `None` without a certificate, which differs from no addresses.
fn listens(config: &Config) -> Option<&[std::net::SocketAddr]> {
    config.tls.as_ref().map(|tls| tls.listen.as_slice())
}

/// Combines the certificate files of the new configuration with the addresses of the previous one. If only one of the
/// two has TLS, the previous settings stay.
fn still_listening(new: Option<TlsSettings>, before: Option<&TlsSettings>) -> Option<TlsSettings> {
    let listen = &before?.listen;
    new.map(|new| TlsSettings { listen: listen.clone(), ..new }).or_else(|| before.cloned())
}

pub(super) fn watched(sources: &ConfigSources, config: &Config) -> Vec<(WatchedKind, PathBuf)> {
    let mut files = vec![(WatchedKind::Settings, sources.file().0)];
    let intent = &config.intent;
    let key = intent.api.as_ref().and_then(|api| api.api_key.file().cloned());
    let ca = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    files.extend(
        key.into_iter().chain(intent.network.ca_file.clone()).chain(ca).map(|path| (WatchedKind::Settings, path)),
    );
    let pair = config.tls.iter().flat_map(|tls| [&tls.files.certificate, &tls.files.key]);
    files.extend(pair.map(|path| (WatchedKind::Certificate, path.clone())));
    if let Some(BundleLocation::File(path)) = &intent.bundle {
        files.push((WatchedKind::Bundle, path.clone()));
    }
    files.extend(config.rules_file.clone().map(|path| (WatchedKind::Settings, path)));
    files.extend(config.inbox.clone().map(|path| (WatchedKind::Inbox, path)));
    files
}
