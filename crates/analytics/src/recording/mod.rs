//! Recording of what readers do, in the database of the host that serves the site.
//!
//! The server collects activity in memory and hands it over twice a second. An [`ActivityWriter`] writes it in one
//! transaction: a search becomes a row, and a click within half an hour is added to the row of its search. The ids of
//! searches, with which clicks refer to them, stay in memory and are never stored. Secrets are masked before anything
//! is written ([`mask_secrets`]).
//!
//! An [`AnalyticsStore`] is the database file, `analytics.db`. Old days are deleted when they exceed the configured age
//! or size. Forgetting rewrites the file, so that nothing of the forgotten text stays in it. A damaged file is moved
//! aside and a new one is begun. A crash loses the activity that was not written yet, and nothing else: each write is
//! one commit that is synced to the disk. What another host has exported can be added to it
//! ([`AnalyticsStore::import`]).

mod activity_writer;
mod changed_counts;
mod damaged_files;
mod database_size;
mod delivery_queue;
#[cfg(test)]
mod delivery_tests;
mod export;
mod import;
mod mask;
mod planned_write;
mod random_bytes;
mod recent_searches;
mod search_batches;
mod store;
#[cfg(test)]
mod tests;

pub use activity_writer::{ActivityWriter, WriteError, WriteReport, WriterSettings};
pub use delivery_queue::{DeliveryQueueState, OutgoingBatch};
pub use export::{AnalyticsExportError, ExportReport, ExportedPart};
pub use import::ImportError;
pub use mask::mask_secrets;
pub use store::{AnalyticsStore, DeletedRows, StoreError};

/// The project of all rows in the database of a host, which serves one site only.
const PROJECT: &str = "";
/// The length of a day, in milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
