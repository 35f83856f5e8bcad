//! Search analytics: the requested period, the numbers of a report, and the report as an HTML page.

pub mod html;
pub mod number_format;
pub mod period;
mod period_rows;
pub mod report;
