//! The inbox: a folder into which people and scripts drop bundles. A file is imported when it has not changed for
//! [`QUIET_PERIOD`], and then moved to `accepted/`, or to `rejected/` with the reason beside it. A truncated file gets
//! a minute: it may still be copied.
//!
//! Other users may write to the inbox, so nothing in it is reached by path. The folder and its two subfolders are
//! opened once; a file is opened without following links and without waiting for a named pipe, and that open file is
//! sealed. No file in the two subfolders is overwritten, whichever user owns them.

// Other users may write to the inbox, so a path may lead to another file when it is used. See
// `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use docwharf_base::directory::{Directory, EntryKind, FileAccess, FileId, FileRequirements};
use docwharf_base::error_chain::error_message;

/// Time without a change after which a file counts as complete.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// Time without a change after which a truncated file is refused: a copy over a slow line may pause.
const TRUNCATED_GRACE: Duration = Duration::from_mins(1);
/// Upper bound of the files that are handled at a time; others wait until these have been moved.
const MAX_FILES: usize = 10_000;
/// Upper bound of the names that are tried for a file whose name exists in the target folder.
const MAX_NAMES: usize = 10_000;

const ACCEPTED: &str = "accepted";
const REJECTED: &str = "rejected";

/// The identity, size and modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileFingerprint {
    id: FileId,
    size: u64,
    modified: Option<SystemTime>,
}

impl FileFingerprint {
    fn from_metadata(metadata: &Metadata) -> FileFingerprint {
        FileFingerprint {
            id: FileId::from_metadata(metadata),
            size: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

/// The inbox folder and the state of its files.
#[derive(Debug)]
pub struct BundleInbox {
    folder: Directory,
    /// The files that the last scan found, except the unmovable ones, and since when they have not changed.
    candidates: HashMap<OsString, (FileFingerprint, Instant)>,
    /// Files that could not be moved away: they are not imported again until they change.
    unmovable: HashMap<OsString, FileFingerprint>,
    /// Files that were truncated when they were imported.
    truncated: HashMap<OsString, FileFingerprint>,
    /// Entries that are never imported and have been logged.
    warned: HashSet<OsString>,
}

/// The result of a scan of the inbox.
#[derive(Debug, Default)]
pub struct InboxScan {
    /// Complete files, oldest first.
    pub ready: Vec<InboxFile>,
    /// Whether there are other files, which may still be written to.
    pub growing: bool,
}

/// A file in the inbox.
#[derive(Debug, Clone)]
pub struct InboxFile {
    /// Path of the file, for messages and receipts.
    pub path: PathBuf,
    name: OsString,
    folder: Directory,
    fingerprint: FileFingerprint,
}

impl PartialEq for InboxFile {
    fn eq(&self, other: &InboxFile) -> bool {
        (&self.path, self.fingerprint) == (&other.path, other.fingerprint)
    }
}

impl Eq for InboxFile {}

impl InboxFile {
    /// Opens the file. It is an error if the file has been replaced or changed since the scan, or if it has a second
    /// name: a user could have linked a file that they may not read.
    pub fn open(&self) -> io::Result<File> {
        let file = self.folder.open_file(&self.name, FileAccess::Read, FileRequirements::SINGLE_NAME)?;
        if FileFingerprint::from_metadata(&file.metadata()?) == self.fingerprint {
            Ok(file)
        } else {
            Err(io::Error::other("it has changed since the scan"))
        }
    }
}

impl BundleInbox {
    /// Opens the inbox at `dir`, and creates it if it is missing.
    pub fn open(dir: &Path) -> io::Result<BundleInbox> {
        #[allow(clippy::disallowed_methods)] // the operator's path
        std::fs::create_dir_all(dir)?;
        let folder = Directory::open(dir)?;
        for name in [ACCEPTED, REJECTED] {
            match folder.ensure_directory(name, 0o755) {
                // Created now: on a full disk no new folder can be created, but a rename into this one is possible.
                Ok(_) => {}
                // For example a memory stick that is mounted read-only.
                Err(error) if is_unwritable(&error) => {
                    let (dir, why) = (dir.display(), error_message(&error));
                    tracing::warn!(
                        "cannot write to the inbox {dir}: {why}; bundles are imported from it, but stay there"
                    );
                    break;
                }
                Err(error) => return Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
            }
        }
        Ok(BundleInbox {
            folder,
            candidates: HashMap::new(),
            unmovable: HashMap::new(),
            truncated: HashMap::new(),
            warned: HashSet::new(),
        })
    }

    /// The inbox's path.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Scans the inbox at `now`.
    pub fn scan(&mut self, now: Instant) -> io::Result<InboxScan> {
        let mut candidates = HashMap::new();
        let mut ready: Vec<InboxFile> = Vec::new();
        let mut names = HashSet::new();
        for entry in self.folder.entries()? {
            let entry = entry?;
            if entry.kind == EntryKind::Directory {
                self.warn_of_folder(&entry.name);
                continue;
            }
            if entry.kind != EntryKind::File || is_unfinished(&entry.name) {
                continue;
            }
            let Ok(metadata) = self.folder.metadata_of(&entry.name) else { continue };
            if !metadata.is_file() {
                continue;
            }
            if metadata.nlink() > 1 {
                // A user may have linked a file that they may not read. It is not refused: a program may be about to
                // remove the other name.
                self.warn_once(&entry.name, "it has a second name (a hard link): copy it into the inbox instead");
                continue;
            }
            if names.len() >= MAX_FILES {
                break;
            }
            let (name, fingerprint) = (entry.name, FileFingerprint::from_metadata(&metadata));
            names.insert(name.clone());
            if self.unmovable.get(&name) == Some(&fingerprint) {
                continue;
            }
            let since = match self.candidates.get(&name) {
                Some((before, since)) if *before == fingerprint => *since,
                _ => now,
            };
            let quiet_period =
                if self.truncated.get(&name) == Some(&fingerprint) { TRUNCATED_GRACE } else { QUIET_PERIOD };
            if now.duration_since(since) >= quiet_period {
                let path = self.dir().join(&name);
                ready.push(InboxFile { path, name: name.clone(), folder: self.folder.clone(), fingerprint });
            }
            candidates.insert(name, (fingerprint, since));
        }
        self.unmovable.retain(|name, _| names.contains(name));
        self.truncated.retain(|name, _| names.contains(name));
        let is_any_growing = candidates.len() > ready.len();
        self.candidates = candidates;
        ready.sort_by(|a, b| (a.fingerprint.modified, &a.name).cmp(&(b.fingerprint.modified, &b.name)));
        Ok(InboxScan { ready, growing: is_any_growing })
    }

    /// Gives a truncated file `TRUNCATED_GRACE` to become complete. Returns false if it has had this time already and
    /// has not changed, or does not exist any more: the caller must not wait longer.
    pub fn grant_grace_period(&mut self, file: &InboxFile) -> bool {
        let Some((fingerprint, _)) = self.candidates.get(&file.name) else { return false };
        self.truncated.insert(file.name.clone(), *fingerprint) != Some(*fingerprint)
    }

    fn warn_of_folder(&mut self, name: &OsStr) {
        let is_ours = name == ACCEPTED || name == REJECTED;
        if !is_ours && !is_unfinished(name) {
            let path = self.dir().join(name);
            let message = format!(
                "the inbox accepts only archives; import this folder with `docwharf import {}`",
                path.display()
            );
            self.warn_once(name, &message);
        }
    }

    fn warn_once(&mut self, name: &OsStr, message: &str) {
        if self.warned.len() < MAX_FILES && self.warned.insert(name.to_owned()) {
            tracing::warn!("{}: {message}", self.dir().join(name).display());
        }
    }

    /// Whether a file has not changed since it was found complete: the refusal of a file that has changed is not valid.
    pub fn is_unchanged(&self, file: &InboxFile) -> bool {
        self.folder
            .metadata_of(&file.name)
            .is_ok_and(|metadata| FileFingerprint::from_metadata(&metadata) == file.fingerprint)
    }

    /// Moves an imported file away; `reason` is the reason of a refusal. A file that cannot be moved (a read-only
    /// medium, a full disk) stays, and is not imported again until it changes.
    pub fn move_away(&mut self, file: &InboxFile, reason: Option<&str>) -> io::Result<()> {
        let result = self.move_to_subfolder(&file.name, reason);
        if let (Err(_), Some((fingerprint, _))) = (&result, self.candidates.get(&file.name)) {
            self.unmovable.insert(file.name.clone(), *fingerprint);
        }
        self.candidates.remove(&file.name);
        result
    }

    fn move_to_subfolder(&self, name: &OsStr, reason: Option<&str>) -> io::Result<()> {
        let folder = if reason.is_some() { REJECTED } else { ACCEPTED };
        let folder = self.folder.ensure_directory(folder, 0o755)?;
        for n in 1..=MAX_NAMES {
            let target = if n == 1 { name.to_owned() } else { prefixed(n, name) };
            if folder.has(&target) {
                continue;
            }
            let reason_name = [target.as_bytes(), b".reason.txt"].concat();
            let reason_name = OsStr::from_bytes(&reason_name);
            let written = reason.map(|reason| write_reason(&folder, reason_name, reason));
            match self.folder.rename_no_replace(name, &folder, &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    if matches!(written, Some(Ok(()))) {
                        let _ = folder.remove_file(reason_name);
                    }
                    return Err(error);
                }
                Ok(()) => {
                    if let Some(Err(error)) = written {
                        // On a full disk the file itself can still be moved; log and history have the reason, too.
                        let reason_path = folder.path().join(reason_name);
                        tracing::warn!("cannot write {}: {}", reason_path.display(), error_message(&error));
                    }
                    return Ok(());
                }
            }
        }
        Err(io::Error::other(format!("there are {MAX_NAMES} files with that name; remove some")))
    }
}

fn prefixed(n: usize, name: &OsStr) -> OsString {
    let mut prefixed = OsString::from(format!("{n}-"));
    prefixed.push(name);
    prefixed
}

/// Writes the reason to a new file. An existing name is never written to: it may be a link to a file of this process.
fn write_reason(folder: &Directory, name: &OsStr, reason: &str) -> io::Result<()> {
    let mut file = folder.create_file(name, 0o644)?;
    let written = file.write_all(format!("{reason}\n").as_bytes());
    if written.is_err() {
        let _ = folder.remove_file(name);
    }
    written
}

/// Whether the error means that the file system cannot be written to.
fn is_unwritable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied | io::ErrorKind::StorageFull
    )
}

/// Whether programs use such a name for a file that they rename when it is complete.
fn is_unfinished(name: &OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    name.starts_with('.') || ["part", "partial", "tmp", "crdownload", "filepart", "download"].contains(&extension)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests;
