//! The TLS certificate of a running daemon: loaded again when its files change; if it cannot be used, that is reported.

use crate::config::access;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::units::show_time;

use super::agent::Agent;

impl Agent {
    /// Loads certificate and key from their files. If they cannot be used, the cause is logged and shown in the status,
    /// and the previous certificate stays in force.
    pub(super) fn reload_certificate(&mut self) {
        let (Some(tls), Some(settings)) = (&self.tls, &self.config.tls) else { return };
        let error = match tls.reload(&settings.files) {
            Ok(None) => None,
            Ok(Some(pair)) => {
                tracing::info!("the TLS certificate is a new one, until {}", show_time(pair.not_after));
                None
            }
            Err(error) => {
                let error = ErrorChain(&error).to_string();
                if self.tls_error.as_ref() != Some(&error) {
                    tracing::error!("{error}; the certificate before it stays in force");
                }
                Some(error)
            }
        };
        self.tls_error = error;
        let told = self.tls_error.clone();
        self.daemon_state.update(|now| now.tls_error = told);
    }

    /// Opens the access log again, because its file may have been moved away.
    pub(super) fn reopen_log(&self) {
        if let Some(log) = self.site.log() {
            log.reopen();
        }
    }

    /// Warns if every client that reaches the site may read it. Called at the start and whenever access control
    /// changes; the addresses do not change.
    pub(super) fn warn_of_exposure(&self) {
        let addresses = self.addresses.iter().copied();
        if let Some(doubt) = access::exposure_warning(&self.config.settings.access_control.access, addresses) {
            tracing::warn!("{}", OneLine(&doubt));
        }
    }

    /// Returns the problem of the certificate for the status line; `None` if there is none.
    pub(super) fn certificate_problem(&self) -> Option<String> {
        let doubt = || self.tls.as_ref()?.pair().date_problem(std::time::SystemTime::now());
        self.tls_error.clone().or_else(doubt)
    }
}
