//! The ground floor: errors on one line, durable files, locks.

pub mod chain;
pub mod durable;
