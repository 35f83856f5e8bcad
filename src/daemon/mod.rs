//! Runs the commands `run`, `serve` and `origin`: serves what is stored, fetches newer versions, and ends on a signal.
//!
//! Async code handles sockets, timers and signals only. Checking the source, verifying and sealing run on a separate
//! thread ([`task`]). Server and main loop end together: the one that ends first stops the other. [`start`] starts
//! `run`, [`main_loop`] waits for events, and [`publisher`] publishes the served version as files.

#[cfg(feature = "analytics")]
mod analytics_damage;
#[cfg(feature = "analytics")]
mod analytics_delivery;
mod build_failures;
mod build_product;
mod build_turn;
mod commands;
mod configuration;
mod derived_space;
mod encoder_process;
mod error;
mod inbox;
mod index_check;
mod index_job;
mod index_limits;
mod index_process;
mod index_settings;
mod listeners;
mod main_loop;
mod notify;
mod open_product;
#[cfg(feature = "origin")]
mod origin;
mod own_programs;
mod passed_sockets;
mod pending_tasks;
mod policies;
mod precompression;
#[cfg(feature = "origin")]
mod preview_indexes;
mod publisher;
#[cfg(feature = "analytics")]
mod reader_recording;
mod replaced_versions;
mod reporter;
mod scrub;
mod search_index;
mod search_on_demand;
mod search_parts;
mod served_version;
mod server;
mod site_listeners;
mod start;
mod task;
mod temporary_folder;
mod throttle;
mod waiting_version_site;

pub use build_product::BuildProduct;
pub use derived_space::find_space_problem;
pub use encoder_process::{ENCODER_COMMAND, EncoderTask, run_encoder};
pub use error::DaemonError;
pub use index_limits::estimate_index_bytes;
pub use index_process::{INDEX_COMMAND, IndexProgress, IndexReport, IndexTask, build_in_process, run_index_builder};
pub use index_settings::IndexSettings;
pub use listeners::{bind, listeners, load_tls, open_log};
#[cfg(feature = "origin")]
pub use origin::{OriginHangup, origin};
pub use policies::serve_policies_without_store;
#[cfg(feature = "origin")]
pub use preview_indexes::PreviewIndexes;
pub use reporter::{CommandError, DescribeError};
pub use search_on_demand::OnDemandIndex;
pub use server::serve;
pub use start::{RunHangup, RunParameters, run, run_on};
pub use temporary_folder::TemporaryFolder;
