//! Removal of versions. `StoreOperations` selects them and keeps the active, previous, newest and labelled ones. When
//! space is freed, a version that is open (leased) stays. A response that waits for its client has the file mapped
//! without a lease: its version is removed, and the bytes count as used until the response has been sent.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use docwharf_base::mapped_files::FileMappings;
use docwharf_base::model::version::VersionId;

use super::StoreError;
use super::layout::DERIVED;
use super::writer::StoreWriter;

impl StoreWriter {
    /// Removes one version unless it is leased. Returns whether it was removed.
    pub(super) fn remove_unless_leased(&self, id: VersionId) -> Result<bool, StoreError> {
        self.release_lease(id);
        let Ok(lease) = self.store().image(id) else { return Ok(false) };
        // A lease is a shared lock. Where files cannot be locked, as on some NFS mounts, no process has a lease.
        if flock(&lease, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Ok(false);
        }
        self.remove_ignoring_leases(id)?;
        Ok(true)
    }

    /// Removes a version from the store even if it is leased. It is renamed into `staging/` first, in one step that
    /// needs no disk space; the next start removes what a crash leaves behind.
    pub(super) fn remove_ignoring_leases(&self, id: VersionId) -> Result<(), StoreError> {
        let dir = self.store().version_dir(id);
        let (versions, staging) = (self.store().folder("versions")?, self.store().folder("staging")?);
        let name = id.to_string();
        let mapped = self.store().image(id).and_then(|image| image.metadata());
        let mapped = mapped.map(|image| (FileMappings::find(&image), image.len()));
        versions.rename(&name, &staging, &name).map_err(StoreError::io("remove", &dir))?;
        if let Ok((mappings, bytes)) = mapped {
            self.removed_images().add(mappings, bytes);
        }
        let _ = staging.remove_all(&name);
        let root = self.store().directory().map_err(StoreError::io("open", self.store().root()))?;
        for kind in ["receipts", DERIVED] {
            let _ = root.open_directory(kind).and_then(|folder| folder.remove_all(&name));
        }
        Ok(())
    }
}
