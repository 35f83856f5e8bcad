//! Detects changes of files: configuration, key, certificates, the bundle, the inbox.
//!
//! The directory is watched, not the file: an editor replaces files by rename, and a mounted `ConfigMap` or Secret is a
//! link to a link that is replaced (`..data`). After any event the content is compared, so an event without a change is
//! ignored. A poll detects what no event reports: network file systems, links to other directories, a machine without
//! free inotify watches.

use std::collections::BTreeSet;
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

/// The kind of a watched file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// Configuration, key or certificates: they are read again.
    Settings,
    /// The TLS certificate or its key: it is taken over.
    Certificate,
    /// The bundle: the source is checked.
    Bundle,
    /// The inbox: it is scanned.
    Inbox,
}

/// The state of a file, for comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Print {
    Content(Digest),
    Outside(u64, i64, i64, u64),
    Gone,
}

fn print_of(path: &Path) -> Print {
    let Ok(metadata) = std::fs::metadata(path) else { return Print::Gone };
    if metadata.is_file() && metadata.len() <= MAX_COMPARED_FILE_BYTES {
        return regular_file::read(path, MAX_COMPARED_FILE_BYTES)
            .map_or(Print::Gone, |content| Print::Content(Digest::of(&content)));
    }
    Print::Outside(metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino())
}

/// A set of watched files.
#[derive(Debug)]
pub struct FileWatch {
    files: Vec<(WatchedKind, PathBuf, Print)>,
    nudge: Arc<Notify>,
    /// When to compare after an event: related events arrive until then.
    settled: Option<Instant>,
    /// When to compare without an event.
    slow: Instant,
    _watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    /// Starts to watch these files.
    pub fn new(files: Vec<(WatchedKind, PathBuf)>) -> FileWatch {
        let nudge = Arc::new(Notify::new());
        let watcher = watcher(&files, &nudge);
        let files = files.into_iter().map(|(what, path)| (what, path.clone(), print_of(&path))).collect();
        FileWatch { files, nudge, settled: None, slow: Instant::now() + POLL_INTERVAL, _watcher: watcher }
    }

    /// Whether all these files are watched.
    pub fn covers(&self, files: &[(WatchedKind, PathBuf)]) -> bool {
        files.iter().all(|(what, path)| self.files.iter().any(|(w, p, _)| w == what && p == path))
    }

    /// Watches these files instead. A change of a file that is watched already is not lost.
    pub fn rewatch(&mut self, files: Vec<(WatchedKind, PathBuf)>) {
        let mut next = FileWatch::new(files);
        for (what, path, print) in &mut next.files {
            if let Some((.., known)) = self.files.iter().find(|(w, p, _)| w == what && p == path) {
                print.clone_from(known);
            }
        }
        next.settled = Some(Instant::now() + SETTLE_TIME);
        *self = next;
    }

    /// Waits until a file has changed; returns the kinds of those that have. It is cancel safe.
    pub async fn changed(&mut self) -> BTreeSet<WatchedKind> {
        loop {
            // Both times are kept when the future is dropped and created again.
            if self.settled.is_none() && timeout_at(self.slow, self.nudge.notified()).await.is_ok() {
                self.settled = Some(Instant::now() + SETTLE_TIME);
            }
            if let Some(settled) = self.settled {
                sleep_until(settled).await;
            }
            self.settled = None;
            self.slow = Instant::now() + POLL_INTERVAL;
            let changed = self.compare();
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    /// Returns the kinds of the files that have changed since the last comparison.
    pub fn compare(&mut self) -> BTreeSet<WatchedKind> {
        let mut changed = BTreeSet::new();
        for (what, path, before) in &mut self.files {
            let now = print_of(path);
            if now != *before {
                *before = now;
                changed.insert(*what);
            }
        }
        changed
    }
}

fn watcher(files: &[(WatchedKind, PathBuf)], nudge: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let nudge = Arc::clone(nudge);
    let on_event = move |event: notify::Result<notify::Event>| {
        // Reading by this process must not wake it.
        let reading = |kind: &EventKind| matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write));
        if event.as_ref().map_or(true, |event| !reading(&event.kind)) {
            nudge.notify_one();
        }
    };
    let mut watcher = match notify::recommended_watcher(on_event) {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!("cannot watch files ({error}); looking every {} s instead", POLL_INTERVAL.as_secs());
            return None;
        }
    };
    let folder = |(what, path): &(WatchedKind, PathBuf)| match what {
        WatchedKind::Inbox => Some(path.clone()),
        _ => path.parent().map(Path::to_owned),
    };
    let folders: BTreeSet<PathBuf> = files.iter().filter_map(folder).collect();
    for folder in folders {
        if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
            tracing::debug!(
                "cannot watch {} ({error}); looking every {} s instead",
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

    fn set_time(path: &Path, second: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        std::fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_file_has_changed_when_its_content_has_and_a_large_one_when_its_size_or_time_has() {
        let dir = tempfile::tempdir().unwrap();
        for (size, is_large) in [(3, false), (MAX_COMPARED_FILE_BYTES, false), (MAX_COMPARED_FILE_BYTES + 1, true)] {
            let path = dir.path().join(size.to_string());
            let put =
                |byte: u8, length: u64| std::fs::write(&path, vec![byte; usize::try_from(length).unwrap()]).unwrap();
            let mut watch = FileWatch::new(vec![
                (WatchedKind::Bundle, path.clone()),
                (WatchedKind::Inbox, dir.path().join("none")),
            ]);
            let bundle = BTreeSet::from([WatchedKind::Bundle]);
            let changed = |is: bool| if is { bundle.clone() } else { BTreeSet::new() };
            assert_eq!(watch.compare(), changed(false), "{size}: it is not there yet");
            put(b'x', size);
            set_time(&path, 1000);
            assert_eq!(watch.compare(), changed(true), "{size}: it has come");
            assert_eq!(watch.compare(), changed(false), "{size}: told once");
            set_time(&path, 2000);
            assert_eq!(watch.compare(), changed(is_large), "{size}: touched");
            put(b'y', size);
            set_time(&path, 2000);
            assert_eq!(watch.compare(), changed(!is_large), "{size}: written over at the same time");
            put(b'y', size + 1);
            set_time(&path, 2000);
            assert_eq!(watch.compare(), changed(true), "{size}: longer");
            std::fs::remove_file(&path).unwrap();
            assert_eq!(watch.compare(), changed(true), "{size}: gone");
            assert_eq!(watch.compare(), changed(false), "{size}");
        }
    }

    #[test]
    fn a_change_before_other_files_are_watched_is_not_forgotten() {
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
        assert!(!watch.covers(&[(WatchedKind::Bundle, kept.clone())]), "it is watched for something else");
        watch.rewatch(next.clone());
        assert!(watch.covers(&next) && !watch.covers(&[(WatchedKind::Settings, old.clone())]));
        assert_eq!(watch.compare(), BTreeSet::from([WatchedKind::Settings]));
        std::fs::write(&old, "three").unwrap();
        assert_eq!(watch.compare(), BTreeSet::new(), "it is watched no more");
        std::fs::write(&kept, "three").unwrap();
        std::fs::write(&new, "three").unwrap();
        assert_eq!(
            watch.compare(),
            BTreeSet::from([WatchedKind::Settings, WatchedKind::Certificate, WatchedKind::Bundle])
        );
    }
}
