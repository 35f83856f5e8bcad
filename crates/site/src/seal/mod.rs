//! Verifies and seals bundles: a bundle becomes a sealed image and the records of its index, or is refused.
//!
//! A downloaded ZIP is moved into the store; any other ZIP is copied. If its central directory permits adoption, its
//! entries are verified in parallel, those of a copy while the copy grows; if they are suitable too, that file becomes
//! the image (`adopt`). Any other bundle is decoded and verified by one thread and compressed by others into a new
//! image (`rewrite`). In all cases the archive is read to its last byte before the result is visible to others.

// Other users may write to these folders: by the time a path is opened, it may lead to another file. See
// `crates/base/src/directory`.
#![deny(clippy::disallowed_methods)]

mod adopt;
pub mod coding_writer;
mod growing_copy;
mod image_target;
mod new_image;
#[allow(clippy::disallowed_methods)] // the user names the target
pub mod pack;
mod rewrite;
mod seal_bundle;
mod seal_error;
mod seal_options;
mod seal_zip;
#[allow(clippy::disallowed_methods)] // the user names the target
pub mod unpack;
mod verified_bundle;
mod verify;

pub use image_target::{FileLocation, IMAGE_FILE_NAME, ImageTarget};
pub use seal_bundle::{seal, seal_growing_archive, seal_opened};
pub use seal_error::SealError;
pub use seal_options::{SealOptions, SealProgress};
pub use verified_bundle::{SealedBundle, VerifiedBundle};
pub use verify::{verify, verify_image, verify_opened_image, verify_slowly};
