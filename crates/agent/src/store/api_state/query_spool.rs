//! The spool of a query: its pages as they were received, so that an interrupted command continues.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use docwharf_base::directory::{Directory, FileAccess, FileId, FileRequirements};

use crate::store::StoreError;

/// Age after which an unfinished spool is removed: search terms of readers are not stored without need.
pub const MAX_SPOOL_AGE: Duration = Duration::from_hours(24);

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
    /// Opens the spool with this name; see [`ApiStateDirectory::open_spool`](super::ApiStateDirectory::open_spool).
    pub(super) fn open(
        folder: &Directory,
        name: &str,
        query: &Value,
        notes: &Value,
    ) -> Result<Option<QuerySpool>, StoreError> {
        let file_name = format!("{name}.jsonl");
        let path = folder.path().join(&file_name);
        let io = |doing| StoreError::io(doing, &path);
        let opened = folder.open_file(&file_name, FileAccess::ReadWriteOrCreate(0o600), FileRequirements::SINGLE_NAME);
        let mut file = opened.map_err(io("open"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            result => result.map_err(|errno| io("lock")(errno.into()))?,
        }
        let opened = file.metadata().map_err(io("read"))?;
        let named = folder.metadata_of(&file_name);
        if !named.is_ok_and(|named| FileId::from_metadata(&named) == FileId::from_metadata(&opened)) {
            // The process that held the lock has just finished and removed the file: this descriptor has no name any
            // more.
            return QuerySpool::open(folder, name, query, notes);
        }
        let age = file.metadata().and_then(|metadata| metadata.modified()).map_err(io("read"))?;
        let is_young = SystemTime::now().duration_since(age).unwrap_or_default() <= MAX_SPOOL_AGE;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let complete_len = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |newline| newline + 1);
        let lines = bytes[..complete_len].split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let lines: Result<Vec<Value>, _> = lines.map(serde_json::from_slice).collect();
        let folder = folder.clone();
        let mut spool =
            QuerySpool { file, folder, name: file_name, path: path.clone(), header: Value::Null, pages: Vec::new() };
        match lines {
            Ok(mut lines) if is_young && lines.first().is_some_and(|header| header["question"] == *query) => {
                spool.header = lines.remove(0);
                spool.pages = lines;
                spool.file.set_len(complete_len as u64).map_err(io("write"))?;
                spool.file.seek(SeekFrom::End(0)).map_err(io("write"))?;
            }
            _ => spool.restart(query, notes)?,
        }
        Ok(Some(spool))
    }

    /// The pages that an earlier process has stored.
    pub fn pages(&self) -> &[Value] {
        &self.pages
    }

    /// The notes stored when the spool began.
    pub fn notes(&self) -> &Value {
        &self.header["notes"]
    }

    /// Discards the stored pages and begins a spool of `query`.
    pub fn restart(&mut self, query: &Value, notes: &Value) -> Result<(), StoreError> {
        self.pages.clear();
        // The name `question` is older than the term "query"; it must not change.
        self.header = serde_json::json!({ "schemaVersion": 1, "question": query, "notes": notes });
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(StoreError::io("write", &self.path))?;
        let header = self.header.clone();
        self.write_line(&header)
    }

    /// Stores a page durably; it is not requested again.
    pub fn push_page(&mut self, page: &Value) -> Result<(), StoreError> {
        self.write_line(page)
    }

    /// Removes the spool, because the query is complete or is abandoned.
    pub fn remove(self) -> Result<(), StoreError> {
        match self.folder.remove_file(&self.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &self.path)(error)),
            _ => Ok(()),
        }
    }

    fn write_line(&mut self, value: &Value) -> Result<(), StoreError> {
        let written = self.file.write_all(format!("{value}\n").as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(StoreError::io("write", &self.path))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::store::api_state::{ApiStateDirectory, RateLimit};

    const FIVE: RateLimit = RateLimit { requests: 5, window: Duration::from_mins(1) };

    // Regression: every user could enter a store that a call of the API had made.
    #[test]
    fn search_terms_are_read_by_no_other_user_and_are_stored_for_a_day_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let api_state = ApiStateDirectory::open(&root).unwrap();
        let spool = api_state.open_spool("searches", &json!({}), &json!({})).unwrap();
        assert!(spool.is_some());
        for (path, expected) in [("", 0o750), ("api", 0o700), ("api/searches.jsonl", 0o600), ("api/lock", 0o600)] {
            let mode = std::fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, expected, "{path:?}");
        }
        assert_eq!(MAX_SPOOL_AGE.as_secs(), 24 * 60 * 60);
    }

    #[test]
    fn the_state_that_root_writes_belongs_to_the_owner_of_the_store_at_once() {
        if !rustix::process::geteuid().is_root() {
            return; // only root can change owners
        }
        let dir = tempfile::tempdir().unwrap();
        let owner = |name: &str| std::fs::metadata(dir.path().join("api").join(name)).unwrap().uid();
        let api_state = ApiStateDirectory::open(dir.path()).unwrap();
        chown(dir.path(), Some(4711), Some(4711)).unwrap();
        api_state.change_budget("x", |budget| budget.take_request(FIVE, 1_000)).unwrap().unwrap();
        assert_eq!(["", "lock", "budget.json"].map(owner), [4711; 3]);
        // While the command is still running: it may be killed.
        let _spool = api_state.open_spool("searches", &json!({}), &json!({})).unwrap();
        assert_eq!(owner("searches.jsonl"), 4711);
    }

    // Regression: interrupted reports of searches stayed in the store for ever, and a report whose file another process
    // had removed failed at its end.
    #[test]
    fn spool_resumes_after_its_last_complete_page() {
        let dir = tempfile::tempdir().unwrap();
        let api_state = ApiStateDirectory::open(dir.path()).unwrap();
        let query = json!({"from": null});
        let open = |query: &Value| api_state.open_spool("searches", query, &json!({"to": 7})).unwrap();
        let mut spool = open(&query).unwrap();
        assert!(open(&query).is_none(), "one process at a time");
        spool.push_page(&json!({"page": 1})).unwrap();
        spool.push_page(&json!({"page": 2})).unwrap();
        spool.file.write_all(b"{\"page\"").unwrap();
        drop(spool);
        let mut spool = open(&query).unwrap();
        assert_eq!(spool.notes(), &json!({"to": 7}));
        assert_eq!(spool.pages(), [json!({"page": 1}), json!({"page": 2})]);
        spool.push_page(&json!({"page": 3})).unwrap();
        drop(spool);
        assert_eq!(open(&query).unwrap().pages().len(), 3);
        assert!(open(&json!({"from": "2026-01-01"})).unwrap().pages().is_empty());
        let spool = open(&query).unwrap();
        let file = dir.path().join("api/searches.jsonl");
        std::fs::remove_file(&file).unwrap();
        spool.remove().expect("a file that another process has removed is no error");
        drop(open(&query).unwrap());
        let long_ago = SystemTime::now() - MAX_SPOOL_AGE - Duration::from_mins(1);
        File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
        ApiStateDirectory::open(dir.path()).unwrap();
        assert!(!file.exists(), "a spool that no process continues is removed");
    }

    #[test]
    fn stale_or_damaged_spool_restarts_empty_and_the_budget_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let api_state = ApiStateDirectory::open(dir.path()).unwrap();
        let query = json!({"from": null});
        let open = || api_state.open_spool("searches", &query, &json!({"to": 7})).unwrap().unwrap();
        let file = dir.path().join("api/searches.jsonl");
        let set_age = |path: &Path, age: Duration| {
            File::options().append(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        };
        let minute = Duration::from_mins(1);
        let young = MAX_SPOOL_AGE.checked_sub(minute).unwrap();
        for (age, pages) in [(young, 1), (MAX_SPOOL_AGE + minute, 0)] {
            let mut spool = open();
            spool.restart(&query, &json!({"to": 8})).unwrap();
            assert!(spool.pages().is_empty());
            spool.push_page(&json!({"page": 1})).unwrap();
            drop(spool);
            set_age(&file, age);
            let spool = open();
            assert_eq!(spool.pages().len(), pages, "{age:?}");
            let expected = if pages > 0 { json!({"to": 8}) } else { json!({"to": 7}) };
            assert_eq!(spool.notes(), &expected, "{age:?}");
        }
        open().push_page(&json!({"page": 1})).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}an incomplete line\n{{}}\n")).unwrap();
        assert!(open().pages().is_empty());
        open().remove().unwrap();
        assert!(!file.exists());
        api_state.change_budget("x", |budget| budget.take_request(FIVE, 1_000)).unwrap().unwrap();
        drop(open());
        set_age(&file, young);
        set_age(&dir.path().join("api/budget.json"), MAX_SPOOL_AGE * 2);
        ApiStateDirectory::open(dir.path()).unwrap();
        assert!(file.exists() && dir.path().join("api/budget.json").exists());
    }
}
