//! A `SQLite` database that is written by one thread.
//!
//! Every acknowledged change is on disk: the write-ahead log is synced with each commit. Changes that are requested at
//! the same time share a commit. Each has its own savepoint, so that one that fails does not undo the others.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, Transaction};
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
    /// The database is being closed.
    #[error("the database is closed: the process is stopping")]
    Closed,
    /// The database was closed, or its file was damaged and no new one could be created.
    #[error("the database {} is not open: it was damaged and no new one could be created, or recording has ended; the log has the reason", path.display())]
    NotOpen {
        /// The database file.
        path: PathBuf,
    },
}

impl DatabaseError {
    /// Returns whether the content of the file is damaged, or the file is not a database.
    pub fn is_damage(&self) -> bool {
        matches!(self.sqlite_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Returns whether the disk, or the quota of the user, is full.
    pub fn is_full_disk(&self) -> bool {
        self.sqlite_code() == Some(ErrorCode::DiskFull)
    }

    fn sqlite_code(&self) -> Option<ErrorCode> {
        match self {
            DatabaseError::Sqlite { source, .. } => source.sqlite_error_code(),
            DatabaseError::NewerFormat { .. } | DatabaseError::Closed | DatabaseError::NotOpen { .. } => None,
        }
    }
}

/// How the connections to a database treat deleted content. The default is that of `SQLite`: it stays in the file until
/// other content replaces it, and the file never becomes smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionSettings {
    /// Overwrites deleted content with zeros (`PRAGMA secure_delete`). Copies of it that `SQLite` made earlier, when it
    /// distributed rows over pages, may stay in unused parts of pages; only `VACUUM` removes them.
    pub overwrite_deleted: bool,
    /// Lets a database that is created now return free pages to the file system (`PRAGMA incremental_vacuum`).
    pub return_free_pages: bool,
}

/// Sends the result of a change to its caller, once it is known whether the commit has failed.
type CommitCallback = Box<dyn FnOnce(Option<&rusqlite::Error>) + Send>;
/// A change to run in a transaction. Its argument is the error if there is no transaction.
type QueuedWrite = Box<dyn FnOnce(Result<&Transaction<'_>, &rusqlite::Error>) -> CommitCallback + Send>;

/// A database: one writing thread, and a pool of connections for reading.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    settings: ConnectionSettings,
    // Before the writer, because fields are dropped in this order: see `close`.
    readers: Mutex<Vec<Connection>>,
    writer: SyncSender<QueuedWrite>,
    write_thread: JoinHandle<()>,
}

impl Database {
    /// Opens the database at `path`. Creates it, or migrates it to the newest format, if necessary. `migrations` are
    /// the SQL scripts of the formats, in order; a database has run the first `user_version` of them. A released script
    /// never changes; a new format is a new script.
    pub fn open(path: &Path, migrations: &[&str]) -> Result<Database, DatabaseError> {
        Database::open_with(path, migrations, ConnectionSettings::default())
    }

    /// Opens the database at `path` like [`Database::open`], with these settings for all of its connections.
    pub fn open_with(
        path: &Path,
        migrations: &[&str],
        settings: ConnectionSettings,
    ) -> Result<Database, DatabaseError> {
        let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
        // The database is readable by its owner only. SQLite gives the files beside it the same mode.
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        file.map_err(|error| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
        let mut connection = connect(path, settings).map_err(failed)?;
        migrate(&mut connection, path, migrations)?;
        let (writer, queue) = sync_channel(WRITE_QUEUE_CAPACITY);
        let write_path = path.to_owned();
        let write_thread = std::thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || run_write_thread(&write_path, connection, &queue))
            .map_err(|error| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
        Ok(Database { path: path.to_owned(), settings, writer, write_thread, readers: Mutex::default() })
    }

    /// Closes all connections and waits until this is done. A database that is only dropped is closed a moment later by
    /// its writing thread, which removes the write-ahead log; the file must not be renamed before that.
    pub fn close(self) {
        let Database { writer, write_thread, readers, .. } = self;
        // The last connection removes the write-ahead log. If two are closed at the same moment, each finds the other
        // one open, and neither removes it.
        drop(readers);
        drop(writer);
        // The thread has panicked if joining fails. Its connection is closed then too.
        let _ = write_thread.join();
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
            None => connect(&self.path, self.settings).map_err(self.failed())?,
        };
        // In one transaction, several queries of one caller see the same state.
        let result = connection.unchecked_transaction().and_then(|transaction| operation(&transaction));
        let mut readers = self.readers();
        if readers.len() < MAX_IDLE_READERS {
            readers.push(connection);
        }
        result.map_err(self.failed())
    }

    /// Runs statements that cannot be part of a transaction, such as `VACUUM`, on a connection of their own. They wait
    /// for changes under way, and changes wait for them. This waits for the disk, so threads that serve connections
    /// must not call it.
    pub fn run_outside_transactions<T>(
        &self,
        operation: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        connect(&self.path, self.settings).and_then(|connection| operation(&connection)).map_err(self.failed())
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.readers.lock()
    }
}

fn connect(path: &Path, settings: ConnectionSettings) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    if settings.overwrite_deleted {
        connection.pragma_update(None, "secure_delete", true)?;
    }
    if settings.return_free_pages {
        enable_incremental_vacuum(&connection)?;
    }
    enable_write_ahead_log(&connection)?;
    // With a write-ahead log, `NORMAL` may lose the newest commits at a power failure; `FULL` does not.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Makes a new database keep track of its free pages. This must be the first change of the file: the mode cannot be
/// changed later without `VACUUM`. Setting the mode is a write even if nothing changes, so it is read first.
fn enable_incremental_vacuum(connection: &Connection) -> rusqlite::Result<()> {
    let mode: u32 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if mode == 0 { connection.pragma_update(None, "auto_vacuum", "incremental") } else { Ok(()) }
}

/// Switches the database to a write-ahead log. If two connections do this at the same time, each might wait for the
/// other, so `SQLite` reports `SQLITE_BUSY` at once, whatever the timeout is (`sqlite3_busy_handler`). Hence the loop.
fn enable_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), DatabaseError> {
    let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
    let read_format = |connection: &Connection| {
        let format = connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0));
        format.map(|format| format as usize)
    };
    // A database of the newest format can be opened on a full disk.
    if read_format(connection).map_err(failed)? == migrations.len() {
        return Ok(());
    }
    // Two processes that open a new database at the same time take turns.
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let found = read_format(&transaction).map_err(failed)?;
    if found > migrations.len() {
        return Err(DatabaseError::NewerFormat { path: path.to_owned(), found, supported: migrations.len() });
    }
    for script in &migrations[found..] {
        transaction.execute_batch(script).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", migrations.len() as u32).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The writing thread. It runs until the queue is closed.
fn run_write_thread(path: &Path, mut connection: Connection, queue: &Receiver<QueuedWrite>) {
    while let Ok(first) = queue.recv() {
        let mut callbacks = Vec::new();
        let writes = std::iter::once(first).chain(queue.try_iter()).take(MAX_WRITES_PER_COMMIT);
        let committed = run_in_one_commit(&mut connection, writes, &mut callbacks);
        if let Err(error) = &committed {
            // The callers report the error.
            tracing::debug!("cannot write to the database {}: {error}", path.display());
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
mod tests;
