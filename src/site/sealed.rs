//! A version ready to be read: its bytes, its index, and a table from path to file that is built once.

use bytes::Bytes;

use crate::model::version::VersionId;

use super::index::{Coding, Entry, Index};
use super::lookup::{Files, Slashes};
use super::types::{self, CacheClass};

/// A sealed version in memory.
#[derive(Debug)]
pub struct Sealed {
    /// Which version it is.
    pub id: VersionId,
    image: Bytes,
    index: Index,
    table: Vec<u32>,
    /// The number of the site's `404.html`.
    pub not_found: Option<usize>,
    /// What `slashes = "auto"` means for this site.
    pub auto_slashes: Slashes,
    /// Whether Next.js has exported it: there is a root `_next/` folder.
    pub is_next: bool,
}

const EMPTY: u32 = u32::MAX;

impl Sealed {
    /// Joins an image with the index that was checked against it.
    pub fn new(id: VersionId, image: Bytes, index: Index) -> Sealed {
        let mut table = vec![EMPTY; (index.len() * 2).next_power_of_two().max(2)];
        let mask = table.len() - 1;
        let mut is_next = false;
        for i in 0..index.len() {
            let path = index.path(i);
            is_next |= path.starts_with(b"_next/");
            let mut slot = hash(path) & mask;
            while table[slot] != EMPTY {
                slot = (slot + 1) & mask;
            }
            table[slot] = i as u32;
        }
        let not_found = index.find(b"404.html").or_else(|| index.find(b"404/index.html"));
        let auto_slashes = if is_next { Slashes::Serve } else { Slashes::Redirect };
        Sealed { id, image, index, table, not_found, auto_slashes, is_next }
    }

    /// The files, in byte order of their paths.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The record of a file.
    pub fn entry(&self, file: usize) -> Entry {
        self.index.entry(file)
    }

    /// A file's bytes as they lie in the image, without a copy.
    pub fn coded(&self, entry: &Entry) -> Bytes {
        // The index was checked against the image's length when it was read.
        self.image.slice(entry.offset as usize..(entry.offset + entry.coded_len) as usize)
    }

    /// The whole content of a file, decoded if need be; meant for small ones.
    pub fn content(&self, entry: &Entry) -> Result<Bytes, crate::codec::inflate::InflateFault> {
        let coded = self.coded(entry);
        match entry.coding {
            Coding::Stored => Ok(coded),
            Coding::Deflate => crate::codec::inflate::all(&coded, entry.len as usize).map(Bytes::from),
        }
    }

    /// The media type of a file.
    pub fn content_type(&self, file: usize) -> String {
        types::content_type(self.index.path(file))
    }

    /// Whether a file is an archive for download.
    pub fn is_archive(&self, file: usize) -> bool {
        types::is_archive(self.index.path(file))
    }

    /// How long a file may be cached.
    pub fn cache_class(&self, file: usize) -> CacheClass {
        types::cache_class(self.index.path(file))
    }
}

impl Files for Sealed {
    fn is_next(&self) -> bool {
        self.is_next
    }

    fn find(&self, path: &[u8]) -> Option<usize> {
        let mask = self.table.len() - 1;
        let mut slot = hash(path) & mask;
        loop {
            let file = self.table[slot];
            if file == EMPTY {
                return None;
            }
            if self.index.path(file as usize) == path {
                return Some(file as usize);
            }
            slot = (slot + 1) & mask;
        }
    }
}

/// FNV-1a. The table is sealed with the site, so no request can make its chains longer.
fn hash(path: &[u8]) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in path {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ hash >> 32) as usize
}
