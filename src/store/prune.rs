//! Old versions go; what is active, previous, newest, labelled or being read stays.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};

use crate::model::version::VersionId;

use super::record::Record;
use super::writer::Writer;
use super::{IMAGE, StoreError};

impl Writer {
    /// Removes versions beyond `keep` unprotected ones, the oldest arrivals first; gives those removed. A version that
    /// somebody has mapped (a shared lock on its image) is passed by.
    pub fn prune(&self, record: &Record, keep: usize) -> Result<Vec<VersionId>, StoreError> {
        let versions = self.store().versions()?;
        let surplus = versions.iter().filter(|v| !record.protects(v.id)).skip(keep);
        let mut removed = Vec::new();
        for version in surplus {
            let dir = self.store().version_dir(version.id);
            let image = dir.join(IMAGE);
            let Ok(lease) = File::open(&image) else {
                continue;
            };
            if flock(&lease, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let stage = self.stage()?;
            fs::rename(&dir, stage.dir().join("version")).map_err(StoreError::io("remove", &dir))?;
            let _ = fs::remove_dir_all(self.store().root().join("receipts").join(version.id.to_string()));
            removed.push(version.id);
        }
        Ok(removed)
    }
}
