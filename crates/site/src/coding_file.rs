//! The format of coding files: the texts of a version compressed with Brotli or Zstandard, in one file that is mapped
//! like the image.
//!
//! The format is little-endian: a header, one record for each file of the index, the SHA-256 of both, then the bodies
//! in the order of the records, without a gap. A file whose Brotli or Zstandard form is not smaller than its gzip form
//! has an empty record. The body of an HTML file can be continued when it is sent ([`StreamEnd::Continuable`]), so that
//! a tag can be added to the page. The coding file is a cache: it is written again unless it matches its version in
//! every respect. The checksum covers header and records only, and each record has the CRC-32 of its body, so that
//! opening a coding file reads no more than its head.
//!
//! [`StreamEnd::Continuable`]: docwharf_base::codec::content_coding::StreamEnd::Continuable

use std::ops::Range;

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::little_endian::{read_u32_le, read_u64_le};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

const MAGIC: &[u8; 8] = b"DWCODING";
/// The version of the format. It is raised whenever the layout, the meaning of a field or the way bodies are compressed
/// changes.
const FORMAT_VERSION: u32 = 2;
const HEADER_BYTES: usize = 8 + 4 + 4 + 32 + 4 + 4 + 8 + 8;
const RECORD_BYTES: usize = 8 + 8 + 4;
const CHECKSUM_BYTES: usize = 32;

/// The place of a file's compressed bytes in the coding file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodingRecord {
    /// The offset of the first byte in the coding file.
    pub offset: u64,
    /// The number of bytes; 0 for a file without this coding.
    pub len: u64,
    /// The CRC-32 of the bytes.
    pub crc: u32,
}

/// The reason why a coding file is refused. The remedy is always to write it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it does not match its version ({0})")]
pub struct CodingFault(pub &'static str);

/// The size and cost of a coding file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodingStatistics {
    /// The number of files that have a body.
    pub files: u64,
    /// The size of all bodies in bytes.
    pub bytes: u64,
    /// The processor time that compressing took, in milliseconds.
    pub cpu_millis: u64,
}

impl CodingStatistics {
    /// Returns the processor time that compressing took, in seconds.
    pub fn seconds(self) -> f64 {
        self.cpu_millis as f64 / 1000.0
    }
}

/// Returns the size of header, records and checksum for an index of `files` files, in bytes. The bodies begin there.
pub fn compute_head_len(files: usize) -> u64 {
    (HEADER_BYTES + files * RECORD_BYTES + CHECKSUM_BYTES) as u64
}

/// Encodes header, records and checksum. `records` has one record for each file of the index; `cpu_millis` is the
/// processor time that compressing took.
pub fn encode_head(coding: ContentCoding, id: VersionId, records: &[CodingRecord], cpu_millis: u64) -> Vec<u8> {
    let mut output = Vec::with_capacity(compute_head_len(records.len()) as usize);
    let bodies: u64 = records.iter().map(|record| record.len).sum();
    let body_count = records.iter().filter(|record| record.len > 0).count();
    output.extend_from_slice(MAGIC);
    output.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    output.extend_from_slice(&coding_number(coding).to_le_bytes());
    output.extend_from_slice(&id.0.0);
    output.extend_from_slice(&(records.len() as u32).to_le_bytes());
    output.extend_from_slice(&(body_count as u32).to_le_bytes());
    output.extend_from_slice(&(compute_head_len(records.len()) + bodies).to_le_bytes());
    output.extend_from_slice(&cpu_millis.to_le_bytes());
    for record in records {
        output.extend_from_slice(&record.offset.to_le_bytes());
        output.extend_from_slice(&record.len.to_le_bytes());
        output.extend_from_slice(&record.crc.to_le_bytes());
    }
    let checksum = Digest::compute(&output);
    output.extend_from_slice(&checksum.0);
    output
}

/// Checks a coding file without reading its bodies. Everything before the bodies must be what [`encode_head`] writes
/// for this version, the bodies must lie where the records say, and nothing may follow them.
pub fn check_file(
    bytes: &[u8],
    coding: ContentCoding,
    id: VersionId,
    files: usize,
) -> Result<CodingStatistics, CodingFault> {
    let head = compute_head_len(files) as usize;
    if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES || &bytes[..8] != MAGIC || read_u32_le(bytes, 8) != FORMAT_VERSION {
        return Err(CodingFault("another format"));
    }
    if read_u32_le(bytes, 12) != coding_number(coding) {
        return Err(CodingFault("another coding"));
    }
    if bytes[16..48] != id.0.0 || read_u32_le(bytes, 48) as usize != files {
        return Err(CodingFault("another version"));
    }
    if bytes.len() < head || read_u64_le(bytes, 56) != bytes.len() as u64 {
        return Err(CodingFault("length"));
    }
    if Digest::compute(&bytes[..head - CHECKSUM_BYTES]).0 != bytes[head - CHECKSUM_BYTES..head] {
        return Err(CodingFault("checksum"));
    }
    let (mut body_start, mut body_count) = (head as u64, 0);
    for file in 0..files {
        let record = read_record(bytes, file);
        if record.len == 0 {
            continue;
        }
        if record.offset != body_start {
            return Err(CodingFault("a body out of place"));
        }
        body_start = body_start.checked_add(record.len).ok_or(CodingFault("length"))?;
        body_count += 1;
    }
    if body_start != bytes.len() as u64 || body_count != read_u32_le(bytes, 52) {
        return Err(CodingFault("length"));
    }
    Ok(CodingStatistics {
        files: u64::from(body_count),
        bytes: body_start - head as u64,
        cpu_millis: read_u64_le(bytes, 64),
    })
}

/// Returns the record of a file. `file` is below the number of files that [`check_file`] was called with.
pub fn read_record(bytes: &[u8], file: usize) -> CodingRecord {
    let start = HEADER_BYTES + file * RECORD_BYTES;
    CodingRecord {
        offset: read_u64_le(bytes, start),
        len: read_u64_le(bytes, start + 8),
        crc: read_u32_le(bytes, start + 16),
    }
}

impl CodingRecord {
    /// Returns the byte range of the body in a checked coding file; `None` for a file without this coding.
    pub fn body_range(&self) -> Option<Range<usize>> {
        (self.len > 0).then(|| self.offset as usize..(self.offset + self.len) as usize)
    }
}

fn coding_number(coding: ContentCoding) -> u32 {
    match coding {
        ContentCoding::Brotli => 1,
        ContentCoding::Zstd => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: usize = 3;

    fn sample() -> (Vec<u8>, VersionId) {
        let id = VersionId(Digest::compute(b"version"));
        let offset = compute_head_len(FILES);
        let record =
            |offset: u64, body: &[u8]| CodingRecord { offset, len: body.len() as u64, crc: crc32fast::hash(body) };
        let records = [record(offset, b"first"), CodingRecord::default(), record(offset + 5, b"third body")];
        let mut bytes = encode_head(ContentCoding::Brotli, id, &records, 12);
        bytes.extend_from_slice(b"firstthird body");
        (bytes, id)
    }

    #[test]
    fn coding_file_returns_the_bodies_that_were_written() {
        let (bytes, id) = sample();
        let statistics = check_file(&bytes, ContentCoding::Brotli, id, FILES).unwrap();
        assert_eq!(statistics, CodingStatistics { files: 2, bytes: 15, cpu_millis: 12 });
        let body = |file: usize| read_record(&bytes, file).body_range().map(|range| &bytes[range]);
        assert_eq!([body(0), body(1), body(2)], [Some(&b"first"[..]), None, Some(&b"third body"[..])]);
        assert_eq!(read_record(&bytes, 2).crc, crc32fast::hash(b"third body"));
    }

    #[test]
    fn coding_file_without_bodies_is_valid() {
        let id = VersionId(Digest::compute(b"version"));
        let bytes = encode_head(ContentCoding::Zstd, id, &[CodingRecord::default(); 2], 0);
        assert_eq!(check_file(&bytes, ContentCoding::Zstd, id, 2).unwrap(), CodingStatistics::default());
    }

    #[test]
    fn flipped_head_bit_wrong_length_or_other_version_makes_a_coding_file_invalid() {
        let (bytes, id) = sample();
        for bit in 0..compute_head_len(FILES) as usize * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(check_file(&wrong, ContentCoding::Brotli, id, FILES).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(check_file(&bytes[..cut], ContentCoding::Brotli, id, FILES).is_err(), "cut at {cut}");
        }
        assert!(check_file(&[&bytes[..], b"x"].concat(), ContentCoding::Brotli, id, FILES).is_err());
        assert!(check_file(&bytes, ContentCoding::Zstd, id, FILES).is_err());
        assert!(check_file(&bytes, ContentCoding::Brotli, VersionId(Digest::compute(b"other")), FILES).is_err());
        assert!(check_file(&bytes, ContentCoding::Brotli, id, FILES + 1).is_err());
    }

    #[test]
    fn coding_record_out_of_bounds_is_refused_even_with_a_valid_checksum() {
        let id = VersionId(Digest::compute(b"version"));
        let offset = compute_head_len(1);
        for record in [
            CodingRecord { offset: offset + 1, len: 5, crc: 0 },
            CodingRecord { offset: 0, len: offset + 5, crc: 0 },
            CodingRecord { offset, len: u64::MAX - 3, crc: 0 },
            CodingRecord { offset, len: 4, crc: 0 },
        ] {
            let mut bytes = encode_head(ContentCoding::Brotli, id, &[CodingRecord { len: 5, ..record }], 0);
            // The checksum is computed over the wrong record, as a faulty writer would do.
            bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&record.offset.to_le_bytes());
            bytes[HEADER_BYTES + 8..HEADER_BYTES + 16].copy_from_slice(&record.len.to_le_bytes());
            let checked = Digest::compute(&bytes[..bytes.len() - CHECKSUM_BYTES]);
            let end = bytes.len() - CHECKSUM_BYTES;
            bytes[end..].copy_from_slice(&checked.0);
            bytes.extend_from_slice(b"12345");
            assert!(check_file(&bytes, ContentCoding::Brotli, id, 1).is_err(), "{record:?}");
        }
    }

    #[test]
    fn coding_file_head_with_wrong_format_coding_version_or_length_is_refused() {
        let (bytes, id) = sample();
        let head = compute_head_len(FILES) as usize;
        for (offset, value, expected) in [
            (8, 1, "another format"),
            (8, 3, "another format"),
            (12, 2, "another coding"),
            (12, 3, "another coding"),
            (48, 2, "another version"),
            (52, 1, "length"),
            (52, 3, "length"),
            (56, head as u32 + 14, "length"),
            (56, head as u32 + 16, "length"),
        ] {
            let mut wrong = bytes.clone();
            wrong[offset..offset + 4].copy_from_slice(&u32::to_le_bytes(value));
            let checked = Digest::compute(&wrong[..head - CHECKSUM_BYTES]);
            wrong[head - CHECKSUM_BYTES..head].copy_from_slice(&checked.0);
            assert_eq!(
                check_file(&wrong, ContentCoding::Brotli, id, FILES),
                Err(CodingFault(expected)),
                "{offset} {value}"
            );
        }
        assert_eq!(check_file(&bytes, ContentCoding::Brotli, id, FILES).unwrap().seconds().to_string(), "0.012");
    }
}
