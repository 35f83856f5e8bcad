//! The inbox of a running agent: what lies ready is imported, and put where it belongs.

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

use tokio::time::Instant;

use crate::base::backoff;
use crate::base::chain::{Chain, words};
use crate::config::checked::Config;
use crate::sync::SyncError;
use crate::sync::inbox::{Dropped, Inbox};
use crate::sync::settle::Report;

use super::agent::{Agent, GLANCE};

impl Agent {
    pub(super) fn look_into_inbox(&mut self) {
        let Some(inbox) = self.inbox.as_mut().filter(|_| self.config.intent.enabled) else {
            self.glance = None;
            return;
        };
        if self.running.is_some() {
            // It may be reading what lies there.
            self.glance = Some(Instant::now() + GLANCE);
            return;
        }
        self.glance = None;
        match inbox.see(std::time::Instant::now()) {
            Ok(seen) => {
                self.imports = seen.ready.into();
                if seen.growing {
                    self.glance = Some(Instant::now() + GLANCE);
                }
            }
            Err(error) => tracing::warn!("cannot read the inbox {}: {error}", inbox.dir().display()),
        }
    }

    /// Moves a file from the inbox to where it belongs. A disk that is full says nothing about the file: it stays.
    pub(super) fn put_away(&mut self, file: &Dropped, result: &Result<Report, SyncError>) {
        let Some(inbox) = &mut self.inbox else { return };
        let path = &file.path;
        let reason = match result {
            Ok(_) => None,
            Err(error) if error.is_cut_short() && !inbox.give_time(file) => {
                tracing::warn!("{}; it is looked at again in a minute, or when it has changed", Chain(error));
                self.glance = Some(Instant::now() + GLANCE);
                return;
            }
            Err(error) if error.is_refusal() && inbox.is_unchanged(file) => Some(Chain(error).to_string()),
            Err(error) => {
                tracing::error!("{}; {} is tried again", Chain(error), path.display());
                self.stuck += 1;
                self.glance = Some(Instant::now() + backoff::after(self.stuck));
                return;
            }
        };
        self.stuck = 0;
        match &reason {
            None => tracing::info!("{}: accepted", path.display()),
            Some(reason) => tracing::error!("{reason}; it is in rejected/"),
        }
        if let Err(error) = inbox.put_away(file, reason.as_deref()) {
            tracing::warn!(
                "cannot move {} out of the inbox: {}; it is left alone until it changes",
                path.display(),
                words(&error)
            );
        }
    }
}

pub(super) fn open_inbox(config: &Config) -> Option<Inbox> {
    let dir = config.inbox.as_ref()?;
    match Inbox::open(dir) {
        Ok(inbox) => Some(inbox),
        Err(error) => {
            tracing::error!("cannot open the inbox {} (sync.inbox): {error}", dir.display());
            None
        }
    }
}
