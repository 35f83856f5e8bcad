//! docwharf verifies, seals and serves static documentation bundles.
//!
//! The modules form layers. A file imports only from its own module and from layers below; Cargo checks that between
//! crates, `tests/layers` inside them. From the bottom up:
//!
//! - [`base`] (0): errors on one line, durable files, the lock of the store, secrets. [`model`] (0): checked paths,
//!   digests, version ids, limits, units.
//! - [`codec`] (1): DEFLATE, gzip, Brotli and Zstandard; it does no I/O. [`net`] (1): the HTTP client, its errors, and
//!   when to retry.
//! - [`bundle`] (2) reads a received bundle and refuses a hostile one. [`site`] (2) knows the sealed image, its index,
//!   and the file or rule that a path leads to. [`store`] (2) keeps versions and the record of which one is active.
//!   [`api`] (2) is a client of the management API, [`fetch`] (2) downloads bundles and never holds the API key.
//! - [`search`] (3) builds the search index of a version, and answers queries from it.
//! - [`seal`] (3) converts a bundle into a sealed image. [`serve`] (3) answers HTTP requests from an image, [`publish`]
//!   (3) writes it as files for another server. [`analytics`] (3) reports what readers searched for.
//! - [`sync`] (4) brings the store into the state that the configuration asks for.
//! - `reader_analytics` (4) stores what readers search for and read, and answers queries; it exists with the feature
//!   `analytics`, a default one. Not to be confused with [`analytics`] (3), which reports on searches that were read
//!   from an API or a host.
//! - `origin` (5) implements the management API: it builds bundles and hands them out. It exists with the feature
//!   `origin`, which is a default one.
//! - [`features`] (5) decides which features the site has on this host.
//! - [`admin`] (6): the control socket, health, status and metrics of a running daemon, and the API that reads what it
//!   has recorded.
//! - [`config`] (6): the configuration as written, then checked.
//! - [`daemon`] (7) runs the commands `run`, `serve` and `origin`. [`doctor`] (7) searches for faults and changes
//!   nothing.
//! - [`cli`] (8): the command line, one file for each command.

pub mod admin;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod doctor;
pub mod features;

pub use docwharf_agent::{analytics, api, fetch, publish, store, sync};
#[cfg(feature = "analytics")]
pub use docwharf_analytics as reader_analytics;
pub use docwharf_base::{self as base, codec, model, net};
#[cfg(feature = "origin")]
pub use docwharf_origin as origin;
pub use docwharf_search as search;
pub use docwharf_serve as serve;
pub use docwharf_site::{self as site, bundle, seal};
