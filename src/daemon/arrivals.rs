//! The inbox of a running agent: what lies ready is imported, and put where it belongs.

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::admin::live;
use docwharf_base::backoff;
use docwharf_base::chain::{Chain, words};
use docwharf_agent::sync::SyncError;
use docwharf_agent::sync::inbox::{Dropped, Inbox};
use docwharf_agent::sync::settle::Report;

use super::agent::{Agent, GLANCE};

/// How often an inbox that cannot be used is tried again.
const INBOX_RETRY: Duration = Duration::from_secs(5);

impl Agent {
    /// Opens the inbox that is configured, or says why that fails and tries again later.
    pub(super) fn open_inbox(&mut self) {
        self.inbox = None;
        self.glance = None;
        let Some(dir) = self.config.inbox.clone() else {
            self.inbox_error = None;
            return;
        };
        match Inbox::open(&dir) {
            Ok(inbox) => {
                self.inbox = Some(inbox);
                self.inbox_works(&dir);
                self.glance = Some(Instant::now());
            }
            Err(error) => self.inbox_fails("open", &dir, &error),
        }
    }

    fn inbox_works(&mut self, dir: &Path) {
        if self.inbox_error.take().is_some() {
            tracing::info!("the inbox {} can be used again", dir.display());
        }
    }

    /// Status, the status line and a metric tell; the log does so once for each reason.
    fn inbox_fails(&mut self, doing: &str, dir: &Path, error: &io::Error) {
        let next = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                format!("; under systemd, the unit needs ReadWritePaths={}", dir.display())
            }
            io::ErrorKind::PermissionDenied => "; `docwharf doctor`, run by root, says what is missing".to_owned(),
            _ => String::new(),
        };
        let why = format!("cannot {doing} the inbox {} (sync.inbox): {}{next}", dir.display(), words(error));
        if self.inbox_error.as_ref() != Some(&why) {
            tracing::error!("{why}");
        }
        self.inbox_error = Some(why);
        self.glance = Some(Instant::now() + INBOX_RETRY);
    }

    /// The inbox as status and metrics show it.
    pub(super) fn inbox_state(&self) -> Option<live::InboxState> {
        let directory = self.config.inbox.clone()?;
        Some(live::InboxState { directory, error: self.inbox_error.clone() })
    }

    pub(super) fn look_into_inbox(&mut self) {
        if !self.config.intent.enabled {
            self.glance = None;
            return;
        }
        if self.inbox.is_none() {
            self.open_inbox();
        }
        let Some(inbox) = &mut self.inbox else { return };
        if self.running.is_some() {
            // It may be reading what lies there.
            self.glance = Some(Instant::now() + GLANCE);
            return;
        }
        self.glance = None;
        let dir = inbox.dir().to_owned();
        match inbox.see(std::time::Instant::now()) {
            Ok(seen) => {
                self.inbox_works(&dir);
                self.imports = seen.ready.into();
                if seen.growing {
                    self.glance = Some(Instant::now() + GLANCE);
                }
            }
            Err(error) => self.inbox_fails("read", &dir, &error),
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
            Some(reason) => {
                self.metrics.count_rejected();
                tracing::error!("{reason}; it is in rejected/");
            }
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
