//! The database of an origin: one file in its state folder, with the formats that it had so far.

use std::path::Path;

use docwharf_analytics::{delivery, views};

pub use docwharf_analytics::database::{Database, DatabaseError};

/// The SQL scripts of the formats, in order; see [`Database::open`].
const MIGRATIONS: &[&str] = &[
    include_str!("tables.sql"),
    include_str!("usage.sql"),
    include_str!("results.sql"),
    views::TABLES,
    delivery::TABLES,
    include_str!("views_usage.sql"),
];

/// Opens the database of an origin. Creates it, or migrates it to the newest format, if necessary.
pub fn open_database(path: &Path) -> Result<Database, DatabaseError> {
    Database::open(path, MIGRATIONS)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

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
        let db = open_database(&path).unwrap();
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
