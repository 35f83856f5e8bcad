//! A configuration that changes under a running agent: read again, taken over as far as that goes, remembered if it is wrong.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use crate::admin::hosts::AllowedHosts;
use docwharf_base::backoff;
use docwharf_base::chain::{Chain, OneLine};
use crate::config::Problem;
use crate::config::checked::{Config, Sources};
use crate::config::tls::TlsSettings;
use docwharf_site::lookup::Addresses;
use docwharf_agent::store::keeper::Keeper;
use docwharf_agent::sync::Bundle;
use docwharf_agent::sync::agenda::Moment;
use docwharf_agent::sync::watch::What;

use super::agent::{Agent, in_force, rhythm};
use super::start::open_to_all;

impl Agent {
    /// Reads the configuration again; one with mistakes is told of, and the one before stays in force.
    pub(super) fn reload(&mut self) -> bool {
        match self.load() {
            Ok(config) => {
                self.config_error = None;
                self.take_over(config);
                self.warn_of_config();
                // Another pair may have been named, or the one that is named exchanged meanwhile.
                self.renew();
                self.remember_config_error();
                true
            }
            Err(problems) => {
                for problem in &problems {
                    tracing::error!("{}; the configuration before it stays in force", OneLine(&problem.to_string()));
                }
                let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
                self.config_error = Some(OneLine(&lines.join("; ")).to_string());
                self.remember_config_error();
                false
            }
        }
    }

    /// Reads the configuration. A file that it names for the first time is watched before it is read: otherwise a change
    /// between the two would never be noticed.
    fn load(&mut self) -> Result<Config, Vec<Problem>> {
        loop {
            let config = self.sources.load_again()?;
            let files = watched(&self.sources, &config);
            if self.watch.covers(&files) {
                return Ok(config);
            }
            self.watch.rewatch(files);
        }
    }

    /// What can change while it runs, changes.
    pub(super) fn take_over(&mut self, config: Config) {
        // Who may read is not a matter that waits for a restart.
        let door = config.settings.door.clone();
        let is_other_door = door != self.config.settings.door;
        self.config.settings.door = door;
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
        let inbox = config.inbox != self.config.inbox;
        let pace = |config: &Config| (config.intent.interval, config.schedule.clone());
        let paces_differ = pace(&config) != pace(&self.config);
        let addresses = Addresses { rules: Arc::clone(&config.rules), ..self.config.intent.gate.addresses.clone() };
        // What waits for a restart stays as it is, so that the next reload warns of it again.
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
        // The gate looks addresses up as they are served.
        self.config.intent.gate.addresses = addresses;
        self.in_force.store(Arc::new(in_force(&self.config)));
        for site in [&self.site, &self.staged] {
            site.obey(Arc::clone(&self.config.rules));
        }
        if is_other_door {
            let door = &self.config.settings.door;
            self.site.admit(door.clone());
            self.staged.admit(open_to_all(door));
            tracing::info!("access or server.trustedProxies has changed: it counts from the next request on");
            self.warn_of_exposure();
        }
        self.live.allow_hosts(AllowedHosts::new(&self.config.admin_hosts));
        self.publisher.configure(self.config.publish.clone());
        if inbox {
            self.open_inbox();
        }
        if paces_differ {
            self.agenda.change_rhythm(rhythm(&self.config), Moment::now(), backoff::random);
        }
        self.glance = self.config.inbox.as_ref().map(|_| Instant::now());
        self.watch.rewatch(watched(&self.sources, &self.config));
    }

    pub(super) fn warn_of_config(&self) {
        for warning in &self.config.warnings {
            tracing::warn!("{}", OneLine(&warning.to_string()));
        }
        if let Some(api) = &self.config.intent.api
            && api.key.is_too_open()
        {
            tracing::warn!("{} is open to more than owner and group: chmod 0640 it", api.key.name());
        }
    }

    /// Status says that a configuration was not taken over.
    pub(super) fn remember_config_error(&self) {
        if let Err(error) = self.writer.change(|record| record.config_error.clone_from(&self.config_error)) {
            tracing::warn!("{}", Chain(&error));
        }
    }
}

/// Where it is encrypted; that a certificate is there at all counts, too.
fn listens(config: &Config) -> Option<&[std::net::SocketAddr]> {
    config.tls.as_ref().map(|tls| tls.listen.as_slice())
}

/// The files of the new configuration with the addresses of the one before; both are as before if only one of the two is
/// encrypted.
fn still_listening(new: Option<TlsSettings>, before: Option<&TlsSettings>) -> Option<TlsSettings> {
    let listen = &before?.listen;
    new.map(|new| TlsSettings { listen: listen.clone(), ..new }).or_else(|| before.cloned())
}

pub(super) fn watched(sources: &Sources, config: &Config) -> Vec<(What, PathBuf)> {
    let mut files = vec![(What::Settings, sources.file().0)];
    let intent = &config.intent;
    let key = intent.api.as_ref().and_then(|api| api.key.file().cloned());
    let ca = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    files.extend(key.into_iter().chain(intent.network.ca_file.clone()).chain(ca).map(|path| (What::Settings, path)));
    let pair = config.tls.iter().flat_map(|tls| [&tls.files.certificate, &tls.files.key]);
    files.extend(pair.map(|path| (What::Certificate, path.clone())));
    if let Some(Bundle::File(path)) = &intent.bundle {
        files.push((What::Bundle, path.clone()));
    }
    files.extend(config.rules_file.clone().map(|path| (What::Settings, path)));
    files.extend(config.inbox.clone().map(|path| (What::Inbox, path)));
    files
}
