//! A bundle on its way: `downloads/bundle.part`, and beside it in `bundle.json` what it was received under.
//!
//! Root may type a command in the store of another user, who may put links there. So none is followed, and a file with a
//! second name, which may be anybody's, is neither cut nor continued.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use docwharf_base::directory::{Access, Demands, Directory};
use docwharf_base::growth::Growth;

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

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // folders that nobody else knows
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

    /// What a process has left: a note, and so many bytes.
    fn leave(dir: &TempDir, note: &str, bytes: usize) {
        std::fs::write(dir.path().join(NOTE), note).unwrap();
        std::fs::write(dir.path().join(PART), vec![b'x'; bytes]).unwrap();
        std::fs::write(dir.path().join(INNER), "made from another part").unwrap();
    }

    fn note(source: &str, validator: &str, total: &str) -> String {
        format!(r#"{{"source":"{source}","validator":{validator},"total":{total},"encoded":true}}"#)
    }

    fn names(dir: &TempDir) -> usize {
        std::fs::read_dir(dir.path()).unwrap().count()
    }

    #[test]
    fn a_part_is_taken_up_for_its_own_source_and_under_its_validator_alone() {
        let v = r#""v""#;
        for (what, note, bytes, taken) in [
            ("some of it", note(SOURCE, v, "10"), 4, 4),
            ("all but a byte", note(SOURCE, v, "10"), 9, 9),
            ("all of it", note(SOURCE, v, "10"), 10, 9),
            ("more than all", note(SOURCE, v, "10"), 12, 9),
            ("all of one byte", note(SOURCE, v, "1"), 1, 0),
            ("of a length that nobody said", note(SOURCE, v, "null"), 4, 4),
            ("nothing", note(SOURCE, v, "10"), 0, 0),
            ("of another source", note("https://bucket.example/b", v, "10"), 4, 0),
            ("without a validator", note(SOURCE, "null", "10"), 4, 0),
            ("half a note", note(SOURCE, v, "10")[..20].to_owned(), 4, 0),
            ("an endless note", note(SOURCE, v, "10") + &" ".repeat(1 << 20), 4, 0),
        ] {
            let (dir, directory) = folder();
            leave(&dir, &note, bytes);
            let mut partial = Partial::open(&directory, SOURCE);
            assert_eq!((partial.len(), partial.resumable()), (taken, (taken > 0).then_some("v")), "{what}");
            assert_eq!(partial.growth().wait_for(taken), Some(taken), "{what}");
            if taken == 0 {
                assert_eq!((names(&dir), partial.total(), partial.validator()), (0, None, None), "{what}");
                continue;
            }
            assert_eq!(std::fs::metadata(dir.path().join(PART)).unwrap().len(), taken, "{what}");
            assert_eq!(names(&dir), 2, "{what}: what was made from it is made again");
            let known = Some(Known { validator: "v".to_owned(), size: taken });
            let path = directory.path().join(PART);
            assert_eq!(partial.finish(), Arrived { path, known, resumed: true, encoded: true }, "{what}");
        }
        let (dir, directory) = folder();
        std::fs::write(dir.path().join(NOTE), note(SOURCE, v, "10")).unwrap();
        assert_eq!(Partial::open(&directory, SOURCE).resumable(), None);
        assert_eq!(names(&dir), 0, "a note without a part");
        std::fs::write(dir.path().join(PART), "part").unwrap();
        assert_eq!(Partial::open(&directory, SOURCE).resumable(), None);
        assert_eq!(names(&dir), 0, "a part without a note");
    }

    #[test]
    fn a_part_that_may_be_anybodys_is_neither_cut_nor_continued() {
        let ways: [fn(&Path, &Path); 2] =
            [|from, to| std::fs::hard_link(from, to).unwrap(), |from, to| symlink(from, to).unwrap()];
        for way in ways {
            let (dir, directory) = folder();
            let theirs = tempfile::tempdir().unwrap();
            let file = theirs.path().join("file");
            std::fs::write(&file, "0123456789").unwrap();
            leave(&dir, &note(SOURCE, r#""v""#, "10"), 0);
            std::fs::remove_file(dir.path().join(PART)).unwrap();
            way(&file, &dir.path().join(PART));
            let mut partial = Partial::open(&directory, SOURCE);
            assert_eq!((partial.len(), names(&dir)), (0, 0));
            way(&file, &dir.path().join(PART));
            assert!(partial.append().is_err());
            partial.begin(SOURCE, None, None, false).unwrap();
            partial.append().unwrap().write_all(b"ours").unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "0123456789");
        }
    }

    #[test]
    fn what_is_received_is_noted_first_and_begins_anew_with_each_answer() {
        let (dir, directory) = folder();
        let mut partial = Partial::open(&directory, SOURCE);
        partial.begin(SOURCE, Some("v".to_owned()), Some(6), false).unwrap();
        assert_eq!((names(&dir), partial.resumable()), (1, None), "there is nothing to continue");
        for (piece, len) in [("123", 3), ("45", 5)] {
            partial.append().unwrap().write_all(piece.as_bytes()).unwrap();
            partial.grow(piece.len() as u64);
            assert_eq!((partial.len(), partial.growth().wait_for(len)), (len, Some(len)));
        }
        assert_eq!((partial.total(), partial.validator().as_deref()), (Some(6), Some("v")));
        assert_eq!(partial.path(), dir.path().join(PART));
        assert_eq!((partial.place().0.path(), partial.place().1), (dir.path(), PART));
        for name in [NOTE, PART] {
            assert_eq!(std::fs::metadata(dir.path().join(name)).unwrap().mode() & 0o777, FILE_MODE, "{name}");
        }
        let growth = Arc::clone(partial.growth());
        drop(partial);
        assert_eq!(growth.wait_for(6), None, "nobody brings any more of it");
        let mut partial = Partial::open(&directory, SOURCE);
        assert_eq!((partial.len(), partial.resumable()), (5, Some("v")));
        assert_eq!(std::fs::read(dir.path().join(PART)).unwrap(), b"12345");
        let growth = Arc::clone(partial.growth());
        partial.begin(SOURCE, None, None, true).unwrap();
        assert_eq!((growth.wait_for(6), partial.growth().wait_for(0)), (None, Some(0)));
        assert_eq!((partial.len(), partial.total(), names(&dir)), (0, None, 1));
        partial.append().unwrap().write_all(b"ab").unwrap();
        partial.grow(2);
        assert_eq!(partial.resumable(), None, "without a validator");
        let arrived = Arrived { path: partial.path(), known: None, resumed: false, encoded: true };
        assert_eq!(partial.finish(), arrived);
        assert!(partial.growth().is_whole());
        assert_eq!(std::fs::read(partial.path()).unwrap(), b"ab");
        partial.discard();
        assert_eq!((names(&dir), partial.len(), partial.growth().is_whole()), (0, 0, false));
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_said_so() {
        let (dir, directory) = folder();
        let mut partial = Partial::open(&directory, SOURCE);
        std::fs::create_dir(dir.path().join(NOTE)).unwrap();
        assert!(partial.begin(SOURCE, None, None, false).is_err());
        std::fs::create_dir(dir.path().join(PART)).unwrap();
        assert!(partial.append().is_err());
    }
}
