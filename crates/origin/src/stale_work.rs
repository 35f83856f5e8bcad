//! Removal of work folders that remained when a process was killed.

#![deny(clippy::disallowed_methods)]

use std::io;

use docwharf_base::clock::now_unix_millis;
use docwharf_base::directory::Directory;

use super::source::git;

/// Kills the builds that remain below the work folder `name`, renames it and removes it, together with those that could
/// not be removed before. A build that has not ended yet may still write into it. A failure is therefore only logged,
/// does not prevent the start, and is retried at the next start.
pub(super) fn end_builds_and_remove_work_folder(folder: &Directory, name: &str) {
    git::kill_leftover_builds(&folder.path().join(name));
    let renamed_prefix = format!("{name}.of-");
    match folder.rename(name, folder, format!("{renamed_prefix}{}", now_unix_millis())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let path = folder.path().join(name);
            tracing::warn!("cannot rename {}: {error}; its remaining content is not removed", path.display());
        }
        _ => {}
    }
    let Ok(entries) = folder.entries() else { return };
    for entry in entries.flatten().filter(|entry| entry.name.to_string_lossy().starts_with(&renamed_prefix)) {
        if let Err(error) = folder.remove_all_if_exists(&entry.name) {
            let path = folder.path().join(&entry.name);
            tracing::warn!("cannot remove {}: {error}; the next start tries again", path.display());
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // folders that only this test uses
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn stale_work_folders_and_their_renamed_leftovers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Directory::open(dir.path()).unwrap();
        let names = || {
            let entries = fs::read_dir(dir.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        for name in ["work/a", "work.of-17/b", "workshop", "other.of-1"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        end_builds_and_remove_work_folder(&folder, "work");
        let mut remaining = names();
        remaining.sort();
        assert_eq!(remaining, ["other.of-1", "workshop"]);
        end_builds_and_remove_work_folder(&folder, "work");
    }
}
