//! The path of the store (`store.path`), and paths that must not be in it.

use std::path::{Component, Path, PathBuf};

use super::checker::ValueChecker;

/// The default path of the store.
const DEFAULT_STORE: &str = "/var/lib/docwharf";

/// Returns the path of the store: the key, else `$STATE_DIRECTORY`, else the default.
pub(super) fn store_path(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> PathBuf {
    match checker.text("store.path") {
        Some(path) => base_of("store.path").join(path),
        None => std::env::var_os("STATE_DIRECTORY")
            // systemd passes a list if the unit has several state directories.
            .and_then(|value| value.to_str()?.split(':').next().map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DEFAULT_STORE)),
    }
}

/// Refuses a path in the store, where docwharf's own files would be mistaken for those of a user. Symbolic links are
/// not resolved.
pub(super) fn outside_store(place: PathBuf, store: &Path) -> Result<PathBuf, String> {
    if place.starts_with(store) { Err("it is the store or inside it".to_owned()) } else { Ok(place) }
}

/// Removes each `..` of a path together with the folder before it, so that messages have a short path. A `..` after a
/// symbolic link, or after something that cannot be looked at, stays: it leads elsewhere than to the folder before.
pub(super) fn without_parent_steps(path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for component in path.components() {
        let is_folder = || std::fs::symlink_metadata(&short).is_ok_and(|metadata| metadata.is_dir());
        if component == Component::ParentDir
            && matches!(short.components().next_back(), Some(Component::Normal(_)))
            && is_folder()
        {
            short.pop();
        } else {
            short.push(component);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_step_is_removed_with_its_folder_but_not_after_a_link_or_a_missing_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("etc")).unwrap();
        std::os::unix::fs::symlink("etc", root.join("link")).unwrap();
        for (path, expected) in [
            ("etc/../inbox", "inbox"),
            ("etc/../etc/../a/b", "a/b"),
            ("./etc/.././inbox/", "inbox"),
            ("link/../inbox", "link/../inbox"),
            ("none/../inbox", "none/../inbox"),
            ("a/b", "a/b"),
        ] {
            assert_eq!(without_parent_steps(&root.join(path)), root.join(expected), "{path}");
        }
        for path in ["../inbox", "/../inbox", "/"] {
            assert_eq!(without_parent_steps(Path::new(path)), Path::new(path));
        }
    }
}
