//! Old versions go; what is active, previous, newest, labelled or being read stays.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};

use super::record::Record;
use super::writer::Writer;
use super::{IMAGE, Store, StoreError, Stored};

impl Store {
    /// The versions beyond `keep` unprotected ones, the newest arrivals first.
    pub fn surplus(&self, record: &Record, keep: usize) -> Result<Vec<Stored>, StoreError> {
        let versions = self.versions()?;
        Ok(versions.into_iter().filter(|v| !record.protects(v.id)).skip(keep).collect())
    }
}

impl Writer {
    /// Removes what is surplus; gives those removed. A version that somebody has mapped (a shared lock on its image) is passed by.
    pub fn prune(&self, record: &Record, keep: usize) -> Result<Vec<Stored>, StoreError> {
        let mut removed = Vec::new();
        for version in self.store().surplus(record, keep)? {
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
            removed.push(version);
        }
        Ok(removed)
    }
}
