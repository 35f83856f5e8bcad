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
/// Name of the file with the inner archive, if gzip around it was removed.
pub(super) const INNER_FILE: &str = "bundle.inner";
/// Name of the file with the source and the validator of the received bytes.
const METADATA_FILE: &str = "bundle.json";
/// Upper bound of the size of the metadata in bytes; it contains the source's name and a validator.
const MAX_METADATA_BYTES: u64 = 1 << 20;
/// Permissions of the files: no other user needs a bundle that is not yet verified.
pub(super) const FILE_MODE: u32 = 0o600;

/// Source and validator of the received bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartMetadata {
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
    metadata: PartMetadata,
    len: u64,
    resumed: bool,
    /// The progress of writing the part file, for its readers; marked as failed when the bytes are discarded.
    write_progress: Arc<WriteProgress>,
}

impl Drop for PartialBundle {
    fn drop(&mut self) {
        // Readers must not wait for more bytes.
        self.write_progress.mark_failed();
    }
}

impl PartialBundle {
    /// Opens the part that an earlier sync or process has left for the same source, or an empty one.
    pub(super) fn open(dir: &Directory, source: &str) -> PartialBundle {
        // The inner archive is created again from the part when needed.
        let _ = dir.remove_file(INNER_FILE);
        let write_progress = Arc::new(WriteProgress::growing(0));
        let mut partial = PartialBundle {
            dir: dir.clone(),
            metadata: PartMetadata::default(),
            len: 0,
            resumed: false,
            write_progress,
        };
        let metadata = dir
            .read(METADATA_FILE, MAX_METADATA_BYTES)
            .ok()
            .and_then(|text| serde_json::from_slice::<PartMetadata>(&text).ok());
        let part = dir
            .open_file(PART_FILE, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME)
            .and_then(|file| file.metadata());
        let len = part.map_or(0, |metadata| metadata.len());
        match metadata {
            Some(metadata) if metadata.source == source && metadata.validator.is_some() && len > 0 => {
                let is_complete = metadata.total.is_some_and(|total| len >= total);
                partial.metadata = metadata;
                partial.len = len;
                partial.resumed = true;
                if is_complete {
                    // The file was complete but not verified when that sync ended. A request for the last byte shows
                    // whether the server still has this file.
                    partial.drop_last_byte();
                }
            }
            _ => partial.discard(),
        }
        partial.write_progress.set_len(partial.len);
        partial
    }

    fn drop_last_byte(&mut self) {
        let len = self.metadata.total.unwrap_or(0).saturating_sub(1);
        let part = self.dir.open_file(PART_FILE, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME);
        let truncated = part.and_then(|file| file.set_len(len));
        match truncated {
            Ok(()) if len > 0 => self.len = len,
            _ => self.discard(),
        }
    }

    /// Begins a new part for the response 200 with these header fields.
    pub(super) fn begin(
        &mut self,
        source: &str,
        validator: Option<String>,
        total: Option<u64>,
        encoded: bool,
    ) -> io::Result<()> {
        self.discard();
        self.metadata = PartMetadata { source: source.to_owned(), validator, total, encoded };
        let text = serde_json::to_vec(&self.metadata)?;
        self.dir.create_file(METADATA_FILE, FILE_MODE)?.write_all(&text)
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
        self.metadata.total
    }

    /// The validator of the content.
    pub(super) fn validator(&self) -> Option<String> {
        self.metadata.validator.clone()
    }

    /// The validator for a request of the rest, if there is a part to resume.
    pub(super) fn resume_validator(&self) -> Option<&str> {
        self.metadata.validator.as_deref().filter(|_| self.len > 0)
    }

    pub(super) fn add_received(&mut self, bytes: u64) {
        self.len += bytes;
        self.write_progress.set_len(self.len);
    }

    /// Path of the file with the received bytes.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(PART_FILE)
    }

    /// Directory of the file, and its name there.
    pub(super) fn directory_entry(&self) -> (&Directory, &'static str) {
        (&self.dir, PART_FILE)
    }

    /// The progress of writing the part file, for its readers.
    pub(super) fn write_progress(&self) -> &Arc<WriteProgress> {
        &self.write_progress
    }

    /// Discards the part and its metadata.
    pub(super) fn discard(&mut self) {
        for name in [METADATA_FILE, PART_FILE, INNER_FILE] {
            // A part that cannot be removed is not resumed either, because its metadata is removed first.
            let _ = self.dir.remove_file(name);
        }
        self.metadata = PartMetadata::default();
        self.len = 0;
        self.resumed = false;
        self.write_progress.mark_failed();
        self.write_progress = Arc::new(WriteProgress::growing(0));
    }

    /// Marks the file as complete and returns its description.
    pub(super) fn finish(&mut self) -> ReceivedBundle {
        self.write_progress.mark_complete();
        let size = self.len;
        let validator = self.metadata.validator.clone().map(|validator| BundleValidator { validator, size });
        ReceivedBundle { path: self.path(), validator, resumed: self.resumed, encoded: self.metadata.encoded }
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

    /// Writes the files that an earlier process may have left: metadata, and a part of this many bytes.
    fn write_leftovers(dir: &TempDir, metadata: &str, bytes: usize) {
        std::fs::write(dir.path().join(METADATA_FILE), metadata).unwrap();
        std::fs::write(dir.path().join(PART_FILE), vec![b'x'; bytes]).unwrap();
        std::fs::write(dir.path().join(INNER_FILE), "the inner archive of another part").unwrap();
    }

    fn metadata(source: &str, validator: &str, total: &str) -> String {
        format!(r#"{{"source":"{source}","validator":{validator},"total":{total},"encoded":true}}"#)
    }

    fn count_files(dir: &TempDir) -> usize {
        std::fs::read_dir(dir.path()).unwrap().count()
    }

    #[test]
    fn partial_bundle_is_resumed_only_for_its_source_and_with_a_validator() {
        let v = r#""v""#;
        for (case, metadata, bytes, resumed) in [
            ("some of it", metadata(SOURCE, v, "10"), 4, 4),
            ("all but a byte", metadata(SOURCE, v, "10"), 9, 9),
            ("all of it", metadata(SOURCE, v, "10"), 10, 9),
            ("more than all", metadata(SOURCE, v, "10"), 12, 9),
            ("all of one byte", metadata(SOURCE, v, "1"), 1, 0),
            ("of unknown length", metadata(SOURCE, v, "null"), 4, 4),
            ("nothing", metadata(SOURCE, v, "10"), 0, 0),
            ("of another source", metadata("https://bucket.example/b", v, "10"), 4, 0),
            ("without a validator", metadata(SOURCE, "null", "10"), 4, 0),
            ("incomplete metadata", metadata(SOURCE, v, "10")[..20].to_owned(), 4, 0),
            ("metadata that is too large", metadata(SOURCE, v, "10") + &" ".repeat(1 << 20), 4, 0),
        ] {
            let (dir, directory) = folder();
            write_leftovers(&dir, &metadata, bytes);
            let mut partial = PartialBundle::open(&directory, SOURCE);
            assert_eq!((partial.len(), partial.resume_validator()), (resumed, (resumed > 0).then_some("v")), "{case}");
            assert_eq!(partial.write_progress().wait_for_len(resumed), Some(resumed), "{case}");
            if resumed == 0 {
                assert_eq!((count_files(&dir), partial.total(), partial.validator()), (0, None, None), "{case}");
                continue;
            }
            assert_eq!(std::fs::metadata(dir.path().join(PART_FILE)).unwrap().len(), resumed, "{case}");
            assert_eq!(count_files(&dir), 2, "{case}: the inner archive is removed");
            let validator = Some(BundleValidator { validator: "v".to_owned(), size: resumed });
            let path = directory.path().join(PART_FILE);
            assert_eq!(partial.finish(), ReceivedBundle { path, validator, resumed: true, encoded: true }, "{case}");
        }
        let (dir, directory) = folder();
        std::fs::write(dir.path().join(METADATA_FILE), metadata(SOURCE, v, "10")).unwrap();
        assert_eq!(PartialBundle::open(&directory, SOURCE).resume_validator(), None);
        assert_eq!(count_files(&dir), 0, "metadata without a part");
        std::fs::write(dir.path().join(PART_FILE), "part").unwrap();
        assert_eq!(PartialBundle::open(&directory, SOURCE).resume_validator(), None);
        assert_eq!(count_files(&dir), 0, "a part without metadata");
    }

    #[test]
    fn linked_part_file_is_neither_truncated_nor_continued() {
        let link_kinds: [fn(&Path, &Path); 2] =
            [|from, to| std::fs::hard_link(from, to).unwrap(), |from, to| symlink(from, to).unwrap()];
        for create_link in link_kinds {
            let (dir, directory) = folder();
            let other_dir = tempfile::tempdir().unwrap();
            let file = other_dir.path().join("file");
            std::fs::write(&file, "0123456789").unwrap();
            write_leftovers(&dir, &metadata(SOURCE, r#""v""#, "10"), 0);
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
    fn partial_bundle_writes_metadata_first_and_restarts_with_each_full_response() {
        let (dir, directory) = folder();
        let mut partial = PartialBundle::open(&directory, SOURCE);
        partial.begin(SOURCE, Some("v".to_owned()), Some(6), false).unwrap();
        assert_eq!((count_files(&dir), partial.resume_validator()), (1, None), "there is no part to resume");
        for (piece, len) in [("123", 3), ("45", 5)] {
            partial.append().unwrap().write_all(piece.as_bytes()).unwrap();
            partial.add_received(piece.len() as u64);
            assert_eq!((partial.len(), partial.write_progress().wait_for_len(len)), (len, Some(len)));
        }
        assert_eq!((partial.total(), partial.validator().as_deref()), (Some(6), Some("v")));
        assert_eq!(partial.path(), dir.path().join(PART_FILE));
        assert_eq!((partial.directory_entry().0.path(), partial.directory_entry().1), (dir.path(), PART_FILE));
        for name in [METADATA_FILE, PART_FILE] {
            assert_eq!(std::fs::metadata(dir.path().join(name)).unwrap().mode() & 0o777, FILE_MODE, "{name}");
        }
        let write_progress = Arc::clone(partial.write_progress());
        drop(partial);
        assert_eq!(write_progress.wait_for_len(6), None, "no more bytes will be received");
        let mut partial = PartialBundle::open(&directory, SOURCE);
        assert_eq!((partial.len(), partial.resume_validator()), (5, Some("v")));
        assert_eq!(std::fs::read(dir.path().join(PART_FILE)).unwrap(), b"12345");
        let write_progress = Arc::clone(partial.write_progress());
        partial.begin(SOURCE, None, None, true).unwrap();
        assert_eq!((write_progress.wait_for_len(6), partial.write_progress().wait_for_len(0)), (None, Some(0)));
        assert_eq!((partial.len(), partial.total(), count_files(&dir)), (0, None, 1));
        partial.append().unwrap().write_all(b"ab").unwrap();
        partial.add_received(2);
        assert_eq!(partial.resume_validator(), None, "without a validator");
        let received = ReceivedBundle { path: partial.path(), validator: None, resumed: false, encoded: true };
        assert_eq!(partial.finish(), received);
        assert!(partial.write_progress().is_complete());
        assert_eq!(std::fs::read(partial.path()).unwrap(), b"ab");
        partial.discard();
        assert_eq!((count_files(&dir), partial.len(), partial.write_progress().is_complete()), (0, 0, false));
    }

    #[test]
    fn unwritable_download_directory_is_an_error() {
        let (dir, directory) = folder();
        let mut partial = PartialBundle::open(&directory, SOURCE);
        std::fs::create_dir(dir.path().join(METADATA_FILE)).unwrap();
        assert!(partial.begin(SOURCE, None, None, false).is_err());
        std::fs::create_dir(dir.path().join(PART_FILE)).unwrap();
        assert!(partial.append().is_err());
    }
}
