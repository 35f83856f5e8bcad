//! The look-up of an address: which file of a site answers it, or to which address it is redirected.
//!
//! [`resolve`] looks among the files alone. Below it are the paths that are not served ([`unserved_paths`]) and the names
//! of Next.js payloads (`next_payloads`). [`addresses`] also asks the rules of the site and of its operator
//! ([`crate::rules`]). Nothing here does I/O; a site is anything that implements [`SiteFiles`].

pub mod addresses;
pub mod base_path;
mod next_payloads;
pub mod resolve;
pub mod site_files;
pub mod unserved_paths;

pub use addresses::{Addresses, is_answered};
pub use base_path::{BasePathMatch, match_base_path};
pub use resolve::{LookupResult, Slashes, find_exact, resolve_address};
pub use site_files::SiteFiles;
pub use unserved_paths::RESERVED_FOLDER;
