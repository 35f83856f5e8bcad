//! Verifies the entries of a ZIP archive one at a time, so that several threads can work on one archive.
//!
//! The local file header must agree with the central directory, the data must decode to exactly the declared size and
//! CRC-32, and a data descriptor must repeat those numbers (docs/design/archives.md, rule 7).

use docwharf_base::codec::inflate::{Inflate, InflateFault, InflateStatus};
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
    pub last_header_bit: u64,
    /// The number of bits in the last byte that do not belong to the DEFLATE stream.
    pub spare_bits: u8,
    /// The offset of the first byte behind the entry and its data descriptor.
    pub end: u64,
}

/// Verifies entries one after another and reuses its buffers for each.
#[derive(Debug)]
pub struct ZipEntryReader {
    inflate: Inflate,
    buffer: Vec<u8>,
    content: Sha256Hasher,
    coded: crc32fast::Hasher,
}

impl Default for ZipEntryReader {
    fn default() -> Self {
        Self::new()
    }
}

/// The largest number of bytes that one read asks for. Most entries need one read for header, data and data descriptor.
const READ_BYTES: usize = 256 * 1024;

impl ZipEntryReader {
    /// Allocates the buffers.
    pub fn new() -> ZipEntryReader {
        ZipEntryReader {
            inflate: Inflate::new(),
            buffer: Vec::new(),
            content: Sha256Hasher::new(),
            coded: crc32fast::Hasher::new(),
        }
    }

    /// Reads one entry to its end, passes its content to `sink`, and checks everything that its headers declare.
    pub fn verify(
        &mut self,
        zip: &ZipArchive,
        member: &ZipEntry,
        sink: &mut ContentSink<'_>,
    ) -> Result<VerifiedZipEntry, BundleReadError> {
        let fault = |fault: BundleFault| fault.in_entry(&member.name);
        // The length of the local extra field is not known yet: the first read allows 64 bytes for it, and 24 bytes for
        // a data descriptor.
        let guess = 30 + member.name.len() as u64 + 64 + member.compressed_len + 24;
        let room = zip.directory_offset - member.header_offset;
        let mut first = guess.min(READ_BYTES as u64).min(room) as usize;
        self.buffer.resize(first, 0);
        zip.read_at(&mut self.buffer, member.header_offset)?;
        let header = LocalHeader::declared_len(&self.buffer);
        if header > first as u64 {
            // The extra field is longer than guessed. Name and extra field have at most 64 KiB each.
            first = header.min(room) as usize;
            self.buffer.resize(first, 0);
            zip.read_at(&mut self.buffer, member.header_offset)?;
        }
        let head = LocalHeader::check(&self.buffer[..first], member).map_err(fault)?;
        let offset = member.header_offset + head.len;
        let end = offset.checked_add(member.compressed_len).filter(|&end| end <= zip.directory_offset);
        let end = end.ok_or_else(|| fault(BundleFault::Overlap))?;

        // Keep the part of the compressed data that was read with the header; `pieces` reads the rest.
        let to = ((end - member.header_offset).min(first as u64)) as usize;
        self.buffer.truncate(to);
        self.buffer.drain(..(head.len as usize).min(to));
        let mut pieces = CompressedBytes { zip, read_to: offset + self.buffer.len() as u64, end };

        let mut proof = VerifiedZipEntry {
            offset,
            content: Digest([0; 32]),
            compressed_crc: 0,
            ends_at_declared_len: true,
            last_header_bit: 0,
            spare_bits: 0,
            end,
        };
        let crc = match member.method {
            CompressionMethod::Stored => self.verify_stored(&mut pieces, member, sink)?,
            CompressionMethod::Deflate => self.verify_deflated(&mut pieces, member, sink, &mut proof)?,
        };
        if crc != member.crc {
            return Err(fault(BundleFault::WrongCrc).into());
        }
        proof.content = self.content.take();
        if member.flags & DATA_DESCRIPTOR_FLAG != 0 {
            proof.end = check_data_descriptor(zip, member, end)?;
        }
        Ok(proof)
    }

    fn verify_stored(
        &mut self,
        pieces: &mut CompressedBytes<'_>,
        member: &ZipEntry,
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
            if !pieces.read_more(&mut self.buffer)? {
                break;
            }
        }
        if size != member.size {
            return Err(BundleFault::WrongSize.in_entry(&member.name).into());
        }
        Ok(crc.finalize())
    }

    fn verify_deflated(
        &mut self,
        pieces: &mut CompressedBytes<'_>,
        member: &ZipEntry,
        sink: &mut ContentSink<'_>,
        proof: &mut VerifiedZipEntry,
    ) -> Result<u32, BundleReadError> {
        self.inflate.reset();
        self.coded.reset();
        self.coded.update(&self.buffer);
        let mut crc = crc32fast::Hasher::new();
        let (mut size, mut at) = (0u64, 0usize);
        loop {
            let last = pieces.read_to == pieces.end;
            let step = self
                .inflate
                .run(&self.buffer[at..], last)
                .map_err(|f| BundleFault::Inflate(f).in_entry(&member.name))?;
            at += step.consumed;
            let output = self.inflate.output();
            size += output.len() as u64;
            if size > member.size {
                return Err(BundleFault::WrongSize.in_entry(&member.name).into());
            }
            check_bomb(size, self.inflate.bytes_taken(), Some(&member.name))?;
            crc.update(output);
            self.content.update(output);
            sink(output)?;
            match step.status {
                InflateStatus::WindowFull => {}
                InflateStatus::Done => break,
                InflateStatus::NeedInput => {
                    self.buffer.drain(..at);
                    at = 0;
                    let have = self.buffer.len();
                    if !pieces.read_more(&mut self.buffer)? {
                        return Err(BundleFault::Inflate(InflateFault::Truncated).in_entry(&member.name).into());
                    }
                    self.coded.update(&self.buffer[have..]);
                }
            }
        }
        if size != member.size {
            return Err(BundleFault::WrongSize.in_entry(&member.name).into());
        }
        proof.ends_at_declared_len = self.inflate.bytes_taken() == member.compressed_len;
        // The CRC is meaningless if other bytes follow the stream, but then `exact` is false and the archive is
        // rewritten.
        proof.compressed_crc = self.coded.clone().finalize();
        proof.last_header_bit = self.inflate.last_header_bit();
        proof.spare_bits = self.inflate.spare_bits();
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
        let have = buffer.len();
        buffer.resize(have + n, 0);
        self.zip.read_at(&mut buffer[have..], self.read_to)?;
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

    fn check(bytes: &[u8], member: &ZipEntry) -> Result<LocalHeader, BundleFault> {
        let cut = BundleFault::Truncated("its local header");
        if bytes.len() < 30 || read_u32_le(bytes, 0) != LOCAL_HEADER_SIGNATURE {
            return Err(BundleFault::Damaged("it has no local header where the directory says"));
        }
        let (name_len, extra_len) = (usize::from(read_u16_le(bytes, 26)), usize::from(read_u16_le(bytes, 28)));
        let name = bytes.get(30..30 + name_len);
        if name_len != member.name.len() || name != Some(&member.name) {
            return Err(BundleFault::HeaderMismatch("name"));
        }
        if read_u16_le(bytes, 6) != member.flags {
            return Err(BundleFault::HeaderMismatch("flags"));
        }
        let method = match member.method {
            CompressionMethod::Stored => 0,
            CompressionMethod::Deflate => 8,
        };
        if read_u16_le(bytes, 8) != method {
            return Err(BundleFault::HeaderMismatch("method"));
        }
        let (crc, coded, size) = (read_u32_le(bytes, 14), read_u32_le(bytes, 18), read_u32_le(bytes, 22));
        let (coded, size) = if coded == u32::MAX || size == u32::MAX {
            let extra = bytes.get(30 + name_len..30 + name_len + extra_len).ok_or(cut)?;
            let extras = ExtraFields::parse(extra).ok_or(BundleFault::Damaged("its extra fields"))?;
            match extras.zip64 {
                Some(wide) if wide.len() >= 16 => (read_u64_le(wide, 8), read_u64_le(wide, 0)),
                Some(_) => return Err(BundleFault::Damaged("its zip64 field")),
                None => (u64::from(coded), u64::from(size)),
            }
        } else {
            (u64::from(coded), u64::from(size))
        };
        // If there is a data descriptor, the header may have been written before the numbers were known. Then they are
        // zero.
        let later = member.flags & DATA_DESCRIPTOR_FLAG != 0;
        if crc != member.crc && !(later && crc == 0) {
            return Err(BundleFault::HeaderMismatch("checksum"));
        }
        if (size != member.size && !(later && size == 0)) || (coded != member.compressed_len && !(later && coded == 0))
        {
            return Err(BundleFault::HeaderMismatch("sizes"));
        }
        Ok(LocalHeader { len: (30 + name_len + extra_len) as u64 })
    }
}

/// Checks the data descriptor (APPNOTE.TXT 4.3.9) behind an entry and returns the offset of its end. It may have a
/// signature or not, and sizes of 4 or 8 bytes; the first form whose numbers agree with the central directory is taken.
fn check_data_descriptor(zip: &ZipArchive, member: &ZipEntry, at: u64) -> Result<u64, BundleReadError> {
    let have = (zip.directory_offset - at).min(24) as usize;
    let mut bytes = [0u8; 24];
    zip.read_at(&mut bytes[..have], at)?;
    for signed in [true, false] {
        let skip = if signed { 4 } else { 0 };
        if signed && read_u32_le(&bytes, 0) != DATA_DESCRIPTOR_SIGNATURE {
            continue;
        }
        for width in [4, 8] {
            let len = skip + 4 + 2 * width;
            if len > have {
                continue;
            }
            let body = &bytes[skip..];
            let (coded, size) = if width == 4 {
                (u64::from(read_u32_le(body, 4)), u64::from(read_u32_le(body, 8)))
            } else {
                (read_u64_le(body, 4), read_u64_le(body, 12))
            };
            if read_u32_le(body, 0) == member.crc && coded == member.compressed_len && size == member.size {
                return Ok(at + len as u64);
            }
        }
    }
    Err(BundleFault::HeaderMismatch("data descriptor").in_entry(&member.name).into())
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
        let Some(member) = self.zip.entries.get(self.next) else {
            self.zip.check_gaps(self.ends.iter().copied())?;
            return Ok(None);
        };
        self.pending = Some(self.next);
        self.next += 1;
        let kind = if member.is_folder { BundleEntryKind::Folder } else { BundleEntryKind::File };
        Ok(Some(BundleEntry { path: member.path.clone(), kind, size: member.size, modified: 0 }))
    }

    fn read_content(&mut self, sink: &mut ContentSink<'_>) -> Result<(), BundleReadError> {
        if let Some(index) = self.pending.take() {
            let proof = self.reader.verify(&self.zip, &self.zip.entries[index], sink)?;
            self.ends.push(proof.end);
        }
        Ok(())
    }
}
