//! The rows of a batch in the database.

use rusqlite::{Connection, OptionalExtension, params};

/// A row: one search, or `count` searches.
#[derive(Debug, Clone, Copy)]
pub struct SearchRow<'a> {
    /// The time, in milliseconds since 1970.
    pub time: i64,
    /// The search term after case folding.
    pub query: &'a str,
    /// The path of the page that was opened from the results.
    pub page: Option<&'a str>,
    /// The number of searches.
    pub count: u64,
    /// The number of these searches that led to a click; at most `count`.
    pub clicks: u64,
    /// The number of results; `None` if it is not known.
    pub results: Option<u64>,
    /// `assistant` for a search of an assistant; `None` for one of a reader.
    pub source: Option<&'a str>,
}

/// The size of a batch: its rows (the column `events`), and its searches, of which a row may have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// The number of rows.
    pub rows: u64,
    /// The number of searches.
    pub searches: u64,
}

/// Returns the size of the batch with this id; `None` if there is none.
pub fn find_batch(connection: &Connection, project: &str, id: &str) -> rusqlite::Result<Option<BatchSize>> {
    let sql = "SELECT events, searches FROM batches WHERE project = ?1 AND id = ?2";
    let size = |row: &rusqlite::Row<'_>| Ok(BatchSize { rows: get_u64(row, 0)?, searches: get_u64(row, 1)? });
    connection.query_row(sql, [project, id], size).optional()
}

/// Returns the bytes that a row adds to the organization's use, with the formula of the triggers in the origin's
/// `usage.sql`.
pub fn bytes_of_row(project: &str, query: &str, page: Option<&str>) -> u64 {
    (40 + project.len() + query.len() + page.map_or(0, str::len)) as u64
}

/// Returns the bytes that the row of a batch adds to the organization's use, with the formula of the triggers in
/// the origin's `usage.sql`.
pub fn bytes_of_batch(project: &str, id: &str) -> u64 {
    (80 + 2 * project.len() + 2 * id.len()) as u64
}

/// Reads a number that is never negative. `SQLite` has no unsigned type.
pub fn get_u64(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

/// Writes the rows of a batch, in a transaction of the caller.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    project: &'a str,
    number: i64,
    place: i64,
    insert: rusqlite::Statement<'a>,
}

impl<'a> BatchWriter<'a> {
    /// Starts a batch with a new id.
    pub fn begin(
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
            "INSERT INTO searches (project, time, batch, place, query, page, count, clicks, results, source)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        Ok(BatchWriter { project, number, place: 0, insert })
    }

    /// Writes the next row of the batch.
    pub fn push(&mut self, row: SearchRow<'_>) -> rusqlite::Result<()> {
        self.push_at(self.place, row)
    }

    /// Writes a row with a place in the batch that no other row of the same time has.
    pub fn push_at(&mut self, place: i64, row: SearchRow<'_>) -> rusqlite::Result<()> {
        let SearchRow { time, query, page, count, clicks, results, source } = row;
        let (project, number) = (self.project, self.number);
        let (count, clicks, results) = (count.cast_signed(), clicks.cast_signed(), results.map(u64::cast_signed));
        let values = params![project, time, number, place, query, page, count, clicks, results, source];
        self.insert.execute(values)?;
        self.place = place.saturating_add(1);
        Ok(())
    }
}
