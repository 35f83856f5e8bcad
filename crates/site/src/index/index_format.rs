//! The bytes of an index: its constants, and encoding and decoding of its records.

use docwharf_base::little_endian::{read_u16_le, read_u32_le, read_u64_le};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

use crate::path_table;

use super::index_entry::{EntryCompression, IndexEntry, IndexFault};

pub(super) const MAGIC: &[u8; 8] = b"DOCWHARF";
/// The version of the format. It is raised whenever the layout or the meaning of a field changes.
pub(super) const FORMAT_VERSION: u32 = 2;
/// Magic, version of the format, number of files, length of the image, version id, length of the paths, slots, pairs.
pub(super) const HEADER_BYTES: usize = 8 + 4 + 4 + 8 + 32 + 8 + 4 + 4;
pub(super) const RECORD_BYTES: usize = 4 + 2 + 1 + 1 + 4 + 8 + 8 + 8 + 8 + 8 + 32 + 4;
pub(super) const SHA256_BYTES: usize = 32;
pub(super) const CRC32_BYTES: usize = 4;

/// Encodes the index of an image of `image_len` bytes. `files` are in byte order of their paths.
pub fn encode_index(image_len: u64, id: VersionId, files: &[(&[u8], IndexEntry)]) -> Vec<u8> {
    let names: usize = files.iter().map(|(path, _)| path.len()).sum();
    let paths = || files.iter().map(|&(path, _)| path);
    let table = path_table::build_path_table(paths());
    let find = |wanted: &[u8]| files.binary_search_by(|(path, _)| (*path).cmp(wanted)).ok();
    let pairs = path_table::find_markdown_pairs(paths(), find);
    let length = HEADER_BYTES
        + files.len() * RECORD_BYTES
        + table.len() * 4
        + pairs.len() * 8
        + names
        + SHA256_BYTES
        + CRC32_BYTES;
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&(files.len() as u32).to_le_bytes());
    out.extend_from_slice(&image_len.to_le_bytes());
    out.extend_from_slice(&id.0.0);
    out.extend_from_slice(&(names as u64).to_le_bytes());
    out.extend_from_slice(&(table.len() as u32).to_le_bytes());
    out.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
    let mut path_at = 0u32;
    for (path, entry) in files {
        encode_record(&mut out, path_at, path.len(), entry);
        path_at += path.len() as u32;
    }
    let words = table.iter().copied().chain(pairs.iter().flat_map(|&(page, file)| [page, file]));
    words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    paths().for_each(|path| out.extend_from_slice(path));
    let digest = Digest::of(&out);
    out.extend_from_slice(&digest.0);
    let check = crc32fast::hash(&out);
    out.extend_from_slice(&check.to_le_bytes());
    out
}

fn encode_record(out: &mut Vec<u8>, path_at: u32, path_len: usize, entry: &IndexEntry) {
    out.extend_from_slice(&path_at.to_le_bytes());
    out.extend_from_slice(&(path_len as u16).to_le_bytes());
    out.push(u8::from(entry.coding == EntryCompression::Deflate));
    out.push(entry.spare_bits);
    out.extend_from_slice(&entry.crc.to_le_bytes());
    for number in [entry.offset, entry.coded_len, entry.len, entry.last_header_bit, entry.modified.cast_unsigned()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&entry.content.0);
    out.extend_from_slice(&entry.coded_crc.to_le_bytes());
}

/// Returns the total length of `parts`, each a count and an element size; `None` on overflow.
pub(super) fn total_len(parts: &[(usize, usize)]) -> Option<usize> {
    parts.iter().try_fold(0usize, |sum, &(number, size)| sum.checked_add(number.checked_mul(size)?))
}

/// Checks that each record's path lies within the `names` bytes of paths, and its file within the image.
pub(super) fn check_record_bounds(
    records: &[[u8; RECORD_BYTES]],
    image_len: u64,
    names: usize,
) -> Result<(), IndexFault> {
    for record in records {
        let (at, len) = (read_u32_le(record, 0) as usize, usize::from(read_u16_le(record, 4)));
        if at.checked_add(len).is_none_or(|end| end > names) {
            return Err(IndexFault("a path out of bounds"));
        }
        let (offset, coded_len) = (read_u64_le(record, 12), read_u64_le(record, 20));
        if offset.checked_add(coded_len).is_none_or(|end| end > image_len) {
            return Err(IndexFault("a file out of bounds"));
        }
    }
    Ok(())
}

/// Decodes a record. Any bytes give an entry.
pub(super) fn decode_record(record: &[u8]) -> IndexEntry {
    let number = |n: usize| read_u64_le(record, 12 + n * 8);
    let mut content = [0; 32];
    content.copy_from_slice(&record[52..84]);
    IndexEntry {
        coding: if record[6] == 1 { EntryCompression::Deflate } else { EntryCompression::Stored },
        spare_bits: record[7],
        crc: read_u32_le(record, 8),
        offset: number(0),
        coded_len: number(1),
        len: number(2),
        last_header_bit: number(3),
        modified: number(4).cast_signed(),
        content: Digest(content),
        coded_crc: read_u32_le(record, 84),
    }
}
