//! The inbox: a folder into which people and scripts drop bundles. A file is imported when it has not changed for
//! [`QUIET_PERIOD`], and then moved to `accepted/`, or to `rejected/` with the reason beside it. A truncated file gets
//! a minute: it may still be copied.
//!
//! Other users may write to the inbox, so nothing in it is reached by path. The folder and its two subfolders are
//! opened once; a file is opened without following links and without waiting for a named pipe, and that open file is
//! sealed. No file in the two subfolders is overwritten, whichever user owns them.
//!
//! A file that cannot be moved away (on a read-only medium) is not imported again before it changes. The store keeps
//! the digests of those that were accepted, so that a restart does not import them again: it tries to move them once
//! more.

// Other users may write to the inbox, so a path may lead to another file when it is used. See
// `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use docwharf_base::directory::{Directory, EntryKind, FileAccess, FileId, FileRequirements};
use docwharf_base::error_chain::error_message;
use docwharf_base::model::digest::Digest;

use crate::store::MAX_UNMOVED_FILES;

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
    /// The files that the last scan found, except those that were handled, and since when they have not changed.
    candidates: HashMap<OsString, (FileFingerprint, Instant)>,
    /// Files that could not be moved away, by [`InboxFile::digest`]: they are not imported again until they change.
    handled: HashSet<Digest>,
    /// Those of them that an earlier process could not move away, and this one has not tried to move.
    unmoved: HashSet<Digest>,
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
    /// The digests of files that an earlier process has accepted, and that are moved away now.
    pub moved: Vec<Digest>,
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

    /// Returns a digest of what identifies the file, over restarts and mounts: name, size and modification time.
    pub fn digest(&self) -> Digest {
        digest_of(&self.name, &self.fingerprint)
    }
}

fn digest_of(name: &OsStr, fingerprint: &FileFingerprint) -> Digest {
    let since_epoch = fingerprint.modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let modified = since_epoch.unwrap_or_default().as_nanos().to_le_bytes();
    Digest::compute(&[&fingerprint.size.to_le_bytes()[..], &modified, name.as_bytes()].concat())
}

impl BundleInbox {
    /// Opens the inbox at `dir`, and creates it if it is missing. `unmoved` are the digests of accepted files that
    /// could not be moved away before.
    pub fn open(dir: &Path, unmoved: impl IntoIterator<Item = Digest>) -> io::Result<BundleInbox> {
        #[allow(clippy::disallowed_methods)] // the operator's path
        std::fs::create_dir_all(dir)?;
        let folder = Directory::open(dir)?;
        for name in [ACCEPTED, REJECTED] {
            match ensure_subfolder(&folder, name) {
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
        let unmoved: HashSet<Digest> = unmoved.into_iter().collect();
        Ok(BundleInbox {
            folder,
            candidates: HashMap::new(),
            handled: unmoved.clone(),
            unmoved,
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
        let mut handled = HashSet::new();
        let mut moved = Vec::new();
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
            let digest = digest_of(&name, &fingerprint);
            if self.handled.contains(&digest) {
                handled.insert(digest);
                if self.retry_move(&name, &digest) {
                    moved.push(digest);
                }
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
        self.truncated.retain(|name, _| names.contains(name));
        if self.handled.len() > MAX_UNMOVED_FILES {
            self.handled = handled;
        }
        let is_any_growing = candidates.len() > ready.len();
        self.candidates = candidates;
        ready.sort_by(|a, b| (a.fingerprint.modified, &a.name).cmp(&(b.fingerprint.modified, &b.name)));
        Ok(InboxScan { ready, growing: is_any_growing, moved })
    }

    /// Returns whether the last scan has found the file at this path, and it was not handled since.
    pub fn has_candidate(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.candidates.contains_key(name))
    }

    /// Gives a truncated file `TRUNCATED_GRACE` to become complete. Returns false if it has had this time already and
    /// has not changed, or does not exist any more: the caller must not wait longer.
    pub fn grant_grace_period(&mut self, file: &InboxFile) -> bool {
        let Some((fingerprint, _)) = self.candidates.get(&file.name) else { return false };
        self.truncated.insert(file.name.clone(), *fingerprint) != Some(*fingerprint)
    }

    /// Tries once to move a file away that an earlier process has accepted. Returns whether it is moved.
    fn retry_move(&mut self, name: &OsStr, digest: &Digest) -> bool {
        if !self.unmoved.remove(digest) {
            return false;
        }
        let result = self.move_to_subfolder(name, None);
        if let Err(error) = &result {
            let why = error_message(error);
            let message =
                format!("it was imported before and cannot be moved away: {why}; it is ignored until it changes");
            self.warn_once(name, &message);
        }
        result.is_ok()
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
        if result.is_err() {
            self.handled.insert(file.digest());
        }
        self.candidates.remove(&file.name);
        result
    }

    fn move_to_subfolder(&self, name: &OsStr, reason: Option<&str>) -> io::Result<()> {
        let folder = if reason.is_some() { REJECTED } else { ACCEPTED };
        let folder = ensure_subfolder(&self.folder, folder)?;
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

/// Opens a subfolder of the inbox, and creates it if it is missing: with the permissions of the inbox, whatever the
/// umask, so that its users see what became of their files.
fn ensure_subfolder(inbox: &Directory, name: &str) -> io::Result<Directory> {
    match inbox.create_directory(name, 0o700) {
        Ok(folder) => {
            // Without the bits set-user-ID, set-group-ID and sticky: a unit with RestrictSUIDSGID= refuses them.
            folder.set_mode(inbox.metadata()?.mode() & 0o777)?;
            Ok(folder)
        }
        // A full or read-only disk refuses to create a folder that exists with another error than `AlreadyExists`.
        Err(creating) => inbox.open_directory(name).map_err(|opening| match opening.kind() {
            io::ErrorKind::NotFound => creating,
            _ => opening,
        }),
    }
}

fn prefixed(n: usize, name: &OsStr) -> OsString {
    let mut prefixed = OsString::from(format!("{n}-"));
    prefixed.push(name);
    prefixed
}

/// Writes the reason to a new file. An existing name is never written to: it may be a link to a file of this process.
fn write_reason(folder: &Directory, name: &OsStr, reason: &str) -> io::Result<()> {
    let mut file = folder.create_file(name, 0o600)?;
    // The folder decides who reads it, not the umask.
    let written = file
        .set_permissions(Permissions::from_mode(0o644))
        .and_then(|()| file.write_all(format!("{reason}\n").as_bytes()));
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
