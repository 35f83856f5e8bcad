//! The ground floor: errors on one line, durable files, files that others have named, locks, pauses, runtimes, secrets.

pub mod backoff;
pub mod chain;
pub mod durable;
pub mod regular;
pub mod runtime;
pub mod secret;
