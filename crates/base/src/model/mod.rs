//! Types that many modules use: paths, digests, version ids and labels, limits, units. There is no I/O here.

pub mod cidr;
pub mod deployment;
pub mod digest;
pub mod limits;
pub mod reader_activity;
pub mod site_path;
pub mod units;
pub mod version;
