//! The effects of [`StoreOperations`] on disk.

use std::path::Path;
use std::time::SystemTime;

use docwharf_base::clock::now_unix_seconds;
use docwharf_base::error_chain::{ErrorChain, error_message};
use docwharf_base::model::version::VersionId;

use super::layout::{DAMAGED_RECORD, RECORD};
use super::operations::StoreOperations;
use super::record::{self, StoreRecord};
use super::space::{self, VersionSize};
use super::writer::StoreWriter;
use super::{HistoryEvent, MAX_RECORD_BYTES, Receipt, StoreError, StoredVersion, history, json};

impl StoreOperations for StoreWriter {
    fn now(&self) -> i64 {
        now_unix_seconds()
    }

    fn root(&self) -> &Path {
        self.store().root()
    }

    fn record(&self) -> Result<StoreRecord, StoreError> {
        self.store().record()
    }

    fn has(&self, id: VersionId) -> bool {
        self.store().has(id)
    }

    fn versions(&self) -> Result<Vec<StoredVersion>, StoreError> {
        self.store().versions()
    }

    fn receipts(&self, id: VersionId) -> Vec<Receipt> {
        self.store().receipts(id)
    }

    fn history(&self) -> Result<Vec<HistoryEvent>, StoreError> {
        self.store().history()
    }

    fn is_marked_damaged(&self, id: VersionId) -> bool {
        self.store().is_marked_damaged(id)
    }

    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        self.store().sizes_of(versions)
    }

    fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        space::free_bytes(self.root()).map_err(StoreError::io("read the free space of", self.root()))
    }

    fn mapped_removed_bytes(&self) -> u64 {
        self.removed_images().mapped_bytes()
    }

    fn remove_large_derived_files(&self) -> bool {
        self.remove_large_derived_files()
    }

    fn with_record_lock<T>(&self, action: impl FnOnce() -> T) -> T {
        let _lock = self.lock_record();
        action()
    }

    fn write_record(&self, record: &StoreRecord) -> Result<(), StoreError> {
        let path = self.store().root().join(RECORD);
        let written = self.store().directory().and_then(|root| root.replace(RECORD, 0o644, &record::encode(record)));
        written.map_err(StoreError::io("write", &path))
    }

    fn append_event(&self, event: &HistoryEvent) {
        let path = self.store().root().join(history::HISTORY_FILE);
        let is_stored = |id| self.store().has(id);
        let written = self.store().directory().and_then(|root| {
            history::append(root, event)?;
            history::shorten(root, is_stored)
        });
        if let Err(error) = written {
            tracing::warn!("cannot write {}: {}", path.display(), error_message(&error));
        }
    }

    fn add_receipt(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError> {
        let dir = self.store().root().join("receipts").join(id.to_string());
        let folder = self.store().folder("receipts")?.ensure_directory(id.to_string(), 0o755);
        let folder = folder.map_err(StoreError::io("make", &dir))?;
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let bytes = json::encode(receipt);
        folder.replace(format!("{nanos:020}.json"), 0o644, &bytes).map_err(StoreError::io("write", &dir))
    }

    fn remove(&self, id: VersionId) -> Result<bool, StoreError> {
        self.remove_unless_leased(id)
    }

    fn remove_ignoring_leases(&self, id: VersionId) -> Result<(), StoreError> {
        self.remove_ignoring_leases(id)
    }

    fn clear_damage_mark(&self, id: VersionId) -> Result<(), StoreError> {
        self.clear_damage_mark(id)
    }

    fn copy_damaged_record(&self, damage: &StoreError) -> Result<(), StoreError> {
        let copy = self.store().root().join(DAMAGED_RECORD);
        // No link is followed: the copy gets the owner of the store, who may not be allowed to read the target.
        let root = self.store().directory().map_err(StoreError::io("open", self.store().root()))?;
        let record = self.store().root().join(RECORD);
        let bytes = root.read(RECORD, MAX_RECORD_BYTES).map_err(StoreError::io("read", &record))?;
        root.replace(DAMAGED_RECORD, 0o644, &bytes).map_err(StoreError::io("write", &copy))?;
        tracing::warn!(
            "{}; it was copied to {}: to repeat a change made by hand, omit the last line (\"sum\")",
            ErrorChain(damage),
            copy.display()
        );
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;
    use docwharf_base::model::digest::Digest;

    // Regression: root, working in another user's store, changed the owner of the target when the damaged record was a
    // link.
    #[test]
    fn damaged_record_that_is_a_symlink_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (root, secret) = (dir.path().join("store"), dir.path().join("secret"));
        fs::write(&secret, "secret").unwrap();
        let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
        symlink(&secret, root.join(RECORD)).unwrap();
        let damage = writer.record().unwrap_err();
        let error = writer.copy_damaged_record(&damage).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot read {}", root.join(RECORD).display()));
        assert!(!root.join(DAMAGED_RECORD).exists());
        symlink(&secret, root.join("versions/x")).unwrap();
        symlink(dir.path(), root.join("receipts/x")).unwrap();
        drop(writer);
        drop(StoreWriter::open(&root, Duration::ZERO).unwrap());
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    }

    // Regression: root, working in another user's store, wrote receipts through links of that user.
    #[test]
    fn a_receipt_is_written_through_no_link_in_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
        let id = VersionId(Digest::compute(b"x"));
        let receipt = Receipt::with_time("2026-11-21T10:00:00Z".to_owned());
        // A directory for the receipts of this version, so that a path through either link would lead to one.
        fs::create_dir_all(elsewhere.join(id.to_string())).unwrap();
        let (receipts, own) = (root.join("receipts"), root.join("receipts").join(id.to_string()));
        symlink(elsewhere.join(id.to_string()), &own).unwrap();
        let refused = writer.add_receipt(id, &receipt).unwrap_err();
        assert!(refused.to_string().contains("store/receipts/"), "{refused}");
        // Nor through a link in the place of `receipts` itself.
        fs::remove_file(&own).unwrap();
        fs::rename(&receipts, root.join("moved")).unwrap();
        symlink(&elsewhere, &receipts).unwrap();
        assert!(writer.add_receipt(id, &receipt).is_err());
        assert_eq!(fs::read_dir(elsewhere.join(id.to_string())).unwrap().count(), 0);
        fs::remove_file(&receipts).unwrap();
        fs::rename(root.join("moved"), &receipts).unwrap();
        writer.add_receipt(id, &receipt).unwrap();
        assert_eq!(writer.store().receipts(id).len(), 1);
    }
}
