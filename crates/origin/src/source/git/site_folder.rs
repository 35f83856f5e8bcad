//! Finds the folder of a checkout that is the site, and removes what must not be published.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::super::JobContext;
use super::GitError;

/// Maximum number of removed links that are logged one by one.
const NAMED: u64 = 20;

/// Returns the folder of the checkout that is the site.
pub(super) fn output(checkout: &Path, output: Option<&Path>) -> Result<PathBuf, GitError> {
    let Some(output) = output else { return Ok(checkout.to_owned()) };
    let fail = |why| GitError::Output { output: output.to_owned(), why };
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !output.components().all(is_inside) {
        return Err(fail("this name leads out of the checkout"));
    }
    let site = match checkout.join(output).canonicalize() {
        Err(error) if super::process::is_gone(&error) => return Err(fail("there is nothing of that name")),
        other => other.map_err(GitError::io("look at", &checkout.join(output)))?,
    };
    if !site.starts_with(checkout) {
        return Err(fail("a link there leads out of the checkout"));
    }
    if !site.is_dir() {
        return Err(fail("it is no folder"));
    }
    Ok(site)
}

/// Removes symbolic links that lead out of the site, and everything that is called `.git`. Users with push access
/// choose the targets of links, and readers must not see files of this machine.
pub(super) fn remove_unpublishable(site: &Path, watch: &JobContext) -> Result<(), GitError> {
    let mut folders = vec![site.to_owned()];
    let mut left_out: u64 = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(GitError::io("read", &folder))? {
            let entry = entry.map_err(GitError::io("read", &folder))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(GitError::io("look at", &path))?;
            if entry.file_name() == ".git" {
                let removed = if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(GitError::io("remove", &path))?;
            } else if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() && !path.canonicalize().is_ok_and(|target| target.starts_with(site)) {
                fs::remove_file(&path).map_err(GitError::io("remove", &path))?;
                left_out += 1;
                if left_out <= NAMED {
                    let name = path.strip_prefix(site).unwrap_or(&path).as_os_str().as_encoded_bytes();
                    let name = docwharf_base::error_chain::QuotedName(name);
                    watch.log_line(format!("{name} is left out: it is a link that leads nowhere, or out of the site"));
                }
            }
        }
    }
    if left_out > NAMED {
        watch.log_line(format!("{} more links are left out", left_out - NAMED));
    }
    Ok(())
}
