//! The inbox of a running daemon: finds complete files, and moves them to `accepted/` or `rejected/` after their
//! import.
//!
//! The time is an argument. An inbox that cannot be opened or read is tried again every few seconds.

// Other users may write to the inbox, so a path may lead to another file when it is used. See
// `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::admin::daemon_state::InboxState;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::SyncError;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::inbox::{BundleInbox, InboxFile};
use docwharf_base::accounts;
use docwharf_base::backoff;
use docwharf_base::error_chain::{ErrorChain, error_message};

/// Interval between checks of a file that may still be written to.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between attempts to open or read an inbox that cannot be used.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The decision about a file in the inbox after its import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImportDecision {
    /// The file moves to `accepted/`.
    Accepted,
    /// The file moves to `rejected/`, with this reason in a file next to it.
    Rejected(String),
    /// The file stays and is tried again: it is truncated and may still be copied, or the import failed for another
    /// reason than the file's content, such as a full disk.
    Later,
}

/// The inbox (`sync.inbox`) and when it is scanned next.
#[derive(Debug)]
pub(super) struct InboxImporter {
    /// Has the list of the files that could not be moved away.
    writer: Arc<StoreWriter>,
    directory: Option<PathBuf>,
    /// The opened inbox; `None` if none is configured, or if it cannot be opened.
    inbox: Option<BundleInbox>,
    /// The reason why the configured inbox cannot be used.
    error: Option<String>,
    /// The reason why the last file was not imported.
    file_error: Option<String>,
    /// The number of files that were rejected.
    rejected: u64,
    /// The reason why the last of them was rejected.
    last_rejected: Option<String>,
    /// The files that could not be imported and are tried again, each with the reason: some of those that the last scan
    /// has found, whose number is bounded.
    waiting: BTreeMap<PathBuf, String>,
    /// Number of imports in a row that failed for another reason than the file's content.
    failed_imports: u32,
    next_scan: Option<Instant>,
}

impl InboxImporter {
    /// Opens the inbox in `directory`. If that fails, the cause is logged and another attempt is scheduled.
    pub(super) fn new(writer: Arc<StoreWriter>, directory: Option<PathBuf>, now: Instant) -> InboxImporter {
        let mut importer = InboxImporter {
            writer,
            directory,
            inbox: None,
            error: None,
            file_error: None,
            rejected: 0,
            last_rejected: None,
            waiting: BTreeMap::new(),
            failed_imports: 0,
            next_scan: None,
        };
        importer.open(now);
        importer
    }

    /// Applies a configuration: opens the inbox if it is another one, and scans it at once.
    pub(super) fn configure(&mut self, directory: Option<&PathBuf>, now: Instant) {
        if self.directory.as_ref() != directory {
            self.directory = directory.cloned();
            self.open(now);
        }
        self.next_scan = self.directory.as_ref().map(|_| now);
    }

    fn open(&mut self, now: Instant) {
        self.inbox = None;
        self.file_error = None;
        self.waiting.clear();
        self.next_scan = None;
        let Some(directory) = self.directory.clone() else {
            self.error = None;
            return;
        };
        match BundleInbox::open(&directory, self.writer.store().unmoved_inbox_files()) {
            Ok(inbox) => {
                self.inbox = Some(inbox);
                self.clear_error(&directory);
                self.next_scan = Some(now);
            }
            Err(error) => self.record_error("open", &directory, &error, now),
        }
    }

    fn clear_error(&mut self, directory: &Path) {
        if self.error.take().is_some() {
            tracing::info!("the inbox {} can be used again", directory.display());
        }
    }

    /// Records that the inbox cannot be used, for status, status line and metrics. The log has a line only if the cause
    /// is another than before.
    fn record_error(&mut self, doing: &str, directory: &Path, error: &io::Error, now: Instant) {
        let directory = directory.display();
        let next = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                format!("; under systemd, create the folder and add ReadWritePaths={directory} to the unit")
            }
            io::ErrorKind::PermissionDenied => "; `docwharf doctor`, run by root, reports what is missing".to_owned(),
            _ => String::new(),
        };
        let why = format!("cannot {doing} the inbox {directory} (sync.inbox): {}{next}", error_message(error));
        if self.error.as_ref() != Some(&why) {
            tracing::error!("{why}");
        }
        self.error = Some(why);
        self.next_scan = Some(now + RETRY_INTERVAL);
    }

    /// Scans the inbox as soon as possible.
    pub(super) fn scan_soon(&mut self, now: Instant) {
        self.next_scan = Some(now);
    }

    /// Scans the inbox and returns its complete files; `None` if it was not scanned. With `is_busy`, a task is in
    /// progress, which may be reading a file in the inbox: the scan is postponed.
    pub(super) fn scan(&mut self, is_enabled: bool, is_busy: bool, now: Instant) -> Option<Vec<InboxFile>> {
        if !is_enabled {
            self.next_scan = None;
            return None;
        }
        if self.inbox.is_none() {
            self.open(now);
        }
        let inbox = self.inbox.as_mut()?;
        if is_busy {
            self.next_scan = Some(now + SCAN_INTERVAL);
            return None;
        }
        self.next_scan = None;
        let directory = inbox.dir().to_owned();
        match inbox.scan(now.into_std()) {
            Ok(found) => {
                self.waiting.retain(|path, _| inbox.has_candidate(path));
                self.clear_error(&directory);
                if found.growing {
                    self.next_scan = Some(now + SCAN_INTERVAL);
                } else if found.ready.is_empty() && self.failed_imports > 0 {
                    // The file that was to be tried again is gone.
                    self.failed_imports = 0;
                    self.file_error = None;
                }
                if !found.moved.is_empty()
                    && let Err(error) = self.writer.remove_unmoved_inbox_files(&found.moved)
                {
                    // Without effect: a file that is gone is not found again.
                    tracing::debug!("{}", ErrorChain(&error));
                }
                Some(found.ready)
            }
            Err(error) => {
                self.record_error("read", &directory, &error, now);
                None
            }
        }
    }

    /// Decides what happens to a file after its import, and schedules the next scan if the file stays.
    pub(super) fn decide_import(
        &mut self,
        file: &InboxFile,
        result: &Result<SyncReport, SyncError>,
        now: Instant,
    ) -> ImportDecision {
        let Some(inbox) = &mut self.inbox else { return ImportDecision::Later };
        let decision = match result {
            Ok(_) => ImportDecision::Accepted,
            Err(error) if error.is_truncated() && inbox.grant_grace_period(file) => {
                let message = format!("{}; it is checked again in a minute, or when it has changed", ErrorChain(error));
                tracing::warn!("{message}");
                self.waiting.insert(file.path.clone(), message);
                self.next_scan = Some(now + SCAN_INTERVAL);
                return ImportDecision::Later;
            }
            Err(error) if error.is_refusal() && inbox.is_unchanged(file) => {
                let advice = error.refusal_advice().map_or_else(String::new, |advice| format!("; {advice}"));
                ImportDecision::Rejected(format!("{}{advice}", ErrorChain(error)))
            }
            Err(error) => {
                let message = describe_retry(error, &file.path);
                tracing::error!("{message}");
                self.waiting.insert(file.path.clone(), message.clone());
                self.file_error = Some(message);
                self.failed_imports += 1;
                self.next_scan = Some(now + backoff::wait_after_failures(self.failed_imports));
                return ImportDecision::Later;
            }
        };
        self.failed_imports = 0;
        decision
    }

    /// Moves an imported file to `accepted/` or `rejected/`, unless it stays.
    pub(super) fn move_imported_file(&mut self, file: &InboxFile, decision: &ImportDecision) {
        let Some(inbox) = &mut self.inbox else { return };
        let path = file.path.display();
        let reason = match decision {
            ImportDecision::Accepted => None,
            ImportDecision::Rejected(reason) => Some(reason.as_str()),
            ImportDecision::Later => return,
        };
        let moved = inbox.move_away(file, reason);
        self.waiting.remove(&file.path);
        match reason {
            None => {
                tracing::info!("{path}: accepted");
                self.file_error = None;
            }
            Some(reason) => {
                let place = if moved.is_ok() { "was moved to rejected/" } else { "stays in the inbox" };
                let message = format!("{reason}; it {place}");
                tracing::error!("{message}");
                self.rejected += 1;
                self.last_rejected = Some(message.clone());
                self.file_error = Some(message);
            }
        }
        if let Err(error) = moved {
            let error = error_message(&error);
            tracing::warn!("cannot move {path} out of the inbox: {error}; it is ignored until it changes");
            // A refused file is not listed: it changes no version, and after a restart the status has the reason again.
            if *decision == ImportDecision::Accepted
                && let Err(error) = self.writer.add_unmoved_inbox_file(file.digest())
            {
                tracing::warn!("{}; {path} is imported again after a restart", ErrorChain(&error));
            }
        }
    }

    /// Returns the time of the next scan, if one is planned.
    pub(super) fn next_scan(&self) -> Option<Instant> {
        self.next_scan
    }

    /// Returns whether an inbox is open, so that versions can arrive through it.
    pub(super) fn is_open(&self) -> bool {
        self.inbox.is_some()
    }

    /// Returns the state of the inbox for status and metrics; `None` if no inbox is configured.
    pub(super) fn state(&self) -> Option<InboxState> {
        let directory = self.directory.clone()?;
        Some(InboxState {
            directory,
            error: self.error.clone(),
            file_error: self.file_error.clone(),
            rejected: self.rejected,
            last_rejected: self.last_rejected.clone(),
            waiting: self.waiting.len() as u64,
            first_waiting: self.waiting.values().next().cloned(),
        })
    }
}

/// Describes an import that failed for another reason than the file's content, and what to do about it.
fn describe_retry(error: &SyncError, path: &Path) -> String {
    let chain = ErrorChain(error);
    if is_denied(error) {
        let (path, user) = (path.display(), accounts::describe_user(rustix::process::geteuid().as_raw()));
        format!("{chain}; let {user} read it, for example with chmod g+r {path}; it is tried again")
    } else {
        format!("{chain}; {} is tried again", path.display())
    }
}

/// Whether an error goes back to a refused access.
fn is_denied(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // the tests are alone in their folders
mod tests {
    use std::fs;

    use docwharf_agent::sync::SyncOutcome;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::site_path::EntryNameFault;
    use docwharf_site::bundle::refusal::BundleRefusal;
    use docwharf_site::seal::SealError;

    use super::*;

    /// A time after which an unchanged file counts as complete.
    const QUIET: Duration = Duration::from_secs(10);

    fn open_importer(directory: &Path, now: Instant) -> InboxImporter {
        let store = tempfile::tempdir().unwrap();
        let writer = Arc::new(StoreWriter::open(store.path(), Duration::ZERO).unwrap());
        InboxImporter::new(writer, Some(directory.to_owned()), now)
    }

    /// Drops a file into the inbox and scans until it is complete.
    fn drop_file(importer: &mut InboxImporter, dir: &Path, now: Instant) -> InboxFile {
        fs::write(dir.join("dropped.zip"), "no bundle").unwrap();
        assert_eq!(importer.scan(true, false, now), Some(Vec::new()));
        assert_eq!(importer.next_scan(), Some(now + SCAN_INTERVAL), "it may still be written to");
        importer.scan(true, false, now + QUIET).expect("a scan").remove(0)
    }

    fn full_disk() -> Result<SyncReport, SyncError> {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        Err(SyncError::Seal(SealError::Read { path: "/store".into(), source }))
    }

    #[test]
    fn local_failure_leaves_the_inbox_file_and_retries_with_backoff() {
        let dir = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut importer = open_importer(dir.path(), now);
        let file = drop_file(&mut importer, dir.path(), now);
        for failures in 1..=3 {
            assert_eq!(importer.decide_import(&file, &full_disk(), now), ImportDecision::Later);
            assert_eq!(importer.next_scan(), Some(now + backoff::wait_after_failures(failures)));
        }
        importer.move_imported_file(&file, &ImportDecision::Later);
        assert!(dir.path().join("dropped.zip").exists());
        // The file is accepted at last: the next failure is a first one again.
        let done = Ok(SyncReport::from_outcome(SyncOutcome::Current(None)));
        assert_eq!(importer.decide_import(&file, &done, now), ImportDecision::Accepted);
        importer.move_imported_file(&file, &ImportDecision::Accepted);
        assert!(dir.path().join("accepted/dropped.zip").exists());
        importer.decide_import(&file, &full_disk(), now);
        assert_eq!(importer.next_scan(), Some(now + backoff::wait_after_failures(1)));
    }

    #[test]
    fn a_refused_file_is_moved_away_with_its_reason_unless_it_has_changed_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut importer = open_importer(dir.path(), now);
        let file = drop_file(&mut importer, dir.path(), now);
        let refused = || -> Result<SyncReport, SyncError> {
            let [found, demanded] = [&b"found"[..], b"demanded"].map(Digest::compute);
            Err(SyncError::WrongDigest { name: "dropped.zip".to_owned(), found, demanded })
        };
        fs::write(dir.path().join("dropped.zip"), "a longer file").unwrap();
        assert_eq!(importer.decide_import(&file, &refused(), now), ImportDecision::Later);
        assert_eq!(importer.next_scan(), Some(now + backoff::wait_after_failures(1)));
        assert_eq!(importer.scan(true, false, now + 2 * QUIET), Some(Vec::new()), "it may still be written to");
        let file = importer.scan(true, false, now + 3 * QUIET).expect("a scan").remove(0);
        let decision = importer.decide_import(&file, &refused(), now);
        let ImportDecision::Rejected(reason) = &decision else { panic!("{decision:?}") };
        assert!(reason.starts_with("dropped.zip: its SHA-256 is "), "{reason}");
        importer.move_imported_file(&file, &decision);
        assert!(dir.path().join("rejected/dropped.zip").exists() && !dir.path().join("dropped.zip").exists());
        let written = fs::read_to_string(dir.path().join("rejected/dropped.zip.reason.txt")).unwrap();
        assert!(written.contains(reason.as_str()), "{written}");
        assert!(importer.state().is_some_and(|state| state.rejected == 1 && state.waiting == 0));
        // A person who has the file gets advice.
        let file = drop_file(&mut importer, dir.path(), now + 4 * QUIET);
        let source = BundleRefusal { entry: Some(b"../x".to_vec()), fault: EntryNameFault::DotDot.into() };
        let outside = Err(SyncError::Seal(SealError::Refused { path: file.path.clone(), source }));
        let decision = importer.decide_import(&file, &outside, now);
        let ImportDecision::Rejected(reason) = &decision else { panic!("{decision:?}") };
        assert!(reason.contains("leaves the bundle; do not use this bundle, and ask who made it"), "{reason}");
        importer.move_imported_file(&file, &decision);
        // The failure before does not count any more.
        let file = drop_file(&mut importer, dir.path(), now + 6 * QUIET);
        importer.decide_import(&file, &full_disk(), now);
        assert_eq!(importer.next_scan(), Some(now + backoff::wait_after_failures(1)));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported_with_its_remedy_until_it_is_imported_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut importer = open_importer(dir.path(), now);
        let file = drop_file(&mut importer, dir.path(), now);
        let path = file.path.display().to_string();
        let denied = || -> Result<SyncReport, SyncError> {
            let source = io::Error::from(io::ErrorKind::PermissionDenied);
            Err(SyncError::Seal(SealError::Read { path: file.path.clone(), source }))
        };
        assert_eq!(importer.decide_import(&file, &denied(), now), ImportDecision::Later);
        let error = importer.state().unwrap().file_error.expect("the status reports it");
        let user = accounts::describe_user(rustix::process::geteuid().as_raw());
        let remedy = format!("; let {user} read it, for example with chmod g+r {path}; it is tried again");
        assert!(error.contains(&path) && error.ends_with(&remedy), "{error}");
        let done = Ok(SyncReport::from_outcome(SyncOutcome::Current(None)));
        let decision = importer.decide_import(&file, &done, now);
        importer.move_imported_file(&file, &decision);
        assert_eq!(importer.state().unwrap().file_error, None);
        let file = drop_file(&mut importer, dir.path(), now + 2 * QUIET);
        importer.decide_import(&file, &denied(), now);
        assert!(importer.state().unwrap().file_error.is_some());
        fs::remove_file(&file.path).unwrap();
        importer.scan(true, false, now + 4 * QUIET);
        assert_eq!(importer.state().unwrap().file_error, None);
    }

    #[test]
    fn a_reload_scans_the_inbox_and_opens_another_one_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        let now = Instant::now();
        let mut importer = open_importer(&first, now);
        assert_eq!(importer.scan(true, false, now), Some(Vec::new()));
        assert_eq!(importer.next_scan(), None);
        importer.configure(Some(&first), now);
        assert_eq!(importer.next_scan(), Some(now), "the same inbox");
        let file = drop_file(&mut importer, &first, now);
        importer.configure(Some(&second), now);
        assert_eq!(importer.next_scan(), Some(now), "another inbox");
        assert_eq!(importer.state().map(|state| state.directory), Some(second.clone()));
        let file_of_second = drop_file(&mut importer, &second, now);
        assert_ne!(file.path, file_of_second.path);
        // An inbox that cannot be opened takes nothing from the one before.
        fs::write(dir.path().join("third"), "in the way").unwrap();
        importer.configure(Some(&dir.path().join("third")), now);
        assert!(!importer.is_open());
        assert_eq!(importer.decide_import(&file_of_second, &full_disk(), now), ImportDecision::Later);
        assert_eq!(importer.scan(true, false, now), None);
        assert!(importer.state().is_some_and(|state| state.error.is_some()));
        importer.configure(Some(&second), now);
        assert!(importer.is_open() && importer.state().is_some_and(|state| state.error.is_none()));
    }

    #[test]
    fn a_scan_waits_for_the_task_in_progress_and_does_nothing_if_checks_are_disabled() {
        let dir = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut importer = open_importer(dir.path(), now);
        assert_eq!(importer.next_scan(), Some(now));
        assert_eq!(importer.scan(true, true, now), None);
        assert_eq!(importer.next_scan(), Some(now + SCAN_INTERVAL));
        assert_eq!(importer.scan(false, false, now), None);
        assert_eq!(importer.next_scan(), None);
        importer.scan_soon(now);
        assert_eq!(importer.scan(true, false, now), Some(Vec::new()));
        assert_eq!(importer.next_scan(), None, "no file may still be written to");
    }

    #[test]
    fn an_inbox_that_cannot_be_opened_is_tried_again_and_its_error_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let (path, now) = (dir.path().join("inbox"), Instant::now());
        fs::write(&path, "in the way").unwrap();
        let mut importer = open_importer(&path, now);
        assert!(!importer.is_open());
        let error = importer.state().unwrap().error.unwrap();
        assert!(error.starts_with("cannot open the inbox "), "{error}");
        assert_eq!(importer.next_scan(), Some(now + RETRY_INTERVAL));
        assert_eq!(importer.scan(true, false, now + RETRY_INTERVAL), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(importer.scan(true, false, now + 2 * RETRY_INTERVAL), Some(Vec::new()));
        assert!(importer.is_open());
        assert_eq!(importer.state().unwrap().error, None);
        // The configuration names no inbox any more.
        importer.configure(None, now);
        assert!(importer.state().is_none() && importer.next_scan().is_none() && !importer.is_open());
    }
}
