//! The path of the store (`store.path`), and paths that must not be in it.

use std::path::{Path, PathBuf};

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
