//! What was computed from a version and can be computed again: `derived/<id>/`, one file a kind. Whoever reads one checks
//! it, and whoever cannot write one goes on without.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::base::{durable, regular};
use crate::model::version::VersionId;

use super::owner;
use super::writer::{Writer, sweep_unrenamed};
use super::{Store, StoreError};

/// The folder's name in a store.
pub(super) const DERIVED: &str = "derived";
/// The content security policies of a version.
pub const CSP: &str = "csp";
/// Its Brotli forms.
pub const BROTLI: &str = "brotli";
/// Its Zstandard forms.
pub const ZSTD: &str = "zstd";

/// What may be as large as the version itself, and is given up when there is not enough room.
const LARGE: [&str; 2] = [BROTLI, ZSTD];

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

    /// The same, opened, if it is there.
    pub fn derived_file(&self, id: VersionId, kind: &str) -> Option<File> {
        regular::open(&self.derived_dir(id).join(kind)).ok()
    }

    /// Whether anything is there that [`Writer::give_up_large`] would remove.
    pub(super) fn has_large(&self) -> bool {
        self.large().next().is_some()
    }

    /// What was derived that is large, finished or not.
    fn large(&self) -> impl Iterator<Item = PathBuf> {
        let folders = fs::read_dir(self.root().join(DERIVED)).into_iter().flatten().flatten();
        let names = || LARGE.into_iter().flat_map(|kind| [kind.to_owned(), format!(".{kind}.new")]);
        let paths = folders.flat_map(move |folder| names().map(move |name| folder.path().join(name)));
        paths.filter(|path| path.symlink_metadata().is_ok())
    }
}

impl Writer {
    /// Keeps what was computed from a version, as a whole. Of one that has gone meanwhile, nothing is kept.
    pub fn derive(&self, id: VersionId, kind: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.derive_by(id, kind, 0o644, |mut file| file.write_all(bytes))
    }

    /// The same of what is too large to be held at once, or takes long: `fill` writes it to a file that is renamed into place
    /// afterwards and is never written again.
    pub fn derive_large(
        &self,
        id: VersionId,
        kind: &str,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        self.derive_by(id, kind, 0o444, fill)
    }

    fn derive_by(
        &self,
        id: VersionId,
        kind: &str,
        mode: u32,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let (root, name, dir) = (self.store().root(), id.to_string(), self.store().derived_dir(id));
        make(&root.join(DERIVED)).map_err(StoreError::io("make", &root.join(DERIVED)))?;
        let (_pin, derived) = owner::pinned(root, DERIVED)?;
        let way = derived.join(&name);
        make(&way).map_err(StoreError::io("make", &dir))?;
        let written = owner::pinned(&derived, &name).map_err(|error| named(error, &dir)).and_then(|(_pin, folder)| {
            let fill = |file: &File| {
                // Already now: whoever sweeps it after a kill may not be root.
                self.hand_over();
                fill(file)
            };
            durable::replace_by(&folder, kind, mode, fill).map_err(StoreError::io("write", &dir.join(kind)))
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

    /// Removes one thing that was computed from a version, because it is of no use.
    pub fn discard(&self, id: VersionId, kind: &str) -> Result<(), StoreError> {
        let path = self.store().derived_dir(id).join(kind);
        let (_pin, derived) = owner::pinned(self.store().root(), DERIVED)?;
        let (_pin, folder) = owner::pinned(&derived, &id.to_string())?;
        match fs::remove_file(folder.join(kind)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Removes what is large and was derived from any version, and has whoever uses or makes it let go of it first. Gives
    /// whether there was any.
    pub(super) fn give_up_large(&self) -> bool {
        if !self.store().has_large() {
            return false;
        }
        self.let_go_of_large();
        let Ok((_pin, derived)) = owner::pinned(self.store().root(), DERIVED) else { return false };
        let Ok(folders) = fs::read_dir(&derived) else { return false };
        let mut any = false;
        for folder in folders.flatten() {
            let Ok((_pin, folder)) = owner::pinned(&derived, &folder.file_name().to_string_lossy()) else { continue };
            for kind in LARGE {
                for name in [kind.to_owned(), format!(".{kind}.new")] {
                    any |= fs::remove_file(folder.join(name)).is_ok();
                }
            }
        }
        any
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
