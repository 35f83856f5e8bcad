//! The partly received bundle: its bytes in `downloads/bundle.part`, and their source and validator in `bundle.json`.
//!
//! Root may run a command on the store of another user, who may create links there. Therefore no link is followed, and
//! a file with a second name, which may be any file of the file system, is neither truncated nor continued.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use docwharf_base::directory::{Directory, FileAccess, FileRequirements};
use docwharf_base::growing_file::WriteProgress;

use super::bundle::{BundleValidator, ReceivedBundle};

/// Name of the file with the received bytes.
pub(super) const PART_FILE: &str = "bundle.part";
/// Name of the file with the inner archive, if a second layer of gzip was removed.
pub(super) const INNER_FILE: &str = "bundle.inner";
/// Name of the file with the source and the validator of the received bytes.
const NOTE_FILE: &str = "bundle.json";
/// Upper bound of the size of the note in bytes; it contains a link and a validator.
const MAX_NOTE_BYTES: u64 = 1 << 20;
/// Permissions of the files: no other user needs a bundle that is not yet verified.
pub(super) const FILE_MODE: u32 = 0o600;

/// Source and validator of the received bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartNote {
    source: String,
    /// A validator that is strong enough to resume the part.
    validator: Option<String>,
    total: Option<u64>,
    /// Whether the server named a content coding.
    encoded: bool,
}

/// A partly received bundle.
#[derive(Debug)]
pub(super) struct PartialBundle {
    dir: Directory,
    note: PartNote,
    len: u64,
    resumed: bool,
    /// The length of the part file, for readers; aborted when the bytes are discarded.
    growth: Arc<WriteProgress>,
}

impl Drop for PartialBundle {
    fn drop(&mut self) {
        // Readers must not wait for more bytes.
        self.growth.mark_failed();
    }
}

impl PartialBundle {
    /// Opens the part that an earlier process has left for the same source, or an empty one.
    pub(super) fn open(dir: &Directory, source: &str) -> PartialBundle {
        // The inner archive is created again from the part when needed.
        let _ = dir.remove_file(INNER_FILE);
        let growth = Arc::new(WriteProgress::growing(0));
        let mut partial = PartialBundle { dir: dir.clone(), note: PartNote::default(), len: 0, resumed: false, growth };
        let note =
            dir.read(NOTE_FILE, MAX_NOTE_BYTES).ok().and_then(|text| serde_json::from_slice::<PartNote>(&text).ok());
        let part = dir
            .open_file(PART_FILE, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME)
            .and_then(|file| file.metadata());
        let len = part.map_or(0, |metadata| metadata.len());
        match note {
            Some(note) if note.source == source && note.validator.is_some() && len > 0 => {
                let is_complete = note.total.is_some_and(|total| len >= total);
                partial.note = note;
                partial.len = len;
                partial.resumed = true;
                if is_complete {
                    // The file was complete but not verified when the process ended. A request for the last byte shows
                    // whether the server still has this file.
                    partial.drop_last_byte();
                }
            }
            _ => partial.discard(),
        }
        partial.growth.set_len(partial.len);
        partial
    }

    fn drop_last_byte(&mut self) {
        let len = self.note.total.unwrap_or(0).saturating_sub(1);
        let part = self.dir.open_file(PART_FILE, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME);
        let truncated = part.and_then(|file| file.set_len(len));
        match truncated {
            Ok(()) if len > 0 => self.len = len,
            _ => self.discard(),
        }
    }

    /// Begins a new file with the header fields of a 200.
    pub(super) fn begin(
        &mut self,
        source: &str,
        validator: Option<String>,
        total: Option<u64>,
        encoded: bool,
    ) -> io::Result<()> {
        self.discard();
        self.note = PartNote { source: source.to_owned(), validator, total, encoded };
        let text = serde_json::to_vec(&self.note)?;
        self.dir.create_file(NOTE_FILE, FILE_MODE)?.write_all(&text)
    }

    /// Opens the file to append to it.
    pub(super) fn append(&self) -> io::Result<File> {
        self.dir.open_file(PART_FILE, FileAccess::Append(FILE_MODE), FileRequirements::SINGLE_NAME)
    }

    /// Number of bytes received.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Size of the whole bundle in bytes, if known.
    pub(super) fn total(&self) -> Option<u64> {
        self.note.total
    }

    /// The validator of the content.
    pub(super) fn validator(&self) -> Option<String> {
        self.note.validator.clone()
    }

    /// The validator for a request of the rest, if there is a part to resume.
    pub(super) fn resume_validator(&self) -> Option<&str> {
        self.note.validator.as_deref().filter(|_| self.len > 0)
    }

    pub(super) fn add_received(&mut self, bytes: u64) {
        self.len += bytes;
        self.growth.set_len(self.len);
    }

    /// Path of the file with the received bytes.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(PART_FILE)
    }

    /// Directory of the file, and its name there.
    pub(super) fn directory_entry(&self) -> (&Directory, &'static str) {
        (&self.dir, PART_FILE)
    }

    /// The length of the part file, for readers.
    pub(super) fn growth(&self) -> &Arc<WriteProgress> {
        &self.growth
    }

    /// Discards the part and its note.
    pub(super) fn discard(&mut self) {
        for name in [NOTE_FILE, PART_FILE, INNER_FILE] {
            // A part that cannot be removed is not resumed either, because its note is removed first.
            let _ = self.dir.remove_file(name);
        }
        self.note = PartNote::default();
        self.len = 0;
        self.resumed = false;
        self.growth.mark_failed();
        self.growth = Arc::new(WriteProgress::growing(0));
    }

    /// Marks the file as complete, and describes it.
    pub(super) fn finish(&mut self) -> ReceivedBundle {
        self.growth.mark_complete();
        let size = self.len;
        let known = self.note.validator.clone().map(|validator| BundleValidator { validator, size });
        ReceivedBundle { path: self.path(), known, resumed: self.resumed, encoded: self.note.encoded }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    const SOURCE: &str = "https://bucket.example/a";

    fn folder() -> (TempDir, Directory) {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        (dir, directory)
    }

    /// Writes the files that an earlier process may have left: a note, and a part of this many bytes.
    fn write_leftovers(dir: &TempDir, note: &str, bytes: usize) {
        std::fs::write(dir.path().join(NOTE_FILE), note).unwrap();
        std::fs::write(dir.path().join(PART_FILE), vec![b'x'; bytes]).unwrap();
        std::fs::write(dir.path().join(INNER_FILE), "the inner archive of another part").unwrap();
    }

    fn note(source: &str, validator: &str, total: &str) -> String {
        format!(r#"{{"source":"{source}","validator":{validator},"total":{total},"encoded":true}}"#)
    }

    fn count_files(dir: &TempDir) -> usize {
        std::fs::read_dir(dir.path()).unwrap().count()
    }

    #[test]
    fn a_part_is_taken_up_for_its_own_source_and_under_its_validator_alone() {
        let v = r#""v""#;
        for (case, note, bytes, resumed) in [
            ("some of it", note(SOURCE, v, "10"), 4, 4),
            ("all but a byte", note(SOURCE, v, "10"), 9, 9),
            ("all of it", note(SOURCE, v, "10"), 10, 9),
            ("more than all", note(SOURCE, v, "10"), 12, 9),
            ("all of one byte", note(SOURCE, v, "1"), 1, 0),
            ("of unknown length", note(SOURCE, v, "null"), 4, 4),
            ("nothing", note(SOURCE, v, "10"), 0, 0),
            ("of another source", note("https://bucket.example/b", v, "10"), 4, 0),
            ("without a validator", note(SOURCE, "null", "10"), 4, 0),
            ("an incomplete note", note(SOURCE, v, "10")[..20].to_owned(), 4, 0),
            ("a note that is too large", note(SOURCE, v, "10") + &" ".repeat(1 << 20), 4, 0),
        ] {
            let (dir, directory) = folder();
            write_leftovers(&dir, &note, bytes);
            let mut partial = PartialBundle::open(&directory, SOURCE);
            assert_eq!((partial.len(), partial.resume_validator()), (resumed, (resumed > 0).then_some("v")), "{case}");
            assert_eq!(partial.growth().wait_for_len(resumed), Some(resumed), "{case}");
            if resumed == 0 {
                assert_eq!((count_files(&dir), partial.total(), partial.validator()), (0, None, None), "{case}");
                continue;
            }
            assert_eq!(std::fs::metadata(dir.path().join(PART_FILE)).unwrap().len(), resumed, "{case}");
            assert_eq!(count_files(&dir), 2, "{case}: the inner archive is removed");
            let known = Some(BundleValidator { validator: "v".to_owned(), size: resumed });
            let path = directory.path().join(PART_FILE);
            assert_eq!(partial.finish(), ReceivedBundle { path, known, resumed: true, encoded: true }, "{case}");
        }
        let (dir, directory) = folder();
        std::fs::write(dir.path().join(NOTE_FILE), note(SOURCE, v, "10")).unwrap();
        assert_eq!(PartialBundle::open(&directory, SOURCE).resume_validator(), None);
        assert_eq!(count_files(&dir), 0, "a note without a part");
        std::fs::write(dir.path().join(PART_FILE), "part").unwrap();
        assert_eq!(PartialBundle::open(&directory, SOURCE).resume_validator(), None);
        assert_eq!(count_files(&dir), 0, "a part without a note");
    }

    #[test]
    fn a_part_that_may_be_anybodys_is_neither_cut_nor_continued() {
        let link_kinds: [fn(&Path, &Path); 2] =
            [|from, to| std::fs::hard_link(from, to).unwrap(), |from, to| symlink(from, to).unwrap()];
        for create_link in link_kinds {
            let (dir, directory) = folder();
            let other_dir = tempfile::tempdir().unwrap();
            let file = other_dir.path().join("file");
            std::fs::write(&file, "0123456789").unwrap();
            write_leftovers(&dir, &note(SOURCE, r#""v""#, "10"), 0);
            std::fs::remove_file(dir.path().join(PART_FILE)).unwrap();
            create_link(&file, &dir.path().join(PART_FILE));
            let mut partial = PartialBundle::open(&directory, SOURCE);
            assert_eq!((partial.len(), count_files(&dir)), (0, 0));
            create_link(&file, &dir.path().join(PART_FILE));
            assert!(partial.append().is_err());
            partial.begin(SOURCE, None, None, false).unwrap();
            partial.append().unwrap().write_all(b"new").unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "0123456789");
        }
    }

    #[test]
    fn what_is_received_is_noted_first_and_begins_anew_with_each_answer() {
        let (dir, directory) = folder();
        let mut partial = PartialBundle::open(&directory, SOURCE);
        partial.begin(SOURCE, Some("v".to_owned()), Some(6), false).unwrap();
        assert_eq!((count_files(&dir), partial.resume_validator()), (1, None), "there is no part to resume");
        for (piece, len) in [("123", 3), ("45", 5)] {
            partial.append().unwrap().write_all(piece.as_bytes()).unwrap();
            partial.add_received(piece.len() as u64);
            assert_eq!((partial.len(), partial.growth().wait_for_len(len)), (len, Some(len)));
        }
        assert_eq!((partial.total(), partial.validator().as_deref()), (Some(6), Some("v")));
        assert_eq!(partial.path(), dir.path().join(PART_FILE));
        assert_eq!((partial.directory_entry().0.path(), partial.directory_entry().1), (dir.path(), PART_FILE));
        for name in [NOTE_FILE, PART_FILE] {
            assert_eq!(std::fs::metadata(dir.path().join(name)).unwrap().mode() & 0o777, FILE_MODE, "{name}");
        }
        let growth = Arc::clone(partial.growth());
        drop(partial);
        assert_eq!(growth.wait_for_len(6), None, "no more bytes will be received");
        let mut partial = PartialBundle::open(&directory, SOURCE);
        assert_eq!((partial.len(), partial.resume_validator()), (5, Some("v")));
        assert_eq!(std::fs::read(dir.path().join(PART_FILE)).unwrap(), b"12345");
        let growth = Arc::clone(partial.growth());
        partial.begin(SOURCE, None, None, true).unwrap();
        assert_eq!((growth.wait_for_len(6), partial.growth().wait_for_len(0)), (None, Some(0)));
        assert_eq!((partial.len(), partial.total(), count_files(&dir)), (0, None, 1));
        partial.append().unwrap().write_all(b"ab").unwrap();
        partial.add_received(2);
        assert_eq!(partial.resume_validator(), None, "without a validator");
        let received = ReceivedBundle { path: partial.path(), known: None, resumed: false, encoded: true };
        assert_eq!(partial.finish(), received);
        assert!(partial.growth().is_complete());
        assert_eq!(std::fs::read(partial.path()).unwrap(), b"ab");
        partial.discard();
        assert_eq!((count_files(&dir), partial.len(), partial.growth().is_complete()), (0, 0, false));
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_said_so() {
        let (dir, directory) = folder();
        let mut partial = PartialBundle::open(&directory, SOURCE);
        std::fs::create_dir(dir.path().join(NOTE_FILE)).unwrap();
        assert!(partial.begin(SOURCE, None, None, false).is_err());
        std::fs::create_dir(dir.path().join(PART_FILE)).unwrap();
        assert!(partial.append().is_err());
    }
}
