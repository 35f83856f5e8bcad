//! The writer of a store: its lock, what it asks others to release, and whose its files are. A store has at most one
//! writer.

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
    turn: Mutex<()>,
    /// Releases leases of versions that are to be removed.
    holder: OnceLock<Holder>,
    /// Releases the large derived files that are to be removed.
    user: OnceLock<User>,
    /// Removed images that are still mapped: their disk space is not free yet.
    removed: RemovedImages,
    _lock: FileLock,
}

/// Called before a version is removed, to release its lease.
struct Holder(Box<dyn Fn(VersionId) + Send + Sync>);

/// Called before large derived files are removed, to release them.
struct User(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder")
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        // Before the lock is released: no other process writes meanwhile.
        self.hand_over();
    }
}

impl StoreWriter {
    /// Opens the store at `root`, and creates it if it is missing. Waits up to `patience` for another writer, then
    /// removes what a crash has left.
    pub fn open(root: &Path, patience: Duration) -> Result<StoreWriter, StoreError> {
        check_length(root)?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750);
        #[allow(clippy::disallowed_methods)] // the operator's path
        builder.create(root).map_err(StoreError::io("make the store", root))?;
        let store = VersionStore::at(root);
        let path = root.join("lock");
        let directory = store.directory().map_err(StoreError::io("open", root))?;
        let take = |patience| FileLock::acquire_in(directory, "lock", patience).map_err(StoreError::io("lock", &path));
        let mut lock = take(Duration::ZERO)?;
        if lock.is_none() && !patience.is_zero() {
            tracing::warn!(
                "another docwharf writes to {}; waiting up to {} s for it",
                root.display(),
                patience.as_secs()
            );
            lock = take(patience)?;
        }
        let lock = lock.ok_or_else(|| StoreError::Locked { path: root.to_owned() })?;
        for dir in ["versions", "receipts", "staging", "downloads"] {
            owner::shut_to_others(&store.folder(dir)?);
        }
        if let Ok(derived) = directory.directory(DERIVED) {
            owner::shut_to_others(&derived);
        }
        let writer = StoreWriter {
            store,
            turn: Mutex::new(()),
            holder: OnceLock::new(),
            user: OnceLock::new(),
            removed: RemovedImages::default(),
            _lock: lock,
        };
        sweep::remove_leftovers(&writer.store)?;
        Ok(writer)
    }

    /// Registers the function that releases leases of this store's versions. `let_go` is called for each version that
    /// is to be removed; one that is still leased afterwards stays. At most one function can be registered.
    pub fn before_removing(&self, let_go: impl Fn(VersionId) + Send + Sync + 'static) {
        let first = self.holder.set(Holder(Box::new(let_go))).is_ok();
        debug_assert!(first, "one holder a store");
    }

    /// Asks the registered function to release its lease on a version.
    pub(super) fn let_go(&self, id: VersionId) {
        if let Some(Holder(let_go)) = self.holder.get() {
            let_go(id);
        }
    }

    /// Registers the function that releases the large derived files. `let_go` is called before they are removed to make
    /// space. At most one function can be registered.
    pub fn before_giving_up(&self, let_go: impl Fn() + Send + Sync + 'static) {
        let first = self.user.set(User(Box::new(let_go))).is_ok();
        debug_assert!(first, "one user a store");
    }

    /// Asks the registered function to release the large derived files.
    pub(super) fn let_go_of_large(&self) {
        if let Some(User(let_go)) = self.user.get() {
            let_go();
        }
    }

    /// The store, for reading.
    pub fn store(&self) -> &VersionStore {
        &self.store
    }

    /// Waits until no other thread changes the record, and keeps others from doing so while the guard exists.
    pub(super) fn lock_record(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// The removed images that may still be mapped.
    pub(super) fn removed_images(&self) -> &RemovedImages {
        &self.removed
    }

    /// Gives files that root has written into another user's store to that user.
    pub(super) fn hand_over(&self) {
        if let Err(error) = self.store.directory().and_then(owner::hand_over) {
            tracing::warn!("cannot give what was written to the owner of {}: {error}", self.store.root.display());
        }
    }
}

/// Refuses a store whose files have paths longer than the kernel accepts: people and other programs have only paths.
fn check_length(root: &Path) -> Result<(), StoreError> {
    let longest = root.join("receipts").join("0".repeat(64)).join(format!(".{:020}.json.new", 0));
    if longest.as_os_str().len() < MAX_PATH_BYTES {
        return Ok(());
    }
    Err(StoreError::io("make the store", root)(rustix::io::Errno::NAMETOOLONG.into()))
}
