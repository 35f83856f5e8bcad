//! Who may do what, path by path: each is walked from the root, and the first part of it that is in the way is named.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::config::checked::{Config, Sources};
use crate::sync::Bundle;

use super::{Check, disk};

const NAME: &str = "permissions";

/// What is to be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Read a file.
    Read,
    /// Change a file.
    Change,
    /// Make, rename and remove files in a folder.
    Fill,
}

pub(super) fn check(root: Option<&Path>, sources: &Sources, config: Option<&Config>) -> Vec<Check> {
    let paths = paths(root, sources, config);
    let total = paths.len() as u64;
    let wrong: Vec<Check> = paths.into_iter().filter_map(|(path, wanted)| walk(&path, wanted)).collect();
    if wrong.is_empty() {
        let paths = crate::model::units::count(total, "path");
        return vec![Check::ok(NAME, format!("{paths} can be used as uid {}", uid()))];
    }
    wrong
}

fn paths(root: Option<&Path>, sources: &Sources, config: Option<&Config>) -> Vec<(PathBuf, Use)> {
    let mut paths = Vec::new();
    let (file, named) = sources.file();
    if named || file.exists() {
        paths.push((file, Use::Read));
    }
    if let Some(root) = root {
        paths.push((root.to_owned(), Use::Fill));
        let inside = ["versions", "receipts", "staging", "downloads"].map(|name| (root.join(name), Use::Fill));
        let files = ["lock", "state.json", "history.jsonl", "suspect"].map(|name| (root.join(name), Use::Change));
        paths.extend(inside.into_iter().chain(files).filter(|(path, _)| path.exists()));
    }
    let Some(config) = config else { return paths };
    let intent = &config.intent;
    paths.extend(config.inbox.iter().map(|path| (path.clone(), Use::Fill)));
    paths.extend(config.publish.iter().map(|publish| (publish.directory.clone(), Use::Fill)));
    let key = intent.api.as_ref().and_then(|api| api.key.file());
    let pair = config.tls.iter().flat_map(|tls| [&tls.files.certificate, &tls.files.key]);
    // One that is missing is told of by who reads it.
    paths.extend(pair.filter(|path| path.exists()).map(|path| (path.clone(), Use::Read)));
    if let Some(file) = config.log.as_ref().and_then(|log| log.file.as_ref()) {
        let folder = file.parent().map(Path::to_owned);
        paths.extend(if file.exists() { Some((file.clone(), Use::Change)) } else { folder.map(|f| (f, Use::Fill)) });
    }
    let bundle = match &intent.bundle {
        Some(Bundle::File(path)) => Some(path),
        _ => None,
    };
    paths.extend(key.into_iter().chain(&intent.network.ca_file).chain(bundle).map(|path| (path.clone(), Use::Read)));
    paths
}

/// What is in the way, if anything. A folder that is not there yet is made in the nearest one that is; a file that is not
/// there is the business of other checks.
fn walk(path: &Path, wanted: Use) -> Option<Check> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    above.reverse();
    for folder in above {
        match accessat(CWD, folder, Access::EXEC_OK, AtFlags::EACCESS) {
            Ok(()) => {}
            Err(Errno::NOENT) => break,
            Err(error) => return Some(blocked(path, folder, Access::EXEC_OK, error)),
        }
    }
    let (place, needed) = match wanted {
        Use::Read => (path.to_owned(), Access::READ_OK),
        Use::Change => (path.to_owned(), Access::READ_OK | Access::WRITE_OK),
        Use::Fill => (disk::existing(path), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK),
    };
    if wanted == Use::Fill && !place.is_dir() {
        let found = format!("{}: {} is no folder", path.display(), place.display());
        return Some(Check::error(NAME, found, "name another place, or move that file away"));
    }
    match accessat(CWD, &place, needed, AtFlags::EACCESS) {
        Ok(()) | Err(Errno::NOENT) => None,
        Err(error) => Some(blocked(path, &place, needed, error)),
    }
}

fn blocked(path: &Path, place: &Path, needed: Access, error: Errno) -> Check {
    let may: Vec<&str> = [(Access::READ_OK, "r"), (Access::WRITE_OK, "w"), (Access::EXEC_OK, "x")]
        .into_iter()
        .filter(|(bit, _)| needed.contains(*bit))
        .filter(|(bit, _)| accessat(CWD, place, *bit, AtFlags::EACCESS).is_err())
        .map(|(_, letter)| letter)
        .collect();
    let (may, uid) = (may.join(""), uid());
    let whose = if path == place { String::new() } else { format!("{}: ", path.display()) };
    if error == Errno::ROFS {
        let found = format!("{whose}{} is on a file system that is mounted read-only", place.display());
        return Check::error(NAME, found, "mount it so that it can be written to, or use another place");
    }
    Check::error(
        NAME,
        format!("{whose}uid {uid} lacks {may} on {}", place.display()),
        format!("chown {uid} {0}, or chmod it so that uid {uid} has {may}", place.display()),
    )
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
