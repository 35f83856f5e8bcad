//! The agent beside an upstream: exports, downloads, schedules, the gate, secrets.

#[cfg(feature = "origin")]
mod agent_with_origin;
mod export_api;
mod fetch;
mod gate;
mod lifecycle;
#[cfg(feature = "analytics")]
mod reader_recording;
mod redirects;
mod regressions;
mod run;
mod secrets;
mod soak;
mod streaming_seal;
mod tls;
