//! The ground floor: errors on one line, durable files, locks, pauses, secrets.

pub mod backoff;
pub mod chain;
pub mod durable;
pub mod secret;
