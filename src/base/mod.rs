//! The ground floor: errors on one line, durable files, locks, pauses, runtimes, secrets.

pub mod backoff;
pub mod chain;
pub mod durable;
pub mod runtime;
pub mod secret;
