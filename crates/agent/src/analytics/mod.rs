//! Search analytics: the requested period, the numbers of a report, and the report as an HTML page.

pub mod html;
pub mod period;
pub mod report;
mod side;
pub mod words;
