//! Runs the commands `run`, `serve` and `origin`: serves what is stored, fetches newer versions, and ends on a signal.
//!
//! Async code handles sockets, timers and signals only. Checking the source, verifying and sealing run on a separate
//! thread ([`task`]). Server and main loop end together: the one that ends first stops the other. [`start`] starts
//! `run`, [`main_loop`] waits for events, and [`publisher`] publishes the served version as files.

mod commands;
mod configuration;
mod encoder_process;
mod error;
mod inbox;
mod index_check;
mod listeners;
mod main_loop;
mod notify;
#[cfg(feature = "origin")]
mod origin;
mod passed_sockets;
mod pending_tasks;
mod policies;
mod precompression;
mod publisher;
mod replaced_versions;
mod reporter;
mod scrub;
mod served_version;
mod server;
mod site_listeners;
mod start;
mod task;
mod throttle;
mod waiting_version_site;

pub use encoder_process::{ENCODER_COMMAND, EncoderTask, run_encoder};
pub use error::DaemonError;
pub use listeners::{bind, listeners, load_tls, open_log};
#[cfg(feature = "origin")]
pub use origin::{OriginHangup, origin};
pub use policies::serve_policies_without_store;
pub use reporter::{CommandError, DescribeError};
pub use server::serve;
pub use start::{RunHangup, RunParameters, run, run_on};
