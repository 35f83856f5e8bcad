//! The rows of a batch in the database.

use rusqlite::{Connection, OptionalExtension, params};

/// A row: one search, or `count` searches.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchRow<'a> {
    pub(super) time: i64,
    /// The search term after case folding.
    pub(super) query: &'a str,
    pub(super) page: Option<&'a str>,
    pub(super) count: u64,
    pub(super) clicks: u64,
}

/// The size of a batch: its rows (the column `events`), and its searches, of which a row may have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchSize {
    pub(super) rows: u64,
    pub(super) searches: u64,
}

/// Returns the size of the batch with this id; `None` if there is none.
pub(super) fn find_batch(connection: &Connection, project: &str, id: &str) -> rusqlite::Result<Option<BatchSize>> {
    let sql = "SELECT events, searches FROM batches WHERE project = ?1 AND id = ?2";
    let size = |row: &rusqlite::Row<'_>| Ok(BatchSize { rows: get_u64(row, 0)?, searches: get_u64(row, 1)? });
    connection.query_row(sql, [project, id], size).optional()
}

/// Returns the bytes that a row adds to the organization's use, with the formula of the triggers in `usage.sql`.
pub(super) fn bytes_of_row(project: &str, query: &str, page: Option<&str>) -> u64 {
    (40 + project.len() + query.len() + page.map_or(0, str::len)) as u64
}

/// Returns the bytes that the row of a batch adds to the organization's use, with the formula of the triggers in
/// `usage.sql`.
pub(super) fn bytes_of_batch(project: &str, id: &str) -> u64 {
    (80 + 2 * project.len() + 2 * id.len()) as u64
}

/// Reads a number that is never negative. `SQLite` has no unsigned type.
pub(super) fn get_u64(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

/// Writes the rows of a batch, in a transaction of the caller.
#[derive(Debug)]
pub(super) struct BatchWriter<'a> {
    project: &'a str,
    number: i64,
    place: i64,
    insert: rusqlite::Statement<'a>,
}

impl<'a> BatchWriter<'a> {
    /// Starts a batch with a new id.
    pub(super) fn begin(
        connection: &'a Connection,
        project: &'a str,
        id: &str,
        received: i64,
        size: BatchSize,
    ) -> rusqlite::Result<BatchWriter<'a>> {
        let sql = "INSERT INTO batches (project, id, received, events, searches) VALUES (?1, ?2, ?3, ?4, ?5)";
        connection
            .execute(sql, params![project, id, received, size.rows.cast_signed(), size.searches.cast_signed()])?;
        let number = connection.last_insert_rowid();
        let insert = connection.prepare(
            "INSERT INTO searches (project, time, batch, place, query, page, count, clicks)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        Ok(BatchWriter { project, number, place: 0, insert })
    }

    pub(super) fn push(&mut self, row: SearchRow<'_>) -> rusqlite::Result<()> {
        let SearchRow { time, query, page, count, clicks } = row;
        let (count, clicks) = (count.cast_signed(), clicks.cast_signed());
        self.insert.execute(params![self.project, time, self.number, self.place, query, page, count, clicks])?;
        self.place += 1;
        Ok(())
    }
}
