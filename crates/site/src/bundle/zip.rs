//! Reads the central directory of a ZIP archive (APPNOTE.TXT 6.3.10). All headers of an archive must agree
//! (docs/design/archives.md, rule 7).
//!
//! Opening an archive reads the end of central directory record and the whole central directory, and checks every name.
//! [`super::zip_member`] verifies the data of the entries.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use docwharf_base::little_endian::{read_u16_le, read_u32_le, read_u64_le};
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::{NameFault, SitePath};

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
pub const RAW_NAME_FIELD_ID: u16 = 0x7764;

/// The compression method of an entry (APPNOTE.TXT 4.4.5).
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

fn damaged_archive(what: &'static str) -> BundleRefusal {
    BundleFault::Damaged(what).in_archive()
}

struct CentralDirectory {
    start: u64,
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

    fn read(file: File, path: &Path, limits: &BundleLimits, ours: bool) -> Result<ZipArchive, BundleReadError> {
        let length = file.metadata().map_err(BundleReadError::io(path))?.len();
        if length > limits.archive {
            return Err(BundleFault::ArchiveTooLarge(limits.archive).in_archive().into());
        }
        let mut zip = ZipArchive { file, path: path.to_owned(), entries: Vec::new(), directory_offset: 0 };
        let directory = zip.find_directory(length)?;
        zip.directory_offset = directory.start;
        if directory.count > limits.entries {
            return Err(BundleFault::TooManyEntries(limits.entries).in_archive().into());
        }
        zip.read_directory(&directory, limits, ours)?;
        zip.entries.sort_by_key(|m| m.header_offset);
        zip.check_overlap()?;
        Ok(zip)
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<(), BundleReadError> {
        self.file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                BundleFault::Truncated("it ends before what its directory promises").in_archive().into()
            }
            _ => BundleReadError::Io { path: self.path.clone(), source: error },
        })
    }

    /// Finds the end of central directory record (APPNOTE.TXT 4.3.16). There must be exactly one, and it must end at
    /// the end of the file.
    fn find_directory(&self, length: u64) -> Result<CentralDirectory, BundleReadError> {
        const FIXED: u64 = 22;
        let tail_len = length.min(FIXED + 0xffff);
        if length < FIXED {
            return Err(BundleFault::Truncated("no ZIP end record").in_archive().into());
        }
        let mut tail = vec![0; tail_len as usize];
        self.read_at(&mut tail, length - tail_len)?;
        let ends: Vec<usize> = (0..=tail.len() - FIXED as usize)
            .filter(|&at| {
                read_u32_le(&tail, at) == END_RECORD_SIGNATURE
                    && at + FIXED as usize + usize::from(read_u16_le(&tail, at + 20)) == tail.len()
            })
            .collect();
        let at = match ends[..] {
            [] => {
                return Err(BundleFault::Truncated("no ZIP end record at its end").in_archive().into());
            }
            [at] => at,
            _ => return Err(damaged_archive("several end records").into()),
        };
        if tail[at + 4..].windows(4).any(|w| w == END_RECORD_SIGNATURE.to_le_bytes()) {
            return Err(damaged_archive("an end record inside the comment").into());
        }
        let end = &tail[at..];
        let end_at = length - tail_len + at as u64;
        let (disk, start_disk) = (read_u16_le(end, 4), read_u16_le(end, 6));
        let (here, total) = (read_u16_le(end, 8), read_u16_le(end, 10));
        let (size, start) = (read_u32_le(end, 12), read_u32_le(end, 16));
        let Some((record_at, wide)) = self.find_zip64_end_record(end_at)? else {
            if disk != 0 || start_disk != 0 || here != total {
                return Err(damaged_archive("it is one part of several").into());
            }
            let directory =
                CentralDirectory { start: u64::from(start), size: u64::from(size), count: u64::from(total) };
            if directory.start + directory.size != end_at {
                return Err(damaged_archive("its directory is not where the end record says").into());
            }
            return Ok(directory);
        };
        let agrees = |narrow: u64, mark: u64, wide: u64| narrow == mark || narrow == wide;
        if !agrees(u64::from(total), 0xffff, wide.count)
            || !agrees(u64::from(here), 0xffff, wide.count)
            || !agrees(u64::from(size), 0xffff_ffff, wide.size)
            || !agrees(u64::from(start), 0xffff_ffff, wide.start)
            || ![0, 0xffff].contains(&disk)
            || ![0, 0xffff].contains(&start_disk)
        {
            return Err(damaged_archive("its end records do not agree").into());
        }
        if wide.start.checked_add(wide.size) != Some(record_at) {
            return Err(damaged_archive("its directory is not where the end record says").into());
        }
        Ok(wide)
    }

    /// Reads the zip64 end of central directory record (APPNOTE.TXT 4.3.14) and returns its offset. Returns `None` if
    /// there is no zip64 locator (4.3.15) before the end of central directory record.
    fn find_zip64_end_record(&self, end_at: u64) -> Result<Option<(u64, CentralDirectory)>, BundleReadError> {
        const LOCATOR: u64 = 20;
        let Some(locator_at) = end_at.checked_sub(LOCATOR) else {
            return Ok(None);
        };
        let mut locator = [0; LOCATOR as usize];
        self.read_at(&mut locator, locator_at)?;
        if read_u32_le(&locator, 0) != ZIP64_LOCATOR_SIGNATURE {
            return Ok(None);
        }
        let record_at = read_u64_le(&locator, 8);
        let mut record = [0; 56];
        if read_u32_le(&locator, 4) != 0
            || read_u32_le(&locator, 16) > 1
            || record_at.checked_add(56).is_none_or(|e| e > locator_at)
        {
            return Err(damaged_archive("its zip64 locator").into());
        }
        self.read_at(&mut record, record_at)?;
        let (here, count) = (read_u64_le(&record, 24), read_u64_le(&record, 32));
        if read_u32_le(&record, 0) != ZIP64_END_RECORD_SIGNATURE
            || read_u64_le(&record, 4).checked_add(12 + record_at) != Some(locator_at)
            || read_u32_le(&record, 16) != 0
            || read_u32_le(&record, 20) != 0
            || here != count
        {
            return Err(damaged_archive("its zip64 end record").into());
        }
        Ok(Some((
            record_at,
            CentralDirectory { start: read_u64_le(&record, 48), size: read_u64_le(&record, 40), count },
        )))
    }

    fn read_directory(
        &mut self,
        directory: &CentralDirectory,
        limits: &BundleLimits,
        ours: bool,
    ) -> Result<(), BundleReadError> {
        const FIXED: usize = 46;
        let mut tally = LimitCounter::new(*limits);
        let mut window = DirectoryReader::new(directory.start, directory.start + directory.size);
        for _ in 0..directory.count {
            let fixed = window.peek(self, FIXED)?;
            if read_u32_le(fixed, 0) != CENTRAL_HEADER_SIGNATURE {
                return Err(damaged_archive("its directory").into());
            }
            let (name_len, extra_len, comment_len) = (
                usize::from(read_u16_le(fixed, 28)),
                usize::from(read_u16_le(fixed, 30)),
                usize::from(read_u16_le(fixed, 32)),
            );
            let record = window.peek(self, FIXED + name_len + extra_len + comment_len)?;
            let member = parse_central_header(record, name_len, extra_len, ours)?;
            tally.count_entry(&member.name, member.size)?;
            window.advance(central_header_len(name_len, extra_len, comment_len));
            self.entries.push(member);
        }
        if window.left() != 0 {
            return Err(damaged_archive("its directory holds more than the end record counts").into());
        }
        Ok(())
    }

    /// Refuses entries that overlap each other or the central directory, and decompression bombs, by the declared
    /// sizes. The lengths of the local extra fields are not known yet: [`Zip::check_gaps`] completes the check after
    /// the entries have been verified.
    fn check_overlap(&self) -> Result<(), BundleRefusal> {
        let (mut output, mut input) = (0u64, 0u64);
        for (i, member) in self.entries.iter().enumerate() {
            let next = self.entries.get(i + 1).map_or(self.directory_offset, |m| m.header_offset);
            let least = (30 + member.name.len() as u64).saturating_add(member.compressed_len);
            if member.header_offset.checked_add(least).is_none_or(|end| end > next) {
                return Err(BundleFault::Overlap.in_entry(&member.name));
            }
            check_bomb(member.size, member.compressed_len, Some(&member.name))?;
            output = output.saturating_add(member.size);
            input = input.saturating_add(member.compressed_len);
            check_bomb(output, input, None)?;
        }
        Ok(())
    }

    /// The file of the archive.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path of the archive, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The offset of the central directory, which is also the end of the entries.
    pub fn directory_start(&self) -> u64 {
        self.directory_offset
    }

    /// Returns the offset of the central directory of the archive in `file`, without reading the directory. It is used
    /// to copy the directory before the entries.
    pub fn find_directory_start(file: File, path: &Path) -> Result<u64, BundleReadError> {
        let length = file.metadata().map_err(BundleReadError::io(path))?.len();
        let zip = ZipArchive { file, path: path.to_owned(), entries: Vec::new(), directory_offset: 0 };
        Ok(zip.find_directory(length)?.start)
    }

    /// The end of the space that entry `at` may occupy: the offset of the next entry or of the central directory.
    pub fn space_end(&self, at: usize) -> u64 {
        self.entries.get(at + 1).map_or(self.directory_offset, |next| next.header_offset)
    }

    /// Refuses entries that overlap, by their exact ends: `ends[i]` is the end of `members[i]`, as verification found
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
                    return Err(damaged_archive("a member that its directory does not list").into());
                }
            }
        }
        Ok(())
    }
}

fn central_header_len(name: usize, extra: usize, comment: usize) -> usize {
    46 + name + extra + comment
}

/// A reader of the central directory that keeps only a part of it in memory.
struct DirectoryReader {
    bytes: Vec<u8>,
    at: usize,
    next: u64,
    end: u64,
}

impl DirectoryReader {
    fn new(start: u64, end: u64) -> DirectoryReader {
        DirectoryReader { bytes: Vec::new(), at: 0, next: start, end }
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64 + self.end - self.next
    }

    fn peek(&mut self, zip: &ZipArchive, n: usize) -> Result<&[u8], BundleReadError> {
        if self.left() < n as u64 {
            return Err(damaged_archive("its directory holds less than the end record counts").into());
        }
        if self.bytes.len() - self.at < n {
            self.bytes.drain(..self.at);
            self.at = 0;
            let more = (self.end - self.next).min((n + 256 * 1024) as u64) as usize;
            let have = self.bytes.len();
            self.bytes.resize(have + more, 0);
            zip.read_at(&mut self.bytes[have..], self.next)?;
            self.next += more as u64;
        }
        Ok(&self.bytes[self.at..self.at + n])
    }

    fn advance(&mut self, n: usize) {
        self.at += n;
    }
}

/// Parses and checks one central directory header (APPNOTE.TXT 4.3.12). `ours` says that the archive is an image of
/// docwharf.
fn parse_central_header(
    record: &[u8],
    name_len: usize,
    extra_len: usize,
    ours: bool,
) -> Result<ZipEntry, BundleRefusal> {
    let (flags, method) = (read_u16_le(record, 8), read_u16_le(record, 10));
    let name = &record[46..46 + name_len];
    let extra = &record[46 + name_len..46 + name_len + extra_len];
    let attributes = read_u32_le(record, 38);
    let fault = |fault: BundleFault| fault.in_entry(name);

    let extras = ExtraFields::parse(extra).ok_or_else(|| fault(BundleFault::Damaged("its extra fields")))?;
    let mut wide = extras.zip64.unwrap_or(&[]);
    let mut widen = |narrow: u32| -> Result<u64, BundleRefusal> {
        if narrow != u32::MAX || extras.zip64.is_none() {
            return Ok(u64::from(narrow));
        }
        let (value, rest) =
            wide.split_at_checked(8).ok_or_else(|| BundleFault::Damaged("its zip64 field").in_entry(name))?;
        wide = rest;
        Ok(read_u64_le(value, 0))
    };
    let size = widen(read_u32_le(record, 24))?;
    let coded = widen(read_u32_le(record, 20))?;
    let header = widen(read_u32_le(record, 42))?;
    if flags & ENCRYPTED_FLAGS != 0 || method == 99 {
        return Err(fault(BundleFault::Encrypted));
    }
    if flags & PATCHED_FLAG != 0 {
        return Err(fault(BundleFault::Damaged("it is a patch")));
    }
    let method = match method {
        0 => CompressionMethod::Stored,
        8 => CompressionMethod::Deflate,
        other => return Err(fault(BundleFault::UnsupportedMethod(other))),
    };
    if read_u16_le(record, 34) != 0 {
        return Err(fault(BundleFault::Damaged("it lies on another disk")));
    }
    let path = parse_name(name, flags, ours && extras.raw_name)?;
    let folder = name.ends_with(b"/");
    check_attributes(attributes, folder).map_err(fault)?;
    if folder && size != 0 {
        return Err(fault(BundleFault::FolderWithContent));
    }
    if !folder && path.is_none() {
        return Err(fault(BundleFault::Name(NameFault::Empty)));
    }
    if method == CompressionMethod::Stored && size != coded {
        return Err(fault(BundleFault::WrongSize));
    }
    let (crc, is_marked) = (read_u32_le(record, 16), extras.raw_name);
    Ok(ZipEntry {
        name: name.into(),
        path,
        is_folder: folder,
        method,
        crc,
        compressed_len: coded,
        size,
        has_raw_name: is_marked,
        flags,
        header_offset: header,
    })
}

/// Refuses special files by the file type in the upper half of the external file attributes (APPNOTE.TXT 4.4.15), where
/// Unix writers store the mode.
fn check_attributes(attributes: u32, folder: bool) -> Result<(), BundleFault> {
    match attributes >> 16 & 0o170_000 {
        0o120_000 => Err(BundleFault::SpecialFile("symbolic link")),
        0o020_000 => Err(BundleFault::SpecialFile("character device")),
        0o060_000 => Err(BundleFault::SpecialFile("block device")),
        0o010_000 => Err(BundleFault::SpecialFile("fifo")),
        0o140_000 => Err(BundleFault::SpecialFile("socket")),
        0o040_000 if !folder => Err(BundleFault::FolderNamedLikeFile),
        _ => Ok(()),
    }
}

fn parse_name(name: &[u8], flags: u16, raw: bool) -> Result<Option<SitePath>, BundleRefusal> {
    let judged = if std::str::from_utf8(name).is_ok() || raw {
        SitePath::parse(name, !raw)
    } else if flags & UTF8_FLAG != 0 {
        return Err(BundleFault::Damaged("its name is not the UTF-8 that it claims to be").in_entry(name));
    } else {
        SitePath::parse(decode_cp437(name).as_bytes(), true)
    };
    judged.map_err(|fault| BundleFault::Name(fault).in_entry(name))
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
        let mut found = ExtraFields::default();
        // Fewer than four bytes at the end are padding, which zipalign writes.
        while extra.len() >= 4 {
            let (id, len) = (read_u16_le(extra, 0), usize::from(read_u16_le(extra, 2)));
            let data = extra.get(4..4 + len)?;
            match id {
                1 if found.zip64.is_some() => return None,
                1 => found.zip64 = Some(data),
                RAW_NAME_FIELD_ID => found.raw_name = true,
                _ => {}
            }
            extra = &extra[4 + len..];
        }
        Some(found)
    }
}
