//! Readers of bundles: ZIP and tar archives, and folders. A bundle is untrusted input until it has been read to its
//! end.
//!
//! Every reader yields a sequence of entries ([`BundleReader`]) and refuses by the same rules ([`refusal`]).
//! [`site_layout`] decides which of the entries belong to the site. This module writes nothing.
//!
//! A `size` here is that of the uncompressed content, which the index calls `len`; `compressed_len` is the size in the
//! archive.

pub mod archive_stream;
pub(crate) mod bundle_reader;
pub mod folder;
pub mod format;
pub mod refusal;
pub mod site_layout;
pub mod tar;
pub mod zip;
pub mod zip_entry;

pub use bundle_reader::{BundleEntry, BundleEntryKind, BundleKind, BundleReadError, BundleReader, ContentSink};
