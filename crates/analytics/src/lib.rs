//! The analytics of a site in a `SQLite` database: the searches of readers, and the views of pages.
//!
//! A host that serves a site records what its readers do ([`recording`]). [`searches`] has the totals of search terms,
//! which an origin uses too; [`views`] has the views of pages and the counts by day. Nothing that is stored identifies
//! a reader. [`delivery`] has the batches in which hosts send this to an origin, and receives them.
//!
//! Each of the four modules has the SQL script of its tables, and a [`database::Database`] runs the scripts. The
//! column `project` is empty in the database of a host; an origin stores the project there.
//!
//! ```
//! use docwharf_analytics::{database::Database, delivery, views};
//! use docwharf_base::model::reader_activity::{DayActivity, ViewCounts};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let db = Database::open(&folder.path().join("analytics.db"), &[views::TABLES, delivery::TABLES])?;
//! let counts = ViewCounts { human: 2, ai: 1, bot: 0 };
//! // 20,454 days after 1970 is 2026-01-01.
//! let activity = DayActivity { day: 20_454, views: vec![("/guide".to_owned(), counts)], ..DayActivity::default() };
//! db.write(move |transaction| views::add_day(transaction, "", &activity))?;
//!
//! let views = views::query_views(&db, "", Some("dateFrom=2026-01-01&limit=10"))?;
//! assert_eq!(views.views[0].path, "/guide");
//! assert_eq!(views.totals.total, 3);
//! # Ok(())
//! # }
//! ```

pub mod database;
pub mod delivery;
pub mod query_error;
mod query_string;
pub mod recording;
pub mod searches;
pub mod views;
