//! The interface of all readers of bundles: entries one after another, then the content of each.

use std::path::PathBuf;

use docwharf_base::model::site_path::SitePath;

use super::refusal::BundleRefusal;

/// The format of a bundle, detected from its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleKind {
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

impl BundleKind {
    /// The name of the format in `--json` output.
    pub fn name(self) -> &'static str {
        match self {
            BundleKind::Zip => "zip",
            BundleKind::Tar => "tar",
            BundleKind::TarGz => "tar.gz",
            BundleKind::TarZst => "tar.zst",
            BundleKind::Folder => "folder",
        }
    }
}

/// The type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleEntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A tar hard link. Its content is that of the earlier file with this path.
    HardLink(SitePath),
}

/// The metadata of one entry of a bundle.
#[derive(Debug, Clone)]
pub struct BundleEntry {
    /// The path of the entry; `None` for the root folder.
    pub path: Option<SitePath>,
    /// The type of the entry.
    pub kind: BundleEntryKind,
    /// The size of the content in bytes.
    pub size: u64,
    /// The modification time in seconds since 1970. It is 0 in archives, whose times are ignored.
    pub modified: i64,
}

/// A callback that receives the content of an entry piece by piece.
pub type ContentSink<'a> = dyn FnMut(&[u8]) -> Result<(), BundleReadError> + 'a;

/// A reader that yields the entries of a bundle one after another.
pub trait BundleReader {
    /// Returns the next entry, or `None` at the end. In an archive, content of the previous entry that was not read is
    /// verified first and discarded.
    fn next_entry(&mut self) -> Result<Option<BundleEntry>, BundleReadError>;

    /// Passes the content of the entry returned last to `sink`. A second call for the same entry passes nothing.
    fn read_content(&mut self, sink: &mut ContentSink<'_>) -> Result<(), BundleReadError>;
}

/// The reason why a bundle was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BundleReadError {
    /// The bundle was refused.
    #[error(transparent)]
    Refused(#[from] BundleRefusal),
    /// The operating system failed to read the bundle.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or folder that could not be read.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The receiver of the content failed.
    #[error("cannot write the content")]
    Sink(#[source] std::io::Error),
}

impl BundleReadError {
    /// Wraps an error of the operating system about `path`.
    pub fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> BundleReadError + '_ {
        move |source| BundleReadError::Io { path: path.to_owned(), source }
    }
}
