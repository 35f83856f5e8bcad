//! The persistent state of an origin: one `SQLite` database, written by one thread.
//!
//! Every acknowledged change is on disk: the write-ahead log is synced with each commit. Changes that are requested at
//! the same time share a commit. Each has its own savepoint, so that one that fails does not undo the others.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, Transaction};
use tokio::sync::oneshot;

use docwharf_base::locks::{Mutex, MutexGuard};

/// The number of changes that may wait in the queue. When it is full, callers block.
const WRITE_QUEUE_CAPACITY: usize = 1024;
/// The largest number of changes that share a commit.
const MAX_WRITES_PER_COMMIT: usize = 256;
/// The number of reading connections that are kept open.
const MAX_IDLE_READERS: usize = 4;
/// The time for which another process (`origin key`, an import) may hold the lock of the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between two attempts to set the journal mode, for which `SQLite` itself does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// `SQLite` reported an error.
    #[error("the database {} failed; is its disk full, or is it owned by another user?", path.display())]
    Sqlite {
        /// The database file.
        path: PathBuf,
        /// The error of `SQLite`.
        #[source]
        source: rusqlite::Error,
    },
    /// A later version of docwharf has created or migrated the database.
    #[error("the database {} has format {found} of a later docwharf version, and this version supports formats up to {supported}; use the later version", path.display())]
    NewerFormat {
        /// The database file.
        path: PathBuf,
        /// The format of the database.
        found: usize,
        /// The newest format that this version supports.
        supported: usize,
    },
    /// A bundle file that the database lists cannot be opened at the moment.
    #[error("cannot open {}", path.display())]
    Bundle {
        /// The bundle file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The database is being closed.
    #[error("the database is closed: the origin is stopping")]
    Closed,
}

/// Sends the result of a change to its caller, once it is known whether the commit has failed.
type CommitCallback = Box<dyn FnOnce(Option<&rusqlite::Error>) + Send>;
/// A change to run in a transaction. Its argument is the error if there is no transaction.
type QueuedWrite = Box<dyn FnOnce(Result<&Transaction<'_>, &rusqlite::Error>) -> CommitCallback + Send>;

/// The database of an origin: one writing thread, and a pool of connections for reading.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    writer: SyncSender<QueuedWrite>,
    readers: Mutex<Vec<Connection>>,
}

/// The SQL scripts of the formats, in order; a database has run the first `user_version` of them. A released script
/// never changes; a new format is a new script.
const MIGRATIONS: &[&str] = &[include_str!("tables.sql"), include_str!("usage.sql")];

impl Database {
    /// Opens the database at `path`. Creates it, or migrates it to the newest format, if necessary.
    pub fn open(path: &Path) -> Result<Database, DatabaseError> {
        let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
        // The database is readable by its owner only. SQLite gives the files beside it the same mode.
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        file.map_err(|error| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
        let mut connection = connect(path, OpenFlags::default()).map_err(failed)?;
        migrate(&mut connection, path)?;
        let (writer, queue) = sync_channel(WRITE_QUEUE_CAPACITY);
        std::thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || run_write_thread(connection, &queue))
            .map_err(|error| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
        Ok(Database { path: path.to_owned(), writer, readers: Mutex::default() })
    }

    /// Returns the folder that holds the database file.
    pub fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns a function that adds the path of the database to an error.
    fn failed(&self) -> impl Fn(rusqlite::Error) -> DatabaseError {
        |source| DatabaseError::Sqlite { path: self.path.clone(), source }
    }

    /// Queues `operation` for the writing thread. The receiver gets its result once that is on disk.
    fn enqueue_write<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<rusqlite::Result<T>>, DatabaseError> {
        let (sender, receiver) = oneshot::channel();
        let operation: QueuedWrite = Box::new(move |transaction| {
            let result =
                transaction.map_err(copy_error).and_then(|transaction| run_in_savepoint(transaction, operation));
            Box::new(move |failure| {
                let result = match failure {
                    Some(error) if result.is_ok() => Err(copy_error(error)),
                    _ => result,
                };
                // Sending fails if the caller no longer waits for the result.
                let _ = sender.send(result);
            })
        });
        self.writer.send(operation).map_err(|_| DatabaseError::Closed)?;
        Ok(receiver)
    }

    /// Runs a change and waits until it is on disk. Each change runs in its own savepoint. This blocks, so threads that
    /// serve connections must not call it.
    pub fn write<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let receiver = self.enqueue_write(operation)?;
        receiver.blocking_recv().map_err(|_| DatabaseError::Closed)?.map_err(self.failed())
    }

    /// Runs queries on a consistent state of the database. This waits for the disk, so threads that serve connections
    /// must not call it.
    pub fn read<T>(&self, operation: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, DatabaseError> {
        let idle = self.readers().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.path, OpenFlags::default()).map_err(self.failed())?,
        };
        // In one transaction, several queries of one caller see the same state.
        let result = connection.unchecked_transaction().and_then(|transaction| operation(&transaction));
        let mut readers = self.readers();
        if readers.len() < MAX_IDLE_READERS {
            readers.push(connection);
        }
        result.map_err(self.failed())
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.readers.lock()
    }
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    enable_write_ahead_log(&connection)?;
    // With a write-ahead log, `NORMAL` may lose the newest commits at a power failure; `FULL` does not.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Switches the database to a write-ahead log. If two connections do this at the same time, each might wait for the
/// other, so `SQLite` reports `SQLITE_BUSY` at once, whatever the timeout is (`sqlite3_busy_handler`). Hence the loop.
fn enable_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), DatabaseError> {
    let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
    // Two processes that open a new database at the same time take turns.
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let found: usize =
        transaction.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).map_err(failed)? as usize;
    if found > MIGRATIONS.len() {
        return Err(DatabaseError::NewerFormat { path: path.to_owned(), found, supported: MIGRATIONS.len() });
    }
    for script in &MIGRATIONS[found..] {
        transaction.execute_batch(script).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", MIGRATIONS.len() as u32).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The writing thread. It runs until the queue is closed.
fn run_write_thread(mut connection: Connection, queue: &Receiver<QueuedWrite>) {
    while let Ok(first) = queue.recv() {
        let mut callbacks = Vec::new();
        let writes = std::iter::once(first).chain(queue.try_iter()).take(MAX_WRITES_PER_COMMIT);
        let committed = run_in_one_commit(&mut connection, writes, &mut callbacks);
        if let Err(error) = &committed {
            tracing::error!("cannot write to the database: {error}");
        }
        for callback in callbacks {
            callback(committed.as_ref().err());
        }
    }
}

/// Runs changes in one transaction and commits it. Adds the callback of each change to `callbacks`.
fn run_in_one_commit(
    connection: &mut Connection,
    writes: impl Iterator<Item = QueuedWrite>,
    callbacks: &mut Vec<CommitCallback>,
) -> rusqlite::Result<()> {
    match connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate) {
        Ok(transaction) => {
            for write in writes {
                // A full disk rolls back the whole transaction. Without one, each of the following changes would commit
                // on its own.
                let rolled_back = transaction.is_autocommit().then(rolled_back_error);
                callbacks.push(write(rolled_back.as_ref().map_or(Ok(&transaction), Err)));
            }
            if transaction.is_autocommit() { Err(rolled_back_error()) } else { transaction.commit() }
        }
        Err(error) => {
            callbacks.extend(writes.map(|write| write(Err(&error))));
            Err(error)
        }
    }
}

fn rolled_back_error() -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(
        "another write failed and rolled back the commit that this write shared; try again".into(),
    )
}

/// Runs `operation` in a savepoint: all of its changes are made, or none.
fn run_in_savepoint<T>(
    transaction: &Transaction<'_>,
    operation: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    transaction.execute_batch("SAVEPOINT apart")?;
    match operation(transaction) {
        Ok(result) => transaction.execute_batch("RELEASE apart").map(|()| result),
        // The rollback of the transaction has removed the savepoint as well.
        Err(error) if transaction.is_autocommit() => Err(error),
        Err(error) => {
            transaction.execute_batch("ROLLBACK TO apart; RELEASE apart")?;
            Err(error)
        }
    }
}

/// Copies an error, which is not `Clone`, for each change that shared a commit.
fn copy_error(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => rusqlite::Error::SqliteFailure(*code, text.clone()),
        other => rusqlite::Error::ToSqlConversionFailure(other.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use tempfile::TempDir;

    use super::*;

    fn database() -> (TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("origin.db")).unwrap();
        (folder, db)
    }

    fn insert_secret(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
        transaction.execute("INSERT INTO secrets (name, value) VALUES (?1, x'00')", [name]).map(drop)
    }

    fn secret_names(db: &Database) -> Vec<String> {
        db.read(|connection| {
            let mut select = connection.prepare("SELECT name FROM secrets ORDER BY name")?;
            select.query_map([], |row| row.get(0))?.collect()
        })
        .unwrap()
    }

    /// Blocks the writing thread until the sender is used. Changes that are queued meanwhile share the next commit.
    fn block_writer(db: &Database) -> mpsc::Sender<()> {
        let ((release, released), (started, start)) = (mpsc::channel(), mpsc::channel());
        let operation = move |_: &Transaction<'_>| {
            let _ = started.send(());
            let _ = released.recv();
            Ok(())
        };
        drop(db.enqueue_write(operation).unwrap());
        start.recv().unwrap();
        release
    }

    #[test]
    fn a_failed_write_does_not_roll_back_other_writes_in_the_same_commit() {
        let (_folder, db) = database();
        let release = block_writer(&db);
        let before = db.enqueue_write(|transaction| insert_secret(transaction, "before")).unwrap();
        let failing = db
            .enqueue_write(|transaction| {
                insert_secret(transaction, "half").and_then(|()| insert_secret(transaction, "before"))
            })
            .unwrap();
        let after = db.enqueue_write(|transaction| insert_secret(transaction, "after")).unwrap();
        release.send(()).unwrap();
        assert!(before.blocking_recv().unwrap().is_ok());
        assert!(failing.blocking_recv().unwrap().is_err());
        assert!(after.blocking_recv().unwrap().is_ok());
        assert_eq!(secret_names(&db), ["after", "before"]);
    }

    // Regression: when SQLite rolled back a whole transaction, the operations behind the failure were committed
    // although their callers had received an error.
    #[test]
    fn all_writes_of_a_transaction_that_sqlite_rolls_back_return_an_error() {
        let (_folder, db) = database();
        let release = block_writer(&db);
        let before = db.enqueue_write(|transaction| insert_secret(transaction, "before")).unwrap();
        // The failure ends the transaction, as it does on a full disk.
        let rollback_sql = "INSERT OR ROLLBACK INTO secrets VALUES ('x', NULL)";
        let failing = db.enqueue_write(|transaction| transaction.execute_batch(rollback_sql)).unwrap();
        let after = db.enqueue_write(|transaction| insert_secret(transaction, "after")).unwrap();
        release.send(()).unwrap();
        assert!(before.blocking_recv().unwrap().is_err());
        assert!(failing.blocking_recv().unwrap().unwrap_err().to_string().contains("NOT NULL"));
        assert!(after.blocking_recv().unwrap().is_err());
        assert!(secret_names(&db).is_empty());
        db.write(|transaction| insert_secret(transaction, "later")).unwrap();
        assert_eq!(secret_names(&db), ["later"]);
    }

    // Regression: an origin and `origin key` that created its database at the same moment failed with "database is
    // locked".
    #[test]
    fn several_connections_can_create_and_write_the_same_new_database_concurrently() {
        let folder = tempfile::tempdir().unwrap();
        // Many rounds, because the conflict occurs only while a new database is being created.
        for round in 0..20 {
            let (path, barrier) = (folder.path().join(format!("{round}.db")), Barrier::new(8));
            std::thread::scope(|scope| {
                for n in 0..8 {
                    let (path, barrier) = (&path, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        let db = Database::open(path).unwrap();
                        db.write(move |transaction| insert_secret(transaction, &n.to_string())).unwrap();
                    });
                }
            });
            assert_eq!(secret_names(&Database::open(&path).unwrap()).len(), 8);
        }
    }

    #[test]
    fn acknowledged_writes_survive_a_killed_process() {
        let (folder, db) = database();
        for n in 0..50 {
            db.write(move |transaction| insert_secret(transaction, &format!("{n:02}"))).unwrap();
        }
        // A copy of the files in the state in which a killed process leaves them.
        let copy = tempfile::tempdir().unwrap();
        for name in ["origin.db", "origin.db-wal"] {
            std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        assert_eq!(secret_names(&Database::open(&copy.path().join("origin.db")).unwrap()).len(), 50);
    }

    #[test]
    fn a_database_with_a_newer_format_is_refused() {
        let (folder, db) = database();
        db.write(|transaction| transaction.pragma_update(None, "user_version", 99)).unwrap();
        let result = Database::open(&folder.path().join("origin.db"));
        assert!(matches!(result, Err(DatabaseError::NewerFormat { found: 99, .. })));
    }

    /// Returns how a connection syncs commits, whether it enforces foreign keys, and the mode of its journal.
    fn connection_settings(connection: &Connection) -> rusqlite::Result<(i64, i64, String)> {
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let journal = connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))?;
        Ok((number("synchronous")?, number("foreign_keys")?, journal))
    }

    #[test]
    fn each_commit_is_synced_and_only_the_owner_can_read_the_files() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, db) = database();
        // 2 is FULL: the write-ahead log is synced with each commit.
        let expected = (2, 1, "wal".to_owned());
        assert_eq!(db.read(connection_settings).unwrap(), expected);
        assert_eq!(db.write(|transaction| connection_settings(transaction)).unwrap(), expected);
        for name in ["origin.db", "origin.db-wal"] {
            let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{name}");
        }
    }

    #[test]
    fn opening_a_format_1_database_migrates_it_and_computes_the_usage_of_each_project() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("origin.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(MIGRATIONS[0]).unwrap();
        let rows = "INSERT INTO batches (project, id, received, events, searches) VALUES ('docs', 'b', 1, 2, 2);
            INSERT INTO searches (project, time, batch, place, query, page, count, clicks)
                VALUES ('docs', 1, 1, 0, 'moat', '/x', 1, 1), ('docs', 1, 1, 1, 'tide', NULL, 1, 0);
            PRAGMA user_version = 1";
        connection.execute_batch(rows).unwrap();
        drop(connection);
        let db = Database::open(&path).unwrap();
        let usage: (String, i64, i64) = db
            .read(|connection| {
                connection.query_row("SELECT project, rows, bytes FROM usage", [], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
            })
            .unwrap();
        assert_eq!(usage, ("docs".to_owned(), 3, 90 + 50 + 48));
        let version =
            db.read(|connection| connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)));
        assert_eq!(version.unwrap(), MIGRATIONS.len() as u32);
    }
}
