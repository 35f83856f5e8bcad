//! A bundle on its way: `downloads/bundle.part`, and beside it in `bundle.json` what it was received under.
//!
//! Root may type a command in the store of another user, who may put links there. So none is followed, and a file with a
//! second name, which may be anybody's, is neither cut nor continued.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::directory::{Access, Demands, Directory};
use crate::base::growth::Growth;

use super::{Arrived, Known};

/// The received bytes.
pub(super) const PART: &str = "bundle.part";
/// What was inside, if it was wrapped once too often.
pub(super) const INNER: &str = "bundle.inner";
/// What they are.
const NOTE: &str = "bundle.json";
/// A note of ours is never larger: a link and a validator.
const MAX_NOTE_BYTES: u64 = 1 << 20;
/// Nobody else needs what is not yet judged.
pub(super) const FILE_MODE: u32 = 0o600;

/// What is known of the bytes received.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    source: String,
    /// What names the content strongly enough for a part to be continued under it.
    validator: Option<String>,
    total: Option<u64>,
    /// Whether a content coding was named.
    encoded: bool,
}

/// A bundle on its way.
#[derive(Debug)]
pub(super) struct Partial {
    dir: Directory,
    note: Note,
    len: u64,
    resumed: bool,
    /// Told how far it has come; given up with these bytes.
    growth: Arc<Growth>,
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Nobody brings any more of it.
        self.growth.give_up();
    }
}

impl Partial {
    /// Takes up what an earlier process has left for the same source, or begins with nothing.
    pub(super) fn open(dir: &Directory, source: &str) -> Partial {
        // Made from the part, and made again from it.
        let _ = dir.remove_file(INNER);
        let growth = Arc::new(Growth::begun(0));
        let mut partial = Partial { dir: dir.clone(), note: Note::default(), len: 0, resumed: false, growth };
        let note = dir.read(NOTE, MAX_NOTE_BYTES).ok().and_then(|text| serde_json::from_slice::<Note>(&text).ok());
        let part = dir.open_file(PART, Access::ReadWrite, Demands::SINGLE_NAME).and_then(|file| file.metadata());
        let len = part.map_or(0, |metadata| metadata.len());
        match note {
            Some(note) if note.source == source && note.validator.is_some() && len > 0 => {
                let whole = note.total.is_some_and(|total| len >= total);
                partial.note = note;
                partial.len = len;
                partial.resumed = true;
                if whole {
                    // All there, but not proved when the process ended: the last byte again shows whether it still is
                    // what the server has.
                    partial.shorten();
                }
            }
            _ => partial.discard(),
        }
        partial.growth.reach(partial.len);
        partial
    }

    fn shorten(&mut self) {
        let total = self.note.total.unwrap_or(0).saturating_sub(1);
        let part = self.dir.open_file(PART, Access::ReadWrite, Demands::SINGLE_NAME);
        let cut = part.and_then(|file| file.set_len(total));
        match cut {
            Ok(()) if total > 0 => self.len = total,
            _ => self.discard(),
        }
    }

    /// Begins at the start with what a 200 says of itself.
    pub(super) fn begin(
        &mut self,
        source: &str,
        validator: Option<String>,
        total: Option<u64>,
        encoded: bool,
    ) -> io::Result<()> {
        self.discard();
        self.note = Note { source: source.to_owned(), validator, total, encoded };
        let text = serde_json::to_vec(&self.note)?;
        self.dir.create_file(NOTE, FILE_MODE)?.write_all(&text)
    }

    /// The file, to be continued.
    pub(super) fn append(&self) -> io::Result<File> {
        self.dir.open_file(PART, Access::Append(FILE_MODE), Demands::SINGLE_NAME)
    }

    /// Bytes received.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes to come in all.
    pub(super) fn total(&self) -> Option<u64> {
        self.note.total
    }

    /// What names the content.
    pub(super) fn validator(&self) -> Option<String> {
        self.note.validator.clone()
    }

    /// The validator to continue under, if there is something to continue.
    pub(super) fn resumable(&self) -> Option<&str> {
        self.note.validator.as_deref().filter(|_| self.len > 0)
    }

    pub(super) fn grow(&mut self, bytes: u64) {
        self.len += bytes;
        self.growth.reach(self.len);
    }

    /// The received bytes.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(PART)
    }

    /// The directory that holds them, and their name in it.
    pub(super) fn place(&self) -> (&Directory, &'static str) {
        (&self.dir, PART)
    }

    /// How far these bytes have come.
    pub(super) fn growth(&self) -> &Arc<Growth> {
        &self.growth
    }

    /// Forgets all of it.
    pub(super) fn discard(&mut self) {
        for name in [NOTE, PART, INNER] {
            // What cannot be removed will not be continued either: the note goes first.
            let _ = self.dir.remove_file(name);
        }
        self.note = Note::default();
        self.len = 0;
        self.resumed = false;
        self.growth.give_up();
        self.growth = Arc::new(Growth::begun(0));
    }

    /// It is whole.
    pub(super) fn finish(&mut self) -> Arrived {
        self.growth.end();
        let size = self.len;
        let known = self.note.validator.clone().map(|validator| Known { validator, size });
        Arrived { path: self.path(), known, resumed: self.resumed, encoded: self.note.encoded }
    }
}
