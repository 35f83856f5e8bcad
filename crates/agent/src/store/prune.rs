//! Old versions go; what is active, previous, newest or labelled stays, and what is open (a lease). An answer that waits for
//! its reader has the file mapped, without a lease: its version goes, and its bytes count until the answer has gone, too.

use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use docwharf_base::mapped::Mappings;
use docwharf_base::model::version::VersionId;

use super::StoreError;
use super::derived::DERIVED;
use super::writer::Writer;

/// Images that were removed while this process had them mapped, and their sizes in bytes.
#[derive(Debug, Default)]
pub(super) struct Removed(Mutex<Vec<(Mappings, u64)>>);

impl Removed {
    fn note(&self, mappings: Mappings, bytes: u64) {
        if mappings.are_there() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((mappings, bytes));
        }
    }

    /// What those take that are still mapped.
    pub(super) fn bytes(&self) -> u64 {
        let mut removed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        removed.retain(|(mappings, _)| mappings.are_there());
        removed.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Writer {
    /// Removes one version, unless somebody has it open.
    pub(super) fn remove_unless_mapped(&self, id: VersionId) -> Result<bool, StoreError> {
        self.let_go(id);
        let Ok(lease) = self.store().image(id) else { return Ok(false) };
        // Where files cannot be locked, as on NFS, nobody has them mapped either.
        if flock(&lease, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Ok(false);
        }
        self.take_out(id)?;
        Ok(true)
    }

    /// Takes a version out of the store, whoever has it mapped. Out of sight first, in one step that needs no room; the
    /// next start sweeps what a crash leaves of it.
    pub(super) fn take_out(&self, id: VersionId) -> Result<(), StoreError> {
        let dir = self.store().version_dir(id);
        let (versions, staging) = (self.store().folder("versions")?, self.store().folder("staging")?);
        let name = id.to_string();
        let mapped = self.store().image(id).and_then(|image| image.metadata());
        let mapped = mapped.map(|image| (Mappings::of(&image), image.len()));
        versions.rename(&name, &staging, &name).map_err(StoreError::io("remove", &dir))?;
        if let Ok((mappings, bytes)) = mapped {
            self.removed.note(mappings, bytes);
        }
        let _ = staging.remove_all(&name);
        let root = self.store().directory().map_err(StoreError::io("open", self.store().root()))?;
        for kind in ["receipts", DERIVED] {
            let _ = root.directory(kind).and_then(|folder| folder.remove_all(&name));
        }
        Ok(())
    }
}
