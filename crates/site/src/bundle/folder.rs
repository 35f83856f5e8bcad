//! Reads a folder as a bundle: a list of its files, taken once.
//!
//! Unlike in an archive, a symbolic link in a folder is no attack. A link that stays inside the folder is followed. Any
//! other link is left out with a warning, and so are loops, sockets, fifos and devices.
//!
//! Other users may be allowed to write to the folder, but not to read every file that this process can read. So the
//! folder is opened once. The path of each file is recorded with its links resolved, and the file is later opened below
//! the descriptor of the folder without following links. The opened file must be the one that was listed, with the size
//! that it had: a file that was replaced, has grown or has shrunk is an error ([`BundleFault::ChangedWhileRead`]),
//! never other content.

// Other users may write here: a path may lead to another file by the time it is used. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use docwharf_base::clock::unix_seconds;
use docwharf_base::directory::{Directory, EntryKind, FileId, SymlinkError};
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::SitePath;

use super::bundle_reader::{BundleEntry, BundleEntryKind, BundleReadError, BundleReader, ContentSink};
use super::refusal::{BundleFault, LimitCounter};

/// One regular file of a folder, as it was listed.
#[derive(Debug, Clone)]
pub struct FolderFile {
    /// The path of the file below the folder.
    pub path: SitePath,
    /// The path of the file below the folder with all links resolved.
    resolved_path: PathBuf,
    /// The size in bytes when the file was listed.
    pub size: u64,
    /// The modification time when the file was listed.
    pub modified: SystemTime,
    /// The identity of the file when it was listed.
    id: FileId,
}

/// A folder whose files have been listed.
#[derive(Debug)]
pub struct FolderReader {
    root: Directory,
    /// Regular files in byte order of their paths.
    pub files: Vec<FolderFile>,
    /// One line for each entry that was left out.
    pub warnings: Vec<String>,
    next: usize,
    /// The file that [`BundleReader::read_content`] reads.
    current: Option<usize>,
}

/// A walk through the folder in progress.
struct FolderWalk {
    counter: LimitCounter,
    listing: FolderReader,
    /// The folders from the root down to the current one; used to detect loops.
    ancestors: Vec<FileId>,
}

impl FolderReader {
    /// Lists all files of the folder `root`.
    pub fn open(root: &Path, limits: &BundleLimits) -> Result<FolderReader, BundleReadError> {
        #[allow(clippy::disallowed_methods)] // the path that the person or the configuration names
        let directory = root.canonicalize().and_then(|root| Directory::open_no_follow(&root));
        let directory = directory.map_err(BundleReadError::io(root))?;
        let mut walk = FolderWalk {
            counter: LimitCounter::new(*limits),
            listing: FolderReader { root: directory, files: Vec::new(), warnings: Vec::new(), next: 0, current: None },
            ancestors: Vec::new(),
        };
        walk.walk_folder(Path::new(""), &mut Vec::new())?;
        let mut listing = walk.listing;
        listing.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// Opens a file of this folder. A file that was replaced or resized after the listing is refused.
    pub fn open_file(&self, item: &FolderFile) -> Result<File, BundleReadError> {
        let file = self
            .root
            .open_for_reading(&item.resolved_path)
            .map_err(BundleReadError::io(&self.root.path().join(&item.resolved_path)))?;
        let metadata = file.metadata().map_err(BundleReadError::io(&self.root.path().join(&item.resolved_path)))?;
        if FileId::from_metadata(&metadata) != item.id || metadata.len() != item.size {
            return Err(BundleFault::ChangedWhileRead.in_entry(item.path.as_bytes()).into());
        }
        Ok(file)
    }

    /// Reads a file of this folder to its end. A file whose size is no longer the listed one is refused.
    pub fn read_file(&self, item: &FolderFile, sink: &mut ContentSink<'_>) -> Result<(), BundleReadError> {
        let mut file = self.open_file(item)?;
        let mut read = |buffer: &mut [u8]| {
            file.read(buffer)
                .map_err(|source| BundleReadError::Io { path: self.root.path().join(&item.resolved_path), source })
        };
        let mut buffer = vec![0; (item.size as usize).clamp(1, 256 * 1024)];
        let mut remaining = item.size;
        while remaining > 0 {
            let len = buffer.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
            let n = read(&mut buffer[..len])?;
            if n == 0 {
                return Err(BundleFault::ChangedWhileRead.in_entry(item.path.as_bytes()).into());
            }
            sink(&buffer[..n])?;
            remaining -= n as u64;
        }
        if read(&mut buffer[..1])? > 0 {
            return Err(BundleFault::ChangedWhileRead.in_entry(item.path.as_bytes()).into());
        }
        Ok(())
    }
}

impl FolderWalk {
    /// Walks `folder`, a resolved path below the root. At any depth, only one descriptor besides the root's is open.
    fn walk_folder(&mut self, folder: &Path, name: &mut Vec<u8>) -> Result<(), BundleReadError> {
        let full_path = self.listing.root.path().join(folder);
        let directory = self.listing.root.open_directory(folder).map_err(BundleReadError::io(&full_path))?;
        self.ancestors.push(FileId::from_metadata(&directory.metadata().map_err(BundleReadError::io(&full_path))?));
        let mut folders = Vec::new();
        for entry in directory.entries().map_err(BundleReadError::io(&full_path))? {
            let entry = entry.map_err(BundleReadError::io(&full_path))?;
            let parent_len = name.len();
            if parent_len > 0 {
                name.push(b'/');
            }
            name.extend_from_slice(entry.name.as_bytes());
            let (resolved_path, metadata) = if entry.kind == EntryKind::Link {
                (self.resolve_link(&folder.join(&entry.name), name), None)
            } else {
                let metadata =
                    directory.metadata_of(&entry.name).map_err(BundleReadError::io(&full_path.join(&entry.name)))?;
                (Some(folder.join(&entry.name)), Some(metadata))
            };
            if let Some(resolved_path) = resolved_path
                && self.add_entry(&resolved_path, metadata, name)?
            {
                folders.push((resolved_path, name.clone()));
            }
            name.truncate(parent_len);
        }
        drop(directory);
        for (resolved_path, mut name) in folders {
            self.walk_folder(&resolved_path, &mut name)?;
        }
        self.ancestors.pop();
        Ok(())
    }

    /// Resolves a link. Returns `None`, with a warning, for a link that must not be followed.
    fn resolve_link(&mut self, link: &Path, name: &[u8]) -> Option<PathBuf> {
        match self.listing.root.resolve_links(link) {
            Ok(target) => return Some(target),
            Err(SymlinkError::Outside) => self.leave_out(name, "a link that leads out of the folder"),
            Err(SymlinkError::Loop | SymlinkError::Unreadable(_)) => self.leave_out(name, "a link that leads nowhere"),
        }
        None
    }

    /// Lists the entry at `resolved_path`. Returns `true` if the entry is a folder that the caller has to walk.
    fn add_entry(
        &mut self,
        resolved_path: &Path,
        listed: Option<Metadata>,
        name: &[u8],
    ) -> Result<bool, BundleReadError> {
        let is_link = listed.is_none();
        let Some(metadata) = listed.or_else(|| self.listing.root.metadata_of(resolved_path).ok()) else {
            self.leave_out(name, "a link that leads nowhere");
            return Ok(false);
        };
        if metadata.is_dir() {
            if is_link && self.ancestors.contains(&FileId::from_metadata(&metadata)) {
                self.leave_out(name, "a link that leads to a folder above it");
                return Ok(false);
            }
            self.counter.count_entry(name, 0)?;
            return Ok(true);
        }
        if !metadata.is_file() {
            self.leave_out(name, "neither file nor folder");
            return Ok(false);
        }
        self.counter.count_entry(name, metadata.len())?;
        let parsed = SitePath::parse(name, false).map_err(|fault| BundleFault::Name(fault).in_entry(name))?;
        if let Some(path) = parsed {
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let (size, id) = (metadata.len(), FileId::from_metadata(&metadata));
            self.listing.files.push(FolderFile { path, resolved_path: resolved_path.to_owned(), size, modified, id });
        }
        Ok(false)
    }

    fn leave_out(&mut self, name: &[u8], reason: &str) {
        self.listing.warnings.push(format!("{} is left out: {reason}", docwharf_base::error_chain::QuotedName(name)));
    }
}

impl BundleReader for FolderReader {
    fn next_entry(&mut self) -> Result<Option<BundleEntry>, BundleReadError> {
        let Some(item) = self.files.get(self.next) else {
            return Ok(None);
        };
        self.current = Some(self.next);
        self.next += 1;
        Ok(Some(BundleEntry {
            path: Some(item.path.clone()),
            kind: BundleEntryKind::File,
            size: item.size,
            modified: unix_seconds(item.modified),
        }))
    }

    fn read_content(&mut self, sink: &mut ContentSink<'_>) -> Result<(), BundleReadError> {
        match self.current.take().and_then(|i| self.files.get(i)) {
            Some(item) => self.read_file(item, sink),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // temporary folders that no other user can write to
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A folder with `a/page.html` in it, opened, and a secret of the same length beside it.
    fn open_sample() -> (tempfile::TempDir, PathBuf, FolderReader) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("site");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a/page.html"), "public").unwrap();
        fs::write(dir.path().join("page.html"), "secret").unwrap();
        let folder = FolderReader::open(&root, &BundleLimits::default()).unwrap();
        (dir, root, folder)
    }

    fn read_content(folder: &mut FolderReader) -> Result<Vec<u8>, BundleReadError> {
        let mut bytes = Vec::new();
        folder.next_entry()?.expect("an entry");
        folder.read_content(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    #[test]
    fn folder_reader_refuses_a_file_whose_size_changes_while_it_is_read() {
        const PIECE_BYTES: usize = 256 * 1024;
        for (size, change) in
            [(PIECE_BYTES, 1), (PIECE_BYTES + 1, 1), (3 * PIECE_BYTES, -1), (PIECE_BYTES, 0), (3 * PIECE_BYTES, 0)]
        {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("page.html");
            fs::write(&file, vec![b'x'; size]).unwrap();
            let mut folder = FolderReader::open(dir.path(), &BundleLimits::default()).unwrap();
            folder.next_entry().unwrap();
            let to_len = size.checked_add_signed(change).unwrap() as u64;
            let read = folder.read_content(&mut |_| {
                File::options().write(true).open(&file).unwrap().set_len(to_len).unwrap();
                Ok(())
            });
            let is_refused = matches!(&read, Err(BundleReadError::Refused(refusal)) if refusal.fault == BundleFault::ChangedWhileRead);
            assert!(is_refused == (change != 0) && read.is_ok() != is_refused, "{size} {change}: {read:?}");
        }
    }

    // Regression: a user who could write to a folder had any file that the reader may read packed, by replacing a file
    // with a link after the folder was listed.
    #[test]
    fn folder_reader_refuses_a_file_that_was_replaced_after_the_listing() {
        let exchanges: [fn(&Path, &Path); 6] = [
            |dir, root| {
                fs::remove_file(root.join("a/page.html")).unwrap();
                symlink(dir.join("page.html"), root.join("a/page.html")).unwrap();
            },
            |dir, root| {
                fs::rename(root.join("a"), root.join("b")).unwrap();
                symlink(dir, root.join("a")).unwrap();
            },
            |dir, root| fs::rename(dir.join("page.html"), root.join("a/page.html")).unwrap(),
            |_, root| {
                fs::remove_file(root.join("a/page.html")).unwrap();
                mknodat(CWD, root.join("a/page.html"), FileType::Fifo, Mode::RWXU, 0).unwrap();
            },
            |_, root| fs::write(root.join("a/page.html"), "grown since").unwrap(),
            |_, root| fs::write(root.join("a/page.html"), "cut").unwrap(),
        ];
        for (n, exchange) in exchanges.into_iter().enumerate() {
            let (dir, root, mut folder) = open_sample();
            exchange(dir.path(), &root);
            assert!(read_content(&mut folder).is_err(), "exchange {n}");
        }
        let (dir, root, mut folder) = open_sample();
        // Replacing the folder itself has no effect: the reader has the old one open.
        fs::rename(&root, dir.path().join("was")).unwrap();
        symlink(dir.path(), &root).unwrap();
        assert_eq!(read_content(&mut folder).unwrap(), b"public");
    }

    #[test]
    fn special_files_and_links_that_loop_dangle_or_lead_out_are_skipped_with_a_warning() {
        let (_dir, root, _) = open_sample();
        symlink("../page.html", root.join("out.html")).unwrap();
        symlink("none", root.join("dangling.html")).unwrap();
        symlink("loop.html", root.join("loop.html")).unwrap();
        symlink(".", root.join("a/up")).unwrap();
        mknodat(CWD, root.join("a/pipe.html"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        symlink("pipe.html", root.join("a/to-pipe.html")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        let mut folder = FolderReader::open(&root, &BundleLimits::default()).unwrap();
        folder.warnings.sort_unstable();
        let expected = [
            "\"a/pipe.html\" is left out: neither file nor folder",
            "\"a/to-pipe.html\" is left out: neither file nor folder",
            "\"a/up\" is left out: a link that leads to a folder above it",
            "\"dangling.html\" is left out: a link that leads nowhere",
            "\"loop.html\" is left out: a link that leads nowhere",
            "\"out.html\" is left out: a link that leads out of the folder",
            "\"socket\" is left out: neither file nor folder",
        ];
        assert_eq!(folder.warnings, expected);
        assert_eq!(folder.files.iter().map(|item| item.path.as_bytes()).collect::<Vec<_>>(), [b"a/page.html"]);
        // What is left out is no entry: the folder `a` and its page are all.
        let limits = |entries| BundleLimits { entries, ..BundleLimits::default() };
        assert!(FolderReader::open(&root, &limits(2)).is_ok());
        let refused = FolderReader::open(&root, &limits(1)).unwrap_err();
        assert_eq!(refused.to_string(), "the bundle has over 1 entries (limits.entries)");
    }

    #[test]
    fn links_inside_the_folder_are_read_at_the_targets_they_had_when_listed() {
        let (dir, root, _) = open_sample();
        symlink("../a/page.html", root.join("a/relative.html")).unwrap();
        symlink(root.join("a"), root.join("absolute")).unwrap();
        symlink("../page.html", root.join("outside.html")).unwrap();
        symlink("..", root.join("a/round")).unwrap();
        let folder = FolderReader::open(&root, &BundleLimits::default()).unwrap();
        let paths: Vec<_> = folder.files.iter().map(|item| item.path.as_bytes()).collect();
        let expected = ["a/page.html", "a/relative.html", "absolute/page.html", "absolute/relative.html"];
        assert_eq!(paths, expected.map(str::as_bytes));
        assert_eq!(folder.warnings.len(), 3, "{:?}", folder.warnings);
        // The path of the folder itself may be a link, and a link inside may name the folder by its own path.
        symlink(&root, dir.path().join("link")).unwrap();
        let through_link = FolderReader::open(&dir.path().join("link"), &BundleLimits::default()).unwrap();
        let paths: Vec<_> = through_link.files.iter().map(|item| item.path.as_bytes()).collect();
        assert_eq!(paths, expected.map(str::as_bytes));
        // A link that is changed after the listing is not resolved again.
        fs::remove_file(root.join("absolute")).unwrap();
        symlink(dir.path(), root.join("absolute")).unwrap();
        let mut folder = folder;
        for _ in 0..4 {
            assert_eq!(read_content(&mut folder).unwrap(), b"public");
        }
    }
}
