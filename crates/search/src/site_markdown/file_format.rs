//! The table and the end of the file. All numbers are little-endian.

use docwharf_base::little_endian::{read_u32_le, read_u64_le};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

/// The number of the format. It is raised whenever the format, the Markdown of pages or the choice of the listed pages
/// changes.
pub const FORMAT_NUMBER: u32 = 2;
/// The last bytes of the file.
const MAGIC: [u8; 8] = *b"DWMDEND\n";
/// The length of a record in bytes: file (u32), offset (u64), length of the coded page (u32), of the page (u32).
pub(super) const RECORD_BYTES: usize = 20;
/// The length of the end of the file in bytes.
pub(super) const FILE_END_BYTES: usize = 8 + 4 + 4 + 32 + 32 + 5 * 8 + 4 + 4;

/// The place of a page in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MarkdownRecord {
    /// The number of the file in the version.
    pub(super) file: u32,
    pub(super) offset: u64,
    /// The length of the coded page, in bytes.
    pub(super) coded_len: u32,
    /// The length of the page when it is decoded, in bytes.
    pub(super) len: u32,
}

impl MarkdownRecord {
    pub(super) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.file.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.coded_len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        MarkdownRecord {
            file: read_u32_le(bytes, 0),
            offset: read_u64_le(bytes, 4),
            coded_len: read_u32_le(bytes, 12),
            len: read_u32_le(bytes, 16),
        }
    }
}

/// The end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileEnd {
    pub(super) version: VersionId,
    /// The digest of the settings that the file was made with.
    pub(super) settings: Digest,
    /// The number of records.
    pub(super) pages: u32,
    /// The start of `llms.txt`.
    pub(super) llms: u64,
    /// The start of its gzip form, and its end.
    pub(super) llms_gzip: u64,
    /// The start of `llms-full.txt`.
    pub(super) llms_full: u64,
    /// The start of its gzip form, and its end.
    pub(super) llms_full_gzip: u64,
    /// The start of the table.
    pub(super) table: u64,
    /// The CRC-32 of everything before the end.
    pub(super) crc: u32,
}

/// The reason why the end of a file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndFault {
    OtherFormat(u32),
    Damaged,
}

impl FileEnd {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FILE_END_BYTES);
        for number in [FORMAT_NUMBER, self.pages] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.version.0.0);
        bytes.extend_from_slice(&self.settings.0);
        for number in [self.llms, self.llms_gzip, self.llms_full, self.llms_full_gzip, self.table] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.crc.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes
    }

    /// Decodes the end of a file with `len` bytes.
    pub(super) fn decode(bytes: &[u8; FILE_END_BYTES], len: u64) -> Result<FileEnd, EndFault> {
        let (content, magic) = bytes.split_at(FILE_END_BYTES - MAGIC.len());
        let crc_at = content.len() - 4;
        if magic != MAGIC || crc32fast::hash(&content[..crc_at]) != read_u32_le(content, crc_at) {
            return Err(EndFault::Damaged);
        }
        let format = read_u32_le(content, 0);
        if format != FORMAT_NUMBER {
            return Err(EndFault::OtherFormat(format));
        }
        let digest = |offset: usize| {
            let mut bytes = [0; 32];
            bytes.copy_from_slice(&content[offset..offset + 32]);
            Digest(bytes)
        };
        let end = FileEnd {
            version: VersionId(digest(8)),
            settings: digest(40),
            pages: read_u32_le(content, 4),
            llms: read_u64_le(content, 72),
            llms_gzip: read_u64_le(content, 80),
            llms_full: read_u64_le(content, 88),
            llms_full_gzip: read_u64_le(content, 96),
            table: read_u64_le(content, 104),
            crc: read_u32_le(content, 112),
        };
        let table_len = u64::from(end.pages) * RECORD_BYTES as u64;
        let is_whole = end.table.checked_add(table_len + FILE_END_BYTES as u64) == Some(len);
        let starts = [end.llms, end.llms_gzip, end.llms_full, end.llms_full_gzip, end.table];
        let is_valid = is_whole && starts.is_sorted();
        is_valid.then_some(end).ok_or(EndFault::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> FileEnd {
        FileEnd {
            version: VersionId(Digest::compute(b"version")),
            settings: Digest::compute(b"settings"),
            pages: 2,
            llms: 10,
            llms_gzip: 12,
            llms_full: 20,
            llms_full_gzip: 25,
            table: 30,
            crc: 7,
        }
    }

    #[test]
    fn end_and_records_are_read_as_they_were_written() {
        let bytes: [u8; FILE_END_BYTES] = end().encode().try_into().unwrap();
        let len = 30 + 2 * RECORD_BYTES as u64 + FILE_END_BYTES as u64;
        assert_eq!(FileEnd::decode(&bytes, len), Ok(end()));
        assert_eq!(FileEnd::decode(&bytes, len + 1), Err(EndFault::Damaged));
        let record = MarkdownRecord { file: 1, offset: 1 << 40, coded_len: 3, len: 4 };
        assert_eq!(MarkdownRecord::decode(&record.encode()), record);
    }

    #[test]
    fn no_byte_of_the_end_can_change_unnoticed() {
        let bytes: [u8; FILE_END_BYTES] = end().encode().try_into().unwrap();
        let len = 30 + 2 * RECORD_BYTES as u64 + FILE_END_BYTES as u64;
        for index in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[index] ^= 1;
            assert_eq!(FileEnd::decode(&damaged, len), Err(EndFault::Damaged), "{index}");
        }
    }
}
