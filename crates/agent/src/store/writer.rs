//! The writer of a store: its lock, the callbacks that release files before they are removed, and the owner of new
//! files. A store has at most one writer.

use std::fmt;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use docwharf_base::durable::FileLock;
use docwharf_base::locks::{Mutex, MutexGuard};
use docwharf_base::model::version::VersionId;

use super::layout::DERIVED;
use super::removed_images::RemovedImages;
use super::{StoreError, VersionStore, owner, sweep};

/// Bytes of the longest path that Linux accepts, including its NUL (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;

/// A store opened for writing, with its lock.
#[derive(Debug)]
pub struct StoreWriter {
    store: VersionStore,
    /// Serializes changes of the record.
    record_lock: Mutex<()>,
    /// Releases leases of versions that are to be removed.
    release_lease: OnceLock<LeaseCallback>,
    /// Releases the large derived files that are to be removed.
    release_derived: OnceLock<DerivedCallback>,
    /// Removed images that are still mapped: their disk space is not free yet.
    removed_images: RemovedImages,
    _lock: FileLock,
}

/// Called before a version is removed, to release its lease.
struct LeaseCallback(Box<dyn Fn(VersionId) + Send + Sync>);

/// Called before large derived files are removed, to release them.
struct DerivedCallback(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for DerivedCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedCallback")
    }
}

impl fmt::Debug for LeaseCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseCallback")
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        // Before the lock is released, so that no other process writes meanwhile.
        self.change_owner_to_store_owner();
    }
}

impl StoreWriter {
    /// Opens the store at `root`, and creates it if it is missing. Waits up to `timeout` for another writer, then
    /// removes what a crash has left behind.
    pub fn open(root: &Path, timeout: Duration) -> Result<StoreWriter, StoreError> {
        check_path_length(root)?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750);
        #[allow(clippy::disallowed_methods)] // the operator's path
        builder.create(root).map_err(StoreError::io("make the store", root))?;
        let store = VersionStore::at(root);
        let path = root.join("lock");
        let directory = store.directory().map_err(StoreError::io("open", root))?;
        let acquire = |timeout| FileLock::acquire_in(directory, "lock", timeout).map_err(StoreError::io("lock", &path));
        let mut lock = acquire(Duration::ZERO)?;
        if lock.is_none() && !timeout.is_zero() {
            tracing::warn!(
                "another docwharf writes to {}; waiting up to {} s for it",
                root.display(),
                timeout.as_secs()
            );
            lock = acquire(timeout)?;
        }
        let lock = lock.ok_or_else(|| StoreError::locked(root))?;
        for dir in ["versions", "receipts", "staging", "downloads"] {
            owner::remove_access_of_others(&store.folder(dir)?);
        }
        if let Ok(derived) = directory.open_directory(DERIVED) {
            owner::remove_access_of_others(&derived);
        }
        let writer = StoreWriter {
            store,
            record_lock: Mutex::new(()),
            release_lease: OnceLock::new(),
            release_derived: OnceLock::new(),
            removed_images: RemovedImages::default(),
            _lock: lock,
        };
        sweep::remove_leftovers(&writer.store)?;
        Ok(writer)
    }

    /// Registers the function that releases leases of this store's versions. `release` is called for each version
    /// before its removal; a version that is still leased afterwards stays. At most one function can be registered.
    pub fn before_removing(&self, release: impl Fn(VersionId) + Send + Sync + 'static) {
        let is_first = self.release_lease.set(LeaseCallback(Box::new(release))).is_ok();
        debug_assert!(is_first, "a store has one lease callback");
    }

    /// Calls the registered function to release the lease on a version.
    pub(super) fn release_lease(&self, id: VersionId) {
        if let Some(LeaseCallback(release)) = self.release_lease.get() {
            release(id);
        }
    }

    /// Registers the function that releases the large derived files. `release` is called before they are removed to
    /// free space. At most one function can be registered.
    pub fn before_removing_derived_files(&self, release: impl Fn() + Send + Sync + 'static) {
        let is_first = self.release_derived.set(DerivedCallback(Box::new(release))).is_ok();
        debug_assert!(is_first, "a store has one callback for derived files");
    }

    /// Calls the registered function to release the large derived files.
    pub(super) fn release_large_derived_files(&self) {
        if let Some(DerivedCallback(release)) = self.release_derived.get() {
            release();
        }
    }

    /// The store, for reading.
    pub fn store(&self) -> &VersionStore {
        &self.store
    }

    /// Waits until no other thread changes the record, and prevents changes by other threads while the guard exists.
    pub(super) fn lock_record(&self) -> MutexGuard<'_, ()> {
        self.record_lock.lock()
    }

    /// The removed images that may still be mapped.
    pub(super) fn removed_images(&self) -> &RemovedImages {
        &self.removed_images
    }

    /// Changes the owner of files that root has written into another user's store to that user.
    pub(super) fn change_owner_to_store_owner(&self) {
        if let Err(error) = self.store.directory().and_then(owner::change_owner_to_store_owner) {
            tracing::warn!("cannot change the owner of new files in {}: {error}", self.store.root.display());
        }
    }
}

/// Refuses a store whose files would have longer paths than the kernel accepts: people and other programs open them by
/// path.
fn check_path_length(root: &Path) -> Result<(), StoreError> {
    let longest = root.join("receipts").join("0".repeat(64)).join(format!(".{:020}.json.new", 0));
    if longest.as_os_str().len() < MAX_PATH_BYTES {
        return Ok(());
    }
    Err(StoreError::io("make the store", root)(rustix::io::Errno::NAMETOOLONG.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::operations::StoreOperations;

    #[test]
    fn no_other_thread_changes_the_record_during_a_change_or_a_removal() {
        let dir = tempfile::tempdir().unwrap();
        let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
        let is_locked = || writer.record_lock.try_lock().is_none();
        assert!(!is_locked());
        assert!(writer.with_record_lock(is_locked));
        assert!(writer.change_record(|_| is_locked()).unwrap());
        let mut record = writer.record().unwrap();
        assert!(writer.decide_and_save(&mut record, |_| is_locked()).unwrap());
        assert!(!is_locked(), "the lock is released at the end of each");
    }

    #[test]
    fn a_store_deeper_than_the_kernel_accepts_is_refused_before_anything_is_made() {
        // `receipts/`, an id, and the temporary file of a receipt, each with a slash before it.
        let longest_root = MAX_PATH_BYTES - 1 - (1 + 8 + 1 + 64 + 1 + 30);
        let root = |bytes: usize| Path::new("/").join("d".repeat(bytes - 1));
        assert!(check_path_length(&root(longest_root)).is_ok());
        let refused = check_path_length(&root(longest_root + 1)).unwrap_err();
        assert!(refused.to_string().starts_with("cannot make the store /ddd"), "{refused}");
    }
}
