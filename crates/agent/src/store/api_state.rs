//! State of management API calls that outlives a command: when requests were sent, for the rate limit, and the pages of
//! an unfinished query. It lies in `api/` in the store:
//!
//! - `budget.json` holds the times of requests; it is changed under `lock` and replaced as a whole (temporary file,
//!   fsync, rename). A file that cannot be parsed is replaced by an empty one: a forgotten budget costs one 429, an
//!   unreadable one would fail the command.
//! - `<name>.jsonl` is the spool of a query: one line with the query, then one line a page. Each page is fsynced before
//!   the next is requested. A torn last line is dropped. The process that writes a spool holds a `flock` on it.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use docwharf_base::directory::{Directory, FileAccess, FileId, FileRequirements};
use docwharf_base::durable::FileLock;

use super::{StoreError, owner};

/// Name of the directory in the store.
const FOLDER: &str = "api";
/// Name of the file with the budgets.
const BOOK: &str = "budget.json";
/// How long to wait for the lock, which is held only while a small file is written.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Milliseconds added to each window: the server counts from the arrival of a request, this process from when it is
/// sent.
const MARGIN: i64 = 500;
/// Upper bound of the size of the budget file in bytes; a real one has a few hundred.
const MAX_BUDGET_BYTES: u64 = 1 << 20;
/// Age after which an unfinished spool is removed: search terms of readers are not kept without need.
pub const MAX_SPOOL_AGE: Duration = Duration::from_hours(24);

/// A rate limit: the number of requests in a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of requests allowed in a window.
    pub requests: usize,
    /// Length of the sliding window.
    pub window: Duration,
}

/// The reason why no request may be sent now, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The budget is used up.
    UsedUp(Duration),
    /// The server wants no requests for a while.
    Closed(Duration),
}

/// The times at which requests were sent, in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    sent: Vec<i64>,
    /// Time until which the server wants no requests.
    closed_until: Option<i64>,
}

impl Ledger {
    /// Takes one request from the budget at `now`, or returns how long to wait for one. The wait is never longer than
    /// the allowance's window plus a margin of half a second, whatever a server or a clock says.
    pub fn take(&mut self, allowance: RateLimit, now: i64) -> Result<(), Wait> {
        let window = i64::try_from(allowance.window.as_millis()).unwrap_or(i64::MAX / 4) + MARGIN;
        // A time in the future comes from a clock that was set back; it must not keep the budget used up for ever.
        for sent in &mut self.sent {
            *sent = (*sent).min(now);
        }
        self.sent.retain(|&sent| sent > now - window);
        self.sent.sort_unstable();
        self.closed_until = self.closed_until.map(|until| until.min(now + window)).filter(|&until| until > now);
        let oldest = self.sent.len().checked_sub(allowance.requests).map(|at| self.sent[at] + window);
        let after = |free: i64| Duration::from_millis(u64::try_from(free - now).unwrap_or_default());
        if let Some(until) = self.closed_until.filter(|&until| oldest.is_none_or(|free| free <= until)) {
            return Err(Wait::Closed(after(until)));
        }
        if let Some(free) = oldest {
            return Err(Wait::UsedUp(after(free)));
        }
        self.sent.push(now);
        Ok(())
    }

    /// Returns the request taken at `then` to the budget, because it was never sent.
    pub fn give_back(&mut self, then: i64) {
        if let Some(at) = self.sent.iter().rposition(|&sent| sent == then) {
            self.sent.remove(at);
        }
    }

    /// Closes the budget until `until`, as the server asked.
    pub fn close(&mut self, until: i64) {
        self.closed_until = self.closed_until.max(Some(until));
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BudgetFile {
    schema_version: u32,
    budgets: BTreeMap<String, Ledger>,
}

impl Default for BudgetFile {
    fn default() -> BudgetFile {
        BudgetFile { schema_version: 1, budgets: BTreeMap::new() }
    }
}

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
        builder.recursive(true).mode(0o755);
        #[allow(clippy::disallowed_methods)] // the operator's path
        builder.create(root).map_err(StoreError::io("make the store", root))?;
        let root = Directory::open(root).map_err(StoreError::io("open", root))?;
        let folder = root.ensure_directory(FOLDER, 0o700);
        let folder = folder.map_err(StoreError::io("make", &root.path().join(FOLDER)))?;
        // A directory that cannot be written to is an error now, before any request is sent.
        let lock = FileLock::acquire_in(&folder, "lock", LOCK_TIMEOUT);
        drop(lock.map_err(StoreError::io("lock", &folder.path().join("lock")))?);
        let asked = ApiStateDirectory { root, folder };
        asked.sweep();
        Ok(asked)
    }

    /// Removes spools that no process has continued for [`MAX_SPOOL_AGE`].
    fn sweep(&self) {
        let Ok(entries) = self.folder.entries() else { return };
        for name in entries.flatten().map(|entry| entry.name) {
            let is_reading = Path::new(&name).extension().is_some_and(|end| end == "jsonl");
            let age = self.folder.metadata_of(&name).and_then(|metadata| metadata.modified()).ok();
            let age = age.and_then(|time| SystemTime::now().duration_since(time).ok());
            if is_reading && age.is_some_and(|age| age > MAX_SPOOL_AGE) {
                // A process that has just opened this spool loses the pages it keeps, but continues its query.
                let _ = self.folder.remove_file(&name);
            }
        }
    }

    /// Reads the budget of this name as it was last stored; returns an empty one if that fails.
    pub fn last(&self, name: &str) -> Ledger {
        self.book().ok().and_then(|mut book| book.budgets.remove(name)).unwrap_or_default()
    }

    /// Reads the budget file. The owner of the store may be hostile: the read does not block on a pipe, follows no link
    /// and is bounded by [`MAX_BUDGET_BYTES`].
    fn book(&self) -> io::Result<BudgetFile> {
        let mut bytes = Vec::new();
        self.folder.file(BOOK)?.take(MAX_BUDGET_BYTES).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!("{} is damaged ({error}) and replaced", self.folder.path().join(BOOK).display());
            BudgetFile::default()
        }))
    }

    /// Changes the budget of this name under the lock.
    pub fn with<T>(&self, name: &str, change: impl FnOnce(&mut Ledger) -> T) -> Result<T, StoreError> {
        let (lock, book) = (self.folder.path().join("lock"), self.folder.path().join(BOOK));
        let locked = FileLock::acquire_in(&self.folder, "lock", LOCK_TIMEOUT).map_err(StoreError::io("lock", &lock))?;
        let _locked = locked.ok_or_else(|| StoreError::Locked { path: self.folder.path().to_owned() })?;
        let mut budgets = match self.book() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BudgetFile::default(),
            other => other.map_err(StoreError::io("read", &book))?,
        };
        let ledger = budgets.budgets.entry(name.to_owned()).or_default();
        let before = ledger.clone();
        let result = change(ledger);
        if *ledger == before {
            // Nothing to write: a waiting process polls each second.
            return Ok(result);
        }
        let bytes = serde_json::to_vec_pretty(&budgets).map_err(|e| StoreError::io("write", &book)(e.into()))?;
        self.folder.replace(BOOK, 0o644, &bytes).map_err(StoreError::io("write", &book))?;
        self.hand_over();
        Ok(result)
    }

    /// Opens the spool of this name. It is continued if it is of `question` and not older than [`MAX_SPOOL_AGE`];
    /// otherwise it begins anew with these notes. None if another process holds it.
    pub fn reading(&self, name: &str, question: &Value, notes: &Value) -> Result<Option<QuerySpool>, StoreError> {
        let name_of_file = format!("{name}.jsonl");
        let path = self.folder.path().join(&name_of_file);
        let io = |doing| StoreError::io(doing, &path);
        let opened =
            self.folder.open_file(&name_of_file, FileAccess::ReadWriteOrCreate(0o600), FileRequirements::SINGLE_NAME);
        let mut file = opened.map_err(io("open"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other.map_err(|errno| io("lock")(errno.into()))?,
        }
        let opened = file.metadata().map_err(io("read"))?;
        let named = self.folder.metadata_of(&name_of_file);
        if !named.is_ok_and(|named| FileId::from_metadata(&named) == FileId::from_metadata(&opened)) {
            // The process that held the lock has just finished and removed the file: this descriptor has no name any
            // more.
            return self.reading(name, question, notes);
        }
        let age = file.metadata().and_then(|metadata| metadata.modified()).map_err(io("read"))?;
        let is_young = SystemTime::now().duration_since(age).unwrap_or_default() <= MAX_SPOOL_AGE;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let lines = bytes[..whole].split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let lines: Result<Vec<Value>, _> = lines.map(serde_json::from_slice).collect();
        let folder = self.folder.clone();
        let mut spool =
            QuerySpool { file, folder, name: name_of_file, path: path.clone(), header: Value::Null, pages: Vec::new() };
        match lines {
            Ok(mut lines) if is_young && lines.first().is_some_and(|header| header["question"] == *question) => {
                spool.header = lines.remove(0);
                spool.pages = lines;
                spool.file.set_len(whole as u64).map_err(io("write"))?;
                spool.file.seek(SeekFrom::End(0)).map_err(io("write"))?;
            }
            _ => spool.begin(question, notes)?,
        }
        self.hand_over();
        Ok(Some(spool))
    }

    fn hand_over(&self) {
        if let Err(error) = owner::hand_over(&self.root) {
            tracing::warn!("cannot give {} to the owner of the store: {error}", self.folder.path().display());
        }
    }
}

/// The spool of an unfinished query.
#[derive(Debug)]
pub struct QuerySpool {
    file: File,
    folder: Directory,
    name: String,
    path: PathBuf,
    header: Value,
    pages: Vec<Value>,
}

impl QuerySpool {
    /// The pages that an earlier process has stored.
    pub fn pages(&self) -> &[Value] {
        &self.pages
    }

    /// The notes stored when the spool began.
    pub fn notes(&self) -> &Value {
        &self.header["notes"]
    }

    /// Discards the stored pages and begins with `question`.
    pub fn begin(&mut self, question: &Value, notes: &Value) -> Result<(), StoreError> {
        self.pages.clear();
        self.header = serde_json::json!({ "schemaVersion": 1, "question": question, "notes": notes });
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(StoreError::io("write", &self.path))?;
        let header = self.header.clone();
        self.line(&header)
    }

    /// Stores a page durably; it is not requested again.
    pub fn push(&mut self, page: &Value) -> Result<(), StoreError> {
        self.line(page)
    }

    /// Removes the spool, because the query is complete or is abandoned.
    pub fn done(self) -> Result<(), StoreError> {
        match self.folder.remove_file(&self.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &self.path)(error)),
            _ => Ok(()),
        }
    }

    fn line(&mut self, value: &Value) -> Result<(), StoreError> {
        let written = self.file.write_all(format!("{value}\n").as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(StoreError::io("write", &self.path))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use serde_json::json;

    use super::*;

    const FIVE: RateLimit = RateLimit { requests: 5, window: Duration::from_mins(1) };
    const MINUTE: i64 = 60_000 + MARGIN;

    #[test]
    fn no_span_of_a_minute_has_more_requests_than_allowed() {
        let mut ledger = Ledger::default();
        let mut now = 1_000_000;
        let mut sent = Vec::new();
        for step in 0..500_i64 {
            match ledger.take(FIVE, now) {
                Ok(()) => sent.push(now),
                Err(Wait::UsedUp(wait)) => {
                    assert!(wait > Duration::ZERO && wait <= Duration::from_millis(MINUTE as u64));
                }
                Err(Wait::Closed(_)) => panic!("nobody has closed it"),
            }
            now += step * 7919 % 9001;
        }
        assert!(sent.len() > 50);
        for window in sent.windows(6) {
            assert!(window[5] - window[0] >= 60_000, "{window:?}");
        }
    }

    #[test]
    fn the_wait_that_is_told_is_enough_and_not_too_long() {
        let mut ledger = Ledger::default();
        for at in 0..5 {
            ledger.take(FIVE, at * 1000).unwrap();
        }
        assert_eq!(ledger.take(FIVE, 10_000), Err(Wait::UsedUp(Duration::from_millis((MINUTE - 10_000) as u64))));
        assert_eq!(ledger.take(FIVE, MINUTE), Ok(()));
        assert_eq!(ledger.take(FIVE, MINUTE), Err(Wait::UsedUp(Duration::from_secs(1))));
    }

    #[test]
    fn what_never_left_costs_nothing_and_what_the_server_says_counts() {
        let mut ledger = Ledger::default();
        for _ in 0..5 {
            ledger.take(FIVE, 7).unwrap();
        }
        ledger.give_back(7);
        assert_eq!(ledger.take(FIVE, 8), Ok(()));
        let mut closed = Ledger::default();
        closed.close(50_000);
        closed.close(40_000);
        assert_eq!(closed.take(FIVE, 0), Err(Wait::Closed(Duration::from_secs(50))));
        assert_eq!(closed.take(FIVE, 50_000), Ok(()));
    }

    #[test]
    fn a_clock_that_jumps_closes_no_budget_for_longer_than_its_window() {
        let mut ledger = Ledger { sent: vec![i64::MAX; 5], closed_until: Some(i64::MAX) };
        let window = Duration::from_millis(MINUTE as u64);
        assert_eq!(ledger.take(FIVE, 0), Err(Wait::Closed(window)));
        ledger.closed_until = None;
        assert_eq!(ledger.take(FIVE, 0), Err(Wait::UsedUp(window)));
        assert_eq!(ledger.take(FIVE, MINUTE), Ok(()));
    }

    #[test]
    fn a_budget_outlives_its_process_and_damage_begins_it_anew() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let take = || ApiStateDirectory::open(&root).unwrap().with("x", |ledger| ledger.take(FIVE, 1_000)).unwrap();
        for _ in 0..5 {
            assert_eq!(take(), Ok(()));
        }
        assert!(take().is_err());
        std::fs::write(root.join("api/budget.json"), "{").unwrap();
        assert_eq!(take(), Ok(()));
    }

    #[test]
    fn a_reading_goes_on_where_its_pages_end_and_a_torn_one_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let asked = ApiStateDirectory::open(dir.path()).unwrap();
        let question = json!({"from": null});
        let open = |question: &Value| asked.reading("searches", question, &json!({"to": 7})).unwrap();
        let mut spool = open(&question).unwrap();
        assert!(open(&question).is_none(), "one process at a time");
        spool.push(&json!({"page": 1})).unwrap();
        spool.push(&json!({"page": 2})).unwrap();
        spool.file.write_all(b"{\"page\"").unwrap();
        drop(spool);
        let mut spool = open(&question).unwrap();
        assert_eq!(spool.notes(), &json!({"to": 7}));
        assert_eq!(spool.pages(), [json!({"page": 1}), json!({"page": 2})]);
        spool.push(&json!({"page": 3})).unwrap();
        drop(spool);
        assert_eq!(open(&question).unwrap().pages().len(), 3);
        assert!(open(&json!({"from": "2026-01-01"})).unwrap().pages().is_empty());
        let spool = open(&question).unwrap();
        let file = dir.path().join("api/searches.jsonl");
        std::fs::remove_file(&file).unwrap();
        spool.done().expect("somebody else has removed it");
        drop(open(&question).unwrap());
        let long_ago = SystemTime::now() - MAX_SPOOL_AGE - Duration::from_mins(1);
        File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
        ApiStateDirectory::open(dir.path()).unwrap();
        assert!(!file.exists(), "what nobody goes on with is not kept");
    }

    #[test]
    fn a_budget_as_it_was_kept_last_is_told_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let asked = ApiStateDirectory::open(dir.path()).unwrap();
        assert_eq!(asked.last("x"), Ledger::default());
        asked.with("x", |ledger| ledger.take(FIVE, 1_000)).unwrap().unwrap();
        asked.with("y", |ledger| ledger.close(2_000)).unwrap();
        assert_eq!(asked.last("x"), Ledger { sent: vec![1_000], closed_until: None });
        assert_eq!(asked.last("y"), Ledger { sent: Vec::new(), closed_until: Some(2_000) });
        assert_eq!(asked.last("z"), Ledger::default());
        std::fs::write(dir.path().join("api/budget.json"), "{").unwrap();
        assert_eq!(asked.last("x"), Ledger::default());
    }

    #[test]
    fn whichever_ends_later_is_told_and_what_is_given_back_is_one_request() {
        let minute = Duration::from_millis(MINUTE as u64);
        let ledger = |closed_until| Ledger { sent: vec![0; 5], closed_until };
        assert_eq!(ledger(Some(MINUTE)).take(FIVE, 0), Err(Wait::Closed(minute)));
        assert_eq!(ledger(Some(MINUTE - 1)).take(FIVE, 0), Err(Wait::UsedUp(minute)));
        assert_eq!(ledger(None).take(FIVE, MINUTE - 1), Err(Wait::UsedUp(Duration::from_millis(1))));
        let mut given = Ledger { sent: vec![1, 2, 2, 3], closed_until: None };
        given.give_back(2);
        given.give_back(7);
        assert_eq!(given.sent, [1, 2, 3]);
    }

    #[test]
    fn a_reading_is_begun_anew_when_it_is_stale_or_damaged_and_a_file_that_is_none_stays() {
        let dir = tempfile::tempdir().unwrap();
        let asked = ApiStateDirectory::open(dir.path()).unwrap();
        let question = json!({"from": null});
        let open = || asked.reading("searches", &question, &json!({"to": 7})).unwrap().unwrap();
        let file = dir.path().join("api/searches.jsonl");
        let set_age = |path: &Path, age: Duration| {
            File::options().append(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        };
        let minute = Duration::from_mins(1);
        let young = MAX_SPOOL_AGE.checked_sub(minute).unwrap();
        for (age, pages) in [(young, 1), (MAX_SPOOL_AGE + minute, 0)] {
            let mut spool = open();
            spool.begin(&question, &json!({})).unwrap();
            assert!(spool.pages().is_empty());
            spool.push(&json!({"page": 1})).unwrap();
            drop(spool);
            set_age(&file, age);
            assert_eq!(open().pages().len(), pages, "{age:?}");
        }
        open().push(&json!({"page": 1})).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}torn in the middle\n{{}}\n")).unwrap();
        assert!(open().pages().is_empty());
        open().done().unwrap();
        assert!(!file.exists());
        asked.with("x", |ledger| ledger.take(FIVE, 1_000)).unwrap().unwrap();
        drop(open());
        set_age(&file, young);
        set_age(&dir.path().join("api/budget.json"), MAX_SPOOL_AGE * 2);
        ApiStateDirectory::open(dir.path()).unwrap();
        assert!(file.exists() && dir.path().join("api/budget.json").exists());
    }
}
