//! The header of an index: what it was made from and by, and the checksum of each of its files.
//!
//! The header is written last, so an index without one is not complete. It is JSON, and has the checksum of its own
//! content, because a changed digit would still be JSON.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use docwharf_base::model::version::VersionId;

use crate::analyze::ANALYZER_NUMBER;

/// The name of the header file. `meta.json` belongs to tantivy.
pub(crate) const HEADER_FILE: &str = "search.json";
/// The name of the file with the table of pages.
pub(super) const PAGES_FILE: &str = "pages";
/// The number of the format. It is raised whenever the fields, the names, the meaning of the stored numbers or the
/// version of tantivy change.
pub const FORMAT_NUMBER: u32 = 3;

/// The content of the header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IndexHeader {
    /// [`FORMAT_NUMBER`] of the program that has built the index.
    pub(super) format: u32,
    /// [`ANALYZER_NUMBER`] of that program.
    pub(super) analyzer: u32,
    /// The version that the index is of.
    pub(super) version: VersionId,
    /// [`BuildSettings::digest`](super::BuildSettings::digest), in hexadecimal digits.
    pub(super) settings: String,
    /// The number of pages.
    pub(super) pages: u64,
    /// The number of sections.
    pub(super) sections: u64,
    /// The languages whose stems are in the index, as tags, that of the most pages first.
    pub(super) stem_languages: Vec<String>,
    /// The other files of the index.
    pub(super) files: Vec<IndexFile>,
}

/// A file of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IndexFile {
    pub(super) name: String,
    /// The length in bytes.
    pub(super) len: u64,
    /// The CRC-32 of the content.
    pub(super) crc: u32,
}

/// The numbers that decide whether the rest of a header can be read.
#[derive(Deserialize)]
struct FormatNumbers {
    format: u32,
    analyzer: u32,
}

/// The header file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderFile {
    /// The CRC-32 of the content as it is written.
    crc: u32,
    content: Box<RawValue>,
}

/// The reason why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// It was written by a program with another number of the format or of the analyzer.
    OtherFormat { format: u32, analyzer: u32 },
    /// It is not what was written.
    Damaged,
}

impl IndexHeader {
    /// Encodes the header file.
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let content = serde_json::value::to_raw_value(self)?;
        serde_json::to_vec(&HeaderFile { crc: crc32fast::hash(content.get().as_bytes()), content })
    }

    /// Decodes a header file.
    pub(super) fn decode(bytes: &[u8]) -> Result<IndexHeader, HeaderFault> {
        let file: HeaderFile = serde_json::from_slice(bytes).map_err(|_| HeaderFault::Damaged)?;
        let content = file.content.get();
        if crc32fast::hash(content.as_bytes()) != file.crc {
            return Err(HeaderFault::Damaged);
        }
        let FormatNumbers { format, analyzer } = serde_json::from_str(content).map_err(|_| HeaderFault::Damaged)?;
        if (format, analyzer) != (FORMAT_NUMBER, ANALYZER_NUMBER) {
            return Err(HeaderFault::OtherFormat { format, analyzer });
        }
        serde_json::from_str(content).map_err(|_| HeaderFault::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;

    use super::*;

    fn header() -> IndexHeader {
        IndexHeader {
            format: FORMAT_NUMBER,
            analyzer: ANALYZER_NUMBER,
            version: VersionId(Digest::compute(b"x")),
            settings: "0".repeat(64),
            pages: 10,
            sections: 20,
            stem_languages: vec!["en".to_owned()],
            files: vec![IndexFile { name: PAGES_FILE.to_owned(), len: 3, crc: 4 }],
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert_eq!(IndexHeader::decode(&header().encode().unwrap()), Ok(header()));
    }

    #[test]
    fn a_header_with_another_number_is_distinguished_from_a_damaged_one() {
        for (format, analyzer) in [(FORMAT_NUMBER + 1, ANALYZER_NUMBER), (FORMAT_NUMBER, ANALYZER_NUMBER + 1), (0, 0)] {
            let bytes = IndexHeader { format, analyzer, ..header() }.encode().unwrap();
            assert_eq!(IndexHeader::decode(&bytes), Err(HeaderFault::OtherFormat { format, analyzer }));
        }
        let content = RawValue::from_string(r#"{"format":99,"analyzer":1,"shape":[]}"#.to_owned()).unwrap();
        let file = HeaderFile { crc: crc32fast::hash(content.get().as_bytes()), content };
        let fault = HeaderFault::OtherFormat { format: 99, analyzer: 1 };
        assert_eq!(IndexHeader::decode(&serde_json::to_vec(&file).unwrap()), Err(fault));
    }

    #[test]
    fn no_byte_of_a_header_can_change_unnoticed() {
        let bytes = header().encode().unwrap();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert_eq!(IndexHeader::decode(&damaged), Err(HeaderFault::Damaged), "{index}");
        }
        for len in 0..bytes.len() {
            assert_eq!(IndexHeader::decode(&bytes[..len]), Err(HeaderFault::Damaged), "{len}");
        }
    }
}
