//! A version as a file: the sealed image, its index, its mapping into memory, and where an address leads.

pub mod image;
pub mod index;
pub mod lookup;
#[allow(unsafe_code)] // the mapping of a sealed file; the rules stand at the top of the module
pub mod mapping;
pub mod sealed;
pub mod tree;
pub mod types;
