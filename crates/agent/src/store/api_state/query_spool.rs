//! The spool of a query: its pages as they were received, so that an interrupted command continues.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use docwharf_base::directory::{Directory, FileAccess, FileId, FileRequirements};

use crate::store::StoreError;

/// Age after which an unfinished spool is removed: search terms of readers are not kept without need.
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
    /// Opens the spool of this name. It is continued if it is of `question` and not older than [`MAX_SPOOL_AGE`];
    /// otherwise it begins anew with these notes. None if another process holds it.
    pub(super) fn open(
        folder: &Directory,
        name: &str,
        question: &Value,
        notes: &Value,
    ) -> Result<Option<QuerySpool>, StoreError> {
        let name_of_file = format!("{name}.jsonl");
        let path = folder.path().join(&name_of_file);
        let io = |doing| StoreError::io(doing, &path);
        let opened =
            folder.open_file(&name_of_file, FileAccess::ReadWriteOrCreate(0o600), FileRequirements::SINGLE_NAME);
        let mut file = opened.map_err(io("open"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other.map_err(|errno| io("lock")(errno.into()))?,
        }
        let opened = file.metadata().map_err(io("read"))?;
        let named = folder.metadata_of(&name_of_file);
        if !named.is_ok_and(|named| FileId::from_metadata(&named) == FileId::from_metadata(&opened)) {
            // The process that held the lock has just finished and removed the file: this descriptor has no name any
            // more.
            return QuerySpool::open(folder, name, question, notes);
        }
        let age = file.metadata().and_then(|metadata| metadata.modified()).map_err(io("read"))?;
        let is_young = SystemTime::now().duration_since(age).unwrap_or_default() <= MAX_SPOOL_AGE;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let lines = bytes[..whole].split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let lines: Result<Vec<Value>, _> = lines.map(serde_json::from_slice).collect();
        let folder = folder.clone();
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
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::store::api_state::{ApiStateDirectory, RateLimit};

    const FIVE: RateLimit = RateLimit { requests: 5, window: Duration::from_mins(1) };

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
