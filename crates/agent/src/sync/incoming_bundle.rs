//! A bundle that has arrived and is not yet a version.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;

use crate::fetch::BundleValidator;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionLabel;

use super::streaming_seal::SealedIncomingBundle;

/// A bundle that has arrived, and its source.
#[derive(Debug)]
pub struct IncomingBundle<'a> {
    /// Path of the bundle.
    pub path: &'a Path,
    /// The open bundle, if it is open already: then nothing is opened by path.
    pub file: Option<&'a File>,
    /// Name of the source in receipts and labels.
    pub source: &'a str,
    /// Name of the bundle in messages.
    pub title: &'a str,
    /// The cause of the arrival.
    pub cause: ArrivalCause,
    /// The label that the version gets.
    pub label: Option<&'a VersionLabel>,
    /// SHA-256 of the only archive that is accepted.
    pub demanded: Option<Digest>,
    /// The export job that made the bundle.
    pub job: Option<&'a str>,
    /// The server's validator for the bundle, and its size as it was sent.
    pub sent: Option<&'a BundleValidator>,
    /// The result of sealing during the download, if it covers the whole bundle.
    pub streamed_seal: RefCell<Option<SealedIncomingBundle>>,
}

/// The cause of a bundle's arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalCause {
    /// A check of the source.
    SourceCheck,
    /// A command that fetches the source's bundle, whether or not it has changed.
    Refresh,
    /// An import by command or from the inbox.
    Import,
}
