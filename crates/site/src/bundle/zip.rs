//! Reads the central directory of a ZIP archive (APPNOTE.TXT 6.3.10). All headers of an archive must agree
//! (docs/design/archives.md, rule 7).
//!
//! Opening an archive reads the end of central directory record and the whole central directory, and checks every name.
//! [`super::zip_entry`] verifies the data of the entries.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use docwharf_base::little_endian::{read_u16_le, read_u32_le, read_u64_le};
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::{EntryNameFault, SitePath};

use super::bundle_reader::BundleReadError;
use super::refusal::{BundleFault, BundleRefusal, LimitCounter, check_bomb};

pub(super) const LOCAL_HEADER_SIGNATURE: u32 = 0x0403_4b50;
const CENTRAL_HEADER_SIGNATURE: u32 = 0x0201_4b50;
const END_RECORD_SIGNATURE: u32 = 0x0605_4b50;
const ZIP64_END_RECORD_SIGNATURE: u32 = 0x0606_4b50;
const ZIP64_LOCATOR_SIGNATURE: u32 = 0x0706_4b50;

const ENCRYPTED_FLAGS: u16 = 1 | 1 << 6 | 1 << 13;
const PATCHED_FLAG: u16 = 1 << 5;
const UTF8_FLAG: u16 = 1 << 11;

/// The header ID of a private extra field of images that docwharf writes: the bytes of the name are used unchanged,
/// even if they are not UTF-8 or contain a backslash. Without this field, a Latin-1 name from a tar archive would be
/// decoded as CP437. In a received archive the field is ignored, because it could only disable checks.
///
/// `image::RAW_NAME_FIELD_ID` is the same number: the writer of images and this reader do not import from each other
/// (ARCHITECTURE.md, Crates and layers).
pub const RAW_NAME_FIELD_ID: u16 = 0x7764;

/// The compression method of an entry of a received ZIP (APPNOTE.TXT 4.4.5). `index::EntryCompression` is its
/// counterpart for the files of a sealed image: `bundle` and `index` do not import from each other (ARCHITECTURE.md,
/// Crates and layers), so `seal::adopt` converts one into the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionMethod {
    /// Method 0: not compressed.
    Stored,
    /// Method 8: DEFLATE (RFC 1951).
    Deflate,
}

/// One entry of the archive, as its central directory header describes it.
#[derive(Debug, Clone)]
pub struct ZipEntry {
    /// The bytes of the name in the archive.
    pub name: Box<[u8]>,
    /// The checked path; `None` for the root folder.
    pub path: Option<SitePath>,
    /// Whether the entry is a folder.
    pub is_folder: bool,
    /// The compression method of the content.
    pub method: CompressionMethod,
    /// The CRC-32 of the content.
    pub crc: u32,
    /// The size of the compressed data in bytes.
    pub compressed_len: u64,
    /// The size of the content in bytes.
    pub size: u64,
    /// Whether the entry has the private extra field of docwharf's own images ([`RAW_NAME_FIELD_ID`]).
    pub has_raw_name: bool,
    pub(super) flags: u16,
    /// The offset of the local file header.
    pub(super) header_offset: u64,
}

/// A ZIP archive whose central directory has been read and checked.
#[derive(Debug)]
pub struct ZipArchive {
    file: File,
    path: PathBuf,
    /// All entries, in the order of their local file headers.
    pub entries: Vec<ZipEntry>,
    pub(super) directory_offset: u64,
}

fn damaged_archive(fault: &'static str) -> BundleRefusal {
    BundleFault::Damaged(fault).in_bundle()
}

/// The place of the central directory, and the number of its headers.
struct CentralDirectory {
    offset: u64,
    size: u64,
    count: u64,
}

impl ZipArchive {
    /// Reads and checks the central directory of a received archive. `path` is for messages.
    pub fn open(file: File, path: &Path, limits: &BundleLimits) -> Result<ZipArchive, BundleReadError> {
        ZipArchive::read(file, path, limits, false)
    }

    /// Reads and checks the central directory of an image that docwharf wrote, in which [`RAW_NAME_FIELD_ID`] is
    /// honoured.
    pub fn open_image(file: File, path: &Path, limits: &BundleLimits) -> Result<ZipArchive, BundleReadError> {
        ZipArchive::read(file, path, limits, true)
    }

    fn read(file: File, path: &Path, limits: &BundleLimits, is_image: bool) -> Result<ZipArchive, BundleReadError> {
        let length = file.metadata().map_err(BundleReadError::io(path))?.len();
        if length > limits.archive {
            return Err(BundleFault::ArchiveTooLarge(limits.archive).in_bundle().into());
        }
        let mut zip = ZipArchive { file, path: path.to_owned(), entries: Vec::new(), directory_offset: 0 };
        let directory = zip.find_directory(length)?;
        zip.directory_offset = directory.offset;
        if directory.count > limits.entries {
            return Err(BundleFault::TooManyEntries(limits.entries).in_bundle().into());
        }
        zip.read_directory(&directory, limits, is_image)?;
        zip.entries.sort_by_key(|m| m.header_offset);
        zip.check_overlap()?;
        Ok(zip)
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), BundleReadError> {
        self.file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                BundleFault::Truncated("it ends before the data that its directory lists").in_bundle().into()
            }
            _ => BundleReadError::Io { path: self.path.clone(), source: error },
        })
    }

    /// Finds the end of central directory record (APPNOTE.TXT 4.3.16). There must be exactly one, and it must end at
    /// the end of the file.
    fn find_directory(&self, length: u64) -> Result<CentralDirectory, BundleReadError> {
        const MIN_RECORD_BYTES: u64 = 22;
        let tail_len = length.min(MIN_RECORD_BYTES + 0xffff);
        if length < MIN_RECORD_BYTES {
            return Err(BundleFault::Truncated("no ZIP end record").in_bundle().into());
        }
        let mut tail = vec![0; tail_len as usize];
        self.read_at(&mut tail, length - tail_len)?;
        let candidates: Vec<usize> = (0..=tail.len() - MIN_RECORD_BYTES as usize)
            .filter(|&start| {
                read_u32_le(&tail, start) == END_RECORD_SIGNATURE
                    && start + MIN_RECORD_BYTES as usize + usize::from(read_u16_le(&tail, start + 20)) == tail.len()
            })
            .collect();
        let start = match candidates[..] {
            [] => {
                return Err(BundleFault::Truncated("no ZIP end record at its end").in_bundle().into());
            }
            [start] => start,
            _ => return Err(damaged_archive("several end records").into()),
        };
        if tail[start + 4..].windows(4).any(|w| w == END_RECORD_SIGNATURE.to_le_bytes()) {
            return Err(damaged_archive("an end record inside the comment").into());
        }
        let record = &tail[start..];
        let end_offset = length - tail_len + start as u64;
        let (disk, start_disk) = (read_u16_le(record, 4), read_u16_le(record, 6));
        let (disk_count, count) = (read_u16_le(record, 8), read_u16_le(record, 10));
        let (size, offset) = (read_u32_le(record, 12), read_u32_le(record, 16));
        let Some((zip64_offset, zip64)) = self.find_zip64_end_record(end_offset)? else {
            if disk != 0 || start_disk != 0 || disk_count != count {
                return Err(damaged_archive("it is one part of several").into());
            }
            let directory =
                CentralDirectory { offset: u64::from(offset), size: u64::from(size), count: u64::from(count) };
            if directory.offset + directory.size != end_offset {
                return Err(damaged_archive("its directory is not where the end record says").into());
            }
            return Ok(directory);
        };
        // A value that does not fit has all bits set.
        let agrees = |value: u64, overflow: u64, zip64: u64| value == overflow || value == zip64;
        if !agrees(u64::from(count), 0xffff, zip64.count)
            || !agrees(u64::from(disk_count), 0xffff, zip64.count)
            || !agrees(u64::from(size), 0xffff_ffff, zip64.size)
            || !agrees(u64::from(offset), 0xffff_ffff, zip64.offset)
            || ![0, 0xffff].contains(&disk)
            || ![0, 0xffff].contains(&start_disk)
        {
            return Err(damaged_archive("its end records do not agree").into());
        }
        if zip64.offset.checked_add(zip64.size) != Some(zip64_offset) {
            return Err(damaged_archive("its directory is not where the end record says").into());
        }
        Ok(zip64)
    }

    /// Reads the zip64 end of central directory record (APPNOTE.TXT 4.3.14) and returns its offset. Returns `None` if
    /// there is no zip64 locator (4.3.15) before the end of central directory record.
    fn find_zip64_end_record(&self, end_offset: u64) -> Result<Option<(u64, CentralDirectory)>, BundleReadError> {
        const LOCATOR_BYTES: u64 = 20;
        let Some(locator_offset) = end_offset.checked_sub(LOCATOR_BYTES) else {
            return Ok(None);
        };
        let mut locator = [0; LOCATOR_BYTES as usize];
        self.read_at(&mut locator, locator_offset)?;
        if read_u32_le(&locator, 0) != ZIP64_LOCATOR_SIGNATURE {
            return Ok(None);
        }
        let record_offset = read_u64_le(&locator, 8);
        let mut record = [0; 56];
        if read_u32_le(&locator, 4) != 0
            || read_u32_le(&locator, 16) > 1
            || record_offset.checked_add(56).is_none_or(|e| e > locator_offset)
        {
            return Err(damaged_archive("its zip64 locator").into());
        }
        self.read_at(&mut record, record_offset)?;
        let (disk_count, count) = (read_u64_le(&record, 24), read_u64_le(&record, 32));
        if read_u32_le(&record, 0) != ZIP64_END_RECORD_SIGNATURE
            || read_u64_le(&record, 4).checked_add(12 + record_offset) != Some(locator_offset)
            || read_u32_le(&record, 16) != 0
            || read_u32_le(&record, 20) != 0
            || disk_count != count
        {
            return Err(damaged_archive("its zip64 end record").into());
        }
        Ok(Some((
            record_offset,
            CentralDirectory { offset: read_u64_le(&record, 48), size: read_u64_le(&record, 40), count },
        )))
    }

    fn read_directory(
        &mut self,
        directory: &CentralDirectory,
        limits: &BundleLimits,
        is_image: bool,
    ) -> Result<(), BundleReadError> {
        const FIXED_BYTES: usize = 46;
        let mut counter = LimitCounter::new(*limits);
        let mut reader = DirectoryReader::new(directory.offset, directory.offset + directory.size);
        for _ in 0..directory.count {
            let fixed = reader.peek(self, FIXED_BYTES)?;
            if read_u32_le(fixed, 0) != CENTRAL_HEADER_SIGNATURE {
                return Err(damaged_archive("its directory").into());
            }
            let (name_len, extra_len, comment_len) = (
                usize::from(read_u16_le(fixed, 28)),
                usize::from(read_u16_le(fixed, 30)),
                usize::from(read_u16_le(fixed, 32)),
            );
            let record = reader.peek(self, FIXED_BYTES + name_len + extra_len + comment_len)?;
            let entry = parse_central_header(record, name_len, extra_len, is_image)?;
            counter.count_entry(&entry.name, entry.size)?;
            reader.advance(central_header_len(name_len, extra_len, comment_len));
            self.entries.push(entry);
        }
        if reader.remaining() != 0 {
            return Err(damaged_archive("its directory holds more than the end record counts").into());
        }
        Ok(())
    }

    /// Refuses entries that overlap each other or the central directory, and decompression bombs, by the declared
    /// sizes. The lengths of the local extra fields are not known yet: [`ZipArchive::check_gaps`] completes the check
    /// after the entries have been verified.
    fn check_overlap(&self) -> Result<(), BundleRefusal> {
        let (mut output, mut input) = (0u64, 0u64);
        for (i, entry) in self.entries.iter().enumerate() {
            let next = self.entries.get(i + 1).map_or(self.directory_offset, |m| m.header_offset);
            let least = (30 + entry.name.len() as u64).saturating_add(entry.compressed_len);
            if entry.header_offset.checked_add(least).is_none_or(|end| end > next) {
                return Err(BundleFault::Overlap.in_entry(&entry.name));
            }
            check_bomb(entry.size, entry.compressed_len, Some(&entry.name))?;
            output = output.saturating_add(entry.size);
            input = input.saturating_add(entry.compressed_len);
            check_bomb(output, input, None)?;
        }
        Ok(())
    }

    /// Returns the file of the archive.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path of the archive, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offset of the central directory, which is also the end of the entries.
    pub fn directory_offset(&self) -> u64 {
        self.directory_offset
    }

    /// Returns the offset of the central directory of the archive in `file`, without reading the directory. It is used
    /// to copy the directory before the entries.
    pub fn find_directory_offset(file: File, path: &Path) -> Result<u64, BundleReadError> {
        let length = file.metadata().map_err(BundleReadError::io(path))?.len();
        let zip = ZipArchive { file, path: path.to_owned(), entries: Vec::new(), directory_offset: 0 };
        Ok(zip.find_directory(length)?.offset)
    }

    /// Returns the first offset that the entry at `index` may not occupy: that of the next entry or of the central
    /// directory.
    pub fn space_end(&self, index: usize) -> u64 {
        self.entries.get(index + 1).map_or(self.directory_offset, |next| next.header_offset)
    }

    /// Refuses entries that overlap, by their exact ends: `ends[i]` is the end of `entries[i]`, as verification found
    /// it. Also refuses a gap between entries that begins with a local file header: that entry would be hidden from
    /// readers of the central directory.
    pub fn check_gaps(&self, ends: impl Iterator<Item = u64>) -> Result<(), BundleReadError> {
        let starts = self.entries.iter().map(|m| m.header_offset).chain([self.directory_offset]);
        let names = self.entries.iter().map(|m| Some(&m.name));
        for ((end, name), next) in [0].into_iter().chain(ends).zip([None].into_iter().chain(names)).zip(starts) {
            if end > next {
                return Err(BundleFault::Overlap.in_entry(name.map_or(&[], |name| name)).into());
            }
            if next - end >= 30 {
                let mut magic = [0; 4];
                self.read_at(&mut magic, end)?;
                if read_u32_le(&magic, 0) == LOCAL_HEADER_SIGNATURE {
                    return Err(damaged_archive("an entry that its directory does not list").into());
                }
            }
        }
        Ok(())
    }
}

fn central_header_len(name: usize, extra: usize, comment: usize) -> usize {
    46 + name + extra + comment
}

/// A reader of the central directory that has only a part of it in memory.
struct DirectoryReader {
    bytes: Vec<u8>,
    start: usize,
    next: u64,
    end: u64,
}

impl DirectoryReader {
    fn new(start: u64, end: u64) -> DirectoryReader {
        DirectoryReader { bytes: Vec::new(), start: 0, next: start, end }
    }

    fn remaining(&self) -> u64 {
        (self.bytes.len() - self.start) as u64 + self.end - self.next
    }

    fn peek(&mut self, zip: &ZipArchive, n: usize) -> Result<&[u8], BundleReadError> {
        if self.remaining() < n as u64 {
            return Err(damaged_archive("its directory holds less than the end record counts").into());
        }
        if self.bytes.len() - self.start < n {
            self.bytes.drain(..self.start);
            self.start = 0;
            let len = (self.end - self.next).min((n + 256 * 1024) as u64) as usize;
            let filled = self.bytes.len();
            self.bytes.resize(filled + len, 0);
            zip.read_at(&mut self.bytes[filled..], self.next)?;
            self.next += len as u64;
        }
        Ok(&self.bytes[self.start..self.start + n])
    }

    fn advance(&mut self, n: usize) {
        self.start += n;
    }
}

/// Parses and checks one central directory header (APPNOTE.TXT 4.3.12). `is_image` is set for an image that docwharf
/// wrote.
fn parse_central_header(
    record: &[u8],
    name_len: usize,
    extra_len: usize,
    is_image: bool,
) -> Result<ZipEntry, BundleRefusal> {
    let (flags, method) = (read_u16_le(record, 8), read_u16_le(record, 10));
    let name = &record[46..46 + name_len];
    let extra = &record[46 + name_len..46 + name_len + extra_len];
    let attributes = read_u32_le(record, 38);
    let fault = |fault: BundleFault| fault.in_entry(name);

    let extras = ExtraFields::parse(extra).ok_or_else(|| fault(BundleFault::Damaged("its extra fields")))?;
    let mut zip64 = extras.zip64.unwrap_or(&[]);
    let mut read_size = |value: u32| -> Result<u64, BundleRefusal> {
        if value != u32::MAX || extras.zip64.is_none() {
            return Ok(u64::from(value));
        }
        let (field, rest) =
            zip64.split_at_checked(8).ok_or_else(|| BundleFault::Damaged("its zip64 field").in_entry(name))?;
        zip64 = rest;
        Ok(read_u64_le(field, 0))
    };
    let size = read_size(read_u32_le(record, 24))?;
    let compressed_len = read_size(read_u32_le(record, 20))?;
    let header_offset = read_size(read_u32_le(record, 42))?;
    if flags & ENCRYPTED_FLAGS != 0 || method == 99 {
        return Err(fault(BundleFault::Encrypted));
    }
    if flags & PATCHED_FLAG != 0 {
        return Err(fault(BundleFault::Damaged("it is a patch")));
    }
    let method = match method {
        0 => CompressionMethod::Stored,
        8 => CompressionMethod::Deflate,
        number => return Err(fault(BundleFault::UnsupportedMethod(number))),
    };
    if read_u16_le(record, 34) != 0 {
        return Err(fault(BundleFault::Damaged("it is on another disk of the archive")));
    }
    let path = parse_name(name, flags, is_image && extras.raw_name)?;
    let is_folder = name.ends_with(b"/");
    check_attributes(attributes, is_folder).map_err(fault)?;
    if is_folder && size != 0 {
        return Err(fault(BundleFault::FolderWithContent));
    }
    if !is_folder && path.is_none() {
        return Err(fault(BundleFault::Name(EntryNameFault::Empty)));
    }
    if method == CompressionMethod::Stored && size != compressed_len {
        return Err(fault(BundleFault::WrongSize));
    }
    let (crc, has_raw_name) = (read_u32_le(record, 16), extras.raw_name);
    Ok(ZipEntry {
        name: name.into(),
        path,
        is_folder,
        method,
        crc,
        compressed_len,
        size,
        has_raw_name,
        flags,
        header_offset,
    })
}

/// Refuses special files by the file type in the upper half of the external file attributes (APPNOTE.TXT 4.4.15), where
/// Unix writers store the mode.
fn check_attributes(attributes: u32, is_folder: bool) -> Result<(), BundleFault> {
    match attributes >> 16 & 0o170_000 {
        0o120_000 => Err(BundleFault::SpecialFile("symbolic link")),
        0o020_000 => Err(BundleFault::SpecialFile("character device")),
        0o060_000 => Err(BundleFault::SpecialFile("block device")),
        0o010_000 => Err(BundleFault::SpecialFile("fifo")),
        0o140_000 => Err(BundleFault::SpecialFile("socket")),
        0o040_000 if !is_folder => Err(BundleFault::FolderNamedLikeFile),
        _ => Ok(()),
    }
}

fn parse_name(name: &[u8], flags: u16, raw: bool) -> Result<Option<SitePath>, BundleRefusal> {
    let parsed = if std::str::from_utf8(name).is_ok() || raw {
        SitePath::parse(name, !raw)
    } else if flags & UTF8_FLAG != 0 {
        return Err(BundleFault::Damaged("its name is not the UTF-8 that it claims to be").in_entry(name));
    } else {
        SitePath::parse(decode_cp437(name).as_bytes(), true)
    };
    parsed.map_err(|fault| BundleFault::Name(fault).in_entry(name))
}

/// Decodes a name from CP437, the encoding of ZIP names without the UTF-8 flag (APPNOTE.TXT appendix D).
fn decode_cp437(name: &[u8]) -> String {
    const HIGH: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";
    let high: Vec<char> = HIGH.chars().collect();
    name.iter()
        .map(|&b| if b < 0x80 { char::from(b) } else { high.get(usize::from(b - 0x80)).copied().unwrap_or('\u{fffd}') })
        .collect()
}

/// The extra fields of an entry that have an effect here (APPNOTE.TXT 4.5).
#[derive(Default)]
pub(super) struct ExtraFields<'a> {
    pub(super) zip64: Option<&'a [u8]>,
    raw_name: bool,
}

impl<'a> ExtraFields<'a> {
    pub(super) fn parse(mut extra: &'a [u8]) -> Option<ExtraFields<'a>> {
        let mut fields = ExtraFields::default();
        // Fewer than four bytes at the end are padding, which zipalign writes.
        while extra.len() >= 4 {
            let (id, len) = (read_u16_le(extra, 0), usize::from(read_u16_le(extra, 2)));
            let data = extra.get(4..4 + len)?;
            match id {
                1 if fields.zip64.is_some() => return None,
                1 => fields.zip64 = Some(data),
                RAW_NAME_FIELD_ID => fields.raw_name = true,
                _ => {}
            }
            extra = &extra[4 + len..];
        }
        Some(fields)
    }
}
