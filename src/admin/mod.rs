//! The admin interface of a running daemon. The control socket in the store receives the commands of the command line.
//! The routes `/livez`, `/readyz`, `/status` and `/metrics` report the state of the daemon, on the control socket and
//! on `admin.listen`; there, `/status` is only served to requests that name one of the [`allowed_hosts`]. The version
//! that waits to become active has a separate listener ([`waiting_version_service`]). With the feature `analytics`, the
//! routes below `/v1/analytics/` return what readers searched for and read, on both.
//!
//! A command has the same effect and output with and without a daemon: [`command_execution`] executes it, and
//! [`control_messages`] defines the messages.

pub mod allowed_hosts;
#[cfg(feature = "analytics")]
pub mod analytics_api;
pub mod command_execution;
pub mod control_client;
pub mod control_messages;
pub mod control_socket;
pub mod daemon_state;
pub mod metrics;
mod responses;
pub mod routes;
pub mod status;
pub mod waiting_version_service;
