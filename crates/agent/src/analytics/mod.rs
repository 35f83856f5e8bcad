//! Search analytics: the period that is asked for, what a report says of it, and the report as a page.

pub mod html;
pub mod period;
pub mod report;
mod side;
pub mod words;
