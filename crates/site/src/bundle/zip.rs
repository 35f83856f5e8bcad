//! ZIP by its central directory (APPNOTE 6.3.10), strictly: every header must tell the same story (rules A7).
//!
//! Opening reads the end record and the whole directory and judges every name. What the members themselves hold is
//! proved by [`super::zip_member`].

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use docwharf_base::model::limits::Limits;
use docwharf_base::model::site_path::{NameFault, SitePath};

use super::ReadError;
use super::policy::{Fault, Refusal, Tally, check_bomb};

pub(super) const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;

const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
const PATCHED: u16 = 1 << 5;
const UTF8: u16 = 1 << 11;

/// A private extra field of docwharf's own images: the name's bytes are to be taken as they are, though they are not
/// UTF-8 or hold a backslash. Without it a Latin-1 name from a tar would come back as CP437. In a received archive it
/// means nothing: there it could only switch checks off.
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
    /// Whether it has the private field of our own images ([`RAW_NAME`]).
    pub is_marked: bool,
    pub(super) flags: u16,
    /// Where its local header stands.
    pub(super) header: u64,
}

/// An archive whose directory has been read and judged.
#[derive(Debug)]
pub struct Zip {
    file: File,
    path: PathBuf,
    /// All members in the order of their data.
    pub members: Vec<Member>,
    pub(super) directory: u64,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
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
    /// Reads and judges the directory of a received archive; `path` is for messages.
    pub fn open(file: File, path: &Path, limits: &Limits) -> Result<Zip, ReadError> {
        Zip::read(file, path, limits, false)
    }

    /// The same for an image of our own, whose names are marked where they need it.
    pub fn open_image(file: File, path: &Path, limits: &Limits) -> Result<Zip, ReadError> {
        Zip::read(file, path, limits, true)
    }

    fn read(file: File, path: &Path, limits: &Limits, ours: bool) -> Result<Zip, ReadError> {
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
        zip.read_directory(&directory, limits, ours)?;
        zip.members.sort_by_key(|m| m.header);
        zip.check_room()?;
        Ok(zip)
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<(), ReadError> {
        self.file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Fault::Cut("it ends before what its directory promises").of_archive().into()
            }
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
            .filter(|&at| {
                u32_at(&tail, at) == END && at + FIXED as usize + usize::from(u16_at(&tail, at + 20)) == tail.len()
            })
            .collect();
        let at = match ends[..] {
            [] => {
                return Err(Fault::Cut("no ZIP end record at its end").of_archive().into());
            }
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
        let Some((record_at, wide)) = self.zip64(end_at)? else {
            if disk != 0 || start_disk != 0 || here != total {
                return Err(damaged("it is one part of several").into());
            }
            let directory = Directory { start: u64::from(start), size: u64::from(size), count: u64::from(total) };
            if directory.start + directory.size != end_at {
                return Err(damaged("its directory is not where the end record says").into());
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
            return Err(damaged("its end records do not agree").into());
        }
        if wide.start.checked_add(wide.size) != Some(record_at) {
            return Err(damaged("its directory is not where the end record says").into());
        }
        Ok(wide)
    }

    /// The zip64 end record (APPNOTE 4.3.14), where its locator stands before the end record.
    fn zip64(&self, end_at: u64) -> Result<Option<(u64, Directory)>, ReadError> {
        const LOCATOR: u64 = 20;
        let Some(locator_at) = end_at.checked_sub(LOCATOR) else {
            return Ok(None);
        };
        let mut locator = [0; LOCATOR as usize];
        self.read_at(&mut locator, locator_at)?;
        if u32_at(&locator, 0) != LOCATOR64 {
            return Ok(None);
        }
        let record_at = u64_at(&locator, 8);
        let mut record = [0; 56];
        if u32_at(&locator, 4) != 0
            || u32_at(&locator, 16) > 1
            || record_at.checked_add(56).is_none_or(|e| e > locator_at)
        {
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

    fn read_directory(&mut self, directory: &Directory, limits: &Limits, ours: bool) -> Result<(), ReadError> {
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
            let member = member(record, name_len, extra_len, ours)?;
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
            check_bomb(member.size, member.coded, Some(&member.name))?;
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

    /// Where the directory of the archive in `file` says it begins: for who wants to copy it before the members.
    pub fn find_start(file: File, path: &Path) -> Result<u64, ReadError> {
        let length = file.metadata().map_err(ReadError::io(path))?.len();
        let zip = Zip { file, path: path.to_owned(), members: Vec::new(), directory: 0 };
        Ok(zip.find_directory(length)?.start)
    }

    /// The first byte behind the space that member `at` may take.
    pub fn room_of(&self, at: usize) -> u64 {
        self.members.get(at + 1).map_or(self.directory, |next| next.header)
    }

    /// The exact form of the overlap rule, with what proving found: `ends[i]` belongs to `members[i]`. And the other way
    /// round: where bytes belong to no member, no member may be hidden from those who read the directory.
    pub fn check_ends(&self, ends: impl Iterator<Item = u64>) -> Result<(), ReadError> {
        let starts = self.members.iter().map(|m| m.header).chain([self.directory]);
        let names = self.members.iter().map(|m| Some(&m.name));
        for ((end, name), next) in [0].into_iter().chain(ends).zip([None].into_iter().chain(names)).zip(starts) {
            if end > next {
                return Err(Fault::Overlap.of(name.map_or(&[], |name| name)).into());
            }
            if next - end >= 30 {
                let mut magic = [0; 4];
                self.read_at(&mut magic, end)?;
                if u32_at(&magic, 0) == LOCAL {
                    return Err(damaged("a member that its directory does not list").into());
                }
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
fn member(record: &[u8], name_len: usize, extra_len: usize, ours: bool) -> Result<Member, Refusal> {
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
    let path = judge_name(name, flags, ours && extras.raw_name)?;
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
    let (crc, is_marked) = (u32_at(record, 16), extras.raw_name);
    Ok(Member { name: name.into(), path, folder, method, crc, coded, size, is_marked, flags, header })
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
        SitePath::judge(name, !raw)
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
pub(super) struct Extras<'a> {
    pub(super) zip64: Option<&'a [u8]>,
    raw_name: bool,
}

impl<'a> Extras<'a> {
    pub(super) fn parse(mut extra: &'a [u8]) -> Option<Extras<'a>> {
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
