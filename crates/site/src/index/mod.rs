//! The index of a sealed image: the place of each file of the site in it.
//!
//! The index is a cache: unless it matches its image in every respect (length, version id, checksum, bounds), it is
//! written again from the verified image. The format is little-endian: a header, one record for each file in byte order
//! of the paths, the hash table from paths to files, the pairs of a page and its Markdown, the paths, the SHA-256 of
//! everything before, the CRC-32 of everything before.
//!
//! [`ImageIndex::read`] checks what must be right before a request is answered, fast enough for a start: that no bit
//! has changed since the index was written (CRC-32), that it belongs to its image, and every bound.
//! [`ImageIndex::verify`] verifies what needs digests: that the records give the version id. A starting server does
//! that after it has begun to serve.
//!
//! The file is mapped, so a disk may lose a part of it after it was checked. A read then returns another record or
//! none, as it does for an image: no method of an index panics or loops forever, even if its bytes have changed.

mod index_entry;
mod index_format;
mod previous_format;

use bytes::Bytes;

use docwharf_base::little_endian::{read_u16_le, read_u32_le, read_u64_le};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::{VersionId, VersionManifest};

use crate::path_table::{self, EMPTY_SLOT};

use index_format::{
    CRC32_BYTES, FORMAT_VERSION, HEADER_BYTES, MAGIC, RECORD_BYTES, SHA256_BYTES, check_record_bounds, decode_record,
    total_len,
};
use previous_format::{convert_previous_format, is_previous_format};

pub use index_entry::{EntryCompression, IndexEntry, IndexFault};
pub use index_format::encode_index;

/// The number of records, or slots of the hash table, that are checked together: few enough to stay in the L1 cache.
const CHECK_CHUNK_RECORDS: usize = 256;

/// The index of a sealed image. Its bounds have been checked.
#[derive(Clone)]
pub struct ImageIndex {
    bytes: Bytes,
    count: usize,
    slots: usize,
    pairs: usize,
    /// The offsets of the hash table, of the pairs, of the paths, and of the end of the paths.
    part_offsets: [usize; 4],
}

impl std::fmt::Debug for ImageIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageIndex").field("count", &self.count).finish_non_exhaustive()
    }
}

impl ImageIndex {
    /// Reads an index and verifies it in full against its image and its version id. An index of the previous format is
    /// converted: [`ImageIndex::bytes`] returns the current format.
    pub fn decode(bytes: impl Into<Bytes>, image_len: u64, id: VersionId) -> Result<ImageIndex, IndexFault> {
        let bytes = bytes.into();
        let bytes =
            if is_previous_format(&bytes) { convert_previous_format(&bytes, image_len, id)?.into() } else { bytes };
        let index = ImageIndex::read(bytes, image_len, id)?;
        index.verify(id)?;
        Ok(index)
    }

    /// Reads an index and checks everything that must be right before a request is answered from it, except digests:
    /// see [`ImageIndex::verify`].
    pub fn read(bytes: Bytes, image_len: u64, id: VersionId) -> Result<ImageIndex, IndexFault> {
        if bytes.len() < HEADER_BYTES + SHA256_BYTES + CRC32_BYTES
            || &bytes[..8] != MAGIC
            || read_u32_le(&bytes, 8) != FORMAT_VERSION
        {
            return Err(IndexFault("another format"));
        }
        let count = read_u32_le(&bytes, 12) as usize;
        let paths_len = usize::try_from(read_u64_le(&bytes, 56)).map_err(|_| IndexFault("length"))?;
        let (slots, pairs) = (read_u32_le(&bytes, 64) as usize, read_u32_le(&bytes, 68) as usize);
        let parts = [
            (HEADER_BYTES, 1),
            (count, RECORD_BYTES),
            (slots, 4),
            (pairs, 8),
            (paths_len, 1),
            (SHA256_BYTES, 1),
            (CRC32_BYTES, 1),
        ];
        if total_len(&parts) != Some(bytes.len()) || slots != path_table::slot_count(count) || pairs > count {
            return Err(IndexFault("length"));
        }
        let crc_offset = bytes.len() - CRC32_BYTES;
        let table_offset = HEADER_BYTES + count * RECORD_BYTES;
        let part_offsets =
            [table_offset, table_offset + slots * 4, table_offset + slots * 4 + pairs * 8, crc_offset - SHA256_BYTES];
        let stored_crc = read_u32_le(&bytes, crc_offset);
        let index = ImageIndex { bytes, count, slots, pairs, part_offsets };
        let (computed_crc, bounds) = index.check_bounds(image_len, paths_len);
        if computed_crc != stored_crc {
            return Err(IndexFault("checksum"));
        }
        if read_u64_le(&index.bytes, 16) != image_len || index.bytes[24..56] != id.0.0 {
            return Err(IndexFault("another image"));
        }
        bounds.map(|()| index)
    }

    /// Computes the CRC-32 of everything before the stored one, and checks every bound. It works in small pieces, so
    /// that each piece is loaded from memory only once.
    fn check_bounds(&self, image_len: u64, paths_len: usize) -> (u32, Result<(), IndexFault>) {
        let [records, table, pairs, paths] =
            [HEADER_BYTES, self.part_offsets[0], self.part_offsets[1], self.part_offsets[2]];
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.bytes[..records]);
        let mut bounds = Ok(());
        for piece in self.bytes[records..table].chunks(CHECK_CHUNK_RECORDS * RECORD_BYTES) {
            crc.update(piece);
            bounds = bounds.and_then(|()| check_record_bounds(piece.as_chunks().0, image_len, paths_len));
        }
        let is_file = |word: &[u8; 4]| (u32::from_le_bytes(*word) as usize) < self.count;
        let is_empty = |word: &[u8; 4]| u32::from_le_bytes(*word) == EMPTY_SLOT;
        for piece in self.bytes[table..pairs].chunks(CHECK_CHUNK_RECORDS * 4) {
            crc.update(piece);
            // Checks all words of the piece: without an early exit the compiler vectorises the loop.
            if !piece.as_chunks().0.iter().fold(true, |is_valid, word| is_valid & (is_file(word) | is_empty(word))) {
                bounds = bounds.and(Err(IndexFault("a slot out of bounds")));
            }
        }
        crc.update(&self.bytes[pairs..paths]);
        if !self.bytes[pairs..paths].as_chunks().0.iter().all(is_file) {
            bounds = bounds.and(Err(IndexFault("Markdown out of bounds")));
        }
        crc.update(&self.bytes[paths..self.bytes.len() - CRC32_BYTES]);
        (crc.finalize(), bounds)
    }

    /// Verifies that the index is the one that was written, and that it was written correctly: its SHA-256, paths in
    /// order and found by the hash table, the manifest giving the version id, each page with its Markdown. It takes
    /// about 10 ms for 30,000 files.
    pub fn verify(&self, id: VersionId) -> Result<(), IndexFault> {
        if Digest::compute(&self.bytes[..self.part_offsets[3]]).0
            != self.bytes[self.part_offsets[3]..self.part_offsets[3] + SHA256_BYTES]
        {
            return Err(IndexFault("its SHA-256 is wrong"));
        }
        let mut manifest = VersionManifest::default();
        let mut previous: Option<&[u8]> = None;
        for i in 0..self.count {
            let (path, entry) = (self.path(i), self.entry(i));
            if previous.is_some_and(|b| b >= path) {
                return Err(IndexFault("its paths are not in order"));
            }
            if self.find(path) != Some(i) {
                return Err(IndexFault("a path that is not found"));
            }
            previous = Some(path);
            manifest.add(&entry.content, entry.len, path);
        }
        if manifest.id() != id {
            return Err(IndexFault("version id"));
        }
        let pairs = path_table::find_markdown_pairs((0..self.count).map(|i| self.path(i)), |path| self.find(path));
        if (0..self.pairs).map(|i| self.markdown_pair(i)).eq(pairs) {
            Ok(())
        } else {
            Err(IndexFault("its Markdown pairs are wrong"))
        }
    }

    /// Returns the bytes of the index file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the index has no files.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn record(&self, i: usize) -> &[u8] {
        &self.bytes[HEADER_BYTES + i * RECORD_BYTES..HEADER_BYTES + (i + 1) * RECORD_BYTES]
    }

    /// Returns the path of file `i`, which is below [`ImageIndex::len`].
    pub fn path(&self, i: usize) -> &[u8] {
        let record = self.record(i);
        let (start, len) = (read_u32_le(record, 0) as usize, usize::from(read_u16_le(record, 4)));
        self.bytes[self.part_offsets[2]..self.part_offsets[3]].get(start..start.saturating_add(len)).unwrap_or_default()
    }

    /// Returns the record of file `i`, which is below [`ImageIndex::len`].
    pub fn entry(&self, i: usize) -> IndexEntry {
        decode_record(self.record(i))
    }

    /// Returns the number of the file at `path`.
    pub fn find(&self, path: &[u8]) -> Option<usize> {
        let table = &self.bytes[self.part_offsets[0]..self.part_offsets[1]];
        let mut slot = path_table::first_slot(path, self.slots);
        for _ in 0..self.slots {
            let file = read_u32_le(table, slot * 4);
            if file == EMPTY_SLOT {
                return None;
            }
            let file = file as usize;
            if file < self.count && self.path(file) == path {
                return Some(file);
            }
            slot = (slot + 1) & (self.slots - 1);
        }
        None
    }

    /// Returns the number of the Markdown file with the same text as the page with this number.
    pub fn markdown_of(&self, page: usize) -> Option<usize> {
        let pair = partition_point(self.pairs, |i| (self.markdown_pair(i).0 as usize) < page);
        let (pair_page, file) = (pair < self.pairs).then(|| self.markdown_pair(pair))?;
        (pair_page as usize == page && (file as usize) < self.count).then_some(file as usize)
    }

    fn markdown_pair(&self, i: usize) -> (u32, u32) {
        let offset = self.part_offsets[1] + i * 8;
        (read_u32_le(&self.bytes, offset), read_u32_le(&self.bytes, offset + 4))
    }

    /// Returns the first path, in byte order, that is equal to or after `path`.
    pub fn first_path_from(&self, path: &[u8]) -> Option<&[u8]> {
        let first = partition_point(self.count, |i| self.path(i) < path);
        (first < self.count).then(|| self.path(first))
    }
}

/// Returns the first number below `len` for which `is_before` is false, or `len`. `is_before` is true for all numbers
/// before it and false for all after it.
fn partition_point(len: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests;
