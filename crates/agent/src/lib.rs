//! The agent's work: versions in a store, and how new ones come there.
//!
//! - [`store`] keeps versions and the one record that says which is served.
//! - [`api`] speaks to the management API; [`fetch`] downloads bundles and never holds the key.
//! - [`sync`] brings the store to what configuration and state ask for.
//! - [`publish`] writes a version as files for another server. [`analytics`] reports what readers searched for.

pub mod analytics;
pub mod api;
pub mod fetch;
pub mod publish;
pub mod store;
pub mod sync;
