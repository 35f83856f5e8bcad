//! The temporary folder in which an index without a store is built. Its name is removed when the index is open.
//!
//! A process that is killed in a build leaves the folder. The next process that builds an index in the same place
//! removes it: a folder in use is locked, and the kernel releases the lock of a process that has ended.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use docwharf_base::directory::{Directory, DirectoryEntry};

/// The beginning of the name of a temporary folder.
const NAME_PREFIX: &str = "docwharf-search-";
/// A folder that is younger may not be locked yet.
const MIN_ABANDONED_AGE: Duration = Duration::from_mins(1);

/// A temporary folder, which is removed with its files when this value is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    // Removed before the descriptor with the lock is closed.
    _folder: tempfile::TempDir,
    directory: Directory,
}

impl TemporaryFolder {
    /// Creates an empty folder in `parent`, which is created if it does not exist; `None` for the folder of the system.
    pub fn create(parent: Option<&Path>) -> io::Result<TemporaryFolder> {
        if let Some(parent) = parent {
            // Mode 0711, as an origin creates it: builds of other users pass through it, and cannot list it.
            DirBuilder::new().recursive(true).mode(0o711).create(parent)?;
        }
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        remove_abandoned(&parent);
        // The index has the text of the pages, which other users may not be allowed to read.
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix(NAME_PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(&parent)?;
        let directory = Directory::open_no_follow(folder.path())?;
        // Not every file system has locks. Then a folder that a kill leaves stays.
        let _ = flock(&directory, FlockOperation::NonBlockingLockExclusive);
        Ok(TemporaryFolder { _folder: folder, directory })
    }

    /// Returns the open folder.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

/// Removes the folders that processes of this user have left in `parent` because they were killed.
fn remove_abandoned(parent: &Path) {
    let Ok(parent) = Directory::open(parent) else { return };
    let Ok(entries) = parent.entries() else { return };
    for entry in entries.flatten() {
        if let Some(_lock) = lock_abandoned(&parent, &entry) {
            // What cannot be removed stays for the next process.
            let _ = parent.remove_all(&entry.name);
        }
    }
}

/// Locks an entry of a folder, if it is a temporary folder of this user that no process uses.
fn lock_abandoned(parent: &Directory, entry: &DirectoryEntry) -> Option<Directory> {
    if !entry.name.as_bytes().starts_with(NAME_PREFIX.as_bytes()) {
        return None;
    }
    let folder = parent.open_directory(&entry.name).ok()?;
    let metadata = folder.metadata().ok()?;
    let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
    if metadata.uid() != geteuid().as_raw() || age < MIN_ABANDONED_AGE {
        return None;
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(folder)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};

    use super::*;

    /// Lets a folder look as if it had been changed two minutes ago.
    fn make_old(path: &Path) {
        let time = SystemTime::now() - Duration::from_mins(2);
        File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn folders_of_killed_processes_are_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let used = TemporaryFolder::create(Some(dir.path())).unwrap();
        make_old(used.directory().path());
        for name in ["docwharf-search-old", "docwharf-search-new", "other"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("file"), "x").unwrap();
        }
        fs::write(dir.path().join("docwharf-search-file"), "x").unwrap();
        for name in ["docwharf-search-old", "other"] {
            make_old(&dir.path().join(name));
        }
        let used_name = used.directory().path().file_name().unwrap().to_str().unwrap();
        let mut expected = ["docwharf-search-file", "docwharf-search-new", "other", used_name];
        expected.sort_unstable();
        let next = TemporaryFolder::create(Some(dir.path())).unwrap();
        let next_name = next.directory().path().file_name().unwrap().to_owned();
        drop(next);
        assert!(!dir.path().join(next_name).exists(), "it is removed with its value");
        assert_eq!(names(dir.path()), expected);
    }

    #[test]
    fn the_folder_that_has_temporary_folders_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("previews/work");
        let folder = TemporaryFolder::create(Some(&parent)).unwrap();
        assert!(folder.directory().path().starts_with(&parent));
        let mode = folder.directory().metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700, "the index has the text of pages");
        drop(folder);
        assert_eq!(names(&parent), [""; 0]);
    }
}
