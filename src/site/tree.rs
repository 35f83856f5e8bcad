//! A site as plain files: the one place where a judged path becomes a file.
//!
//! Folders are opened one component at a time: a legal path may be longer than what the kernel takes at once, and no
//! link is followed on the way.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fchmod, fstat, linkat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::codec::inflate::{Inflate, Status};
use crate::model::site_path::{SitePath, components, file_name};

use super::index::{Coding, Entry};

/// Who may do what with files and folders, as in `chmod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// Of files.
    pub file: u32,
    /// Of folders.
    pub folder: u32,
}

impl Modes {
    /// Files of this mode. Folders can be entered by whoever may read the files, and changed by their owner, who has to
    /// remove them one day.
    pub fn of_files(mode: u32) -> Modes {
        Modes { file: mode, folder: mode | (mode & 0o444) >> 2 | 0o700 }
    }

    /// What a program that asks for everything gets under this umask.
    pub fn under(umask: u32) -> Modes {
        Modes { file: 0o666 & !umask, folder: 0o777 & !umask }
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder of site files. Files are best gone through in the order of their paths: the folder of the last one is kept
/// open.
#[derive(Debug)]
pub struct Tree {
    root: File,
    /// Set on what is made, whatever the umask says; without them it is 0644 and 0755 under the umask.
    modes: Option<Modes>,
    last: Option<(Box<[u8]>, OwnedFd)>,
}

impl Tree {
    /// The tree below `root`.
    pub fn new(root: File, modes: Option<Modes>) -> Tree {
        Tree { root, modes, last: None }
    }

    /// Makes a folder and those above it, as far as they are not there.
    pub fn make_folder(&mut self, path: &SitePath) -> rustix::io::Result<()> {
        self.folder(path.as_bytes(), true).map(drop)
    }

    /// Makes a file, which must not be there yet, and the folders above it.
    pub fn create(&mut self, path: &SitePath) -> rustix::io::Result<File> {
        let mode = self.modes;
        let (folder, name) = self.place(path, true)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::from_raw_mode(mode.map_or(0o644, |modes| modes.file)))?;
        if let Some(modes) = mode {
            fchmod(&file, Mode::from_raw_mode(modes.file))?;
        }
        Ok(file.into())
    }

    /// What lies at `path`; a link itself, not what it leads to.
    pub fn stat(&mut self, path: &SitePath) -> rustix::io::Result<Stat> {
        let (folder, name) = self.place(path, false)?;
        statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens a file to read; no link is followed, and nothing waits for whoever writes to a pipe.
    pub fn open(&mut self, path: &SitePath) -> rustix::io::Result<File> {
        let (folder, name) = self.place(path, false)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(folder, name, flags, Mode::empty()).map(File::from)
    }

    /// Gives the file at `path` of another tree the same path here as a further name.
    pub fn link_from(&mut self, other: &mut Tree, path: &SitePath) -> rustix::io::Result<()> {
        let (from, name) = other.place(path, false)?;
        let (to, _) = self.place(path, true)?;
        linkat(from, name, to, name, AtFlags::empty())
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &SitePath) -> rustix::io::Result<()> {
        let (folder, name) = self.place(path, false)?;
        unlinkat(folder, name, AtFlags::empty())
    }

    /// The folder that `path` lies in, and its name there.
    fn place<'a>(&mut self, path: &'a SitePath, make: bool) -> rustix::io::Result<(&OwnedFd, &'a OsStr)> {
        let path = path.as_bytes();
        let name = file_name(path);
        let folder = self.folder(&path[..path.len() - name.len()], make)?;
        Ok((folder, OsStr::from_bytes(name)))
    }

    fn folder(&mut self, path: &[u8], make: bool) -> rustix::io::Result<&OwnedFd> {
        let (path, folder) = match self.last.take() {
            Some(last) if *last.0 == *path => last,
            _ => (path.into(), self.walk(path, make)?),
        };
        Ok(&self.last.insert((path, folder)).1)
    }

    fn walk(&self, path: &[u8], make: bool) -> rustix::io::Result<OwnedFd> {
        let mut folder = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        for name in components(path).filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            folder = match openat(&folder, name, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) if make => {
                    mkdirat(&folder, name, Mode::from_raw_mode(self.modes.map_or(0o755, |modes| modes.folder)))?;
                    let made = openat(&folder, name, FOLDER, Mode::empty())?;
                    if let Some(modes) = self.modes {
                        set_folder_mode(&made, modes.folder)?;
                    }
                    made
                }
                opened => opened?,
            };
        }
        Ok(folder)
    }
}

/// Gives a folder this mode. Where the folder above hands its group down, this one goes on doing so: that is how the
/// processes of a pod share a volume.
pub fn set_folder_mode(folder: &impl AsFd, mode: u32) -> rustix::io::Result<()> {
    let hands_down = fstat(folder)?.st_mode & Mode::SGID.as_raw_mode();
    fchmod(folder, Mode::from_raw_mode(mode | hands_down))
}

/// Writes a file's content from its bytes in the image.
pub fn write(file: &mut File, coded: &[u8], entry: &Entry, inflate: &mut Inflate) -> io::Result<()> {
    if entry.coding == Coding::Stored {
        return file.write_all(coded);
    }
    inflate.reset();
    let mut at = 0;
    loop {
        let step = inflate.run(&coded[at..], true).map_err(io::Error::other)?;
        at += step.consumed;
        file.write_all(inflate.output())?;
        if step.status == Status::Done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Modes;

    #[test]
    fn folders_can_be_entered_by_whoever_may_read_and_are_their_owners() {
        let of = |mode| Modes::of_files(mode).folder;
        assert_eq!([of(0o644), of(0o640), of(0o664), of(0o400), of(0o444)], [0o755, 0o750, 0o775, 0o700, 0o755]);
        assert_eq!(Modes::under(0o027), Modes { file: 0o640, folder: 0o750 });
    }
}
