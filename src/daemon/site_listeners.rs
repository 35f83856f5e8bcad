//! The certificate and the addresses of the site's listeners: the certificate is loaded again when its files change,
//! and a certificate that cannot be used is reported. The sockets are not here, but in the accept loops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use crate::config::access;
use crate::config::tls::TlsSettings;
use docwharf_base::clock::format_system_time;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_serve::access::AccessRules;
use docwharf_serve::tls::ServerTls;

/// The certificate and the addresses on which the site is served.
#[derive(Debug)]
pub(super) struct SiteListeners {
    /// The TLS certificate in force, if the site is served over TLS.
    tls: Option<Arc<ServerTls>>,
    /// The reason why the current certificate files are not in force.
    error: Option<String>,
    /// The addresses, which do not change.
    socket_addresses: Vec<SocketAddr>,
}

impl SiteListeners {
    /// Creates the state of listeners on these addresses, whose certificate has just been loaded.
    pub(super) fn new(tls: Option<Arc<ServerTls>>, socket_addresses: Vec<SocketAddr>) -> SiteListeners {
        SiteListeners { tls, error: None, socket_addresses }
    }

    /// Loads certificate and key from their files. If they cannot be used, the cause is logged, and the previous
    /// certificate stays in force.
    pub(super) fn reload_certificate(&mut self, settings: Option<&TlsSettings>) {
        let (Some(tls), Some(settings)) = (&self.tls, settings) else { return };
        self.error = match tls.reload(&settings.files) {
            Ok(None) => None,
            Ok(Some(pair)) => {
                tracing::info!(
                    "the TLS certificate was replaced; the new one is valid until {}",
                    format_system_time(pair.not_after)
                );
                None
            }
            Err(error) => {
                let error = ErrorChain(&error).to_string();
                if self.error.as_ref() != Some(&error) {
                    tracing::error!("{error}; the previous certificate stays in force");
                }
                Some(error)
            }
        };
    }

    /// Warns if every client that reaches the site may read it. Called at the start and whenever access control
    /// changes.
    pub(super) fn warn_of_exposure(&self, rules: &AccessRules) {
        if let Some(warning) = access::exposure_warning(rules, self.socket_addresses.iter().copied()) {
            tracing::warn!("{}", OneLine(&warning));
        }
    }

    /// Returns the reason why the current certificate files are not in force.
    pub(super) fn certificate_error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the problem of the certificate at `now` for the status line, which may also be that it has expired.
    pub(super) fn certificate_problem(&self, now: SystemTime) -> Option<String> {
        let date_problem = || self.tls.as_ref()?.key_pair().date_problem(now);
        self.error.clone().or_else(date_problem)
    }
}
