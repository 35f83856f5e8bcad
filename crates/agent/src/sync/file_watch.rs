//! Detects changes of files: configuration, key, certificates, the bundle, the inbox.
//!
//! The directory is watched, not the file: an editor replaces files by rename, and a mounted `ConfigMap` or Secret is a
//! link to a link that is replaced (`..data`). After any event the content is compared, so an event without a change is
//! ignored. A poll detects changes that no event reports: network file systems, links to other directories, a machine
//! without free inotify watches.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use docwharf_base::model::digest::Digest;
use docwharf_base::regular_file;

/// Interval of the poll.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Time in which several changes count as one.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// Size in bytes up to which files are compared by content.
const MAX_COMPARED_FILE_BYTES: u64 = 1024 * 1024;
/// Upper bound of the files of an inbox that are compared.
const MAX_COMPARED_ENTRIES: usize = 10_000;

/// The kind of a watched file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// Configuration, API key, CA certificates or redirects file: they are read again.
    Settings,
    /// The TLS certificate of the server or its key: it replaces the previous one.
    Certificate,
    /// The bundle: the source is checked.
    Bundle,
    /// The inbox: it is scanned.
    Inbox,
}

/// Files that have changed, by kind.
pub type ChangedFiles = BTreeMap<WatchedKind, BTreeSet<PathBuf>>;

/// The state of a file, for comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileState {
    /// Digest of the content.
    Content(Digest),
    /// Size, modification time in seconds and nanoseconds, and inode of a file that is too large to be read.
    Metadata(u64, i64, i64, u64),
    /// The names, sizes and modification times of the files of an inbox: one that stays there may be overwritten in
    /// place, which does not change the folder.
    Entries(BTreeSet<(OsString, u64, i64, i64)>),
    Missing,
}

fn read_file_state(kind: WatchedKind, path: &Path) -> FileState {
    let Ok(metadata) = std::fs::metadata(path) else { return FileState::Missing };
    if kind == WatchedKind::Inbox && metadata.is_dir() {
        return std::fs::read_dir(path).map_or(FileState::Missing, |entries| {
            let entries = entries.flatten().take(MAX_COMPARED_ENTRIES).filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((entry.file_name(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
            });
            FileState::Entries(entries.collect())
        });
    }
    if metadata.is_file() && metadata.len() <= MAX_COMPARED_FILE_BYTES {
        return regular_file::read(path, MAX_COMPARED_FILE_BYTES)
            .map_or(FileState::Missing, |content| FileState::Content(Digest::compute(&content)));
    }
    FileState::Metadata(metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino())
}

/// A set of watched files.
#[derive(Debug)]
pub struct FileWatch {
    files: Vec<(WatchedKind, PathBuf, FileState)>,
    event_notify: Arc<Notify>,
    /// When to compare after an event: related events arrive until then.
    compare_after_event: Option<Instant>,
    /// When to compare without an event.
    next_poll: Instant,
    _watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    /// Starts to watch these files.
    pub fn new(files: Vec<(WatchedKind, PathBuf)>) -> FileWatch {
        let event_notify = Arc::new(Notify::new());
        let watcher = create_watcher(&files, &event_notify);
        let files = files.into_iter().map(|(kind, path)| (kind, path.clone(), read_file_state(kind, &path))).collect();
        FileWatch {
            files,
            event_notify,
            compare_after_event: None,
            next_poll: Instant::now() + POLL_INTERVAL,
            _watcher: watcher,
        }
    }

    /// Whether all these files are watched.
    pub fn covers(&self, files: &[(WatchedKind, PathBuf)]) -> bool {
        files.iter().all(|(kind, path)| self.files.iter().any(|(k, p, _)| k == kind && p == path))
    }

    /// Watches these files instead. A change of a file that is watched already is not lost.
    pub fn rewatch(&mut self, files: Vec<(WatchedKind, PathBuf)>) {
        let mut next = FileWatch::new(files);
        for (kind, path, state) in &mut next.files {
            if let Some((.., known_state)) = self.files.iter().find(|(k, p, _)| k == kind && p == path) {
                state.clone_from(known_state);
            }
        }
        next.compare_after_event = Some(Instant::now() + SETTLE_TIME);
        *self = next;
    }

    /// Waits until a file has changed; returns those that have, by kind. It is cancel safe.
    pub async fn changed(&mut self) -> ChangedFiles {
        loop {
            // Both times are fields, so that they survive when the future is dropped and created again.
            if self.compare_after_event.is_none()
                && timeout_at(self.next_poll, self.event_notify.notified()).await.is_ok()
            {
                self.compare_after_event = Some(Instant::now() + SETTLE_TIME);
            }
            if let Some(time) = self.compare_after_event {
                sleep_until(time).await;
            }
            self.compare_after_event = None;
            self.next_poll = Instant::now() + POLL_INTERVAL;
            let changed = self.compare();
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    /// Returns the files that have changed since the last comparison, by kind.
    pub fn compare(&mut self) -> ChangedFiles {
        let mut changed = ChangedFiles::new();
        for (kind, path, state) in &mut self.files {
            let new_state = read_file_state(*kind, path);
            if new_state != *state {
                *state = new_state;
                changed.entry(*kind).or_default().insert(path.clone());
            }
        }
        changed
    }
}

fn create_watcher(files: &[(WatchedKind, PathBuf)], event_notify: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let event_notify = Arc::clone(event_notify);
    let on_event = move |event: notify::Result<notify::Event>| {
        // An event of a read must not cause a comparison, which reads the file, too.
        let is_read = |kind: &EventKind| matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write));
        if event.as_ref().map_or(true, |event| !is_read(&event.kind)) {
            event_notify.notify_one();
        }
    };
    let mut watcher = match notify::recommended_watcher(on_event) {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!("cannot watch files ({error}); checking them every {} s instead", POLL_INTERVAL.as_secs());
            return None;
        }
    };
    let folder = |(kind, path): &(WatchedKind, PathBuf)| match kind {
        WatchedKind::Inbox => Some(path.clone()),
        _ => path.parent().map(Path::to_owned),
    };
    let folders: BTreeSet<PathBuf> = files.iter().filter_map(folder).collect();
    for folder in folders {
        if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
            tracing::debug!(
                "cannot watch {} ({error}); checking it every {} s instead",
                folder.display(),
                POLL_INTERVAL.as_secs()
            );
        }
    }
    Some(watcher)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn compare_kinds(watch: &mut FileWatch) -> BTreeSet<WatchedKind> {
        watch.compare().into_keys().collect()
    }

    fn set_time(path: &Path, second: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        std::fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_file_has_changed_when_its_content_has_and_a_large_one_when_its_size_or_time_has() {
        let dir = tempfile::tempdir().unwrap();
        for (size, is_large) in [(3, false), (MAX_COMPARED_FILE_BYTES, false), (MAX_COMPARED_FILE_BYTES + 1, true)] {
            let path = dir.path().join(size.to_string());
            let write =
                |byte: u8, length: u64| std::fs::write(&path, vec![byte; usize::try_from(length).unwrap()]).unwrap();
            let mut watch = FileWatch::new(vec![
                (WatchedKind::Bundle, path.clone()),
                (WatchedKind::Inbox, dir.path().join("none")),
            ]);
            let bundle = BTreeSet::from([WatchedKind::Bundle]);
            let expected = |is_changed: bool| if is_changed { bundle.clone() } else { BTreeSet::new() };
            assert_eq!(compare_kinds(&mut watch), expected(false), "{size}: it does not exist yet");
            write(b'x', size);
            set_time(&path, 1000);
            assert_eq!(compare_kinds(&mut watch), expected(true), "{size}: created");
            assert_eq!(compare_kinds(&mut watch), expected(false), "{size}: reported once");
            set_time(&path, 2000);
            assert_eq!(compare_kinds(&mut watch), expected(is_large), "{size}: touched");
            write(b'y', size);
            set_time(&path, 2000);
            assert_eq!(compare_kinds(&mut watch), expected(!is_large), "{size}: overwritten, with the same time");
            write(b'y', size + 1);
            set_time(&path, 2000);
            assert_eq!(compare_kinds(&mut watch), expected(true), "{size}: longer");
            std::fs::remove_file(&path).unwrap();
            assert_eq!(compare_kinds(&mut watch), expected(true), "{size}: removed");
            assert_eq!(compare_kinds(&mut watch), expected(false), "{size}");
        }
    }

    #[test]
    fn an_inbox_has_changed_when_a_file_in_it_arrives_changes_or_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.zip");
        let mut watch = FileWatch::new(vec![(WatchedKind::Inbox, dir.path().to_owned())]);
        let mut assert_changed = |expected: bool, case: &str| {
            let kinds = if expected { BTreeSet::from([WatchedKind::Inbox]) } else { BTreeSet::new() };
            assert_eq!(compare_kinds(&mut watch), kinds, "{case}");
        };
        assert_changed(false, "empty");
        std::fs::write(&path, "one").unwrap();
        set_time(&path, 1000);
        assert_changed(true, "it arrives");
        assert_changed(false, "reported once");
        set_time(&path, 2000);
        assert_changed(true, "its time changes");
        std::fs::write(&path, "four").unwrap();
        set_time(&path, 2000);
        assert_changed(true, "its size changes");
        std::fs::remove_file(&path).unwrap();
        assert_changed(true, "it goes");
    }

    #[test]
    fn change_before_rewatch_is_still_reported() {
        let dir = tempfile::tempdir().unwrap();
        let [old, kept, new] = ["old", "kept", "new"].map(|name| dir.path().join(name));
        for path in [&old, &kept, &new] {
            std::fs::write(path, "one").unwrap();
        }
        let mut watch =
            FileWatch::new(vec![(WatchedKind::Settings, old.clone()), (WatchedKind::Settings, kept.clone())]);
        for path in [&old, &kept, &new] {
            std::fs::write(path, "two").unwrap();
        }
        let next = vec![
            (WatchedKind::Settings, kept.clone()),
            (WatchedKind::Bundle, new.clone()),
            (WatchedKind::Certificate, kept.clone()),
        ];
        assert!(!watch.covers(&next) && watch.covers(&[(WatchedKind::Settings, kept.clone())]) && watch.covers(&[]));
        assert!(!watch.covers(&[(WatchedKind::Bundle, kept.clone())]), "it is watched as another kind");
        watch.rewatch(next.clone());
        assert!(watch.covers(&next) && !watch.covers(&[(WatchedKind::Settings, old.clone())]));
        assert_eq!(compare_kinds(&mut watch), BTreeSet::from([WatchedKind::Settings]));
        std::fs::write(&old, "three").unwrap();
        assert_eq!(compare_kinds(&mut watch), BTreeSet::new(), "it is not watched any more");
        std::fs::write(&kept, "three").unwrap();
        std::fs::write(&new, "three").unwrap();
        assert_eq!(
            compare_kinds(&mut watch),
            BTreeSet::from([WatchedKind::Settings, WatchedKind::Certificate, WatchedKind::Bundle])
        );
    }
}
