//! The inbox: a folder into which people and scripts drop bundles. A file is taken when it has not changed for a moment,
//! and then moved to `accepted/`, or to `rejected/` with the reason beside it. One that is cut short gets a minute: it may
//! still be on its way.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::base::chain::words;

/// A file that has not changed for so long is wholly written.
const QUIET: Duration = Duration::from_secs(2);
/// One that turned out to be cut short gets so long: copying over a slow line may have paused.
const PATIENCE: Duration = Duration::from_mins(1);

/// Folders for what has been judged.
const OURS: [&str; 2] = ["accepted", "rejected"];

/// What a file is like from outside.
type Shape = (u64, Option<SystemTime>);

/// The folder and what has been seen in it.
#[derive(Debug)]
pub struct Inbox {
    dir: PathBuf,
    /// Files that may still be growing, and since when they have been as they are.
    growing: HashMap<PathBuf, (Shape, Instant)>,
    /// Files that could not be moved away: not judged again until they change.
    judged: HashMap<PathBuf, Shape>,
    /// Files that were cut short when they were looked at.
    cut: HashMap<PathBuf, Shape>,
    /// Folders that were told of.
    folders: HashSet<PathBuf>,
}

/// What lies in the inbox.
#[derive(Debug, Default)]
pub struct Seen {
    /// Wholly written, oldest first.
    pub ready: Vec<PathBuf>,
    /// Whether others may still be growing.
    pub growing: bool,
}

impl Inbox {
    /// The inbox at `dir`, which is made if it is not there.
    pub fn open(dir: &Path) -> io::Result<Inbox> {
        std::fs::create_dir_all(dir)?;
        for name in OURS {
            // Now, because a disk that is full later takes no new folder, but still a rename into this one. A stick that
            // is read-only takes neither, and is told of then.
            let _ = std::fs::create_dir(dir.join(name));
        }
        Ok(Inbox {
            dir: dir.to_owned(),
            growing: HashMap::new(),
            judged: HashMap::new(),
            cut: HashMap::new(),
            folders: HashSet::new(),
        })
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What lies there at `now`.
    pub fn see(&mut self, now: Instant) -> io::Result<Seen> {
        let mut growing = HashMap::new();
        let mut ready: Vec<(Option<SystemTime>, PathBuf)> = Vec::new();
        let mut there = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                self.tell_of_folder(&path);
                continue;
            }
            if !metadata.is_file() || is_unfinished(&path) {
                continue;
            }
            let shape: Shape = (metadata.len(), metadata.modified().ok());
            there.push(path.clone());
            if self.judged.get(&path) == Some(&shape) {
                continue;
            }
            let since = match self.growing.get(&path) {
                Some((before, since)) if *before == shape => *since,
                _ => now,
            };
            let enough = if self.cut.get(&path) == Some(&shape) { PATIENCE } else { QUIET };
            if now.duration_since(since) >= enough {
                ready.push((shape.1, path.clone()));
            }
            growing.insert(path, (shape, since));
        }
        self.judged.retain(|path, _| there.contains(path));
        self.cut.retain(|path, _| there.contains(path));
        let waiting = growing.len() > ready.len();
        self.growing = growing;
        ready.sort();
        Ok(Seen { ready: ready.into_iter().map(|(_, path)| path).collect(), growing: waiting })
    }

    /// A file that was found cut short is given more time; whether it has had it already.
    pub fn give_time(&mut self, path: &Path) -> bool {
        let Some((shape, _)) = self.growing.get(path) else { return true };
        self.cut.insert(path.to_owned(), *shape) == Some(*shape)
    }

    fn tell_of_folder(&mut self, path: &Path) {
        let ours = OURS.iter().any(|name| *path == self.dir.join(name));
        if !ours && !is_unfinished(path) && self.folders.insert(path.to_owned()) {
            tracing::warn!("{}: the inbox takes archives, not folders; `docwharf import` does", path.display());
        }
    }

    /// Whether a file is as it was when it was found ready: a refusal of one that is not says nothing.
    pub fn is_unchanged(&self, path: &Path) -> bool {
        let shape = std::fs::symlink_metadata(path).map(|metadata| (metadata.len(), metadata.modified().ok())).ok();
        self.growing.get(path).map(|(shape, _)| *shape) == shape
    }

    /// Puts a judged file away; `reason` says why it was refused. One that cannot be moved (a read-only stick, a disk that
    /// is full) stays, and is not judged again until it changes.
    pub fn put_away(&mut self, path: &Path, reason: Option<&str>) -> io::Result<()> {
        let result = self.moved(path, reason);
        if let (Err(_), Some((shape, _))) = (&result, self.growing.get(path)) {
            self.judged.insert(path.to_owned(), *shape);
        }
        self.growing.remove(path);
        result
    }

    fn moved(&self, path: &Path, reason: Option<&str>) -> io::Result<()> {
        let [accepted, rejected] = OURS;
        let folder = self.dir.join(if reason.is_some() { rejected } else { accepted });
        std::fs::create_dir_all(&folder)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut target = folder.join(&name);
        let mut n = 1;
        while target.exists() {
            n += 1;
            target = folder.join(format!("{n}-{name}"));
        }
        if let Some(reason) = reason {
            let mut beside = target.clone().into_os_string();
            beside.push(".reason.txt");
            let beside = PathBuf::from(beside);
            if let Err(error) = std::fs::write(&beside, format!("{reason}\n")) {
                // On a disk that is full the file itself can still be moved; log and history have the reason, too.
                let _ = std::fs::remove_file(&beside);
                tracing::warn!("cannot write {}: {}", beside.display(), words(&error));
            }
        }
        std::fs::rename(path, target)
    }
}

/// Names under which programs write what they will rename when it is whole.
fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    name.starts_with('.') || ["part", "partial", "tmp", "crdownload", "filepart", "download"].contains(&ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_ready_when_it_has_not_changed_for_a_moment() {
        let dir = tempfile::tempdir().unwrap();
        let mut inbox = Inbox::open(dir.path()).unwrap();
        let path = dir.path().join("b.zip");
        std::fs::write(&path, "half").unwrap();
        std::fs::write(dir.path().join(".hidden"), "x").unwrap();
        std::fs::write(dir.path().join("c.zip.part"), "x").unwrap();
        let start = Instant::now();
        let seen = inbox.see(start).unwrap();
        assert!(seen.ready.is_empty() && seen.growing);
        std::fs::write(&path, "the whole").unwrap();
        assert!(inbox.see(start + QUIET).unwrap().ready.is_empty(), "it has grown");
        assert!(inbox.see(start + QUIET + QUIET / 2).unwrap().ready.is_empty());
        let seen = inbox.see(start + QUIET * 2).unwrap();
        assert_eq!((seen.ready, seen.growing), (vec![path.clone()], false));
        assert!(inbox.is_unchanged(&path));
        inbox.put_away(&path, Some("it is bad")).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("rejected/b.zip.reason.txt")).unwrap(), "it is bad\n");
        assert!(inbox.see(start + QUIET * 3).unwrap().ready.is_empty());
    }

    #[test]
    fn a_second_file_of_the_same_name_keeps_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut inbox = Inbox::open(dir.path()).unwrap();
        let path = dir.path().join("b.zip");
        for _ in 0..2 {
            std::fs::write(&path, "x").unwrap();
            inbox.put_away(&path, None).unwrap();
        }
        assert!(dir.path().join("accepted/b.zip").exists() && dir.path().join("accepted/2-b.zip").exists());
    }
}
