//! The index beside a sealed image: where each file of the site lies in it.
//!
//! A cache: anything but a perfect match with its image (length, version id, checksum, bounds) and it is made again by
//! proving the image. Little-endian: header, records in byte order of their paths, the paths, SHA-256 of all before.

use crate::model::digest::Digest;
use crate::model::version::{Manifest, VersionId};

const MAGIC: &[u8; 8] = b"DOCWHARF";
/// Raised whenever the layout or the meaning of a field changes.
const FORMAT: u32 = 1;
const HEADER: usize = 8 + 4 + 4 + 8 + 32 + 8;
const RECORD: usize = 4 + 2 + 1 + 1 + 4 + 8 + 8 + 8 + 8 + 8 + 32 + 4;

/// How a file's bytes lie in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// As they are.
    Stored,
    /// As a DEFLATE stream.
    Deflate,
}

/// One file of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// How its bytes lie in the image.
    pub coding: Coding,
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub coded_len: u64,
    /// Size of the content.
    pub len: u64,
    /// CRC-32 of the content.
    pub crc: u32,
    /// SHA-256 of the content.
    pub content: Digest,
    /// CRC-32 of the coded bytes, which tells two codings of one content apart; 0 where it is stored.
    pub coded_crc: u32,
    /// The bit at which the last DEFLATE block's header stands.
    pub last_header_bit: u64,
    /// Bits of the last coded byte that do not belong to the stream.
    pub spare_bits: u8,
    /// When this path first had this content, in seconds since 1970.
    pub modified: i64,
}

/// What is wrong with an index; the remedy is always to make it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index does not match its image ({0})")]
pub struct IndexFault(&'static str);

/// An index that has been checked.
#[derive(Clone)]
pub struct Index {
    bytes: Box<[u8]>,
    count: usize,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("count", &self.count).finish_non_exhaustive()
    }
}

/// Writes the index of an image of `image_len` bytes. `files` are in byte order of their paths.
pub fn encode(image_len: u64, id: VersionId, files: &[(&[u8], Entry)]) -> Vec<u8> {
    let paths: usize = files.iter().map(|(path, _)| path.len()).sum();
    let mut out = Vec::with_capacity(HEADER + files.len() * RECORD + paths + 32);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&(files.len() as u32).to_le_bytes());
    out.extend_from_slice(&image_len.to_le_bytes());
    out.extend_from_slice(&id.0.0);
    out.extend_from_slice(&(paths as u64).to_le_bytes());
    let mut path_at = 0u32;
    for (path, entry) in files {
        out.extend_from_slice(&path_at.to_le_bytes());
        out.extend_from_slice(&(path.len() as u16).to_le_bytes());
        out.push(u8::from(entry.coding == Coding::Deflate));
        out.push(entry.spare_bits);
        out.extend_from_slice(&entry.crc.to_le_bytes());
        for number in [entry.offset, entry.coded_len, entry.len, entry.last_header_bit, entry.modified.cast_unsigned()]
        {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&entry.content.0);
        out.extend_from_slice(&entry.coded_crc.to_le_bytes());
        path_at += path.len() as u32;
    }
    for (path, _) in files {
        out.extend_from_slice(path);
    }
    let check = Digest::of(&out);
    out.extend_from_slice(&check.0);
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

impl Index {
    /// Checks `bytes` against the image they belong to, and themselves against the version id they claim.
    pub fn decode(bytes: Vec<u8>, image_len: u64, id: VersionId) -> Result<Index, IndexFault> {
        if bytes.len() < HEADER + 32 || &bytes[..8] != MAGIC || u32_at(&bytes, 8) != FORMAT {
            return Err(IndexFault("another format"));
        }
        let count = u32_at(&bytes, 12) as usize;
        let paths = usize::try_from(u64_at(&bytes, 56)).map_err(|_| IndexFault("length"))?;
        let length = count.checked_mul(RECORD).and_then(|n| n.checked_add(HEADER + 32)?.checked_add(paths));
        if length != Some(bytes.len()) {
            return Err(IndexFault("length"));
        }
        let body = bytes.len() - 32;
        if Digest::of(&bytes[..body]).0 != bytes[body..] {
            return Err(IndexFault("checksum"));
        }
        if u64_at(&bytes, 16) != image_len || bytes[24..56] != id.0.0 {
            return Err(IndexFault("another image"));
        }
        let index = Index { bytes: bytes.into(), count };
        index.check(image_len, id, paths)?;
        Ok(index)
    }

    /// Every offset within bounds, paths in order, and the manifest giving the version id.
    fn check(&self, image_len: u64, id: VersionId, paths: usize) -> Result<(), IndexFault> {
        let mut manifest = Manifest::default();
        let mut before: Option<&[u8]> = None;
        for i in 0..self.count {
            let record = self.record(i);
            let (at, len) = (u32_at(record, 0) as usize, usize::from(record[4]) | usize::from(record[5]) << 8);
            if at.checked_add(len).is_none_or(|end| end > paths) {
                return Err(IndexFault("a path out of bounds"));
            }
            let (path, entry) = (self.path(i), self.entry(i));
            if entry.offset.checked_add(entry.coded_len).is_none_or(|end| end > image_len) {
                return Err(IndexFault("a file out of bounds"));
            }
            if before.is_some_and(|b| b >= path) {
                return Err(IndexFault("order"));
            }
            before = Some(path);
            manifest.add(&entry.content, entry.len, path);
        }
        if manifest.id() == id { Ok(()) } else { Err(IndexFault("version id")) }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn record(&self, i: usize) -> &[u8] {
        &self.bytes[HEADER + i * RECORD..HEADER + (i + 1) * RECORD]
    }

    /// The path of file `i`, below [`Index::len`].
    pub fn path(&self, i: usize) -> &[u8] {
        let record = self.record(i);
        let start = HEADER + self.count * RECORD + u32_at(record, 0) as usize;
        &self.bytes[start..start + (usize::from(record[4]) | usize::from(record[5]) << 8)]
    }

    /// The record of file `i`, below [`Index::len`].
    pub fn entry(&self, i: usize) -> Entry {
        let record = self.record(i);
        let number = |n: usize| u64_at(record, 12 + n * 8);
        let mut content = [0; 32];
        content.copy_from_slice(&record[52..84]);
        Entry {
            coding: if record[6] == 1 { Coding::Deflate } else { Coding::Stored },
            spare_bits: record[7],
            crc: u32_at(record, 8),
            offset: number(0),
            coded_len: number(1),
            len: number(2),
            last_header_bit: number(3),
            modified: number(4).cast_signed(),
            content: Digest(content),
            coded_crc: u32_at(record, 84),
        }
    }

    /// The number of the file at `path`.
    pub fn find(&self, path: &[u8]) -> Option<usize> {
        let at = self.place_of(path);
        (at < self.count && self.path(at) == path).then_some(at)
    }

    /// The first path, in byte order, that is not before this one.
    pub fn first_from(&self, path: &[u8]) -> Option<&[u8]> {
        let at = self.place_of(path);
        (at < self.count).then(|| self.path(at))
    }

    /// How many paths are before this one.
    fn place_of(&self, path: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.path(middle) < path {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<u8>, VersionId) {
        let entry = |n: u64| Entry {
            coding: Coding::Deflate,
            offset: n,
            coded_len: 5,
            len: 9,
            crc: 7,
            content: Digest::of(&[n as u8]),
            coded_crc: 1,
            last_header_bit: 3,
            spare_bits: 2,
            modified: -5,
        };
        let mut manifest = Manifest::default();
        let files: Vec<(&[u8], Entry)> = vec![(b"a", entry(0)), (b"a/b", entry(5)), (b"b", entry(10))];
        for (path, entry) in &files {
            manifest.add(&entry.content, entry.len, path);
        }
        let id = manifest.id();
        (encode(15, id, &files), id)
    }

    #[test]
    fn what_was_written_is_found() {
        let (bytes, id) = sample();
        let index = Index::decode(bytes, 15, id).unwrap();
        assert_eq!(index.find(b"a/b"), Some(1));
        assert_eq!(index.find(b"a/"), None);
        assert_eq!(
            (index.first_from(b"a/"), index.first_from(b"b"), index.first_from(b"c")),
            (Some(&b"a/b"[..]), Some(&b"b"[..]), None)
        );
        assert_eq!((index.path(2), index.entry(2).offset, index.entry(2).modified), (&b"b"[..], 10, -5));
    }

    #[test]
    fn any_flipped_bit_and_any_other_length_is_noticed() {
        let (bytes, id) = sample();
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Index::decode(wrong, 15, id).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Index::decode(bytes[..cut].to_vec(), 15, id).is_err(), "cut at {cut}");
        }
        assert!(Index::decode(bytes.clone(), 14, id).is_err());
        assert!(Index::decode(bytes, 15, VersionId(Digest::of(b"other"))).is_err());
    }
}
