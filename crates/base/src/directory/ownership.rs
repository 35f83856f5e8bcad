//! Change of the owner of files through descriptors.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Gid, Uid, chownat};

use super::open_directory::{Directory, DirectoryEntry, EntryKind, check_name};

impl Directory {
    /// Sets the owner and group of `name` in this directory; for a link, those of the link itself.
    pub fn set_owner_of(&self, name: impl AsRef<OsStr>, user: u32, group: u32) -> io::Result<()> {
        let name = check_name(name.as_ref())?;
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        Ok(chownat(self, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the owner and group of this directory and of everything in it; for links, those of the links themselves.
    ///
    /// A directory gets its new owner after everything in it. The new owner can therefore exchange a name only where
    /// this call is already done; otherwise a link or a hard link in its place would give it any file of this machine.
    pub fn set_owner_of_tree(&self, user: u32, group: u32) -> io::Result<()> {
        let mut directories = vec![PathBuf::new()];
        let mut listed = 0;
        while let Some(path) = directories.get(listed).cloned() {
            listed += 1;
            for entry in self.open_directory(&path)?.entries()? {
                let DirectoryEntry { name, kind } = entry?;
                if kind == EntryKind::Directory {
                    directories.push(path.join(name));
                }
            }
        }
        // Each directory was found after the one that contains it.
        for path in directories.iter().rev() {
            let directory = self.open_directory(path)?;
            for entry in directory.entries()? {
                let DirectoryEntry { name, kind } = entry?;
                if kind != EntryKind::Directory {
                    directory.set_owner_of(name, user, group)?;
                }
            }
            directory.set_owner(user, group)?;
        }
        Ok(())
    }
}
