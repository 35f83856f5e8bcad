//! The agent beside an upstream: exports, downloads, schedules, the gate, secrets.

mod bugs;
#[cfg(feature = "origin")]
mod chain;
mod export_api;
mod fetch;
mod gate;
mod lifecycle;
mod redirects;
mod run;
mod secrets;
mod soak;
mod streaming_seal;
mod tls;
