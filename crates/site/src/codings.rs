//! The coding of a version: each of its texts once more, as Brotli or Zstandard, in one file that is mapped like the image.
//!
//! Little-endian: header, one record for each file of the index, SHA-256 of both, then the bodies in the same order, without
//! a gap. A file that got no smaller than its gzip form has an empty record. It is a cache: anything but a perfect match
//! with its version and it is made again. The checksum covers the table alone, each record has a CRC-32 of its body, so
//! that opening one costs no more than reading what will be sent anyway.

use std::ops::Range;

use docwharf_base::codec::dense::Dense;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

const MAGIC: &[u8; 8] = b"DWCODING";
/// Raised whenever the layout, the meaning of a field or how bodies are made changes.
const FORMAT: u32 = 1;
const HEADER: usize = 8 + 4 + 4 + 32 + 4 + 4 + 8 + 8;
const RECORD: usize = 8 + 8 + 4;
const CHECK: usize = 32;

/// Where a file's coded bytes lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// Where they begin in the file.
    pub offset: u64,
    /// How many they are; 0 for a file without this coding.
    pub len: u64,
    /// Their CRC-32.
    pub crc: u32,
}

/// What is wrong with a coding; the remedy is always to make it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it does not match its version ({0})")]
pub struct CodingFault(pub &'static str);

/// What a coding is like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Yield {
    /// Files that have it.
    pub files: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Milliseconds of processor time that making it took.
    pub millis: u64,
}

impl Yield {
    /// Seconds of processor time that making it took.
    pub fn seconds(self) -> f64 {
        self.millis as f64 / 1000.0
    }
}

/// Bytes of header, table and checksum for an index of so many files: bodies begin there.
pub fn head_len(files: usize) -> u64 {
    (HEADER + files * RECORD + CHECK) as u64
}

/// Header, table and checksum. `records` are those of all files of the index.
pub fn head(coding: Dense, id: VersionId, records: &[Record], millis: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(head_len(records.len()) as usize);
    let bodies: u64 = records.iter().map(|record| record.len).sum();
    let kept = records.iter().filter(|record| record.len > 0).count();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&number(coding).to_le_bytes());
    out.extend_from_slice(&id.0.0);
    out.extend_from_slice(&(records.len() as u32).to_le_bytes());
    out.extend_from_slice(&(kept as u32).to_le_bytes());
    out.extend_from_slice(&(head_len(records.len()) + bodies).to_le_bytes());
    out.extend_from_slice(&millis.to_le_bytes());
    for record in records {
        out.extend_from_slice(&record.offset.to_le_bytes());
        out.extend_from_slice(&record.len.to_le_bytes());
        out.extend_from_slice(&record.crc.to_le_bytes());
    }
    let check = Digest::of(&out);
    out.extend_from_slice(&check.0);
    out
}

/// Checks a whole file but for its bodies, which are not looked at: everything before them is what [`head`] writes for
/// this version, they lie where it says, and nothing follows.
pub fn check(bytes: &[u8], coding: Dense, id: VersionId, files: usize) -> Result<Yield, CodingFault> {
    let head = head_len(files) as usize;
    if bytes.len() < HEADER + CHECK || &bytes[..8] != MAGIC || u32_at(bytes, 8) != FORMAT {
        return Err(CodingFault("another format"));
    }
    if u32_at(bytes, 12) != number(coding) {
        return Err(CodingFault("another coding"));
    }
    if bytes[16..48] != id.0.0 || u32_at(bytes, 48) as usize != files {
        return Err(CodingFault("another version"));
    }
    if bytes.len() < head || u64_at(bytes, 56) != bytes.len() as u64 {
        return Err(CodingFault("length"));
    }
    if Digest::of(&bytes[..head - CHECK]).0 != bytes[head - CHECK..head] {
        return Err(CodingFault("checksum"));
    }
    let (mut at, mut kept) = (head as u64, 0);
    for file in 0..files {
        let record = record(bytes, file);
        if record.len == 0 {
            continue;
        }
        if record.offset != at {
            return Err(CodingFault("a body out of place"));
        }
        at = at.checked_add(record.len).ok_or(CodingFault("length"))?;
        kept += 1;
    }
    if at != bytes.len() as u64 || kept != u32_at(bytes, 52) {
        return Err(CodingFault("length"));
    }
    Ok(Yield { files: u64::from(kept), bytes: at - head as u64, millis: u64_at(bytes, 64) })
}

/// The record of a file, below the number of files that [`check`] was told.
pub fn record(bytes: &[u8], file: usize) -> Record {
    let at = HEADER + file * RECORD;
    Record { offset: u64_at(bytes, at), len: u64_at(bytes, at + 8), crc: u32_at(bytes, at + 16) }
}

impl Record {
    /// Where its body lies in bytes that were checked; none for a file without this coding.
    pub fn range(&self) -> Option<Range<usize>> {
        (self.len > 0).then(|| self.offset as usize..(self.offset + self.len) as usize)
    }
}

fn number(coding: Dense) -> u32 {
    match coding {
        Dense::Brotli => 1,
        Dense::Zstd => 2,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: usize = 3;

    fn sample() -> (Vec<u8>, VersionId) {
        let id = VersionId(Digest::of(b"version"));
        let at = head_len(FILES);
        let of = |offset: u64, body: &[u8]| Record { offset, len: body.len() as u64, crc: crc32fast::hash(body) };
        let records = [of(at, b"first"), Record::default(), of(at + 5, b"third body")];
        let mut bytes = head(Dense::Brotli, id, &records, 12);
        bytes.extend_from_slice(b"firstthird body");
        (bytes, id)
    }

    #[test]
    fn what_was_written_is_found() {
        let (bytes, id) = sample();
        let found = check(&bytes, Dense::Brotli, id, FILES).unwrap();
        assert_eq!(found, Yield { files: 2, bytes: 15, millis: 12 });
        let body = |file: usize| record(&bytes, file).range().map(|range| &bytes[range]);
        assert_eq!([body(0), body(1), body(2)], [Some(&b"first"[..]), None, Some(&b"third body"[..])]);
        assert_eq!(record(&bytes, 2).crc, crc32fast::hash(b"third body"));
    }

    #[test]
    fn a_coding_of_nothing_is_one_too() {
        let id = VersionId(Digest::of(b"version"));
        let bytes = head(Dense::Zstd, id, &[Record::default(); 2], 0);
        assert_eq!(check(&bytes, Dense::Zstd, id, 2).unwrap(), Yield::default());
    }

    #[test]
    fn any_flipped_bit_before_the_bodies_any_other_length_and_any_other_version_is_noticed() {
        let (bytes, id) = sample();
        for bit in 0..head_len(FILES) as usize * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&wrong, Dense::Brotli, id, FILES).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(check(&bytes[..cut], Dense::Brotli, id, FILES).is_err(), "cut at {cut}");
        }
        assert!(check(&[&bytes[..], b"x"].concat(), Dense::Brotli, id, FILES).is_err());
        assert!(check(&bytes, Dense::Zstd, id, FILES).is_err());
        assert!(check(&bytes, Dense::Brotli, VersionId(Digest::of(b"other")), FILES).is_err());
        assert!(check(&bytes, Dense::Brotli, id, FILES + 1).is_err());
    }

    #[test]
    fn records_that_lead_elsewhere_are_refused_though_their_checksum_is_right() {
        let id = VersionId(Digest::of(b"version"));
        let at = head_len(1);
        for record in [
            Record { offset: at + 1, len: 5, crc: 0 },
            Record { offset: 0, len: at + 5, crc: 0 },
            Record { offset: at, len: u64::MAX - 3, crc: 0 },
            Record { offset: at, len: 4, crc: 0 },
        ] {
            let mut bytes = head(Dense::Brotli, id, &[Record { len: 5, ..record }], 0);
            // As whoever writes the checksum could have it.
            bytes[HEADER..HEADER + 8].copy_from_slice(&record.offset.to_le_bytes());
            bytes[HEADER + 8..HEADER + 16].copy_from_slice(&record.len.to_le_bytes());
            let checked = Digest::of(&bytes[..bytes.len() - CHECK]);
            let end = bytes.len() - CHECK;
            bytes[end..].copy_from_slice(&checked.0);
            bytes.extend_from_slice(b"12345");
            assert!(check(&bytes, Dense::Brotli, id, 1).is_err(), "{record:?}");
        }
    }

    #[test]
    fn what_the_head_says_of_all_files_together_is_held_against_their_records() {
        let (bytes, id) = sample();
        let head = head_len(FILES) as usize;
        for (at, with, why) in [
            (8, 2, "another format"),
            (12, 2, "another coding"),
            (12, 3, "another coding"),
            (48, 2, "another version"),
            (52, 1, "length"),
            (52, 3, "length"),
            (56, head as u32 + 14, "length"),
            (56, head as u32 + 16, "length"),
        ] {
            let mut wrong = bytes.clone();
            wrong[at..at + 4].copy_from_slice(&u32::to_le_bytes(with));
            let checked = Digest::of(&wrong[..head - CHECK]);
            wrong[head - CHECK..head].copy_from_slice(&checked.0);
            assert_eq!(check(&wrong, Dense::Brotli, id, FILES), Err(CodingFault(why)), "{at} {with}");
        }
        assert_eq!(check(&bytes, Dense::Brotli, id, FILES).unwrap().seconds().to_string(), "0.012");
    }
}
