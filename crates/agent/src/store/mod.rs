//! The store: sealed versions, and the one record that names the version to serve.
//!
//! ```text
//! lock               flock: one writer; readers take no lock
//! state.json         the record (see `record`)
//! state.json.damaged the last record that could not be read
//! versions/<id>/     site.zip and index, 0440 (0444 where the file system has no such mode)
//! derived/<id>/      files computed from a version, and its search index in `search/`; may be deleted at any time
//! receipts/<id>/     one file per arrival
//! staging/           incoming versions (`<n>/`), copies of bundles to import, and versions that are being removed
//!                    (`<id>/`); emptied when a writer opens the store
//! downloads/         partial downloads, which are resumed
//! history.jsonl      each event: user, action, time
//! api/               when the API was called, and pages of an unfinished query
//! control.sock       commands, while a daemon has the store open
//! inbox-unmoved      files of the inbox that could not be moved out of it
//! suspect            versions that were found damaged
//! scrub.json         when versions were last verified, and whether a daemon is running
//! ```
//!
//! A version arrives by one rename of a directory whose files are already on disk. The receipt, the record and a line
//! of history follow, in this order. A crash in between leaves debris in `staging/`, or a version that no record names;
//! such a version is used when its content arrives again and pruned otherwise. An image never changes; an index is
//! replaced as a whole. The store knows nothing of ZIP or HTTP.

// Other users may write to the store, so a path may lead to another file when it is used. See
// `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

pub mod api_state;
pub mod derived;
mod disk_operations;
pub mod history;
pub mod incoming_version;
pub mod integrity;
mod json;
mod layout;
pub mod operations;
mod owner;
pub mod prune;
pub mod record;
mod removed_images;
mod replaced;
pub mod space;
mod sweep;
mod unmoved_files;
pub mod writer;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use docwharf_base::directory::{Directory, EntryKind};
use docwharf_base::durable::find_lock_holder;
use docwharf_base::model::units::format_size;
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::SealedFile;

pub use history::HistoryEvent;
pub use layout::{ANALYTICS_DATABASE, CONTROL, IMAGE, INDEX};
use record::{DecodeError, StoreRecord};
pub use unmoved_files::MAX_UNMOVED_FILES;

/// An error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The operation, as a verb: "read", "write", …
        doing: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error("the store {} is locked by {}: try again when it is done, or stop it", path.display(), describe_holder(*holder))]
    Locked {
        /// The store's directory.
        path: PathBuf,
        /// The process that holds the lock; `None` if it cannot be seen from here, as that of another container.
        holder: Option<u32>,
    },
    /// The record cannot be parsed, or its checksum is wrong.
    #[error("the record {} is damaged; the next sync or start makes it again from versions, receipts and history", path.display())]
    DamagedRecord {
        /// The record's path.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// A later version of docwharf has written the record.
    #[error("the record {} was written by a later docwharf (schemaVersion {found}; this one reads up to {}): use that docwharf or a later one for this store", path.display(), record::SCHEMA_VERSION)]
    LaterRecord {
        /// The record's path.
        path: PathBuf,
        /// The record's schema version.
        found: u32,
    },
    /// No version has this label or an id with this prefix.
    #[error("no version or label is called {0:?}, and 8 digits of an id are needed; `docwharf versions` lists them")]
    UnknownVersion(String),
    /// Several versions have an id with this prefix.
    #[error("{0:?} begins the ids of several versions; give more digits")]
    AmbiguousId(String),
    /// The file system has less free space than the operation needs, or than must stay free.
    #[error("no space in the store {}: {} needed, {} free{}; free some{}", path.display(), format_size(*.needed), format_size(*.free), describe_min_free(*.min_free), advise_min_free(*.min_free))]
    NoSpace {
        /// The store's directory.
        path: PathBuf,
        /// Bytes that are still to be written.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes that must stay free (`store.minFree`); 0 if it is not set.
        min_free: u64,
    },
    /// The bundle and the versions that must stay are larger than `store.maxBytes`.
    #[error("no space in the store {}: {} of the bundle and {} of versions that must stay are more than store.maxBytes ({}); raise store.maxBytes, or remove labels or a hold that are not needed", path.display(), format_size(*.needed), format_size(*.protected), format_size(*.max_bytes))]
    OverMaxBytes {
        /// The store's directory.
        path: PathBuf,
        /// Size of the bundle in bytes.
        needed: u64,
        /// Bytes of versions that cannot be pruned once the bundle is stored.
        protected: u64,
        /// `store.maxBytes`
        max_bytes: u64,
    },
    /// The bundle would fit, but removed versions are still being sent to readers.
    #[error("no space in the store {}: {} of removed versions are still being sent to readers, and with {} of the bundle and {} of versions that must stay that is more than store.maxBytes ({}); try again when they have been sent, or raise store.maxBytes", path.display(), format_size(*.mapped), format_size(*.needed), format_size(*.protected), format_size(*.max_bytes))]
    RemovedVersionsInUse {
        /// The store's directory.
        path: PathBuf,
        /// Size of the bundle in bytes.
        needed: u64,
        /// Bytes of versions that cannot be pruned once the bundle is stored.
        protected: u64,
        /// Bytes of removed versions that are still mapped.
        mapped: u64,
        /// `store.maxBytes`
        max_bytes: u64,
    },
    /// There is no previous version to roll back to.
    #[error("there is no previous version to roll back to; `docwharf versions` lists the versions")]
    NoPrevious,
}

impl StoreError {
    /// Wraps an I/O error: `doing` is a verb, `path` the file or directory of the operation.
    pub fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
        move |source| StoreError::Io { doing, path: path.to_owned(), source }
    }

    /// Returns the error for a folder whose lock another process holds.
    pub fn locked(folder: &Path) -> StoreError {
        StoreError::Locked { path: folder.to_owned(), holder: lock_holder(folder) }
    }
}

/// Returns the process that has locked the store at `root`, or another folder with a lock; `None` if there is none, or
/// if it cannot be seen from here.
pub fn lock_holder(root: &Path) -> Option<u32> {
    find_lock_holder(&root.join("lock"))
}

fn describe_holder(holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!("another docwharf, process {pid}"),
        None => "another docwharf, which may run in another container".to_owned(),
    }
}

/// The record of one arrival of a version.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// Time of the arrival, RFC 3339.
    pub time: String,
    /// The user or process that imported or fetched the bundle.
    #[serde(rename = "who")]
    pub author: String,
    /// The source, without a link's query.
    pub source: String,
    /// Format of the bundle: `zip`, `tar.gz`, …
    pub kind: String,
    /// SHA-256 of the archive; none for a folder.
    pub archive_sha256: Option<String>,
    /// Size of the archive in bytes.
    pub archive_bytes: Option<u64>,
    /// The label that the version got.
    pub label: Option<String>,
    /// The export job that made the bundle.
    #[serde(default)]
    pub job: Option<String>,
    /// The server's validator for the archive: its strong `ETag`, else its Last-Modified.
    #[serde(default)]
    pub validator: Option<String>,
    /// Size in bytes as it was sent.
    #[serde(default)]
    pub sent_bytes: Option<u64>,
    /// Whether a check of the source found the bundle; false if it was imported.
    // The wire name is older than the term "check"; it must not change.
    #[serde(default, rename = "looked")]
    pub found_by_check: bool,
}

#[cfg(test)]
impl Receipt {
    /// Creates a receipt with the time of the arrival (RFC 3339) and without any other fact.
    fn with_time(time: String) -> Receipt {
        Receipt {
            time,
            author: String::new(),
            source: String::new(),
            kind: String::new(),
            archive_sha256: None,
            archive_bytes: None,
            label: None,
            job: None,
            validator: None,
            sent_bytes: None,
            found_by_check: false,
        }
    }
}

/// A version in the store.
#[derive(Debug, Clone)]
pub struct StoredVersion {
    /// The version's id.
    pub id: VersionId,
    /// Size of the version's image in bytes.
    pub bytes: u64,
    /// The version's receipts, oldest first.
    pub receipts: Vec<Receipt>,
}

/// A store opened for reading; no lock is taken.
#[derive(Debug, Clone)]
pub struct VersionStore {
    root: PathBuf,
    /// The root directory, once it has been opened. In a store of another user, root works through this descriptor: the
    /// owner could redirect the path meanwhile.
    opened: Arc<OnceLock<Directory>>,
    /// The damaged versions that this process has found, kept in memory because the disk may refuse writes.
    damage_marks: Arc<integrity::DamageMarks>,
}

/// Upper bound of a record's size in bytes: a record has a few hundred bytes for each label.
const MAX_RECORD_BYTES: u64 = 64 << 20;
/// Upper bound of a receipt's size in bytes.
const MAX_RECEIPT_BYTES: u64 = 1 << 20;

impl VersionStore {
    /// Returns the store at `root`, which need not exist yet.
    pub fn at(root: &Path) -> VersionStore {
        VersionStore { root: root.to_owned(), opened: Arc::default(), damage_marks: Arc::default() }
    }

    /// The store's path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Opens the store's directory once, and returns it.
    pub fn directory(&self) -> io::Result<&Directory> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = Directory::open(&self.root)?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Opens a directory in the store and creates it if it is missing.
    pub(super) fn folder(&self, name: &str) -> Result<Directory, StoreError> {
        let opened = self.directory().and_then(|root| root.ensure_directory(name, 0o750));
        opened.map_err(StoreError::io("open", &self.root.join(name)))
    }

    /// Opens the image of a version for reading.
    pub fn image(&self, id: VersionId) -> io::Result<SealedFile> {
        SealedFile::open(self.directory()?, Path::new("versions").join(id.to_string()).join(IMAGE), id)
    }

    /// Opens the index of a version for reading.
    pub fn index(&self, id: VersionId) -> io::Result<SealedFile> {
        SealedFile::open(self.directory()?, Path::new("versions").join(id.to_string()).join(INDEX), id)
    }

    /// Removes the copy of a bundle directly in `staging/`; does nothing for a path elsewhere. The command that made
    /// the copy for the daemon may have ended. The file is opened through the store's descriptor: another user may have
    /// redirected the path.
    pub fn remove_staging_copy(&self, path: &Path) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
        if folder == self.root.join("staging") {
            let _ = self.folder("staging").map(|staging| staging.remove_file(name));
        }
    }

    /// Opens the directory that bundles are downloaded to.
    pub fn downloads_directory(&self) -> Result<Directory, StoreError> {
        self.folder("downloads")
    }

    /// The path of a version's directory.
    pub fn version_dir(&self, id: VersionId) -> PathBuf {
        self.root.join("versions").join(id.to_string())
    }

    /// Whether the store has a version.
    pub fn has(&self, id: VersionId) -> bool {
        let image = Path::new("versions").join(id.to_string()).join(IMAGE);
        self.directory().and_then(|root| root.metadata_of(image)).is_ok_and(|metadata| metadata.is_file())
    }

    /// Reads the record; returns an empty one if the store has none yet.
    pub fn record(&self) -> Result<StoreRecord, StoreError> {
        let path = self.root.join(layout::RECORD);
        match self.directory().and_then(|root| root.read(layout::RECORD, MAX_RECORD_BYTES)) {
            Ok(bytes) => record::decode(&bytes).map_err(|error| match error {
                DecodeError::Damaged(source) => StoreError::DamagedRecord { path, source },
                DecodeError::Later(found) => StoreError::LaterRecord { path, found },
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StoreRecord::default()),
            Err(source) => Err(StoreError::Io { doing: "read", path, source }),
        }
    }

    /// Lists all versions, the newest arrival first.
    pub fn versions(&self) -> Result<Vec<StoredVersion>, StoreError> {
        let dir = self.root.join("versions");
        let folder = match self.directory().and_then(|root| root.open_directory("versions")) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                return Err(StoreError::Io { doing: "read", path: dir, source });
            }
        };
        let mut versions = Vec::new();
        for entry in folder.entries().map_err(StoreError::io("read", &dir))? {
            let entry = entry.map_err(StoreError::io("read", &dir))?;
            let Some(id) = entry.name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let Ok(metadata) = folder.metadata_of(Path::new(&entry.name).join(IMAGE)) else {
                continue;
            };
            let receipts = self.receipts_with_names(id);
            // A version without a receipt comes last.
            let last_arrival = receipts.last().map(|(name, receipt)| (receipt.time.clone(), name.clone()));
            let receipts = receipts.into_iter().map(|(_, receipt)| receipt).collect();
            versions.push((last_arrival, StoredVersion { id, bytes: metadata.len(), receipts }));
        }
        versions.sort_by(|(a_arrival, a), (b_arrival, b)| b_arrival.cmp(a_arrival).then(a.id.cmp(&b.id)));
        Ok(versions.into_iter().map(|(_, version)| version).collect())
    }

    /// The path of the directory that bundles are downloaded to.
    pub fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// Reads a version's receipts, oldest first. An unreadable receipt is omitted: its version then counts as an older
    /// arrival, and its bundle may be downloaded again.
    pub fn receipts(&self, id: VersionId) -> Vec<Receipt> {
        self.receipts_with_names(id).into_iter().map(|(_, receipt)| receipt).collect()
    }

    /// Reads a version's receipts with the names of their files, oldest first. The time of a receipt is in seconds; its
    /// name orders the arrivals within a second.
    fn receipts_with_names(&self, id: VersionId) -> Vec<(OsString, Receipt)> {
        let folder = Path::new("receipts").join(id.to_string());
        let Ok(folder) = self.directory().and_then(|root| root.open_directory(folder)) else { return Vec::new() };
        let Ok(entries) = folder.entries() else { return Vec::new() };
        let files = entries.flatten().filter(|entry| entry.kind == EntryKind::File);
        let read_receipt = |name: &OsStr| serde_json::from_slice(&folder.read(name, MAX_RECEIPT_BYTES).ok()?).ok();
        let mut receipts: Vec<(OsString, Receipt)> =
            files.filter_map(|entry| read_receipt(&entry.name).map(|receipt| (entry.name, receipt))).collect();
        receipts.sort_by(|(a_name, a), (b_name, b)| a.time.cmp(&b.time).then_with(|| a_name.cmp(b_name)));
        receipts
    }

    /// Finds a version by `name`: a label, or at least 8 digits of an id. An exact label wins.
    pub fn find_version(&self, name: &str) -> Result<VersionId, StoreError> {
        find_version(name, &self.record()?, &self.versions()?)
    }
}

/// Finds a version by `name` among `versions`; see [`VersionStore::find_version`].
pub(crate) fn find_version(
    name: &str,
    record: &StoreRecord,
    versions: &[StoredVersion],
) -> Result<VersionId, StoreError> {
    let labelled = record.labels.get(name).map(|labelled| labelled.version);
    if let Some(id) = labelled.filter(|&id| versions.iter().any(|version| version.id == id)) {
        return Ok(id);
    }
    let mut matching = versions.iter().filter(|v| v.id.has_prefix(name)).map(|v| v.id);
    match (matching.next(), matching.next()) {
        (Some(id), None) => Ok(id),
        (None, _) => Err(StoreError::UnknownVersion(name.to_owned())),
        (Some(_), Some(_)) => Err(StoreError::AmbiguousId(name.to_owned())),
    }
}

/// Formats the part of the free space that must stay free; empty if `store.minFree` is not set.
fn describe_min_free(min_free: u64) -> String {
    if min_free == 0 {
        String::new()
    } else {
        format!(", of which {} must stay free (store.minFree)", format_size(min_free))
    }
}

/// Returns the rest of the advice about missing space.
fn advise_min_free(min_free: u64) -> &'static str {
    if min_free == 0 { " and try again" } else { ", or lower store.minFree" }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests;
