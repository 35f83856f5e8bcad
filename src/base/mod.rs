//! The ground floor: errors on one line, durable files, locks.

pub mod backoff;
pub mod chain;
pub mod durable;
