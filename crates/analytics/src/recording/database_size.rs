//! The size of the database, and what makes its file smaller.

use rusqlite::Connection;

use crate::searches::rows::get_u64;

/// The number of pages that one transaction returns to the file system. Other changes wait for it.
const MAX_PAGES_PER_VACUUM: i64 = 2_000;

/// The size of the database, with the changes that are only in the write-ahead log.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatabaseSize {
    /// The number of pages.
    pub(super) pages: u64,
    /// The number of pages that are not used.
    free_pages: u64,
    pub(super) page_bytes: u64,
}

impl DatabaseSize {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<DatabaseSize> {
        let number = |name: &str| connection.pragma_query_value(None, name, |row| get_u64(row, 0));
        Ok(DatabaseSize {
            pages: number("page_count")?,
            free_pages: number("freelist_count")?,
            page_bytes: number("page_size")?,
        })
    }

    /// Returns the size of the pages that are used, in bytes.
    pub(super) fn used_bytes(self) -> u64 {
        self.pages.saturating_sub(self.free_pages).saturating_mul(self.page_bytes)
    }
}

/// Writes the log to the database file and cuts it to no bytes. Returns whether this was possible: a query under way
/// may still read the log.
pub(super) fn empty_log(connection: &Connection) -> rusqlite::Result<bool> {
    let is_busy: bool = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(!is_busy)
}

/// Returns the free pages to the file system. Each step is a transaction.
pub(super) fn return_free_pages(connection: &Connection) -> rusqlite::Result<()> {
    let mut free_pages = DatabaseSize::read(connection)?.free_pages;
    while free_pages > 0 {
        connection.pragma(None, "incremental_vacuum", MAX_PAGES_PER_VACUUM, |_| Ok(()))?;
        let left = DatabaseSize::read(connection)?.free_pages;
        // Another process may fill and free pages at the same time.
        if left >= free_pages {
            break;
        }
        free_pages = left;
    }
    Ok(())
}
