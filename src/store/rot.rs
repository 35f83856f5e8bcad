//! What is known of rot: which versions were found damaged, when each was proved last, and whether the daemon before this
//! one ended as it should.
//!
//! `suspect` has a line for each damaged version. It is a file of its own because a signal handler writes it, too. A disk that
//! fails often takes no more writes, so what this process has found is also kept in memory.
//! `scrub.json` may be deleted at any time: versions are proved sooner then.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::base::directory::{Access, Demands, FileId};
use crate::model::units::{now, parse_time};
use crate::model::version::VersionId;

use super::writer::{Writer, json};
use super::{IMAGE, Store, StoreError};

/// Where damaged versions are marked.
pub(super) const SUSPECT: &str = "suspect";
/// When versions were proved.
const BOOK: &str = "scrub.json";
/// Neither file of ours is ever larger: they have a line for each version.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Book {
    /// Since when a daemon is at it; gone when it ends as it should. RFC 3339.
    #[serde(default)]
    running: Option<String>,
    /// When versions were proved last, RFC 3339.
    #[serde(default)]
    proved: BTreeMap<VersionId, String>,
}

/// Which file an image is: device and inode.
type Image = FileId;

/// The versions that this process has found damaged, with the very file that was.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<BTreeMap<VersionId, Option<Image>>>);

impl Marks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<VersionId, Option<Image>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// The versions that were found damaged, as far as they are still there.
    pub fn suspects(&self) -> Vec<VersionId> {
        let text = self.marked().unwrap_or_default();
        let mut ids: Vec<VersionId> = text.lines().filter_map(|line| line.parse().ok()).collect();
        ids.extend(self.marks.lock().keys());
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|&id| self.has(id));
        ids
    }

    /// Whether a version was found damaged.
    pub fn is_suspect(&self, id: VersionId) -> bool {
        self.suspects().contains(&id)
    }

    /// Whether this process has read the very file that is there now and found it damaged: reading it once more would tell
    /// nothing new.
    pub fn is_rotten(&self, id: VersionId) -> bool {
        let known = self.marks.lock().get(&id).copied().flatten();
        known.is_some() && known == self.image_of(id)
    }

    /// Whether a version is there and nothing is known against it.
    pub fn has_whole(&self, id: VersionId) -> bool {
        self.has(id) && !self.is_suspect(id)
    }

    /// When a version was proved last, in seconds since 1970: by reading it again, or when it arrived last.
    pub fn proved_at(&self, id: VersionId) -> Option<i64> {
        self.proved().get(&id).copied()
    }

    /// The same of all versions.
    pub fn proved(&self) -> BTreeMap<VersionId, i64> {
        let book = self.book();
        let times = self.versions().unwrap_or_default().into_iter().map(|version| {
            // Each arrival was a proof; what the file system says of the image is not: whatever damages it may set that.
            let arrived = version.receipts.last().and_then(|receipt| parse_time(&receipt.time));
            let read = book.proved.get(&version.id).and_then(|time| parse_time(time));
            (version.id, arrived.max(read).unwrap_or(0))
        });
        times.collect()
    }

    fn image_of(&self, id: VersionId) -> Option<Image> {
        let path = Path::new("versions").join(id.to_string()).join(IMAGE);
        Some(FileId::of(&self.directory().ok()?.metadata_of(path).ok()?))
    }

    /// A book that cannot be read is an empty one.
    fn marked(&self) -> io::Result<String> {
        let bytes = self.directory()?.read(SUSPECT, MAX_BYTES)?;
        String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
    }

    fn book(&self) -> Book {
        let bytes = self.directory().and_then(|root| root.read(BOOK, MAX_BYTES)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl Writer {
    /// Opens the file in which damaged versions are marked.
    pub fn suspect_file(&self) -> Result<File, StoreError> {
        let path = self.store().root().join(SUSPECT);
        let root = self.store().directory();
        let file = root.and_then(|root| root.open_file(SUSPECT, Access::Append(0o644), Demands::SINGLE_NAME));
        file.map_err(StoreError::io("open", &path))
    }

    /// Marks a version as damaged: it is proved before it is served again, and brought again if that can be. Even if the
    /// mark cannot be written, it counts in this process.
    pub fn mark_suspect(&self, id: VersionId) -> Result<(), StoreError> {
        let is_known = self.store().is_suspect(id);
        let image = self.store().image_of(id);
        let mut marks = self.store().marks.lock();
        marks.insert(id, image);
        if is_known {
            return Ok(());
        }
        let mut file = self.suspect_file()?;
        let mut write = || -> io::Result<()> {
            file.write_all(format!("{id}\n").as_bytes())?;
            file.sync_all()
        };
        write().map_err(StoreError::io("mark a damaged version in", &self.store().root().join(SUSPECT)))
    }

    /// Forgets the mark. The file stays the same: the handler has it open.
    pub(super) fn clear_mark(&self, id: VersionId) -> Result<(), StoreError> {
        let mut marks = self.store().marks.lock();
        marks.remove(&id);
        let path = self.store().root().join(SUSPECT);
        let write = || -> io::Result<()> {
            let text = self.store().marked()?;
            let others: String =
                text.lines().filter(|line| line.parse() != Ok(id)).flat_map(|line| [line, "\n"]).collect();
            if others.len() == text.len() {
                return Ok(());
            }
            // Over what is there, then cut: at no moment is a mark of another version missing.
            let file = self.store().directory()?.open_file(SUSPECT, Access::ReadWrite, Demands::SINGLE_NAME)?;
            file.write_all_at(others.as_bytes(), 0)?;
            file.set_len(others.len() as u64)?;
            file.sync_all()
        };
        match write() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("clear a mark in", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Notes that a daemon is at it; whether the one before it ended without saying so.
    pub fn begin_run(&self) -> Result<bool, StoreError> {
        let _turn = self.store().marks.lock();
        let mut book = self.store().book();
        let was_cut_off = book.running.replace(now()).is_some();
        self.keep_book(&book)?;
        Ok(was_cut_off)
    }

    /// Notes that the daemon ends as it should.
    pub fn end_run(&self) -> Result<(), StoreError> {
        let _turn = self.store().marks.lock();
        let mut book = self.store().book();
        if book.running.take().is_none() { Ok(()) } else { self.keep_book(&book) }
    }

    /// Notes that a version has just been read and is whole.
    pub fn note_proved(&self, id: VersionId) -> Result<(), StoreError> {
        let _turn = self.store().marks.lock();
        let mut book = self.store().book();
        book.proved.retain(|&id, _| self.store().has(id));
        book.proved.insert(id, now());
        self.keep_book(&book)
    }

    fn keep_book(&self, book: &Book) -> Result<(), StoreError> {
        let path = self.store().root().join(BOOK);
        let written = self.store().directory().and_then(|root| root.replace(BOOK, 0o644, &json(book)));
        written.map_err(StoreError::io("write", &path))
    }
}
