//! ZIP by its central directory (APPNOTE 6.3.10), strictly: every header must tell the same story (rules A7).
//!
//! Opening reads the end record and the whole directory and judges every name. [`MemberReader`] then proves one member
//! at a time, so that several can work side by side on one archive.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::codec::inflate::{Inflate, InflateFault, Status};
use crate::model::digest::{Digest, Hasher};
use crate::model::limits::Limits;
use crate::model::site_path::{NameFault, SitePath};

use super::policy::{Fault, Refusal, Tally, check_bomb};
use super::{Entries, EntryKind, Head, ReadError, Sink};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;

const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
const HAS_DESCRIPTOR: u16 = 1 << 3;
const PATCHED: u16 = 1 << 5;
const UTF8: u16 = 1 << 11;

/// A private extra field of docwharf's own images: the name's bytes are to be taken as they are, though they are not
/// UTF-8. Without it a Latin-1 name from a tar would come back as CP437.
pub const RAW_NAME: u16 = 0x7764;

/// How a member is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Stored,
    /// DEFLATE.
    Deflate,
}

/// One member as the central directory has it.
#[derive(Debug, Clone)]
pub struct Member {
    /// The name's bytes in the archive.
    pub name: Box<[u8]>,
    /// The judged path; `None` for the root folder.
    pub path: Option<SitePath>,
    /// Whether it is a folder.
    pub folder: bool,
    /// How its content is compressed.
    pub method: Method,
    /// CRC-32 of the content.
    pub crc: u32,
    /// Compressed size.
    pub coded: u64,
    /// Size of the content.
    pub size: u64,
    flags: u16,
    header: u64,
}

/// What proving a member found out.
#[derive(Debug, Clone)]
pub struct Proof {
    /// Where the compressed data begin in the archive.
    pub offset: u64,
    /// Digest of the content.
    pub content: Digest,
    /// Digest of the compressed bytes; for stored members the same as `content`.
    pub coded: Digest,
    /// Whether a DEFLATE stream ends exactly at the compressed size.
    pub exact: bool,
    /// Bit of the last DEFLATE block's header, from the start of the compressed data.
    pub last_header_bit: u64,
    /// Spare bits in the last byte.
    pub spare_bits: u8,
    /// The first byte behind the member, descriptor included.
    pub end: u64,
}

/// An archive whose directory has been read and judged.
#[derive(Debug)]
pub struct Zip {
    file: File,
    path: PathBuf,
    /// All members in the order of their data.
    pub members: Vec<Member>,
    directory: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn damaged(what: &'static str) -> Refusal {
    Fault::Damaged(what).of_archive()
}

struct Directory {
    start: u64,
    size: u64,
    count: u64,
}

impl Zip {
    /// Reads and judges the directory of `file`; `path` is for messages.
    pub fn open(file: File, path: &Path, limits: &Limits) -> Result<Zip, ReadError> {
        let length = file.metadata().map_err(ReadError::io(path))?.len();
        if length > limits.archive {
            return Err(Fault::ArchiveTooLarge(limits.archive).of_archive().into());
        }
        let mut zip = Zip { file, path: path.to_owned(), members: Vec::new(), directory: 0 };
        let directory = zip.find_directory(length)?;
        zip.directory = directory.start;
        if directory.count > limits.entries {
            return Err(Fault::TooManyEntries(limits.entries).of_archive().into());
        }
        zip.read_directory(&directory, limits)?;
        zip.members.sort_by_key(|m| m.header);
        zip.check_room()?;
        Ok(zip)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<(), ReadError> {
        self.file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Fault::Cut("it ends before what its directory promises").of_archive().into(),
            _ => ReadError::Io { path: self.path.clone(), source: error },
        })
    }

    /// Finds the one end record (APPNOTE 4.3.16), which must end where the file ends.
    fn find_directory(&self, length: u64) -> Result<Directory, ReadError> {
        const FIXED: u64 = 22;
        let tail_len = length.min(FIXED + 0xffff);
        if length < FIXED {
            return Err(Fault::Cut("no ZIP end record").of_archive().into());
        }
        let mut tail = vec![0; tail_len as usize];
        self.read_at(&mut tail, length - tail_len)?;
        let ends: Vec<usize> = (0..=tail.len() - FIXED as usize)
            .filter(|&at| u32_at(&tail, at) == END && at + FIXED as usize + usize::from(u16_at(&tail, at + 20)) == tail.len())
            .collect();
        let at = match ends[..] {
            [] => return Err(Fault::Cut("no ZIP end record at its end").of_archive().into()),
            [at] => at,
            _ => return Err(damaged("several end records").into()),
        };
        if tail[at + 4..].windows(4).any(|w| w == END.to_le_bytes()) {
            return Err(damaged("an end record inside the comment").into());
        }
        let end = &tail[at..];
        let end_at = length - tail_len + at as u64;
        let (disk, start_disk) = (u16_at(end, 4), u16_at(end, 6));
        let (here, total) = (u16_at(end, 8), u16_at(end, 10));
        let (size, start) = (u32_at(end, 12), u32_at(end, 16));
        let directory = match self.zip64(end_at)? {
            Some((record_at, wide)) => {
                let agrees = |narrow: u64, mark: u64, wide: u64| narrow == mark || narrow == wide;
                if !agrees(u64::from(total), 0xffff, wide.count)
                    || !agrees(u64::from(here), 0xffff, wide.count)
                    || !agrees(u64::from(size), 0xffff_ffff, wide.size)
                    || !agrees(u64::from(start), 0xffff_ffff, wide.start)
                    || ![0, 0xffff].contains(&disk)
                    || ![0, 0xffff].contains(&start_disk)
                {
                    return Err(damaged("its end records do not agree").into());
                }
                if wide.start.checked_add(wide.size) != Some(record_at) {
                    return Err(damaged("its directory is not where the end record says").into());
                }
                wide
            }
            None => {
                if disk != 0 || start_disk != 0 || here != total {
                    return Err(damaged("it is one part of several").into());
                }
                let directory = Directory { start: u64::from(start), size: u64::from(size), count: u64::from(total) };
                if directory.start + directory.size != end_at {
                    return Err(damaged("its directory is not where the end record says").into());
                }
                directory
            }
        };
        Ok(directory)
    }

    /// The zip64 end record (APPNOTE 4.3.14), where its locator stands before the end record.
    fn zip64(&self, end_at: u64) -> Result<Option<(u64, Directory)>, ReadError> {
        const LOCATOR: u64 = 20;
        let Some(locator_at) = end_at.checked_sub(LOCATOR) else { return Ok(None) };
        let mut locator = [0; LOCATOR as usize];
        self.read_at(&mut locator, locator_at)?;
        if u32_at(&locator, 0) != LOCATOR64 {
            return Ok(None);
        }
        let record_at = u64_at(&locator, 8);
        let mut record = [0; 56];
        if u32_at(&locator, 4) != 0 || u32_at(&locator, 16) > 1 || record_at.checked_add(56).is_none_or(|e| e > locator_at) {
            return Err(damaged("its zip64 locator").into());
        }
        self.read_at(&mut record, record_at)?;
        let (here, count) = (u64_at(&record, 24), u64_at(&record, 32));
        if u32_at(&record, 0) != END64
            || u64_at(&record, 4).checked_add(12 + record_at) != Some(locator_at)
            || u32_at(&record, 16) != 0
            || u32_at(&record, 20) != 0
            || here != count
        {
            return Err(damaged("its zip64 end record").into());
        }
        Ok(Some((record_at, Directory { start: u64_at(&record, 48), size: u64_at(&record, 40), count })))
    }

    fn read_directory(&mut self, directory: &Directory, limits: &Limits) -> Result<(), ReadError> {
        const FIXED: usize = 46;
        let mut tally = Tally::new(*limits);
        let mut window = Window::new(directory.start, directory.start + directory.size);
        for _ in 0..directory.count {
            let fixed = window.show(self, FIXED)?;
            if u32_at(fixed, 0) != CENTRAL {
                return Err(damaged("its directory").into());
            }
            let (name_len, extra_len, comment_len) =
                (usize::from(u16_at(fixed, 28)), usize::from(u16_at(fixed, 30)), usize::from(u16_at(fixed, 32)));
            let record = window.show(self, FIXED + name_len + extra_len + comment_len)?;
            let member = member(record, name_len, extra_len)?;
            tally.entry(&member.name, member.size)?;
            window.advance(record_len(name_len, extra_len, comment_len));
            self.members.push(member);
        }
        if window.left() != 0 {
            return Err(damaged("its directory holds more than the end record counts").into());
        }
        Ok(())
    }

    /// No two members may share bytes, and none may reach into the directory. Local extra fields are not known yet;
    /// [`Zip::check_ends`] completes this after proving.
    fn check_room(&self) -> Result<(), Refusal> {
        let (mut output, mut input) = (0u64, 0u64);
        for (i, member) in self.members.iter().enumerate() {
            let next = self.members.get(i + 1).map_or(self.directory, |m| m.header);
            let least = (30 + member.name.len() as u64).saturating_add(member.coded);
            if member.header.checked_add(least).is_none_or(|end| end > next) {
                return Err(Fault::Overlap.of(&member.name));
            }
            output = output.saturating_add(member.size);
            input = input.saturating_add(member.coded);
            check_bomb(output, input, None)?;
        }
        Ok(())
    }

    /// The archive's file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the directory begins, which is where the members end.
    pub fn directory_start(&self) -> u64 {
        self.directory
    }

    /// The exact form of the overlap rule, with what proving found: `ends[i]` belongs to `members[i]`.
    pub fn check_ends(&self, ends: impl Iterator<Item = u64>) -> Result<(), Refusal> {
        let starts = self.members.iter().skip(1).map(|m| m.header).chain([self.directory]);
        for ((member, end), next) in self.members.iter().zip(ends).zip(starts) {
            if end > next {
                return Err(Fault::Overlap.of(&member.name));
            }
        }
        Ok(())
    }
}

fn record_len(name: usize, extra: usize, comment: usize) -> usize {
    46 + name + extra + comment
}

/// The directory, read in pieces.
struct Window {
    bytes: Vec<u8>,
    at: usize,
    next: u64,
    end: u64,
}

impl Window {
    fn new(start: u64, end: u64) -> Window {
        Window { bytes: Vec::new(), at: 0, next: start, end }
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64 + self.end - self.next
    }

    fn show(&mut self, zip: &Zip, n: usize) -> Result<&[u8], ReadError> {
        if self.left() < n as u64 {
            return Err(damaged("its directory holds less than the end record counts").into());
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

/// One record of the central directory (APPNOTE 4.3.12).
fn member(record: &[u8], name_len: usize, extra_len: usize) -> Result<Member, Refusal> {
    let (flags, method) = (u16_at(record, 8), u16_at(record, 10));
    let name = &record[46..46 + name_len];
    let extra = &record[46 + name_len..46 + name_len + extra_len];
    let attributes = u32_at(record, 38);
    let fault = |fault: Fault| fault.of(name);

    let extras = Extras::parse(extra).ok_or_else(|| fault(Fault::Damaged("its extra fields")))?;
    let mut wide = extras.zip64.unwrap_or(&[]);
    let mut widen = |narrow: u32| -> Result<u64, Refusal> {
        if narrow != u32::MAX || extras.zip64.is_none() {
            return Ok(u64::from(narrow));
        }
        let (value, rest) = wide.split_at_checked(8).ok_or_else(|| Fault::Damaged("its zip64 field").of(name))?;
        wide = rest;
        Ok(u64_at(value, 0))
    };
    let size = widen(u32_at(record, 24))?;
    let coded = widen(u32_at(record, 20))?;
    let header = widen(u32_at(record, 42))?;
    if flags & ENCRYPTED != 0 || method == 99 {
        return Err(fault(Fault::Encrypted));
    }
    if flags & PATCHED != 0 {
        return Err(fault(Fault::Damaged("it is a patch")));
    }
    let method = match method {
        0 => Method::Stored,
        8 => Method::Deflate,
        other => return Err(fault(Fault::Method(other))),
    };
    if u16_at(record, 34) != 0 {
        return Err(fault(Fault::Damaged("it lies on another disk")));
    }
    let path = judge_name(name, flags, extras.raw_name)?;
    let folder = name.ends_with(b"/");
    check_attributes(attributes, folder).map_err(fault)?;
    if folder && size != 0 {
        return Err(fault(Fault::FolderWithContent));
    }
    if !folder && path.is_none() {
        return Err(fault(Fault::Name(NameFault::Empty)));
    }
    if method == Method::Stored && size != coded {
        return Err(fault(Fault::WrongSize));
    }
    let crc = u32_at(record, 16);
    Ok(Member { name: name.into(), path, folder, method, crc, coded, size, flags, header })
}

/// The file type in the upper half of the external attributes, where Unix writers put the mode.
fn check_attributes(attributes: u32, folder: bool) -> Result<(), Fault> {
    match attributes >> 16 & 0o170_000 {
        0o120_000 => Err(Fault::Special("symbolic link")),
        0o020_000 => Err(Fault::Special("character device")),
        0o060_000 => Err(Fault::Special("block device")),
        0o010_000 => Err(Fault::Special("fifo")),
        0o140_000 => Err(Fault::Special("socket")),
        0o040_000 if !folder => Err(Fault::FolderNamedLikeFile),
        _ => Ok(()),
    }
}

fn judge_name(name: &[u8], flags: u16, raw: bool) -> Result<Option<SitePath>, Refusal> {
    let judged = if std::str::from_utf8(name).is_ok() || raw {
        SitePath::judge(name, true)
    } else if flags & UTF8 != 0 {
        return Err(Fault::Damaged("its name is not the UTF-8 that it claims to be").of(name));
    } else {
        SitePath::judge(cp437(name).as_bytes(), true)
    };
    judged.map_err(|fault| Fault::Name(fault).of(name))
}

/// The encoding of ZIP names before UTF-8 (APPNOTE appendix D).
fn cp437(name: &[u8]) -> String {
    const HIGH: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";
    let high: Vec<char> = HIGH.chars().collect();
    name.iter()
        .map(|&b| if b < 0x80 { char::from(b) } else { high.get(usize::from(b - 0x80)).copied().unwrap_or('\u{fffd}') })
        .collect()
}

/// The extra fields that matter.
#[derive(Default)]
struct Extras<'a> {
    zip64: Option<&'a [u8]>,
    raw_name: bool,
}

impl<'a> Extras<'a> {
    fn parse(mut extra: &'a [u8]) -> Option<Extras<'a>> {
        let mut found = Extras::default();
        // Fewer than four bytes at the end are padding, as zipalign leaves it.
        while extra.len() >= 4 {
            let (id, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
            let data = extra.get(4..4 + len)?;
            match id {
                1 if found.zip64.is_some() => return None,
                1 => found.zip64 = Some(data),
                RAW_NAME => found.raw_name = true,
                _ => {}
            }
            extra = &extra[4 + len..];
        }
        Some(found)
    }
}

/// Proves members one after another, keeping its memory.
#[derive(Debug)]
pub struct MemberReader {
    inflate: Inflate,
    buffer: Vec<u8>,
    content: Hasher,
    coded: Hasher,
}

impl Default for MemberReader {
    fn default() -> Self {
        Self::new()
    }
}

/// Compressed bytes read at once; most members need one read for header, data and descriptor.
const PIECE: usize = 256 * 1024;

impl MemberReader {
    /// With nothing read yet.
    pub fn new() -> MemberReader {
        MemberReader { inflate: Inflate::new(), buffer: Vec::new(), content: Hasher::new(), coded: Hasher::new() }
    }

    /// Reads one member to its end, giving its content to `sink`, and checks everything that is claimed of it.
    pub fn prove(&mut self, zip: &Zip, member: &Member, sink: &mut Sink<'_>) -> Result<Proof, ReadError> {
        let fault = |fault: Fault| fault.of(&member.name);
        // The local extra field is mostly as long as the central one or a little longer: read some more than needed.
        let guess = 30 + member.name.len() as u64 + 64 + member.coded + 24;
        let first = guess.min(PIECE as u64).min(zip.directory - member.header) as usize;
        self.buffer.resize(first.max(30), 0);
        zip.read_at(&mut self.buffer[..first], member.header)?;
        let head = LocalHeader::check(&self.buffer[..first], member).map_err(fault)?;
        let offset = member.header + head.len;
        let end = offset.checked_add(member.coded).filter(|&end| end <= zip.directory);
        let end = end.ok_or_else(|| fault(Fault::Overlap))?;

        // What of the member's own bytes came with the header; the rest follows in pieces.
        let to = ((end - member.header).min(first as u64)) as usize;
        self.buffer.truncate(to);
        self.buffer.drain(..(head.len as usize).min(to));
        let mut pieces = Pieces { zip, read_to: offset + self.buffer.len() as u64, end };

        let mut proof = Proof {
            offset,
            content: Digest([0; 32]),
            coded: Digest([0; 32]),
            exact: true,
            last_header_bit: 0,
            spare_bits: 0,
            end,
        };
        let crc = match member.method {
            Method::Stored => self.stored(&mut pieces, member, sink)?,
            Method::Deflate => self.deflated(&mut pieces, member, sink, &mut proof)?,
        };
        if crc != member.crc {
            return Err(fault(Fault::WrongCrc).into());
        }
        proof.content = self.content.take();
        proof.coded = if member.method == Method::Stored { proof.content } else { self.coded.take() };
        if member.flags & HAS_DESCRIPTOR != 0 {
            proof.end = descriptor(zip, member, end)?;
        }
        Ok(proof)
    }

    fn stored(&mut self, pieces: &mut Pieces<'_>, member: &Member, sink: &mut Sink<'_>) -> Result<u32, ReadError> {
        let mut crc = crc32fast::Hasher::new();
        let mut size = 0u64;
        loop {
            crc.update(&self.buffer);
            self.content.update(&self.buffer);
            size += self.buffer.len() as u64;
            sink(&self.buffer)?;
            self.buffer.clear();
            if !pieces.more(&mut self.buffer)? {
                break;
            }
        }
        if size != member.size {
            return Err(Fault::WrongSize.of(&member.name).into());
        }
        Ok(crc.finalize())
    }

    fn deflated(
        &mut self,
        pieces: &mut Pieces<'_>,
        member: &Member,
        sink: &mut Sink<'_>,
        proof: &mut Proof,
    ) -> Result<u32, ReadError> {
        self.inflate.reset();
        self.coded.update(&self.buffer);
        let mut crc = crc32fast::Hasher::new();
        let (mut size, mut at) = (0u64, 0usize);
        loop {
            let last = pieces.read_to == pieces.end;
            let step = self.inflate.run(&self.buffer[at..], last).map_err(|f| Fault::Inflate(f).of(&member.name))?;
            at += step.consumed;
            let output = self.inflate.output();
            size += output.len() as u64;
            if size > member.size {
                return Err(Fault::WrongSize.of(&member.name).into());
            }
            check_bomb(size, self.inflate.bytes_taken(), Some(&member.name))?;
            crc.update(output);
            self.content.update(output);
            sink(output)?;
            match step.status {
                Status::WindowFull => {}
                Status::Done => break,
                Status::NeedInput => {
                    self.buffer.drain(..at);
                    at = 0;
                    let have = self.buffer.len();
                    if !pieces.more(&mut self.buffer)? {
                        return Err(Fault::Inflate(InflateFault::Truncated).of(&member.name).into());
                    }
                    self.coded.update(&self.buffer[have..]);
                }
            }
        }
        if size != member.size {
            return Err(Fault::WrongSize.of(&member.name).into());
        }
        proof.exact = self.inflate.bytes_taken() == member.coded;
        if !proof.exact {
            // Bytes behind the stream: not part of the coded form, so its digest is void.
            self.coded.take();
        }
        proof.last_header_bit = self.inflate.last_header_bit();
        proof.spare_bits = self.inflate.spare_bits();
        Ok(crc.finalize())
    }
}

/// The rest of a member's compressed bytes.
struct Pieces<'a> {
    zip: &'a Zip,
    read_to: u64,
    end: u64,
}

impl Pieces<'_> {
    /// Appends the next piece; `false` at the end.
    fn more(&mut self, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        let n = (self.end - self.read_to).min(PIECE as u64) as usize;
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

/// A local header (APPNOTE 4.3.7) that agrees with the directory.
struct LocalHeader {
    /// Fixed part, name and extra field.
    len: u64,
}

impl LocalHeader {
    fn check(bytes: &[u8], member: &Member) -> Result<LocalHeader, Fault> {
        let cut = Fault::Cut("its local header");
        if bytes.len() < 30 || u32_at(bytes, 0) != LOCAL {
            return Err(Fault::Damaged("it has no local header where the directory says"));
        }
        let (name_len, extra_len) = (usize::from(u16_at(bytes, 26)), usize::from(u16_at(bytes, 28)));
        let name = bytes.get(30..30 + name_len);
        if name_len != member.name.len() || name != Some(&member.name) {
            return Err(Fault::Disagrees("name"));
        }
        if u16_at(bytes, 6) != member.flags {
            return Err(Fault::Disagrees("flags"));
        }
        let method = match member.method {
            Method::Stored => 0,
            Method::Deflate => 8,
        };
        if u16_at(bytes, 8) != method {
            return Err(Fault::Disagrees("method"));
        }
        let (crc, coded, size) = (u32_at(bytes, 14), u32_at(bytes, 18), u32_at(bytes, 22));
        let (coded, size) = if coded == u32::MAX || size == u32::MAX {
            // 30 + 65,535 bytes of name and as many of extra field may not be there yet; such fields hold no zip64.
            let extra = bytes.get(30 + name_len..30 + name_len + extra_len).ok_or(cut)?;
            let extras = Extras::parse(extra).ok_or(Fault::Damaged("its extra fields"))?;
            match extras.zip64 {
                Some(wide) if wide.len() >= 16 => (u64_at(wide, 8), u64_at(wide, 0)),
                Some(_) => return Err(Fault::Damaged("its zip64 field")),
                None => (u64::from(coded), u64::from(size)),
            }
        } else {
            (u64::from(coded), u64::from(size))
        };
        // With a descriptor the header was written before the numbers were known: zero, or already right.
        let later = member.flags & HAS_DESCRIPTOR != 0;
        if crc != member.crc && !(later && crc == 0) {
            return Err(Fault::Disagrees("checksum"));
        }
        if (size != member.size && !(later && size == 0)) || (coded != member.coded && !(later && coded == 0)) {
            return Err(Fault::Disagrees("sizes"));
        }
        Ok(LocalHeader { len: (30 + name_len + extra_len) as u64 })
    }
}

/// The data descriptor (APPNOTE 4.3.9) behind a member, with or without signature, with 4- or 8-byte sizes; gives its
/// end. The form that agrees is the right one.
fn descriptor(zip: &Zip, member: &Member, at: u64) -> Result<u64, ReadError> {
    let have = (zip.directory - at).min(24) as usize;
    let mut bytes = [0u8; 24];
    zip.read_at(&mut bytes[..have], at)?;
    for signed in [true, false] {
        let skip = if signed { 4 } else { 0 };
        if signed && u32_at(&bytes, 0) != DESCRIPTOR {
            continue;
        }
        for width in [4, 8] {
            let len = skip + 4 + 2 * width;
            if len > have {
                continue;
            }
            let body = &bytes[skip..];
            let (coded, size) = if width == 4 {
                (u64::from(u32_at(body, 4)), u64::from(u32_at(body, 8)))
            } else {
                (u64_at(body, 4), u64_at(body, 12))
            };
            if u32_at(body, 0) == member.crc && coded == member.coded && size == member.size {
                return Ok(at + len as u64);
            }
        }
    }
    Err(Fault::Disagrees("data descriptor").of(&member.name).into())
}

/// A ZIP read member by member, for archives that must be written anew.
#[derive(Debug)]
pub struct ZipStream {
    zip: Zip,
    next: usize,
    pending: Option<usize>,
    ends: Vec<u64>,
    reader: MemberReader,
}

impl ZipStream {
    /// From the first member on.
    pub fn new(zip: Zip) -> ZipStream {
        ZipStream { zip, next: 0, pending: None, ends: Vec::new(), reader: MemberReader::new() }
    }
}

impl Entries for ZipStream {
    fn next_entry(&mut self) -> Result<Option<Head>, ReadError> {
        if self.pending.is_some() {
            self.content(&mut |_| Ok(()))?;
        }
        let Some(member) = self.zip.members.get(self.next) else {
            self.zip.check_ends(self.ends.iter().copied())?;
            return Ok(None);
        };
        self.pending = Some(self.next);
        self.next += 1;
        let kind = if member.folder { EntryKind::Folder } else { EntryKind::File };
        Ok(Some(Head { path: member.path.clone(), kind, size: member.size, modified: 0 }))
    }

    fn content(&mut self, sink: &mut Sink<'_>) -> Result<(), ReadError> {
        if let Some(index) = self.pending.take() {
            let proof = self.reader.prove(&self.zip, &self.zip.members[index], sink)?;
            self.ends.push(proof.end);
        }
        Ok(())
    }
}
