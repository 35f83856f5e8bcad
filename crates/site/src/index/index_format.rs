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
    let paths_len: usize = files.iter().map(|(path, _)| path.len()).sum();
    let paths = || files.iter().map(|&(path, _)| path);
    let table = path_table::build_path_table(paths());
    let find = |path: &[u8]| files.binary_search_by(|(candidate, _)| (*candidate).cmp(path)).ok();
    let pairs = path_table::find_markdown_pairs(paths(), find);
    let length = HEADER_BYTES
        + files.len() * RECORD_BYTES
        + table.len() * 4
        + pairs.len() * 8
        + paths_len
        + SHA256_BYTES
        + CRC32_BYTES;
    let mut output = Vec::with_capacity(length);
    output.extend_from_slice(MAGIC);
    output.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    output.extend_from_slice(&(files.len() as u32).to_le_bytes());
    output.extend_from_slice(&image_len.to_le_bytes());
    output.extend_from_slice(&id.0.0);
    output.extend_from_slice(&(paths_len as u64).to_le_bytes());
    output.extend_from_slice(&(table.len() as u32).to_le_bytes());
    output.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
    let mut path_offset = 0u32;
    for (path, entry) in files {
        encode_record(&mut output, path_offset, path.len(), entry);
        path_offset += path.len() as u32;
    }
    let words = table.iter().copied().chain(pairs.iter().flat_map(|&(page, file)| [page, file]));
    words.for_each(|word| output.extend_from_slice(&word.to_le_bytes()));
    paths().for_each(|path| output.extend_from_slice(path));
    let digest = Digest::compute(&output);
    output.extend_from_slice(&digest.0);
    let checksum = crc32fast::hash(&output);
    output.extend_from_slice(&checksum.to_le_bytes());
    output
}

fn encode_record(output: &mut Vec<u8>, path_offset: u32, path_len: usize, entry: &IndexEntry) {
    output.extend_from_slice(&path_offset.to_le_bytes());
    output.extend_from_slice(&(path_len as u16).to_le_bytes());
    output.push(u8::from(entry.compression == EntryCompression::Deflate));
    output.push(entry.spare_bits);
    output.extend_from_slice(&entry.crc.to_le_bytes());
    for number in [entry.offset, entry.compressed_len, entry.len, entry.last_block_bit, entry.modified.cast_unsigned()]
    {
        output.extend_from_slice(&number.to_le_bytes());
    }
    output.extend_from_slice(&entry.content.0);
    output.extend_from_slice(&entry.compressed_crc.to_le_bytes());
}

/// Returns the total length of `parts`, each a count and an element size; `None` on overflow.
pub(super) fn total_len(parts: &[(usize, usize)]) -> Option<usize> {
    parts.iter().try_fold(0usize, |sum, &(number, size)| sum.checked_add(number.checked_mul(size)?))
}

/// Checks that each record's path lies within the `paths_len` bytes of paths, and its file within the image.
pub(super) fn check_record_bounds(
    records: &[[u8; RECORD_BYTES]],
    image_len: u64,
    paths_len: usize,
) -> Result<(), IndexFault> {
    for record in records {
        let (start, len) = (read_u32_le(record, 0) as usize, usize::from(read_u16_le(record, 4)));
        if start.checked_add(len).is_none_or(|end| end > paths_len) {
            return Err(IndexFault("a path out of bounds"));
        }
        let (offset, compressed_len) = (read_u64_le(record, 12), read_u64_le(record, 20));
        if offset.checked_add(compressed_len).is_none_or(|end| end > image_len) {
            return Err(IndexFault("a file out of bounds"));
        }
    }
    Ok(())
}

/// Decodes a record. Any bytes result in an entry.
pub(super) fn decode_record(record: &[u8]) -> IndexEntry {
    let number = |n: usize| read_u64_le(record, 12 + n * 8);
    let mut content = [0; 32];
    content.copy_from_slice(&record[52..84]);
    IndexEntry {
        compression: if record[6] == 1 { EntryCompression::Deflate } else { EntryCompression::Stored },
        spare_bits: record[7],
        crc: read_u32_le(record, 8),
        offset: number(0),
        compressed_len: number(1),
        len: number(2),
        last_block_bit: number(3),
        modified: number(4).cast_signed(),
        content: Digest(content),
        compressed_crc: read_u32_le(record, 84),
    }
}
