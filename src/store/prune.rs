//! Old versions go; what is active, previous, newest, labelled or being read stays.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::model::version::VersionId;

use super::derived::DERIVED;
use super::writer::Writer;
use super::{IMAGE, StoreError};

impl Writer {
    /// Removes one version, unless somebody has it mapped.
    pub(super) fn remove_unless_mapped(&self, id: VersionId) -> Result<bool, StoreError> {
        let dir = self.store().version_dir(id);
        self.let_go(id);
        let Ok(lease) = File::open(dir.join(IMAGE)) else { return Ok(false) };
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
        let aside = self.store().root().join("staging").join(id.to_string());
        fs::rename(&dir, &aside).map_err(StoreError::io("remove", &dir))?;
        let _ = fs::remove_dir_all(&aside);
        for kind in ["receipts", DERIVED] {
            let _ = fs::remove_dir_all(self.store().root().join(kind).join(id.to_string()));
        }
        Ok(())
    }
}
