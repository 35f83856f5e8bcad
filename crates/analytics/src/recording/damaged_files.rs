//! Database files that were damaged. Each is moved aside, so that a new one can be begun, and an operator may repair it
//! (`sqlite3 FILE .recover`). At most one is kept.
//!
//! The files of a damaged database are named after the database and the time at which it was moved:
//! `analytics.db.damaged-1764228000`, with `-wal` and `-shm` behind it for the files beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The text between the name of the database and the time.
const MARK: &str = ".damaged-";
/// The ends of the names of a database's files. The file itself is the last one that is moved: a write-ahead log that
/// stayed behind would be applied to the new database.
const FILE_SUFFIXES: [&str; 3] = ["-wal", "-shm", ""];

/// A file of a damaged database.
#[derive(Debug)]
struct DamagedFile {
    path: PathBuf,
    /// The time at which it was moved aside, in seconds since 1970.
    moved: i64,
}

/// Moves the files of the database at `path` aside and deletes those that were moved earlier. Returns the new path of
/// the database. All connections of this process must be closed.
pub(super) fn move_aside(path: &Path, now_seconds: i64) -> io::Result<PathBuf> {
    let moved_path = with_suffix(path, &format!("{MARK}{now_seconds}"));
    for suffix in FILE_SUFFIXES {
        match fs::rename(with_suffix(path, suffix), with_suffix(&moved_path, suffix)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    for file in list_damaged(path)?.into_iter().filter(|file| file.moved != now_seconds) {
        remove_if_present(&file.path)?;
    }
    Ok(moved_path)
}

/// Deletes damaged files that were moved aside before a time, in seconds since 1970.
pub(super) fn remove_older(path: &Path, oldest_seconds: i64) -> io::Result<()> {
    let mut old = list_damaged(path)?.into_iter().filter(|file| file.moved < oldest_seconds);
    old.try_for_each(|file| remove_if_present(&file.path))
}

/// Overwrites all damaged files with zeros and deletes them.
pub(super) fn erase_all(path: &Path) -> io::Result<()> {
    for file in list_damaged(path)? {
        overwrite(&file.path)?;
        remove_if_present(&file.path)?;
    }
    Ok(())
}

/// Lists the damaged files of the database at `path`.
fn list_damaged(path: &Path) -> io::Result<Vec<DamagedFile>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(database) = path.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let moved = entry.file_name().to_str().and_then(|name| moving_time(database, name));
        files.extend(moved.map(|moved| DamagedFile { path: entry.path(), moved }));
    }
    Ok(files)
}

/// Returns the time in the name of a damaged file of this database; `None` for other names.
fn moving_time(database: &str, name: &str) -> Option<i64> {
    let rest = name.strip_prefix(database)?.strip_prefix(MARK)?;
    let time = rest.strip_suffix("-wal").or_else(|| rest.strip_suffix("-shm")).unwrap_or(rest);
    time.parse().ok()
}

fn overwrite(path: &Path) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).open(path)?;
    let len = file.metadata()?.len();
    io::copy(&mut io::repeat(0).take(len), &mut file)?;
    file.sync_all()
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the path with a suffix of its last part.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_files_of_a_database_are_moved_together_and_only_the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        for name in ["a.db", "a.db-wal", "a.db.damaged-x", "a.db.damaged-5", "a.db.damaged-5-wal", "b.db.damaged-5"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        assert_eq!(move_aside(&path, 7).unwrap(), folder.path().join("a.db.damaged-7"));
        let kept = ["a.db.damaged-7", "a.db.damaged-7-wal", "a.db.damaged-x", "b.db.damaged-5"];
        assert_eq!(names(folder.path()), kept);
        remove_older(&path, 7).unwrap();
        assert_eq!(names(folder.path()), kept);
        remove_older(&path, 8).unwrap();
        assert_eq!(names(folder.path()), kept[2..]);
    }

    #[test]
    fn erased_files_are_overwritten_before_they_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let (path, damaged) = (folder.path().join("a.db"), folder.path().join("a.db.damaged-7"));
        fs::write(&damaged, "secret".repeat(30_000)).unwrap();
        // A second name shows the content after the first one is gone.
        let second_name = folder.path().join("second");
        fs::hard_link(&damaged, &second_name).unwrap();
        erase_all(&path).unwrap();
        assert_eq!(names(folder.path()), ["second"]);
        let content = fs::read(second_name).unwrap();
        assert!(content.len() == 180_000 && content.iter().all(|byte| *byte == 0));
    }
}
