//! Download of one bundle: complete, resumed, or skipped because the server's file is known. It never has the API key.
//!
//! A [`Download`] exists until its bundle has been received. Each [`Download::attempt`] continues where the previous
//! one ended if the server sent a strong validator, also through another link to the same file and after a restart. The
//! received bytes are in the store's `downloads/`, together with the validator of their response, so that all parts of
//! a resumed file belong to one representation (RFC 9110 section 13.1.5).

// Other users may write here, so a path may lead to another file when it is used. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

mod bundle;
mod content_range;
mod download;
mod outer_gzip_layer;
mod partial_bundle;
mod response_headers;

pub use bundle::{BeforeReceiving, BundleValidator, DownloadResult, ExpectedBundle, ReceivedBundle};
pub use download::{Download, DownloadProgress};
pub use outer_gzip_layer::remove_outer_gzip_layer;
