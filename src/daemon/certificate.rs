//! The TLS pair of a running daemon: taken over when its files change, told of when it cannot be.

use docwharf_base::chain::{Chain, OneLine};
use crate::config::access;
use docwharf_base::model::units::show_time;

use super::agent::Agent;

impl Agent {
    /// Takes over what the files hold now. What is wrong with them is told, and the pair before stays in force.
    pub(super) fn renew(&mut self) {
        let (Some(tls), Some(settings)) = (&self.tls, &self.config.tls) else { return };
        let error = match tls.reload(&settings.files) {
            Ok(None) => None,
            Ok(Some(pair)) => {
                tracing::info!("the TLS certificate is a new one, until {}", show_time(pair.not_after));
                None
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                if self.tls_error.as_ref() != Some(&error) {
                    tracing::error!("{error}; the certificate before it stays in force");
                }
                Some(error)
            }
        };
        self.tls_error = error;
        let told = self.tls_error.clone();
        self.live.tell(|now| now.tls_error = told);
    }

    /// The access log was moved away, perhaps.
    pub(super) fn reopen_log(&self) {
        if let Some(log) = self.site.log() {
            log.reopen();
        }
    }

    /// At the start and whenever somebody else may read: sockets do not change.
    pub(super) fn warn_of_exposure(&self) {
        let addresses = self.reached.iter().copied();
        if let Some(doubt) = access::exposed(&self.config.settings.door.access, addresses) {
            tracing::warn!("{}", OneLine(&doubt));
        }
    }

    /// What is wrong with the pair, for whoever asks how it stands.
    pub(super) fn tls_trouble(&self) -> Option<String> {
        let doubt = || self.tls.as_ref()?.pair().date_problem(std::time::SystemTime::now());
        self.tls_error.clone().or_else(doubt)
    }
}
