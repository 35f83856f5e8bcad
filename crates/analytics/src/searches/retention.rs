//! Removal of expired searches.

use rusqlite::{OptionalExtension, params};

use crate::database::{Database, DatabaseError};

/// The number of rows that one transaction removes. Other changes wait for it.
const MAX_ROWS_PER_DELETE: i64 = 10_000;

/// Lists the projects of an origin that have searches, batches or counts, including those that are no longer in the
/// configuration. It reads the table `usage`, which only the database of an origin has.
pub fn projects_with_rows(db: &Database) -> Result<Vec<String>, DatabaseError> {
    db.read(|connection| {
        let mut select = connection.prepare_cached("SELECT project FROM usage WHERE rows > 0")?;
        select.query_map([], |row| row.get(0))?.collect()
    })
}

/// Deletes the searches of `project` before a time (milliseconds since 1970), and the ids of batches that were received
/// before it: such a batch would be counted again if it were sent again. Paginated queries whose snapshot has lost rows
/// fail. Returns the number of deleted rows of searches, and waits for the disk.
pub fn delete_older_than(db: &Database, project: &str, oldest_retained_ms: i64) -> Result<u64, DatabaseError> {
    let mut total_deleted = 0;
    loop {
        let project = project.to_owned();
        let (deleted, is_done) = db.write(move |transaction| {
            let sql = "SELECT time FROM searches WHERE project = ?1 AND time < ?2 ORDER BY time LIMIT 1 OFFSET ?3";
            let last =
                transaction.query_row(sql, params![project, oldest_retained_ms, MAX_ROWS_PER_DELETE - 1], |row| {
                    row.get::<_, i64>(0)
                });
            // Rows with the same time are deleted together.
            let (until, is_done) = last.optional()?.map_or((oldest_retained_ms, true), |last| (last + 1, false));
            let sql = "DELETE FROM searches WHERE project = ?1 AND time < ?2";
            let deleted = transaction.execute(sql, params![project, until])?;
            if !is_done {
                return Ok((deleted as u64, false));
            }
            let sql = "DELETE FROM batches WHERE number IN (
                           SELECT number FROM batches WHERE project = ?1 AND received < ?2 LIMIT ?3)";
            let deleted_batches =
                transaction.execute(sql, params![project, oldest_retained_ms, MAX_ROWS_PER_DELETE])?;
            Ok((deleted as u64, (deleted_batches as u64) < MAX_ROWS_PER_DELETE.cast_unsigned()))
        })?;
        total_deleted += deleted;
        if is_done {
            return Ok(total_deleted);
        }
    }
}
