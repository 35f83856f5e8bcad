//! Removal of a complete directory tree through descriptors.

use std::ffi::{OsStr, OsString};
use std::io;

use rustix::io::Errno;

use super::open_directory::{Directory, EntryKind, check_name};

/// Upper bound of the directories held open at a time. A deeper directory is moved up to the top before it is removed.
const MAX_DEPTH: usize = 64;
/// Upper bound of the listings of one directory: listing and removing at once may miss entries, and other processes may
/// add some.
const MAX_LISTINGS: usize = 8;
/// Upper bound of the listings of the top directory, to which deeper directories are moved.
const MAX_TOP_LISTINGS: usize = 1 << 17;

impl Directory {
    /// Removes `name` and everything below it. Links are removed themselves, not their targets.
    pub fn remove_all(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = check_name(name.as_ref())?;
        let unlink_error = match self.remove_file(name) {
            Err(error) if is_directory(&error) => error,
            done => return done,
        };
        let top = match self.open_directory(name) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(unlink_error),
            opened => opened?,
        };
        top.remove_contents()?;
        self.remove_directory(name)
    }

    /// Removes everything in this directory.
    pub fn remove_contents(&self) -> io::Result<()> {
        TreeRemoval { top: self, moved: 0 }.remove_contents_of(self, 0)
    }

    /// Removes `name` like [`Directory::remove_all`]; returns whether it existed.
    pub fn remove_all_if_exists(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match self.remove_all(name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether unlink(2) failed because the name is a directory: EISDIR on Linux, EPERM in POSIX.
fn is_directory(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::ISDIR.raw_os_error()) || code == Some(Errno::PERM.raw_os_error())
}

/// The removal of everything in one directory.
struct TreeRemoval<'a> {
    top: &'a Directory,
    /// How many directories have been moved up to the top.
    moved: u64,
}

impl TreeRemoval<'_> {
    fn remove_contents_of(&mut self, directory: &Directory, depth: usize) -> io::Result<()> {
        for _ in 0..if depth == 0 { MAX_TOP_LISTINGS } else { MAX_LISTINGS } {
            let mut is_empty = true;
            for entry in directory.entries()? {
                let entry = entry?;
                is_empty = false;
                if entry.kind != EntryKind::Directory {
                    directory.remove_file_if_exists(&entry.name)?;
                } else if depth < MAX_DEPTH {
                    self.remove_contents_of(&directory.open_directory(&entry.name)?, depth + 1)?;
                    directory.remove_directory(&entry.name)?;
                } else {
                    self.move_to_top(directory, &entry.name)?;
                }
            }
            if is_empty {
                break;
            }
        }
        Ok(())
    }

    fn move_to_top(&mut self, directory: &Directory, name: &OsStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let new = OsString::from(format!(".removing-{}", self.moved));
            match directory.rename_no_replace(name, self.top, &new) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done,
            }
        }
    }
}
