//! Finds the folder of a checkout that is the site, and removes files that must not be published.
//!
//! The user of the build may write to the checkout, and a process of it may have outlived the build. So the folder is
//! opened once, and everything below it is listed and removed through descriptors: a name that becomes a link between
//! the two leads to nothing outside.

// Other users may write here, so a path may lead elsewhere at its next use. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::io;
use std::path::{Component, Path, PathBuf};

use docwharf_base::directory::{Directory, DirectoryEntry, EntryKind, SymlinkError};
use docwharf_base::error_chain::QuotedName;

use super::super::JobContext;
use super::GitError;

/// Maximum number of removed links that are logged one by one.
const MAX_LOGGED_LINKS: u64 = 20;
/// Bytes of the longest path that Linux accepts, including its NUL (`PATH_MAX`). A longer one can be opened only
/// component by component, which takes ever longer with the depth of the tree.
const MAX_PATH_BYTES: usize = 4096;

/// Opens the folder of the checkout that is the site. The path of the result has no links.
pub(super) fn open(checkout: &Path, output: Option<&Path>) -> Result<Directory, GitError> {
    let opened = Directory::open_no_follow(checkout).map_err(GitError::io_error("open", checkout))?;
    let Some(output) = output else { return Ok(opened) };
    let fail = |reason| GitError::Output { output: output.to_owned(), reason };
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !output.components().all(is_inside) {
        return Err(fail("the path leads out of the checkout"));
    }
    let site = opened.resolve_links(output).map_err(|error| match error {
        SymlinkError::Outside => fail("a link in the path leads out of the checkout"),
        SymlinkError::Loop => fail("the links in the path form a loop"),
        SymlinkError::Unreadable(error) if super::process::is_removed_error(&error) => fail("it does not exist"),
        SymlinkError::Unreadable(error) => GitError::io_error("read the metadata of", &checkout.join(output))(error),
    })?;
    opened.open_directory(&site).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => fail("it is not a folder"),
        _ => GitError::io_error("open", &checkout.join(&site))(error),
    })
}

/// Removes symbolic links that lead out of the site, and every file or folder with the name `.git`. Users with push
/// access choose the targets of links, and readers must not see files of this machine.
pub(super) fn remove_unpublishable(site: &Directory, context: &JobContext) -> Result<(), GitError> {
    let mut removal = UnpublishableRemoval { site, context, removed_links: 0, folders: vec![PathBuf::new()] };
    while let Some(path) = removal.folders.pop() {
        let folder = open_below(site, &path)?;
        let listed = list(&folder)?;
        removal.remove_from(&folder, &path, &listed)?;
    }
    if removal.removed_links > MAX_LOGGED_LINKS {
        context.log_line(format!("{} more links are left out", removal.removed_links - MAX_LOGGED_LINKS));
    }
    Ok(())
}

fn open_below(site: &Directory, path: &Path) -> Result<Directory, GitError> {
    let is_short = path.as_os_str().len() < MAX_PATH_BYTES;
    let opened = if is_short { site.open_directory(path) } else { Err(rustix::io::Errno::NAMETOOLONG.into()) };
    opened.map_err(GitError::io_error("read", &site.path().join(path)))
}

fn list(folder: &Directory) -> Result<Vec<DirectoryEntry>, GitError> {
    let entries = folder.entries().and_then(Iterator::collect);
    entries.map_err(GitError::io_error("read", folder.path()))
}

/// State of the removal of files that must not be published.
struct UnpublishableRemoval<'a> {
    site: &'a Directory,
    context: &'a JobContext,
    /// The number of removed links.
    removed_links: u64,
    /// Folders that are still to be read, as paths below the site.
    folders: Vec<PathBuf>,
}

impl UnpublishableRemoval<'_> {
    /// Removes listed entries from `folder`, which is `path` below the site, and adds the remaining folders to
    /// `folders`.
    fn remove_from(&mut self, folder: &Directory, path: &Path, listed: &[DirectoryEntry]) -> Result<(), GitError> {
        for DirectoryEntry { name, kind } in listed {
            let path = path.join(name);
            let failed = |error| GitError::io_error("remove", &self.site.path().join(&path))(error);
            if name == ".git" {
                folder.remove_all(name).map_err(failed)?;
            } else if *kind == EntryKind::Directory {
                self.folders.push(path);
            } else if *kind == EntryKind::Link && self.site.resolve_links(&path).is_err() {
                folder.remove_file(name).map_err(failed)?;
                self.log_removed_link(&path);
            }
        }
        Ok(())
    }

    fn log_removed_link(&mut self, path: &Path) {
        self.removed_links += 1;
        if self.removed_links <= MAX_LOGGED_LINKS {
            let name = QuotedName(path.as_os_str().as_encoded_bytes());
            self.context.log_line(format!(
                "{name} is left out: it is a link to a missing file, or a link that leads out of the site"
            ));
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

    // Regression: an origin, as root, removed `.git` and links of a checkout by path, where the user of a build that
    // outlived its end could replace a folder with a link.
    #[test]
    fn removal_does_not_follow_a_folder_that_is_replaced_with_a_symlink_during_the_walk() {
        let (_dir, path, another) = site_and_another();
        let (site, context) = (open(&path, None).unwrap(), JobContext::default());
        let mut removal =
            UnpublishableRemoval { site: &site, context: &context, removed_links: 0, folders: Vec::new() };
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
        remove_unpublishable(&site, &context).unwrap();
        assert!(is_whole(&another));
        assert!(!path.with_file_name("moved").join("was/b/.git").exists());
        assert!(!path.with_file_name("moved").join("a").is_symlink(), "it leads out of the site");
    }

    #[test]
    fn a_git_folder_replaced_with_a_symlink_is_unlinked_without_touching_its_target() {
        let (_dir, path, another) = site_and_another();
        let (site, context) = (open(&path, None).unwrap(), JobContext::default());
        let mut removal =
            UnpublishableRemoval { site: &site, context: &context, removed_links: 0, folders: Vec::new() };
        let a = open_below(&site, Path::new("a")).unwrap();
        let listed = list(&a).unwrap();
        fs::rename(path.join("a/.git"), path.join("a/was")).unwrap();
        symlink(&another, path.join("a/.git")).unwrap();
        removal.remove_from(&a, Path::new("a"), &listed).unwrap();
        assert!(is_whole(&another) && !path.join("a/.git").is_symlink());
    }

    #[test]
    fn the_first_links_that_are_left_out_are_named_and_the_others_counted() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..25 {
            symlink("/etc/passwd", dir.path().join(format!("link{n}"))).unwrap();
        }
        let (site, context) = (open(&dir.path().canonicalize().unwrap(), None).unwrap(), JobContext::default());
        remove_unpublishable(&site, &context).unwrap();
        let log = context.log();
        assert_eq!((log.len(), log[20].as_str()), (21, "5 more links are left out"));
        assert!(log[..20].iter().all(|line| line.starts_with("\"link") && line.contains("is left out")), "{log:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
