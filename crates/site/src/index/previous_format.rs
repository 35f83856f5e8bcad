//! The previous format of an index. An index of it is converted, so that an upgrade need not verify each image again.

use docwharf_base::little_endian::{read_u16_le, read_u32_le, read_u64_le};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

use super::index_entry::{IndexEntry, IndexFault};
use super::index_format::{MAGIC, RECORD_BYTES, SHA256_BYTES, decode_record, encode_index, total_len};

/// The previous version of the format, without hash table, pairs of page and Markdown, and CRC-32. An index of this
/// version is converted.
pub(super) const PREVIOUS_FORMAT_VERSION: u32 = 1;
pub(super) const PREVIOUS_HEADER_BYTES: usize = 8 + 4 + 4 + 8 + 32 + 8;

/// Whether the header is that of the previous format.
pub(super) fn is_previous_format(bytes: &[u8]) -> bool {
    bytes.len() >= PREVIOUS_HEADER_BYTES + SHA256_BYTES
        && &bytes[..8] == MAGIC
        && read_u32_le(bytes, 8) == PREVIOUS_FORMAT_VERSION
}

/// Verifies an index of the previous format and converts it to the current one.
pub(super) fn convert_previous_format(bytes: &[u8], image_len: u64, id: VersionId) -> Result<Vec<u8>, IndexFault> {
    let count = read_u32_le(bytes, 12) as usize;
    let paths_len = usize::try_from(read_u64_le(bytes, 56)).map_err(|_| IndexFault("length"))?;
    if total_len(&[(PREVIOUS_HEADER_BYTES, 1), (count, RECORD_BYTES), (paths_len, 1), (SHA256_BYTES, 1)])
        != Some(bytes.len())
    {
        return Err(IndexFault("length"));
    }
    let (body, checksum) = bytes.split_at(bytes.len() - SHA256_BYTES);
    if Digest::compute(body).0 != checksum {
        return Err(IndexFault("checksum"));
    }
    if read_u64_le(bytes, 16) != image_len || bytes[24..56] != id.0.0 {
        return Err(IndexFault("another image"));
    }
    let (records, paths) = body[PREVIOUS_HEADER_BYTES..].split_at(count * RECORD_BYTES);
    let file = |record| {
        let (start, len) = (read_u32_le(record, 0) as usize, usize::from(read_u16_le(record, 4)));
        let path = start.checked_add(len).and_then(|end| paths.get(start..end));
        Ok((path.ok_or(IndexFault("a path out of bounds"))?, decode_record(record)))
    };
    let files: Vec<(&[u8], IndexEntry)> = records.chunks_exact(RECORD_BYTES).map(file).collect::<Result<_, _>>()?;
    if !files.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(IndexFault("its paths are not in order"));
    }
    Ok(encode_index(image_len, id, &files))
}
