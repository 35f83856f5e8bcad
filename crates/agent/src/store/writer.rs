//! The writer of a store: staging, commit, the record and history. A store has at most one.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use docwharf_base::clock::now_unix_seconds;
use docwharf_base::directory::{Directory, EntryKind, FileId, is_unsupported};
use docwharf_base::durable::FileLock;
use docwharf_base::error_chain::{ErrorChain, error_message};
use docwharf_base::locks::Mutex;
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::SealedFile;

use super::layout::{CONTROL, DAMAGED_RECORD, DERIVED, IMAGE, INDEX, RECORD};
use super::operations::StoreOperations;
use super::prune::Removed;
use super::record::{self, StoreRecord};
use super::space::{VersionSize, free_bytes};
use super::{
    HistoryEvent, MAX_RECORD_BYTES, Receipt, StoreError, StoredVersion, VersionStore, history, json, owner,
};

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
    pub(super) removed: Removed,
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

/// A directory for unfinished work; it is removed when this is dropped.
///
/// In a store of another user it belongs to that user from the beginning, so that the service can remove it after a
/// kill. That user may exchange names in it at any moment, so it is used through its descriptor only.
#[derive(Debug)]
pub struct VersionStage {
    parent: Directory,
    name: String,
    directory: Directory,
}

impl VersionStage {
    /// The stage's directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

impl Drop for VersionStage {
    fn drop(&mut self) {
        // After a failure the next start removes what is left.
        let _ = self.parent.remove_all(&self.name);
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        // Before the lock is released: no other process writes meanwhile.
        self.hand_over();
    }
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The version is new in this store.
    New,
    /// The store had the version, undamaged.
    Known,
    /// The store had the version, damaged; it has been replaced.
    Mended,
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
            removed: Removed::default(),
            _lock: lock,
        };
        writer.sweep()?;
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

    fn sweep(&self) -> Result<(), StoreError> {
        let path = |name: &str| self.store.root.join(name);
        let staging = self.store.folder("staging")?;
        staging.remove_contents().map_err(StoreError::io("remove what lies in", &path("staging")))?;
        let root = self.store.directory().map_err(StoreError::io("open", &self.store.root))?;
        sweep_unrenamed(root)?;
        // The daemon that listened on the socket held the lock, so it has ended.
        root.remove_file_if_there(CONTROL).map_err(StoreError::io("remove", &path(CONTROL)))?;
        for parent in ["versions", "receipts"] {
            let folder = self.store.folder(parent)?;
            for entry in folder.entries().map_err(StoreError::io("read", &path(parent)))? {
                let entry = entry.map_err(StoreError::io("read", &path(parent)))?;
                if entry.kind == EntryKind::Directory {
                    let inner = folder.directory(&entry.name);
                    sweep_unrenamed(&inner.map_err(StoreError::io("read", &path(parent).join(&entry.name)))?)?;
                }
            }
        }
        self.sweep_derived();
        // A crash while pruning may leave the receipts of a removed version.
        let (versions, receipts) = (self.store.folder("versions")?, self.store.folder("receipts")?);
        for entry in receipts.entries().map_err(StoreError::io("read", &path("receipts")))? {
            let name = entry.map_err(StoreError::io("read", &path("receipts")))?.name;
            if !versions.has(&name) {
                receipts.remove_all_if_there(&name).map_err(StoreError::io("remove", &path("receipts").join(&name)))?;
            }
        }
        Ok(())
    }

    /// Gives files that root has written into another user's store to that user.
    pub(super) fn hand_over(&self) {
        if let Err(error) = self.store.directory().and_then(owner::hand_over) {
            tracing::warn!("cannot give what was written to the owner of {}: {error}", self.store.root.display());
        }
    }

    /// Creates a directory for unfinished work.
    pub fn stage(&self) -> Result<VersionStage, StoreError> {
        let parent = self.store.folder("staging")?;
        let mut n = 0u32;
        loop {
            let name = n.to_string();
            match parent.create_directory(&name, 0o755) {
                Ok(directory) => {
                    // At once: after a kill the service, which may not be root, must be able to remove it.
                    self.hand_over();
                    return Ok(VersionStage { parent, name, directory });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
                Err(source) => {
                    let path = parent.path().join(&name);
                    return Err(StoreError::Io { doing: "make", path, source });
                }
            }
        }
    }

    /// Writes a version's index into its stage, and makes the index and the open `image` durable and read-only.
    pub fn finish_stage(&self, stage: &VersionStage, image: &File, index: &[u8]) -> Result<(), StoreError> {
        let path = stage.directory.path();
        write_sealed(&stage.directory, index).map_err(StoreError::io("write", &path.join(INDEX)))?;
        // Through the descriptor: the name may lead to a file that the owner of the store could not change.
        let seal = |mode| image.set_permissions(Permissions::from_mode(mode));
        // FAT has no files that some users may read and others may not.
        seal(0o440).or_else(|_| seal(0o444)).map_err(StoreError::io("seal", &path.join(IMAGE)))?;
        stage.directory.sync().map_err(StoreError::io("sync", path))
    }

    /// Makes a finished stage with this image the version `id`; the stage is used up. A version that is stored already
    /// is kept if `whole` says that its image is undamaged.
    pub fn commit(
        &self,
        stage: &VersionStage,
        image: &File,
        id: VersionId,
        whole: impl FnOnce(SealedFile) -> bool,
    ) -> Result<CommitOutcome, StoreError> {
        let (target, name) = (self.store.version_dir(id), id.to_string());
        let versions = self.store.folder("versions")?;
        is_still_there(stage, image).map_err(StoreError::io("commit", stage.directory.path()))?;
        let mut committed = CommitOutcome::New;
        if versions.has(&name) {
            if self.store.image(id).is_ok_and(whole) {
                return Ok(CommitOutcome::Known);
            }
            // In one step, so that a crash leaves one of the two. A process that has the damaged image mapped keeps it;
            // its name is removed with the stage.
            mend(stage, &versions, &name).map_err(StoreError::io("mend", &target))?;
            committed = CommitOutcome::Mended;
        } else {
            let moved = stage.parent.rename(&stage.name, &versions, &name);
            moved.map_err(StoreError::io("move into place", &target))?;
        }
        versions.sync().map_err(StoreError::io("sync", versions.path()))?;
        Ok(committed)
    }

    /// Replaces the index of a version, as a whole.
    pub fn replace_index(&self, id: VersionId, index: &[u8]) -> Result<(), StoreError> {
        let folder = self.store.folder("versions")?.directory(id.to_string());
        let written = folder.and_then(|folder| folder.replace(INDEX, 0o440, index));
        written.map_err(StoreError::io("write the index in", &self.store.version_dir(id)))
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

/// Checks that the stage still contains this image: in a store of another user, that user may have replaced it.
fn is_still_there(stage: &VersionStage, image: &File) -> io::Result<()> {
    let named = stage.directory.metadata_of(IMAGE)?;
    if FileId::from_metadata(&named) == FileId::from_metadata(&image.metadata()?) {
        Ok(())
    } else {
        let why = "another process replaced the file while it was being stored; check who may write to the store, then try \
                   again";
        Err(io::Error::other(why))
    }
}

/// Replaces a damaged version by a finished stage, in one step: a crash leaves one of the two. On file systems that
/// cannot exchange names the files are replaced one by one; opening a version detects an index that does not belong to
/// its image.
fn mend(stage: &VersionStage, versions: &Directory, name: &str) -> io::Result<()> {
    match stage.parent.exchange(&stage.name, versions, name) {
        Err(error) if is_unsupported(&error) => replace_files(stage, versions, name),
        done => done,
    }
}

fn replace_files(stage: &VersionStage, versions: &Directory, name: &str) -> io::Result<()> {
    let damaged = versions.directory(name)?;
    for file in [IMAGE, INDEX] {
        stage.directory.rename(file, &damaged, file)?;
    }
    damaged.sync()
}

impl StoreOperations for StoreWriter {
    fn now(&self) -> i64 {
        now_unix_seconds()
    }

    fn root(&self) -> &Path {
        self.store.root()
    }

    fn record(&self) -> Result<StoreRecord, StoreError> {
        self.store.record()
    }

    fn has(&self, id: VersionId) -> bool {
        self.store.has(id)
    }

    fn versions(&self) -> Result<Vec<StoredVersion>, StoreError> {
        self.store.versions()
    }

    fn receipts(&self, id: VersionId) -> Vec<Receipt> {
        self.store.receipts(id)
    }

    fn history(&self) -> Result<Vec<HistoryEvent>, StoreError> {
        self.store.history()
    }

    fn is_suspect(&self, id: VersionId) -> bool {
        self.store.is_suspect(id)
    }

    fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        self.store.sizes_of(versions)
    }

    fn free(&self) -> Result<Option<u64>, StoreError> {
        free_bytes(self.root()).map_err(StoreError::io("ask for the free space of", self.root()))
    }

    fn still_read(&self) -> u64 {
        self.removed.bytes()
    }

    fn give_up_derived(&self) -> bool {
        self.give_up_large()
    }

    fn with_record_lock<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock();
        work()
    }

    fn write(&self, record: &StoreRecord) -> Result<(), StoreError> {
        let path = self.store.root.join(RECORD);
        let written =
            self.store.directory().and_then(|root| root.replace(RECORD, 0o644, &record::encode(record)));
        written.map_err(StoreError::io("write", &path))
    }

    fn append(&self, event: &HistoryEvent) {
        let path = self.store.root.join(history::FILE);
        let is_here = |id| self.store.has(id);
        let written = self.store.directory().and_then(|root| {
            history::append(root, event)?;
            history::bound(root, is_here)
        });
        if let Err(error) = written {
            tracing::warn!("cannot write {}: {}", path.display(), error_message(&error));
        }
    }

    fn receive(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError> {
        let dir = self.store.root.join("receipts").join(id.to_string());
        let folder = self.store.folder("receipts")?.ensure_directory(id.to_string(), 0o755);
        let folder = folder.map_err(StoreError::io("make", &dir))?;
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let bytes = json::encode(receipt);
        folder.replace(format!("{nanos:020}.json"), 0o644, &bytes).map_err(StoreError::io("write", &dir))
    }

    fn remove(&self, id: VersionId) -> Result<bool, StoreError> {
        self.remove_unless_mapped(id)
    }

    fn withdraw(&self, id: VersionId) -> Result<(), StoreError> {
        self.take_out(id)
    }

    fn clear_suspect(&self, id: VersionId) -> Result<(), StoreError> {
        self.clear_mark(id)
    }

    fn keep_damaged(&self, damage: &StoreError) -> Result<(), StoreError> {
        let kept = self.store.root.join(DAMAGED_RECORD);
        // No link is followed: the copy is given to the owner of the store, who may not be allowed to read every file.
        let root = self.store.directory().map_err(StoreError::io("open", &self.store.root))?;
        let bytes = root.read(RECORD, MAX_RECORD_BYTES).map_err(StoreError::io("read", &self.store.root))?;
        root.replace(DAMAGED_RECORD, 0o644, &bytes).map_err(StoreError::io("write", &kept))?;
        tracing::warn!(
            "{}; a copy of it is kept as {}: to repeat a change made by hand, leave out the last line (\"sum\")",
            ErrorChain(damage),
            kept.display()
        );
        Ok(())
    }
}

/// Removes temporary files of writes that did not reach their rename.
pub(super) fn sweep_unrenamed(directory: &Directory) -> Result<(), StoreError> {
    for entry in directory.entries().map_err(StoreError::io("read", directory.path()))? {
        let name = entry.map_err(StoreError::io("read", directory.path()))?.name;
        if name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".new") {
            let removed = directory.remove_file_if_there(&name);
            removed.map_err(StoreError::io("remove", &directory.path().join(&name)))?;
        }
    }
    Ok(())
}

fn write_sealed(stage: &Directory, bytes: &[u8]) -> io::Result<()> {
    let mut file = stage.create_file(INDEX, 0o440)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests;
