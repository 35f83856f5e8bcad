//! Proving the members of a ZIP, one at a time, so that several readers can work side by side on one archive.
//!
//! The local header must agree with the directory, the data must decode to exactly what was declared, and a data
//! descriptor must repeat it (rules A7).

use docwharf_base::codec::inflate::{Inflate, InflateFault, Status};
use docwharf_base::model::digest::{Digest, Hasher};

use super::policy::{Fault, check_bomb};
use super::zip::{Extras, LOCAL, Member, Method, Zip, u16_at, u32_at, u64_at};
use super::{Entries, EntryKind, Head, ReadError, Sink};

const DESCRIPTOR: u32 = 0x0807_4b50;
const HAS_DESCRIPTOR: u16 = 1 << 3;

/// What proving a member found out.
#[derive(Debug, Clone)]
pub struct Proof {
    /// Where the compressed data begin in the archive.
    pub offset: u64,
    /// Digest of the content.
    pub content: Digest,
    /// CRC-32 of the compressed bytes; 0 for stored members.
    pub coded_crc: u32,
    /// Whether a DEFLATE stream ends exactly at the compressed size.
    pub exact: bool,
    /// Bit of the last DEFLATE block's header, from the start of the compressed data.
    pub last_header_bit: u64,
    /// Spare bits in the last byte.
    pub spare_bits: u8,
    /// The first byte behind the member, descriptor included.
    pub end: u64,
}

/// Proves members one after another, keeping its memory.
#[derive(Debug)]
pub struct MemberReader {
    inflate: Inflate,
    buffer: Vec<u8>,
    content: Hasher,
    coded: crc32fast::Hasher,
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
        MemberReader {
            inflate: Inflate::new(),
            buffer: Vec::new(),
            content: Hasher::new(),
            coded: crc32fast::Hasher::new(),
        }
    }

    /// Reads one member to its end, giving its content to `sink`, and checks everything that is claimed of it.
    pub fn prove(&mut self, zip: &Zip, member: &Member, sink: &mut Sink<'_>) -> Result<Proof, ReadError> {
        let fault = |fault: Fault| fault.of(&member.name);
        // The local extra field is mostly as long as the central one or a little longer: read some more than needed.
        let guess = 30 + member.name.len() as u64 + 64 + member.coded + 24;
        let room = zip.directory - member.header;
        let mut first = guess.min(PIECE as u64).min(room) as usize;
        self.buffer.resize(first, 0);
        zip.read_at(&mut self.buffer, member.header)?;
        let header = LocalHeader::declared_len(&self.buffer);
        if header > first as u64 {
            // A longer extra field than most have; with the name it stays below two pieces of 64 KiB.
            first = header.min(room) as usize;
            self.buffer.resize(first, 0);
            zip.read_at(&mut self.buffer, member.header)?;
        }
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
            coded_crc: 0,
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
        self.coded.reset();
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
        // Of no use when bytes stand behind the stream; such an archive is written anew.
        proof.coded_crc = self.coded.clone().finalize();
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
    /// How long the header says it is; `bytes` has at least its fixed part, or it is none.
    fn declared_len(bytes: &[u8]) -> u64 {
        if bytes.len() < 30 {
            return 0;
        }
        30 + u64::from(u16_at(bytes, 26)) + u64::from(u16_at(bytes, 28))
    }

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
