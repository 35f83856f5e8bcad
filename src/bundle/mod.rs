//! Reading bundles: hostile until they have been read to their end.
//!
//! Archives and folders come out as one stream of entries ([`Entries`]) under one policy ([`policy`]); what part of
//! them is the site is decided in [`flavor`]. Nothing here writes.

pub mod flavor;
pub mod folder;
pub mod format;
pub mod policy;
pub mod stream;
pub mod tar;
pub mod zip;
pub mod zip_member;

use std::path::PathBuf;

use crate::model::site_path::SitePath;

use policy::Refusal;

/// What kind of thing a bundle is, found by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A ZIP archive.
    Zip,
    /// A plain tar archive.
    Tar,
    /// A tar archive in gzip.
    TarGz,
    /// A tar archive in zstd.
    TarZst,
    /// A folder.
    Folder,
}

impl Kind {
    /// The name that `--json` uses.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Zip => "zip",
            Kind::Tar => "tar",
            Kind::TarGz => "tar.gz",
            Kind::TarZst => "tar.zst",
            Kind::Folder => "folder",
        }
    }
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// The content of an earlier file (a tar hard link).
    SameAs(SitePath),
}

/// One entry of a bundle.
#[derive(Debug, Clone)]
pub struct Head {
    /// Where it lies; `None` for the root folder.
    pub path: Option<SitePath>,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of content.
    pub size: u64,
    /// When the file was last changed, in seconds since 1970; 0 where the source is an archive, whose times do not count.
    pub modified: i64,
}

/// Where content goes, piece by piece.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), ReadError> + 'a;

/// A bundle as a stream of entries.
pub trait Entries {
    /// The next entry; content of the one before that was not asked for is proved and thrown away.
    fn next_entry(&mut self) -> Result<Option<Head>, ReadError>;

    /// Gives the content of the entry just returned to `sink`, once.
    fn content(&mut self, sink: &mut Sink<'_>) -> Result<(), ReadError>;
}

/// Why a bundle was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not to be trusted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The operating system did not give its bytes.
    #[error("cannot read {}", path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The receiver of the content failed.
    #[error("cannot write the content")]
    Sink(#[source] std::io::Error),
}

impl ReadError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> ReadError + '_ {
        move |source| ReadError::Io { path: path.to_owned(), source }
    }
}
