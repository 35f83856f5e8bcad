//! Writes a site as plain files. This is the only module of this crate that creates a file at a checked path
//! ([`SitePath`]).
//!
//! Folders are opened one component at a time: a legal path may be longer than the kernel accepts in one call, and no
//! symbolic link is followed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fchmod, fstat, linkat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use docwharf_base::codec::inflate::{InflateStatus, Inflater};
use docwharf_base::model::site_path::{SitePath, components, file_name};

use super::index::{EntryCompression, IndexEntry};

/// The permission bits of files and folders, as in `chmod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileModes {
    /// The bits of files.
    pub file: u32,
    /// The bits of folders.
    pub folder: u32,
}

impl FileModes {
    /// Derives the bits of folders from those of files: a class that may read the files may enter the folders. The
    /// owner may always change folders, because it removes them later.
    pub fn from_file_mode(mode: u32) -> FileModes {
        FileModes { file: mode, folder: mode | (mode & 0o444) >> 2 | 0o700 }
    }

    /// Returns the bits that files and folders get under this umask by default.
    pub fn from_umask(umask: u32) -> FileModes {
        FileModes { file: 0o666 & !umask, folder: 0o777 & !umask }
    }
}

const OPEN_FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder of site files. Access in the order of the paths is fastest, because the folder of the last file stays open.
#[derive(Debug)]
pub struct FileTree {
    root: File,
    /// The bits that are set on each new file and folder, independent of the umask. `None` creates files with 0644 and
    /// folders with 0755, reduced by the umask.
    modes: Option<FileModes>,
    last: Option<(Box<[u8]>, OwnedFd)>,
}

impl FileTree {
    /// Creates the tree below `root`.
    pub fn new(root: File, modes: Option<FileModes>) -> FileTree {
        FileTree { root, modes, last: None }
    }

    /// Creates a folder and its parents where they do not exist.
    pub fn create_folder(&mut self, path: &SitePath) -> rustix::io::Result<()> {
        self.open_folder(path.as_bytes(), true).map(drop)
    }

    /// Creates a file, which must not exist, and its parent folders.
    pub fn create(&mut self, path: &SitePath) -> rustix::io::Result<File> {
        let mode = self.modes;
        let (folder, name) = self.open_parent(path, true)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::from_raw_mode(mode.map_or(0o644, |modes| modes.file)))?;
        if let Some(modes) = mode {
            fchmod(&file, Mode::from_raw_mode(modes.file))?;
        }
        Ok(file.into())
    }

    /// Returns the metadata of the entry at `path`. A symbolic link is not followed.
    pub fn stat(&mut self, path: &SitePath) -> rustix::io::Result<Stat> {
        let (folder, name) = self.open_parent(path, false)?;
        statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens a file for reading. No symbolic link is followed, and opening a FIFO does not wait for a writer.
    pub fn open(&mut self, path: &SitePath) -> rustix::io::Result<File> {
        let (folder, name) = self.open_parent(path, false)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(folder, name, flags, Mode::empty()).map(File::from)
    }

    /// Creates a hard link to the file at `path` of another tree, at the same path here.
    pub fn link_from(&mut self, source: &mut FileTree, path: &SitePath) -> rustix::io::Result<()> {
        let (from, name) = source.open_parent(path, false)?;
        let (to, _) = self.open_parent(path, true)?;
        linkat(from, name, to, name, AtFlags::empty())
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &SitePath) -> rustix::io::Result<()> {
        let (folder, name) = self.open_parent(path, false)?;
        unlinkat(folder, name, AtFlags::empty())
    }

    /// Returns the parent folder of `path`, and the last component of `path`.
    fn open_parent<'a>(
        &mut self,
        path: &'a SitePath,
        create_missing: bool,
    ) -> rustix::io::Result<(&OwnedFd, &'a OsStr)> {
        let path = path.as_bytes();
        let name = file_name(path);
        let folder = self.open_folder(&path[..path.len() - name.len()], create_missing)?;
        Ok((folder, OsStr::from_bytes(name)))
    }

    fn open_folder(&mut self, path: &[u8], create_missing: bool) -> rustix::io::Result<&OwnedFd> {
        let (path, folder) = match self.last.take() {
            Some(last) if *last.0 == *path => last,
            _ => (path.into(), self.walk_to_folder(path, create_missing)?),
        };
        Ok(&self.last.insert((path, folder)).1)
    }

    fn walk_to_folder(&self, path: &[u8], create_missing: bool) -> rustix::io::Result<OwnedFd> {
        let mut folder = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        for name in components(path).filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            folder = match openat(&folder, name, OPEN_FOLDER_FLAGS, Mode::empty()) {
                Err(Errno::NOENT) if create_missing => {
                    mkdirat(&folder, name, Mode::from_raw_mode(self.modes.map_or(0o755, |modes| modes.folder)))?;
                    let created = openat(&folder, name, OPEN_FOLDER_FLAGS, Mode::empty())?;
                    if let Some(modes) = self.modes {
                        set_folder_mode(&created, modes.folder)?;
                    }
                    created
                }
                opened => opened?,
            };
        }
        Ok(folder)
    }
}

/// Sets the bits of a folder and preserves its set-group-ID bit: new entries then inherit the group of the folder,
/// which is how the processes of a Kubernetes pod share a volume.
pub fn set_folder_mode(folder: &impl AsFd, mode: u32) -> rustix::io::Result<()> {
    let set_group_id = fstat(folder)?.st_mode & Mode::SGID.as_raw_mode();
    fchmod(folder, Mode::from_raw_mode(mode | set_group_id))
}

/// Writes a file's content from its compressed bytes in the image.
pub fn write_content(file: &mut File, compressed: &[u8], entry: &IndexEntry, inflate: &mut Inflater) -> io::Result<()> {
    if entry.compression == EntryCompression::Stored {
        return file.write_all(compressed);
    }
    inflate.reset();
    let mut input_start = 0;
    loop {
        let step = inflate.run(&compressed[input_start..], true).map_err(io::Error::other)?;
        input_start += step.consumed;
        file.write_all(inflate.output())?;
        if step.status == InflateStatus::Done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn tree(root: &Path, modes: Option<FileModes>) -> FileTree {
        FileTree::new(File::open(root).unwrap(), modes)
    }

    fn path(text: &str) -> SitePath {
        SitePath::parse(text.as_bytes(), false).unwrap().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn folder_mode_lets_classes_that_may_read_enter_and_gives_the_owner_all_rights() {
        let folder_mode = |mode| FileModes::from_file_mode(mode).folder;
        assert_eq!(
            [folder_mode(0o644), folder_mode(0o640), folder_mode(0o664), folder_mode(0o400), folder_mode(0o444)],
            [0o755, 0o750, 0o775, 0o700, 0o755]
        );
        assert_eq!(FileModes::from_umask(0o027), FileModes { file: 0o640, folder: 0o750 });
    }

    #[test]
    fn folders_get_the_configured_mode_and_inherit_setgid_from_their_parent() {
        for (parent_mode, file, folder) in [(0o2770, 0o640, 0o2750), (0o770, 0o640, 0o750), (0o2700, 0o600, 0o2700)] {
            let root = tempfile::tempdir().unwrap();
            std::fs::set_permissions(root.path(), PermissionsExt::from_mode(parent_mode)).unwrap();
            let mut tree = tree(root.path(), Some(FileModes::from_file_mode(file)));
            tree.create(&path("a/b/x.txt")).unwrap();
            tree.create_folder(&path("c")).unwrap();
            let modes = ["a", "a/b", "c", "a/b/x.txt"].map(|name| mode(&root.path().join(name)));
            assert_eq!(modes, [folder, folder, folder, file], "below {parent_mode:o}");
        }
        // Without modes the bits are at most these; the umask may clear more.
        let root = tempfile::tempdir().unwrap();
        tree(root.path(), None).create(&path("a/x.txt")).unwrap();
        assert_eq!((mode(&root.path().join("a")) & !0o755, mode(&root.path().join("a/x.txt")) & !0o644), (0, 0));
    }

    #[test]
    fn files_are_created_read_and_linked_at_their_paths_in_any_order_of_folders() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut from, mut to) = (tree(source.path(), None), tree(target.path(), None));
        let names = ["a/x", "b/x", "a/y", "z", "a/b/x", "a/z"];
        for name in names {
            from.create(&path(name)).unwrap().write_all(name.as_bytes()).unwrap();
        }
        assert_eq!(from.create(&path("a/x")).unwrap_err(), Errno::EXIST);
        for name in names {
            assert_eq!(std::fs::read_to_string(source.path().join(name)).unwrap(), name);
            assert_eq!(io::read_to_string(from.open(&path(name)).unwrap()).unwrap(), name);
            to.link_from(&mut from, &path(name)).unwrap();
            let inode = |root: &Path| std::fs::metadata(root.join(name)).unwrap().ino();
            assert_eq!(inode(source.path()), inode(target.path()), "{name}");
        }
        assert_eq!(to.link_from(&mut from, &path("z")).unwrap_err(), Errno::EXIST);
        from.remove(&path("a/x")).unwrap();
        assert_eq!(from.stat(&path("a/x")).unwrap_err(), Errno::NOENT);
        assert!(target.path().join("a/x").exists());
        // Reading creates no folders.
        for result in
            [from.open(&path("new/x")).map(drop), from.remove(&path("new/x")), from.stat(&path("new/x")).map(drop)]
        {
            assert_eq!(result.unwrap_err(), Errno::NOENT);
        }
        assert!(to.link_from(&mut from, &path("new/x")).is_err());
        assert!(!source.path().join("new").exists() && !target.path().join("new").exists());
    }

    #[test]
    fn extraction_follows_no_symlink_and_does_not_block_on_a_fifo() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("x"), "secret").unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        symlink(outside.path().join("x"), dir.path().join("file")).unwrap();
        mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut tree = tree(dir.path(), None);
        assert!(tree.open(&path("file")).is_err() && tree.open(&path("link/x")).is_err());
        assert!(tree.create(&path("link/y")).is_err() && tree.create(&path("file")).is_err());
        assert!(tree.create_folder(&path("link/deep")).is_err() && tree.remove(&path("link/x")).is_err());
        let kind = FileType::from_raw_mode(tree.stat(&path("file")).unwrap().st_mode);
        assert!(kind.is_symlink());
        let remaining: Vec<_> =
            std::fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(remaining, ["x"]);
        tree.open(&path("pipe")).unwrap();
    }

    #[test]
    fn image_entry_is_extracted_unchanged_whether_stored_or_deflated() {
        let text = "so many words ".repeat(50_000);
        let mut compressed = Vec::new();
        docwharf_base::codec::deflate::Deflater::new(1).encode_all(text.as_bytes(), &mut compressed);
        let mut inflate = Inflater::new();
        for (compression, bytes) in [
            (EntryCompression::Deflate, &compressed[..]),
            (EntryCompression::Stored, text.as_bytes()),
            (EntryCompression::Deflate, &compressed),
        ] {
            let entry = IndexEntry {
                compression,
                offset: 0,
                compressed_len: bytes.len() as u64,
                len: text.len() as u64,
                crc: 0,
                content: docwharf_base::model::digest::Digest::compute(b""),
                compressed_crc: 0,
                last_block_bit: 0,
                spare_bits: 0,
                modified: 0,
            };
            let root = tempfile::tempdir().unwrap();
            let mut file = tree(root.path(), None).create(&path("x")).unwrap();
            write_content(&mut file, bytes, &entry, &mut inflate).unwrap();
            assert!(std::fs::read_to_string(root.path().join("x")).unwrap() == text, "{compression:?}");
            let cut = &bytes[..bytes.len() / 2];
            assert_eq!(
                write_content(&mut file, cut, &entry, &mut inflate).is_ok(),
                compression == EntryCompression::Stored
            );
        }
    }
}
