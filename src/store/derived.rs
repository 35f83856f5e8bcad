//! What was computed from a version and can be computed again: `derived/<id>/`, one file a kind. Whoever reads one checks
//! it, and whoever cannot write one goes on without.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

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
        let dir = self.store().derived_dir(id);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(&dir).map_err(StoreError::io("make", &dir))?;
        let written = durable::replace(&dir, kind, bytes).map_err(StoreError::io("write", &dir.join(kind)));
        // Looked at last: it may have been pruned while this was written.
        if !self.store().has(id) {
            let _ = fs::remove_dir_all(&dir);
        } else if written.is_err() {
            // On a full disk a folder without a file helps nobody.
            let _ = fs::remove_dir(&dir);
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
                if let Err(error) = sweep_unrenamed(&path) {
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
