//! Verifies and seals bundles: a bundle becomes a sealed image and the records of its index, or is refused.
//!
//! A ZIP is copied first and verified from the copy, all its members in parallel. If it fits, the copy *is* the image
//! (`adopt`). Any other bundle is decoded by one thread and compressed by others into a new image (`rewrite`). Either
//! way the archive is read to its last byte before the result is visible to others.

// Other users may write to these folders: by the time that a path is opened it may lead elsewhere. See
// `crates/base/src/directory`.
#![deny(clippy::disallowed_methods)]

mod adopt;
pub mod coding_writer;
mod growing_copy;
#[allow(clippy::disallowed_methods)] // the user names the target
pub mod pack;
mod rewrite;
mod seal_bundle;
#[allow(clippy::disallowed_methods)] // the user names the target
pub mod unpack;

use seal_bundle::GatheredEntries;
pub use seal_bundle::{
    FilePlace, IMAGE_FILE_NAME, ImageSpace, SealError, SealOptions, SealProgress, SealedBundle, VerifiedBundle, seal,
    seal_arriving, seal_opened, verify, verify_image, verify_opened_image, verify_slowly,
};
