//! Resolution of symbolic links that stay inside a source directory.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::open_directory::Directory;

/// Upper bound of the links in one resolution, the same as the kernel's.
const MAX_LINKS: usize = 40;

/// The reason why a path of a source directory leads to no file in it.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The target is not below the directory.
    #[error("it leads outside")]
    Outside,
    /// The links form a loop, or there are more than 40 of them.
    #[error("it leads round in a loop")]
    Loop,
    /// The target does not exist or cannot be read.
    #[error("it leads nowhere")]
    Nowhere(#[source] io::Error),
}

impl Directory {
    /// Follows every symbolic link in a path below this directory, and returns the target as a path below this
    /// directory without links; empty for the directory itself.
    ///
    /// Another process may change the links right after this call. That is safe: opening the result follows no link, so
    /// a link that is created afterwards makes opening fail.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<PathBuf, LinkError> {
        let base: Vec<OsString> = path_names(&self.path).collect();
        // Resolution starts at the root of the file system, because a link may leave the directory and come back to it.
        let mut reached = base.clone();
        let mut coming: VecDeque<OsString> = path_names(path.as_ref()).collect();
        let mut links = 0;
        while let Some(name) = coming.pop_front() {
            if name == ".." {
                reached.pop();
                continue;
            }
            reached.push(name);
            let Some(below) = reached.strip_prefix(base.as_slice()).filter(|below| !below.is_empty()) else {
                // Components outside the directory are not read.
                continue;
            };
            let target = match self.read_link(below.iter().collect::<PathBuf>()) {
                Ok(target) => target,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => continue, // not a link
                Err(error) => return Err(LinkError::Nowhere(error)),
            };
            links += 1;
            if links > MAX_LINKS {
                return Err(LinkError::Loop);
            }
            reached.pop();
            if target.is_absolute() {
                reached.clear();
            }
            for name in path_names(&target).collect::<Vec<_>>().into_iter().rev() {
                coming.push_front(name);
            }
        }
        reached.strip_prefix(base.as_slice()).map(|below| below.iter().collect()).ok_or(LinkError::Outside)
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
