//! Symbolic links of a source directory that stay inside it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::Directory;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// Why a path of a source directory leads to nothing in it.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// To something that is not below the directory.
    #[error("it leads outside")]
    Outside,
    /// To itself, or along more than 40 links.
    #[error("it leads round in a loop")]
    Loop,
    /// To nothing.
    #[error("it leads nowhere")]
    Nowhere(#[source] io::Error),
}

impl Directory {
    /// Where a path below this directory leads once every symbolic link in it is followed, as a path below this directory
    /// without links; empty for the directory itself.
    ///
    /// The answer holds for an instant only. That does no harm: opening it follows no links, so a link that is put there
    /// afterwards makes opening fail.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<PathBuf, LinkError> {
        let base: Vec<OsString> = names(&self.path).collect();
        // From the root of the file system, because a link may leave the directory and come back to it.
        let mut reached = base.clone();
        let mut coming: VecDeque<OsString> = names(path.as_ref()).collect();
        let mut links = 0;
        while let Some(name) = coming.pop_front() {
            if name == ".." {
                reached.pop();
                continue;
            }
            reached.push(name);
            let Some(below) = reached.strip_prefix(base.as_slice()).filter(|below| !below.is_empty()) else {
                // What lies outside is not looked at.
                continue;
            };
            let target = match self.read_link(below.iter().collect::<PathBuf>()) {
                Ok(target) => target,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => continue, // no link
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
            for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                coming.push_front(name);
            }
        }
        reached.strip_prefix(base.as_slice()).map(|below| below.iter().collect()).ok_or(LinkError::Outside)
    }
}

/// The components of a path, `..` among them.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    })
}
