//! temp
#![allow(missing_docs)]
pub mod base;
pub mod model;
pub mod codec;
pub mod bundle;
pub mod site;
pub mod seal;
pub mod store;
