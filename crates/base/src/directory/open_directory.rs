//! The open directory, the files in it, and the resolution of their paths.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::regular_file::not_regular_error;

/// Upper bound of the attempts to resolve a path with `openat2(2)` while concurrent renames disturb it. After that, the
/// path is resolved component by component.
const MAX_KERNEL_ATTEMPTS: usize = 8;

/// An open directory. Clones share the descriptor.
#[derive(Debug, Clone)]
pub struct Directory {
    descriptor: Arc<OwnedFd>,
    /// The path at the time of opening: for messages, and for links that name the directory by its absolute path.
    pub(super) path: PathBuf,
    resolution: PathResolution,
}

/// The method by which paths of several components are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathResolution {
    /// `openat2(2)`; [`PathResolution::Components`] where that is refused.
    #[default]
    Kernel,
    /// One component after another, each with `O_NOFOLLOW`.
    Components,
}

/// The access with which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Reading.
    Read,
    /// Reading and writing, from the beginning.
    ReadWrite,
    /// Reading and writing, from the beginning; the file is created with this mode if it does not exist.
    ReadWriteOrCreate(u32),
    /// Writing at the end; the file is created with this mode if it does not exist.
    Append(u32),
}

/// Requirements on a file, besides that it is a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileRequirements {
    /// The id of the user that must own the file.
    pub required_owner: Option<u32>,
    /// Whether a second name (a hard link) is an error: such a file may be any file of the file system.
    pub single_name: bool,
}

impl FileRequirements {
    /// The requirement that the file has no second name.
    pub const SINGLE_NAME: FileRequirements = FileRequirements { required_owner: None, single_name: true };
}

/// The kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe, a socket or a device.
    Other,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: OsString,
    /// The kind at the time of listing.
    pub kind: EntryKind,
}

/// Device and inode number, which identify a file whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

impl FileId {
    /// Returns the id of the file or directory with this metadata.
    pub fn from_metadata(metadata: &Metadata) -> FileId {
        FileId(metadata.dev(), metadata.ino())
    }
}

impl Directory {
    /// Opens the directory at `path` and follows links: for paths from the operator's configuration.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Directory::open_with(path, PathResolution::Kernel)
    }

    /// Opens the directory at `path` like [`Directory::open`], with a method to resolve paths below it.
    pub fn open_with(path: &Path, resolution: PathResolution) -> io::Result<Directory> {
        let descriptor = rustix::fs::open(path, OPEN_DIRECTORY_FLAGS, Mode::empty())?;
        Ok(Directory { descriptor: Arc::new(descriptor), path: path.to_owned(), resolution })
    }

    /// Opens the directory at `path`, whose last component must not be a link.
    pub fn open_no_follow(path: &Path) -> io::Result<Directory> {
        let descriptor = rustix::fs::open(path, OPEN_DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        let descriptor = Arc::new(descriptor.map_err(link_error)?);
        Ok(Directory { descriptor, path: path.to_owned(), resolution: PathResolution::Kernel })
    }

    /// The path at the time of opening; only for messages and comparisons.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path to this directory for calls that take only paths. It is valid as long as this descriptor is open.
    pub fn proc_fd_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }

    /// Returns a duplicate descriptor, for calls that take a file.
    pub fn to_file(&self) -> io::Result<File> {
        Ok(File::from(self.descriptor.try_clone()?))
    }

    /// Reads the metadata of the directory itself.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.to_file()?.metadata()
    }

    /// Makes the names in the directory durable; without this call a rename may not survive a power cut.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&*self.descriptor)?)
    }

    /// Sets the directory's permissions, independent of the umask.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&*self.descriptor, Mode::from_raw_mode(mode))?)
    }

    /// Sets the directory's owner and group.
    pub fn set_owner(&self, user: u32, group: u32) -> io::Result<()> {
        Ok(rustix::fs::fchown(&*self.descriptor, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
    }

    /// Opens a directory below this one. An empty path is this directory.
    pub fn open_directory(&self, path: impl AsRef<Path>) -> io::Result<Directory> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(self.clone());
        }
        let descriptor = Arc::new(self.open_below(path, OPEN_DIRECTORY_FLAGS, Mode::empty())?);
        Ok(Directory { descriptor, path: self.path.join(path), resolution: self.resolution })
    }

    /// Creates a directory in this one and opens it. An existing name is an error.
    pub fn create_directory(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Directory> {
        let name = check_name(name.as_ref())?;
        rustix::fs::mkdirat(&*self.descriptor, name, Mode::from_raw_mode(mode))?;
        self.open_directory(name)
    }

    /// Opens a directory in this one, and creates it if it does not exist.
    pub fn ensure_directory(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Directory> {
        let name = check_name(name.as_ref())?;
        match rustix::fs::mkdirat(&*self.descriptor, name, Mode::from_raw_mode(mode)) {
            // A full or read-only disk refuses `mkdir` before it checks whether the directory exists.
            Err(error) => self.open_directory(name).map_err(|opening| match opening.kind() {
                io::ErrorKind::NotFound => error.into(),
                _ => opening,
            }),
            Ok(()) => self.open_directory(name),
        }
    }

    /// Opens a regular file below this directory for reading.
    pub fn open_for_reading(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_file(path, FileAccess::Read, FileRequirements::default())
    }

    /// Opens a file below this directory. A file that is not regular, or does not meet the `requirements`, is an error;
    /// the call never blocks.
    pub fn open_file(
        &self,
        path: impl AsRef<Path>,
        access: FileAccess,
        requirements: FileRequirements,
    ) -> io::Result<File> {
        let path = path.as_ref();
        let (flags, mode) = match access {
            FileAccess::Read => (OFlags::RDONLY, 0),
            FileAccess::ReadWrite => (OFlags::RDWR, 0),
            FileAccess::ReadWriteOrCreate(mode) => (OFlags::RDWR | OFlags::CREATE, mode),
            FileAccess::Append(mode) => (OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, mode),
        };
        // NONBLOCK: opening a named pipe would wait for its other end.
        let opened = self.open_below(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::from_raw_mode(mode));
        let file = match opened {
            Ok(descriptor) => File::from(descriptor),
            // The file is a socket, or a pipe without a reader opened for writing.
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                return Err(self.metadata_of(path).map_or(error, |metadata| not_regular_error(metadata.file_type())));
            }
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(not_regular_error(metadata.file_type()));
        }
        if requirements.single_name && metadata.nlink() > 1 {
            return Err(io::Error::other("it has a second name (a hard link); remove it"));
        }
        if requirements.required_owner.is_some_and(|owner| owner != metadata.uid()) {
            return Err(io::Error::other(format!("it belongs to user {}; remove it", metadata.uid())));
        }
        Ok(file)
    }

    /// Reads a regular file of at most `max_bytes` bytes.
    pub fn read(&self, path: impl AsRef<Path>, max_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_for_reading(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the file is larger than {max_bytes} bytes"),
            ));
        }
        Ok(bytes)
    }

    /// Creates a file in this directory for reading and writing. An existing name, also that of a link, is an error.
    pub fn create_file(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.open_below(Path::new(check_name(name.as_ref())?), flags, Mode::from_raw_mode(mode)).map(File::from)
    }

    /// Replaces `name` by a new file with the content that `fill` writes. After a crash it is the complete old or the
    /// complete new file; after a failure nothing is left of the new one.
    pub fn replace_file(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = check_name(name.as_ref())?;
        let temporary = [b".", name.as_bytes(), b".new"].concat();
        let temporary = OsStr::from_bytes(&temporary);
        // The temporary file may exist: left by a crash, or created by another user.
        self.remove_file_if_exists(temporary)?;
        let result = self.create_file(temporary, mode).and_then(|file| {
            fill(&file)?;
            file.sync_all()
        });
        if let Err(error) = result.and_then(|()| self.rename(temporary, self, name)) {
            // On a full disk, half a file takes the space that the next attempt needs.
            let _ = self.remove_file(temporary);
            return Err(error);
        }
        self.sync()
    }

    /// Replaces `name` like [`Directory::replace_file`], with `bytes` as the content.
    pub fn replace(&self, name: impl AsRef<OsStr>, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.replace_file(name, mode, |mut file| file.write_all(bytes))
    }

    /// Reads the metadata of a path below this directory; for a link, the metadata of the link itself. An empty path is
    /// this directory.
    pub fn metadata_of(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        if path.as_ref().as_os_str().is_empty() {
            return self.metadata();
        }
        File::from(self.open_below(path.as_ref(), OFlags::PATH, Mode::empty())?).metadata()
    }

    /// Whether a path below this directory exists, as a file of any kind.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.metadata_of(path).is_ok()
    }

    /// Reads the target of a symbolic link below this directory; `InvalidInput` for any other kind of file.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let link = self.open_below(path.as_ref(), OFlags::PATH, Mode::empty())?;
        let link = File::from(link);
        if !link.metadata()?.is_symlink() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a symbolic link"));
        }
        let target = rustix::fs::readlinkat(&link, c"", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Creates a symbolic link to `target` in this directory.
    pub fn create_link(&self, target: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target.as_ref(), &*self.descriptor, check_name(name.as_ref())?)?)
    }

    /// Renames `name` to `new_name` in the directory `to`, and replaces an existing file of that name.
    pub fn rename(&self, name: impl AsRef<OsStr>, to: &Directory, new_name: impl AsRef<OsStr>) -> io::Result<()> {
        let (name, new_name) = (check_name(name.as_ref())?, check_name(new_name.as_ref())?);
        Ok(rustix::fs::renameat(&*self.descriptor, name, &*to.descriptor, new_name)?)
    }

    /// Renames like [`Directory::rename`], but an existing new name is an error (`AlreadyExists`).
    pub fn rename_no_replace(
        &self,
        name: impl AsRef<OsStr>,
        to: &Directory,
        new_name: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (name, new_name) = (check_name(name.as_ref())?, check_name(new_name.as_ref())?);
        match rustix::fs::renameat_with(&*self.descriptor, name, &*to.descriptor, new_name, RenameFlags::NOREPLACE) {
            // Not every file system supports RENAME_NOREPLACE. There, a file that another process creates between the
            // check and the rename is replaced.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if to.has(new_name) => Err(Errno::EXIST.into()),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename(name, to, new_name),
            result => Ok(result?),
        }
    }

    /// Exchanges two names in one step. Not every file system supports it; see [`is_unsupported`].
    pub fn exchange(&self, name: impl AsRef<OsStr>, to: &Directory, other_name: impl AsRef<OsStr>) -> io::Result<()> {
        let (name, other_name) = (check_name(name.as_ref())?, check_name(other_name.as_ref())?);
        rustix::fs::renameat_with(&*self.descriptor, name, &*to.descriptor, other_name, RenameFlags::EXCHANGE)?;
        Ok(())
    }

    /// Removes a name that is not a directory. A link is removed itself, not its target.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&*self.descriptor, check_name(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes a name like [`Directory::remove_file`]; returns whether it existed.
    pub fn remove_file_if_exists(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match self.remove_file(name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&*self.descriptor, check_name(name.as_ref())?, AtFlags::REMOVEDIR)?)
    }

    /// Lists the directory, in no particular order.
    pub fn entries(&self) -> io::Result<DirectoryEntries> {
        Ok(DirectoryEntries { listing: Dir::read_from(&*self.descriptor)?, directory: self.clone() })
    }

    /// Opens the file at `path`. No component of it is followed if it is a link, the last one included.
    fn open_below(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let names = components(path)?;
        if names.len() > 1 && self.resolution == PathResolution::Kernel {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            for _ in 0..MAX_KERNEL_ATTEMPTS {
                match rustix::fs::openat2(&*self.descriptor, path, flags, mode, resolve) {
                    // A concurrent rename disturbed the resolution.
                    Err(Errno::AGAIN) => {}
                    // An old kernel or a seccomp filter. If the error is about the file, the method by components
                    // reports it as well. A path longer than the kernel accepts is opened component by component, too.
                    Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => break,
                    opened => return opened.map_err(link_error),
                }
            }
        }
        let (last, parents) = names.split_last().ok_or_else(outside_error)?;
        let mut parent: Option<OwnedFd> = None;
        for name in parents {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            parent = Some(rustix::fs::openat(self.descriptor_or_own(parent.as_ref()), *name, flags, Mode::empty())?);
        }
        rustix::fs::openat(self.descriptor_or_own(parent.as_ref()), *last, flags, mode).map_err(link_error)
    }

    fn descriptor_or_own<'a>(&'a self, descriptor: Option<&'a OwnedFd>) -> BorrowedFd<'a> {
        descriptor.map_or_else(|| self.descriptor.as_fd(), AsFd::as_fd)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The entries of a directory, without `.` and `..`.
#[derive(Debug)]
pub struct DirectoryEntries {
    listing: Dir,
    directory: Directory,
}

impl Iterator for DirectoryEntries {
    type Item = io::Result<DirectoryEntry>;

    fn next(&mut self) -> Option<io::Result<DirectoryEntry>> {
        loop {
            let entry = match self.listing.read()? {
                Ok(entry) => entry,
                Err(errno) => return Some(Err(errno.into())),
            };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            let kind = match entry.file_type() {
                rustix::fs::FileType::RegularFile => EntryKind::File,
                rustix::fs::FileType::Directory => EntryKind::Directory,
                rustix::fs::FileType::Symlink => EntryKind::Link,
                // Not every file system reports the kind in its listing.
                rustix::fs::FileType::Unknown => match self.directory.metadata_of(&name) {
                    Ok(metadata) => EntryKind::from_metadata(&metadata),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Some(Err(error)),
                },
                _ => EntryKind::Other,
            };
            return Some(Ok(DirectoryEntry { name, kind }));
        }
    }
}

impl EntryKind {
    /// Returns the kind of the file with this metadata.
    pub fn from_metadata(metadata: &Metadata) -> EntryKind {
        match metadata.file_type() {
            kind if kind.is_file() => EntryKind::File,
            kind if kind.is_dir() => EntryKind::Directory,
            kind if kind.is_symlink() => EntryKind::Link,
            _ => EntryKind::Other,
        }
    }
}

/// Whether an error says that the file system does not support the operation, for example exchanging two names.
pub fn is_unsupported(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP].iter().any(|errno| code == Some(errno.raw_os_error()))
}

const OPEN_DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Splits a path that stays below its directory into its components: no `..`, and not absolute.
fn components(path: &Path) -> io::Result<Vec<&OsStr>> {
    let names: Option<Vec<&OsStr>> = path
        .components()
        .filter(|component| *component != Component::CurDir)
        .map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    names.filter(|names| !names.is_empty()).ok_or_else(outside_error)
}

/// Checks that a name is one component, neither `.` nor `..`.
pub(super) fn check_name(name: &OsStr) -> io::Result<&OsStr> {
    let is_single = !matches!(name.as_bytes(), b"" | b"." | b"..") && !name.as_bytes().contains(&b'/');
    if is_single { Ok(name) } else { Err(outside_error()) }
}

fn outside_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the path leaves its directory")
}

/// Converts an error of the kernel. The kernel's message for a link that is not followed, "Too many levels of symbolic
/// links", would wrongly suggest a loop.
fn link_error(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP => io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link, which is not followed here"),
        errno => errno.into(),
    }
}
