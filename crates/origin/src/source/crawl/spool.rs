//! Stores response bodies in an unnamed file until their file names are known.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Position of a body in the spool file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpoolRange {
    start: u64,
    pub(super) len: usize,
}

/// The spool file. It has no name and disappears when this value is dropped.
#[derive(Debug)]
pub(super) struct BodySpool {
    file: File,
    pub(super) len: u64,
}

impl BodySpool {
    /// Creates the file in `folder`, so that it lies on the disk of the copy.
    pub(super) fn new(folder: &Path) -> io::Result<BodySpool> {
        Ok(BodySpool { file: tempfile::tempfile_in(folder)?, len: 0 })
    }

    pub(super) fn append(&mut self, body: &[u8]) -> io::Result<SpoolRange> {
        let range = SpoolRange { start: self.len, len: body.len() };
        self.file.write_all_at(body, range.start)?;
        self.len += body.len() as u64;
        Ok(range)
    }

    pub(super) fn read(&self, range: SpoolRange) -> io::Result<Vec<u8>> {
        let mut body = vec![0; range.len];
        self.file.read_exact_at(&mut body, range.start)?;
        Ok(body)
    }
}
