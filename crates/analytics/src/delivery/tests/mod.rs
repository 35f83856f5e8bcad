//! Batches and exchange files, with a real database.

mod exchange_file;
mod search_batch;
mod view_batch;

use tempfile::TempDir;

use crate::database::Database;
use crate::{delivery, views};

/// 2026-11-21T00:00:00Z, in milliseconds since 1970.
const NOW: i64 = 1_795_219_200_000;
const INSTALLATION: &str = "00112233445566ff";

fn database() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let scripts = [include_str!("../../searches/tables.sql"), views::TABLES, delivery::TABLES];
    let db = Database::open(&folder.path().join("analytics.db"), &scripts).unwrap();
    (folder, db)
}
