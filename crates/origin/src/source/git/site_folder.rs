//! Finds the folder of a checkout that is the site, and removes what must not be published.
//!
//! The user of the build may write to the checkout, and a process of it may have outlived the build. So the folder is
//! opened once, and everything below it is listed and removed through descriptors: a name that becomes a link between
//! the two leads to nothing outside.

// Other users may write here, so a path may lead elsewhere at its next use. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::io;
use std::path::{Component, Path, PathBuf};

use docwharf_base::directory::{Directory, DirectoryEntry, EntryKind, LinkError};
use docwharf_base::error_chain::QuotedName;

use super::super::JobContext;
use super::GitError;

/// Maximum number of removed links that are logged one by one.
const NAMED: u64 = 20;
/// Bytes of the longest path that Linux accepts, including its NUL (`PATH_MAX`). A longer one can be opened only
/// component by component, which takes ever longer with the depth of the tree.
const MAX_PATH_BYTES: usize = 4096;

/// Opens the folder of the checkout that is the site. Its path has no links.
pub(super) fn open(checkout: &Path, output: Option<&Path>) -> Result<Directory, GitError> {
    let opened = Directory::open_unlinked(checkout).map_err(GitError::io("open", checkout))?;
    let Some(output) = output else { return Ok(opened) };
    let fail = |why| GitError::Output { output: output.to_owned(), why };
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !output.components().all(is_inside) {
        return Err(fail("this name leads out of the checkout"));
    }
    let site = opened.resolve(output).map_err(|error| match error {
        LinkError::Outside => fail("a link there leads out of the checkout"),
        LinkError::Loop => fail("links there lead round in a loop"),
        LinkError::Nowhere(error) if super::process::is_gone(&error) => fail("there is nothing of that name"),
        LinkError::Nowhere(error) => GitError::io("look at", &checkout.join(output))(error),
    })?;
    opened.directory(&site).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => fail("it is no folder"),
        _ => GitError::io("open", &checkout.join(&site))(error),
    })
}

/// Removes symbolic links that lead out of the site, and everything that is called `.git`. Users with push access
/// choose the targets of links, and readers must not see files of this machine.
pub(super) fn remove_unpublishable(site: &Directory, watch: &JobContext) -> Result<(), GitError> {
    let mut removal = UnpublishableRemoval { site, watch, left_out: 0, folders: vec![PathBuf::new()] };
    while let Some(path) = removal.folders.pop() {
        let folder = open_below(site, &path)?;
        let listed = list(&folder)?;
        removal.remove_from(&folder, &path, &listed)?;
    }
    if removal.left_out > NAMED {
        watch.log_line(format!("{} more links are left out", removal.left_out - NAMED));
    }
    Ok(())
}

fn open_below(site: &Directory, path: &Path) -> Result<Directory, GitError> {
    let is_short = path.as_os_str().len() < MAX_PATH_BYTES;
    let opened = if is_short { site.directory(path) } else { Err(rustix::io::Errno::NAMETOOLONG.into()) };
    opened.map_err(GitError::io("read", &site.path().join(path)))
}

fn list(folder: &Directory) -> Result<Vec<DirectoryEntry>, GitError> {
    let entries = folder.entries().and_then(Iterator::collect);
    entries.map_err(GitError::io("read", folder.path()))
}

/// The removal of what must not be published, under way.
struct UnpublishableRemoval<'a> {
    site: &'a Directory,
    watch: &'a JobContext,
    /// The number of removed links.
    left_out: u64,
    /// Folders that are still to be read, by their paths below the site.
    folders: Vec<PathBuf>,
}

impl UnpublishableRemoval<'_> {
    /// Removes listed entries from `folder`, which is `path` below the site, and notes the folders among the others.
    fn remove_from(&mut self, folder: &Directory, path: &Path, listed: &[DirectoryEntry]) -> Result<(), GitError> {
        for DirectoryEntry { name, kind } in listed {
            let path = path.join(name);
            let failed = |error| GitError::io("remove", &self.site.path().join(&path))(error);
            if name == ".git" {
                folder.remove_all(name).map_err(failed)?;
            } else if *kind == EntryKind::Directory {
                self.folders.push(path);
            } else if *kind == EntryKind::Link && self.site.resolve(&path).is_err() {
                folder.remove_file(name).map_err(failed)?;
                self.log_left_out(&path);
            }
        }
        Ok(())
    }

    fn log_left_out(&mut self, path: &Path) {
        self.left_out += 1;
        if self.left_out <= NAMED {
            let name = QuotedName(path.as_os_str().as_encoded_bytes());
            self.watch.log_line(format!("{name} is left out: it is a link that leads nowhere, or out of the site"));
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // folders that only these tests use
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A site with a folder `a`, and a folder beside the site that looks like it. In each of them a repository, a link
    /// that leads out, and a folder with the same.
    fn site_and_another() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (site, another) = (root.join("site"), root.join("another"));
        for folder in [site.join("a"), another.clone()] {
            for folder in [folder.clone(), folder.join("b")] {
                fs::create_dir_all(folder.join(".git")).unwrap();
                fs::write(folder.join(".git/config"), "x").unwrap();
                symlink("/etc/passwd", folder.join("link")).unwrap();
            }
        }
        (dir, site, another)
    }

    fn is_whole(folder: &Path) -> bool {
        [folder.to_owned(), folder.join("b")]
            .iter()
            .all(|folder| folder.join(".git/config").exists() && folder.join("link").is_symlink())
    }

    #[test]
    fn a_folder_that_becomes_a_link_after_it_was_listed_leads_to_nothing_that_is_removed() {
        let (_dir, path, another) = site_and_another();
        let (site, watch) = (open(&path, None).unwrap(), JobContext::default());
        let mut removal = UnpublishableRemoval { site: &site, watch: &watch, left_out: 0, folders: Vec::new() };
        let a = open_below(&site, Path::new("a")).unwrap();
        let listed = list(&a).unwrap();
        // The user of the build exchanges the folder that has been listed, and the site itself.
        fs::rename(path.join("a"), path.join("was")).unwrap();
        symlink(&another, path.join("a")).unwrap();
        removal.remove_from(&a, Path::new("a"), &listed).unwrap();
        assert!(is_whole(&another));
        assert!(!path.join("was/.git").exists() && !path.join("was/link").is_symlink());
        assert_eq!(removal.folders, [PathBuf::from("a/b")]);
        let below = open_below(&site, &removal.folders[0]).map(drop).unwrap_err();
        assert!(matches!(below, GitError::Io { doing: "read", .. }), "{below}");
        fs::rename(&path, path.with_file_name("moved")).unwrap();
        symlink(path.parent().unwrap(), &path).unwrap();
        remove_unpublishable(&site, &watch).unwrap();
        assert!(is_whole(&another));
        assert!(!path.with_file_name("moved").join("was/b/.git").exists());
        assert!(!path.with_file_name("moved").join("a").is_symlink(), "it leads out of the site");
    }

    #[test]
    fn a_listed_folder_that_becomes_a_link_is_removed_as_a_link() {
        let (_dir, path, another) = site_and_another();
        let (site, watch) = (open(&path, None).unwrap(), JobContext::default());
        let mut removal = UnpublishableRemoval { site: &site, watch: &watch, left_out: 0, folders: Vec::new() };
        let a = open_below(&site, Path::new("a")).unwrap();
        let listed = list(&a).unwrap();
        fs::rename(path.join("a/.git"), path.join("a/was")).unwrap();
        symlink(&another, path.join("a/.git")).unwrap();
        removal.remove_from(&a, Path::new("a"), &listed).unwrap();
        assert!(is_whole(&another) && !path.join("a/.git").is_symlink());
    }
}
