//! Search analytics: the requested period, the numbers of a report, and the report as an HTML page; the keys with
//! which a host serves its own.

pub mod html;
pub mod key_file;
pub mod number_format;
pub mod period;
mod period_rows;
pub mod report;
