//! Resolution of symbolic links that stay inside a source directory.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::open_directory::Directory;

/// Upper bound of the symbolic links in one resolution: the limit of the kernel (`path_resolution(7)`).
const MAX_SYMLINKS: usize = 40;

/// The reason why the symbolic links in a path of a source directory cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum SymlinkError {
    /// The target is not below the directory.
    #[error("it leads out of the directory")]
    Outside,
    /// The links form a loop, or there are more than 40 of them.
    #[error("its links form a loop, or there are more than {MAX_SYMLINKS}")]
    Loop,
    /// The target does not exist or cannot be read.
    #[error("its target does not exist or cannot be read")]
    Unreadable(#[source] io::Error),
}

impl Directory {
    /// Follows every symbolic link in a path below this directory, and returns the target as a path below this
    /// directory without links; empty for the directory itself.
    ///
    /// Another process may change the links right after this call. That is safe: opening the result follows no link, so
    /// a link that is created afterwards makes opening fail.
    pub fn resolve_links(&self, path: impl AsRef<Path>) -> Result<PathBuf, SymlinkError> {
        let base: Vec<OsString> = path_names(&self.path).collect();
        // Resolution starts at the root of the file system, because a link may leave the directory and return to it.
        let mut resolved = base.clone();
        let mut pending: VecDeque<OsString> = path_names(path.as_ref()).collect();
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            if name == ".." {
                resolved.pop();
                continue;
            }
            resolved.push(name);
            let Some(relative) = resolved.strip_prefix(base.as_slice()).filter(|relative| !relative.is_empty()) else {
                // Components outside the directory are not read.
                continue;
            };
            let target = match self.read_link(relative.iter().collect::<PathBuf>()) {
                Ok(target) => target,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => continue, // not a link
                Err(error) => return Err(SymlinkError::Unreadable(error)),
            };
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(SymlinkError::Loop);
            }
            resolved.pop();
            if target.is_absolute() {
                resolved.clear();
            }
            for name in path_names(&target).collect::<Vec<_>>().into_iter().rev() {
                pending.push_front(name);
            }
        }
        resolved.strip_prefix(base.as_slice()).map(|relative| relative.iter().collect()).ok_or(SymlinkError::Outside)
    }
}

/// Returns the components of a path, `..` included.
fn path_names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    })
}
