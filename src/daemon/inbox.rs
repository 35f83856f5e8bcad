//! The inbox of a running agent: imports complete files, and then moves them to `accepted/` or `rejected/`.

// Other users may write to the inbox, so a path may lead to another file when it is used. See `base/directory`.
#![deny(clippy::disallowed_methods)]

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::admin::daemon_state;
use docwharf_agent::sync::SyncError;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::inbox::{BundleInbox, InboxFile};
use docwharf_base::backoff;
use docwharf_base::error_chain::{ErrorChain, error_message};

use super::agent::{Agent, INBOX_SCAN_INTERVAL};

/// Interval between attempts to open or read an inbox that cannot be used.
const INBOX_RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Agent {
    /// Opens the configured inbox. If that fails, the cause is logged and another attempt is scheduled.
    pub(super) fn open_inbox(&mut self) {
        self.inbox = None;
        self.next_inbox_scan = None;
        let Some(dir) = self.config.inbox.clone() else {
            self.inbox_error = None;
            return;
        };
        match BundleInbox::open(&dir) {
            Ok(inbox) => {
                self.inbox = Some(inbox);
                self.clear_inbox_error(&dir);
                self.next_inbox_scan = Some(Instant::now());
            }
            Err(error) => self.record_inbox_error("open", &dir, &error),
        }
    }

    fn clear_inbox_error(&mut self, dir: &Path) {
        if self.inbox_error.take().is_some() {
            tracing::info!("the inbox {} can be used again", dir.display());
        }
    }

    /// Records that the inbox cannot be used, for status, status line and metrics. The log has a line only if the cause
    /// is another than before.
    fn record_inbox_error(&mut self, doing: &str, dir: &Path, error: &io::Error) {
        let next = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                format!("; under systemd, the unit needs ReadWritePaths={}", dir.display())
            }
            io::ErrorKind::PermissionDenied => "; `docwharf doctor`, run by root, says what is missing".to_owned(),
            _ => String::new(),
        };
        let why = format!("cannot {doing} the inbox {} (sync.inbox): {}{next}", dir.display(), error_message(error));
        if self.inbox_error.as_ref() != Some(&why) {
            tracing::error!("{why}");
        }
        self.inbox_error = Some(why);
        self.next_inbox_scan = Some(Instant::now() + INBOX_RETRY_INTERVAL);
    }

    /// Returns the state of the inbox for status and metrics; `None` if no inbox is configured.
    pub(super) fn inbox_state(&self) -> Option<daemon_state::InboxState> {
        let directory = self.config.inbox.clone()?;
        Some(daemon_state::InboxState { directory, error: self.inbox_error.clone() })
    }

    pub(super) fn scan_inbox(&mut self) {
        if !self.config.intent.enabled {
            self.next_inbox_scan = None;
            return;
        }
        if self.inbox.is_none() {
            self.open_inbox();
        }
        let Some(inbox) = &mut self.inbox else { return };
        if self.running.is_some() {
            // The task in progress may be reading a file in the inbox.
            self.next_inbox_scan = Some(Instant::now() + INBOX_SCAN_INTERVAL);
            return;
        }
        self.next_inbox_scan = None;
        let dir = inbox.dir().to_owned();
        match inbox.see(std::time::Instant::now()) {
            Ok(seen) => {
                self.clear_inbox_error(&dir);
                self.pending.set_inbox_files(seen.ready);
                if seen.growing {
                    self.next_inbox_scan = Some(Instant::now() + INBOX_SCAN_INTERVAL);
                }
            }
            Err(error) => self.record_inbox_error("read", &dir, &error),
        }
    }

    /// Moves an imported file to `accepted/` or `rejected/`. If the import failed for another reason than the file's
    /// content, such as a full disk, the file stays and is tried again.
    pub(super) fn move_imported_file(&mut self, file: &InboxFile, result: &Result<SyncReport, SyncError>) {
        let Some(inbox) = &mut self.inbox else { return };
        let path = &file.path;
        let reason = match result {
            Ok(_) => None,
            Err(error) if error.is_cut_short() && !inbox.give_time(file) => {
                tracing::warn!("{}; it is looked at again in a minute, or when it has changed", ErrorChain(error));
                self.next_inbox_scan = Some(Instant::now() + INBOX_SCAN_INTERVAL);
                return;
            }
            Err(error) if error.is_refusal() && inbox.is_unchanged(file) => Some(ErrorChain(error).to_string()),
            Err(error) => {
                tracing::error!("{}; {} is tried again", ErrorChain(error), path.display());
                self.failed_imports += 1;
                self.next_inbox_scan = Some(Instant::now() + backoff::wait_after_failures(self.failed_imports));
                return;
            }
        };
        self.failed_imports = 0;
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
                error_message(&error)
            );
        }
    }
}
