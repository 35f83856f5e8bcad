//! Checks permissions path by path. Each path is walked from the root, and the first component that blocks it is named.

use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;

use crate::config::checked::Config;
use crate::config::inputs::ConfigInputs;
use docwharf_agent::analytics::key_file::AnalyticsKeyFile;
use docwharf_agent::sync::BundleLocation;

use super::check::{CheckStatus, DoctorCheck};
use super::checked_user::CheckedUser;
use super::disk;

const NAME: &str = "permissions";
/// Upper bound of the files of the inbox that are checked.
const MAX_INBOX_FILES: usize = 1_000;

/// The access that is needed to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathUse {
    /// Read a file.
    Read,
    /// Change a file.
    ReadWrite,
    /// Read the files in a folder.
    ReadFolder,
    /// Make, rename and remove files in a folder.
    WriteFolder,
}

pub(super) fn check(
    root: Option<&Path>,
    config_inputs: &ConfigInputs,
    config: Option<&Config>,
    user: &CheckedUser,
) -> Vec<DoctorCheck> {
    let paths = paths(root, config_inputs, config, user);
    let total = paths.len() as u64;
    let wrong: Vec<DoctorCheck> =
        paths.into_iter().filter_map(|(path, path_use)| find_blocked(NAME, &path, path_use, user)).collect();
    if wrong.is_empty() {
        let paths = docwharf_base::model::units::format_count(total, "path");
        return vec![DoctorCheck::ok(NAME, format!("{paths} can be used as {}", user.name()))];
    }
    wrong
}

/// Checks the inbox folder.
pub(super) fn check_inbox(config: &Config, user: &CheckedUser) -> Option<DoctorCheck> {
    const NAME: &str = "inbox";
    let path = config.inbox.as_ref()?;
    if let Some(wrong) = find_unreadable_file(NAME, path, user) {
        return Some(wrong);
    }
    let Some(wrong) = find_blocked(NAME, path, PathUse::WriteFolder, user) else {
        let note = if path.exists() { "" } else { ", which is created when docwharf runs" };
        return Some(DoctorCheck::ok(
            NAME,
            format!("{}{note}: {} can move files out of it", path.display(), user.name()),
        ));
    };
    if !path.is_dir() || find_blocked(NAME, path, PathUse::ReadFolder, user).is_some() {
        return Some(wrong);
    }
    // For example a USB stick that is mounted read-only.
    let found = format!("{}; bundles are imported from it, but stay there", wrong.found);
    let advice = wrong.advice.map(|advice| format!("nothing to do if they may stay there, otherwise: {advice}"));
    Some(DoctorCheck { status: CheckStatus::Warning, found, advice, ..wrong })
}

/// Finds a file in the inbox that cannot be read: its bundle would never be served.
fn find_unreadable_file(name: &'static str, inbox: &Path, user: &CheckedUser) -> Option<DoctorCheck> {
    let entries = std::fs::read_dir(inbox).into_iter().flatten().flatten().take(MAX_INBOX_FILES);
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| entry.path()).find_map(|path| find_blocked(name, &path, PathUse::Read, user))
}

fn paths(
    root: Option<&Path>,
    config_inputs: &ConfigInputs,
    config: Option<&Config>,
    user: &CheckedUser,
) -> Vec<(PathBuf, PathUse)> {
    let mut paths = Vec::new();
    let (file, named) = config_inputs.file();
    if named || file.exists() {
        paths.push((file, PathUse::Read));
    }
    if let Some(root) = root {
        paths.push((root.to_owned(), PathUse::WriteFolder));
        let inside =
            ["versions", "receipts", "staging", "downloads"].map(|name| (root.join(name), PathUse::WriteFolder));
        let files =
            ["lock", "state.json", "history.jsonl", "suspect"].map(|name| (root.join(name), PathUse::ReadWrite));
        paths.extend(inside.into_iter().chain(files).filter(|(path, _)| path.exists()));
    }
    let Some(config) = config else { return paths };
    let sync_settings = &config.sync_settings;
    paths.extend(config.publish.iter().map(|publish| (publish.directory.clone(), PathUse::WriteFolder)));
    let key = sync_settings.api.as_ref().and_then(|api| api.api_key.file());
    let pair = config.tls.iter().flat_map(|tls| [&tls.files.certificate, &tls.files.key]);
    // A missing file is reported by the check that reads it.
    paths.extend(pair.filter(|path| path.exists()).map(|path| (path.clone(), PathUse::Read)));
    paths.extend(config.search.synonyms.file.iter().map(|path| (path.clone(), PathUse::Read)));
    paths.extend(config.analytics.bots.file.iter().map(|path| (path.clone(), PathUse::Read)));
    let analytics_keys = config.analytics.key_file.as_ref().map(AnalyticsKeyFile::path);
    paths.extend(analytics_keys.filter(|path| path.exists()).map(|path| (path.to_owned(), PathUse::Read)));
    let endpoint_key = config.assistant.ask.as_ref().and_then(|ask| ask.key_file.as_ref());
    paths.extend(endpoint_key.filter(|path| path.exists()).map(|path| (path.clone(), PathUse::Read)));
    if let Some(file) = config.log.as_ref().and_then(|log| log.file.as_ref()) {
        let folder = file.parent().map(Path::to_owned);
        paths.extend(if file.exists() {
            Some((file.clone(), PathUse::ReadWrite))
        } else {
            folder.map(|f| (f, PathUse::WriteFolder))
        });
    }
    let link_file = sync_settings.bundle_url_file.as_ref();
    paths.extend(link_file.filter(|path| path.exists()).map(|path| (path.clone(), PathUse::Read)));
    let bundle = match &sync_settings.bundle {
        Some(BundleLocation::File(path)) => Some(path),
        _ => None,
    };
    paths.extend(
        key.into_iter().chain(&sync_settings.network.ca_file).chain(bundle).map(|path| (path.clone(), PathUse::Read)),
    );
    if let Some(service) = user.service() {
        // systemd reads credentials itself.
        paths.retain(|(path, _)| !service.unit.passes_credential(path));
    }
    if !user.is_process() {
        // The key has a separate check.
        paths.retain(|(path, _)| Some(path) != key);
    }
    paths
}

/// Returns what blocks a path, as a check called `name`; `None` if nothing does. A missing folder will be created in
/// the nearest one that exists; a missing file is left to other checks.
pub(super) fn find_blocked(
    name: &'static str,
    path: &Path,
    path_use: PathUse,
    user: &CheckedUser,
) -> Option<DoctorCheck> {
    if let Some(service) = user.service() {
        // systemd creates such a folder when it starts the service, and makes the user the owner of its content.
        if service.unit.owns(path) {
            return None;
        }
        let barrier = match path_use {
            PathUse::Read | PathUse::ReadFolder => service.read_barrier(name, path),
            PathUse::ReadWrite | PathUse::WriteFolder => service.write_barrier(name, path),
        };
        if barrier.is_some() {
            return barrier;
        }
    }
    let mut ancestors: Vec<&Path> = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    ancestors.reverse();
    let blocked = |place: &Path, needed, error| BlockedPath { name, path, place, needed, error }.into_check(user);
    for folder in ancestors {
        match user.access(folder, Access::EXEC_OK) {
            Ok(()) => {}
            Err(Errno::NOENT) => break,
            Err(_) if folder.is_file() => return Some(no_folder(name, path, folder)),
            Err(error) => return Some(blocked(folder, Access::EXEC_OK, error)),
        }
    }
    let (place, needed) = match path_use {
        PathUse::Read => (path.to_owned(), Access::READ_OK),
        PathUse::ReadWrite => (path.to_owned(), Access::READ_OK | Access::WRITE_OK),
        PathUse::ReadFolder => (path.to_owned(), Access::READ_OK | Access::EXEC_OK),
        PathUse::WriteFolder => (disk::nearest_existing(path), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK),
    };
    if path_use == PathUse::WriteFolder && !place.is_dir() {
        return Some(no_folder(name, path, &place));
    }
    match user.access(&place, needed) {
        Ok(()) | Err(Errno::NOENT) => None,
        Err(error) => Some(blocked(&place, needed, error)),
    }
}

fn no_folder(name: &'static str, path: &Path, place: &Path) -> DoctorCheck {
    let found = format!("{}: {} is not a folder", path.display(), place.display());
    DoctorCheck::error(name, found, "name another folder, or move that file away")
}

/// A path that cannot be used, with the component that blocks it.
struct BlockedPath<'a> {
    name: &'static str,
    path: &'a Path,
    place: &'a Path,
    needed: Access,
    error: Errno,
}

impl BlockedPath<'_> {
    fn into_check(self, user: &CheckedUser) -> DoctorCheck {
        let BlockedPath { name, path, place, needed, error } = self;
        let missing_rights: Vec<&str> = [(Access::READ_OK, "r"), (Access::WRITE_OK, "w"), (Access::EXEC_OK, "x")]
            .into_iter()
            .filter(|(bit, _)| needed.contains(*bit))
            .filter(|(bit, _)| user.access(place, *bit).is_err())
            .map(|(_, letter)| letter)
            .collect();
        let missing_rights = missing_rights.join("");
        let prefix = if path == place { String::new() } else { format!("{}: ", path.display()) };
        if error == Errno::ROFS {
            let found = format!("{prefix}{} is on a file system that is mounted read-only", place.display());
            return DoctorCheck::error(name, found, "mount it so that it can be written to, or use another folder");
        }
        let found = format!("{prefix}{} lacks {missing_rights} on {}", user.name(), place.display());
        // The advice is not to open up the parent: all programs may share it, such as /var/lib.
        let is_missing = needed.contains(Access::WRITE_OK) && path != place;
        let advice = if is_missing { user.advise_create(path) } else { user.advise_grant(place, &missing_rights) };
        DoctorCheck::error(name, found, advice)
    }
}
