//! Old versions go; what is active, previous, newest, labelled or being read stays.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::model::version::VersionId;

use super::StoreError;
use super::derived::DERIVED;
use super::writer::Writer;

impl Writer {
    /// Removes one version, unless somebody has it mapped.
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
        versions.rename(&name, &staging, &name).map_err(StoreError::io("remove", &dir))?;
        let _ = staging.remove_all(&name);
        let root = self.store().directory().map_err(StoreError::io("open", self.store().root()))?;
        for kind in ["receipts", DERIVED] {
            let _ = root.directory(kind).and_then(|folder| folder.remove_all(&name));
        }
        Ok(())
    }
}
