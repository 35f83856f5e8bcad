//! The database file of a host.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::damaged_files::{erase_all, move_aside, remove_older, with_suffix};
use super::database_size::{DatabaseSize, empty_log, return_free_pages};
use super::delivery_queue::{count_delivered, delete_queue_before};
use super::random_bytes::random_bytes;
use super::search_batches::installation_id;
use super::{DAY_MS, PROJECT};
use crate::database::{ConnectionSettings, Database, DatabaseError};
use crate::delivery::MAX_TERM_CHARS;
use crate::query_error::QueryError;
use crate::searches::term::fold_term;
use crate::searches::{Searches, delete_older_than, query_searches};
use crate::views::{Pages, Views, delete_days_before, delete_views_before, oldest_day, query_pages, query_views};
use docwharf_base::locks::{Mutex, RwLock};

/// The SQL scripts of the formats, in order; see [`Database::open`].
const MIGRATIONS: &[&str] = &[
    concat!(include_str!("../searches/tables.sql"), include_str!("../views/tables.sql"), include_str!("tables.sql"),),
    include_str!("../delivery/tables.sql"),
    include_str!("delivery.sql"),
];
const CONNECTION_SETTINGS: ConnectionSettings = ConnectionSettings { overwrite_deleted: true, return_free_pages: true };
/// The largest file that is rewritten in memory. A larger one is rewritten in a temporary file of `SQLite`.
const MAX_REWRITE_IN_MEMORY_BYTES: u64 = 64 << 20;

/// An error of an [`AnalyticsStore`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system returned no random bytes.
    #[error("cannot create the secrets of the database {}", path.display())]
    Random {
        /// The database file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A damaged database file could not be moved aside or deleted.
    #[error("cannot move or delete the damaged files of the database {}", path.display())]
    DamagedFiles {
        /// The database file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Rows were deleted, but their bytes are still in the write-ahead log, from which a query reads.
    #[error("the rows are deleted from {}, but a query that is still running keeps their bytes in the write-ahead log; run the command again to remove them", path.display())]
    LogInUse {
        /// The database file.
        path: PathBuf,
    },
}

impl StoreError {
    /// Returns whether the content of the database file is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, StoreError::Database(error) if error.is_damage())
    }

    /// Returns whether the disk, or the quota of the user, is full.
    pub fn is_full_disk(&self) -> bool {
        match self {
            StoreError::Database(error) => error.is_full_disk(),
            StoreError::Random { source, .. } | StoreError::DamagedFiles { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            StoreError::LogInUse { .. } => false,
        }
    }
}

/// The numbers of rows that were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeletedRows {
    /// The number of searches.
    pub searches: u64,
    /// The number of these searches that were delivered to an origin before, where they stay.
    pub delivered_searches: u64,
    /// The number of rows with views and other counts of a day, and of their paths, hosts and names.
    pub count_rows: u64,
}

/// The database of what readers of this host's site did. Its methods wait for the disk, so threads that serve
/// connections must not call them.
#[derive(Debug)]
pub struct AnalyticsStore {
    path: PathBuf,
    /// `None` after the database was closed, or a damaged file was moved aside and no new one could be created.
    database: RwLock<Option<OpenDatabase>>,
    /// The number of files that were moved aside; see [`AnalyticsStore::replace_damaged`].
    generation: AtomicU64,
    /// The new path of the file that was last moved aside.
    damaged_file: Mutex<Option<PathBuf>>,
    /// The time, in milliseconds since 1970, before which searches are no part of totals, because they may expire while
    /// a paginated query is under way.
    oldest_counted: AtomicI64,
}

struct OpenDatabase {
    db: Database,
    /// Signs the cursors of paginated queries.
    cursor_secret: [u8; 32],
}

impl fmt::Debug for OpenDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDatabase").field("db", &self.db).finish_non_exhaustive()
    }
}

impl OpenDatabase {
    fn open(path: &Path) -> Result<OpenDatabase, StoreError> {
        let db = Database::open_with(path, MIGRATIONS, CONNECTION_SETTINGS)?;
        let secret = stored_random_bytes(&db, path, "cursor_secret").and_then(|secret| {
            // The id of this installation. It identifies no one.
            let _: [u8; 8] = stored_random_bytes(&db, path, "installation")?;
            Ok(secret)
        });
        match secret {
            Ok(cursor_secret) => Ok(OpenDatabase { db, cursor_secret }),
            Err(error) => {
                // The caller may move the file, which must not be open then.
                db.close();
                Err(error)
            }
        }
    }

    /// Opens the database. If the file is damaged, moves it aside, returns its new path, and creates another database.
    fn open_or_replace(path: &Path, now_seconds: i64) -> Result<(OpenDatabase, Option<PathBuf>), StoreError> {
        match OpenDatabase::open(path) {
            Err(error) if error.is_damage() => {
                let moved_path = move_damaged_aside(path, now_seconds)?;
                Ok((OpenDatabase::open(path)?, Some(moved_path)))
            }
            result => Ok((result?, None)),
        }
    }
}

impl AnalyticsStore {
    /// Opens the database file `path`, and creates it if necessary. Only the schema is read, because checking a large
    /// file takes long. Other damage is reported by the query or change that finds it ([`StoreError::is_damage`]).
    pub fn open(path: &Path) -> Result<AnalyticsStore, StoreError> {
        OpenDatabase::open(path).map(|database| AnalyticsStore::new(path, database))
    }

    /// Opens the database file `path` if there is one, for a command beside the process that records.
    pub fn open_existing(path: &Path) -> Result<Option<AnalyticsStore>, StoreError> {
        match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // For any other problem, opening has the better error.
            _ => AnalyticsStore::open(path).map(Some),
        }
    }

    /// Opens the database file `path`, and creates it if necessary. A file whose damage is noticed is moved aside, and
    /// its new path is returned. A file of a later format is not damaged: it is an error.
    pub fn open_or_replace(path: &Path) -> Result<(AnalyticsStore, Option<PathBuf>), StoreError> {
        let (database, moved_path) = OpenDatabase::open_or_replace(path, now_seconds())?;
        let store = AnalyticsStore::new(path, database);
        store.damaged_file.lock().clone_from(&moved_path);
        Ok((store, moved_path))
    }

    fn new(path: &Path, database: OpenDatabase) -> AnalyticsStore {
        let store = AnalyticsStore {
            path: path.to_owned(),
            database: RwLock::default(),
            generation: AtomicU64::new(0),
            damaged_file: Mutex::default(),
            oldest_counted: AtomicI64::new(i64::MIN),
        };
        *store.database.write() = Some(database);
        store
    }

    /// Returns the number of files that were moved aside, for [`AnalyticsStore::replace_damaged`].
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Moves the database file aside, because a query or change has found damage, and creates a new one. Waits for the
    /// queries under way. `generation` is that of before the query or change: if the file was replaced since then, the
    /// new one stays. Returns the new path of the damaged file.
    pub fn replace_damaged(&self, generation: u64) -> Result<PathBuf, StoreError> {
        let mut database = self.database.write();
        if generation != self.generation()
            && let Some(moved_path) = self.damaged_file()
        {
            return Ok(moved_path);
        }
        // The files must not be open when they are moved: SQLite deletes the log by its name.
        if let Some(open) = database.take() {
            open.db.close();
        }
        let moved_path = move_damaged_aside(&self.path, now_seconds())?;
        self.note_damaged_file(&moved_path);
        *database = Some(OpenDatabase::open(&self.path)?);
        Ok(moved_path)
    }

    /// Closes the database and waits until this is done. The next write opens it again.
    pub fn close(&self) {
        if let Some(open) = self.database.write().take() {
            open.db.close();
        }
    }

    /// Opens the database again if it is not open. Returns the new path of a damaged file that was moved aside.
    pub(super) fn reopen_if_closed(&self) -> Result<Option<PathBuf>, StoreError> {
        if self.database.read().is_some() {
            return Ok(None);
        }
        let mut database = self.database.write();
        let (open, moved_path) = OpenDatabase::open_or_replace(&self.path, now_seconds())?;
        if let Some(moved_path) = &moved_path {
            self.note_damaged_file(moved_path);
        }
        *database = Some(open);
        Ok(moved_path)
    }

    fn note_damaged_file(&self, moved_path: &Path) {
        *self.damaged_file.lock() = Some(moved_path.to_owned());
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the new path of the file that was last moved aside because of damage, since this store was opened.
    pub fn damaged_file(&self) -> Option<PathBuf> {
        self.damaged_file.lock().clone()
    }

    /// Returns the path of the database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the random id of this installation: 16 lower-case hexadecimal digits.
    pub fn installation(&self) -> Result<String, DatabaseError> {
        self.query(installation_id)
    }

    /// Returns the sizes of the database file and its write-ahead log, in bytes.
    pub fn bytes(&self) -> u64 {
        let file_bytes = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        file_bytes(self.path.clone()) + file_bytes(with_suffix(&self.path, "-wal"))
    }

    /// Runs a query for search terms.
    pub fn searches(&self, query_string: Option<&str>) -> Result<Searches, QueryError> {
        let oldest = self.oldest_counted.load(Ordering::Relaxed);
        self.with_database(|open| query_searches(&open.db, PROJECT, query_string, &open.cursor_secret, oldest))
    }

    /// Runs a query for the views of pages.
    pub fn views(&self, query_string: Option<&str>) -> Result<Views, QueryError> {
        self.with_database(|open| query_views(&open.db, PROJECT, query_string))
    }

    /// Runs a query for counts by day, referrer, entry page, path that does not exist, or agent.
    pub fn pages(&self, query_string: Option<&str>) -> Result<Pages, QueryError> {
        self.with_database(|open| query_pages(&open.db, PROJECT, query_string))
    }

    /// Forgets everything before a day (days since 1970). All that was deleted leaves the files, also if it was deleted
    /// earlier. Damaged files that were moved aside are deleted, because they may have the same content.
    pub fn forget_before(&self, day: i64) -> Result<DeletedRows, StoreError> {
        let time = day.saturating_mul(DAY_MS);
        let delivered_searches = self.query(move |connection| count_delivered(connection, "time < ?1", time))?;
        let deleted = self.delete_before(day)?;
        self.rewrite_file()?;
        Ok(DeletedRows { delivered_searches, ..deleted })
    }

    /// Forgets all searches for a text, however their letters and white space were typed. All that was deleted leaves
    /// the files, as with [`AnalyticsStore::forget_before`].
    pub fn forget_query(&self, text: &str) -> Result<DeletedRows, StoreError> {
        let term = stored_term(text);
        let (searches, delivered_searches) = self.write(move |transaction| {
            let delivered = count_delivered(transaction, "query = ?1", &term)?;
            let sql = "DELETE FROM later_clicks WHERE number IN (
                           SELECT number FROM later_clicks JOIN searches USING (time, batch, place)
                           WHERE project = ?1 AND query = ?2)";
            transaction.execute(sql, params![PROJECT, term])?;
            let sql = "DELETE FROM searches WHERE project = ?1 AND query = ?2";
            Ok((transaction.execute(sql, params![PROJECT, term])?, delivered))
        })?;
        self.rewrite_file()?;
        Ok(DeletedRows { searches: searches as u64, delivered_searches, ..DeletedRows::default() })
    }

    /// Rewrites the database file without the deleted content, and deletes damaged files. Overwriting deleted rows is
    /// not enough: when `SQLite` distributes rows over pages, copies of them stay in unused parts of pages
    /// (`ConnectionSettings`). The rewritten content is written to the log first, so the log is emptied as well.
    fn rewrite_file(&self) -> Result<(), StoreError> {
        erase_all(&self.path).map_err(|source| StoreError::DamagedFiles { path: self.path.clone(), source })?;
        let bytes = self.bytes();
        let rewrite = |connection: &Connection| {
            if bytes <= MAX_REWRITE_IN_MEMORY_BYTES {
                connection.pragma_update(None, "temp_store", "memory")?;
            }
            connection.execute_batch("VACUUM")?;
            empty_log(connection)
        };
        let is_empty = self.with_database(|open| open.db.run_outside_transactions(rewrite))?;
        if is_empty { Ok(()) } else { Err(StoreError::LogInUse { path: self.path.clone() }) }
    }

    /// Deletes everything before a day (days since 1970), and damaged files that were moved aside before it.
    pub(super) fn expire(&self, oldest_day: i64) -> Result<DeletedRows, StoreError> {
        remove_older(&self.path, oldest_day.saturating_mul(DAY_MS / 1000))
            .map_err(|source| StoreError::DamagedFiles { path: self.path.clone(), source })?;
        Ok(self.delete_before(oldest_day)?)
    }

    /// Deletes the oldest days until the database is smaller than 90 % of `max_bytes`, if it is larger than
    /// `max_bytes`. Returns the number of deleted days.
    pub(super) fn limit_bytes(&self, max_bytes: u64) -> Result<u64, DatabaseError> {
        let size = self.database_size()?;
        if size.pages.saturating_mul(size.page_bytes) <= max_bytes {
            return Ok(0);
        }
        let target = max_bytes / 10 * 9;
        let (mut days, mut deleted_day) = (0, None);
        while self.database_size()?.used_bytes() > target
            && let Some(day) = self.oldest_day()?
            // Each turn deletes at least one day.
            && deleted_day.is_none_or(|deleted| day > deleted)
        {
            self.delete_before(day.saturating_add(1))?;
            (days, deleted_day) = (days + 1, Some(day));
        }
        self.with_database(|open| {
            open.db.run_outside_transactions(|connection| {
                return_free_pages(connection)?;
                // The file becomes smaller when the log is written to it. If a query reads the log, a later
                // change does that.
                empty_log(connection).map(drop)
            })
        })?;
        Ok(days)
    }

    /// Deletes the searches and views before `day`.
    fn delete_before(&self, day: i64) -> Result<DeletedRows, DatabaseError> {
        let today = now_seconds().div_euclid(DAY_MS / 1000);
        let mut deleted = self.delete_past_days(day.min(today))?;
        if day > today {
            let rows = self.write(move |transaction| delete_with_today(transaction, day))?;
            deleted.searches += rows.searches;
            deleted.count_rows += rows.count_rows;
        }
        Ok(deleted)
    }

    /// Deletes days that are over, in several transactions.
    fn delete_past_days(&self, day: i64) -> Result<DeletedRows, DatabaseError> {
        self.with_database(|open| {
            let searches = delete_older_than(&open.db, PROJECT, day.saturating_mul(DAY_MS))?;
            let count_rows = delete_views_before(&open.db, Some(PROJECT), day)?;
            open.db.write(move |transaction| delete_queue_before(transaction, day))?;
            Ok(DeletedRows { searches, count_rows, ..DeletedRows::default() })
        })
    }

    /// Returns the oldest day (days since 1970) of which something is stored.
    fn oldest_day(&self) -> Result<Option<i64>, DatabaseError> {
        self.with_database(|open| {
            open.db.read(|connection| {
                let sql = "SELECT min(time) FROM searches WHERE project = ?1";
                let oldest_search: Option<i64> = connection.query_row(sql, [PROJECT], |row| row.get(0))?;
                let oldest_search_day = oldest_search.map(|time| time.div_euclid(DAY_MS));
                Ok(oldest_search_day.into_iter().chain(oldest_day(connection, PROJECT)?).min())
            })
        })
    }

    fn database_size(&self) -> Result<DatabaseSize, DatabaseError> {
        self.with_database(|open| open.db.read(DatabaseSize::read))
    }

    /// Sets the time, in milliseconds since 1970, before which searches are no part of totals.
    pub(super) fn set_oldest_counted(&self, time: i64) {
        self.oldest_counted.store(time, Ordering::Relaxed);
    }

    /// Runs queries on one state of the database.
    pub(super) fn query<T>(
        &self,
        operation: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        self.with_database(|open| open.db.read(operation))
    }

    /// Runs a change and waits until it is on disk.
    pub(super) fn write<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.with_database(|open| open.db.write(operation))
    }

    fn with_database<T, E: From<DatabaseError>>(
        &self,
        operation: impl FnOnce(&OpenDatabase) -> Result<T, E>,
    ) -> Result<T, E> {
        match &*self.database.read() {
            Some(open) => operation(open),
            None => Err(DatabaseError::NotOpen { path: self.path.clone() }.into()),
        }
    }
}

/// Returns the term under which searches for a text are stored: folded, and cut at [`MAX_TERM_CHARS`].
pub(super) fn stored_term(text: &str) -> String {
    let mut term = fold_term(text);
    if let Some((end, _)) = term.char_indices().nth(MAX_TERM_CHARS) {
        term.truncate(end);
        term.truncate(term.trim_end().len());
    }
    term
}

/// Returns the random bytes of this name, which are created once and then read from the database.
fn stored_random_bytes<const N: usize>(db: &Database, path: &Path, name: &'static str) -> Result<[u8; N], StoreError> {
    let find = |connection: &Connection| {
        connection.query_row("SELECT value FROM meta WHERE name = ?", [name], |row| row.get(0)).optional()
    };
    // A database that has them can be opened on a full disk.
    if let Some(stored) = db.read(find)? {
        return Ok(stored);
    }
    let random: [u8; N] = random_bytes().map_err(|source| StoreError::Random { path: path.to_owned(), source })?;
    Ok(db.write(move |transaction| {
        transaction.execute("INSERT OR IGNORE INTO meta (name, value) VALUES (?, ?)", (name, random.as_slice()))?;
        transaction.query_row("SELECT value FROM meta WHERE name = ?", [name], |row| row.get(0))
    })?)
}

/// Deletes the searches and views before `day`, of which one is not over, in a transaction of the caller. The counts of
/// that day begin again at 0, and a receiver, which keeps the largest number, would ignore them. The installation
/// therefore gets a new random id.
fn delete_with_today(connection: &Connection, day: i64) -> rusqlite::Result<DeletedRows> {
    let time = day.saturating_mul(DAY_MS);
    let sql = "DELETE FROM searches WHERE project = ?1 AND time < ?2";
    let searches = connection.execute(sql, params![PROJECT, time])? as u64;
    connection.execute("DELETE FROM batches WHERE project = ?1 AND received < ?2", params![PROJECT, time])?;
    let mut count_rows = 0;
    loop {
        match delete_days_before(connection, Some(PROJECT), day)? {
            0 => break,
            deleted => count_rows += deleted,
        }
    }
    delete_queue_before(connection, day)?;
    connection.execute("UPDATE meta SET value = randomblob(8) WHERE name = 'installation'", [])?;
    Ok(DeletedRows { searches, count_rows, ..DeletedRows::default() })
}

fn move_damaged_aside(path: &Path, now_seconds: i64) -> Result<PathBuf, StoreError> {
    move_aside(path, now_seconds).map_err(|source| StoreError::DamagedFiles { path: path.to_owned(), source })
}

fn now_seconds() -> i64 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
impl AnalyticsStore {
    /// Limits the size of the database to its present one or to this number of pages, as a full disk does.
    pub(super) fn set_max_pages(&self, pages: i64) {
        self.write(move |transaction| transaction.pragma_update(None, "max_page_count", pages)).unwrap();
    }

    /// Runs queries, for tests.
    pub(super) fn read<T>(&self, operation: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> T {
        self.with_database(|open| open.db.read(operation)).unwrap()
    }
}
