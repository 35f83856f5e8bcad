//! Construction of a version's directory: each file is written from the image, or hard-linked from an earlier
//! directory.

use std::io::{self, Read};

use rustix::fs::{FileType, Stat, Timespec, Timestamps, UTIME_OMIT, fstat, futimens};
use rustix::process::geteuid;

use docwharf_base::codec::inflate::Inflater;
use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Sha256Hasher;
use docwharf_base::model::site_path::{SitePath, is_hidden};
use docwharf_site::extract::{self, FileModes, FileTree};
use docwharf_site::index::IndexEntry;
use docwharf_site::sealed_version::SealedVersion;

use super::error::PublishError;

/// The result of a publication.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublishOutcome {
    /// Whether the link was replaced or its directory was built again.
    pub changed: bool,
    /// Number of files written.
    pub written: u64,
    /// Number of files linked from an earlier directory.
    pub linked: u64,
}

/// The files of a version that are not hidden, in the order of their paths.
fn visible_files(version: &SealedVersion) -> impl Iterator<Item = (Option<SitePath>, IndexEntry)> {
    let index = version.index();
    let files = (0..index.len()).filter(|&file| !is_hidden(index.path(file)));
    // The paths were checked when the version was sealed. They are checked again before they are joined to a directory.
    files.map(|file| (SitePath::parse(index.path(file), false).ok().flatten(), index.entry(file)))
}

/// Writes the site to the empty directory `target`; unchanged files are linked from `link_sources`.
pub(super) fn build_tree(
    target: &Directory,
    version: &SealedVersion,
    link_sources: &[Directory],
    modes: FileModes,
) -> Result<PublishOutcome, PublishError> {
    let dir = target.path();
    let root = target.to_file().map_err(PublishError::io("open", dir))?;
    extract::set_folder_mode(&root, modes.folder).map_err(PublishError::io("make", dir))?;
    let mut builder = TreeBuilder {
        tree: FileTree::new(root, Some(modes)),
        link_sources: link_sources
            .iter()
            .filter_map(|source| source.to_file().ok())
            .map(|root| FileTree::new(root, None))
            .collect(),
        modes,
        inflate: Inflater::new(),
        buffer: vec![0; 1 << 17],
    };
    let mut outcome = PublishOutcome { changed: true, ..PublishOutcome::default() };
    for (path, entry) in visible_files(version) {
        let path = path.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the index contains an invalid path"));
        let path = path.map_err(PublishError::io("write", dir))?;
        if builder.link(&path, &entry) {
            outcome.linked += 1;
            continue;
        }
        let path_on_disk = || dir.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.as_bytes()));
        builder
            .write(&path, &version.compressed_bytes(&entry), &entry)
            .map_err(|error| PublishError::io("write", &path_on_disk())(error))?;
        outcome.written += 1;
    }
    Ok(outcome)
}

/// The state of a directory that is being built.
struct TreeBuilder {
    tree: FileTree,
    link_sources: Vec<FileTree>,
    modes: FileModes,
    inflate: Inflater,
    buffer: Vec<u8>,
}

impl TreeBuilder {
    fn write(&mut self, path: &SitePath, compressed: &[u8], entry: &IndexEntry) -> io::Result<()> {
        let mut file = self.tree.create(path)?;
        extract::write_content(&mut file, compressed, entry, &mut self.inflate)?;
        let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: entry.modified, tv_nsec: 0 };
        Ok(futimens(&file, &Timestamps { last_access: unchanged, last_modification: modified })?)
    }

    /// Links the file from an earlier directory; returns whether that succeeded. If it fails (other content, another
    /// disk, too many links, a file that the kernel protects), the caller writes the file.
    fn link(&mut self, path: &SitePath, entry: &IndexEntry) -> bool {
        for source in &mut self.link_sources {
            if !source.stat(path).is_ok_and(|stat| has_published_metadata(&stat, entry, self.modes)) {
                continue;
            }
            if self.tree.link_from(source, path).is_err() {
                continue;
            }
            // The linked file is checked, because the source may have been replaced since it was examined.
            if has_content(&mut self.tree, path, entry, self.modes, &mut self.buffer) {
                return true;
            }
            if self.tree.remove(path).is_err() {
                return false;
            }
        }
        false
    }
}

/// Whether every file of `version` is in the directory as it was published. The content is not read: a change of
/// content changes the modification time.
pub(super) fn is_complete(directory: &Directory, version: &SealedVersion, modes: FileModes) -> bool {
    let Ok(root) = directory.to_file() else { return false };
    let is_folder = fstat(&root).is_ok_and(|stat| stat.st_mode & 0o777 == modes.folder);
    let mut tree = FileTree::new(root, None);
    is_folder
        && visible_files(version).all(|(path, entry)| {
            path.is_some_and(|path| tree.stat(&path).is_ok_and(|stat| has_published_metadata(&stat, &entry, modes)))
        })
}

/// Whether a file has the owner, mode, size and time with which it was published.
// The types of the fields differ between architectures.
#[allow(clippy::unnecessary_cast, clippy::cast_lossless, clippy::useless_conversion)]
fn has_published_metadata(stat: &Stat, entry: &IndexEntry, modes: FileModes) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o7777 == modes.file
        && stat.st_uid == geteuid().as_raw()
        && u64::try_from(stat.st_size) == Ok(entry.len)
        && stat.st_mtime as i64 == entry.modified
        && stat.st_mtime_nsec == 0
}

fn has_content(tree: &mut FileTree, path: &SitePath, entry: &IndexEntry, modes: FileModes, buffer: &mut [u8]) -> bool {
    let Ok(mut file) = tree.open(path) else { return false };
    if !fstat(&file).is_ok_and(|stat| has_published_metadata(&stat, entry, modes)) {
        return false;
    }
    let mut hasher = Sha256Hasher::new();
    loop {
        match file.read(buffer) {
            Ok(0) => return hasher.finalize_reset() == entry.content,
            Ok(n) => hasher.update(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}
