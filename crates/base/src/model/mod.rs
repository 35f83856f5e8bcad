//! The words everything else is written in. No I/O here.

pub mod digest;
pub mod limits;
pub mod site_path;
pub mod units;
pub mod version;
