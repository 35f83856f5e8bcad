//! The files of the inbox that were imported and could not be moved out of it: those on a read-only medium, for
//! example. Without this list a restart would import them again, and an old bundle would replace a newer version.

use std::io;

use docwharf_base::model::digest::Digest;

use super::writer::StoreWriter;
use super::{StoreError, VersionStore};

/// Name of the file: a line for each, the oldest first.
const UNMOVED_FILES: &str = "inbox-unmoved";
/// Upper bound of the number of files that are listed. Beyond it the oldest is forgotten.
pub const MAX_UNMOVED_FILES: usize = 10_000;
/// Upper bound of the size of the list in bytes: a digest of 64 digits and a line end for each file.
const MAX_LIST_BYTES: u64 = MAX_UNMOVED_FILES as u64 * 65;

impl VersionStore {
    /// Returns the digests of these files, the oldest first. A list that cannot be read counts as
    /// empty.
    pub fn unmoved_inbox_files(&self) -> Vec<Digest> {
        let text = self.directory().and_then(|root| root.read(UNMOVED_FILES, MAX_LIST_BYTES)).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().filter_map(Digest::parse).collect()
    }
}

impl StoreWriter {
    /// Adds a file to the list; `file` is a digest of what identifies it.
    ///
    /// # Errors
    /// The list cannot be written, for example because the disk is full.
    pub fn add_unmoved_inbox_file(&self, file: Digest) -> Result<(), StoreError> {
        self.change_unmoved_files(|files| {
            files.retain(|known| *known != file);
            files.push(file);
        })
    }

    /// Removes files from the list.
    ///
    /// # Errors
    /// The list cannot be written.
    pub fn remove_unmoved_inbox_files(&self, moved: &[Digest]) -> Result<(), StoreError> {
        self.change_unmoved_files(|files| files.retain(|file| !moved.contains(file)))
    }

    fn change_unmoved_files(&self, change: impl FnOnce(&mut Vec<Digest>)) -> Result<(), StoreError> {
        let _lock = self.lock_record();
        let mut files = self.store().unmoved_inbox_files();
        change(&mut files);
        let beyond = files.len().saturating_sub(MAX_UNMOVED_FILES);
        let text: String = files[beyond..].iter().flat_map(|file| [file.to_string(), "\n".to_owned()]).collect();
        let write = || -> io::Result<()> {
            let root = self.store().directory()?;
            if text.is_empty() {
                return root.remove_file_if_exists(UNMOVED_FILES).map(drop);
            }
            root.replace(UNMOVED_FILES, 0o600, text.as_bytes())
        };
        write().map_err(StoreError::io("write", &self.store().root().join(UNMOVED_FILES)))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_list_keeps_the_newest_files_and_survives_damage() {
        let dir = tempfile::tempdir().unwrap();
        let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
        let file = |n: usize| Digest::compute(&n.to_le_bytes());
        assert_eq!(writer.store().unmoved_inbox_files(), []);
        let lines: String = (0..MAX_UNMOVED_FILES).flat_map(|n| [file(n).to_string(), "\n".to_owned()]).collect();
        std::fs::write(dir.path().join(UNMOVED_FILES), lines).unwrap();
        writer.add_unmoved_inbox_file(file(MAX_UNMOVED_FILES)).unwrap();
        writer.add_unmoved_inbox_file(file(5)).unwrap();
        let files = writer.store().unmoved_inbox_files();
        assert_eq!(files.len(), MAX_UNMOVED_FILES);
        assert_eq!(files[0], file(1), "the oldest is forgotten");
        assert_eq!(files[MAX_UNMOVED_FILES - 2..], [file(MAX_UNMOVED_FILES), file(5)]);
        std::fs::write(dir.path().join(UNMOVED_FILES), b"\xff\nno digest\n").unwrap();
        assert_eq!(writer.store().unmoved_inbox_files(), []);
        writer.add_unmoved_inbox_file(file(7)).unwrap();
        assert_eq!(writer.store().unmoved_inbox_files(), [file(7)]);
        writer.remove_unmoved_inbox_files(&[file(7)]).unwrap();
        assert!(!dir.path().join(UNMOVED_FILES).exists());
    }
}
