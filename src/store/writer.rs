//! The one writer of a store: staging, commit, the record, history.

use std::fmt;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use crate::base::chain::{Chain, words};
use crate::base::durable::{self, Lock};
use crate::model::units::unix_seconds;
use crate::model::version::VersionId;

use super::keeper::Keeper;
use super::record::{self, Record};
use super::space::{Taken, free_bytes};
use super::{CONTROL, Event, IMAGE, INDEX, Receipt, Store, StoreError, Stored, history, owner};

/// A store held open for writing.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    /// Whose turn it is to change the record.
    turn: Mutex<()>,
    /// Who has versions mapped that he could do without.
    holder: OnceLock<Holder>,
    /// Who uses or makes what was derived and is large.
    user: OnceLock<User>,
    _lock: Lock,
}

/// Asked to let go of a version before it is removed.
struct Holder(Box<dyn Fn(VersionId) + Send + Sync>);

/// Asked to let go of what was derived and is large.
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

/// A folder for unfinished work; gone when dropped.
#[derive(Debug)]
pub struct Stage {
    dir: PathBuf,
}

impl Stage {
    /// Its path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What is left after a failure is swept at the next start as well.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // While the lock is still held: nobody else writes.
        self.hand_over();
    }
}

/// What a commit found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// The version is new in this store.
    New,
    /// It was there, whole.
    Known,
    /// It was there, damaged, and has been replaced.
    Mended,
}

impl Writer {
    /// Opens the store at `root`, making it if need be, waiting up to `patience` for another writer, and sweeps what a
    /// crash has left.
    pub fn open(root: &Path, patience: Duration) -> Result<Writer, StoreError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(root).map_err(StoreError::io("make the store", root))?;
        let path = root.join("lock");
        let mut lock = Lock::take(&path, Duration::ZERO).map_err(StoreError::io("lock", &path))?;
        if lock.is_none() && !patience.is_zero() {
            tracing::warn!(
                "another docwharf writes to {}; waiting up to {} s for it",
                root.display(),
                patience.as_secs()
            );
            lock = Lock::take(&path, patience).map_err(StoreError::io("lock", &path))?;
        }
        let lock = lock.ok_or_else(|| StoreError::Locked { path: root.to_owned() })?;
        for dir in ["versions", "receipts", "staging", "downloads"] {
            let dir = root.join(dir);
            builder.create(&dir).map_err(StoreError::io("make", &dir))?;
        }
        let writer = Writer {
            store: Store::at(root),
            turn: Mutex::new(()),
            holder: OnceLock::new(),
            user: OnceLock::new(),
            _lock: lock,
        };
        owner::check(root).map_err(StoreError::io("trust the folders of", root))?;
        writer.sweep()?;
        Ok(writer)
    }

    /// Whoever has versions of this store mapped that he could do without says so once: `let_go` is called for each that is
    /// to be removed. One that is still mapped afterwards stays.
    pub fn before_removing(&self, let_go: impl Fn(VersionId) + Send + Sync + 'static) {
        let first = self.holder.set(Holder(Box::new(let_go))).is_ok();
        debug_assert!(first, "one holder a store");
    }

    /// Has a version let go of.
    pub(super) fn let_go(&self, id: VersionId) {
        if let Some(Holder(let_go)) = self.holder.get() {
            let_go(id);
        }
    }

    /// Whoever uses or makes what is large and derived says so once: `let_go` is called before it is removed to make room.
    pub fn before_giving_up(&self, let_go: impl Fn() + Send + Sync + 'static) {
        let first = self.user.set(User(Box::new(let_go))).is_ok();
        debug_assert!(first, "one user a store");
    }

    /// Has what is large and derived let go of.
    pub(super) fn let_go_of_large(&self) {
        if let Some(User(let_go)) = self.user.get() {
            let_go();
        }
    }

    /// The store itself.
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn sweep(&self) -> Result<(), StoreError> {
        let (_pin, dir) = owner::pinned(&self.store.root, "staging")?;
        for entry in fs::read_dir(&dir).map_err(StoreError::io("read", &dir))? {
            let path = entry.map_err(StoreError::io("read", &dir))?.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(StoreError::io("remove", &path))?;
        }
        sweep_unrenamed(&self.store.root)?;
        // Whoever listened there had the lock.
        let socket = self.store.root.join(CONTROL);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::Io { doing: "remove", path: socket, source: error });
            }
            _ => {}
        }
        for parent in ["versions", "receipts"] {
            let (_pin, parent) = owner::pinned(&self.store.root, parent)?;
            for entry in fs::read_dir(&parent).map_err(StoreError::io("read", &parent))? {
                sweep_unrenamed(&entry.map_err(StoreError::io("read", &parent))?.path())?;
            }
        }
        self.sweep_derived();
        // Receipts of a version that was pruned, but not yet they.
        let (_pin, receipts) = owner::pinned(&self.store.root, "receipts")?;
        for entry in fs::read_dir(&receipts).map_err(StoreError::io("read", &receipts))? {
            let entry = entry.map_err(StoreError::io("read", &receipts))?;
            if !self.store.root.join("versions").join(entry.file_name()).exists() {
                fs::remove_dir_all(entry.path()).map_err(StoreError::io("remove", &entry.path()))?;
            }
        }
        Ok(())
    }

    /// What root writes into another user's store becomes that user's.
    pub(super) fn hand_over(&self) {
        if let Err(error) = owner::hand_over(&self.store.root) {
            tracing::warn!("cannot give what was written to the owner of {}: {error}", self.store.root.display());
        }
    }

    /// A new folder for unfinished work.
    pub fn stage(&self) -> Result<Stage, StoreError> {
        let parent = self.store.root.join("staging");
        let mut n = 0u32;
        loop {
            let dir = parent.join(n.to_string());
            match fs::create_dir(&dir) {
                Ok(()) => {
                    // Already now: whoever sweeps it after a kill may not be root.
                    self.hand_over();
                    return Ok(Stage { dir });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => n += 1,
                Err(source) => {
                    return Err(StoreError::Io { doing: "make", path: dir, source });
                }
            }
        }
    }

    /// Writes a version's index into its stage and makes both files durable and read-only.
    pub fn finish_stage(&self, stage: &Stage, index: &[u8]) -> Result<(), StoreError> {
        let path = stage.dir.join(INDEX);
        write_sealed(&path, index).map_err(StoreError::io("write", &path))?;
        let image = stage.dir.join(IMAGE);
        fs::set_permissions(&image, Permissions::from_mode(0o444)).map_err(StoreError::io("seal", &image))?;
        durable::sync_dir(&stage.dir).map_err(StoreError::io("sync", &stage.dir))
    }

    /// Makes a finished stage, which is used up, the version `id`. One that is there already is kept if `whole` says that it is good.
    pub fn commit(
        &self,
        stage: &Stage,
        id: VersionId,
        whole: impl FnOnce(&Path) -> bool,
    ) -> Result<Committed, StoreError> {
        let target = self.store.version_dir(id);
        let mut committed = Committed::New;
        if target.exists() {
            if whole(&target) {
                return Ok(Committed::Known);
            }
            // In one step, so that a crash leaves one of them. Who has the damaged one mapped keeps it; its name goes with
            // the stage.
            durable::exchange(&stage.dir, &target, &[IMAGE, INDEX]).map_err(StoreError::io("mend", &target))?;
            committed = Committed::Mended;
        } else {
            fs::rename(&stage.dir, &target).map_err(StoreError::io("move into place", &target))?;
        }
        let versions = self.store.root.join("versions");
        durable::sync_dir(&versions).map_err(StoreError::io("sync", &versions))?;
        Ok(committed)
    }

    /// Replaces the index of a version in place, as a whole.
    pub fn replace_index(&self, id: VersionId, index: &[u8]) -> Result<(), StoreError> {
        let dir = self.store.version_dir(id);
        durable::replace_sealed(&dir, INDEX, index).map_err(StoreError::io("write the index in", &dir))
    }
}

impl Keeper for Writer {
    fn now(&self) -> i64 {
        unix_seconds(SystemTime::now())
    }

    fn root(&self) -> &Path {
        self.store.root()
    }

    fn record(&self) -> Result<Record, StoreError> {
        self.store.record()
    }

    fn has(&self, id: VersionId) -> bool {
        self.store.has(id)
    }

    fn versions(&self) -> Result<Vec<Stored>, StoreError> {
        self.store.versions()
    }

    fn receipts(&self, id: VersionId) -> Vec<Receipt> {
        self.store.receipts(id)
    }

    fn history(&self) -> Result<Vec<Event>, StoreError> {
        self.store.history()
    }

    fn is_suspect(&self, id: VersionId) -> bool {
        self.store.is_suspect(id)
    }

    fn sizes_of(&self, versions: &[Stored]) -> Vec<Taken> {
        self.store.sizes_of(versions)
    }

    fn free(&self) -> Result<Option<u64>, StoreError> {
        free_bytes(self.root()).map_err(StoreError::io("ask for the free space of", self.root()))
    }

    fn give_up_derived(&self) -> bool {
        self.give_up_large()
    }

    fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    fn write(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.store.root.join(record::FILE);
        durable::replace(&self.store.root, record::FILE, &record::encode(record))
            .map_err(StoreError::io("write", &path))
    }

    fn append(&self, event: &Event) {
        let path = self.store.root.join(history::FILE);
        let is_here = |id| self.store.has(id);
        if let Err(error) = history::append(&path, event).and_then(|()| history::bound(&self.store.root, is_here)) {
            tracing::warn!("cannot write {}: {}", path.display(), words(&error));
        }
    }

    fn receive(&self, id: VersionId, receipt: &Receipt) -> Result<(), StoreError> {
        let dir = self.store.root.join("receipts").join(id.to_string());
        fs::create_dir_all(&dir).map_err(StoreError::io("make", &dir))?;
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let bytes = json(receipt);
        durable::replace(&dir, &format!("{nanos:020}.json"), &bytes).map_err(StoreError::io("write", &dir))
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
        let kept = self.store.root.join(record::DAMAGED);
        let bytes = fs::read(self.store.root.join(record::FILE)).map_err(StoreError::io("read", &self.store.root))?;
        durable::replace(&self.store.root, record::DAMAGED, &bytes).map_err(StoreError::io("write", &kept))?;
        tracing::warn!(
            "{}; it is kept as {}: whoever has changed it by hand does so again, without its last line (\"sum\")",
            Chain(damage),
            kept.display()
        );
        Ok(())
    }
}

/// Removes temporary names in `dir` from writes that did not reach their rename.
pub(super) fn sweep_unrenamed(dir: &Path) -> Result<(), StoreError> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) }; // not a folder
    for entry in entries {
        let path = entry.map_err(StoreError::io("read", dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with('.') && name.strip_suffix(".new").is_some() {
            fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
        }
    }
    Ok(())
}

fn write_sealed(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Indented, for people.
pub(super) fn json(value: &impl serde::Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("structs of texts and numbers are JSON");
    bytes.push(b'\n');
    bytes
}
