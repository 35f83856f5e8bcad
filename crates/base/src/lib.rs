//! The ground floor: errors on one line, durable files, directories by descriptor, files that others have named or are
//! still writing, locks, sockets, text formats of metrics, pauses, processors, priorities, runtimes, secrets, users and
//! groups.

pub mod accounts;
pub mod backoff;
pub mod chain;
pub mod codec;
pub mod cores;
#[allow(unsafe_code)] // one call; its reason stands there
pub mod defer;
pub mod directory;
pub mod durable;
pub mod exposition;
pub mod growth;
pub mod mapped;
pub mod model;
pub mod net;
pub mod priority;
pub mod regular;
pub mod runtime;
pub mod secret;
