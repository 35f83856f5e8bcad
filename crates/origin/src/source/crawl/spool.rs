//! Bodies, kept in a file without a name until it is known what they are called.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where a body lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    start: u64,
    pub(super) len: usize,
}

/// The file. It is gone when this is.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    pub(super) len: u64,
}

impl Spool {
    /// On the disk of the folder that will have the files.
    pub(super) fn new(folder: &Path) -> io::Result<Spool> {
        Ok(Spool { file: tempfile::tempfile_in(folder)?, len: 0 })
    }

    pub(super) fn put(&mut self, body: &[u8]) -> io::Result<Place> {
        let place = Place { start: self.len, len: body.len() };
        self.file.write_all_at(body, place.start)?;
        self.len += body.len() as u64;
        Ok(place)
    }

    pub(super) fn get(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut body = vec![0; place.len];
        self.file.read_exact_at(&mut body, place.start)?;
        Ok(body)
    }
}
