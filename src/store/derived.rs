//! What was computed from a version and can be computed again: `derived/<id>/`, one file a kind. Whoever reads one checks
//! it, and whoever cannot write one goes on without.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::base::durable;
use crate::model::version::VersionId;

use super::owner;
use super::writer::{Writer, sweep_unrenamed};
use super::{Store, StoreError};

/// The folder's name in a store.
pub(super) const DERIVED: &str = "derived";
/// The content security policies of a version.
pub const CSP: &str = "csp";

impl Store {
    /// Where what was computed from a version lies.
    pub fn derived_dir(&self, id: VersionId) -> PathBuf {
        self.root().join(DERIVED).join(id.to_string())
    }

    /// What was computed from a version, if it is there and has at most so many bytes.
    pub fn derived(&self, id: VersionId, kind: &str, most: u64) -> Option<Vec<u8>> {
        let path = self.derived_dir(id).join(kind);
        let fits = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= most);
        fits.then(|| fs::read(path).ok()).flatten()
    }
}

impl Writer {
    /// Keeps what was computed from a version, as a whole. Of one that has gone meanwhile, nothing is kept.
    pub fn derive(&self, id: VersionId, kind: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (root, name, dir) = (self.store().root(), id.to_string(), self.store().derived_dir(id));
        make(&root.join(DERIVED)).map_err(StoreError::io("make", &root.join(DERIVED)))?;
        let (_pin, derived) = owner::pinned(root, DERIVED)?;
        let way = derived.join(&name);
        make(&way).map_err(StoreError::io("make", &dir))?;
        let written = owner::pinned(&derived, &name).map_err(|error| named(error, &dir)).and_then(|(_pin, folder)| {
            durable::replace(&folder, kind, bytes).map_err(StoreError::io("write", &dir.join(kind)))
        });
        // Looked at last: it may have been pruned while this was written.
        if !self.store().has(id) {
            let _ = fs::remove_dir_all(&way);
        } else if written.is_err() {
            // On a full disk a folder without a file helps nobody.
            let _ = fs::remove_dir(&way);
        }
        // Already now: a daemon may be killed before it gives back what it has.
        self.hand_over();
        written
    }

    /// Removes what a crash has left half made, and what belongs to no version. What cannot be removed does no harm.
    pub(super) fn sweep_derived(&self) {
        let Ok((_pin, derived)) = owner::pinned(self.store().root(), DERIVED) else { return };
        let entries = match fs::read_dir(&derived) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                tracing::warn!("cannot read {}: {error}", self.store().root().join(DERIVED).display());
                return;
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let owner = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if is_folder && owner.is_some_and(|id| self.store().has(id)) {
                let folder = owner::pinned(&derived, &entry.file_name().to_string_lossy());
                if let Err(error) = folder.and_then(|(_pin, folder)| sweep_unrenamed(&folder)) {
                    tracing::warn!("{error}");
                }
            } else if is_folder {
                let _ = fs::remove_dir_all(&path);
            } else {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// An error that names what it is about as people know it, not as it is pinned.
fn named(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Io { doing, source, .. } => StoreError::Io { doing, path: path.to_owned(), source },
        other => other,
    }
}

/// Makes a folder, unless it is there. What is there need not be one: whoever works in it finds out.
fn make(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};
    use std::time::Duration;

    use super::*;
    use crate::model::digest::Digest;

    #[test]
    fn root_derives_nothing_through_the_links_of_a_store_that_is_not_his() {
        if !rustix::process::geteuid().is_root() {
            return; // only root works in other people's stores
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        let writer = Writer::open(&store, Duration::ZERO).unwrap();
        let (id, derived) = (VersionId(Digest::of(b"x")), store.join(DERIVED));
        fs::create_dir(&elsewhere).unwrap();
        fs::create_dir(&derived).unwrap();
        symlink(&elsewhere, derived.join(id.to_string())).unwrap();
        chown(&store, Some(4711), Some(4711)).unwrap();
        chown(&derived, Some(4711), Some(4711)).unwrap();
        let refused = writer.derive(id, CSP, b"x").unwrap_err();
        assert!(refused.to_string().contains("store/derived/"), "{refused}");
        // Nor where the whole folder is one.
        fs::remove_dir_all(&derived).unwrap();
        symlink(&elsewhere, &derived).unwrap();
        assert!(writer.derive(id, CSP, b"x").is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_file(&derived).unwrap();
        writer.derive(id, CSP, b"x").unwrap();
        assert!(derived.is_dir() && !derived.join(id.to_string()).exists(), "there is no such version");
    }
}
