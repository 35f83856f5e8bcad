//! Shared code of the server benchmarks: processes and their CPU time, an HTTP client, folders and ports, statistics,
//! tables.

// Each benchmark uses a part of this module.
#![allow(dead_code)]

pub(crate) mod document;
pub(crate) mod http;
pub(crate) mod machine;
pub(crate) mod process;
pub(crate) mod server_setup;
pub(crate) mod stats;
