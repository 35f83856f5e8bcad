//! The lookup of an address: finds the file of a site that is served at it, or the address to which it is redirected.
//!
//! `resolve` uses the files of the site, but no rules. It depends on the paths that are not served (`unserved_paths`)
//! and on the names of Next.js payloads (`next_payloads`). `addresses` also applies the rules of the site and of its
//! operator ([`crate::rules`]). This module does no I/O. A site is any type that implements [`SiteFiles`].
//!
//! `reader_path` returns the path under which the views of a page are counted.

pub(crate) mod addresses;
pub(crate) mod base_path;
mod next_payloads;
mod reader_path;
pub(crate) mod resolve;
pub(crate) mod site_files;
pub(crate) mod unserved_paths;

pub use addresses::{AddressSettings, is_answered};
pub use base_path::{BasePathMatch, match_base_path};
pub use reader_path::reader_path;
pub use resolve::{LookupResult, Slashes, find_exact, find_page_of_markdown, resolve_address};
pub use site_files::SiteFiles;
pub use unserved_paths::RESERVED_FOLDER;
