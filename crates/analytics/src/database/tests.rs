use std::sync::{Barrier, mpsc};

use tempfile::TempDir;

use super::*;

const MIGRATIONS: &[&str] =
    &["CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID"];

fn database() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(&folder.path().join("origin.db"), MIGRATIONS).unwrap();
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

// Regression: the connections for reading and the one for writing were closed at the same moment. Each found the other
// one open, and the write-ahead log stayed.
#[test]
fn a_database_that_is_closed_has_no_write_ahead_log() {
    let close_many = || {
        for round in 0..250 {
            // In memory if possible: a round then takes no time for a disk.
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            let db = Database::open(&folder.path().join("origin.db"), MIGRATIONS).unwrap();
            db.write(|transaction| insert_secret(transaction, "a")).unwrap();
            assert_eq!(secret_names(&db), ["a"]);
            db.close();
            assert!(!folder.path().join("origin.db-wal").exists(), "round {round}");
        }
    };
    // More threads than processors: a closing thread is then interrupted now and then.
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(close_many))));
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
                    let db = Database::open(path, MIGRATIONS).unwrap();
                    db.write(move |transaction| insert_secret(transaction, &n.to_string())).unwrap();
                });
            }
        });
        assert_eq!(secret_names(&Database::open(&path, MIGRATIONS).unwrap()).len(), 8);
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
    assert_eq!(secret_names(&Database::open(&copy.path().join("origin.db"), MIGRATIONS).unwrap()).len(), 50);
}

#[test]
fn a_database_with_a_newer_format_is_refused() {
    let (folder, db) = database();
    db.write(|transaction| transaction.pragma_update(None, "user_version", 99)).unwrap();
    let result = Database::open(&folder.path().join("origin.db"), MIGRATIONS);
    assert!(matches!(result, Err(DatabaseError::NewerFormat { found: 99, .. })));
}

fn pragma_number(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

#[test]
fn a_database_that_returns_free_pages_becomes_smaller_after_rows_were_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("origin.db");
    let settings = ConnectionSettings { overwrite_deleted: true, return_free_pages: true };
    let db = Database::open_with(&path, MIGRATIONS, settings).unwrap();
    db.write(|transaction| (0..2_000).try_for_each(|n| insert_secret(transaction, &format!("{n:0100}")))).unwrap();
    db.write(|transaction| transaction.execute("DELETE FROM secrets", [])).unwrap();
    let before = db.read(|connection| pragma_number(connection, "page_count")).unwrap();
    db.run_outside_transactions(|connection| connection.pragma_query(None, "incremental_vacuum", |_| Ok(()))).unwrap();
    let after = db.read(|connection| pragma_number(connection, "page_count")).unwrap();
    assert!(before > 40 && after < 10, "{before} {after}");
    assert_eq!(db.read(|connection| pragma_number(connection, "secure_delete")).unwrap(), 1);
    assert_eq!(db.write(|transaction| pragma_number(transaction, "secure_delete")).unwrap(), 1);
}

#[test]
fn a_closed_database_leaves_no_log_and_a_file_that_is_no_database_is_damage() {
    let (folder, db) = database();
    db.write(|transaction| insert_secret(transaction, "a")).unwrap();
    db.close();
    assert!(!folder.path().join("origin.db-wal").exists());
    std::fs::write(folder.path().join("origin.db"), "no database ".repeat(1_000)).unwrap();
    let error = Database::open(&folder.path().join("origin.db"), MIGRATIONS).unwrap_err();
    assert!(error.is_damage() && !error.is_full_disk(), "{error:?}");
}

/// Returns how a connection syncs commits, whether it enforces foreign keys, and the mode of its journal.
fn connection_settings(connection: &Connection) -> rusqlite::Result<(i64, i64, String)> {
    let journal = connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))?;
    Ok((pragma_number(connection, "synchronous")?, pragma_number(connection, "foreign_keys")?, journal))
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
