//! Verifies the entries of a ZIP archive one at a time, so that several threads can work on one archive.
//!
//! The local file header must agree with the central directory, the data must decode to exactly the declared size and
//! CRC-32, and a data descriptor must repeat those numbers (docs/design/archives.md, rule 7).

use docwharf_base::codec::inflate::{InflateFault, InflateStatus, Inflater};
use docwharf_base::little_endian::{read_u16_le, read_u32_le, read_u64_le};
use docwharf_base::model::digest::{Digest, Sha256Hasher};

use super::bundle_reader::{BundleEntry, BundleEntryKind, BundleReadError, BundleReader, ContentSink};
use super::refusal::{BundleFault, check_bomb};
use super::zip::{CompressionMethod, ExtraFields, LOCAL_HEADER_SIGNATURE, ZipArchive, ZipEntry};

const DATA_DESCRIPTOR_SIGNATURE: u32 = 0x0807_4b50;
const DATA_DESCRIPTOR_FLAG: u16 = 1 << 3;

/// The result of verifying an entry.
#[derive(Debug, Clone)]
pub struct VerifiedZipEntry {
    /// The offset of the compressed data in the archive.
    pub offset: u64,
    /// The digest of the content.
    pub content: Digest,
    /// The CRC-32 of the compressed bytes; 0 for a stored entry.
    pub compressed_crc: u32,
    /// Whether a DEFLATE stream ends exactly at the compressed size.
    pub ends_at_declared_len: bool,
    /// The bit at which the header of the last DEFLATE block begins, counted from the start of the compressed data.
    pub last_block_bit: u64,
    /// The number of bits in the last byte that do not belong to the DEFLATE stream.
    pub spare_bits: u8,
    /// The offset of the first byte after the entry and its data descriptor.
    pub end: u64,
}

/// Verifies entries one after another and reuses its buffers for each.
#[derive(Debug)]
pub struct ZipEntryReader {
    inflate: Inflater,
    buffer: Vec<u8>,
    content: Sha256Hasher,
    compressed_crc: crc32fast::Hasher,
}

impl Default for ZipEntryReader {
    fn default() -> Self {
        Self::new()
    }
}

/// The largest number of bytes that one read requests. Most entries need one read for header, data and data descriptor.
const READ_BYTES: usize = 256 * 1024;

impl ZipEntryReader {
    /// Allocates the buffers.
    pub fn new() -> ZipEntryReader {
        ZipEntryReader {
            inflate: Inflater::new(),
            buffer: Vec::new(),
            content: Sha256Hasher::new(),
            compressed_crc: crc32fast::Hasher::new(),
        }
    }

    /// Reads one entry to its end, passes its content to `sink`, and checks everything that its headers declare.
    pub fn verify(
        &mut self,
        zip: &ZipArchive,
        entry: &ZipEntry,
        sink: &mut ContentSink<'_>,
    ) -> Result<VerifiedZipEntry, BundleReadError> {
        let fault = |fault: BundleFault| fault.in_entry(&entry.name);
        // The length of the local extra field is not known yet: the first read includes 64 bytes for it, and 24 bytes
        // for a data descriptor.
        let guess = 30 + entry.name.len() as u64 + 64 + entry.compressed_len + 24;
        let available = zip.directory_offset - entry.header_offset;
        let mut read_len = guess.min(READ_BYTES as u64).min(available) as usize;
        self.buffer.resize(read_len, 0);
        zip.read_at(&mut self.buffer, entry.header_offset)?;
        let header_len = LocalHeader::declared_len(&self.buffer);
        if header_len > read_len as u64 {
            // The extra field is longer than guessed. Name and extra field have at most 64 KiB each.
            read_len = header_len.min(available) as usize;
            self.buffer.resize(read_len, 0);
            zip.read_at(&mut self.buffer, entry.header_offset)?;
        }
        let header = LocalHeader::check(&self.buffer[..read_len], entry).map_err(fault)?;
        let offset = entry.header_offset + header.len;
        let end = offset.checked_add(entry.compressed_len).filter(|&end| end <= zip.directory_offset);
        let end = end.ok_or_else(|| fault(BundleFault::Overlap))?;

        // Keep the part of the compressed data that was read with the header; `data` reads the rest.
        let kept_len = ((end - entry.header_offset).min(read_len as u64)) as usize;
        self.buffer.truncate(kept_len);
        self.buffer.drain(..(header.len as usize).min(kept_len));
        let mut data = CompressedBytes { zip, read_to: offset + self.buffer.len() as u64, end };

        let mut verified = VerifiedZipEntry {
            offset,
            content: Digest([0; 32]),
            compressed_crc: 0,
            ends_at_declared_len: true,
            last_block_bit: 0,
            spare_bits: 0,
            end,
        };
        let crc = match entry.method {
            CompressionMethod::Stored => self.verify_stored(&mut data, entry, sink)?,
            CompressionMethod::Deflate => self.verify_deflated(&mut data, entry, sink, &mut verified)?,
        };
        if crc != entry.crc {
            return Err(fault(BundleFault::WrongCrc).into());
        }
        verified.content = self.content.finalize_reset();
        if entry.flags & DATA_DESCRIPTOR_FLAG != 0 {
            verified.end = check_data_descriptor(zip, entry, end)?;
        }
        Ok(verified)
    }

    fn verify_stored(
        &mut self,
        data: &mut CompressedBytes<'_>,
        entry: &ZipEntry,
        sink: &mut ContentSink<'_>,
    ) -> Result<u32, BundleReadError> {
        let mut crc = crc32fast::Hasher::new();
        let mut size = 0u64;
        loop {
            crc.update(&self.buffer);
            self.content.update(&self.buffer);
            size += self.buffer.len() as u64;
            sink(&self.buffer)?;
            self.buffer.clear();
            if !data.read_more(&mut self.buffer)? {
                break;
            }
        }
        if size != entry.size {
            return Err(BundleFault::WrongSize.in_entry(&entry.name).into());
        }
        Ok(crc.finalize())
    }

    fn verify_deflated(
        &mut self,
        data: &mut CompressedBytes<'_>,
        entry: &ZipEntry,
        sink: &mut ContentSink<'_>,
        verified: &mut VerifiedZipEntry,
    ) -> Result<u32, BundleReadError> {
        self.inflate.reset();
        self.compressed_crc.reset();
        self.compressed_crc.update(&self.buffer);
        let mut crc = crc32fast::Hasher::new();
        let (mut size, mut input_start) = (0u64, 0usize);
        loop {
            let last = data.read_to == data.end;
            let step = self
                .inflate
                .run(&self.buffer[input_start..], last)
                .map_err(|f| BundleFault::Inflate(f).in_entry(&entry.name))?;
            input_start += step.consumed;
            let output = self.inflate.output();
            size += output.len() as u64;
            if size > entry.size {
                return Err(BundleFault::WrongSize.in_entry(&entry.name).into());
            }
            check_bomb(size, self.inflate.bytes_consumed(), Some(&entry.name))?;
            crc.update(output);
            self.content.update(output);
            sink(output)?;
            match step.status {
                InflateStatus::WindowFull => {}
                InflateStatus::Done => break,
                InflateStatus::NeedInput => {
                    self.buffer.drain(..input_start);
                    input_start = 0;
                    let filled = self.buffer.len();
                    if !data.read_more(&mut self.buffer)? {
                        return Err(BundleFault::Inflate(InflateFault::Truncated).in_entry(&entry.name).into());
                    }
                    self.compressed_crc.update(&self.buffer[filled..]);
                }
            }
        }
        if size != entry.size {
            return Err(BundleFault::WrongSize.in_entry(&entry.name).into());
        }
        verified.ends_at_declared_len = self.inflate.bytes_consumed() == entry.compressed_len;
        // The CRC is meaningless if other bytes follow the stream, but then `ends_at_declared_len` is false and the
        // archive is rewritten.
        verified.compressed_crc = self.compressed_crc.clone().finalize();
        verified.last_block_bit = self.inflate.last_block_bit();
        verified.spare_bits = self.inflate.spare_bits();
        Ok(crc.finalize())
    }
}

/// The compressed bytes of an entry that have not been read yet.
struct CompressedBytes<'a> {
    zip: &'a ZipArchive,
    read_to: u64,
    end: u64,
}

impl CompressedBytes<'_> {
    /// Appends the next bytes to `buffer`. Returns `false` at the end.
    fn read_more(&mut self, buffer: &mut Vec<u8>) -> Result<bool, BundleReadError> {
        let n = (self.end - self.read_to).min(READ_BYTES as u64) as usize;
        if n == 0 {
            return Ok(false);
        }
        let filled = buffer.len();
        buffer.resize(filled + n, 0);
        self.zip.read_at(&mut buffer[filled..], self.read_to)?;
        self.read_to += n as u64;
        Ok(true)
    }
}

/// A local file header (APPNOTE.TXT 4.3.7) that agrees with the central directory.
struct LocalHeader {
    /// The length of the header in bytes: fixed part, name and extra field.
    len: u64,
}

impl LocalHeader {
    /// Returns the length that the header declares, or 0 if `bytes` is shorter than the fixed part of a header.
    fn declared_len(bytes: &[u8]) -> u64 {
        if bytes.len() < 30 {
            return 0;
        }
        30 + u64::from(read_u16_le(bytes, 26)) + u64::from(read_u16_le(bytes, 28))
    }

    fn check(bytes: &[u8], entry: &ZipEntry) -> Result<LocalHeader, BundleFault> {
        let truncated = BundleFault::Truncated("its local header");
        if bytes.len() < 30 || read_u32_le(bytes, 0) != LOCAL_HEADER_SIGNATURE {
            return Err(BundleFault::Damaged("it has no local header at the offset that the directory declares"));
        }
        let (name_len, extra_len) = (usize::from(read_u16_le(bytes, 26)), usize::from(read_u16_le(bytes, 28)));
        let name = bytes.get(30..30 + name_len);
        if name_len != entry.name.len() || name != Some(&entry.name) {
            return Err(BundleFault::HeaderMismatch("name"));
        }
        if read_u16_le(bytes, 6) != entry.flags {
            return Err(BundleFault::HeaderMismatch("flags"));
        }
        let method = match entry.method {
            CompressionMethod::Stored => 0,
            CompressionMethod::Deflate => 8,
        };
        if read_u16_le(bytes, 8) != method {
            return Err(BundleFault::HeaderMismatch("method"));
        }
        let (crc, compressed_len, size) = (read_u32_le(bytes, 14), read_u32_le(bytes, 18), read_u32_le(bytes, 22));
        let (compressed_len, size) = if compressed_len == u32::MAX || size == u32::MAX {
            let extra = bytes.get(30 + name_len..30 + name_len + extra_len).ok_or(truncated)?;
            let extras = ExtraFields::parse(extra).ok_or(BundleFault::Damaged("its extra fields"))?;
            match extras.zip64 {
                Some(wide) if wide.len() >= 16 => (read_u64_le(wide, 8), read_u64_le(wide, 0)),
                Some(_) => return Err(BundleFault::Damaged("its zip64 field")),
                None => (u64::from(compressed_len), u64::from(size)),
            }
        } else {
            (u64::from(compressed_len), u64::from(size))
        };
        // If there is a data descriptor, the header may have been written before the numbers were known. Then they are
        // zero.
        let has_descriptor = entry.flags & DATA_DESCRIPTOR_FLAG != 0;
        if crc != entry.crc && !(has_descriptor && crc == 0) {
            return Err(BundleFault::HeaderMismatch("checksum"));
        }
        if (size != entry.size && !(has_descriptor && size == 0))
            || (compressed_len != entry.compressed_len && !(has_descriptor && compressed_len == 0))
        {
            return Err(BundleFault::HeaderMismatch("sizes"));
        }
        Ok(LocalHeader { len: (30 + name_len + extra_len) as u64 })
    }
}

/// Checks the data descriptor (APPNOTE.TXT 4.3.9) after an entry and returns the offset of its end. It may have a
/// signature or not, and sizes of 4 or 8 bytes; the first form whose numbers agree with the central directory is
/// accepted.
fn check_data_descriptor(zip: &ZipArchive, entry: &ZipEntry, offset: u64) -> Result<u64, BundleReadError> {
    let filled = (zip.directory_offset - offset).min(24) as usize;
    let mut bytes = [0u8; 24];
    zip.read_at(&mut bytes[..filled], offset)?;
    for has_signature in [true, false] {
        let skip = if has_signature { 4 } else { 0 };
        if has_signature && read_u32_le(&bytes, 0) != DATA_DESCRIPTOR_SIGNATURE {
            continue;
        }
        for width in [4, 8] {
            let len = skip + 4 + 2 * width;
            if len > filled {
                continue;
            }
            let body = &bytes[skip..];
            let (compressed_len, size) = if width == 4 {
                (u64::from(read_u32_le(body, 4)), u64::from(read_u32_le(body, 8)))
            } else {
                (read_u64_le(body, 4), read_u64_le(body, 12))
            };
            if read_u32_le(body, 0) == entry.crc && compressed_len == entry.compressed_len && size == entry.size {
                return Ok(offset + len as u64);
            }
        }
    }
    Err(BundleFault::HeaderMismatch("data descriptor").in_entry(&entry.name).into())
}

/// Reads a ZIP archive entry by entry; used for archives that must be rewritten.
#[derive(Debug)]
pub struct ZipReader {
    zip: ZipArchive,
    next: usize,
    pending: Option<usize>,
    ends: Vec<u64>,
    reader: ZipEntryReader,
}

impl ZipReader {
    /// Starts at the first entry.
    pub fn new(zip: ZipArchive) -> ZipReader {
        ZipReader { zip, next: 0, pending: None, ends: Vec::new(), reader: ZipEntryReader::new() }
    }
}

impl BundleReader for ZipReader {
    fn next_entry(&mut self) -> Result<Option<BundleEntry>, BundleReadError> {
        if self.pending.is_some() {
            self.read_content(&mut |_| Ok(()))?;
        }
        let Some(entry) = self.zip.entries.get(self.next) else {
            self.zip.check_gaps(self.ends.iter().copied())?;
            return Ok(None);
        };
        self.pending = Some(self.next);
        self.next += 1;
        let kind = if entry.is_folder { BundleEntryKind::Folder } else { BundleEntryKind::File };
        Ok(Some(BundleEntry { path: entry.path.clone(), kind, size: entry.size, modified: 0 }))
    }

    fn read_content(&mut self, sink: &mut ContentSink<'_>) -> Result<(), BundleReadError> {
        if let Some(index) = self.pending.take() {
            let verified = self.reader.verify(&self.zip, &self.zip.entries[index], sink)?;
            self.ends.push(verified.end);
        }
        Ok(())
    }
}
