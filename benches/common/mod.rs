//! What benchmarks of servers share: processes and their accounting, a small HTTP client, places, statistics, tables.

// Each benchmark uses its own part.
#![allow(dead_code)]

pub(crate) mod document;
pub(crate) mod http;
pub(crate) mod machine;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod stats;
