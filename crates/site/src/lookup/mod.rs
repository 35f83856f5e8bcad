//! The look-up of an address: which file of a site answers it, or to which address it is redirected.

mod next_payloads;
mod resolve;

pub use resolve::*;
