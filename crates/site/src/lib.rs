//! A version as a file: the sealed image, its index, its mapping into memory, where an address leads by files and by
//! rules, which links lead nowhere, what it needs from elsewhere, and what differs from another version.

pub mod broken;
pub mod bundle;
pub mod codings;
pub mod diff;
pub mod flight;
pub mod image;
pub mod index;
pub mod links;
pub mod lookup;
#[allow(unsafe_code)] // the mapping of a sealed file; the rules stand at the top of the module
pub mod mapping;
pub mod outside;
pub mod room;
pub mod rules;
pub mod seal;
pub mod sealed;
mod table;
pub mod tree;
pub mod types;
