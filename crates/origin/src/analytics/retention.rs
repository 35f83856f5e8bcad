//! Searches do not stay for ever.

use rusqlite::{OptionalExtension, params};

use crate::db::{Database, DatabaseError};

/// Rows that go in one turn: others who write wait no longer than that takes.
const TURN: i64 = 10_000;

/// The projects that have searches or batches, also those that are in no configuration any more.
pub fn projects(db: &Database) -> Result<Vec<String>, DatabaseError> {
    db.read(|connection| {
        let mut select = connection.prepare_cached("SELECT project FROM usage WHERE rows > 0")?;
        select.query_map([], |row| row.get(0))?.collect()
    })
}

/// Deletes the searches of `project` before a time, in milliseconds since 1970, and what is known of batches that were
/// received before it: one that is sent again after that would be counted again. Returns how many rows have gone; waits
/// for the disk. Walks through pages that counted on any of them end with an error.
pub fn prune(db: &Database, project: &str, older_than_ms: i64) -> Result<u64, DatabaseError> {
    let mut gone = 0;
    loop {
        let project = project.to_owned();
        let (deleted, is_done) = db.write(move |transaction| {
            let sql = "SELECT time FROM searches WHERE project = ?1 AND time < ?2 ORDER BY time LIMIT 1 OFFSET ?3";
            let last =
                transaction.query_row(sql, params![project, older_than_ms, TURN - 1], |row| row.get::<_, i64>(0));
            // All of one time go together.
            let (until, is_done) = last.optional()?.map_or((older_than_ms, true), |last| (last + 1, false));
            let sql = "DELETE FROM searches WHERE project = ?1 AND time < ?2";
            let deleted = transaction.execute(sql, params![project, until])?;
            if is_done {
                let sql = "DELETE FROM batches WHERE project = ?1 AND received < ?2";
                transaction.execute(sql, params![project, older_than_ms])?;
            }
            Ok((deleted as u64, is_done))
        })?;
        gone += deleted;
        if is_done {
            return Ok(gone);
        }
    }
}
