//! The persistent state of an origin: one `SQLite` database, written by one thread.
//!
//! Every acknowledged change is on disk: the write-ahead log is synced with each commit. Changes that are requested at
//! the same time share a commit. Each has a savepoint of its own, so that one that fails does not undo the others.

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
    /// A later version of docwharf has made the database.
    #[error("the database {} was made by a later docwharf (format {found}, this one knows {known}); use that one", path.display())]
    NewerFormat {
        /// The database file.
        path: PathBuf,
        /// The format of the database.
        found: usize,
        /// The newest format that this version knows.
        known: usize,
    },
    /// A bundle that the database names cannot be opened at the moment.
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
        let (writer, works) = sync_channel(WRITE_QUEUE_CAPACITY);
        std::thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || run_writer(connection, &works))
            .map_err(|error| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
        Ok(Database { path: path.to_owned(), writer, readers: Mutex::default() })
    }

    /// Returns the folder that holds the database file.
    pub fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> DatabaseError {
        |source| DatabaseError::Sqlite { path: self.path.clone(), source }
    }

    /// Queues `work` for the writing thread. The receiver gets its result once that is on disk.
    fn enqueue_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<rusqlite::Result<T>>, DatabaseError> {
        let (tell, told) = oneshot::channel();
        let work: QueuedWrite = Box::new(move |transaction| {
            let result = transaction.map_err(copy_error).and_then(|transaction| run_in_savepoint(transaction, work));
            Box::new(move |failure| {
                let result = match failure {
                    Some(error) if result.is_ok() => Err(copy_error(error)),
                    _ => result,
                };
                // The receiver is gone if the caller no longer waits for the result.
                let _ = tell.send(result);
            })
        });
        self.writer.send(work).map_err(|_| DatabaseError::Closed)?;
        Ok(told)
    }

    /// Runs a change and waits for it; when this returns `Ok`, the change is on disk. It blocks, so threads that serve
    /// connections must not call it.
    pub fn run_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let told = self.enqueue_write(work)?;
        told.blocking_recv().map_err(|_| DatabaseError::Closed)?.map_err(self.failed())
    }

    /// Runs queries on the state after some commit. It waits for the disk, so threads that serve connections must not
    /// call it.
    pub fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, DatabaseError> {
        let kept = self.readers().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => connect(&self.path, OpenFlags::default()).map_err(self.failed())?,
        };
        // In one transaction, several queries of one caller see the same state.
        let result = connection.unchecked_transaction().and_then(|transaction| work(&transaction));
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
            done => return done,
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
        return Err(DatabaseError::NewerFormat { path: path.to_owned(), found, known: MIGRATIONS.len() });
    }
    for tables in &MIGRATIONS[found..] {
        transaction.execute_batch(tables).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", MIGRATIONS.len() as u32).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The writing thread. It runs until the queue is closed.
fn run_writer(mut connection: Connection, works: &Receiver<QueuedWrite>) {
    while let Ok(first) = works.recv() {
        let (mut told, works) =
            (Vec::new(), std::iter::once(first).chain(works.try_iter()).take(MAX_WRITES_PER_COMMIT));
        let committed = run_in_one_commit(&mut connection, works, &mut told);
        if let Err(error) = &committed {
            tracing::error!("cannot write to the database: {error}");
        }
        for tell in told {
            tell(committed.as_ref().err());
        }
    }
}

fn run_in_one_commit(
    connection: &mut Connection,
    works: impl Iterator<Item = QueuedWrite>,
    told: &mut Vec<CommitCallback>,
) -> rusqlite::Result<()> {
    match connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate) {
        Ok(transaction) => {
            for work in works {
                // A full disk rolls back the whole transaction. Without one, each of the following changes would commit
                // on its own.
                let undone = transaction.is_autocommit().then(rolled_back_error);
                told.push(work(undone.as_ref().map_or(Ok(&transaction), Err)));
            }
            if transaction.is_autocommit() { Err(rolled_back_error()) } else { transaction.commit() }
        }
        Err(error) => {
            told.extend(works.map(|work| work(Err(&error))));
            Err(error)
        }
    }
}

fn rolled_back_error() -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure("a write that failed has undone what shared its commit; try again".into())
}

/// Runs `work` in a savepoint: all of its changes are made, or none.
fn run_in_savepoint<T>(
    transaction: &Transaction<'_>,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    transaction.execute_batch("SAVEPOINT apart")?;
    match work(transaction) {
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

    fn put(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
        transaction.execute("INSERT INTO secrets (name, value) VALUES (?1, x'00')", [name]).map(drop)
    }

    fn names(db: &Database) -> Vec<String> {
        db.read(|connection| {
            let mut select = connection.prepare("SELECT name FROM secrets ORDER BY name")?;
            select.query_map([], |row| row.get(0))?.collect()
        })
        .unwrap()
    }

    /// Blocks the writing thread until the sender is used. Changes that are queued meanwhile share the next commit.
    fn hold(db: &Database) -> mpsc::Sender<()> {
        let ((go, gone), (begun, begins)) = (mpsc::channel(), mpsc::channel());
        let work = move |_: &Transaction<'_>| {
            let _ = begun.send(());
            let _ = gone.recv();
            Ok(())
        };
        drop(db.enqueue_write(work).unwrap());
        begins.recv().unwrap();
        go
    }

    #[test]
    fn one_who_fails_undoes_nothing_of_those_who_share_the_commit() {
        let (_folder, db) = database();
        let held = hold(&db);
        let before = db.enqueue_write(|transaction| put(transaction, "before")).unwrap();
        let fails =
            db.enqueue_write(|transaction| put(transaction, "half").and_then(|()| put(transaction, "before"))).unwrap();
        let after = db.enqueue_write(|transaction| put(transaction, "after")).unwrap();
        held.send(()).unwrap();
        assert!(before.blocking_recv().unwrap().is_ok());
        assert!(fails.blocking_recv().unwrap().is_err());
        assert!(after.blocking_recv().unwrap().is_ok());
        assert_eq!(names(&db), ["after", "before"]);
    }

    #[test]
    fn nobody_is_told_that_it_worked_when_all_was_undone_nor_the_other_way_round() {
        let (_folder, db) = database();
        let held = hold(&db);
        let before = db.enqueue_write(|transaction| put(transaction, "before")).unwrap();
        // The failure ends the transaction, as it does on a full disk.
        let undo = "INSERT OR ROLLBACK INTO secrets VALUES ('x', NULL)";
        let fails = db.enqueue_write(|transaction| transaction.execute_batch(undo)).unwrap();
        let after = db.enqueue_write(|transaction| put(transaction, "after")).unwrap();
        held.send(()).unwrap();
        assert!(before.blocking_recv().unwrap().is_err());
        assert!(fails.blocking_recv().unwrap().unwrap_err().to_string().contains("NOT NULL"));
        assert!(after.blocking_recv().unwrap().is_err());
        assert!(names(&db).is_empty());
        db.run_writer(|transaction| put(transaction, "later")).unwrap();
        assert_eq!(names(&db), ["later"]);
    }

    #[test]
    fn several_may_open_a_new_database_at_once_and_write() {
        let folder = tempfile::tempdir().unwrap();
        // Many rounds, because the conflict occurs only while a new database is being created.
        for round in 0..20 {
            let (path, together) = (folder.path().join(format!("{round}.db")), Barrier::new(8));
            std::thread::scope(|scope| {
                for n in 0..8 {
                    let (path, together) = (&path, &together);
                    scope.spawn(move || {
                        together.wait();
                        let db = Database::open(path).unwrap();
                        db.run_writer(move |transaction| put(transaction, &n.to_string())).unwrap();
                    });
                }
            });
            assert_eq!(names(&Database::open(&path).unwrap()).len(), 8);
        }
    }

    #[test]
    fn what_was_acknowledged_is_there_after_an_abrupt_end() {
        let (folder, db) = database();
        for n in 0..50 {
            db.run_writer(move |transaction| put(transaction, &format!("{n:02}"))).unwrap();
        }
        // A copy of the files, as a killed process leaves them.
        let left = tempfile::tempdir().unwrap();
        for name in ["origin.db", "origin.db-wal"] {
            std::fs::copy(folder.path().join(name), left.path().join(name)).unwrap();
        }
        assert_eq!(names(&Database::open(&left.path().join("origin.db")).unwrap()).len(), 50);
    }

    #[test]
    fn a_database_of_a_later_docwharf_is_left_alone() {
        let (folder, db) = database();
        db.run_writer(|transaction| transaction.pragma_update(None, "user_version", 99)).unwrap();
        let again = Database::open(&folder.path().join("origin.db"));
        assert!(matches!(again, Err(DatabaseError::NewerFormat { found: 99, .. })));
    }
}
