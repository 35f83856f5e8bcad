//! The opened file.

use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use docwharf_base::codec::inflate::inflate_all;
use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::{SealedFile, map_derived};

use crate::markdown::PageMarkdown;

use super::FILE_NAME;
use super::file_format::{EndFault, FILE_END_BYTES, FileEnd, MarkdownRecord, RECORD_BYTES};
use super::llms::LlmsText;

/// The maximum length of a decoded page, in bytes. Its text has at most 2 MiB, which JSON may make longer.
pub(super) const MAX_PAGE_JSON_BYTES: usize = 32 << 20;
/// The size of the pieces in which the file is read for its checksum, in bytes.
const CHECKSUM_PIECE_BYTES: usize = 256 << 10;

/// The Markdown of a version. The file is mapped, and may be deleted while it is open.
#[derive(Debug)]
pub struct SiteMarkdown {
    bytes: Bytes,
    end: FileEnd,
}

/// The reason why a file cannot be opened. The remedy is always to build it again.
#[derive(Debug, thiserror::Error)]
pub enum SiteMarkdownError {
    /// There is no file, or it cannot be read.
    #[error("cannot read the Markdown of the pages")]
    Read(#[from] io::Error),
    /// The file was written by another version of the program.
    #[error("the Markdown of the pages has format {0}, which this program does not read")]
    OtherFormat(u32),
    /// The file is of another version of the site.
    #[error("the Markdown of the pages is of version {}", .0.short())]
    OtherVersion(VersionId),
    /// The file is not what was written.
    #[error("the Markdown of the pages is damaged")]
    Damaged,
}

impl From<EndFault> for SiteMarkdownError {
    fn from(fault: EndFault) -> SiteMarkdownError {
        match fault {
            EndFault::OtherFormat(format) => SiteMarkdownError::OtherFormat(format),
            EndFault::Damaged => SiteMarkdownError::Damaged,
        }
    }
}

impl SiteMarkdown {
    /// Opens the file of `version` in a folder. It is read once to check its checksum, then it is mapped.
    pub fn open(folder: &Directory, version: VersionId) -> Result<SiteMarkdown, SiteMarkdownError> {
        // Read, not through the mapping: so it takes no memory, and data that the disk has lost is an error here
        // instead of a SIGBUS.
        let mut file = folder.open_for_reading(FILE_NAME)?;
        let len = file.metadata()?.len();
        let content_len = len.checked_sub(FILE_END_BYTES as u64).ok_or(SiteMarkdownError::Damaged)?;
        let crc = compute_crc(&mut file, content_len)?;
        let mut end = [0; FILE_END_BYTES];
        file.read_exact(&mut end)?;
        let end = FileEnd::decode(&end, len)?;
        if end.version != version {
            return Err(SiteMarkdownError::OtherVersion(end.version));
        }
        let bytes = map_derived(&SealedFile::open_derived(folder, Path::new(FILE_NAME))?)?;
        if crc != end.crc || bytes.len() as u64 != len {
            return Err(SiteMarkdownError::Damaged);
        }
        Ok(SiteMarkdown { bytes, end })
    }

    /// Returns the version that the file is of.
    pub fn version(&self) -> VersionId {
        self.end.version
    }

    /// Returns the digest of the settings that the file was made with.
    pub fn settings(&self) -> Digest {
        self.end.settings
    }

    /// Returns the CRC-32 of the content of the file.
    pub fn checksum(&self) -> u32 {
        self.end.crc
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        self.end.pages
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the Markdown of a file of the version; `None` if it is no page that could be read.
    pub fn find(&self, file: usize) -> Option<PageMarkdown> {
        let record = self.find_record(u32::try_from(file).ok()?)?;
        let start = usize::try_from(record.offset).ok()?;
        let coded = self.bytes.get(start..start.checked_add(record.coded_len as usize)?)?;
        decode_page(coded, record.len as usize)
    }

    /// Returns one of the two texts about the site.
    pub fn llms(&self, text: LlmsText) -> Bytes {
        match text {
            LlmsText::Index => self.slice(self.end.llms, self.end.llms_gzip),
            LlmsText::Full => self.slice(self.end.llms_full, self.end.llms_full_gzip),
        }
    }

    /// Returns one of the two texts as a gzip file.
    pub fn llms_gzip(&self, text: LlmsText) -> Bytes {
        match text {
            LlmsText::Index => self.slice(self.end.llms_gzip, self.end.llms_full),
            LlmsText::Full => self.slice(self.end.llms_full_gzip, self.end.table),
        }
    }

    /// Returns a part of the file. The bounds were checked when it was opened.
    fn slice(&self, start: u64, end: u64) -> Bytes {
        self.bytes.slice(start as usize..end as usize)
    }

    fn find_record(&self, file: u32) -> Option<MarkdownRecord> {
        let table = self.bytes.get(self.end.table as usize..)?;
        let records = table.as_chunks::<RECORD_BYTES>().0.get(..self.end.pages as usize)?;
        let place = records.binary_search_by_key(&file, |record| MarkdownRecord::decode(record).file).ok()?;
        Some(MarkdownRecord::decode(&records[place]))
    }
}

/// Decodes a page of which the JSON has `len` bytes.
pub(super) fn decode_page(coded: &[u8], len: usize) -> Option<PageMarkdown> {
    if len > MAX_PAGE_JSON_BYTES {
        return None;
    }
    serde_json::from_slice(&inflate_all(coded, len).ok()?).ok()
}

/// Reads the next `len` bytes of a file and returns their CRC-32.
fn compute_crc(file: &mut impl Read, len: u64) -> io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = vec![0; CHECKSUM_PIECE_BYTES];
    let mut rest = len;
    while rest > 0 {
        let wanted = piece.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        file.read_exact(&mut piece[..wanted])?;
        hasher.update(&piece[..wanted]);
        rest -= wanted as u64;
    }
    Ok(hasher.finalize())
}
