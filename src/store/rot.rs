//! What is known of rot: which versions were found damaged, when each was proved last, and whether the daemon before this
//! one ended as it should.
//!
//! `suspect` has a line for each damaged version. It is a file of its own because a signal handler writes it, too.
//! `scrub.json` may be deleted at any time: versions are proved sooner then.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use crate::base::durable;
use crate::model::units::{now, parse_time, unix_seconds};
use crate::model::version::VersionId;

use super::writer::{Writer, json};
use super::{IMAGE, Store, StoreError};

/// Where damaged versions are marked.
pub(super) const SUSPECT: &str = "suspect";
/// When versions were proved.
const BOOK: &str = "scrub.json";

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

impl Store {
    /// The versions that were found damaged, as far as they are still there.
    pub fn suspects(&self) -> Vec<VersionId> {
        let Ok(text) = fs::read_to_string(self.root().join(SUSPECT)) else { return Vec::new() };
        let mut ids: Vec<VersionId> = text.lines().filter_map(|line| line.parse().ok()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|&id| self.has(id));
        ids
    }

    /// Whether a version was found damaged.
    pub fn is_suspect(&self, id: VersionId) -> bool {
        self.suspects().contains(&id)
    }

    /// Whether a version is there and nothing is known against it.
    pub fn has_whole(&self, id: VersionId) -> bool {
        self.has(id) && !self.is_suspect(id)
    }

    /// When a version was proved last, in seconds since 1970: by reading it again, or when it was sealed.
    pub fn proved_at(&self, id: VersionId) -> Option<i64> {
        let sealed = fs::metadata(self.version_dir(id).join(IMAGE)).and_then(|metadata| metadata.modified());
        let read = self.book().proved.get(&id).and_then(|time| parse_time(time));
        // A version that was mended is younger than what the book knows.
        sealed.ok().map(unix_seconds).max(read)
    }

    /// A book that cannot be read is an empty one.
    fn book(&self) -> Book {
        let bytes = fs::read(self.root().join(BOOK)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl Writer {
    /// Opens the file in which damaged versions are marked.
    pub fn suspect_file(&self) -> Result<File, StoreError> {
        let path = self.store().root().join(SUSPECT);
        let file = OpenOptions::new().append(true).create(true).mode(0o644).custom_flags(durable::NO_LINK).open(&path);
        file.map_err(StoreError::io("open", &path))
    }

    /// Marks a version as damaged: it is proved before it is served again, and brought again if that can be.
    pub fn mark_suspect(&self, id: VersionId) -> Result<(), StoreError> {
        let _turn = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.store().is_suspect(id) {
            return Ok(());
        }
        let path = self.store().root().join(SUSPECT);
        let mut file = self.suspect_file()?;
        file.write_all(format!("{id}\n").as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(StoreError::io("write", &path))
    }

    /// Forgets the mark. The file stays the same: the handler has it open.
    pub fn clear_suspect(&self, id: VersionId) -> Result<(), StoreError> {
        let _turn = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let others = self.store().suspects().into_iter().filter(|&other| other != id);
        let lines: Vec<String> = others
            .map(|other| {
                format!(
                    "{other}
"
                )
            })
            .collect();
        let path = self.store().root().join(SUSPECT);
        let mut file = self.suspect_file()?;
        file.set_len(0).and_then(|()| file.write_all(lines.concat().as_bytes())).map_err(StoreError::io("clear", &path))
    }

    /// Notes that a daemon is at it; whether the one before it ended without saying so.
    pub fn begin_run(&self) -> Result<bool, StoreError> {
        let _turn = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut book = self.store().book();
        let was_cut_off = book.running.replace(now()).is_some();
        self.keep_book(&book)?;
        Ok(was_cut_off)
    }

    /// Notes that the daemon ends as it should.
    pub fn end_run(&self) -> Result<(), StoreError> {
        let _turn = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut book = self.store().book();
        if book.running.take().is_none() { Ok(()) } else { self.keep_book(&book) }
    }

    /// Notes that a version has just been read and is whole.
    pub fn note_proved(&self, id: VersionId) -> Result<(), StoreError> {
        let _turn = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut book = self.store().book();
        book.proved.retain(|&id, _| self.store().has(id));
        book.proved.insert(id, now());
        self.keep_book(&book)
    }

    fn keep_book(&self, book: &Book) -> Result<(), StoreError> {
        let path = self.store().root().join(BOOK);
        durable::replace(self.store().root(), BOOK, &json(book)).map_err(StoreError::io("write", &path))
    }
}
