//! The part of an agent that obtains versions of a documentation site and stores them. It has no main loop: that is
//! `docwharf::daemon::main_loop`, in the root package.
//!
//! - [`store`] holds versions on disk, and the record that names the active one.
//! - [`api`] is the client of the management API. [`fetch`] downloads bundles, and never has the API key.
//! - [`sync`] brings the store to the state that the configuration describes: it decides what to do, obtains the
//!   bundle, seals and activates the version.
//! - [`publish`] writes a version as plain files for another server.
//! - [`analytics`] reports what readers searched for, and reads the bearer keys with which a host serves its analytics.
//!
//! ```
//! use docwharf_agent::sync::schedule::Schedule;
//!
//! // An agent with `sync.schedule = "0 4 * * 1-5"` that checks on Friday evening checks again on Monday at four.
//! let schedule = Schedule::parse("0 4 * * 1-5")?;
//! let friday: jiff::Zoned = "2026-11-20T22:10:30+00:00[UTC]".parse()?;
//! let wait = schedule.time_until_next(&friday).expect("there is a next working day");
//! assert_eq!(wait.as_secs(), (2 * 24 + 5) * 3600 + 49 * 60 + 30);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod analytics;
pub mod api;
pub mod fetch;
pub mod publish;
pub mod store;
pub mod sync;
