//! Delivery of analytics from the hosts that record them to an origin or to another host: the batches that are sent or
//! written to a file, and the code that receives them.
//!
//! A [`SearchBatch`] has searches. The receiver remembers its id, so a batch that arrives again is acknowledged and not
//! counted twice. A click that a reader makes after the search was sent is in a later batch ([`LaterClick`]).
//!
//! A [`ViewBatch`] has daily counts. They are absolute: all that the installation has counted on that day so far. The
//! receiver stores the largest numbers that arrived and adds only increases to its totals, so batches may be repeated,
//! reordered or lost, as long as a later batch has the same keys.
//!
//! An exchange file has batches for a receiver that cannot be reached over a network ([`ExchangeFileWriter`],
//! [`ExchangeFileReader`]).

mod batch_problems;
mod exchange_file;
mod exchange_file_reader;
mod import;
mod search_batch;
mod search_receipt;
#[cfg(test)]
mod tests;
mod view_batch;
mod view_receipt;

pub use exchange_file::{EXCHANGE_FORMAT, EXCHANGE_VERSION, ExchangeBatch, ExchangeFileHeader, ExchangeFileWriter};
pub use exchange_file_reader::{CheckedBatch, ExchangeFileError, ExchangeFileReader};
pub use import::ImportReport;
pub use search_batch::{
    CheckedClick, CheckedSearch, CheckedSearchBatch, EventSource, LaterClick, MAX_PAGE_CHARS, MAX_TERM_CHARS,
    SearchBatch, SearchEvent, is_too_far_ahead,
};
pub use search_receipt::{SearchReceipt, find_receipt, receive_search_batch};
pub use view_batch::{CheckedDayCount, CheckedViewBatch, DayCount, DayCountKind, ViewBatch};
pub use view_receipt::{ViewReceipt, receive_view_batch};

/// The SQL script that creates the table of delivered counts. The tables of [`crate::views`] must exist already.
pub const TABLES: &str = include_str!("tables.sql");
/// The largest number of events and clicks, or of counts, in a batch.
pub const MAX_BATCH_ENTRIES: usize = 1_000;
/// The largest size of a batch as JSON, in bytes. Batches with the longest permitted texts have fewer entries.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// The largest count of a key and day, of results of a search, and number of an event. Sums of many of them are below
/// 2^63, and a JSON number represents each exactly (RFC 8259, section 6).
pub const MAX_COUNT: u64 = 100_000_000_000;
