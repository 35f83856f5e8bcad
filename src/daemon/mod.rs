//! Runs the commands `run`, `serve` and `origin`: serves what is stored, fetches newer versions, and ends on a signal.
//!
//! Async code handles sockets, timers and signals only. Checking the source, verifying and sealing run on a separate
//! thread ([`task`]). Server and agent end together: the one that ends first stops the other. [`start`] starts
//! `run`, [`agent`] is its main loop, and [`publisher`] publishes the served version as files.

mod agent;
mod commands;
mod configuration;
mod encoder_process;
mod error;
mod inbox;
mod index_check;
mod listeners;
mod notify;
#[cfg(feature = "origin")]
mod origin;
mod passed_sockets;
mod pending_tasks;
mod policies;
mod precompression;
mod previous_versions;
mod publisher;
mod reporter;
mod scrub;
mod served_version;
mod server;
mod site_listeners;
mod staged_version;
mod start;
mod task;
mod throttle;

pub use encoder_process::{ENCODER_COMMAND, EncoderTask, run_encoder};
pub use error::DaemonError;
pub use listeners::{bind, listeners, load_tls, open_log};
#[cfg(feature = "origin")]
pub use origin::{OriginHangup, origin};
pub use policies::protect_site;
pub use reporter::{CommandError, DescribeError};
pub use server::serve;
pub use start::{RunHangup, RunParameters, run, run_on};
