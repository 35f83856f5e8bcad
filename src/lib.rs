//! docwharf: proves, seals and serves static documentation bundles.
//!
//! The house has floors; a file imports only from its own room and from floors below, and a test sees to it. From the
//! ground up:
//!
//! - [`base`] (0): errors on one line, durable files, the lock, secrets.
//! - [`model`] (1): the words: paths that were judged, digests, version ids, limits, units. [`codec`] (1): DEFLATE and
//!   gzip. Neither does I/O. [`net`] (1): the HTTP client, its troubles, and when to try again.
//! - [`bundle`] (2) reads what arrives and refuses what is hostile. [`site`] (2) knows the sealed image, its index and
//!   where an address leads, by its files and by rules. [`store`] (2) keeps versions and the one record that says which
//!   is served. [`api`] (2) speaks to the management API, [`fetch`] (2) downloads and never holds the key.
//! - [`seal`] (3) turns a bundle into a sealed image. [`serve`] (3) answers HTTP from one, [`publish`] (3) writes it out
//!   as files for another server. [`analytics`] (3) makes sense of what readers searched for.
//! - [`sync`] (4) brings the store to what configuration and state ask for. [`origin`] (4), the management API, makes
//!   bundles and hands them out.
//! - [`admin`] (5) is what an operator asks of a running daemon: the control socket, health, status, metrics.
//! - [`config`] (5): as written, then proved.
//! - [`daemon`] (6) wires `run`, `serve` and `origin` together. [`doctor`] (6) looks for what is wrong and changes nothing.
//! - [`cli`] (7): one file a command.

pub mod admin;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod doctor;

pub use docwharf_agent::{analytics, api, fetch, publish, store, sync};
pub use docwharf_base::{self as base, codec, model, net};
pub use docwharf_origin as origin;
pub use docwharf_serve as serve;
pub use docwharf_site::{self as site, bundle, seal};
