//! State of management API calls that outlives a command: when requests were sent, for the rate limit, and the pages of
//! an unfinished query. It lies in `api/` in the store:
//!
//! - `budget.json` holds the times of requests; it is changed under `lock` and replaced as a whole (temporary file,
//!   fsync, rename). A file that cannot be parsed is replaced by an empty one: a lost budget costs one 429, an error
//!   would end the command.
//! - `<name>.jsonl` is the spool of a query: one line with the query, then one line a page. Each page is fsynced before
//!   the next is requested. An incomplete last line is ignored. The process that writes a spool holds a `flock` on it.

mod query_spool;
mod request_budget;

use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use docwharf_base::directory::Directory;
use docwharf_base::durable::FileLock;

use super::{StoreError, owner};

pub use query_spool::{MAX_SPOOL_AGE, QuerySpool};
use request_budget::BudgetFile;
pub use request_budget::{BudgetWait, RateLimit, RequestBudget};

/// Name of the directory in the store.
const DIRECTORY_NAME: &str = "api";
/// Name of the file with the budgets.
const BUDGET_FILE: &str = "budget.json";
/// How long to wait for the lock, which is held only while a small file is written.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound of the size of the budget file in bytes; a real one has a few hundred.
const MAX_BUDGET_BYTES: u64 = 1 << 20;

/// The directory with the state of API calls.
#[derive(Debug)]
pub struct ApiStateDirectory {
    root: Directory,
    folder: Directory,
}

impl ApiStateDirectory {
    /// Opens the directory in the store at `root`, and creates both if they are missing.
    pub fn open(root: &Path) -> Result<ApiStateDirectory, StoreError> {
        let mut builder = DirBuilder::new();
        // As `StoreWriter` makes it: whichever command is the first.
        builder.recursive(true).mode(0o750);
        #[allow(clippy::disallowed_methods)] // the operator's path
        builder.create(root).map_err(StoreError::io("make the store", root))?;
        let root = Directory::open(root).map_err(StoreError::io("open", root))?;
        let folder = root.ensure_directory(DIRECTORY_NAME, 0o700);
        let folder = folder.map_err(StoreError::io("make", &root.path().join(DIRECTORY_NAME)))?;
        // A directory that cannot be written to is an error now, before any request is sent.
        let lock = FileLock::acquire_in(&folder, "lock", LOCK_TIMEOUT);
        drop(lock.map_err(StoreError::io("lock", &folder.path().join("lock")))?);
        let api_state = ApiStateDirectory { root, folder };
        api_state.remove_old_spools();
        Ok(api_state)
    }

    /// Removes spools that no process has continued for [`MAX_SPOOL_AGE`].
    fn remove_old_spools(&self) {
        let Ok(entries) = self.folder.entries() else { return };
        for name in entries.flatten().map(|entry| entry.name) {
            let is_spool = Path::new(&name).extension().is_some_and(|extension| extension == "jsonl");
            let age = self.folder.metadata_of(&name).and_then(|metadata| metadata.modified()).ok();
            let age = age.and_then(|time| SystemTime::now().duration_since(time).ok());
            if is_spool && age.is_some_and(|age| age > MAX_SPOOL_AGE) {
                // A process that has just opened this spool loses the stored pages, but continues its query.
                let _ = self.folder.remove_file(&name);
            }
        }
    }

    /// Reads the stored budget with this name; returns an empty one if that fails.
    pub fn read_budget(&self, name: &str) -> RequestBudget {
        self.read_budget_file().ok().and_then(|mut file| file.budgets.remove(name)).unwrap_or_default()
    }

    /// Reads the budget file. The owner of the store may be hostile: the read does not block on a pipe, follows no link
    /// and is bounded by [`MAX_BUDGET_BYTES`].
    fn read_budget_file(&self) -> io::Result<BudgetFile> {
        let mut bytes = Vec::new();
        self.folder.open_for_reading(BUDGET_FILE)?.take(MAX_BUDGET_BYTES).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!("{} is damaged ({error}) and is replaced", self.folder.path().join(BUDGET_FILE).display());
            BudgetFile::default()
        }))
    }

    /// Changes the budget with this name under the lock.
    pub fn change_budget<T>(&self, name: &str, change: impl FnOnce(&mut RequestBudget) -> T) -> Result<T, StoreError> {
        let (lock_path, budget_path) = (self.folder.path().join("lock"), self.folder.path().join(BUDGET_FILE));
        let lock =
            FileLock::acquire_in(&self.folder, "lock", LOCK_TIMEOUT).map_err(StoreError::io("lock", &lock_path))?;
        let _lock = lock.ok_or_else(|| StoreError::locked(self.folder.path()))?;
        let mut budgets = match self.read_budget_file() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BudgetFile::default(),
            result => result.map_err(StoreError::io("read", &budget_path))?,
        };
        let budget = budgets.budgets.entry(name.to_owned()).or_default();
        let before = budget.clone();
        let result = change(budget);
        if *budget == before {
            // Not written: a waiting process calls this each second.
            return Ok(result);
        }
        let bytes = serde_json::to_vec_pretty(&budgets).map_err(|e| StoreError::io("write", &budget_path)(e.into()))?;
        self.folder.replace(BUDGET_FILE, 0o644, &bytes).map_err(StoreError::io("write", &budget_path))?;
        self.change_owner_to_store_owner();
        Ok(result)
    }

    /// Opens the spool with this name. It is continued if it belongs to `query` and is not older than
    /// [`MAX_SPOOL_AGE`]; otherwise it is emptied and gets these notes. None if another process has locked it.
    pub fn open_spool(&self, name: &str, query: &Value, notes: &Value) -> Result<Option<QuerySpool>, StoreError> {
        let spool = QuerySpool::open(&self.folder, name, query, notes)?;
        if spool.is_some() {
            self.change_owner_to_store_owner();
        }
        Ok(spool)
    }

    fn change_owner_to_store_owner(&self) {
        if let Err(error) = owner::change_owner_to_store_owner(&self.root) {
            tracing::warn!("cannot change the owner of {} to that of the store: {error}", self.folder.path().display());
        }
    }
}
