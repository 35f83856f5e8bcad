//! The agent beside an upstream: exports, downloads, schedules, the gate, secrets.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

#[cfg(feature = "origin")]
mod agent_with_origin;
mod air_gap;
#[cfg(all(feature = "origin", feature = "analytics"))]
mod analytics_delivery;
mod bundle_url_file;
mod export_api;
mod features;
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
